# SPDX-License-Identifier: Apache-2.0
"""Motion of a camera without odometry, against what is true: rendered and real recordings.

Pairs are the keyframes that the extractor chooses, and those that it chooses with an interval of
at most 0.5 s. A motion is right where it is told, its yaw is within 5 degrees of the true one, and
its direction within 25 degrees where the way is over 0.1 m. What is not told is wrong. Beside it
stand the constant "no turn, forward", two views alone, and the usual way with ORB features.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
import math
from pathlib import Path
import sys
import time
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer, KeyframeSelector
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.egomotion import motion_from_views
from embodied_r_ros.core.types.deltas import Motion, MotionSource, ScaleSource
from embodied_r_ros.core.types.geometry import (
    Intrinsics,
    relative_motion,
    wrap_angle_rad,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import StampedImage
import numpy as np
from tqdm import tqdm

from bench.baselines import orb_motion
from bench.own_body import SHAPES, with_own_parts
from bench.real_sequences import find_sequences, read_sequence
from bench.rendered_paths import FOV_RAD, PATHS, render_path
from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.keyframes import Keyframe

YAW_DEG, DIRECTION_DEG, WAY_M = 5.0, 25.0, 0.1
RIGHT_SHARE = 0.8
LIVE_HZ, LIVE_SHARE = 30.0, 0.25
INTERVALS_S = (0.0, 0.5)
FORWARD = Motion(MotionSource.MODEL, 0.0, 0.0, 0.0, (1.0, 0.0, 0.0))
# Their truth is the odometry of the vehicle itself.
UNBOUND = ('drone_hallway',)
METHODS = ('constant', 'ORB', 'two views', 'followed', 'delta', 'with depth')


@dataclass(frozen=True)
class PosedImage:
    """An image of a recording, and the true pose of its camera."""

    image: StampedImage
    pose: Pose


@dataclass
class MotionTally:
    """What one method told of the pairs of a recording."""

    yaw_deg: list[float] = field(default_factory=list)  # errors of what is told
    direction_deg: list[float] = field(default_factory=list)  # where the way is long enough
    metres: list[float] = field(default_factory=list)  # told length as a share of the true one
    right: list[bool] = field(default_factory=list)  # of every pair

    def add(self, motion: Motion | None, earlier: Pose, later: Pose) -> None:
        """Compare a motion with the true one; None: it is not told."""
        rotation, way = relative_motion(earlier, later)
        if motion is None or motion.source is MotionSource.UNKNOWN:
            self.right.append(False)
            return
        yaw = abs(math.degrees(wrap_angle_rad(motion.yaw_rad - yaw_pitch_roll(rotation)[0])))
        length = float(np.linalg.norm(way))
        direction = angle_deg(np.asarray(motion.translation), way)
        self.yaw_deg.append(yaw)
        if length > WAY_M:
            self.direction_deg.append(direction)
            if motion.is_metric:
                self.metres.append(float(np.linalg.norm(motion.translation)) / length)
        self.right.append(yaw < YAW_DEG and (length <= WAY_M or direction < DIRECTION_DEG))

    def summary(self) -> dict[str, float]:
        """Shares 0..1, errors in degrees, lengths as a share of the true ones."""
        figures = {
            'pairs': len(self.right),
            'right': float(np.mean(self.right)) if self.right else math.nan,
            'told': len(self.yaw_deg) / max(1, len(self.right)),
        }
        for name, values in (('yaw', self.yaw_deg), ('direction', self.direction_deg)):
            for percent in (50, 90):
                value = float(np.percentile(values, percent)) if values else math.nan
                figures[f'{name}_deg_p{percent}'] = value
        figures['length_p50'] = float(np.median(self.metres)) if self.metres else math.nan
        return figures


def angle_deg(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> float:
    """Angle between two vectors; 180 where one has no direction."""
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if lengths < 1e-9:
        return 180.0
    return math.degrees(math.acos(float(np.clip(a @ b / lengths, -1.0, 1.0))))


def keyframes_of(
    shots: Sequence[PosedImage], interval_s: float, *, with_depth: bool = False
) -> list[tuple[Keyframe, PosedImage]]:
    """The keyframes of a recording, each with its shot."""
    extractor = Keyframer(KeyframeConfig(max_interval_s=interval_s))
    chosen = []
    for shot in shots:
        image = shot.image if with_depth else replace(shot.image, depth=None)
        _, keyframe = extractor.process(image)
        if keyframe:
            chosen.append((keyframe, shot))
    return chosen


def measure(shots: Sequence[PosedImage]) -> dict[str, MotionTally]:
    """Tally of each method, over the pairs of both intervals together."""
    tallies: dict[str, MotionTally] = defaultdict(MotionTally)
    for interval_s in INTERVALS_S:
        chosen = keyframes_of(shots, interval_s)
        perceiver = ClassicalPerceiver()
        for (first, a), (second, b) in pairwise(chosen):
            assert b.image.intrinsics
            views = a.image.image, b.image.image, b.image.intrinsics
            poses = a.pose, b.pose
            tallies['constant'].add(FORWARD, *poses)
            tallies['ORB'].add(orb_motion(*views), *poses)
            tallies['two views'].add(motion_from_views(*views), *poses)
            tallies['followed'].add(second.motion, *poses)
            tallies['delta'].add(perceiver.perceive(first, second).motion, *poses)
        if any(shot.image.depth is not None for shot in shots):
            chosen = keyframes_of(shots, interval_s, with_depth=True)
            for (_, a), (second, b) in pairwise(chosen):
                assert second.motion is None or second.motion.scale is not ScaleSource.ODOMETRY
                tallies['with depth'].add(second.motion, a.pose, b.pose)
    return tallies


def join_tallies(tallies: Sequence[dict[str, MotionTally]]) -> dict[str, MotionTally]:
    """The tallies of several recordings as those of one."""
    total: dict[str, MotionTally] = defaultdict(MotionTally)
    for tally in tallies:
        for method, part in tally.items():
            for name, values in vars(part).items():
                getattr(total[method], name).extend(values)
    return total


def real_shots(folder: Path) -> list[PosedImage]:
    """The images of a real recording, with depth where it has some."""
    return [
        PosedImage(replace(shot.stamped(), depth=shot.depth), shot.pose)
        for shot in read_sequence(folder)
    ]


def rendered_shots(path: str, images: int, room: int) -> list[PosedImage]:
    """A path through a rendered room, as a camera at 30 Hz would see it."""
    shots = []
    for index, shot in enumerate(render_path(path, images, room)):
        height, width = shot.image.shape[:2]
        stamp_ns = round(index * 1e9 / LIVE_HZ)
        intrinsics = Intrinsics.from_fov(width, height, FOV_RAD)
        image = StampedImage(index, stamp_ns, shot.image, intrinsics=intrinsics, depth=shot.depth)
        shots.append(PosedImage(image, shot.pose))
    return shots


def measure_time(shots: Sequence[PosedImage]) -> dict[str, float]:
    """Milliseconds of this process per image: choosing keyframes alone, and with following."""
    images = [replace(shot.image, depth=None) for shot in shots]
    selector, extractor = KeyframeSelector(), Keyframer()
    started = time.process_time()
    for image in images:
        selector.evaluate(image)
    chosen = time.process_time()
    for image in images:
        extractor.process(image)
    followed = time.process_time()
    select_ms = 1e3 * (chosen - started) / len(images)
    all_ms = 1e3 * (followed - chosen) / len(images)
    return {'select_ms': select_ms, 'all_ms': all_ms, 'follow_ms': all_ms - select_ms}


def print_table(name: str, tallies: dict[str, MotionTally]) -> None:
    """Print a row for each method."""
    for method in METHODS:
        if method not in tallies:
            continue
        figures = tallies[method].summary()
        angles = '  '.join(
            f'{figures[f"{kind}_deg_p50"]:6.1f} /{figures[f"{kind}_deg_p90"]:6.1f}'
            for kind in ('yaw', 'direction')
        )
        print(
            f'{name:21} {method:11} {figures["pairs"]:5.0f} {100 * figures["right"]:7.1f} '
            f'{100 * figures["told"]:7.1f}   {angles}   {figures["length_p50"]:6.3f}'
        )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--real', type=Path, metavar='DIR', help='folder of real recordings')
    parser.add_argument(
        '--images',
        type=some_count,
        default=60,
        help='per rendered path (%(default)s; 30 a second)',
    )
    parser.add_argument('--rooms', type=int, default=1, help='rendered rooms (%(default)s)')
    parser.add_argument(
        '--own-body',
        action='store_true',
        help='paste a gripper, a hood and a tool over the real recordings, one at a time',
    )
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures there too')


def _recordings(args: argparse.Namespace) -> Iterator[tuple[str, str, list[PosedImage]]]:
    """Group, name and images of each recording."""
    for room in range(args.rooms):
        for path in PATHS:
            yield 'rendered', path, rendered_shots(path, args.images, room)
    if args.real:
        for folder in find_sequences(args.real):
            group = 'own truth' if folder.name in UNBOUND else 'real'
            yield group, folder.name, real_shots(folder)
        if args.own_body:
            yield from _composites(args.real)


def _composites(folder: Path) -> Iterator[tuple[str, str, list[PosedImage]]]:
    """The real recordings with parts over them, whose surface is that of the next recording."""
    sequences = find_sequences(folder)
    for sequence, other in zip(sequences, [*sequences[1:], sequences[0]], strict=True):
        textures = [shot.image.image for shot in real_shots(other)]
        shots = real_shots(sequence)
        for shape in SHAPES:
            images = with_own_parts(
                [shot.image for shot in shots], shape, textures[len(textures) // 4]
            )
            yield (
                'own body',
                f'{sequence.name} {shape}',
                [PosedImage(image, shot.pose) for image, shot in zip(images, shots, strict=True)],
            )


def main(args: argparse.Namespace) -> int:
    """Measure, print, and say whether the budgets are met."""
    cv2.setNumThreads(1)
    groups: dict[str, dict[str, list[dict[str, MotionTally]]]] = defaultdict(
        lambda: defaultdict(list)
    )
    times = []
    for group, name, shots in tqdm(_recordings(args), disable=not sys.stderr.isatty()):
        groups[group][name].append(measure(shots))
        times.append(measure_time(shots) if group != 'real' or len(shots) > 100 else None)
    print(
        f'{"":21} {"":11} pairs right % told %   yaw p50 / p90 [deg]  direction p50 / p90   length'
    )
    totals = {}
    for group, recordings in groups.items():
        for name, parts in recordings.items():
            print_table(name, join_tallies(parts))
        totals[group] = join_tallies(list(chain.from_iterable(recordings.values())))
        if len(recordings) > 1:
            print_table(f'all {group}', totals[group])
    live = [spent for spent in times if spent]
    spent = {name: float(np.mean([figures[name] for figures in live])) for name in live[0]}
    print('ms an image: ' + ', '.join(f'{name} {value:.1f}' for name, value in spent.items()))
    budgets = [
        Budget(
            f'motion right, {group} recordings',
            totals[group]['delta'].summary()['right'],
            RIGHT_SHARE,
            at_least=True,
        )
        for group in totals
        if group != 'own truth'
    ]
    share = spent['all_ms'] * LIVE_HZ / 1e3
    budgets.append(Budget('live stream at 30 Hz, followed', share, LIVE_SHARE, 'of a core'))
    by_group = {
        group: {
            name: {m: tally.summary() for m, tally in join_tallies(parts).items()}
            for name, parts in recordings.items()
        }
        for group, recordings in groups.items()
    }
    return judge(budgets, args.json, {'groups': by_group, 'milliseconds': spent})
