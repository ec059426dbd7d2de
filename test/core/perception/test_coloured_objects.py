# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.perception.coloured_objects import ColouredObject, find_objects
from embodied_r_ros.core.types.geometry import direction_of_vector
from embodied_r_ros.core.types.images import encode_image
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from embodied_r_ros.core.types.geometry import Pose
    from numpy.typing import NDArray

RED, BLUE, GREEN, YELLOW = (20, 20, 210), (210, 60, 20), (30, 190, 40), (20, 200, 215)
BALL = Solid((1.6, 0.6, 0.2), (0.4, 0.4, 0.4), RED, is_ball=True)
POST = Solid((1.8, -0.6, 0.4), (0.25, 0.25, 0.8), BLUE)
SLAB = Solid((1.2, 0.0, 0.04), (0.5, 0.5, 0.08), GREEN)
CUBE = Solid((2.2, 1.4, 0.2), (0.4, 0.4, 0.4), YELLOW)
EYE = pose_at(-0.5, 0.0, 1.0, 0.0, 0.2)


def view(pose: Pose, *solids: Solid) -> NDArray[np.uint8]:
    """The view as a camera gives it: compressed."""
    return encode_image(Room(0, contrast=0.5).view(pose, solids)).decode()


def find(pose: Pose, *solids: Solid) -> list[ColouredObject]:
    return find_objects(view(pose, *solids), CAMERA, pose.orientation)


def true_direction(pose: Pose, solid: Solid) -> tuple[float, float]:
    return direction_of_vector(pose.rotation().T @ np.subtract(solid.centre, pose.position))


@pytest.mark.parametrize(
    ('solid', 'colour', 'shape'),
    [
        (BALL, 'red', 'round'),
        (POST, 'blue', 'tall'),
        (SLAB, 'green', 'flat'),
        (CUBE, 'yellow', 'blocky'),
    ],
)
def test_objects_are_found_where_they_are(solid: Solid, colour: str, shape: str) -> None:
    [found] = find(EYE, solid)
    assert (found.colour, found.shape) == (colour, shape)
    bearing, elevation = true_direction(EYE, solid)
    assert found.bearing_rad == pytest.approx(bearing, abs=math.radians(1))
    assert found.elevation_rad == pytest.approx(elevation, abs=math.radians(1.5))
    assert not found.is_cut


def test_size_is_the_angle_that_an_object_covers() -> None:
    [found] = find(EYE, BALL)
    distance = math.dist(EYE.position, BALL.centre)
    angle = 2 * math.asin(0.2 / distance)
    assert found.width_rad == pytest.approx(angle, rel=0.1)
    assert found.height_rad == pytest.approx(angle, rel=0.1)


def test_larger_objects_come_first() -> None:
    areas = [item.width_rad * item.height_rad for item in find(EYE, BALL, POST, SLAB, CUBE)]
    assert len(areas) == 4
    assert areas == sorted(areas, reverse=True)


def test_one_colour_may_appear_twice() -> None:
    twin = Solid((2.0, -1.2, 0.2), (0.3, 0.3, 0.3), RED)
    assert [item.colour for item in find(EYE, BALL, twin)] == ['red', 'red']


def test_a_slab_from_steeply_above_is_still_flat() -> None:
    """Seen from above it looks as high as wide; only the tilt of the camera tells."""
    above = pose_at(0.2, 0.0, 1.3, 0.0, 0.75)
    level = (0.0, 0.0, 0.0, 1.0)
    [found] = find(above, SLAB)
    [untilted] = find_objects(view(above, SLAB), CAMERA, level)
    assert found.shape == 'flat'
    assert untilted.shape != 'flat'


def test_what_the_edge_cuts_off_keeps_its_colour_and_loses_its_shape() -> None:
    [found] = find(EYE, Solid((0.5, 1.0, 0.9), (0.4, 0.4, 0.4), YELLOW))
    assert (found.colour, found.shape, found.is_cut) == ('yellow', '', True)
    assert found.confidence < 0.55


def test_a_thin_strip_at_the_edge_is_not_spoken_of() -> None:
    image = view(EYE)
    image[60:180, :8] = RED
    assert find_objects(image, CAMERA) == []


def test_a_ball_behind_a_ledge_is_round() -> None:
    image = view(EYE)
    cv2.circle(image, (160, 120), 24, RED, -1)
    image[132:150] = (120, 120, 120)
    [found] = find_objects(image, CAMERA)
    assert found.shape == 'round'


def test_what_another_object_hides_in_part_is_found() -> None:
    image = view(EYE)
    image[90:140, 120:200] = YELLOW
    image[100:160, 150:180] = BLUE
    assert {item.colour for item in find_objects(image, CAMERA)} == {'yellow', 'blue'}


def test_a_grey_room_has_no_objects() -> None:
    assert find(EYE) == []


def test_sky_is_scenery() -> None:
    image = view(EYE)
    image[:110] = (220, 120, 60)
    assert find_objects(image, CAMERA) == []


def test_water_and_walls_are_scenery() -> None:
    image = view(EYE)
    image[140:] = (160, 90, 30)
    assert find_objects(image, CAMERA) == []
    image[:] = (160, 90, 30)
    assert find_objects(image, CAMERA) == []


def test_leaves_are_strewn_not_objects() -> None:
    rng = np.random.default_rng(0)
    image = view(EYE)
    for x, y in rng.integers((0, 60), (320, 200), (400, 2)):
        cv2.circle(image, (int(x), int(y)), int(rng.integers(1, 4)), GREEN, -1)
    assert len(find_objects(image, CAMERA)) <= 1


def test_an_arm_that_reaches_in_does_not_hide_things_of_its_colour() -> None:
    image = view(EYE)
    elbow = np.array([(150, 0), (230, 0), (190, 40), (185, 110), (160, 110), (160, 40)])
    cv2.fillPoly(image, [elbow], RED)
    image[150:172, 60:82] = RED
    [found] = find_objects(image, CAMERA)
    assert (found.colour, found.shape) == ('red', 'blocky')


def test_colour_in_the_dark_is_not_seen() -> None:
    """HSV calls it saturated; no eye does."""
    image = view(EYE)
    image[80:140, 100:160] = (60, 22, 16)
    assert find_objects(image, CAMERA) == []


def test_pale_things_have_no_colour() -> None:
    image = view(EYE)
    image[80:140, 100:160] = (150, 150, 200)
    assert find_objects(image, CAMERA) == []


def test_large_images_give_the_same_directions() -> None:
    large = CAMERA.scaled(1280, 960)
    [small_one] = find(EYE, POST)
    [large_one] = find_objects(
        Room(0, contrast=0.5).view(EYE, (POST,), large), large, EYE.orientation
    )
    assert large_one.bearing_rad == pytest.approx(small_one.bearing_rad, abs=math.radians(0.3))
    assert large_one.height_rad == pytest.approx(small_one.height_rad, rel=0.05)
