# SPDX-License-Identifier: Apache-2.0
"""Node `keyframe_extractor`: images of one camera become keyframes.

Callbacks only take messages in. One worker thread decodes and evaluates images, in order; when it
is behind, the oldest waiting image is dropped and counted. An image's pose is taken from odometry
at the image's stamp, for which the worker waits a few milliseconds at most.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
import math
from pathlib import Path
import threading
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark, Keyframe
from embodied_r_ros.bags.images import ImageDecoder
from embodied_r_ros.bags.messages import (
    camera_of_info,
    is_rectified_topic,
    pose_from_msg,
    read_calibration,
    stamp_ns_from_msg,
    transform_from_msg,
    UncalibratedError,
)
from embodied_r_ros.bags.own_messages import keyframe_to_msg
from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.common.settings import check_settings, setting
from embodied_r_ros.keyframes.selector import KeyframeConfig, KeyframeExtractor
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Health, Level, Meter
from embodied_r_ros.nodes.neighbours import PatientPublisher
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.ros_types import (
    image_topic,
    IMAGE_TYPES,
    message_class,
    ROS_MESSAGES,
    stamped_image,
)
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.worker import Worker
from embodied_r_ros.types.poses import composed, mounted, NoPose, PoseBuffer, TransformTree
from embodied_r_ros.types.units import NS_PER_S
from nav_msgs.msg import Odometry
from sensor_msgs.msg import CameraInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from embodied_r_ros.types.images import StampedImage

_ODOMETRY_IS_GONE_S = 1.0


@dataclass(frozen=True)
class ExtractorConfig:
    """How one camera is listened to."""

    camera: str = setting('camera', 'name of the camera, in every keyframe', read_only=True)
    image_transport: str = setting(
        'raw',
        'raw: sensor_msgs/Image on `image`; compressed: CompressedImage on `image/compressed`',
        choices=('raw', 'compressed'),
        read_only=True,
    )
    queue: int = setting(
        2, 'images that may wait to be evaluated', between=(1, 100), read_only=True
    )
    odom_wait_s: float = setting(
        0.03, 'longest wait for odometry to reach the stamp of an image [s]', between=(0, 0.2)
    )
    mount_xyz: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0),
        "position of the camera link (x forward, y left, z up) in the odometry's body [m]",
        read_only=True,
    )
    mount_rpy: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0),
        'roll, pitch, yaw of the camera link there, as in URDF [rad]',
        read_only=True,
    )
    calibration: str = setting(
        '',
        'YAML file of camera_calibration, where `camera_info` tells nothing; empty: there is none',
        read_only=True,
    )
    silence_s: float = setting(
        2.0, 'without an image for so long, the node reports STALE [s]', between=(0.1, 3600)
    )

    def __post_init__(self) -> None:
        check_settings(self)
        for name in ('mount_xyz', 'mount_rpy'):
            value = getattr(self, name)
            if len(value) != 3 or not all(map(math.isfinite, value)):
                msg = f'{name} is {list(value)}: expected three finite numbers'
                raise ConfigError(msg)
        if not self.camera:
            msg = 'camera is empty: expected a name'
            raise ConfigError(msg)


_TRANSFORMS = 'tf2_msgs/msg/TFMessage'


@dataclass(frozen=True)
class _Arrival:
    msg: Any
    count: int  # images that had come, this one included
    episode_id: str


class KeyframeExtractorNode(ManagedNode):
    """Publishes the keyframes of one camera."""

    groups: ClassVar = {ExtractorConfig: '', KeyframeConfig: 'keyframe'}

    def __init__(self, **options: Any) -> None:
        super().__init__('keyframe_extractor', **options)

    def configure(self) -> None:
        """Announce the keyframes.

        Raises:
            ConfigError: The calibration cannot be used.
        """
        file = self.parameters.config(ExtractorConfig).calibration
        self._calibration = read_calibration(Path(file).expanduser()) if file else None
        self._publisher = self.publisher(Keyframe, 'keyframe', topics.RESULT)

    def activate(self) -> None:
        """Listen to the camera, starting a new stream."""
        config = self.parameters.config(ExtractorConfig)
        self._output = PatientPublisher(self, self._publisher)
        self._extractor = KeyframeExtractor(self.parameters.config(KeyframeConfig), config.camera)
        self._camera_info: CameraInfo | None = None
        self._intrinsics: Intrinsics | None = self._calibration  # of the newest image
        self._body = ''  # of the odometry
        self._mounts = TransformTree()
        self._poses = PoseBuffer()
        self._poses_changed = threading.Condition()
        self._episode_id = self._stream_episode_id = ''
        self._images, self._odometry, self._keyframes = Meter(), Meter(), Meter()
        self._evaluated, self._problems = Meter(), Meter()
        self._last_problem, self._latency_s = '', 0.0
        self._worker: Worker[_Arrival] = Worker(
            self._evaluate, config.queue, self._note_problem, 'keyframes'
        )
        self.while_active.callback(self._worker.close)
        self._listen(config)

    def reconfigure(self) -> None:
        """Take other selection settings from the next image on."""
        if self.is_active:
            self._extractor.selector.config = self.parameters.config(KeyframeConfig)

    def report(self) -> Health:
        """Say how the stream goes."""
        values = {
            'image_rate_hz': self._images.rate_hz(),
            'image_age_s': self._images.age_s(),
            'evaluated_age_s': self._evaluated.age_s(),
            'keyframes': self._keyframes.count,
            'keyframe_age_s': self._keyframes.age_s(),
            'dropped_images': self._worker.dropped,
            'problems': self._problems.count,
            'odometry_rate_hz': self._odometry.rate_hz(),
            'latency_s': self._latency_s,
            'calibrated': self._intrinsics is not None,
            **self._extractor.selector.counts,
        }
        if self._images.age_s() > self.parameters.config(ExtractorConfig).silence_s:
            return Health(Level.STALE, f'no image for {self._images.age_s():.0f} s', values)
        if self._problems.rate_hz():
            return Health(Level.WARN, self._last_problem, values)
        return Health(Level.OK, 'images come in', values)

    def _listen(self, config: ExtractorConfig) -> None:
        base = self.resolve_topic_name('image')
        topic = image_topic(base, config.image_transport)
        self._decoder = ImageDecoder(topic)
        self._is_rectified = is_rectified_topic(base)
        self._listen_to_mounts()
        self.subscribe(EpisodeMark, 'episode_mark', self._take_mark, topics.LATCHED)
        self.subscribe(CameraInfo, 'camera_info', self._take_camera_info, topics.SENSOR)
        self.subscribe(Odometry, 'odom', self._take_odometry, topics.SENSOR)
        kind = IMAGE_TYPES[config.image_transport]
        self.subscribe(kind, topic, self._take_image, topics.SENSOR, sender='the camera driver')

    def _take_image(self, msg: Any) -> None:
        self._images.tick()
        # Images that wait in the queue belong to the episode in which they came.
        self._worker.submit(_Arrival(msg, self._images.count, self._episode_id))

    def _listen_to_mounts(self) -> None:
        """Listen to the transforms that never change: they say where the camera is mounted."""
        try:
            kind = message_class(_TRANSFORMS)
        except (ImportError, AttributeError):
            return
        self.subscribe(kind, '/tf_static', self._take_mounts, topics.LATCHED_OF_MANY)

    def _take_mounts(self, msg: Any) -> None:
        for transform in msg.transforms:
            with suppress(ValueError):  # an orientation of zeros
                pose = transform_from_msg(transform)
                with self._poses_changed:
                    self._mounts.add_static(transform.child_frame_id, pose)

    def _take_camera_info(self, msg: CameraInfo) -> None:
        self._camera_info = msg

    def _take_odometry(self, msg: Odometry) -> None:
        self._odometry.tick()
        pose = pose_from_msg(msg.pose.pose, msg.header.frame_id)
        # Bases without a clock leave the stamp at zero: only the time of receipt is left.
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or self.now_ns()
        try:
            with self._poses_changed:
                self._body = msg.child_frame_id
                self._poses.add(stamp_ns, pose)
                self._poses_changed.notify()
        except ValueError as error:
            self._note_problem(error)

    def _take_mark(self, msg: EpisodeMark) -> None:
        self._episode_id = msg.episode_id if msg.event == EpisodeMark.EVENT_START else ''

    def _evaluate(self, arrival: _Arrival, drops: int) -> None:
        """Evaluate an image and publish it where it is a keyframe. Runs in the worker thread."""
        if arrival.episode_id != self._stream_episode_id:
            self._stream_episode_id = arrival.episode_id
            self._extractor.reset(arrival.episode_id)
        image = self._complete(stamped_image(arrival.msg, arrival.count, self._decoder))
        _, keyframe = self._extractor.process(image, drops)
        self._evaluated.tick()
        if keyframe:
            self._output.publish(keyframe_to_msg(ROS_MESSAGES, keyframe))
            self._keyframes.tick()
            self._latency_s = (self.now_ns() - keyframe.stamp_ns) / NS_PER_S

    def _complete(self, image: StampedImage) -> StampedImage:
        """The image with the intrinsics and the pose of its camera, where known."""
        height, width = image.image.shape[:2]
        self._intrinsics = self._intrinsics_of(width, height)
        if not image.stamp_ns:
            self._note_problem(ImageError('images have no stamp: set it in the camera driver'))
        pose = self._pose_at(image.stamp_ns, image.frame_id)
        return replace(image, intrinsics=self._intrinsics, pose=pose)

    def _intrinsics_of(self, width: int, height: int) -> Intrinsics | None:
        """Intrinsics of images of a size: by camera_info, else by the calibration file."""
        size = (width, height)
        try:
            if self._camera_info is not None:
                return camera_of_info(self._camera_info, size, is_rectified=self._is_rectified)
        except UncalibratedError:
            pass  # the calibration file may know
        except ImageError as error:
            self._note_problem(error)
        if self._calibration is None:
            return None
        own = self._calibration
        if abs(own.width * height - own.height * width) > width:
            text = f'calibration is of {own.width}x{own.height}, the image {width}x{height}'
            self._note_problem(ImageError(text))
            return None
        return own.scaled(width, height)

    def _pose_at(self, stamp_ns: int, frame_id: str) -> Pose | None:
        """Pose of the camera link: transforms say how it is mounted, else the parameters."""
        if not self._expects_odometry():
            return None
        config = self.parameters.config(ExtractorConfig)
        with self._poses_changed:
            self._poses_changed.wait_for(lambda: self._poses.reaches(stamp_ns), config.odom_wait_s)
            body = self._poses.at(stamp_ns)
            is_known = self._mounts.has(frame_id)
            link = self._mounts.camera_in(self._body, frame_id, stamp_ns) if is_known else None
        if body is None:
            return None
        if isinstance(link, NoPose):
            text = f'no transform says where the camera is on {self._body!r}: {link.reason}'
            self._note_problem(ImageError(text))
            return None
        if link:
            return composed(body, link)
        x, y, z = config.mount_xyz
        roll, pitch, yaw = config.mount_rpy
        return mounted(body, (x, y, z), (roll, pitch, yaw))

    def _expects_odometry(self) -> bool:
        if self._odometry.count:
            return self._odometry.age_s() <= _ODOMETRY_IS_GONE_S
        # The first image may overtake the first odometry of a publisher that is there.
        return bool(self.count_publishers(self.resolve_topic_name('odom')))

    def _note_problem(self, error: Exception) -> None:
        self._problems.tick()
        self._last_problem = str(error) or type(error).__name__
        self.log_problem(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(KeyframeExtractorNode, arguments)
