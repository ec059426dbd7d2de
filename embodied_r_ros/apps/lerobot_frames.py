# SPDX-License-Identifier: Apache-2.0
"""What a dataset of LeRobot has of a recording on each frame: pictures, robot, and language.

Of the robot it is where it was, and what it did next. Language columns:
https://huggingface.co/docs/lerobot/language_and_recipes. A question and its answer are a pair of
rows of style `vqa` on one frame, and how the camera moved is a row of style `motion`.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.film import film_topics
from embodied_r_ros.bags.images import ImageDecoder
from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.bags.poses import pose_source, poses_at
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.core.types.geometry import NS_PER_S, Pose
from embodied_r_ros.data.arm_room import arm_room, has_arm
from embodied_r_ros.data.episodes.contents import keyframe_topics
import numpy as np
from scipy.spatial.transform import Rotation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.proofs import RecordedQuestion
    from numpy.typing import NDArray


_POSE_NAMES = ('x', 'y', 'z', 'qx', 'qy', 'qz', 'qw')
_SPEED_NAMES = ('x.vel', 'y.vel', 'z.vel', 'yaw.vel')
_COMPRESSED = '/compressed'
TOOL, CAMERA = 'tool', 'camera'  # whose pose is known


@dataclass(frozen=True)
class Camera:
    """A camera of a recording."""

    key: str  # the feature
    topic: str
    is_keyframes: bool  # its pictures are those of keyframes


@dataclass
class PictureTrack:
    """The pictures of a camera, of which each stays until the next one."""

    first_ns: int = 0
    last_ns: int = 0
    frame_id: str = ''

    def take(self, msg: Any, time_ns: int) -> int:
        """Take a message; returns its stamp [ns]."""
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or time_ns
        self.first_ns = min(self.first_ns or stamp_ns, stamp_ns)
        self.last_ns = max(self.last_ns, stamp_ns)
        self.frame_id = self.frame_id or str(msg.header.frame_id)
        return stamp_ns


@dataclass(frozen=True)
class RobotMotion:
    """Where a robot was at each frame, and what it did until the next one."""

    state_names: tuple[str, ...]
    states: NDArray[np.float64]  # (frames, names)
    action_names: tuple[str, ...]
    actions: NDArray[np.float64]  # (frames, names)


def known_poses(bags: Iterable[Path]) -> str:
    """Whose pose all recordings know: of the tool of an arm, of the camera, or of neither ('').

    Raises:
        BagError: One cannot be read.
        ConfigError: One states a setup of an arm that is none.
    """
    kinds = set()
    for bag in bags:
        with open_bag(bag) as reader:
            if has_arm(reader, None):
                kinds.add(TOOL if arm_room().setup_of(reader).poses != 'none' else '')
            else:
                kinds.add(CAMERA if pose_source(reader) else '')
    return kinds.pop() if len(kinds) == 1 else ''


def robot_motion(
    reader: BagReader, kind: str, stamps: Sequence[int], fps: int, frame_id: str
) -> RobotMotion:
    """States and actions of a robot at the stamps of frames.

    The state is a pose: position [m] and quaternion, for an arm also the opening of its gripper
    (0 closed, 1 open). What is not known at a stamp is what was known last. The action of an arm
    is its state at the next frame, which is where it was led. Of a camera it is the velocity up to
    the next frame, in the level frame of the camera (REP 103) [m/s, rad/s]. That of the last frame
    is to stay.

    Args:
        reader: The recording.
        kind: Whose pose, as of `known_poses`.
        stamps: Of the frames [ns].
        fps: Frames a second.
        frame_id: Frame of the camera's images.

    Raises:
        BagError: The recording is damaged.
        InputError: The pose is never known.
    """
    if kind == TOOL:
        names, states = _tool_states(reader, stamps)
        return RobotMotion(names, states, names, np.vstack([states[1:], states[-1:]]))
    states = _camera_states(reader, stamps, frame_id)
    return RobotMotion(_POSE_NAMES, states, _SPEED_NAMES, _velocities(states, fps))


def _tool_states(
    reader: BagReader, stamps: Sequence[int]
) -> tuple[tuple[str, ...], NDArray[np.float64]]:
    """Names and values of what is known of an arm, in the task frame."""
    arm = arm_room().read_demonstration(reader)
    if arm.positions is None:
        msg = 'it records speeds of joints, and no pose of the tool'
        raise InputError(msg)
    parts = [arm.positions]
    names: tuple[str, ...] = _POSE_NAMES[:3]
    if arm.orientations is not None:
        parts, names = [*parts, arm.orientations], _POSE_NAMES
    if arm.openings is not None:
        parts, names = [*parts, arm.openings[:, np.newaxis]], (*names, 'gripper')
    newest = np.searchsorted(arm.stamps_ns, np.asarray(stamps), 'right') - 1
    return names, np.hstack(parts)[np.maximum(newest, 0)]


def _velocities(states: NDArray[np.float64], fps: int) -> NDArray[np.float64]:
    """Velocities from each pose to the next, level and along the first one's heading, (N, 4)."""
    turns = Rotation.from_quat(states[:, 3:])
    forward = turns.apply([1.0, 0.0, 0.0])
    yaw = np.arctan2(forward[:, 1], forward[:, 0])
    steps = np.diff(states[:, :3], axis=0, append=states[-1:, :3])
    turned = np.diff(yaw, append=yaw[-1:])
    level = Rotation.from_euler('z', -yaw[:, np.newaxis]).apply(steps)
    wrapped = (turned + np.pi) % (2 * np.pi) - np.pi
    return np.column_stack([level, wrapped]) * fps


