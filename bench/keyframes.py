# SPDX-License-Identifier: Apache-2.0
"""Keyframe selection against the published extractor: overlap, decisions, time per image.

Overlap is measured on seven camera paths through rendered rooms and, with `--real`, on recordings
of real cameras, where depth says what two images share. Each method is followed twice: with the
references that the truth would choose, so that both judge the same pairs, and with the references
that it chooses itself, as it would live. Real depth has holes: a decision counts where the truth
without them and the truth with their nearest value agree, well away from the threshold.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
import time
from typing import Any, Protocol, TYPE_CHECKING, TypeVar

import cv2
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.overlap import two_view, TwoView
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer, KeyframeSelector
from embodied_r_ros.core.types.images import encode_image, StampedImage
import numpy as np
from tqdm import tqdm

from bench.bag_rate import bag_rate
from bench.baselines import OfficialExtractor
from bench.real_sequences import find_sequences, read_sequence, TrueOverlap
from bench.real_sequences import true_overlap as true_real_overlap
from bench.rendered_paths import PATHS, render_path, true_overlap
from bench.report import Budget, judge
from bench.still import measure_still, print_still, still_budgets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from bench.real_sequences import RealShot
    from bench.rendered_paths import RenderedShot

_AnyShot = TypeVar('_AnyShot', 'RenderedShot', 'RealShot')

MAX_OVERLAP = KeyframeConfig().max_overlap
LIVE_HZ = 30.0
_VGA, _FULL_HD = (640, 480), (1920, 1080)
_FOLLOWED, _WHOLE = 'ours, followed', 'ours, whole'  # see `measure_time`
_PERIODS = range(1, 61)  # images from keyframe to keyframe, of those who look at no image
_SURE_ERROR = 0.05  # overlap error that is good enough, whatever the published one


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


class Periodic:
    """A keyframe every so many images."""

    def __init__(self, period: int) -> None:
        self._period = period
        self._images = 0

    def refer(self, _image: NDArray[np.uint8]) -> None:
        """Make an image the reference."""
        self._images = 0

    def overlap(self, _image: NDArray[np.uint8]) -> float:
        """1 until the period is over."""
        self._images += 1
        return float(self._images < self._period)


@dataclass(frozen=True)
class OverlapEstimate:
    """What a method said of one pair of images, and what is true."""

    estimate: float
    true: TrueOverlap

    @property
    def is_wrong(self) -> bool:
        """Whether it decides otherwise than the truth without holes."""
        return (self.estimate < MAX_OVERLAP) != (self.true.filled < MAX_OVERLAP)


def follow(
    method: Method,
    shots: Sequence[_AnyShot],
    truth: Callable[[_AnyShot, _AnyShot], TrueOverlap],
    *,
    own_references: bool,
) -> list[OverlapEstimate]:
    """Judge each shot against the last keyframe: the method's own, or the true one."""
    reference, judgements = shots[0], []
    method.refer(reference.image)
    for shot in shots[1:]:
        judgement = OverlapEstimate(method.overlap(shot.image), truth(reference, shot))
        judgements.append(judgement)
        if (judgement.estimate if own_references else judgement.true.filled) < MAX_OVERLAP:
            reference = shot
            method.refer(shot.image)
    return judgements


def rendered_truth(first: RenderedShot, second: RenderedShot) -> TrueOverlap:
    """What two rendered images share; their depth has no holes."""
    overlap = true_overlap(first, second)
    return TrueOverlap(overlap, overlap)


def errors(judgements: list[OverlapEstimate]) -> dict[str, float]:
    """Mean absolute error, mean error, and share of wrong decisions, of those that count."""
    off = np.array([judgement.estimate - judgement.true.middle for judgement in judgements])
    wrong = np.array([judgement.is_wrong for judgement in judgements])
    counts = np.array([judgement.true.decides(MAX_OVERLAP) for judgement in judgements])
    return {
        'mean_absolute_error': float(np.abs(off).mean()),
        'mean_error': float(off.mean()),
        'wrong_decisions': float(wrong[counts].mean()) if counts.any() else 0.0,
        'wrong_of_all_decisions': float(wrong.mean()),
        'decisions': int(counts.sum()),
    }


def measure_overlap(rooms: int, images: int) -> dict[str, Any]:
    """Errors by method, by whose references, and by path."""
    judgements: dict[tuple[str, str, str], list[OverlapEstimate]] = defaultdict(list)
    for room in tqdm(range(rooms), desc='rooms', disable=None):
        for path in PATHS:
            shots = list(render_path(path, images, room))
            for name, method in METHODS.items():
                for references in ('true', 'own'):
                    estimates = follow(
                        method(), shots, rendered_truth, own_references=references == 'own'
                    )
                    judgements[name, references, path] += estimates
                    judgements[name, references, 'all'] += estimates
    return {
        name: {
            references: {
                path: errors(judgements[name, references, path]) for path in (*PATHS, 'all')
            }
            for references in ('true', 'own')
        }
        for name in METHODS
    }


