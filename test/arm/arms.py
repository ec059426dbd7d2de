# SPDX-License-Identifier: Apache-2.0
"""A demonstration by hand: an arm fetches something and brings it elsewhere."""

from __future__ import annotations

from itertools import product
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.arm.demonstration import (
    arm_episode,
    Demonstration,
    DemonstrationTruth,
    Keypoint,
    TrueKeypoint,
    TrueThing,
    TRUTH_TOPIC,
)
from embodied_r_ros.arm.demonstration_bag import (
    ArmFrame,
    CAMERA_FRAME,
    DemonstrationHead,
    write_demonstration,
)
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
)
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.movement import FULL, Movement
from embodied_r_ros.data.episodes.episode import Episode
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import ArmEpisode
    from embodied_r_ros.core.types.geometry import Position

# All movements, by their words.
MOVEMENTS = {
    movement.words(): movement
    for x, y, z in product(range(-FULL, FULL + 1), repeat=3)
    if FULL in {abs(x), abs(y), abs(z)}
    for movement in [Movement((x, y, z))]
}
STEP_NS = 50_000_000
T0_NS = 1_700_000_000_000_000_000
TASK = 'put the red block on the blue mat'
# Where the end effector comes to, and whether it then holds something.
KEYPOINTS: tuple[tuple[Position, bool], ...] = (
    ((0.1, -0.15, 0.154), False),
    ((0.1, -0.15, 0.014), False),
    ((0.1, -0.15, 0.014), True),
    ((0.1, -0.15, 0.154), True),
    ((0.15, 0.1, 0.154), True),
    ((0.15, 0.1, 0.018), True),
    ((0.15, 0.1, 0.018), False),
    ((0.15, 0.1, 0.154), False),
)
_LEG = 14  # samples
_REST = 9  # samples


def camera(bearing_deg: float = 0.0, elevation_deg: float = 35.0) -> Pose:
    """A camera at a bearing from +x, 1 m from the table's centre, which it looks at."""
    bearing, elevation = math.radians(bearing_deg), math.radians(elevation_deg)
    across = math.cos(elevation)
    back = np.array([across * math.cos(bearing), across * math.sin(bearing), math.sin(elevation)])
    left = np.array([math.sin(bearing), -math.cos(bearing), 0.0])
    body = np.column_stack([-back, left, np.cross(-back, left)])
    x, y, z = (float(value) for value in back)
    turn = quaternion_from_matrix(body @ BODY_FROM_OPTICAL)
    return Pose((x, y, z), turn, 'table_center')


def arm(
    *, at: Pose | None = None, shift_m: float = 0.0, frame_id: str = 'table_center'
) -> ArmEpisode:
    """The demonstration, with all of it shifted along y, seen by a camera (None: not known)."""
    ends = [((0.0, 0.0, 0.16), False), *KEYPOINTS]
    shares = np.arange(1, _LEG + 1)[:, None] / _LEG
    legs = [
        np.asarray(a) + shares * np.subtract(b, a)
        for (a, _), (b, _) in zip(ends, KEYPOINTS, strict=False)
    ]
    positions = np.concatenate([[ends[0][0]], *legs])
    positions[:, 1] += shift_m
    stamps = T0_NS + STEP_NS * np.arange(len(positions))
    keypoints = [
        Keypoint(_LEG * number, 0, None, not is_closed, 'stop')
        for number, (_, is_closed) in enumerate(KEYPOINTS, 1)
    ]
    samples = Demonstration(stamps, positions, task=TASK, frame_id=frame_id)
    return arm_episode(samples, keypoints, (at, None))


def episode(name: str, shown: ArmEpisode | None, *, scene: str = '', seen: int = 3) -> Episode:
    """A recording of the demonstration, in which something was seen a few times."""
    deltas = tuple(
        SemanticDelta(
            T0_NS + 30 * STEP_NS * index,
            DeltaKind.CHANGE if index else DeltaKind.FIRST,
            index,
            change=f'New: red small block ahead, {index}.',
        )
        for index in range(seen)
    )
    return Episode(name, scene or name, 'front', deltas, 'classical', arm=shown)


