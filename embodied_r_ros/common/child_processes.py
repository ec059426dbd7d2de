# SPDX-License-Identifier: Apache-2.0
"""Child processes that end when the process that started them ends, however that one ends.

Usage as a program: python child_processes.py PARENT_PID PROGRAM [ARGUMENT ...]

The process becomes the program, under its own process id. Only Linux ties lives together
(prctl(2), PR_SET_PDEATHSIG); elsewhere the program simply runs. The tie is to the thread that
started the process: it must live as long as the program is wanted.
"""

from __future__ import annotations

from contextlib import suppress
import ctypes
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tied(command: Sequence[str]) -> list[str]:
    """The command, as one that ends when this process ends."""
    return [sys.executable, '-I', '-S', __file__, str(os.getpid()), *command]


class ChildProcess:
    """A program in a process group of its own, tied to this process, with its output in a log."""

    def __init__(
        self,
        command: Sequence[str],
        log: Path,
        *,
        output: Path | None = None,
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
    ) -> None:
        """Start the program, in a thread that lives as long as the program is wanted.

        Args:
            command: The program and its arguments.
            log: File that takes what the program writes; it is made anew.
            output: File that takes its stdout alone; None: the log does.
            environment: Its environment; None: that of this process.
            folder: Where it runs; None: here.

        Raises:
            OSError: The log or the program cannot be opened.
        """
        self.log = log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open('wb') as errors, (output or log).open('ab') as out:
            if output:
                out.truncate(0)
            self._process = subprocess.Popen(
                tied(command),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=out if output else errors,
                stderr=errors,
                env=None if environment is None else dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def poll(self) -> int | None:
        """Its exit code, or minus the signal that ended it; None: it runs."""
        return self._process.poll()

    def wait(self, limit_s: float) -> int:
        """Wait for its end; returns its exit code.

        Raises:
            subprocess.TimeoutExpired: It still runs after so many seconds.
        """
        return self._process.wait(max(0.0, limit_s))

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the program and to all that it started."""
        # No such group: all of it has ended.
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def end(self, grace_s: float) -> bool:
        """Wait for the end after a signal; kill what is left of the group after the grace [s].

        Returns:
            True: it ended by itself.
        """
        try:
            self.wait(grace_s)
            ended = True
        except subprocess.TimeoutExpired:
            ended = False
        self.signal(signal.SIGKILL)
        self._process.wait()
        return ended

    def log_lines(self) -> list[str]:
        """The last lines of its log that are not empty; none where it cannot be read."""
        try:
            data = self.log.read_bytes()[-20_000:]
        except OSError:
            return []
        lines = (line.strip() for line in data.decode(errors='replace').splitlines())
        return [line for line in lines if line]


def tie_to_parent() -> None:
    """Have this process ended when its parent ends."""
    if sys.platform.startswith('linux'):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def main() -> None:
    """Tie, then become the program; returns only where the parent is already gone."""
    parent, program, *arguments = sys.argv[1:]
    tie_to_parent()
    # The parent may have ended before the tie was made.
    if os.getppid() == int(parent):
        os.execvp(program, [program, *arguments])


if __name__ == '__main__':
    main()
