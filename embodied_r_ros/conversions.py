# SPDX-License-Identifier: Apache-2.0
"""Messages to core values and back: the only place that knows both.

A message is anything with the fields of its definition, so that one function serves live messages
(rclpy) and recorded ones (rosbags). Making a message takes the `MessageFactory` of its family.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.answers import Answer, AnswerKind, FocusText, Freshness, Sampling
from embodied_r_ros.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    Motion,
    MotionSource,
    Rung,
    SemanticDelta,
)
from embodied_r_ros.episodes import AnswerLabel, EpisodeEvent, EpisodeMark, Outcome, Verdict
from embodied_r_ros.geometry import Intrinsics, Pose
from embodied_r_ros.images import EncodedImage, image_format
from embodied_r_ros.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.reasoning.keypoints import Gripper, KeypointProposal

if TYPE_CHECKING:
    from embodied_r_ros.recordings.message_types import MessageFactory

_NS = 1_000_000_000
_M = 'embodied_r_msgs/msg/'
# Distortion models that OpenCV takes by their number of coefficients; empty: not stated.
_DISTORTION_SIZES = (4, 5, 8, 12, 14)
_PLUMB_BOB = ('', 'plumb_bob', 'rational_polynomial')


def stamp_ns_from_msg(msg: Any) -> int:
    """Nanoseconds of a builtin_interfaces Time or Duration."""
    return int(msg.sec) * _NS + int(msg.nanosec)


def stamp_to_msg(factory: MessageFactory, stamp_ns: int) -> Any:
    """Make a builtin_interfaces Time of integer nanoseconds."""
    sec, nanosec = divmod(stamp_ns, _NS)
    return factory.make('builtin_interfaces/msg/Time', sec=sec, nanosec=nanosec)


def duration_to_msg(factory: MessageFactory, duration_ns: int) -> Any:
    """Make a builtin_interfaces Duration of integer nanoseconds."""
    sec, nanosec = divmod(duration_ns, _NS)
    return factory.make('builtin_interfaces/msg/Duration', sec=sec, nanosec=nanosec)


def header_to_msg(factory: MessageFactory, stamp_ns: int, frame_id: str) -> Any:
    """Make a std_msgs Header."""
    stamp = stamp_to_msg(factory, stamp_ns)
    return factory.make('std_msgs/msg/Header', stamp=stamp, frame_id=frame_id)


def vector_to_msg(factory: MessageFactory, kind: str, xyz: tuple[float, float, float]) -> Any:
    """Make a geometry_msgs Point or Vector3, as `kind` says."""
    x, y, z = map(float, xyz)
    return factory.make(f'geometry_msgs/msg/{kind}', x=x, y=y, z=z)


def vector_from_msg(msg: Any) -> tuple[float, float, float]:
    """Components of a geometry_msgs Point or Vector3."""
    return float(msg.x), float(msg.y), float(msg.z)


def pose_to_msg(factory: MessageFactory, pose: Pose | None) -> Any:
    """Make a geometry_msgs Pose; None gives the identity."""
    position = pose.position if pose else (0.0, 0.0, 0.0)
    x, y, z, w = map(float, pose.orientation if pose else (0.0, 0.0, 0.0, 1.0))
    return factory.make(
        'geometry_msgs/msg/Pose',
        position=vector_to_msg(factory, 'Point', position),
        orientation=factory.make('geometry_msgs/msg/Quaternion', x=x, y=y, z=z, w=w),
    )


def pose_from_msg(msg: Any, frame_id: str) -> Pose:
    """Pose of a geometry_msgs Pose in the given fixed frame."""
    q = msg.orientation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.position), orientation, frame_id)


def transform_from_msg(msg: Any) -> Pose:
    """Pose of the child of a geometry_msgs TransformStamped, in its parent."""
    q = msg.transform.rotation
    orientation = (float(q.x), float(q.y), float(q.z), float(q.w))
    return Pose(vector_from_msg(msg.transform.translation), orientation, msg.header.frame_id)


def odometry_to_msg(
    factory: MessageFactory,
    stamp_ns: int,
    pose: Pose,
    child_frame_id: str,
    velocity: tuple[tuple[float, float, float], tuple[float, float, float]],
) -> Any:
    """Make a nav_msgs Odometry with unknown covariance (all zero).

    Args:
        factory: Makes the message.
        stamp_ns: When the pose was taken.
        pose: Pose of the child in its fixed frame.
        child_frame_id: Name of the body.
        velocity: Linear [m/s] and angular [rad/s] velocity, both in the child's axes.
    """
    linear, angular = velocity
    unknown = factory.array('float64', [0.0] * 36)
    twist = factory.make(
        'geometry_msgs/msg/Twist',
        linear=vector_to_msg(factory, 'Vector3', linear),
        angular=vector_to_msg(factory, 'Vector3', angular),
    )
    return factory.make(
        'nav_msgs/msg/Odometry',
        header=header_to_msg(factory, stamp_ns, pose.frame_id),
        child_frame_id=child_frame_id,
        pose=factory.make(
            'geometry_msgs/msg/PoseWithCovariance',
            pose=pose_to_msg(factory, pose),
            covariance=unknown,
        ),
        twist=factory.make(
            'geometry_msgs/msg/TwistWithCovariance', twist=twist, covariance=unknown
        ),
    )


def intrinsics_from_camera_info(msg: Any) -> Intrinsics | None:
    """Intrinsics of a sensor_msgs CameraInfo.

    None where it is not calibrated (K all zero), or has a lens of another kind (fisheye, or a
    number of coefficients that no model has).
    """
    known = msg.distortion_model in _PLUMB_BOB and len(msg.d) in _DISTORTION_SIZES
    if any(msg.d) and not known:
        return None
    return _intrinsics(int(msg.width), int(msg.height), msg.k, msg.d)


def camera_info_to_msg(
    factory: MessageFactory, stamp_ns: int, frame_id: str, camera: Intrinsics
) -> Any:
    """Make a sensor_msgs CameraInfo."""
    k, zero = camera.matrix(), 0.0
    identity = [1.0, zero, zero, zero, 1.0, zero, zero, zero, 1.0]
    p = [camera.fx, zero, camera.cx, zero, zero, camera.fy, camera.cy, zero, zero, zero, 1.0, zero]
    return factory.make(
        'sensor_msgs/msg/CameraInfo',
        header=header_to_msg(factory, stamp_ns, frame_id),
        height=camera.height,
        width=camera.width,
        distortion_model='plumb_bob',
        d=factory.array('float64', list(camera.distortion)),
        k=factory.array('float64', k.ravel()),
        r=factory.array('float64', identity),
        p=factory.array('float64', p),
        binning_x=0,
        binning_y=0,
        roi=factory.make(
            'sensor_msgs/msg/RegionOfInterest',
            x_offset=0,
            y_offset=0,
            height=0,
            width=0,
            do_rectify=False,
        ),
    )


def encoded_image_to_msg(
    factory: MessageFactory, stamp_ns: int, frame_id: str, image: EncodedImage
) -> Any:
    """Make a sensor_msgs CompressedImage."""
    return factory.make(
        'sensor_msgs/msg/CompressedImage',
        header=header_to_msg(factory, stamp_ns, frame_id),
        format=image.format,
        data=factory.array('uint8', image.data),
    )


def encoded_image_from_msg(msg: Any) -> EncodedImage:
    """Bytes of a sensor_msgs CompressedImage, not decoded; the format is told by the bytes."""
    data = bytes(memoryview(msg.data))
    return EncodedImage(data, image_format(data) or str(msg.format))


def _intrinsics(width: int, height: int, k: Any, d: Any) -> Intrinsics | None:
    k = [float(value) for value in k]
    if not k[0] or not k[4]:
        return None
    distortion = tuple(float(value) for value in d)
    distortion = distortion if any(distortion) else ()
    return Intrinsics(width, height, k[0], k[4], k[2], k[5], distortion)


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
        has_pose=keyframe.pose is not None,
        pose=pose_to_msg(factory, keyframe.pose),
        pose_frame_id=keyframe.pose.frame_id if keyframe.pose else '',
    )


def keyframe_from_msg(msg: Any) -> Keyframe:
    """Keyframe of its message. The size of the intrinsics is read from the image.

    Raises:
        ImageError: Intrinsics are given and the image cannot be decoded.
    """
    image = encoded_image_from_msg(msg.image)
    intrinsics = None
    if any(msg.k):
        height, width = image.decode().shape[:2]
        intrinsics = _intrinsics(width, height, msg.k, msg.d)
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
        pose=pose_from_msg(msg.pose, msg.pose_frame_id) if msg.has_pose else None,
        episode_id=msg.episode_id,
        dropped_images=int(msg.dropped_images),
    )


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
    )


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
    )


def item_from_msg(msg: Any) -> Item:
    """Item of its message."""
    return Item(
        msg.label,
        ItemStatus(msg.status),
        float(msg.bearing_rad),
        float(msg.elevation_rad),
        float(msg.size_rad),
        float(msg.distance_m),
        float(msg.confidence),
    )


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
        items=tuple(item_from_msg(item) for item in msg.items),
        camera=msg.camera,
        frame_id=msg.header.frame_id,
        episode_id=msg.episode_id,
        skipped=int(msg.skipped),
        model=model_info_from_msg(msg.model),
        latency_ns=stamp_ns_from_msg(msg.latency),
        error=msg.error,
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
        standing=answer.standing,
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
        delta_ids=tuple(int(value) for value in msg.delta_ids),
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
    verdict = Verdict(msg.verdict)
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
        Outcome(msg.outcome),
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
