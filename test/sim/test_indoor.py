# SPDX-License-Identifier: Apache-2.0
"""Runs of indoor episodes: what the bags hold, and that they depend on the seed alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import json
import math
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.bags.messages import (
    encoded_image_from_msg,
    intrinsics_from_camera_info,
    pose_from_msg,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.perception.egomotion import motion_from_poses
from embodied_r_ros.core.types.episodes import EpisodeEvent
from embodied_r_ros.core.types.layout import Layout
from embodied_r_ros.data.own_messages import delta_from_msg, keyframe_from_msg, mark_from_msg
from embodied_r_ros.sim.indoor.episodes import draw_episode, generate
from embodied_r_ros.sim.indoor.scenario import draw_scenario
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

IMAGES = IndoorConfig(duration_s=6.0, rate_hz=5.0, width_px=160, height_px=120, kinds='all')
NO_IMAGES = replace(IMAGES, images=False)
SEED = 21
Messages = dict[str, list[tuple[int, Any]]]


def read(bag: Path) -> Messages:
    """All messages by topic, with the time at which they were written."""
    found: Messages = {}
    with open_bag(bag) as reader:
        topics = [connection.topic for connection in reader.connections]
        for topic, stamp_ns, msg in read_messages(reader, topics):
            found.setdefault(topic, []).append((stamp_ns, msg))
    return found


def truth_bytes(bag: Path) -> list[tuple[str, int, bytes]]:
    """All messages that must not depend on anything but the seed, as they lie in the bag."""
    with open_bag(bag) as reader:
        return [
            (connection.topic, stamp_ns, data)
            for connection, stamp_ns, data in reader.messages()
            if connection.topic != '/provenance'
        ]


@pytest.fixture(scope='module')
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    [path] = generate(IMAGES, SEED, 1, tmp_path_factory.mktemp('images') / 'out')
    return path


@pytest.fixture(scope='module')
def messages(bag: Path) -> Messages:
    return read(bag)


def test_a_run_is_one_bag_per_episode_and_nothing_else(tmp_path: Path) -> None:
    bags = list(generate(NO_IMAGES, SEED, 3, tmp_path / 'out'))
    assert sorted(path.name for path in (tmp_path / 'out').iterdir()) == [
        'episode_00000',
        'episode_00001',
        'episode_00002',
    ]
    for path in bags:
        assert sorted(file.suffix for file in path.iterdir()) == ['.mcap', '.yaml']


def test_equal_seeds_give_equal_bytes(bag: Path, tmp_path: Path) -> None:
    [again] = generate(IMAGES, SEED, 1, tmp_path / 'again')
    [other] = generate(NO_IMAGES, SEED + 1, 1, tmp_path / 'other')
    assert truth_bytes(again) == truth_bytes(bag)
    assert truth_bytes(other) != truth_bytes(bag)


def test_workers_change_nothing(tmp_path: Path) -> None:
    alone = sorted(generate(NO_IMAGES, SEED, 3, tmp_path / 'alone'))
    shared = sorted(generate(NO_IMAGES, SEED, 3, tmp_path / 'shared', workers=2))
    assert [path.name for path in alone] == [path.name for path in shared]
    for one, other in zip(alone, shared, strict=True):
        assert truth_bytes(one) == truth_bytes(other)


def test_without_images_the_truth_is_the_same(messages: Messages, tmp_path: Path) -> None:
    [path] = generate(NO_IMAGES, SEED, 1, tmp_path / 'out')
    blind = read(path)
    assert messages.keys() - blind.keys() == {'/image/compressed', '/camera_info'}
    assert blind['/truth/layout'][0][1].data == messages['/truth/layout'][0][1].data
    for topic in ('/truth/semantic_delta', '/odom'):
        assert str(blind[topic]) == str(messages[topic])
    keyframes = [keyframe_from_msg(msg) for _, msg in blind['/truth/keyframe']]
    assert all(keyframe.image.data == b'' for keyframe in keyframes)
    assert [k.stamp_ns for k in keyframes] == [
        keyframe_from_msg(msg).stamp_ns for _, msg in messages['/truth/keyframe']
    ]


def test_images_odometry_and_camera_info_share_their_stamps(messages: Messages) -> None:
    stamps = [stamp_ns for stamp_ns, _ in messages['/image/compressed']]
    assert len(stamps) == 30
    assert set(np.diff(stamps)) == {200_000_000}
    assert stamps[0] > 1_600_000_000_000_000_000
    for topic in ('/image/compressed', '/camera_info', '/odom'):
        assert [stamp_ns_from_msg(msg.header.stamp) for _, msg in messages[topic]] == stamps
    info = messages['/camera_info'][0][1]
    assert info.header.frame_id == 'camera_optical_frame'
    assert intrinsics_from_camera_info(info) == IMAGES.camera()
    odometry = messages['/odom'][0][1]
    assert (odometry.header.frame_id, odometry.child_frame_id) == ('odom', 'camera_link')
    image = encoded_image_from_msg(messages['/image/compressed'][0][1])
    assert image.format == 'jpeg'
    assert image.decode().shape == (120, 160, 3)


def test_true_motion_is_that_of_the_odometry(messages: Messages) -> None:
    poses = {
        stamp_ns: pose_from_msg(msg.pose.pose, msg.header.frame_id)
        for stamp_ns, msg in messages['/odom']
    }
    deltas = [delta_from_msg(msg) for _, msg in messages['/truth/semantic_delta']]
    assert len(deltas) >= 4
    for delta in deltas[1:]:
        motion = motion_from_poses(poses[delta.from_stamp_ns], poses[delta.stamp_ns])
        assert delta.motion.yaw_rad == pytest.approx(motion.yaw_rad, abs=1e-6)
        assert delta.motion.translation == pytest.approx(motion.translation, abs=1e-6)


def test_velocity_is_the_change_of_pose(messages: Messages) -> None:
    rows = [(stamp_ns / 1e9, msg) for stamp_ns, msg in messages['/odom']]
    moved = 0.0
    for (t0, first), (t1, second) in pairwise(rows):
        poses = [pose_from_msg(msg.pose.pose, 'odom') for msg in (first, second)]
        step = np.subtract(poses[1].position, poses[0].position)
        velocities = [
            pose.rotation() @ [msg.twist.twist.linear.x, msg.twist.twist.linear.y, 0]
            for pose, msg in zip(poses, (first, second), strict=True)
        ]
        # The trapezium rule is exact to the third order of the step of 0.2 s.
        assert step[:2] == pytest.approx(np.mean(velocities, axis=0)[:2] * (t1 - t0), abs=0.02)
        moved += float(np.linalg.norm(step))
    assert moved > 0.5


def test_keyframes_carry_the_image_of_their_stamp(messages: Messages) -> None:
    images = {
        stamp_ns: encoded_image_from_msg(msg) for stamp_ns, msg in messages['/image/compressed']
    }
    for _, msg in messages['/truth/keyframe']:
        keyframe = keyframe_from_msg(msg)
        assert keyframe.image == images[keyframe.stamp_ns]
        assert keyframe.intrinsics == IMAGES.camera()
        assert keyframe.pose


def test_marks_and_provenance_say_what_was_recorded(messages: Messages) -> None:
    start, stop = (mark_from_msg(msg) for _, msg in messages['/episode_mark'])
    assert (start.event, stop.event) == (EpisodeEvent.START, EpisodeEvent.STOP)
    assert start.scene_id == stop.scene_id == f'room-{SEED}-00000'
    layout = Layout.from_json(messages['/truth/layout'][0][1].data)
    assert layout.episode_id == start.episode_id
    assert (start.stamp_ns, stop.stamp_ns) == (
        layout.images[0].stamp_ns,
        layout.images[-1].stamp_ns,
    )
    record = json.loads(messages['/provenance'][0][1].data)
    assert record['origin']['seed'] == SEED
    assert record['config']['rate_hz'] == 5.0
    assert record['code']['package'] == 'embodied_r_ros'
    assert messages['/provenance'][0][0] == start.stamp_ns


@pytest.mark.parametrize(
    ('seed', 'episodes', 'workers', 'named'),
    [(-1, 1, 1, 'seed is -1'), (0, 0, 1, 'episodes is 0'), (0, 1, 0, 'workers is 0')],
)
def test_impossible_runs_are_refused(
    tmp_path: Path, seed: int, episodes: int, workers: int, named: str
) -> None:
    with pytest.raises(InputError, match=named):
        generate(NO_IMAGES, seed, episodes, tmp_path / 'out', workers)
    assert not (tmp_path / 'out').exists()


def test_a_folder_with_something_in_it_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / 'note').touch()
    with pytest.raises(InputError, match='not an empty folder'):
        generate(NO_IMAGES, 0, 1, tmp_path)
    with pytest.raises(InputError, match='not an empty folder'):
        generate(NO_IMAGES, 0, 1, tmp_path / 'note')
    with pytest.raises(InputError, match=r'cannot write to .*note/out'):
        generate(NO_IMAGES, 0, 1, tmp_path / 'note' / 'out')
    assert [path.name for path in tmp_path.iterdir()] == ['note']


def test_a_run_that_can_have_no_fit_episode_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('embodied_r_ros.sim.indoor.episodes.MIN_KEYFRAMES', 1000)
    monkeypatch.setattr('embodied_r_ros.sim.indoor.episodes._ATTEMPTS', 2)
    with pytest.raises(EmbodiedRError, match='choose a longer duration'):
        list(generate(NO_IMAGES, 0, 1, tmp_path / 'out'))
    assert list((tmp_path / 'out').iterdir()) == []


def test_a_share_of_the_paths_leads_back_in_the_same_rooms() -> None:
    plain = IndoorConfig(images=False, duration_s=10.0, rate_hz=5.0, kinds='all')
    drawn = [draw_scenario(replace(plain, returns=0.5), 3, index, 0) for index in range(20)]
    ends = [[np.array(s.pose(s.stamps_ns[at]).position) for at in (0, -1)] for s in drawn]
    back = sum(float(np.linalg.norm(end - start)) < 0.01 for start, end in ends)
    assert 5 <= back <= 15
    rooms = [draw_scenario(plain, 3, index, 0).room for index in range(20)]
    assert [scenario.room for scenario in drawn] == rooms


def test_the_next_visit_finds_the_room_changed_and_goes_another_way() -> None:
    config = replace(NO_IMAGES, visit=1, changes=4)
    first, truth, _ = draw_episode(config, SEED, 0)
    second, then, _ = draw_episode(replace(config, visit=2), SEED, 0)
    assert (first.scene_id, first.room.size) == (second.scene_id, second.room.size)
    assert first.episode_id != second.episode_id
    assert first.texture_seed == second.texture_seed
    assert first.path.segments[0].start[0] != second.path.segments[0].start[0]
    there, now = (s.positions(s.stamps_ns[0]) for s in (first, second))
    assert now == second.positions(second.stamps_ns[-1])  # nothing moves meanwhile
    there += [None] * (len(now) - len(there))
    changed = [(a, b) for a, b in zip(there, now, strict=True) if a != b]
    assert len(changed) == 4
    assert all(a is None or b is None or math.dist(a, b) >= 0.8 for a, b in changed)
    pairs = zip(truth.layout.objects, then.layout.objects, strict=False)
    assert all(a.label == b.label for a, b in pairs)
    again, _, _ = draw_episode(replace(config, visit=2), SEED, 0)
    assert (second.room, second.tracks) == (again.room, again.tracks)
    assert second.state(second.stamps_ns[9]) == again.state(again.stamps_ns[9])


def test_without_changes_the_next_visit_finds_the_room_as_it_was() -> None:
    config = replace(NO_IMAGES, visit=1, changes=0)
    places = []
    for visit in (1, 2):
        scenario, _, _ = draw_episode(replace(config, visit=visit), SEED, 0)
        places.append(scenario.positions(scenario.stamps_ns[0]))
    assert places[0] == places[1]
