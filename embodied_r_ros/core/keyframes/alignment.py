# SPDX-License-Identifier: Apache-2.0
"""Images prepared for comparison, and where each cell of one view lies in another."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
import math
import threading
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.core.keyframes.structure import (
    first_structure,
    fit_structure,
    MeasuredCells,
    rays_through,
)
from embodied_r_ros.core.types.geometry import read_only
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.keyframes.structure import Structure
    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s, UInt8s
    from numpy.typing import NDArray

WORK_PX = 160
CELL_PX = 4
_CORNER_PX = 320  # corners need more detail than brightness does
_MAX_CORNERS = 500
# Grey levels: faint texture after shrinking, and a slope across cells that noise does not reach.
_TEXTURE_STD = 5.0
_SLOPE = 2.0
_RIM = np.ones((3, 3), np.uint8)  # cells around a cell whose texture counts as its own
_GRADIENT_NOISE = 30.0  # of the squared gradient [(grey/px)^2]; a place is known above it


@dataclass(frozen=True)
class Corners:
    """ORB features (Rublee et al., ICCV 2011) of an image."""

    points: Float32s  # (N, 2) [work px]
    descriptors: UInt8s  # (N, 32)


class View:
    """One image at work size. What is costly is computed when it is first needed."""

    # What is fixed to the camera, and so no part of the view; None: nothing. (rows, columns).
    fixed_cells: Bools | None = None

    def __init__(self, image: UInt8s) -> None:
        """Shrink an image.

        Args:
            image: BGR, uint8, (H, W, 3).

        Raises:
            ImageError: The array is not such an image.
        """
        if image.ndim != 3 or image.shape[2] != 3 or image.dtype != np.uint8 or not image.size:
            msg = f'array of shape {image.shape}, {image.dtype} is not a BGR image (H, W, 3) uint8'
            raise ImageError(msg)
        grey = cv2.cvtColor(_thin(image), cv2.COLOR_BGR2GRAY)
        self.detailed = _resize(grey, _CORNER_PX)  # (2 h, 2 w)
        self.grey = _resize(self.detailed, WORK_PX)  # (h, w)
        self.height, self.width = self.grey.shape  # work size [px]
        self.size = self.width, self.height

    def leave_out(self, fixed_cells: Bools | None) -> None:
        """Take cells (rows, columns) that are fixed to the camera out of the view."""
        if fixed_cells is self.fixed_cells:
            return
        self.fixed_cells = fixed_cells
        for name in ('beside_fixed', 'open_grey', 'open_detailed', 'textured_share', 'corners'):
            self.__dict__.pop(name, None)

    @cached_property
    def beside_fixed(self) -> Bools | None:
        """Cells whose surroundings hold something fixed; None: none. Shape (rows, columns)."""
        if self.fixed_cells is None:
            return None
        return cv2.dilate(self.fixed_cells.astype(np.uint8), _RIM) > 0

    @cached_property
    def open_grey(self) -> UInt8s:
        """`grey`, in which what is fixed to the camera looks like what is around it."""
        return _without(self.beside_fixed, self.grey)

    @cached_property
    def open_detailed(self) -> UInt8s:
        """The same of `detailed`."""
        return _without(self.beside_fixed, self.detailed)

    @property
    def open_share(self) -> float:
        """Share of the image that is not fixed to the camera, > 0 to 1."""
        return 1.0 if self.fixed_cells is None else max(1e-3, 1.0 - float(self.fixed_cells.mean()))

    @cached_property
    def brightness(self) -> Float32s:
        """Grey levels as numbers to compute with. Shape (h, w)."""
        return self.grey.astype(np.float32)

    @cached_property
    def mean(self) -> Float32s:
        """Mean brightness around each cell. Shape (rows, columns)."""
        return around_cells(self.brightness)

    @cached_property
    def variance(self) -> Float32s:
        """Variance of the brightness around each cell. Shape (rows, columns)."""
        squares = around_cells(self.brightness * self.brightness)
        return np.maximum(squares - self.mean * self.mean, 0.0)

    @cached_property
    def information(self) -> Float32s:
        """How well texture around each cell tells its place: along x, between, along y, 0..1.

        An edge tells of movement across it alone. Shape (3, rows, columns).
        """
        across = np.asarray(cv2.Sobel(self.brightness, cv2.CV_32F, 1, 0, scale=1 / 8), np.float32)
        down = np.asarray(cv2.Sobel(self.brightness, cv2.CV_32F, 0, 1, scale=1 / 8), np.float32)
        xx, xy = around_cells(across * across), around_cells(across * down)
        yy = around_cells(down * down)
        # S (S + noise I)^-1 of the structure tensor S.
        a, c = xx + np.float32(_GRADIENT_NOISE), yy + np.float32(_GRADIENT_NOISE)
        known = np.stack([xx * c - xy * xy, xy * a - xx * xy, yy * a - xy * xy])
        return np.asarray(known / (a * c - xy * xy), np.float32)

    @cached_property
    def textured_share(self) -> float:
        """Share of the cells that have anything to compare, 0..1.

        Sensor noise in the dark has neither the strength of texture nor any extent.
        """
        slope_x = cv2.Sobel(self.mean, cv2.CV_32F, 1, 0, scale=1 / 8)
        slope_y = cv2.Sobel(self.mean, cv2.CV_32F, 0, 1, scale=1 / 8)
        has_slope = cv2.magnitude(slope_x, slope_y) > _SLOPE
        is_textured = has_slope | (self.variance > _TEXTURE_STD**2)
        if self.beside_fixed is not None:
            is_textured = is_textured[~self.beside_fixed]
        return np.count_nonzero(is_textured) / max(1, is_textured.size)

    @cached_property
    def corners(self) -> Corners:
        """Distinctive points, for views that lie far apart."""
        # Reflected borders let corners near the rim count; there the view changes first.
        orb = cv2.ORB_create(_MAX_CORNERS, nlevels=4, edgeThreshold=12, fastThreshold=7)  # type: ignore[attr-defined]
        usable = None
        if self.beside_fixed is not None:
            usable = cv2.resize((~self.beside_fixed).astype(np.uint8), self.detailed.shape[::-1])
        keypoints, descriptors = orb.detectAndCompute(self.open_detailed, usable)
        if descriptors is None:
            return Corners(np.empty((0, 2), np.float32), np.empty((0, 32), np.uint8))
        scale = np.divide(self.grey.shape[::-1], self.detailed.shape[::-1])
        points = np.array([keypoint.pt for keypoint in keypoints]) * scale
        return Corners(points.astype(np.float32), np.asarray(descriptors, np.uint8))


def _without(cells: Bools | None, grey: UInt8s) -> UInt8s:
    """A grey image in which the pixels of cells (rows, columns) are blurred from around them.

    Else flow would hold back what moves beside something that does not.
    """
    if cells is None:
        return grey
    size = grey.shape[1], grey.shape[0]
    hidden = cv2.resize(cells.astype(np.uint8), size, interpolation=cv2.INTER_NEAREST) > 0
    seen = (~hidden).astype(np.float32)
    layers: Any = cv2.merge([grey * seen, seen])
    near = sum(weight * cv2.blur(layers, (size[0] // n, size[0] // n)) for n, weight in _FILL)
    filled = near[..., 0] / np.maximum(near[..., 1], 1e-9)
    return np.where(hidden, filled.astype(np.uint8), grey)


# Boxes, as parts of the width, and weights by which pixels speak for hidden ones around them.
_FILL = ((20, 1.0), (5, 1e-2), (1, 1e-4))


def around_cells(values: Float32s) -> Float32s:
    """Means over the 3x3 cells around each cell. Shapes (h, w, ...) -> (rows, columns, ...)."""
    size = values.shape[1] // CELL_PX, values.shape[0] // CELL_PX
    cells = cv2.resize(values, size, interpolation=cv2.INTER_AREA)
    return np.asarray(cv2.blur(cells, (3, 3)), np.float32)


@lru_cache(maxsize=8)
def pixel_grid(width: int, height: int) -> Float32s:
    """Coordinates (x, y) of every pixel. Shape (height, width, 2), read-only."""
    x, y = np.meshgrid(np.arange(width, dtype=np.float32), np.arange(height, dtype=np.float32))
    return read_only(np.stack([x, y], axis=-1))


@lru_cache(maxsize=8)
def cell_centres(width: int, height: int) -> Float32s:
    """Coordinates (x, y) of the centre of every cell [px]. (rows, columns, 2), read-only."""
    centres = pixel_grid(width // CELL_PX, height // CELL_PX) * CELL_PX + (CELL_PX - 1) / 2
    return read_only(np.asarray(centres, np.float32))


@lru_cache(maxsize=8)
def cell_rays(width: int, height: int) -> Float32s:
    """Directions through the centres of the cells. Shape (3, rows, columns), read-only."""
    return read_only(rays_through(cell_centres(width, height), (width, height)))


def _thin(image: UInt8s) -> UInt8s:
    """Shrink a large image by a whole factor, quickly rather than well."""
    height, width = image.shape[:2]
    factor = max(height, width) // (2 * _CORNER_PX)
    if factor < 2:
        return image
    size = max(1, width // factor), max(1, height // factor)
    # Of an odd block the middle pixel is what linear interpolation gives, at half the time.
    mode = cv2.INTER_NEAREST_EXACT if factor % 2 else cv2.INTER_LINEAR
    return np.asarray(cv2.resize(image, size, interpolation=mode), np.uint8)


def _resize(image: NDArray[Any], longer_px: int) -> UInt8s:
    """Resize so that the longer side is `longer_px` and both are whole numbers of cells."""
    scale = longer_px / max(image.shape)
    # Optical flow needs a few cells in each direction, however narrow the image is.
    width, height = (
        max(16 * CELL_PX, CELL_PX * round(side * scale / CELL_PX)) for side in image.shape[::-1]
    )
    return np.asarray(cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA), np.uint8)


# Variance below which brightness says nothing, so that two blank surfaces look alike [grey^2].
_FLAT_VARIANCE = 9.0
_ALIKE = 0.5  # likeness from which on a cell is trusted
_RIM_PX = 2.0  # nearer to the rim of the second view, windows reach out of it
_MIN_TRUSTED = 20  # cells; fewer say nothing of the rest
_FITTED_CELLS = 400  # at most so many decide the common homography
_FAR_PX = 1e4
_MAX_GROWTH = 25.0  # of a cell's area; more is a torn mesh
_MAX_ERROR_PX = 3.0  # of the places that a rigid scene explains
_RIM_MEASURED_PX = 5.0  # what lies nearer to the rim, or beyond, is not measured but predicted
_BEND_CELLS = 5  # box over which flow starts off the places of a rigid scene
# More would let flow bend, image by image, until one thing looks like another.
_MAX_BEND_PX = 1.5
# Log odds that a cell in view is seen: alone, where it can be compared, by its likeness, by the
# log odds of likeness around it, and, where it cannot be compared, by how far the camera moved:
# the farther, the less is known of what hides it. Fitted to rendered rooms and to real sequences
# with true depth.
_SEEN, _SEEN_COMPARABLE, _SEEN_ALIKE, _SEEN_AROUND, _SEEN_ASIDE = 0.15, 0.4, 1.4, 0.5, -2.5
# Where a block of so many cells looks like nothing that a still camera saw, something else is.
_STILL_PX = 1.0
_BLOCK = np.ones((5, 5), np.uint8)
_AROUND_CELLS = 9  # box in which cells that can be compared speak for the others
_OF_ALL = 0.1  # weight of the whole view in that box
_LEAST_ODDS, _MOST_ODDS = 0.02, 0.9999
_LEAST_LIKENESS = -0.2  # less says no more
# Box sizes [cells] and weights by which trusted cells speak for their surroundings: the nearest
# decide, farther ones only where there are none.
_SURROUNDINGS = ((5, 1.0), (9, 1e-2), (31, 1e-5))


@dataclass(frozen=True)
class Alignment:
    """Where the first view's cells lie in the second. Arrays are (rows, columns)."""

    offsets: Float32s  # (rows, columns, 2), second minus first position [px]
    likeness: Float32s  # -1..1, of the two surroundings; 1: equal but for the light
    trusted: Bools  # in view, textured and alike
    comparable: Bools  # in view and textured in one of both
    structure: Structure | None = None  # motion and depth behind the offsets; None: unknown
    # What flow added to the structure's offsets [px], (rows, columns, 2), to start from next time.
    bend: Float32s | None = None

    @property
    def unlike(self) -> Bools:
        """What can be compared and does not look alike."""
        return self.comparable & (self.likeness < _ALIKE)

    @property
    def score(self) -> float:
        """Share of what can be compared that looks alike, 0..1."""
        return np.count_nonzero(self.trusted) / max(1, np.count_nonzero(self.comparable))


