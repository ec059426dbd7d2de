# SPDX-License-Identifier: Apache-2.0
"""A demonstration of an arm as a bag: what a robot that is shown a task would have recorded."""

from __future__ import annotations

from dataclasses import dataclass, field
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.robot import SETUP_TOPIC
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    encoded_image_to_msg,
    joint_state_to_msg,
    pose_stamped_to_msg,
    transforms_to_msg,
)
from embodied_r_ros.bags.own_messages import mark_to_msg
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.resources import code_version
from embodied_r_ros.types.episodes import EpisodeEvent, EpisodeMark, EpisodeOutcome

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from embodied_r_ros.arm.robot import ArmSetup
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from embodied_r_ros.types.images import EncodedImage
    from rosbags.interfaces import Qos

CAMERA_FRAME = 'camera_optical_frame'
POSE_TOPIC, JOINT_TOPIC, GRIPPER_TOPIC = '/ee_pose', '/joint_states', '/gripper/joint_states'
IMAGE_TOPIC, INFO_TOPIC = '/image/compressed', '/camera_info'
DESCRIPTION_TOPIC = '/robot_description'
TF_TOPIC, STATIC_TF_TOPIC = '/tf', '/tf_static'
_STRING = 'std_msgs/msg/String'
_JOINTS = 'sensor_msgs/msg/JointState'
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
