# SPDX-License-Identifier: Apache-2.0
"""Keyframe selection against the published extractor: overlap, decisions, time per image.

Overlap is measured on seven camera paths through rendered rooms, where depth says what two images
share. Each method is followed twice: with the references that the truth would choose, so that both
judge the same pairs, and with the references that it chooses itself, as it would live.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass
import json
from pathlib import Path
import sys
import time
from typing import Any, Protocol, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.keyframes.alignment import View
from embodied_r_ros.keyframes.overlap import two_view, TwoView
from embodied_r_ros.keyframes.selector import KeyframeConfig, KeyframeSelector
from embodied_r_ros.types.images import StampedImage
import numpy as np
from tqdm import tqdm

from bench.bag_rate import bag_rate
from bench.official_keyframes import OfficialExtractor
from bench.rendered_paths import PATHS, render_path, true_overlap
from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bench.rendered_paths import Shot

MAX_OVERLAP = KeyframeConfig().max_overlap
LIVE_HZ = 30.0
_VGA, _FULL_HD = (640, 480), (1920, 1080)


class Method(Protocol):
    """A way to tell how much an image shares with a reference that is kept."""

    def refer(self, image: NDArray[np.uint8]) -> None:
        """Make an image the reference."""

    def overlap(self, image: NDArray[np.uint8]) -> float:
        """Share of view, 0..1, of the next image with the reference."""


class Official:
    """The published extractor."""

    def __init__(self) -> None:
        self._extractor = OfficialExtractor()
        self._reference: Any = None
        self._last: tuple[int, Any] = (0, None)

    def refer(self, image: NDArray[np.uint8]) -> None:
        """Make an image the reference."""
        self._reference = self._features(image)

    def overlap(self, image: NDArray[np.uint8]) -> float:
        """Share of view, 0..1, of the next image with the reference."""
        size = image.shape[1], image.shape[0]
        return self._extractor.overlap(self._reference, self._features(image), size)

    def _features(self, image: NDArray[np.uint8]) -> Any:
        # An image that becomes the reference is not described twice, in neither method.
        if self._last[0] != id(image):
            self._last = id(image), self._extractor.features(image)
        return self._last[1]


class Ours:
    """This package's measure, followed from image to image as the selector does."""

    def __init__(self) -> None:
        self._reference: View | None = None
        self._before: TwoView | None = None
        self._last: tuple[int, View | None] = (0, None)

    def refer(self, image: NDArray[np.uint8]) -> None:
        """Make an image the reference."""
        self._reference, self._before = self._view(image), None

    def overlap(self, image: NDArray[np.uint8]) -> float:
        """Share of view, 0..1, of the next image with the reference."""
        assert self._reference is not None
        view_pair = two_view(self._reference, self._view(image), self._before)
        self._before = view_pair if view_pair.alignment else self._before
        return view_pair.overlap or 0.0

    def _view(self, image: NDArray[np.uint8]) -> View:
        if self._last[0] != id(image) or self._last[1] is None:
            self._last = id(image), View(image)
        assert self._last[1] is not None
        return self._last[1]


METHODS: dict[str, type[Method]] = {'official': Official, 'ours': Ours}


@dataclass(frozen=True)
class Judgement:
    """What a method said of one pair of images, and what is true."""

    said: float
    true: float
    milliseconds: float


def follow(method: Method, shots: list[Shot], *, own_references: bool) -> list[Judgement]:
    """Judge each shot against the last keyframe: the method's own, or the true one."""
    reference, judgements = shots[0], []
    method.refer(reference.image)
    for shot in shots[1:]:
        started = time.perf_counter()
        estimate = method.overlap(shot.image)
        milliseconds = 1e3 * (time.perf_counter() - started)
        judgement = Judgement(estimate, true_overlap(reference, shot), milliseconds)
        judgements.append(judgement)
        if (judgement.said if own_references else judgement.true) < MAX_OVERLAP:
            reference = shot
            method.refer(shot.image)
    return judgements


def errors(judgements: list[Judgement]) -> dict[str, float]:
    """Mean absolute error, mean error, and share of wrong decisions."""
    estimates = np.array([judgement.said for judgement in judgements])
    true = np.array([judgement.true for judgement in judgements])
    return {
        'mean_absolute_error': float(np.abs(estimates - true).mean()),
        'mean_error': float((estimates - true).mean()),
        'wrong_decisions': float(((estimates < MAX_OVERLAP) != (true < MAX_OVERLAP)).mean()),
    }


