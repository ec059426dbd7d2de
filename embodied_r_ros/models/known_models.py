# SPDX-License-Identifier: Apache-2.0
"""Which model stands on which rung, by what was heard last from there."""

from __future__ import annotations

import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.deltas import Rung

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.deltas import ModelInfo

_NOBODY = {Rung.UNSET, Rung.REFUSE}


class KnownModels:
    """The models of a ladder. Its methods may be called from several threads."""

    def __init__(self, role: str, at_start: Iterable[ModelInfo]) -> None:
        """Take what the models are for, and those that answered at the start."""
        self._role = role
        self._lock = threading.Lock()
        self._models: dict[Rung, ModelInfo] = {model.rung: model for model in at_start}

    def heard(self, model: ModelInfo) -> bool:
        """Take who spoke; True: it is another model than was known of its rung."""
        if model.rung in _NOBODY or not model.name:
            return False
        with self._lock:
            known = self._models.get(model.rung)
            if known and _identity(known, model) == _identity(model, known):
                return False
            self._models[model.rung] = model
            return True

    def name(self, rung: Rung) -> str:
        """Name of the model on a rung."""
        with self._lock:
            known = self._models.get(rung)
        return known.name if known else f'{rung.name.lower()}, not heard yet'

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
    """What makes it this model; a digest that only one of two tells is no difference."""
    return model.name, model.adapter, model.digest if other.digest else ''