def write_arm_bag(
    path: Path,
    scene: str,
    *,
    at: Pose | None = None,
    shift_m: float = 0.0,
    images: bool = True,
    truth: DemonstrationTruth | None = None,
    outcome: EpisodeOutcome = EpisodeOutcome.SUCCESS,
) -> Path:
    """Write the demonstration as a bag, with a rest at every keypoint; its camera sees a block."""
    setup = ArmSetup(
        gripper_joints=('finger',), gripper_open=0.04, gripper_size=(0.11, 0.03, 0.09), task=TASK
    )
    head = DemonstrationHead(
        path.name,
        scene,
        TASK,
        outcome,
        setup,
        {},
        camera=Intrinsics.from_fov(320, 240, math.radians(60)) if images else None,
        fixed={CAMERA_FRAME: at} if at else {},
        truth={TRUTH_TOPIC: truth.to_json()} if truth else {},
    )
    table = np.random.default_rng(0).integers(60, 160, (30, 40, 1)).repeat(3, 2)
    view = np.asarray(cv2.resize(table.astype(np.uint8), (320, 240)), np.uint8)
    view[120:170, 80:140] = (20, 20, 220)
    image = encode_image(view)
    frames = [
        ArmFrame(
            stamp_ns=T0_NS + STEP_NS * number,
            tool=Pose((x, y + shift_m, z), (0.0, 0.0, 0.0, 1.0), 'table_center'),
            gripper=(opening,),
            image=image if images else None,
        )
        for number, ((x, y, z), opening) in enumerate(samples_at_rest())
    ]
    write_demonstration(path, head, frames)
    return path


def truth_of_bag() -> DemonstrationTruth:
    """What is true of the demonstration in `write_arm_bag`: the block goes where it is held."""
    stamps = [T0_NS + STEP_NS * number for number in range((_LEG + _REST) * len(KEYPOINTS))]
    keypoints, block, before = [], [], (0.1, -0.15, 0.02)
    was_closed, tools = False, [place for place, _ in samples_at_rest()]
    for number, (place, is_closed) in enumerate(KEYPOINTS):
        begin = (_LEG + _REST) * number
        is_grip = is_closed != was_closed
        reason = 'gripper' if is_grip else 'last' if number == len(KEYPOINTS) - 1 else 'stop'
        there = stamps[begin if is_grip else begin + _LEG]
        until = stamps[0] + STEP_NS * (begin + _LEG + _REST)
        keypoints.append(TrueKeypoint(there, until, place, is_closed, reason))
        for x, y, z in tools[begin : begin + _LEG + _REST]:
            before = (x, y, z + 0.006) if is_closed and was_closed else before
            block.append(before)
        was_closed = is_closed
    mat = ((0.15, 0.1, 0.0),) * len(stamps)
    things = (
        TrueThing('block', 'red block', tuple(block)),
        TrueThing('mat', 'blue mat', mat),
    )
    return DemonstrationTruth(tuple(stamps), things, tuple(keypoints), 'table_center')


def samples_at_rest() -> Iterator[tuple[Position, float]]:
    """Positions and openings, sample by sample."""
    before, was_closed = (0.0, 0.0, 0.16), False
    for end, is_closed in KEYPOINTS:
        for share in np.concatenate([np.linspace(0, 1, _LEG, endpoint=False), np.ones(_REST)]):
            x, y, z = (np.asarray(before) + share * np.subtract(end, before)).tolist()
            closing = share if is_closed != was_closed else float(is_closed)
            closed = 1 - closing if was_closed and not is_closed else closing
            yield (x, y, z), 0.04 * (1 - float(closed))
        before, was_closed = end, is_closed
