# SPDX-License-Identifier: Apache-2.0
"""What a bag proves of poses: by odometry, the transforms (tf2) in it, or other stamped poses."""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from dataclasses import dataclass
import logging
import math
import re
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.bags.messages import (
    body_pose_from_msg,
    pose_from_msg,
    stamp_ns_from_msg,
    STAMPED_POSES,
    transform_from_msg,
)
from embodied_r_ros.bags.reader import (
    first_message,
    read_messages,
    read_values,
    readable_topics,
    tell_left_out,
    topics_of_type,
)
from embodied_r_ros.core.types.geometry import Pose, relative_motion, yaw_pitch_roll
from embodied_r_ros.core.types.poses import (
    camera_of_body,
    FIXED_FRAMES,
    has_optical_axes,
    is_usual_frame,
    moves_with_robot,
    NoPose,
    PoseBuffer,
    TransformTree,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.deltas import SemanticDelta

_LOG = logging.getLogger(__name__)
NO_POSES = 'no odometry, no transforms and no true layout'
_ODOMETRY = 'nav_msgs/msg/Odometry'
_TRANSFORMS = 'tf2_msgs/msg/TFMessage'
_STATIC = 'tf_static'
# What has not come so long after an image does not come any more.
_PATIENCE_NS = 2_000_000_000


class PoseSource(Protocol):
    """Poses of a camera, taken from the messages of a bag one by one."""

    name: str  # as `source` of a row: 'odometry' or 'tf'
    topics: tuple[str, ...]  # to be read

    def take(self, msg: Any, received_ns: int) -> int:
        """Take a message of one of the topics; returns its newest stamp [ns].

        A stamp of zero is one that its publisher left out: the time of receipt stands for it.
        """

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether waiting for more messages gains nothing for a stamp."""

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp, of the camera whose images have this frame."""


class OdometryPoses:
    """Poses of the body that odometry is of, and of the camera that transforms mount on it.

    `types.poses.camera_of_body` says what the pose of a body tells of a camera.
    """

    name = 'odometry'

    def __init__(
        self, topic: str, mounts: TransformPoses | None = None, capacity: int = 500
    ) -> None:
        """Take the topic, the transforms of the robot, and how many poses are kept."""
        self.topics: tuple[str, ...] = (topic, *(mounts.topics if mounts else ()))
        self._topic = topic
        self._mounts = mounts
        self._poses = PoseBuffer(capacity)
        self._body = ''  # child_frame_id
        self._has_told = False

    def take(self, msg: Any, received_ns: int) -> int:
        """Take a message of a pose, or transforms."""
        if self._mounts and hasattr(msg, 'transforms'):
            return self._mounts.take(msg, received_ns)
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or received_ns
        pose, self._body = body_pose_from_msg(msg)
        with suppress(ValueError):  # an orientation of zeros, before odometry has started
            self._poses.add(stamp_ns, pose)
        return stamp_ns

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether odometry goes on until a stamp, and what moves the camera on the body."""
        mounts = self._mounts_of(frame_id)
        return self._poses.reaches(stamp_ns) and (
            mounts is None or mounts.reaches_between(self._body, frame_id, stamp_ns)
        )

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp."""
        pose = self._poses.at(stamp_ns)
        if pose is None:
            return NoPose('the odometry has gaps at images')

        def mount(body: str) -> Pose | NoPose | None:
            mounts = self._mounts_of(frame_id)
            if mounts is None:
                self._tell_assumption(pose)
                return None
            link = mounts.camera_in(body, frame_id, stamp_ns)
            if isinstance(link, Pose):
                return link
            why = f'where the camera is on {body!r}, the body of {self._topic}: {link.reason}'
            return NoPose(f'transforms do not say {why}')

        return camera_of_body(pose, self._body, frame_id, mount)

    def _tell_assumption(self, pose: Pose) -> None:
        """Say once that a pose is taken for the camera's, where it may be of something else."""
        is_optical = has_optical_axes(self._body, pose)
        if self._has_told or (self._body and not is_optical):
            return
        self._has_told = True
        what = (
            f'is of {self._body!r}, and no transform says where the camera is on it'
            if self._body
            else 'names no body'
        )
        text = 'the pose of topic %s %s: it is taken for the camera, %s forward'
        _LOG.warning(text, self._topic, what, 'z' if is_optical else 'x')

    def _mounts_of(self, frame_id: str) -> TransformPoses | None:
        """The transforms that hold the frame of a camera; None: there are none."""
        return self._mounts if self._mounts and self._mounts.has(frame_id) else None


class TransformPoses:
    """Poses of the camera's own frame, from a chain of transforms."""

    name = 'tf'

    def __init__(self, reader: BagReader, topics: tuple[str, ...]) -> None:
        """Read the static transforms; the moving ones are taken as they come.

        Raises:
            BagError: A message is damaged.
        """
        self.topics = topics
        self._tree = TransformTree()
        self._has_told = False
        static = [name for name in topics_of_type(reader, _TRANSFORMS) if name.endswith(_STATIC)]
        for _, _, msg in read_messages(reader, readable_topics(reader, static), tell_left_out):
            for transform in msg.transforms:
                with suppress(ValueError):
                    self._tree.add_static(transform.child_frame_id, transform_from_msg(transform))

    def take(self, msg: Any, received_ns: int) -> int:
        """Take a TFMessage."""
        newest_ns = 0
        for transform in msg.transforms:
            stamp_ns = stamp_ns_from_msg(transform.header.stamp) or received_ns
            newest_ns = max(newest_ns, stamp_ns)
            with suppress(ValueError):
                self._tree.add(transform.child_frame_id, stamp_ns, transform_from_msg(transform))
        return newest_ns

    def has(self, frame_id: str) -> bool:
        """Tell whether the transforms hold a frame."""
        return self._tree.has(frame_id)

    def reaches(self, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether the whole chain is known until a stamp."""
        return self._tree.reaches(frame_id, stamp_ns)

    def camera_at(self, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link at a stamp."""
        pose = self._tree.camera_at(frame_id, stamp_ns)
        if isinstance(pose, Pose) and not self._has_told and not is_usual_frame(pose.frame_id):
            self._has_told = True
            text = 'transforms have %s: poses are in %r, their root'
            _LOG.warning(text, f'neither {" nor ".join(FIXED_FRAMES)}', pose.frame_id)
        return pose

    def camera_in(self, body: str, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of the camera link in the frame of a body at a stamp."""
        return self._tree.camera_in(body, frame_id, stamp_ns)

    def reaches_between(self, fixed: str, frame_id: str, stamp_ns: int) -> bool:
        """Tell whether all that moves between two frames is known until a stamp."""
        return self._tree.reaches_between(fixed, frame_id, stamp_ns)

    def pose_in(self, fixed: str, frame_id: str, stamp_ns: int) -> Pose | NoPose:
        """Pose of a frame in any other one at a stamp."""
        return self._tree.pose_in(fixed, frame_id, stamp_ns)


def odometry_source(reader: BagReader) -> OdometryPoses | None:
    """The only odometry of a bag, or its only other stamped poses where transforms do not move.

    None: there is none, or there are several, and a line says so.

    Raises:
        BagError: A message is damaged.
    """
    topics, transforms = _with_messages(reader, _ODOMETRY), _transforms(reader)
    if not topics and not (transforms and transforms.topics):
        topics = [
            name
            for name in _with_messages(reader, *STAMPED_POSES)
            if _may_be_of_robot(reader, name)
        ]
    if len(topics) > 1:
        text = 'the odometry of bag %s is left out: several topics have some (%s)'
        _LOG.warning(text, reader.path, ', '.join(topics))
    return OdometryPoses(topics[0], transforms) if len(topics) == 1 else None


# Words in the names of topics whose poses are of something else than the robot, or wanted.
_OTHER_POSES = {
    'goal',
    'target',
    'initialpose',
    'initial',
    'setpoint',
    'desired',
    'command',
    'cmd',
}
_OTHER_POSES |= {
    'ee',
    'eef',
    'tcp',
    'tool',
    'gripper',
    'hand',
    'current',
    'marker',
    'tag',
    'object',
}
_OTHER_POSES |= {'clicked', 'human', 'person'}


def _may_be_of_robot(reader: BagReader, topic: str) -> bool:
    """Tell whether stamped poses are those of the robot in a fixed frame, by their names."""
    if _OTHER_POSES & set(re.split(r'[/_]', topic.lower())):
        return False
    msg = first_message(reader, topic)
    return msg is not None and not moves_with_robot(msg.header.frame_id)


def transform_source(reader: BagReader) -> TransformPoses | None:
    """The moving transforms of a bag; None: there are none, or those of several robots.

    Raises:
        BagError: A message is damaged.
    """
    source = _transforms(reader)
    return source if source and source.topics else None


def _transforms(reader: BagReader) -> TransformPoses | None:
    """The transforms of a bag, moving or not; None: there are none, or of several robots."""
    topics = _with_messages(reader, _TRANSFORMS)
    moving = tuple(topic for topic in topics if not topic.endswith(_STATIC))
    if len(moving) > 1:
        text = 'the transforms of bag %s are left out: several topics have some (%s)'
        _LOG.warning(text, reader.path, ', '.join(moving))
    return TransformPoses(reader, moving) if topics and len(moving) <= 1 else None


def pose_source(reader: BagReader) -> PoseSource | None:
    """The source of the camera's pose: odometry where there is one, else transforms.

    Raises:
        BagError: A message is damaged.
    """
    return odometry_source(reader) or transform_source(reader)


def poses_at(
    reader: BagReader, source: PoseSource, keys: Iterable[tuple[int, str]]
) -> dict[tuple[int, str], Pose | NoPose]:
    """Look up the pose at each stamp [ns] and frame of images.

    Raises:
        BagError: A message is damaged.
    """
    waiting = deque(sorted(set(keys)))
    poses: dict[tuple[int, str], Pose | NoPose] = {}

    def look_up() -> None:
        stamp_ns, frame_id = waiting.popleft()
        poses[stamp_ns, frame_id] = source.camera_at(frame_id, stamp_ns)

    for _, received_ns, msg in read_messages(reader, source.topics):
        newest_ns = source.take(msg, received_ns)
        while waiting and (
            source.reaches(waiting[0][1], waiting[0][0])
            or newest_ns > waiting[0][0] + _PATIENCE_NS
        ):
            look_up()
        if not waiting:
            break
    while waiting:
        look_up()
    return poses


def _with_messages(reader: BagReader, *type_names: str) -> list[str]:
    topics = topics_of_type(reader, *type_names)
    return [topic for topic in topics if reader.topics[topic].msgcount]


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
    reader: BagReader, deltas: Sequence[SemanticDelta], *, is_recorded: bool, is_simulated: bool
) -> CameraPoses:
    """Find out where the camera was.

    Args:
        reader: The bag of the episode.
        deltas: The deltas.
        is_recorded: The deltas were perceived live, from poses that only their keyframes hold.
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
        return _check(own, 'tf' if is_tf else 'odometry')
    if is_recorded and not is_simulated:
        why = 'not every keyframe is recorded with the pose of its camera'
        camera = _from_transforms(reader, deltas)
        return camera if camera and camera.poses else CameraPoses(why_none=why)
    return (
        _from_odometry(reader, deltas, {} if is_simulated else seen_from)
        or _from_transforms(reader, deltas)
        or CameraPoses()
    )


def _keyframe_poses(reader: BagReader) -> dict[tuple[str, int], Pose]:
    """Pose of the camera link by camera and stamp, as it was when the keyframe was chosen."""
    topics = [t for t in topics_of_type(reader, _KEYFRAME) if '/truth/' not in t]

    def pose_of(msg: Any) -> tuple[tuple[str, int], Pose | None]:
        pose = pose_from_msg(msg.pose, msg.pose_frame_id) if msg.has_pose else None
        return (msg.camera, stamp_ns_from_msg(msg.header.stamp)), pose

    poses = read_values(reader, topics, pose_of)
    return {at: pose for at, pose in poses if pose and any(pose.orientation)}


def _from_odometry(
    reader: BagReader,
    deltas: Sequence[SemanticDelta],
    seen_from: dict[tuple[str, int], Pose],
) -> CameraPoses | None:
    """Poses of the odometry's body; None: there is no one odometry."""
    source = odometry_source(reader)
    if source is None:
        return None
    frame_id = deltas[0].frame_id if deltas else ''  # there is one camera
    stamps = [delta.stamp_ns for delta in deltas]
    keys = [(stamp_ns, frame_id) for stamp_ns in (*stamps, *(at for _, at in seen_from))]
    poses = poses_at(reader, source, keys)
    if any(_looks_aside(pose, poses[at, frame_id]) for (_, at), pose in seen_from.items()):
        return CameraPoses(why_none='the odometry is not that of the camera')
    return _check([poses[stamp_ns, frame_id] for stamp_ns in stamps], source.name)


def _from_transforms(reader: BagReader, deltas: Sequence[SemanticDelta]) -> CameraPoses | None:
    """Poses of the camera's own frame; None: there are no transforms of one robot."""
    source = transform_source(reader)
    if source is None:
        return None
    keys = [(delta.stamp_ns, delta.frame_id) for delta in deltas]
    poses = poses_at(reader, source, keys)
    return _check([poses[at] for at in keys], source.name)


def _check(poses: Iterable[Pose | NoPose | None], source: str) -> CameraPoses:
    """Poses that are all known and in one frame, or why not."""
    valid = []
    for pose in poses:
        if not isinstance(pose, Pose):
            why = pose.reason if pose else NO_POSES
            return CameraPoses(source=source, why_none=why)
        valid.append(pose)
    if len({pose.frame_id for pose in valid}) > 1:
        return CameraPoses(source=source, why_none='the fixed frame of the poses changes')
    return CameraPoses(tuple(valid), source)


def _looks_aside(camera: Pose, body: Pose | NoPose) -> bool:
    """Tell whether a camera looks another way than the odometry's body."""
    if isinstance(body, NoPose):
        return False
    rotation, _ = relative_motion(body, camera)
    return max(map(abs, yaw_pitch_roll(rotation))) > _SAME_WAY_RAD
