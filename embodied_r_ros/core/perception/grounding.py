# SPDX-License-Identifier: Apache-2.0
"""Boxes in the words of vision-language models: their coordinates, and the items that they place.

Models were trained on one way to write coordinates each, whatever a prompt asks for. A picture
with shapes at known places shows which one it is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.perception.coloured_objects import find_objects
from embodied_r_ros.core.perception.fusion import fused_objects, overlap_of
from embodied_r_ros.core.perception.items import (
    depth_of,
    floor_below,
    items_between,
    items_in_view,
    ItemView,
)
from embodied_r_ros.core.types.deltas import ItemStatus, MotionSource
from embodied_r_ros.core.types.geometry import Intrinsics
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS, Detection
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embodied_r_ros.core.perception.coloured_objects import ColouredObject
    from embodied_r_ros.core.types.arrays import UInt8s
    from embodied_r_ros.core.types.deltas import Box, Item, Motion
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe

# How a prompt names each way to write coordinates.
BOX_CONVENTIONS = {
    'pixels': 'pixels of the picture',
    'unit': 'shares of its width and height, from 0 to 1',
    'thousandths': 'thousandths of its width and height, from 0 to 1000',
}
NO_BOXES = 'none'
_OUTSIDE = 0.03  # a box reaches so far out of the picture at most, as a share of its side
_SLACK_RAD = math.radians(3.0)  # of boxes of such models
# Motions that say where a thing at rest is next.
_GEOMETRIC = {MotionSource.ODOMETRY, MotionSource.TWO_VIEW, MotionSource.FOLLOWED}


def box_shares(box: Box, convention: str, size: tuple[int, int]) -> Box | None:
    """A box as shares of width and height; None: it is none, or does not lie in the picture.

    Args:
        box: Left, top, right, bottom as the model wrote them.
        convention: How it writes coordinates, a key of BOX_CONVENTIONS.
        size: Width and height of the picture as it was shown [px].
    """
    width, height = {'pixels': size, 'unit': (1, 1), 'thousandths': (1000, 1000)}[convention]
    left, top, right, bottom = (box[0] / width, box[1] / height, box[2] / width, box[3] / height)
    is_inside = min(left, top) >= -_OUTSIDE and max(right, bottom) <= 1 + _OUTSIDE
    if not is_inside or right <= left or bottom <= top:
        return None
    return max(left, 0.0), max(top, 0.0), min(right, 1.0), min(bottom, 1.0)


@dataclass(frozen=True)
class Picture:
    """A keyframe as a model saw it."""

    image: UInt8s  # of the keyframe, BGR (H, W, 3)
    shown_size: tuple[int, int]  # width and height of what the model got [px]
    intrinsics: Intrinsics  # of `image`
    is_calibrated: bool  # False: the angle of view is assumed
    coloured: tuple[ColouredObject, ...]
    view: ItemView  # without objects

    @classmethod
    def of(cls, keyframe: Keyframe, shown: EncodedImage, assumed_hfov_rad: float) -> Picture:
        """A keyframe and the image that was made of it for the model.

        Raises:
            ImageError: One cannot be decoded.
        """
        image, small = keyframe.image.decode(), shown.decode()
        height, width = image.shape[:2]
        intrinsics = keyframe.intrinsics or Intrinsics.from_fov(width, height, assumed_hfov_rad)
        pose = keyframe.pose
        orientation = pose.orientation if pose else (0.0, 0.0, 0.0, 1.0)
        return cls(
            image,
            (small.shape[1], small.shape[0]),
            intrinsics.scaled(width, height),
            keyframe.intrinsics is not None,
            tuple(find_objects(image, intrinsics, orientation)),
            ItemView(
                (),
                floor_below(pose, 0.0),
                depth=depth_of(keyframe.depth),
                intrinsics=intrinsics,
            ),
        )

    def thing(self, item: Item, box: Box | None, convention: str) -> ColouredObject | None:
        """What a model means by a box; None: it gave none that can be used."""
        shares = box_shares(box, convention, self.shown_size) if box else None
        if shares is None:
            return None
        height, width = self.image.shape[:2]
        left, top, right, bottom = shares
        score = item.confidence if math.isfinite(item.confidence) else 0.0
        box = (left * width, top * height, right * width, bottom * height)
        detection = Detection(item.label, score, box)
        things = fused_objects([detection], self.coloured, self.image, self.intrinsics)
        if not things or things[0].name != item.label:
            return None
        has_colour = bool(COLOUR_WORDS & set(item.label.lower().replace('-', ' ').split()))
        return replace(things[0], colour='') if has_colour else things[0]


@dataclass(frozen=True)
class Grounding:
    """The pictures of a reply, and how its model writes coordinates."""

    convention: str  # a key of BOX_CONVENTIONS
    later: Picture
    earlier: Picture | None = None

    def place(self, item: Item, box: Box | None, earlier_box: Box | None, motion: Motion) -> Item:
        """An item of a reply where its boxes are, with what became of it by geometry.

        Args:
            item: By the words of the model; stays as it is without a usable box.
            box: In the newest picture, in the coordinates of the model; None: not there.
            earlier_box: In the picture before.
            motion: Of the camera in between.
        """
        now = self.later.thing(item, box, self.convention)
        before = self.earlier and self.earlier.thing(item, earlier_box, self.convention)
        if now is None and before is None:
            return item
        if self.earlier and before:
            old = replace(self.earlier.view, objects=[before])
            new = replace(self.later.view, objects=[now] if now else [])
            slack_rad = _SLACK_RAD if self.later.is_calibrated else math.pi
            [placed, *_] = sorted(
                items_between(old, new, motion, slack_rad), key=lambda one: one.box is None
            )
        else:
            [placed] = items_in_view(replace(self.later.view, objects=[now] if now else []))
        return replace(placed, status=_status(item, placed, motion, has_both=bool(now and before)))


def _status(item: Item, placed: Item, motion: Motion, *, has_both: bool) -> ItemStatus:
    """What became of a thing: by its boxes, as far as they tell, else as the model says."""
    if placed.status is ItemStatus.LEFT:
        return ItemStatus.LEFT
    if has_both:
        by_eye = item.status if item.status is ItemStatus.MOVED else ItemStatus.VISIBLE
        return placed.status if motion.source in _GEOMETRIC else by_eye
    return ItemStatus.VISIBLE if item.status is ItemStatus.LEFT else item.status


GOLDEN_SIZE = (560, 420)  # width and height [px]: multiples of the patches of all models
_GOLDEN_SHAPES: dict[str, tuple[tuple[int, int, int], Box]] = {
    'red square': ((40, 40, 215), (42, 224, 140, 322)),
    'blue circle': ((210, 80, 30), (182, 28, 280, 126)),
    'green triangle': ((60, 160, 40), (392, 238, 518, 364)),
}
_FITS = 0.5  # mean intersection over union from which a convention is the one


def golden_image() -> UInt8s:
    """A picture with three shapes at known places, BGR (H, W, 3)."""
    width, height = GOLDEN_SIZE
    image = np.full((height, width, 3), 225, np.uint8)
    for label, (colour, box) in _GOLDEN_SHAPES.items():
        left, top, right, bottom = (int(edge) for edge in box)
        middle = ((left + right) // 2, (top + bottom) // 2)
        if 'square' in label:
            cv2.rectangle(image, (left, top), (right - 1, bottom - 1), colour, -1)
        elif 'circle' in label:
            cv2.circle(image, middle, (right - left) // 2, colour, -1, cv2.LINE_AA)
        else:
            corners = np.array([(middle[0], top), (right - 1, bottom - 1), (left, bottom - 1)])
            cv2.fillPoly(image, [corners.astype(np.int32)], colour, cv2.LINE_AA)
    return image


def golden_labels() -> tuple[str, ...]:
    """What the golden image shows."""
    return tuple(_GOLDEN_SHAPES)


@dataclass(frozen=True)
class GoldenResult:
    """How well boxes of the golden image fit, by convention."""

    fits: Mapping[str, float]  # mean intersection over union, 0..1
    swapped: Mapping[str, float]  # the same with rows before columns

    @property
    def best(self) -> str:
        """The convention that fits; empty: none does."""
        name = max(self.fits, key=lambda convention: self.fits[convention])
        return name if self.fits[name] >= _FITS else ''

    @property
    def is_swapped(self) -> bool:
        """Whether boxes fit only with rows before columns."""
        return not self.best and max(self.swapped.values()) >= _FITS


def judge_golden(boxes: Mapping[str, Box]) -> GoldenResult:
    """Compare boxes of the golden image with where its shapes are.

    Args:
        boxes: By label, as the model wrote them; one that is missing fits not at all.
    """
    turned = {label: (box[1], box[0], box[3], box[2]) for label, box in boxes.items()}
    return GoldenResult(
        {name: _mean_overlap(boxes, name) for name in BOX_CONVENTIONS},
        {name: _mean_overlap(turned, name) for name in BOX_CONVENTIONS},
    )


def _mean_overlap(boxes: Mapping[str, Box], convention: str) -> float:
    overlaps = []
    for label, (_, box) in _GOLDEN_SHAPES.items():
        truth = box_shares(box, 'pixels', GOLDEN_SIZE)
        shares = box_shares(boxes[label], convention, GOLDEN_SIZE) if label in boxes else None
        if shares and truth:
            overlaps.append(overlap_of(shares, truth))
    return sum(overlaps) / len(_GOLDEN_SHAPES)
