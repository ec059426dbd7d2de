# SPDX-License-Identifier: Apache-2.0
"""Where the camera was at each delta, and where items are from it: what deltas alone tell.

The motion between deltas is put together from their poses, else from their motions in numbers,
else from their actions in words. Where a motion is not known, or has no metres, a new part of the
way begins: places of two parts are not comparable.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.types.deltas import DeltaKind, ItemStatus, MotionSource, parse_action
from embodied_r_ros.core.types.deltas import step_rotation_and_move as of_steps
from embodied_r_ros.core.types.geometry import rotation_from_ypr, yaw_pitch_roll
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Float64s
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta


@dataclass(frozen=True)
class Stand:
    """Where the camera was at a delta, from where it was at the first one."""

    index: int  # of the delta
    stamp_ns: int
    rotation: Float64s  # of the body. Shape (3, 3)
    position: Float64s  # [m]. Shape (3,)
    turned_rad: float  # sum of the turns up to here, positive left, not wrapped
    left_rad: float  # sum of those to the left
    way_m: float  # length of the way up to here
    turn_part: int = 0  # directions of the same part are comparable
    move_part: int = 0  # positions likewise
    is_moving: bool | None = None  # since the stand before; None: not known

    @property
    def parts(self) -> tuple[int, int]:
        """Of which part of the way it is."""
        return self.turn_part, self.move_part


@dataclass(frozen=True)
class ItemSight:
    """An item at a delta."""

    item: Item
    stand: Stand | None  # None: of another camera, whose place is not known
    stamp_ns: int
    delta_id: int
    number: int  # of the delta as prompts count it, from 1

    @property
    def position(self) -> Float64s | None:
        """Its middle in the axes of the way [m]. Shape (3,); None: not known."""
        own = self.item.position
        if own is None or self.stand is None:
            return None
        place: Float64s = self.stand.position + self.stand.rotation @ np.array(own)
        return place


def stands_of(deltas: Sequence[SemanticDelta]) -> dict[int, Stand]:
    """Where the camera was at each delta, by the index of the delta.

    Of several cameras without poses, the one with the most deltas is followed; those of the others
    have no stand.
    """
    if not deltas:
        return {}
    cameras = [delta.camera for delta in deltas]
    camera = max(dict.fromkeys(cameras), key=cameras.count)
    frames = {delta.pose.frame_id if delta.pose else None for delta in deltas}
    by_pose = len(frames) == 1 and None not in frames
    stands: dict[int, Stand] = {}
    last: Stand | None = None
    for index, delta in enumerate(deltas):
        if not by_pose and delta.camera != camera:
            continue
        last = _of_pose(index, delta, last) if by_pose else _of_motion(index, delta, last)
        stands[index] = last
    return stands


_STILL_M, _STILL_RAD = 0.05, math.radians(2.5)


def _of_pose(index: int, delta: SemanticDelta, last: Stand | None) -> Stand:
    assert delta.pose is not None
    rotation, position = delta.pose.rotation(), np.array(delta.pose.position)
    if last is None:
        return Stand(index, delta.stamp_ns, rotation, position, 0.0, 0.0, 0.0)
    turn = yaw_pitch_roll(last.rotation.T @ rotation)[0]
    chord = float(np.linalg.norm(position - last.position))
    moved = max(chord, delta.motion.way_m if math.isfinite(delta.motion.way_m) else 0.0)
    is_moving = moved > _STILL_M or abs(turn) > _STILL_RAD
    return Stand(
        index, delta.stamp_ns, rotation, position, last.turned_rad + turn,
        last.left_rad + max(0.0, turn), last.way_m + moved, is_moving=is_moving,
    )  # fmt: skip


def _of_motion(index: int, delta: SemanticDelta, last: Stand | None) -> Stand:
    if last is None:
        return Stand(index, delta.stamp_ns, np.eye(3), np.zeros(3), 0.0, 0.0, 0.0)
    turn, move = _motion_of(delta)
    rotation = np.eye(3) if turn is None else turn
    offset = np.zeros(3) if move is None else move
    yaw = yaw_pitch_roll(rotation)[0]
    moved = float(np.linalg.norm(offset))
    is_known = turn is not None
    is_moving = move is None or moved > _STILL_M or abs(yaw) > _STILL_RAD
    return Stand(
        index, delta.stamp_ns, last.rotation @ rotation,
        last.position + last.rotation @ offset,
        last.turned_rad + yaw, last.left_rad + max(0.0, yaw), last.way_m + moved,
        last.turn_part + (not is_known), last.move_part + (move is None),
        is_moving if is_known else None,
    )  # fmt: skip


def _motion_of(delta: SemanticDelta) -> tuple[Float64s | None, Float64s | None]:
    """Rotation (3, 3) and move (3,) [m] of a delta; None: not known, or without metres."""
    motion = delta.motion
    if delta.kind is DeltaKind.FAILED:
        return None, None
    if motion.source in {MotionSource.UNKNOWN, MotionSource.MODEL}:
        steps = parse_action(delta.action) if delta.action else None
        return of_steps(steps) if steps is not None else (None, None)
    angles = motion.yaw_rad, motion.pitch_rad, motion.roll_rad
    turn = rotation_from_ypr(*angles) if all(map(math.isfinite, angles)) else None
    offset = np.array(motion.translation)
    is_still = not np.isfinite(offset).all() or not offset.any()
    if motion.is_metric and np.isfinite(offset).all():
        return turn, offset
    steps = parse_action(delta.action)
    stays = steps is not None and not any(step.verb == 'moved' for step in steps)
    return turn, np.zeros(3) if is_still and stays else None


def sights_of(deltas: Sequence[SemanticDelta], stands: dict[int, Stand]) -> list[ItemSight]:
    """What was in view at each delta, oldest first; what has left or is doubtful is not."""
    return [
        ItemSight(item, stands.get(index), delta.stamp_ns, delta.to_id, index + 1)
        for index, delta in enumerate(deltas)
        for item in delta.items
        if item.status is not ItemStatus.LEFT and not item.is_doubtful
    ]
