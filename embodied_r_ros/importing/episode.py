# SPDX-License-Identifier: Apache-2.0
"""An episode of a dataset, and its bag."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.episodes import Outcome
from embodied_r_ros.errors import InputError
from embodied_r_ros.geometry import Pose
from embodied_r_ros.keypoints.setup import ArmSetup
from embodied_r_ros.recordings.demonstration_writer import (
    ArmFrame,
    CAMERA_FRAME,
    DemonstrationHead,
    GRIPPER_TOPIC,
    JOINT_TOPIC,
    write_demonstration,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.images import EncodedImage
    from embodied_r_ros.importing.mapping import DemoMapping, Numbers
    from numpy.typing import NDArray

_NS = 1_000_000_000


@dataclass(frozen=True)
class SourceEpisode:
    """An episode as a dataset has it."""

    name: str
    task: str  # in words; empty: not told
    seconds: NDArray[np.float64]  # (N,) of each row
    table: dict[str, NDArray[np.float64]]  # numbers by column, (N, …)
    images: Callable[[], Iterable[EncodedImage]] | None  # one for each row; None: there are none


def write_episode(
    path: Path, episode: SourceEpisode, mapping: DemoMapping, folder: Path, origin: str
) -> None:
    """Write an episode as a bag.

    Args:
        path: Folder of the bag; it does not exist yet.
        episode: What the dataset has.
        mapping: What its numbers mean.
        folder: Where files that the mapping names lie.
        origin: The dataset, for the record.

    Raises:
        InputError: The mapping does not fit, there are too few images, or a file is missing.
        BagError: The bag cannot be written.
    """
    try:
        urdf = (folder / mapping.urdf).read_text() if mapping.urdf else ''
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{folder / mapping.urdf} cannot be read: {error}'
        raise InputError(msg) from None
    head = DemonstrationHead(
        episode_id=episode.name,
        scene_id='',
        task=episode.task or mapping.task,
        outcome=outcome_of(episode, mapping),
        setup=_setup(mapping, episode),
        origin={'imported': origin},
        camera=mapping.camera.intrinsics if mapping.camera else None,
        fixed={CAMERA_FRAME: mapping.camera.pose(mapping.frame_id)} if mapping.camera else {},
        urdf=urdf,
    )
    write_demonstration(path, head, _frames(episode, mapping))


def outcome_of(episode: SourceEpisode, mapping: DemoMapping) -> Outcome:
    """How it ended, by the last row of what tells of success, where something does.

    Raises:
        InputError: The mapping does not fit.
    """
    if mapping.success is None:
        return Outcome.UNSET
    is_success = bool(mapping.success.of(episode.table)[-1, 0])
    return Outcome.SUCCESS if is_success else Outcome.FAILURE


def _setup(mapping: DemoMapping, episode: SourceEpisode) -> ArmSetup:
    gripper, joints = mapping.gripper, mapping.joints
    return ArmSetup(
        frame_id=mapping.frame_id,
        tool_frame=mapping.tool_frame,
        joints=joints.names if joints else (),
        joint_topic=JOINT_TOPIC if joints else '',
        gripper_joints=gripper.names if gripper else (),
        gripper_topic=GRIPPER_TOPIC if gripper else '',
        gripper_closed=mapping.closed,
        gripper_open=mapping.open,
        task=episode.task or mapping.task,
    )


def _frames(episode: SourceEpisode, mapping: DemoMapping) -> Iterator[ArmFrame]:
    def rows(numbers: Numbers | None) -> NDArray[np.float64]:
        empty = np.zeros((len(episode.seconds), 0))
        return numbers.of(episode.table) if numbers else empty

    xyz, joints, gripper = rows(mapping.xyz), rows(mapping.joints), rows(mapping.gripper)
    velocities, turns = rows(mapping.velocities), rows(mapping.rotation)
    images = iter(episode.images()) if episode.images else None
    for index, second in enumerate(episode.seconds):
        image = next(images, None) if images else None
        if images and image is None:
            msg = f'{episode.name} has {len(episode.seconds)} rows, and only {index} images'
            raise InputError(msg)
        yield ArmFrame(
            stamp_ns=round(float(second) * _NS) + _NS,  # bags begin after 0
            tool=_pose(xyz[index], turns[index], mapping.frame_id) if mapping.xyz else None,
            joints=tuple(joints[index].tolist()),
            velocities=tuple(velocities[index].tolist()),
            gripper=tuple(gripper[index].tolist()),
            image=image,
        )


def _pose(xyz: NDArray[np.float64], turn: NDArray[np.float64], frame_id: str) -> Pose:
    """A pose; where only the position is known, its quaternion is zeros, which are no rotation."""
    x, y, z = (float(value) for value in xyz)
    a, b, c, d = turn.tolist() or (0.0,) * 4
    return Pose((x, y, z), (a, b, c, d), frame_id)
