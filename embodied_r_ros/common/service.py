# SPDX-License-Identifier: Apache-2.0
"""What a service manager hears of this process: that it is ready, alive, or about to end.

By the protocol of systemd (sd_notify(3), which depends on no library): a datagram to the socket in
NOTIFY_SOCKET. Where nothing is there to hear it, nothing is said.
"""

from __future__ import annotations

from contextlib import suppress
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_US_PER_S = 1_000_000
# So often is the watchdog told within its time; a node may be silent for half of it.
_BEATS = 4


class ServiceManager:
    """The service manager that started this process, if one did."""

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
        """Take that a part is alive; others are none of ours."""
        if part in self._heard_s:
            self._heard_s[part] = now_s

    def beat(self, now_s: float) -> list[str]:
        """Tell the manager, unless parts are silent: those are returned, and it acts later."""
        limit_s = self._manager.watchdog_s / 2
        silent = [part for part, heard_s in self._heard_s.items() if now_s - heard_s > limit_s]
        if not silent:
            self._manager.tell('WATCHDOG=1')
        return silent
