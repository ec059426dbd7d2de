# SPDX-License-Identifier: Apache-2.0
"""What the classical perceiver says, against what is true of rendered rooms.

Keyframes are those that the truth chose. Each pair is perceived in four ways: with odometry, from
images with intrinsics, from images of a camera that is learned first, and from images of one that
is taken to have 70 degrees (it has 90). The baseline knows the intrinsics and tells motion alone.
The seed is of no training or test data.
"""

from __future__ import annotations

from collections import defaultdict
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
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.types.deltas import ItemStatus, motion_steps, MotionSource
from embodied_r_ros.core.types.geometry import rotation_from_ypr
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.sim.indoor.episodes import draw_episode
from embodied_r_ros.sim.indoor.world import World, WorldRenderer
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np
from tqdm import tqdm

from bench import item_positions, real_names
from bench.baselines import orb_motion

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import Item, Motion, SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.sim.indoor.ground_truth import Truth
    from embodied_r_ros.sim.indoor.scenario import Scenario
    from numpy.typing import NDArray

MODES = ('odometry', 'intrinsics', 'learned', 'assumed')
BASELINE = 'ORB baseline'
_SAME_RAD = math.radians(12)  # an item further off is another one
# A word is right where the motion has at least this much of what it says.
_TRUE_M, _TRUE_RAD = 0.02, math.radians(1)
# A word is missing where the motion has at least this much, and it is not said.
_MAIN_M, _MAIN_SHARE, _MAIN_RAD = 0.1, 0.5, math.radians(5)


@dataclass
class PerceptionTally:
    """What was measured in one mode; lists have an entry per delta or item."""

    rotation_rad: list[float] = field(default_factory=list)
    direction_rad: list[float] = field(default_factory=list)
    motions: list[str] = field(default_factory=list)  # right, wrong, incomplete or unknown
    hits: int = 0  # items that are there
    false: int = 0  # items that are not
    missed: int = 0
    labels: list[str] = field(default_factory=list)  # right, colour or wrong
    statuses: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    bearing_rad: list[float] = field(default_factory=list)
    distances: list[tuple[float, float]] = field(default_factory=list)  # said, true [m]
    seconds: list[float] = field(default_factory=list)


def keyframes_with_truth(
    config: IndoorConfig, seed: int, index: int
) -> tuple[list[Keyframe], Sequence[SemanticDelta]]:
    """Render the true keyframes of an episode, and give the true deltas with them."""
    scenario, truth, _ = draw_episode(config, seed, index)
    return rendered_keyframes(config, scenario, truth), truth.deltas


def rendered_keyframes(config: IndoorConfig, scenario: Scenario, truth: Truth) -> list[Keyframe]:
    """Render the true keyframes of a scenario."""
    world = World(scenario.room, np.random.default_rng(scenario.texture_seed))
    keyframes = []
    with WorldRenderer(world, config.camera()) as renderer:
        for keyframe in truth.keyframes:
            world.place(scenario.positions(keyframe.stamp_ns))
            image = renderer.image(scenario.pose(keyframe.stamp_ns))
            encoded = encode_image(image, config.jpeg_quality)
            keyframes.append(replace(keyframe, image=encoded, intrinsics=config.camera()))
    return keyframes


def seen_in(mode: str, keyframe: Keyframe) -> Keyframe:
    """The keyframe with no more than the mode allows."""
    return replace(
        keyframe,
        pose=keyframe.pose if mode == 'odometry' else None,
        intrinsics=keyframe.intrinsics if mode in {'odometry', 'intrinsics'} else None,
    )


def measure_episode(
    keyframes: Sequence[Keyframe],
    truths: Sequence[SemanticDelta],
    mode: str,
    tally: PerceptionTally,
) -> None:
    """Perceive an episode's keyframes one after the other and count what is right."""
    perceiver = ClassicalPerceiver(ClassicalConfig(learn_hfov=mode == 'learned'))
    items = [seen_in(mode, keyframe) for keyframe in keyframes]
    any(perceiver.learn(*pair) for pair in pairwise(items))
    earlier = None
    for later, truth in zip(items, truths, strict=True):
        start = time.perf_counter()
        delta = perceiver.perceive(earlier, later)
        tally.seconds.append(time.perf_counter() - start)
        if earlier:
            measure_motion(delta.motion, truth.motion, tally)
        measure_items(delta.items, truth.items, tally)
        earlier = later


