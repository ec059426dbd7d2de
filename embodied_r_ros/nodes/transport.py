# SPDX-License-Identifier: Apache-2.0
"""A DDS transport that does not lose camera images."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
import fcntl
import os
from pathlib import Path
import re
import shutil
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.files import shared_path

if TYPE_CHECKING:
    from collections.abc import Mapping


_MB = 1024 * 1024
# Holds two raw images of 1920x1080 and their fragments' overhead.
_SEGMENT_MB = 16
# With less, raw images of 640x480 are lost.
_SMALLEST_SEGMENT_MB = 2
# Each process has a segment of its own; containers often give all of them 64 MB.
_PROCESSES = 8
_SET_BY_USER = (
    'FASTDDS_BUILTIN_TRANSPORTS',
    'FASTDDS_DEFAULT_PROFILES_FILE',
    'FASTRTPS_DEFAULT_PROFILES_FILE',
)
# Their Fast DDS (2.6) reads profiles only.
_OLD_DISTROS = ('humble', 'iron')
# What a program may ask of a socket [bytes].
SOCKET_LIMIT = Path('/proc/sys/net/core/rmem_max')
# Two raw images of 1920x1080 on their way, as the segment.
_GENEROUS_SOCKET_LIMIT = _SEGMENT_MB * _MB


def segment_mb(free_bytes: int) -> int:
    """Size of a process's shared-memory segment that the machine can afford [MB]."""
    return max(_SMALLEST_SEGMENT_MB, min(_SEGMENT_MB, free_bytes // _MB // _PROCESSES))


def transport_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Environment variables that every process of the pipeline needs, the camera driver too.

    Args:
        environ: The environment as it is.

    Returns:
        What to add to it; empty where another middleware is in use or the user has decided.
    """
    if not _is_fast_dds(environ) or any(name in environ for name in _SET_BY_USER):
        return {}
    if environ.get('ROS_DISTRO') in _OLD_DISTROS:
        profile = shared_path('config', 'dds', 'fastdds.xml')
        return {'FASTRTPS_DEFAULT_PROFILES_FILE': str(profile)}
    # Fast DDS makes the segment twice the size of a socket buffer. A socket buffer larger than the
    # system allows (net.core.rmem_max) becomes what the system allows.
    socket_mb = segment_mb(_free_shared_memory()) // 2
    return {'FASTDDS_BUILTIN_TRANSPORTS': f'DEFAULT?sockets_size={socket_mb}MB'}


def stock_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without any choice of transport: that of a program that knows of none."""
    return {name: value for name, value in environ.items() if name not in _SET_BY_USER}


def remedy_for_lost_images(environ: Mapping[str, str]) -> str:
    """What to do where images are lost between two processes: one line, the best way first.

    Args:
        environ: The environment as it is; it names the middleware in use.
    """
    ways = []
    if _is_fast_dds(environ):
        [(name, value)] = transport_environment(stock_environment(environ)).items()
        ways.append(f"run export {name}='{value}' before the camera driver (shared memory)")
    elif 'cyclonedds' in environ['RMW_IMPLEMENTATION']:
        profile = shared_path('config', 'dds', 'cyclonedds.xml')
        ways.append(f'run export CYCLONEDDS_URI=file://{profile} before camera driver and nodes')
    ways += [
        'set reliable QoS on camera and subscription (qos_overrides)',
        'use image_transport compressed',
        f'where UDP is in use, sudo sysctl -w net.core.rmem_max={_GENEROUS_SOCKET_LIMIT} '
        f'(now {socket_limit() or "not known"})',
    ]
    return '; or '.join(ways) + f'; see {shared_path("docs", "on_a_robot.md")}'


def socket_limit() -> int | None:
    """The largest receive buffer that a program may ask for [bytes]; None: not known here."""
    try:
        return int(SOCKET_LIMIT.read_text())
    except (OSError, ValueError):
        return None


# Fast DDS locks `_el` of a segment or port while its owner lives, and `_sl` of a shared port.
_LOCK_NAME = re.compile(r'((?:fastrtps|fastdds)_(port)?[0-9a-f]+)_[es]l')
# A file is made before it is locked.
_YOUNGEST_S = 2.0


def remove_abandoned_segments(
    *, ports: bool = False, folder: Path = Path('/dev/shm')
) -> list[str]:
    """Remove the shared memory that processes of Fast DDS left behind when they were killed.

    Only what nobody holds the lock of, and what this user owns. The same as `fastdds shm clean`,
    but for ports that a living process has opened: it would go on to write to what is no longer
    there.

    Args:
        ports: Also ports. Not while nodes start, which take those of the dead.
        folder: Where the shared memory is.

    Returns:
        Names of the segments and ports that were removed.
    """
    locks = defaultdict(list)
    for file in sorted(folder.glob('fast*_[es]l')):
        match = _LOCK_NAME.fullmatch(file.name)
        if match and (ports or not match.group(2)):
            locks[match.group(1)].append(file)
    abandoned = [name for name, files in locks.items() if all(map(_is_abandoned, files))]
    if any('_port' in name for name in abandoned):
        in_use = _mapped_names()
        abandoned = [name for name in abandoned if '_port' not in name or name not in in_use]
    for name in abandoned:
        for file in (folder / name, folder / f'sem.{name}_mutex', *locks[name]):
            with suppress(OSError):
                file.unlink()
    return abandoned


def _is_abandoned(lock: Path) -> bool:
    try:
        with lock.open('ab') as file:
            status = os.fstat(file.fileno())
            if status.st_uid != os.geteuid() or status.st_mtime > time.time() - _YOUNGEST_S:
                return False
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _mapped_names() -> set[str]:
    """Names of the segments and ports that processes have opened."""
    names: set[str] = set()
    for maps in Path('/proc').glob('[0-9]*/maps'):
        with suppress(OSError):
            names.update(re.findall(r'/dev/shm/(\w+)$', maps.read_text(), re.MULTILINE))
    return names


def _is_fast_dds(environ: Mapping[str, str]) -> bool:
    return 'fastrtps' in (environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp')


def _free_shared_memory() -> int:
    try:
        return shutil.disk_usage('/dev/shm').free
    except OSError:
        return _SEGMENT_MB * _PROCESSES * _MB
