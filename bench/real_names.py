# SPDX-License-Identifier: Apache-2.0
"""Whether the names that are told of real recordings are right, and what is missed.

Truth is labels by hand, of images at fixed places (see the head of the file of labels). Each
recording is perceived as always, and its labelled images are keyframes in any case. A name is
right where a thing of that name lies under its box, or where the label says that such a thing is
there besides. Of the things that the detectors' classes have, those count as found that a right
name was told of.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
import json
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig, DetectorPerceiver
from embodied_r_ros.core.perception.fusion import overlap_of
from embodied_r_ros.core.perception.perceiver import perceive_all
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS, is_unnamed
from scipy.stats import binomtest
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import Box, Item
    from embodied_r_ros.core.types.keyframes import Keyframe

HALVES = ('development', 'opened')
_UNDER = 0.3  # intersection over union of a box that was told and of the thing that it is of
# Words for one thing, whichever list of classes has them.
_SAME = (
    {'table', 'dining table', 'desk', 'coffee table', 'console table'},
    {'tv', 'monitor', 'screen'},
    {'car', 'vehicle'},
)


@dataclass(frozen=True)
class VisibleThing:
    """What is clearly visible in an image."""

    names: tuple[str, ...]  # its own, and others that would be right
    box: Box


@dataclass(frozen=True)
class Labels:
    """What one image shows."""

    half: str  # one of HALVES
    things: tuple[VisibleThing, ...]
    also: tuple[str, ...]  # names of what else is there


@dataclass
class NameTally:
    """What was told of labelled images; by name."""

    told: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    doubtful: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    found: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))

    def share(self, kind: str) -> dict[str, float]:
        """Count, whole, share, and its interval of 95 % by Wilson, of one of the three."""
        truths = [truth for each in getattr(self, kind).values() for truth in each]
        if not truths:
            return {'count': 0, 'of': 0, 'share': math.nan, 'low': math.nan, 'high': math.nan}
        count, total = sum(truths), len(truths)
        interval = binomtest(count, total).proportion_ci(method='wilson')
        share = count / total
        return {
            'count': count,
            'of': total,
            'share': share,
            'low': float(interval.low),
            'high': float(interval.high),
        }


def read_labels(path: Path) -> dict[str, dict[int, Labels]]:
    """Labels by path of the recording and number of the image."""
    recordings = json.loads(path.read_text())['recordings']
    return {
        recording['path']: {
            entry['image']: Labels(
                entry['half'],
                tuple(VisibleThing(tuple(t['names']), tuple(t['box'])) for t in entry['things']),
                tuple(entry['also']),
            )
            for entry in recording['keyframes']
        }
        for recording in recordings
    }


def labelled_keyframes(source: Path, labels: dict[int, Labels]) -> Iterator[tuple[int, Keyframe]]:
    """The keyframes of a recording, all images with labels among them, and which images they are.

    Args:
        source: The recording.
        labels: By number of the image.
    """
    extractor = Keyframer(KeyframeConfig())
    with open_source(source) as images:
        for image in images:
            _, keyframe = extractor.process(image, is_last=image.index in labels)
            if keyframe:
                yield image.index, keyframe


def judge(items: Sequence[Item], labels: Labels, classes: set[str], tally: NameTally) -> None:
    """Count what was told of one image.

    Args:
        items: With names and boxes.
        labels: Of the image.
        classes: That the detectors know.
        tally: Is added to.
    """
    found: set[int] = set()
    for item in sorted(items, key=lambda one: -one.confidence):
        name = name_of(item.label)
        if not name or item.box is None or item.status is ItemStatus.LEFT:
            continue
        under = [
            number
            for number, thing in enumerate(labels.things)
            if overlap_of(item.box, thing.box) >= _UNDER and _is_among(name, thing.names)
        ]
        is_right = bool(under) or _is_among(name, labels.also)
        if item.is_doubtful:
            tally.doubtful[name].append(is_right)
            continue
        tally.told[name].append(is_right)
        new = [number for number in under if number not in found]
        box = item.box
        if new:
            found.add(max(new, key=lambda number: overlap_of(box, labels.things[number].box)))
    for number, thing in enumerate(labels.things):
        if any(_is_among(name, thing.names[:1]) for name in classes):
            tally.found[thing.names[0]].append(number in found)


def name_of(label: str) -> str:
    """The name in a label, without its colour; empty: it has none."""
    words = [word for word in label.split() if word not in COLOUR_WORDS]
    return '' if is_unnamed(label) else ' '.join(words)


def _is_among(name: str, names: Sequence[str]) -> bool:
    alike = next((group for group in _SAME if name in group), {name})
    return any(each in alike for each in names)


def measure(folder: Path, labels: Path, config: DetectorConfig, half: str) -> dict[str, NameTally]:
    """Tallies of one half: of each file of a detector alone, and of all together.

    Args:
        folder: Of the recordings.
        labels: The file of labels.
        config: Of the detector.
        half: One of HALVES.
    """
    files = [path for path in config.model.split(',') if path]
    models = files if len(files) == 1 else [*files, config.model]
    detectors = {model: Detector(DetectorConfig(model)) for model in models}
    tallies = {model: NameTally() for model in models}
    for path, images in tqdm(read_labels(labels).items(), desc='recordings', disable=None):
        wanted = {number: each for number, each in images.items() if each.half == half}
        if not wanted:
            continue
        numbers, keyframes = zip(*labelled_keyframes(folder / path, wanted), strict=True)
        for model, detector in detectors.items():
            classes = set(detector.classes)
            deltas = perceive_all(DetectorPerceiver(detector), keyframes, in_flight=1)
            for number, delta in zip(numbers, deltas, strict=True):
                if number in wanted:
                    judge(delta.items, wanted[number], classes, tallies[model])
    return tallies


def print_figures(tallies: dict[str, NameTally]) -> None:
    """Print one line per detector and figure, with counts and intervals, and then by name."""
    for model, tally in tallies.items():
        print(model)
        for kind in ('told', 'doubtful', 'found'):
            row = tally.share(kind)
            words = f'{row["count"]:4} of {row["of"]:4}, {row["share"]:.2f}'
            print(f'  {kind:9} {words} ({row["low"]:.2f} to {row["high"]:.2f})')
        for name in sorted({*tally.told, *tally.found}):
            told, found = tally.told.get(name, []), tally.found.get(name, [])
            print(f'    {name:16} right {sum(told)}/{len(told)}  found {sum(found)}/{len(found)}')


def to_json(tallies: dict[str, NameTally]) -> dict[str, Any]:
    """Plain JSON values."""
    return {
        model: {kind: tally.share(kind) for kind in ('told', 'doubtful', 'found')}
        for model, tally in tallies.items()
    }
