# SPDX-License-Identifier: Apache-2.0
"""Plain camera bags become episodes, and what goes wrong with one stays with it."""

from __future__ import annotations

from collections import Counter
import json
import multiprocessing
import shutil
import threading
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    encoded_image_to_msg,
    header_to_msg,
    odometry_to_msg,
)
from embodied_r_ros.bags.reader import open_bag, read_messages, read_serialized
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.core.types.episodes import EpisodeEvent
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.episodes.collect import collect_episode, CollectConfig
from embodied_r_ros.data.episodes.collect_jobs import collect
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.episodes.offline import perceive_path
from embodied_r_ros.data.own_messages import keyframe_from_msg, mark_from_msg
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

S = 1_000_000_000
LATE_NS = S // 50  # from the stamp of a message to its receipt
T0_NS = 1_700_000_000 * S
FACTORY = BagMessageFactory()
CAMERA = Intrinsics(160, 120, 140.0, 140.0, 79.5, 59.5)
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))


def views(count: int, seed: int) -> Iterator[NDArray[np.uint8]]:
    """A camera that pans over a large noisy picture."""
    coarse = np.random.default_rng(seed).integers(0, 256, (40, 200, 3), np.uint8)
    picture = coarse.repeat(4, axis=0).repeat(4, axis=1)
    for index in range(count):
        yield np.ascontiguousarray(picture[20:140, 12 * index : 12 * index + 160])


def raw(stamp_ns: int, image: NDArray[np.uint8]) -> Any:
    return FACTORY.make(
        'sensor_msgs/msg/Image',
        header=header_to_msg(FACTORY, stamp_ns, 'eye'),
        height=image.shape[0],
        width=image.shape[1],
        encoding='bgr8',
        is_bigendian=0,
        step=3 * image.shape[1],
        data=image.ravel(),
    )


