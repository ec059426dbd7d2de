# SPDX-License-Identifier: Apache-2.0
"""What the numbers of a dataset mean, by a YAML file, and the bag of one of its episodes."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import read_yaml
from embodied_r_ros.episodes.demonstration_writer import (
    ArmFrame,
    CAMERA_FRAME,
    DemonstrationHead,
    GRIPPER_TOPIC,
    JOINT_TOPIC,
    write_demonstration,
)
from embodied_r_ros.types.episodes import EpisodeOutcome
from embodied_r_ros.types.geometry import Intrinsics, Pose
from embodied_r_ros.types.units import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from embodied_r_ros.types.images import EncodedImage
    from numpy.typing import NDArray

_UNITS = {'m': 1.0, 'mm': 0.001, 'rad': 1.0, 'deg': float(np.pi / 180), '': 1.0}
_TEXTS = ('image', 'frame_id', 'task', 'urdf', 'tool_frame')
_COUNTS = {'xyz': 3, 'rotation': 4, 'success': 1}
_IN_IMAGE = ('width', 'height', 'fx', 'fy', 'cx', 'cy')


@dataclass(frozen=True)
class MappedCamera:
    """The camera of a dataset, which stands still."""

    position: tuple[float, float, float]  # of its optical frame in the task frame [m]
    orientation: tuple[float, float, float, float]  # likewise, as a quaternion x, y, z, w
    intrinsics: Intrinsics | None = None  # None: not known

    def pose(self, frame_id: str) -> Pose:
        """Pose of its optical frame in the task frame."""
        return Pose(self.position, self.orientation, frame_id)


@dataclass(frozen=True)
class Numbers:
    """Some numbers of a column."""

    column: str
    at: tuple[int, ...]  # positions in the column
    scale: float = 1.0  # to m or rad
    names: tuple[str, ...] = ()

    def of(self, table: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
        """The numbers of every row, in SI units. Shape (N, K).

        Raises:
            InputError: There is no such column, or it is too narrow.
        """
        if self.column not in table:
            msg = f'there is no column {self.column!r}: there are {", ".join(sorted(table))}'
            raise InputError(msg)
        values = table[self.column].reshape(len(table[self.column]), -1)
        if max(self.at) >= values.shape[1]:
            msg = f'column {self.column!r} has {values.shape[1]} numbers: {max(self.at)} is none'
            raise InputError(msg)
        return np.asarray(values[:, list(self.at)] * self.scale)


@dataclass(frozen=True)
class DemoMapping:
    """Where in a dataset is what."""

    xyz: Numbers | None = None  # of the end effector in the task frame
    rotation: Numbers | None = None  # likewise, as a quaternion x, y, z, w
    joints: Numbers | None = None
    velocities: Numbers | None = None  # of the joints
    gripper: Numbers | None = None  # added up, they are its opening
    closed: float = 0.0  # that sum when the gripper is closed; gives the polarity too
    open: float = 1.0
    image: str = ''  # key of the camera, or its folder; empty: no images
    rate_hz: float = 0.0  # of rows, where the dataset does not say; 0: it does
    frame_id: str = 'table_center'
    tool_frame: str = 'tool'
    task: str = ''  # in words, where the dataset does not say
    urdf: str = ''  # file beside the mapping, where there is no xyz
    success: Numbers | None = None  # its last row tells whether the demonstration succeeded
    camera: MappedCamera | None = None  # that of the images; None: not known

    def columns(self) -> set[str]:
        """The columns that it names."""
        parts = (self.xyz, self.rotation, self.joints, self.velocities, self.gripper, self.success)
        return {part.column for part in parts if part}

    @classmethod
    def from_yaml(cls, path: Path) -> DemoMapping:
        """Read a mapping.

        Raises:
            ConfigError: It cannot be read, or is none.
        """
        value = read_yaml(path)
        names = {field.name for field in fields(cls)}
        if not isinstance(value, dict) or set(value) - names:
            wrong = sorted(map(str, set(value) - names)) if isinstance(value, dict) else [value]
            msg = (
                f'{path}: {wrong[0]!r} is no part of a mapping: known: {", ".join(sorted(names))}'
            )
            raise ConfigError(msg)
        try:
            mapping = cls(**{name: _part(name, item) for name, item in value.items()})
        except (TypeError, ValueError, KeyError) as error:
            msg = f'{path} is no mapping: {error}'
            raise ConfigError(msg) from None
        if mapping.xyz is None and not (mapping.joints and mapping.urdf):
            msg = f'{path} tells no position: expected xyz, or joints with a urdf'
            raise ConfigError(msg)
        if mapping.open == mapping.closed:
            msg = f'{path}: open and closed are both {mapping.open}: expected two values'
            raise ConfigError(msg)
        return mapping


def _part(name: str, item: Any) -> Any:
    """The value of one entry.

    Raises:
        ValueError: It is none.
    """
    if name in ('xyz', 'rotation', 'joints', 'velocities', 'gripper', 'success'):
        return _numbers(name, item)
    if name == 'camera':
        return _camera(item)
    if name in _TEXTS:
        return str(item)
    return float(item)


def _numbers(name: str, item: Any) -> Numbers:
    unit = item.get('unit', '') if isinstance(item, dict) else None
    if unit not in _UNITS or not item.get('at') or 'column' not in item:
        msg = f'{name} is {item!r}: expected column, at (positions), unit (m, mm, rad or deg)'
        raise ValueError(msg)
    at = tuple(int(place) for place in item['at'])
    count = _COUNTS.get(name, len(at))
    if min(at) < 0 or len(at) != count:
        msg = f'{name} is at {list(at)}: expected {count} positions'
        raise ValueError(msg)
    names = tuple(str(text) for text in item.get('names', ())) or tuple(
        f'{name}_{place}' for place in at
    )
    if len(names) != len(at):
        msg = f'{name} has {len(names)} names for {len(at)} positions'
        raise ValueError(msg)
    return Numbers(str(item['column']), at, _UNITS[unit], names)


def _camera(item: Any) -> MappedCamera:
    """The camera of a dataset.

    Raises:
        ValueError: It is none.
    """
    lens_keys = [name for name in _IN_IMAGE if isinstance(item, dict) and name in item]
    is_known = isinstance(item, dict) and set(item) <= {'position', 'orientation', *_IN_IMAGE}
    if not is_known or len(lens_keys) not in (0, len(_IN_IMAGE)):
        msg = (
            f'camera is {item!r}: expected position [x, y, z], orientation [x, y, z, w], and all '
            f'of {", ".join(_IN_IMAGE)} or none'
        )
        raise ValueError(msg)
    x, y, z = _floats(item, 'position', 3)
    a, b, c, d = _floats(item, 'orientation', 4)
    if not any((a, b, c, d)):
        msg = 'the orientation of camera is all zeros: expected a quaternion x, y, z, w'
        raise ValueError(msg)
    return MappedCamera((x, y, z), (a, b, c, d), _intrinsics(item) if lens_keys else None)


def _intrinsics(item: dict[str, Any]) -> Intrinsics:
    fx, fy, cx, cy = (float(item[name]) for name in _IN_IMAGE[2:])
    return Intrinsics(int(item['width']), int(item['height']), fx, fy, cx, cy)


def _floats(item: dict[str, Any], name: str, count: int) -> list[float]:
    values = item.get(name)
    if not isinstance(values, list) or len(values) != count:
        msg = f'camera has {name} {values!r}: expected {count} numbers'
        raise ValueError(msg)
    return [float(value) for value in values]


@dataclass(frozen=True)
class SourceEpisode:
    """An episode as a dataset has it."""

    name: str
    task: str  # in words; empty: not stated
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


def outcome_of(episode: SourceEpisode, mapping: DemoMapping) -> EpisodeOutcome:
    """How it ended, by the last row of the success column, where there is one.

    Raises:
        InputError: The mapping does not fit.
    """
    if mapping.success is None:
        return EpisodeOutcome.UNSET
    is_success = bool(mapping.success.of(episode.table)[-1, 0])
    return EpisodeOutcome.SUCCESS if is_success else EpisodeOutcome.FAILURE


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
            stamp_ns=round(float(second) * NS_PER_S) + NS_PER_S,  # bags begin after 0
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
