# SPDX-License-Identifier: Apache-2.0
"""A demonstration, read from its bag: the camera is the clock, all else is what was known then."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import mark_from_msg, stamp_ns_from_msg
from embodied_r_ros.errors import BagError
from embodied_r_ros.keypoints.demonstration import Demonstration
from embodied_r_ros.keypoints.setup import ArmSetup, SETUP_TOPIC
from embodied_r_ros.recordings.arm_poses import tool_positions
from embodied_r_ros.recordings.bag_images import choose_image_topic, IMAGE_TYPES
from embodied_r_ros.recordings.bags import topics_of_type
from embodied_r_ros.recordings.series import only_topic, read_series, Series
from embodied_r_ros.recordings.values import read_values
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from rosbags.highlevel import AnyReader

_JOINTS, _POSES = 'sensor_msgs/msg/JointState', 'geometry_msgs/msg/PoseStamped'
_MARKS = 'embodied_r_msgs/msg/EpisodeMark'
_USUAL_JOINTS = '/joint_states'
_NS = 1_000_000_000


def setup_of(reader: AnyReader) -> ArmSetup:
    """How a bag says that it is to be read; the defaults where it says nothing.

    Raises:
        ConfigError: What it says is no setup.
        BagError: A message is damaged.
    """
    if SETUP_TOPIC in reader.topics:
        for text in read_values(reader, [SETUP_TOPIC], lambda msg: str(msg.data)):
            return ArmSetup.from_json(text)
    return ArmSetup()


def read_demonstration(reader: AnyReader, setup: ArmSetup | None = None) -> Demonstration:
    """Read the one demonstration of a bag.

    The stamps are those of the camera's images, without images those of the joint states, and
    without these those of the poses. Where something is missing or old, the sample is left out.

    Args:
        reader: The bag.
        setup: What things are called in it; None: as the bag says.

    Raises:
        BagError: A topic is missing, there are several, or a message is damaged.
        InputError: Fewer than two samples are complete.
    """
    setup = setup or setup_of(reader)
    topic = _joint_topic(reader, setup)
    joints, speeds = _joints(reader, topic, setup) if topic else (None, None)
    openings = _openings(reader, setup.gripper_topic or topic, setup)
    stamps = _clock(reader, setup, joints)
    positions, fresh = tool_positions(reader, setup, stamps, joints)
    sampled: list[NDArray[np.float64] | None] = []
    for part in (speeds, openings):
        values, is_fresh = part.at(stamps) if part else (None, fresh)
        fresh = fresh & is_fresh
        sampled.append(values)
    if not fresh.any():
        msg = f'{reader.paths[0]} has no stamp at which pose, joints and gripper are all known'
        raise BagError(msg)
    joint_speeds, opening = (None if values is None else values[fresh] for values in sampled)
    episode_id, task = _told(reader)
    return Demonstration(
        stamps_ns=stamps[fresh],
        positions=positions[fresh],
        openings=None if opening is None else opening[:, 0],
        joint_speeds=joint_speeds,
        episode_id=episode_id or reader.paths[0].stem,
        task=task or setup.task,
        frame_id=setup.frame_id,
    )


def _joint_topic(reader: AnyReader, setup: ArmSetup) -> str | None:
    """The joint states of the arm: as set up, the usual topic, or the only one."""
    chosen = setup.joint_topic
    if not chosen and _USUAL_JOINTS in topics_of_type(reader, _JOINTS):
        chosen = _USUAL_JOINTS
    return only_topic(reader, _JOINTS, chosen, 'joint_topic')


def _joints(reader: AnyReader, topic: str, setup: ArmSetup) -> tuple[Series | None, Series | None]:
    """Positions and speeds of the arm's joints over time; None: it tells of no joints."""
    names = setup.joints or _arm_joints(reader, topic, setup)
    if not names:
        return None, None

    def convert(msg: Any) -> tuple[int, list[float]]:
        places = _places(msg, names, topic)
        values = [float(msg.position[place]) for place in places]
        if len(msg.velocity) == len(msg.name):
            values += [float(msg.velocity[place]) for place in places]
        return stamp_ns_from_msg(msg.header.stamp), values

    both = read_series(reader, topic, convert)
    count = len(names)
    positions = Series(both.stamps_ns, both.values[:, :count])
    if both.values.shape[1] == 2 * count:
        return positions, Series(both.stamps_ns, both.values[:, count:])
    return positions, _differences(positions)


def _arm_joints(reader: AnyReader, topic: str, setup: ArmSetup) -> tuple[str, ...]:
    """All joints of a topic but those of the gripper."""
    for names in read_values(reader, [topic], lambda msg: tuple(map(str, msg.name))):
        return tuple(name for name in names if name not in setup.gripper_joints)
    return ()


def _differences(positions: Series) -> Series:
    """Velocities of joints that publish none."""
    if len(positions.stamps_ns) < 2:
        return Series(positions.stamps_ns, np.zeros_like(positions.values))
    seconds = (positions.stamps_ns - positions.stamps_ns[0]) / _NS
    return Series(positions.stamps_ns, np.gradient(positions.values, seconds, axis=0))


def _openings(reader: AnyReader, topic: str | None, setup: ArmSetup) -> Series | None:
    """Opening of the gripper over time, 0 closed to 1 open; None: it is not recorded."""
    if not setup.gripper_joints or not topic:
        return None
    known = only_topic(reader, _JOINTS, topic, 'gripper_topic')
    assert known is not None

    def convert(msg: Any) -> tuple[int, tuple[float]]:
        places = _places(msg, setup.gripper_joints, known)
        total = sum(float(msg.position[place]) for place in places)
        return stamp_ns_from_msg(msg.header.stamp), (setup.opening(total),)

    return read_series(reader, known, convert)


def _places(msg: Any, names: Sequence[str], topic: str) -> list[int]:
    listed = list(msg.name)
    absent = [name for name in names if name not in listed]
    if absent or len(msg.position) != len(listed):
        what = f'joint {absent[0]!r}' if absent else 'as many positions as names'
        msg_text = f'a message of {topic} has not {what}: it has joints {", ".join(listed)}'
        raise BagError(msg_text)
    return [listed.index(name) for name in names]


def _clock(reader: AnyReader, setup: ArmSetup, joints: Series | None) -> NDArray[np.int64]:
    """The stamps that samples are taken at. Shape (N,)."""
    if setup.image_topic or topics_of_type(reader, *IMAGE_TYPES):
        topic: str | None = choose_image_topic(reader, setup.image_topic or None)
    elif joints:
        return joints.stamps_ns
    else:
        topic = only_topic(reader, _POSES, setup.pose_topic, 'pose_topic')
    if topic is None:
        msg = f'{reader.paths[0]} has neither images nor joint states nor poses of an arm'
        raise BagError(msg)
    return read_series(
        reader, topic, lambda msg: (stamp_ns_from_msg(msg.header.stamp), ())
    ).stamps_ns


def _told(reader: AnyReader) -> tuple[str, str]:
    """Name of the episode and its task in words, by its marks; empty: not told.

    Raises:
        BagError: The bag holds several episodes.
    """
    marks = list(read_values(reader, topics_of_type(reader, _MARKS), mark_from_msg))
    names = {mark.episode_id for mark in marks}
    if len(names) > 1:
        msg = f'{reader.paths[0]} holds {len(names)} episodes: expected one bag for each'
        raise BagError(msg)
    return (marks[0].episode_id, marks[0].task) if marks else ('', '')
