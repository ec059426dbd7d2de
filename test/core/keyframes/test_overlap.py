# SPDX-License-Identifier: Apache-2.0
"""The overlap of two views, where it is known."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.overlap import (
    covisibility,
    depth_overlap,
    depth_view,
    seen_by,
    two_view,
    TwoView,
)
from embodied_r_ros.core.keyframes.selector import KeyframeSelector
from embodied_r_ros.core.types.geometry import (
    Intrinsics,
    Pose,
    quaternion_from_matrix,
    rotation_from_ypr,
)
from embodied_r_ros.core.types.images import StampedImage
from embodied_r_ros.core.types.keyframes import KeyframeReason
import numpy as np
import pytest

from bench.real_sequences import read_sequence, true_overlap
from test.pictures import BLANK, brighter, HEIGHT, look, noisy, two_depths, WIDTH, with_thing

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def overlap(*images: NDArray[np.uint8]) -> float:
    """Overlap of the first image with the last one, seen by way of those between."""
    found = follow(images)
    assert found.overlap is not None
    return found.overlap


def follow(images: Sequence[NDArray[np.uint8]]) -> TwoView:
    first, *rest = map(View, images)
    before = None
    for view in rest:
        before = two_view(first, view, before)
    assert before is not None
    return before


def test_identical_images_overlap_fully() -> None:
    assert overlap(look(), look()) == pytest.approx(1.0, abs=0.01)


@pytest.mark.parametrize('shift', [10, 60, 120, 160, -160])
def test_panning_shares_what_is_left_of_the_view(shift: int) -> None:
    assert overlap(look(), look(640 + shift)) == pytest.approx(1 - abs(shift) / WIDTH, abs=0.06)


@pytest.mark.parametrize('zoom', [0.8, 0.6, 1.25, 1.6])
def test_overlap_is_symmetric_in_zoom(zoom: float) -> None:
    expected = min(zoom, 1 / zoom) ** 2
    assert overlap(look(), look(zoom=zoom)) == pytest.approx(expected, abs=0.08)


def test_a_gradual_path_reaches_the_same_overlap() -> None:
    steps = [look(640 + 8 * step, zoom=1 + 0.02 * step) for step in range(12)]
    assert overlap(*steps) == pytest.approx(overlap(steps[0], steps[-1]), abs=0.05)


@pytest.mark.parametrize('angle_deg', [20, 60, 90, 180, -120])
def test_roll_is_measured(angle_deg: int) -> None:
    # Positive angles of OpenCV turn the image anticlockwise; y points down.
    found = follow([look(), look(roll_deg=angle_deg)])
    turned = math.degrees(found.roll_rad)
    assert math.cos(math.radians(turned + angle_deg)) == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize('seed', range(1, 7))
def test_unrelated_views_share_nothing(seed: int) -> None:
    assert two_view(View(look()), View(look(seed=seed))) == TwoView(0.0)


def test_corners_that_agree_by_chance_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        'embodied_r_ros.core.keyframes.overlap._matched_homography', lambda *_: np.eye(3)
    )
    assert two_view(View(look()), View(look(seed=1))) == TwoView(0.0)


def test_noise_is_no_match_for_noise() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.integers(0, 256, (2, HEIGHT, WIDTH, 3), np.uint8)
    assert two_view(View(first), View(second)) == TwoView(0.0)


@pytest.mark.parametrize(
    'image',
    [BLANK, BLANK + np.uint8(255), noisy(BLANK + np.uint8(12), 5, seed=0)],
    ids=['dark', 'saturated', 'dark with noise'],
)
def test_a_blank_view_has_no_overlap(image: NDArray[np.uint8]) -> None:
    assert two_view(View(look()), View(image)).overlap is None
    assert two_view(View(image), View(look())).overlap is None


def test_a_blurred_view_is_not_blank() -> None:
    blurred = np.asarray(cv2.GaussianBlur(brighter(look(), 0.5), (0, 0), 12), np.uint8)
    assert overlap(blurred, blurred) == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize('factor', [0.5, 1.5])
def test_exposure_changes_nothing(factor: float) -> None:
    image = brighter(look(), 0.7)
    assert overlap(image, brighter(image, factor)) > 0.9


def test_sensor_noise_changes_little() -> None:
    assert overlap(noisy(look(), 8, 1), noisy(look(660), 8, 2)) == pytest.approx(0.94, abs=0.06)


def test_what_hides_the_view_takes_its_share() -> None:
    assert overlap(look(), with_thing(look(), 160, 160, HEIGHT)) == pytest.approx(0.5, abs=0.2)


@pytest.mark.parametrize('shift', [8, 16, 24, 32])
def test_parallax_is_followed(shift: int) -> None:
    images = [two_depths(step) for step in range(0, shift + 1, 2)]
    near, far = 1 - 8 * shift / WIDTH, 1 - shift / WIDTH
    assert overlap(*images) == pytest.approx((near + far) / 2, abs=0.09)


def test_a_near_half_that_is_replaced_is_not_shared() -> None:
    images = [two_depths(step) for step in range(0, 45, 2)]
    # One homography keeps to the far half and says 0.6 or more.
    assert overlap(*images) < 0.55


@pytest.mark.parametrize('size', [(1, 1), (3, 500), (48, 64), (700, 200), (1080, 1920)])
def test_any_size_is_compared(size: tuple[int, int]) -> None:
    rng = np.random.default_rng(0)
    image = np.kron(rng.integers(0, 256, (30, 30), np.uint8), np.ones((64, 64), np.uint8))
    view = View(np.dstack([image[: size[0], : size[1]]] * 3))
    found = two_view(view, view)
    assert found.overlap is None or found.overlap > 0.9


def test_views_of_two_sizes_are_compared() -> None:
    tall = np.ascontiguousarray(look()[:, 80:240])
    assert 0.3 < (two_view(View(look()), View(tall)).overlap or 0) < 0.7


@pytest.mark.parametrize(
    'array',
    [np.zeros((4, 4), np.uint8), np.zeros((4, 4, 3)), np.zeros((0, 4, 3), np.uint8)],
)
def test_what_is_no_image_is_refused(array: NDArray[np.uint8]) -> None:
    with pytest.raises(ImageError, match='is not a BGR image'):
        View(array)


CAMERA = Intrinsics.from_fov(160, 120, math.radians(90))
WALL_X_M = 4.0


def pose(x: float = 0.0, y: float = 0.0, yaw: float = 0.0) -> Pose:
    return Pose((x, y, 1.0), quaternion_from_matrix(rotation_from_ypr(yaw, 0.0, 0.0)), 'odom')


def wall(x: float = 0.0) -> NDArray[np.float64]:
    """Depth of an endless wall at WALL_X_M, for a camera at x that faces it."""
    return np.full((120, 160), WALL_X_M - x)


def test_a_view_shares_all_with_itself() -> None:
    assert covisibility(wall(), pose(), wall(), pose(), CAMERA) == (1.0, 1.0)


@pytest.mark.parametrize('shift_m', [-2.0, 1.0, 4.0])
def test_sideways_shares_shrink_with_the_shift(shift_m: float) -> None:
    expected = 1 - abs(shift_m) / (2 * WALL_X_M)
    shares = covisibility(wall(), pose(), wall(), pose(y=shift_m), CAMERA)
    assert shares == pytest.approx((expected, expected), abs=0.01)


def test_backing_away_is_not_symmetric() -> None:
    near, far = wall(2.0), wall(0.0)
    shares = covisibility(near, pose(2.0), far, pose(0.0), CAMERA)
    assert shares == pytest.approx((1.0, 0.25), abs=0.01)


def test_a_turn_shares_what_both_cones_hold() -> None:
    turned = math.radians(45)
    bearing = np.arctan((CAMERA.cx - np.arange(160)) / CAMERA.fx) + turned
    # Along the turned camera's optical axis; beyond 85 degrees the wall is taken as not there.
    depth = np.where(bearing < math.radians(85), WALL_X_M / np.cos(bearing), 0.0)
    depth = np.tile(depth * np.cos(bearing - turned), (120, 1))
    first, _ = covisibility(wall(), pose(), depth, pose(yaw=turned), CAMERA)
    # The left half is within the other's horizontal field; most of its rows are, too.
    assert 0.4 < first < 0.5


def test_what_is_hidden_is_not_shared() -> None:
    blocked = wall(0.0)
    blocked[:, :80] = 1.0  # something stands in the left half of the other view
    seen = seen_by(wall(), pose(), blocked, pose(), CAMERA)
    assert not seen[:, :79].any()
    assert seen[:, 81:].all()


def test_looking_away_shares_nothing() -> None:
    assert covisibility(wall(), pose(), wall(), pose(yaw=math.pi), CAMERA) == (0.0, 0.0)


def test_empty_pixels_are_never_shared() -> None:
    empty = wall()
    empty[:60] = np.inf
    assert covisibility(empty, pose(), wall(), pose(), CAMERA)[0] == pytest.approx(0.5)


def image(
    depth: NDArray[np.floating], at: Pose, camera: Intrinsics = CAMERA, index: int = 0
) -> StampedImage:
    """An image that looks the same from everywhere, with a depth image."""
    blocks = np.random.default_rng(1).integers(0, 255, (15, 20, 3), np.uint8)
    pixels = cv2.resize(blocks, (160, 120), interpolation=cv2.INTER_NEAREST)
    return StampedImage(
        index,
        index * 100_000_000,
        np.asarray(pixels, np.uint8),
        intrinsics=camera,
        pose=at,
        depth=depth.astype(np.float32),
    )


def shared_by_depth(first: StampedImage, second: StampedImage) -> float | None:
    views = depth_view(first), depth_view(second)
    return depth_overlap(views[0], views[1]) if views[0] and views[1] else None


@pytest.mark.parametrize('shift_m', [0.0, 1.0, 3.0, 9.0])
def test_depth_and_poses_tell_what_two_images_share(shift_m: float) -> None:
    share = shared_by_depth(image(wall(), pose()), image(wall(), pose(y=shift_m)))
    assert share == pytest.approx(max(0.0, 1 - shift_m / 8), abs=0.03)


def test_holes_count_neither_way() -> None:
    holes = wall()
    holes[:, ::3] = np.nan
    assert shared_by_depth(image(holes, pose()), image(holes, pose())) == pytest.approx(1.0)


def test_a_distorted_image_is_straightened_first() -> None:
    """A barrel draws in what is far from the middle: a straight camera finds it further in."""
    barrel = Intrinsics(160, 120, 80.0, 80.0, 79.5, 59.5, (-0.2, 0.03, 0.0, 0.0, 0.0))
    ramp = np.tile(np.linspace(1.0, 5.0, 160), (120, 1))
    bent = depth_view(image(ramp, pose(), barrel))
    straight = depth_view(image(ramp, pose(), replace(barrel, distortion=())))
    assert bent
    assert straight
    middle, side = bent.depth[30] - straight.depth[30], 60
    assert abs(middle[40]) < 0.05
    assert middle[side] < -0.05


def test_unknown_depth_or_another_frame_tells_nothing() -> None:
    first = image(wall(), pose())
    assert shared_by_depth(first, replace(first, depth=None)) is None
    assert shared_by_depth(first, replace(first, pose=None)) is None
    assert shared_by_depth(first, replace(first, depth=np.zeros((120, 160), np.float32))) is None
    assert shared_by_depth(first, replace(first, pose=replace(pose(), frame_id='map'))) is None


def test_depth_decides_where_images_deceive() -> None:
    """Wallpaper: every view looks like the one before, and poses and depth know better."""
    selector = KeyframeSelector()
    shifts_m = [0.0, 1.0, 2.0, 3.0, 5.0, 6.0]
    images = [image(wall(), pose(y=y), index=i) for i, y in enumerate(shifts_m)]
    decisions = [selector.evaluate(each) for each in images]
    assert [each.is_keyframe for each in decisions] == [True, False, False, False, True, False]
    assert decisions[4].reason is KeyframeReason.LOW_OVERLAP


def test_decisions_of_a_real_camera_are_those_of_its_depth(footage: Path) -> None:
    """Handheld round a cabinet, poses by motion capture."""
    shots = list(read_sequence(footage / 'real' / 'cabinet'))
    selector, wrong, counted = KeyframeSelector(), 0, 0
    reference = shots[0]
    for shot in shots:
        said = selector.evaluate(replace(shot.stamped(), pose=shot.pose, depth=shot.depth))
        if shot is not reference:
            truth = true_overlap(reference, shot)
            counted += truth.decides(0.5)
            wrong += truth.decides(0.5) and said.is_keyframe != (truth.middle < 0.5)
        reference = shot if said.is_keyframe else reference
    assert counted > 30
    assert wrong <= 1
