# SPDX-License-Identifier: Apache-2.0
"""Messages of embodied_r_msgs as values and back: keyframes, deltas, answers, proposals.

Tables say which fields of a message are which of a value, and how one is made of the other. A
field that recordings of before lack has the default of its value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import Any, Generic, TYPE_CHECKING, TypeVar

from embodied_r_ros.bags.messages import (
    duration_to_msg,
    encoded_image_from_msg,
    encoded_image_to_msg,
    header_to_msg,
    intrinsics_of_arrays,
    pose_from_msg,
    pose_to_msg,
    stamp_ns_from_msg,
    stamp_to_msg,
    vector_from_msg,
    vector_to_msg,
)
from embodied_r_ros.core.types.answers import (
    Answer,
    AnswerKind,
    Check,
    FocusText,
    Freshness,
    Gripper,
    KeypointProposal,
    RejectedCompletion,
    Sampling,
    ToolCall,
)
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    Motion,
    MotionSource,
    Rung,
    ScaleSource,
    SemanticDelta,
    with_ways,
)
from embodied_r_ros.core.types.episodes import (
    AnswerLabel,
    EpisodeEvent,
    EpisodeMark,
    EpisodeOutcome,
    LabelVerdict,
)
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage, PackedDepth, PackedMask
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap

if TYPE_CHECKING:
    from collections.abc import Callable
    from enum import Enum

    from embodied_r_ros.bags.message_types import MessageFactory

Value = TypeVar('Value')
_M = 'embodied_r_msgs/msg/'


@dataclass(frozen=True)
class _Kind:
    """How a field of a message and a part of a value are made of one another."""

    to_msg: Callable[[MessageFactory, Any], Any]
    from_msg: Callable[[Any], Any]


def _of(convert: Callable[[Any], Any]) -> _Kind:
    return _Kind(lambda _, part: convert(part), convert)


def _enum(kind: type[Enum]) -> _Kind:
    return _Kind(lambda _, part: part.value, kind)


def _vector(name: str) -> _Kind:
    return _Kind(lambda factory, part: vector_to_msg(factory, name, part), vector_from_msg)


def _each(kind: _Kind) -> _Kind:
    return _Kind(
        lambda factory, parts: [kind.to_msg(factory, part) for part in parts],
        lambda msgs: tuple(map(kind.from_msg, msgs)),
    )


_TEXT, _INT, _FLOAT, _BOOL = _of(str), _of(int), _of(float), _of(bool)
_TEXTS, _STAMP = _each(_TEXT), _Kind(stamp_to_msg, stamp_ns_from_msg)
_DURATION = _Kind(duration_to_msg, stamp_ns_from_msg)
_UINTS = _Kind(
    lambda factory, part: factory.array('uint32', list(part)),
    lambda values: tuple(map(int, values)),
)
_FRESHNESS, _SCALE = _enum(Freshness), _enum(ScaleSource)


class _Table(Generic[Value]):
    """The fields of a message, and the value that they make."""

    def __init__(self, value: type[Value], fields: dict[str, _Kind], name: str = '') -> None:
        """Take the fields.

        Args:
            value: Class of the value.
            fields: How fields are made, by their names, several with spaces between; where the
                value calls one otherwise, as 'field=part'; times are called `*_ns` there.
            name: Of the message; empty: as the class.
        """
        self._value, self._name = value, name or value.__name__
        self._fields: list[tuple[str, str, _Kind]] = []
        for names, kind in fields.items():
            is_time = kind in (_STAMP, _DURATION)
            for field, _, part in (each.partition('=') for each in names.split()):
                self._fields.append((field, part or (f'{field}_ns' if is_time else field), kind))

    def to_msg(self, factory: MessageFactory, value: Value, **others: Any) -> Any:
        """Make the message; others are fields of its own."""
        made = {
            field: kind.to_msg(factory, getattr(value, part)) for field, part, kind in self._fields
        }
        return factory.make(_M + self._name, **made, **others)

    def from_msg(self, msg: Any, **others: Any) -> Value:
        """Make the value; others are parts of its own."""
        made = {
            part: kind.from_msg(getattr(msg, field))
            for field, part, kind in self._fields
            if hasattr(msg, field)
        }
        return self._value(**made, **others)

    @property
    def kind(self) -> _Kind:
        """How a part of another message is made of it."""
        return _Kind(self.to_msg, self.from_msg)


_MODEL = _Table(ModelInfo, {'name digest adapter prompt_version': _TEXT, 'rung': _enum(Rung)})
_MOTION = _Table(
    Motion,
    {
        'source': _enum(MotionSource),
        'yaw_rad pitch_rad roll_rad confidence way_m': _FLOAT,
        'translation': _vector('Vector3'),
        'is_metric': _BOOL,
        'scale': _SCALE,
    },
)
_ITEM = _Table(
    Item,
    {
        'label': _TEXT,
        'status': _enum(ItemStatus),
        'bearing_rad elevation_rad size_rad distance_m confidence': _FLOAT,
        'scale': _SCALE,
    },
)
_FOCUS = _Table(FocusText, {'keyframe_id': _INT, 'stamp': _STAMP, 'text camera': _TEXT})
_CALL = _Table(
    ToolCall,
    {
        'tool value unit text request_id request reply': _TEXT,
        'turn': _INT,
        'arguments': _TEXTS,
        'landmark_ids delta_ids observations': _UINTS,
        'stamps=stamps_ns': _each(_STAMP),
    },
)
_SAMPLING = _Table(Sampling, {'temperature top_p': _FLOAT, 'max_tokens seed': _INT})
_REJECTED = _Table(RejectedCompletion, {'completion reason model': _TEXT})


def item_to_msg(factory: MessageFactory, item: Item) -> Any:
    """Make an Item message."""
    return _ITEM.to_msg(factory, item, box=factory.array('float32', item.box or (0.0,) * 4))


def item_from_msg(msg: Any) -> Item:
    """Item of its message."""
    left, top, right, bottom = (float(edge) for edge in getattr(msg, 'box', (0.0,) * 4))
    return _ITEM.from_msg(msg, box=(left, top, right, bottom) if right > left else None)


_KEYFRAME = _Table(
    Keyframe,
    {
        'episode_id camera': _TEXT,
        'id reference_id inliers dropped_images': _INT,
        'reason': _enum(KeyframeReason),
    },
)
_DELTA = _Table(
    SemanticDelta,
    {
        'episode_id camera action change error': _TEXT,
        'from_id to_id skipped': _INT,
        'from_stamp': _STAMP,
        'latency': _DURATION,
        'kind': _enum(DeltaKind),
        'motion': _MOTION.kind,
        'items': _each(_Kind(item_to_msg, item_from_msg)),
        'model': _MODEL.kind,
    },
)
_ANSWER = _Table(
    Answer,
    {
        'id episode_id question text think completion prompt prompt_sha256 sentence unit '
        'check_reason': _TEXT,
        'options choices turns': _TEXTS,
        'option_index deltas_merged deltas_omitted map_revision': _INT,
        'number confidence': _FLOAT,
        'standing has_goal': _BOOL,
        'delta_ids landmark_ids': _UINTS,
        'observation_stamp': _STAMP,
        'landmark_age observation_age time_to_first_token latency wait generation': _DURATION,
        'kind': _enum(AnswerKind),
        'freshness': _FRESHNESS,
        'check': _enum(Check),
        'focus': _each(_FOCUS.kind),
        'sampling': _SAMPLING.kind,
        'model': _MODEL.kind,
        'calls': _each(_CALL.kind),
        'rejected': _each(_REJECTED.kind),
    },
)
_LANDMARK = _Table(
    Landmark,
    {
        'id observations visit': _INT,
        'label change': _TEXT,
        'pinned': _BOOL,
        'position': _vector('Point'),
        'first_seen last_seen': _STAMP,
        'confidence': _FLOAT,
        'keyframe_ids': _UINTS,
    },
)
_POINT = _Table(PathPoint, {'stamp': _STAMP, 'position': _vector('Point'), 'yaw=yaw_rad': _FLOAT})
_LABEL = _Table(
    AnswerLabel,
    {'answer_id correction operator_name': _TEXT, 'verdict': _enum(LabelVerdict)},
)
_MARK = _Table(
    EpisodeMark,
    {
        'episode_id task scene_id': _TEXT,
        'event': _enum(EpisodeEvent),
        'outcome': _enum(EpisodeOutcome),
    },
)
_PROPOSAL = _Table(
    KeypointProposal,
    {
        'id episode_id task think': _TEXT,
        'candidates': _each(_vector('Point')),
        'candidate_index': _INT,
        'confidence': _FLOAT,
        'observation_stamp': _STAMP,
        'observation_age': _DURATION,
        'freshness': _FRESHNESS,
        'model': _MODEL.kind,
    },
)


def _number_or_nan(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _known(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def keyframe_to_msg(factory: MessageFactory, keyframe: Keyframe) -> Any:
    """Make a Keyframe message."""
    camera = keyframe.intrinsics
    return _KEYFRAME.to_msg(
        factory,
        keyframe,
        header=header_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id),
        overlap=_number_or_nan(keyframe.overlap),
        way_m=_number_or_nan(keyframe.way_m),
        image=encoded_image_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id, keyframe.image),
        k=factory.array('float64', camera.matrix().ravel() if camera else [0.0] * 9),
        d=factory.array('float64', list(camera.distortion) if camera else []),
        **_pose_fields(factory, keyframe.pose),
        motion=_MOTION.to_msg(factory, keyframe.motion or Motion()),
        depth=_packed_to_msg(factory, keyframe, keyframe.depth, '16UC1; png'),
        fixed_mask=_packed_to_msg(factory, keyframe, keyframe.fixed_mask, 'mono8; png'),
    )


def keyframe_from_msg(msg: Any) -> Keyframe:
    """Keyframe of its message.

    The size of the intrinsics is read from the image; recorded without it, they are not known.

    Raises:
        ImageError: Intrinsics are given and the image cannot be decoded.
    """
    image = encoded_image_from_msg(msg.image)
    intrinsics = None
    if any(msg.k) and image.data:
        height, width = image.decode().shape[:2]
        intrinsics = intrinsics_of_arrays(width, height, msg.k, msg.d)
    # Recordings of before have none of these.
    motion = _MOTION.from_msg(msg.motion) if hasattr(msg, 'motion') else None
    depth, mask = (
        bytes(memoryview(getattr(msg, name).data)) if hasattr(msg, name) else b''
        for name in ('depth', 'fixed_mask')
    )
    return _KEYFRAME.from_msg(
        msg,
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=image,
        overlap=_known(msg.overlap),
        way_m=_known(getattr(msg, 'way_m', math.nan)),
        frame_id=msg.header.frame_id,
        intrinsics=intrinsics,
        pose=_pose_of(msg),
        motion=motion if motion and motion.source is not MotionSource.UNKNOWN else None,
        depth=PackedDepth(depth) if depth else None,
        fixed_mask=PackedMask(mask) if mask else None,
    )


def _packed_to_msg(
    factory: MessageFactory, keyframe: Keyframe, packed: PackedDepth | PackedMask | None, kind: str
) -> Any:
    image = EncodedImage(packed.data, kind) if packed else EncodedImage(b'', '')
    return encoded_image_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id, image)


def _pose_fields(factory: MessageFactory, pose: Pose | None) -> dict[str, Any]:
    return {
        'has_pose': pose is not None,
        'pose': pose_to_msg(factory, pose),
        'pose_frame_id': pose.frame_id if pose else '',
    }


def _pose_of(msg: Any) -> Pose | None:
    return pose_from_msg(msg.pose, msg.pose_frame_id) if getattr(msg, 'has_pose', False) else None


def delta_to_msg(factory: MessageFactory, delta: SemanticDelta) -> Any:
    """Make a SemanticDelta message."""
    header = header_to_msg(factory, delta.stamp_ns, delta.frame_id)
    return _DELTA.to_msg(factory, delta, header=header, **_pose_fields(factory, delta.pose))


def delta_from_msg(msg: Any) -> SemanticDelta:
    """Semantic delta of its message."""
    stamp_ns = stamp_ns_from_msg(msg.header.stamp)
    frame_id = msg.header.frame_id
    delta = _DELTA.from_msg(msg, stamp_ns=stamp_ns, frame_id=frame_id, pose=_pose_of(msg))
    return replace(delta, items=with_ways(delta.items, delta.change))


def focus_to_msg(factory: MessageFactory, focus: FocusText) -> Any:
    """Make a FocusText message."""
    return _FOCUS.to_msg(factory, focus)


def focus_from_msg(msg: Any) -> FocusText:
    """Focus text of its message."""
    return _FOCUS.from_msg(msg)


def answer_to_msg(factory: MessageFactory, answer: Answer) -> Any:
    """Make an Answer message."""
    header = header_to_msg(factory, answer.observation_stamp_ns, answer.frame_id)
    return _ANSWER.to_msg(factory, answer, header=header)


def answer_from_msg(msg: Any) -> Answer:
    """Answer of its message."""
    return _ANSWER.from_msg(msg, frame_id=msg.header.frame_id)


def landmark_to_msg(factory: MessageFactory, landmark: Landmark) -> Any:
    """Make a Landmark message."""
    return _LANDMARK.to_msg(
        factory,
        landmark,
        has_size=landmark.size is not None,
        size=vector_to_msg(factory, 'Vector3', landmark.size or (0.0, 0.0, 0.0)),
        status=list(LandmarkStatus).index(landmark.status),
    )


def landmark_from_msg(msg: Any) -> Landmark:
    """Landmark of its message.

    Raises:
        ValueError: Its status is none.
    """
    statuses = list(LandmarkStatus)
    if not 0 <= msg.status < len(statuses):
        error = f'landmark {msg.id} has status {msg.status}: expected 0 to {len(statuses) - 1}'
        raise ValueError(error)
    size = vector_from_msg(msg.size) if msg.has_size else None
    return _LANDMARK.from_msg(msg, size=size, status=statuses[msg.status])


def scene_map_to_msg(factory: MessageFactory, scene_map: SceneMap, stamp_ns: int) -> Any:
    """Make a LandmarkArray message; the stamp is that of the newest keyframe in the map."""
    area = scene_map.room_area_m2
    return factory.make(
        _M + 'LandmarkArray',
        header=header_to_msg(factory, stamp_ns, scene_map.frame_id),
        revision=scene_map.revision,
        landmarks=[landmark_to_msg(factory, landmark) for landmark in scene_map.landmarks],
        path=[_POINT.to_msg(factory, point) for point in scene_map.path],
        room_area=math.nan if area is None else float(area),
        scale=scene_map.scale.value,
    )


def scene_map_from_msg(msg: Any) -> SceneMap:
    """Scene map of a LandmarkArray message."""
    return SceneMap(
        tuple(map(landmark_from_msg, msg.landmarks)),
        tuple(map(_POINT.from_msg, msg.path)),
        msg.header.frame_id,
        None if math.isnan(msg.room_area) else float(msg.room_area),
        ScaleSource(msg.scale),
        revision=int(msg.revision),
    )


def label_to_msg(factory: MessageFactory, label: AnswerLabel) -> Any:
    """Make an AnswerLabel message."""
    return _LABEL.to_msg(factory, label, header=header_to_msg(factory, label.stamp_ns, ''))


def label_from_msg(msg: Any) -> AnswerLabel:
    """Operator's verdict of its message."""
    return _LABEL.from_msg(msg, stamp_ns=stamp_ns_from_msg(msg.header.stamp))


