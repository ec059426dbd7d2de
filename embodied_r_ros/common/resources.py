# SPDX-License-Identifier: Apache-2.0
"""Where shipped files lie, in the clone or an installed share, and which code is running."""

from __future__ import annotations

from functools import cache
import getpass
from importlib.metadata import PackageNotFoundError, version
import json
import os
from pathlib import Path
import subprocess
import sys

from embodied_r_ros.common.errors import ConfigError

_CLONE = Path(__file__).resolve().parents[2]


def shared_path(*parts: str) -> Path:
    """Path of a shipped file or folder, such as `shared_path('models', 'nano')`.

    The clone wins over an installed copy, so that an editable install uses what is edited.

    Raises:
        ConfigError: It is nowhere; the message lists where it was looked for.
    """
    roots = [_CLONE] if (_CLONE / 'package.xml').exists() else []
    roots += _shares('embodied_r_ros')
    return _first_existing(roots, parts)


def interface_path(*parts: str) -> Path:
    """Path of a file of embodied_r_msgs, such as `interface_path('msg', 'Answer.msg')`.

    Raises:
        ConfigError: The package is neither in the clone nor installed.
    """
    roots = [_CLONE / 'embodied_r_msgs']
    roots += _shares('embodied_r_msgs')
    roots += [share / 'embodied_r_msgs' for share in _shares('embodied_r_ros')]
    return _first_existing(roots, parts)


def _shares(package: str) -> list[Path]:
    """Share folders of a package, nearest first; a workspace may have a prefix per package."""
    shares = [prefix / 'share' / package for prefix in _prefixes()]
    return [share for share in shares if share.is_dir()]


def _prefixes() -> list[Path]:
    """Install prefixes, nearest first."""
    ament = os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep)
    return [Path(prefix) for prefix in (*ament, sys.prefix) if prefix]


def _first_existing(roots: list[Path], parts: tuple[str, ...]) -> Path:
    candidates = [root.joinpath(*parts) for root in roots]
    for candidate in candidates:
        if candidate.exists():
            return candidate
    places = ', '.join(map(str, candidates)) or 'nowhere'
    msg = (
        f'{Path(*parts)} is not installed (looked at {places}): build the workspace, or source it'
    )
    raise ConfigError(msg)


def data_folder(name: str) -> Path:
    """Folder of data of one kind, where the XDG base directory specification has a user's data."""
    data = os.environ.get('XDG_DATA_HOME', '') or '~/.local/share'
    return Path(data).expanduser() / 'embodied_r_ros' / name


_GIT_TIMEOUT_S = 5.0


def user_name() -> str:
    """Name of the user who runs this; of one without a name, as in containers, the number."""
    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):
        return f'uid {os.getuid()}'


@cache
def code_version() -> dict[str, str]:
    """Version of the package, and the git revision of the clone it runs from.

    `git_revision` ends in '-dirty' where files differ from it, and is empty where the package does
    not run from a clone.
    """
    try:
        package = version('embodied_r_ros')
    except PackageNotFoundError:
        package = ''
    return {'package': 'embodied_r_ros', 'version': package, 'git_revision': _git_revision()}


def node_of(record: str) -> str:
    """Name of the node whose provenance a record is; empty where it is not that of a node.

    Anybody may publish one: a recording that is played has the provenance of its simulator.
    """
    try:
        content = json.loads(record)
    except (ValueError, RecursionError):
        return ''
    name = content.get('node') if isinstance(content, dict) else None
    return name if isinstance(name, str) else ''


def _git_revision() -> str:
    if not (_CLONE / '.git').exists():
        return ''
    command = ['git', '-C', str(_CLONE), 'describe', '--always', '--abbrev=40', '--dirty']
    command += ['--exclude', '*']
    try:
        run = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ''
    return run.stdout.strip()