def measure_baseline(
    keyframes: Sequence[Keyframe], truths: Sequence[SemanticDelta], tally: PerceptionTally
) -> None:
    """Let the baseline tell the motion between an episode's keyframes."""
    for (earlier, later), truth in zip(pairwise(keyframes), truths[1:], strict=True):
        assert later.intrinsics
        images = earlier.image.decode(), later.image.decode()
        start = time.perf_counter()
        motion = orb_motion(*images, later.intrinsics)
        tally.seconds.append(time.perf_counter() - start)
        measure_motion(motion, truth.motion, tally)


def measure_motion(estimate: Motion, true: Motion, tally: PerceptionTally) -> None:
    """Compare a motion with the true one."""
    tally.motions.append(motion_verdict(estimate, true))
    if estimate.source is MotionSource.UNKNOWN:
        return
    a, b = (rotation_from_ypr(m.yaw_rad, m.pitch_rad, m.roll_rad) for m in (estimate, true))
    tally.rotation_rad.append(math.acos(min(1.0, (np.trace(a.T @ b) - 1) / 2)))
    there, here = (np.array(m.translation) for m in (true, estimate))
    if np.linalg.norm(there) >= _MAIN_M and np.linalg.norm(here) > 0:
        cosine = here @ there / np.linalg.norm(here) / np.linalg.norm(there)
        tally.direction_rad.append(math.acos(float(np.clip(cosine, -1.0, 1.0))))


def motion_verdict(estimate: Motion, true: Motion) -> str:
    """Whether every word of a motion is true, and no important one is missing."""
    if estimate.source is MotionSource.UNKNOWN:
        return 'unknown'
    words = {(step.verb, step.direction) for step in motion_steps(estimate)}
    if not words <= _words(true, _TRUE_M, _TRUE_RAD):
        return 'wrong'
    length = float(np.linalg.norm(true.translation))
    main = _words(true, max(_MAIN_M, _MAIN_SHARE * length), _MAIN_RAD)
    return 'right' if main <= words else 'incomplete'


def _words(motion: Motion, least_m: float, least_rad: float) -> set[tuple[str, str]]:
    """The words of those parts of a metric motion that are large enough."""
    parts = [
        ('moved', 'forward', 'backward', motion.translation[0], least_m),
        ('moved', 'left', 'right', motion.translation[1], least_m),
        ('moved', 'up', 'down', motion.translation[2], least_m),
        ('turned', 'left', 'right', motion.yaw_rad, least_rad),
        ('tilted', 'down', 'up', motion.pitch_rad, least_rad),
        ('rolled', 'clockwise', 'anticlockwise', motion.roll_rad, least_rad),
    ]
    return {(v, p if value > 0 else n) for v, p, n, value, least in parts if abs(value) >= least}


def measure_items(items: Sequence[Item], true: Sequence[Item], tally: PerceptionTally) -> None:
    """Compare the items of a delta with the true ones; those that left are matched by label."""
    free = list(true)
    for item in items:
        partner = min(free, key=lambda other: _distance(item, other), default=None)
        if partner is None or _distance(item, partner) > _SAME_RAD + partner.size_rad / 2:
            tally.false += 1
            tally.statuses[item.status.name].append(False)
            continue
        free.remove(partner)
        tally.hits += 1
        tally.statuses[item.status.name].append(item.status is partner.status)
        _measure_item(item, partner, tally)
    tally.missed += len(free)
    for item in free:
        tally.statuses[f'true {item.status.name}'].append(False)


def _measure_item(item: Item, true: Item, tally: PerceptionTally) -> None:
    tally.statuses[f'true {true.status.name}'].append(item.status is true.status)
    is_right, is_short = item.label == true.label, len(item.label.split()) == 2
    tally.labels.append('right' if is_right else 'colour' if is_short else 'wrong')
    if item.status is not ItemStatus.LEFT:
        tally.bearing_rad.append(abs(item.bearing_rad - true.bearing_rad))
        if math.isfinite(item.distance_m):
            tally.distances.append((item.distance_m, true.distance_m))


def _distance(item: Item, other: Item) -> float:
    """Angle between two items; infinite where their colours differ or one left."""
    left = ItemStatus.LEFT
    if item.label.split()[0] != other.label.split()[0]:
        return math.inf
    if (item.status is left) is not (other.status is left):
        return math.inf
    across = item.bearing_rad - other.bearing_rad
    return math.hypot(across, item.elevation_rad - other.elevation_rad)


