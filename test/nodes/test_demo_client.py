# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.nodes.demo.client import in_words


def test_each_part_of_a_delta_is_a_sentence() -> None:
    change = 'In view: red tall object ahead.'
    delta = SemanticDelta(0, DeltaKind.CHANGE, action='moved forward 0.8 m', change=change)
    assert in_words(delta) == f'moved forward 0.8 m. {change}'
