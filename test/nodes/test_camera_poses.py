# SPDX-License-Identifier: Apache-2.0
"""Poses of a live camera by odometry and by transforms."""

from __future__ import annotations

import math
import threading
from types import SimpleNamespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags import messages
from embodied_r_ros.core.types.geometry import (
    Pose,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.poses import NoPose
from embodied_r_ros.data import own_messages
from embodied_r_ros.nodes import camera_poses, topics
from embodied_r_ros.nodes.camera_poses import BoundedWait, LivePoses, OwnTransforms
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.topics import message_class, ROS_MESSAGES
import pytest

from test.nodes.graph import CONFIGURE, wait_for
from test.nodes.test_keyframe_extractor import Camera, odometry, S, START_NS, view

if TYPE_CHECKING:
    from test.nodes.graph import Graph

CAMERA = 'front_optical'
# Optical axes of a camera that looks ahead, and of one that looks to the left.
AHEAD, LEFT = (-0.5, 0.5, -0.5, 0.5), (-math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5))
LEVEL = (0.0, 0.0, 0.0, 1.0)


def has_tf2_msgs() -> bool:
    try:
        message_class('tf2_msgs/msg/TFMessage')
    except (ImportError, AttributeError):
        return False
    return True


def transforms(stamp_ns: int, **frames: Pose) -> Any:
    """A TFMessage of what lies where in its parent; a stand-in, since its type has no wheel."""
    stamp = messages.stamp_to_msg(ROS_MESSAGES, stamp_ns)
    found = []
    for child, pose in frames.items():
        (x, y, z), (qx, qy, qz, qw) = pose.position, pose.orientation
        moved = SimpleNamespace(
            translation=SimpleNamespace(x=x, y=y, z=z),
            rotation=SimpleNamespace(x=qx, y=qy, z=qz, w=qw),
        )
        header = SimpleNamespace(frame_id=pose.frame_id, stamp=stamp)
        found.append(SimpleNamespace(header=header, child_frame_id=child, transform=moved))
    return SimpleNamespace(transforms=found)


def base(x: float, parent: str = 'odom') -> Pose:
    return Pose((x, 0.0, 0.0), LEVEL, parent)


MOUNT = {CAMERA: Pose((0.2, 0.1, 0.5), AHEAD, 'base_link')}


def feed_drive(poses: LivePoses, *, until_ns: int = START_NS + S) -> OwnTransforms:
    """What the node would have heard of a base that drives one metre in a second."""
    own = OwnTransforms(lambda: START_NS)
    own.take_static(transforms(0, **MOUNT))
    for index in range(11):
        stamp_ns = START_NS + index * S // 10
        if stamp_ns <= until_ns:
            own.take(transforms(stamp_ns, base_link=base(index / 10)))
    poses.transforms = own
    return own


