# SPDX-License-Identifier: Apache-2.0
"""The way of a camera alone, from the features of its keyframes.

A keyframe is placed by points that earlier ones have shown, else by the one before it. Where
neither tells how far the camera moved, a new part of the way begins, with a unit of its own. Parts
are joined where the camera sees again what it saw: by many points, whose distances also agree on
one ratio of the two units. A wrong join is worse than none.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.keyframes.bundle import (
    agreed_pose,
    FITS,
    length_of_step,
    MIN_SHARE,
    offsets,
    refine_together,
    Sightings,
    triangulate_between,
    ViewPose,
)
from embodied_r_ros.core.keyframes.relative_pose import relative_pose
from embodied_r_ros.core.keyframes.small_matrices import vector_of
from embodied_r_ros.core.perception.egomotion import Features, match_features
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    places_of_pixels,
    Pose,
    rotation_from_ypr,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Float64s, Indices
    from embodied_r_ros.core.types.deltas import Motion
    from embodied_r_ros.core.types.geometry import Intrinsics

_TOLERANCE = 0.00225  # of the image's width: how far a point may be seen from where it belongs
_FAILS = 4.0  # tolerances from which a point does not fit
_NEIGHBOURS = 4  # newest keyframes by which the next one is placed
_BUNDLED, _MOST_BUNDLED = 8, 400  # newest keyframes that are refined together, and their points
_PARALLAX_RAD = math.radians(1.0)  # between two rays that place a point
_MIN_PLACED = 15  # points that place a keyframe
_MIN_LENGTH = 8  # points that tell the length of a step whose direction is known
_MIN_JOINED, _MIN_RATIOS = 30, 12  # the same of a join, and distances that give its ratio
_RATIO_SPREAD = 0.15  # of those, as a share
_MIN_TWO_VIEW, _TWO_VIEW_SHARE = 20.0, 0.6  # matches that agree on the step from one keyframe
_TRIED_FIRST, _TRIED_EVERY = 8, 5  # keyframes of a part that look for a join, then every so many
_KEPT, _KEPT_FEATURES = 300, 400  # older keyframes that are recognised, and features of each


@dataclass
class _Shot:
    """A keyframe that was placed."""

    id: int
    part: int
    pose: ViewPose  # in the part
    features: Features
    places: Float64s  # of the features, in units of the focal length. (N, 2)
    points: Indices  # numbers of the points that they show; -1: not known. (N,)

    def thinned(self) -> _Shot:
        """The shot with those features alone that show a known point."""
        known = np.flatnonzero(self.points >= 0)[:_KEPT_FEATURES]
        kept = Features(self.features.points[known], self.features.descriptors[known])
        return replace(self, features=kept, places=self.places[known], points=self.points[known])


class KeyframeWay:
    """Places keyframes one after the other. Not for use from several threads."""

    def __init__(self) -> None:
        self._shots: list[_Shot] = []  # newest last; older ones are thinned
        self._poses: dict[int, tuple[int, ViewPose]] = {}  # of all, by id: part and pose
        # In the part of the keyframes that show them.
        self._points: Float64s = np.zeros((0, 3))
        self._part_of = np.zeros(0, np.intp)  # of each point
        self._part = self._begun = 0  # the part of the newest, and how many there ever were
        self._tolerance = 0.0
        self._ratios: deque[float] = deque(maxlen=5)  # own unit by that of motions, newest last
        self._matches: dict[int, Indices] = {}  # with the newest, by id of the other
        self.joins = 0

    def add(
        self, keyframe_id: int, features: Features, intrinsics: Intrinsics, motion: Motion
    ) -> None:
        """Place the next keyframe.

        Args:
            keyframe_id: Its id.
            features: Of its image.
            intrinsics: Of its camera.
            motion: Since the keyframe before, where something told it.
        """
        self._tolerance = _TOLERANCE * intrinsics.width / intrinsics.fx
        self._matches.clear()
        places = places_of_pixels(intrinsics, features.points)
        none = np.full(len(places), -1, np.intp)
        shot = _Shot(keyframe_id, self._part, _START, features, places, none)
        if not self._place(shot, motion):
            self._begun += 1
            self._part = shot.part = self._begun
            self._ratios.clear()
        self._shots.append(shot)
        self._grow(shot)
        self._refine()
        self._join(shot)
        for each in self._shots[-_BUNDLED:]:
            self._poses[each.id] = each.part, each.pose
        self._forget()

    def poses(self, frame_id: str, usual_m: float) -> dict[int, Pose]:
        """Poses of the camera link by id of the keyframe: of the longest part of the way.

        Args:
            frame_id: Of the poses; its origin is the first keyframe of the part.
            usual_m: How far away what keyframes show is in these poses, as a median.
        """
        parts = Counter(part for part, _ in self._poses.values())
        if not parts:
            return {}
        part, _ = max(parts.items(), key=lambda entry: (entry[1], -entry[0]))
        own = {number: pose for number, (p, pose) in self._poses.items() if p == part}
        first = own[min(own)]
        factor = usual_m / self._usual_distance(part)
        return {number: _link(pose.after(first), factor, frame_id) for number, pose in own.items()}

    @property
    def parts(self) -> int:
        """How many unconnected parts there are."""
        return len({part for part, _ in self._poses.values()})

    def _usual_distance(self, part: int) -> float:
        away = [
            float(np.median(np.linalg.norm(self._points[numbers] - shot.pose.centre, axis=1)))
            for shot in self._shots
            if shot.part == part and (numbers := shot.points[shot.points >= 0]).size
        ]
        return float(np.median(away)) if away else 1.0

    def _neighbours(self, part: int) -> list[_Shot]:
        return [shot for shot in self._shots[-_NEIGHBOURS:] if shot.part == part]

    def _place(self, shot: _Shot, motion: Motion) -> bool:
        """Place a keyframe in the part of the one before it; False: nothing tells where it is."""
        if not self._shots:
            return False
        before, told = self._shots[-1], _step_of(motion)
        if told is None or not told.translation.any():
            self._ratios.clear()
        is_free = not self._has_unit(shot.part)
        if self._place_by_points(shot, self._neighbours(shot.part), _MIN_PLACED) is not None:
            is_measured = True
        else:
            pose, is_measured = self._stepped(before, shot, told)
            if pose is None:
                return False
            shot.pose = pose
        own = shot.pose.after(before.pose)
        turned = ViewPose(own.rotation, np.zeros(3))
        if told is None or not _agree(turned, told):
            self._ratios.clear()
        elif (
            (is_measured or is_free)
            and _agree(own, told)
            and own.translation.any()
            and told.translation.any()
        ):
            length, theirs = (float(np.linalg.norm(e.translation)) for e in (own, told))
            self._ratios.append(length / theirs)
        return True

    def _place_by_points(
        self, shot: _Shot, others: Sequence[_Shot], least: int
    ) -> dict[int, int] | None:
        """Place a keyframe by known points of others; None: too few agree.

        Returns:
            Numbers of the points that agree, by the feature that shows them.
        """
        numbers: dict[int, int] = {}  # of points, by feature
        for other in reversed(others):
            for theirs, ours in self._matched(other, shot).tolist():
                if other.points[theirs] >= 0:
                    numbers.setdefault(ours, int(other.points[theirs]))
        if len(numbers) < least:
            return None
        chosen, points = list(numbers), self._points[list(numbers.values())]
        agreed = agreed_pose(points, shot.places[chosen], self._tolerance, least)
        if agreed is None:
            return None
        shot.pose, fits = agreed
        agreeing = {chosen[i]: numbers[chosen[i]] for i in np.flatnonzero(fits)}
        shot.points[list(agreeing)] = list(agreeing.values())
        return agreeing

    def _stepped(
        self, before: _Shot, shot: _Shot, told: ViewPose | None
    ) -> tuple[ViewPose | None, bool]:
        """Where a keyframe is by the one before alone, and whether points tell how far off it is.

        None: how far it is off is not known.
        """
        pairs = self._matched(before, shot)
        first, second = before.places[pairs[:, 0]], shot.places[pairs[:, 1]]
        step = None
        if len(pairs) >= _MIN_TWO_VIEW:
            step = relative_pose(first, second, self._tolerance)
        if step is None or step.support < max(_MIN_TWO_VIEW, _TWO_VIEW_SHARE * len(pairs)):
            ratio = self._ratio_of_motions(shot.part)
            if told is None or (told.translation.any() and ratio is None):
                return None, False
            as_told = ViewPose(told.rotation, (ratio or 0.0) * told.translation)
            return before.pose.then(as_told), False
        turned = ViewPose(step.rotation, np.zeros(3))
        if not step.translation.any():
            return before.pose.then(turned), False
        length = self._length(before, pairs, shot, step)
        is_measured = length is not None
        if length is None:
            ratio = self._ratio_of_motions(shot.part)
            if told is not None and told.translation.any() and ratio and _agree(turned, told):
                length = ratio * float(np.linalg.norm(told.translation))
            elif not self._has_unit(shot.part):
                length = 1.0
            else:
                return None, False
        return before.pose.then(ViewPose(step.rotation, length * step.translation)), is_measured

    def _has_unit(self, part: int) -> bool:
        """Whether lengths of a part are in a unit already."""
        if (self._part_of == part).any():
            return True
        own = [pose.centre for p, pose in self._poses.values() if p == part]
        return len(own) > 1 and bool(np.ptp(own, axis=0).max() > 0)

    def _ratio_of_motions(self, part: int) -> float | None:
        """How long a unit of motions is in that of a part; None: not known."""
        if self._ratios:
            return float(np.median(self._ratios))
        return None if self._has_unit(part) else 1.0

    def _length(self, before: _Shot, pairs: Indices, shot: _Shot, step: ViewPose) -> float | None:
        known = pairs[before.points[pairs[:, 0]] >= 0]
        if not len(known):
            return None
        points = before.pose.points(self._points[before.points[known[:, 0]]])
        places = shot.places[known[:, 1]]
        length = length_of_step(step, points, places, self._tolerance)
        if length is None:
            return None
        off = offsets(ViewPose(step.rotation, length * step.translation), points, places)
        fits = off < FITS * self._tolerance
        return length if fits.sum() >= _MIN_LENGTH and fits.mean() >= MIN_SHARE else None

    def _matched(self, other: _Shot, shot: _Shot) -> Indices:
        if other.id not in self._matches:
            self._matches[other.id] = match_features(other.features, shot.features)
        return self._matches[other.id]

    def _grow(self, shot: _Shot) -> None:
        """Place points that the newest keyframe and earlier ones show, with enough parallax."""
        limit = FITS * self._tolerance
        for other in reversed(self._neighbours(shot.part)[:-1]):
            pairs = self._matched(other, shot)
            pairs = pairs[shot.points[pairs[:, 1]] < 0]
            theirs, ours = pairs.T
            known = other.points[theirs] >= 0
            points = self._points[other.points[theirs[known]]]
            fits = offsets(shot.pose, points, shot.places[ours[known]]) < limit
            shot.points[ours[known][fits]] = other.points[theirs[known][fits]]
            theirs, ours = theirs[~known], ours[~known]
            if not len(theirs):
                continue
            points, angle, off = triangulate_between(
                other.pose, other.places[theirs], shot.pose, shot.places[ours]
            )
            good = (angle > _PARALLAX_RAD) & (off < limit).all(axis=0)
            fresh = len(self._points) + np.arange(int(good.sum()))
            self._points = np.concatenate([self._points, points[good]])
            self._part_of = np.concatenate([self._part_of, np.full(len(fresh), shot.part)])
            other.points[theirs[good]] = shot.points[ours[good]] = fresh

    def _refine(self) -> None:
        """Bundle over the newest keyframes of the part; the oldest of them stays."""
        shots = [shot for shot in self._shots[-_BUNDLED:] if shot.part == self._shots[-1].part]
        counts = Counter(n for shot in shots for n in shot.points[shot.points >= 0].tolist())
        chosen = [n for n, count in counts.most_common(_MOST_BUNDLED) if count > 1]
        if len(shots) < 3 or len(chosen) < _MIN_PLACED:
            return
        at = {number: index for index, number in enumerate(chosen)}
        places = np.zeros((len(shots), len(chosen), 2))
        is_seen = np.zeros(places.shape[:2], bool)
        features = np.full(places.shape[:2], -1)
        for row, shot in enumerate(shots):
            for feature in np.flatnonzero(shot.points >= 0).tolist():
                column = at.get(int(shot.points[feature]))
                if column is not None:
                    places[row, column], is_seen[row, column] = shot.places[feature], True
                    features[row, column] = feature
        sightings = Sightings(places, is_seen)
        poses = [shot.pose for shot in shots]
        poses, points, off = refine_together(
            poses, self._points[chosen], sightings, self._tolerance
        )
        if _is_rescaled([shot.pose for shot in shots], poses):
            return  # too few points hold the unit
        self._points[chosen] = points
        for row, (shot, pose) in enumerate(zip(shots, poses, strict=True)):
            shot.pose = pose
            wrong = features[row, is_seen[row] & (off[row] > _FAILS * self._tolerance)]
            shot.points[wrong] = -1

    def _join(self, shot: _Shot) -> None:
        """Join the part of the newest keyframe with one that showed the same."""
        own = [part for part, _ in self._poses.values()].count(shot.part)
        others = [other for other in self._shots[:-1] if other.part != shot.part]
        if not others or (own >= _TRIED_FIRST and own % _TRIED_EVERY):
            return
        shown = [other.points[self._matched(other, shot)[:, 0]] >= 0 for other in others]
        best = int(np.argmax([each.sum() for each in shown]))
        around = others[max(0, best - 2) : best + 3]
        near = [other for other in around if other.part == others[best].part]
        there = replace(shot, points=np.full(len(shot.places), -1, np.intp))
        agreeing = self._place_by_points(there, near, _MIN_JOINED)
        if agreeing is None:
            return
        ratio = self._ratio(shot, there, agreeing)
        if ratio is not None:
            self._move(shot, there, ratio)

    def _ratio(self, shot: _Shot, there: _Shot, agreeing: dict[int, int]) -> float | None:
        """How long a unit of a part is in that of the other one; None: distances disagree."""
        if not self._has_unit(shot.part):
            return 1.0
        both = [feature for feature in agreeing if shot.points[feature] >= 0]
        if len(both) < _MIN_RATIOS:
            return None
        far = there.pose.points(self._points[[agreeing[each] for each in both]])
        near = shot.pose.points(self._points[shot.points[both]])
        ratios = np.linalg.norm(far, axis=1) / np.maximum(np.linalg.norm(near, axis=1), 1e-9)
        middle = float(np.median(ratios))
        spread = float(np.median(np.abs(ratios / middle - 1)))
        return middle if spread <= _RATIO_SPREAD else None

    def _move(self, shot: _Shot, there: _Shot, ratio: float) -> None:
        """Move the part of a keyframe to where it is in another part."""
        part, before = shot.part, shot.pose
        target = int(self._part_of[there.points[there.points >= 0]][0])

        def moved(pose: ViewPose) -> ViewPose:
            step = pose.after(before)
            return there.pose.then(ViewPose(step.rotation, ratio * step.translation))

        own = self._part_of == part
        local = ratio * before.points(self._points[own])
        self._points[own] = (local - there.pose.translation) @ there.pose.rotation
        self._part_of[own] = target
        for each in self._shots:
            if each.part == part:
                each.pose, each.part = moved(each.pose), target
        for number, (its, pose) in self._poses.items():
            if its == part:
                self._poses[number] = target, moved(pose)
        shot.points = np.where(shot.points >= 0, shot.points, there.points)
        self._part = target
        self._ratios = deque((ratio * each for each in self._ratios), maxlen=5)
        self.joins += 1

    def _forget(self) -> None:
        """Keep of older keyframes what recognises them, and of many every second one."""
        if len(self._shots) > _BUNDLED:
            self._shots[-_BUNDLED - 1] = self._shots[-_BUNDLED - 1].thinned()
        if len(self._shots) > _KEPT + _BUNDLED:
            older = self._shots[:-_BUNDLED]
            self._shots = [*older[::2], *self._shots[-_BUNDLED:]]


_TURN_RAD = math.radians(5.0)  # by which two measures of one turn may differ
_SAME_WAY = 0.5  # cosine between two measures of one direction, at least
_RESCALED = 1.3  # factor by which a bundle may change the length of a step


def _agree(one: ViewPose, other: ViewPose) -> bool:
    """Whether two measures of one step have the same turn and, where both move, direction."""
    off = float(np.linalg.norm(vector_of(one.rotation @ other.rotation.T)))
    a, b = one.translation, other.translation
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    return off < _TURN_RAD and (not lengths or float(a @ b) > _SAME_WAY * lengths)


def _is_rescaled(before: Sequence[ViewPose], after: Sequence[ViewPose]) -> bool:
    """Whether steps between poses have other lengths than they had."""
    old, new = (
        np.linalg.norm(np.diff([p.centre for p in e], axis=0), axis=1) for e in (before, after)
    )
    least = 0.1 * max(float(old.max()), 1e-12)
    ratios = new[old > least] / old[old > least]
    return bool(((ratios > _RESCALED) | (ratios < 1 / _RESCALED)).any())


_START = ViewPose(np.eye(3), np.zeros(3))


def _step_of(motion: Motion) -> ViewPose | None:
    """A motion in the optical axes of the later view; None: it is not known in one unit."""
    angles = motion.yaw_rad, motion.pitch_rad, motion.roll_rad
    if not all(map(math.isfinite, (*angles, *motion.translation))):
        return None
    if any(motion.translation) and motion.scale is not ScaleSource.RELATIVE:
        return None
    turned = rotation_from_ypr(*angles) @ BODY_FROM_OPTICAL
    way = np.array(motion.translation)
    return ViewPose((BODY_FROM_OPTICAL.T @ turned).T, -turned.T @ way)


def _link(pose: ViewPose, factor: float, frame_id: str) -> Pose:
    """Pose of the camera link, where the pose of a view is in the optical axes of a first one."""
    turned = BODY_FROM_OPTICAL @ pose.rotation.T
    return Pose.of(turned @ BODY_FROM_OPTICAL.T, factor * (-turned @ pose.translation), frame_id)
