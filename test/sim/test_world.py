# SPDX-License-Identifier: Apache-2.0
"""What is rendered agrees with rays, with geometry and with the vocabulary of colours."""

from __future__ import annotations

import contextlib
import math
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

import cv2
from embodied_r_ros.core.types.geometry import (
    BODY_FROM_OPTICAL,
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.vocabulary import (
    COLOURS,
    hue_table,
    MIN_SATURATION,
    MIN_VALUE,
    roundness,
    shape_word,
)
from embodied_r_ros.sim.indoor.room import furnished_room, possible_labels, Room, UnfitError
from embodied_r_ros.sim.indoor.world import Rendering, World, WorldRenderer
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Views = list[tuple[Room, World, Pose, Rendering]]
CAMERA = Intrinsics.from_fov(320, 240, math.radians(90))


def pose(yaw_deg: float, pitch_deg: float = 5.0) -> Pose:
    rotation = rotation_from_ypr(math.radians(yaw_deg), math.radians(pitch_deg), 0.0)
    return Pose((0.1, -0.2, 1.2), quaternion_from_matrix(rotation), 'odom')


POSES = [pose(yaw) for yaw in range(0, 360, 60)]


@pytest.fixture(scope='module')
def rooms() -> list[Room]:
    return [furnished_room(np.random.default_rng(seed)) for seed in range(3)]


@pytest.fixture(scope='module')
def views(rooms: list[Room]) -> Views:
    seen = []
    for room in rooms:
        world = World(room, np.random.default_rng(1))
        with WorldRenderer(world, CAMERA) as renderer:
            seen += [(room, world, pose, renderer.render(pose)) for pose in POSES]
    return seen


def test_rays_and_renderer_agree_on_depth(views: Views) -> None:
    for _, world, pose, rendering in views:
        error = np.abs(world.depth(pose, CAMERA) / rendering.depth - 1)
        # Only pixels on the edges of things fall on the one side here and on the other there.
        assert np.mean(error < 1e-3) > 0.99


def test_the_centre_of_an_unhidden_thing_is_where_geometry_says(views: Views) -> None:
    checked = 0
    for room, world, pose, rendering in views:
        for index, thing in enumerate(room.things):
            offset = pose.rotation().T @ np.subtract(thing.position, pose.position)
            x, y, z = BODY_FROM_OPTICAL.T @ offset
            u, v = CAMERA.fx * x / z + CAMERA.cx, CAMERA.fy * y / z + CAMERA.cy
            inside = z > 0 and 0 <= u < 319.4 and 0 <= v < 239.4
            _, met = world.cast(
                pose.position, (pose.rotation() @ offset)[None] / np.linalg.norm(offset)
            )
            if inside and met[0] == index:
                assert rendering.things[round(v), round(u)] == index
                checked += 1
    assert checked > 10


def test_things_show_their_colour_and_nothing_else_has_one(views: Views) -> None:
    table = hue_table()
    for room, _, _, rendering in views:
        hue, saturation, value = cv2.split(cv2.cvtColor(rendering.image, cv2.COLOR_BGR2HSV))
        strong = (saturation >= MIN_SATURATION) & (value >= MIN_VALUE)
        assert not strong[rendering.things < 0].any()
        for index in np.unique(rendering.things[rendering.things >= 0]):
            area = rendering.things == index
            assert strong[area].all()
            assert {COLOURS[c].name for c in table[hue[area]]} == {room.things[index].colour}


def seen_shape(area: NDArray[np.bool_], pitch_rad: float) -> str | None:
    """Tell the shape of a silhouette; None where it is small or reaches the border."""
    rows, columns = np.nonzero(area)
    if len(rows) < 150 or area[[0, -1]].any() or area[:, [0, -1]].any():
        return None
    width = np.ptp(np.arctan((columns - CAMERA.cx) / CAMERA.fx))
    height = np.ptp(angles := np.arctan((rows - CAMERA.cy) / CAMERA.fy))
    elevation = -float(np.mean(angles)) - pitch_rad
    return shape_word(float(height / width), roundness(area), elevation)


def test_most_whole_silhouettes_have_the_shape_of_their_label(rooms: list[Room]) -> None:
    right = []
    for room in rooms:
        world = World(room)
        with WorldRenderer(world, CAMERA) as renderer:
            for index, thing in enumerate(room.things):
                world.place([t.position if t is thing else None for t in room.things])
                shapes = [seen_shape(renderer.render(p).things == index, 0.09) for p in POSES]
                right += [shape == thing.shape for shape in shapes if shape]
    assert len(right) > 15
    assert np.mean(right) > 0.9


def test_absent_things_are_neither_met_nor_seen(rooms: list[Room]) -> None:
    world = World(rooms[0], np.random.default_rng(1))
    world.place([None] * len(rooms[0].things))
    with WorldRenderer(world, CAMERA) as renderer:
        for pose in POSES:
            assert np.all(renderer.render(pose).things == -1)


def test_the_room_is_closed(rooms: list[Room]) -> None:
    for room in rooms:
        directions = np.random.default_rng(0).normal(size=(500, 3))
        directions /= np.linalg.norm(directions, axis=1, keepdims=True)
        distances, _ = World(room).cast((0.0, 0.0, 1.0), directions)
        assert np.all(distances > 0)


def test_the_same_seed_draws_the_same_room_and_pixels() -> None:
    images = []
    for _ in range(2):
        world = World(furnished_room(np.random.default_rng(5)), np.random.default_rng(6))
        with WorldRenderer(world, CAMERA) as renderer:
            images.append(renderer.image(POSES[0]))
    assert np.array_equal(images[0], images[1])


def test_a_camera_that_opengl_cannot_draw_is_refused(rooms: list[Room]) -> None:
    skewed = Intrinsics(320, 240, 160.0, 150.0, 159.5, 119.5)
    with pytest.raises(ValueError, match='square pixels'):
        WorldRenderer(World(rooms[0]), skewed)


def test_things_keep_apart_and_stand_on_something(rooms: list[Room]) -> None:
    for seed in range(20):
        room = furnished_room(np.random.default_rng(100 + seed))
        tops = {surface.z for surface in room.surfaces()}
        for index, thing in enumerate(room.things):
            assert min(abs(thing.position[2] - thing.size[2] / 2 - top) for top in tops) < 1e-9
            others = [*room.things[:index], *room.things[index + 1 :]]
            assert room.fits(thing, others)


def test_things_have_every_label_that_is_told() -> None:
    labels = set()
    for seed in range(40):
        with contextlib.suppress(UnfitError):  # which is drawn anew, as any room
            room = furnished_room(np.random.default_rng(seed))
            labels |= {thing.label for thing in room.things}
    assert labels == set(possible_labels())
