# SPDX-License-Identifier: Apache-2.0
"""Answers to questions that are typed in the page: as `embodied-r ask` gives them."""

from __future__ import annotations

from contextlib import ExitStack
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.episodes.offline import recorded_scene, SceneAsker

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.data.episodes.episode import Episode


class EpisodeAsker:
    """Answers questions about episodes, one at a time; the model is reached for the first."""

    def __init__(
        self,
        reach: Callable[[], AbstractContextManager[ChatConfig | None]],
        config: ReasonerConfig,
    ) -> None:
        """Say who answers.

        Args:
            reach: Reaches the model, until `close`; it may give None: the tools answer.
            config: How it is asked.
        """
        self._reach, self._config = reach, config
        self._stack = ExitStack()
        self._chat: ChatConfig | None = None
        self._is_there = False
        self._alone = threading.Lock()
        # Who answers about the episode, and up to the moment [ns], that were asked about last.
        self._last: tuple[Episode, float, SceneAsker] | None = None

    def __call__(self, episode: Episode, question: Question, until_ns: float) -> Answer:
        """Answer a question about what an episode shows up to a moment [ns].

        Raises:
            InputError: Another one is being answered, or the model does not answer.
            Refusal: There is no answer.
        """
        if not self._alone.acquire(timeout=self._config.deadline_s):
            msg = 'another question is being answered: ask again when it is done'
            raise InputError(msg)
        try:
            self.start()
            if not self._last or self._last[0] is not episode or self._last[1] != until_ns:
                scene = recorded_scene(episode, until_ns)
                asker = SceneAsker(scene, self._chat, self._config)
                self._last = episode, until_ns, asker
            return self._last[2].ask(question, lambda *_: None)
        finally:
            self._alone.release()

    def start(self) -> None:
        """Reach the model now.

        Raises:
            ConfigError: There is no such model.
            ModelError: Its server does not start.
        """
        if not self._is_there:
            self._chat = self._stack.enter_context(self._reach())
            self._is_there = True

    def close(self) -> None:
        """Let go of the model."""
        self._stack.close()
