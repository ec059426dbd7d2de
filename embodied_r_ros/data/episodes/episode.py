# SPDX-License-Identifier: Apache-2.0
"""An episode, read from its bag: deltas, poses of the camera, what an arm did, ground truth."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
import logging
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import (
    IMAGE_TYPES,
    stamp_ns_from_msg,
)
from embodied_r_ros.bags.poses import camera_poses, NO_POSES
from embodied_r_ros.bags.reader import (
    open_bag,
    read_messages,
    read_values,
    tell_left_out,
    topics_of_type,
)
from embodied_r_ros.common.errors import BagError, ImageError, InputError
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeOutcome, LabelLayer
from embodied_r_ros.core.types.layout import Layout
from embodied_r_ros.data.arm_room import arm_room, has_arm
from embodied_r_ros.data.episodes.answers import AnswerLog, read_answer_log, with_labels
from embodied_r_ros.data.episodes.contents import delta_topics, keyframe_topics
from embodied_r_ros.data.episodes.labels import labels_path, read_labels
from embodied_r_ros.data.own_messages import delta_from_msg, keyframe_from_msg, mark_from_msg

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.episodes import EpisodeMark
    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.keyframes import Keyframe

_LOG = logging.getLogger(__name__)
DELTA_SOURCES = ('recorded', 'true', 'classical', 'vlm')
TRUE_LAYOUT = '/truth/layout'
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
    arm: Any = None  # what an arm did (`ArmEpisode`); None: no arm was recorded
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
    robot: Any = None,
) -> Episode:
    """Read an episode.

    >>> from pathlib import Path
    >>> read_episode(Path('samples/indoor/episode_00000'), 'true').camera
    'camera'

    Args:
        path: A rosbag2 folder, or a bare .mcap or .db3 file.
        delta_source: One of DELTA_SOURCES; None: what the bag has recorded, else perceived anew.
        perceive: Perceives the images of a bag; needed where deltas are not read from it.
        robot: How a demonstration of an arm is to be read (`arm.robot.Robot`); None: as the bag
            says.

    Raises:
        BagError: It is not a readable bag, or does not have the requested deltas.
        InputError: The labels beside it cannot be read.
    """
    layer = read_labels(path)
    for damage in layer.damage:
        _LOG.warning('%s: %s is left out', labels_path(path), damage)
    with open_bag(path) as reader:
        recorded, true = delta_topics(reader)
        source = delta_source or ('recorded' if recorded else 'classical')
        topics = {'recorded': recorded, 'true': true}.get(source, [])
        deltas: Sequence[SemanticDelta] = _read(reader, topics, delta_from_msg)
        log = read_answer_log(reader, tuple(deltas) if source == 'recorded' else ())
        layout = _layout(reader)
        arm = arm_room().read_arm_episode(reader, robot) if has_arm(reader, robot) else None
        marks = read_marks(reader)
        start = first_mark(marks, EpisodeEvent.START)
        stop = first_mark(marks[::-1], EpisodeEvent.STOP)
        episode_id = start.episode_id if start else path.stem
        if arm and source == 'true' and not true:
            deltas = arm_room().ground_truth_deltas_of_arm(reader, robot, arm, episode_id)
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
        recorded, true = delta_topics(reader)
    source = 'recorded' if recorded else 'true' if true else ''
    return read_episode(path, source) if source else None


def episode_id_of(path: Path) -> str:
    """The id of the episode in a bag, which its rows have: by its mark, else its name.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        start = first_mark(read_marks(reader), EpisodeEvent.START)
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
        deltas = _read(reader, delta_topics(reader)[0], delta_from_msg)
        return with_labels(read_answer_log(reader, tuple(deltas)), layer)


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
        return _read(reader, delta_topics(reader)[0], delta_from_msg)


def _read(reader: BagReader, topics: Sequence[str], convert: Callable[[Any], Any]) -> list[Any]:
    return list(read_values(reader, topics, convert))


def read_marks(reader: BagReader) -> list[EpisodeMark]:
    """The marks of an episode, in the order of their receipt.

    Raises:
        BagError: One is damaged.
    """
    return _read(reader, topics_of_type(reader, _MARK), mark_from_msg)


def first_mark(marks: Sequence[EpisodeMark], event: EpisodeEvent) -> EpisodeMark | None:
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
