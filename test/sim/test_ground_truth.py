# SPDX-License-Identifier: Apache-2.0
"""Truth agrees with what is rendered, with odometry, and with itself."""

from __future__ import annotations

from itertools import pairwise
import math

import pytest

pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.core.keyframes.overlap import covisibility
from embodied_r_ros.core.keyframes.selector import KeyframeConfig
from embodied_r_ros.core.types.deltas import DeltaKind, ItemStatus, parse_action
from embodied_r_ros.core.types.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.core.types.keyframes import KeyframeReason
from embodied_r_ros.core.types.vocabulary import item_label
from embodied_r_ros.data.episodes.ground_truth import MAX_ITEMS, MOVED_M
from embodied_r_ros.sim.indoor.episodes import draw_episode, MIN_KEYFRAMES
from embodied_r_ros.sim.indoor.ground_truth import Look, MIN_AREA, reason_for, true_episode, Truth
from embodied_r_ros.sim.indoor.scenario import Scenario
from embodied_r_ros.sim.indoor.world import World, WorldRenderer
from embodied_r_ros.sim.runs import IndoorConfig
import numpy as np

CONFIG = IndoorConfig(kinds='all')
Episodes = list[tuple[Scenario, Truth]]


@pytest.fixture(scope='module')
def episodes() -> Episodes:
    return [draw_episode(CONFIG, 3, index)[:2] for index in range(6)]


def test_equal_seeds_give_equal_truth() -> None:
    config = IndoorConfig(duration_s=8.0, kinds='all')
    first, second = (draw_episode(config, 11, 4)[1] for _ in range(2))
    assert first.layout.to_json() == second.layout.to_json()
    # As text: from Python 3.13 on, dataclasses with NaN differ from themselves.
    assert repr(first) == repr(second)
    assert draw_episode(config, 12, 4)[1].layout.to_json() != first.layout.to_json()


def test_a_longer_episode_begins_in_the_same_room(episodes: Episodes) -> None:
    longer = IndoorConfig(duration_s=25.0, kinds='all')
    assert draw_episode(longer, 3, 0)[0].room == episodes[0][0].room


def test_motions_add_up_to_the_way_from_first_to_last(episodes: Episodes) -> None:
    for scenario, truth in episodes:
        first, last = (scenario.pose(truth.keyframes[i].stamp_ns) for i in (0, -1))
        position, rotation = np.array(first.position), first.rotation()
        for delta in truth.deltas[1:]:
            motion = delta.motion
            position = position + rotation @ np.array(motion.translation)
            rotation = rotation @ rotation_from_ypr(
                motion.yaw_rad, motion.pitch_rad, motion.roll_rad
            )
        assert position == pytest.approx(np.array(last.position), abs=1e-9)
        assert rotation == pytest.approx(last.rotation(), abs=1e-9)


def test_images_of_the_layout_lie_on_the_path(episodes: Episodes) -> None:
    for scenario, truth in episodes:
        assert [image.stamp_ns for image in truth.layout.images] == list(scenario.stamps_ns)
        for image in truth.layout.images[::37]:
            pose = scenario.pose(image.stamp_ns)
            rotation = rotation_from_ypr(image.yaw_rad, image.pitch_rad, image.roll_rad)
            assert image.position == pose.position
            assert rotation == pytest.approx(pose.rotation())


def test_views_agree_with_the_rendered_image(episodes: Episodes) -> None:
    camera = CONFIG.camera()
    pixels = camera.width * camera.height
    ratios, checked = [], 0
    for scenario, truth in episodes[:3]:
        world = World(scenario.room)
        with WorldRenderer(world, camera) as renderer:
            for image in truth.layout.images[::20]:
                world.place(scenario.positions(image.stamp_ns))
                things = renderer.render(scenario.pose(image.stamp_ns)).things
                views = {view.object_id: view for view in image.views}
                for index in range(len(scenario.room.things)):
                    rendered = np.count_nonzero(things == index) / pixels
                    view = views.get(index)
                    area = view.area if view else 0.0
                    assert area == pytest.approx(rendered, rel=0.35, abs=MIN_AREA / 2)
                    if rendered > 5 * MIN_AREA:
                        assert view
                        ratios.append(area / rendered)
                        checked += view.visible
    assert checked > 20
    assert np.median(ratios) == pytest.approx(1.0, abs=0.03)


