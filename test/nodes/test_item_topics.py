# SPDX-License-Identifier: Apache-2.0
"""Boxes of a ROS detector come in, and items with a place go out, over DDS."""

from __future__ import annotations

from dataclasses import replace
import threading
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import Keyframe, SemanticDelta
from embodied_r_ros.bags.messages import camera_info_to_msg, header_to_msg
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.geometry import Intrinsics
from embodied_r_ros.core.types.images import decode_image, encode_image, pack_depth
from embodied_r_ros.data.own_messages import delta_from_msg, keyframe_to_msg
from embodied_r_ros.nodes import live_detections, topics
from embodied_r_ros.nodes.live_detections import DetectionsConfig, LiveDetections
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.topics import message_class, ROS_MESSAGES
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import Header

from test.bags.test_vision_messages import array, box, entry
from test.nodes.graph import CONFIGURE, wait_for
from test.nodes.test_semantic_perceiver import keyframe_with_id, S
from test.raycast_room import pose_at, Room, Solid

if TYPE_CHECKING:
    from embodied_r_ros.core.types import keyframes

    from test.nodes.graph import Graph

LENS = Intrinsics(320, 240, 300.0, 300.0, 159.5, 119.5)


def is_installed(type_name: str) -> bool:
    try:
        message_class(type_name)
    except (ImportError, AttributeError):
        return False
    return True


HAS_VISION = is_installed('vision_msgs/msg/Detection3DArray')
HAS_MARKERS = is_installed('visualization_msgs/msg/MarkerArray')
needs_vision = pytest.mark.skipif(not HAS_VISION, reason='vision_msgs is not installed')


def shot(index: int = 0) -> keyframes.Keyframe:
    """A keyframe with depth: all that it shows is two metres away."""
    depth = pack_depth(np.full((120, 160), 2.0, np.float32))
    return replace(
        keyframe_with_id(index), intrinsics=LENS, depth=depth, frame_id='front_optical', pose=None
    )


def keyframe_with_ball(index: int) -> keyframes.Keyframe:
    """A keyframe that shows a red ball."""
    ball = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
    image = Room(0, contrast=0.6).view(pose_at(-0.8, 0.0, 1.0, 0.0, 0.1), (ball,))
    return replace(shot(index), image=encode_image(image))


def boxes(stamp_ns: int, label: str = 'cup', frame: str = 'front_optical') -> Any:
    """A stand-in of a Detection2DArray."""
    header = header_to_msg(ROS_MESSAGES, stamp_ns, frame)
    return SimpleNamespace(
        header=header, **vars(array(entry(box(160, 120, 40, 40), **{label: 0.8})))
    )


@pytest.fixture
def live(monkeypatch: pytest.MonkeyPatch) -> LiveDetections:
    """What hears boxes, wherever vision_msgs is not installed too."""
    monkeypatch.setattr(live_detections, 'installed_class', lambda name: Header)
    return LiveDetections(DetectionsConfig(listen=True))


