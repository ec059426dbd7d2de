# SPDX-License-Identifier: Apache-2.0
"""How much is said of recordings of real cameras: motions in words, things, and places.

Nobody states the lens, and nobody gives poses: what is said comes from the images, and from depth
where there is some beside them.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.core.perception.detector import DetectorConfig
from embodied_r_ros.core.pipeline import classical_perceiver, detector_perceiver, perceive_images
from embodied_r_ros.core.types.deltas import CANNOT_TELL
from tqdm import tqdm

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.types.deltas import SemanticDelta


@dataclass(frozen=True)
class Words:
    """What was said of one recording."""

    recording: str
    perceiver: str
    deltas: int
    unknown_motion: float  # share of motions that cannot be told, 0..1
    metric_motion: float  # share of motions in metres
    without_thing: float  # share of deltas without a thing
    with_distance: float  # share of things with a distance


def sources(folder: Path) -> Iterator[Path]:
    """Videos of a folder and of the one above, and the images of its sequences."""
    yield from sorted(path for place in (folder.parent, folder) for path in place.glob('*.mp4'))
    yield from sorted(folder.glob('*/images'))


def measure(folder: Path, detector: str = '') -> list[Words]:
    """Perceive each recording, by geometry and colour and with a detector where one is given."""
    rows = []
    for source in tqdm(list(sources(folder)), desc='recordings', disable=None):
        name = source.parent.name if source.name == 'images' else source.stem
        perceivers: dict[str, PairPerceiver] = {'classical': classical_perceiver()}
        if detector:
            perceivers['detector'] = detector_perceiver(DetectorConfig(detector))
        for kind, perceiver in perceivers.items():
            with open_source(source) as images:
                deltas = list(perceive_images(images, perceiver))
            rows.append(_words(name, kind, deltas))
    return rows


def _words(recording: str, perceiver: str, deltas: Sequence[SemanticDelta]) -> Words:
    items = [item for delta in deltas for item in delta.items]
    motions = [delta for delta in deltas if delta.action]
    return Words(
        recording,
        perceiver,
        len(deltas),
        _share([delta.action == CANNOT_TELL for delta in motions]),
        _share([delta.motion.is_metric for delta in motions]),
        _share([not delta.items for delta in deltas]),
        _share([math.isfinite(item.distance_m) for item in items]),
    )


def _share(truths: list[bool]) -> float:
    return sum(truths) / len(truths) if truths else math.nan


def print_figures(rows: Sequence[Words]) -> None:
    """Print one line per recording and perceiver."""
    print('recording  perceiver  deltas  cannot tell the motion  no thing  things with a distance')
    for row in rows:
        print(
            f'{row.recording:10} {row.perceiver:10} {row.deltas:6} {row.unknown_motion:23.2f} '
            f'{row.without_thing:9.2f} {row.with_distance:23.2f}'
        )


def to_json(rows: Sequence[Words]) -> list[dict[str, Any]]:
    """Plain JSON values."""
    return [asdict(row) for row in rows]
