# SPDX-License-Identifier: Apache-2.0
"""How far items are placed from where they are, on recordings of real cameras with depth.

Items are boxes, which the perceiver places as it does live: by depth, by two keyframes whose poses
are known, or by the floor. `cabinet` has boxes of a detector; its truth is the middle of what all
views together show of the cabinet. Other sequences have none: there, boxes lie around points of
the depth image, wavering by some pixels, and the truth is the point. Depth is used as the sensor
gave it, with noise and holes as of a cheap sensor, and with every third image withheld, whose
items are placed by two keyframes then.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.classical import ClassicalConfig
from embodied_r_ros.core.perception.detector import DetectorPerceiver
from embodied_r_ros.core.types.deltas import ItemStatus, ScaleSource
from embodied_r_ros.core.types.geometry import rays_of_pixels
from embodied_r_ros.core.types.images import encode_image, pack_depth
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.vocabulary import Detection
import numpy as np

from bench.real_sequences import read_sequence

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from bench.real_sequences import RealShot

WAYS = ('depth', 'noisy depth', 'two of three', 'two keyframes', 'floor')
# What counts as placed in a way; another way may place what this one does not.
_RESTS_ON = {
    'depth': ScaleSource.DEPTH,
    'noisy depth': ScaleSource.DEPTH,
    'two keyframes': ScaleSource.ODOMETRY,
    'floor': ScaleSource.FLOOR,
}
_LABEL = 'refrigerator'  # a thing that stands on the floor and is as large as a cabinet
_MIN_SCORE = 0.2
_APART, _EVERY = 10, 5  # images between two keyframes of a video, and between pairs of them
_CABINET_APART = 4  # the same of the cabinet, whose images are 0.67 s apart
_BELOW_M = 100.0
_SIDE_PX, _WAVER_PX, _MOST_POINTS = 48, 2.0, 6
_FLAT = 0.05  # share of its depth by which what lies around a point may differ
_NOISE, _HOLES = 0.02, 0.5  # of cheap depth: standard deviation, as a share, and share lost


@dataclass(frozen=True)
class BoxedSequence:
    """Images of a sequence with boxes in them, and where the things in the boxes are."""

    shots: Sequence[RealShot]
    boxes: Sequence[Sequence[Detection]]  # by image [px]
    truths: Sequence[Sequence[NDArray[np.float64]]]  # place of each box's thing in the world [m]
    pairs: Sequence[tuple[int, int]]  # numbers of the earlier and the later image of each pair


@dataclass(frozen=True)
class Placement:
    """One item, and how it was placed."""

    way: str
    scale: str  # what its distance rests on; empty: it was not placed
    off_m: float  # from the truth; NaN: not placed
    distance_m: float  # true


def cabinet_scene(folder: Path) -> BoxedSequence:
    """The cabinet with the boxes of its detector."""
    shots: list[RealShot] = []
    boxes: list[list[Detection]] = []
    for shot in read_sequence(folder):
        file = folder / 'boxes' / f'{shot.index:04}_yolo2_0.15.txt'
        rows = np.array([line.split() for line in file.read_text().splitlines()], np.float64)
        best = max(rows, key=lambda row: row[4], default=None)
        shots.append(shot)
        if best is None or best[4] < _MIN_SCORE:
            boxes.append([])
            continue
        x, y, width, height, score = (float(value) for value in best)
        boxes.append([Detection(_LABEL, score, (x, y, x + width, y + height))])
    truth = _middle_of_all(shots, boxes)
    apart = _CABINET_APART
    pairs = [(i, i + apart) for i in range(len(shots) - apart) if boxes[i] and boxes[i + apart]]
    return BoxedSequence(shots, boxes, [[truth] * len(detections) for detections in boxes], pairs)


def _middle_of_all(
    shots: Sequence[RealShot], boxes: Sequence[Sequence[Detection]]
) -> NDArray[np.float64]:
    """Middle of what all views show in their boxes, above the floor and not far behind. (3,)."""
    clouds = []
    for shot, detections in zip(shots, boxes, strict=True):
        if shot.depth is None or shot.depth_camera is None or not detections:
            continue
        scale = shot.depth_camera.width / shot.intrinsics.width
        left, top, right, bottom = (round(edge * scale) for edge in detections[0].box)
        rows, columns = np.mgrid[max(0, top) : bottom, max(0, left) : right]
        rows, columns = rows.ravel(), columns.ravel()
        inside = (rows < shot.depth.shape[0]) & (columns < shot.depth.shape[1])
        pixels = np.column_stack([columns, rows])[inside]
        depth = shot.depth[pixels[:, 1], pixels[:, 0]]
        rays = rays_of_pixels(shot.depth_camera, pixels[depth > 0].astype(np.float64))
        points = rays * depth[depth > 0][:, None]
        clouds.append(points @ shot.pose.rotation().T + shot.pose.position)
    cloud = np.concatenate(clouds)
    floor = float(np.percentile(cloud[:, 2], 2))
    cloud = cloud[cloud[:, 2] > floor + 0.06]
    middle = np.median(cloud, axis=0)
    near = cloud[np.linalg.norm(cloud[:, :2] - middle[:2], axis=1) < 0.7]
    low, high = np.percentile(near, [3, 97], axis=0)
    return np.array([*(low + high)[:2] / 2, (floor + high[2]) / 2])


def points_scene(folder: Path, seed: int = 7) -> BoxedSequence:
    """Boxes around points of the depth image, in pairs of images half a second apart."""
    rng = np.random.default_rng(seed)
    # Their origin is where tracking began, so that nothing is known of the floor: none is below 0.
    shots = [_lower(shot) for shot in read_sequence(folder)]
    all_shots: list[RealShot] = []
    boxes: list[list[Detection]] = []
    truths: list[list[NDArray[np.float64]]] = []
    pairs = []
    for number in range(0, len(shots) - _APART, _EVERY):
        earlier, later = shots[number], shots[number + _APART]
        points = flat_points(later, rng)
        in_view = [p for p in points if pixel_of(earlier, p) and pixel_of(later, p)]
        pairs.append((len(all_shots), len(all_shots) + 1))
        for shot in (earlier, later):
            all_shots.append(shot)
            boxes.append([box_around(shot, p, rng, n) for n, p in enumerate(in_view)])
            truths.append(in_view)
    return BoxedSequence(all_shots, boxes, truths, pairs)


def _lower(shot: RealShot) -> RealShot:
    x, y, z = shot.pose.position
    return replace(shot, pose=replace(shot.pose, position=(x, y, z - _BELOW_M)))


def flat_points(shot: RealShot, rng: np.random.Generator) -> list[NDArray[np.float64]]:
    """Places in the world of a few points with flat surroundings, away from the edges."""
    assert shot.depth is not None
    assert shot.depth_camera
    step = shot.intrinsics.width / shot.depth_camera.width
    half = round(_SIDE_PX / step / 2)
    height, width = shot.depth.shape
    middles: list[NDArray[np.float64]] = []
    pixels: list[NDArray[np.int64]] = []
    for _ in range(200):
        at = rng.integers((half, half), (width - half, height - half))
        part = shot.depth[at[1] - half : at[1] + half, at[0] - half : at[0] + half]
        known = part[part > 0]
        is_apart = all(np.abs(at - other).max() > 2 * half for other in pixels)
        if known.size < 0.5 * part.size or not is_apart:
            continue
        if np.ptp(np.percentile(known, [5, 95])) < _FLAT * np.median(known):
            ray = rays_of_pixels(shot.depth_camera, at[None].astype(np.float64))[0]
            place = ray * float(np.median(known))
            middles.append(shot.pose.rotation() @ place + shot.pose.position)
            pixels.append(at)
        if len(middles) == _MOST_POINTS:
            break
    return middles


def pixel_of(shot: RealShot, point: NDArray[np.float64]) -> tuple[float, float] | None:
    """Column and row of a place in the world [px]; None: it is not well inside the image."""
    x, y, z = shot.pose.rotation().T @ (point - np.array(shot.pose.position))
    if x < 0.2:
        return None
    lens = shot.intrinsics
    u, v = lens.cx - lens.fx * y / x, lens.cy - lens.fy * z / x
    margin = _SIDE_PX / 2
    inside = margin < u < lens.width - margin and margin < v < lens.height - margin
    return (float(u), float(v)) if inside else None


def box_around(
    shot: RealShot, point: NDArray[np.float64], rng: np.random.Generator, number: int
) -> Detection:
    """A box around a point that an image shows, wavering by some pixels, with its own name."""
    pixel = pixel_of(shot, point)
    assert pixel
    u, v = np.array(pixel) + 0.5 + rng.normal(0, _WAVER_PX, 2)
    half = _SIDE_PX / 2
    # Each with a name of its own, so that what is measured is the placing and not the pairing.
    return Detection(f'thing {number}', 0.9, (u - half, v - half, u + half, v + half))


def placements(scene: BoxedSequence, way: str, seed: int = 3) -> list[Placement]:
    """Place the boxes of each pair's later image in one of WAYS."""
    rng = np.random.default_rng(seed)
    placements = []
    for number, (first, second) in enumerate(scene.pairs):
        earlier, later = (keyframe_of(scene, n, way, rng, number) for n in (first, second))
        perceiver = DetectorPerceiver(
            None, ClassicalConfig(), boxes_of=lambda keyframe: scene.boxes[keyframe.id]
        )
        delta = perceiver.perceive(None if way == 'floor' else earlier, later)
        shot = scene.shots[second]
        items = [item for item in delta.items if item.status is not ItemStatus.LEFT]
        for detection, truth in zip(scene.boxes[second], scene.truths[second], strict=True):
            true_m = float(np.linalg.norm(truth - np.array(shot.pose.position)))
            same = [item for item in items if item.label.endswith(detection.label)]
            position = same[0].position if same else None
            is_other = way in _RESTS_ON and same and same[0].scale is not _RESTS_ON[way]
            if position is None or is_other:
                placements.append(Placement(way, '', math.nan, true_m))
                continue
            place = shot.pose.rotation() @ np.array(position) + shot.pose.position
            off_m = float(np.linalg.norm(place - truth))
            placements.append(Placement(way, same[0].scale.name, off_m, true_m))
    return placements


