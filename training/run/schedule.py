# SPDX-License-Identifier: Apache-2.0
"""Reward weights by stage, in one run: Embodied-R's 7:3:0, 3:7:0, 1:7:2 (spec d).

The stage is a function of the step alone, so that a resumed run goes on in the stage in which it
was stopped. The published code has one stage and leaves the others to restarts by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
import re
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import torch
from transformers import TrainerCallback

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER = r'(\d+(?:\.\d+)?|\.\d+)'
_STAGE = re.compile(f'{_NUMBER} x {_NUMBER}:{_NUMBER}:{_NUMBER}')


@dataclass(frozen=True)
class Stage:
    """A part of a run, and how much each reward counts in it."""

    epochs: float
    weights: tuple[float, float, float]  # of format, accuracy and consistency; their sum is 1


def parse_stages(texts: Sequence[str]) -> tuple[Stage, ...]:
    """Stages of texts such as '2 x 7:3:0': epochs, then format : accuracy : consistency.

    Raises:
        InputError: A text is not of that form, or its numbers make no stage.
    """
    stages = []
    for text in texts:
        match = _STAGE.fullmatch(text.strip())
        numbers = [float(part) for part in match.groups()] if match else []
        if not numbers or numbers[0] <= 0 or sum(numbers[1:]) <= 0:
            msg = f"stage {text!r} is not 'epochs x format:accuracy:consistency', as '2 x 7:3:0'"
            raise InputError(msg)
        total = sum(numbers[1:])
        form, accuracy, consistency = (number / total for number in numbers[1:])
        stages.append(Stage(numbers[0], (form, accuracy, consistency)))
    if not stages:
        msg = "there are no stages: give at least one, as '2 x 7:3:0'"
        raise InputError(msg)
    return tuple(stages)


def stage_at(stages: Sequence[Stage], step: int, steps: int) -> int:
    """Index of the stage of a step (0 is the first) of a run of so many steps.

    A run that is shorter than its stages' epochs goes through all of them, in proportion.
    """
    epochs = sum(stage.epochs for stage in stages)
    end = 0.0
    for index, stage in enumerate(stages):
        end += stage.epochs
        if step < round(end / epochs * steps):
            return index
    return len(stages) - 1


class RewardSchedule(TrainerCallback):  # type: ignore[misc]
    """Sets the trainer's reward weights before each step's completions are generated."""

    def __init__(self, stages: Sequence[Stage], more: Sequence[float] = ()) -> None:
        """Give the stages, and the weights of further rewards, which are the same in all of them.

        `trainer` is to be set before training.
        """
        self.trainer: Any = None
        self._more = tuple(more)
        self._stages = tuple(stages)
        self._stage = -1

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Enter the stage of the step that begins."""
        del args, control
        stage = stage_at(self._stages, state.global_step, state.max_steps)
        if stage != self._stage:
            self._stage = stage
            weights = self._stages[stage].weights
            every = (*weights, *self._more)
            self.trainer.reward_weights = torch.tensor(every, dtype=torch.float32)
            shown = ' : '.join(f'{weight:.2f}' for weight in weights)
            sys.stderr.write(
                f'\ngrpo: step {state.global_step}: stage {stage + 1} of {len(self._stages)},'
                f' format : accuracy : consistency = {shown}\n'
            )
