# SPDX-License-Identifier: Apache-2.0
"""Processes: children that end when this one ends, and the service manager that started it.

Usage as a program: python processes.py PARENT_PID PROGRAM [ARGUMENT ...]

The process becomes the program, under its own process id. Only Linux ties lives together
(prctl(2), PR_SET_PDEATHSIG); elsewhere the program simply runs. The tie is to the thread that
started the process: it must live as long as the program is wanted.
"""

from __future__ import annotations

from contextlib import suppress
import ctypes
import os
import signal
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def tie_command(command: Sequence[str]) -> list[str]:
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
                tie_command(command),
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


_US_PER_S = 1_000_000
# So often is the watchdog told within its time; a node may be silent for half of it.
_BEATS = 4


class ServiceManager:
    """The service manager that started this process, if one did.

    It hears by the protocol of systemd (sd_notify(3)): a datagram to the socket in NOTIFY_SOCKET.
    Where nothing is there to hear it, nothing is said.
    """

    def __init__(self, environment: Mapping[str, str]) -> None:
        """Take the environment of the process."""
        self._address = environment.get('NOTIFY_SOCKET', '')
        text = environment.get('WATCHDOG_USEC', '')
        self.watchdog_s = int(text) / _US_PER_S if self._address and text.isdecimal() else 0.0

    def tell(self, *states: str) -> None:
        """Tell it something, such as 'READY=1'; where it does not listen, that is no error."""
        if not self._address:
            return
        # '@' stands for the zero byte of a name that is no file.
        address = self._address.replace('@', '\0', 1)
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            sender.setblocking(False)  # a manager that hangs must not hang us
            sender.sendto('\n'.join(states).encode(), address)


class Watchdog:
    """Tells the manager that a service is alive for as long as all its parts are heard.

    For one thread; times are of the monotonic clock [s].
    """

    def __init__(self, manager: ServiceManager, parts: Iterable[str], now_s: float) -> None:
        """Take the names of the parts, which count as heard now."""
        self._manager = manager
        self._heard_s = dict.fromkeys(parts, now_s)
        self.period_s = manager.watchdog_s / _BEATS

    def hear(self, part: str, now_s: float) -> None:
        """Note that a part is alive; unknown parts are ignored."""
        if part in self._heard_s:
            self._heard_s[part] = now_s

    def beat(self, now_s: float) -> list[str]:
        """Tell the manager, unless parts are silent: those are returned, and it acts later."""
        limit_s = self._manager.watchdog_s / 2
        silent = [part for part, heard_s in self._heard_s.items() if now_s - heard_s > limit_s]
        if not silent:
            self._manager.tell('WATCHDOG=1')
        return silent


if __name__ == '__main__':
    main()
