# SPDX-License-Identifier: Apache-2.0
"""A model's reply about two views becomes a semantic delta.

Motion comes from odometry where both keyframes know their pose; a model's eye is not trusted over
it. The text is built by the same grammar as that of computed deltas. Directions by eye are classes
and become the middle of their class within the camera's angle of view.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    Motion,
    MotionSource,
    SemanticDelta,
)
from embodied_r_ros.geometry import Intrinsics
from embodied_r_ros.perception.vlm.reply import (
    CONFIDENCES,
    DIRECTIONS,
    HEIGHTS,
    MOTION_UNKNOWN,
    MOTIONS,
    STATUSES,
)
from embodied_r_ros.vision.egomotion import motion_from_poses
from embodied_r_ros.wording import action_text, change_text, MotionStep, STATIONARY

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.deltas import ModelInfo
    from embodied_r_ros.keyframes import Keyframe
    from embodied_r_ros.perception.vlm.reply import SceneReply, SeenItem, SeenMotion

_AMOUNT_WORDS = {'slight': 'slightly', 'large': 'a lot'}
# Order of the grammar: moves before turns.
_ORDER = {kind: place for place, kind in enumerate(MOTIONS)}


def scene_delta(
    reply: SceneReply,
    earlier: Keyframe | None,
    later: Keyframe,
    assumed_hfov_rad: float,
    model: ModelInfo,
) -> SemanticDelta:
    """Build the delta of a pair of keyframes, or of a first one, from what a model said.

    Args:
        reply: What the model said.
        earlier: The earlier keyframe; None: there is none.
        later: The newer keyframe.
        assumed_hfov_rad: Horizontal angle of view where the keyframe has no intrinsics [rad].
        model: The model.
    """
    half_angles = _half_angles(later, assumed_hfov_rad)
    items = tuple(_item(item, half_angles) for item in reply.items)
    motion = _measured(earlier, later) if earlier else None
    by_eye = motion is None
    if motion is None:
        unknown = not reply.motions or reply.motions[0].kind == MOTION_UNKNOWN
        motion = Motion(MotionSource.UNKNOWN if unknown else MotionSource.MODEL)
    action = _action(motion, reply.motions) if earlier else ''
    first = earlier or later
    return SemanticDelta(
        stamp_ns=later.stamp_ns,
        kind=_kind(earlier, action, items),
        to_id=later.id,
        from_id=first.id,
        from_stamp_ns=first.stamp_ns,
        action=action,
        change=_change(reply, items, by_eye=by_eye),
        motion=motion,
        items=items,
        camera=later.camera,
        frame_id=later.frame_id,
        episode_id=later.episode_id,
        model=model,
    )


def _measured(earlier: Keyframe, later: Keyframe) -> Motion | None:
    """Motion from odometry; None where a pose is missing or in another frame."""
    if not earlier.pose or not later.pose or earlier.pose.frame_id != later.pose.frame_id:
        return None
    return motion_from_poses(earlier.pose, later.pose)


def _action(motion: Motion, by_eye: Sequence[SeenMotion]) -> str:
    if motion.source is not MotionSource.MODEL:
        return action_text(motion)
    return ', '.join(_step(seen).text() for seen in _steps(by_eye)) or STATIONARY


def _steps(motions: Sequence[SeenMotion]) -> list[SeenMotion]:
    return sorted((seen for seen in motions if seen.kind in MOTIONS), key=lambda s: _ORDER[s.kind])


def _step(seen: SeenMotion) -> MotionStep:
    verb, direction = MOTIONS[seen.kind]
    return MotionStep(verb, direction, None)


def _change(reply: SceneReply, items: Sequence[Item], *, by_eye: bool) -> str:
    """What is new, in sentences: the summary, the items, rough amounts, writing in view."""
    rough = [
        f'{_step(seen).text()} {_AMOUNT_WORDS[seen.amount]}'
        for seen in _steps(reply.motions)
        if by_eye and seen.amount in _AMOUNT_WORDS
    ]
    quoted = ['"{}"'.format(text.replace('"', "'")) for text in reply.visible_text]
    sentences = [
        reply.summary,
        change_text(items) if items else '',
        f'By eye: {", ".join(rough)}.' if rough else '',
        f'Writing in view: {", ".join(quoted)}.' if quoted else '',
    ]
    return ' '.join(sentence for sentence in sentences if sentence) or change_text(items)


def _kind(earlier: Keyframe | None, action: str, items: Sequence[Item]) -> DeltaKind:
    if earlier is None:
        return DeltaKind.FIRST
    same = all(item.status is ItemStatus.VISIBLE for item in items)
    return DeltaKind.NO_CHANGE if action == STATIONARY and same else DeltaKind.CHANGE


def _half_angles(keyframe: Keyframe, assumed_hfov_rad: float) -> tuple[float, float]:
    """Half the horizontal and half the vertical angle of view [rad]."""
    camera = keyframe.intrinsics or Intrinsics.from_fov(4, 3, assumed_hfov_rad)
    return math.atan2(camera.width / 2, camera.fx), math.atan2(camera.height / 2, camera.fy)


def _item(seen: SeenItem, half_angles: tuple[float, float]) -> Item:
    return Item(
        label=seen.label,
        status=STATUSES[seen.status],
        bearing_rad=DIRECTIONS[seen.direction] * half_angles[0],
        elevation_rad=HEIGHTS[seen.height] * half_angles[1],
        confidence=CONFIDENCES[seen.confidence],
    )
