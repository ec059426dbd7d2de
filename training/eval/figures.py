# SPDX-License-Identifier: Apache-2.0
"""Rates, their intervals and differences as texts of reports."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def interval_text(interval: Sequence[float] | None) -> str:
    """An interval of rates in brackets, to stand after one; rows of one scene have none."""
    return (
        f' ({interval[0]:.1%} to {interval[1]:.1%})' if interval else ' (one scene: no interval)'
    )


def gain_text(figures: Mapping[str, Any], group: str = 'scene') -> str:
    """A paired difference with its interval, as a comparison has it."""
    interval = figures['interval_95']
    within = (
        f'{interval[0]:+.1%} to {interval[1]:+.1%}' if interval else f'one {group}: no interval'
    )
    return f'{figures["difference"]:+.1%} ({within})'
