# SPDX-License-Identifier: Apache-2.0
"""The picture of a demonstration says what it leaves out."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps import sheet
from embodied_r_ros.apps.sheet import text_block
from embodied_r_ros.arm.demonstration import Demonstration, Keypoint
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.arm.sheets import write_keypoint_sheet, write_trial_sheet
from embodied_r_ros.arm.task import Trial, TrialStep
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import Intrinsics
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.apps.sheet import Line
    from numpy.typing import NDArray

CAMERA = Intrinsics.from_fov(320, 240, 0.87)
POSE = load_robot('sawyer_sim').placing.camera('table_center')
BACK = (120, 60, 30)
SEEN = np.full((240, 320, 3), BACK, np.uint8)
STEP = TrialStep(
    at_s=1.0,
    tool=(0.0, 0.0, 0.16),
    candidates=((0.1, 0.1, 0.15), (0.1, -0.1, 0.02), (2.0, 0.0, 0.1)),  # one behind the camera
    chosen=1,
    closed=True,
    image=SEEN,
)
TRIAL = Trial('arm-1', 'pick up the red block', True, 12.5, (STEP,))
GREEN, WHITE = (40, 160, 40), (255, 255, 255)


def texts_of_sheet(path: Path, count: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is written into the picture of a demonstration with so many keypoints."""
    written: list[str] = []

    def note_and_draw(lines: Sequence[Line], width: int) -> NDArray[np.uint8]:
        written.extend(line.text for line in lines)
        return text_block(lines, width)

    monkeypatch.setattr(sheet, 'text_block', note_and_draw)
    stamps = 1_000_000_000 + 100_000_000 * np.arange(10 * count)
    positions = np.asarray(np.linspace((0.0, 0.0, 0.1), (0.3, 0.0, 0.1), 10 * count), np.float64)
    shown = Demonstration(stamps, positions, task='stack the blocks')
    keypoints = [
        Keypoint(number, int(stamps[number]), (0.1, 0.0, 0.1), None, 'stop')
        for number in range(9, 10 * count, 10)
    ]
    write_keypoint_sheet(path, shown, keypoints, {})
    return written


def test_keypoints_without_a_card_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'sheet.png'
    for count, rest in ((16, []), (17, ['1 more']), (40, ['24 more'])):
        told = texts_of_sheet(path, count, monkeypatch)
        assert told[1].startswith(f'{count} keypoints in')
        assert sum(text.endswith(': stop') for text in told) == min(count, 16)
        assert [text.split(' without')[0] for text in told if ' more ' in text] == rest
        assert path.stat().st_size


def sheet_image(path: Path, trial: Trial) -> NDArray[np.uint8]:
    write_trial_sheet(path, 'oracle chose', trial, CAMERA, POSE)
    return np.asarray(cv2.imread(str(path)), np.uint8)


def pixel(position: tuple[float, float, float]) -> tuple[int, int]:
    """Column and row in the card, which is 400 px wide."""
    seen = POSE.rotation().T @ np.subtract(position, POSE.position)
    scale = 400 / 320
    u, v = (CAMERA.matrix() @ seen / seen[2])[:2] * scale
    return round(float(u)), round(float(v))


def test_the_chosen_candidate_is_green_and_others_are_white(tmp_path: Path) -> None:
    page = sheet_image(tmp_path / 'a.png', TRIAL)
    rows, columns = np.where((page == BACK).all(axis=2))
    top, left = rows.min(), columns.min()
    for position, colour in zip(STEP.candidates, (WHITE, GREEN), strict=False):
        u, v = pixel(position)
        assert tuple(page[top + v, left + u]) == colour


def test_every_step_has_a_card_up_to_a_limit(tmp_path: Path) -> None:
    one, four, five, many = (
        sheet_image(tmp_path / f'{n}.png', replace(TRIAL, steps=(STEP,) * n))
        for n in (1, 4, 5, 30)
    )
    assert one.shape == four.shape
    assert four.shape[0] < five.shape[0] < many.shape[0]
    assert many.shape[0] < 7 * one.shape[0]


def test_steps_without_image_and_trials_without_steps_are_shown(tmp_path: Path) -> None:
    blind = replace(TRIAL, steps=(replace(STEP, image=None, closed=None),))
    refused = replace(TRIAL, steps=(), refusals=('step: it is too long',))
    warned = replace(refused, warnings=('reasoner: no keypoint\nTraceback',))
    shapes = [
        sheet_image(tmp_path / f'{n}.png', trial).shape
        for n, trial in enumerate((blind, refused, warned))
    ]
    assert len({width for _, width, _ in shapes}) == 1
    assert shapes[1][0] < shapes[2][0]


def test_a_sheet_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='cannot write'):
        write_trial_sheet(tmp_path / 'missing' / 'a.png', 'oracle', TRIAL, CAMERA, POSE)