def test_without_odometry_transforms_give_the_pose(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    camera = Camera(graph)
    feed_drive(node._poses)
    camera.send(view(1), START_NS + S // 4)
    keyframe = own_messages.keyframe_from_msg(camera.keyframes.wait(1)[0])
    assert keyframe.pose
    assert keyframe.pose.frame_id == 'odom'
    assert keyframe.pose.position == pytest.approx((0.45, 0.1, 0.5))
    assert keyframe.pose.rotation().ravel() == pytest.approx([1, 0, 0, 0, 1, 0, 0, 0, 1])
    assert node.report().values['pose'] == 'tf'


@pytest.fixture
def no_transform_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a node be configured for transforms that nothing here reads: tests give them."""
    name = 'embodied_r_ros.nodes.keyframe_extractor.check_pose_source'
    monkeypatch.setattr(name, lambda config: None)


@pytest.mark.usefixtures('no_transform_check')
@pytest.mark.parametrize(('source', 'x'), [('auto', 5.2), ('odom', 5.2), ('tf', 0.7)])
def test_odometry_goes_before_transforms_unless_these_are_chosen(
    graph: Graph, source: str, x: float
) -> None:
    at_ns = START_NS + S // 2
    node = graph.active(KeyframeExtractorNode, pose_source=source)
    feed_drive(node._poses)
    said = odometry(at_ns, 5.0, 0.0)
    said.child_frame_id = 'base_link'
    node._poses.take_odometry(said)
    pose = node._poses.at(at_ns, CAMERA)
    assert pose
    assert pose.position[0] == pytest.approx(x)


def test_several_cameras_share_one_frame_of_reference(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    own = feed_drive(node._poses)
    own.take_static(transforms(0, left_optical=Pose((0.0, 0.3, 0.5), LEFT, 'base_link')))
    at_ns = START_NS + S // 2
    ahead, left = (node._poses.at(at_ns, frame) for frame in (CAMERA, 'left_optical'))
    assert ahead
    assert left
    assert ahead.frame_id == left.frame_id == 'odom'
    assert left.position == pytest.approx((0.5, 0.3, 0.5))
    assert yaw_pitch_roll(left.rotation())[0] == pytest.approx(math.pi / 2)


def test_a_root_called_world_is_fixed_and_named(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    own = OwnTransforms(node.now_ns)
    own.take_static(transforms(0, **MOUNT))
    own.take(transforms(START_NS, base_link=base(3.0, 'world')))
    node._poses.transforms = own
    pose = node._poses.at(START_NS, CAMERA)
    assert pose
    assert pose.frame_id == 'world'
    assert pose.position[0] == pytest.approx(3.2)
    assert node.report().values['pose_frame'] == 'world'


@pytest.mark.parametrize(('fixed', 'frame', 'x'), [('map', 'map', 10.7), ('', 'odom', 0.7)])
def test_the_fixed_frame_can_be_chosen(graph: Graph, fixed: str, frame: str, x: float) -> None:
    at_ns = START_NS + S // 2
    node = graph.active(KeyframeExtractorNode, fixed_frame=fixed)
    own = feed_drive(node._poses)
    for index in range(11):
        own.take(transforms(START_NS + index * S // 10, odom=base(10.0, 'map')))
    pose = node._poses.at(at_ns, CAMERA)
    assert pose
    assert pose.frame_id == frame
    assert pose.position[0] == pytest.approx(x)


def test_a_camera_that_moves_on_its_body_is_where_it_was_at_the_stamp(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode)
    own = OwnTransforms(lambda: START_NS)
    own.take_static(transforms(0, **{CAMERA: Pose((0.1, 0.0, 0.0), AHEAD, 'head')}))
    for ns, angle in ((START_NS, 0.0), (START_NS + S, math.pi / 2)):
        turn = (0.0, 0.0, math.sin(angle / 2), math.cos(angle / 2))
        own.take(transforms(ns, head=Pose((0.0, 0.0, 1.0), turn, 'base_link')))
    node._poses.transforms = own
    said = odometry(START_NS + S // 2, 3.0, 0.0)
    said.child_frame_id = 'base_link'
    node._poses.take_odometry(said)
    pose = node._poses.at(START_NS + S // 2, CAMERA)
    assert pose
    assert yaw_pitch_roll(pose.rotation())[0] == pytest.approx(math.pi / 4)
    assert pose.position == pytest.approx((3.0 + 0.1 * math.sqrt(0.5), 0.1 * math.sqrt(0.5), 1.0))


def test_an_image_waits_a_moment_for_its_transforms(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, odom_wait_s=0.2)
    own = feed_drive(node._poses, until_ns=START_NS)
    late = threading.Timer(0.02, own.take, [transforms(START_NS + S // 10, base_link=base(1.0))])
    late.start()
    pose = node._poses.at(START_NS + S // 20, CAMERA)
    late.join()
    assert pose
    assert pose.position[0] == pytest.approx(0.7)


@pytest.mark.usefixtures('no_transform_check')
def test_transforms_that_are_chosen_and_lead_nowhere_are_told(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, pose_source='tf')
    own = OwnTransforms(lambda: START_NS)
    own.take_static(transforms(0, **MOUNT))
    node._poses.transforms = own
    camera = Camera(graph)
    camera.send(view(1), START_NS)
    assert not camera.keyframes.wait(1)[0].has_pose
    text = f'no transforms lead from {CAMERA} to odom or map: they end at base_link'
    assert text in node.report().message
    assert node.report().values['poses_missing'] == 1


@pytest.mark.skipif(has_tf2_msgs(), reason='tf2_msgs is installed')
def test_transforms_that_nothing_reads_are_refused_or_told(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(KeyframeExtractorNode, pose_source='tf')
    assert not graph.try_change(node, CONFIGURE)
    [line] = [line for line in capfd.readouterr().err.splitlines() if 'not configured' in line]
    assert "pose_source is 'tf', and tf2_msgs is not installed" in line


@pytest.mark.skipif(not has_tf2_msgs(), reason='tf2_msgs is not installed')
def test_transforms_come_over_dds(graph: Graph) -> None:
    node = graph.active(KeyframeExtractorNode, pose_source='tf', odom_wait_s=0.2)
    assert node.report().values['transforms'] == 'heard'
    camera = Camera(graph)
    kind = message_class('tf2_msgs/msg/TFMessage')
    static = graph.publisher(kind, '/tf_static', topics.LATCHED)
    moving = graph.publisher(kind, '/tf', topics.TRANSFORMS)
    static.publish(messages.transforms_to_msg(ROS_MESSAGES, 0, MOUNT))
    for index in range(3):
        frames = {'base_link': base(float(index))}
        moving.publish(
            messages.transforms_to_msg(ROS_MESSAGES, START_NS + index * S // 10, frames)
        )

    def is_known() -> bool:
        transforms = node._poses.transforms
        assert transforms
        found = transforms.camera_in('odom', CAMERA, START_NS + S // 5, 0.0)
        return not isinstance(found, NoPose)

    wait_for(is_known, 'the transforms')
    camera.send(view(1), START_NS + S // 20)
    keyframe = own_messages.keyframe_from_msg(camera.keyframes.wait(1)[0])
    assert keyframe.pose
    assert keyframe.pose.position == pytest.approx((0.7, 0.1, 0.5))


def test_what_always_comes_a_little_late_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = threading.Condition()
    wait = BoundedWait(change)
    arrival = threading.Event()

    def arrive() -> None:
        with change:
            arrival.set()
            change.notify_all()

    monkeypatch.setattr(camera_poses, '_TRY_AGAIN_S', 3600.0)
    with change:
        assert [wait.until(arrival.is_set, 0.01) for _ in range(3)] == [False] * 3
        assert not wait.until(arrival.is_set, 3600.0)  # given up
    wait._again_s = 0.0  # some time later
    late = threading.Timer(0.05, arrive)
    late.start()
    with change:
        assert wait.until(arrival.is_set, 20.0)
    late.join()
    assert wait._in_vain == 0
