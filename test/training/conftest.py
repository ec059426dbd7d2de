# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests of training commands."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.memory import MemoryConfig
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def token_budgets(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[int]]:
    """Token budgets of the scenes that a function, by its full name, gets; calls of it fail."""

    def of(name: str) -> list[int]:
        budgets: list[int] = []

        def stop(*given: Any) -> None:
            (memory,) = (value for value in given if isinstance(value, MemoryConfig))
            budgets.append(memory.token_budget)
            msg = 'enough'
            raise InputError(msg)

        monkeypatch.setattr(name, stop)
        return budgets

    return of
