# SPDX-License-Identifier: Apache-2.0
"""What a detector found in one image, and the names that detectors of COCO give."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Detection:
    """A thing with a name in one image."""

    label: str  # the class, e.g. 'cup'
    score: float  # 0..1
    # Left, top, right, bottom [px of the image]; the left edge of its first pixel is at 0.
    box: tuple[float, float, float, float]


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

# Classes that one detector takes for one another from one view to the next.
_ALIKE = (
    ('car', 'truck', 'bus', 'train'),
    ('bicycle', 'motorcycle'),
    ('cup', 'bottle', 'wine glass', 'vase', 'bowl'),
    ('chair', 'couch', 'bench', 'bed'),
    ('tv', 'laptop'),
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
    'bed': (3.0, 1.5), 'dining table': (3.0, 1.3), 'toilet': (0.8, 1.2), 'oven': (1.0, 1.3),
    'refrigerator': (1.2, 2.1), 'fire hydrant': (0.7, 1.1), 'parking meter': (0.6, 1.8),
}  # fmt: skip


_UNNAMED = (0.65, 1.1)  # what is only a colour may stand on the floor if it is no larger


def class_of(label: str) -> str:
    """The class of COCO that a label ends with, as 'red chair' does; else the label."""
    words = label.split()
    endings = (' '.join(words[start:]) for start in range(len(words)))
    return next((ending for ending in endings if ending in COCO), label)


def family_of(label: str) -> str:
    """What a thing is compared by between views: a class that stands for those like it."""
    name = class_of(label)
    return _FAMILIES.get(name, name)


def standing_size(label: str) -> tuple[float, float] | None:
    """Greatest width and height of a thing on the floor [m]; None: it does not stand there."""
    return STANDING.get(class_of(label)) if label else _UNNAMED
