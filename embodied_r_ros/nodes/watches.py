# SPDX-License-Identifier: Apache-2.0
"""Whether model servers can be reached, and whether answers of an episode reach its recorder.

By looking, also while nobody asks a model anything. Answers that may be in no recording go to the
log.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark
from embodied_r_ros.common.errors import DeadlineError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.nodes.diagnostics import Health, Level

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embodied_r_ros.core.chat.client import HttpChatClient
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import Rung
    from embodied_r_ros.nodes.node_base import ManagedNode

_RECORDER_S = 1.0
# The middleware needs some time to notice a killed process (Fast DDS 20 s, Cyclone DDS 10 s).
_UNNOTICED_S = 30.0

_MODELS_S = 3.0
_REPLY_S = 5.0


class RecorderWatch:
    """Looks whether what marked the start of the running episode is still there."""

    def __init__(self, node: ManagedNode) -> None:
        """Look once a second while the node is active."""
        self._node = node
        self._topic = node.resolve_topic_name('episode_mark')
        self._episode_id = ''  # of the running episode
        self._recorders: set[bytes] = set()  # publishers of marks when it started
        self._is_gone = False
        self._open_answers: deque[tuple[float, str]] = (
            deque()
        )  # answers whose fate is open, and when [s]
        self._not_recorded = self._outside = 0
        node.every(_RECORDER_S, self._look)

    def take_mark(self, msg: EpisodeMark) -> None:
        """Note the start or end of an episode."""
        there = self._publishers()
        is_start = msg.event == EpisodeMark.EVENT_START
        # One that is dead may be listed still when another one has come in its place.
        is_another = is_start and bool(self._recorders) and bool(there - self._recorders)
        self._settle(is_lost=self._is_lost(there) or is_another)
        self._open_answers.clear()
        self._is_gone, self._recorders = False, there
        self._episode_id = msg.episode_id if is_start else ''

    def note(self, answer: Answer) -> None:
        """Take an answer that was published. From any thread."""
        if not self._episode_id:
            self._outside += 1
            return
        text = f'answer {answer.id} to {as_data(answer.question)!r}: {as_data(answer.text)!r}'
        self._open_answers.append((time.monotonic(), text))

    def extend_health(self, health: Health) -> Health:
        """The node's health, with the figures of this watch."""
        values = {
            **health.values,
            'answers_outside_episodes': self._outside,
            'answers_not_recorded': self._not_recorded,
        }
        if self._is_gone and health.level is Level.OK:
            text = (
                f'answers are not recorded: the recorder of episode {self._episode_id} is gone; '
                'start it, and an episode'
            )
            return Health(Level.WARN, text, values)
        return replace(health, values=values)

    def _look(self) -> None:
        there = self._publishers()
        # A mark may come before its publisher is known.
        self._recorders = self._recorders or there
        is_lost = self._is_lost(there)
        self._settle(is_lost=is_lost)
        self._is_gone = is_lost  # reported once its answers are counted

    def _is_lost(self, there: set[bytes]) -> bool:
        return bool(self._episode_id and self._recorders) and not self._recorders & there

    def _settle(self, *, is_lost: bool) -> None:
        """Let go of the answers whose fate is known; those that are lost go to the log."""
        before = time.monotonic() - _UNNOTICED_S
        while self._open_answers and (is_lost or self._open_answers[0][0] < before):
            _, text = self._open_answers.popleft()
            if is_lost:
                self._node.get_logger().warning(f'may be in no recording: {text}')
                self._not_recorded += 1

    def _publishers(self) -> set[bytes]:
        infos = self._node.get_publishers_info_by_topic(self._topic)
        return {bytes(info.endpoint_gid) for info in infos}


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
        while not self._end.wait(_MODELS_S):
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
