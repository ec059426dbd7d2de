# SPDX-License-Identifier: Apache-2.0
"""Node `keyframe_extractor`: images of one camera become keyframes.

Callbacks only take messages in. One worker thread decodes and evaluates images, in order; when it
is behind, the oldest waiting image is dropped and counted. An image's pose and depth are taken at
the image's stamp, for which the worker waits a few milliseconds at most.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
import threading
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_msgs.msg import EpisodeMark, Keyframe
from embodied_r_ros.bags.depth import DepthConfig, DepthStream
from embodied_r_ros.bags.images import ImageDecoder
from embodied_r_ros.bags.messages import (
    camera_of_info,
    is_rectified_topic,
    read_calibration,
    stamp_ns_from_msg,
    stamp_to_msg,
    UncalibratedError,
)
from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.keyframes.fixed_parts import read_mask
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.own_messages import keyframe_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.camera_poses import BoundedWait, check_pose_source, LivePoses, PoseConfig
from embodied_r_ros.nodes.diagnostics import Health, Level, Meter
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.run import run
from embodied_r_ros.nodes.topics import (
    image_topic,
    IMAGE_TYPES,
    PatientPublisher,
    ROS_MESSAGES,
    stamped_image,
)
from embodied_r_ros.nodes.worker import Worker
from sensor_msgs.msg import CameraInfo, TimeReference

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.types.geometry import Intrinsics
    from embodied_r_ros.core.types.images import StampedImage

_UNCHANGED_NS = 500_000_000  # from one word that nothing changed to the next
_GONE_S = 1.0  # what was silent for so long is not waited for
_LEAST_SHARE = 0.5  # of the images that come, in the last seconds
# Stamps that differ more from the clock are not of this clock; what lies behind may be on its way.
_MOST_AHEAD_S, _MOST_BEHIND_S = 1.0, 10.0


@dataclass(frozen=True)
class LiveDepthConfig(Settings):
    """How depth is listened to."""

    depth_transport: str = setting(
        'raw',
        'raw: `depth`; compressedDepth, compressed: the topic of that name below it; none: depth '
        'is not used',
        choices=('raw', 'compressedDepth', 'compressed', 'none'),
        read_only=True,
    )
    depth_unit_m: float = setting(
        0.001,
        'what one step of a depth image of integers is [m]',
        between=(1e-6, 1),
        read_only=True,
    )
    depth_offset_s: float = setting(
        0.02,
        'stamps of an image and its depth differ by at most this [s]',
        between=(0, 1),
        read_only=True,
    )
    depth_wait_s: float = setting(
        0.05, 'longest wait for the depth of an image [s]', between=(0, 0.5)
    )


class CameraDepth:
    """Depth of one camera while its node is active."""

    def __init__(
        self,
        node: ManagedNode,
        config: Callable[[], LiveDepthConfig],
        tell: Callable[[Exception], None],
    ) -> None:
        """Listen to depth, as the settings say.

        Args:
            node: The node, which becomes active.
            config: Gives the settings.
            tell: Is told once of each thing that is wrong.
        """
        self._node, self._config = node, config
        self.received = Meter()
        self._changed = threading.Condition()
        self._wait = BoundedWait(self._changed)
        base, transport = node.resolve_topic_name('depth'), config().depth_transport
        self._topic = image_topic(base, transport)
        depth = DepthConfig(config().depth_unit_m, config().depth_offset_s)
        self._stream = DepthStream(self._topic, depth, lambda text: tell(ImageError(text)))
        if transport == 'none':
            return
        kind = IMAGE_TYPES['raw' if transport == 'raw' else 'compressed']
        node.subscribe(kind, self._topic, self._take, topics.SENSOR)
        node.subscribe(CameraInfo, _info_topic(node), self._take_camera_info, topics.SENSOR)

    def with_depth(self, image: StampedImage) -> StampedImage:
        """The image with its depth, where there is some; waits for it. Not for a callback."""
        reaches = partial(self._stream.reaches, image.stamp_ns)
        with self._changed:
            # Depth may seem gone after a long wait for other images, and that of this one be here.
            if not (reaches() or self._expects_depth()):
                return image
            self._wait.until(reaches, self._config().depth_wait_s)
            msg = self._stream.pick(image.stamp_ns)
        return image if msg is None else replace(image, depth=self._stream.complete(image, msg))

    def values(self) -> dict[str, Any]:
        """For the diagnostics; nothing where no depth came."""
        if not self.received.count:
            return {}
        counts = {f'depth_{name}': count for name, count in self._stream.counts.items()}
        return {'depth_rate_hz': self.received.rate_hz(), **counts}

    def _take(self, msg: Any) -> None:
        self.received.tick()
        with self._changed:
            self._stream.take(msg, self._node.now_ns())
            self._changed.notify_all()

    def _take_camera_info(self, msg: CameraInfo) -> None:
        self._stream.camera_info = msg

    def _expects_depth(self) -> bool:
        if self.received.count:
            return self.received.age_s() <= _GONE_S
        # The first image may overtake the first depth of a publisher that is there.
        return self._config().depth_transport != 'none' and bool(
            self._node.count_publishers(self._topic)
        )


def _info_topic(node: ManagedNode) -> str:
    """Topic of the depth's camera_info: beside the depth where only this was remapped."""
    depth, info = (node.resolve_topic_name(name) for name in ('depth', 'depth/camera_info'))
    own = topics.full_name('depth', node.get_namespace())
    is_remapped = depth != own and info == f'{own}/camera_info'
    return depth.rpartition('/')[0] + '/camera_info' if is_remapped else 'depth/camera_info'


