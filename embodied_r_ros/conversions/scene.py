# SPDX-License-Identifier: Apache-2.0
"""What was perceived: motions, items, semantic deltas, and the model that said so."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.conversions.standard import (
    duration_to_msg,
    header_to_msg,
    stamp_ns_from_msg,
    stamp_to_msg,
    vector_from_msg,
    vector_to_msg,
)
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

if TYPE_CHECKING:
    from embodied_r_ros.recordings.message_types import MessageFactory

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