def measure_real(folder: Path) -> dict[str, Any]:
    """Errors on recordings with depth: by sequence, method and whose references.

    The best fixed period is that with the fewest wrong decisions; `periods` are the shares of all.

    Raises:
        InputError: The folder holds no sequence with depth.
    """
    sequences = [path for path in find_sequences(folder) if (path / 'depth').is_dir()]
    if not sequences:
        msg = f'{folder} holds no sequence with depth/'
        raise InputError(msg)
    return {
        path.name: _measure_sequence(list(read_sequence(path)))
        for path in tqdm(sequences, desc='recordings', disable=None)
    }


def _measure_sequence(shots: list[RealShot]) -> dict[str, Any]:
    known: dict[tuple[int, int], TrueOverlap] = {}

    def truth(first: RealShot, second: RealShot) -> TrueOverlap:
        pair = first.index, second.index
        if pair not in known:
            known[pair] = true_real_overlap(first, second)
        return known[pair]

    figures: dict[str, Any] = {
        name: {
            references: errors(follow(method(), shots, truth, own_references=references == 'own'))
            for references in ('true', 'own')
        }
        for name, method in METHODS.items()
    }
    wrong = {
        period: errors(follow(Periodic(period), shots, truth, own_references=True))
        for period in _PERIODS
    }
    figures['periods'] = {period: figure['wrong_decisions'] for period, figure in wrong.items()}
    return figures


def _of_periods(real: dict[str, Any]) -> tuple[float, float]:
    """Wrong decisions of the best period of each sequence, and of one period for all; means."""
    shares = np.array([list(figures['periods'].values()) for figures in real.values()])
    return float(shares.min(axis=1).mean()), float(shares.mean(axis=0).min())


def measure_time(size: tuple[int, int], images: int) -> dict[str, dict[str, float]]:
    """Milliseconds of this process per image by method, all on the same images in turn.

    Ours is the selector, the selector with the motion followed, and all that the extractor does
    with images that come raw: keyframes are compressed too.
    """
    official, selector, whole = Official(), KeyframeSelector(), Keyframer()
    followed = Keyframer(KeyframeConfig(image_max_side_px=0))  # compresses nothing
    spent: dict[str, list[float]] = defaultdict(list)
    for index, shot in enumerate(render_path('mixed', images, 0, size)):
        stamp_ns, camera = round(index * 1e9 / LIVE_HZ), shot.camera.scaled(*size)
        raw = StampedImage(index, stamp_ns, shot.image, intrinsics=camera)
        compressed = replace(raw, encoded=encode_image(shot.image, 90))
        runs: dict[str, Callable[[], Any]] = {
            'official': partial(_official_step, official, shot.image, is_first=index == 0),
            'ours': partial(selector.evaluate, raw),
            _FOLLOWED: partial(followed.process, compressed),
            _WHOLE: partial(whole.process, raw),
        }
        for name, run in runs.items():
            started = time.process_time()
            run()
            spent[name].append(1e3 * (time.process_time() - started))
    return {
        name: {'median_ms': float(np.median(values)), 'mean_ms': float(np.mean(values))}
        for name, values in spent.items()
    }


def _official_step(method: Official, image: NDArray[np.uint8], *, is_first: bool) -> None:
    if is_first or method.overlap(image) < MAX_OVERLAP:
        method.refer(image)


def _budgets(
    overlap: dict[str, Any], times: dict[int, dict[str, dict[str, float]]], rate: dict[str, float]
) -> list[Budget]:
    budgets = []
    for references in ('true', 'own'):
        ours, theirs = (overlap[name][references]['all'] for name in ('ours', 'official'))
        budgets += [
            Budget(
                f'wrong, {references} references',
                ours['wrong_decisions'],
                theirs['wrong_decisions'] / 2,
            ),
            _error_budget(f'overlap error, {references} references', ours, theirs),
        ]
    for height, limit in ((_VGA[1], 0.5), (_FULL_HD[1], 0.2)):
        ratio = times[height][_FOLLOWED]['mean_ms'] / times[height]['official']['mean_ms']
        budgets.append(Budget(f'time per image at {height}p, share of official', ratio, limit))
    share = times[_VGA[1]][_WHOLE]['mean_ms'] * LIVE_HZ / 1e3
    return [
        *budgets,
        Budget('live stream 640x480 at 30 Hz', share, 0.25, 'of a core'),
        Budget('bag of raw images', rate['raw_speed'], 10.0, 'times real time', at_least=True),
        Budget('bag of JPEG images', rate['jpeg_speed'], 10.0, 'times real time', at_least=True),
        Budget('memory for four times the bag', rate['memory_growth_mb'], 10.0, 'MB more'),
    ]


