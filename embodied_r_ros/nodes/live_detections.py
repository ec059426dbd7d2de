# SPDX-License-Identifier: Apache-2.0
"""Boxes of any ROS detector, matched with the keyframes that they are of."""

from __future__ import annotations

from collections import deque, OrderedDict
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.bags.vision_messages import CLASS_NUMBERS, DETECTIONS_2D, detections_from_msg
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.camera_poses import BoundedWait
from embodied_r_ros.nodes.diagnostics import Meter
from embodied_r_ros.nodes.topics import camera_topic, installed_class
from sensor_msgs.msg import CameraInfo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import Box
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.vocabulary import Detection
    from embodied_r_ros.nodes.node_base import ManagedNode

_KEPT = 64  # messages of a camera that may wait for their keyframe
_KEYFRAMES = 32  # keyframes whose boxes are remembered
_GONE_S = 5.0  # a detector that was silent for so long is not waited for


@dataclass(frozen=True)
class DetectionsConfig(Settings):
    """How boxes of a ROS detector are used."""

    listen: bool = setting(
        False,
        'items also come from the boxes on `detections` (vision_msgs/Detection2DArray) of the '
        'cameras',
        read_only=True,
    )
    recording: str = setting(
        '', 'bag that is played, whose boxes are used without a topic', read_only=True
    )
    numbers: str = setting(
        '',
        'what the classes of detectors mean that give numbers; empty: they give names',
        choices=tuple(CLASS_NUMBERS),
        read_only=True,
    )
    offset_s: float = setting(
        0.05,
        'stamps of an image and the boxes in it differ by at most this [s]',
        between=(0, 1),
        read_only=True,
    )
    wait_s: float = setting(
        0.3, 'longest wait for the boxes of a keyframe [s]', between=(0, 5), read_only=True
    )


@dataclass(frozen=True)
class _Boxes:
    stamp_ns: int
    frame_id: str
    detections: tuple[Detection, ...]


class LiveDetections:
    """Boxes of the cameras of a node. For use from several threads."""

    def __init__(self, config: DetectionsConfig) -> None:
        """See that boxes can be heard at all.

        Raises:
            ConfigError: vision_msgs is not installed.
        """
        self.config = config
        self.received = Meter()
        self.unmatched = 0  # keyframes without boxes of their stamp
        self._numbers = CLASS_NUMBERS[config.numbers]
        kind = installed_class(DETECTIONS_2D)
        if kind is None:
            msg = 'detections.listen is true, and vision_msgs is not installed: install it'
            raise ConfigError(msg)
        self._kind = kind
        self._changed = threading.Condition()
        # By camera: one without a detector keeps no other one from waiting.
        self._waits: dict[str, BoundedWait] = {}
        self._waiting: dict[str, deque[_Boxes]] = {}
        self._of_keyframes: OrderedDict[tuple[str, int], tuple[Detection, ...]] = OrderedDict()
        self._sizes: dict[str, tuple[int, int]] = {}  # of a frame's images [px]
        self._shrunk: set[str] = set()  # frames whose keyframes are smaller than their images

    def listen(self, node: ManagedNode, cameras: Sequence[str]) -> None:
        """Listen to the boxes of cameras while a node is active."""
        with self._changed:
            self._waiting.clear()
            self._of_keyframes.clear()
        for camera in cameras:
            topic = camera_topic(camera, 'detections')
            take = partial(self.take, camera=camera)
            node.subscribe(self._kind, topic, take, topics.SENSOR, sender='a detector')
            info = camera_topic(camera, 'camera_info')
            node.subscribe(CameraInfo, info, self._take_camera_info, topics.SENSOR)

    def take(self, msg: Any, camera: str = '') -> None:
        """Take the boxes of one image of a camera."""
        self.received.tick()
        detections = tuple(detections_from_msg(msg, self._numbers))
        frame_id = str(msg.header.frame_id).lstrip('/')
        with self._changed:
            waiting = self._waiting.setdefault(camera, deque(maxlen=_KEPT))
            waiting.append(_Boxes(stamp_ns_from_msg(msg.header.stamp), frame_id, detections))
            self._changed.notify_all()

    def of(self, keyframe: Keyframe) -> Sequence[Detection]:
        """The boxes of a keyframe's image, in its pixels; waits for them. Not for a callback."""
        key = keyframe.camera, keyframe.stamp_ns
        with self._changed:
            if key in self._of_keyframes:
                return self._of_keyframes[key]
            if self.received.count and self.received.age_s() <= _GONE_S:
                wait = self._waits.setdefault(keyframe.camera, BoundedWait(self._changed))
                wait.until(lambda: self._reaches(keyframe), self.config.wait_s)
            boxes = self._nearest(keyframe)
            is_near = boxes and abs(boxes.stamp_ns - keyframe.stamp_ns) <= self._offset_ns()
            self.unmatched += not is_near
            detections = self._fitted(boxes.detections, keyframe) if boxes and is_near else ()
            self._of_keyframes[key] = detections
            if len(self._of_keyframes) > _KEYFRAMES:
                self._of_keyframes.popitem(last=False)
        return detections

    def values(self) -> dict[str, Any]:
        """For the diagnostics."""
        return {
            'detections_rate_hz': self.received.rate_hz(),
            'detections_unmatched': self.unmatched,
        }

    def _take_camera_info(self, msg: CameraInfo) -> None:
        self._sizes[str(msg.header.frame_id).lstrip('/')] = int(msg.width), int(msg.height)

    def _offset_ns(self) -> int:
        return round(self.config.offset_s * NS_PER_S)

    def _of_frame(self, keyframe: Keyframe) -> list[_Boxes]:
        frame = keyframe.frame_id.lstrip('/')
        waiting = chain.from_iterable(self._waiting.values())
        return [boxes for boxes in waiting if boxes.frame_id in {'', frame} or not frame]

    def _nearest(self, keyframe: Keyframe) -> _Boxes | None:
        return min(
            self._of_frame(keyframe),
            key=lambda boxes: abs(boxes.stamp_ns - keyframe.stamp_ns),
            default=None,
        )

    def _reaches(self, keyframe: Keyframe) -> bool:
        """Whether waiting longer gains no nearer boxes."""
        return any(boxes.stamp_ns >= keyframe.stamp_ns for boxes in self._of_frame(keyframe))

    def _fitted(
        self, detections: tuple[Detection, ...], keyframe: Keyframe
    ) -> tuple[Detection, ...]:
        """Boxes in the pixels of a keyframe, whose image may have been shrunk.

        camera_info states the size of the images; but it may be that of the sensor, of which they
        are a part. Boxes that reach beyond the keyframe prove that they are of a larger image.
        """
        frame, lens = keyframe.frame_id.lstrip('/'), keyframe.intrinsics
        size = self._sizes.get(frame)
        if size is None or lens is None or not min(size):
            return detections
        if any(one.box[2] > lens.width + 1 or one.box[3] > lens.height + 1 for one in detections):
            self._shrunk.add(frame)
        if frame not in self._shrunk:
            return detections
        across, down = lens.width / size[0], lens.height / size[1]
        return tuple(replace(one, box=_scaled(one.box, across, down)) for one in detections)


def _scaled(box: Box, across: float, down: float) -> Box:
    left, top, right, bottom = box
    return left * across, top * down, right * across, bottom * down
