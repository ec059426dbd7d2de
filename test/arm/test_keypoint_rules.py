# SPDX-License-Identifier: Apache-2.0
"""Keypoints: the rule of ARM frame for frame, and the rule in seconds on what robots really do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from embodied_r_ros.arm.demonstration import Demonstration
from embodied_r_ros.arm.keypoint_rules import (
    arm_keypoints,
    find_keypoints,
    seconds_keypoints,
    SecondsRule,
)
from embodied_r_ros.common.errors import InputError
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

RULE = SecondsRule()


def frames(speeds: Any, opened: Any = None, rate_hz: float = 20.0) -> Demonstration:
    """A demonstration whose end effector goes on by its one joint's speed."""
    count = len(speeds)
    speed = np.asarray(speeds, float)
    way = np.concatenate([[0.0], np.cumsum(np.abs(speed[:-1]))]) / rate_hz
    return Demonstration(
        stamps_ns=(np.arange(count) * 1e9 / rate_hz).astype(np.int64),
        positions=np.column_stack([way, np.zeros((count, 2))]),
        openings=None if opened is None else np.asarray(opened, float),
        joint_speeds=speed[:, None],
    )


def indices(shown: Demonstration) -> list[tuple[int, str]]:
    return [(keypoint.index, keypoint.reason) for keypoint in arm_keypoints(shown)]


def by_the_book(slow: list[bool], opened: list[bool]) -> list[int]:
    """The heuristic as the specification words it (a.2), with Python's negative indices."""
    last, buffer, found = len(slow) - 1, 0, []
    for i in range(len(slow)):
        quiet = i < last - 1 and len({opened[i - 2], opened[i - 1], opened[i], opened[i + 1]}) == 1
        stopped = slow[i] and buffer <= 0 and i != last - 1 and quiet
        buffer = 4 if stopped else buffer - 1
        if i and (opened[i] != opened[i - 1] or i == last or stopped):
            found.append(i)
    if len(found) > 1 and found[-1] - found[-2] == 1:
        found.pop(-2)
    return found


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=3, max_size=60))
def test_the_rule_of_arm_is_the_one_specified(rows: list[tuple[bool, bool]]) -> None:
    slow, opened = ([row[part] for row in rows] for part in (0, 1))
    shown = frames([0.05 if is_slow else 0.5 for is_slow in slow], opened)
    assert [index for index, _ in indices(shown)] == by_the_book(slow, opened)


def test_a_change_of_the_gripper_counts_at_the_first_frame_after_it() -> None:
    assert indices(frames([1.0] * 10, [1] * 4 + [0] * 6)) == [(4, 'gripper'), (9, 'last')]


def test_an_arm_that_stands_gives_a_keypoint_every_five_frames() -> None:
    shown = frames([1.0] * 4 + [0.0] * 13 + [1.0] * 3)
    assert indices(shown) == [(4, 'stop'), (9, 'stop'), (14, 'stop'), (19, 'last')]


def test_the_speed_of_a_stop_is_at_most_a_tenth() -> None:
    assert indices(frames([1.0] * 4 + [0.1] + [1.0] * 5))[0] == (4, 'stop')
    assert indices(frames([1.0] * 4 + [-0.1001] + [1.0] * 5)) == [(9, 'last')]


def test_stops_near_a_change_of_the_gripper_and_before_the_end_do_not_count() -> None:
    opened = [1] * 8 + [0] * 8
    for index in (7, 9):  # the frame before the change, and those one and two after it
        speeds = [1.0] * 16
        speeds[index] = 0.0
        assert indices(frames(speeds, opened)) == [(8, 'gripper'), (15, 'last')]
    speeds = [1.0] * 16
    speeds[14] = 0.0
    assert indices(frames(speeds)) == [(15, 'last')]


def test_a_keypoint_right_before_the_last_frame_is_dropped() -> None:
    assert indices(frames([1.0] * 10, [1] * 8 + [0] * 2)) == [(9, 'last')]
    assert indices(frames([1.0] * 10, [1] * 7 + [0] * 3)) == [(7, 'gripper'), (9, 'last')]


def test_the_first_frames_look_at_the_end() -> None:
    shown = frames([1.0] + [0.0] + [1.0] * 10, [1] * 6 + [0] * 6)
    assert indices(shown) == [(6, 'gripper'), (11, 'last')]


