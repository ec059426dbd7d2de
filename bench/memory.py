# SPDX-License-Identifier: Apache-2.0
"""The peak of a process's memory, its own alone."""

from __future__ import annotations

from pathlib import Path
import re


def peak_mb() -> float:
    """The most memory that this program has held so far [MB].

    `ru_maxrss` would not do: Linux passes the peak of the process that started it on to it.
    """
    status = Path('/proc/self/status').read_text()
    match = re.search(r'^VmHWM:\s+(\d+) kB$', status, re.MULTILINE)
    assert match, 'Linux tells VmHWM'
    return int(match[1]) / 1024
