# SPDX-License-Identifier: Apache-2.0
"""What a bench says at the end: figures against budgets."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


@dataclass(frozen=True)
class Budget:
    """A figure that has to stay within a limit."""

    what: str
    value: float
    limit: float
    unit: str = ''
    at_least: bool = False  # True: the figure has to reach the limit instead

    @property
    def is_met(self) -> bool:
        """Whether the figure is within the limit; NaN is not."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), 'is_met': self.is_met}


def print_budgets(budgets: Iterable[Budget]) -> None:
    """Print one line for each budget, with PASS or FAIL."""
    for budget in budgets:
        sign = '>=' if budget.at_least else '<='
        verdict = 'PASS' if budget.is_met else 'FAIL'
        figure = f'{budget.value:8.3f} {sign} {budget.limit:.3f} {budget.unit}'
        print(f'{verdict}  {budget.what:52} {figure}')
