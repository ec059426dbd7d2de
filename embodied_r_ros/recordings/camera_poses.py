# SPDX-License-Identifier: Apache-2.0
"""Where the camera of an episode was at each of its deltas, as far as the bag proves it.

Deltas speak of the camera's motion, so poses must be the camera's too. Those in keyframes are, and
so are those from transforms. Odometry is of the robot's body; it is the camera's in simulations,
and where perception took it for that.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions import pose_from_msg, stamp_ns_from_msg
from embodied_r_ros.geometry import Pose, relative_motion, yaw_pitch_roll
from embodied_r_ros.recordings.bags import topics_of_type
from embodied_r_ros.recordings.pose_sources import (
    NO_POSES,
    odometry_source,
    poses_at,
    transform_source,
)
from embodied_r_ros.recordings.values import read_values
from embodied_r_ros.transforms import NoPose

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.deltas import SemanticDelta
    from rosbags.highlevel import AnyReader

_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
# A camera that is turned further than this is not the body that the odometry is of.
_SAME_WAY_RAD = math.radians(5.0)


@dataclass(frozen=True)
class CameraPoses:
    """Poses of the camera link at each delta, or why there are none."""

    poses: tuple[Pose, ...] = ()
    source: str = 'odometry'
    why_none: str = NO_POSES


def camera_poses(
    reader: AnyReader, deltas: Sequence[SemanticDelta], *, is_recorded: bool, is_simulated: bool
) -> CameraPoses:
    """Find out where the camera was.

    Args:
        reader: The bag of the episode.
        deltas: What was seen.
        is_recorded: The deltas were perceived live, from poses that only their keyframes tell.
        is_simulated: The odometry is the camera's.

    Raises:
        BagError: A message is damaged.
    """
    if len({delta.camera for delta in deltas}) > 1:
        return CameraPoses(why_none='several cameras, each with a motion of its own')
    seen_from = _keyframe_poses(reader)
    own = [seen_from.get((delta.camera, delta.stamp_ns)) for delta in deltas]
    if all(own) and not is_simulated:
        is_tf = odometry_source(reader) is None and transform_source(reader) is not None
        return _checked(own, 'tf' if is_tf else 'odometry')
    if is_recorded and not is_simulated:
        why = 'not every keyframe is recorded with the pose of its camera'
        found = _from_transforms(reader, deltas)
        return found if found and found.poses else CameraPoses(why_none=why)
    return (
        _from_odometry(reader, deltas, {} if is_simulated else seen_from)
        or _from_transforms(reader, deltas)
        or CameraPoses()
    )


def _keyframe_poses(reader: AnyReader) -> dict[tuple[str, int], Pose]:
    """Pose of the camera link by camera and stamp, as it was when the keyframe was chosen."""
    topics = [t for t in topics_of_type(reader, _KEYFRAME) if '/truth/' not in t]

    def pose_of(msg: Any) -> tuple[tuple[str, int], Pose | None]:
        pose = pose_from_msg(msg.pose, msg.pose_frame_id) if msg.has_pose else None
        return (msg.camera, stamp_ns_from_msg(msg.header.stamp)), pose

    poses = read_values(reader, topics, pose_of)
    return {at: pose for at, pose in poses if pose and any(pose.orientation)}


def _from_odometry(
    reader: AnyReader,
    deltas: Sequence[SemanticDelta],
    seen_from: dict[tuple[str, int], Pose],
) -> CameraPoses | None:
    """Poses of the odometry's body; None: there is no one odometry."""
    source = odometry_source(reader)
    if source is None:
        return None
    stamps = [delta.stamp_ns for delta in deltas]
    wanted = [(stamp_ns, '') for stamp_ns in (*stamps, *(at for _, at in seen_from))]
    found = poses_at(reader, source, wanted)
    if any(_looks_aside(pose, found[at, '']) for (_, at), pose in seen_from.items()):
        return CameraPoses(why_none='the odometry is not that of the camera')
    return _checked([found[stamp_ns, ''] for stamp_ns in stamps], source.name)


def _from_transforms(reader: AnyReader, deltas: Sequence[SemanticDelta]) -> CameraPoses | None:
    """Poses of the camera's own frame; None: there are no transforms of one robot."""
    source = transform_source(reader)
    if source is None:
        return None
    wanted = [(delta.stamp_ns, delta.frame_id) for delta in deltas]
    found = poses_at(reader, source, wanted)
    return _checked([found[at] for at in wanted], source.name)


def _checked(poses: Iterable[Pose | NoPose | None], source: str) -> CameraPoses:
    """Poses that are all known and in one frame, or why not."""
    known = []
    for pose in poses:
        if not isinstance(pose, Pose):
            why = pose.reason if pose else NO_POSES
            return CameraPoses(source=source, why_none=why)
        known.append(pose)
    if len({pose.frame_id for pose in known}) > 1:
        return CameraPoses(source=source, why_none='the fixed frame of the poses changes')
    return CameraPoses(tuple(known), source)


def _looks_aside(camera: Pose, body: Pose | NoPose) -> bool:
    """Tell whether a camera looks another way than the odometry's body."""
    if isinstance(body, NoPose):
        return False
    rotation, _ = relative_motion(body, camera)
    return max(map(abs, yaw_pitch_roll(rotation))) > _SAME_WAY_RAD