def _camera_states(reader: BagReader, stamps: Sequence[int], frame_id: str) -> NDArray[np.float64]:
    """The pose of the camera at each stamp, (N, 7); where it is not known, that before or after.

    Raises:
        InputError: It is never known.
    """
    source = pose_source(reader)
    poses = poses_at(reader, source, [(at, frame_id) for at in stamps]) if source else {}
    known = [poses.get((at, frame_id)) for at in stamps]
    rows = [[*p.position, *p.orientation] if isinstance(p, Pose) else None for p in known]
    places = [place for place, row in enumerate(rows) if row]
    if not places:
        msg = 'the pose of its camera is never known'
        raise InputError(msg)
    nearest = [max(0, int(np.searchsorted(places, at, 'right')) - 1) for at in range(len(rows))]
    return np.array([rows[places[place]] for place in nearest], np.float64)


def plain_name(camera: str) -> str:
    """Name of a camera as a part of a feature's name, in which no slash may be."""
    return camera.strip('/').replace('/', '_').replace('.', '_') or 'camera'


def cameras_of(reader: BagReader) -> list[Camera]:
    """The cameras, by topics of images; without one, by those of keyframes.

    Raises:
        InputError: There are none.
    """
    images = film_topics(reader)
    topics = images or [t for t in keyframe_topics(reader) if reader.topics[t].msgcount]
    if not topics:
        msg = 'it has neither images nor keyframes'
        raise InputError(msg)
    # Of '/front/image/compressed' and of '/front/keyframe' the camera is 'front'.
    bases = [topic.removesuffix(_COMPRESSED) for topic in topics]
    names = [plain_name(base.rpartition('/')[0]) for base in bases]
    if len(set(names)) < len(names):
        names = [plain_name(base) for base in bases]
    return [
        Camera(f'observation.images.{name}', topic, not images)
        for name, topic in zip(names, topics, strict=True)
    ]


def tracks_of(reader: BagReader, cameras: Sequence[Camera]) -> dict[str, PictureTrack]:
    """When each camera has pictures.

    Raises:
        InputError: One has none.
    """
    tracks = {camera.topic: PictureTrack() for camera in cameras}
    for topic, time_ns, msg in read_messages(reader, list(tracks)):
        if not hasattr(msg, 'image') or len(msg.image.data):
            tracks[topic].take(msg, time_ns)
    for topic, track in tracks.items():
        if not track.last_ns:
            msg = f'{topic} has no pictures: it was recorded with images: none'
            raise InputError(msg)
    return {camera.key: tracks[camera.topic] for camera in cameras}


