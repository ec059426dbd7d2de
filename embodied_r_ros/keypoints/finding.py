# SPDX-License-Identifier: Apache-2.0
"""The keypoints of a demonstration by the rule of one's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.keypoints.arm_rule import arm_keypoints, FRAME_RATE_HZ
from embodied_r_ros.keypoints.seconds_rule import seconds_keypoints, SecondsRule

if TYPE_CHECKING:
    from embodied_r_ros.keypoints.demonstration import Demonstration, Keypoint

RULES = ('seconds', 'arm', 'arm-clean')


def find_keypoints(
    shown: Demonstration, rule: str, seconds: SecondsRule | None = None
) -> tuple[Demonstration, tuple[Keypoint, ...]]:
    """Find the keypoints of a demonstration.

    Args:
        shown: As it was recorded.
        rule: One of `RULES`; those of ARM look at frames of 20 Hz.
        seconds: What counts for the rule in seconds; None: the defaults.

    Returns:
        The samples that were looked at, which the indices of keypoints are of, and the keypoints.

    Raises:
        InputError: The demonstration lacks what the rule needs.
    """
    if rule == 'seconds':
        return shown, seconds_keypoints(shown, seconds or SecondsRule())
    frames = shown.at_rate(FRAME_RATE_HZ)
    return frames, arm_keypoints(frames, edge_effects=rule == 'arm')
