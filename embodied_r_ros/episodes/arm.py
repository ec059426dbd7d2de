# SPDX-License-Identifier: Apache-2.0
"""A demonstration of an arm as questions are made of it: samples, keypoints, and its camera."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import arm_episode, DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.keypoint_rules import find_keypoints
from embodied_r_ros.arm.robot import RobotMetadata, SETUP_TOPIC
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.bags.images import camera_info_topic, choose_image_topic
from embodied_r_ros.bags.messages import IMAGE_TYPES, intrinsics_from_camera_info
from embodied_r_ros.bags.poses import TransformPoses
from embodied_r_ros.bags.reader import open_bag, read_values, topics_of_type
from embodied_r_ros.episodes.demonstrations import CAMERA_FRAME, read_demonstration, setup_of
from embodied_r_ros.episodes.ground_truth import ground_truth_arm_deltas
from embodied_r_ros.keyframes.selector import KeyframeConfig
from embodied_r_ros.types.geometry import Pose

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import ArmEpisode, Demonstration
    from embodied_r_ros.arm.robot import ArmSetup, Robot
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.types.deltas import SemanticDelta
    from embodied_r_ros.types.geometry import Intrinsics

Quaternion = tuple[float, float, float, float]


def has_arm(reader: BagReader, robot: Robot | None) -> bool:
    """Tell whether a bag says that it is of an arm, or is said to be."""
    return SETUP_TOPIC in reader.topics or bool(robot and robot.setup)


def keyframes_of_arm(path: Path, robot: Robot | None) -> KeyframeConfig | None:
    """When the images of a bag of an arm are looked at; None: the bag is of no arm.

    A camera that stands still sees a view that hardly changes while the arm goes about, so that
    time decides too.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        if not has_arm(reader, robot):
            return None
    placing = robot.placing if robot else PlacingConfig()
    return KeyframeConfig(max_interval_s=placing.look_every_s)


def ground_truth_deltas_of_arm(
    reader: BagReader, robot: Robot | None, arm: ArmEpisode, episode_id: str
) -> list[SemanticDelta]:
    """Ground-truth deltas of a simulated demonstration; empty: the bag holds no truth.

    Raises:
        InputError: The truth cannot be read.
    """
    if TRUTH_TOPIC not in reader.topics or arm.camera is None:
        return []
    text = next(iter(read_values(reader, [TRUTH_TOPIC], lambda msg: str(msg.data))))
    placing = robot.placing if robot else PlacingConfig()
    truth = DemonstrationTruth.from_json(text)
    return ground_truth_arm_deltas(truth, arm.camera, placing.look_every_s, episode_id)


def read_arm_episode(reader: BagReader, robot: Robot | None) -> ArmEpisode:
    """Read the one demonstration of a bag.

    Args:
        reader: The bag.
        robot: How it is to be read, and which keypoints count; None: as the bag says.

    Raises:
        InputError: Something that it must have is missing, there are several, or it is damaged.
    """
    setup = (robot and robot.setup) or setup_of(reader)
    rule = robot.questions.keypoint_rule if robot else 'seconds'
    stops = robot.stops if robot else None
    samples, keypoints = find_keypoints(read_demonstration(reader, setup), rule, stops)
    camera, intrinsics = _camera(reader, setup)
    return arm_episode(
        samples,
        keypoints,
        _orientations(samples),
        (camera, intrinsics),
        RobotMetadata(
            frame_id=setup.frame_id,
            reference=setup.reference,
            gripper_size=setup.gripper_size,
        ),
    )


def _camera(reader: BagReader, setup: ArmSetup) -> tuple[Pose | None, Intrinsics | None]:
    """Pose of the camera's optical frame in the task frame, and its intrinsics, where known."""
    if not setup.image_topic and not topics_of_type(reader, *IMAGE_TYPES):
        # A demonstration of ours without images has the frame of its camera all the same.
        where = TransformPoses(reader, ()).pose_in(setup.frame_id, CAMERA_FRAME, 0)
        return where if isinstance(where, Pose) else None, None
    topic = choose_image_topic(reader, setup.image_topic or None)
    frame = _first(reader, topic, lambda msg: str(msg.header.frame_id))
    # A camera that moves has no words for axes, so only static transforms count.
    pose = TransformPoses(reader, ()).pose_in(setup.frame_id, frame, 0) if frame else None
    about = camera_info_topic(reader, topic)
    intrinsics = _first(reader, about, intrinsics_from_camera_info) if about else None
    return pose if isinstance(pose, Pose) else None, intrinsics


def _first(reader: BagReader, topic: str, convert: Any) -> Any:
    """A value of the first message of a topic; None: there is none."""
    return next(iter(read_values(reader, [topic], convert)), None)


def _orientations(samples: Demonstration) -> Sequence[Quaternion]:
    """Orientation of the end effector at each sample; empty: not all are known."""
    if samples.orientations is None:
        return ()
    return [(x, y, z, w) for x, y, z, w in samples.orientations.tolist()]
