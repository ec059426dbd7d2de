# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.types.deltas import compose_actions, net_motion
import pytest


def test_moves_follow_the_heading_so_far() -> None:
    net = net_motion(['moved forward 2.0 m, turned left 90°', 'moved forward 1.0 m'])
    assert (net.x_m, net.y_m, net.turn_deg) == pytest.approx((2.0, 1.0, 90.0))


def test_four_equal_sides_come_back() -> None:
    side = 'moved forward 1.5 m, turned right 90°'
    assert compose_actions([side] * 4) == 'turned right 360°'


@pytest.mark.parametrize(
    ('actions', 'text'),
    [
        ([], ''),
        (['stationary', 'stationary'], 'stationary'),
        (['cannot tell', 'cannot tell'], 'cannot tell'),
        (['cannot tell', 'turned left 30°'], 'turned left 30°, partly cannot tell'),
        (['moved forward', 'moved forward, turned left 30°'], 'turned left 30°, moved forward'),
        (['turned left', 'turned left', 'stationary'], 'turned left'),
        (['tilted down 10°', 'tilted up 10°', 'moved up 0.5 m'], 'moved up 0.5 m'),
    ],
)
def test_actions_amount_to_one(actions: list[str], text: str) -> None:
    assert compose_actions(actions) == text


def test_what_is_not_measured_is_said() -> None:
    assert net_motion(['moved forward']).unmeasured == ('moved forward',)
    assert net_motion(['a long walk']).unknown == 1
