# SPDX-License-Identifier: Apache-2.0
"""Pictures of maps: everything that is known is on them, and names can be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps import map_picture
from embodied_r_ros.apps.map_picture import write_map_picture
from embodied_r_ros.apps.sheet import Line, put_line, text_width_px
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SOFA = Landmark('sofa', (2.0, 1.0, 0.4), 0, (1.0, 1.0, 0.8), 5_000_000_000, 9_000_000_000)
PATH = tuple(PathPoint(n * 10**9, (0.3 * n, 0.1 * n, 1.2), 0.3) for n in range(10))


def map_image(
    tmp_path: Path, *landmarks: Landmark, path: tuple[PathPoint, ...] = PATH
) -> NDArray[np.int16]:
    file = tmp_path / 'map.png'
    write_map_picture(file, SceneMap(landmarks, path), 'A room')
    image = cv2.imread(str(file))
    assert image is not None
    return np.asarray(image, np.int16)


def coloured_pixels(image: NDArray[np.int16]) -> int:
    """Pixels with a colour above the legend."""
    part = image[:-60]
    return int((np.ptp(part, axis=2) > 20).sum())


def test_a_landmark_is_drawn_in_colour_and_one_that_is_gone_hollow(tmp_path: Path) -> None:
    bare = coloured_pixels(map_image(tmp_path))
    here = coloured_pixels(map_image(tmp_path, SOFA))
    gone = Landmark('sofa', SOFA.position, 0, SOFA.size, status=LandmarkStatus.GONE)
    assert bare == 0
    assert here > 5 * coloured_pixels(map_image(tmp_path, gone)) > 0


@pytest.mark.parametrize('path', [(), PATH[:1]])
def test_a_map_of_nothing_is_a_picture_too(tmp_path: Path, path: tuple[PathPoint, ...]) -> None:
    assert map_image(tmp_path, path=path).shape[1] == 1100


def test_labels_do_not_cover_one_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places: list[tuple[float, float, float, float]] = []

    def note(block: NDArray[np.uint8], line: Line, y: int, x: int = 0) -> None:
        if line.text.startswith('cup'):
            width = text_width_px(line.text, line.scale)
            places.append((x, y - 10, x + width, y))
        put_line(block, line, y, x)

    monkeypatch.setattr(map_picture, 'put_line', note)
    cups = [Landmark(f'cup {n}', (2.0 + 0.05 * n, 1.0 + 0.03 * (n % 3), 0.8), n) for n in range(9)]
    map_image(tmp_path, *cups)
    assert len(places) == 9
    for number, (left, top, right, bottom) in enumerate(places):
        for other in places[:number]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] or other[3] <= top
            assert apart