def test_a_keyframe_has_the_boxes_of_its_stamp_and_frame(live: LiveDetections) -> None:
    keyframe = shot()
    live.take(boxes(keyframe.stamp_ns + S // 100, 'cup'))
    live.take(boxes(keyframe.stamp_ns, 'other', frame='rear_optical'))
    live.take(boxes(keyframe.stamp_ns + S, 'later'))
    assert [one.label for one in live.of(keyframe)] == ['cup']
    for index in range(100):  # the keyframe is asked for again when the next one is compared
        live.take(boxes(keyframe.stamp_ns + (index + 2) * S))
    assert [one.label for one in live.of(keyframe)] == ['cup']
    assert live.unmatched == 0


def test_a_camera_that_sends_much_takes_no_room_of_another_one(live: LiveDetections) -> None:
    keyframe = shot()
    live.take(boxes(keyframe.stamp_ns), 'front')
    for index in range(100):
        live.take(boxes(keyframe.stamp_ns + index, 'other', frame='rear_optical'), 'rear')
    assert [one.label for one in live.of(keyframe)] == ['cup']
    assert len(live._waiting['rear']) == 64


def test_a_camera_without_boxes_keeps_no_other_one_from_waiting(live: LiveDetections) -> None:
    live.take(boxes(0, frame='left_optical'), 'left')  # some detector is there
    live.config = DetectionsConfig(listen=True, wait_s=0.01)
    for index in range(3):
        assert live.of(replace(shot(index), camera='rear', frame_id='rear_optical')) == ()
    live.config = DetectionsConfig(listen=True, wait_s=5.0)
    keyframe = replace(shot(3), camera='front')
    later = threading.Timer(0.05, live.take, [boxes(keyframe.stamp_ns), 'front'])
    later.start()
    assert [one.label for one in live.of(keyframe)] == ['cup']
    later.join()


def test_boxes_of_another_time_are_not_used_and_counted(live: LiveDetections) -> None:
    keyframe = shot()
    live.take(boxes(keyframe.stamp_ns + S // 10))
    assert live.of(keyframe) == ()
    assert live.values()['detections_unmatched'] == 1


def test_boxes_of_a_larger_image_are_fitted_to_the_keyframe(live: LiveDetections) -> None:
    large = LENS.scaled(640, 480)
    live._take_camera_info(camera_info_to_msg(ROS_MESSAGES, 0, 'front_optical', large))
    first, second = shot(0), shot(1)
    # Nothing says that these boxes are not of the keyframe itself.
    live.take(boxes(first.stamp_ns))
    assert live.of(first)[0].box == (140, 100, 180, 140)
    beyond = boxes(second.stamp_ns)
    beyond.detections = [entry(box(600, 400, 40, 40), cup=0.8)]
    live.take(beyond)
    assert live.of(second)[0].box == (290, 190, 310, 210)


@pytest.mark.skipif(HAS_VISION, reason='vision_msgs is installed')
def test_boxes_that_cannot_be_heard_are_refused(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(SemanticPerceiver, perceiver='classical', detections__listen=True)
    assert not graph.try_change(node, CONFIGURE)
    assert 'detections.listen is true, and vision_msgs is not installed' in capfd.readouterr().err


@needs_vision
def test_boxes_of_a_detector_become_items_with_names_and_places(graph: Graph) -> None:
    graph.active(
        SemanticPerceiver,
        perceiver='classical',
        detections__listen=True,
        detections__wait_s=5.0,
    )
    keyframes = graph.publisher(Keyframe, 'keyframe', topics.RESULT)
    kind = message_class('vision_msgs/msg/Detection2DArray')
    detector = graph.publisher(kind, 'detections', topics.SENSOR)
    deltas = graph.inbox(SemanticDelta, 'semantic_delta')
    items = graph.inbox(message_class('vision_msgs/msg/Detection3DArray'), 'items')
    graph.matched('semantic_delta')
    graph.matched('items')
    keyframe = shot()
    msg = kind(header=header_to_msg(ROS_MESSAGES, keyframe.stamp_ns, 'front_optical'))
    found = message_class('vision_msgs/msg/Detection2D')()
    found.bbox.center.position.x, found.bbox.center.position.y = 160.0, 120.0
    found.bbox.size_x = found.bbox.size_y = 40.0
    result = message_class('vision_msgs/msg/ObjectHypothesisWithPose')()
    result.hypothesis.class_id, result.hypothesis.score = 'cup', 0.8
    found.results = [result]
    msg.detections = [found]
    detector.publish(msg)
    keyframes.publish(keyframe_to_msg(ROS_MESSAGES, keyframe))
    delta = delta_from_msg(deltas.wait(1)[0])
    cups = [item for item in delta.items if item.label.endswith('cup')]
    assert [item.scale for item in cups] == [ScaleSource.DEPTH]
    [array_3d] = items.wait(1)
    assert array_3d.header.frame_id == 'front_optical'
    places = [
        one.bbox.center.position
        for one in array_3d.detections
        if one.results[0].hypothesis.class_id.endswith('cup')
    ]
    assert len(places) == 1
    assert places[0].z == pytest.approx(2.07, abs=0.02)
    assert abs(places[0].x) < 0.02


@pytest.mark.skipif(not HAS_MARKERS, reason='visualization_msgs is not installed')
def test_markers_come_while_somebody_hears_them(graph: Graph) -> None:
    node = graph.active(SemanticPerceiver, perceiver='classical')
    keyframes = graph.publisher(Keyframe, 'keyframe', topics.RESULT)
    deltas = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    keyframes.publish(keyframe_to_msg(ROS_MESSAGES, keyframe_with_ball(0)))
    deltas.wait(1)
    assert not node._items._shown
    shown = graph.inbox(message_class('visualization_msgs/msg/MarkerArray'), 'items/markers')
    graph.matched('items/markers')
    keyframes.publish(keyframe_to_msg(ROS_MESSAGES, keyframe_with_ball(1)))
    wait_for(lambda: shown, 'markers')
    items = [item for item in delta_from_msg(deltas.wait(2)[1]).items if item.position]
    assert len(shown[0].markers) == 2 * len(items) > 0
    assert {marker.header.frame_id for marker in shown[0].markers} == {'front_optical'}


def test_the_keyframe_is_drawn_with_its_boxes_while_somebody_looks(graph: Graph) -> None:
    graph.active(SemanticPerceiver, perceiver='classical')
    keyframes = graph.publisher(Keyframe, 'keyframe', topics.RESULT)
    pictures = graph.inbox(CompressedImage, 'items/image/compressed')
    graph.matched('items/image/compressed')
    keyframe = keyframe_with_ball(0)
    keyframes.publish(keyframe_to_msg(ROS_MESSAGES, keyframe))
    [msg] = pictures.wait(1)
    before = decode_image(keyframe.image.data).astype(int)
    drawn = decode_image(bytes(msg.data)).astype(int)
    changed = np.abs(drawn - before).max(axis=2) > 60
    assert (msg.header.frame_id, drawn.shape) == ('front_optical', before.shape)
    assert 100 < changed.sum() < 0.2 * changed.size
