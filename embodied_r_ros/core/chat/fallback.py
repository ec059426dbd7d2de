# SPDX-License-Identifier: Apache-2.0
"""Fallback: the best model that works answers, and one that failed is tried again later."""

from __future__ import annotations

from dataclasses import dataclass, field
import math
import threading
import time
from typing import Any, Generic, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.deltas import Rung

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from embodied_r_ros.core.types.deltas import ModelInfo

Model = TypeVar('Model')
Reply = TypeVar('Reply')


@dataclass(frozen=True)
class FallbackConfig(Settings):
    """How models that stand in for each other are chosen."""

    start: str = setting(
        'primary',
        'what must answer before the node is configured: the primary model, or any of them',
        choices=('primary', 'any'),
    )
    first_wait_s: float = setting(
        0.5, 'wait before a model that failed is looked at again [s]', between=(0.01, 600)
    )
    longest_wait_s: float = setting(
        10.0, 'bound of that wait, which doubles with every failure [s]', between=(0.01, 3600)
    )
    look_s: float = setting(
        5.0, 'time in which a model that failed must generate one token [s]', between=(0.05, 600)
    )
    patience_s: float = setting(
        2.0,
        'a question that runs out of time counts against a model that had at least so long [s]',
        between=(0, 600),
    )

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: One is not allowed, or the bound is below the first wait.
        """
        super().__post_init__()
        if self.longest_wait_s < self.first_wait_s:
            msg = (
                f'longest_wait_s is {self.longest_wait_s}: expected at least first_wait_s, '
                f'{self.first_wait_s}'
            )
            raise ConfigError(msg)


class NoReplyError(Exception):
    """No step gave a reply."""

    def __init__(self, failures: Sequence[tuple[FallbackStep[Any], Any]]) -> None:
        """Take the steps that were asked, each with what it raised."""
        super().__init__('; '.join(str(error) for _, error in failures))
        self.failures = failures


@dataclass
class _State:
    """State of a model."""

    problem: str = ''  # why it is left out; empty: it is in use
    failures: int = 0  # since it last worked
    next_look: float = 0.0  # monotonic time [s]


@dataclass(frozen=True)
class FallbackStep(Generic[Model]):
    """One rung and its model."""

    rung: Rung
    model: Model


@dataclass
class Fallback(Generic[Model]):
    """Steps, best first. Its methods may be called from several threads."""

    steps: Sequence[FallbackStep[Model]]
    look: Callable[[Model, float], None]  # raises where a model does not work in so many seconds
    config: FallbackConfig = field(default_factory=FallbackConfig)

    @classmethod
    def by_rung(
        cls,
        models: Mapping[Rung, Model],
        look: Callable[[Model, float], None],
        config: FallbackConfig | None = None,
    ) -> Fallback[Model]:
        """The fallback through models by their rungs; the best one has the lowest number."""
        rungs = sorted(models, key=lambda rung: rung.value)
        steps = [FallbackStep(rung, models[rung]) for rung in rungs]
        return cls(steps, look, config or FallbackConfig())

    def __post_init__(self) -> None:
        self._states = {step.rung: _State() for step in self.steps}
        self._changed = threading.Condition()
        self._is_closed = False
        self._is_watched = False

    def order(self) -> list[FallbackStep[Model]]:
        """The steps to ask, one after the other: those that work, or all where none is known to.

        Where none works, work is as good a look as any, and its failure comes with a reason.
        """
        with self._changed:
            return [s for s in self.steps if not self._states[s.rung].problem] or list(self.steps)

    def turns(self, deadline_s: float) -> Iterator[tuple[FallbackStep[Model], float]]:
        """The steps to ask, each with the time that it may take [s].

        A step with others below it gets half of what is left when its turn comes, the last one
        all. There are no more turns when nothing is left.
        """
        end = time.monotonic() + deadline_s
        steps = self.order()
        for index, step in enumerate(steps):
            left_s = end - time.monotonic()
            if left_s <= 0:
                return
            yield step, left_s if index == len(steps) - 1 else left_s / 2

    def ask(
        self,
        attempt: Callable[[FallbackStep[Model], float], Reply],
        deadline_s: float = math.inf,
        *,
        errors: type[Exception],
        is_late: Callable[[Any], bool] = lambda error: False,
        only_if_another_works: bool = False,
    ) -> Reply:
        """The reply of the best step that gives one.

        Args:
            attempt: Asks one step, which may take so many seconds.
            deadline_s: Time for all steps; endless where every step has its own limit [s].
            errors: What an attempt raises where its step gives no reply.
            is_late: Tells whether a step ran out of time.
            only_if_another_works: Whether a step is left out only where a later one replies: what
                fails everywhere is not the fault of the steps.

        Raises:
            NoReplyError: No step gave one; with the failures, in the order of the steps.
        """
        failures: list[tuple[FallbackStep[Model], Exception]] = []
        blame: list[tuple[FallbackStep[Model], str, float | None]] = []
        try:
            for step, given_s in self.turns(deadline_s):
                try:
                    reply = attempt(step, given_s)
                except errors as error:
                    failures.append((step, error))
                    blame.append((step, str(error), given_s if is_late(error) else None))
                    if only_if_another_works:
                        continue
                else:
                    self._blame(blame)
                    self.note_success(step)
                    return reply
                self._blame(blame)
            raise NoReplyError(failures)
        finally:
            # Their tracebacks hold this frame: it would hold them, and all that was asked about.
            del failures

    def _blame(self, failures: list[tuple[FallbackStep[Model], str, float | None]]) -> None:
        while failures:
            self.note_failure(*failures.pop(0))

    def note_success(self, step: FallbackStep[Model]) -> None:
        """Note that a step worked."""
        with self._changed:
            self._states[step.rung] = _State()

    def note_failure(
        self, step: FallbackStep[Model], problem: str, late_after_s: float | None = None
    ) -> None:
        """Note that a step failed, and leave it out until it is well again.

        Args:
            step: The step.
            problem: What went wrong.
            late_after_s: Time that it had, where it was late [s]; None: it was not. One that had
                less than the patience of the config is not to blame.
        """
        if late_after_s is not None and late_after_s < self.config.patience_s:
            return
        with self._changed:
            if self._states[step.rung].problem:  # known: its waits are under way
                self._states[step.rung].problem = problem
                return
            self._put_off(step, problem)
            # Where no other model is left, it is used anyway.
            if len(self.steps) > 1 and not self._is_watched and not self._is_closed:
                self._is_watched = True
                threading.Thread(target=self._watch, name='fallback', daemon=True).start()

    def problems(self) -> dict[Rung, str]:
        """Why models are left out now, best first."""
        with self._changed:
            return {r: state.problem for r, state in self._states.items() if state.problem}

    def close(self) -> None:
        """Look at nothing any more."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()

    def _put_off(self, step: FallbackStep[Model], problem: str) -> None:
        state = self._states[step.rung]
        # Beyond 2^30 times the first wait every bound is reached.
        wait_s = self.config.first_wait_s * 2 ** min(state.failures, 30)
        state.problem = ' '.join(problem.split()) or 'it failed'
        state.failures += 1
        state.next_look = time.monotonic() + min(wait_s, self.config.longest_wait_s)
        self._changed.notify_all()

    def _watch(self) -> None:
        """Look at what failed until nothing is left to look at. Runs in a thread of its own."""
        while (step := self._next()) is not None:
            problem = ''
            try:
                self.look(step.model, self.config.look_s)
            except Exception as error:  # whatever it was, it does not work
                problem = str(error) or type(error).__name__
            with self._changed:
                if problem:
                    self._put_off(step, problem)
                else:
                    self._states[step.rung].problem = ''

    def _next(self) -> FallbackStep[Model] | None:
        """Wait until a step is due to be looked at; None: none is left, or the end."""
        with self._changed:
            while not self._is_closed:
                out = [s for s in self.steps if self._states[s.rung].problem]
                if not out:
                    break
                step = min(out, key=lambda s: self._states[s.rung].next_look)
                left_s = self._states[step.rung].next_look - time.monotonic()
                if left_s <= 0:
                    return step
                self._changed.wait(left_s)
            self._is_watched = False
            return None


