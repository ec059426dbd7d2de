# SPDX-License-Identifier: Apache-2.0
"""A DDS transport that does not lose camera images.

Fast DDS sends data to processes of the same host through shared memory, in a segment of 512 KB: a
raw image of 640x480 (0.9 MB) does not fit, and best-effort images are lost without a word. A
larger segment of the sender is all it takes; UDP stays on for other hosts and for processes with
other settings. Other middlewares, and whatever the user has set, are left alone: for what is lost
there, `remedy_for_lost_images` says what to do.
"""

from __future__ import annotations

from pathlib import Path
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.resources import shared_path

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
# What a program may ask of a socket [bytes]; Linux comes with STOCK_SOCKET_LIMIT.
SOCKET_LIMIT = Path('/proc/sys/net/core/rmem_max')
STOCK_SOCKET_LIMIT = 212_992
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
        environ: The environment as it is; it tells which middleware is in use.
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
    return '; or '.join(ways) + '; see docs/on_a_robot.md'


def socket_limit() -> int | None:
    """The largest receive buffer that a program may ask for [bytes]; None: not known here."""
    try:
        return int(SOCKET_LIMIT.read_text())
    except (OSError, ValueError):
        return None


def _is_fast_dds(environ: Mapping[str, str]) -> bool:
    return 'fastrtps' in (environ.get('RMW_IMPLEMENTATION') or 'rmw_fastrtps_cpp')


def _free_shared_memory() -> int:
    try:
        return shutil.disk_usage('/dev/shm').free
    except OSError:
        return _SEGMENT_MB * _PROCESSES * _MB
