# SPDX-License-Identifier: Apache-2.0
"""What a bench measures of its process, and says of its budgets at the end."""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def peak_mb() -> float:
    """The most memory that this program has held so far [MB].

    `ru_maxrss` would not do: Linux passes the peak of the process that started it on to it.
    """
    status = Path('/proc/self/status').read_text()
    match = re.search(r'^VmHWM:\s+(\d+) kB$', status, re.MULTILINE)
    assert match, 'Linux tells VmHWM'
    return int(match[1]) / 1024


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


def judge(budgets: Sequence[Budget], file: Path | None, figures: dict[str, Any]) -> int:
    """Print budgets, and write them with figures as JSON; the exit code: 1, one is not met.

    Args:
        budgets: What is judged.
        file: Is written; None: none is.
        figures: Plain JSON values.
    """
    print_budgets(budgets)
    if file:
        report = {**figures, 'budgets': [budget.to_json() for budget in budgets]}
        file.write_text(json.dumps(report, indent=1) + '\n')
    return int(not all(budget.is_met for budget in budgets))


def print_budgets(budgets: Iterable[Budget]) -> None:
    """Print one line for each budget, with PASS or FAIL."""
    for budget in budgets:
        sign = '>=' if budget.at_least else '<='
        verdict = 'PASS' if budget.is_met else 'FAIL'
        figure = f'{budget.value:8.3f} {sign} {budget.limit:.3f} {budget.unit}'
        print(f'{verdict}  {budget.what:52} {figure}')
