# SPDX-License-Identifier: Apache-2.0
"""How far a name can be trusted: by the score, by who else says so, and by the thing's size.

Scores of networks mean different things, and of one network they do by class. A confidence has
one meaning: from SURE on, a name is told as one; below, it is doubtful.
"""

from __future__ import annotations

import math

from embodied_r_ros.core.types.deltas import SURE
from embodied_r_ros.core.types.things import named_things
from embodied_r_ros.core.types.vocabulary import class_of, standing_size

# By layout of the outputs: from which score on names were right on the half for development of
# test/core/perception/keyframe_names.json, and some more; '' is of all other classes.
_SURE_FROM = {
    'nanodet': {
        '': 0.58, 'person': 0.52, 'chair': 0.52, 'cup': 0.64, 'potted plant': 0.52,
        'dining table': 0.52, 'bed': 0.52,
    },
    'ssd': {
        '': 0.48, 'person': 0.52, 'chair': 0.42, 'bottle': 0.56, 'table': 0.44, 'dog': 0.44,
        'car': 0.44,
    },
}  # fmt: skip
_USUAL = 0.4  # of layouts that were not measured
_RIVAL = 0.5  # what another name for the same place takes, of its own confidence
_SECOND_LOOK = 0.3  # of what a second witness would add, a second look does
# What is larger or smaller than a usual thing by these factors is none.
_LARGEST, _SMALLEST = 2.5, 0.25
_IMPOSSIBLE = 0.5  # left of the confidence in a name that cannot be


def confidence_of(score: float, layout: str, label: str, threshold: float = 0.0) -> float:
    """Confidence in a name by the score of a network, 0..1.

    Args:
        score: 0..1.
        layout: Of the outputs of the network, as `OutputLayout.name`.
        label: The class.
        threshold: From which score on a name is sure; 0: as was measured.
    """
    measured = _SURE_FROM.get(layout, {'': _USUAL})
    least = threshold or measured.get(label, measured[''])
    if score < least:
        return SURE * score / least
    return SURE + (1 - SURE) * (score - least) / (1 - least) if least < 1 else 1.0


def together(*confidences: float) -> float:
    """Confidence in what several say that do not know of one another; of NaN, NaN."""
    return 1 - math.prod(1 - confidence for confidence in confidences)


def seen_twice(one: float, other: float) -> float:
    """Confidence in a name that one detector gave to a thing in two images.

    What it takes for something else in one, it takes for that in the next too, so that the second
    look counts for a part.
    """
    most = max(one, other)
    return most + _SECOND_LOOK * (together(one, other) - most)


def against(confidence: float, rival: float) -> float:
    """Confidence in a name where another one is given to the same place."""
    return confidence * (1 - _RIVAL * rival)


def by_size(confidence: float, label: str, width_m: float, height_m: float, *, cut: bool) -> float:
    """Confidence in a name, by how large the thing is.

    Args:
        confidence: Without that.
        label: The name, maybe with a colour.
        width_m: Of what is seen [m].
        height_m: Likewise.
        cut: Whether an edge of the image cuts it off, so that it can be larger.
    """
    name = class_of(label)
    thing, standing = named_things().get(name), standing_size(name)
    usual_m = max(thing.size) if thing else max(standing) / 1.5 if standing else math.nan
    seen_m = max(width_m, height_m)
    is_possible = not (seen_m > _LARGEST * usual_m or (not cut and seen_m < _SMALLEST * usual_m))
    return confidence if is_possible else min(confidence, SURE) * _IMPOSSIBLE
