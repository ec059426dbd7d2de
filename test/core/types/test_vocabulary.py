# SPDX-License-Identifier: Apache-2.0
"""Colours do not overlap, and silhouettes of simple bodies get the expected word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.types.vocabulary import (
    COLOURS,
    hue_table,
    HUES,
    item_label,
    roundness,
    shape_word,
    SHAPES,
)
import numpy as np
import pytest

if TYPE_CHECKING:
    from embodied_r_ros.core.types.vocabulary import Colour
    from numpy.typing import NDArray


def box_silhouette(side_px: float, tall: float, yaw: float, above: float) -> NDArray[np.bool_]:
    """Draw the outline of a box, `tall` times as high as wide, from afar and `above` [rad]."""
    grid = np.array([-0.5, 0.5])
    x, y, z = (axis.ravel() for axis in np.meshgrid(grid, grid, grid))
    depth, across = x * np.cos(yaw) - y * np.sin(yaw), x * np.sin(yaw) + y * np.cos(yaw)
    up = tall * z * np.cos(above) + depth * np.sin(above)
    points = np.stack([across, up], axis=1) * side_px + 60
    mask = np.zeros((120, 120), np.uint8)
    cv2.fillConvexPoly(mask, cv2.convexHull((points * 16).astype(np.int32)), 1, shift=4)
    return mask.astype(bool)


def word(mask: NDArray[np.bool_], elevation_rad: float) -> str:
    rows, columns = np.nonzero(mask)
    aspect = float((np.ptp(rows) + 1) / (np.ptp(columns) + 1))
    return shape_word(aspect, roundness(mask), elevation_rad)


@pytest.mark.parametrize('colour', COLOURS, ids=lambda colour: colour.name)
def test_a_typical_hue_belongs_to_its_colour_alone(colour: Colour) -> None:
    assert [other for other in COLOURS if other.contains(colour.hue)] == [colour]


def test_no_hue_has_two_names_and_some_have_none() -> None:
    owners = [sum(colour.contains(hue) for colour in COLOURS) for hue in range(HUES)]
    assert max(owners) == 1
    assert min(owners) == 0
    assert [bool(owner) for owner in owners] == [index >= 0 for index in hue_table()]


def test_red_wraps_round_the_hue_circle() -> None:
    [red] = [colour for colour in COLOURS if colour.name == 'red']
    assert red.contains(179)
    assert red.contains(0)
    assert not red.contains(90)


@pytest.mark.parametrize('above_deg', [0, 15, 30, 40])
@pytest.mark.parametrize(
    ('tall', 'expected'), [(1.0, 'blocky'), (2.4, 'tall'), (0.18, 'flat'), (0.13, 'flat')]
)
def test_boxes_keep_their_word_whichever_way_they_are_turned(
    tall: float, expected: str, above_deg: int
) -> None:
    above = np.radians(above_deg)
    words = {
        word(box_silhouette(30.0, tall, np.radians(yaw), above), -above) for yaw in range(0, 90, 5)
    }
    assert words == {expected}


@pytest.mark.parametrize('diameter_px', [12, 20, 60])
@pytest.mark.parametrize('stretch', [1.0, 1.4])
def test_discs_are_round_even_when_perspective_stretches_them(
    diameter_px: int, stretch: float
) -> None:
    rows, columns = np.mgrid[:120, :120]
    disc = ((columns - 60.3) / stretch) ** 2 + (rows - 59.8) ** 2 <= (diameter_px / 2) ** 2
    assert shape_word(1.0, roundness(disc)) == 'round'


def test_a_disc_that_lies_is_flat_though_its_outline_is_an_ellipse() -> None:
    assert shape_word(0.6, 0.99, -0.6) == 'flat'


def test_what_is_seen_from_below_hides_nothing_of_its_sides() -> None:
    assert shape_word(0.8, 0.9, 0.4) == 'blocky'
    assert shape_word(0.8, 0.9, -0.4) == 'flat'


def test_an_empty_silhouette_has_no_roundness() -> None:
    assert roundness(np.zeros((4, 4), bool)) == 0.0


def test_labels_name_colour_and_shape() -> None:
    assert item_label('red', SHAPES[1]) == 'red tall object'