def test_directions_point_at_the_rendered_thing(episodes: Episodes) -> None:
    camera = CONFIG.camera()
    scenario, truth = episodes[0]
    world = World(scenario.room)
    checked = 0
    with WorldRenderer(world, camera) as renderer:
        for image in truth.layout.images[::10]:
            world.place(scenario.positions(image.stamp_ns))
            things = renderer.render(scenario.pose(image.stamp_ns)).things
            for view in image.views:
                rows, columns = np.nonzero(things == view.object_id)
                if view.share < 0.99:
                    continue
                u, v = columns.mean(), rows.mean()
                bearing = math.atan((camera.cx - u) / camera.fx)
                elevation = math.atan((camera.cy - v) / camera.fy * math.cos(bearing))
                assert view.bearing_rad == pytest.approx(bearing, abs=math.radians(3))
                assert view.elevation_rad == pytest.approx(elevation, abs=math.radians(3))
                width = math.atan(np.ptp(columns) / 2 / camera.fx * math.cos(bearing) ** 2) * 2
                assert view.size_rad > 0.8 * width
                checked += 1
    assert checked > 10


def true_share(scenario: Scenario, world: World, first_ns: int, second_ns: int) -> float:
    camera = CONFIG.camera().scaled(160, 120)
    poses = [scenario.pose(stamp_ns) for stamp_ns in (first_ns, second_ns)]
    depths = []
    for stamp_ns, pose in zip((first_ns, second_ns), poses, strict=True):
        world.place(scenario.positions(stamp_ns))
        depths.append(world.depth(pose, camera))
    return min(covisibility(depths[0], poses[0], depths[1], poses[1], camera))


def test_keyframes_are_the_first_images_that_share_less_than_half(episodes: Episodes) -> None:
    for scenario, truth in episodes[:2]:
        world = World(scenario.room)
        stamps = list(scenario.stamps_ns)
        assert truth.keyframes[0].reason is KeyframeReason.FIRST
        for earlier, later in pairwise(truth.keyframes):
            share = true_share(scenario, world, earlier.stamp_ns, later.stamp_ns)
            assert later.reason is KeyframeReason.LOW_OVERLAP
            assert later.overlap == pytest.approx(share, abs=0.03)
            just_before = stamps[stamps.index(later.stamp_ns) - 1]
            assert true_share(scenario, world, earlier.stamp_ns, just_before) > 0.47


def test_deltas_belong_to_keyframes(episodes: Episodes) -> None:
    for _, truth in episodes:
        assert len(truth.keyframes) >= MIN_KEYFRAMES
        assert [d.to_id for d in truth.deltas] == [k.id for k in truth.keyframes]
        assert [d.stamp_ns for d in truth.deltas] == [k.stamp_ns for k in truth.keyframes]
        assert truth.deltas[0].kind is DeltaKind.FIRST
        assert truth.deltas[0].action == ''
        for earlier, later in pairwise(truth.deltas):
            assert (later.from_id, later.from_stamp_ns) == (earlier.to_id, earlier.stamp_ns)
            assert later.kind in {DeltaKind.CHANGE, DeltaKind.NO_CHANGE}
            assert parse_action(later.action) is not None