def summary(tally: PerceptionTally) -> dict[str, float]:
    """Figures of a mode; angles in degrees, shares 0..1."""
    motions, labels = tally.motions, tally.labels
    ratios = np.array([distance / true for distance, true in tally.distances] or [math.nan])
    figures = {
        'pairs': len(motions),
        **_median_p90('rotation_deg', np.degrees(tally.rotation_rad)),
        **_median_p90('direction_deg', np.degrees(tally.direction_rad)),
        'motion_right': motions.count('right') / len(motions),
        'motion_incomplete': motions.count('incomplete') / len(motions),
        'motion_wrong': motions.count('wrong') / len(motions),
        'motion_cannot_tell': motions.count('unknown') / len(motions),
        'item_precision': _ratio(tally.hits, tally.hits + tally.false),
        'item_recall': _ratio(tally.hits, tally.hits + tally.missed),
        'label_right': _ratio(labels.count('right'), len(labels)),
        'label_colour_only': _ratio(labels.count('colour'), len(labels)),
        **_median_p90('bearing_deg', np.degrees(tally.bearing_rad)),
        'distance_given': len(tally.distances) / max(1, len(tally.bearing_rad)),
        'distance_within_10_percent': float(np.mean(np.abs(ratios - 1) < 0.1)),
    }
    for status in ItemStatus:
        name = status.name.lower()
        for figure, key in (('precision', status.name), ('recall', f'true {status.name}')):
            right = tally.statuses[key]
            figures[f'{name}_{figure}'] = _ratio(sum(right), len(right))
    return {**figures, **_median_p90('ms_per_pair', 1e3 * np.array(tally.seconds))}


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else math.nan


def _median_p90(name: str, values: NDArray[np.float64]) -> dict[str, float]:
    if not len(values):
        return {f'{name}_median': math.nan, f'{name}_p90': math.nan}
    median, p90 = (float(value) for value in np.percentile(values, [50, 90]))
    return {f'{name}_median': median, f'{name}_p90': p90}


def measure(config: IndoorConfig, seed: int, episodes: int) -> dict[str, dict[str, float]]:
    """Measure all modes on episodes of a seed."""
    tallies = {mode: PerceptionTally() for mode in (*MODES, BASELINE)}
    for index in tqdm(range(episodes), desc='episodes', disable=not sys.stderr.isatty()):
        keyframes, truths = keyframes_with_truth(config, seed, index)
        for mode in MODES:
            measure_episode(keyframes, truths, mode, tallies[mode])
        measure_baseline(keyframes, truths, tallies[BASELINE])
    return {mode: summary(tally) for mode, tally in tallies.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--episodes', type=some_count, default=40)
    parser.add_argument('--seed', type=int, default=77001)
    parser.add_argument('--size', default='320x240', help='of the images, WxH')
    parser.add_argument(
        '--real',
        type=Path,
        metavar='DIR',
        help='sequences of real cameras with depth: where items are placed, instead of rooms',
    )
    parser.add_argument(
        '--detector',
        metavar='FILE',
        help='with --labels: file that names things, or several with commas between',
    )
    parser.add_argument(
        '--labels',
        type=Path,
        metavar='JSON',
        help='with --real and --detector: labels by hand '
        '(test/core/perception/keyframe_names.json), whose names are compared instead',
    )
    parser.add_argument(
        '--half', choices=real_names.HALVES, default='development', help='of the labels'
    )
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures there too')


def main(args: argparse.Namespace) -> int:
    """Measure and print one row per figure."""
    cv2.setNumThreads(1)
    if args.labels:
        detector = DetectorConfig(args.detector or '')
        tallies = real_names.measure(args.real, args.labels, detector, args.half)
        real_names.print_figures(tallies)
        figures: dict[str, Any] = real_names.to_json(tallies)
    elif args.real:
        figures = {'positions': item_positions.measure(args.real)}
        item_positions.print_figures(figures['positions'])
    else:
        width, height = (int(side) for side in args.size.split('x'))
        config = IndoorConfig(width_px=width, height_px=height, kinds='all')
        figures = measure(config, args.seed, args.episodes)
        print(f'{"":28}' + ''.join(f'{mode:>14}' for mode in figures))
        for name in figures[MODES[0]]:
            print(f'{name:28}' + ''.join(f'{mode[name]:14.3f}' for mode in figures.values()))
    if args.json:
        args.json.write_text(json.dumps(figures, indent=1))
    return 0