def mark_to_msg(factory: MessageFactory, mark: EpisodeMark) -> Any:
    """Make an EpisodeMark message."""
    return _MARK.to_msg(factory, mark, header=header_to_msg(factory, mark.stamp_ns, ''))


def mark_from_msg(msg: Any) -> EpisodeMark:
    """Episode mark of its message."""
    return _MARK.from_msg(msg, stamp_ns=stamp_ns_from_msg(msg.header.stamp))


def proposal_to_msg(factory: MessageFactory, proposal: KeypointProposal) -> Any:
    """Make a KeypointProposal message."""
    pose = Pose(proposal.position, proposal.orientation or (0.0, 0.0, 0.0, 1.0), proposal.frame_id)
    return _PROPOSAL.to_msg(
        factory,
        proposal,
        pose=factory.make(
            'geometry_msgs/msg/PoseStamped',
            header=header_to_msg(factory, proposal.observation_stamp_ns, proposal.frame_id),
            pose=pose_to_msg(factory, pose),
        ),
        orientation_valid=proposal.orientation is not None,
        gripper=(proposal.gripper or Gripper.OPEN).value,
        gripper_valid=proposal.gripper is not None,
    )


def proposal_from_msg(msg: Any) -> KeypointProposal:
    """Keypoint proposal of its message."""
    pose = pose_from_msg(msg.pose.pose, msg.pose.header.frame_id)
    return _PROPOSAL.from_msg(
        msg,
        frame_id=pose.frame_id,
        position=pose.position,
        orientation=pose.orientation if msg.orientation_valid else None,
        gripper=Gripper(msg.gripper) if msg.gripper_valid else None,
    )
