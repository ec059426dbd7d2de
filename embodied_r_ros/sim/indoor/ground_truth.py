# SPDX-License-Identifier: Apache-2.0
"""What is true of a scenario: its layout, its keyframes, and the semantic deltas between them.

Everything comes from geometry and rays, so that it does not depend on whether images are rendered,
or how large.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import math
from typing import TYPE_CHECKING

from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    direction_of_vector,
    relative_motion,
    rotation_from_ypr,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.layout import ImageTruth, Layout, LayoutObject, ObjectView
from embodied_r_ros.data.episodes.ground_truth import ground_truth_deltas
from embodied_r_ros.sim.indoor.world import World
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import Part, RoomThing
    from embodied_r_ros.sim.indoor.scenario import Scenario
    from embodied_r_ros.sim.runs import IndoorConfig
    from numpy.typing import NDArray

_DEPTH_WIDTH_PX = 64  # of the depth images that decide the overlap
_STILL_M = 1e-3  # between two images of a still camera, at most
_STILL_RAD = 1e-3
_CHANGED_DEPTH = 0.05  # share by which the depth of a pixel changes when something comes or goes
_CHANGED_SHARE = 0.15  # of the view, for a keyframe

_PER_SIDE = 6  # samples along each side of a face
_PER_PART_SIDE = 3  # the same of each part of a piece of furniture


@dataclass(frozen=True)
class SurfaceSamples:
    """Samples of a thing's surface, in its own axes."""

    points: NDArray[np.float64]  # (N, 3) [m]
    normals: NDArray[np.float64]  # (N, 3), outward
    areas: NDArray[np.float64]  # (N,) [m2]
    corners: NDArray[np.float64]  # (M, 3), what the outline lies between; empty: a ball [m]
    radius: float = 0.0  # of a ball [m]; 0: it is none


def sampled_surface(thing: RoomThing) -> SurfaceSamples:
    """Sample the surface of a thing that stands upright at its yaw, about its centre."""
    half = np.divide(thing.size, 2)
    make = {'sphere': _ball, 'cylinder': _drum, 'box': _block}[thing.solid]
    surface = _joined(thing.parts) if thing.parts else make(half)
    c, s = math.cos(thing.yaw_rad), math.sin(thing.yaw_rad)
    turn = np.array([[c, -s, 0.0], [s, c, 0.0], [0.0, 0.0, 1.0]])
    return replace(
        surface,
        points=surface.points @ turn.T,
        normals=surface.normals @ turn.T,
        corners=surface.corners @ turn.T,
    )


def _joined(parts: Sequence[Part]) -> SurfaceSamples:
    """Samples of the boxes around all parts of a piece of furniture."""
    solids = [(_block(np.divide(part.size, 2), _PER_PART_SIDE), part) for part in parts]
    turns = [rotation_from_ypr(*part.turn).T for part in parts]
    return SurfaceSamples(
        np.concatenate([s.points @ t + p.centre for (s, p), t in zip(solids, turns, strict=True)]),
        np.concatenate([s.normals @ t for (s, _), t in zip(solids, turns, strict=True)]),
        np.concatenate([solid.areas for solid, _ in solids]),
        np.concatenate(
            [s.corners @ t + p.centre for (s, p), t in zip(solids, turns, strict=True)]
        ),
    )


def _ball(half: NDArray[np.float64]) -> SurfaceSamples:
    """Samples of a sphere on a Fibonacci lattice."""
    count = 16 * _PER_SIDE
    k = np.arange(count) + 0.5
    z = 1 - 2 * k / count
    angle = math.pi * (1 + math.sqrt(5)) * k
    ring = np.sqrt(1 - z**2)
    normals = np.stack([ring * np.cos(angle), ring * np.sin(angle), z], axis=1)
    radius = float(half[0])
    areas = np.full(count, 4 * math.pi * radius**2 / count)
    return SurfaceSamples(normals * radius, normals, areas, np.empty((0, 3)), radius)


