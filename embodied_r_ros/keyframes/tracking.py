# SPDX-License-Identifier: Apache-2.0
"""The camera, followed from image to image: where it is since the last keyframe."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.keyframes.bundle import (
    angle_of,
    refine_together,
    refined_pose,
    rotation_of,
    triangulated,
    turn_between,
    vector_of,
    ViewPose,
)
from embodied_r_ros.keyframes.tracks import find_corners, follow, prepare, WORK_PX
from embodied_r_ros.types.deltas import Motion, MotionSource, ScaleSource
from embodied_r_ros.types.geometry import BODY_FROM_OPTICAL, Intrinsics, rays_of_pixels, yaw_pitch_roll
from embodied_r_ros.keyframes.relative_pose import relative_pose
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.types.images import StampedImage
    from numpy.typing import NDArray

_SLOTS = 200
_WINDOW = 7
_TOLERANCE_PX = 0.8  # at work size
_LOST = 10  # tracks; with fewer, the camera is lost
_MIN_KNOWN = 8
_PARALLAX_RAD = math.radians(1.0)
_FEW = 0.45  # share of the tracks that survive, below which the guess is doubted


@dataclass
class _Anchor:
    pose: ViewPose
    places: NDArray[np.float64]  # (slots, 2)
    seen: NDArray[np.bool_]  # (slots,)
    is_keyframe: bool = False


class MotionTracker:
    def __init__(self) -> None:
        self.counts: Counter[str] = Counter({'lost': 0})
        self.debug = []
        self.reset()

    def reset(self) -> None:
        self._grey = None
        self._intrinsics = None
        self._start()
        self._reference = None
        self._segment = 0

    def _start(self) -> None:
        self._pixels = np.zeros((_SLOTS, 2), np.float32)
        self._places = np.zeros((_SLOTS, 2))
        self._alive = np.zeros(_SLOTS, bool)
        self._points = np.zeros((_SLOTS, 3))
        self._known = np.zeros(_SLOTS, bool)
        self._anchors: list[_Anchor] = []
        self._pose = ViewPose(np.eye(3), np.zeros(3))
        self._velocity = ViewPose(np.eye(3), np.zeros(3))  # from one image to the next
        self._dt = None
        self._has_map = False
        self._agreement = 1.0

    def update(self, image: StampedImage) -> None:
        if image.intrinsics is None:
            return
        grey = _work_image(image.image)
        if self._grey is None or self._grey.shape != grey.shape:
            self.reset()
            self._grey, self._stamp = grey, image.stamp_ns
            self._camera = image.intrinsics.scaled(grey.shape[1], grey.shape[0])
            self._tolerance = _TOLERANCE_PX / self._camera.fx
            self._seed()
            self._add_anchor()
            return
        dt = image.stamp_ns - self._stamp
        self._stamp = image.stamp_ns
        if not self._follow(grey, dt):
            self.counts['lost'] += 1
            self._segment += 1
            self._grey = grey
            self._start()
            self._seed()
            self._add_anchor()
            return
        self._grey = grey
        self._locate(dt)
        self._extend()

    # tracks
    def _follow(self, grey, dt) -> bool:
        slots = np.flatnonzero(self._alive)
        if len(slots) < _LOST:
            return False
        before = self._pixels[slots]
        ratio = 1.0 if self._dt is None or self._dt <= 0 else min(3.0, max(0.0, dt / self._dt))
        delta = ViewPose(rotation_of(ratio * vector_of(self._velocity.rotation)), ratio * self._velocity.translation)
        predicted = self._pose.then(delta)
        guesses = before.copy()
        known = self._known[slots]
        seen = predicted.points(self._points[slots])
        rays = np.column_stack([self._places[slots], np.ones(len(slots))]) @ delta.rotation.T
        seen = np.where(known[:, None] & (seen[:, 2:] > 1e-3), seen, rays)
        ahead = seen[:, 2] > 0.1
        guesses[ahead] = self._project(seen[ahead])
        there, ok = follow(self._grey, grey, before, guesses)
        self._predicted, self._delta = predicted, delta
        self._doubted = False
        if ok.sum() < max(2 * _LOST, _FEW * len(slots)):
            there2, ok2 = follow(self._grey, grey, before, self._coarse(grey, before))
            if ok2.sum() > ok.sum():
                there, ok = there2, ok2
                self._doubted = True
        self._survivors = (int(ok.sum()), len(slots))
        places = _places(self._camera, there)
        ok &= np.abs(places).max(axis=1) < 2.5
        self._alive[slots[~ok]] = False
        kept = slots[ok]
        self._before_places = self._places.copy()
        self._pixels[kept], self._places[kept] = there[ok], places[ok]
        return len(kept) >= _LOST

    def _project(self, rays):
        k = self._camera
        if k.distortion and not k.is_fisheye:
            p, _ = cv2.projectPoints(rays.reshape(-1,1,3), np.zeros(3), np.zeros(3), k.matrix(), np.array(k.distortion))
        elif k.is_fisheye:
            p, _ = cv2.fisheye.projectPoints(rays.reshape(-1,1,3), np.zeros(3), np.zeros(3), k.matrix(), np.array(k.distortion))
        else:
            p = np.stack([k.fx * rays[:, 0] / rays[:, 2] + k.cx, k.fy * rays[:, 1] / rays[:, 2] + k.cy], 1)
        p = np.asarray(p, np.float32).reshape(-1, 2)
        h, w = self._grey.shape
        return np.clip(p, (-50, -50), (w + 50, h + 50)).astype(np.float32)

    def _coarse(self, grey, before):
        from embodied_r_ros.keyframes.alignment import View, CELL_PX
        from embodied_r_ros.keyframes.overlap import two_view
        a = View(cv2.cvtColor(self._grey, cv2.COLOR_GRAY2BGR)); b = View(cv2.cvtColor(grey, cv2.COLOR_GRAY2BGR))
        tv = two_view(a, b)
        if tv.alignment is None:
            return before
        off = tv.alignment.offsets
        s = a.width / grey.shape[1]
        at = ((before * s) - (CELL_PX - 1) / 2) / CELL_PX
        mv = cv2.remap(off, at[:, None].astype(np.float32), None, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
        return before + mv.reshape(-1, 2) / s

    # pose
    def _locate(self, dt) -> None:
        alive = np.flatnonzero(self._alive)
        known = alive[self._known[alive]]
        how = 'turn'
        errors = None
        last = self._pose
        if self._has_map and len(known) >= _MIN_KNOWN:
            start = self._predicted
            pose, errors = refined_pose(start, self._points[known], self._places[known], self._tolerance)
            good = errors < 3 * self._tolerance
            if good.mean() < 0.6:
                found = self._pnp(known)
                if found is not None:
                    pose2, errors2 = found
                    if (errors2 < 3 * self._tolerance).sum() > good.sum():
                        pose, errors, good = pose2, errors2, errors2 < 3 * self._tolerance
            if good.sum() >= _MIN_KNOWN * 0.75 and good.mean() > 0.35:
                self._pose, how = pose, 'map'
                self._alive[known[errors > 6 * self._tolerance]] = False
                self._agreement = float(good.mean())
        if how == 'turn':
            turn, off = turn_between(self._before_places[alive], self._places[alive], self._delta.rotation, self._tolerance)
            if self._has_map:
                shift = turn @ self._delta.rotation.T @ self._delta.translation
                how = 'bridge'
                self.counts['bridged'] += 1
            else:
                shift = np.zeros(3)
            self._pose = last.then(ViewPose(turn, shift))
            self._agreement = float((off < 4 * self._tolerance).mean())
        self._velocity = self._pose.after(last)
        self._dt = dt
        if not self._has_map:
            self._bootstrap()
        else:
            self._grow()
        self.debug.append((how, len(alive), len(known), None if errors is None else float(np.median(errors) / self._tolerance), self._survivors, self._agreement))

    def _pnp(self, known):
        ok, r, t, _ = cv2.solvePnPRansac(
            self._points[known], self._places[known], np.eye(3), None, iterationsCount=60,
            reprojectionError=3 * self._tolerance, flags=cv2.SOLVEPNP_EPNP)
        if not ok:
            return None
        return refined_pose(ViewPose(rotation_of(r.ravel()), t.ravel()), self._points[known], self._places[known], self._tolerance)

    def _bootstrap(self) -> None:
        """Begin the map as soon as the tracks show depth."""
        best = None
        for anchor in self._anchors:
            both = np.flatnonzero(anchor.seen & self._alive)
            if len(both) < 15:
                continue
            a, b = anchor.places[both], self._places[both]
            turn, off = turn_between(a, b, self._pose.after(anchor.pose).rotation, self._tolerance)
            parallax = float(np.percentile(off, 75))
            if parallax > 3.0 * self._tolerance:
                best = anchor, both, a, b
                break
        if best is None:
            return
        anchor, both, a, b = best
        found = relative_pose(a, b, 2 * self._tolerance)
        if found is None or not found.translation.any() or found.support < 0.5 * len(both):
            return
        pose = anchor.pose.then(ViewPose(found.rotation, found.translation))
        points, angle = triangulated(anchor.pose, pose, a, b)
        good = angle > _PARALLAX_RAD / 2
        if good.sum() < 12:
            return
        depth = float(np.median(pose.points(points[good])[:, 2]))
        # The unit of the map is the distance of what is seen.
        scale = 1.0 / max(depth, 1e-6)
        c = anchor.pose.centre
        points = c + scale * (points - c)
        pose = anchor.pose.then(ViewPose(found.rotation, scale * found.translation))
        last = self._pose
        self._points[both[good]] = points[good]
        self._known[both[good]] = True
        self._pose = pose
        self._has_map = True
        # Views in between were taken to stand still.
        for other in self._anchors:
            if other is anchor: continue
            seen = np.flatnonzero(other.seen & self._known)
            if len(seen) >= _MIN_KNOWN:
                other.pose, _ = refined_pose(ViewPose(other.pose.rotation, other.pose.translation), self._points[seen], other.places[seen], self._tolerance)
        self._velocity = ViewPose(self._velocity.rotation, np.zeros(3))
        self._add_anchor()
        self._bundle()

    def _grow(self) -> None:
        """Place tracks that show enough parallax by now."""
        unknown = self._alive & ~self._known
        for anchor in self._anchors:  # oldest first
            slots = np.flatnonzero(unknown & anchor.seen)
            if not len(slots):
                continue
            points, angle = triangulated(anchor.pose, self._pose, anchor.places[slots], self._places[slots])
            off = 0
            for pose, places in ((anchor.pose, anchor.places[slots]), (self._pose, self._places[slots])):
                s = pose.points(points)
                off = np.maximum(off, np.linalg.norm(s[:, :2] / np.maximum(s[:, 2:], 1e-6) - places, axis=1))
            good = (angle > _PARALLAX_RAD) & (off < 2.5 * self._tolerance)
            self._points[slots[good]] = points[good]
            self._known[slots[good]] = True
            unknown[slots[good]] = False

    # anchors
    def _extend(self) -> None:
        newest = self._anchors[-1]
        both = newest.seen & self._alive
        moved = np.linalg.norm(newest.places[both] - self._places[both], axis=1) * self._camera.fx
        share = both.sum() / max(1, newest.seen.sum())
        if share < 0.7 or (len(moved) and np.median(moved) > 0.05 * WORK_PX):
            self._add_anchor()
            if self._has_map:
                self._bundle()

    def _add_anchor(self) -> None:
        if self._alive.sum() < 0.75 * _SLOTS:
            self._seed()
        self._anchors.append(_Anchor(self._pose, self._places.copy(), self._alive.copy()))
        if len(self._anchors) > _WINDOW:
            plain = [i for i, a in enumerate(self._anchors) if not a.is_keyframe]
            self._anchors.pop(plain[0] if plain else 0)

    def _seed(self) -> None:
        corners = find_corners(self._grey, self._pixels[self._alive])
        free = np.flatnonzero(~self._alive)[: len(corners)]
        corners = corners[: len(free)]
        if not len(corners):
            return
        places = _places(self._camera, corners)
        ok = np.abs(places).max(axis=1) < 2.5
        free, corners, places = free[ok], corners[ok], places[ok]
        self._pixels[free], self._places[free] = corners, places
        self._alive[free], self._known[free] = True, False
        for anchor in self._anchors:
            anchor.seen[free] = False

    def _bundle(self) -> None:
        anchors = self._anchors
        seen = np.stack([a.seen for a in anchors])
        used = np.flatnonzero(self._known & (seen.sum(axis=0) >= 2))
        if len(used) < 12 or len(anchors) < 3:
            return
        places = np.stack([a.places[used] for a in anchors])
        weights = seen[:, used].astype(float)
        poses, points, errors = refine_together(
            [a.pose for a in anchors], self._points[used], places, weights, self._tolerance, fixed=2)
        for a, p in zip(anchors, poses):
            a.pose = p
        self._points[used] = points
        off = (errors * weights).max(axis=0)
        depth = np.array([(p.points(points)[:, 2]) for p in poses])
        bad = (off > 5 * self._tolerance) | ((depth < 1e-2) & (weights > 0)).any(axis=0)
        self._known[used[bad]] = False
        self._alive[used[off > 8 * self._tolerance]] = False
        self._pose = anchors[-1].pose

    def mark_keyframe(self):
        """Motion since the last keyframe, and begin anew from here."""
        motion = self.motion()
        for anchor in self._anchors:
            anchor.is_keyframe = False
        if self._grey is not None:
            newest = self._anchors[-1]
            if newest.pose is not self._pose:
                self._add_anchor()
                if self._has_map: self._bundle()
            self._anchors[-1].is_keyframe = True
            self._reference = (self._segment, self._anchors[-1])
        return motion

    def motion(self):
        if self._reference is None or self._reference[0] != self._segment:
            return None
        since = self._pose.after(self._reference[1].pose)
        known = self._alive & self._known
        depth = np.median(np.linalg.norm(self._points[known] - self._pose.centre, axis=1)) if known.any() else 1.0
        turned = BODY_FROM_OPTICAL @ since.rotation.T
        yaw, pitch, roll = yaw_pitch_roll(turned @ BODY_FROM_OPTICAL.T)
        t = -turned @ since.translation
        n = np.linalg.norm(t)
        t = t / n if n > 0.01 * depth else np.zeros(3)
        return Motion(MotionSource.FOLLOWED, yaw, pitch, roll, tuple(float(v) for v in t), confidence=self._agreement)


def _work_image(image):
    h, w = image.shape[:2]
    s = min(1.0, WORK_PX / max(h, w))
    grey = cv2.cvtColor(image, cv2.COLOR_BGR2GRAY)
    if s < 1: grey = cv2.resize(grey, (round(w * s), round(h * s)), interpolation=cv2.INTER_AREA)
    return prepare(grey)


def _places(camera: Intrinsics, pixels):
    return -rays_of_pixels(camera, np.asarray(pixels, np.float64))[:, 1:]
