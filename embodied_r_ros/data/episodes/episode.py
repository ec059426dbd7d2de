# SPDX-License-Identifier: Apache-2.0
"""An episode, read from its bag: deltas, poses of the camera, what an arm did, ground truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
import logging
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import arm_episode, DemonstrationTruth, TRUTH_TOPIC
from embodied_r_ros.arm.demonstration_bag import CAMERA_FRAME, read_demonstration, setup_of
from embodied_r_ros.arm.keypoint_rules import find_keypoints
from embodied_r_ros.arm.robot import RobotMetadata, SETUP_TOPIC
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.bags.images import camera_info_topic, choose_image_topic
from embodied_r_ros.bags.messages import (
    IMAGE_TYPES,
    intrinsics_from_camera_info,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.poses import camera_poses, NO_POSES, TransformPoses
from embodied_r_ros.bags.reader import (
    open_bag,
    read_messages,
    read_values,
    tell_left_out,
    topics_of_type,
)
from embodied_r_ros.common.errors import BagError, ImageError, InputError
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeOutcome, LabelLayer
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.layout import Layout
from embodied_r_ros.data.episodes.answers import AnswerLog, read_answer_log, with_labels
from embodied_r_ros.data.episodes.ground_truth import ground_truth_arm_deltas
from embodied_r_ros.data.episodes.labels import labels_path, read_labels
from embodied_r_ros.data.own_messages import delta_from_msg, keyframe_from_msg, mark_from_msg

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import ArmEpisode, Demonstration
    from embodied_r_ros.arm.robot import ArmSetup, Robot
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.keyframes.selector import Keyframe
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.episodes import EpisodeMark
    from embodied_r_ros.core.types.geometry import Intrinsics, Orientation

_LOG = logging.getLogger(__name__)
DELTA_SOURCES = ('recorded', 'true', 'classical', 'vlm')
GROUND_TRUTH_DELTAS = '/truth/semantic_delta'
TRUE_LAYOUT = '/truth/layout'
_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_DELTA = 'embodied_r_msgs/msg/SemanticDelta'
_MARK = 'embodied_r_msgs/msg/EpisodeMark'


@dataclass(frozen=True)
class Episode:
    """What one bag holds about one episode."""

    id: str
    scene_id: str
    camera: str
    deltas: tuple[SemanticDelta, ...]  # oldest first, failed ones included
    delta_source: str  # one of DELTA_SOURCES
    poses: tuple[Pose, ...] = ()  # of the camera link at each delta; empty: not all known
    layout: Layout | None = None  # None: not simulated
    no_poses: str = NO_POSES  # why there are no poses, where there are none
    pose_source: str = 'odometry'  # where the poses come from, without a layout
    log: AnswerLog = field(default_factory=AnswerLog)  # answers that were given live
    labels: LabelLayer = field(default_factory=LabelLayer)  # beside the recording
    arm: ArmEpisode | None = None  # what an arm did; None: no arm was recorded
    outcome: EpisodeOutcome = EpisodeOutcome.UNSET  # as marked when it stopped

    @cached_property
    def posed_deltas(self) -> tuple[SemanticDelta, ...]:
        """The deltas with their poses, where these are known."""
        poses = self.poses or [None] * len(self.deltas)
        pairs = zip(self.deltas, poses, strict=True)
        return tuple(replace(delta, pose=delta.pose or pose) for delta, pose in pairs)


def read_episode(
    path: Path,
    delta_source: str | None = None,
    perceive: Callable[[Path], Sequence[SemanticDelta]] | None = None,
    robot: Robot | None = None,
) -> Episode:
    """Read an episode.

    Args:
        path: A rosbag2 folder, or a bare .mcap or .db3 file.
        delta_source: One of DELTA_SOURCES; None: what the bag has recorded, else perceived anew.
        perceive: Perceives the images of a bag; needed where deltas are not read from it.
        robot: How a demonstration of an arm is to be read; None: as the bag says.

    Raises:
        BagError: It is not a readable bag, or does not have the requested deltas.
        InputError: The labels beside it cannot be read.
    """
    layer = read_labels(path)
    for damage in layer.damage:
        _LOG.warning('%s: %s is left out', labels_path(path), damage)
    with open_bag(path) as reader:
        recorded, true = _delta_topics(reader)
        source = delta_source or ('recorded' if recorded else 'classical')
        topics = {'recorded': recorded, 'true': true}.get(source, [])
        deltas: Sequence[SemanticDelta] = _read(reader, topics, delta_from_msg)
        log = read_answer_log(reader, tuple(deltas) if source == 'recorded' else ())
        layout = _layout(reader)
        arm = read_arm_episode(reader, robot) if has_arm(reader, robot) else None
        marks = read_marks(reader)
        start = _first(marks, EpisodeEvent.START)
        stop = _first(marks[::-1], EpisodeEvent.STOP)
        episode_id = start.episode_id if start else path.stem
        if arm and source == 'true' and not true:
            deltas = ground_truth_deltas_of_arm(reader, robot, arm, episode_id)
        is_blind = not topics_of_type(reader, *IMAGE_TYPES)
        if not topics and not deltas and not (arm and is_blind):
            if is_blind and true and source not in {'recorded', 'true'}:
                msg = f'bag {path} has ground-truth deltas and no images: use --deltas true'
                raise BagError(msg)
            deltas = _perceive(path, source, perceive)
        deltas = sorted(deltas, key=lambda delta: delta.stamp_ns)
        camera = camera_poses(
            reader, deltas, is_recorded=source == 'recorded', is_simulated=layout is not None
        )
    return Episode(
        id=episode_id,
        scene_id=(start.scene_id if start else '') or episode_id,
        camera=deltas[0].camera if deltas else 'camera',
        deltas=tuple(deltas),
        delta_source=source,
        poses=camera.poses,
        layout=layout,
        no_poses=camera.why_none,
        pose_source=camera.source,
        log=with_labels(log, layer),
        labels=layer,
        arm=arm,
        outcome=stop.outcome if stop else EpisodeOutcome.UNSET,
    )


def read_as_recorded(path: Path) -> Episode | None:
    """What was recorded of an episode, else what is true of it; None: neither.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        recorded, true = _delta_topics(reader)
    source = 'recorded' if recorded else 'true' if true else ''
    return read_episode(path, source) if source else None


