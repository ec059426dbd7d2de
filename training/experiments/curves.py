# SPDX-License-Identifier: Apache-2.0
"""What a training run logged, step by step, from the state that its trainer keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

from training.models import is_url
from training.monitor import consistency_rate, known

if TYPE_CHECKING:
    from collections.abc import Mapping

    Curve = tuple[list[float], list[float]]  # steps, and values at them

_STATE = 'trainer_state.json'
_ACCURACY, _CONSISTENCY = (f'rewards/{name}_reward/mean' for name in ('accuracy', 'consistency'))
_SOUND = 'consistent_share'  # share of the right answers to which their reasoning leads
# What is drawn, and under which name trainers log it.
CHARTS = {
    'reward': 'reward',
    'accuracy': _ACCURACY,
    'format': 'rewards/format_reward/mean',
    'consistency': _CONSISTENCY,
    'consistency of the right answers': _SOUND,
    'tokens in a completion': 'completions/mean_length',
    'accuracy on validation rows': f'eval_{_ACCURACY}',
    'loss': 'loss',
}


def charts_of(models: Mapping[str, str]) -> dict[str, dict[str, Curve]]:
    """For each figure that a run logged the curves of the runs; models without a log are left out.

    Raises:
        InputError: A log cannot be read.
    """
    logs = {name: log_of(Path(model)) for name, model in models.items() if not is_url(model)}
    charts: dict[str, dict[str, Curve]] = {}
    for title, key in CHARTS.items():
        found = {name: _curve(log, key) for name, log in logs.items()}
        with_values = {name: curve for name, curve in found.items() if len(curve[0]) > 1}
        if with_values:
            charts[title] = with_values
    return charts


def log_of(folder: Path) -> list[dict[str, float]]:
    """The log of a run, from its newest state; empty: it keeps none.

    Raises:
        InputError: It cannot be read.
    """
    states = [*folder.glob(f'checkpoint-*/{_STATE}'), *folder.glob(_STATE)]
    logs = [_read(state) for state in states]
    return max(logs, key=lambda log: max((entry['step'] for entry in log), default=0), default=[])


def _read(state: Path) -> list[dict[str, float]]:
    try:
        history = json.loads(state.read_text())['log_history']
        return [{**e, _SOUND: consistency_rate([e])} for e in history if 'step' in e]
    except (OSError, ValueError, KeyError, TypeError) as error:
        msg = f'{state} cannot be read as the state of a training run: {error}'
        raise InputError(msg) from None


def _curve(log: list[dict[str, float]], key: str) -> Curve:
    points = [(e['step'], value) for e in log if (value := known(e, key)) is not None]
    return [step for step, _ in points], [value for _, value in points]
