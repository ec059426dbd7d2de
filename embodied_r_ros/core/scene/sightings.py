# SPDX-License-Identifier: Apache-2.0
"""Sightings: what one keyframe says of the place of one thing, and places put together of them.

The uncertainty of a sighting is a needle along its ray: directions are sure, distances are as sure
as what they rest on. A sighting without a distance is an endless needle, so that several of them
from apart place a thing as well.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import cached_property, lru_cache
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.types.deltas import Item, ScaleSource
from embodied_r_ros.core.types.geometry import as_position, vector_of_direction
from embodied_r_ros.core.types.vocabulary import (
    class_of,
    COLOUR_WORDS,
    COLOURS,
    family_of,
    SHAPES,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Float64s
    from embodied_r_ros.core.types.geometry import Pose, Position

# Standard deviation of a distance: a part [m], and a share of it, by what it rests on.
_ALONG = {
    ScaleSource.DEPTH: (0.06, 0.06),
    ScaleSource.ODOMETRY: (0.08, 0.10),
    ScaleSource.FLOOR: (0.10, 0.12),
    ScaleSource.IMU: (0.15, 0.15),
    ScaleSource.MODEL: (0.30, 0.40),
    ScaleSource.UNKNOWN: (0.10, 0.15),
}
# What is only a colour may stand on a table: then it is nearer than its distance by the floor.
_NEARER_SHARE = 0.5
_ACROSS_RAD, _ACROSS_SIZE = math.radians(1.5), 0.12  # of a direction: a part, and of the size
_CUT_SIZE = 0.4  # the same share where an edge of the image hides the middle
_LEAST_ACROSS_M = 0.03
_EDGE = 0.006  # a box that ends nearer to the edge of the image is cut off by it [share]
_FARTHEST_M = 1000.0  # a distance beyond is none
_UNKNOWN_SIZE_RAD = math.radians(10.0)
_COLOUR_NAMES = {colour.name for colour in COLOURS}


@dataclass(frozen=True)
class LabelParts:
    """What a label says: 'red tall object' has a colour and a shape, 'red cup' a name."""

    colour: str = ''
    shape: str = ''
    name: str = ''

    @classmethod
    def of(cls, label: str) -> LabelParts:
        """Take a label apart."""
        words = label.lower().split()
        known = COLOUR_WORDS if len(words) > 1 else _COLOUR_NAMES  # an orange is a fruit
        colour = words[0] if words and words[0] in known else ''
        rest = words[1:] if colour else words
        if rest == ['object']:
            return cls(colour)
        if len(rest) == 2 and rest[0] in SHAPES and rest[1] == 'object':
            return cls(colour, rest[0])
        return cls(colour, '', ' '.join(rest))

    def difference(self, other: LabelParts) -> float:
        """How unlike two labels at one place are, 0: the same; infinite: two things."""
        same_colour = bool(self.colour) and self.colour == other.colour
        other_colour = bool(self.colour and other.colour) and not same_colour
        if self.name and other.name:
            return _name_difference(self.name, other.name) + (2.0 if other_colour else 0.0)
        if self.name or other.name:
            return math.inf if other_colour else 2.0 if same_colour else 4.0
        if not same_colour:
            return math.inf if other_colour else 3.0
        return 1.0 if self.shape and other.shape and self.shape != other.shape else 0.0


@lru_cache(4096)
def _name_difference(one: str, other: str) -> float:
    if one == other:
        return 0.0
    if class_of(one) == class_of(other) or one.split()[-1] == other.split()[-1]:
        return 0.5
    return 1.5 if family_of(one) == family_of(other) else math.inf


@dataclass(frozen=True)
class Sighting:
    """One look at a thing, in the frame of a map."""

    stamp_ns: int
    keyframe_id: int
    origin: Position  # of the camera [m]
    ray: Position  # towards the middle of the thing, unit length
    distance_m: float  # NaN: not known
    along_m: float  # standard deviation of the distance; infinite: it is not known
    nearer_m: float  # the same for a thing that is nearer than that
    across_rad: float  # standard deviation of the direction
    size_rad: float  # the larger angle that it covers; NaN: not known
    confidence: float  # 0..1
    is_cut: bool  # by the edge of the image
    prominence: float  # how well the image shows it: large and in the middle, 0..1

    @property
    def may_be_nearer(self) -> bool:
        """Whether its distance is the most that it can be, more than a measure of it."""
        return self.nearer_m > self.along_m

    @cached_property
    def position(self) -> Float64s:
        """Its place [m]; of one without a distance, that of the camera. Shape (3,)."""
        far = self.distance_m if math.isfinite(self.distance_m) else 0.0
        return np.asarray(self.origin) + far * np.asarray(self.ray)

    @property
    def is_placed(self) -> bool:
        """Whether its distance is known."""
        return math.isfinite(self.distance_m)

    def without_distance(self) -> Sighting:
        """The direction alone."""
        return replace(self, distance_m=math.nan, along_m=math.inf, nearer_m=math.inf)

    def covariance(self, distance_m: float) -> Float64s:
        """Covariance of its place, for a thing that is so far [m²]. Shape (3, 3)."""
        across_m = max(_LEAST_ACROSS_M, self.across_rad * distance_m)
        along_m = self.nearer_m if distance_m < self.distance_m else self.along_m
        ray = np.asarray(self.ray)
        along = np.outer(ray, ray)
        return (np.eye(3) - along) * across_m**2 + along * along_m**2

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; what is not finite is null."""
        return {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Sighting:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError: A field is missing or unknown.
        """
        unknown = {'distance_m': math.nan, 'size_rad': math.nan}
        unknown |= {'along_m': math.inf, 'nearer_m': math.inf}
        fields: dict[str, Any] = {
            key: unknown[key] if content is None and key in unknown else content
            for key, content in value.items()
        }
        fields |= {key: as_position(fields[key]) for key in ('origin', 'ray')}
        return cls(**fields)


def sound_item(item: Item) -> Item:
    """The item without a box, size or distance that can be none: perception may be anybody's."""
    box = item.box
    if box and not (all(map(math.isfinite, box)) and box[0] < box[2] and box[1] < box[3]):
        box = None
    size_rad = item.size_rad if 0 < item.size_rad < math.pi else math.nan
    distance_m = item.distance_m if 0 < item.distance_m < _FARTHEST_M else math.nan
    return replace(item, box=box, size_rad=size_rad, distance_m=distance_m)


def sighting_of(item: Item, pose: Pose, stamp_ns: int, keyframe_id: int) -> Sighting | None:
    """An item as seen from a pose of the camera link; None: its direction is not known."""
    if not all(map(math.isfinite, (item.bearing_rad, item.elevation_rad))):
        return None
    ray = pose.rotation() @ vector_of_direction(item.bearing_rad, item.elevation_rad)
    far = item.distance_m
    least, share = _ALONG.get(item.scale, _ALONG[ScaleSource.UNKNOWN])
    along_m = least + share * far if math.isfinite(far) else math.inf
    may_stand_higher = item.scale is ScaleSource.FLOOR and not LabelParts.of(item.label).name
    is_cut = bool(item.box) and not all(_EDGE < edge < 1 - _EDGE for edge in item.box or ())
    size_rad = item.size_rad if math.isfinite(item.size_rad) else _UNKNOWN_SIZE_RAD
    return Sighting(
        stamp_ns,
        keyframe_id,
        pose.position,
        as_position(ray),
        far,
        along_m,
        max(along_m, _NEARER_SHARE * far) if may_stand_higher else along_m,
        _ACROSS_RAD + (_CUT_SIZE if is_cut else _ACROSS_SIZE) * size_rad,
        item.size_rad,
        min(1.0, max(0.0, item.confidence)) if math.isfinite(item.confidence) else 0.5,
        is_cut,
        _prominence(item, is_cut=is_cut),
    )


def _prominence(item: Item, *, is_cut: bool) -> float:
    if item.box is None:
        size = min(1.0, item.size_rad) if math.isfinite(item.size_rad) else 0.0
        return 0.5 * size
    left, top, right, bottom = item.box
    side = math.sqrt(max(0.0, right - left) * max(0.0, bottom - top))
    off = math.hypot((left + right) / 2 - 0.5, (top + bottom) / 2 - 0.5)
    return min(1.0, side) * (1 - off) * (0.5 if is_cut else 1.0)


@dataclass(frozen=True)
class ItemSighting:
    """An item of a delta in the frame of the map."""

    item: Item
    sighting: Sighting
    label: LabelParts
    size: tuple[float, float] | None = None  # width and height [m]; None: not known

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        sighting = self.sighting.to_json()
        return {'item': self.item.to_json(), 'sighting': sighting, 'size': self.size}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> ItemSighting:
        """Read what `to_json` wrote.

        Raises:
            KeyError, TypeError, ValueError: A field is missing or has the wrong type.
        """
        item = Item.from_json(value['item'])
        size = (float(value['size'][0]), float(value['size'][1])) if value['size'] else None
        return cls(item, Sighting.from_json(value['sighting']), LabelParts.of(item.label), size)


@dataclass(frozen=True)
class FusedPlace:
    """Where a thing is by several sightings."""

    position: Float64s  # (3,) [m]
    covariance: Float64s  # (3, 3) [m²]


_ROUNDS = 5
_HUBER = 1.5  # deviations across from which on a sighting counts less
_CAUCHY = 1.0  # the same of distances, which are more often quite wrong
_SHRINKS = 0.25  # share of how far a thing was from a camera, below which it is no nearer
_INDEPENDENT = 4  # sightings of one thing share their errors: more make it no surer


def fused_place(sightings: Sequence[Sighting], near: Float64s) -> FusedPlace:
    """Put sightings together; those far off count less, so that one mistake does not move it.

    Args:
        sightings: At least one with a distance, or two whose rays cross.
        near: About where it is, for how far it is from each camera. Shape (3,).
    """
    bundle = _Bundle(sightings)
    place = near
    along = bundle.near_along
    across_weights: Float64s = np.ones(len(sightings))
    for number in range(_ROUNDS if len(sightings) > 1 else 1):
        if number:
            along, across_weights = bundle.weights(place)
        information = bundle.information(place, along, across_weights)
        total = information.sum(axis=0) + 1e-9 * np.eye(3)
        place = np.linalg.solve(total, np.einsum('nij,nj->i', information, bundle.points))
        if (bundle.far(place) < _SHRINKS * bundle.far(near)).any():
            place = near  # all rays meet where a camera stood
            break
    # How unsure it is counts the loose side of each distance, to where it may have to move yet.
    loose = np.minimum(along, bundle.near_along)
    total = bundle.information(place, loose, across_weights).sum(axis=0) + 1e-9 * np.eye(3)
    correlated = max(1.0, len(sightings) / _INDEPENDENT)
    covariance = np.asarray(np.linalg.inv(total) * correlated, np.float64)
    return FusedPlace(np.asarray(place, np.float64), covariance)


class _Bundle:
    """Sightings as arrays."""

    def __init__(self, sightings: Sequence[Sighting]) -> None:
        self.origins = np.array([s.origin for s in sightings])
        self.rays = np.array([s.ray for s in sightings])
        self.points = np.array([s.position for s in sightings])
        self.far_along = np.array([s.along_m for s in sightings]) ** -2.0
        self.near_along = np.array([s.nearer_m for s in sightings]) ** -2.0
        self._spread = np.array([s.across_rad for s in sightings])
        self._parallel = self.rays[:, :, None] * self.rays[:, None, :]
        self._across = np.eye(3) - self._parallel

    def information(self, place: Float64s, along: Float64s, across_weights: Float64s) -> Float64s:
        """Inverse covariance of each, for a thing at a place [1/m²]. Shape (N, 3, 3)."""
        tight = self._tight(place) * across_weights
        each = self._across * tight[:, None, None] + self._parallel * along[:, None, None]
        return np.asarray(each, np.float64)

    def weights(self, place: Float64s) -> tuple[Float64s, Float64s]:
        """Information along each ray, and weights across, the less the further off a place is."""
        off = place - self.points
        off_along = np.einsum('ni,ni->n', off, self.rays)
        off_across = np.maximum(1e-12, (off**2).sum(axis=1) - off_along**2)
        deviation = np.maximum(np.sqrt(off_across * self._tight(place)), 1e-9)
        along = np.where(off_along < 0, self.near_along, self.far_along)
        along = along / (1.0 + off_along**2 * along / _CAUCHY**2)
        return np.asarray(along), np.asarray(np.minimum(1.0, _HUBER / deviation))

    def _tight(self, place: Float64s) -> Float64s:
        return np.asarray(np.maximum(_LEAST_ACROSS_M, self._spread * self.far(place)) ** -2.0)

    def far(self, place: Float64s) -> Float64s:
        """How far a place is from each camera [m]. Shape (N,)."""
        return np.asarray(np.linalg.norm(place - self.origins, axis=1))
