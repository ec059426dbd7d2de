# SPDX-License-Identifier: Apache-2.0
"""The true layout of a simulated episode: what is where when, and what each image shows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
import math
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import (
    as_position,
    direction_of_vector,
    Pose,
    rotation_from_ypr,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

LAYOUT_VERSION = 1
Vector = tuple[float, float, float]


@dataclass(frozen=True)
class Span:
    """Where an object is between two stamps; it goes evenly and straight from `start` to `end`."""

    from_ns: int  # inclusive
    to_ns: int  # exclusive
    start: Vector  # centre [m]
    end: Vector  # centre [m]

    def position_at(self, stamp_ns: int) -> Vector:
        """Centre at a stamp within the span [m]."""
        share = (stamp_ns - self.from_ns) / max(1, self.to_ns - self.from_ns)
        ends = zip(self.start, self.end, strict=True)
        return as_position(a + (b - a) * share for a, b in ends)


@dataclass(frozen=True)
class LayoutObject:
    """A coloured object and where it is over time. It is absent between and after its spans."""

    id: int  # position in the list of objects
    label: str  # what a perceiver can know, e.g. 'red tall object'
    colour: str  # a name of vocabulary.COLOURS
    shape: str  # one of vocabulary.SHAPES
    size: Vector  # extents along its own x, y, z [m]
    yaw_rad: float  # of its own x axis in the fixed frame
    support: str  # 'floor', 'table', 'cabinet' or 'shelf'
    spans: tuple[Span, ...]  # in order of time, not overlapping
    first_seen_ns: int = 0  # first image that it is visible in; 0: none
    last_seen_ns: int = 0  # last image that it is visible in; 0: none

    def position_at(self, stamp_ns: int) -> Vector | None:
        """Centre at a stamp [m]; None while it is absent."""
        for span in self.spans:
            if span.from_ns <= stamp_ns < span.to_ns:
                return span.position_at(stamp_ns)
        return None


@dataclass(frozen=True)
class ObjectView:
    """An object in one image of which at least a part can be seen.

    Direction and distance are those of the object's centre, also where a part is hidden.
    """

    object_id: int
    visible: bool  # enough of it can be seen to count (docs/recordings.md)
    share: float  # unhidden part of its whole silhouette, 0..1; outside the image is hidden
    area: float  # share of the image that it covers, 0..1
    bearing_rad: float  # positive left
    elevation_rad: float  # positive up
    distance_m: float  # from the camera to its centre
    size_rad: float  # the larger angle that its whole silhouette covers


@dataclass(frozen=True)
class ImageTruth:
    """Pose of the camera link at one image, and what the image shows."""

    stamp_ns: int
    position: Vector  # [m]
    yaw_rad: float  # counts whole turns: it does not wrap
    pitch_rad: float  # positive tilts the view down
    roll_rad: float  # positive rolls clockwise
    views: tuple[ObjectView, ...] = ()

    def pose(self, frame_id: str) -> Pose:
        """Pose of the camera link, in the fixed frame of the layout."""
        rotation = rotation_from_ypr(self.yaw_rad, self.pitch_rad, self.roll_rad)
        return Pose.of(rotation, self.position, frame_id)

    def direction_to(self, point: Vector) -> tuple[float, float, float]:
        """Bearing [rad], elevation [rad] and distance [m] of a point, in view or not."""
        rotation = rotation_from_ypr(self.yaw_rad, self.pitch_rad, self.roll_rad)
        offset = rotation.T @ np.subtract(point, self.position)
        return (*direction_of_vector(offset), float(np.linalg.norm(offset)))


@dataclass(frozen=True)
class Layout:
    """Everything that is true of an episode."""

    episode_id: str
    scene_id: str
    room_size: Vector  # extents along x, y, z [m]
    objects: tuple[LayoutObject, ...]
    images: tuple[ImageTruth, ...]  # in order of time
    frame_id: str = 'odom'
    labels: tuple[str, ...] = ()  # all that objects of such a world may have; empty: any
    may_return: bool = False  # in such a world some paths lead back to their start
    version: int = LAYOUT_VERSION

    def image_at(self, stamp_ns: int) -> ImageTruth:
        """The image with exactly this stamp.

        Raises:
            InputError: There is none.
        """
        for image in self.images:
            if image.stamp_ns == stamp_ns:
                return image
        msg = f'episode {self.episode_id!r} has no image with stamp {stamp_ns}'
        raise InputError(msg)

    def to_json(self) -> str:
        """One line of JSON; lengths and angles are rounded to 0.0001, and views are rows."""
        value = asdict(self)
        for image in value['images']:
            image['views'] = [list(view.values()) for view in image['views']]
        return truth_to_json(value, digits=4)

    @classmethod
    def from_json(cls, text: str) -> Layout:
        """Read what `to_json` wrote.

        Raises:
            InputError: It is not JSON, is of another version, or a field is missing or unknown.
        """
        return truth_from_json(text, 'layout', LAYOUT_VERSION, _layout, 'record the episode again')


def _layout(value: dict[str, Any]) -> Layout:
    objects = tuple(_object(item) for item in value['objects'])
    images = tuple(_image(item) for item in value['images'])
    room_size = as_position(value['room_size'])
    values = {'room_size': room_size, 'objects': objects, 'images': images}
    return Layout(**{**value, **values, 'labels': tuple(value.get('labels', ()))})


def _object(value: dict[str, Any]) -> LayoutObject:
    spans = tuple(
        Span(span['from_ns'], span['to_ns'], as_position(span['start']), as_position(span['end']))
        for span in value['spans']
    )
    return LayoutObject(**{**value, 'size': as_position(value['size']), 'spans': spans})


def _image(value: dict[str, Any]) -> ImageTruth:
    views = tuple(ObjectView(*row) for row in value['views'])
    return ImageTruth(**{**value, 'position': as_position(value['position']), 'views': views})


Truth = TypeVar('Truth')


def truth_to_json(value: dict[str, Any], digits: int) -> str:
    """One line of JSON, its numbers rounded to so many decimal places."""
    return json.dumps(_round(value, digits), separators=(',', ':'))


def truth_from_json(
    text: str, name: str, version: int, read: Callable[[dict[str, Any]], Truth], advice: str
) -> Truth:
    """Read what `truth_to_json` wrote.

    Args:
        text: The JSON.
        name: What it is called in errors.
        version: The version that can be read.
        read: Makes it of the value, where that is of this version.
        advice: What to do where it cannot be read.

    Raises:
        InputError: It is not JSON, is of another version, or a field is missing or unknown.
    """
    try:
        value = json.loads(text)
        actual = value['version']
        truth = read(value) if actual == version else None
    except (ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        msg = f'{name} {text[:60]!r}... is not readable ({error}): {advice}'
        raise InputError(msg) from None
    if truth is None:
        msg = f'{name} has version {actual!r}: expected {version}'
        raise InputError(msg)
    return truth


def _round(value: Any, digits: int) -> Any:
    if isinstance(value, float):
        # Adding zero turns -0.0 into 0.0.
        return round(value, digits) + 0.0 if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _round(item, digits) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_round(item, digits) for item in value]
    return value
