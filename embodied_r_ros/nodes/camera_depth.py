# SPDX-License-Identifier: Apache-2.0
"""The depth of a live camera's images: their partners by stamp, waited for a bounded time."""

from __future__ import annotations

from dataclasses import dataclass, replace
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.depth import DepthConfig, DepthStream
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.camera_poses import BoundedWait
from embodied_r_ros.nodes.diagnostics import Meter
from embodied_r_ros.nodes.ros_types import image_topic, IMAGE_TYPES
from sensor_msgs.msg import CameraInfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.nodes.node_base import ManagedNode
    from embodied_r_ros.types.images import StampedImage

_GONE_S = 1.0  # what was silent for so long is not waited for


@dataclass(frozen=True)
class LiveDepthConfig(Settings):
    """How depth is listened to."""

    depth_transport: str = setting(
        'raw',
        'raw: sensor_msgs/Image on `depth`; compressedDepth or compressed: CompressedImage on '
        '`depth/compressedDepth` or `depth/compressed`; none: depth is not used',
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

    def added(self, image: StampedImage) -> StampedImage:
        """The image with its depth, where there is some; waits for it. Not for a callback."""
        if not self._expects_depth():
            return image
        with self._changed:
            self._wait.until(
                lambda: self._stream.reaches(image.stamp_ns), self._config().depth_wait_s
            )
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
