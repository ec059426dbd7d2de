# SPDX-License-Identifier: Apache-2.0
"""Tracks of corners over a few views, and the points of the map that they show.

Each track has a slot, so that what views show is an array of (views, slots). Coordinates are those
of `bundle`: places without distortion in units of the focal length, poses that bring points of the
map into the optical axes of a view.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.keyframes.bundle import (
    FIXED,
    length_of_step,
    offsets,
    rays,
    refine_together,
    refined_pose,
    Sightings,
    triangulate,
    triangulate_between,
    turn_between,
    ViewPose,
)
from embodied_r_ros.core.keyframes.relative_pose import relative_pose
from embodied_r_ros.core.keyframes.small_matrices import median
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.core.keyframes.relative_pose import RelativePose
    from embodied_r_ros.core.types.arrays import Bools, Float64s, Indices

SLOTS = 160
MIN_KNOWN = 8  # points; fewer do not place a view
_WINDOW = 5  # views that are kept
_KEPT_SHARE = 0.6  # of the tracks of a view; where fewer are left, another view is kept
_MIN_TRACKS = 12  # fewer begin no map
_PARALLAX_RAD = math.radians(1.0)  # between two rays that place a point
_FIRST_PARALLAX_RAD = math.radians(0.5)  # the same for the first points
_CLEAR = 3.0  # tolerances by which a rotation has to fail before a translation is sought
_FITS, _FAILS = 2.5, 5.0  # tolerances within which a point fits, and from which it does not
_MIN_SUPPORT_SHARE = 0.25  # of the tracks have to agree on a translation
_STEP_TOLERANCE = 1.25  # of the map's, between two views alone
# Of the tracks that a turn leaves, a step has to explain this share: where a turn explains hardly
# any, and where it explains most, so that something that moves by itself may be the rest.
_STEP_SHARE, _BEGIN_SHARE = 0.2, 0.5
# Points that are refined at a time: matrices stay so small that no library multiplies in threads.
_MAX_BUNDLED = 90
_MIN_MEASURED = 12  # depths that give the map its scale


@dataclass
class Anchor:
    """A view that is kept, with what it shows."""

    pose: ViewPose
    places: Float64s  # (SLOTS, 2)
    is_seen: Bools  # (SLOTS,)


class TrackMap:
    """Tracks, points and recent views. The map begins when the tracks show depth."""

    def __init__(self, tolerance: float) -> None:
        """Begin without tracks.

        Args:
            tolerance: How far a corner may be seen from where it belongs, in units of the focal
                length.
        """
        self.tolerance = tolerance
        self.places = np.zeros((SLOTS, 2))
        self.is_alive = np.zeros(SLOTS, bool)
        self.points = np.zeros((SLOTS, 3))
        self.is_known = np.zeros(SLOTS, bool)  # whether `points` holds something
        self.anchors: list[Anchor] = []
        self.reference: Anchor | None = None  # kept as long as it matters
        self.pose = ViewPose(np.eye(3), np.zeros(3))  # of the newest view
        self.has_points = False
        self.is_metric = False
        # How far away is what is seen: the unit of a map without metres, at its beginning.
        self._usual_distance = 1.0

    def add(self, places: Float64s, depth_m: Float64s) -> Indices:
        """Begin tracks in the newest view, as far as there are slots.

        Args:
            places: Where the view shows them. Shape (N, 2).
            depth_m: Along the optical axis [m], 0: unknown. Shape (N,).

        Returns:
            The slots of the first of them. Shape (M,), M <= N.
        """
        slots = np.flatnonzero(~self.is_alive)[: len(places)]
        places, depth_m = places[: len(slots)], depth_m[: len(slots)]
        self.places[slots], self.is_alive[slots] = places, True
        for anchor in self._views():
            anchor.is_seen[slots] = False
        has_depth = depth_m > 0
        self.is_metric |= not self.has_points and int(has_depth.sum()) >= _MIN_MEASURED
        self.is_known[slots] = has_depth & self.is_metric
        self.has_points |= self.is_metric
        rays = np.column_stack([places, np.ones(len(slots))]) * depth_m[:, None]
        self.points[slots] = (rays - self.pose.translation) @ self.pose.rotation
        return slots

    def keep_view(self) -> None:
        """Keep the newest view, and refine the map with it."""
        anchor = Anchor(self.pose, self.places.copy(), self.is_alive.copy())
        self.anchors = [*self.anchors, anchor][-_WINDOW:]
        self._refine()

    def is_new_view(self, moved: float) -> bool:
        """Whether the newest view shows something else than the last one that was kept.

        Args:
            moved: How far tracks may have moved, in units of the focal length.
        """
        newest = self.anchors[-1]
        both = newest.is_seen & self.is_alive
        if not both.any() or both.sum() < _KEPT_SHARE * newest.is_seen.sum():
            return True
        x, y = (newest.places[both] - self.places[both]).T
        return median(np.hypot(x, y)) > moved

    def drop(self, slots: Indices) -> None:
        """End tracks."""
        self.is_alive[slots] = False

    def begin(self, previous: Anchor) -> bool:
        """Begin the map where the tracks show depth by now; False: they do not.

        Args:
            previous: The view before the newest one.
        """
        for anchor in [*self._views(), previous]:
            both = np.flatnonzero(anchor.is_seen & self.is_alive)
            if len(both) < _MIN_TRACKS:
                continue
            first, second = anchor.places[both], self.places[both]
            guess = self.pose.after(anchor.pose).rotation
            _, off = turn_between(first, second, guess, self.tolerance)
            if np.percentile(off, 75) < _CLEAR * self.tolerance:
                continue
            step = self._translated(first, second, _BEGIN_SHARE)
            if step is not None:
                return self._begin_with(anchor, both, step)
        return False

    def take_step(self, previous: Anchor, expected: ViewPose) -> float | None:
        """Place the newest view by the view before it alone.

        Args:
            previous: The view before the newest one.
            expected: The step between both that was predicted, which gives the length where no
                points of the map do.

        Returns:
            How many tracks agree. None: the camera may have turned alone, or nothing explains it.
        """
        slots = np.flatnonzero(previous.is_seen & self.is_alive)
        step = self._translated(previous.places[slots], self.places[slots], _STEP_SHARE)
        if step is None:
            return None
        if not self.has_points:
            return step.support if self._begin_with(previous, slots, step) else None
        known = slots[self.is_known[slots]]
        points = previous.pose.points(self.points[known])
        length = length_of_step(step, points, self.places[known], self.tolerance)
        if length is None and len(known) >= MIN_KNOWN:
            length = float(np.linalg.norm(expected.translation)) or None
        return step.support if self._step_from(previous, slots, step, length) else None

    def _translated(
        self, first: Float64s, second: Float64s, least_share: float
    ) -> RelativePose | None:
        """How the camera moved while tracks (N, 2) did; None: it may have turned alone."""
        step = relative_pose(first, second, _STEP_TOLERANCE * self.tolerance, least_share)
        if step is None or not step.translation.any():
            return None
        least = max(MIN_KNOWN, _MIN_SUPPORT_SHARE * len(first))
        return step if step.support >= least else None

    def _step_from(
        self, anchor: Anchor, slots: Indices, step: RelativePose, length: float | None = None
    ) -> bool:
        """Place the newest view by a step from another one, and the points that both show.

        Without a length, what is seen is taken to be as far away as before. False: no points fit.
        """
        pose = anchor.pose.then(step)
        points, angle, off = triangulate_between(
            anchor.pose, anchor.places[slots], pose, self.places[slots]
        )
        fits = (angle > _FIRST_PARALLAX_RAD) & (off < 2 * _FITS * self.tolerance).all(axis=0)
        if fits.sum() < MIN_KNOWN:
            return False
        start = anchor.pose.centre
        away = median(np.linalg.norm(points[fits] - pose.centre, axis=1))
        scale = length or self._usual_distance / max(1e-6, away)
        fresh = slots[fits & ~self.is_known[slots]]
        self.points[fresh] = start + scale * (points[fits & ~self.is_known[slots]] - start)
        self.is_known[fresh] = True
        self.pose = anchor.pose.then(ViewPose(step.rotation, scale * step.translation))
        return True

    def _begin_with(self, anchor: Anchor, slots: Indices, step: RelativePose) -> bool:
        if not self._step_from(anchor, slots, step):
            return False
        self.has_points = True
        # Views in between were taken to be in one place.
        for other in self._views():
            shared = np.flatnonzero(other.is_seen & self.is_known)
            if other is not anchor and len(shared) >= MIN_KNOWN:
                other.pose, _ = refined_pose(
                    other.pose, self.points[shared], other.places[shared], self.tolerance
                )
        return True

    def grow(self, previous: Anchor) -> None:
        """Place the points of tracks that show enough parallax by now."""
        open_slots = np.flatnonzero(self.is_alive & ~self.is_known)
        views = [*self._views(), previous]
        is_seen = np.stack([view.is_seen[open_slots] for view in views])
        open_slots, is_seen = open_slots[is_seen.any(axis=0)], is_seen[:, is_seen.any(axis=0)]
        first = is_seen.argmax(axis=0)  # the oldest view of each
        centres = np.stack([view.pose.centre for view in views])[first]
        rotations = np.stack([view.pose.rotation for view in views])[first]
        places = np.stack([view.places[open_slots] for view in views])
        before, now = places[first, np.arange(len(first))], self.places[open_slots]
        turned = (rotations.transpose(0, 2, 1) @ rays(before)[..., None])[..., 0]
        points, angle = triangulate(
            (centres, turned), (self.pose.centre, rays(now) @ self.pose.rotation)
        )
        local = (rotations @ (points - centres)[..., None])[..., 0]
        off = local[:, :2] / np.maximum(local[:, 2:], 1e-6) - before
        fits = (
            (angle > _PARALLAX_RAD)
            & (np.hypot(off[:, 0], off[:, 1]) < _FITS * self.tolerance)
            & (offsets(self.pose, points, now) < _FITS * self.tolerance)
        )
        self.points[open_slots[fits]] = points[fits]
        self.is_known[open_slots[fits]] = True

    def known_count(self) -> int:
        """How many tracks show a known point."""
        return int((self.is_alive & self.is_known).sum())

    def measure(self, depth_m: Float64s) -> None:
        """Give the map the scale of measured depth.

        Args:
            depth_m: Of each slot in the newest view [m], 0: unknown. Shape (SLOTS,).
        """
        usable = self.is_alive & self.is_known & (depth_m > 0)
        if usable.sum() < _MIN_MEASURED:
            return
        along = self.pose.points(self.points[usable])[:, 2]
        ratio = median(depth_m[usable] / np.maximum(along, 1e-6))
        if not 1e-4 < ratio < 1e4:
            return
        self.points *= ratio
        self.pose = ViewPose(self.pose.rotation, ratio * self.pose.translation)
        for view in self._views():
            view.pose = ViewPose(view.pose.rotation, ratio * view.pose.translation)
        self._usual_distance *= ratio
        self.is_metric = True

    def distance(self) -> float:
        """Median distance of the points that the newest view shows, or the last one known."""
        usable = self.is_alive & self.is_known
        if usable.sum() < MIN_KNOWN:
            return self._usual_distance
        return median(np.linalg.norm(self.points[usable] - self.pose.centre, axis=1))

    def _views(self) -> list[Anchor]:
        """The views that are kept, oldest first."""
        if self.reference is None or any(view is self.reference for view in self.anchors):
            return self.anchors
        return [self.reference, *self.anchors]

    def _refine(self) -> None:
        """Bundle over the views that are kept; the two oldest hold place and scale."""
        views = self._views()
        is_seen = np.stack([view.is_seen for view in views])
        counts = is_seen.sum(axis=0) * self.is_known
        slots = np.flatnonzero(counts >= 2)
        if len(views) <= FIXED or len(slots) < _MIN_TRACKS:
            return
        slots = slots[np.argsort(-counts[slots], kind='stable')[:_MAX_BUNDLED]]
        sightings = Sightings(np.stack([view.places[slots] for view in views]), is_seen[:, slots])
        poses, points, off = refine_together(
            [view.pose for view in views], self.points[slots], sightings, self.tolerance
        )
        for view, pose in zip(views, poses, strict=True):
            view.pose = pose
        self.points[slots] = points
        worst = off.max(axis=0)
        self.is_known[slots[worst > _FAILS * self.tolerance]] = False
        self.is_alive[slots[worst > 2 * _FAILS * self.tolerance]] = False
        self.pose = views[-1].pose
        self._usual_distance = self.distance()
