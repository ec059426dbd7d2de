# SPDX-License-Identifier: Apache-2.0
"""Programs of the project as child processes, which never outlive the one that started them."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.common.processes import ChildProcess

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parent.parent
_GRACE_S = 20.0  # between asking a program to end and making it
_TAIL_CHARS = 600


@contextmanager
def child(words: Sequence[str], output: Path, log: Path) -> Iterator[ChildProcess]:
    """Run a program in the root of the clone; it is ended with the block.

    Args:
        words: `embodied-r` or a module, and its arguments.
        output: File that takes its stdout.
        log: File that takes its stderr.
    """
    module = 'embodied_r_ros.cli.main' if words[0] == 'embodied-r' else words[0]
    command = [sys.executable, '-m', module, *words[1:]]
    process = ChildProcess(command, log, output=output, folder=ROOT)
    try:
        yield process
    finally:
        process.signal(signal.SIGTERM)
        process.end(_GRACE_S)


def run_child(words: Sequence[str], log: Path, limit_s: float, well: Sequence[int] = (0,)) -> int:
    """Run a program to its end, with stdout in `LOG.out`; returns its exit code.

    Raises:
        EmbodiedRError: It takes longer than `limit_s`, or ends with a code that is not of `well`;
            with the end of its log.
    """
    with child(words, log.with_suffix('.out'), log) as process:
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            msg = f'{words[0]} did not end within {limit_s:.0f} s: see {log}'
            raise EmbodiedRError(msg) from None
    if code not in well:
        tail = ' '.join(log.read_text(errors='replace')[-_TAIL_CHARS:].split())
        msg = f'{words[0]} ended with code {code}: see {log} ({tail})'
        raise EmbodiedRError(msg)
    return code
