# SPDX-License-Identifier: Apache-2.0
"""Where the keypoints of a demonstration are: the rule of ARM by frames, or in seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration import Keypoint
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.settings import setting, Settings
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.arm.demonstration import Demonstration
    from numpy.typing import NDArray

FRAME_RATE_HZ = 20.0  # RLBench's
STOP_SPEED_RAD_S = 0.1
OPEN_SHARE = 0.9  # a gripper that is less open than that is closed
_BUFFER_FRAMES = 4


def arm_keypoints(demonstration: Demonstration) -> tuple[Keypoint, ...]:
    """Find the keypoints of a demonstration.

    Args:
        demonstration: At 20 Hz, where the result is to be that of the paper.

    Raises:
        InputError: It has no joint speeds.
    """
    if demonstration.joint_speeds is None:
        msg = (
            f'demonstration {demonstration.episode_id!r} has no joint speeds, which the rule of '
            'ARM needs: use --rule seconds'
        )
        raise InputError(msg)
    is_open = None if demonstration.openings is None else demonstration.openings > OPEN_SHARE
    events = _arm_events(is_open, demonstration.joint_speeds)
    # A stop right before the last frame is dropped with it in the code of ARM.
    if len(events) >= 2 and events[-1][0] - 1 == events[-2][0]:
        del events[-2]
    return tuple(
        Keypoint(
            index,
            int(demonstration.stamps_ns[index]),
            demonstration.position(index),
            None if is_open is None else bool(is_open[index]),
            reason,
        )
        for index, reason in events
    )


def _arm_events(
    is_open: NDArray[np.bool_] | None, speeds: NDArray[np.float64]
) -> list[tuple[int, str]]:
    """Index and reason of each keypoint, before the last two are looked at."""
    count = len(speeds)
    state = np.ones(count, bool) if is_open is None else is_open
    is_slow = np.all(np.abs(speeds) <= STOP_SPEED_RAD_S, axis=1)
    events, buffer, before = [], 0, bool(state[0])
    for index in range(count):
        is_stop = bool(is_slow[index]) and buffer <= 0 and _is_quiet(state, index)
        buffer = _BUFFER_FRAMES if is_stop else buffer - 1
        is_change, is_last = bool(state[index]) != before, index == count - 1
        if index and (is_change or is_last or is_stop):
            events.append((index, 'gripper' if is_change else 'last' if is_last else 'stop'))
        before = bool(state[index])
    return events


def _is_quiet(state: NDArray[np.bool_], index: int) -> bool:
    """Tell whether the gripper stays as it is from two frames before to one after.

    No frame but the last two has to be looked at for the end: neither can be a stop.
    """
    if index >= len(state) - 2:
        return False
    # Negative indices wrap to the end, as they do in the code of ARM.
    return all(state[number] == state[index] for number in (index + 1, index - 1, index - 2))


@dataclass(frozen=True)
class SecondsRule(Settings):
    """What counts as a stop, and as a motion of the gripper."""

    min_stop_s: float = setting(0.15, 'A stop lasts at least this [s]', between=(0, 5))
    min_distance_m: float = setting(
        0.025, 'A stop nearer to the keypoint before it is none [m]', between=(0, 1)
    )
    gripper_hold_s: float = setting(
        0.5, 'A motion of the gripper that is undone sooner is none [s]', between=(0, 5)
    )


# In a stop every joint is slower, or where none are known the end effector; it ends above so many
# times that. Speeds are averaged over a time.
_STOP_RAD_S, _STOP_M_S, _MOVING_RATIO, _SMOOTH_S = 0.1, 0.03, 1.5, 0.1
_MIN_TURN_RAD = 0.05  # of a joint between keypoints, where no positions are known
_GRIP_STEP = 0.1  # share by which the opening changes when the gripper moves
_QUIET_S = 0.1  # fingers that stand this long are there; stops so near in time are theirs


@dataclass(frozen=True)
class _Stop:
    begin: int  # first sample
    index: int  # sample at which it has its least length
    lasts: bool  # until the end of the demonstration


@dataclass(frozen=True)
class _Grip:
    begin: int  # sample at which it is noticed
    index: int  # sample at which the fingers stand
    is_open: bool  # after it


def seconds_keypoints(demonstration: Demonstration, rule: SecondsRule) -> tuple[Keypoint, ...]:
    """Find the keypoints of a demonstration.

    Args:
        demonstration: At any rate. Without joint speeds, those of the end effector count.
        rule: What counts.
    """
    times = demonstration.seconds()
    grips = [] if demonstration.openings is None else _grips(times, demonstration.openings, rule)
    stops = [
        stop for stop in _stops(demonstration, times, rule) if not _is_of_grip(stop, grips, times)
    ]
    is_open = None if demonstration.openings is None else bool(demonstration.openings[0] >= 0.5)
    events: list[_Stop | _Grip] = sorted([*stops, *grips], key=lambda event: event.index)
    keypoints: list[Keypoint] = []
    at = 0  # the sample of the keypoint before
    for event in events:
        if isinstance(event, _Grip):
            is_open, reason = event.is_open, 'gripper'
        elif not _is_away(demonstration, at, event.index, rule):
            continue
        else:
            reason = 'last' if event.lasts else 'stop'
        at = event.index
        keypoints.append(_keypoint(demonstration, at, is_open, reason))
    last = len(demonstration) - 1
    if not keypoints or _is_away(demonstration, at, last, rule):
        keypoints.append(_keypoint(demonstration, last, is_open, 'last'))
    return tuple(keypoints)


def _is_away(demonstration: Demonstration, at: int, index: int, rule: SecondsRule) -> bool:
    """Tell whether the arm has gone somewhere else between two samples."""
    if demonstration.positions is None:
        first, second = demonstration.joint_turns()[[at, index]]
        return bool(np.abs(second - first).max() >= _MIN_TURN_RAD)
    first, second = demonstration.positions[[at, index]]
    return bool(np.linalg.norm(second - first) >= rule.min_distance_m)


def _keypoint(
    demonstration: Demonstration, index: int, is_open: bool | None, reason: str
) -> Keypoint:
    stamp_ns = int(demonstration.stamps_ns[index])
    return Keypoint(index, stamp_ns, demonstration.position(index), is_open, reason)


def _stops(
    demonstration: Demonstration, times: NDArray[np.float64], rule: SecondsRule
) -> list[_Stop]:
    if demonstration.joint_speeds is None:
        speeds, limit = demonstration.tool_speeds(), _STOP_M_S
    else:
        speeds, limit = np.abs(demonstration.joint_speeds).max(axis=1), _STOP_RAD_S
    speeds = _smooth(times, speeds)
    stops, begin = [], -1
    for index, speed in enumerate([*speeds, np.inf]):
        if begin < 0 and speed < limit:
            begin = index
        elif begin >= 0 and speed > limit * _MOVING_RATIO:
            stop_index = int(np.searchsorted(times, times[begin] + rule.min_stop_s - 1e-9))
            if stop_index < index:
                stops.append(_Stop(begin, stop_index, index == len(speeds)))
            begin = -1
    return stops


def _smooth(times: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Mean over a window around each sample. Shapes (N,)."""
    low = np.searchsorted(times, times - _SMOOTH_S / 2 - 1e-9)
    high = np.searchsorted(times, times + _SMOOTH_S / 2 + 1e-9)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    return np.asarray((sums[high] - sums[low]) / (high - low))


