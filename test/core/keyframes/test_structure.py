# SPDX-License-Identifier: Apache-2.0
"""Motion and depth from measured places, where both are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.core.keyframes.alignment import cell_centres, cell_rays
from embodied_r_ros.core.keyframes.bundle import ViewPose
from embodied_r_ros.core.keyframes.structure import (
    first_structure,
    fit_structure,
    MeasuredCells,
    Structure,
)
import numpy as np
import pytest

if TYPE_CHECKING:
    from numpy.typing import NDArray

SIZE = (160, 120)
RAYS = cell_rays(*SIZE)
SHAPE = RAYS.shape[1:]
SURE = np.full((*SHAPE, 3), [1, 0, 1], np.float32).transpose(2, 0, 1)


def true_structure(step: float) -> Structure:
    """A near half below a far one, seen by a camera that turns and moves aside."""
    rotation = np.asarray(cv2.Rodrigues(np.array([0.01, 0.05, -0.02]) * step)[0], np.float64)
    motion = ViewPose(rotation, np.array([-0.06, 0.01, 0.02]) * step)
    depth = np.full(SHAPE, 0.6, np.float32)
    depth[15:] = 1.5
    return Structure(motion, motion, depth, np.zeros_like(depth))


def follow(steps: int, information: NDArray[np.float32], shift: float = 0.0) -> Structure:
    """The structure after some images, with a shift of all that is measured along x [px]."""
    structure = first_structure(RAYS, 0.0)
    for step in range(1, steps + 1):
        measured = true_structure(step).places(RAYS, SIZE) + np.array([shift, 0], np.float32)
        expected = structure.expected() if step > 1 else structure
        structure, _ = fit_structure(expected, MeasuredCells(RAYS, measured, information, SIZE))
    return structure


def test_places_follow_motion_and_depth() -> None:
    structure = follow(5, SURE)
    off = structure.places(RAYS, SIZE) - true_structure(5).places(RAYS, SIZE)
    moves = true_structure(5).places(RAYS, SIZE) - cell_centres(*SIZE)
    assert np.abs(off).mean() < 0.25 * np.abs(moves).mean()
    near, far = structure.inverse_depth[18:].mean(), structure.inverse_depth[:12].mean()
    assert near > 1.5 * far


def test_cells_that_were_not_measured_are_placed_by_the_others() -> None:
    known = SURE.copy()
    known[:, 20:, :10] = 0
    off = follow(5, known).places(RAYS, SIZE) - true_structure(5).places(RAYS, SIZE)
    still = true_structure(5).places(RAYS, SIZE) - cell_centres(*SIZE)
    assert np.abs(off[20:, :10]).mean() < 0.7 * np.abs(still[20:, :10]).mean()


def test_an_edge_says_nothing_of_movement_along_it() -> None:
    across_only = SURE * np.array([0, 0, 1], np.float32)[:, None, None]
    structure = follow(1, across_only, shift=30.0)
    off = structure.places(RAYS, SIZE) - true_structure(1).places(RAYS, SIZE)
    assert np.abs(off[..., 1]).mean() < 0.5
    assert np.abs(off[..., 0]).mean() < 15


def test_the_next_motion_is_expected_to_go_on() -> None:
    structure = follow(4, SURE)
    ahead = np.abs(structure.expected().places(RAYS, SIZE) - true_structure(5).places(RAYS, SIZE))
    stays = np.abs(structure.places(RAYS, SIZE) - true_structure(5).places(RAYS, SIZE))
    assert ahead.mean() < 0.8 * stays.mean()


@pytest.mark.parametrize('roll_rad', [0.0, 1.5, 3.1])
def test_roll_is_that_of_the_rotation(roll_rad: float) -> None:
    assert first_structure(RAYS, roll_rad).roll_rad == pytest.approx(roll_rad)


def test_what_lies_behind_the_camera_is_out_of_view() -> None:
    ahead = ViewPose(np.eye(3), np.array([0.0, 0.0, -2.0]))
    depth = np.ones(SHAPE, np.float32)
    places = Structure(ahead, ahead, depth, np.zeros_like(depth)).places(RAYS, SIZE)
    assert np.isfinite(places).all()
    assert (places < -1000).all()