def keyframe_of(
    scene: BoxedSequence, number: int, way: str, rng: np.random.Generator, pair: int
) -> Keyframe:
    """An image of a scene as a keyframe, with as much depth as one of WAYS has."""
    shot = scene.shots[number]
    depth = shot.depth
    if depth is None or way in {'two keyframes', 'floor'}:
        depth = None
    elif way == 'noisy depth':
        noisy = depth * rng.normal(1, _NOISE, depth.shape)
        depth = np.where(rng.random(depth.shape) < _HOLES, 0, noisy).astype(np.float32)
    elif way == 'two of three' and pair % 3 == 2:
        depth = None
    keyframe = Keyframe(
        number,
        shot.stamp_ns,
        encode_image(shot.image),
        KeyframeReason.FIRST,
        number,
        intrinsics=shot.intrinsics,
        pose=shot.pose,
    )
    return keyframe if depth is None else replace(keyframe, depth=pack_depth(depth))


def summary(placements: Sequence[Placement]) -> dict[str, float]:
    """Share that was placed, and errors in metres and in percent of the distance."""
    known = [entry for entry in placements if math.isfinite(entry.off_m)]
    figures = {'items': len(placements), 'placed': len(known) / max(1, len(placements))}
    for unit, values in (
        ('m', [entry.off_m for entry in known]),
        ('percent', [100 * entry.off_m / entry.distance_m for entry in known]),
    ):
        p50, p90 = np.percentile(values, [50, 90]) if values else (math.nan, math.nan)
        figures |= {f'off_{unit}_p50': float(p50), f'off_{unit}_p90': float(p90)}
    return figures


def measure(folder: Path) -> dict[str, dict[str, dict[str, float]]]:
    """Figures by sequence and way, of the sequences of a folder that have depth."""
    figures = {}
    for sequence in sorted(path.parent for path in folder.glob('*/depth')):
        has_boxes = (sequence / 'boxes').is_dir()
        scene = cabinet_scene(sequence) if has_boxes else points_scene(sequence)
        # What has no boxes lies anywhere, not on the floor.
        ways = WAYS if has_boxes else WAYS[:-1]
        figures[sequence.name] = {way: summary(placements(scene, way)) for way in ways}
    return figures


def print_figures(figures: dict[str, dict[str, dict[str, float]]]) -> None:
    """Print one row per sequence and way."""
    print('positions    by              items  placed   off p50    p90 [m]   p50    p90 [%]')
    for sequence, ways in figures.items():
        for way, row in ways.items():
            print(
                f'{sequence:12} {way:14} {row["items"]:6.0f} {row["placed"]:7.2f} '
                f'{row["off_m_p50"]:9.3f} {row["off_m_p90"]:8.3f} '
                f'{row["off_percent_p50"]:9.1f} {row["off_percent_p90"]:6.1f}'
            )
