# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from itertools import pairwise
import json
import math
import re
import threading
import time
from typing import Any, TYPE_CHECKING

import cv2
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import EpisodeMark, Keyframe
from embodied_r_ros.bags import messages
from embodied_r_ros.core.types.geometry import Intrinsics, Pose, yaw_pitch_roll
from embodied_r_ros.core.types.images import EncodedImage, StampedImage
from embodied_r_ros.data import own_messages
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.topics import robot_remappings, ROS_MESSAGES
from nav_msgs.msg import Odometry
import numpy as np
import pytest
from sensor_msgs.msg import CameraInfo, CompressedImage, Image, TimeReference
from std_msgs.msg import String

from bench.own_body import own_parts, with_own_parts
from test.nodes.graph import ACTIVATE, CONFIGURE, wait_for
from test.nodes.test_images import raw
from test.raycast_room import pose_at, Room

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from test.nodes.graph import Graph, Inbox

S = 1_000_000_000
START_NS = 1_700_000_000 * S


def view(seed: int) -> NDArray[np.uint8]:
    """A view full of corners; two seeds share nothing."""
    rng = np.random.default_rng(seed)
    blocks = rng.integers(0, 255, (30, 40, 3), np.uint8)
    return np.asarray(cv2.resize(blocks, (320, 240), interpolation=cv2.INTER_NEAREST), np.uint8)


class Camera:
    """A camera in front of the node: sends images, remembers keyframes."""

    def __init__(self, graph: Graph, transport: str = 'raw', namespace: str = '') -> None:
        kind = Image if transport == 'raw' else CompressedImage
        topic = 'image' if transport == 'raw' else 'image/compressed'
        self.images = graph.publisher(kind, f'{namespace}/{topic}', topics.SENSOR)
        self.keyframes: Inbox = graph.inbox(Keyframe, f'{namespace}/keyframe')
        graph.matched(f'{namespace}/keyframe')

    def send(self, pixels: NDArray[Any], stamp_ns: int, encoding: str = 'bgr8') -> None:
        msg = raw(encoding, pixels)
        msg.header.stamp = messages.stamp_to_msg(ROS_MESSAGES, stamp_ns)
        self.images.publish(msg)

    def send_compressed(self, data: bytes, stamp_ns: int) -> None:
        msg = messages.encoded_image_to_msg(
            ROS_MESSAGES, stamp_ns, 'front_optical', EncodedImage(data, 'jpeg')
        )
        self.images.publish(msg)


