# SPDX-License-Identifier: Apache-2.0
"""The three rewards of Embodied-R, as functions for TRL.

Each takes the completions of a batch and the columns of its rows, and returns one number in 0..1
per completion: 0 where it has no answer to grade, as in an evaluation. TRL leaves None and NaN out
of a sum without a word, so `require_finite` refuses them. The names of the functions are those of
TensorBoard's curves. How rewards are weighed against each other is the schedule's matter
(`grpo.py`); that consistency pays for right answers only is decided here, since a sum of
weighted rewards cannot express it.
"""

from __future__ import annotations

from functools import wraps
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.core.reasoning.completions import parse_completion

from training.eval.grading import AskedQuestion, consistencies, grade_completions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from training.eval.judging import Judge

    Completions = Sequence[Sequence[dict[str, str]]]  # one message each
    Reward = Callable[..., list[float]]


def require_finite(reward: Reward) -> Reward:
    """The same reward, which fails where it is not one finite number for each completion."""

    @wraps(reward)
    def checked_reward(completions: Completions, **columns: Any) -> list[float]:
        values = list(reward(completions=completions, **columns))
        name = getattr(reward, '__name__', 'a reward')
        if len(values) != len(completions):
            msg = f'{name} gave {len(values)} rewards for {len(completions)} completions'
            raise ModelError(msg)
        for value, text in zip(values, completion_texts(completions), strict=True):
            if value is None or not math.isfinite(value):
                msg = (
                    f'{name} is {value!r} for the completion {text[-80:]!r}: expected a finite '
                    'number. TRL would leave it out of the sum; correct the reward or its judge'
                )
                raise ModelError(msg)
        return values

    return checked_reward


def format_reward(completions: Completions, **_: Any) -> list[float]:
    """1 where a completion is a think text, then one answer, and nothing else."""
    return [float(parse_completion(text).well_formed) for text in completion_texts(completions)]


class BatchAccuracies:
    """Accuracies of a batch, which is graded once for all rewards that read them."""

    def __init__(self, judge: Judge | None) -> None:
        """Take what judges free texts; None: nothing does."""
        self._judge = judge
        self._batch: tuple[list[AskedQuestion], list[str]] = ([], [])
        self._accuracies: list[float] = []

    def of(self, askeds: list[AskedQuestion], texts: list[str]) -> list[float]:
        """One per completion; 0: it has no answer.

        Raises:
            InputError: An answer needs a judge, and there is none.
            ModelError: The judge fails.
        """
        if (askeds, texts) != self._batch:
            grades = grade_completions(askeds, texts, self._judge)
            for asked, grade in zip(askeds, grades, strict=True):
                if grade.answer is not None and grade.accuracy is None:
                    msg = (
                        f'nobody can grade the answer {grade.answer[:80]!r} to the question '
                        f'{asked.question!r}: name a judge, or leave out rows with free texts'
                    )
                    raise InputError(msg)
            self._accuracies = [grade.accuracy or 0.0 for grade in grades]
            self._batch = askeds, texts
        return list(self._accuracies)


def accuracy_reward(judge: Judge | None, batch: BatchAccuracies | None = None) -> Reward:
    """1 for the right choice, mean relative accuracy for a number; a text is up to the judge."""
    batch_accuracies = batch or BatchAccuracies(judge)

    def accuracy_reward(completions: Completions, **columns: Any) -> list[float]:
        return batch_accuracies.of(grading_cases(columns), completion_texts(completions))

    return accuracy_reward


def consistency_reward(judge: Judge, batch: BatchAccuracies | None = None) -> Reward:
    """1 where the answer is right and the think text alone leads the judge to it."""
    batch_accuracies = batch or BatchAccuracies(judge)

    def consistency_reward(completions: Completions, **columns: Any) -> list[float]:
        askeds, texts = grading_cases(columns), completion_texts(completions)
        accuracies = batch_accuracies.of(askeds, texts)
        right = [i for i, accuracy in enumerate(accuracies) if accuracy == 1.0]
        verdicts = consistencies([askeds[i] for i in right], [texts[i] for i in right], judge)
        rewards = [0.0] * len(texts)
        for i, verdict in zip(right, verdicts, strict=True):
            rewards[i] = verdict or 0.0
        return rewards

    return consistency_reward


def three_rewards(judge: Judge | None) -> list[Reward]:
    """Rewards for format, accuracy and consistency, in the order of the stages' weights.

    Without a judge nothing is known of consistency, and the third is left out.
    """
    batch = BatchAccuracies(judge)
    rewards = [format_reward, accuracy_reward(judge, batch)]
    return [*rewards, *([consistency_reward(judge, batch)] if judge else [])]


def completion_texts(completions: Completions) -> list[str]:
    """What the model said: the content of each completion's message."""
    return [completion[0]['content'] for completion in completions]


def grading_cases(columns: dict[str, Any]) -> list[AskedQuestion]:
    """What was asked, from the columns `question`, `options` and `solution` of a batch."""
    names = ('question', 'options', 'solution')
    return [
        AskedQuestion(question, tuple(options), solution)
        for question, options, solution in zip(*(columns[name] for name in names), strict=True)
    ]
