# SPDX-License-Identifier: Apache-2.0
"""What an item may be called: by a colour and a coarse shape, or by the classes of a detector.

Simulated worlds are furnished with colours and shapes, and the classical perceiver finds them, so
that the truth says no more than what can be seen. Colours are hues that white light of any
strength leaves apart; the hues between two ranges (wood and skin above all, between red and
yellow) have no name on purpose. Shapes come from the silhouette alone.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.types.arrays import Bools
    from numpy.typing import NDArray

HUES = 180  # OpenCV's 8-bit HSV counts hue in steps of two degrees
MIN_SATURATION = 110  # 0..255; what is paler has no colour name
MIN_VALUE = 45  # 0..255; what is darker has no colour name

# Bounds of an upright body's height divided by its width. A cube has 0.7 (seen at its edge) to 1.
TALL_FROM = 1.35
FLAT_UP_TO = 0.5
# Silhouettes of spheres reach more, those of cubes less, from 12 px across upwards.
ROUND_FROM = 0.945
_ROUND_ASPECT = 1.25  # a sphere's silhouette is no more drawn out than this, either way

SHAPES = ('round', 'tall', 'flat', 'blocky')


@dataclass(frozen=True)
class Colour:
    """A named range of hues in OpenCV's 8-bit HSV."""

    name: str
    hue: int  # typical, 0..179
    first: int  # lowest hue, inclusive
    last: int  # highest hue, inclusive; below `first` where the range passes 179

    def contains(self, hue: int) -> bool:
        """Tell whether a hue 0..179 is of this colour."""
        return (hue - self.first) % HUES <= (self.last - self.first) % HUES


COLOURS = (
    Colour('red', 0, 173, 7),
    Colour('yellow', 28, 22, 36),
    Colour('green', 58, 44, 74),
    Colour('cyan', 90, 80, 99),
    Colour('blue', 114, 104, 122),
    Colour('purple', 136, 126, 146),
    Colour('pink', 160, 151, 168),
)


# Words for colours in labels, those that are not measured among them.
COLOUR_WORDS = {colour.name for colour in COLOURS} | {
    'orange', 'brown', 'black', 'white', 'grey', 'gray', 'beige', 'silver', 'golden', 'wooden',
}  # fmt: skip


def hue_table() -> NDArray[np.int8]:
    """Index in COLOURS of each hue, -1 for hues without a name. Shape (180,)."""
    table = np.full(HUES, -1, np.int8)
    for index, colour in enumerate(COLOURS):
        table[[hue for hue in range(HUES) if colour.contains(hue)]] = index
    return table


def item_label(colour: str, shape: str = '', name: str = '') -> str:
    """The label of an item: 'red tall object', 'red object' without a shape, 'red cup' by name."""
    if name:
        return f'{colour} {name}'.strip()
    return f'{colour} {shape} object' if shape else f'{colour} object'


def is_unnamed(label: str) -> bool:
    """Whether a label says colour and shape alone, as `item_label` has it without a name."""
    return label.endswith(' object') and label.split()[0] in {colour.name for colour in COLOURS}


def roundness(mask: Bools) -> float:
    """Agreement (intersection over union) of a silhouette with the ellipse of its moments.

    1 for an ellipse of any proportions, about 0.9 for a rectangle; 0 for an empty mask.

    Args:
        mask: True inside the silhouette. Shape (H, W).
    """
    points = np.argwhere(mask).astype(np.float64)
    if len(points) == 0:
        return 0.0
    offsets = points - points.mean(axis=0)
    # A pixel is a unit square, not a point: it has a variance of 1/12 of its own.
    covariance = offsets.T @ offsets / len(points) + np.eye(2) / 12
    squared = np.einsum('ij,jk,ik->i', offsets, np.linalg.inv(covariance), offsets)
    inside = np.count_nonzero(squared <= 4.0)  # a filled ellipse ends at two standard deviations
    area = 4 * math.pi * math.sqrt(np.linalg.det(covariance))
    return float(inside / (len(points) + area - inside))


def shape_word(aspect: float, roundness: float, elevation_rad: float = 0.0) -> str:
    """The coarse shape, one of SHAPES, of a body that stands upright.

    Args:
        aspect: Height divided by width of the silhouette, both as angles from the camera.
        roundness: As given by `roundness`.
        elevation_rad: Of the line of sight above the horizon; negative where the body is seen
            from above, which shows its top.
    """
    if roundness >= ROUND_FROM and 1 / _ROUND_ASPECT <= aspect <= _ROUND_ASPECT:
        return 'round'
    # The top of a body as deep as it is wide adds the sine to its height; its sides shrink.
    top = math.sin(-elevation_rad) if elevation_rad < 0 else 0.0
    proportion = (aspect - top) / math.cos(elevation_rad)
    if proportion >= TALL_FROM:
        return 'tall'
    return 'flat' if proportion <= FLAT_UP_TO else 'blocky'


@dataclass(frozen=True)
class Detection:
    """A thing with a name in one image."""

    label: str  # the class, e.g. 'cup'
    score: float  # 0..1
    # Left, top, right, bottom [px of the image]; the left edge of its first pixel is at 0.
    box: tuple[float, float, float, float]
    source: str = ''  # which of several detectors


