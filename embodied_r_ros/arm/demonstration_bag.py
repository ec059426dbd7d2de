# SPDX-License-Identifier: Apache-2.0
"""Demonstrations of an arm as bags: read, and written as a robot would record them.

In reading, the camera is the clock, and all else is what was known then.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import Demonstration
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.arm.tool_poses import only_topic, read_series, Series, tool_poses
from embodied_r_ros.bags.images import choose_image_topic
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    encoded_image_to_msg,
    IMAGE_TYPES,
    joint_state_to_msg,
    pose_stamped_to_msg,
    stamp_ns_from_msg,
    transforms_to_msg,
)
from embodied_r_ros.bags.reader import read_values, topics_of_type
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.files import code_version
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark, EpisodeOutcome
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.arm_room import SETUP_TOPIC
from embodied_r_ros.data.own_messages import mark_from_msg, mark_to_msg
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import EncodedImage
    from numpy.typing import NDArray
    from rosbags.interfaces import Qos

_JOINTS, _POSES = 'sensor_msgs/msg/JointState', 'geometry_msgs/msg/PoseStamped'
_MARKS = 'embodied_r_msgs/msg/EpisodeMark'
CAMERA_FRAME = 'camera_optical_frame'
POSE_TOPIC, JOINT_TOPIC, GRIPPER_TOPIC = '/ee_pose', '/joint_states', '/gripper/joint_states'
IMAGE_TOPIC, INFO_TOPIC = '/image/compressed', '/camera_info'
DESCRIPTION_TOPIC = '/robot_description'
TF_TOPIC, STATIC_TF_TOPIC = '/tf', '/tf_static'
_STRING = 'std_msgs/msg/String'
_TRANSFORMS = 'tf2_msgs/msg/TFMessage'
_TOPICS: dict[str, tuple[str, Qos]] = {
    '/provenance': (_STRING, LATCHED_QOS),
    '/episode_mark': ('embodied_r_msgs/msg/EpisodeMark', RELIABLE_QOS),
    SETUP_TOPIC: (_STRING, LATCHED_QOS),
    IMAGE_TOPIC: ('sensor_msgs/msg/CompressedImage', SENSOR_DATA_QOS),
    INFO_TOPIC: ('sensor_msgs/msg/CameraInfo', SENSOR_DATA_QOS),
    POSE_TOPIC: ('geometry_msgs/msg/PoseStamped', RELIABLE_QOS),
    JOINT_TOPIC: (_JOINTS, RELIABLE_QOS),
    GRIPPER_TOPIC: (_JOINTS, RELIABLE_QOS),
    TF_TOPIC: (_TRANSFORMS, RELIABLE_QOS),
    STATIC_TF_TOPIC: (_TRANSFORMS, LATCHED_QOS),
    DESCRIPTION_TOPIC: (_STRING, LATCHED_QOS),
}


def setup_of(reader: BagReader) -> ArmSetup:
    """The setup that a bag states; the defaults where it states none.

    Raises:
        ConfigError: The stated value is no setup.
        BagError: A message is damaged.
    """
    if SETUP_TOPIC in reader.topics:
        for text in read_values(reader, [SETUP_TOPIC], lambda msg: str(msg.data)):
            return ArmSetup.from_json(text)
    return ArmSetup()


def read_demonstration(reader: BagReader, setup: ArmSetup | None = None) -> Demonstration:
    """Read the one demonstration of a bag.

    The stamps are those of the camera's images, without images those of the joint states, and
    without these those of the poses. Where something is missing or old, the sample is left out,
    and so is what was recorded before the episode's start or after its stop. Where the setup says
    `poses: none`, there are no positions.

    Args:
        reader: The bag.
        setup: The names of topics and joints in it; None: as the bag states.

    Raises:
        BagError: A topic is missing, there are several, or a message is damaged.
        InputError: Fewer than two samples are complete.
    """
    setup = setup or setup_of(reader)
    topic = _joint_topic(reader, setup)
    joints, speeds = _joints(reader, topic, setup) if topic else (None, None)
    openings = _openings(reader, setup.gripper_topic or topic, setup)
    marks = list(read_values(reader, topics_of_type(reader, _MARKS), mark_from_msg))
    stamps = _within(_clock(reader, setup, joints), marks, reader)
    poses: NDArray[np.float64] | None = None
    if setup.poses != 'none':
        poses, fresh = tool_poses(reader, setup, stamps, joints)
    elif joints:
        fresh = np.ones(len(stamps), bool)
    else:
        msg = f'{reader.path} has no joint states, and poses: none says that it has no poses'
        raise BagError(msg)
    columns: list[NDArray[np.float64] | None] = []
    for part in (speeds, openings):
        values, is_fresh = part.at(stamps) if part else (None, fresh)
        fresh = fresh & is_fresh
        columns.append(values)
    if not fresh.any():
        msg = f'{reader.path} has no stamp at which pose, joints and gripper are all known'
        raise BagError(msg)
    joint_speeds, opening = (None if values is None else values[fresh] for values in columns)
    episode_id, task = _name_and_task(reader, marks)
    return Demonstration(
        stamps_ns=stamps[fresh],
        positions=None if poses is None else poses[fresh, :3],
        orientations=None if poses is None else _orientations(poses[fresh, 3:]),
        openings=None if opening is None else opening[:, 0],
        joint_speeds=joint_speeds,
        episode_id=episode_id or reader.path.stem,
        task=task or setup.task,
        frame_id=setup.frame_id,
    )


def _joint_topic(reader: BagReader, setup: ArmSetup) -> str | None:
    """The joint states of the arm: as set up, the usual topic, or the only one."""
    chosen = setup.joint_topic
    if not chosen and JOINT_TOPIC in topics_of_type(reader, _JOINTS):
        chosen = JOINT_TOPIC
    return only_topic(reader, _JOINTS, chosen, 'joint_topic')


def _joints(reader: BagReader, topic: str, setup: ArmSetup) -> tuple[Series | None, Series | None]:
    """Positions and speeds of the arm's joints over time; None: it records no joints."""
    names = setup.joints or _arm_joints(reader, topic, setup)
    if not names:
        return None, None

    def numbers(msg: Any, places: Sequence[int]) -> list[float]:
        has_speeds = len(msg.velocity) == len(msg.name)
        speeds = [float(msg.velocity[place]) if has_speeds else np.nan for place in places]
        return [float(msg.position[place]) for place in places] + speeds

    both = _joint_series(reader, topic, names, numbers)
    positions, speeds = (
        Series(both.stamps_ns, values) for values in np.hsplit(both.values, [len(names)])
    )
    return positions, _differences(positions) if np.isnan(speeds.values).any() else speeds


