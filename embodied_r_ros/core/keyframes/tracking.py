# SPDX-License-Identifier: Apache-2.0
"""The camera, followed from image to image, so that its motion since the last keyframe is known.

Corners are followed by optical flow. What they show in several views becomes points of a small
map, against which each view is placed; a bundle over a few views keeps it straight. A map without
metres has a unit of its own, in which it tells motions until the camera is lost. Depth gives
metres. Where too little is seen, or nothing explains it, the
camera is lost: the motion is unknown, and a new map begins.
"""

from __future__ import annotations

from collections import Counter
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.bundle import (
    refined_pose,
    sampled_pose,
    turn_between,
    ViewPose,
)
from embodied_r_ros.core.keyframes.small_matrices import median
from embodied_r_ros.core.keyframes.track_map import Anchor, MIN_KNOWN, SLOTS, TrackMap
from embodied_r_ros.core.keyframes.tracks import coarse_guesses, find_corners, follow, TrackedView
from embodied_r_ros.core.types.deltas import Motion, MotionSource, ScaleSource
from embodied_r_ros.core.types.geometry import (
    as_position,
    BODY_FROM_OPTICAL,
    Intrinsics,
    pixels_of_points,
    places_of_pixels,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import depth_at
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.keyframes.alignment import View
    from embodied_r_ros.core.keyframes.tracks import Drift
    from embodied_r_ros.core.types.arrays import Float32s, Float64s, Indices
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.images import StampedImage

_TOLERANCE_PX = 0.8
_MIN_TRACKS = 10  # with fewer, the camera is lost
_FULL = 120  # tracks; with fewer, corners are sought in each view that is kept
_DOUBTED = 0.45  # share of tracks that survive, below which the guess is taken to be wrong
_FEW_KNOWN = 50  # points; with fewer, more are placed in every image
_NEW_VIEW = 0.05  # of the width: a view is kept when tracks moved so far
_WIDEST = 2.5  # places farther from the axis, in focal lengths, are of no use
_AGREES, _GONE = 3.0, 6.0  # tolerances within which a track agrees, and from which it is dropped
_PLACED = 0.35  # share of the points that has to agree on a pose
_DOUBTFUL = 0.6  # with a smaller share, another pose is sought
_FIXED = 0.2  # share of the tracks at what is fixed to the camera: the map is wrong
_TURNED = 0.6  # share of the tracks that has to agree on a rotation
_MAX_PREDICTED = 3.0  # times the last step that a step may be predicted to be
_NEAREST = 1e-3  # of the farthest point: what is nearer may lie behind the camera
_FAR = 0.01  # of the distance of what is seen: a shorter way has no direction
_ASSUMED_FOV_RAD = math.radians(70.0)
_ASSUMED = 0.5  # factor on the confidence without stated intrinsics


class MotionTracker:
    """Follows one camera. Not for use from several threads."""

    # Set with each image, and with each map.
    _now: TrackedView  # the newest image
    _map: TrackMap
    _camera: Intrinsics  # of the newest image, at work size
    _stamp_ns: int  # of the newest image
    _step_ns: int  # from the image before
    _agreements: list[float]  # shares of evidence since the last keyframe, 0..1

    def __init__(self) -> None:
        # lost: how often; placed, turned, stepped: images by how their pose was told.
        self.counts: Counter[str] = Counter(
            dict.fromkeys(('lost', 'placed', 'turned', 'stepped'), 0)
        )
        self.reset()

    def reset(self) -> None:
        """Forget the stream; the counts stay."""
        self._before: TrackedView | None = None  # the image before the next one
        self._is_lost = False
        self._reference_pose: Pose | None = None
        self._camera = Intrinsics.from_fov(4, 3, _ASSUMED_FOV_RAD)  # until there is an image
        self._stamp_ns = 0
        self._agreements: list[float] = []  # share of the tracks that agree, by image

    def update(self, image: StampedImage, view: View, drift: Drift | None = None) -> None:
        """Follow the camera to the next image.

        Args:
            image: The image, with what is known of its camera and depth.
            view: The same image, prepared for comparison.
            drift: How the view moved since the last image; None: unknown.
        """
        before = self._before
        self._before = self._now = TrackedView(view)
        stated = _usable(image.intrinsics)
        height, width = image.image.shape[:2]
        camera = stated or Intrinsics.from_fov(width, height, _ASSUMED_FOV_RAD)
        camera, self._is_stated = camera.scaled(*self._now.size), stated is not None
        if before is None or camera != self._camera or self._shows_fixed():
            self._camera = camera
            self._begin(image)
            return
        try:
            is_known = self._advance(image, before, drift)
        except (cv2.error, np.linalg.LinAlgError):  # of places or points that mean nothing
            is_known = False
        if not is_known:
            self.counts['lost'] += not self._is_lost
            self._begin(image)
        self._is_lost = not is_known

    def _advance(self, image: StampedImage, before: TrackedView, drift: Drift | None) -> bool:
        """Follow the camera by one image; False: it is lost."""
        track_map = self._map
        since_ns, self._stamp_ns = image.stamp_ns - self._stamp_ns, image.stamp_ns
        previous = Anchor(track_map.pose, track_map.places.copy(), track_map.is_alive.copy())
        step = self._predicted_step(since_ns)
        if not self._follow(before, step, drift) or not self._locate(previous, step):
            return False
        self._step, self._step_ns = track_map.pose.after(previous.pose), since_ns
        is_new = track_map.is_new_view(_NEW_VIEW * self._camera.width / self._camera.fx)
        if not track_map.has_points:
            track_map.begin(previous)
        elif is_new or track_map.known_count() < _FEW_KNOWN:
            track_map.grow(previous)
        if is_new:
            self._keep_view(image)
        return bool(np.isfinite(track_map.pose.translation).all())

    def _shows_fixed(self) -> bool:
        """Whether much of the map is of what turned out to be fixed to the camera."""
        own = self._now.is_fixed(self._pixels[self._map.is_alive])
        return bool(len(own)) and float(own.mean()) > _FIXED

    def mark_keyframe(self, image: StampedImage) -> Motion | None:
        """Tell the motion since the last keyframe, and count from the newest image on.

        Args:
            image: The newest image, as it was given to `update`.

        Returns:
            The motion. None: the camera was lost in between, or this is the first keyframe.
        """
        if self._before is None:
            return None
        try:
            self._keep_view(image)
            motion = self._motion(image)
        except (cv2.error, np.linalg.LinAlgError):
            self._begin(image)
            motion = None
        self._map.reference = self._map.anchors[-1]
        self._reference_pose = image.pose
        self._agreements = []
        return motion

    def _begin(self, image: StampedImage) -> None:
        """Begin a new map in the newest image."""
        self._map = TrackMap(_TOLERANCE_PX / self._camera.fx)
        self._pixels = np.zeros((SLOTS, 2), np.float32)
        self._stamp_ns, self._step_ns = image.stamp_ns, 0
        self._step = ViewPose(np.eye(3), np.zeros(3))  # from the view before to the newest
        self._agreements = []
        self._keep_view(image)

    def _keep_view(self, image: StampedImage) -> None:
        depth = self._depth_of(image)
        self._map.measure(depth(self._pixels))
        if self._map.is_alive.sum() < _FULL:
            self._find_tracks(depth)
        self._map.keep_view()

    def _find_tracks(self, depth: Callable[[Float32s], Float64s]) -> None:
        corners = find_corners(self._now, self._pixels[self._map.is_alive])
        places = self._places(corners)
        is_usable = np.abs(places).max(axis=1, initial=0.0) < _WIDEST
        corners, places = corners[is_usable], places[is_usable]
        slots = self._map.add(places, depth(corners))
        self._pixels[slots] = corners[: len(slots)]

    def _depth_of(self, image: StampedImage) -> Callable[[Float32s], Float64s]:
        """Depth [m] at pixels (N, 2) of the work size, 0: unknown; a function of them."""
        if image.depth is None:
            return lambda pixels: np.zeros(len(pixels))
        values, size = image.depth, (self._camera.width, self._camera.height)
        return lambda pixels: depth_at(values, pixels, size)

    def _predicted_step(self, since_ns: int) -> ViewPose:
        """The next step, if the camera moves on as it did."""
        ratio = since_ns / self._step_ns if self._step_ns > 0 else 1.0
        return self._step.times(min(_MAX_PREDICTED, max(0.0, ratio)))

    def _follow(self, before: TrackedView, step: ViewPose, drift: Drift | None) -> bool:
        """Find the tracks in the newest image; False: hardly any are there."""
        slots = np.flatnonzero(self._map.is_alive)
        if len(slots) < _MIN_TRACKS:
            return False
        pixels = self._pixels[slots]
        guesses = drift.guesses(before, pixels) if drift else self._guesses(slots, step)
        there, is_there = follow(before, self._now, pixels, guesses)
        if is_there.sum() < max(2 * _MIN_TRACKS, _DOUBTED * len(slots)):
            guesses = coarse_guesses(before, self._now, pixels)
            there, is_there = follow(before, self._now, pixels, guesses, is_thorough=True)
        places = self._places(there)
        is_there &= np.abs(places).max(axis=1, initial=0.0) < _WIDEST
        self._map.drop(slots[~is_there])
        slots = slots[is_there]
        self._pixels[slots], self._map.places[slots] = there[is_there], places[is_there]
        return len(slots) >= _MIN_TRACKS

    def _guesses(self, slots: Indices, step: ViewPose) -> Float32s:
        """Where the newest image may show tracks [px]. Shape (N, 2)."""
        rays = np.column_stack([self._map.places[slots], np.ones(len(slots))])
        turned = rays @ step.rotation.T
        points = self._map.pose.then(step).points(self._map.points[slots])
        is_known = self._map.is_known[slots] & (points[:, 2] > _NEAREST * np.abs(points).max())
        rays = np.where(is_known[:, None], points, turned)
        guesses = pixels_of_points(self._camera, rays)
        ahead = (rays[:, 2] > 0) & np.isfinite(guesses).all(axis=1)
        size = np.array(self._now.size, np.float32)
        return np.where(
            ahead[:, None], np.clip(guesses, -0.2 * size, 1.2 * size), self._pixels[slots]
        ).astype(np.float32)

    def _places(self, pixels: Float32s) -> Float64s:
        return places_of_pixels(self._camera, np.asarray(pixels, np.float64))

    def _locate(self, previous: Anchor, step: ViewPose) -> bool:
        """Place the newest view; False: nothing explains where it shows the tracks."""
        slots = np.flatnonzero(self._map.is_alive)
        if self._place_in_map(slots[self._map.is_known[slots]], step):
            return True
        first, second = previous.places[slots], self._map.places[slots]
        turn, off = turn_between(first, second, step.rotation, self._map.tolerance)
        share = float((off < _AGREES * self._map.tolerance).mean())
        if share < _TURNED:
            support = self._map.take_step(previous, step)
            if support is not None:
                self._agree('stepped', min(1.0, support / len(slots)))
            return support is not None
        # A turn too fast for the map to follow hardly changes the way.
        self._map.pose = previous.pose.then(
            ViewPose(turn, turn @ step.rotation.T @ step.translation)
        )
        self._agree('turned', share)
        return True

    def _place_in_map(self, slots: Indices, step: ViewPose) -> bool:
        """Place the newest view by known points; False: too few agree."""
        if len(slots) < MIN_KNOWN:
            return False
        tolerance = self._map.tolerance
        points, places = self._map.points[slots], self._map.places[slots]
        pose, off = refined_pose(self._map.pose.then(step), points, places, tolerance)
        if np.mean(off < _AGREES * tolerance) < _DOUBTFUL:
            start = sampled_pose(points, places, _AGREES * tolerance)
            other = refined_pose(start, points, places, tolerance) if start else (pose, off)
            pose, off = min((pose, off), other, key=lambda fit: median(fit[1]))
        agreeing = off < _AGREES * tolerance
        if agreeing.sum() < MIN_KNOWN or agreeing.mean() < _PLACED:
            return False
        self._map.pose = pose
        self._map.drop(slots[off > _GONE * tolerance])
        self._agree('placed', float(agreeing.mean()))
        return True

    def _agree(self, how: str, share: float) -> None:
        self.counts[how] += 1
        self._agreements.append(share)

    def _motion(self, image: StampedImage) -> Motion | None:
        """Motion from the reference to the newest view; None: there is no reference."""
        if self._map.reference is None:
            return None
        since = self._map.pose.after(self._map.reference.pose)
        turned = BODY_FROM_OPTICAL @ since.rotation.T  # the newest view's axes, seen earlier
        way = -turned @ since.translation
        length = float(np.linalg.norm(way))
        is_far = length > _FAR * self._map.distance()
        scale = ScaleSource.DEPTH
        if not self._map.is_metric:
            metres = self._odometry_length(image)
            way = way * (metres / length if metres else 1.0) if is_far else np.zeros(3)
            scale = ScaleSource.ODOMETRY if metres else ScaleSource.RELATIVE
            scale = scale if is_far else ScaleSource.UNKNOWN
        factor = 1.0 if self._is_stated else _ASSUMED
        return Motion(
            MotionSource.FOLLOWED,
            *yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T),
            as_position(way + 0.0),
            is_metric=scale in {ScaleSource.DEPTH, ScaleSource.ODOMETRY},
            confidence=factor * (float(np.mean(self._agreements)) if self._agreements else 1.0),
            scale=scale,
        )

    def _odometry_length(self, image: StampedImage) -> float | None:
        """Length of the way by poses of the camera [m]; None: they do not tell."""
        first, second = self._reference_pose, image.pose
        if not first or not second or first.frame_id != second.frame_id:
            return None
        return math.dist(first.position, second.position)


def _usable(intrinsics: Intrinsics | None) -> Intrinsics | None:
    """The intrinsics, if a camera can have them."""
    if intrinsics and all(math.isfinite(f) and f > 0 for f in (intrinsics.fx, intrinsics.fy)):
        return intrinsics
    return None
