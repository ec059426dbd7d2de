# SPDX-License-Identifier: Apache-2.0
"""The overlap of views with edges and little texture, against true depth."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.overlap import covisibility, two_view
import numpy as np
import pytest

from test.boxes import around, Box, CABINET, CAMERA, FLOOR, view

if TYPE_CHECKING:
    from collections.abc import Sequence

    from test.boxes import BoxView

PLAIN = (replace(FLOOR, contrast=0.0), replace(CABINET, contrast=0.0))
HALL = (
    FLOOR,
    Box((3, -9, 0), (4, 9, 3), grey=110.0, contrast=0.0),
    Box((0.9, -2.5, 0), (1.5, -0.15, 0.9), grey=150.0, contrast=0.02, seed=8),
    Box((2.9, 0.2, 0.5), (3, 1.2, 2), grey=100.0, contrast=0.9),
)


def estimates(views: Sequence[BoxView]) -> tuple[list[float], list[float]]:
    """What is said of the first view and each later one, followed, and what is true."""
    first, *later = views
    reference, before, said = View(first.image), None, []
    for shot in later:
        before = two_view(reference, View(shot.image), before)
        assert before.overlap is not None
        said.append(before.overlap)
    true = [
        min(covisibility(first.depth, first.pose, shot.depth, shot.pose, CAMERA)) for shot in later
    ]
    return said, true


def test_truth_of_boxes_falls_as_the_camera_goes_round() -> None:
    # The cases below would pass idly otherwise.
    _, true = estimates([around(angle) for angle in (0, 0, 30, 60, 90)])
    assert true[0] > 0.85  # what is above the floor has no depth
    assert true[0] > true[1] > true[2] > true[3]
    assert true[3] < 0.3


@pytest.mark.parametrize(
    ('step_deg', 'boxes'), [(4, PLAIN), (10, (FLOOR, CABINET))], ids=['no paint', 'faint paint']
)
def test_going_round_a_thing_is_no_standing_still(step_deg: int, boxes: Sequence[Box]) -> None:
    # Its outline hardly changes, and the floor has next to no texture.
    said, true = estimates([around(angle, boxes) for angle in range(0, 91, step_deg)])
    assert abs(np.mean(said) - np.mean(true)) < 0.2
    first_below = next(index for index, overlap in enumerate(said) if overlap < 0.5)
    assert 0.25 < true[first_below] < 0.55


def test_going_round_a_thing_under_blur() -> None:
    views = [around(angle) for angle in range(0, 81, 5)]
    views[1::2] = [
        replace(shot, image=np.asarray(cv2.blur(shot.image, (13, 1)), np.uint8))
        for shot in views[1::2]
    ]
    said, true = estimates(views)
    assert abs(np.mean(said) - np.mean(true)) < 0.2
    assert said[-1] < 0.5


def test_walking_past_a_near_thing_in_a_plain_hall() -> None:
    path = [(-0.6 + 0.05 * step, 0.02 * step, 1.2, 0.005 * step) for step in range(22)]
    said, true = estimates([view(*place, -0.15, HALL) for place in path])
    assert np.abs(np.subtract(said, true)).mean() < 0.08