def _drum(half: NDArray[np.float64]) -> SurfaceSamples:
    """Samples of an upright cylinder."""
    radius, height = float(half[0]), float(half[2])
    angles = np.linspace(0, 2 * math.pi, 3 * _PER_SIDE, endpoint=False)
    rim = np.stack([np.cos(angles), np.sin(angles), np.zeros_like(angles)], axis=1)
    levels = _cells(height)
    points = [_raise(rim * radius, level) for level in levels]
    normals = [rim] * len(levels)
    areas = [
        np.full(len(rim) * len(levels), 4 * math.pi * radius * height / len(rim) / len(levels))
    ]
    # Rings at these radii stand for equal areas of a lid.
    lid = np.concatenate([rim * radius * math.sqrt((ring + 0.5) / 3) for ring in range(3)])
    for end in (-1.0, 1.0):
        points.append(_raise(lid, end * height))
        normals.append(np.tile([0.0, 0.0, end], (len(lid), 1)))
        areas.append(np.full(len(lid), math.pi * radius**2 / len(lid)))
    corners = np.concatenate([_raise(rim * radius, end * height) for end in (-1, 1)])
    return SurfaceSamples(
        np.concatenate(points), np.concatenate(normals), np.concatenate(areas), corners
    )


def _raise(points: NDArray[np.float64], z: float) -> NDArray[np.float64]:
    return np.add(points, [0.0, 0.0, z])


def _block(half: NDArray[np.float64], per_side: int = _PER_SIDE) -> SurfaceSamples:
    """Samples of a box."""
    points, normals, areas = [], [], []
    for axis in range(3):
        u, v = (axis + 1) % 3, (axis + 2) % 3
        a, b = np.meshgrid(_cells(half[u], per_side), _cells(half[v], per_side))
        for sign in (-1.0, 1.0):
            face = np.zeros((a.size, 3))
            face[:, axis], face[:, u], face[:, v] = sign * half[axis], a.ravel(), b.ravel()
            points.append(face)
            normals.append(np.tile(sign * np.eye(3)[axis], (a.size, 1)))
            areas.append(np.full(a.size, 4 * half[u] * half[v] / a.size))
    signs = np.array([[x, y, z] for x in (-1, 1) for y in (-1, 1) for z in (-1, 1)])
    return SurfaceSamples(
        np.concatenate(points), np.concatenate(normals), np.concatenate(areas), signs * half
    )


def _cells(half: float, count: int = _PER_SIDE) -> NDArray[np.float64]:
    """Middles of equal cells between -half and half."""
    return np.asarray(((np.arange(count) + 0.5) / count * 2 - 1) * half)


# A thing counts as visible with at least this share of its silhouette and of the image (77 px of
# 320x240).
MIN_SILHOUETTE = 0.3
MIN_AREA = 0.001
_TOUCH_M = 0.01  # rays end this near to the point that they are meant for


def views_of(
    world: World,
    surfaces: Sequence[SurfaceSamples],
    positions: Sequence[Vector | None],
    pose: Pose,
    camera: Intrinsics,
) -> tuple[ObjectView, ...]:
    """Views of all things of which a part can be seen.

    Args:
        world: The world, with its things placed at `positions`.
        surfaces: Samples of each thing.
        positions: Centre of each thing [m]; None: absent.
        pose: Pose of the camera link.
        camera: Its intrinsics.
    """
    present = [(i, s, p) for i, (s, p) in enumerate(zip(surfaces, positions, strict=True)) if p]
    if not present:
        return ()
    owner = np.concatenate([np.full(len(s.areas), i) for i, s, _ in present])
    offsets = np.concatenate([s.points + np.subtract(p, pose.position) for _, s, p in present])
    normals = np.concatenate([s.normals for _, s, _ in present])
    areas = np.concatenate([s.areas for _, s, _ in present])
    lengths = np.linalg.norm(offsets, axis=1)
    cosines = -np.einsum('ij,ij->i', offsets, normals) / lengths
    solid = np.maximum(cosines, 0.0) * areas / lengths**2  # solid angle of each sample [sr]
    optical = offsets @ (pose.rotation() @ BODY_FROM_OPTICAL)
    visible = (solid > 0) & _is_inside(optical, camera)
    rays = offsets[visible] / lengths[visible, None]
    distances, owners = world.cast(pose.position, rays)
    visible[visible] = (owners == owner[visible]) | (distances > lengths[visible] - _TOUCH_M)
    # A solid angle fills more pixels the further from the axis it lies.
    axis = np.maximum(optical[:, 2] / lengths, 1e-3)
    image_share = solid / axis**3 * camera.fx * camera.fy / (camera.width * camera.height)
    views = []
    for index, surface, position in present:
        mine = owner == index
        share = float(solid[mine & visible].sum() / solid[mine].sum())
        if share > 0:
            area = float(image_share[mine & visible].sum())
            views.append(_view(index, surface, position, pose, (share, area)))
    return tuple(views)


