# SPDX-License-Identifier: Apache-2.0
"""The three rewards of Embodied-R (spec d) and one for arms, as functions for TRL.

Each takes the completions of a batch and the columns of its rows, and returns one number in 0..1
per completion, or None where a completion has no answer that could be graded. Their names are
those of TensorBoard's curves. How they are weighed against each other is the schedule's matter
(`grpo.py`); that consistency pays for right answers only is decided here, since a sum of
weighted rewards cannot express it. The consistency reward also logs two shares of a batch, since
TRL hands `log_metric` to rewards alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.reasoning.completions import choice_index, parse_completion

from training.data.arm_reader import position_in
from training.eval.grading import consistencies, graded

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.arm.robot import Robot

    from training.judge.cases import Judge

    Completions = Sequence[Sequence[dict[str, str]]]  # one message each
    Reward = Callable[..., list[float | None]]

RIGHT_SHARE = 'exactly_right_share'  # of the completions that have a consistency, in the logs


@dataclass(frozen=True)
class _Asked:
    question: str
    options: tuple[str, ...]
    solution: str


def format_reward(completions: Completions, **_: Any) -> list[float | None]:
    """1 where a completion is a think text, then one answer, and nothing else."""
    return [float(parse_completion(text).well_formed) for text in completion_texts(completions)]


class BatchAccuracies:
    """Accuracies of a batch, which is graded once for all rewards that read them."""

    def __init__(self, judge: Judge | None) -> None:
        """Take what judges free texts; None: nothing does."""
        self._judge = judge
        self._batch: tuple[list[_Asked], list[str]] = ([], [])
        self._accuracies: list[float | None] = []

    def of(self, askeds: list[_Asked], texts: list[str]) -> list[float | None]:
        """One per completion; None: it cannot be graded."""
        if (askeds, texts) != self._batch:
            self._accuracies = [g.accuracy for g in graded(askeds, texts, self._judge)]
            self._batch = askeds, texts
        return list(self._accuracies)


def accuracy_reward(judge: Judge | None, batch: BatchAccuracies | None = None) -> Reward:
    """1 for the right choice, mean relative accuracy for a number; a text is up to the judge."""
    batch_accuracies = batch or BatchAccuracies(judge)

    def accuracy_reward(completions: Completions, **columns: Any) -> list[float | None]:
        return batch_accuracies.of(asked_of(columns), completion_texts(completions))

    return accuracy_reward


def consistency_reward(judge: Judge | None, batch: BatchAccuracies | None = None) -> Reward:
    """1 where the answer is right and the think text alone leads the judge to it.

    Without a judge nothing is known of it.
    """
    batch_accuracies = batch or BatchAccuracies(judge)

    def consistency_reward(completions: Completions, **columns: Any) -> list[float | None]:
        askeds, texts = asked_of(columns), completion_texts(completions)
        accuracies = batch_accuracies.of(askeds, texts)
        right = [i for i, accuracy in enumerate(accuracies) if accuracy == 1.0]
        if judge is None:
            return _untold(completions, accuracies, columns)
        judged = consistencies([askeds[i] for i in right], [texts[i] for i in right], judge)
        rewards = [None if accuracy is None else 0.0 for accuracy in accuracies]
        for i, verdict in zip(right, judged, strict=True):
            rewards[i] = verdict
        _log_right(accuracies, rewards, columns)
        _log_zero_variance(completions, (accuracies, rewards), columns)
        return rewards

    return consistency_reward


def _untold(
    completions: Completions, accuracies: Sequence[float | None], columns: dict[str, Any]
) -> list[float | None]:
    _log_zero_variance(completions, (accuracies,), columns)
    return [None] * len(accuracies)


def _log_right(
    accuracies: Sequence[float | None],
    rewards: Sequence[float | None],
    columns: dict[str, Any],
) -> None:
    """Log which completions could be consistent: accuracy counts answers that are partly right."""
    if log_metric := columns.get('log_metric'):
        for accuracy, reward in zip(accuracies, rewards, strict=True):
            if reward is not None:  # of which the mean of consistency is
                log_metric(RIGHT_SHARE, float(accuracy == 1.0))


def _log_zero_variance(
    completions: Completions,
    rewards: Sequence[Sequence[float | None]],
    columns: dict[str, Any],
) -> None:
    if log_metric := columns.get('log_metric'):
        same = zip(format_reward(completions), *rewards, strict=True)
        log_metric('zero_variance_share', zero_variance_share(columns['prompts'], list(same)))


def workspace_reward(robot: Robot) -> Reward:
    """1 where the position that is answered lies in a robot's workspace; None: it is no position.

    Raises:
        InputError: The robot has no workspace.
    """
    low, high = robot.metadata.workspace_low, robot.metadata.workspace_high
    if not low:
        msg = f'robot {robot.name!r} has no workspace: set workspace_low and workspace_high'
        raise InputError(msg)

    def workspace_reward(completions: Completions, **columns: Any) -> list[float | None]:
        rewards: list[float | None] = []
        for question, text in zip(asked_of(columns), completion_texts(completions), strict=True):
            answer = parse_completion(text).answer or ''
            index = choice_index(answer, question.options) if question.options else None
            place = position_in(answer if index is None else question.options[index])
            inside = place and all(a <= b <= c for a, b, c in zip(low, place, high, strict=True))
            rewards.append(None if place is None else float(bool(inside)))
        return rewards

    return workspace_reward


def three_rewards(judge: Judge | None) -> list[Reward]:
    """Rewards for format, accuracy and consistency, in the order of the stages' weights."""
    batch = BatchAccuracies(judge)
    return [format_reward, accuracy_reward(judge, batch), consistency_reward(judge, batch)]


def zero_variance_share(prompts: Sequence[Any], rewards: Sequence[Any]) -> float:
    """Share of the groups (completions of one prompt, which follow each other) of equal rewards.

    They teach nothing. TRL's own count compares weighted sums of floats, and misses some.
    """
    pairs = zip(prompts, rewards, strict=True)
    groups = [{r for _, r in group} for _, group in groupby(pairs, key=lambda pair: pair[0])]
    return sum(len(group) == 1 for group in groups) / len(groups)


def completion_texts(completions: Completions) -> list[str]:
    """What the model said: the content of each completion's message."""
    return [completion[0]['content'] for completion in completions]


def asked_of(columns: dict[str, Any]) -> list[_Asked]:
    """What was asked, from the columns `question`, `options` and `solution` of a batch."""
    names = ('question', 'options', 'solution')
    return [
        _Asked(question, tuple(options), solution)
        for question, options, solution in zip(*(columns[name] for name in names), strict=True)
    ]
