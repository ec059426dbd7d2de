# SPDX-License-Identifier: Apache-2.0
"""Answers to questions that are typed in the page: as `embodied-r ask` gives them."""

from __future__ import annotations

from contextlib import contextmanager, ExitStack
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.calls import open_question, read_question
from embodied_r_ros.core.reasoning.reading import parts_of
from embodied_r_ros.core.reasoning.sentences import teach
from embodied_r_ros.core.reasoning.teaching import is_answer, lesson_of
from embodied_r_ros.data.episodes.offline import recorded_scene, SceneAsker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
        with self._asker(episode, until_ns) as asker:
            return asker.ask(question, lambda *_: None)

    def learn(self, episode: Episode, question: Question, until_ns: float, solution: str) -> str:
        """Learn from a person's answer how to read a question; tell why it was answered wrongly.

        Args:
            episode: What it is about.
            question: The question.
            until_ns: Up to when it asks [ns].
            solution: In words, as labels have it; empty: forget what was learned.

        Raises:
            InputError: A question is being answered, or the model does not answer.
            EmbodiedRError: What was learned cannot be read or kept.
        """
        text, options = question.text, question.options
        with self._asker(episode, until_ns) as asker:
            scene = asker.scene
        if not solution:
            parts = parts_of(text)
            sentence = open_question(parts[0], scene.labels, ()).sentence
            return 'what it taught is forgotten' if len(parts) == 1 and teach(sentence) else ''
        lesson = lesson_of(text, options, scene, lambda a: is_answer(a, solution, text, options))
        if not lesson.sentence:
            return lesson.cause
        teach(lesson.sentence, lesson.calls)
        now = [call for each in read_question(text, options, scene.labels) for call in each.calls]
        if now != list(lesson.here):
            return f'{lesson.cause}; it is not read so yet: label others like it'
        return f'{lesson.cause}; from now on it is read so'

    @contextmanager
    def _asker(self, episode: Episode, until_ns: float) -> Iterator[SceneAsker]:
        """Who answers about an episode, for one question at a time.

        Raises:
            InputError: Another one is being answered, or the model does not answer.
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
            yield self._last[2]
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
