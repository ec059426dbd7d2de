# SPDX-License-Identifier: Apache-2.0
"""Where shipped files lie: in the clone, or in an installed share folder."""

from __future__ import annotations

import os
from pathlib import Path
import sys

from embodied_r_ros.errors import ConfigError

_CLONE = Path(__file__).resolve().parent.parent


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
    looked = ', '.join(map(str, candidates)) or 'nowhere'
    msg = (
        f'{Path(*parts)} is not installed (looked at {looked}): build the workspace, or source it'
    )
    raise ConfigError(msg)
