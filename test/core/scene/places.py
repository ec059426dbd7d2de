# SPDX-License-Identifier: Apache-2.0
"""Deltas of things at known places, as a perfect perceiver with some way to range would say."""

from __future__ import annotations

from dataclasses import dataclass
import math

from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    Item,
    ItemStatus,
    ScaleSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    direction_of_vector,
    Intrinsics,
    pixels_of_points,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
import numpy as np

CAMERA = Intrinsics.from_fov(640, 480, math.radians(80))
SECOND_NS = 1_000_000_000


@dataclass(frozen=True)
class Thing:
    """Something at a place, as wide as it is high."""

    label: str
    place: tuple[float, float, float]
    side_m: float = 0.4
    status: ItemStatus = ItemStatus.VISIBLE


def camera_at(x: float, y: float, yaw_deg: float = 0.0, frame: str = 'map') -> Pose:
    """A level camera 1 m above the floor."""
    turn = quaternion_from_matrix(rotation_from_ypr(math.radians(yaw_deg), 0.0, 0.0))
    return Pose((x, y, 1.0), turn, frame)


def item_of(thing: Thing, pose: Pose, scale: ScaleSource = ScaleSource.DEPTH) -> Item:
    """A thing as seen from a pose; without a scale it has no distance."""
    in_body = pose.rotation().T @ np.subtract(thing.place, pose.position)
    bearing, elevation = direction_of_vector(in_body)
    far_m = float(np.linalg.norm(in_body))
    (u, v) = pixels_of_points(CAMERA, (BODY_FROM_OPTICAL.T @ in_body)[None])[0]
    half = thing.side_m / 2 / in_body[0]
    across, down = half * CAMERA.fx / CAMERA.width, half * CAMERA.fy / CAMERA.height
    u, v = (u + 0.5) / CAMERA.width, (v + 0.5) / CAMERA.height
    return Item(
        thing.label,
        thing.status,
        bearing,
        elevation,
        2 * math.atan(thing.side_m / 2 / far_m),
        math.nan if scale is ScaleSource.UNKNOWN else far_m,
        0.9,
        (u - across, v - down, u + across, v + down),
        scale,
    )


def delta_of(
    number: int, pose: Pose, *things: Thing, scale: ScaleSource = ScaleSource.DEPTH
) -> tuple[SemanticDelta, CameraView]:
    """The delta with a number, of things that are all in view, and from where it was seen."""
    items = tuple(item_of(thing, pose, scale) for thing in things)
    kind = DeltaKind.CHANGE if number else DeltaKind.FIRST
    delta = SemanticDelta(
        (number + 1) * SECOND_NS,
        kind,
        number,
        max(0, number - 1),
        number * SECOND_NS if number else SECOND_NS,
        items=items,
    )
    return delta, CameraView(pose, CAMERA)
