# SPDX-License-Identifier: Apache-2.0
"""Messages of embodied_r_msgs as values and back: keyframes, deltas, answers, proposals."""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

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
from embodied_r_ros.core.types.images import EncodedImage, PackedDepth
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from embodied_r_ros.bags.message_types import MessageFactory

_M = 'embodied_r_msgs/msg/'


def model_info_to_msg(factory: MessageFactory, model: ModelInfo) -> Any:
    """Make a ModelInfo message."""
    return factory.make(
        _M + 'ModelInfo',
        name=model.name,
        digest=model.digest,
        adapter=model.adapter,
        rung=model.rung.value,
        prompt_version=model.prompt_version,
    )


def model_info_from_msg(msg: Any) -> ModelInfo:
    """ModelInfo of its message."""
    return ModelInfo(msg.name, msg.digest, msg.adapter, Rung(msg.rung), msg.prompt_version)


def motion_to_msg(factory: MessageFactory, motion: Motion) -> Any:
    """Make a Motion message."""
    return factory.make(
        _M + 'Motion',
        source=motion.source.value,
        yaw_rad=float(motion.yaw_rad),
        pitch_rad=float(motion.pitch_rad),
        roll_rad=float(motion.roll_rad),
        translation=vector_to_msg(factory, 'Vector3', motion.translation),
        is_metric=motion.is_metric,
        confidence=float(motion.confidence),
        scale=motion.scale.value,
    )


def motion_from_msg(msg: Any) -> Motion:
    """Motion of its message."""
    return Motion(
        MotionSource(msg.source),
        float(msg.yaw_rad),
        float(msg.pitch_rad),
        float(msg.roll_rad),
        vector_from_msg(msg.translation),
        bool(msg.is_metric),
        float(msg.confidence),
        _scale_from_msg(msg),
    )


def keyframe_to_msg(factory: MessageFactory, keyframe: Keyframe) -> Any:
    """Make a Keyframe message."""
    camera = keyframe.intrinsics
    return factory.make(
        _M + 'Keyframe',
        header=header_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id),
        episode_id=keyframe.episode_id,
        camera=keyframe.camera,
        id=keyframe.id,
        reference_id=keyframe.reference_id,
        overlap=float('nan') if keyframe.overlap is None else float(keyframe.overlap),
        inliers=keyframe.inliers,
        reason=keyframe.reason.value,
        dropped_images=keyframe.dropped_images,
        image=encoded_image_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id, keyframe.image),
        k=factory.array('float64', camera.matrix().ravel() if camera else [0.0] * 9),
        d=factory.array('float64', list(camera.distortion) if camera else []),
        **_pose_fields(factory, keyframe.pose),
        motion=motion_to_msg(factory, keyframe.motion or Motion()),
        depth=_depth_to_msg(factory, keyframe),
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
    # Recordings of before have neither.
    motion = motion_from_msg(msg.motion) if hasattr(msg, 'motion') else None
    depth = bytes(memoryview(msg.depth.data)) if hasattr(msg, 'depth') else b''
    return Keyframe(
        id=int(msg.id),
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        image=image,
        reason=KeyframeReason(msg.reason),
        reference_id=int(msg.reference_id),
        overlap=None if msg.overlap != msg.overlap else float(msg.overlap),  # NaN: unset
        inliers=int(msg.inliers),
        camera=msg.camera,
        frame_id=msg.header.frame_id,
        intrinsics=intrinsics,
        pose=_pose_of(msg),
        motion=motion if motion and motion.source is not MotionSource.UNKNOWN else None,
        depth=PackedDepth(depth) if depth else None,
        episode_id=msg.episode_id,
        dropped_images=int(msg.dropped_images),
    )


def _depth_to_msg(factory: MessageFactory, keyframe: Keyframe) -> Any:
    packed = EncodedImage(b'', '')
    if keyframe.depth:
        packed = EncodedImage(keyframe.depth.data, '16UC1; png')
    return encoded_image_to_msg(factory, keyframe.stamp_ns, keyframe.frame_id, packed)


