# SPDX-License-Identifier: Apache-2.0
"""How long the unit of a map is, which was made of a camera alone.

Images alone give lengths up to one factor. Distances that something measured now and then (the
floor below a camera of known height) give the factor, else the usual sizes of several named
things. Either is a median of many, with its uncertainty; where that is large, there are no metres.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from statistics import median
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.landmarks import LandmarkStatus
from embodied_r_ros.core.types.things import named_things
from embodied_r_ros.core.types.vocabulary import class_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.scene.landmark_record import LandmarkRecord

# Length of a relative unit while nothing is known of it [m]: with it a room is about as large as
# rooms are, so that what a map takes for near and far holds.
NOMINAL_M = 2.5
_LEAST_MEASURED = 5  # distances
_LEAST_THINGS, _LEAST_NAMES, _LEAST_LOOKS = 3, 2, 3  # of usual size, and sightings of each
_SPREAD = 0.35  # standard deviation of the size of things of one name, as a logarithm
_MEASURED_SPREAD = 0.15  # the same of distances
_MOST_ERROR = 0.25  # of the factor
_SHARED = 0.1  # what no number of things averages out


@dataclass(frozen=True)
class MapScale:
    """What the lengths of a map mean."""

    source: ScaleSource
    factor: float = 1.0  # by which its lengths are multiplied [m]
    error: float | None = None  # standard deviation of the factor, as a share; None: not known


def relative_scale(
    measured: Sequence[tuple[ScaleSource, float]], records: Sequence[LandmarkRecord]
) -> MapScale:
    """The scale of a map whose unit is not known.

    Args:
        measured: What measured a distance, and how many metres a unit of the map has by it.
        records: Its landmarks.

    Returns:
        The scale; RELATIVE with the factor 1: nothing gives metres.
    """
    sources = [source for source, _ in measured]
    if len(sources) >= _LEAST_MEASURED:
        source = max(set(sources), key=lambda one: (sources.count(one), -one.value))
        logs = [math.log(ratio) for own, ratio in measured if own is source]
        if len(logs) >= _LEAST_MEASURED and (scale := _scale(source, logs, _MEASURED_SPREAD)):
            return scale
    by_name: dict[str, list[float]] = {}
    for record in records:
        ratio = _ratio_of_size(record)
        if ratio:
            by_name.setdefault(class_of(record.label.name), []).append(math.log(ratio))
    if len(by_name) >= _LEAST_NAMES and sum(map(len, by_name.values())) >= _LEAST_THINGS:
        # Things of one name are of one make, more often than not: they speak with one voice.
        logs = [median(logs) for logs in by_name.values()]
        if scale := _scale(ScaleSource.SIZES, logs, _SPREAD):
            return scale
    return MapScale(ScaleSource.RELATIVE)


def _scale(source: ScaleSource, logs: Sequence[float], usual: float) -> MapScale | None:
    middle = median(logs)
    spread = 1.48 * median(abs(each - middle) for each in logs)
    error = math.hypot(_SHARED, 1.25 * max(usual, spread) / math.sqrt(len(logs)))
    return MapScale(source, math.exp(middle), error) if error <= _MOST_ERROR else None


def _ratio_of_size(record: LandmarkRecord) -> float | None:
    """Metres of a unit, by how large a thing usually is; None: its size tells nothing."""
    thing = named_things().get(class_of(record.label.name))
    size = record.measured_size
    is_there = record.status is LandmarkStatus.PRESENT and record.observations >= _LEAST_LOOKS
    if thing is None or size is None or not is_there or min(size) <= 0:
        return None
    # The larger extent, as seen from any side.
    length, width, height = thing.size
    return max(height, (length + width) / 2) / max(size)
