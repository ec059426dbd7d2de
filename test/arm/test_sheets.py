# SPDX-License-Identifier: Apache-2.0
"""The picture of a demonstration says what it leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.apps import sheet
from embodied_r_ros.apps.sheet import text_block
from embodied_r_ros.arm.demonstration import Demonstration, Keypoint
from embodied_r_ros.arm.sheets import write_keypoint_sheet
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.apps.sheet import Line
    from numpy.typing import NDArray
    import pytest


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
