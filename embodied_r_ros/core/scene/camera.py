# SPDX-License-Identifier: Apache-2.0
"""The camera of a map: where it is, delta by delta, and what it should show.

Its pose comes from outside, else from motions put together. Nothing is placed where that is not
trusted. What a break leaves unconnected is a new part of the track, with an origin of its own. By
what a keyframe should show and does not, a map learns that a thing is gone.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from enum import Enum
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.map_scale import NOMINAL_M
from embodied_r_ros.core.types.deltas import DeltaKind, MotionSource, ScaleSource
from embodied_r_ros.core.types.geometry import (
    as_position,
    BODY_FROM_OPTICAL,
    NS_PER_S,
    pixels_of_points,
    Pose,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.landmarks import LARGEST_M
from embodied_r_ros.core.types.poses import compose_poses
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Float32s, Float64s
    from embodied_r_ros.core.types.deltas import Box, Item, Motion, SemanticDelta
    from embodied_r_ros.core.types.geometry import Intrinsics

# Of tracks of a camera alone: where the first keyframe was. Poses from outside in this frame are
# of images alone, with `NOMINAL_M` as their unit.
START_FRAME = 'start'
# A source of poses in such a frame corrects itself where it jumps; others lost their origin.
MAP_FRAME = 'map'
_LEAST_JUMP_M = 1.0
_CAMERAS_APART_M = 3.0  # on one robot, at most
_LONGEST_GAP_S = 60.0  # over which speed excuses a way
_BACK_NS = NS_PER_S  # by which a stamp goes back where the clock was set, or a bag starts again
_LEVEL = Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), START_FRAME)


@dataclass(frozen=True)
class CameraView:
    """From where a keyframe was seen, and what is known of its view."""

    pose: Pose | None = None  # of the camera link in a fixed frame; None: not known, or no trust
    intrinsics: Intrinsics | None = None  # of the camera; None: learned from items
    depth: Float32s | None = None  # along the optical axis [m], (h, w); 0: unknown
    is_sparse: bool = False  # depth of points here and there, which has no edges of things


class CameraTrack:
    """Follows one camera after the other; its state is a few numbers."""

    def __init__(self, max_speed_m_s: float) -> None:
        """Take the speed above which a pose is a jump [m/s]."""
        self._max_speed_m_s = max_speed_m_s
        self._pose: Pose | None = None
        self._stamp_ns = 0
        self._last_id: int | None = None  # keyframe that `_pose` is of, where motions go on
        self._camera = ''
        self.part = 0  # counts unconnected parts of the track
        self.scales: Counter[ScaleSource] = Counter()  # what its places rest on, of this part

    def follow(self, delta: SemanticDelta, pose: Pose | None) -> Pose | None:
        """Pose of the camera link at a delta; None: not to be trusted.

        Args:
            delta: The newest one, with the motion since the one before.
            pose: From outside; None: there is none, or it is not trusted.
        """
        if pose and _is_sound(pose):
            return self._by_pose(delta, pose)
        if self._pose and self._pose.frame_id != START_FRAME:
            return None  # poses come back; what motions say meanwhile drifts
        if self._camera and delta.camera != self._camera:
            return None  # nothing says where one camera is from another
        return self._by_motion(delta)

    def _by_pose(self, delta: SemanticDelta, pose: Pose) -> Pose:
        before, is_odometry = self._pose, pose.frame_id != START_FRAME
        if before is None or before.frame_id != pose.frame_id or self._has_jumped(delta, pose):
            self._begin()
        self._keep(delta, pose)
        self.scales[ScaleSource.ODOMETRY if is_odometry else ScaleSource.RELATIVE] += 1
        return pose

    def _has_jumped(self, delta: SemanticDelta, pose: Pose) -> bool:
        frame = pose.frame_id.rpartition('/')[2]
        if self._pose is None or frame in {MAP_FRAME, START_FRAME}:
            return False
        since_ns = delta.stamp_ns - self._stamp_ns
        if since_ns < -_BACK_NS:
            return True
        seconds = min(_LONGEST_GAP_S, abs(since_ns) / NS_PER_S)
        least_m = _LEAST_JUMP_M if delta.camera == self._camera else _CAMERAS_APART_M
        far_m = math.dist(pose.position, self._pose.position)
        return far_m > max(least_m, self._max_speed_m_s * seconds)

    def _by_motion(self, delta: SemanticDelta) -> Pose | None:
        if delta.kind is DeltaKind.FAILED:
            self._last_id = None
            return None
        follows = self._last_id is not None and delta.from_id == self._last_id
        step = _step(delta.motion) if follows and delta.kind is not DeltaKind.FIRST else None
        is_relative = delta.motion.scale is ScaleSource.RELATIVE
        if step and any(step.position) and self.scales and is_relative != self.is_relative:
            step = None  # lengths of two units
        if self._pose is None or step is None:
            self._begin()
            pose = _LEVEL
        else:
            pose = compose_poses(self._pose, step)
            if any(step.position):
                self.scales[_scale(delta.motion)] += 1
        self._keep(delta, pose)
        return pose

    @property
    def is_relative(self) -> bool:
        """Whether the lengths of this part are in a unit that is not known."""
        return ScaleSource.RELATIVE in self.scales

    def _begin(self) -> None:
        self.part += 1
        self.scales.clear()

    def _keep(self, delta: SemanticDelta, pose: Pose) -> None:
        self._pose, self._stamp_ns = pose, delta.stamp_ns
        self._last_id, self._camera = delta.to_id, delta.camera

    def go_on(self, part: int, frame_id: str, scales: Counter[ScaleSource]) -> None:
        """Go on in a part of a map that was kept, by poses in its own frame alone.

        Args:
            part: Its number.
            frame_id: Its frame, in which poses do not jump.
            scales: What its places rest on.
        """
        self._pose, self.part = replace(_LEVEL, frame_id=frame_id), part
        self.scales = Counter(scales)


def _is_sound(pose: Pose) -> bool:
    try:
        pose.rotation()
    except ValueError:
        return False
    return all(abs(value) <= LARGEST_M for value in pose.position)  # nor is NaN


def _step(motion: Motion) -> Pose | None:
    """A motion as a pose in the earlier body's axes; None: its length or turn is not known.

    One in a relative unit is as long as it would be with `NOMINAL_M`.
    """
    turns = (motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    if motion.source is MotionSource.UNKNOWN or not all(
        map(math.isfinite, (*turns, *motion.translation))
    ):
        return None
    is_relative = motion.scale is ScaleSource.RELATIVE
    if any(motion.translation) and not motion.is_metric and not is_relative:
        return None
    way = (value * (NOMINAL_M if is_relative else 1.0) for value in motion.translation)
    return Pose.of(rotation_from_ypr(*turns), way, START_FRAME)


def _scale(motion: Motion) -> ScaleSource:
    if motion.source is MotionSource.ODOMETRY:
        return ScaleSource.ODOMETRY
    return motion.scale


_MARGIN = 0.06  # share of the view at its edges, where perception misses what is cut off
_NEAREST_M = 0.3
_LEAST_EVIDENCE = 0.02  # of a learned lens: sum of squared tangents of directions
_PATCH = 3  # pixels of depth to every side of a place
_BEHIND_M, _BEHIND_SHARE = 0.15, 0.06  # by how much depth must differ to tell


class PlaceSight(Enum):
    """What a keyframe shows of a place."""

    OUTSIDE = 'outside'  # of the view, or at its edge
    HIDDEN = 'hidden'  # something is in front of it
    FILLED = 'filled'  # depth meets something there
    EMPTY = 'empty'  # depth looks through it
    OPEN = 'open'  # in view, and nothing that was perceived hides it


class ItemLens:
    """The lens of a camera without intrinsics, learned from boxes and directions of items.

    Sums of a linear fit, so that it is a pinhole and takes constant memory.
    """

    def __init__(self) -> None:
        self._sums = np.zeros((2, 2))  # per axis: products with the share, squares

    def learn(self, items: Sequence[Item]) -> None:
        """Learn from the items of a delta."""
        for item in items:
            if item.box is None or not (abs(item.bearing_rad) < 1.2 > abs(item.elevation_rad)):
                continue
            left, top, right, bottom = item.box
            if min(item.box) <= 0.0 or max(item.box) >= 1.0:
                continue  # cut off: the middle of what is left is not the middle
            tangents = (
                math.tan(item.bearing_rad),
                math.tan(item.elevation_rad) / math.cos(item.bearing_rad),
            )
            for axis, tangent in enumerate(tangents):
                share = 0.5 - ((left + right) / 2, (top + bottom) / 2)[axis]
                self._sums[axis] += (share * tangent, tangent**2)

    @property
    def focal_shares(self) -> tuple[float, float] | None:
        """Focal length as a share of width and of height; None: not known yet."""
        (fx, xx), (fy, yy) = self._sums
        if xx < _LEAST_EVIDENCE or yy < _LEAST_EVIDENCE or fx <= 0 or fy <= 0:
            return None
        return fx / xx, fy / yy

    def to_json(self) -> list[list[float]]:
        """Its state."""
        state: list[list[float]] = self._sums.tolist()
        return state

    def restore(self, value: Any) -> None:
        """Take a state that `to_json` gave."""
        self._sums = np.array(value, np.float64).reshape(2, 2)


class Sight:
    """One keyframe with its trusted pose, asked what it shows of places."""

    def __init__(
        self, pose: Pose, view: CameraView, lens: tuple[float, float] | None, items: Sequence[Item]
    ) -> None:
        """Prepare.

        Args:
            pose: Of the camera link in the frame of the map.
            view: Intrinsics and depth, where they are known.
            lens: As learned, for a camera without intrinsics.
            items: What was perceived.
        """
        self._rotation, self.origin = pose.rotation(), np.asarray(pose.position)
        self._intrinsics, self._depth, self._lens = view.intrinsics, view.depth, lens
        self._is_sparse = view.is_sparse
        self._items = [item for item in items if item.box]

    @property
    def focal_shares(self) -> tuple[float, float] | None:
        """Focal length as a share of width and of height; None: not known."""
        if self._intrinsics:
            lens = self._intrinsics
            return lens.fx / lens.width, lens.fy / lens.height
        return self._lens

    def of(self, position: Float64s, extent_m: float) -> PlaceSight:
        """What the keyframe shows of a place.

        Args:
            position: In the map (3,) [m].
            extent_m: Size of what should be there [m].
        """
        in_body = self._rotation.T @ (position - self.origin)
        shares = self._shares(in_body)
        focal = self.focal_shares
        if shares is None or focal is None or in_body[0] < _NEAREST_M:
            return PlaceSight.OUTSIDE
        (u, v), ahead_m = shares, float(in_body[0])
        half = [extent_m / 2 / ahead_m * share for share in focal]
        inside = all(
            abs(share - 0.5) <= 0.5 - _MARGIN - part
            for share, part in zip((u, v), half, strict=True)
        )
        if not inside:
            return PlaceSight.OUTSIDE
        shows = None if self._depth is None else self._by_depth(u, v, ahead_m, extent_m)
        if shows and not (self._is_sparse and shows is PlaceSight.FILLED):
            return shows
        far_m = float(np.linalg.norm(in_body))
        is_hidden = any(
            _contains(item.box, u, v) and not item.distance_m > far_m for item in self._items
        )
        return PlaceSight.HIDDEN if is_hidden else PlaceSight.OPEN

    def size_of(self, item: Item) -> tuple[float, float] | None:
        """Width and height of an item [m]; None: not known, or cut off by the image's edge."""
        focal = self.focal_shares
        if focal is None or item.box is None or not math.isfinite(item.distance_m):
            return None
        if min(item.box) <= _MARGIN / 10 or max(item.box) >= 1 - _MARGIN / 10:
            return None
        left, top, right, bottom = item.box
        ahead_m = item.distance_m * math.cos(item.bearing_rad) * math.cos(item.elevation_rad)
        return (right - left) / focal[0] * ahead_m, (bottom - top) / focal[1] * ahead_m

    def _shares(self, in_body: Float64s) -> tuple[float, float] | None:
        """Where a place is in the image, as shares of width and height; None: nowhere."""
        if in_body[0] <= 0:
            return None
        if self._intrinsics:
            return _shares_by(self._intrinsics, in_body)
        if self._lens is None:
            return None
        x, y, z = as_position(in_body)
        return 0.5 - self._lens[0] * y / x, 0.5 - self._lens[1] * z / x

    def _by_depth(self, u: float, v: float, ahead_m: float, extent_m: float) -> PlaceSight:
        assert self._depth is not None
        height, width = self._depth.shape
        column, row = min(width - 1, int(u * width)), min(height - 1, int(v * height))
        part = self._depth[
            max(0, row - _PATCH) : row + _PATCH + 1, max(0, column - _PATCH) : column + _PATCH + 1
        ]
        known = part[np.isfinite(part) & (part > 0)]
        if not known.size:
            return PlaceSight.FILLED if self._is_sparse else PlaceSight.HIDDEN
        depth_m = float(np.median(known))
        margin_m = max(_BEHIND_M, 0.5 * extent_m) + _BEHIND_SHARE * ahead_m
        if depth_m > ahead_m + margin_m:
            return PlaceSight.EMPTY
        return PlaceSight.HIDDEN if depth_m < ahead_m - margin_m else PlaceSight.FILLED


def _shares_by(lens: Intrinsics, in_body: Float64s) -> tuple[float, float] | None:
    in_optical = BODY_FROM_OPTICAL.T @ in_body
    # Polynomials of a lens fold what is far outside back into the image.
    if max(abs(in_optical[0]), abs(in_optical[1])) > 3 * in_optical[2]:
        return None
    u, v = pixels_of_points(lens, in_optical[None])[0]
    return (float(u) + 0.5) / lens.width, (float(v) + 0.5) / lens.height


def _contains(box: Box | None, u: float, v: float) -> bool:
    return box is not None and box[0] <= u <= box[2] and box[1] <= v <= box[3]
