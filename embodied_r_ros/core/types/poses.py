# SPDX-License-Identifier: Apache-2.0
"""Poses over time, and transforms between frames (tf2): where a body was at a stamp."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.geometry import (
    as_position,
    BODY_FROM_OPTICAL,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
    see_one_frame,
)
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from embodied_r_ros.core.types.arrays import Float64s

# Publishers and networks reorder by less; clocks that are set go back by more.
_DISORDER_NS = 1_000_000_000
# Odometry slower than 1 Hz says too little of what happened in between.
_MAX_GAP_NS = 1_000_000_000
_OUTSIDE_NS = 100_000_000  # so far outside all poses the nearest one still counts


def interpolate(earlier: Pose, later: Pose, share: float) -> Pose:
    """Pose between two others in the same frame: line and slerp.

    Args:
        earlier: Pose at share 0.
        later: Pose at share 1.
        share: 0..1.

    Raises:
        ValueError: The poses are in different fixed frames.
    """
    see_one_frame(earlier, later)
    from scipy.spatial.transform import Rotation, Slerp  # takes long, and not all need poses

    turns = Slerp((0.0, 1.0), Rotation.from_quat((earlier.orientation, later.orientation)))
    x, y, z, w = turns(share).as_quat().tolist()
    p0, p1 = np.asarray(earlier.position), np.asarray(later.position)
    return Pose(as_position(p0 + share * (p1 - p0)), (x, y, z, w), earlier.frame_id)


def mounted_pose(
    base: Pose, xyz: tuple[float, float, float], rpy: tuple[float, float, float]
) -> Pose:
    """Pose of a link that is fixed to a base.

    Args:
        base: Pose of the base in a fixed frame.
        xyz: Position of the link in the base [m].
        rpy: Fixed-axis roll, pitch, yaw of the link in the base, as in URDF [rad].
    """
    if not any((*xyz, *rpy)):
        return base
    roll, pitch, yaw = rpy
    return compose_poses(base, Pose.of(rotation_from_ypr(yaw, pitch, roll), xyz, ''))


def compose_poses(base: Pose, link: Pose) -> Pose:
    """Pose of a link in the fixed frame of its base.

    Args:
        base: Pose of the base in a fixed frame.
        link: Pose of the link in the base.
    """
    rotation = base.rotation()
    place = np.asarray(base.position) + rotation @ np.asarray(link.position)
    return Pose.of(rotation @ link.rotation(), place, base.frame_id)


class PoseBuffer:
    """The newest poses of one body. Not thread-safe."""

    def __init__(self, capacity: int = 500, spacing_ns: int = 0) -> None:
        """Say how many poses are kept.

        Args:
            capacity: The number of poses.
            spacing_ns: Of poses that lie closer together than this, some are left out, so that
                the capacity reaches far back; the newest one is always kept [ns].
        """
        self._spacing_ns = spacing_ns
        self._stamps: deque[int] = deque(maxlen=capacity)
        self._poses: deque[Pose] = deque(maxlen=capacity)

    def add(self, stamp_ns: int, pose: Pose) -> None:
        """Remember a pose, in the order of stamps.

        A stamp that goes far back is a clock that was set, or a recording that starts again: what
        was before is forgotten. So it is with another frame.

        Raises:
            ValueError: The orientation is no rotation, or a number is not finite.
        """
        pose.rotation()
        if not np.all(np.isfinite(pose.position)):
            msg = f'position {pose.position} is not finite'
            raise ValueError(msg)
        if self._stamps and (
            stamp_ns <= self._stamps[-1] - _DISORDER_NS
            or pose.frame_id != self._poses[-1].frame_id
        ):
            self.clear()
        at = bisect_left(self._stamps, stamp_ns)
        if at < len(self._stamps) and self._stamps[at] == stamp_ns:
            self._poses[at] = pose
            return
        if at < len(self._stamps) and not self._has_room(at, stamp_ns):
            return
        if at == len(self._stamps) and self._is_end_crowded():
            del self._stamps[-1], self._poses[-1]
            at -= 1
        elif len(self._stamps) == self._stamps.maxlen:
            del self._stamps[0], self._poses[0]
            at -= 1
        self._stamps.insert(at, stamp_ns)
        self._poses.insert(at, pose)

    def _has_room(self, at: int, stamp_ns: int) -> bool:
        """Tell whether there is room for a pose that comes late, before others."""
        if at == 0:  # older than all
            return len(self._stamps) != self._stamps.maxlen
        gaps = stamp_ns - self._stamps[at - 1], self._stamps[at] - stamp_ns
        return min(gaps) >= self._spacing_ns

    def _is_end_crowded(self) -> bool:
        """Tell whether the newest pose lies too near to the one before to be kept for long."""
        return len(self._stamps) > 1 and self._stamps[-1] - self._stamps[-2] < self._spacing_ns

    def clear(self) -> None:
        """Forget all poses."""
        self._stamps.clear()
        self._poses.clear()

    @property
    def newest_ns(self) -> int:
        """Stamp of the newest pose [ns]; 0: there is none."""
        return self._stamps[-1] if self._stamps else 0

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
            is_near = abs(self._stamps[nearest] - stamp_ns) <= _OUTSIDE_NS
            return self._poses[nearest] if is_near else None
        t0, t1 = self._stamps[after - 1], self._stamps[after]
        if t1 - t0 > _MAX_GAP_NS:
            return None
        share = (stamp_ns - t0) / (t1 - t0)
        return interpolate(self._poses[after - 1], self._poses[after], share)


# In this order: odom is continuous, map is not (REP 105). Robots put their name before it.
FIXED_FRAMES = ('odom', 'map')
# How names of frames end that have the axes of a body: x forward, y left, z up (REP 103).
_BODY = re.compile(r'(^|[_/])(link|base|body|footprint|chassis)\d*$')
# So do those that move with a robot.
_MOVING = re.compile(_BODY.pattern + r'|(^|[_/])(robot|imu|camera|head|optical|optical_frame)\d*$')
_TRANSFORMS = 1000  # that are kept of each pair of frames


@dataclass(frozen=True)
class NoPose:
    """A pose is not known."""

    reason: str


class TransformTree:
    """The newest transforms of a robot. Not thread-safe."""

    def __init__(self) -> None:
        self._static: dict[str, Pose] = {}  # of a frame in its parent
        self._moving: dict[str, PoseBuffer] = {}
        self._parents: dict[str, str] = {}
        self._torn: dict[str, str] = {}  # frames with several parents, and why that is wrong

    def add(self, frame: str, stamp_ns: int, pose: Pose) -> None:
        """Remember where a frame was in its parent, which is the frame of the pose.

        Raises:
            ValueError: The orientation is no rotation, or a number is not finite.
        """
        frame, pose = _bare(frame), _in_bare(pose)
        buffer = self._moving.get(frame) or PoseBuffer(_TRANSFORMS)
        buffer.add(stamp_ns, pose)
        self._moving[frame] = buffer
        self._note_parent(frame, pose.frame_id)

    def add_static(self, frame: str, pose: Pose) -> None:
        """Remember where a frame always is in its parent.

        Raises:
            ValueError: The orientation is no rotation.
        """
        frame, pose = _bare(frame), _in_bare(pose)
        pose.rotation()
        self._static[frame] = pose
        self._note_parent(frame, pose.frame_id)

    def reaches(self, frame: str, stamp_ns: int) -> bool:
        """Tell whether all that moves between a frame and its fixed frame is known until then."""
        chain = self._chain(_bare(frame))
        return not isinstance(chain, NoPose) and self._reach(chain, stamp_ns)

    def _reach(self, frames: Iterable[str], stamp_ns: int) -> bool:
        return all(self._moving[name].reaches(stamp_ns) for name in frames if name in self._moving)

    def camera_at(self, frame: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp, in the fixed frame.

        Args:
            frame: Frame of the camera's images. It has optical axes (sensor_msgs/Image), unless
                it is called a link or base: then it has those of a body (REP 103).
            stamp_ns: Stamp of an image.
        """
        chain = self._chain(_bare(frame))
        if isinstance(chain, NoPose):
            return chain
        along = self._along(chain, stamp_ns, link_axes(frame))
        if isinstance(along, NoPose):
            return along
        place, turn = along
        return Pose.of(turn, place, self._parents[chain[-1]])

    def reaches_between(self, fixed: str, frame: str, stamp_ns: int) -> bool:
        """Tell whether all that moves between two frames is known until a stamp."""
        fixed = fixed or self._body_of(frame)
        chains = self._between(_bare(fixed), _bare(frame))
        return not isinstance(chains, NoPose) and self._reach([*chains[0], *chains[1]], stamp_ns)

    def newest_ns(self, fixed: str, frame: str) -> int:
        """Newest stamp at which all that moves between two frames is known [ns]; 0: none is."""
        chains = self._between(_bare(fixed), _bare(frame))
        names = [] if isinstance(chains, NoPose) else [*chains[0], *chains[1]]
        moving = (self._moving[name].newest_ns for name in names if name in self._moving)
        return min(moving, default=0)

    def forget_moves(self) -> None:
        """Forget where everything was that moves; what leads where stays known."""
        for buffer in self._moving.values():
            buffer.clear()

    def pose_in(self, fixed: str, frame: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of a frame in any other one at a stamp."""
        chains = self._between(_bare(fixed), _bare(frame))
        if isinstance(chains, NoPose):
            return chains
        ends = [self._along(chain, stamp_ns, np.eye(3)) for chain in chains]
        for end in ends:
            if isinstance(end, NoPose):
                return end
        (origin, axes), (place, turn) = ends  # type: ignore[misc]
        return Pose.of(axes.T @ turn, axes.T @ (place - origin), _bare(fixed))

    def camera_in(self, fixed: str, frame: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link in any other frame at a stamp, with axes as `camera_at` has.

        An empty name is that of the body that the camera is on.
        """
        pose = self.pose_in(fixed or self._body_of(frame), frame, stamp_ns)
        if isinstance(pose, NoPose):
            return pose
        return camera_link(pose, frame)

    def has(self, frame: str) -> bool:
        """Tell whether transforms hold a frame."""
        frame = _bare(frame)
        return frame in self._parents or frame in self._parents.values()

    def _along(
        self, chain: list[str], stamp_ns: int, turn: Float64s
    ) -> tuple[Float64s, Float64s] | NoPose:
        """Place (3,) and turn (3, 3) of a chain's first frame in the parent of its last one."""
        place = np.zeros(3)
        for name in chain:
            step = self._moving[name].at(stamp_ns) if name in self._moving else self._static[name]
            if step is None:
                parent = self._parents[name]
                return NoPose(f'the transform of {name} in {parent} has gaps at images')
            rotation = step.rotation()
            place, turn = rotation @ place + np.asarray(step.position), rotation @ turn
        return place, turn

    def _between(self, fixed: str, frame: str) -> tuple[list[str], list[str]] | NoPose:
        """Both chains up to below the nearest frame that they have in common."""
        first, second = self._path(fixed), self._path(frame)
        for name in (*first, *second):
            if name in self._torn:
                return NoPose(self._torn[name])
        common = next((name for name in first if name in second), None)
        if common is None:
            return NoPose(f'no transforms lead from {frame} to {fixed}: they end at {second[-1]}')
        return first[: first.index(common)], second[: second.index(common)]

    def _path(self, frame: str) -> list[str]:
        """A frame and all above it."""
        path = [frame]
        while (parent := self._parents.get(path[-1])) and parent not in path:
            path.append(parent)
        return path

    def _chain(self, frame: str) -> list[str] | NoPose:
        """Frames from one up to below its fixed frame."""
        path = self._path(frame)
        for torn in path:
            if torn in self._torn:
                return NoPose(self._torn[torn])
        names = [name.rpartition('/')[2] for name in path]
        for fixed in FIXED_FRAMES:
            if fixed in names[1:]:
                return path[: names.index(fixed)]
        if len(path) > 1 and path[-1] not in self._parents and not moves_with_robot(path[-1]):
            return path[:-1]
        return NoPose(
            f'no transforms lead from {frame} to {" or ".join(FIXED_FRAMES)}: '
            f'they end at {path[-1]}'
        )

    def _body_of(self, frame: str) -> str:
        """The body that a frame is on: the last one below its fixed frame, else the last one."""
        chain = self._chain(_bare(frame))
        return self._path(_bare(frame))[-1] if isinstance(chain, NoPose) else chain[-1]

    def _note_parent(self, frame: str, parent: str) -> None:
        first = self._parents.setdefault(frame, parent)
        if first != parent:
            self._torn[frame] = f'{frame} has two parents, {first} and {parent}'


def is_usual_frame(frame: str) -> bool:
    """Tell whether a fixed frame is one of FIXED_FRAMES, with or without a robot's name."""
    return frame.rpartition('/')[2] in FIXED_FRAMES


def moves_with_robot(frame: str) -> bool:
    """Tell by its name whether a frame moves with a robot, so that it cannot be a fixed frame."""
    return bool(_MOVING.search(frame))


def camera_link(pose: Pose, frame: str) -> Pose:
    """Pose of the camera link, of that of the frame of its images, as `camera_at` takes it."""
    turn = pose.rotation() @ link_axes(frame)
    return replace(pose, orientation=quaternion_from_matrix(turn))


def link_axes(frame: str) -> Float64s:
    """Axes of the camera link in those of the frame of its images. Shape (3, 3)."""
    return np.eye(3) if _BODY.search(frame) else BODY_FROM_OPTICAL.T


_ZERO = (0.0, 0.0, 0.0)


def camera_of_body(
    pose: Pose,
    body: str,
    frame: str,
    mount: Callable[[str], Pose | NoPose | None],
    place: tuple[tuple[float, float, float], tuple[float, float, float]] = (_ZERO, _ZERO),
) -> Pose | NoPose:
    """Pose of the camera link from that of a body; the same offline and live.

    Args:
        pose: Of the body in a fixed frame.
        body: Name of its frame; empty: not said. It may be the frame of the images itself, as of
            visual odometry, or that of another camera: then the pose has optical axes.
        frame: Frame of the images.
        mount: Gives the camera link in the frame of a body by transforms; None: they do not have
            the camera. Then it is taken for the body.
        place: Position and angles of the camera link on a body whose x points forward, as of
            `mounted_pose`, where no transforms have it.
    """
    if _bare(body) == _bare(frame):
        return camera_link(pose, frame)
    link = mount(body)
    if isinstance(link, NoPose):
        return link
    if link:
        return compose_poses(pose, link)
    if has_optical_axes(body, pose):
        pose = camera_link(pose, '')
    return mounted_pose(pose, *place)


def has_optical_axes(body: str, pose: Pose) -> bool:
    """Tell whether a body has optical axes: by its name, else where y points down."""
    return 'optical' in body if body else bool(pose.rotation()[2, 1] < _DOWN)


_DOWN = -0.7  # z of an axis in a frame whose z points up


def _bare(frame: str) -> str:
    """A name without the slash that tf had in front."""
    return frame.lstrip('/')


def _in_bare(pose: Pose) -> Pose:
    return Pose(pose.position, pose.orientation, _bare(pose.frame_id))