def write_bag(path: Path, *, compressed: bool = False, seed: int = 0) -> Path:
    """Four seconds at 10 Hz: images, intrinsics, odometry, and a topic that nobody wants."""
    kind = 'sensor_msgs/msg/CompressedImage' if compressed else 'sensor_msgs/msg/Image'
    topic = '/cam/image/compressed' if compressed else '/cam/image'
    with BagWriter(path) as bag:
        bag.add_topic(topic, kind)
        bag.add_topic('/cam/camera_info', 'sensor_msgs/msg/CameraInfo')
        bag.add_topic('/odom', 'nav_msgs/msg/Odometry')
        bag.add_topic('/chatter', 'std_msgs/msg/String')
        for index, image in enumerate(views(40, seed)):
            stamp_ns = T0_NS + index * S // 10
            pose = Pose((0.1 * index, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            info = camera_info_to_msg(FACTORY, stamp_ns, 'eye', CAMERA)
            odometry = odometry_to_msg(FACTORY, stamp_ns, pose, 'base_link', STILL)
            encoded = encoded_image_to_msg(FACTORY, stamp_ns, 'eye', encode_image(image))
            said = FACTORY.make('std_msgs/msg/String', data='hello')
            at_ns = stamp_ns + LATE_NS
            bag.write('/cam/camera_info', info, at_ns)
            bag.write('/odom', odometry, at_ns)
            bag.write(topic, encoded if compressed else raw(stamp_ns, image), at_ns)
            bag.write('/chatter', said, at_ns)
    return path


def collect_bag(bag: Path, folder: Path, **settings: Any) -> Path:
    return collect_episode(bag, folder, CollectConfig(**settings), bag_digest(bag)).folder


def messages_of(bag: Path, topic: str) -> list[tuple[int, Any]]:
    with open_bag(bag) as reader:
        return [(at_ns, msg) for _, at_ns, msg in read_messages(reader, [topic])]


def counts(bag: Path) -> dict[str, int]:
    with open_bag(bag) as reader:
        return {topic: info.msgcount for topic, info in reader.topics.items()}


@pytest.fixture(scope='module')
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_bag(tmp_path_factory.mktemp('plain') / 'drive')


@pytest.fixture(scope='module')
def episode(plain: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return collect_bag(plain, tmp_path_factory.mktemp('out') / 'drive-1')


def test_deltas_are_those_that_the_bag_gives_anew(plain: Path, episode: Path) -> None:
    anew = list(perceive_path(plain, classical_perceiver()))
    read = read_episode(episode)
    assert (read.id, read.delta_source) == ('drive-1', 'recorded')
    assert [d.to_row() for d in read.deltas] == [d.to_row() for d in anew]
    assert len(read.deltas) > 3
    assert {d.episode_id for d in read.deltas} == {'drive-1'}
    assert len(read.poses) == len(read.deltas)


def test_episode_holds_what_the_recorder_would_have_heard(plain: Path, episode: Path) -> None:
    held = counts(episode)
    keyframes = len(read_episode(episode).deltas)
    assert held == {
        '/cam/camera_info': 40,
        '/odom': 40,
        '/keyframe': keyframes,
        '/semantic_delta': keyframes,
        '/episode_mark': 2,
        '/provenance': 1,
        '/landmarks': 1,
    }
    (start_ns, start), (stop_ns, stop) = messages_of(episode, '/episode_mark')
    events = [mark_from_msg(mark).event for mark in (start, stop)]
    assert events == [EpisodeEvent.START, EpisodeEvent.STOP]
    assert start_ns <= T0_NS + LATE_NS < stop_ns
    record = json.loads(messages_of(episode, '/provenance')[0][1].data)
    assert record['bag'] == {
        'name': 'drive',
        'files': bag_digest(plain).files,
        'sha256': bag_digest(plain).sha256,
    }
    times = [at_ns for at_ns, _ in messages_of(episode, '/keyframe')]
    stamps = [keyframe_from_msg(msg).stamp_ns for _, msg in messages_of(episode, '/keyframe')]
    assert times == [stamp_ns + LATE_NS for stamp_ns in stamps]


def test_images_are_kept_as_asked(plain: Path, tmp_path: Path) -> None:
    bare = collect_bag(plain, tmp_path / 'none', images='none')
    assert all(not len(msg.image.data) for _, msg in messages_of(bare, '/keyframe'))
    assert len(read_episode(bare).poses) == len(read_episode(bare).deltas) > 3
    full = collect_bag(plain, tmp_path / 'all', images='compressed')
    assert counts(full)['/cam/image/compressed'] == 40
    assert [m.header.stamp.nanosec for _, m in messages_of(full, '/cam/image/compressed')] == [
        m.header.stamp.nanosec for _, m in messages_of(plain, '/cam/image')
    ]


def test_compressed_images_are_not_compressed_again(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'jpeg', compressed=True)
    full = collect_bag(bag, tmp_path / 'full', images='compressed')
    kept, given = (messages_of(path, '/cam/image/compressed') for path in (full, bag))
    assert [bytes(m.data) for _, m in kept] == [bytes(m.data) for _, m in given]


def test_what_perceive_tells_of_an_episode_is_what_was_recorded(
    episode: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['perceive', str(episode), '--json']) == 0
    told = [json.loads(line)['action'] for line in capsys.readouterr().out.splitlines()]
    assert told == [delta.action for delta in read_episode(episode).deltas]


def test_an_episode_is_not_collected_again(episode: Path, tmp_path: Path) -> None:
    with pytest.raises(BagError, match='is an episode already'):
        collect_bag(episode, tmp_path / 'again')
    assert list(tmp_path.iterdir()) == []


def test_a_bad_bag_ends_nothing_but_itself(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bags, out = tmp_path / 'bags', tmp_path / 'out'
    bags.mkdir()
    write_bag(bags / 'a', seed=1)
    shutil.copytree(plain, bags / 'c')
    shutil.copytree(plain, bags / 'copy_of_c')
    (bags / 'b').mkdir()
    whole = next(plain.glob('*.mcap')).read_bytes()
    (bags / 'b' / 'b.mcap').write_bytes(whole[: len(whole) // 2])
    command = ['collect', str(bags), '--out', str(out), '--jobs', '2']
    assert main(command) == 1
    told = capsys.readouterr()
    failures = [line for line in told.err.splitlines() if line.startswith('failed: ')]
    assert len(failures) == 1
    assert failures[0].startswith(f'failed: {bags / "b"}: bag {bags / "b"} was not closed')
    names = sorted(path.name for path in out.iterdir())
    assert [name.split('-')[0] for name in names] in (
        ['a', 'c', 'collect.json'],
        ['a', 'collect.json', 'copy_of_c'],
    )
    # Nothing is done twice, and what was bad is tried again.
    before = {path: path.stat().st_mtime_ns for path in out.rglob('*')}
    shutil.rmtree(bags / 'b')
    assert main(command) == 0
    assert [line.split('\t')[2] for line in capsys.readouterr().out.splitlines()] == [
        'was there'
    ] * 3
    assert {path: path.stat().st_mtime_ns for path in out.rglob('*')} == before


def test_a_bag_that_fails_its_audit_is_collected_only_by_force(
    plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = tmp_path / 'mixed'
    with open_bag(plain) as reader, BagWriter(bag) as writer:
        types = {c.topic: c.msgtype for c in reader.connections}
        for topic, type_name in types.items():
            writer.add_topic(topic, type_name)
        seen = Counter[str]()
        for topic, time_ns, data in read_serialized(reader, types):
            seen[topic] += 1
            late_ns = 500_000_000 if seen[topic] % 2 else 0
            writer.write_serialized(topic, data, time_ns + late_ns)
    command = ['collect', str(bag), '--out', str(tmp_path / 'out')]
    assert main(command) == 1
    [line] = [s for s in capsys.readouterr().err.splitlines() if s.startswith('failed: ')]
    assert line.startswith(f'failed: {bag}: it fails its audit: /')
    assert line.endswith('stamps out of order (--force uses it all the same)')
    assert main([*command, '--force']) == 0


def test_a_process_that_is_killed_ends_nothing_but_its_bag(plain: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    ours = set(multiprocessing.active_children())

    def kill() -> None:
        while not (born := set(multiprocessing.active_children()) - ours):
            time.sleep(0.01)
        born.pop().kill()

    killer = threading.Thread(target=kill)
    killer.start()
    (result,) = collect([plain], out, CollectConfig())
    killer.join()
    assert 'was killed' in result.reason
    assert [path.name for path in out.iterdir()] == ['collect.json']


def test_folder_is_of_one_collection(plain: Path, tmp_path: Path) -> None:
    first = collect([], tmp_path / 'out', CollectConfig())
    assert list(first) == []
    with pytest.raises(InputError, match='of other settings'):
        list(collect([plain], tmp_path / 'out', CollectConfig(images='none')))
    (tmp_path / 'mine').mkdir()
    (tmp_path / 'mine' / 'file').touch()
    with pytest.raises(InputError, match='neither empty nor'):
        list(collect([plain], tmp_path / 'mine', CollectConfig()))
    running = collect([plain], tmp_path / 'out', CollectConfig())
    assert next(running).keyframes > 3
    with pytest.raises(InputError, match='by another process'):
        list(collect([plain], tmp_path / 'out', CollectConfig()))
    running.close()


def test_a_detector_names_what_is_collected(plain: Path, red_lamps: Path, tmp_path: Path) -> None:
    folder = collect_bag(plain, tmp_path / 'out', perceiver='detector', detector=str(red_lamps))
    assert {delta.model.name for delta in read_episode(folder).deltas} == {'detector/red'}


@pytest.mark.parametrize('unit_m', [0.001, 0.0005])
def test_depth_beside_images_is_in_the_keyframes(tmp_path: Path, unit_m: float) -> None:
    for name in ('images', 'depth'):
        (tmp_path / name).mkdir()
    for index, image in enumerate(views(3, 0)):
        cv2.imwrite(str(tmp_path / 'images' / f'{index}.png'), image)
        steps = np.full(image.shape[:2], 2000, np.uint16)
        cv2.imwrite(str(tmp_path / 'depth' / f'{index}.png'), steps)
    settings: dict[str, Any] = {'depth_unit_m': unit_m}
    folder = collect_bag(tmp_path / 'images', tmp_path / 'episode', **settings)
    with open_bag(folder) as reader:
        keyframes = [keyframe_from_msg(msg) for _, _, msg in read_messages(reader, ['/keyframe'])]
    depths = [keyframe.depth.unpack() for keyframe in keyframes if keyframe.depth]
    assert len(depths) == len(keyframes) > 0
    assert depths[0][10, 10] == pytest.approx(2000 * unit_m)
