# SPDX-License-Identifier: Apache-2.0
"""Whether model servers can be reached, also while nobody asks them anything."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import DeadlineError
from embodied_r_ros.nodes.diagnostics import Health, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embodied_r_ros.chat.client import HttpChatClient
    from embodied_r_ros.types.deltas import Rung

_LOOK_S = 3.0
_REPLY_S = 5.0


class ModelWatch:
    """Asks model servers regularly whether they are there. Decides nothing: health only."""

    def __init__(
        self,
        clients: Mapping[Rung, HttpChatClient],
        is_busy: Callable[[], bool],
        *,
        has_fallback: bool = False,
    ) -> None:
        """Start to look, in a thread of its own.

        Args:
            clients: The clients, by rung.
            is_busy: Whether a server may be generating, and then reply late.
            has_fallback: Whether something works without any server.
        """
        self._servers, self._is_busy, self._has_fallback = clients, is_busy, has_fallback
        self._problems: dict[Rung, str] = {}
        self._end = threading.Event()
        if clients:
            threading.Thread(target=self._watch, name='model watch', daemon=True).start()

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        self._is_busy = bool  # the thread may wait for a reply still, and is to keep no node alive

    def health(self) -> list[Health]:
        """What is wrong with the servers; empty: nothing."""
        problems = dict(self._problems)
        is_down = len(problems) == len(self._servers) and not self._has_fallback
        level = Level.ERROR if is_down else Level.WARN
        return [
            Health(level, f'{rung.name.lower()} model server: {problem}')
            for rung, problem in sorted(problems.items(), key=lambda entry: entry[0].value)
        ]

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_S):
            for rung, client in self._servers.items():
                self._look(rung, client)

    def _look(self, rung: Rung, client: HttpChatClient) -> None:
        try:
            client.reach(_REPLY_S)
        except DeadlineError as error:
            if not self._is_busy():
                self._problems[rung] = str(error)
        except Exception as error:  # whatever it was, the server did not reply
            self._problems[rung] = ' '.join(str(error).split()) or type(error).__name__
        else:
            self._problems.pop(rung, None)
