# SPDX-License-Identifier: Apache-2.0
"""Topics: message classes by name, images in messages, quality of service, and patient publishers.

Also names with several cameras, and the topics that an episode records.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.images import check_raw_image, ImageDecoder
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.bags.writer import LATCHED_QOS, RELIABLE_QOS, SENSOR_DATA_QOS
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.answers import SHADOW_ANSWER
from embodied_r_ros.core.types.images import StampedImage
import numpy as np
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy
from rclpy.qos_overriding_options import QoSOverridingOptions
from sensor_msgs.msg import CompressedImage, Image

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from embodied_r_ros.bags.audit import AuditReport
    from embodied_r_ros.nodes.node_base import ManagedNode
    from numpy.typing import NDArray
    from rclpy.publisher import Publisher
    from rosbags.interfaces import Qos

try:
    from rclpy.event_handler import SubscriptionEventCallbacks
except ImportError:  # Humble
    from rclpy.qos_event import SubscriptionEventCallbacks


@cache
def message_class(type_name: str) -> type[Any]:
    """Class of a type such as 'sensor_msgs/msg/Image'.

    Raises:
        ImportError: The package that defines it is not installed.
        AttributeError: The package has no such type.
    """
    package, kind, name = type_name.split('/')
    message: type[Any] = getattr(import_module(f'{package}.{kind}'), name)
    return message


def installed_class(type_name: str) -> type[Any] | None:
    """The same; None: it is not installed."""
    try:
        return message_class(type_name)
    except (ImportError, AttributeError):
        return None


class RosMessageFactory:
    """Makes messages of the rclpy family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message."""
        return message_class(type_name)(**fields)

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field."""
        # rclpy checks every element of a list of bytes, and takes an array as it is.
        if dtype == 'uint8':
            return array('B', bytes(values))
        return [float(value) if 'float' in dtype else int(value) for value in values]


ROS_MESSAGES = RosMessageFactory()
try:
    from cv_bridge import CvBridge

    BRIDGE: Any = CvBridge()
except Exception:
    BRIDGE = None
IMAGE_TYPES = {'raw': Image, 'compressed': CompressedImage}


def image_topic(base: str, transport: str) -> str:
    """Topic of an image transport under a resolved base name, as image_transport names it."""
    return base if transport in {'', 'raw'} else f'{base}/{transport}'


def stamped_image(msg: Any, index: int, decoder: ImageDecoder | None = None) -> StampedImage:
    """Image of a raw or compressed message, with its header's stamp and frame.

    Args:
        msg: The message.
        index: Position of the image in its stream.
        decoder: Of the stream, as offline; None: the image stands alone.

    Raises:
        ImageError: The encoding is not known, or the bytes are no image.
    """
    decoder = decoder or ImageDecoder('')
    plain = _bridge_image(msg)
    image, encoded = (plain, None) if plain is not None else decoder.decode(msg)
    return StampedImage(
        index=index,
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=image,
        frame_id=msg.header.frame_id,
        encoded=encoded,
    )


# What cv_bridge converts like this package; the rest it refuses, or brings to 8 bits otherwise.
_BRIDGE_ENCODINGS = {'bgr8', 'rgb8', 'bgra8', 'rgba8', 'mono8'}


def _bridge_image(msg: Any) -> NDArray[np.uint8] | None:
    """Image of a plain raw message by cv_bridge, where that is installed; else None.

    Raises:
        ImageError: The size does not fit the bytes.
    """
    if BRIDGE is None or getattr(msg, 'encoding', '') not in _BRIDGE_ENCODINGS:
        return None
    check_raw_image(msg)
    try:
        return np.asarray(BRIDGE.imgmsg_to_cv2(msg, 'bgr8'), np.uint8)
    except Exception as error:
        text = f'cv_bridge cannot convert a {msg.encoding} image: {error}'
        raise ImageError(text) from None


def _qos(
    depth: int,
    reliability: ReliabilityPolicy = ReliabilityPolicy.RELIABLE,
    durability: DurabilityPolicy = DurabilityPolicy.VOLATILE,
) -> QoSProfile:
    policies = {'reliability': reliability, 'durability': durability}
    return QoSProfile(history=HistoryPolicy.KEEP_LAST, depth=depth, **policies)