def _view(
    index: int, surface: SurfaceSamples, position: Vector, pose: Pose, shares: tuple[float, float]
) -> ObjectView:
    share, area = shares
    rotation = pose.rotation()
    centre = np.subtract(position, pose.position) @ rotation
    bearing, elevation = direction_of_vector(centre)
    return ObjectView(
        object_id=index,
        visible=share >= MIN_SILHOUETTE and area >= MIN_AREA,
        share=share,
        area=area,
        bearing_rad=bearing,
        elevation_rad=elevation,
        distance_m=float(np.linalg.norm(centre)),
        size_rad=_angular_size(surface, rotation, centre),
    )


def _angular_size(
    surface: SurfaceSamples, rotation: NDArray[np.float64], centre: NDArray[np.float64]
) -> float:
    """The larger of width and height of the silhouette, as angles [rad]."""
    if surface.radius:
        return 2 * math.asin(min(1.0, surface.radius / float(np.linalg.norm(centre))))
    x, y, z = (surface.corners @ rotation + centre).T
    # Relative to the centre, so that nothing wraps.
    bearings = np.arctan2(y * centre[0] - x * centre[1], x * centre[0] + y * centre[1])
    elevations = np.arctan2(z, np.hypot(x, y))
    return float(max(np.ptp(bearings), np.ptp(elevations)))


def _is_inside(optical: NDArray[np.float64], camera: Intrinsics) -> NDArray[np.bool_]:
    """Tell which points (N, 3) in optical axes fall into the image. Shape (N,)."""
    z = np.maximum(optical[:, 2], 1e-6)
    u = optical[:, 0] / z * camera.fx + camera.cx
    v = optical[:, 1] / z * camera.fy + camera.cy
    inside = (np.abs(u - camera.cx) <= camera.width / 2) & (
        np.abs(v - camera.cy) <= camera.height / 2
    )
    return np.asarray(inside & (optical[:, 2] > 0))


@dataclass(frozen=True)
class Truth:
    """What is true of an episode."""

    layout: Layout
    keyframes: tuple[Keyframe, ...]  # without images
    deltas: tuple[SemanticDelta, ...]  # one for each keyframe


def true_episode(scenario: Scenario, config: IndoorConfig) -> Truth:
    """Find out what is true of a scenario.

    Args:
        scenario: What happens.
        config: The camera.
    """
    world = World(scenario.room)
    camera = config.camera()
    layout = _layout(scenario, world, camera)
    keyframes = _keyframes(scenario, world, camera, KeyframeConfig())
    deltas = ground_truth_deltas(layout, [keyframe.stamp_ns for keyframe in keyframes])
    return Truth(layout, tuple(keyframes), tuple(deltas))


