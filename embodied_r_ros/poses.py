# SPDX-License-Identifier: Apache-2.0
"""Poses over time: what a body's pose was at the stamp of an image."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import replace

from embodied_r_ros.geometry import (
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np

_NS = 1_000_000_000
# Odometry slower than 1 Hz says too little of what happened in between.
_MAX_GAP_NS = 1_000_000_000


def interpolate(earlier: Pose, later: Pose, share: float) -> Pose:
    """Pose between two others in the same frame: line and slerp.

    Args:
        earlier: Pose at share 0.
        later: Pose at share 1.
        share: 0..1.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    if earlier.frame_id != later.frame_id:
        msg = f'poses are in two frames, {earlier.frame_id!r} and {later.frame_id!r}'
        raise ValueError(msg)
    p0, p1 = np.asarray(earlier.position), np.asarray(later.position)
    x, y, z = (float(value) for value in p0 + share * (p1 - p0))
    orientation = _slerp(earlier.orientation, later.orientation, share)
    return Pose((x, y, z), orientation, earlier.frame_id)


def mounted(base: Pose, xyz: tuple[float, float, float], rpy: tuple[float, float, float]) -> Pose:
    """Pose of a link that is fixed to a base.

    Args:
        base: Pose of the base in a fixed frame.
        xyz: Position of the link in the base [m].
        rpy: Fixed-axis roll, pitch, yaw of the link in the base, as in URDF [rad].
    """
    if not any((*xyz, *rpy)):
        return base
    roll, pitch, yaw = rpy
    rotation = base.rotation()
    x, y, z = (float(value) for value in np.asarray(base.position) + rotation @ np.asarray(xyz))
    turned = quaternion_from_matrix(rotation @ rotation_from_ypr(yaw, pitch, roll))
    return replace(base, position=(x, y, z), orientation=turned)


class PoseBuffer:
    """The newest poses of one body. Not thread-safe."""

    def __init__(self, capacity: int = 500, max_extrapolation_s: float = 0.1) -> None:
        """Take the number of poses to keep, and how far outside them one still counts [s]."""
        self._stamps: deque[int] = deque(maxlen=capacity)
        self._poses: deque[Pose] = deque(maxlen=capacity)
        self._outside_ns = round(max_extrapolation_s * _NS)

    def add(self, stamp_ns: int, pose: Pose) -> None:
        """Remember a pose; a stamp that goes back, or another frame, forgets those before.

        Raises:
            ValueError: The orientation is no rotation, or a number is not finite.
        """
        pose.rotation()
        if not np.all(np.isfinite(pose.position)):
            msg = f'position {pose.position} is not finite'
            raise ValueError(msg)
        if self._stamps and (
            stamp_ns < self._stamps[-1] or pose.frame_id != self._poses[-1].frame_id
        ):
            self.clear()
        self._stamps.append(stamp_ns)
        self._poses.append(pose)

    def clear(self) -> None:
        """Forget all poses."""
        self._stamps.clear()
        self._poses.clear()

    def reaches(self, stamp_ns: int) -> bool:
        """Tell whether a pose at or after the stamp is known, so that waiting gains nothing."""
        return bool(self._stamps) and self._stamps[-1] >= stamp_ns

    def at(self, stamp_ns: int) -> Pose | None:
        """Pose at a stamp: interpolated, or the nearest one just outside; None: not known."""
        if not self._stamps:
            return None
        after = bisect_left(self._stamps, stamp_ns)
        if after < len(self._stamps) and self._stamps[after] == stamp_ns:
            return self._poses[after]
        if after == 0 or after == len(self._stamps):
            nearest = min(after, len(self._stamps) - 1)
            is_near = abs(self._stamps[nearest] - stamp_ns) <= self._outside_ns
            return self._poses[nearest] if is_near else None
        t0, t1 = self._stamps[after - 1], self._stamps[after]
        if t1 - t0 > _MAX_GAP_NS:
            return None
        share = (stamp_ns - t0) / (t1 - t0)
        return interpolate(self._poses[after - 1], self._poses[after], share)


def _slerp(
    q0: tuple[float, float, float, float], q1: tuple[float, float, float, float], share: float
) -> tuple[float, float, float, float]:
    a, b = (np.asarray(q) / np.linalg.norm(q) for q in (q0, q1))
    # q and -q are one rotation; the shorter way round is meant.
    b = b if a @ b >= 0 else -b
    angle = np.arccos(np.clip(a @ b, -1.0, 1.0))
    if angle < 1e-6:
        mixed = a + share * (b - a)
    else:
        mixed = (np.sin((1 - share) * angle) * a + np.sin(share * angle) * b) / np.sin(angle)
    x, y, z, w = (float(value) for value in mixed / np.linalg.norm(mixed))
    return x, y, z, w
