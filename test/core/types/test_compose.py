# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.core.types.deltas import compose_actions, net_motion
import pytest


def test_moves_follow_the_heading_so_far() -> None:
    net = net_motion(['moved forward 2.0 m, turned left 90°', 'moved forward 1.0 m'])
    assert (net.x_m, net.y_m, net.turn_deg) == pytest.approx((2.0, 1.0, 90.0))


def test_four_equal_sides_come_back() -> None:
    side = 'moved forward 1.5 m, turned right 90°'
    assert compose_actions([side] * 4) == 'turned right 360°'


def test_a_camera_that_looks_down_and_goes_ahead_does_not_rise() -> None:
    ahead = 'moved forward 0.9 m, moved up 0.5 m'
    net = net_motion(['tilted down 30°', *[ahead] * 4])
    assert (net.x_m, net.z_m, net.tilt_deg) == pytest.approx((4.1, 0.0, 30.0), abs=0.1)
    around = ['turned left 90°', 'moved forward 1.0 m, rolled clockwise 90°', 'moved up 2.0 m']
    net = net_motion(['tilted up 45°', *around])
    assert (net.x_m, net.y_m, net.z_m) == pytest.approx((2**0.5, 1.0, 2**0.5), abs=1e-9)


def test_turns_are_counted_beyond_a_full_one() -> None:
    assert net_motion(['turned left 100°'] * 8).turn_deg == pytest.approx(800)


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
