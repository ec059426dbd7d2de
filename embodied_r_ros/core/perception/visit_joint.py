# SPDX-License-Identifier: Apache-2.0
"""Where a second visit to a place is in the map of the first, by what keyframes of both show.

A keyframe of the second visit is placed by points that keyframes of the first have shown; each
placed one says where the second visit's frame is in that of the first. Two visits are joined where
several keyframes agree that show more of the place than one thing in it, hardly any disagrees, and
those that should show the same do. A wrong joint is worse than none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.keyframes.bundle import (
    agreed_pose,
    FITS,
    triangulate_between,
    ViewPose,
)
from embodied_r_ros.core.perception.egomotion import Features, match_features
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    places_of_pixels,
    Pose,
)
from embodied_r_ros.core.types.images import depth_at
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Bools, Float32s, Float64s
    from embodied_r_ros.core.types.geometry import Intrinsics

_TOLERANCE = 0.00225  # of the image's width: how far a point may be seen from where it belongs
PARTNERS = 8  # later keyframes of a visit with which one places its points
_PARALLAX_RAD = math.radians(1.5)  # between two rays that place a point
MOST_KEYFRAMES = 120  # of a visit, evenly chosen, that are compared
_EVERY = 3  # features of a keyframe by which the most alike ones are found
_MOST_ALIKE = 5  # keyframes whose points place one
_MIN_POINTS = 20  # that place a keyframe
_TILT_RAD = math.radians(6.0)  # between what two visits take for up, at most
_AGREE_M, _AGREE_RAD = 0.3, math.radians(10.0)
# Keyframes that agree, and how much of the place they show: one thing may be in many places.
_LEAST_VIEWS, _LEAST_EXTENT_M = 2, 2.0
_MOST_AGAINST = 0.34  # of the points of those that agree, that others may have which disagree
_SAME_M, _SAME_RAD = 0.6, math.radians(20.0)  # between two views that show the same
_LEAST_CONFIRMED = 0.5  # of those views, that were found to


class NotJoinedError(EmbodiedRError):
    """A visit could not find itself in the map of another one."""

    def __init__(self, why: str) -> None:
        """Say why."""
        super().__init__(f'could not find itself in the old map: {why}')
        self.why = why


@dataclass
class VisitKeyframe:
    """A keyframe of a visit, with where it is in the frame of that visit."""

    pose: Pose  # of the camera link
    features: Features
    lens: Intrinsics
    points: Float64s = field(default_factory=lambda: np.zeros((0, 3)))  # NaN: unknown

    def __post_init__(self) -> None:
        """Compute where the features are, in units of the focal length."""
        self.places = places_of_pixels(self.lens, self.features.points)
        self.points = np.full((len(self.places), 3), np.nan)
        turn = (self.pose.rotation() @ BODY_FROM_OPTICAL).T
        self.view = ViewPose(turn, -turn @ np.asarray(self.pose.position))
        self.tolerance = _TOLERANCE * self.lens.width / self.lens.fx

    def lift(self, depth: Float32s) -> None:
        """Place features by depth along the optical axis [m], 0 or not finite: unknown. (h, w)."""
        ahead = depth_at(depth, self.features.points, (self.lens.width, self.lens.height))
        known = ahead > 0
        local = np.column_stack([self.places, np.ones(len(self.places))])[known]
        moved = local * ahead[known, None] - self.view.translation
        self.points[known] = moved @ self.view.rotation

    def thinned(self) -> VisitKeyframe:
        """The keyframe with those features alone whose points are known."""
        known = np.isfinite(self.points[:, 0])
        features = Features(self.features.points[known], self.features.descriptors[known])
        thin = VisitKeyframe(self.pose, features, self.lens)
        thin.points = self.points[known]
        return thin


@dataclass(frozen=True)
class Joint:
    """Where the frame of one visit is in that of another."""

    rotation: Float64s  # (3, 3)
    translation: Float64s  # (3,) [m]
    frame_id: str
    pairs: tuple[tuple[int, int], ...] = ()  # numbers of keyframes that show the same, best first
    spread_m: float = 0.0  # by how much those that agree differ, as a median [m]

    def pose(self, pose: Pose) -> Pose:
        """A pose of the second visit in the frame of the first."""
        place = self.point(np.asarray(pose.position))
        return Pose.of(self.rotation @ pose.rotation(), place, self.frame_id)

    def point(self, point: Float64s) -> Float64s:
        """A point of the second visit in the frame of the first (3,)."""
        return np.asarray(self.rotation @ point + self.translation)

    def keyframe(self, shot: VisitKeyframe) -> VisitKeyframe:
        """A keyframe of the second visit in the frame of the first."""
        moved = VisitKeyframe(self.pose(shot.pose), shot.features, shot.lens)
        moved.points = shot.points @ self.rotation.T + self.translation
        return moved

    def inverse(self, frame_id: str) -> Joint:
        """Where the frame of the first visit is in that of the second one."""
        return Joint(self.rotation.T, -self.rotation.T @ self.translation, frame_id)


@dataclass(frozen=True)
class _Placed:
    """A keyframe of the second visit that points of the first one place."""

    number: int
    other: int  # keyframe of the first visit that shows most of the same
    joint: Joint  # by it alone
    centre: Float64s  # of its camera in its own visit (3,)
    points: Float64s  # that agree, in the frame of the first visit (N, 3)


class JointSearch:
    """Finds where a visit is in the frame of an earlier one, keyframe by keyframe.

    What is found rests on all keyframes so far: later ones that contradict it undo it.
    """

    def __init__(self, before: Sequence[VisitKeyframe], most: int = MOST_KEYFRAMES) -> None:
        """Begin.

        Args:
            before: Keyframes of the first visit, in order, with poses in metres, z up.
            most: Keyframes that were found, the newest ones, on which it rests: poses drift.
        """
        self._most = most
        self._known = [each.thinned() for each in before]
        self._compared = _evenly(len(before))
        self._tried: list[tuple[int, Pose, _Placed | None]] = []

    def add(self, number: int, shot: VisitKeyframe) -> bool:
        """Look for a keyframe of the second visit; tells whether it was found.

        Args:
            number: By which joints name it.
            shot: It, with its pose in the frame of its own visit.
        """
        placed = _placed(self._known, self._compared, number, shot)
        self._tried.append((number, shot.pose, placed))
        found = [at for at, (_, _, one) in enumerate(self._tried) if one]
        if len(found) > self._most:
            del self._tried[: found[-self._most]]
        if len(self._tried) > 2 * MOST_KEYFRAMES:
            del self._tried[::2]
        return placed is not None

    def joint(self) -> Joint:
        """Where the second visit is, by its keyframes so far.

        Raises:
            NotJoinedError: It could not be found, or in more than one way.
        """
        if not self._known:
            msg = 'it has no keyframes by which it could be recognised'
            raise NotJoinedError(msg)
        placed = [one for _, _, one in self._tried if one]
        groups = [[placed[n] for n in np.flatnonzero(row)] for row in _agreement(placed)]
        best = max(groups, key=_support, default=[])
        if len(best) < _LEAST_VIEWS or _extent_m(best) < _LEAST_EXTENT_M:
            msg = (
                f'{len(best)} of {len(self._tried)} keyframes show what the first visit saw, '
                f'expected {_LEAST_VIEWS} that show {_LEAST_EXTENT_M:g} m of it: the visits share '
                'too little'
            )
            raise NotJoinedError(msg)
        found = {one.number for one in best}
        against = _support([one for one in placed if one.number not in found])
        if against > _MOST_AGAINST * _support(best):
            msg = 'its keyframes fit in more than one way: places there look alike'
            raise NotJoinedError(msg)
        joint = _together(best, self._known[0].pose.frame_id)
        poses = [joint.pose(pose) for _, pose, _ in self._tried]
        due = _should_show(poses, [one.pose for one in self._known])
        confirmed = sum(self._tried[n][0] in found for n in due)
        if due and confirmed < _LEAST_CONFIRMED * len(due):
            msg = (
                f'of {len(due)} keyframes that would show the same only {confirmed} do: it is '
                'another place that looks alike in part'
            )
            raise NotJoinedError(msg)
        return joint


def join_visits(before: Sequence[VisitKeyframe], after: Sequence[VisitKeyframe]) -> Joint:
    """Find where a visit is in the frame of an earlier one.

    Args:
        before: Keyframes of the first visit, in order, with poses in metres and their points
            placed; z points up.
        after: Those of the second one.

    Raises:
        NotJoinedError: It could not be found there, or in more than one way.
    """
    search = JointSearch(before)
    for number in _evenly(len(after)):
        search.add(number, after[number])
    return search.joint()


def place_points(keyframes: Sequence[VisitKeyframe]) -> None:
    """Place features that two keyframes of a visit show from different places."""
    for number, one in enumerate(keyframes):
        place_points_between(one, keyframes[number + 1 : number + 1 + PARTNERS])


def place_points_between(one: VisitKeyframe, others: Sequence[VisitKeyframe]) -> None:
    """Place features that a keyframe and others of its visit show from different places."""
    for other in others:
        pairs = match_features(one.features, other.features)
        is_known = np.isfinite(one.points[pairs[:, 0], 0])
        is_known &= np.isfinite(other.points[pairs[:, 1], 0])
        mine, theirs = pairs[~is_known].T
        if not len(mine):
            continue
        points, angle, off = triangulate_between(
            one.view, one.places[mine], other.view, other.places[theirs]
        )
        off /= [[one.tolerance], [other.tolerance]]
        good = (angle > _PARALLAX_RAD) & (off < FITS).all(axis=0)
        one.points[mine[good]] = other.points[theirs[good]] = points[good]


def _evenly(count: int) -> list[int]:
    chosen = np.linspace(0, count - 1, min(count, MOST_KEYFRAMES)).round().astype(int)
    return [int(number) for number in chosen]


def _placed(
    before: Sequence[VisitKeyframe], numbers: Sequence[int], number: int, shot: VisitKeyframe
) -> _Placed | None:
    """Place a keyframe of the second visit; None: too few points agree."""
    some = Features(shot.features.points[::_EVERY], shot.features.descriptors[::_EVERY])
    alike = [len(match_features(before[each].features, some)) for each in numbers]
    ranked = [numbers[at] for at in np.argsort(alike, kind='stable')[::-1][:_MOST_ALIKE]]
    points: dict[int, Float64s] = {}  # by feature
    for each in ranked:
        for theirs, ours in match_features(before[each].features, shot.features).tolist():
            points.setdefault(ours, before[each].points[theirs])
    if len(points) < _MIN_POINTS:
        return None
    known, places = np.array(list(points.values())), shot.places[list(points)]
    agreed = agreed_pose(known, places, shot.tolerance, _MIN_POINTS)
    if agreed is None:
        return None
    view, fits = agreed
    rotation = view.rotation.T @ shot.view.rotation
    if math.acos(max(-1.0, min(1.0, float(rotation[2, 2])))) > _TILT_RAD:
        return None
    joint = Joint(rotation, view.centre - rotation @ shot.view.centre, '')
    return _Placed(number, ranked[0], joint, shot.view.centre, known[fits])


def _support(group: Sequence[_Placed]) -> int:
    return sum(len(one.points) for one in group)


def _extent_m(group: Sequence[_Placed]) -> float:
    """How far apart the points are that keyframes agree on, along their longest axis [m]."""
    points = np.concatenate([one.points for one in group])
    _, _, axes = np.linalg.svd(points - points.mean(axis=0), full_matrices=False)
    low, high = np.percentile(points @ axes[0], (10, 90))
    return float(high - low)


def _together(group: Sequence[_Placed], frame_id: str) -> Joint:
    """What keyframes say together, each as much as points of it agree."""
    weights = np.array([len(one.points) for one in group], np.float64)
    u, _, vt = np.linalg.svd(np.einsum('i,ijk', weights, [one.joint.rotation for one in group]))
    rotation = u @ np.diag([1.0, 1.0, np.linalg.det(u @ vt)]) @ vt
    # Where each camera is in the first visit is surer than where the other frame begins.
    there = np.array([o.joint.rotation @ o.centre + o.joint.translation for o in group])
    ways = there - np.array([one.centre for one in group]) @ rotation.T
    translation = np.average(ways, axis=0, weights=weights)
    spread_m = float(np.median(np.linalg.norm(ways - translation, axis=1)))
    ranked = sorted(group, key=lambda one: -len(one.points))
    pairs = tuple((one.other, one.number) for one in ranked)
    return Joint(rotation, translation, frame_id, pairs, spread_m)


def _agreement(placed: Sequence[_Placed]) -> Bools:
    """Which keyframes say the same of where their visit is. Shape (N, N)."""
    if not placed:
        return np.zeros((0, 0), bool)
    turns = np.array([one.joint.rotation for one in placed])
    ways = np.array([one.joint.translation for one in placed])
    centres = np.array([one.centre for one in placed])
    there = np.einsum('iab,jb->ija', turns, centres) + ways[:, None]
    own = there[np.arange(len(placed)), np.arange(len(placed))]
    near = np.linalg.norm(there - own, axis=2) <= _AGREE_M
    return np.asarray(near & near.T & (_angles(turns, turns) <= _AGREE_RAD))


def _should_show(poses: Sequence[Pose], before: Sequence[Pose]) -> list[int]:
    """Which views are so near to one of the first visit that both show the same."""
    some, others = ([each.rotation() for each in ways] for ways in (poses, before))
    places, there = (np.array([each.position for each in ways]) for ways in (poses, before))
    near = np.linalg.norm(places[:, None] - there, axis=2) < _SAME_M
    near &= _angles(np.array(some), np.array(others)) < _SAME_RAD
    return [int(number) for number in np.flatnonzero(near.any(axis=1))]


def _angles(some: Float64s, others: Float64s) -> Float64s:
    """Angles of the turns between rotations (N, 3, 3) and (M, 3, 3) [rad]. Shape (N, M)."""
    traces = np.einsum('iab,jab->ij', some, others)
    return np.asarray(np.arccos(np.clip((traces - 1) / 2, -1.0, 1.0)))
