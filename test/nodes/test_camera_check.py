# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embodied_r_ros.nodes import qos
from embodied_r_ros.nodes.camera_check import look_for_camera
from sensor_msgs.msg import Image

if TYPE_CHECKING:
    import pytest

    from test.nodes.graph import Graph


def test_a_camera_that_publishes_is_heard(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', str(graph.context.get_domain_id()))
    camera = graph.outsider.create_publisher(Image, '/camera/image', qos.SENSOR)
    ended = threading.Event()

    def publish() -> None:
        while not ended.wait(0.05):
            msg = Image(height=1, width=1, step=3, encoding='bgr8', data=[0, 0, 0])
            msg.header.stamp = graph.outsider.get_clock().now().to_msg()
            camera.publish(msg)

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        found = look_for_camera()
    finally:
        ended.set()
        thread.join()
    assert found['topic'] == '/camera/image', found
    assert found['rate_hz'] > 0
    assert 0 <= found['age_s'] < 60
    assert look_for_camera('/other/image')['topic'] == ''