def episode_id_of(path: Path) -> str:
    """The id of the episode in a bag, which its rows have: by its mark, else its name.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        start = _first(read_marks(reader), EpisodeEvent.START)
    return start.episode_id if start else path.stem


def read_layout(path: Path) -> Layout | None:
    """The true layout that a simulated recording holds; None: it holds none.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        return _layout(reader)


def read_answers(path: Path) -> AnswerLog:
    """The answers that a recording holds, with all recorded deltas and the labels beside it.

    Raises:
        BagError: It is not a readable bag.
        InputError: The labels cannot be read.
    """
    layer = read_labels(path)
    with open_bag(path) as reader:
        deltas = _read(reader, _delta_topics(reader)[0], delta_from_msg)
        return with_labels(read_answer_log(reader, tuple(deltas)), layer)


def keyframe_topics(reader: BagReader) -> list[str]:
    """Topics of keyframes that a robot chose; else of those of its simulation."""
    topics = topics_of_type(reader, _KEYFRAME)
    return [topic for topic in topics if '/truth/' not in topic] or topics


def read_keyframes(
    path: Path, wanted: Collection[tuple[str, int]] | None = None, topic: str | None = None
) -> Iterator[Keyframe]:
    """Recorded keyframes, in the order of their receipt; damaged ones are left out.

    Args:
        path: The recording.
        wanted: Cameras and stamps [ns] of those to be read; None: all.
        topic: Theirs; None: those of all cameras.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        topics = keyframe_topics(reader) if topic is None else [topic]
        for _, _, msg in read_messages(reader, topics, tell_left_out):
            at = msg.camera, stamp_ns_from_msg(msg.header.stamp)
            if wanted is not None and at not in wanted:
                continue
            try:
                yield keyframe_from_msg(msg)
            except ImageError as error:
                _LOG.warning('keyframe %d of %s is left out: %s', msg.id, path, error)


def read_recorded_deltas(path: Path) -> list[SemanticDelta]:
    """Deltas that were recorded live, in the order of their receipt.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        return _read(reader, _delta_topics(reader)[0], delta_from_msg)


def has_deltas(reader: BagReader) -> bool:
    """Tell whether a bag has deltas that were recorded live."""
    return bool(_delta_topics(reader)[0])


def _delta_topics(reader: BagReader) -> tuple[list[str], list[str]]:
    """Topics of recorded and of ground-truth deltas."""
    topics = topics_of_type(reader, _DELTA)
    true = [topic for topic in topics if topic.endswith(GROUND_TRUTH_DELTAS)]
    return [topic for topic in topics if topic not in true], true


def _read(reader: BagReader, topics: Sequence[str], convert: Callable[[Any], Any]) -> list[Any]:
    return list(read_values(reader, topics, convert))


def read_marks(reader: BagReader) -> list[EpisodeMark]:
    """The marks of an episode, in the order of their receipt.

    Raises:
        BagError: One is damaged.
    """
    return _read(reader, topics_of_type(reader, _MARK), mark_from_msg)


def _first(marks: Sequence[EpisodeMark], event: EpisodeEvent) -> EpisodeMark | None:
    """The first mark of an event; None: there is none."""
    return next((mark for mark in marks if mark.event is event), None)