def test_the_rule_of_arm_needs_joint_speeds() -> None:
    with pytest.raises(InputError, match='use --rule seconds'):
        arm_keypoints(replace(frames([1.0] * 5), joint_speeds=None))


def script(rate_hz: float = 50.0) -> Demonstration:
    """1 s idle, 1 s way, 1 s rest in which the gripper closes in 0.3 s, 1 s way, 1 s rest."""
    count = round(5 * rate_hz)
    t = np.arange(count) / rate_hz
    is_way = ((t >= 1) & (t < 2)) | ((t >= 3) & (t < 4))
    speeds = np.where(is_way, 0.5, 0.01)
    return frames(speeds, np.interp(t, [2.4, 2.7], [1.0, 0.35]), rate_hz)


def times_and_reasons(shown: Demonstration, rule: SecondsRule = RULE) -> list[tuple[float, str]]:
    return [
        (round((k.stamp_ns - int(shown.stamps_ns[0])) / 1e9, 2), k.reason)
        for k in seconds_keypoints(shown, rule)
    ]


@pytest.mark.parametrize('rate_hz', [10.0, 20.0, 50.0, 200.0])
def test_stop_gripper_and_end_are_told_once_each_at_any_rate(rate_hz: float) -> None:
    found = times_and_reasons(script(rate_hz))
    assert [reason for _, reason in found] == ['stop', 'gripper', 'last']
    expected = (2.15, 2.7, 4.15)
    for (seconds, _), wanted in zip(found, expected, strict=True):
        assert abs(seconds - wanted) <= 0.11


def test_the_gripper_is_told_when_its_fingers_stand_on_what_they_hold() -> None:
    keypoint = seconds_keypoints(script(), RULE)[1]
    assert keypoint.is_open is False
    assert script().openings is not None
    assert keypoint.index >= 2.65 * 50


def test_chatter_of_the_gripper_is_no_motion() -> None:
    shown = script()
    assert shown.openings is not None
    openings = shown.openings.copy()
    openings[170:180] = 0.8  # 0.2 s, on the way
    assert times_and_reasons(replace(shown, openings=openings)) == times_and_reasons(shown)


def test_noise_of_speeds_within_a_stop_does_not_split_it() -> None:
    shown = script()
    assert shown.joint_speeds is not None
    speeds = shown.joint_speeds.copy()
    speeds[215:250:8] = 0.12
    assert times_and_reasons(replace(shown, joint_speeds=speeds)) == times_and_reasons(shown)


def test_idling_and_standing_where_the_last_keypoint_was_add_nothing() -> None:
    shown = script()
    assert times_and_reasons(shown)[0][0] > 2.0  # nothing of the first second
    assert not [
        at for at, _ in times_and_reasons(shown) if 2.75 < at < 4.0
    ]  # nor of the rest after the grip


def test_a_demonstration_that_ends_on_the_way_has_its_end() -> None:
    whole = script()
    cut = slice(0, 190)
    assert whole.positions is not None
    assert whole.openings is not None
    assert whole.joint_speeds is not None
    shown = Demonstration(
        whole.stamps_ns[cut], whole.positions[cut], whole.openings[cut], whole.joint_speeds[cut]
    )
    assert times_and_reasons(shown)[-1] == (3.78, 'last')


def test_without_joints_the_end_effector_counts() -> None:
    shown = replace(script(), joint_speeds=None)
    assert [reason for _, reason in times_and_reasons(shown)] == ['stop', 'gripper', 'last']


def test_what_counts_can_be_set() -> None:
    assert [r for _, r in times_and_reasons(script(), SecondsRule(min_stop_s=3.0))] == [
        'gripper',
        'last',
    ]


def test_the_rule_of_arm_sees_frames_of_twenty_hertz() -> None:
    sampled, found = find_keypoints(script(200.0), 'arm')
    assert len(sampled) == 100
    assert [k.index for k in found] == [k.index for k in arm_keypoints(script(200.0).at_rate(20))]


def test_stamps_that_go_back_are_refused() -> None:
    shown = frames([1.0] * 5)
    with pytest.raises(InputError, match='stamps that go back'):
        replace(shown, stamps_ns=shown.stamps_ns[::-1])
