# SPDX-License-Identifier: Apache-2.0
"""Numbers of a topic over time, and where the end effector of an arm was."""

from __future__ import annotations

from dataclasses import dataclass
import io
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.bags.poses import poses_at, transform_source, TransformPoses
from embodied_r_ros.bags.reader import read_values, topics_of_type
from embodied_r_ros.common.errors import BagError, ConfigError
from embodied_r_ros.core.types.geometry import Pose, quaternion_from_matrix
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.arm.robot import ArmSetup
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.poses import NoPose
    from numpy.typing import NDArray

# What is older was not known any more when an image was taken.
MAX_AGE_NS = 200_000_000


@dataclass(frozen=True)
class Series:
    """Numbers over time."""

    stamps_ns: NDArray[np.int64]  # (M,), rising
    values: NDArray[np.float64]  # (M, K)

    def at(self, stamps_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The newest values (N, K) not later than each stamp, and which of them are fresh (N,)."""
        indices = np.searchsorted(self.stamps_ns, stamps_ns, side='right') - 1
        is_fresh = (indices >= 0) & (stamps_ns - self.stamps_ns[indices] <= MAX_AGE_NS)
        return self.values[indices], is_fresh


def read_series(
    reader: BagReader, topic: str, convert: Callable[[Any], tuple[int, Sequence[float]] | None]
) -> Series:
    """Read a topic whose messages become a stamp [ns] and as many numbers each.

    Stamps that do not rise are left out, and messages that become None; where all do, it is
    empty.

    Raises:
        BagError: There is no such topic, it has no messages, or one is damaged.
    """
    stamps: list[int] = []
    values: list[Sequence[float]] = []
    passed_over = 0
    for read in read_values(reader, [topic], convert):
        if read is None:
            passed_over += 1
            continue
        stamp_ns, numbers = read
        if not stamps or stamp_ns > stamps[-1]:
            stamps.append(stamp_ns)
            values.append(numbers)
    if not stamps and not passed_over:
        msg = f'topic {topic} of bag {reader.path} has no messages: expected some'
        raise BagError(msg)
    return Series(np.array(stamps, np.int64), np.array(values, np.float64))


def only_topic(reader: BagReader, type_name: str, chosen: str, setting: str) -> str | None:
    """The topic that was chosen, else the only one of a type; None: there is none.

    Raises:
        BagError: There are several, or the chosen one is not in the bag.
    """
    topics = topics_of_type(reader, type_name)
    if chosen:
        match = next((name for name in topics if name.lstrip('/') == chosen.lstrip('/')), None)
        if match is None:
            msg = (
                f'{reader.path} has no topic {chosen!r} of {type_name}: it has '
                f'{", ".join(topics) or "none"} (setting {setting})'
            )
            raise BagError(msg)
        return match
    if len(topics) > 1:
        msg = (
            f'{reader.path} has {len(topics)} topics of {type_name} ({", ".join(topics)}): '
            f'name one as {setting} in the file of --setup'
        )
        raise BagError(msg)
    return topics[0] if topics else None


_POSES = 'geometry_msgs/msg/PoseStamped'
_DESCRIPTION = '/robot_description'
PoseTable = tuple['NDArray[np.float64]', 'NDArray[np.bool_]']


def tool_poses(
    reader: BagReader, setup: ArmSetup, stamps_ns: NDArray[np.int64], joints: Series | None
) -> PoseTable:
    """Poses of the end effector in the task frame (N, 7), and which are known (N,).

    A pose is a position x, y, z [m] and a quaternion x, y, z, w: as recorded, so all zeros where
    its publisher knew the position alone.

    Args:
        reader: The bag.
        setup: Where poses come from: `auto` takes a topic, else transforms, else joints.
        stamps_ns: When. Shape (N,).
        joints: Positions of `setup.joints` over time; None: there are none.

    Raises:
        BagError: The bag has no pose of it, or poses in another frame.
        ConfigError: The library for joints, or the URDF, is missing.
    """
    may_use_topic = setup.poses in ('auto', 'topic')
    topic = only_topic(reader, _POSES, setup.pose_topic, 'pose_topic') if may_use_topic else None
    if topic:
        return _from_topic(reader, topic, setup).at(stamps_ns)
    source = transform_source(reader) if setup.poses in ('auto', 'tf') else None
    if source:
        return _from_transforms(reader, source, setup, stamps_ns)
    if joints and setup.poses in ('auto', 'urdf'):
        return _from_joints(reader, setup, joints).at(stamps_ns)
    msg = (
        f'{reader.path} does not tell where the end effector is (poses: {setup.poses}): '
        f'expected a topic of {_POSES}, transforms, or joint states with a URDF; poses: none '
        'does without'
    )
    raise BagError(msg)


def _from_topic(reader: BagReader, topic: str, setup: ArmSetup) -> Series:
    def convert(msg: Any) -> tuple[int, tuple[float, ...]]:
        frame = msg.header.frame_id.lstrip('/')
        if frame != setup.frame_id:
            text = (
                f'poses of {topic} are in frame {frame!r}, not in {setup.frame_id!r}: '
                'set frame_id, or poses: tf'
            )
            raise BagError(text)
        turn = msg.pose.orientation
        numbers = (*vector_from_msg(msg.pose.position), turn.x, turn.y, turn.z, turn.w)
        return stamp_ns_from_msg(msg.header.stamp), numbers

    return read_series(reader, topic, convert)


class _ToolTransforms:
    """Poses of the end effector as `poses_at` asks for them."""

    name = 'tf'

    def __init__(self, source: TransformPoses, setup: ArmSetup) -> None:
        self.topics = source.topics
        self._source = source
        self._fixed = setup.frame_id

    def take(self, msg: Any, received_ns: int) -> int:
        return self._source.take(msg, received_ns)

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        return self._source.reaches_between(self._fixed, frame_id, stamp_ns)

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        return self._source.pose_in(self._fixed, frame_id, stamp_ns)


def _from_transforms(
    reader: BagReader, source: TransformPoses, setup: ArmSetup, stamps_ns: NDArray[np.int64]
) -> PoseTable:
    keys = [(int(stamp), setup.tool_frame) for stamp in stamps_ns]
    poses_by_key = poses_at(reader, _ToolTransforms(source, setup), keys)
    poses = [poses_by_key[at] for at in keys]
    is_known = np.array([isinstance(pose, Pose) for pose in poses])
    if not is_known.any():
        reason = next((pose.reason for pose in poses if not isinstance(pose, Pose)), 'no stamps')
        msg = f'transforms of {reader.path} do not tell where the end effector is: {reason}'
        raise BagError(msg)
    nowhere = (np.nan,) * 7
    numbers = [
        (*pose.position, *pose.orientation) if isinstance(pose, Pose) else nowhere
        for pose in poses
    ]
    return np.array(numbers, np.float64), is_known


def _from_joints(reader: BagReader, setup: ArmSetup, joints: Series) -> Series:
    """Forward kinematics by the URDF of the robot."""
    robot = _robot(reader, setup)
    check_links(robot, setup.tool_frame, setup.joints)
    base = _base(reader, setup, str(robot.base_link))
    turn, poses = base.rotation(), []
    for row in joints.values:
        robot.update_cfg(dict(zip(setup.joints, row, strict=True)))
        matrix = robot.get_transform(setup.tool_frame, robot.base_link)
        position = turn @ matrix[:3, 3] + base.position
        poses.append((*position, *quaternion_from_matrix(turn @ matrix[:3, :3])))
    return Series(joints.stamps_ns, np.array(poses))


def _robot(reader: BagReader, setup: ArmSetup) -> Any:
    """The robot of a URDF file, or of that in the bag."""
    texts = [Path(setup.urdf).read_bytes()] if setup.urdf and Path(setup.urdf).is_file() else []
    if not setup.urdf and _DESCRIPTION in reader.topics:
        read = read_values(reader, [_DESCRIPTION], lambda msg: str(msg.data).encode())
        texts = list(read)[:1]
    if not texts:
        where = setup.urdf or f'topic {_DESCRIPTION} of {reader.path}'
        msg = f'there is no URDF ({where}): poses from joint states need one, as urdf: FILE'
        raise ConfigError(msg)
    return load_urdf(texts[0])


def load_urdf(text: bytes) -> Any:
    """A robot of yourdfpy, without its meshes.

    Raises:
        ConfigError: The library is missing, or the text is no URDF.
    """
    try:
        from yourdfpy import URDF
    except ImportError:
        msg = 'poses from joint states need the library yourdfpy: pip install yourdfpy'
        raise ConfigError(msg) from None
    try:
        return URDF.load(io.BytesIO(text), load_meshes=False, build_scene_graph=True)
    except Exception as error:  # whatever a file that is no URDF makes of the library
        msg = f'the URDF cannot be read: {type(error).__name__}: {error}'
        raise ConfigError(msg) from None


def check_links(robot: Any, tool_frame: str, joints: Sequence[str]) -> None:
    """See that a robot of `load_urdf` has a link and some joints.

    Raises:
        ConfigError: It has not.
    """
    for names, wanted in ((robot.link_map, (tool_frame,)), (robot.joint_map, joints)):
        for name in wanted:
            if name not in names:
                msg = f'the URDF has no {name!r}: set tool_frame and joints to what it has'
                raise ConfigError(msg)


def _base(reader: BagReader, setup: ArmSetup, link: str) -> Pose:
    """Pose of the robot's first link in the task frame, by static transforms."""
    if setup.frame_id == link:
        return Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), link)
    base = TransformPoses(reader, ()).pose_in(setup.frame_id, link, 0)
    if not isinstance(base, Pose):
        msg = (
            f'{reader.path} does not tell where {link!r} is in {setup.frame_id!r} '
            f'({base.reason}): set frame_id to {link!r}'
        )
        raise BagError(msg)
    return base