def _arm_joints(reader: BagReader, topic: str, setup: ArmSetup) -> tuple[str, ...]:
    """All joints of the first message of a topic that has others than those of the gripper."""
    for names in read_values(reader, [topic], lambda msg: tuple(map(str, msg.name))):
        if others := tuple(name for name in names if name not in setup.gripper_joints):
            return others
    return ()


def _differences(positions: Series) -> Series:
    """Velocities of joints that publish none."""
    if len(positions.stamps_ns) < 2:
        return Series(positions.stamps_ns, np.zeros_like(positions.values))
    seconds = (positions.stamps_ns - positions.stamps_ns[0]) / NS_PER_S
    return Series(positions.stamps_ns, np.gradient(positions.values, seconds, axis=0))


def _openings(reader: BagReader, topic: str | None, setup: ArmSetup) -> Series | None:
    """Opening of the gripper over time, 0 closed to 1 open; None: it is not recorded."""
    if not setup.gripper_joints or not topic:
        return None
    joint_topic = only_topic(reader, _JOINTS, topic, 'gripper_topic')
    assert joint_topic is not None

    def numbers(msg: Any, places: Sequence[int]) -> list[float]:
        return [setup.opening(sum(float(msg.position[place]) for place in places))]

    return _joint_series(reader, joint_topic, setup.gripper_joints, numbers)