def measure_overlap(rooms: int, images: int) -> dict[str, Any]:
    """Errors by method, by whose references, and by path."""
    judgements: dict[tuple[str, str, str], list[Judgement]] = defaultdict(list)
    for room in tqdm(range(rooms), desc='rooms', disable=None):
        for path in PATHS:
            shots = list(render_path(path, images, room))
            for name, method in METHODS.items():
                for references in ('true', 'own'):
                    judged = follow(method(), shots, own_references=references == 'own')
                    judgements[name, references, path] += judged
                    judgements[name, references, 'all'] += judged
    return {
        name: {
            references: {
                path: errors(judgements[name, references, path]) for path in (*PATHS, 'all')
            }
            for references in ('true', 'own')
        }
        for name in METHODS
    }


def measure_time(size: tuple[int, int], images: int) -> dict[str, dict[str, float]]:
    """Milliseconds per image by method, both on the same images; ours is the whole selector."""
    shots = list(render_path('mixed', images, 0, size))
    judged = follow(Official(), shots, own_references=True)
    spent = {'official': [judgement.milliseconds for judgement in judged], 'ours': []}
    selector = KeyframeSelector()
    for index, shot in enumerate(shots):
        started = time.perf_counter()
        selector.evaluate(StampedImage(index, round(index * 1e9 / LIVE_HZ), shot.image))
        spent['ours'].append(1e3 * (time.perf_counter() - started))
    return {
        name: {'median_ms': float(np.median(values)), 'mean_ms': float(np.mean(values))}
        for name, values in spent.items()
    }


def _budgets(
    overlap: dict[str, Any], times: dict[int, dict[str, dict[str, float]]], rate: dict[str, float]
) -> list[Budget]:
    budgets = []
    for references in ('true', 'own'):
        ours, theirs = (overlap[name][references]['all'] for name in ('ours', 'official'))
        for what, key in (('overlap error', 'mean_absolute_error'), ('wrong', 'wrong_decisions')):
            label = f'{what}, {references} references, share of official'
            budgets.append(Budget(label, ours[key] / theirs[key], 0.5))
    for height, limit in ((_VGA[1], 0.5), (_FULL_HD[1], 0.2)):
        ratio = times[height]['ours']['mean_ms'] / times[height]['official']['mean_ms']
        budgets.append(Budget(f'time per image at {height}p, share of official', ratio, limit))
    share = times[_VGA[1]]['ours']['mean_ms'] * LIVE_HZ / 1e3
    return [
        *budgets,
        Budget('live stream 640x480 at 30 Hz', share, 0.3, 'of a core'),
        Budget('bag of raw images', rate['raw_speed'], 10.0, 'times real time', at_least=True),
        Budget('bag of JPEG images', rate['jpeg_speed'], 10.0, 'times real time', at_least=True),
        Budget('memory for four times the bag', rate['memory_growth_mb'], 10.0, 'MB more'),
    ]


def _print_overlap(overlap: dict[str, Any]) -> None:
    print('overlap error / wrong decisions, by the references of  truth        each method')
    for path in (*PATHS, 'all'):
        for name in METHODS:
            cells = [overlap[name][references][path] for references in ('true', 'own')]
            figures = '   '.join(
                f'{cell["mean_absolute_error"]:.3f} {100 * cell["wrong_decisions"]:5.1f} %'
                for cell in cells
            )
            print(f'{path:8} {name:40} {figures}')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this bench."""
    parser.add_argument('--rooms', type=some_count, default=3, help='rendered rooms (%(default)s)')
    parser.add_argument(
        '--images', type=some_count, default=40, help='images per path (%(default)s)'
    )
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and say whether the budgets are met."""
    cv2.setNumThreads(1)
    overlap = measure_overlap(args.rooms, args.images)
    _print_overlap(overlap)
    times = {_VGA[1]: measure_time(_VGA, 150), _FULL_HD[1]: measure_time(_FULL_HD, 60)}
    for height, by_method in times.items():
        for name, spent in by_method.items():
            print(
                f'{height}p {name:8} {spent["median_ms"]:7.2f} ms median, '
                f'{spent["mean_ms"]:.2f} ms mean per image'
            )
    rate = bag_rate()
    print(
        f'bag  raw {rate["raw_speed"]:.1f}x, JPEG {rate["jpeg_speed"]:.1f}x real time; '
        f'memory grows {rate["memory_growth_mb"]:.1f} MB from 20 s to 80 s'
    )
    budgets = _budgets(overlap, times, rate)
    print_budgets(budgets)
    if args.json:
        figures = {
            'overlap': overlap,
            'milliseconds': times,
            'bag': rate,
            'budgets': [budget.to_json() for budget in budgets],
        }
        args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


if __name__ == '__main__':
    _parser = argparse.ArgumentParser(description=__doc__)
    add_arguments(_parser)
    sys.exit(main(_parser.parse_args()))
