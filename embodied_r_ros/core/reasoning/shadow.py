# SPDX-License-Identifier: Apache-2.0
"""Shadow mode: a candidate answers the questions that were answered, from the very same prompts.

Nobody waits for it. It gives way to every question that somebody asks, and of its own questions
those that it does not come to are dropped and counted.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.reasoning.question import Refusal
from embodied_r_ros.core.types.answers import Answer, AnswerKind, shadow_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.reasoning.reasoner import Reasoner
    from embodied_r_ros.core.scene.tools import Scene
    from embodied_r_ros.core.types.images import EncodedImage

_LOOK_S = 0.02


@dataclass(frozen=True)
class ShadowConfig(Settings):
    """The candidate that answers beside."""

    server: str = setting(
        '',
        'candidate that answers the same questions unseen: URL of its model server, or a profile '
        'with a reasoner; empty: none',
        read_only=True,
    )
    in_line: int = setting(
        8,
        'questions that may wait for the candidate; of more the oldest is dropped',
        between=(1, 1000),
        read_only=True,
    )
    gives_way: bool = setting(
        True,
        'the candidate works only while no question waits; false: its server has a machine of '
        'its own',
        read_only=True,
    )


@dataclass(frozen=True)
class ShadowStats:
    """How a candidate is doing."""

    waiting: int = 0
    answered: int = 0
    same: int = 0  # of those: as the model that serves
    failed: int = 0  # no model, no time, no format
    dropped: int = 0  # not asked, or ended for a question of somebody
    problem: str = ''  # why the newest one failed; empty: it did not


@dataclass(frozen=True)
class _OfferedAnswer:
    """An answer whose question waits for the candidate."""

    answer: Answer
    image: EncodedImage | None
    scene: Scene | None
    since_ns: int  # in the monotonic clock


class Shadow:
    """Asks the candidate, one question after the other, in a thread of its own."""

    def __init__(
        self,
        reasoner: Reasoner,
        config: ShadowConfig,
        is_idle: Callable[[], bool],
        now_ns: Callable[[], int],
        deliver: Callable[[Answer], None],
    ) -> None:
        """Begin to work.

        Args:
            reasoner: What asks the candidate.
            config: How many questions may wait, and for whom the candidate waits.
            is_idle: Whether nobody waits for an answer.
            now_ns: Gives the time in the clock of the image stamps [ns].
            deliver: Gets each answer of the candidate, those with freshness REFUSED too.
        """
        self._reasoner = reasoner
        self._config = config
        self._is_idle = is_idle
        self._now_ns = now_ns
        self._deliver = deliver
        self._waiting: deque[_OfferedAnswer] = deque()
        self._running: threading.Event | None = None  # ends the generation that runs
        self._stats = ShadowStats()
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._work, name='shadow', daemon=True)
        self._thread.start()

    def offer(
        self, answer: Answer, image: EncodedImage | None = None, scene: Scene | None = None
    ) -> None:
        """Take an answer that was given, for the candidate to answer its question too.

        Args:
            answer: The answer; one whose question went to no model is left.
            image: That its prompt shows; None: it shows none.
            scene: What was known then, for a candidate that writes calls.
        """
        if not answer.prompt_sha256:
            return
        with self._changed:
            if self._is_closed:
                return
            if len(self._waiting) >= self._config.in_line:
                self._waiting.popleft()
                self._count(dropped=1)
            self._waiting.append(_OfferedAnswer(answer, image, scene, time.monotonic_ns()))
            self._changed.notify_all()

    def give_way(self) -> None:
        """Drop what the candidate generates now: somebody asks a question."""
        with self._changed:
            if self._config.gives_way and self._running:
                self._running.set()

    def stats(self) -> ShadowStats:
        """Counts of questions answered, same, failed and dropped so far."""
        with self._changed:
            return replace(self._stats, waiting=len(self._waiting))

    def reconfigure(self, reasoner: Reasoner) -> None:
        """Ask with other settings, from the next question on."""
        self._reasoner = reasoner

    def close(self, timeout_s: float = 3.0) -> None:
        """Ask no more; what waits or runs is dropped."""
        with self._changed:
            self._is_closed = True
            self._count(dropped=len(self._waiting))
            self._waiting.clear()
            if self._running:
                self._running.set()
            self._changed.notify_all()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            cancel = threading.Event()
            waiting = self._next(cancel)
            if waiting is None:
                return
            self._ask(waiting, cancel)
            with self._changed:
                self._running = None

    def _next(self, cancel: threading.Event) -> _OfferedAnswer | None:
        """The next question, once it has its turn; None: there are no more."""
        with self._changed:
            while not self._is_closed:
                # From here on whoever asks ends it: none slips in between looking and generating.
                self._running = cancel if self._waiting else None
                if self._waiting and (self._is_idle() or not self._config.gives_way):
                    cancel.clear()
                    return self._waiting.popleft()
                self._changed.wait(_LOOK_S if self._waiting else None)
            return None

    def _ask(self, offered: _OfferedAnswer, cancel: threading.Event) -> None:
        answer, image, scene = offered.answer, offered.image, offered.scene
        own_id, problem = shadow_id(answer.id), ''
        wait_ns = time.monotonic_ns() - offered.since_ns
        try:
            own = self._reasoner.repeat(
                answer,
                answer_id=own_id,
                now_ns=lambda: answer.observation_stamp_ns if scene else self._now_ns(),
                image=image,
                scene=scene,
                cancel=cancel,
            ).after_wait(wait_ns)
        except CancelledError:
            with self._changed:
                self._count(dropped=1)
            return
        except Refusal as refusal:
            own, problem = refusal.answer, str(refusal)
        except Exception as error:  # whatever it was, the robot goes on
            own = Answer(own_id, answer.question, AnswerKind.UNKNOWN, answer.options)
            problem = f'{type(error).__name__}: {error}'
        is_same = (own.kind, own.option_index, own.text) == (
            answer.kind,
            answer.option_index,
            answer.text,
        )
        with self._changed:
            if problem:
                self._count(failed=1)
            else:
                self._count(answered=1, same=int(is_same))
            self._stats = replace(self._stats, problem=' '.join(problem.split()))
        self._deliver(own)

    def _count(self, **more: int) -> None:
        """Count; the lock is held."""
        counts = {name: getattr(self._stats, name) + number for name, number in more.items()}
        self._stats = replace(self._stats, **counts)