def _error_budget(label: str, ours: dict[str, float], theirs: dict[str, float]) -> Budget:
    half = theirs['mean_absolute_error'] / 2
    return Budget(label, ours['mean_absolute_error'], max(half, _SURE_ERROR))


def _real_budgets(real: dict[str, Any]) -> list[Budget]:
    budgets = []
    wrong: dict[str, list[float]] = defaultdict(list)
    for sequence, figures in real.items():
        ours, theirs = (figures[name]['own'] for name in ('ours', 'official'))
        wrong['ours'].append(ours['wrong_decisions'])
        wrong['official'].append(theirs['wrong_decisions'])
        budgets.append(
            Budget(f'wrong, {sequence}', ours['wrong_decisions'], theirs['wrong_decisions'])
        )
        budgets += [
            _error_budget(
                f'overlap error, {sequence}, {references} references',
                figures['ours'][references],
                figures['official'][references],
            )
            for references in ('true', 'own')
        ]
    mean = float(np.mean(wrong['ours']))
    per_sequence, for_all = _of_periods(real)
    return [
        *budgets,
        Budget('wrong, mean of recordings', mean, float(np.mean(wrong['official'])) / 2),
        Budget('wrong, mean, below the best period for all', mean, for_all),
        Budget('wrong, mean, below the best period of each', mean, per_sequence),
    ]


def _print_overlap(overlap: dict[str, Any]) -> None:
    print('overlap error (mean error), wrong decisions, by the references of')
    print(f'{"":26}{"the truth":28}each method')
    for path in (*PATHS, 'all'):
        for name in METHODS:
            _print_line(path, name, {key: of[path] for key, of in overlap[name].items()})


def _print_real(real: dict[str, Any]) -> None:
    for sequence, figures in real.items():
        for name in METHODS:
            _print_line(sequence, name, figures[name])
        wrong = figures['periods']
        best = min(wrong, key=wrong.get)
        print(f'{sequence:14} every {best} images: {100 * wrong[best]:.1f} % wrong')


def _print_line(source: str, name: str, by_references: dict[str, dict[str, float]]) -> None:
    figures = '   '.join(
        f'{cell["mean_absolute_error"]:.3f} ({cell["mean_error"]:+.3f}) '
        f'{100 * cell["wrong_decisions"]:5.1f} %'
        for cell in (by_references['true'], by_references['own'])
    )
    print(f'{source:14} {name:10} {figures}')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this bench."""
    parser.add_argument('--rooms', type=some_count, default=3, help='rendered rooms (%(default)s)')
    parser.add_argument(
        '--images', type=some_count, default=40, help='images per path (%(default)s)'
    )
    parser.add_argument(
        '--real', type=Path, metavar='DIR', help='measure on recordings with true depth too'
    )
    parser.add_argument(
        '--still', type=Path, metavar='DIR', help='measure on clips of still cameras too'
    )
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and say whether the budgets are met."""
    cv2.setNumThreads(1)
    overlap = measure_overlap(args.rooms, args.images)
    _print_overlap(overlap)
    real = measure_real(args.real) if args.real else {}
    _print_real(real)
    still = measure_still(args.still) if args.still else {}
    print_still(still or {'clips': {}})
    times = {_VGA[1]: measure_time(_VGA, 150), _FULL_HD[1]: measure_time(_FULL_HD, 150)}
    for height, by_method in times.items():
        for name, spent in by_method.items():
            print(
                f'{height}p {name:15} {spent["median_ms"]:7.2f} ms median, '
                f'{spent["mean_ms"]:.2f} ms mean per image'
            )
    rate = bag_rate()
    print(
        f'bag  raw {rate["raw_speed"]:.1f}x, JPEG {rate["jpeg_speed"]:.1f}x real time, '
        f'on one core {rate["raw_core_speed"]:.1f}x, {rate["jpeg_core_speed"]:.1f}x; '
        f'memory grows {rate["memory_growth_mb"]:.1f} MB from 20 s to 80 s'
    )
    budgets = _budgets(overlap, times, rate) + (_real_budgets(real) if real else [])
    budgets += still_budgets(still) if still else []
    figures = {'overlap': overlap, 'real': real, 'still': still, 'milliseconds': times}
    return judge(budgets, args.json, {**figures, 'bag': rate})
