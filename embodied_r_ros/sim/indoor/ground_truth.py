# SPDX-License-Identifier: Apache-2.0
"""What is true of a scenario: its layout, its keyframes, and the semantic deltas between them.

Everything comes from geometry and rays, so that it does not depend on whether images are rendered,
or how large.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.episodes.ground_truth import ground_truth_deltas
from embodied_r_ros.keyframes.covisibility import covisibility
from embodied_r_ros.keyframes.selector import Keyframe, KeyframeConfig, KeyframeReason
from embodied_r_ros.sim.indoor.visibility import sampled_surface, views_of
from embodied_r_ros.sim.indoor.world import World
from embodied_r_ros.types.geometry import relative_motion, yaw_pitch_roll
from embodied_r_ros.types.images import EncodedImage
from embodied_r_ros.types.layout import ImageTruth, Layout, LayoutObject
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.sim.indoor.scenario import Scenario
    from embodied_r_ros.sim.runs import IndoorConfig
    from embodied_r_ros.types.deltas import SemanticDelta
    from embodied_r_ros.types.geometry import Intrinsics, Pose
    from numpy.typing import NDArray

_DEPTH_WIDTH_PX = 64  # of the depth images that decide the overlap
_STILL_M = 1e-3  # between two images of a still camera, at most
_STILL_RAD = 1e-3
_CHANGED_DEPTH = 0.05  # share by which the depth of a pixel changes when something comes or goes


@dataclass(frozen=True)
class Truth:
    """What is true of an episode."""

    layout: Layout
    keyframes: tuple[Keyframe, ...]  # without images
    deltas: tuple[SemanticDelta, ...]  # one for each keyframe


def true_episode(
    scenario: Scenario, config: IndoorConfig, keyframing: KeyframeConfig | None = None
) -> Truth:
    """Find out what is true of a scenario.

    Args:
        scenario: What happens.
        config: The camera.
        keyframing: When an image becomes a keyframe; None: as anywhere else.
    """
    world = World(scenario.room)
    camera = config.camera()
    layout = _layout(scenario, world, camera)
    keyframes = _keyframes(scenario, world, camera, keyframing or KeyframeConfig())
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
        changed = np.abs(look.depth / before.depth - 1) > _CHANGED_DEPTH
        if changed.mean() >= config.content_change:
            return KeyframeReason.CONTENT_CHANGE
    return None