def _grips(
    times: NDArray[np.float64], openings: NDArray[np.float64], rule: SecondsRule
) -> list[_Grip]:
    """Motions of the gripper, those left out that are undone at once."""
    turns: list[int] = []
    for index in _turns(openings):
        if turns and times[index] - times[turns[-1]] < rule.gripper_hold_s:
            turns.pop()
        else:
            turns.append(index)
    is_open = bool(openings[0] >= 0.5)
    grips = []
    for index in turns:
        is_open = not is_open
        grips.append(_Grip(index, _rest_index(times, openings, index, rule), is_open))
    return grips


def _turns(openings: NDArray[np.float64]) -> list[int]:
    """Samples at which the opening has left its extreme by a step, to either side in turn."""
    turns, sign = [], 1.0 if openings[0] >= 0.5 else -1.0
    extreme = sign * openings[0]
    for index, opening in enumerate(openings):
        extreme = max(extreme, sign * opening)
        if sign * opening < extreme - _GRIP_STEP:
            turns.append(index)
            sign = -sign
            extreme = sign * opening
    return turns


def _rest_index(
    times: NDArray[np.float64], openings: NDArray[np.float64], begin: int, rule: SecondsRule
) -> int:
    """First sample after which the fingers stand, or that at which waiting ends."""
    for index in range(begin, len(times)):
        end = int(np.searchsorted(times, times[index] + _QUIET_S - 1e-9)) + 1
        if times[index] - times[begin] >= rule.gripper_hold_s:
            return index
        if np.ptp(openings[index:end]) < _GRIP_STEP / 4:
            return index
    return len(times) - 1


def _is_of_grip(stop: _Stop, grips: list[_Grip], times: NDArray[np.float64]) -> bool:
    """Tell whether a stop comes while the gripper moves, or right before or after."""
    at = times[stop.index]
    return any(
        times[grip.begin] - _QUIET_S <= at <= times[grip.index] + _QUIET_S for grip in grips
    )


RULES = ('seconds', 'arm')


def find_keypoints(
    demonstration: Demonstration, rule: str, seconds: SecondsRule | None = None
) -> tuple[Demonstration, tuple[Keypoint, ...]]:
    """Find the keypoints of a demonstration.

    Args:
        demonstration: As it was recorded.
        rule: One of `RULES`; that of ARM looks at frames of 20 Hz.
        seconds: What counts for the rule in seconds; None: the defaults.

    Returns:
        The samples that were looked at, which the indices of keypoints are of, and the keypoints.

    Raises:
        InputError: The demonstration lacks what the rule needs.
    """
    if rule == 'seconds':
        return demonstration, seconds_keypoints(demonstration, seconds or SecondsRule())
    frames = demonstration.at_rate(FRAME_RATE_HZ)
    return frames, arm_keypoints(frames)
