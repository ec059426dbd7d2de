# SPDX-License-Identifier: Apache-2.0
"""Episodes of an arm: what a bag holds of a demonstration, and its ground truth."""

from __future__ import annotations

from itertools import pairwise
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import arm_episode, DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.demonstration_bag import CAMERA_FRAME, read_demonstration, setup_of
from embodied_r_ros.arm.keypoint_rules import find_keypoints
from embodied_r_ros.arm.proposal import done_question
from embodied_r_ros.arm.robot import load_robot, RobotMetadata
from embodied_r_ros.arm.rows import rows_of_arm
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.bags.images import camera_info_topic, choose_image_topic
from embodied_r_ros.bags.messages import IMAGE_TYPES, intrinsics_from_camera_info
from embodied_r_ros.bags.poses import TransformPoses
from embodied_r_ros.bags.reader import read_values, topics_of_type
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    SemanticDelta,
    STATIONARY,
)
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    direction_of_vector,
    NS_PER_S,
    Pose,
)
from embodied_r_ros.data.episodes.ground_truth import MODEL
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.arm.demonstration import ArmEpisode, TrueThing
    from embodied_r_ros.arm.robot import ArmSetup, Robot
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.geometry import Intrinsics

__all__ = [
    'done_question',
    'ground_truth_arm_deltas',
    'ground_truth_deltas_of_arm',
    'keyframing_of_arm',
    'load_robot',
    'read_arm_episode',
    'read_demonstration',
    'rows_of_arm',
    'setup_of',
]
ARM_MOVED_M = 0.03  # what moved by less between two images counts as in view only


def keyframing_of_arm(robot: Robot | None) -> KeyframeConfig:
    """When the images of a bag of an arm are looked at.

    A camera that stands still sees a view that hardly changes while the arm goes about, so that
    time decides too.
    """
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
    frame = _first_value(reader, topic, lambda msg: str(msg.header.frame_id))
    # A camera that moves has no words for axes, so only static transforms count.
    pose = TransformPoses(reader, ()).pose_in(setup.frame_id, frame, 0) if frame else None
    about = camera_info_topic(reader, topic)
    intrinsics = _first_value(reader, about, intrinsics_from_camera_info) if about else None
    return pose if isinstance(pose, Pose) else None, intrinsics


def _first_value(reader: BagReader, topic: str, convert: Any) -> Any:
    """A value of the first message of a topic; None: there is none."""
    return next(iter(read_values(reader, [topic], convert)), None)


def ground_truth_arm_deltas(
    truth: DemonstrationTruth, camera: Pose, interval_s: float, episode_id: str = ''
) -> list[SemanticDelta]:
    """Ground-truth deltas of images of a still camera, which sees everything all the time.

    Args:
        truth: Where things are at each stamp.
        camera: Pose of the optical frame in the frame of the truth.
        interval_s: Between two images with a delta [s]; 0: all have one.
        episode_id: Of the recording.
    """
    chosen: list[int] = []
    for index, stamp_ns in enumerate(truth.stamps_ns):
        if not chosen or stamp_ns - truth.stamps_ns[chosen[-1]] >= interval_s * NS_PER_S:
            chosen.append(index)
    pairs = pairwise([chosen[0], *chosen]) if chosen else ()
    return [
        _arm_delta(truth, camera, pair, number, episode_id) for number, pair in enumerate(pairs)
    ]


def _arm_delta(
    truth: DemonstrationTruth, camera: Pose, pair: tuple[int, int], number: int, episode_id: str
) -> SemanticDelta:
    items = [_item(thing, camera, pair) for thing in truth.things]
    has_moved = any(item.status is ItemStatus.MOVED for item in items)
    kind = DeltaKind.CHANGE if has_moved else DeltaKind.NO_CHANGE
    before, now = (truth.stamps_ns[index] for index in pair)
    return SemanticDelta(
        now,
        kind if number else DeltaKind.FIRST,
        to_id=number,
        from_id=max(0, number - 1),
        from_stamp_ns=before,
        action=STATIONARY if number else '',
        change=change_text(items),
        items=tuple(items),
        episode_id=episode_id,
        model=MODEL,
    )


def _item(thing: TrueThing, camera: Pose, pair: Sequence[int]) -> Item:
    before, now = (thing.positions[index] for index in pair)
    offset = np.subtract(now, camera.position)
    bearing, elevation = direction_of_vector(BODY_FROM_OPTICAL @ camera.rotation().T @ offset)
    return Item(
        thing.label,
        ItemStatus.MOVED if math.dist(before, now) >= ARM_MOVED_M else ItemStatus.VISIBLE,
        bearing,
        elevation,
        distance_m=float(np.linalg.norm(offset)),
        confidence=1.0,
    )