def item_to_msg(factory: MessageFactory, item: Item) -> Any:
    """Make an Item message."""
    return factory.make(
        _M + 'Item',
        label=item.label,
        status=item.status.value,
        bearing_rad=float(item.bearing_rad),
        elevation_rad=float(item.elevation_rad),
        size_rad=float(item.size_rad),
        distance_m=float(item.distance_m),
        confidence=float(item.confidence),
        box=factory.array('float32', item.box or (0.0,) * 4),
        scale=item.scale.value,
    )


def item_from_msg(msg: Any) -> Item:
    """Item of its message."""
    left, top, right, bottom = (float(edge) for edge in getattr(msg, 'box', (0.0,) * 4))
    return Item(
        msg.label,
        ItemStatus(msg.status),
        float(msg.bearing_rad),
        float(msg.elevation_rad),
        float(msg.size_rad),
        float(msg.distance_m),
        float(msg.confidence),
        (left, top, right, bottom) if right > left else None,
        _scale_from_msg(msg),
    )


def _scale_from_msg(msg: Any) -> ScaleSource:
    """What gave the metres; messages of before do not say."""
    return ScaleSource(getattr(msg, 'scale', 0))


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
    return factory.make(
        _M + 'SemanticDelta',
        header=header_to_msg(factory, delta.stamp_ns, delta.frame_id),
        episode_id=delta.episode_id,
        camera=delta.camera,
        from_id=delta.from_id,
        to_id=delta.to_id,
        from_stamp=stamp_to_msg(factory, delta.from_stamp_ns),
        kind=delta.kind.value,
        action=delta.action,
        change=delta.change,
        motion=motion_to_msg(factory, delta.motion),
        items=[item_to_msg(factory, item) for item in delta.items],
        skipped=delta.skipped,
        model=model_info_to_msg(factory, delta.model),
        latency=duration_to_msg(factory, delta.latency_ns),
        error=delta.error,
        **_pose_fields(factory, delta.pose),
    )


def delta_from_msg(msg: Any) -> SemanticDelta:
    """Semantic delta of its message."""
    return SemanticDelta(
        stamp_ns=stamp_ns_from_msg(msg.header.stamp),
        kind=DeltaKind(msg.kind),
        to_id=int(msg.to_id),
        from_id=int(msg.from_id),
        from_stamp_ns=stamp_ns_from_msg(msg.from_stamp),
        action=msg.action,
        change=msg.change,
        motion=motion_from_msg(msg.motion),
        items=with_ways(map(item_from_msg, msg.items), msg.change),
        camera=msg.camera,
        frame_id=msg.header.frame_id,
        episode_id=msg.episode_id,
        skipped=int(msg.skipped),
        model=model_info_from_msg(msg.model),
        latency_ns=stamp_ns_from_msg(msg.latency),
        error=msg.error,
        pose=_pose_of(msg),
    )


def focus_to_msg(factory: MessageFactory, focus: FocusText) -> Any:
    """Make a FocusText message."""
    return factory.make(
        _M + 'FocusText',
        keyframe_id=focus.keyframe_id,
        camera=focus.camera,
        stamp=stamp_to_msg(factory, focus.stamp_ns),
        text=focus.text,
    )


def focus_from_msg(msg: Any) -> FocusText:
    """Focus text of its message."""
    return FocusText(int(msg.keyframe_id), stamp_ns_from_msg(msg.stamp), msg.text, msg.camera)


_REQUEST = ('turn', 'request_id', 'request', 'reply')  # fields of calls that a model asked for


def call_to_msg(factory: MessageFactory, call: ToolCall) -> Any:
    """Make a ToolCall message."""
    return factory.make(
        _M + 'ToolCall',
        tool=call.tool,
        arguments=list(call.arguments),
        value=call.value,
        unit=call.unit,
        text=call.text,
        landmark_ids=factory.array('uint32', list(call.landmark_ids)),
        delta_ids=factory.array('uint32', list(call.delta_ids)),
        observations=factory.array('uint32', list(call.observations)),
        stamps=[stamp_to_msg(factory, stamp_ns) for stamp_ns in call.stamps_ns],
        **{name: getattr(call, name) for name in _REQUEST},
    )


