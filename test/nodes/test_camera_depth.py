# SPDX-License-Identifier: Apache-2.0
"""Depth of a live camera: it comes over DDS beside the images, before or after them, or not."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags import messages
from embodied_r_ros.bags.depth import depth_to_msg
from embodied_r_ros.core.types.images import pack_depth
from embodied_r_ros.data import own_messages
from embodied_r_ros.nodes import keyframe_extractor, topics
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.topics import ROS_MESSAGES
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from test.nodes.graph import wait_for
from test.nodes.test_keyframe_extractor import Camera, S, START_NS, view

if TYPE_CHECKING:
    from test.nodes.graph import Graph

MS = S // 1000
FRAME = 'front_optical'  # of the images


def wall(distance_m: float, stamp_ns: int, frame: str = FRAME, **size: int) -> Image:
    """Depth of a wall; half the size of the images where nothing else is said."""
    shape = size.get('height', 120), size.get('width', 160)
    metres = np.full(shape, distance_m, np.float32)
    msg: Image = depth_to_msg(ROS_MESSAGES, stamp_ns, frame, metres)
    return msg


def seen_m(msg: Any) -> float | None:
    """Depth of a keyframe's first pixel [m]."""
    depth = own_messages.keyframe_from_msg(msg).depth
    return None if depth is None else float(depth.unpack()[0, 0])


@pytest.mark.parametrize('offset_ms', [0, 15, -15])
def test_keyframes_have_the_depth_of_their_stamp(graph: Graph, offset_ms: int) -> None:
    node = graph.active(KeyframeExtractorNode, queue=10, depth_wait_s=0.5)
    camera = Camera(graph)
    depths = graph.publisher(Image, 'depth', topics.SENSOR)
    for index in range(3):
        stamp_ns = START_NS + index * S // 10
        depths.publish(wall(1.0 + index, stamp_ns + offset_ms * MS))
        camera.send(view(index), stamp_ns)
    # Nothing newer than the last image may come: the nearest one is not certain until it does.
    depths.publish(wall(9.0, START_NS + S))
    found = camera.keyframes.wait(3)
    assert [seen_m(msg) for msg in found] == pytest.approx([1.0, 2.0, 3.0])
    values = node.report().values
    assert values['depth_paired'] == 3
    assert values['depth_unpaired'] == 0


def test_an_image_waits_a_moment_for_its_depth(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, depth_wait_s=0.5)
    camera = Camera(graph)
    depths = graph.publisher(Image, 'depth', topics.SENSOR)
    depths.publish(wall(9.0, START_NS - S // 10))
    wait_for(lambda: node._depth.received.count == 1, 'depth')
    camera.send(view(1), START_NS)
    wait_for(lambda: node._images.count == 1, 'the image')
    depths.publish(wall(2.0, START_NS))
    assert seen_m(camera.keyframes.wait(1)[0]) == pytest.approx(2.0)


def test_an_image_that_waited_long_for_others_has_its_depth(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keyframe_extractor, '_GONE_S', -1.0)  # all depth is too long ago
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    graph.publisher(Image, 'depth', topics.SENSOR).publish(wall(2.0, START_NS))
    wait_for(lambda: node._depth.received.count == 1, 'depth')
    camera.send(view(1), START_NS)
    assert seen_m(camera.keyframes.wait(1)[0]) == pytest.approx(2.0)


@pytest.mark.parametrize(
    ('depth', 'message'),
    [
        (wall(2.0, START_NS, 'infra1_optical'), "depth is of frame 'infra1_optical', the images"),
        (wall(2.0, START_NS, height=90), 'depth is of 160x90 pixels, the images of 320x240'),
        (Image(encoding='bgr8', height=1, width=1, step=3, data=[0, 0, 0]), "'bgr8' is no depth"),
    ],
)
def test_depth_that_is_not_registered_is_told_and_not_used(
    graph: Graph, depth: Image, message: str
) -> None:
    node = graph.active(KeyframeExtractorNode, depth_wait_s=0.5)
    camera = Camera(graph)
    depth.header.stamp = messages.stamp_to_msg(ROS_MESSAGES, START_NS)
    graph.publisher(Image, 'depth', topics.SENSOR).publish(depth)
    wait_for(lambda: node._depth.received.count == 1, 'depth')
    camera.send(view(1), START_NS)
    assert seen_m(camera.keyframes.wait(1)[0]) is None
    assert message in node.report().message


def test_compressed_depth_follows_the_remapped_base_name(graph: Graph) -> None:
    def remapped_node(**options: Any) -> KeyframeExtractorNode:
        arguments = ['--ros-args', '-r', 'depth:=/front/aligned/image_raw']
        return KeyframeExtractorNode(cli_args=arguments, **options)

    node = graph.active(
        remapped_node, depth_transport='compressedDepth', depth_unit_m=0.0005, depth_wait_s=0.5
    )
    camera = Camera(graph)
    topic = '/front/aligned/image_raw/compressedDepth'
    msg = CompressedImage(format='16UC1; compressedDepth png')
    msg.header = messages.header_to_msg(ROS_MESSAGES, START_NS, FRAME)
    packed = pack_depth(np.full((120, 160), 4.0, np.float32))  # in millimetres
    msg.data = ROS_MESSAGES.array('uint8', bytes(12) + packed.data)
    graph.publisher(CompressedImage, topic, topics.SENSOR).publish(msg)
    wait_for(lambda: node._depth.received.count == 1, 'depth')
    camera.send(view(1), START_NS)
    assert seen_m(camera.keyframes.wait(1)[0]) == pytest.approx(2.0)
    assert graph.outsider.count_subscribers('/front/aligned/camera_info') == 1


def test_depth_can_be_left_alone(graph: Graph) -> None:
    graph.active(KeyframeExtractorNode, depth_transport='none')
    assert graph.outsider.count_subscribers('/depth') == 0