def _layout(reader: BagReader) -> Layout | None:
    topics = [c.topic for c in reader.connections if c.topic.endswith(TRUE_LAYOUT)]
    texts = _read(reader, topics[:1], lambda msg: msg.data)
    return Layout.from_json(texts[0]) if texts else None


def _perceive(
    path: Path, source: str, perceive: Callable[[Path], Sequence[SemanticDelta]] | None
) -> Sequence[SemanticDelta]:
    if source in {'recorded', 'true'}:
        msg = f'bag {path} has no {source} deltas: use --deltas classical, or record them'
        raise BagError(msg)
    if perceive is None:
        msg = f'deltas {source!r} of bag {path} must be perceived anew: name a perceiver'
        raise InputError(msg)
    deltas = perceive(path)
    if all(delta.kind is DeltaKind.FAILED for delta in deltas):
        why = deltas[0].error if deltas else 'there are none'
        msg = f'perception of bag {path} failed for all {len(deltas)} keyframes: {why}'
        raise BagError(msg)
    return deltas


def has_arm(reader: BagReader, robot: Robot | None) -> bool:
    """Tell whether a bag says that it is of an arm, or is said to be."""
    return SETUP_TOPIC in reader.topics or bool(robot and robot.setup)


def keyframes_of_arm(path: Path, robot: Robot | None) -> KeyframeConfig | None:
    """When the images of a bag of an arm are looked at; None: the bag is of no arm.

    A camera that stands still sees a view that hardly changes while the arm goes about, so that
    time decides too.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        if not has_arm(reader, robot):
            return None
    placing = robot.placing if robot else PlacingConfig()
    return KeyframeConfig(max_interval_s=placing.look_every_s)


def ground_truth_deltas_of_arm(
    reader: BagReader, robot: Robot | None, arm: ArmEpisode, episode_id: str
) -> list[SemanticDelta]:
    """Ground-truth deltas of a simulated demonstration; empty: the bag holds no truth.

    Raises:
        InputError: The truth cannot be read.
    """
    if TRUTH_TOPIC not in reader.topics or arm.camera is None:
        return []
    text = next(iter(read_values(reader, [TRUTH_TOPIC], lambda msg: str(msg.data))))
    placing = robot.placing if robot else PlacingConfig()
    truth = DemonstrationTruth.from_json(text)
    return ground_truth_arm_deltas(truth, arm.camera, placing.look_every_s, episode_id)


def read_arm_episode(reader: BagReader, robot: Robot | None) -> ArmEpisode:
    """Read the one demonstration of a bag.

    Args:
        reader: The bag.
        robot: How it is to be read, and which keypoints count; None: as the bag says.

    Raises:
        InputError: Something that it must have is missing, there are several, or it is damaged.
    """
    setup = (robot and robot.setup) or setup_of(reader)
    rule = robot.questions.keypoint_rule if robot else 'seconds'
    stops = robot.stops if robot else None
    samples, keypoints = find_keypoints(read_demonstration(reader, setup), rule, stops)
    camera, intrinsics = _camera(reader, setup)
    return arm_episode(
        samples,
        keypoints,
        _orientations(samples),
        (camera, intrinsics),
        RobotMetadata(
            frame_id=setup.frame_id,
            reference=setup.reference,
            gripper_size=setup.gripper_size,
        ),
    )


def _camera(reader: BagReader, setup: ArmSetup) -> tuple[Pose | None, Intrinsics | None]:
    """Pose of the camera's optical frame in the task frame, and its intrinsics, where known."""
    if not setup.image_topic and not topics_of_type(reader, *IMAGE_TYPES):
        # A demonstration of ours without images has the frame of its camera all the same.
        where = TransformPoses(reader, ()).pose_in(setup.frame_id, CAMERA_FRAME, 0)
        return where if isinstance(where, Pose) else None, None
    topic = choose_image_topic(reader, setup.image_topic or None)
    frame = _first_value(reader, topic, lambda msg: str(msg.header.frame_id))
    # A camera that moves has no words for axes, so only static transforms count.
    pose = TransformPoses(reader, ()).pose_in(setup.frame_id, frame, 0) if frame else None
    about = camera_info_topic(reader, topic)
    intrinsics = _first_value(reader, about, intrinsics_from_camera_info) if about else None
    return pose if isinstance(pose, Pose) else None, intrinsics


def _first_value(reader: BagReader, topic: str, convert: Any) -> Any:
    """A value of the first message of a topic; None: there is none."""
    return next(iter(read_values(reader, [topic], convert)), None)


def _orientations(samples: Demonstration) -> Sequence[Orientation]:
    """Orientation of the end effector at each sample; empty: not all are known."""
    if samples.orientations is None:
        return ()
    return [(x, y, z, w) for x, y, z, w in samples.orientations.tolist()]