def call_from_msg(msg: Any) -> ToolCall:
    """Tool call of its message."""
    return ToolCall(
        msg.tool,
        tuple(msg.arguments),
        msg.value,
        msg.unit,
        msg.text,
        _integers(msg.landmark_ids),
        _integers(msg.delta_ids),
        _integers(msg.observations),
        tuple(map(stamp_ns_from_msg, msg.stamps)),
        # Recordings of before lack them.
        **{name: getattr(msg, name) for name in _REQUEST if hasattr(msg, name)},
    )


def answer_to_msg(factory: MessageFactory, answer: Answer) -> Any:
    """Make an Answer message."""
    sampling = answer.sampling
    stamp_ns = answer.observation_stamp_ns
    return factory.make(
        _M + 'Answer',
        header=header_to_msg(factory, stamp_ns, answer.frame_id),
        id=answer.id,
        episode_id=answer.episode_id,
        question=answer.question,
        options=list(answer.options),
        kind=answer.kind.value,
        option_index=answer.option_index,
        text=answer.text,
        number=float(answer.number),
        confidence=float(answer.confidence),
        think=answer.think,
        completion=answer.completion,
        delta_ids=factory.array('uint32', list(answer.delta_ids)),
        deltas_merged=answer.deltas_merged,
        deltas_omitted=answer.deltas_omitted,
        map_revision=answer.map_revision,
        landmark_ids=factory.array('uint32', list(answer.landmark_ids)),
        landmark_age=duration_to_msg(factory, answer.landmark_age_ns),
        focus=[focus_to_msg(factory, focus) for focus in answer.focus],
        prompt=answer.prompt,
        prompt_sha256=answer.prompt_sha256,
        sampling=factory.make(
            _M + 'Sampling',
            temperature=float(sampling.temperature),
            top_p=float(sampling.top_p),
            max_tokens=sampling.max_tokens,
            seed=sampling.seed,
        ),
        observation_stamp=stamp_to_msg(factory, stamp_ns),
        observation_age=duration_to_msg(factory, answer.observation_age_ns),
        freshness=answer.freshness.value,
        model=model_info_to_msg(factory, answer.model),
        time_to_first_token=duration_to_msg(factory, answer.time_to_first_token_ns),
        latency=duration_to_msg(factory, answer.latency_ns),
        wait=duration_to_msg(factory, answer.wait_ns),
        generation=duration_to_msg(factory, answer.generation_ns),
        standing=answer.standing,
        sentence=answer.sentence,
        unit=answer.unit,
        check=answer.check.value,
        check_reason=answer.check_reason,
        calls=[call_to_msg(factory, call) for call in answer.calls],
        rejected=[
            factory.make(
                _M + 'RejectedCompletion',
                completion=one.completion,
                reason=one.reason,
                model=one.model,
            )
            for one in answer.rejected
        ],
        has_goal=answer.has_goal,
        choices=list(answer.choices),
        turns=list(answer.turns),
    )


def _integers(values: Iterable[Any]) -> tuple[int, ...]:
    return tuple(map(int, values))


# Fields of answers that recordings of before lack: their names in the value, and what reads them.
_LATER: dict[str, tuple[str, Callable[[Any], Any]]] = {
    'map_revision': ('map_revision', int),
    'landmark_ids': ('landmark_ids', _integers),
    'landmark_age': ('landmark_age_ns', stamp_ns_from_msg),
    'wait': ('wait_ns', stamp_ns_from_msg),
    'generation': ('generation_ns', stamp_ns_from_msg),
    **{name: (name, str) for name in ('sentence', 'unit', 'check_reason')},
    'check': ('check', Check),
    'calls': ('calls', lambda calls: tuple(map(call_from_msg, calls))),
    'rejected': (
        'rejected',
        lambda all_of: tuple(RejectedCompletion(o.completion, o.reason, o.model) for o in all_of),
    ),
    'has_goal': ('has_goal', bool),
    **{name: (name, tuple) for name in ('choices', 'turns')},
}