def test_statuses_say_what_happened_between_two_keyframes(episodes: Episodes) -> None:
    seen_statuses: set[ItemStatus] = set()
    for _, truth in episodes:
        layout = truth.layout
        for earlier, later in pairwise(truth.deltas):
            images = layout.image_at(earlier.stamp_ns), layout.image_at(later.stamp_ns)
            before, now = ({v.object_id for v in i.views if v.visible} for i in images)
            expected = []
            for thing in layout.objects:
                then, here = (thing.position_at(image.stamp_ns) for image in images)
                if thing.id in now - before:
                    expected.append((thing.label, ItemStatus.APPEARED))
                elif thing.id in before - now:
                    expected.append((thing.label, ItemStatus.LEFT))
                elif thing.id in now:
                    assert then
                    assert here
                    moved = math.dist(then, here) >= MOVED_M
                    expected.append((thing.label, [ItemStatus.VISIBLE, ItemStatus.MOVED][moved]))
            found = [(item.label, item.status) for item in later.items]
            assert sorted(found, key=str) == sorted(expected, key=str)
            seen_statuses.update(item.status for item in later.items)
    assert seen_statuses >= {ItemStatus.VISIBLE, ItemStatus.APPEARED, ItemStatus.LEFT}


def test_items_come_largest_first_and_are_bounded(episodes: Episodes) -> None:
    for _, truth in episodes:
        for delta in truth.deltas:
            sizes = [item.size_rad for item in delta.items]
            assert sizes == sorted(sizes, reverse=True)
            assert len(sizes) <= MAX_ITEMS


def test_labels_are_those_of_the_vocabulary(episodes: Episodes) -> None:
    for scenario, truth in episodes:
        for thing, known in zip(scenario.room.things, truth.layout.objects, strict=True):
            assert known.label == item_label(thing.colour, thing.shape)


def test_first_and_last_sight_are_those_of_the_views(episodes: Episodes) -> None:
    for _, truth in episodes:
        for thing in truth.layout.objects:
            stamps = [
                image.stamp_ns
                for image in truth.layout.images
                for view in image.views
                if view.object_id == thing.id and view.visible
            ]
            expected = (stamps[0], stamps[-1]) if stamps else (0, 0)
            assert (thing.first_seen_ns, thing.last_seen_ns) == expected


def test_truth_does_not_depend_on_images(episodes: Episodes) -> None:
    scenario, truth = episodes[0]
    larger = IndoorConfig(width_px=640, height_px=480, images=False, kinds='all')
    other = true_episode(scenario, larger)
    assert [k.stamp_ns for k in other.keyframes] == [k.stamp_ns for k in truth.keyframes]
    assert [d.to_row() for d in other.deltas] == [d.to_row() for d in truth.deltas]


def rolled_pose(roll_deg: float) -> Pose:
    rotation = rotation_from_ypr(0.0, 0.0, math.radians(roll_deg))
    return Pose((0.0, 0.0, 1.0), quaternion_from_matrix(rotation), 'odom')


@pytest.mark.parametrize(
    ('overlap', 'roll_deg', 'changed', 'expected'),
    [
        (0.9, 0.0, 0.0, None),
        (0.49, 0.0, 0.0, KeyframeReason.LOW_OVERLAP),
        (0.9, 50.0, 0.0, KeyframeReason.ROLL),
        (0.9, -50.0, 0.0, KeyframeReason.ROLL),
        (0.9, 40.0, 0.5, None),  # it moves: what changes is parallax
        (0.9, 0.0, 0.2, KeyframeReason.CONTENT_CHANGE),
        (0.9, 0.0, 0.1, None),
    ],
)
def test_images_become_keyframes_for_a_reason(
    overlap: float, roll_deg: float, changed: float, expected: KeyframeReason | None
) -> None:
    depth = np.full((10, 10), 2.0)
    other = depth.copy()
    other.ravel()[: round(100 * changed)] = 1.0
    before, look = Look(0, rolled_pose(0.0), depth), Look(1, rolled_pose(roll_deg), other)
    assert reason_for(KeyframeConfig(), overlap, (before, before, look)) is expected
