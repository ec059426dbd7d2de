# SPDX-License-Identifier: Apache-2.0
"""Episodes of robots: what their bags prove of the camera's motion."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.conversions import delta_to_msg, odometry_to_msg
from embodied_r_ros.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.geometry import Pose
from embodied_r_ros.recordings.bags import BagWriter
from embodied_r_ros.recordings.episode_bag import read_episode
from embodied_r_ros.recordings.message_types import BagMessageFactory

if TYPE_CHECKING:
    from pathlib import Path

SECOND_NS = 1_000_000_000
FACTORY = BagMessageFactory()
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def body(second: float) -> Pose:
    """A robot that drives ahead."""
    return Pose((0.5 * second, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')


def write_bag(path: Path, *, early: Pose | None = None) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic('/odom', 'nav_msgs/msg/Odometry')
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        poses = {second * SECOND_NS: body(second) for second in range(1, 6)}
        if early:
            poses = {SECOND_NS // 2: early, **poses}
        for stamp_ns, pose in poses.items():
            msg = odometry_to_msg(FACTORY, stamp_ns, pose, 'base_link', STILL)
            bag.write('/odom', msg, stamp_ns)
        for second in range(1, 6):
            kind = DeltaKind.CHANGE if second > 1 else DeltaKind.FIRST
            delta = SemanticDelta(second * SECOND_NS, kind, to_id=second)
            bag.write('/semantic_delta', delta_to_msg(FACTORY, delta), second * SECOND_NS)
    return path


def test_odometry_that_has_not_started_is_skipped(tmp_path: Path) -> None:
    zeros = Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 'odom')
    episode = read_episode(write_bag(tmp_path / 'e1', early=zeros))
    assert episode.poses == tuple(body(second) for second in range(1, 6))
