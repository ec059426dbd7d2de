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
        outcome=Outcome.UNSET,
        setup=_setup(mapping, episode),
        origin={'imported': origin},
        urdf=urdf,
    )
    write_demonstration(path, head, _frames(episode, mapping))


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
    velocities = rows(mapping.velocities)
    images = iter(episode.images()) if episode.images else None
    for index, second in enumerate(episode.seconds):
        image = next(images, None) if images else None
        if images and image is None:
            msg = f'{episode.name} has {len(episode.seconds)} rows, and only {index} images'
            raise InputError(msg)
        yield ArmFrame(
            stamp_ns=round(float(second) * _NS) + _NS,  # bags begin after 0
            tool=_pose(xyz[index], mapping.frame_id) if mapping.xyz else None,
            joints=tuple(joints[index].tolist()),
            velocities=tuple(velocities[index].tolist()),
            gripper=tuple(gripper[index].tolist()),
            image=image,
        )


def _pose(xyz: NDArray[np.float64], frame_id: str) -> Pose:
    """A pose of which only the position is known."""
    x, y, z = (float(value) for value in xyz)
    return Pose((x, y, z), (0.0, 0.0, 0.0, 1.0), frame_id)
