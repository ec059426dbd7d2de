# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.nodes.topics import camera_topic, full_name, robot_remappings
import pytest


@pytest.mark.parametrize(
    ('camera', 'topic'),
    [('.', 'image'), ('front', 'front/image'), ('/robot2/front/', '/robot2/front/image')],
)
def test_topic_of_a_camera(camera: str, topic: str) -> None:
    assert camera_topic(camera, 'image') == topic


@pytest.mark.parametrize(
    ('name', 'namespace', 'full'),
    [
        ('front', '', '/front'),
        ('front', 'robot1', '/robot1/front'),
        ('front/', '/robot1/', '/robot1/front'),
        ('/front', 'robot1', '/front'),
    ],
)
def test_full_name(name: str, namespace: str, full: str) -> None:
    assert full_name(name, namespace) == full


def test_what_the_robot_has_once() -> None:
    assert robot_remappings('') == {
        'episode_mark': '/episode_mark',
        'provenance': '/provenance',
        'odom': '/odom',
    }
