# SPDX-License-Identifier: Apache-2.0
"""Names what goes wrong in a run while it happens, and what to do about it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
import json
import math
from pathlib import Path
import sys
from typing import Any

from embodied_r_ros.common.errors import ModelError
import torch
from transformers import TrainerCallback

from training.run.rewards import RIGHT_SHARE

_FORMAT, _ACCURACY, _CONSISTENCY = (
    f'rewards/{name}_reward/mean' for name in ('format', 'accuracy', 'consistency')
)
_LENGTH = 'completions/mean_length'
_UNSEEN = f'eval_{_ACCURACY}'
ZERO_VARIANCE = 'zero_variance_share'
_WINDOW = 5  # logs that are averaged, against the same number before


@dataclass(frozen=True)
class Alarm:
    """Something that goes wrong."""

    name: str
    observation: str
    remedy: str


Logs = Sequence[dict[str, float | None]]
Rule = Callable[[Logs], Alarm | None]


def logged_value(log: Mapping[str, float | None], key: str) -> float | None:
    """A value of a log; None: it was not measured, which is logged as no entry, None, or NaN."""
    value = log.get(key)
    return None if value is None or math.isnan(value) else value


def mean_of(logs: Logs, key: str) -> float:
    """Mean of a value over the logs that have it; NaN: none has."""
    values = [value for log in logs if (value := logged_value(log, key)) is not None]
    return sum(values) / len(values) if values else math.nan


def consistency_rate(logs: Logs) -> float:
    """Share of the right answers to which their reasoning leads; NaN: not known.

    Consistency is paid where accuracy is 1, so it is not measured against a mean of accuracy: a
    number that is nearly right adds to that. Logs from before tell nothing else.
    """
    right = mean_of(logs, RIGHT_SHARE)
    right = mean_of(logs, _ACCURACY) if math.isnan(right) else right
    return mean_of(logs, _CONSISTENCY) / right if right > 0 else math.nan


def _inconsistent(logs: Logs) -> Alarm | None:
    rate = consistency_rate(logs[-_WINDOW:])
    if not rate < 0.8:
        return None
    return Alarm(
        'consistency below 0.8',
        f'{rate:.0%} of the right answers follow from their reasoning',
        'give consistency more weight, or begin its stage earlier',
    )


def _diverging(logs: Logs) -> Alarm | None:
    before, now = logs[-2 * _WINDOW : -_WINDOW], logs[-_WINDOW:]
    gained = mean_of(now, _ACCURACY) - mean_of(before, _ACCURACY)
    lost = consistency_rate(before) - consistency_rate(now)
    if not (gained > 0.03 and lost > 0.03):
        return None
    return Alarm(
        'accuracy and consistency diverge',
        f'accuracy rose by {gained:.0%} while consistency fell by {lost:.0%}',
        'answers no longer come from the reasoning: give consistency more weight',
    )


def _shrinking(logs: Logs) -> Alarm | None:
    first, now = mean_of(logs[:_WINDOW], _LENGTH), mean_of(logs[-_WINDOW:], _LENGTH)
    if not now < 0.5 * first:
        return None
    return Alarm(
        'length collapse',
        f'completions shrank from {first:.0f} to {now:.0f} tokens',
        'the reasoning is left out: raise beta, or lower the learning rate',
    )


def _forgetting(logs: Logs) -> Alarm | None:
    unseen = [value for log in logs if (value := logged_value(log, _UNSEEN)) is not None]
    if len(unseen) < 2 or unseen[-1] >= max(unseen) - 0.05:
        return None
    return Alarm(
        'unseen-world accuracy falls',
        f'{unseen[-1]:.1%} on validation rows, {max(unseen):.1%} at best',
        'stop and take the checkpoint of the best evaluation; then more rows or a larger beta',
    )


def _no_signal(logs: Logs) -> Alarm | None:
    share = mean_of(logs[-_WINDOW:], ZERO_VARIANCE)
    if not share > 0.8:
        return None
    return Alarm(
        'no signal',
        f'{share:.0%} of the groups have equal rewards',
        'leave out rows that are always or never answered rightly (training.rollouts)',
    )


def _losing_format(logs: Logs) -> Alarm | None:
    rate = mean_of(logs[-_WINDOW:], _FORMAT)
    if not rate < min(0.9, mean_of(logs[:_WINDOW], _FORMAT) - 0.05):
        return None
    return Alarm(
        'format is being lost',
        f'{rate:.0%} of the completions are well-formed',
        'give format more weight, or lower the learning rate',
    )


RULES: tuple[Rule, ...] = (
    _inconsistent, _diverging, _shrinking, _forgetting, _no_signal, _losing_format,
)  # fmt: skip


class GradientGuard(TrainerCallback):  # type: ignore[misc]
    """Ends a run before a gradient that is no number takes all weights with it.

    A known cause is avoided: attention by cuDNN, which torch prefers on an H100 since 2.11, gives
    NaN where a batch with padding has a length of 64 modulo 128 (pytorch issue 196678).
    """

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Have another kernel compute attention."""
        torch.backends.cuda.enable_cudnn_sdp(False)

    def on_pre_optimizer_step(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        """See that the gradient is finite; in fp16 a scaler of the loss leaves out such a step.

        Raises:
            ModelError: It is not.
        """
        del control
        if args.fp16:
            return
        gradients = [weight.grad for weight in model.parameters() if weight.grad is not None]
        if gradients and not math.isfinite(float(torch.nn.utils.get_total_norm(gradients))):
            msg = (
                f'step {state.global_step}: the gradient is NaN or infinite, and no weight was '
                'changed. Go on from the last checkpoint with a lower learning_rate, or in '
                'float32: bf16: false, and for training.grpo model_init_kwargs: {dtype: float32}'
            )
            raise ModelError(msg)


class Monitor(TrainerCallback):  # type: ignore[misc]
    """Checks every log of a run; alarms go to stderr and to `alarms.jsonl` in its folder."""

    def __init__(self) -> None:
        """Begin with an empty history, which a resumed run reads from its state."""
        self._raised: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Apply the rules; an alarm is raised once, and again after it was gone."""
        del control
        if len([log for log in state.log_history if _ACCURACY in log]) < _WINDOW:
            return
        alarms = [alarm for rule in RULES if (alarm := rule(state.log_history))]
        for alarm in alarms:
            if alarm.name not in self._raised and state.is_world_process_zero:
                self._tell(alarm, state.global_step, Path(args.output_dir))
        self._raised = {alarm.name for alarm in alarms}

    @staticmethod
    def _tell(alarm: Alarm, step: int, folder: Path) -> None:
        sys.stderr.write(
            f'\ngrpo: step {step}: {alarm.name}: {alarm.observation}. {alarm.remedy}\n'
        )
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / 'alarms.jsonl').open('a', encoding='utf-8') as out:
            out.write(json.dumps({'step': step, **vars(alarm)}) + '\n')
