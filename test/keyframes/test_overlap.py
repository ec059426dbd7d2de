# SPDX-License-Identifier: Apache-2.0
"""The overlap of two views, where it is known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.keyframes.alignment import View
from embodied_r_ros.keyframes.overlap import two_view, TwoView
import numpy as np
import pytest

from test.pictures import BLANK, brighter, HEIGHT, look, noisy, two_depths, WIDTH, with_thing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


def overlap(*images: NDArray[np.uint8]) -> float:
    """Overlap of the first image with the last one, seen by way of those between."""
    found = followed(images)
    assert found.overlap is not None
    return found.overlap


def followed(images: Sequence[NDArray[np.uint8]]) -> TwoView:
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
    found = followed([look(), look(roll_deg=angle_deg)])
    turned = math.degrees(found.roll_rad)
    assert math.cos(math.radians(turned + angle_deg)) == pytest.approx(1.0, abs=0.002)


@pytest.mark.parametrize('seed', range(1, 7))
def test_unrelated_views_share_nothing(seed: int) -> None:
    assert two_view(View(look()), View(look(seed=seed))) == TwoView(0.0)


def test_corners_that_agree_by_chance_are_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        'embodied_r_ros.keyframes.overlap._matched_homography', lambda *_: np.eye(3)
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
