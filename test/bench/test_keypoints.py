# SPDX-License-Identifier: Apache-2.0
"""What the bench of keypoints calls right."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.demonstration import Keypoint, TrueKeypoint

from bench.keypoints import match, summary

PLACE = (0.1, 0.2, 0.3)


def keypoint_at(seconds: float, reason: str = 'stop') -> Keypoint:
    return Keypoint(0, round(seconds * 1e9), PLACE, True, reason)


def true(begin: float, end: float, reason: str = 'stop') -> TrueKeypoint:
    return TrueKeypoint(round(begin * 1e9), round(end * 1e9), PLACE, closed=False, reason=reason)


def test_a_waypoint_is_matched_once_by_reason_and_time() -> None:
    truth = [true(1.0, 1.5), true(1.5, 2.0, 'gripper'), true(4.0, 4.5, 'last')]
    told = [
        keypoint_at(1.2),
        keypoint_at(1.3),
        keypoint_at(1.7, 'gripper'),
        keypoint_at(3.0),
        keypoint_at(4.4),
    ]
    row = summary([match('pick', 'arm', told, truth)], 'pick', 'arm')
    assert (row['found'], row['true']) == (5, 3)
    assert row['precision'] == pytest.approx(3 / 5)
    assert row['recall'] == 1.0
    assert row['late_p50_s'] == pytest.approx(0.2)


def test_a_stop_is_no_motion_of_the_gripper() -> None:
    row = summary(
        [match('pick', 'arm', [keypoint_at(1.6)], [true(1.5, 2.0, 'gripper')])], 'pick', 'arm'
    )
    assert row['precision'] == row['recall'] == 0.0
