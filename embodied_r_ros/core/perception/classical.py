# SPDX-License-Identifier: Apache-2.0
"""The perceiver that needs no model: ego-motion and coloured objects, or 'cannot tell'.

Its domain is what geometry and colour prove: how the camera moved, and things of one strong
colour. The motion is that of odometry where the keyframes carry it, else as the extractor followed
the camera from image to image, else that of the two images. It never names a class, and outside of
its domain it says so. Its only state is a small cache of what it found in recent images, so that
each keyframe is looked at once, and the field of view of cameras that do not state theirs.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from functools import lru_cache
import hashlib
import math
from pathlib import Path
import re
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError, ModelError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.perception.coloured_objects import find_objects
from embodied_r_ros.core.perception.egomotion import (
    FieldOfView,
    find_features,
    followed_motion,
    known_motion,
    motion_from_features,
    with_length,
)
from embodied_r_ros.core.perception.items import (
    depth_of,
    floor_below,
    items_between,
    items_in_view,
    ItemView,
    outside_fixed,
)
from embodied_r_ros.core.perception.perceiver import delta_of_pair
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import (
    action_text,
    change_text,
    DeltaKind,
    ItemStatus,
    ModelInfo,
    Motion,
    MotionSource,
    NO_MOTION,
    Rung,
    ScaleSource,
    STATIONARY,
)
from embodied_r_ros.core.types.geometry import Intrinsics, read_only
from embodied_r_ros.core.types.vocabulary import COLOURS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.perception.coloured_objects import ColouredObject
    from embodied_r_ros.core.perception.egomotion import Features
    from embodied_r_ros.core.types.arrays import UInt8s
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe

Quaternion = tuple[float, float, float, float]

_CACHED_IMAGES = 4
_BLANK = 4.0  # standard deviation of the grey values of an image that shows nothing
# Factors on the confidence of a motion without stated intrinsics.
_ASSUMED, _LEARNED = 0.5, 0.9
# How far directions may be off that were predicted with a motion.
_SLACK_RAD = {
    MotionSource.UNKNOWN: math.pi,
    MotionSource.ODOMETRY: 0.0,
    MotionSource.TWO_VIEW: math.radians(1.0),
    MotionSource.FOLLOWED: math.radians(2.0),
}
_LEARNED_SLACK_RAD = math.radians(3.0)
# What a keyframe makes of the geometry: a pose whose orientation is no rotation is a ValueError,
# intrinsics that OpenCV does not take are its own error; a detector can fail.
_UNUSABLE = (ImageError, ModelError, ValueError, cv2.error)
_LEVEL: Quaternion = (0.0, 0.0, 0.0, 1.0)
_COLOURS = {colour.name for colour in COLOURS}
# The sources that decide what is perceived.
_SOURCES = (
    'keyframes/relative_pose',
    'perception/classical',
    'perception/coloured_objects',
    'perception/egomotion',
    'perception/items',
    'types/deltas',
    'types/geometry',
    'types/vocabulary',
)


@dataclass(frozen=True)
class ClassicalConfig(Settings):
    """What the perceiver may use, and what it assumes."""

    use_odometry: bool = setting(True, 'take the motion from poses where both keyframes have one')
    assumed_hfov_rad: float = setting(
        math.radians(70),
        'horizontal field of view of a camera without intrinsics, until it is learned [rad]',
        between=(0.2, 2.8),
    )
    learn_hfov: bool = setting(
        True, 'learn the field of view of a camera without intrinsics from its images'
    )
    camera_height_m: float = setting(
        0.0,
        'height of the camera above the floor, for distances [m]; 0: the z of its pose',
        between=(0, 100),
    )
    max_items: int = setting(8, 'items that a delta names at most, the largest', between=(1, 64))


class ClassicalPerceiver:
    """Perceives by geometry and colour. Safe for use from several threads."""

    def __init__(self, config: ClassicalConfig | None = None, rung: Rung = Rung.LOCAL) -> None:
        self.config = config or ClassicalConfig()
        self._info = ModelInfo('classical', _digest(), rung=rung)
        # One image is the later one of a pair, then the earlier one of the next.
        self._image = lru_cache(_CACHED_IMAGES)(_decode)
        self._objects = lru_cache(_CACHED_IMAGES)(self._find_objects)
        self._features = lru_cache(_CACHED_IMAGES)(
            lambda encoded, fixed_mask: find_features(self._image(encoded), fixed_mask)
        )
        self._depth = lru_cache(_CACHED_IMAGES)(depth_of)
        self._fields: defaultdict[str, FieldOfView] = defaultdict(FieldOfView)

    def info(self) -> ModelInfo:
        """Name, rung, and the digest of the sources that decide what is perceived."""
        return self._info

    def check(self, deadline_s: float) -> None:
        """It needs nothing that could be missing."""

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        """Say how the camera moved and what the later keyframe adds; it never raises."""
        delta = delta_of_pair(earlier, later, DeltaKind.FIRST, model=self._info)
        try:
            _refuse_blank(self._image(later.image))
            if earlier is None:
                return self._describe(delta, later)
            return self._compare(delta, earlier, later)
        except _UNUSABLE as error:
            return replace(delta, kind=DeltaKind.FAILED, error=str(error))

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        """Describe the items that the question or an option names, or else their colour or shape.

        Raises:
            ModelError: The keyframe cannot be looked at.
        """
        terms = set(re.findall('[a-z]+', ' '.join([question, *options]).lower()))
        try:
            view = self.view(keyframe)
        except _UNUSABLE as error:
            msg = f'keyframe {keyframe.id} cannot be looked at: {error}'
            raise ModelError(msg) from error
        matches = _objects_named(view.objects, terms)
        items = items_in_view(replace(view, objects=matches))[: self.config.max_items]
        text = change_text(items) if items else ''
        return FocusText(keyframe.id, keyframe.stamp_ns, text, keyframe.camera)

    def with_lens(self, keyframe: Keyframe) -> Keyframe:
        """The keyframe with the intrinsics by which it is looked at, stated, learned or assumed.

        Raises:
            ImageError: The image cannot be decoded.
        """
        return replace(keyframe, intrinsics=self._intrinsics(keyframe))

    def learn(self, earlier: Keyframe, later: Keyframe) -> bool:
        """Learn the camera's field of view from two keyframes; True: nothing is left to learn."""
        if later.intrinsics or not self.config.learn_hfov:
            return True
        height, width = self._image(later.image).shape[:2]
        field = self._fields[later.camera]
        field.learn(*self._both_features(earlier, later), width, height)
        return field.is_settled

    def _both_features(self, earlier: Keyframe, later: Keyframe) -> tuple[Features, Features]:
        first, second = (self._features(each.image, each.fixed_mask) for each in (earlier, later))
        return first, second

    def _describe(self, delta: SemanticDelta, keyframe: Keyframe) -> SemanticDelta:
        return self._with_items(delta, items_in_view(self.view(keyframe)))

    def _compare(self, delta: SemanticDelta, earlier: Keyframe, later: Keyframe) -> SemanticDelta:
        if followed_motion(earlier, later) != NO_MOTION:  # a camera that stands tells no lens
            self.learn(earlier, later)
        motion = self._motion(earlier, later)
        slack_rad = self._slack_rad(motion, later)
        items = items_between(self.view(earlier), self.view(later), motion, slack_rad)
        action = action_text(motion)
        is_same = action == STATIONARY and all(i.status is ItemStatus.VISIBLE for i in items)
        kind = DeltaKind.NO_CHANGE if is_same else DeltaKind.CHANGE
        return self._with_items(replace(delta, kind=kind, action=action, motion=motion), items)

    def _with_items(self, delta: SemanticDelta, items: list[Item]) -> SemanticDelta:
        # What is sure comes first; sorting keeps the largest of each first.
        ordered = sorted(items, key=lambda item: item.is_doubtful)
        largest = tuple(ordered[: self.config.max_items])
        return replace(delta, items=largest, change=change_text(largest))

    def _motion(self, earlier: Keyframe, later: Keyframe) -> Motion:
        known = known_motion(earlier, later, use_odometry=self.config.use_odometry)
        # A fisheye is not taken on trust: two views tell of calibrations that are not the images'.
        is_sure = known == NO_MOTION or (known and known.source is not MotionSource.FOLLOWED)
        if known and (is_sure or not (later.intrinsics and later.intrinsics.is_fisheye)):
            return known
        both = self._both_features(earlier, later)
        motion = motion_from_features(*both, self._intrinsics(later))
        if known:
            is_turn = motion.source is MotionSource.TWO_VIEW and not any(motion.translation)
            return motion if is_turn else known
        if later.intrinsics:
            return motion
        followed = followed_motion(earlier, later, use_odometry=self.config.use_odometry)
        if motion.source is MotionSource.UNKNOWN:
            return followed or motion
        factor = _LEARNED if self._fields[later.camera].radians else _ASSUMED
        motion = replace(motion, confidence=motion.confidence * factor)
        has_length = followed and followed.scale is not ScaleSource.UNKNOWN
        return with_length(motion, followed) if followed and has_length else motion

    def _slack_rad(self, motion: Motion, keyframe: Keyframe) -> float:
        if keyframe.intrinsics:
            return _SLACK_RAD[motion.source]
        return _LEARNED_SLACK_RAD if self._fields[keyframe.camera].radians else math.pi

    def view(self, keyframe: Keyframe) -> ItemView:
        """What a keyframe shows, and the floor below.

        Raises:
            ImageError: The image cannot be decoded.
        """
        pose = keyframe.pose if self.config.use_odometry else None
        orientation = pose.orientation if pose else _LEVEL
        intrinsics = self._intrinsics(keyframe)
        objects = self._objects(keyframe.image, intrinsics, orientation)
        objects = tuple(outside_fixed(objects, keyframe.fixed_mask))
        depth = self._depth(keyframe.depth)
        floor = floor_below(pose, self.config.camera_height_m)
        return ItemView(objects, floor, depth=depth, intrinsics=intrinsics)

    def _intrinsics(self, keyframe: Keyframe) -> Intrinsics:
        if keyframe.intrinsics:
            return keyframe.intrinsics
        height, width = self._image(keyframe.image).shape[:2]
        fov_rad = self._fields[keyframe.camera].radians
        return Intrinsics.from_fov(width, height, fov_rad or self.config.assumed_hfov_rad)

    def _find_objects(
        self, encoded: EncodedImage, intrinsics: Intrinsics, orientation: Quaternion
    ) -> tuple[ColouredObject, ...]:
        return tuple(find_objects(self._image(encoded), intrinsics, orientation))


def _objects_named(objects: Sequence[ColouredObject], terms: set[str]) -> Sequence[ColouredObject]:
    """The objects whose name is among the terms, or else whose colour, or else whose shape."""
    # A cup is also meant by cups.
    terms = terms | {term.removesuffix('s') for term in terms}
    named = [thing for thing in objects if thing.name and terms & set(thing.name.split())]
    if named:
        return [thing for thing in named if thing.colour in terms] or named
    by_colour = bool(terms & _COLOURS)
    return [f for f in objects if (f.colour if by_colour else f.shape) in terms]


def _decode(encoded: EncodedImage) -> UInt8s:
    return read_only(encoded.decode())


def _refuse_blank(image: UInt8s) -> None:
    spread = float(image.std())
    if spread < _BLANK:
        msg = f'the image is blank or dark: its values lie within {spread:.1f} of each other'
        raise ImageError(msg)


def _digest() -> str:
    """Digest over the sources that decide what is perceived."""
    folder = Path(__file__).parents[1]
    content = b''.join((folder / f'{name}.py').read_bytes() for name in _SOURCES)
    return f'sha256:{hashlib.sha256(content).hexdigest()}'