def _joint_series(
    reader: BagReader,
    topic: str,
    names: Sequence[str],
    numbers: Callable[[Any, Sequence[int]], list[float]],
) -> Series:
    """Numbers of the messages that have all of some joints.

    Arm and gripper often share a topic, each with messages of its own: those of others are passed
    over.
    """
    others: set[str] = set()

    def convert(msg: Any) -> tuple[int, list[float]] | None:
        joints = list(map(str, msg.name))
        if not set(names) <= set(joints):
            others.update(joints)
            return None
        if len(msg.position) != len(joints):
            text = (
                f'a message of {topic} has {len(msg.position)} positions for joints '
                f'{", ".join(joints)}: expected one for each'
            )
            raise BagError(text)
        places = [joints.index(name) for name in names]
        return stamp_ns_from_msg(msg.header.stamp), numbers(msg, places)

    series = read_series(reader, topic, convert)
    if not len(series.stamps_ns):
        text = (
            f'no message of {topic} has all of the joints {", ".join(names)}: they have '
            f'{", ".join(sorted(others)) or "none"}'
        )
        raise BagError(text)
    return series


def _orientations(turns: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Quaternions (N, 4), if all are some; zeros stand where none is known."""
    lengths = np.linalg.norm(turns, axis=1)
    return turns if ((lengths > 0.5) & (lengths < 2.0)).all() else None


def _within(
    stamps: NDArray[np.int64], marks: Sequence[EpisodeMark], reader: BagReader
) -> NDArray[np.int64]:
    """The stamps from the start of the episode to its stop, where these are marked."""
    begin, end = (
        [mark.stamp_ns for mark in marks if mark.event is event]
        for event in (EpisodeEvent.START, EpisodeEvent.STOP)
    )
    inside = stamps[stamps >= begin[0]] if begin else stamps
    inside = inside[inside <= end[-1]] if end else inside
    if not len(inside):
        msg = (
            f'{reader.path} has nothing between the start and the stop of its episode: '
            'expected marks and messages by one clock'
        )
        raise BagError(msg)
    return inside


def _clock(reader: BagReader, setup: ArmSetup, joints: Series | None) -> NDArray[np.int64]:
    """The stamps that samples are taken at. Shape (N,)."""
    if setup.image_topic or topics_of_type(reader, *IMAGE_TYPES):
        topic: str | None = choose_image_topic(reader, setup.image_topic or None)
    elif joints:
        return joints.stamps_ns
    else:
        topic = only_topic(reader, _POSES, setup.pose_topic, 'pose_topic')
    if topic is None:
        msg = f'{reader.path} has neither images nor joint states nor poses of an arm'
        raise BagError(msg)
    return read_series(
        reader, topic, lambda msg: (stamp_ns_from_msg(msg.header.stamp), ())
    ).stamps_ns


def _name_and_task(reader: BagReader, marks: Sequence[EpisodeMark]) -> tuple[str, str]:
    """Name of the episode and its task in words, by its marks; empty: not stated.

    Raises:
        BagError: The bag holds several episodes.
    """
    names = {mark.episode_id for mark in marks}
    if len(names) > 1:
        msg = f'{reader.path} holds {len(names)} episodes: expected one bag for each'
        raise BagError(msg)
    return (marks[0].episode_id, marks[0].task) if marks else ('', '')


@dataclass(frozen=True)
class ArmFrame:
    """What is recorded at one stamp; what a source does not have is left empty."""

    stamp_ns: int
    tool: Pose | None = None  # of the end effector in the task frame
    joints: tuple[float, ...] = ()  # [rad]
    velocities: tuple[float, ...] = ()  # [rad/s]
    gripper: tuple[float, ...] = ()  # of the joints of the gripper
    image: EncodedImage | None = None
    links: Mapping[str, Pose] = field(default_factory=dict)  # frames that move, in their parents


@dataclass(frozen=True)
class DemonstrationHead:
    """What concerns a whole demonstration."""

    episode_id: str
    scene_id: str
    task: str  # in words
    outcome: EpisodeOutcome
    setup: ArmSetup
    origin: Mapping[str, Any]  # where it comes from, for the record
    camera: Intrinsics | None = None  # None: not known
    fixed: Mapping[str, Pose] = field(default_factory=dict)  # frames that never move
    urdf: str = ''
    truth: Mapping[str, str] = field(default_factory=dict)  # JSON by topic


def write_demonstration(path: Path, head: DemonstrationHead, frames: Iterable[ArmFrame]) -> None:
    """Write a demonstration as a rosbag2 folder; a topic without messages is not in it.

    Args:
        path: The folder; it does not exist yet.
        head: What concerns the whole demonstration.
        frames: In order of time; at least one.

    Raises:
        BagError: The folder exists, or cannot be written.
    """
    with BagWriter(path) as bag:
        writer = _Writer(bag, head)
        last_ns = 0
        for number, frame in enumerate(frames):
            if not number:
                writer.begin(frame.stamp_ns)
            writer.step(frame)
            last_ns = frame.stamp_ns
        writer.mark(EpisodeEvent.STOP, last_ns, head.outcome)


class _Writer:
    """Writes messages, and announces each topic with its first one."""

    def __init__(self, bag: BagWriter, head: DemonstrationHead) -> None:
        self._bag = bag
        self._head = head
        self._make = BagMessageFactory()
        self._topics: set[str] = set()

    def begin(self, stamp_ns: int) -> None:
        head = self._head
        record = {'code': code_version(), **head.origin}
        self._string('/provenance', json.dumps(record, sort_keys=True), stamp_ns)
        self.mark(EpisodeEvent.START, stamp_ns)
        self._string(SETUP_TOPIC, head.setup.to_json(), stamp_ns)
        for topic, text in head.truth.items():
            self._string(topic, text, stamp_ns)
        if head.urdf:
            self._string(DESCRIPTION_TOPIC, head.urdf, stamp_ns)
        if head.fixed:
            msg = transforms_to_msg(self._make, stamp_ns, head.fixed)
            self._write(STATIC_TF_TOPIC, msg, stamp_ns)

    def step(self, frame: ArmFrame) -> None:
        at, setup = frame.stamp_ns, self._head.setup
        if frame.joints:
            msg = joint_state_to_msg(self._make, at, setup.joints, frame.joints, frame.velocities)
            self._write(JOINT_TOPIC, msg, at)
        if frame.gripper:
            msg = joint_state_to_msg(self._make, at, setup.gripper_joints, frame.gripper)
            self._write(GRIPPER_TOPIC, msg, at)
        if frame.links:
            self._write(TF_TOPIC, transforms_to_msg(self._make, at, frame.links), at)
        if frame.tool:
            self._write(POSE_TOPIC, pose_stamped_to_msg(self._make, at, frame.tool), at)
        if frame.image:
            self._image(frame.image, at)

    def mark(
        self, event: EpisodeEvent, stamp_ns: int, outcome: EpisodeOutcome = EpisodeOutcome.UNSET
    ) -> None:
        head = self._head
        mark = EpisodeMark(stamp_ns, head.episode_id, event, head.task, head.scene_id, outcome)
        self._write('/episode_mark', mark_to_msg(self._make, mark), stamp_ns)

    def _image(self, image: EncodedImage, at: int) -> None:
        if self._head.camera:
            info = camera_info_to_msg(self._make, at, CAMERA_FRAME, self._head.camera)
            self._write(INFO_TOPIC, info, at)
        msg = encoded_image_to_msg(self._make, at, CAMERA_FRAME, image)
        self._write(IMAGE_TOPIC, msg, at)

    def _string(self, topic: str, text: str, stamp_ns: int) -> None:
        self._write(topic, self._make.make(_STRING, data=text), stamp_ns)

    def _write(self, topic: str, msg: Any, stamp_ns: int) -> None:
        if topic not in self._topics:
            self._bag.add_topic(topic, *_TOPICS.get(topic, (_STRING, LATCHED_QOS)))
            self._topics.add(topic)
        self._bag.write(topic, msg, stamp_ns)
