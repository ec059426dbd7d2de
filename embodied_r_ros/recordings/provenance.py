# SPDX-License-Identifier: Apache-2.0
"""Which code is running, and who says so, for the record."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
import json
from pathlib import Path
import subprocess

_CLONE = Path(__file__).resolve().parents[2]
_GIT_TIMEOUT_S = 5.0


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
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, timeout=_GIT_TIMEOUT_S
        )
    except (OSError, subprocess.SubprocessError):
        return ''
    return done.stdout.strip()
