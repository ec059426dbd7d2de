# SPDX-License-Identifier: Apache-2.0
"""The memory of a process, its own alone: its peak, and now."""

from __future__ import annotations

from pathlib import Path
import re


def peak_mb() -> float:
    """The most memory that this program has held so far [MB].

    `ru_maxrss` would not do: Linux passes the peak of the process that started it on to it.
    """
    return _status_mb('VmHWM')


def now_mb() -> float:
    """The memory that this program holds now [MB]."""
    return _status_mb('VmRSS')


def _status_mb(field: str) -> float:
    status = Path('/proc/self/status').read_text()
    match = re.search(rf'^{field}:\s+(\d+) kB$', status, re.MULTILINE)
    assert match, f'Linux tells {field}'
    return int(match[1]) / 1024
