# SPDX-License-Identifier: Apache-2.0
"""Which topics make an episode's record."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.nodes import qos
from embodied_r_ros.nodes.ros_types import message_class
from embodied_r_ros.nodes.topics import camera_topic
from embodied_r_ros.recordings.bags import LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS

if TYPE_CHECKING:
    from embodied_r_ros.recordings.audit import AuditReport
    from rclpy.qos import QoSProfile
    from rosbags.interfaces import Qos

_MSG = 'embodied_r_msgs/msg/'
KEYFRAME = _MSG + 'Keyframe'
ANSWER = _MSG + 'Answer'


@dataclass(frozen=True)
class RecordedTopic:
    """A topic that is listened to for the record."""

    name: str  # as given to the node: relative, so that namespaces and remappings apply
    type_name: str
    listen: QoSProfile
    offer: Qos = RELIABLE_QOS  # what a player of the bag offers
    is_bulk: bool = False  # gives way first when the disk is slow
    is_urgent: bool = False  # on the disk at once, and never dropped
    transport: str = ''  # of an image, appended to the resolved name

    @property
    def is_latched(self) -> bool:
        """Whether its newest messages belong into every episode."""
        return self.offer is LATCHED_QOS


@dataclass(frozen=True)
class RecorderConfig:
    """What is recorded."""

    cameras: tuple[str, ...] = setting(
        ('.',), "namespaces of the cameras; '.' is this node's own", read_only=True
    )
    images: str = setting(
        'keyframes',
        'none: keyframes without their image; keyframes: with it; compressed: also every '
        'compressed image of the cameras',
        choices=('none', 'keyframes', 'compressed'),
        read_only=True,
    )

    def __post_init__(self) -> None:
        check_settings(self)


def recorded_topics(config: RecorderConfig) -> list[RecordedTopic]:
    """List the topics to listen to."""
    topics = [
        RecordedTopic('semantic_delta', _MSG + 'SemanticDelta', qos.RESULT),
        RecordedTopic('answer', ANSWER, qos.RESULT, is_urgent=True),
        RecordedTopic('keypoint_proposal', _MSG + 'KeypointProposal', qos.RESULT),
        RecordedTopic('keypoint_accepted', _MSG + 'KeypointProposal', qos.RESULT),
        RecordedTopic('keypoint_refused', 'diagnostic_msgs/msg/DiagnosticStatus', qos.RESULT),
        RecordedTopic('provenance', 'std_msgs/msg/String', qos.LATCHED_OF_MANY, LATCHED_QOS),
        _sensor('odom', 'nav_msgs/msg/Odometry'),
        *_transforms(),
    ]
    for camera in config.cameras:
        topics.append(RecordedTopic(camera_topic(camera, 'keyframe'), KEYFRAME, qos.RESULT))
        info = camera_topic(camera, 'camera_info')
        topics.append(_sensor(info, 'sensor_msgs/msg/CameraInfo'))
        if config.images == 'compressed':
            topics.append(_compressed(camera_topic(camera, 'image')))
    return topics


def _sensor(name: str, type_name: str) -> RecordedTopic:
    return RecordedTopic(name, type_name, qos.SENSOR, SENSOR_DATA_QOS)


def _compressed(name: str) -> RecordedTopic:
    kind = 'sensor_msgs/msg/CompressedImage'
    return RecordedTopic(
        name, kind, qos.SENSOR, SENSOR_DATA_QOS, is_bulk=True, transport='compressed'
    )


def _transforms() -> list[RecordedTopic]:
    kind = 'tf2_msgs/msg/TFMessage'
    try:
        message_class(kind)
    except (ImportError, AttributeError):
        return []
    return [
        RecordedTopic('/tf', kind, qos.TRANSFORMS),
        RecordedTopic('/tf_static', kind, qos.LATCHED_OF_MANY, LATCHED_QOS),
    ]


def topic_values(audit: AuditReport) -> dict[str, str]:
    """How each topic comes, for the diagnostics; the topics that come."""
    return {
        f'{told.topic} [Hz]': f'{told.rate_hz:.2f}, longest gap {told.longest_gap_s:.2f} s, '
        f'{told.out_of_order} out of order'
        for told in audit.topics
        if told.messages
    }
