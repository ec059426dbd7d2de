# SPDX-License-Identifier: Apache-2.0
"""One map for many runs: it is found again by keyframes, and a wrong joint is undone."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
import json
import math
from multiprocessing import get_context
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.perception.visit_joint import Joint
from embodied_r_ros.core.pipeline import classical_perceiver, perceive_keyframes
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.changes import VisitChanges
from embodied_r_ros.core.scene.landmark_map import MapEdit
from embodied_r_ros.core.scene.place_map import PlaceMap, read_places, write_places
from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import LandmarkStatus
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.scene.place_map import MappedPlace
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.landmarks import Landmark

BALL = Solid((2.0, 0.6, 0.3), (0.5, 0.5, 0.5), (40, 40, 230), is_ball=True)
BOX = Solid((1.8, -0.8, 0.25), (0.5, 0.5, 0.5), (230, 60, 20))
WAY = [pose_at(-1.5 + 0.1 * n, -0.9 + 0.35 * n, 0.8, 0.6 - 0.2 * n) for n in range(6)]
BACK = [pose_at(-1.3 - 0.05 * n, 0.8 - 0.35 * n, 0.7, -0.5 + 0.2 * n) for n in range(6)]
AWAY = [pose_at(-1.3 - 0.05 * n, 0.8 - 0.35 * n, 0.7, 2.7 + 0.2 * n) for n in range(3)]
DAY_NS = 86_400_000_000_000
# Where odometry begins after a restart, in that of the first run.
RESTART = Joint(rotation_from_ypr(0.8, 0.0, 0.0), np.array([1.0, -2.0, 0.0]), 'odom')
Seen = list[tuple['SemanticDelta', Keyframe]]


def run(room: Room, way: list[Pose], solids: tuple[Solid, ...], day: int, origin: Joint) -> Seen:
    """What a run sees whose odometry begins elsewhere."""
    keyframes = [
        Keyframe(
            number, day * DAY_NS + number * 1_000_000_000, encode_image(room.view(pose, solids)),
            KeyframeReason.LOW_OVERLAP, max(0, number - 1), intrinsics=CAMERA,
            pose=origin.inverse('odom').pose(pose),
        )
        for number, pose in enumerate(way)
    ]  # fmt: skip
    return list(zip(perceive_keyframes(keyframes, classical_perceiver()), keyframes, strict=True))


@pytest.fixture(scope='module')
def runs() -> dict[str, Seen]:
    here = Joint(np.eye(3), np.zeros(3), 'odom')
    room, other = Room(1), Room(2)
    return {
        'before': run(room, WAY, (BALL, BOX), 1, here),
        'after': run(room, [*AWAY, *BACK], (BOX,), 2, RESTART),
        'third': run(room, WAY, (BALL, BOX), 3, here),
        'other': run(other, WAY, (BALL, BOX), 2, RESTART),
    }


def go(place_map: PlaceMap, seen: Seen) -> list[str]:
    """Live through a run; tells where the robot thought that it was after each keyframe."""
    where = []
    for delta, keyframe in seen:
        place_map.add(delta, keyframe)
        while place_map.look():
            pass
        where.append(place_map.words)
    return where


def kept(folder: Path, place_map: PlaceMap) -> list[MappedPlace]:
    """The places after they were written and read."""
    write_places(folder, place_map.places(), place_map.scene_map())
    return read_places(folder)


def colours(place_map: PlaceMap) -> dict[str, Landmark]:
    return {one.label.split()[0]: one for one in place_map.scene_map().landmarks}


@pytest.fixture
def places(runs: dict[str, Seen], tmp_path: Path) -> list[MappedPlace]:
    first = PlaceMap()
    assert set(go(first, runs['before'])) == {'in a new map'}
    return kept(tmp_path, first)


def test_a_run_finds_itself_in_the_old_map_whenever_it_sees_it(
    runs: dict[str, Seen], places: list[MappedPlace], tmp_path: Path
) -> None:
    old = {one.label.split()[0]: one for one in places[0].landmarks.scene_map().landmarks}
    second = PlaceMap(places)
    where = go(second, runs['after'])
    assert all(words.startswith('lost: ') for words in where[: len(AWAY)])
    assert where[-1] == 'in the map of 1970-01-02'
    found, now = second.earlier(), colours(second)
    assert isinstance(found, VisitChanges)
    assert [change.words for change in found.changed] == ['the red round object is gone']
    assert {colour: one.id for colour, one in now.items()} == {c: o.id for c, o in old.items()}
    assert (now['red'].status, now['red'].change) == (LandmarkStatus.GONE, 'gone')
    assert (now['blue'].status, now['blue'].change) == (LandmarkStatus.PRESENT, '')
    assert (now['red'].visit, now['blue'].visit) == (1, 2)
    assert now['blue'].first_seen_ns == old['blue'].first_seen_ns
    assert now['blue'].observations > old['blue'].observations
    true = RESTART.inverse('odom').point(np.array(BOX.centre))
    assert math.dist(now['blue'].position, true) < 0.3
    assert second.scene_map().frame_id == 'odom'
    assert all(number < len(runs['after']) for number in now['blue'].keyframe_ids)
    (both,) = kept(tmp_path, second)
    third = PlaceMap([both])
    assert go(third, runs['third'])[-1] == 'in the map of 1970-01-03'
    assert colours(third)['red'].visit == 3
    assert colours(third)['red'].status is LandmarkStatus.PRESENT


def test_another_room_is_not_joined_and_both_are_kept(
    runs: dict[str, Seen], places: list[MappedPlace], tmp_path: Path
) -> None:
    second = PlaceMap(places)
    assert go(second, runs['other'])[-1].startswith('lost: ')
    assert isinstance(second.earlier(), str)
    assert second.scene_map().landmarks
    assert {one.change for one in second.scene_map().landmarks} == {''}
    both = kept(tmp_path, second)
    assert len(both) == 2
    third = PlaceMap(both)
    assert go(third, runs['third'])[-1] == 'in the map of 1970-01-02'


def test_keyframes_that_contradict_a_joint_undo_it(
    runs: dict[str, Seen], places: list[MappedPlace]
) -> None:
    """Odometry slips by 0.9 m, too little for a jump: the old map fits in two ways."""
    second = PlaceMap(places)
    assert go(second, runs['after'])[-1].startswith('in the map of')
    before = len(places[0].landmarks.records)
    own = {one.label for one in second._own.scene_map().landmarks}
    slip = Joint(np.eye(3), np.array([0.0, 0.9, 0.0]), 'odom')
    slipped = []
    for delta, keyframe in runs['after'][len(AWAY) :]:
        assert keyframe.pose
        pose = slip.pose(keyframe.pose)
        later: dict[str, Any] = {'stamp_ns': delta.stamp_ns + 60_000_000_000, 'pose': pose}
        slipped.append((replace(delta, **later), replace(keyframe, **later)))
    assert go(second, slipped)[-1].startswith('lost: its keyframes fit in more than one way')
    assert len(places[0].landmarks.records) == before
    assert own <= {one.label for one in second.scene_map().landmarks}
    assert {one.visit for one in second.scene_map().landmarks} == {0}
    assert len(second.places()) == 2


def test_where_odometry_jumps_the_way_before_is_found_again(runs: dict[str, Seen]) -> None:
    place_map = PlaceMap()
    go(place_map, runs['before'])
    old = {colour: one.id for colour, one in colours(place_map).items()}
    far = Joint(rotation_from_ypr(0.8, 0.0, 0.0), np.array([100.0, 0.0, 0.0]), 'odom')
    jumped = [
        (replace(delta, stamp_ns=delta.stamp_ns + 9_000_000_000), keyframe)
        for delta, keyframe in run(Room(1), BACK, (BALL, BOX), 1, far)
    ]
    where = go(place_map, jumped)
    assert where[0].startswith('lost: ')
    assert where[-1] == 'in the map of 1970-01-02'
    assert {colour: one.id for colour, one in colours(place_map).items()} == old
    true = far.inverse('odom').point(np.array(BOX.centre))
    assert math.dist(colours(place_map)['blue'].position, true) < 0.3
    assert len(place_map.places()) == 1


def test_a_landmark_is_forgotten_or_pinned(
    runs: dict[str, Seen], places: list[MappedPlace], tmp_path: Path
) -> None:
    second = PlaceMap(places)
    red, blue = (colours(second)[colour] for colour in ('red', 'blue'))
    second.edit(MapEdit.PIN, red.label, red.position)
    second.edit(MapEdit.FORGET, blue.label, blue.position)
    assert set(colours(second)) == {'red'}
    (place,) = kept(tmp_path, second)
    assert [one.pinned for one in place.landmarks.records] == [True]
    (record,) = place.landmarks.records
    record.observations = 1  # a mistake, which misses would delete
    for delta, keyframe in runs['after'][len(AWAY) :]:
        assert delta.pose
        pose = replace(RESTART.pose(delta.pose), frame_id='map')
        view = CameraView(pose, keyframe.intrinsics)
        place.landmarks.add(replace(delta, items=()), view)
    assert record.status is LandmarkStatus.GONE
    assert place.landmarks.records == (record,)


def save_for_ever(folder: Path, places: list[MappedPlace]) -> None:
    """Write one and two places in turn."""
    for number in count():
        chosen = places * (1 + number % 2)
        write_places(folder, chosen, chosen[0].landmarks.scene_map())


@pytest.mark.parametrize('times', [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_process_killed_while_it_saves_leaves_a_whole_map(
    times: int, places: list[MappedPlace], tmp_path: Path
) -> None:
    rng, sizes = np.random.default_rng(times), set[int]()
    large = replace(places[0], keyframes=places[0].keyframes * 10)  # so that a save takes a while
    write_places(tmp_path, [large], large.landmarks.scene_map())
    known = len(large.keyframes), len(large.landmarks.records)
    for _ in range(times):
        before = _written(tmp_path)
        process = get_context('fork').Process(target=save_for_ever, args=(tmp_path, [large]))
        process.start()
        while _written(tmp_path) == before:
            pass
        time.sleep(float(rng.uniform(0.0, 0.02)))
        process.kill()
        process.join()
        read = read_places(tmp_path)
        sizes.add(len(read))
        for place in read:
            assert (len(place.keyframes), len(place.landmarks.records)) == known
    assert sizes <= {1, 2}
    write_places(tmp_path, places, large.landmarks.scene_map())
    assert not list(tmp_path.glob('.state.npz.*'))


def _written(folder: Path) -> dict[str, int]:
    """The files of a map and their sizes, those that are not finished too."""
    found = {}
    for path in folder.glob('*state.npz*'):
        with suppress(FileNotFoundError):
            found[path.name] = path.stat().st_size
    return found


def test_a_map_of_version_1_is_read_and_written_anew(
    places: list[MappedPlace], tmp_path: Path
) -> None:
    folder, state = tmp_path / 'old', places[0].landmarks.to_json()
    folder.mkdir()
    part: dict[str, Any] = {key: [] for key in ('records', 'rays', 'path')}
    poorer = state['part'] | part
    old = state | {'version': 1, 'track': {}, 'part': poorer, 'other': state['part']}
    (folder / 'state.json').write_text(json.dumps(old))
    (place,) = read_places(folder)
    known = [one.name for one in places[0].landmarks.records]
    assert [one.name for one in place.landmarks.records] == known
    run = PlaceMap([place])
    assert run.words == 'lost: none of its keyframes was looked for yet'
    (again,) = kept(folder, run)
    assert sorted(path.name for path in folder.iterdir()) == ['MAP.json', 'state.npz']
    assert [one.name for one in again.landmarks.records] == known


@pytest.mark.parametrize(
    ('name', 'text'),
    [
        ('state.json', ''),
        ('state.json', '[]'),
        ('state.json', '{"version": 99}'),
        ('state.json', '{"version": 1}'),
        ('state.npz', ''),
        ('state.npz', 'PK'),
    ],
)
def test_a_folder_that_holds_no_map_is_named(tmp_path: Path, name: str, text: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=name.replace('.', '[.]')):
        read_places(tmp_path)
