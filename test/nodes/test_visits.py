# SPDX-License-Identifier: Apache-2.0
"""A robot that is switched off and on again knows what changed meanwhile: real nodes over DDS."""

from __future__ import annotations

from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Keyframe, LandmarkArray
from embodied_r_ros.bags.messages import header_to_msg, pose_to_msg
from embodied_r_ros.core.scene.place_map import read_places
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from nav_msgs.msg import Odometry
import numpy as np
from sensor_msgs.msg import CameraInfo, Image

from test.core.scene.test_place_map import AWAY, BACK, BALL, BOX, RESTART, WAY
from test.nodes.graph import DEACTIVATE, wait_for
from test.nodes.test_images import raw
from test.raycast_room import CAMERA, Room

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.perception.visit_joint import Joint
    from embodied_r_ros.core.types.geometry import Pose

    from test.nodes.graph import Graph
    from test.raycast_room import Solid


class Robot:
    """A robot with a camera and odometry, whose mind is a process of its own."""

    def __init__(self, graph: Graph, folder: Path) -> None:
        self.graph, self.folder = graph, folder
        graph.active(KeyframeExtractorNode, keyframe__max_overlap=0.97, odom_wait_s=0.2)
        graph.active(SemanticPerceiver, perceiver='classical')
        self.keyframes = graph.inbox(Keyframe, '/keyframe')
        self.maps = graph.inbox(LandmarkArray, '/landmarks', topics.LATCHED)
        self.reports = graph.inbox(DiagnosticArray, '/diagnostics')
        self.images = graph.publisher(Image, '/image', topics.SENSOR)
        self.infos = graph.publisher(CameraInfo, '/camera_info', topics.SENSOR)
        self.odometry = graph.publisher(Odometry, '/odom', topics.SENSOR)

    def switch_on(self) -> None:
        """Start the reasoner, and wait until it hears everything."""
        words = {'autostart': True, 'profile': 'tools', 'map_dir': self.folder}
        self.process = self.graph.process('spatial_reasoner', **words)
        outsider = self.graph.outsider
        wait_for(lambda: outsider.count_subscribers('/semantic_delta') == 1, 'the reasoner', 60)
        wait_for(lambda: outsider.count_subscribers('/keyframe') == 3, 'its ears')
        del self.maps[:]

    def switch_off(self) -> None:
        """Let the reasoner save its map, and kill it."""
        request = ChangeState.Request(transition=Transition(id=DEACTIVATE))
        assert self.graph.call(ChangeState, '/spatial_reasoner/change_state', request).success
        self.process.kill()
        self.process.wait()

    def go(self, way: list[Pose], solids: tuple[Solid, ...], origin: Joint | None = None) -> None:
        """Drive; the origin is where odometry began."""
        for pose in way:
            told = origin.inverse('odom').pose(pose) if origin else pose
            stamp_ns, count = self.graph.outsider.get_clock().now().nanoseconds, len(self.maps)
            odometry = Odometry(header=header_to_msg(ROS_MESSAGES, stamp_ns, 'odom'))
            odometry.pose.pose = pose_to_msg(ROS_MESSAGES, told)
            self.odometry.publish(odometry)
            header = header_to_msg(ROS_MESSAGES, stamp_ns, 'camera')
            matrix = CAMERA.matrix().ravel()
            info = CameraInfo(header=header, width=CAMERA.width, height=CAMERA.height, k=matrix)
            self.infos.publish(info)
            image = raw('bgr8', np.asarray(Room(1).view(pose, solids)))
            image.header = header
            self.images.publish(image)
            self.maps.wait(count + 1)

    def place(self) -> str:
        """Where the reasoner says that the robot is."""
        values = [
            value.value
            for report in self.reports
            for status in report.status
            for value in status.values
            if value.key == 'place'
        ]
        return values[-1] if values else ''

    def ask(self, question: str) -> str:
        handle = self.graph.send_goal(Ask, '/ask', Ask.Goal(question=question))
        return str(self.graph.goal_result(handle)[1].answer.sentence)


def test_after_a_restart_elsewhere_it_knows_what_changed(graph: Graph, tmp_path: Path) -> None:
    robot = Robot(graph, tmp_path)
    robot.switch_on()
    robot.go(WAY, (BALL, BOX))
    assert robot.ask('what changed since last time?').startswith('I was told of no earlier visit')
    old = {one.label.split()[0]: one.id for one in robot.maps[-1].landmarks}
    assert set(old) == {'red', 'blue'}
    robot.switch_off()
    (place,) = read_places(tmp_path)
    assert len(place.keyframes) == len(WAY)
    robot.switch_on()
    robot.go(AWAY, (BOX,), RESTART)
    wait_for(lambda: robot.place().startswith('lost: '), 'the diagnostics')
    told = robot.ask('what changed since last time?')
    assert told.startswith('I did not find myself in the earlier visit')
    robot.go(BACK, (BOX,), RESTART)
    day = np.datetime64(place.last_ns, 'ns').astype('datetime64[D]')
    wait_for(lambda: robot.place() == f'in the map of {day}', 'that it found itself')
    wait_for(lambda: 'gone' in {one.change for one in robot.maps[-1].landmarks}, 'what is gone')
    assert robot.ask('what changed since last time?') == 'The red round object is gone.'
    assert robot.ask('what is new here?').startswith('Nothing that I saw changed')
    now = {one.label.split()[0]: one for one in robot.maps[-1].landmarks}
    assert {colour: one.id for colour, one in now.items()} == old
    assert (now['red'].visit, now['blue'].visit) == (1, 2)
    assert (now['red'].status, now['blue'].status) == (1, 0)
