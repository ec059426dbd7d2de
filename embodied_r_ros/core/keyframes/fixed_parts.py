# SPDX-License-Identifier: Apache-2.0
"""What is fixed to the camera: a gripper, a hood, the robot's own legs, an overlay.

Such parts stay where they are in the image while the camera turns. Pairs of images of which most
has changed are looked at: cells that have not are candidates, and count where matched corners say
that the camera turned so far that even the sky would have moved there. A camera that stands still
gives no such pair, however much moves before it. Evidence is kept per cell: it takes several pairs
to call a cell fixed, and several to take that back.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError, ImageError
from embodied_r_ros.core.keyframes.alignment import around_cells, cell_centres
from embodied_r_ros.core.keyframes.relative_pose import possible_poses
from embodied_r_ros.core.keyframes.tracks import find_corners, follow, TrackedView
from embodied_r_ros.core.types.geometry import Intrinsics, NS_PER_S, places_of_pixels
from embodied_r_ros.core.types.images import decode_image, image_format, pack_mask
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.keyframes.alignment import View
    from embodied_r_ros.core.types.arrays import Bools, Float32s
    from embodied_r_ros.core.types.images import PackedMask, StampedImage

_PAUSE_NS = NS_PER_S // 10  # pairs are at least so far apart
_FLAT_VARIANCE = 9.0  # below, brightness says nothing of a cell [grey^2]
_STAYED, _CHANGED = 0.9, 0.6  # likeness of a cell in place that did and that did not stay
_MOVED_SHARE = 0.35  # of what can be compared outside has changed where the camera moved
_LEAST_SHARE = 0.015  # of the view: fewer cells that stay are chance
_MOST_SHARE = 0.6  # of the view: more is not the robot itself
_MIN_MATCHES = 10  # corners that agree on how the camera moved
_AGREEING = 0.5  # share of the corners outside that has to agree
_TOLERANCE = 0.003  # of the width: how far a corner may lie off
_TURNED_PX = (
    2.5  # of work size: what is far away moved so far, across its texture, where it counts
)
_DETAIL = 0.4  # information of a cell on its place, 0..1, from which on it counts
_QUIET_GREY, _LOUD_GREY = 5.0, 12.0  # mean change of the pixels of a cell that stays, and does not
_SUSPECT = 2.0  # pairs in which a cell stayed, from which on it is worth a closer look
_ENTERS, _MOST = 3.0, 6.0  # evidence from which on a cell is fixed, and at most
_LEAST_CELLS = 6  # in one piece
_EDGE_CELLS = 2  # whose surroundings hold the image's edge
_BOUNDED = 0.5  # share of the outline of flat parts that lies at fixed ones
_AROUND = np.ones((3, 3), np.uint8)
_WHITE, _MOST_MASKED = 127, 0.9  # grey level from which on a mask leaves out, and how much it may
_MASKED_SHARE = 0.3  # of a cell that a mask leaves out
_THIRD = 0.4  # of the image, from its edge
_ASSUMED_FOV_RAD = math.radians(70.0)
# Following corners is dear: there are so many looks at once, and one more in so long a time. A
# look that proves something takes less, one in vain most where nothing was proven before.
_LOOKS, _LOOK_NS = 8, NS_PER_S
_PROVEN, _DOUBTED, _IN_VAIN = 0.25, 1.0, 2.0


class FixedParts:
    """What is fixed to one camera: told by a mask, or found. Not for use from several threads."""

    def __init__(self, mask: str = '', *, is_sought: bool = True) -> None:
        """Take what is known.

        Args:
            mask: A PNG, white where the images show what is fixed; empty: there is none.
            is_sought: Whether to find it where there is no mask.

        Raises:
            ConfigError: The mask cannot be used.
        """
        self._name, self._mask = mask, read_mask(Path(mask).expanduser()) if mask else None
        self._is_sought = is_sought and not mask
        self.cells: Bools | None = None  # (rows, columns); None: nothing is known
        self.since_index: int | None = None  # of the image in which it was found; None: not found
        self._packed: PackedMask | None = None
        self._base: View | None = None  # image that the next ones are compared with
        self._base_ns = 0
        self._looks = float(_LOOKS)
        self._stays: Float32s = np.zeros((0, 0), np.float32)
        self._evidence, self._steady = self._stays, self._stays

    def restart(self) -> None:
        """Begin a new stream of the same camera, which keeps its parts."""
        self._base = None

    def packed(self) -> PackedMask | None:
        """The mask of the newest image; None: nothing is known."""
        if self._packed is None and self.cells is not None:
            self._packed = pack_mask(self.cells if self._mask is None else self._mask)
        return self._packed

    def text(self) -> str:
        """What there is, as people say it; empty: nothing is known."""
        if self.cells is None:
            return ''
        share = float((self.cells if self._mask is None else self._mask).mean())
        how = f'by {self._name}' if self._name else f'found at image {self.since_index}'
        return (
            f'fixed to the camera: {share:.0%} of the image, {_side(self.cells)} '
            f'({how}); it is left out'
        )

    def update(self, view: View, image: StampedImage) -> None:
        """Take the next image.

        Args:
            view: The image, prepared for comparison.
            image: The image.

        Raises:
            ConfigError: The mask has another size.
        """
        if self._mask is not None:
            self._see_size(view, image)
        elif self._is_sought and self._seek(view, image):
            self._packed = None
            if self.since_index is None:
                self.since_index = image.index

    def _see_size(self, view: View, image: StampedImage) -> None:
        assert self._mask is not None
        (height, width), (rows, columns) = image.image.shape[:2], view.mean.shape
        if self._mask.shape != (height, width):
            other = f'{self._mask.shape[1]}x{self._mask.shape[0]}'
            msg = f'mask {self._name} is {other}: expected {width}x{height}, as the images are'
            raise ConfigError(msg)
        if self.cells is None or self.cells.shape != (rows, columns):
            size = columns, rows
            shares = cv2.resize(self._mask.astype(np.float32), size, interpolation=cv2.INTER_AREA)
            self.cells = shares > _MASKED_SHARE

    def _seek(self, view: View, image: StampedImage) -> bool:
        """Look for fixed parts; whether others are known than before."""
        base, since_ns = self._base, image.stamp_ns - self._base_ns
        is_resized = self.cells is not None and self.cells.shape != view.mean.shape
        if is_resized:
            self.cells = None
        if base is None or base.size != view.size or since_ns < 0:
            self._base, self._base_ns = view, image.stamp_ns
            return is_resized
        if since_ns < _PAUSE_NS:
            return False
        change = _change(base, view)
        free = change.comparable if self.cells is None else change.comparable & ~self.cells
        moved = np.count_nonzero(change.changed & free)
        if moved < _MOVED_SHARE * max(1, np.count_nonzero(free)):
            return False
        self._looks = min(_LOOKS, self._looks + since_ns / _LOOK_NS)
        self._base, self._base_ns = view, image.stamp_ns
        height, width = image.image.shape[:2]
        camera = image.intrinsics or Intrinsics.from_fov(width, height, _ASSUMED_FOV_RAD)
        return self._weigh(base, view, camera, change)

    def _weigh(
        self,
        base: View,
        view: View,
        camera: Intrinsics,
        change: _Change,
    ) -> bool:
        """Add what a pair of images says in which the camera moved."""
        if self._evidence.shape != change.stayed.shape:
            self._stays = np.zeros(change.stayed.shape, np.float32)
            self._evidence, self._steady = self._stays.copy(), self._stays.copy()
        grey = _pixel_change(base, view, change.stayed)
        stayed, loud = change.stayed & (grey < _QUIET_GREY), grey > _LOUD_GREY
        for evidence in (self._stays, self._evidence):
            evidence[loud] -= 1
        self._steady[loud] -= 2
        self._stays[stayed] += 1
        self._look(base, view, camera, stayed, grey)
        for evidence in (self._stays, self._evidence, self._steady):
            np.clip(evidence, 0, _MOST, out=evidence)
        if self.cells is None and not (self._evidence >= _ENTERS).any():
            return False
        found = self._fixed()
        if _are_same(self.cells, found):
            return False
        self.cells = found
        return True

    def _look(
        self, base: View, view: View, camera: Intrinsics, stayed: Bools, grey: Float32s
    ) -> None:
        """Look closer at cells that stayed more than once, while there are looks left."""
        suspects = _pieces(stayed & (self._stays >= _SUSPECT) & (self._evidence < _MOST))
        if self._looks < 1 or not suspects.any():
            return
        # What is smooth may be the light that falls into the lens.
        suspects &= np.maximum(base.information[0], base.information[2]) > _DETAIL
        if np.count_nonzero(suspects) < _LEAST_SHARE * suspects.size:
            return
        turned = _turned_cells(base, view, camera, stayed)
        if turned is None or not (stayed & turned).any():
            self._looks -= _DOUBTED if self._evidence[suspects].any() else _IN_VAIN
            return
        self._looks -= _PROVEN
        self._evidence[stayed & turned] += 1
        self._steady[grey < _QUIET_GREY] += 1

    def _fixed(self) -> Bools | None:
        """Cells that are fixed by the evidence up to now; None: none are."""
        fixed = self._evidence >= _ENTERS
        if self.cells is not None:
            fixed |= self.cells & (self._evidence > 0)
        fixed = _pieces(fixed)
        if not fixed.any():
            return None
        steady = self._steady >= _ENTERS
        # Comparing looks at the cells around too, so that a part's rim seldom stays.
        fixed |= steady & (cv2.dilate(fixed.astype(np.uint8), _AROUND) > 0)
        fixed |= _enclosed(fixed, steady)
        return fixed if fixed.mean() <= _MOST_SHARE else None


@dataclass(frozen=True)
class _Change:
    """What became of the cells between two images, in place. Arrays are (rows, columns)."""

    comparable: Bools  # there is something to compare
    stayed: Bools
    changed: Bools


def _change(base: View, view: View) -> _Change:
    """Compare cells in place by normalised cross-correlation."""
    products = around_cells(base.brightness * view.brightness)
    flat = np.float32(_FLAT_VARIANCE)
    likeness = products - base.mean * view.mean
    likeness /= np.sqrt((base.variance + flat) * (view.variance + flat))
    comparable = (base.variance > 4 * flat) | (view.variance > 4 * flat)
    return _Change(
        comparable, comparable & (likeness > _STAYED), comparable & (likeness < _CHANGED)
    )


def _pixel_change(base: View, view: View, stayed: Bools) -> Float32s:
    """Mean change of the pixels of each cell [grey], but for the light. (rows, columns)."""
    light = np.median(view.mean[stayed] / np.maximum(base.mean[stayed], 1)) if stayed.any() else 1
    difference = np.abs(view.brightness - np.float32(light) * base.brightness)
    size = stayed.shape[1], stayed.shape[0]
    return np.asarray(cv2.resize(difference, size, interpolation=cv2.INTER_AREA), np.float32)


def _turned_cells(base: View, view: View, camera: Intrinsics, stayed: Bools) -> Bools | None:
    """Cells in which the camera's turn would have been seen, were they as far away as the sky.

    None: it is not known how the camera moved.
    """
    before, now = TrackedView(base), TrackedView(view)
    corners = find_corners(before, np.empty((0, 2), np.float32))
    rows, columns = stayed.shape
    at = (corners / np.divide(before.size, (columns, rows))).astype(int)
    corners = corners[~stayed[at[:, 1].clip(0, rows - 1), at[:, 0].clip(0, columns - 1)]]
    there, is_there = follow(before, now, corners, corners, is_thorough=True)
    if np.count_nonzero(is_there) < _MIN_MATCHES:
        return None
    lens = camera.scaled(*before.size)
    x1, x2 = (
        places_of_pixels(lens, np.asarray(pixels[is_there], np.float64))
        for pixels in (corners, there)
    )
    poses = possible_poses(x1, x2, _TOLERANCE * lens.width / lens.fx)
    if not poses or poses[0].support < max(_MIN_MATCHES, _AGREEING * len(x1)):
        return None
    lens = camera.scaled(*base.size)
    centres = np.asarray(cell_centres(*base.size).reshape(-1, 2), np.float64)
    places = places_of_pixels(lens, centres)
    by_x, between, by_y = base.information
    turned: Bools = np.maximum(by_x, by_y) > _DETAIL
    for pose in poses:
        rays = np.column_stack([places, np.ones(len(places))]) @ pose.rotation.T
        moved = (rays[:, :2] / np.maximum(rays[:, 2:], 1e-3) - places) * lens.fx
        x, y = moved.T.reshape(2, rows, columns)
        turned &= by_x * x * x + 2 * between * x * y + by_y * y * y > _TURNED_PX**2
    return turned


def read_mask(path: Path) -> Bools:
    """Read a mask, true where it is white. Shape (height, width).

    Raises:
        ConfigError: It is missing, no PNG, or leaves nothing of the image.
    """
    try:
        data = path.read_bytes()
        raw = decode_image(data) if image_format(data) == 'png' else None
    except (OSError, ImageError) as error:
        why = getattr(error, 'strerror', None) or error
        msg = f'mask {path} cannot be read: {why}'
        raise ConfigError(msg) from error
    if raw is None:
        msg = f'mask {path} is no PNG: expected one, white where the images show the robot itself'
        raise ConfigError(msg)
    mask = np.asarray(raw.max(axis=2) > _WHITE, bool)
    if mask.mean() > _MOST_MASKED:
        msg = f'mask {path} is white in {mask.mean():.0%}: white is left out, and little remains'
        raise ConfigError(msg)
    return mask


def _side(cells: Bools) -> str:
    """Where in the image cells lie, in words."""
    rows, columns = np.nonzero(cells)
    y, x = rows.mean() / cells.shape[0], columns.mean() / cells.shape[1]
    down = 'top' if y < _THIRD else 'bottom' if y > 1 - _THIRD else ''
    across = 'left' if x < _THIRD else 'right' if x > 1 - _THIRD else ''
    return ' '.join(word for word in (down, across) if word) or 'middle'


def _pieces(cells: Bools) -> Bools:
    """The cells that lie together in sufficient numbers, and not at the image's edge alone.

    Straightened images have dark lines there.
    """
    count, labels = cv2.connectedComponents(cells.astype(np.uint8))
    inner = labels[_EDGE_CELLS:-_EDGE_CELLS, _EDGE_CELLS:-_EDGE_CELLS]
    large = np.bincount(inner.ravel(), minlength=count) >= _LEAST_CELLS
    large[0] = False
    return np.asarray(large[labels])


def _enclosed(fixed: Bools, steady: Bools) -> Bools:
    """Steady cells without texture that fixed ones, and the image's edge, enclose."""
    flat = steady & ~fixed
    count, labels = cv2.connectedComponents(flat.astype(np.uint8), connectivity=4)
    inside = np.zeros_like(fixed)
    for label in range(1, count):
        piece = labels == label
        ring = (cv2.dilate(piece.astype(np.uint8), _AROUND) > 0) & ~piece
        if np.count_nonzero(ring & fixed) > _BOUNDED * np.count_nonzero(ring):
            inside |= piece
    return inside


def _are_same(first: Bools | None, second: Bools | None) -> bool:
    if first is None or second is None:
        return first is second
    return bool(np.array_equal(first, second))
