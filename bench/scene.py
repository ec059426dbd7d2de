# SPDX-License-Identifier: Apache-2.0
"""Landmark maps against what is true: rooms, a real cabinet, and a stream that does not end.

Rooms are rendered; their keyframes are those of the truth, perceived by the classical perceiver
with odometry, or told by the ground-truth deltas. The baseline takes the same perceived items to
the nearest landmark of their label, within a metre, and takes the mean of their places. A landmark
is right where a thing of its colour that keyframes showed was within a metre when it was seen
last; what is left over beside one that is right is a double. With --real, recordings with depth
are mapped without their poses, and with boxes around points of them as things by their images
alone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
import json
import math
from pathlib import Path
import sys
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.core.perception.classical import ClassicalConfig, ClassicalPerceiver
from embodied_r_ros.core.perception.detector import DetectorPerceiver
from embodied_r_ros.core.pipeline import perceive_keyframes
from embodied_r_ros.core.scene.camera import CameraView, PlaceSight, Sight
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.scene.map_part import FloorPlan
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import (
    direction_of_vector,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus
from embodied_r_ros.data.episodes.offline import map_of_images, map_of_keyframes
from embodied_r_ros.sim.indoor.episodes import draw_episode
from embodied_r_ros.sim.indoor.world import World
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np
from scipy.optimize import linear_sum_assignment
from tqdm import tqdm

from bench import camera_maps
from bench.item_positions import cabinet_scene, keyframe_of
from bench.perception import keyframes_with_truth
from bench.real_sequences import find_sequences, read_sequence

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.images import StampedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.layout import Layout, LayoutObject
    from numpy.typing import NDArray

_NEAR_M = 1.0  # a landmark further off is not of the thing
_NEAREST_M = 1.0  # of the baseline: an item further off is a new landmark
_FAR = 1e6
_MOVED_M, _LOOKS = 0.3, 3  # by which a thing has moved, and looks at its place that tell
CABINET_WAYS = ('depth', 'noisy depth', 'two of three', 'floor')
_GROWTH = 1.2  # of the state over the second half of the stream, at most
_DEPTH_PX = 64  # width of the depth images of rooms
_STREAM, _THINGS = 10_000, 24  # deltas of the stream, and things in its place


@dataclass
class MapTally:
    """What was counted over rooms."""

    things: int = 0  # that keyframes showed
    matched: int = 0
    doubled: int = 0
    false: int = 0  # landmarks of nothing
    off_m: list[float] = field(default_factory=list)
    kinds: int = 0  # colours that keyframes showed
    counts_right: int = 0  # of these, those with as many landmarks as things
    absent: int = 0  # things that are not where they were found, as several looks could tell
    called_gone: int = 0  # landmarks that are called gone
    rightly_gone: int = 0


def measure_rooms(seed: int, rooms: int, duration_s: float) -> dict[str, MapTally]:
    """Map rooms of a seed by both kinds of deltas."""
    tallies = {name: MapTally() for name in ('true deltas', 'perceived', 'baseline')}
    config = IndoorConfig(duration_s=duration_s, kinds='all')
    for index in tqdm(range(rooms), desc='rooms', disable=not sys.stderr.isatty()):
        keyframes, deltas = keyframes_with_truth(config, seed, index)
        _, truth, _ = draw_episode(config, seed, index)
        true_map = LandmarkMap()
        for keyframe, delta in zip(keyframes, deltas, strict=True):
            true_map.add(delta, CameraView(keyframe.pose, keyframe.intrinsics))
        perceived = list(perceive_keyframes(keyframes, ClassicalPerceiver()))
        perceived_map = LandmarkMap()
        for keyframe, delta in zip(keyframes, perceived, strict=True):
            perceived_map.add(delta, CameraView(keyframe.pose, keyframe.intrinsics))
        by_name = {
            'true deltas': true_map.scene_map().landmarks,
            'perceived': perceived_map.scene_map().landmarks,
            'baseline': nearest_of_label(keyframes, perceived),
        }
        for name, landmarks in by_name.items():
            count_room(truth.layout, keyframes, landmarks, tallies[name])
    return tallies


def measure_areas(seed: int, rooms: int, duration_s: float) -> dict[str, float]:
    """How well depth along the way tells the area of rooms, where it tells one."""
    config = IndoorConfig(images=False, duration_s=duration_s, kinds='all')
    camera = config.camera().scaled(_DEPTH_PX, _DEPTH_PX * 3 // 4)
    ratios = []
    for index in tqdm(range(rooms), desc='areas', disable=not sys.stderr.isatty()):
        scenario, truth, _ = draw_episode(config, seed, index)
        world, plan = World(scenario.room), FloorPlan()
        for keyframe in truth.keyframes:
            assert keyframe.pose
            world.place(scenario.positions(keyframe.stamp_ns))
            depth = world.depth(keyframe.pose, camera).astype(np.float32)
            plan.look(keyframe.pose, depth, camera)
        wide, long, _ = truth.layout.room_size
        area_m2 = plan.area_m2
        ratios.append(math.nan if area_m2 is None else area_m2 / (wide * long))
    known = np.array([ratio for ratio in ratios if math.isfinite(ratio)] or [math.nan])
    off = np.abs(known - 1)
    return {
        'rooms': rooms,
        'known': float(np.mean(np.isfinite(ratios))),
        'ratio_p50': float(np.median(known)),
        'off_p50': float(np.median(off)),
        'off_max': float(off.max()),
    }


def nearest_of_label(
    keyframes: Sequence[Keyframe], deltas: Sequence[SemanticDelta]
) -> list[Landmark]:
    """The baseline: an item is of the nearest landmark of its label, at the mean of its places."""
    landmarks: list[tuple[str, list[NDArray[np.float64]], int]] = []
    for keyframe, delta in zip(keyframes, deltas, strict=True):
        for item in delta.items:
            if item.position is None or item.status is ItemStatus.LEFT or keyframe.pose is None:
                continue
            pose = keyframe.pose
            place = pose.rotation() @ np.array(item.position) + np.array(pose.position)
            off = [
                (float(np.linalg.norm(np.mean(places, axis=0) - place)), number)
                for number, (label, places, _) in enumerate(landmarks)
                if label == item.label
            ]
            far_m, number = min(off, default=(math.inf, -1))
            if far_m > _NEAREST_M:
                landmarks.append((item.label, [place], delta.stamp_ns))
            else:
                label, places, _ = landmarks[number]
                landmarks[number] = (label, [*places, place], delta.stamp_ns)
    return [
        Landmark(label, tuple(map(float, np.mean(places, axis=0))), n, last_seen_ns=stamp_ns)  # type: ignore[arg-type]
        for n, (label, places, stamp_ns) in enumerate(landmarks)
    ]


def count_room(
    layout: Layout, keyframes: Sequence[Keyframe], landmarks: Sequence[Landmark], tally: MapTally
) -> None:
    """Compare the landmarks of a room with its things, by keyframes with poses."""
    stamps_ns = [keyframe.stamp_ns for keyframe in keyframes]
    shown = {
        view.object_id
        for stamp_ns in stamps_ns
        for view in layout.image_at(stamp_ns).views
        if view.visible
    }
    things = [layout.objects[number] for number in sorted(shown)]
    costs = np.array([[_off_m(one, thing) for thing in things] for one in landmarks])
    pairs: dict[int, int] = {}
    if costs.size:
        rows, columns = linear_sum_assignment(costs)
        pairs = {
            int(row): int(column)
            for row, column in zip(rows, columns, strict=True)
            if costs[row, column] <= _NEAR_M
        }
    tally.things += len(things)
    tally.matched += len(pairs)
    tally.off_m += [float(costs[pair]) for pair in pairs.items()]
    found_colours = {things[column].colour for column in pairs.values()}
    for number, landmark in enumerate(landmarks):
        if number not in pairs:
            is_double = _colour(landmark) in found_colours
            tally.doubled += is_double
            tally.false += not is_double
    counts, true = Counter(map(_colour, landmarks)), Counter(thing.colour for thing in things)
    tally.kinds += len(true)
    tally.counts_right += sum(counts[colour] == count for colour, count in true.items())
    for number, landmark in enumerate(landmarks):
        thing = things[pairs[number]] if number in pairs else None
        _count_gone(landmark, thing, keyframes, tally)


def _count_gone(
    landmark: Landmark, thing: LayoutObject | None, keyframes: Sequence[Keyframe], tally: MapTally
) -> None:
    then = thing.position_at(landmark.last_seen_ns) if thing else None
    now = thing.position_at(keyframes[-1].stamp_ns) if thing else None
    is_absent = now is None or then is None or math.dist(then, now) > _MOVED_M
    is_called = landmark.status is LandmarkStatus.GONE
    later = [one for one in keyframes if one.stamp_ns > landmark.last_seen_ns]
    looks = sum(_looks_at(keyframe, landmark) for keyframe in later)
    tally.absent += bool(thing) and is_absent and looks >= _LOOKS
    tally.called_gone += is_called
    tally.rightly_gone += is_called and is_absent


def _looks_at(keyframe: Keyframe, landmark: Landmark) -> bool:
    """Whether a place is well in view, be it hidden or not."""
    assert keyframe.pose
    sight = Sight(keyframe.pose, CameraView(intrinsics=keyframe.intrinsics), None, ())
    return sight.of(np.array(landmark.position), 0.2) is PlaceSight.OPEN


def _colour(landmark: Landmark) -> str:
    return landmark.label.split()[0]


def _off_m(landmark: Landmark, thing: LayoutObject) -> float:
    """How far a landmark is from a thing when it was seen last; far where it is another."""
    place = thing.position_at(landmark.last_seen_ns)
    if place is None or _colour(landmark) != thing.colour:
        return _FAR
    return math.dist(place, landmark.position)


def room_figures(tally: MapTally) -> dict[str, float]:
    """Shares 0..1, and metres."""
    p50, p90 = np.percentile(tally.off_m or [math.nan], [50, 90])
    return {
        'things': tally.things,
        'found': tally.matched / max(1, tally.things),
        'doubled': tally.doubled / max(1, tally.things),
        'false': tally.false / max(1, tally.things),
        'counts_right': tally.counts_right / max(1, tally.kinds),
        'off_m_p50': float(p50),
        'off_m_p90': float(p90),
        'absent': tally.absent,
        'called_gone': tally.called_gone,
        'rightly_gone': tally.rightly_gone,
    }


def measure_cabinet(
    folder: Path, ways: Sequence[str] = CABINET_WAYS
) -> dict[str, dict[str, float]]:
    """Map a cabinet with the boxes of its detector, by each way to place items."""
    scene = cabinet_scene(folder)
    truth = next(truths[0] for truths in scene.truths if truths)
    figures = {}
    for way in ways:
        rng = np.random.default_rng(3)
        keyframes = [keyframe_of(scene, n, way, rng, n) for n in range(len(scene.shots))]
        perceiver = DetectorPerceiver(
            None, ClassicalConfig(), boxes_of=lambda keyframe: scene.boxes[keyframe.id]
        )
        landmarks = map_of_keyframes(keyframes, perceiver)
        named = [one for one in landmarks.scene_map().landmarks if 'refrigerator' in one.label]
        off_m = [float(np.linalg.norm(truth - np.array(one.position))) for one in named]
        figures[way] = {
            'boxes': sum(map(bool, scene.boxes)),
            'landmarks': len(named),
            'observations': max((one.observations for one in named), default=0),
            'off_m': min(off_m, default=math.nan),
            'gone': sum(one.status is LandmarkStatus.GONE for one in named),
        }
    return figures


def measure_followed(folder: Path) -> dict[str, float]:
    """Map a sequence with depth from its images alone: how far its way is from the true one."""
    poses: dict[int, Pose] = {}

    def images() -> Iterator[StampedImage]:
        for shot in read_sequence(folder):
            poses[shot.stamp_ns] = shot.pose
            yield replace(shot.stamped(), depth=shot.depth)

    landmarks = map_of_images(images(), ClassicalPerceiver())
    path = landmarks.path
    start = poses[path[0].stamp_ns]
    off_m = []
    for point in path:
        true = start.rotation().T @ np.subtract(poses[point.stamp_ns].position, start.position)
        off_m.append(float(np.linalg.norm(true - point.position)))
    way_m = sum(math.dist(a.position, b.position) for a, b in pairwise(path))
    return {'parts': landmarks.parts, 'points': len(path), 'way_m': way_m, 'end_off_m': off_m[-1]}


def place_stream(count: int, seed: int = 1) -> Iterator[tuple[SemanticDelta, CameraView]]:
    """Deltas of a camera that paces a place without end, with noise in all that it sees."""
    rng = np.random.default_rng(seed)
    camera = Intrinsics.from_fov(640, 480, math.radians(80))
    places = rng.uniform((-5, -5, 0.2), (5, 5, 1.2), (_THINGS, 3))
    labels = [('chair', 'cup', 'potted plant', 'tv')[n % 4] for n in range(_THINGS)]
    for number in range(count):
        angle = 0.31 * number
        yaw = angle + 1.3 * math.sin(0.11 * number)
        rotation = rotation_from_ypr(yaw, 0.05, 0.0)
        x, y = 2 * math.cos(0.05 * angle), 2 * math.sin(0.07 * angle)
        pose = Pose((x, y, 1.1), quaternion_from_matrix(rotation), 'map')
        items = []
        for label, place in zip(labels, places, strict=True):
            body = rotation.T @ (place - pose.position)
            bearing, elevation = direction_of_vector(body)
            if abs(bearing) > 0.6 or abs(elevation) > 0.4 or rng.random() < 0.2:
                continue
            distance_m = float(np.linalg.norm(body)) * rng.normal(1, 0.05)
            bearing, elevation = np.array((bearing, elevation)) + rng.normal(0, 0.01, 2)
            items.append(
                Item(
                    label,
                    bearing_rad=float(bearing),
                    elevation_rad=float(elevation),
                    size_rad=0.5 / distance_m,
                    distance_m=distance_m,
                    confidence=0.8,
                    scale=ScaleSource.DEPTH,
                )
            )
        stamp_ns = (number + 1) * 1_000_000_000
        delta = SemanticDelta(
            stamp_ns, DeltaKind.CHANGE, number, max(0, number - 1), items=tuple(items)
        )
        yield delta, CameraView(pose, camera)


def measure_stream(count: int) -> dict[str, Any]:
    """Size of the state and time per delta, along a stream."""
    landmarks = LandmarkMap()
    marks = {count // 10, count // 2, count}
    rows: dict[int, dict[str, float]] = {}
    seconds = 0.0
    before = 0
    for number, (delta, view) in enumerate(place_stream(count), 1):
        start = time.process_time()
        landmarks.add(delta, view)
        seconds += time.process_time() - start
        if number in marks:
            rows[number] = {
                'landmarks': len(landmarks),
                'state_kB': len(json.dumps(landmarks.to_json())) / 1000,
                'ms_per_delta': 1e3 * seconds / (number - before),
            }
            seconds, before = 0.0, number
    return {'things': _THINGS, 'rows': rows}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--rooms', type=some_count, default=24)
    parser.add_argument('--seed', type=int, default=78001)
    parser.add_argument('--duration', type=float, default=60.0, metavar='S')
    parser.add_argument('--deltas', type=some_count, default=_STREAM, help='of the stream')
    parser.add_argument(
        '--real', type=Path, metavar='DIR', help='sequences of real cameras, instead of rooms'
    )
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures there too')


def main(args: argparse.Namespace) -> int:
    """Measure and print; 1: the map of the stream grows with time."""
    cv2.setNumThreads(1)
    figures: dict[str, Any] = {}
    if args.real:
        if (args.real / 'cabinet' / 'boxes').is_dir():
            figures['cabinet'] = measure_cabinet(args.real / 'cabinet')
            _print_rows('cabinet', figures['cabinet'])
        figures['without poses'] = {
            folder.name: measure_followed(folder)
            for folder in find_sequences(args.real)
            if (folder / 'depth').is_dir()
        }
        _print_rows('without poses', figures['without poses'])
        figures['camera alone'] = camera_maps.measure(args.real)
        _print_rows('camera alone', figures['camera alone'])
        is_flat = True
    else:
        tallies = measure_rooms(args.seed, args.rooms, args.duration)
        figures['rooms'] = {name: room_figures(tally) for name, tally in tallies.items()}
        _print_rows('rooms', figures['rooms'])
        figures['areas'] = measure_areas(args.seed, args.rooms, args.duration)
        _print_rows('areas', {'': figures['areas']})
        figures['stream'] = measure_stream(args.deltas)
        rows = figures['stream']['rows']
        _print_rows('stream', {str(n): row for n, row in rows.items()})
        _, half, whole = (rows[number]['state_kB'] for number in sorted(rows))
        is_flat = whole <= _GROWTH * half
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    return 0 if is_flat else 1


def _print_rows(title: str, rows: dict[str, dict[str, float]]) -> None:
    print(title)
    for name, row in rows.items():
        print(f'  {name:14} ' + '  '.join(f'{key} {value:.3g}' for key, value in row.items()))
