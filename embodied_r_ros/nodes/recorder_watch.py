# SPDX-License-Identifier: Apache-2.0
"""Whether the answers of an episode still reach its recorder; those that may not go to the log."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
import time
from typing import TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.nodes.diagnostics import Health, Level

if TYPE_CHECKING:
    from embodied_r_ros.nodes.node_base import ManagedNode
    from embodied_r_ros.types.answers import Answer

_LOOK_S = 1.0
# The middleware needs some time to notice a killed process (Fast DDS 20 s, Cyclone DDS 10 s).
_UNNOTICED_S = 30.0


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
        node.every(_LOOK_S, self._look)

    def take_mark(self, msg: EpisodeMark) -> None:
        """Take that an episode starts or ends."""
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