def landmark_to_msg(factory: MessageFactory, landmark: Landmark) -> Any:
    """Make a Landmark message."""
    return factory.make(
        _M + 'Landmark',
        id=landmark.id,
        label=landmark.label,
        position=vector_to_msg(factory, 'Point', landmark.position),
        has_size=landmark.size is not None,
        size=vector_to_msg(factory, 'Vector3', landmark.size or (0.0, 0.0, 0.0)),
        first_seen=stamp_to_msg(factory, landmark.first_seen_ns),
        last_seen=stamp_to_msg(factory, landmark.last_seen_ns),
        observations=landmark.observations,
        confidence=float(landmark.confidence),
        status=list(LandmarkStatus).index(landmark.status),
        keyframe_ids=factory.array('uint32', list(landmark.keyframe_ids)),
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
    return Landmark(
        msg.label,
        vector_from_msg(msg.position),
        int(msg.id),
        vector_from_msg(msg.size) if msg.has_size else None,
        stamp_ns_from_msg(msg.first_seen),
        stamp_ns_from_msg(msg.last_seen),
        int(msg.observations),
        float(msg.confidence),
        statuses[msg.status],
        _integers(msg.keyframe_ids),
    )


def scene_map_to_msg(factory: MessageFactory, scene_map: SceneMap, stamp_ns: int) -> Any:
    """Make a LandmarkArray message; the stamp is that of the newest keyframe in the map."""
    area = scene_map.room_area_m2
    return factory.make(
        _M + 'LandmarkArray',
        header=header_to_msg(factory, stamp_ns, scene_map.frame_id),
        revision=scene_map.revision,
        landmarks=[landmark_to_msg(factory, landmark) for landmark in scene_map.landmarks],
        path=[
            factory.make(
                _M + 'PathPoint',
                stamp=stamp_to_msg(factory, point.stamp_ns),
                position=vector_to_msg(factory, 'Point', point.position),
                yaw=float(point.yaw_rad),
            )
            for point in scene_map.path
        ],
        room_area=math.nan if area is None else float(area),
        scale=scene_map.scale.value,
    )


def scene_map_from_msg(msg: Any) -> SceneMap:
    """Scene map of a LandmarkArray message."""
    return SceneMap(
        tuple(landmark_from_msg(landmark) for landmark in msg.landmarks),
        tuple(
            PathPoint(
                stamp_ns_from_msg(point.stamp), vector_from_msg(point.position), float(point.yaw)
            )
            for point in msg.path
        ),
        msg.header.frame_id,
        None if math.isnan(msg.room_area) else float(msg.room_area),
        ScaleSource(msg.scale),
        int(msg.revision),
    )


def answer_from_msg(msg: Any) -> Answer:
    """Answer of its message."""
    sampling = msg.sampling
    return Answer(
        id=msg.id,
        question=msg.question,
        kind=AnswerKind(msg.kind),
        options=tuple(msg.options),
        option_index=int(msg.option_index),
        text=msg.text,
        number=float(msg.number),
        confidence=float(msg.confidence),
        think=msg.think,
        completion=msg.completion,
        delta_ids=_integers(msg.delta_ids),
        deltas_merged=int(msg.deltas_merged),
        deltas_omitted=int(msg.deltas_omitted),
        focus=tuple(focus_from_msg(focus) for focus in msg.focus),
        prompt=msg.prompt,
        prompt_sha256=msg.prompt_sha256,
        sampling=Sampling(
            float(sampling.temperature),
            float(sampling.top_p),
            int(sampling.max_tokens),
            int(sampling.seed),
        ),
        observation_stamp_ns=stamp_ns_from_msg(msg.observation_stamp),
        observation_age_ns=stamp_ns_from_msg(msg.observation_age),
        freshness=Freshness(msg.freshness),
        model=model_info_from_msg(msg.model),
        time_to_first_token_ns=stamp_ns_from_msg(msg.time_to_first_token),
        latency_ns=stamp_ns_from_msg(msg.latency),
        standing=bool(msg.standing),
        frame_id=msg.header.frame_id,
        episode_id=msg.episode_id,
        **{
            name: read(getattr(msg, field))
            for field, (name, read) in _LATER.items()
            if hasattr(msg, field)
        },
    )


def label_to_msg(factory: MessageFactory, label: AnswerLabel) -> Any:
    """Make an AnswerLabel message."""
    return factory.make(
        _M + 'AnswerLabel',
        header=header_to_msg(factory, label.stamp_ns, ''),
        answer_id=label.answer_id,
        verdict=label.verdict.value,
        correction=label.correction,
        operator_name=label.operator_name,
    )


def label_from_msg(msg: Any) -> AnswerLabel:
    """Operator's verdict of its message."""
    stamp_ns = stamp_ns_from_msg(msg.header.stamp)
    verdict = LabelVerdict(msg.verdict)
    return AnswerLabel(stamp_ns, msg.answer_id, verdict, msg.correction, msg.operator_name)


def mark_to_msg(factory: MessageFactory, mark: EpisodeMark) -> Any:
    """Make an EpisodeMark message."""
    return factory.make(
        _M + 'EpisodeMark',
        header=header_to_msg(factory, mark.stamp_ns, ''),
        episode_id=mark.episode_id,
        event=mark.event.value,
        task=mark.task,
        scene_id=mark.scene_id,
        outcome=mark.outcome.value,
    )


def mark_from_msg(msg: Any) -> EpisodeMark:
    """Episode mark of its message."""
    return EpisodeMark(
        stamp_ns_from_msg(msg.header.stamp),
        msg.episode_id,
        EpisodeEvent(msg.event),
        msg.task,
        msg.scene_id,
        EpisodeOutcome(msg.outcome),
    )


def proposal_to_msg(factory: MessageFactory, proposal: KeypointProposal) -> Any:
    """Make a KeypointProposal message."""
    stamp_ns = proposal.observation_stamp_ns
    pose = Pose(proposal.position, proposal.orientation or (0.0, 0.0, 0.0, 1.0), proposal.frame_id)
    return factory.make(
        _M + 'KeypointProposal',
        id=proposal.id,
        episode_id=proposal.episode_id,
        task=proposal.task,
        pose=factory.make(
            'geometry_msgs/msg/PoseStamped',
            header=header_to_msg(factory, stamp_ns, proposal.frame_id),
            pose=pose_to_msg(factory, pose),
        ),
        orientation_valid=proposal.orientation is not None,
        gripper=(proposal.gripper or Gripper.OPEN).value,
        gripper_valid=proposal.gripper is not None,
        candidates=[vector_to_msg(factory, 'Point', xyz) for xyz in proposal.candidates],
        candidate_index=proposal.candidate_index,
        confidence=float(proposal.confidence),
        think=proposal.think,
        observation_stamp=stamp_to_msg(factory, stamp_ns),
        observation_age=duration_to_msg(factory, proposal.observation_age_ns),
        freshness=proposal.freshness.value,
        model=model_info_to_msg(factory, proposal.model),
    )


def proposal_from_msg(msg: Any) -> KeypointProposal:
    """Keypoint proposal of its message."""
    pose = pose_from_msg(msg.pose.pose, msg.pose.header.frame_id)
    return KeypointProposal(
        id=msg.id,
        task=msg.task,
        frame_id=pose.frame_id,
        position=pose.position,
        orientation=pose.orientation if msg.orientation_valid else None,
        gripper=Gripper(msg.gripper) if msg.gripper_valid else None,
        candidates=tuple(vector_from_msg(point) for point in msg.candidates),
        candidate_index=int(msg.candidate_index),
        confidence=float(msg.confidence),
        think=msg.think,
        observation_stamp_ns=stamp_ns_from_msg(msg.observation_stamp),
        observation_age_ns=stamp_ns_from_msg(msg.observation_age),
        freshness=Freshness(msg.freshness),
        model=model_info_from_msg(msg.model),
        episode_id=msg.episode_id,
    )
