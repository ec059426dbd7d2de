# SPDX-License-Identifier: Apache-2.0
"""Episodes of robots: what their bags prove of the camera's motion."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import odometry_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.core.perception.egomotion import motion_from_poses
from embodied_r_ros.core.types.deltas import action_text, DeltaKind, SemanticDelta
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark, EpisodeOutcome
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.poses import mounted_pose
from embodied_r_ros.data.episodes.episode import Episode, read_episode
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg, mark_to_msg
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig, rows_of_episode
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECOND_NS = 1_000_000_000
FACTORY = BagMessageFactory()
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def body(second: float) -> Pose:
    """A robot that drives ahead."""
    return Pose((0.5 * second, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')


def to_the_left(second: float) -> Pose:
    """Its camera, which looks to the left."""
    return mounted_pose(body(second), (0.0, 0.0, 1.0), (0.0, 0.0, math.pi / 2))


def delta_at(second: int, camera: str = 'camera') -> SemanticDelta:
    if second == 1:
        return SemanticDelta(SECOND_NS, DeltaKind.FIRST, to_id=1, camera=camera)
    motion = motion_from_poses(to_the_left(second - 1), to_the_left(second))
    return SemanticDelta(
        second * SECOND_NS,
        DeltaKind.CHANGE,
        to_id=second,
        action=action_text(motion),
        motion=motion,
        camera=camera,
    )


def keyframe_at(second: int, pose: Pose | None) -> Keyframe:
    stamp_ns, reason = second * SECOND_NS, KeyframeReason.FIRST
    return Keyframe(second, stamp_ns, EncodedImage(b'', 'jpeg'), reason, second, pose=pose)


def write_bag(
    path: Path,
    *,
    deltas: Sequence[SemanticDelta] = (),
    keyframes: Sequence[Keyframe] = (),
    early: Pose | None = None,
) -> Path:
    """A drive of five seconds with odometry."""
    with BagWriter(path) as bag:
        bag.add_topic('/odom', 'nav_msgs/msg/Odometry')
        poses = {second * SECOND_NS: body(second) for second in range(1, 6)}
        if early:
            poses = {SECOND_NS // 2: early, **poses}
        for stamp_ns, pose in poses.items():
            msg = odometry_to_msg(FACTORY, stamp_ns, pose, 'base_link', STILL)
            bag.write('/odom', msg, stamp_ns)
        if deltas:
            bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for delta in deltas:
            bag.write('/semantic_delta', delta_to_msg(FACTORY, delta), delta.stamp_ns)
        if keyframes:
            bag.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe')
        for keyframe in keyframes:
            bag.write('/keyframe', keyframe_to_msg(FACTORY, keyframe), keyframe.stamp_ns)
    return path


SECONDS = range(1, 6)
SEEN = [delta_at(second) for second in SECONDS]


def solutions(episode: Episode, coverage: Coverage) -> set[str]:
    rows = rows_of_episode(episode, QuestionsConfig(), coverage)
    return {row.solution_text() for row in rows if row.question_type == 'net_displacement'}


def test_odometry_that_has_not_started_is_skipped(tmp_path: Path) -> None:
    zeros = Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 0.0), 'odom')
    bag = write_bag(tmp_path / 'e1', early=zeros)
    episode = read_episode(bag, 'classical', lambda path: SEEN)
    assert episode.poses == tuple(body(second) for second in SECONDS)


def test_solutions_are_of_the_camera_as_the_deltas_are(tmp_path: Path) -> None:
    keyframes = [keyframe_at(second, to_the_left(second)) for second in SECONDS]
    episode = read_episode(write_bag(tmp_path / 'e1', deltas=SEEN, keyframes=keyframes))
    assert episode.deltas[-1].action == 'moved right 0.5 m'
    assert solutions(episode, Coverage()) == {'to the right of the start'}


def test_an_episode_ended_as_its_last_mark_says(tmp_path: Path) -> None:
    with BagWriter(tmp_path / 'e1') as bag:
        bag.add_topic('/episode_mark', 'embodied_r_msgs/msg/EpisodeMark')
        for second, (event, outcome) in enumerate(
            [
                (EpisodeEvent.START, EpisodeOutcome.UNSET),
                (EpisodeEvent.STOP, EpisodeOutcome.FAILURE),
                (EpisodeEvent.STOP, EpisodeOutcome.SUCCESS),
            ],
            1,
        ):
            mark = EpisodeMark(second * SECOND_NS, 'e1', event, outcome=outcome)
            bag.write('/episode_mark', mark_to_msg(FACTORY, mark), mark.stamp_ns)
    episode = read_episode(tmp_path / 'e1', 'classical', lambda path: [delta_at(1)])
    assert episode.outcome is EpisodeOutcome.SUCCESS


@pytest.mark.parametrize('known', [0, 4])
def test_recorded_deltas_without_poses_of_the_camera_prove_no_motion(
    tmp_path: Path, known: int
) -> None:
    keyframes = [
        keyframe_at(second, to_the_left(second) if second <= known else None) for second in SECONDS
    ]
    episode = read_episode(write_bag(tmp_path / 'e1', deltas=SEEN, keyframes=keyframes))
    coverage = Coverage()
    assert solutions(episode, coverage) == set()
    reason = 'not every keyframe is recorded with the pose of its camera'
    assert coverage.unsolved['net_turn', reason] > 0


def test_odometry_is_not_taken_for_a_camera_that_looks_aside(tmp_path: Path) -> None:
    keyframes = [keyframe_at(2, to_the_left(2))]
    bag = write_bag(tmp_path / 'e1', keyframes=keyframes)
    episode = read_episode(bag, 'vlm', lambda path: SEEN)
    coverage = Coverage()
    assert solutions(episode, coverage) == set()
    assert coverage.unsolved['net_turn', 'the odometry is not that of the camera'] > 0


def test_several_cameras_have_no_one_motion(tmp_path: Path) -> None:
    other = [replace(delta, camera='rear', stamp_ns=delta.stamp_ns + 1) for delta in SEEN]
    keyframes = [keyframe_at(second, to_the_left(second)) for second in SECONDS]
    keyframes += [
        replace(k, camera='rear', stamp_ns=k.stamp_ns + 1, pose=body(k.id)) for k in keyframes
    ]
    bag = write_bag(tmp_path / 'e1', deltas=[*SEEN, *other], keyframes=keyframes)
    coverage = Coverage()
    assert solutions(read_episode(bag), coverage) == set()
    reason = 'several cameras, each with a motion of its own'
    assert coverage.unsolved['net_displacement', reason] > 0
