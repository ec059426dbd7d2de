# SPDX-License-Identifier: Apache-2.0
"""Maps of a camera alone, without its poses and depth, against what is true.

Things are boxes around points of the depth image, wavering by some pixels, each with a name of its
own: what is measured is the way, the placing and the scale, and not the names. A thing is due
where three keyframes show it from directions 10 degrees apart. It is right where it lies within
10 degrees and 25 % of where it is from the camera that saw it last, with one factor for all
lengths of a map without metres. Directions between things are those of pairs, with the map turned
as a whole to the true way; right is within 20 degrees.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.keyframes.selector import Keyframer
from embodied_r_ros.core.perception.classical import ClassicalConfig
from embodied_r_ros.core.perception.detector import DetectorPerceiver
from embodied_r_ros.core.types.deltas import ItemStatus, ScaleSource
from embodied_r_ros.data.episodes.offline import map_of_keyframes
import numpy as np

from bench.item_positions import box_around, flat_points, pixel_of
from bench.real_sequences import read_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
    from embodied_r_ros.core.types.vocabulary import Detection
    from numpy.typing import NDArray

    from bench.real_sequences import RealShot

_LEAST_LOOKS, _LEAST_PARALLAX_RAD = 3, math.radians(10.0)
_NEAR_SHARE, _NEAR_RAD = 0.25, math.radians(10.0)
_SAME_WAY_RAD = math.radians(20.0)
_APART_SHARE = 0.3  # of the usual distance between things: nearer pairs have no direction
_FRESH, _MOST = 30, 40  # images between those that things are taken from, and things at most
_IN_FRONT = 0.9  # of its distance, that depth may have where a thing is not hidden


@dataclass
class CameraMap:
    """What is known of one map, and what is true of it."""

    scene_map: SceneMap
    parts: int
    poses: dict[int, Pose]  # true, of the camera link, by stamp
    places: dict[str, NDArray[np.float64]]  # true, by the label of the thing [m]
    looks: dict[str, list[int]] = field(default_factory=dict)  # stamps of keyframes, by label


def map_points(folder: Path, seed: int = 7) -> CameraMap:
    """Map points of a sequence with depth by its images and its lens alone."""
    rng = np.random.default_rng(seed)
    shots = {shot.stamp_ns: shot for shot in read_sequence(folder)}
    things = [
        point
        for number, shot in enumerate(shots.values())
        if number % _FRESH == 0
        for point in flat_points(shot, rng)
    ][:_MOST]
    names = {f'thing {number}': point for number, point in enumerate(things)}
    boxes: dict[int, list[Detection]] = {}

    def boxes_of(stamp_ns: int) -> list[Detection]:
        if stamp_ns not in boxes:
            shot = shots[stamp_ns]
            seen = [(n, p) for n, p in enumerate(things) if _is_shown(shot, p)]
            boxes[stamp_ns] = [box_around(shot, point, rng, number) for number, point in seen]
        return boxes[stamp_ns]

    perceiver = DetectorPerceiver(
        None, ClassicalConfig(max_items=64), boxes_of=lambda key: boxes_of(key.stamp_ns)
    )
    keyframes = Keyframer().stream(shot.stamped() for shot in shots.values())
    looks: dict[str, list[int]] = {}
    landmarks = map_of_keyframes(keyframes, perceiver, each=lambda delta: note_looks(delta, looks))
    poses = {stamp_ns: shot.pose for stamp_ns, shot in shots.items()}
    return CameraMap(landmarks.scene_map(), landmarks.parts, poses, names, looks)


def _is_shown(shot: RealShot, point: NDArray[np.float64]) -> bool:
    """Whether a point is well inside of the image, and depth does not hide it."""
    pixel = pixel_of(shot, point)
    if pixel is None or shot.depth is None:
        return False
    scale = shot.depth.shape[1] / shot.intrinsics.width
    row, column = (
        min(side - 1, round(at * scale))
        for side, at in zip(shot.depth.shape, pixel[::-1], strict=True)
    )
    ahead = (shot.pose.rotation().T @ (point - np.array(shot.pose.position)))[0]
    depth = float(shot.depth[row, column])
    return depth == 0 or depth > _IN_FRONT * ahead


def note_looks(delta: SemanticDelta, looks: dict[str, list[int]]) -> None:
    """Note which things a keyframe shows."""
    for item in delta.items:
        if item.status is not ItemStatus.LEFT:
            looks.setdefault(item.label, []).append(delta.stamp_ns)


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Figures by sequence, of those of a folder that have depth."""
    sequences = sorted(path.parent for path in folder.glob('*/depth'))
    return {sequence.name: figures(map_points(sequence)) for sequence in sequences}


