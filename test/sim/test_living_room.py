# SPDX-License-Identifier: Apache-2.0
"""Furnished rooms: what stands in them, how they look, and what the simulated detector says."""

from __future__ import annotations

from itertools import combinations
import json
import math
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

import cv2
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.vision_messages import read_boxes
from embodied_r_ros.core.types.geometry import (
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.layout import Layout
from embodied_r_ros.core.types.vocabulary import hue_table, MIN_SATURATION, MIN_VALUE
from embodied_r_ros.sim.indoor.detector import SimulatedDetector
from embodied_r_ros.sim.indoor.episodes import generate
from embodied_r_ros.sim.indoor.furniture import living_room, NAMES
from embodied_r_ros.sim.indoor.ground_truth import sampled_surface, views_of
from embodied_r_ros.sim.indoor.room import Box
from embodied_r_ros.sim.indoor.world import World, WorldRenderer
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.indoor.room import Room, RoomThing

CAMERA = Intrinsics.from_fov(320, 240, math.radians(90))


def room_of(seed: int) -> Room:
    return living_room(np.random.default_rng(seed))


def looking_in(room: Room, corner: int) -> Pose:
    """A view from near a corner over the room."""
    x = 0.36 * room.size[0] * (-1 if corner in {0, 3} else 1)
    y = 0.36 * room.size[1] * (-1 if corner in {0, 1} else 1)
    rotation = rotation_from_ypr(math.atan2(-y, -x), math.radians(8), 0.0)
    return Pose((x, y, 1.35), quaternion_from_matrix(rotation), 'odom')


def plan(thing: RoomThing) -> Box:
    turn = np.abs(rotation_from_ypr(thing.yaw_rad, 0.0, 0.0))
    wide, deep, _ = (float(value) for value in turn @ thing.size)
    return Box((*thing.position[:2], 0.0), (wide, deep, 0.0))


def test_every_room_has_all_kinds_within_its_walls_and_apart() -> None:
    for seed in range(40):
        room = room_of(seed)
        assert {thing.name for thing in room.things} == set(NAMES)
        for thing in room.things:
            box = plan(thing)
            reach = np.abs(box.centre[:2]) + np.divide(box.size[:2], 2)
            assert np.all(reach <= np.divide(room.size[:2], 2) + 1e-6), thing.name
        for one, other in combinations(room.things, 2):
            if {one.name, other.name} not in ({'tv', 'cabinet'}, {'table', 'chair'}):
                assert plan(one).gap(plan(other)) > 0, (seed, one.name, other.name)


def test_pieces_turn_their_fronts_to_the_room() -> None:
    for seed in range(8):
        for thing in room_of(seed).things:
            if thing.name in {'couch', 'shelf', 'door', 'cabinet', 'tv'}:
                front = rotation_from_ypr(thing.yaw_rad, 0.0, 0.0) @ (0.0, -1.0, 0.0)
                assert front @ np.array(thing.position) < 0, thing.name


def test_rays_and_renderer_agree_and_what_lies_beside_the_view_alone_is_left_out() -> None:
    world = World(room_of(3), np.random.default_rng(1))
    with WorldRenderer(world, CAMERA) as renderer:
        for corner in range(4):
            pose = looking_in(room_of(3), corner)
            rendering = renderer.render(pose)
            error = np.abs(world.depth(pose, CAMERA) / rendering.depth - 1)
            # Round parts have few facets, and only pixels on edges fall elsewhere.
            assert np.mean(error < 0.02) > 0.98
            _, things = world.cast(pose.position, np.array([pose.rotation() @ [1.0, 0.0, 0.0]]))
            assert things[0] in rendering.things[118:122, 158:162]


def test_nothing_has_a_colour_with_a_name() -> None:
    room = room_of(5)
    world, named = World(room, np.random.default_rng(2)), hue_table() >= 0
    with WorldRenderer(world, CAMERA) as renderer:
        for corner in range(4):
            image = renderer.image(looking_in(room, corner))
            hue, saturation, value = cv2.split(cv2.cvtColor(image, cv2.COLOR_BGR2HSV))
            strong = (saturation >= MIN_SATURATION) & (value >= MIN_VALUE) & named[hue]
            patches = cv2.erode(strong.astype(np.uint8), np.ones((5, 5)))
            assert np.count_nonzero(patches) < 0.01 * patches.size


def shown(room: Room, seed: int) -> tuple[list[set[str]], list[set[str]], list[float]]:
    """What is visible and what is found from each corner, and how far the boxes are off [px]."""
    world = World(room)
    surfaces = [sampled_surface(thing) for thing in room.things]
    places: list[Vector | None] = [thing.position for thing in room.things]
    visible, found, off = [], [], []
    with (
        SimulatedDetector(room, CAMERA, np.random.default_rng(seed)) as detector,
        WorldRenderer(World(room), CAMERA) as renderer,
    ):
        for corner in range(4):
            pose = looking_in(room, corner)
            views = views_of(world, surfaces, places, pose, CAMERA)
            detections = detector.detect(pose, places, views)
            names = [room.things[view.object_id].name for view in views if view.visible]
            visible.append(set(names))
            found.append({one.label for one in detections})
            things = renderer.things(pose)
            for index, thing in enumerate(room.things):
                rows, columns = np.nonzero(things == index)
                mine = [one for one in detections if one.label == thing.name]
                if thing.name != 'chair' and mine and len(rows):
                    true = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
                    off += np.abs(np.subtract(mine[0].box, true)).tolist()
    return visible, found, off


def test_the_detector_finds_what_is_visible_misses_some_and_is_a_little_off() -> None:
    missed = most = 0
    for seed in range(6):
        visible, found, off = shown(room_of(seed), seed)
        assert all(mine <= there for mine, there in zip(found, visible, strict=True))
        missed += sum(len(t - f) for t, f in zip(visible, found, strict=True))
        most += sum(len(there) for there in visible)
        assert 0.3 < np.mean(off) < 3.0
        assert shown(room_of(seed), seed)[1] == found
    assert 0.02 < missed / most < 0.2


def test_a_bag_holds_boxes_that_say_whose_they_are_and_the_truth_has_the_names(
    tmp_path: Path,
) -> None:
    config = IndoorConfig(duration_s=5.0, rate_hz=5.0, width_px=160, height_px=120)
    [bag] = generate(config, 3, 1, tmp_path / 'out')
    boxes = read_boxes(bag)
    assert boxes.name == 'simulated detector'
    with open_bag(bag) as reader:
        [(_, _, layout)] = read_messages(reader, ['/truth/layout'])
        [(_, _, note)] = read_messages(reader, ['/provenance'])
    truth = Layout.from_json(layout.data)
    assert set(boxes.by_stamp_ns) == {image.stamp_ns for image in truth.images}
    found = {one.label for image in boxes.by_stamp_ns.values() for one in image}
    assert found <= {thing.label for thing in truth.objects} == set(NAMES) == set(truth.labels)
    assert 'simulated detector' in json.loads(note.data)['detections']