@dataclass(frozen=True)
class ExtractorConfig(Settings):
    """How one camera is listened to."""

    camera: str = setting('camera', 'name of the camera, in every keyframe', read_only=True)
    image_transport: str = setting(
        'raw',
        'raw: `image`; compressed: `image/compressed`',
        choices=('raw', 'compressed'),
        read_only=True,
    )
    queue: int = setting(
        2, 'images that may wait to be evaluated', between=(1, 100), read_only=True
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
        super().__post_init__()
        if not self.camera:
            msg = 'camera is empty: expected a name'
            raise ConfigError(msg)


@dataclass(frozen=True)
class _Arrival:
    msg: Any
    count: int  # images that had come, this one included
    episode_id: str


class KeyframeExtractorNode(ManagedNode):
    """Publishes the keyframes of one camera."""

    groups: ClassVar = {
        ExtractorConfig: '',
        PoseConfig: '',
        LiveDepthConfig: '',
        KeyframeConfig: 'keyframe',
    }

    def __init__(self, **options: Any) -> None:
        super().__init__('keyframe_extractor', **options)

    def configure(self) -> None:
        """Announce the keyframes.

        Raises:
            ConfigError: The calibration or the mask cannot be used, or nothing here reads the
                transforms that are to give poses.
        """
        check_pose_source(self.parameters.config(PoseConfig))
        file = self.parameters.config(ExtractorConfig).calibration
        self._calibration = read_calibration(Path(file).expanduser()) if file else None
        if mask := self.parameters.config(KeyframeConfig).mask:
            read_mask(Path(mask).expanduser())
        self._publisher = self.publisher(Keyframe, 'keyframe', topics.RESULT)
        self._unchanged = self.publisher(TimeReference, 'unchanged', topics.RESULT)

    def activate(self) -> None:
        """Listen to the camera, starting a new stream."""
        config = self.parameters.config(ExtractorConfig)
        self._output = PatientPublisher(self, self._publisher)
        self._extractor = Keyframer(self.parameters.config(KeyframeConfig), config.camera)
        self._camera_info: CameraInfo | None = None
        self._intrinsics: Intrinsics | None = self._calibration  # of the newest image
        self._episode_id = self._stream_episode_id = ''
        self._images, self._keyframes = Meter(), Meter()
        self._evaluated, self._dropped, self._problems = Meter(), Meter(), Meter()
        self._last_problem = ''
        self._has_told_parts = False
        self._keyframe_ns = self._told_ns = 0  # last keyframe; last word of it
        self._age_s = self._delay_s = 0.0  # of the newest image, as it came; once it was evaluated
        self._worker: Worker[_Arrival] = Worker(self._evaluate, config.queue, self._note_problem)
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
            'evaluated_share': self._evaluated_share(),
            'problems': self._problems.count,
            'delay_s': self._delay_s,
            'calibrated': self._intrinsics is not None,
            'fixed_to_camera': self._extractor.selector.fixed_parts.text() or 'nothing is known',
            **self._poses.values(),
            **self._depth.values(),
            **self._extractor.selector.counts,
        }
        if self._images.age_s() > self.parameters.config(ExtractorConfig).silence_s:
            return Health(Level.STALE, f'no image for {self._images.age_s():.0f} s', values)
        if self._problems.rate_hz():
            return Health(Level.WARN, self._last_problem, values)
        return Health(Level.OK, 'images come in', values)

    def concerns(self) -> list[Health]:
        """Say what is wrong around the node, and with the images that come."""
        texts = self._saturation(), self._clock_problem(), self._lens_problem()
        return [*super().concerns(), *(Health(Level.WARN, text) for text in texts if text)]

    def _evaluated_share(self) -> float:
        evaluated_hz, dropped_hz = self._evaluated.rate_hz(), self._dropped.rate_hz()
        return evaluated_hz / (evaluated_hz + dropped_hz) if dropped_hz else 1.0

    def _saturation(self) -> str:
        if (share := self._evaluated_share()) >= _LEAST_SHARE:
            return ''
        return (
            f'{share:.0%} of the images are evaluated, {self._delay_s:.1f} s after they were '
            'taken: lower the rate or the size of the images'
        )

    def _clock_problem(self) -> str:
        if not self._images.count or -_MOST_AHEAD_S <= self._age_s <= _MOST_BEHIND_S:
            return ''
        where = 'ahead of' if self._age_s < 0 else 'behind'
        return (
            f'stamps of the images are {abs(self._age_s):.0f} s {where} the clock: set '
            'use_sim_time, or synchronise the hosts with chrony'
        )

    def _lens_problem(self) -> str:
        if self._intrinsics or not self._evaluated.count:
            return ''
        topic = self.resolve_topic_name('camera_info')
        why = 'has no intrinsics' if self._camera_info else 'says nothing'
        return f'the lens is not known: {topic} {why}, and no file is set as calibration'

    def _listen(self, config: ExtractorConfig) -> None:
        base = self.resolve_topic_name('image')
        topic = image_topic(base, config.image_transport)
        self._decoder = ImageDecoder(topic)
        self._is_rectified = is_rectified_topic(base)
        self._poses = LivePoses(
            self, lambda: self.parameters.config(PoseConfig), self._note_problem
        )
        self._depth = CameraDepth(
            self, lambda: self.parameters.config(LiveDepthConfig), self._note_problem
        )
        self.subscribe(EpisodeMark, 'episode_mark', self._take_mark, topics.LATCHED)
        self.subscribe(CameraInfo, 'camera_info', self._take_camera_info, topics.SENSOR)
        kind = IMAGE_TYPES[config.image_transport]
        self.subscribe(kind, topic, self._take_image, topics.SENSOR, sender='the camera driver')

    def _take_image(self, msg: Any) -> None:
        self._images.tick()
        self._age_s = self._age_of(stamp_ns_from_msg(msg.header.stamp))
        # Images that wait in the queue belong to the episode in which they came.
        self._worker.submit(_Arrival(msg, self._images.count, self._episode_id))

    def _take_camera_info(self, msg: CameraInfo) -> None:
        self._camera_info = msg

    def _take_mark(self, msg: EpisodeMark) -> None:
        self._episode_id = msg.episode_id if msg.event == EpisodeMark.EVENT_START else ''

    def _evaluate(self, arrival: _Arrival, drops: int) -> None:
        """Evaluate an image and publish it where it is a keyframe. Runs in the worker thread."""
        if arrival.episode_id != self._stream_episode_id:
            self._stream_episode_id = arrival.episode_id
            self._extractor.reset(arrival.episode_id)
        image = self._complete(stamped_image(arrival.msg, arrival.count, self._decoder))
        _, keyframe = self._extractor.process(image, drops)
        self._tell_fixed_parts()
        self._evaluated.tick()
        self._dropped.tick(drops)
        self._delay_s = self._age_of(image.stamp_ns)
        if keyframe:
            self._output.publish(keyframe_to_msg(ROS_MESSAGES, keyframe))
            self._keyframes.tick()
            self._keyframe_ns = self._told_ns = keyframe.stamp_ns
        elif self._extractor.selector.is_unchanged:
            self._tell_unchanged(image.stamp_ns)

    def _tell_unchanged(self, stamp_ns: int) -> None:
        """Tell that an image shows what the last keyframe shows, not too often."""
        if stamp_ns - self._told_ns < _UNCHANGED_NS:
            return
        self._told_ns = stamp_ns
        msg = TimeReference(source=self._extractor.camera)
        msg.header.stamp = stamp_to_msg(ROS_MESSAGES, stamp_ns)
        msg.time_ref = stamp_to_msg(ROS_MESSAGES, self._keyframe_ns)
        self._unchanged.publish(msg)

    def _tell_fixed_parts(self) -> None:
        """Log once that something is fixed to the camera."""
        if not self._has_told_parts and (text := self._extractor.selector.fixed_parts.text()):
            self._has_told_parts = True
            self.get_logger().info(text)

    def _age_of(self, stamp_ns: int) -> float:
        """Time since a stamp [s]; 0 where it is none, or there is no time yet."""
        now_ns = self.now_ns()
        return (now_ns - stamp_ns) / NS_PER_S if stamp_ns and now_ns else 0.0

    def _complete(self, image: StampedImage) -> StampedImage:
        """The image with what is known of it: intrinsics and pose of its camera, depth."""
        height, width = image.image.shape[:2]
        self._intrinsics = self._intrinsics_of(width, height)
        if not image.stamp_ns:
            self._note_problem(ImageError('images have no stamp: set it in the camera driver'))
        pose = self._poses.at(image.stamp_ns, image.frame_id)
        return self._depth.with_depth(replace(image, intrinsics=self._intrinsics, pose=pose))

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

    def _note_problem(self, error: Exception) -> None:
        self._problems.tick()
        self._last_problem = str(error) or type(error).__name__
        self.log_problem(error)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(KeyframeExtractorNode, arguments)