# The classes of COCO, in the order of their numbers. Detectors give either the 80 that are used or
# all numbers up to 90, some of which name nothing.
COCO = (
    'person', 'bicycle', 'car', 'motorcycle', 'airplane', 'bus', 'train', 'truck', 'boat',
    'traffic light', 'fire hydrant', 'stop sign', 'parking meter', 'bench', 'bird', 'cat', 'dog',
    'horse', 'sheep', 'cow', 'elephant', 'bear', 'zebra', 'giraffe', 'backpack', 'umbrella',
    'handbag', 'tie', 'suitcase', 'frisbee', 'skis', 'snowboard', 'sports ball', 'kite',
    'baseball bat', 'baseball glove', 'skateboard', 'surfboard', 'tennis racket', 'bottle',
    'wine glass', 'cup', 'fork', 'knife', 'spoon', 'bowl', 'banana', 'apple', 'sandwich',
    'orange', 'broccoli', 'carrot', 'hot dog', 'pizza', 'donut', 'cake', 'chair', 'couch',
    'potted plant', 'bed', 'dining table', 'toilet', 'tv', 'laptop', 'mouse', 'remote',
    'keyboard', 'cell phone', 'microwave', 'oven', 'toaster', 'sink', 'refrigerator', 'book',
    'clock', 'vase', 'scissors', 'teddy bear', 'hair drier', 'toothbrush',
)  # fmt: skip
_UNUSED = (0, 12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
_USED = iter(COCO)
COCO_NUMBERED = tuple('' if number in _UNUSED else next(_USED) for number in range(91))

# The classes of the detector of MediaPipe's Objectron, of Open Images, in the order of their
# numbers, with the names that COCO has for them.
OBJECTRON = (
    '', 'bicycle', 'boot', 'laptop', 'person', 'chair', 'cow', 'desk', 'cat', 'mouse', 'monitor',
    'box', 'cup', 'cup', 'exercise bike', 'table', 'bottle', 'high heels', 'vehicle', 'shoe',
    'dog', 'book', 'camera', 'car',
)  # fmt: skip
_CLASSES = {*COCO, *OBJECTRON}

# Classes that one detector takes for one another from one view to the next.
_ALIKE = (
    ('car', 'truck', 'bus', 'train', 'vehicle'),
    ('bicycle', 'motorcycle', 'exercise bike'),
    ('cup', 'bottle', 'wine glass', 'vase', 'bowl'),
    ('chair', 'couch', 'bench', 'bed'),
    ('tv', 'laptop', 'monitor'),
    ('dining table', 'table', 'desk'),
    ('shoe', 'boot', 'high heels'),
    ('microwave', 'oven', 'toaster', 'refrigerator'),
    ('backpack', 'handbag', 'suitcase'),
    ('cell phone', 'remote', 'mouse', 'keyboard', 'book'),
    ('cat', 'dog', 'horse', 'sheep', 'cow'),
    ('apple', 'orange', 'sports ball'),
)
_FAMILIES = {name: names[0] for names in _ALIKE for name in names}

# What stands on the floor: its greatest width and height [m]. A cup stands on a table, and a ray
# past it to the floor says nothing of its distance.
STANDING = {
    'person': (1.2, 2.1), 'bicycle': (2.0, 1.3), 'car': (5.5, 2.2), 'motorcycle': (2.4, 1.6),
    'bus': (14.0, 4.5), 'truck': (14.0, 4.5), 'bench': (3.0, 1.3), 'cat': (0.8, 0.6),
    'dog': (1.3, 1.1), 'horse': (3.0, 2.4), 'sheep': (1.6, 1.2), 'cow': (3.0, 1.8),
    'suitcase': (0.9, 1.1), 'chair': (1.2, 1.5), 'couch': (3.5, 1.3), 'potted plant': (1.2, 2.0),
    'bed': (3.0, 1.5), 'dining table': (3.0, 1.3), 'table': (3.0, 1.3), 'desk': (3.0, 1.3),
    'toilet': (0.8, 1.2), 'oven': (1.0, 1.3),
    'refrigerator': (1.2, 2.1), 'fire hydrant': (0.7, 1.1), 'parking meter': (0.6, 1.8),
    'plant': (1.2, 2.0), 'shelf': (3.0, 2.6), 'cabinet': (3.0, 2.6), 'door': (1.6, 2.6),
}  # fmt: skip
# How deep what stands along a wall is, as a share of its width; all else is as deep as it is wide.
DEPTHS = {'shelf': 0.3, 'cabinet': 0.3, 'door': 0.1}

_UNNAMED = (0.65, 1.1)  # what is only a colour may stand on the floor if it is no larger


def class_of(label: str) -> str:
    """The class that a label ends with, as 'red chair' does; else the label."""
    words = label.split()
    endings = (' '.join(words[start:]) for start in range(len(words)))
    return next((ending for ending in endings if ending in _CLASSES), label)


def family_of(label: str) -> str:
    """What a thing is compared by between views: a class that stands for those like it."""
    name = class_of(label)
    return _FAMILIES.get(name, name)


def standing_size(label: str) -> tuple[float, float] | None:
    """Greatest width and height of a thing on the floor [m]; None: it does not stand there."""
    return STANDING.get(class_of(label)) if label else _UNNAMED