def no_offsets(view: View) -> Float32s:
    """Offsets of a camera that did not move. Shape (rows, columns, 2)."""
    return np.zeros_like(cell_centres(view.width, view.height))


def homography_offsets(view: View, homography: Float64s) -> Float32s:
    """Offsets [px] by a homography (3, 3) from a view to another. (rows, columns, 2)."""
    centres = cell_centres(view.width, view.height)
    x, y = centres[..., 0], centres[..., 1]
    u, v, w = (row[0] * x + row[1] * y + row[2] for row in homography)
    # What lies behind the camera is in no view; the middle of the image lies before it.
    middle = w[w.shape[0] // 2, w.shape[1] // 2]
    ahead = w * np.sign(middle) > 1e-3 * abs(middle)
    w = np.where(ahead, w, 1.0)
    places = np.stack([np.where(ahead, u / w, -_FAR_PX), np.where(ahead, v / w, -_FAR_PX)], -1)
    return (np.clip(places, -_FAR_PX, _FAR_PX) - centres).astype(np.float32)


def follow(first: View, second: View, before: Alignment | None) -> Alignment:
    """Continue the alignment of a view with the image just before the second.

    Args:
        first: The view whose cells are placed.
        second: The view that they are placed in.
        before: Alignment of the first view with the image before; None: the first view is that.
    """
    if before is None or before.structure is None or before.bend is None:
        return align(first, second, before.offsets if before else no_offsets(first))
    expected = before.structure.expected()
    return align(first, second, _rigid_offsets(first, second, expected) + before.bend, expected)


def align(
    first: View,
    second: View,
    offsets: Float32s,
    expected: Structure | None = None,
    passes: int = 1,
) -> Alignment:
    """Correct a guess of where the cells of one view lie in another.

    Cells that cannot be measured, and those that left the view, lie where motion and depth of the
    others put them.

    Args:
        first: The view whose cells are placed.
        second: The view that they are placed in.
        offsets: The guess [px]. Shape (rows, columns, 2).
        expected: Motion and depth behind the guess; None: unknown.
        passes: How often optical flow corrects it; once follows a camera, a guess from few
            matches takes three.
    """
    for _ in range(passes - 1):
        offsets = _continue(
            first, alignment_at(first, second, _follow_flow(first, second, offsets))
        )
    alignment = alignment_at(first, second, _follow_flow(first, second, offsets))
    # At the rim flow holds back what leaves the view, so that a prediction says what is measured.
    guess = cell_centres(*first.size) + (offsets if expected else alignment.offsets)
    inner = _inside(second, guess, _RIM_MEASURED_PX)
    measured = alignment.trusted & inner
    structure = _structure(first, second, alignment, expected, measured)
    if structure is None:
        return replace(alignment, offsets=_continue(first, alignment))
    rigid = _rigid_offsets(first, second, structure)
    bend = _bend(alignment.offsets - rigid, measured)
    return replace(alignment, offsets=rigid, structure=structure, bend=bend)


def _structure(
    first: View, second: View, alignment: Alignment, expected: Structure | None, measured: Bools
) -> Structure | None:
    """Motion and depth that explain the measured cells; None: nothing rigid does."""
    if np.count_nonzero(measured) < _MIN_TRUSTED:
        return None
    rays = cell_rays(*first.size)
    places = cell_centres(*first.size) + alignment.offsets
    cells = MeasuredCells(rays, places, first.information * measured, second.size)
    start = expected or first_structure(rays, roll(first, alignment))
    structure, error_px = fit_structure(start, cells)
    return structure if error_px < _MAX_ERROR_PX else None


def _rigid_offsets(first: View, second: View, structure: Structure) -> Float32s:
    places = structure.places(cell_rays(*first.size), second.size)
    return np.asarray(places - cell_centres(*first.size), np.float32)


def _bend(offsets: Float32s, measured: Bools) -> Float32s:
    """Means over measured cells close by, within narrow limits. (rows, columns, 2)."""
    mean = _mean_around(offsets, measured, ((_BEND_CELLS, 1.0),), least=0.1)
    return np.clip(mean, -_MAX_BEND_PX, _MAX_BEND_PX)


def _mean_around(
    offsets: Float32s, counts: Bools, boxes: Sequence[tuple[int, float]], least: float
) -> Float32s:
    """Means of offsets over the cells around each that count, in boxes with weights."""
    weight = counts.astype(np.float32)[..., None]
    layers = np.concatenate([offsets * weight, weight], axis=-1)
    near = np.asarray(
        sum(
            share * cv2.blur(layers, (size, size), borderType=cv2.BORDER_CONSTANT)
            for size, share in boxes
        )
    )
    return np.asarray(near[..., :2] / (near[..., 2:] + np.float32(least)), np.float32)


def alignment_at(first: View, second: View, offsets: Float32s) -> Alignment:
    """Say where two views look alike, given where the cells of the first lie in the second.

    Likeness is normalised cross-correlation, which exposure and most of the lighting leave alone.
    """
    warped = _warp(first, second, offsets, cv2.BORDER_REPLICATE).astype(np.float32)
    layers: Any = cv2.merge([warped, warped * warped, first.brightness * warped])
    mean, squares, products = cv2.split(around_cells(layers))
    variance = np.maximum(squares - mean * mean, 0.0)
    covariance = products - first.mean * mean
    flat = _FLAT_VARIANCE
    likeness = (covariance + flat) / np.sqrt((first.variance + flat) * (variance + flat))
    places = cell_centres(first.width, first.height) + offsets
    in_view = _inside(second, places, _RIM_PX)
    if first.beside_fixed is not None:
        in_view &= ~first.beside_fixed
    if second.beside_fixed is not None:
        in_view &= ~cells_at(second.beside_fixed, places)
    textured = first.variance > flat
    return Alignment(
        offsets,
        likeness,
        in_view & textured & (likeness > _ALIKE),
        in_view & (textured | (variance > flat)),
    )


def seen_cells(first: View, second: View, alignment: Alignment) -> Float32s:
    """Chance that the second view shows each cell of the first, 0..1. (rows, columns).

    Cells without texture, and those that look different, are as likely seen as what can be
    compared around them looks alike.
    """
    return _chances(first, second, alignment)[0]


def shares(first: View, second: View, alignment: Alignment) -> tuple[float, float]:
    """Share of the first view that the second sees, and the reverse, each 0..1."""
    chances, growth = _chances(first, second, alignment)
    ratio = first.width * first.height / (second.width * second.height)
    covered = float(np.mean(chances * np.clip(growth, 0.0, _MAX_GROWTH))) * ratio
    return float(np.mean(chances)) / first.open_share, min(1.0, covered / second.open_share)


def _chances(first: View, second: View, alignment: Alignment) -> tuple[Float32s, Float32s]:
    """Chance that each cell is seen, and its area in the second view. Each (rows, columns)."""
    places = cell_centres(*first.size) + alignment.offsets
    along_y, along_x = np.gradient(places, CELL_PX, axis=(0, 1))  # per pixel
    growth = along_x[..., 0] * along_y[..., 1] - along_x[..., 1] * along_y[..., 0]
    there = _inside(second, places)
    if first.fixed_cells is not None:
        there &= ~first.fixed_cells
    if second.fixed_cells is not None:
        there &= ~cells_at(second.fixed_cells, places)
    if alignment.structure:
        there &= growth > 0  # what turned away shows its back
    if float(np.abs(alignment.offsets).mean()) < _STILL_PX:
        blocks = cv2.morphologyEx(alignment.unlike.astype(np.uint8), cv2.MORPH_OPEN, _BLOCK)
        there &= blocks == 0
    layers = [alignment.trusted & there, alignment.comparable & there]
    box = _AROUND_CELLS, _AROUND_CELLS
    trusted, comparable = (
        cv2.blur(layer.astype(np.float32), box, borderType=cv2.BORDER_CONSTANT) for layer in layers
    )
    alike = (trusted + np.float32(_OF_ALL * alignment.score)) / (comparable + np.float32(_OF_ALL))
    alike = np.clip(alike, _LEAST_ODDS, _MOST_ODDS)
    compared = _SEEN_COMPARABLE + _SEEN_ALIKE * np.clip(alignment.likeness, _LEAST_LIKENESS, 1)
    odds = _SEEN + alignment.comparable * compared + _SEEN_AROUND * np.log(alike / (1 - alike))
    if alignment.structure:
        odds += (_SEEN_ASIDE * alignment.structure.baseline) * ~alignment.comparable
    return np.asarray(there / (1 + np.exp(-odds)), np.float32), growth


def roll(first: View, alignment: Alignment) -> float:
    """Rotation of the second view about its axis [rad], by the trusted cells."""
    if alignment.structure:
        return alignment.structure.roll_rad
    before = cell_centres(first.width, first.height)[alignment.trusted]
    after = before + alignment.offsets[alignment.trusted]
    p, q = before - before.mean(axis=0), after - after.mean(axis=0)
    cross = p[:, 0] * q[:, 1] - p[:, 1] * q[:, 0]
    return math.atan2(float(cross.sum()), float((p * q).sum()))


class _OpticalFlow(threading.local):
    """Dense inverse search (Kroeger et al., ECCV 2016); it keeps buffers, so one per thread."""

    def __init__(self) -> None:
        self.dense = cv2.DISOpticalFlow.create(cv2.DISOPTICAL_FLOW_PRESET_ULTRAFAST)
        self.dense.setFinestScale(1)  # half of work size, which is small already


_FLOW = _OpticalFlow()


def _warp(first: View, second: View, offsets: Float32s, outside: int) -> UInt8s:
    """The second view as the first camera would see it, with OpenCV's mode for what is outside.

    Transparent: there the first view stays.
    """
    moves = cv2.resize(offsets, first.size, interpolation=cv2.INTER_LINEAR)
    places = np.asarray(moves + pixel_grid(*first.size), np.float32)
    warped = first.open_grey.copy()
    cv2.remap(second.open_grey, places, None, cv2.INTER_LINEAR, warped, outside)  # type: ignore[call-overload]
    return warped


def _follow_flow(first: View, second: View, offsets: Float32s) -> Float32s:
    """Offsets corrected by the optical flow that is left after warping."""
    # Flow must not hold back what leaves the view, as the rim in its place would.
    warped = _warp(first, second, offsets, cv2.BORDER_TRANSPARENT)
    # None: no flow to start from.
    flow = _FLOW.dense.calc(first.open_grey, warped, None)  # type: ignore[call-overload]
    size = offsets.shape[1], offsets.shape[0]
    cells = cv2.resize(flow, size, interpolation=cv2.INTER_AREA)
    there = pixel_grid(*size) + cells / CELL_PX
    rim = cv2.BORDER_REPLICATE
    moved = cv2.remap(offsets, there, None, cv2.INTER_LINEAR, borderMode=rim)  # type: ignore[call-overload]
    return np.asarray(moved + cells, np.float32)


def _inside(view: View, places: Float32s, rim_px: float = -0.5) -> Bools:
    """Which places (..., 2) [px] lie in a view, at least `rim_px` from its outermost pixels."""
    x, y = places[..., 0], places[..., 1]
    low = np.float32(rim_px)
    right, bottom = np.float32(view.width - 1 - rim_px), np.float32(view.height - 1 - rim_px)
    return np.asarray((x >= low) & (x <= right) & (y >= low) & (y <= bottom))


def cells_at(cells: Bools, places: Float32s) -> Bools:
    """Values of cells (rows, columns) at places (..., 2) [px]; outside, of the nearest cell."""
    at = (places / np.float32(CELL_PX)).astype(np.intp)
    rows, columns = cells.shape
    return np.asarray(cells[at[..., 1].clip(0, rows - 1), at[..., 0].clip(0, columns - 1)])


def _continue(first: View, alignment: Alignment) -> Float32s:
    """Offsets in which untrusted cells follow the trusted ones around them."""
    trusted = alignment.trusted
    if int(trusted.sum()) < _MIN_TRUSTED:
        return alignment.offsets
    centres = cell_centres(first.width, first.height)
    step = max(1, int(trusted.sum()) // _FITTED_CELLS)
    before, moves = centres[trusted][::step], alignment.offsets[trusted][::step]
    homography = _fitted_homography(before, before + moves)
    trend = homography_offsets(first, homography)
    return trend + _mean_around(alignment.offsets - trend, trusted, _SURROUNDINGS, least=1e-9)


def _fitted_homography(before: Float32s, after: Float32s) -> Float64s:
    """Least-squares homography (3, 3) between points (N, 2): direct linear transform."""
    to_before, (x, y) = _normalise(before)
    to_after, (u, v) = _normalise(after)
    one, zero = np.ones_like(x), np.zeros_like(x)
    rows = np.concatenate(
        [
            np.stack([x, y, one, zero, zero, zero, -u * x, -u * y], axis=1),
            np.stack([zero, zero, zero, x, y, one, -v * x, -v * y], axis=1),
        ]
    )  # (2 N, 8)
    # A trace of damping: cells on one line leave the rest open.
    normal = rows.T @ rows + 1e-6 * len(rows) * np.eye(8)
    solution = np.linalg.solve(normal, rows.T @ np.concatenate([u, v]))
    homography = np.append(solution, 1.0).reshape(3, 3)
    return np.asarray(np.linalg.inv(to_after) @ homography @ to_before, np.float64)


def _normalise(points: Float32s) -> tuple[Float64s, Float64s]:
    """Transform (3, 3) to zero mean and unit spread, and the transformed points (2, N)."""
    mean, scale = points.mean(axis=0, dtype=np.float64), 1.0 / (float(points.std()) + 1e-9)
    transform = np.diag([scale, scale, 1.0])
    transform[:2, 2] = -scale * mean
    return transform, (points - mean).T * scale