def _layout(scenario: Scenario, world: World, camera: Intrinsics) -> Layout:
    surfaces = [sampled_surface(thing) for thing in scenario.room.things]
    images = []
    for stamp_ns in scenario.stamps_ns:
        positions = scenario.positions(stamp_ns)
        world.place(positions)
        views = views_of(world, surfaces, positions, scenario.pose(stamp_ns), camera)
        x, y, z, yaw, pitch = scenario.state(stamp_ns)
        images.append(ImageTruth(stamp_ns, (x, y, z), yaw, pitch, 0.0, views))
    visible_stamps: dict[int, list[int]] = {index: [] for index in range(len(surfaces))}
    for image in images:
        for view in image.views:
            if view.visible:
                visible_stamps[view.object_id].append(image.stamp_ns)
    objects = tuple(_object(scenario, index, stamps) for index, stamps in visible_stamps.items())
    return Layout(
        episode_id=scenario.episode_id,
        scene_id=scenario.scene_id,
        room_size=scenario.room.size,
        objects=objects,
        images=tuple(images),
        labels=scenario.labels,
        may_return=scenario.may_return,
    )


def _object(scenario: Scenario, index: int, seen_ns: Sequence[int]) -> LayoutObject:
    thing = scenario.room.things[index]
    return LayoutObject(
        id=index,
        label=thing.label,
        colour=thing.colour,
        shape=thing.shape,
        size=thing.size,
        yaw_rad=thing.yaw_rad,
        support=thing.support,
        spans=scenario.tracks[index],
        first_seen_ns=seen_ns[0] if seen_ns else 0,
        last_seen_ns=seen_ns[-1] if seen_ns else 0,
    )


@dataclass(frozen=True)
class Look:
    """What decides whether an image is a keyframe."""

    stamp_ns: int
    pose: Pose
    depth: NDArray[np.float64]


def _keyframes(
    scenario: Scenario, world: World, camera: Intrinsics, config: KeyframeConfig
) -> list[Keyframe]:
    small = camera.scaled(_DEPTH_WIDTH_PX, round(_DEPTH_WIDTH_PX * camera.height / camera.width))
    keyframes: list[Keyframe] = []
    reference = before = None
    for stamp_ns in scenario.stamps_ns:
        world.place(scenario.positions(stamp_ns))
        pose = scenario.pose(stamp_ns)
        look = Look(stamp_ns, pose, world.depth(pose, small))
        overlap, reason = None, KeyframeReason.FIRST
        if reference and before:
            overlap = min(
                covisibility(reference.depth, reference.pose, look.depth, look.pose, small)
            )
            change_reason = reason_for(config, overlap, (reference, before, look))
            before = look
            if change_reason is None:
                continue
            reason = change_reason
        reference = before = look
        keyframes.append(_keyframe(scenario, look, len(keyframes), overlap, reason))
    return keyframes


def _keyframe(
    scenario: Scenario, look: Look, number: int, overlap: float | None, reason: KeyframeReason
) -> Keyframe:
    return Keyframe(
        id=number,
        stamp_ns=look.stamp_ns,
        image=EncodedImage(b'', 'jpeg'),
        reason=reason,
        reference_id=max(0, number - 1),
        overlap=overlap,
        pose=look.pose,
        episode_id=scenario.episode_id,
    )


def reason_for(
    config: KeyframeConfig, overlap: float, looks: tuple[Look, Look, Look]
) -> KeyframeReason | None:
    """Say why an image is a keyframe, from the last keyframe, the image before, and itself."""
    reference, before, look = looks
    if overlap < config.max_overlap:
        return KeyframeReason.LOW_OVERLAP
    rotation, _ = relative_motion(reference.pose, look.pose)
    if abs(yaw_pitch_roll(rotation)[2]) > config.max_roll_rad:
        return KeyframeReason.ROLL
    rotation, offset = relative_motion(before.pose, look.pose)
    turn = math.acos(min(1.0, (np.trace(rotation) - 1) / 2))
    if turn < _STILL_RAD and np.linalg.norm(offset) < _STILL_M:
        differences = np.abs(look.depth / before.depth - 1) > _CHANGED_DEPTH
        if differences.mean() >= _CHANGED_SHARE:
            return KeyframeReason.CONTENT_CHANGE
    return None