# Input from sensors: matches every publisher. A short queue rides out a busy moment; which image
# is worth its time is decided behind it.
SENSOR = _qos(10, ReliabilityPolicy.BEST_EFFORT)
# What this package computes: each message counts.
RESULT = _qos(10)
# The newest state of each publisher, also for those who come later.
LATCHED = _qos(1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# The same with the states before it: who records a burst of them loses none.
LATCHED_REVISIONS = _qos(30, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# Everyone's newest state: room for the latched message of many publishers (`/tf_static`).
LATCHED_OF_MANY = _qos(100, durability=DurabilityPolicy.TRANSIENT_LOCAL)
# `/tf`, as tf2 listens to it.
TRANSFORMS = _qos(100)


def overridable() -> QoSOverridingOptions:
    """Let parameters override history, depth and reliability of a topic."""
    return QoSOverridingOptions.with_default_policies()


def subscription_events(on_incompatible: Callable[[], None]) -> Any:
    """Event callbacks that report a publisher whose quality of service does not match."""
    return SubscriptionEventCallbacks(incompatible_qos=lambda event: on_incompatible())


# What a node in a camera's namespace has in common with the rest of its robot.
_OF_THE_ROBOT = ('episode_mark', 'provenance', 'odom', 'unchanged')
# What has one name for all robots.
_GLOBAL = {'/clock', '/tf', '/tf_static', '/diagnostics', '/rosout', '/parameter_events'}


def camera_topic(camera: str, name: str) -> str:
    """A topic of a camera, which is named by its namespace; '.' is the node's own."""
    return name if camera == '.' else f'{camera.rstrip("/")}/{name}'


def full_name(name: str, namespace: str) -> str:
    """The full name of what is called `name` in a namespace."""
    parts = [] if name.startswith('/') else [namespace.strip('/')]
    return '/' + '/'.join(part for part in [*parts, name.strip('/')] if part)


def robot_remappings(namespace: str) -> dict[str, str]:
    """Remappings of a node in a camera's namespace to what the nodes in `namespace` hear and say.

    Without them it listens beside them: its keyframes then belong to no episode.
    """
    return {name: full_name(name, namespace) for name in _OF_THE_ROBOT}


def playing_remappings(
    topics: Iterable[str], namespace: str, own_topics: Collection[str] = ()
) -> dict[str, str]:
    """Remappings of a recording's topics to where the nodes in a namespace listen.

    Args:
        topics: Full names, as they are in the recording.
        namespace: Namespace of the nodes; topics that are in it already are left.
        own_topics: What nodes were remapped to; topics of these full names are left too.

    Returns:
        New name of each topic that gets one.
    """
    inside = full_name('', namespace).rstrip('/') + '/'
    remapped_topics = {
        topic for name in own_topics if name for topic in (name, f'{name}/compressed')
    }
    excluded = _GLOBAL | remapped_topics
    return {
        topic: full_name(topic.lstrip('/'), namespace)
        for topic in topics
        if topic not in excluded and not topic.startswith(inside)
    }


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
class RecorderConfig(Settings):
    """What is recorded."""

    cameras: tuple[str, ...] = setting(
        ('.',), "namespaces of the cameras; '.' is this node's own", read_only=True
    )
    images: str = setting(
        'keyframes',
        'none; keyframes: their images; compressed: every compressed image too',
        choices=('none', 'keyframes', 'compressed'),
        read_only=True,
    )


def recorded_topics(config: RecorderConfig) -> list[RecordedTopic]:
    """List the topics to listen to."""
    topics = [
        RecordedTopic('semantic_delta', _MSG + 'SemanticDelta', RESULT),
        RecordedTopic('landmarks', _MSG + 'LandmarkArray', LATCHED_REVISIONS, LATCHED_QOS),
        RecordedTopic('answer', ANSWER, RESULT, is_urgent=True),
        RecordedTopic(SHADOW_ANSWER, ANSWER, RESULT),
        RecordedTopic('keypoint_proposal', _MSG + 'KeypointProposal', RESULT),
        RecordedTopic('keypoint_accepted', _MSG + 'KeypointProposal', RESULT),
        RecordedTopic('keypoint_refused', 'diagnostic_msgs/msg/DiagnosticStatus', RESULT),
        RecordedTopic('goal_proposal', _MSG + 'KeypointProposal', RESULT),
        RecordedTopic('goal_accepted', _MSG + 'KeypointProposal', RESULT),
        RecordedTopic('goal_refused', 'diagnostic_msgs/msg/DiagnosticStatus', RESULT),
        RecordedTopic('provenance', 'std_msgs/msg/String', LATCHED_OF_MANY, LATCHED_QOS),
        _sensor('odom', 'nav_msgs/msg/Odometry'),
        *_transforms(),
    ]
    for camera in config.cameras:
        topics.append(RecordedTopic(camera_topic(camera, 'keyframe'), KEYFRAME, RESULT))
        info = camera_topic(camera, 'camera_info')
        topics.append(_sensor(info, 'sensor_msgs/msg/CameraInfo'))
        if config.images == 'compressed':
            image = _sensor(camera_topic(camera, 'image'), 'sensor_msgs/msg/CompressedImage')
            topics.append(replace(image, is_bulk=True, transport='compressed'))
    return topics


def pipeline_topics() -> list[str]:
    """Name what the pipeline itself publishes, which the replay of a recording must not repeat.

    Names are relative. Topics below them, such as `landmarks/markers`, count too.
    """
    recorded = recorded_topics(RecorderConfig())
    sensors = SENSOR, TRANSFORMS
    computed = [topic.name for topic in recorded if topic.listen not in sensors]
    computed = [name for name in computed if name not in _GLOBAL]
    return [*computed, 'answer_label', 'episode_mark', 'goal_pose', 'items']


def _sensor(name: str, type_name: str) -> RecordedTopic:
    return RecordedTopic(name, type_name, SENSOR, SENSOR_DATA_QOS)


def _transforms() -> list[RecordedTopic]:
    kind = 'tf2_msgs/msg/TFMessage'
    if not installed_class(kind):
        return []
    return [
        RecordedTopic('/tf', kind, TRANSFORMS),
        RecordedTopic('/tf_static', kind, LATCHED_OF_MANY, LATCHED_QOS),
    ]


def topic_values(audit: AuditReport) -> dict[str, str]:
    """How each topic comes, for the diagnostics; the topics that come."""
    return {
        f'{entry.topic} [Hz]': f'{entry.rate_hz:.2f}, longest gap {entry.longest_gap_s:.2f} s, '
        f'{entry.out_of_order} out of order'
        for entry in audit.topics
        if entry.messages
    }


_READER_WAIT_S = 2.0
_MATCH_S = 0.25  # so long after a reader was found, it has found the publisher as well
_WATCH_S = 0.05
_MAX_HELD = 10


class PatientPublisher:
    """A publisher whose first messages wait until a reader was found, a short while at most.

    What is published before two ends know each other reaches no one. A robot that stands still
    has no second keyframe to make up for the first one.
    """

    def __init__(self, node: ManagedNode, publisher: Publisher) -> None:
        """Wait for a reader of a publisher, from now on, while the node is active."""
        self._publisher = publisher
        self._lock = threading.Lock()
        self._held: deque[Any] = deque()
        self._is_patient = True
        self._end_s = time.monotonic() + _READER_WAIT_S
        self._timer = node.every(_WATCH_S, self._watch)

    def publish(self, msg: Any) -> None:
        """Publish a message, or keep it until a reader was found. From any thread."""
        with self._lock:
            self._held.append(msg)
            if not self._is_patient or len(self._held) > _MAX_HELD:
                self._release()

    def _watch(self) -> None:
        now_s = time.monotonic()
        if self._publisher.get_subscription_count():
            self._end_s = min(self._end_s, now_s + _MATCH_S)
        if now_s >= self._end_s:
            with self._lock:
                self._is_patient = False
                self._release()
            self._timer.cancel()

    def _release(self) -> None:
        while self._held:
            self._publisher.publish(self._held.popleft())
