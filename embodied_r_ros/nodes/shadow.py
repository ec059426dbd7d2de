# SPDX-License-Identifier: Apache-2.0
"""The candidate of a reasoner: its server, its answers on `shadow_answer`, and how it is doing."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from embodied_r_msgs.msg import Answer as AnswerMsg
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.reasoning.shadow import Shadow, ShadowConfig
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import SHADOW_ANSWER
from embodied_r_ros.data.own_messages import answer_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Health, Level
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.serving.profiles import stand_in_server

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.nodes.node_base import ManagedNode


class ShadowOfReasoner:
    """Has a candidate answer while the node is active; publishes what it says, and no more."""

    def __init__(self, node: ManagedNode, config: ShadowConfig) -> None:
        """Take the server, which need not answer yet: the robot does without.

        Raises:
            ConfigError: The URL is none, or the profile or the token cannot be used.
        """
        self._node, self._config = node, config
        self._client = HttpChatClient(stand_in_server(config.server, 'reasoner', 'shadow'))
        self._answers = node.publisher(AnswerMsg, SHADOW_ANSWER, topics.RESULT)
        self._shadow: Shadow | None = None  # while the node is active
        self._model = ''  # that spoke last

    @classmethod
    def of(cls, node: ManagedNode, config: ShadowConfig) -> ShadowOfReasoner | None:
        """The candidate of a config; None: it names none.

        Raises:
            ConfigError: As of the constructor.
        """
        return cls(node, config) if config.server else None

    def start(self, config: ReasonerConfig, is_idle: Callable[[], bool]) -> None:
        """Answer while the node is active and no question waits."""
        reasoner = Reasoner(self._client, config)
        now_ns = self._node.now_ns
        self._shadow = Shadow(reasoner, self._config, is_idle, now_ns, self._publish)
        self._node.while_active.callback(self._stop)

    def reconfigure(self, config: ReasonerConfig) -> None:
        """Answer with other settings from the next question on."""
        if self._shadow:
            self._shadow.reconfigure(Reasoner(self._client, config))

    def offer(self, answer: Answer, question: Question, deltas: Sequence[SemanticDelta]) -> None:
        """Take an answer that was published, its question, and all deltas. From any thread."""
        if self._shadow:
            until_then = [d for d in deltas if d.stamp_ns <= answer.observation_stamp_ns]
            scene = Scene(until_then, question.scene_map)
            self._shadow.offer(answer, question.shown.image if question.shown else None, scene)

    def give_way(self) -> None:
        """Make way for a question that somebody asks."""
        if self._shadow:
            self._shadow.give_way()

    def health(self) -> Health | None:
        """Say that a candidate answers too, and how it is doing; None: it does not now."""
        if not self._shadow:
            return None
        stats = self._shadow.stats()
        values = {'server': self._config.server, 'model': self._model or 'not heard yet'}
        values |= {key: value for key, value in asdict(stats).items() if key != 'problem'}
        if stats.problem:
            text = f'a shadow runs, and has not answered its last question: {stats.problem}'
            return Health(Level.WARN, text, values)
        return Health(Level.OK, 'a shadow runs: its answers are recorded, and go nowhere', values)

    def _publish(self, answer: Answer) -> None:
        """Publish what the candidate said. Runs in its thread."""
        self._model = answer.model.name or self._model
        try:
            self._answers.publish(answer_to_msg(ROS_MESSAGES, answer))
        except Exception as error:  # what cannot be published is no reason to stop
            self._node.log_problem(error)

    def _stop(self) -> None:
        if self._shadow:
            self._shadow.close()
        self._shadow = None