_NOBODY = {Rung.UNSET, Rung.REFUSE}


class LatestModels:
    """The newest model of each rung. Its methods may be called from several threads."""

    def __init__(self, role: str, at_start: Iterable[ModelInfo]) -> None:
        """Take what the models are for, and those that answered at the start."""
        self._role = role
        self._lock = threading.Lock()
        self._models: dict[Rung, ModelInfo] = {model.rung: model for model in at_start}

    def note(self, model: ModelInfo) -> bool:
        """Note the model that spoke; True: another one spoke on its rung before."""
        if model.rung in _NOBODY or not model.name:
            return False
        with self._lock:
            before = self._models.get(model.rung)
            if before and _identity(before, model) == _identity(model, before):
                return False
            self._models[model.rung] = model
            return True

    def values(self, rung: Rung) -> dict[str, str]:
        """Name, digest and adapter of the model on a rung, as far as they are known."""
        with self._lock:
            model = self._models.get(rung)
        if not model:
            return {'model': f'{rung.name.lower()}, not heard yet'}
        values = {'model': model.name, 'model_digest': model.digest, 'adapter': model.adapter}
        return {name: value for name, value in values.items() if value}

    def record(self) -> list[dict[str, Any]]:
        """The models for the record, best first."""
        with self._lock:
            models = sorted(self._models.values(), key=lambda model: model.rung.value)
        return [
            {'role': self._role, 'name': model.name, 'digest': model.digest}
            | ({} if model.rung is Rung.PRIMARY else {'rung': model.rung.name})
            for model in models
        ]


def _identity(model: ModelInfo, other: ModelInfo) -> tuple[str, str, str]:
    """What makes it this model; a digest that only one of two has is no difference."""
    return model.name, model.adapter, model.digest if other.digest else ''