def figures(known: CameraMap) -> dict[str, float]:
    """Shares of what is right, 0..1, and counts."""
    due = [label for label, stamps in known.looks.items() if _is_due(known, label, stamps)]
    by_label = {one.label: one for one in known.scene_map.landmarks}
    placed = [label for label in due if label in by_label]
    views = {
        label: view
        for label in placed
        if (view := _views(known, label, by_label[label])) is not None
    }
    ratios = [float(np.linalg.norm(true) / np.linalg.norm(own)) for own, true in views.values()]
    factor = float(np.median(ratios)) if ratios else math.nan
    is_metric = known.scene_map.scale is not ScaleSource.RELATIVE
    right = [
        _angle(own, true) <= _NEAR_RAD
        and abs((1.0 if is_metric else factor) * ratio**-1 - 1) <= _NEAR_SHARE
        for (own, true), ratio in zip(views.values(), ratios, strict=True)
    ]
    ways = _directions(known, {label: by_label[label] for label in by_label if label in views})
    return {
        'due': len(due),
        'placed': len(placed) / max(1, len(due)),
        'right': sum(right) / max(1, len(due)),
        'off_deg_p50': math.degrees(_median([_angle(*view) for view in views.values()])),
        'off_share_p50': _median([abs(factor / ratio - 1) for ratio in ratios]),
        'directions': len(ways),
        'directions_right': sum(way <= _SAME_WAY_RAD for way in ways) / max(1, len(ways)),
        'metres_off': abs(1 / factor - 1) if is_metric else math.nan,
        'parts': known.parts,
    }


def _is_due(known: CameraMap, label: str, stamps: Sequence[int]) -> bool:
    place = known.places.get(label)
    if place is None or len(stamps) < _LEAST_LOOKS:
        return False
    rays = [place - np.array(known.poses[stamp].position) for stamp in stamps]
    return max(_angle(a, b) for a, b in combinations(rays, 2)) >= _LEAST_PARALLAX_RAD


def _views(
    known: CameraMap, label: str, landmark: Landmark
) -> tuple[NDArray[np.float64], NDArray[np.float64]] | None:
    """Where a thing is by the map and in truth, from the camera that saw it last.

    Both are in the axes of the world, the map being turned as a whole. None: the map has not that
    camera.
    """
    path = {point.stamp_ns: point for point in known.scene_map.path}
    stamps = [stamp for stamp in known.looks[label] if stamp in path]
    if not stamps:
        return None
    point, pose = path[stamps[-1]], known.poses[stamps[-1]]
    own = np.subtract(landmark.position, point.position)
    true = known.places[label] - np.array(pose.position)
    turn = _alignment(known)
    return turn @ own, true


def _alignment(known: CameraMap) -> NDArray[np.float64]:
    """The rotation that turns the map to the truth as a whole, by all placed things. (3, 3)."""
    by_label = {one.label: one.position for one in known.scene_map.landmarks}
    labels = [label for label in by_label if label in known.places]
    ends = np.array([known.poses[point.stamp_ns].position for point in known.scene_map.path])
    own = np.array(
        [*(by_label[one] for one in labels), *(p.position for p in known.scene_map.path)]
    )
    true = np.concatenate([np.array([known.places[one] for one in labels]).reshape(-1, 3), ends])
    u, _, vt = np.linalg.svd((true - true.mean(axis=0)).T @ (own - own.mean(axis=0)))
    flip = np.diag([1.0, 1.0, np.sign(np.linalg.det(u @ vt))])
    return np.asarray(u @ flip @ vt, np.float64)


def _directions(known: CameraMap, landmarks: dict[str, Landmark]) -> list[float]:
    """How far directions from thing to thing are off, of pairs that are apart [rad]."""
    turn = _alignment(known) if landmarks else np.eye(3)
    pairs = [
        (
            turn @ np.subtract(landmarks[b].position, landmarks[a].position),
            known.places[b] - known.places[a],
        )
        for a, b in combinations(landmarks, 2)
    ]
    usual = _median([float(np.linalg.norm(true)) for _, true in pairs])
    return [
        _angle(own, true) for own, true in pairs if np.linalg.norm(true) > _APART_SHARE * usual
    ]


def _angle(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return math.atan2(float(np.linalg.norm(np.cross(a, b))), float(a @ b))


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan
