# SPDX-License-Identifier: Apache-2.0
"""One episode of a dataset: whether it is whole, and its bag."""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.arm.demonstration_bag import (
    ArmFrame,
    CAMERA_FRAME,
    DemonstrationHead,
    GRIPPER_TOPIC,
    JOINT_TOPIC,
    write_demonstration,
)
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.bags.storage import pointer_advice
from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.core.types.geometry import NS_PER_S, Pose
from embodied_r_ros.core.types.images import decode_image, encode_image, image_format
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.arm.import_mapping import DemoMapping, Numbers
    from embodied_r_ros.core.types.images import EncodedImage
    from numpy.typing import NDArray

_MAX_SECONDS = 2**31 - 2  # stamps of ROS have no more
_IMAGE_ENDS = {'png': b'IEND', 'jpeg': b'\xff\xd9'}
_PNG_DEPTH, _GREY_OF_16_BITS = slice(24, 26), bytes((16, 0))
_TAIL_BYTES = 4096  # some cameras pad their images
_MAX_NUMBER = 1e9  # no joint, position or encoder gets there


class EpisodeImages(Protocol):
    """The images of an episode, one for each row."""

    def check(self) -> None:
        """See that there is one for each row, without decoding them.

        Raises:
            InputError: There is not.
        """

    def read(self) -> Iterator[NDArray[np.uint8]]:
        """The images in order, BGR (H, W, 3).

        Raises:
            InputError: One cannot be decoded.
        """


@dataclass(frozen=True)
class SourcePlace:
    """Where the rows of an episode are, for messages."""

    file: Path
    episode: str  # such as 'episode 3'

    def of(self, column: str, row: int | None = None) -> str:
        """A column, or one row of it; rows count from 0 in their episode."""
        where = 'of' if row is None else f'row {row} of'
        return f'{self.file}: column {column!r}, {where} {self.episode}'


@dataclass(frozen=True)
class SourceEpisode:
    """An episode as a dataset has it."""

    name: str
    place: SourcePlace
    task: str  # in words; empty: not stated
    seconds: NDArray[np.float64]  # (N,) of each row
    table: Mapping[str, NDArray[np.float64]]  # numbers by column, (N, …)
    images: EpisodeImages | None  # None: there are none
    clock: str = 'timestamp'  # the column of the seconds


def check_episode(episode: SourceEpisode, mapping: DemoMapping) -> str:
    """See that an episode is whole, without decoding its images.

    Returns:
        A digest of its stamps and numbers, hex.

    Raises:
        InputError: Stamps do not rise, a number is none, an image is missing, or the mapping
            does not fit.
    """
    digest = hashlib.sha256(_stamps_ns(episode).tobytes())
    for numbers in mapping.parts():
        digest.update(_rows(numbers, episode).tobytes())
    joints, velocities = mapping.joints, mapping.velocities
    if joints and velocities and len(joints.at) != len(velocities.at):
        counts = f'{len(joints.at)} joints and {len(velocities.at)} velocities'
        msg = f'the mapping names {counts}: expected one velocity for each joint'
        raise InputError(msg)
    if mapping.rotation:
        _check_turns(_rows(mapping.rotation, episode), mapping.rotation.column, episode.place)
    if episode.images:
        episode.images.check()
    return digest.hexdigest()


def check_columns(mapping: DemoMapping, columns: Iterable[str], file: Path) -> None:
    """See that a file has the columns that a mapping names.

    Raises:
        InputError: It lacks one.
    """
    known = sorted(columns)
    for name in sorted(mapping.columns() - set(known)):
        msg = f'{file} has no column {name!r}: it has {", ".join(known) or "none"}'
        raise InputError(msg)


def _stamps_ns(episode: SourceEpisode) -> NDArray[np.int64]:
    """The stamp of each row [ns]. Shape (N,).

    Raises:
        InputError: They are none, or do not rise.
    """
    seconds, place = episode.seconds, episode.place
    if len(seconds) < 2:
        msg = f'{place.file} has {len(seconds)} rows of {place.episode}: expected 2 or more'
        raise InputError(msg)
    is_stamp = (seconds >= 0) & (seconds < _MAX_SECONDS)  # False for NaN too
    if not is_stamp.all():
        row = int(np.argmin(is_stamp))
        msg = (
            f'{place.of(episode.clock, row)} is {seconds[row]:g}: expected seconds from 0 to '
            f'{_MAX_SECONDS}'
        )
        raise InputError(msg)
    stamps = (np.round(seconds * NS_PER_S) + NS_PER_S).astype(np.int64)  # bags begin after 0
    late = np.flatnonzero(np.diff(stamps) <= 0)
    if len(late):
        row = int(late[0]) + 1
        msg = (
            f'{place.of(episode.clock, row)} is {seconds[row]:g} s after {seconds[row - 1]:g} s: '
            'expected times that rise; two takes are two episodes'
        )
        raise InputError(msg)
    return stamps


def _rows(numbers: Numbers | None, episode: SourceEpisode) -> NDArray[np.float64]:
    """The numbers of every row. Shape (N, K), K 0 where the mapping does not name them.

    Raises:
        InputError: There are too few in a row, or one is no number of a robot.
    """
    if numbers is None:
        return np.zeros((len(episode.seconds), 0))
    try:
        values = numbers.of(episode.table)
    except InputError as error:
        msg = f'{episode.place.file}: {error}'
        raise InputError(msg) from None
    is_number = (np.abs(values) <= _MAX_NUMBER).all(axis=1)  # False for NaN too
    if not is_number.all():
        bad = np.flatnonzero(~is_number)
        more = f' (and {len(bad) - 1} rows more)' if len(bad) > 1 else ''
        where = episode.place.of(numbers.column, int(bad[0]))
        msg = f'{where} has {values[bad[0]].tolist()}{more}: expected finite numbers'
        raise InputError(msg)
    return values


def _check_turns(turns: NDArray[np.float64], column: str, place: SourcePlace) -> None:
    """See that each is a quaternion, or zeros, which are none."""
    lengths = np.linalg.norm(turns, axis=1)
    bad = np.flatnonzero((lengths != 0) & ((lengths < 0.5) | (lengths > 2.0)))
    if len(bad):
        row = int(bad[0])
        msg = (
            f'{place.of(column, row)} has the rotation {turns[row].tolist()}: expected a '
            'quaternion x, y, z, w'
        )
        raise InputError(msg)


def outcome_of(episode: SourceEpisode, mapping: DemoMapping) -> EpisodeOutcome:
    """How it ended, by the last row of the success column, where there is one.

    Raises:
        InputError: The mapping does not fit.
    """
    if mapping.success is None:
        return EpisodeOutcome.UNSET
    is_success = bool(_rows(mapping.success, episode)[-1, 0])
    return EpisodeOutcome.SUCCESS if is_success else EpisodeOutcome.FAILURE


def write_episode(
    path: Path, episode: SourceEpisode, mapping: DemoMapping, urdf: str, origin: Mapping[str, Any]
) -> None:
    """Write an episode as a bag.

    Args:
        path: Folder of the bag; it does not exist yet.
        episode: What the dataset has.
        mapping: What its numbers mean.
        urdf: Text of the robot's description; empty: none.
        origin: What it is made of, for the record.

    Raises:
        InputError: The episode is not whole, or an image cannot be decoded.
        BagError: The bag cannot be written.
    """
    head = DemonstrationHead(
        episode_id=episode.name,
        scene_id='',
        task=episode.task or mapping.task,
        outcome=outcome_of(episode, mapping),
        setup=_setup(mapping, episode),
        origin=origin,
        camera=mapping.camera.intrinsics if mapping.camera else None,
        fixed={CAMERA_FRAME: mapping.camera.pose(mapping.frame_id)} if mapping.camera else {},
        urdf=urdf,
    )
    write_demonstration(path, head, _frames(episode, mapping))


