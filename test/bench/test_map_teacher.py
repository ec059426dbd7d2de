# SPDX-License-Identifier: Apache-2.0
"""What a map teaches is judged by the truth."""

from __future__ import annotations

from embodied_r_ros.questions.indoor import Draft
from embodied_r_ros.reasoning.completions import UNKNOWN
import pytest

from bench.map_teacher import is_right, KindTally, measure, table_rows


@pytest.mark.parametrize(
    ('kind', 'taught', 'true', 'right'),
    [
        ('number', '2.0', '2.4', True),
        ('number', '2.0', '2.7', False),
        ('number', '0', '0', True),
        ('number', UNKNOWN, '3', False),
        ('number', '3', UNKNOWN, False),
        ('choice', 'left', 'left', True),
        ('choice', 'left', 'right', False),
        ('choice', UNKNOWN, UNKNOWN, True),
    ],
)
def test_solutions_are_compared_with_the_true_ones(
    kind: str, taught: str, true: str, right: bool
) -> None:
    assert is_right(Draft('?', (), taught, kind), true) is right


def test_a_perceived_room_teaches_mostly_what_is_true() -> None:
    tallies = measure(1, 30.0, 0.3)
    assert 'unknown_size' not in tallies
    right = sum(tally.right for tally in tallies.values())
    assert right >= 8
    assert sum(tally.wrong + tally.not_proven for tally in tallies.values()) <= right / 3


def test_kinds_that_are_seldom_wrong_are_one_row() -> None:
    tallies = {'b': KindTally(99, 1), 'a': KindTally(8, 1, 1), 'c': KindTally(50)}
    assert table_rows(tallies) == [('`a`', 10, 2), ('all others', 150, 1)]
