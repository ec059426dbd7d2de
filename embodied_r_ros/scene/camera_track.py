# SPDX-License-Identifier: Apache-2.0
"""Where the camera is, delta by delta: by poses from outside, else by motions put together.

Nothing is placed where the camera's place is not trusted. What a break leaves unconnected is a
new part of the track, with an origin of its own.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.deltas import DeltaKind, MotionSource, ScaleSource
from embodied_r_ros.types.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.types.poses import composed
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from embodied_r_ros.types.deltas import Motion, SemanticDelta
    from embodied_r_ros.types.geometry import Intrinsics
    import numpy as np
    from numpy.typing import NDArray

START_FRAME = 'start'  # of tracks put together from motions: where the first keyframe was
# A source of poses in such a frame corrects itself where it jumps; others lost their origin.
_CORRECTED_FRAME = 'map'
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
    depth: NDArray[np.float32] | None = None  # along the optical axis [m], (h, w); 0: unknown


class CameraTrack:
    """Follows one camera after the other; its state is a few numbers."""

    def __init__(self, max_speed_m_s: float) -> None:
        """Take the speed above which a pose is a jump [m/s]."""
        self._max_speed_m_s = max_speed_m_s
        self._pose: Pose | None = None
        self._stamp_ns = 0
        self._last_id: int | None = None  # keyframe that `_pose` is of, where motions go on
        self._camera = ''
        self._is_restored = False  # odometry may have begun anew since it was saved
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
        before = self._pose
        if before is None or before.frame_id != pose.frame_id or self._has_jumped(delta, pose):
            self._begin()
        self._keep(delta, pose)
        self.scales[ScaleSource.ODOMETRY] += 1
        return pose

    def _has_jumped(self, delta: SemanticDelta, pose: Pose) -> bool:
        if self._pose is None or pose.frame_id.rpartition('/')[2] == _CORRECTED_FRAME:
            return False
        since_ns = delta.stamp_ns - self._stamp_ns
        if since_ns < -_BACK_NS:
            return True
        seconds = 0.0 if self._is_restored else min(_LONGEST_GAP_S, abs(since_ns) / NS_PER_S)
        least_m = _LEAST_JUMP_M if delta.camera == self._camera else _CAMERAS_APART_M
        far_m = math.dist(pose.position, self._pose.position)
        return far_m > max(least_m, self._max_speed_m_s * seconds)

    def _by_motion(self, delta: SemanticDelta) -> Pose | None:
        if delta.kind is DeltaKind.FAILED:
            self._last_id = None
            return None
        follows = self._last_id is not None and delta.from_id == self._last_id
        step = _step(delta.motion) if follows and delta.kind is not DeltaKind.FIRST else None
        if self._pose is None or step is None:
            self._begin()
            pose = _LEVEL
        else:
            pose = composed(self._pose, step)
            if any(step.position):
                self.scales[_scale(delta.motion)] += 1
        self._keep(delta, pose)
        return pose

    def _begin(self) -> None:
        self.part += 1
        self.scales.clear()

    def _keep(self, delta: SemanticDelta, pose: Pose) -> None:
        self._pose, self._stamp_ns, self._is_restored = pose, delta.stamp_ns, False
        self._last_id, self._camera = delta.to_id, delta.camera

    def to_json(self) -> dict[str, Any]:
        """Its state."""
        pose = self._pose
        return {
            'pose': pose and [*pose.position, *pose.orientation],
            'frame_id': pose and pose.frame_id,
            'stamp_ns': self._stamp_ns,
            'last_id': self._last_id,
            'camera': self._camera,
            'part': self.part,
            'scales': {scale.name: count for scale, count in self.scales.items()},
        }

    def restore(self, value: dict[str, Any]) -> None:
        """Take a state that `to_json` gave.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        if value['pose'] is not None:
            x, y, z, *turn = (float(number) for number in value['pose'])
            qx, qy, qz, qw = turn
            self._pose = Pose((x, y, z), (qx, qy, qz, qw), str(value['frame_id']))
            self._is_restored = True
            if not _is_sound(self._pose):
                msg = f'pose {value["pose"]} is none'
                raise ValueError(msg)
        self._stamp_ns, self._camera = int(value['stamp_ns']), str(value['camera'])
        self._last_id = None if value['last_id'] is None else int(value['last_id'])
        self.part = int(value['part'])
        self.scales = Counter({ScaleSource[k]: int(n) for k, n in value['scales'].items()})


def _is_sound(pose: Pose) -> bool:
    try:
        pose.rotation()
    except ValueError:
        return False
    return all(math.isfinite(value) for value in pose.position)


def _step(motion: Motion) -> Pose | None:
    """A motion as a pose in the earlier body's axes; None: its length or turn is not known."""
    turns = (motion.yaw_rad, motion.pitch_rad, motion.roll_rad)
    if motion.source is MotionSource.UNKNOWN or not all(
        map(math.isfinite, (*turns, *motion.translation))
    ):
        return None
    if any(motion.translation) and not motion.is_metric:
        return None
    turn = quaternion_from_matrix(rotation_from_ypr(*turns))
    return replace(_LEVEL, position=motion.translation, orientation=turn)


def _scale(motion: Motion) -> ScaleSource:
    if motion.source is MotionSource.ODOMETRY:
        return ScaleSource.ODOMETRY
    return motion.scale