def _setup(mapping: DemoMapping, episode: SourceEpisode) -> ArmSetup:
    gripper, joints = mapping.gripper, mapping.joints
    return ArmSetup(
        frame_id=mapping.frame_id,
        tool_frame=mapping.tool_frame,
        poses='topic' if mapping.xyz else 'urdf' if mapping.urdf else 'none',
        joints=joints.names if joints else (),
        joint_topic=JOINT_TOPIC if joints else '',
        gripper_joints=gripper.names if gripper else (),
        gripper_topic=GRIPPER_TOPIC if gripper else '',
        gripper_closed=mapping.closed,
        gripper_open=mapping.open,
        task=episode.task or mapping.task,
    )


def _frames(episode: SourceEpisode, mapping: DemoMapping) -> Iterator[ArmFrame]:
    xyz, turns = _rows(mapping.xyz, episode), _rows(mapping.rotation, episode)
    joints, velocities = _rows(mapping.joints, episode), _rows(mapping.velocities, episode)
    gripper = _rows(mapping.gripper, episode)
    stamps = _stamps_ns(episode)
    images = _encoded(episode, len(stamps))
    for index, (stamp_ns, image) in enumerate(zip(stamps.tolist(), images, strict=True)):
        yield ArmFrame(
            stamp_ns=stamp_ns,
            tool=_pose(xyz[index], turns[index], mapping.frame_id) if mapping.xyz else None,
            joints=tuple(joints[index].tolist()),
            velocities=tuple(velocities[index].tolist()),
            gripper=tuple(gripper[index].tolist()),
            image=image,
        )


def _encoded(episode: SourceEpisode, count: int) -> Iterator[EncodedImage | None]:
    """The image of each row; None for each where there are none."""
    if not episode.images:
        yield from [None] * count
        return
    shape: Sequence[int] | None = None
    for row, image in enumerate(episode.images.read()):
        shape = shape or image.shape
        if image.shape != shape:
            msg = (
                f'{episode.place.file}: the image of row {row} of {episode.place.episode} is '
                f'{image.shape[1]}x{image.shape[0]}: expected {shape[1]}x{shape[0]} as before'
            )
            raise InputError(msg)
        yield encode_image(image)


def _pose(xyz: NDArray[np.float64], turn: NDArray[np.float64], frame_id: str) -> Pose:
    """A pose; where only the position is known, its quaternion is zeros, which are no rotation."""
    x, y, z = (float(value) for value in xyz)
    a, b, c, d = turn.tolist() or (0.0,) * 4
    return Pose((x, y, z), (a, b, c, d), frame_id)


def check_source_image(data: bytes, where: str) -> None:
    """See that bytes are a whole PNG or JPEG, without decoding it.

    Args:
        data: The bytes.
        where: What they are, for messages.

    Raises:
        InputError: They are not, or are depth.
    """
    if why := pointer_advice(data):
        msg = f'{where} cannot be read: {why}'
        raise InputError(msg)
    kind = image_format(data)
    if kind == 'png' and data[_PNG_DEPTH] == _GREY_OF_16_BITS:
        msg = f'{where} is depth (grey, 16 bits): map a camera with images of colours'
        raise InputError(msg)
    if kind is None:
        what = f'begins with {data[:8]!r}' if data else 'is empty'
        msg = f'{where} {what}: expected a PNG or JPEG image'
        raise InputError(msg)
    if _IMAGE_ENDS[kind] not in data[-_TAIL_BYTES:]:
        msg = f'{where} is cut off: {len(data)} bytes of {kind} without their end'
        raise InputError(msg)


def short_text(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f'{text[:60]}…'


def decode_source_image(data: bytes, where: str) -> NDArray[np.uint8]:
    """An image of a dataset, BGR (H, W, 3).

    Args:
        data: As PNG or JPEG.
        where: What it is, for messages.

    Raises:
        InputError: It cannot be decoded.
    """
    try:
        return decode_image(data)
    except ImageError as error:
        msg = f'{where} is no image: {error}'
        raise InputError(msg) from None
