# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.doctor import look_for_camera, lost_count
import pytest
from sensor_msgs.msg import CompressedImage, Image

if TYPE_CHECKING:
    from collections.abc import Sequence

    from test.nodes.graph import Graph


def test_a_camera_that_publishes_is_heard(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', str(graph.context.get_domain_id()))
    camera = graph.outsider.create_publisher(Image, '/camera/image', topics.SENSOR)
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
    assert found['lost'] is not None, 'Fast DDS numbers what it publishes'
    assert look_for_camera('/other/image')['topic'] == ''


def test_what_the_perceiver_draws_is_no_camera(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('ROS_DOMAIN_ID', str(graph.context.get_domain_id()))
    graph.outsider.create_publisher(CompressedImage, '/front/items/image/compressed', 10)
    found = look_for_camera()
    assert (found['topics'], found['topic']) == ([], '')


@pytest.mark.parametrize(
    ('numbers', 'expected'),
    [
        ([7, 8, 9], 0),
        ([7, 9, 13], 4),
        ([7, 8, 1, 3], 1),  # started again
        ([7, None], None),
        ([], None),
    ],
)
def test_what_did_not_come_is_told_by_the_numbers_of_what_did(
    numbers: Sequence[int | None], expected: int | None
) -> None:
    assert lost_count(numbers) == expected
