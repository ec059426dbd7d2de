# SPDX-License-Identifier: Apache-2.0
"""Colours do not overlap, and silhouettes of simple bodies get the expected word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.errors import InputError
from embodied_r_ros.vocabulary import (
    colour_named,
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
    from embodied_r_ros.vocabulary import Colour
    from numpy.typing import NDArray


def cube_silhouette(side_px: float, yaw: float, elevation: float) -> NDArray[np.bool_]:
    """Draw the outline of a cube seen from afar, from `elevation` above."""
    grid = np.array([-0.5, 0.5])
    x, y, z = (axis.ravel() for axis in np.meshgrid(grid, grid, grid))
    depth, across = x * np.cos(yaw) - y * np.sin(yaw), x * np.sin(yaw) + y * np.cos(yaw)
    up = z * np.cos(elevation) + depth * np.sin(elevation)
    points = np.stack([across, up], axis=1) * side_px + 60
    mask = np.zeros((120, 120), np.uint8)
    cv2.fillConvexPoly(mask, cv2.convexHull((points * 16).astype(np.int32)), 1, shift=4)
    return mask.astype(bool)


def word(mask: NDArray[np.bool_]) -> str:
    rows, columns = np.nonzero(mask)
    return shape_word(float((np.ptp(rows) + 1) / (np.ptp(columns) + 1)), roundness(mask))


@pytest.mark.parametrize('colour', COLOURS, ids=lambda colour: colour.name)
def test_a_typical_hue_belongs_to_its_colour_alone(colour: Colour) -> None:
    assert [other for other in COLOURS if other.contains(colour.hue)] == [colour]


def test_no_hue_has_two_names_and_some_have_none() -> None:
    owners = [sum(colour.contains(hue) for colour in COLOURS) for hue in range(HUES)]
    assert max(owners) == 1
    assert min(owners) == 0
    assert [bool(owner) for owner in owners] == [index >= 0 for index in hue_table()]


def test_red_wraps_round_the_hue_circle() -> None:
    red = colour_named('red')
    assert red.contains(179)
    assert red.contains(0)
    assert not red.contains(90)


def test_an_unknown_colour_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"'mauve'.*red, yellow"):
        colour_named('mauve')


@pytest.mark.parametrize('elevation_deg', [0, 15, 30, 36])
def test_cubes_are_blocky_whichever_way_they_are_turned(elevation_deg: int) -> None:
    words = {
        word(cube_silhouette(30.0, np.radians(yaw), np.radians(elevation_deg)))
        for yaw in range(0, 90, 5)
    }
    assert words == {'blocky'}


@pytest.mark.parametrize('diameter_px', [12, 20, 60])
@pytest.mark.parametrize('stretch', [1.0, 1.4])
def test_discs_are_round_even_when_perspective_stretches_them(
    diameter_px: int, stretch: float
) -> None:
    rows, columns = np.mgrid[:120, :120]
    disc = ((columns - 60.3) / stretch) ** 2 + (rows - 59.8) ** 2 <= (diameter_px / 2) ** 2
    assert shape_word(1.0, roundness(disc)) == 'round'


def test_bars_are_tall_or_flat() -> None:
    assert shape_word(2.0, 0.9) == 'tall'
    assert shape_word(0.5, 0.9) == 'flat'


def test_an_empty_silhouette_has_no_roundness() -> None:
    assert roundness(np.zeros((4, 4), bool)) == 0.0


def test_labels_name_colour_and_shape() -> None:
    assert item_label('red', SHAPES[1]) == 'red tall object'
