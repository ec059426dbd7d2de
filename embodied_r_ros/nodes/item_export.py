# SPDX-License-Identifier: Apache-2.0
"""What keyframes show, as boxes in space and in the image, for RViz, Foxglove and others."""

from __future__ import annotations

from collections import defaultdict
from contextlib import suppress
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import encoded_image_to_msg
from embodied_r_ros.bags.vision_messages import (
    DETECTIONS_3D,
    items_to_msg,
    MARKERS,
    markers_to_msg,
    placed_items,
)
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.ros_types import message_class, ROS_MESSAGES
from embodied_r_ros.types.images import decode_image, encode_image
from embodied_r_ros.view.sheet import with_items
from sensor_msgs.msg import CompressedImage

if TYPE_CHECKING:
    from embodied_r_ros.keyframes.selector import Keyframe
    from embodied_r_ros.nodes.node_base import ManagedNode
    from embodied_r_ros.types.deltas import SemanticDelta


_PICTURE = 'sensor_msgs/msg/CompressedImage'


class ItemExport:
    """Publishes items, as far as their messages are installed and somebody hears."""

    def __init__(self, node: ManagedNode) -> None:
        """Announce `items`, `items/markers` and `items/image` while the node is configured."""
        topic = 'items/image/compressed'
        picture = node.publisher(CompressedImage, topic, topics.RESULT)
        self._outputs: dict[str, Any] = {_PICTURE: picture}
        for kind, topic in ((DETECTIONS_3D, 'items'), (MARKERS, 'items/markers')):
            try:
                message = message_class(kind)
            except (ImportError, AttributeError):
                continue
            self._outputs[kind] = node.publisher(message, topic, topics.RESULT)
        self._shown: defaultdict[str, int] = defaultdict(int)  # markers by camera
        self._lock = threading.Lock()

    def publish(self, delta: SemanticDelta, keyframe: Keyframe | None) -> None:
        """Publish the items of a delta, in the frame of its image.

        Args:
            delta: The delta.
            keyframe: The newer of its keyframes; None: it is gone already.
        """
        publishers = {
            kind: publisher
            for kind, publisher in self._outputs.items()
            if publisher.get_subscription_count()
        }
        if not publishers:
            return
        lens = keyframe.intrinsics if keyframe else None
        places = placed_items(delta, lens.width / lens.height) if lens else placed_items(delta)
        if DETECTIONS_3D in publishers:
            publishers[DETECTIONS_3D].publish(items_to_msg(ROS_MESSAGES, delta, places))
        if MARKERS in publishers:
            with self._lock:
                before, self._shown[delta.camera] = self._shown[delta.camera], len(places)
            publishers[MARKERS].publish(markers_to_msg(ROS_MESSAGES, delta, places, before))
        if _PICTURE in publishers and keyframe:
            with suppress(ImageError):  # of a damaged keyframe nothing is drawn
                picture = encode_image(with_items(decode_image(keyframe.image.data), delta.items))
                msg = encoded_image_to_msg(
                    ROS_MESSAGES, keyframe.stamp_ns, keyframe.frame_id, picture
                )
                publishers[_PICTURE].publish(msg)
