# SPDX-License-Identifier: Apache-2.0
"""Keypoints as the code of ARM finds them, frame for frame: for reproducing papers.

ARM (James and Davison, https://github.com/stepjam/ARM) and those after it (C2F-ARM, PerAct,
Robot-R1) count frames of 20 Hz. Its edge effects are kept: indices before the first frame wrap to
the end of the demonstration, and an arm that stands still gives a keypoint every five frames.
`edge_effects=False` leaves the wrapping out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.errors import InputError
from embodied_r_ros.keypoints.demonstration import Keypoint
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.keypoints.demonstration import Demonstration
    from numpy.typing import NDArray

FRAME_RATE_HZ = 20.0  # RLBench's
STOP_SPEED_RAD_S = 0.1
OPEN_SHARE = 0.9  # a gripper that is less open than that is closed
_BUFFER_FRAMES = 4


def arm_keypoints(shown: Demonstration, *, edge_effects: bool = True) -> tuple[Keypoint, ...]:
    """Find the keypoints of a demonstration.

    Args:
        shown: At 20 Hz, where the result is to be that of the paper.
        edge_effects: As in the code of ARM; False: no frame before the first one is looked at.

    Raises:
        InputError: It has no joint speeds.
    """
    if shown.joint_speeds is None:
        msg = (
            f'demonstration {shown.episode_id!r} has no joint speeds, which the rule of ARM '
            'needs: use --rule seconds'
        )
        raise InputError(msg)
    is_open = None if shown.openings is None else shown.openings > OPEN_SHARE
    found = _found(is_open, shown.joint_speeds, edge_effects=edge_effects)
    # A stop right before the last frame is dropped with it in the code of ARM.
    if len(found) >= 2 and found[-1][0] - 1 == found[-2][0]:
        del found[-2]
    return tuple(
        Keypoint(
            index,
            int(shown.stamps_ns[index]),
            shown.position(index),
            None if is_open is None else bool(is_open[index]),
            reason,
        )
        for index, reason in found
    )


def _found(
    is_open: NDArray[np.bool_] | None, speeds: NDArray[np.float64], *, edge_effects: bool
) -> list[tuple[int, str]]:
    """Index and reason of each keypoint, before the last two are looked at."""
    count = len(speeds)
    state = np.ones(count, bool) if is_open is None else is_open
    is_slow = np.all(np.abs(speeds) <= STOP_SPEED_RAD_S, axis=1)
    found, buffer, before = [], 0, bool(state[0])
    for index in range(count):
        is_stop = (
            bool(is_slow[index])
            and buffer <= 0
            and _is_quiet(state, index, edge_effects=edge_effects)
        )
        buffer = _BUFFER_FRAMES if is_stop else buffer - 1
        is_change, is_last = bool(state[index]) != before, index == count - 1
        if index and (is_change or is_last or is_stop):
            found.append((index, 'gripper' if is_change else 'last' if is_last else 'stop'))
        before = bool(state[index])
    return found


def _is_quiet(state: NDArray[np.bool_], index: int, *, edge_effects: bool) -> bool:
    """Tell whether the gripper stays as it is from two frames before to one after.

    No frame but the last two has to be looked at for the end: neither can be a stop.
    """
    if index >= len(state) - 2:
        return False
    earlier = (index - 1, index - 2)
    if not edge_effects:
        earlier = (max(0, index - 1), max(0, index - 2))
    # Negative indices wrap to the end, as they do in the code of ARM.
    return all(state[number] == state[index] for number in (index + 1, *earlier))