def pictures_at(
    reader: BagReader, camera: Camera, stamps: Sequence[int]
) -> Iterator[NDArray[np.uint8]]:
    """The picture of a camera at each stamp: the newest one until then, BGR (H, W, 3)."""
    decoder = ImageDecoder(camera.topic)

    def decode(msg: Any) -> NDArray[np.uint8]:
        return decoder.decode(msg.image if camera.is_keyframes else msg)[0]

    waiting, newest_ns = list(reversed(stamps)), 0
    current: Callable[[], NDArray[np.uint8]] | None = None
    for _, time_ns, msg in read_messages(reader, [camera.topic]):
        stamp_ns = stamp_ns_from_msg(msg.header.stamp) or time_ns
        if stamp_ns < newest_ns or (camera.is_keyframes and not len(msg.image.data)):
            continue
        while current and waiting and waiting[-1] < stamp_ns:
            waiting.pop()
            yield current()
        newest_ns, current = stamp_ns, _once(decode, msg)
    while current and waiting:
        waiting.pop()
        yield current()


def _once(decode: Callable[[Any], NDArray[np.uint8]], msg: Any) -> Callable[[], NDArray[np.uint8]]:
    """A picture that is decoded when it is first asked for, and not again."""
    decoded: list[NDArray[np.uint8]] = []

    def picture() -> NDArray[np.uint8]:
        if not decoded:
            decoded.append(decode(msg))
        return decoded[0]

    return picture


EVENTS, PERSISTENT = 'language_events', 'language_persistent'
_NEVER_NULL = ('role', 'timestamp')


class FrameLanguage:
    """Language rows of the frames of an episode, of which each camera has one pair on a frame."""

    def __init__(self, stamps: Sequence[int], keys: Sequence[str], fps: int) -> None:
        self.events: list[list[dict[str, Any]]] = [[] for _ in stamps]
        self.count = 0
        self._stamps, self._keys, self._fps = stamps, keys, fps

    def add_question(self, question: RecordedQuestion) -> None:
        """Put a question and its answer on the frame of its moment, or the next free one."""
        named = f'observation.images.{plain_name(question.camera)}'
        key = named if named in self._keys else self._keys[0]
        wanted = round((question.stamp_ns - self._stamps[0]) * self._fps / NS_PER_S)
        wanted = min(max(wanted, 0), len(self._stamps) - 1)
        order = [*range(wanted, len(self._stamps)), *reversed(range(wanted))]
        free = (at for at in order if all(row['camera'] != key for row in self.events[at]))
        frame = next(free, None)
        if frame is None:  # more questions than frames
            return
        lines = [f'{option_letter(i)}. {text}' for i, text in enumerate(question.options)]
        answer = {
            'label': 'scene',
            'attribute': 'answer',
            'value': question.answer,
            'source': question.source,
        }
        for role, content in (
            ('user', '\n'.join([question.question, *lines])),
            ('assistant', json.dumps(answer, ensure_ascii=False)),
        ):
            row = {'role': role, 'content': content, 'style': 'vqa', 'camera': key}
            self.events[frame].append(row)
        self.count += 1


def motion_rows(episode: Episode, stamps: Sequence[int], fps: int) -> list[dict[str, Any]]:
    """How the camera moved, as rows that hold from a frame until the next row."""
    rows = {}
    for before, delta in pairwise(episode.deltas):
        frame = max(0, round((before.stamp_ns - stamps[0]) * fps / NS_PER_S))
        if delta.action and frame < len(stamps):
            rows[frame] = {
                'role': 'assistant',
                'content': delta.action,
                'style': 'motion',
                'timestamp': float(np.float32(frame / fps)),
                'camera': None,
            }
    return list(rows.values())


def language_column(frames: Sequence[list[dict[str, Any]]], *, is_event: bool) -> Any:
    """A language column as an Arrow array; no row calls a tool."""
    import pyarrow as pa

    rows = [row for frame in frames for row in frame]
    kinds = {'role': pa.string(), 'content': pa.string(), 'style': pa.string()}
    kinds |= {} if is_event else {'timestamp': pa.float32()}
    kinds |= {'camera': pa.string()}
    columns = [pa.array([row[name] for row in rows], kind) for name, kind in kinds.items()]
    calls = pa.list_(pa.json_())
    fields = [pa.field(name, kind, name not in _NEVER_NULL) for name, kind in kinds.items()]
    structs = pa.StructArray.from_arrays(
        [*columns, pa.nulls(len(rows), calls)], fields=[*fields, pa.field('tool_calls', calls)]
    )
    ends = np.cumsum([0, *map(len, frames)])
    return pa.ListArray.from_arrays(pa.array(ends, pa.int32()), structs)