def test_a_camera_that_stands_still_tells_that_nothing_changed_and_what_did(
    graph: Graph,
) -> None:
    graph.active(KeyframeExtractorNode, camera='front', queue=100)
    camera = Camera(graph)
    unchanged: Inbox = graph.inbox(TimeReference, '/unchanged')
    graph.matched('/unchanged')
    changed = view(1)
    changed[60:140, 120:180] = view(2)[60:140, 120:180]
    for index in range(60):
        camera.send(view(1) if index < 40 else changed, START_NS + index * S // 10)
        time.sleep(0.02)  # the camera's queue is short
    _, event = camera.keyframes.wait(2)
    assert event.reason == Keyframe.REASON_CONTENT_CHANGE
    event_ns = messages.stamp_ns_from_msg(event.header.stamp)
    assert 4 * S < event_ns - START_NS <= 5 * S
    said = unchanged.wait(6)
    assert {msg.source for msg in said} == {'front'}
    looks = [messages.stamp_ns_from_msg(msg.header.stamp) for msg in said]
    keyframes = [messages.stamp_ns_from_msg(msg.time_ref) for msg in said]
    assert all(later - earlier >= S // 2 for earlier, later in pairwise(looks))
    assert keyframes[0] == START_NS
    assert all(
        look < event_ns for look, of in zip(looks, keyframes, strict=True) if of == START_NS
    )


def test_new_views_become_keyframes_with_their_own_header(graph: Graph) -> None:
    graph.active(KeyframeExtractorNode, camera='front', queue=10)
    camera = Camera(graph)
    for index, seed in enumerate([1, 1, 2, 2, 3]):
        camera.send(view(seed), START_NS + index * S // 10 + 1)
    found = camera.keyframes.wait(3)
    stamps = [msg.header.stamp.sec * S + msg.header.stamp.nanosec - START_NS for msg in found]
    assert stamps == [1, 2 * S // 10 + 1, 4 * S // 10 + 1]
    assert {(msg.header.frame_id, msg.camera) for msg in found} == {('front_optical', 'front')}
    assert [(msg.id, msg.reference_id) for msg in found] == [(1, 1), (2, 1), (3, 2)]
    assert [msg.reason for msg in found] == [
        Keyframe.REASON_FIRST,
        Keyframe.REASON_NEW_VIEW,
        Keyframe.REASON_NEW_VIEW,
    ]
    assert own_messages.keyframe_from_msg(found[2]).image.decode().shape == (240, 320, 3)


def test_a_reader_that_comes_later_misses_no_first_keyframe(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    images = graph.publisher(Image, 'image', topics.SENSOR)
    msg = raw('bgr8', view(1))
    msg.header.stamp = messages.stamp_to_msg(ROS_MESSAGES, START_NS)
    images.publish(msg)
    wait_for(lambda: node._keyframes.count == 1, 'the keyframe')
    assert [keyframe.id for keyframe in graph.inbox(Keyframe, 'keyframe').wait(1)] == [1]


def test_compressed_images_are_passed_on_as_they_came(graph: Graph) -> None:
    graph.active(KeyframeExtractorNode, image_transport='compressed')
    camera = Camera(graph, 'compressed')
    data = cv2.imencode('.jpg', view(1))[1].tobytes()
    camera.send_compressed(data, START_NS)
    assert bytes(camera.keyframes.wait(1)[0].image.data) == data


def test_compressed_topic_follows_the_remapped_base_name(graph: Graph) -> None:
    def remapped_node(**options: Any) -> KeyframeExtractorNode:
        return KeyframeExtractorNode(
            cli_args=['--ros-args', '-r', 'image:=/front/color/image_raw'], **options
        )

    graph.active(remapped_node, image_transport='compressed')
    assert graph.outsider.count_subscribers('/front/color/image_raw/compressed') == 1
    assert graph.outsider.count_subscribers('/image/compressed') == 0


def odometry(stamp_ns: int, x: float, yaw: float) -> Odometry:
    msg = Odometry()
    msg.header = messages.header_to_msg(ROS_MESSAGES, stamp_ns, 'odom')
    pose = Pose((x, 0.0, 0.0), (0.0, 0.0, math.sin(yaw / 2), math.cos(yaw / 2)), 'odom')
    msg.pose.pose = messages.pose_to_msg(ROS_MESSAGES, pose)
    return msg


def test_keyframe_knows_the_pose_of_its_camera_at_the_stamp(graph: Graph) -> None:
    node = graph.active(
        KeyframeExtractorNode, mount_xyz=[0.2, 0.0, 0.5], mount_rpy=[0.0, 0.0, math.pi / 2]
    )
    camera = Camera(graph)
    odom = graph.publisher(Odometry, 'odom', topics.SENSOR)
    odom.publish(odometry(START_NS, 1.0, 0.0))
    odom.publish(odometry(START_NS + S // 10, 2.0, 0.0))
    wait_for(lambda: node._poses.odometry.count == 2, 'odometry')
    camera.send(view(1), START_NS + S // 20)
    keyframe = own_messages.keyframe_from_msg(camera.keyframes.wait(1)[0])
    assert keyframe.pose is not None
    assert keyframe.pose.position == pytest.approx((1.7, 0.0, 0.5))
    assert keyframe.pose.frame_id == 'odom'
    assert yaw_pitch_roll(keyframe.pose.rotation())[0] == pytest.approx(math.pi / 2)


def test_keyframe_has_the_intrinsics_of_its_image(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, keyframe__image_max_side_px=160)
    camera = Camera(graph)
    infos = graph.publisher(CameraInfo, 'camera_info', topics.SENSOR)
    known = Intrinsics(320, 240, 200.0, 200.0, 159.5, 119.5)
    infos.publish(messages.camera_info_to_msg(ROS_MESSAGES, START_NS, 'front_optical', known))
    wait_for(lambda: node._camera_info, 'camera_info')
    camera.send(view(1), START_NS)
    keyframe = own_messages.keyframe_from_msg(camera.keyframes.wait(1)[0])
    assert keyframe.intrinsics == Intrinsics(160, 120, 100.0, 100.0, 79.5, 59.5)


CALIBRATION = """
image_width: 320
image_height: 240
distortion_model: plumb_bob
camera_matrix: {rows: 3, cols: 3, data: [200.0, 0, 160.0, 0, 210.0, 120.0, 0, 0, 1.0]}
distortion_coefficients: {rows: 1, cols: 5, data: [0.1, 0, 0, 0, 0]}
"""


def test_camera_without_camera_info_has_the_calibration_of_a_file(
    graph: Graph, tmp_path: Path
) -> None:
    file = tmp_path / 'front.yaml'
    file.write_text(CALIBRATION)
    graph.active(KeyframeExtractorNode, calibration=str(file))
    camera = Camera(graph)
    infos = graph.publisher(CameraInfo, 'camera_info', topics.SENSOR)
    infos.publish(CameraInfo())  # of a camera that does not know
    camera.send(view(1), START_NS)
    [keyframe] = camera.keyframes.wait(1)
    known = own_messages.keyframe_from_msg(keyframe).intrinsics
    assert known == Intrinsics(320, 240, 200.0, 210.0, 160.0, 120.0, (0.1, 0.0, 0.0, 0.0, 0.0))


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (None, 'cannot be read (No such file or directory): calibrate the camera'),
        ('image_width: 320', "is not usable: 'image_height': expected YAML"),
        ('[' * 5000, 'is not usable: RecursionError'),
        (CALIBRATION.replace('200.0, 0,', '200.0,'), '8 numbers, expected 9'),
        (CALIBRATION.replace('plumb_bob', 'omnidirectional'), 'expected plumb_bob'),
    ],
)
def test_missing_calibration_fails_the_configuration_in_one_line(
    graph: Graph,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    content: str | None,
    message: str,
) -> None:
    file = tmp_path / 'front.yaml'
    if content is not None:
        file.write_text(content)
    node = graph.add(KeyframeExtractorNode, calibration=str(file))
    assert not graph.try_change(node, CONFIGURE)
    [line] = [line for line in capfd.readouterr().err.splitlines() if 'not configured' in line]
    assert f'not configured: calibration {file}' in line
    assert message in line
    file.write_text(CALIBRATION)
    graph.change(node, CONFIGURE, ACTIVATE)


def turning_with_gripper(images: int) -> list[NDArray[np.uint8]]:
    """What a camera on an arm sees that looks around a room."""
    room, surface = Room(3), Room(9).view(pose_at(0, 0, 1.2))
    seen = [
        StampedImage(
            index, 0, room.view(pose_at(0, 0, 1.2, 0.9 * math.sin(0.2 * index), 0.05 * index))
        )
        for index in range(images)
    ]
    return [image.image for image in with_own_parts(seen, 'gripper', surface)]


def status_values(graph: Graph, key: str, sought: str) -> str:
    """The value of a key of the diagnostics, once it holds a text."""
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')

    def newest() -> str:
        values = [v.value for a in arrays[-1:] for v in a.status[0].values if v.key == key]
        assert len(values) <= 1
        return next((value for value in values if sought in value), '')

    return str(wait_for(newest, f'{key}: {sought}'))


def test_diagnostics_name_what_is_fixed_to_the_camera_once(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    graph.active(KeyframeExtractorNode, queue=30, **{'keyframe.max_interval_s': 0.5})
    camera = Camera(graph)
    for index, image in enumerate(turning_with_gripper(20)):
        camera.send(image, START_NS + index * S // 10)
    text = status_values(graph, 'fixed_to_camera', 'fixed to the camera')
    assert re.match(r'fixed to the camera: 1\d% of the image, bottom \(found at image \d+\)', text)
    assert capfd.readouterr().err.count('fixed to the camera') == 1
    newest = wait_for(
        lambda: next((k for k in camera.keyframes[::-1] if len(k.fixed_mask.data)), None),
        'a keyframe with the mask',
    )
    keyframe = own_messages.keyframe_from_msg(newest)
    assert keyframe.fixed_mask is not None
    assert 0.1 < keyframe.fixed_mask.unpack(320, 240).mean() < 0.2


def test_a_mask_is_a_parameter(
    graph: Graph, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    mask = tmp_path / 'mask.png'
    node = graph.add(KeyframeExtractorNode, **{'keyframe.mask': str(mask)})
    assert not graph.try_change(node, CONFIGURE)
    [line] = [line for line in capfd.readouterr().err.splitlines() if 'not configured' in line]
    assert f'mask {mask} cannot be read: No such file' in line
    cv2.imwrite(str(mask), own_parts('hood', 640, 480).astype(np.uint8) * 255)
    graph.change(node, CONFIGURE, ACTIVATE)
    camera = Camera(graph)
    camera.send(view(1), START_NS)
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    message = wait_for(
        lambda: next((a.status[0].message for a in arrays if a.status[0].level == b'\x01'), None),
        'a warning',
    )
    assert f'mask {mask} is 640x480: expected 320x240' in message
    camera.send(cv2.resize(view(1), (640, 480)), START_NS + S)
    assert len(camera.keyframes.wait(1)[0].fixed_mask.data)
    assert 'bottom' in status_values(graph, 'fixed_to_camera', 'by ')


def test_calibration_of_another_size_is_not_used(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    infos = graph.publisher(CameraInfo, 'camera_info', topics.SENSOR)
    known = Intrinsics(640, 400, 400.0, 400.0, 319.5, 199.5)
    infos.publish(messages.camera_info_to_msg(ROS_MESSAGES, START_NS, 'front_optical', known))
    wait_for(lambda: node._camera_info, 'camera_info')
    camera.send(view(1), START_NS)
    assert not any(camera.keyframes.wait(1)[0].k)
    assert 'camera_info is of 640x400' in node.report().message


def test_wrong_encoding_is_counted_and_survived(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    camera.send(np.zeros((240, 320), np.uint16), START_NS, encoding='16UC1')
    wait_for(lambda: node._problems.count == 1, 'the problem')
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    status = wait_for(
        lambda: next((a.status[0] for a in arrays if a.status[0].level == b'\x01'), None),
        'a warning',
    )
    assert "encoding '16UC1'" in status.message
    camera.send(view(1), START_NS + S)
    camera.keyframes.wait(1)


def test_silent_camera_is_stale(graph: Graph) -> None:
    graph.active(KeyframeExtractorNode, silence_s=0.1)
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    status = wait_for(
        lambda: next((a.status[0] for a in arrays if a.status[0].level == b'\x03'), None), 'STALE'
    )
    assert 'no image for' in status.message


def mark(event: int, episode_id: str = 'e7') -> EpisodeMark:
    return EpisodeMark(episode_id=episode_id, event=event)


def test_episode_starts_a_new_stream_and_names_its_keyframes(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    camera.send(view(1), START_NS)
    camera.send(view(2), START_NS + S // 10)
    camera.keyframes.wait(2)
    marks = graph.publisher(EpisodeMark, 'episode_mark', topics.LATCHED)
    marks.publish(mark(EpisodeMark.EVENT_START))
    wait_for(lambda: node._episode_id == 'e7', 'the mark')
    camera.send(view(2), START_NS + S)
    found = camera.keyframes.wait(3)
    assert [(msg.id, msg.episode_id) for msg in found] == [(1, ''), (2, ''), (1, 'e7')]
    marks.publish(mark(EpisodeMark.EVENT_STOP))
    wait_for(lambda: node._episode_id == '', 'the mark')
    camera.send(view(3), START_NS + 2 * S)
    assert camera.keyframes.wait(4)[3].episode_id == ''


def test_cameras_in_namespaces_share_what_their_robot_has_once(graph: Graph) -> None:
    rules = [f'{name}:={topic}' for name, topic in robot_remappings('robot1').items()]
    arguments = ['--ros-args', *(part for rule in rules for part in ('-r', rule))]

    def make(**options: Any) -> KeyframeExtractorNode:
        return KeyframeExtractorNode(cli_args=arguments, **options)

    cameras = ('/robot1/front', '/robot1/rear')
    nodes = [graph.active(make, namespace=camera) for camera in cameras]
    said = graph.inbox(String, '/robot1/provenance', topics.LATCHED_OF_MANY)
    marks = graph.publisher(EpisodeMark, '/robot1/episode_mark', topics.LATCHED, readers=2)
    marks.publish(mark(EpisodeMark.EVENT_START))
    wait_for(lambda: [node._episode_id for node in nodes] == ['e7', 'e7'], 'the mark')
    graph.publisher(Odometry, '/robot1/odom', topics.SENSOR, readers=2)
    assert {json.loads(msg.data)['node'] for msg in said.wait(2)} == {
        f'{camera}/keyframe_extractor' for camera in cameras
    }


def test_latched_episode_is_known_to_a_node_that_starts_later(graph: Graph) -> None:
    marks = graph.outsider.create_publisher(EpisodeMark, 'episode_mark', topics.LATCHED)
    marks.publish(mark(EpisodeMark.EVENT_START))
    node = graph.active(KeyframeExtractorNode)
    wait_for(lambda: node._episode_id == 'e7', 'the latched mark')


def test_slow_evaluation_drops_images_and_says_so(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    started, go = threading.Event(), threading.Event()
    process = node._extractor.process

    def slow(*arguments: Any) -> Any:
        started.set()
        go.wait(20)
        return process(*arguments)

    monkeypatch.setattr(node._extractor, 'process', slow)
    camera.send(view(0), START_NS)
    assert started.wait(20)
    for index in range(1, 7):
        camera.send(view(index), START_NS + index * S // 10)
    wait_for(lambda: node._worker.dropped == 4, 'four dropped images')
    go.set()
    found = camera.keyframes.wait(3)
    assert [msg.dropped_images for msg in found] == [0, 4, 0]
    assert node.report().values['dropped_images'] == 4


def test_selection_can_be_changed_while_it_runs(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    result = graph.parameter(node, 'keyframe.max_overlap', 1.5)
    assert not result.successful
    assert graph.parameter(node, 'keyframe.min_interval_s', 100.0).successful
    camera = Camera(graph)
    camera.send(view(1), START_NS)
    camera.keyframes.wait(1)
    camera.send(view(2), START_NS + S)
    wait_for(lambda: node._extractor.selector.counts['images'] == 2, 'the second image')
    assert len(camera.keyframes) == 1


def test_budget_of_a_recording_is_no_parameter_of_a_stream(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, keyframe__budget=5)
    [warning] = node.parameters.warnings
    assert warning.startswith("parameter 'keyframe.budget' is not used: known: keyframe.find_f")
    result = graph.parameter(node, 'keyframe.budget', 5)
    assert not result.successful
    assert 'undeclared parameter' in result.reason


def test_images_without_a_stamp_are_told(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    camera.send(view(1), 0)
    camera.keyframes.wait(1)
    assert 'images have no stamp' in node.report().message
