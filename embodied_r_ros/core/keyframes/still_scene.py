# SPDX-License-Identifier: Apache-2.0
"""What happens before a camera that stands still.

Three things count: something moves along, what moved has come to rest or is gone, and a place
looks different and stays so. Brightness alone counts for nothing, and what moves on the spot, such
as leaves and screens, hardly does: each cell has a threshold above its own noise. All is computed
on cells of 4x4 pixels at work size.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import CELL_PX
from embodied_r_ros.core.keyframes.small_matrices import median
from embodied_r_ros.core.types.geometry import NS_PER_S
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.keyframes.alignment import View
    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s

_STEP_S = 0.2  # between the images whose difference is motion
_REST_S = 0.4  # a cell without motion for so long is at rest
# What changes by so much all the time [grey levels], such as a screen, is never told.
_RESTLESS = 12.0
_CALM_S = 0.5  # so is a view
_NEW_S = 1.5  # nothing is told before, while the noise is learned
_WAIT_NS = 300_000_000  # nor is anything compared before: a camera that moves costs no time
_FLOOR = 10.0  # difference that counts where there is no noise [grey levels]
_NOISE_FACTOR = 3.0  # thresholds, as a multiple of a cell's mean difference
_MEAN_S, _NOISE_S = 3.0, 6.0  # how fast the mean and the noise of a cell are learned
_NOISE_CLIP = 20.0  # what passes by counts for so much [grey levels]
_GROUND_S, _KNOWN_S = 30.0, 2.0  # how fast the ground follows; what is at rest for so long
# The camera is never known to stand stiller than this, and than a share of how far it moved.
_SLACK_CELLS, _SLACK_SHARE = 0.03, 0.5
_STILL_CELLS = 0.4  # a camera whose view moved by more does not stand still
_EDGE = 6.0  # slope that shows motion of the camera [grey levels per cell]
# Difference [grey levels], and the share of cells on edges that differ so where the camera moved.
_UNLIKE, _MOST_UNLIKE = 12.0, 0.5
_DARK, _BRIGHT, _LEAST_LIT = 5.0, 245.0, 0.2  # what is not clipped, and its least share
_FLAT, _MOST_GAIN = 4.0, 4.0  # variance without a gain; changes of light
_NEAR = np.ones((3, 3), np.uint8)
_SOFT_CELLS = 9  # what changes more softly is light or a shadow
_WAY_CELLS, _WAY_SIZES = 5.0, 0.5  # of what moves along: way, and way as a share of its own size
# Where all was calm for long, what begins to move is told after a part of that way.
_LONG_CALM_S, _ONSET_S, _ONSET_WAY = 3.0, 1.5, 0.5
_MARKS, _STRAIGHT = 3, 0.85  # way as a share of the path
_REACH_CELLS = 3.0  # from one image to the next
_TOKENS, _TOKEN_S = 2.0, 2.0  # keyframes at once; time after which there may be one more
_SPACING_S = 0.7  # between two keyframes for this reason


@dataclass
class _Mover:
    """A patch of motion that is followed, with places (x, y) of its centre [cells]."""

    start: Float64s  # at its birth, or at the last keyframe
    centre: Float64s
    seen_ns: int
    mark: Float64s  # where it was a moment ago
    mark_ns: int
    marks: int = 0  # since `start`
    path: Float64s = field(default_factory=lambda: np.zeros(2))  # from mark to mark

    def move(self, centre: Float64s, stamp_ns: int) -> None:
        """Move to where it is now."""
        self.centre, self.seen_ns = centre, stamp_ns
        if (stamp_ns - self.mark_ns) / NS_PER_S >= _STEP_S:
            self.path = self.path + np.abs(centre - self.mark)
            self.mark, self.mark_ns, self.marks = centre, stamp_ns, self.marks + 1

    def goes(self, least_way: float) -> bool:
        """Whether it went so long a way [cells] along x or y, hardly ever back."""
        way = np.abs(self.mark - self.start)
        is_far = (way >= least_way) & (way >= _STRAIGHT * self.path)
        return self.marks >= _MARKS and bool(is_far.any())

    def restart(self) -> None:
        """Count the way from here."""
        self.start, self.mark, self.marks = self.centre, self.centre, 0
        self.path = np.zeros(2)


class StillScene:
    """Follows what changes while the camera stands still. Not for use from several threads."""

    def __init__(self) -> None:
        self._tokens = _TOKENS
        self._last_ns: int | None = None  # of the last keyframe for this reason
        self.restart()

    def restart(self) -> None:
        """Forget what was seen: the camera moved."""
        self._past: deque[tuple[int, Float32s]] = deque()
        nothing: Float32s = np.zeros((0, 0), np.float32)
        self._first = nothing  # cells of the image from which on the camera stands still
        self._ground = nothing  # cells of the scene at rest
        self._moved = 0.0  # of the camera since then [cells]
        self._mean = self._noise = nothing  # of each cell: its mean, and how far it swings
        self._rest_s = self._slack = nothing  # time since it moved; contrast around it
        self._movers: list[_Mover] = []
        self._moved_ns = 0  # when something moved last
        self._onset_ns = 0  # when something moved after a long calm
        self.is_same = False  # nothing happens in the newest image
        self._is_open = False  # the last keyframe shows something that moves along

    def mark_keyframe(self, stamp_ns: int, *, by_change: bool) -> None:
        """Note that the newest image is a keyframe, for such a change or for another reason."""
        for mover in self._movers:
            mover.restart()
        if by_change:
            self._tokens -= 1
            self._last_ns = stamp_ns

    def update(self, stamp_ns: int, view: View, least_share: float) -> bool:
        """Take the next image; whether something happened before a camera that stands still.

        Args:
            stamp_ns: When the image was taken.
            view: The image.
            least_share: Share of the view that has to change, 0..1; 1: nothing ever happens.
        """
        is_begun = self._ground.size > 0
        if least_share >= 1 or (is_begun and stamp_ns - self._since_ns < _WAIT_NS):
            return False
        cells = _cells(view)
        aligned = self._aligned(cells)
        if aligned is None:
            self.restart()
            self._begin(stamp_ns, cells)
            return False
        elapsed_s = (stamp_ns - self._past[-1][0]) / NS_PER_S
        if elapsed_s <= 0:
            return False
        self._tokens = min(_TOKENS, self._tokens + elapsed_s / _TOKEN_S)
        least = np.maximum(_FLOOR, _NOISE_FACTOR * self._noise)
        least += self._slack * (_SLACK_CELLS + _SLACK_SHARE * self._moved)
        moving = self._moving(stamp_ns, aligned, least)
        self._learn_noise(aligned, moving, elapsed_s)
        least_cells = max(2.0, least_share * cells.size)
        goes = self._follow(stamp_ns, moving, least_cells)
        settled = self._settled(aligned, least, least_cells)
        calm = (stamp_ns - self._moved_ns) / NS_PER_S >= _CALM_S
        happened = goes or settled or (calm and self._is_open)
        self.is_same = not happened
        if not happened or not self._may(stamp_ns):
            self._learn(aligned, elapsed_s)
            return False
        if settled:
            self._ground = np.where(self._rest_s > 0, aligned, self._ground)
            self._mean = np.where(self._rest_s > 0, aligned, self._mean)
        self._is_open = goes and not settled
        return True

    def _moving(self, stamp_ns: int, cells: Float32s, least: Float32s) -> Bools:
        """Which cells changed since a moment ago."""
        difference = _sharp(cells - self._before(stamp_ns))
        self._past.append((stamp_ns, cells))
        return np.asarray((difference > least) & (self._noise < _RESTLESS))

    def _learn_noise(self, cells: Float32s, moving: Bools, elapsed_s: float) -> None:
        self._mean += (cells - self._mean) * np.float32(min(1.0, elapsed_s / _MEAN_S))
        swing = np.minimum(np.abs(cells - self._mean), _NOISE_CLIP)
        self._noise += (swing - self._noise) * np.float32(min(1.0, elapsed_s / _NOISE_S))
        near = cv2.dilate(moving.astype(np.uint8), _NEAR) > 0
        self._rest_s = np.where(near, np.float32(0), self._rest_s + np.float32(elapsed_s))

    def _aligned(self, cells: Float32s) -> Float32s | None:
        """Cells as in the light and from the place of the first ones; None: the camera moved."""
        first = self._first
        if first.shape != cells.shape:
            return None
        self._moved, off = _moved(_in_light_of(cells, first) - first, self._slopes)
        if self._moved > _STILL_CELLS:
            return None
        unlike = np.abs(off[self._edges]) > _UNLIKE
        if unlike.size and np.count_nonzero(unlike) > _MOST_UNLIKE * unlike.size:
            return None
        return first + off

    def _begin(self, stamp_ns: int, cells: Float32s) -> None:
        self._first, self._ground = cells, cells.copy()
        self._mean, self._noise = cells.copy(), np.zeros_like(cells)
        self._rest_s = np.zeros_like(cells)
        self._past.append((stamp_ns, cells))
        self._slack = _contrast(cells)
        self._slopes = _slopes(cells)
        self._edges = (np.abs(self._slopes[:2]) > _EDGE).any(axis=0)
        self._since_ns = stamp_ns

    def _before(self, stamp_ns: int) -> Float32s:
        """The newest image that is old enough to show motion, else the oldest."""
        while len(self._past) > 1 and (stamp_ns - self._past[1][0]) / NS_PER_S >= _STEP_S:
            self._past.popleft()
        return self._past[0][1]

    def _may(self, stamp_ns: int) -> bool:
        since = np.inf if self._last_ns is None else (stamp_ns - self._last_ns) / NS_PER_S
        is_new = (stamp_ns - self._since_ns) / NS_PER_S < _NEW_S
        return self._tokens >= 1 and since >= _SPACING_S and not is_new

    def _follow(self, stamp_ns: int, moving: Bools, least_cells: float) -> bool:
        """Follow the patches of motion; whether one of them moves along."""
        count, _, stats, centres = cv2.connectedComponentsWithStats(moving.astype(np.uint8))
        if count > 1 and (stamp_ns - self._moved_ns) / NS_PER_S >= _LONG_CALM_S:
            self._onset_ns = stamp_ns
        is_onset = (stamp_ns - self._onset_ns) / NS_PER_S < _ONSET_S
        least_way = _WAY_CELLS * (_ONSET_WAY if is_onset else 1.0)
        goes = False
        movers: list[_Mover] = []
        rest = self._movers
        for index in range(1, count):
            if stats[index, cv2.CC_STAT_AREA] < least_cells:
                continue
            self._moved_ns = stamp_ns
            centre = centres[index]
            sides = stats[index, cv2.CC_STAT_WIDTH], stats[index, cv2.CC_STAT_HEIGHT]
            reach = max(_REACH_CELLS, max(sides) / 2)
            nearest = min(
                rest, key=lambda mover: float(np.abs(mover.centre - centre).max()), default=None
            )
            if nearest and np.abs(nearest.centre - centre).max() < reach:
                rest = [mover for mover in rest if mover is not nearest]
                nearest.move(centre, stamp_ns)
                way = least_way if is_onset else max(least_way, _WAY_SIZES * min(sides))
                goes |= nearest.goes(way)
                movers.append(nearest)
            else:
                movers.append(_Mover(centre, centre, stamp_ns, centre, stamp_ns))
        young_ns = stamp_ns - round(_REST_S * NS_PER_S)
        self._movers = movers + [mover for mover in rest if mover.seen_ns >= young_ns]
        return goes

    def _settled(self, cells: Float32s, least: Float32s, least_cells: float) -> bool:
        """Whether enough is at rest and looks different from before."""
        unlike = (_sharp(cells - self._ground) > least) & (self._rest_s >= _REST_S)
        unlike &= self._noise < _RESTLESS
        count, _, stats, _ = cv2.connectedComponentsWithStats(unlike.astype(np.uint8))
        return count > 1 and int(stats[1:, cv2.CC_STAT_AREA].max()) >= least_cells

    def _learn(self, cells: Float32s, elapsed_s: float) -> None:
        """Let the ground follow: slowly, and soon where it is at rest and nothing was told."""
        rate = np.where(self._rest_s >= _KNOWN_S, elapsed_s / _KNOWN_S, elapsed_s / _GROUND_S)
        rate = np.where(self._rest_s > 0, np.minimum(rate, 1.0), 0.0).astype(np.float32)
        self._ground += (cells - self._ground) * rate


def _cells(view: View) -> Float32s:
    size = view.width // CELL_PX, view.height // CELL_PX
    return np.asarray(cv2.resize(view.brightness, size, interpolation=cv2.INTER_AREA), np.float32)


def _contrast(cells: Float32s) -> Float32s:
    kernel = np.ones((3, 3), np.uint8)
    return np.asarray(cv2.dilate(cells, kernel) - cv2.erode(cells, kernel), np.float32)


def _in_light_of(cells: Float32s, ground: Float32s) -> Float32s:
    """Cells with the gain and offset that most of them need to look like the ground."""
    lit = (cells > _DARK) & (cells < _BRIGHT)
    x, y = cells[lit], ground[lit]
    if x.size < _LEAST_LIT * cells.size:
        return cells
    gain, offset = 1.0, 0.0
    for _ in range(3):
        off = np.abs(gain * x + offset - y)
        near = off <= max(3.0, 1.5 * median(off))
        a, b = x[near], y[near]
        mean_a, mean_b = float(a.mean()), float(b.mean())
        spread = float(((a - mean_a) ** 2).mean())
        gain = float(((a - mean_a) * (b - mean_b)).mean()) / spread if spread > _FLAT else 1.0
        gain = min(_MOST_GAIN, max(1 / _MOST_GAIN, gain))
        offset = mean_b - gain * mean_a
    return np.asarray(gain * cells + offset, np.float32)


def _sharp(change: Float32s) -> Float32s:
    """How much changed beside what changed around it, and at all."""
    rest = change - cv2.blur(change, (_SOFT_CELLS, _SOFT_CELLS))
    return np.asarray(np.minimum(np.abs(change), np.abs(rest)), np.float32)


def _slopes(cells: Float32s) -> Float32s:
    """How each cell changes with a shift along x, along y [cells], with zoom and with roll.

    The unit of zoom and roll is what shifts the rim by a cell. Shape (4, rows, columns).
    """
    across, down = (
        np.asarray(cv2.Sobel(cells, cv2.CV_32F, *axis, scale=1 / 8), np.float32)
        for axis in ((1, 0), (0, 1))
    )
    height, width = cells.shape
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    x, y = (x - (width - 1) / 2) / (width / 2), (y - (height - 1) / 2) / (width / 2)
    return np.stack([across, down, across * x + down * y, down * x - across * y])


def _moved(off: Float32s, slopes: Float32s) -> tuple[float, Float32s]:
    """How far the camera's motion shifted most cells [cells], and what it does not explain."""
    rest = off
    motion: Float64s = np.zeros(len(slopes))
    for _ in range(2):
        far = np.abs(rest)
        near = far <= max(3.0, 2 * median(far))
        known = slopes[:, near].astype(np.float64)
        normal = known @ known.T + np.eye(len(slopes))
        motion = np.asarray(np.linalg.solve(normal, known @ off[near]), np.float64)
        rest = off - np.tensordot(motion.astype(np.float32), slopes, 1)
    return float(np.abs(motion).max()), np.asarray(rest, np.float32)
