# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.nodes.topics import (
    camera_topic,
    full_name,
    playing_remappings,
    robot_remappings,
)
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


RECORDED = ['/camera_info', '/clock', '/image/compressed', '/odom', '/robot1/odom', '/tf_static']


def test_recording_is_played_as_it_is_without_a_namespace() -> None:
    assert playing_remappings(RECORDED, '') == {}


@pytest.mark.parametrize('namespace', ['robot1', '/robot1', '/robot1/'])
def test_recording_is_played_in_the_namespace_of_its_listeners(namespace: str) -> None:
    assert playing_remappings(RECORDED, namespace, ['', '']) == {
        '/camera_info': '/robot1/camera_info',
        '/image/compressed': '/robot1/image/compressed',
        '/odom': '/robot1/odom',
    }


def test_recorded_topics_that_an_argument_names_are_played_as_they_are() -> None:
    listened = ['/image', '', '/odom']
    assert playing_remappings(RECORDED, 'robot1', listened) == {
        '/camera_info': '/robot1/camera_info'
    }
