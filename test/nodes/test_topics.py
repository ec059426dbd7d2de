# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
from fnmatch import fnmatchcase
from pathlib import Path

from embodied_r_ros.nodes.topics import (
    camera_topic,
    full_name,
    pipeline_topics,
    playing_remappings,
    recorded_topics,
    RecorderConfig,
    robot_remappings,
)
import pytest

ROOT = Path(__file__).resolve().parents[2]


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


def test_a_replay_repeats_nothing_that_the_pipeline_publishes() -> None:
    sensors = {'odom', 'camera_info', '/tf', '/tf_static'}
    recorded = {topic.name for topic in recorded_topics(RecorderConfig())}
    names = set(pipeline_topics())
    assert recorded - sensors <= names
    assert {'goal_proposal', 'goal_pose', 'keypoint_refused', 'episode_mark'} <= names
    assert not names & {*sensors, 'image', 'depth', 'detections', 'current_pose'}
    # The launch file makes its patterns of them.
    [patterns] = [
        node.value
        for node in ast.parse((ROOT / 'launch/replay.launch.py').read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == 'OWN_TOPICS'
    ]
    own = eval(ast.unparse(patterns), {'pipeline_topics': pipeline_topics})
    for topic in ('/goal_proposal', '/robot1/landmarks/markers', '/front/keyframe'):
        assert any(fnmatchcase(topic, pattern) for pattern in own)
    for topic in ('/image', '/front/camera_info', '/tf', '/keyframe_camera/image'):
        assert not any(fnmatchcase(topic, pattern) for pattern in own)


def test_what_the_robot_has_once() -> None:
    assert robot_remappings('') == {
        'episode_mark': '/episode_mark',
        'provenance': '/provenance',
        'odom': '/odom',
        'unchanged': '/unchanged',
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
