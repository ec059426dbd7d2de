# SPDX-License-Identifier: Apache-2.0
"""A scene map from above: the camera's way, and landmarks with their names."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps.sheet import (
    FAINT,
    INK,
    Line,
    PAPER,
    put_line,
    text_block,
    text_width_px,
    write_sheet,
)
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.landmarks import LandmarkStatus, scale_text
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
    from numpy.typing import NDArray

_WIDTH_PX, _LEAST_PX, _MOST_PX = 1100, 420, 1000
_MARGIN_PX, _LEFT_PX = 70, 16
_LEAST_SPAN_M = 2.0
_DOT_PX = 4
_LABEL_SCALE, _ROW_PX = 0.42, 14
_ARROW_EVERY_PX, _ARROW_PX = 55, 9
_RINGS_PX = (10, 18, 28, 40, 55, 72)  # from a landmark to its label
_AROUND = 12  # places of a label that are tried per ring
_BARS_M = tuple(digit * 10.0**power for power in range(-1, 10) for digit in (1, 2, 5))
_BAR_PX = 160  # length of the scale bar at most
_WAY, _GRID = (190, 190, 190), (240, 240, 240)
_UNSURE = 0.5  # confidence below which a name is grey
_LEGEND_PX = 46
_Rectangle = tuple[int, int, int, int]  # left, top, right, bottom [px]


def write_map_picture(path: Path, scene_map: SceneMap, title: str) -> None:
    """Write the picture as PNG; it appears only when it is complete.

    Args:
        path: The file.
        scene_map: What is drawn; its x axis points right, its y axis up.
        title: First line.

    Raises:
        InputError: The file cannot be written.
    """
    gone = sum(one.status is LandmarkStatus.GONE for one in scene_map.landmarks)
    head = (
        f'{len(scene_map.landmarks)} landmarks ({gone} gone, hollow), frame {scene_map.frame_id}, '
        f'{scale_text(scene_map.scale, scene_map.scale_error)}'
    )
    text = text_block([Line(title, 0.7), Line(head, 0.45, FAINT)], _WIDTH_PX - 2 * _LEFT_PX)
    padded = cv2.copyMakeBorder(text, 0, 0, _LEFT_PX, _LEFT_PX, cv2.BORDER_CONSTANT, value=PAPER)
    write_sheet(path, [np.asarray(padded, np.uint8), _drawing(scene_map), _legend(scene_map)])


@dataclass(frozen=True)
class _Scale:
    """From metres to pixels."""

    left_m: float
    top_m: float
    px_per_m: float
    height_px: int

    @classmethod
    def of(cls, scene_map: SceneMap) -> _Scale:
        points = [point.position[:2] for point in scene_map.path]
        for landmark in scene_map.landmarks:
            (x, y, _), half = landmark.position, _half_m(landmark)
            points += [(x - half, y - half), (x + half, y + half)]
        cloud = np.array(points or [(0.0, 0.0)])
        low, high = cloud.min(axis=0), cloud.max(axis=0)
        middle = (low + high) / 2
        span = np.maximum(high - low, _LEAST_SPAN_M)
        inner = _WIDTH_PX - 2 * _MARGIN_PX, _MOST_PX - 2 * _MARGIN_PX
        px_per_m = float(min(inner[0] / span[0], inner[1] / span[1]))
        height = round(max(_LEAST_PX, span[1] * px_per_m + 2 * _MARGIN_PX))
        left = float(middle[0] - _WIDTH_PX / 2 / px_per_m)
        top = float(middle[1] + height / 2 / px_per_m)
        return cls(left, top, px_per_m, height)

    def pixel(self, position: Sequence[float]) -> tuple[int, int]:
        x, y = position[0], position[1]
        return round((x - self.left_m) * self.px_per_m), round((self.top_m - y) * self.px_per_m)


def _drawing(scene_map: SceneMap) -> NDArray[np.uint8]:
    scale = _Scale.of(scene_map)
    picture = np.full((scale.height_px, _WIDTH_PX, 3), PAPER, np.uint8)
    occupied = [_draw_scale_bar(picture, scale), *_draw_way(picture, scene_map, scale)]
    for landmark in sorted(scene_map.landmarks, key=_half_m, reverse=True):
        occupied.append(_draw_landmark(picture, landmark, scale, _colour_of(scene_map, landmark)))
    way = [scale.pixel(point.position) for point in scene_map.path]
    for landmark in scene_map.landmarks:
        half_px = round(_half_m(landmark) * scale.px_per_m)
        _draw_label(picture, landmark, (scale.pixel(landmark.position), half_px), occupied, way)
    return picture


def _half_m(landmark: Landmark) -> float:
    return max(landmark.size[:2]) / 2 if landmark.size else 0.0


def _span_ns(scene_map: SceneMap) -> tuple[int, int]:
    stamps = [one.stamp_ns for one in scene_map.path]
    stamps += [one.first_seen_ns for one in scene_map.landmarks]
    return min(stamps, default=0), max(stamps, default=0)


def _colour_of(scene_map: SceneMap, landmark: Landmark) -> tuple[int, int, int]:
    start, end = _span_ns(scene_map)
    return _colour((landmark.first_seen_ns - start) / max(1, end - start))


@cache
def _colours() -> NDArray[np.uint8]:
    """Colours of times from first to last, from blue to red. Shape (256, 3)."""
    table = cv2.applyColorMap(np.arange(256, dtype=np.uint8)[:, None], cv2.COLORMAP_TURBO)[:, 0]
    return (0.85 * table).round().astype(np.uint8)  # darker, so that yellow is legible too


def _colour(share: float) -> tuple[int, int, int]:
    """Colour of a time, 0..1 of the recording."""
    blue, green, red = _colours()[round(255 * min(1.0, max(0.0, share)))]
    return int(blue), int(green), int(red)


def _draw_way(picture: NDArray[np.uint8], scene_map: SceneMap, scale: _Scale) -> list[_Rectangle]:
    """Draw the way; returns the part that labels must not cover."""
    path = scene_map.path
    if not path:
        return []
    pixels = [scale.pixel(point.position) for point in path]
    cv2.polylines(picture, [np.array(pixels, np.int32)], False, _WAY, 2, cv2.LINE_AA)
    since = math.inf
    for number, (pixel, point) in enumerate(zip(pixels, path, strict=True)):
        since += math.dist(pixel, pixels[number - 1]) if number else 0.0
        if since < _ARROW_EVERY_PX and number < len(path) - 1:
            continue
        since = 0.0
        _draw_heading(picture, pixel, point.yaw_rad, FAINT)
    cv2.circle(picture, pixels[0], 5, INK, -1, cv2.LINE_AA)
    x, y = pixels[0]
    put_line(picture, Line('start', 0.4), y + 14, x + 6)
    return [(x - 5, y - 5, x + 6 + text_width_px('start', 0.4), y + 16)]


def _draw_heading(
    picture: NDArray[np.uint8],
    pixel: tuple[int, int],
    yaw_rad: float,
    colour: tuple[int, int, int],
) -> None:
    """A small triangle that points to where the camera looks."""
    corners = [
        (
            pixel[0] + round(length * math.cos(yaw_rad + turn)),
            pixel[1] - round(length * math.sin(yaw_rad + turn)),
        )
        for turn, length in ((0.0, _ARROW_PX), (2.5, 0.7 * _ARROW_PX), (-2.5, 0.7 * _ARROW_PX))
    ]
    cv2.fillPoly(picture, [np.array(corners, np.int32)], colour, cv2.LINE_AA)


def _draw_landmark(
    picture: NDArray[np.uint8], landmark: Landmark, scale: _Scale, colour: tuple[int, int, int]
) -> _Rectangle:
    """Draw it as large as it is, or as a dot; returns the part that labels must not cover."""
    x, y = scale.pixel(landmark.position)
    is_gone = landmark.status is LandmarkStatus.GONE
    if landmark.size:
        across, up = (round(max(side * scale.px_per_m / 2, _DOT_PX)) for side in landmark.size[:2])
        corners = (x - across, y - up), (x + across, y + up)
        if not is_gone:
            part = picture[max(0, y - up) : y + up + 1, max(0, x - across) : x + across + 1]
            part[:] = (0.75 * part + 0.25 * np.array(colour)).astype(np.uint8)
        cv2.rectangle(picture, *corners, colour, 1, cv2.LINE_AA)
    cv2.circle(picture, (x, y), _DOT_PX, PAPER, -1, cv2.LINE_AA)
    cv2.circle(picture, (x, y), _DOT_PX, colour, 2 if is_gone else -1, cv2.LINE_AA)
    return x - _DOT_PX, y - _DOT_PX, x + _DOT_PX, y + _DOT_PX


def _draw_label(
    picture: NDArray[np.uint8],
    landmark: Landmark,
    mark: tuple[tuple[int, int], int],  # its middle and half its size
    occupied: list[_Rectangle],
    way: Sequence[tuple[int, int]],
) -> None:
    """Write a name beside its landmark, where nothing else is written or drawn if possible."""
    text = landmark.label + (' (gone)' if landmark.status is LandmarkStatus.GONE else '')
    width = text_width_px(text, _LABEL_SCALE) + 4
    at, half_px = mark
    # Beside a small box; a large one has its name inside.
    first = half_px if half_px <= _RINGS_PX[2] else 0
    best, least = (0, 0, 0, 0), math.inf
    for ring, extra in enumerate(_RINGS_PX):
        radius = first + extra
        for step in range(_AROUND):
            angle = 2 * math.pi * step / _AROUND
            across, up = math.cos(angle), math.sin(angle)
            # The nearest edge of the label is on the ring, not its middle.
            left = round(at[0] + radius * across + (across - 1) * width / 2)
            top = round(at[1] - radius * up - (up + 1) * _ROW_PX / 2)
            place = (left, top, left + width, top + _ROW_PX)
            cost = ring + 0.1 * (step != 0) + _cover_cost(place, occupied, way, picture.shape)
            if cost < least:
                best, least = place, cost
    left, top, right, bottom = best
    near = (min(max(at[0], left), right), min(max(at[1], top), bottom))
    if math.dist(near, at) > 1.5 * first + _RINGS_PX[1]:
        cv2.line(picture, at, near, _WAY, 1, cv2.LINE_AA)
    ink = INK if landmark.confidence >= _UNSURE else FAINT
    put_line(picture, Line(text, _LABEL_SCALE, ink), bottom - 4, left + 2)
    occupied.append(best)


def _cover_cost(
    place: _Rectangle,
    occupied: Sequence[_Rectangle],
    way: Sequence[tuple[int, int]],
    shape: tuple[int, ...],
) -> float:
    left, top, right, bottom = place
    if left < 0 or top < 0 or right >= shape[1] or bottom >= shape[0]:
        return 1000.0
    covers = sum(
        min(right, other[2]) > max(left, other[0]) and min(bottom, other[3]) > max(top, other[1])
        for other in occupied
    )
    on_way = any(left < x < right and top < y < bottom for x, y in way)
    return 20.0 * covers + 1.5 * on_way


def _draw_scale_bar(picture: NDArray[np.uint8], scale: _Scale) -> _Rectangle:
    metres = max((m for m in _BARS_M if m * scale.px_per_m <= _BAR_PX), default=_BARS_M[0])
    length = round(metres * scale.px_per_m)
    left, y = _LEFT_PX, scale.height_px - 18
    first, count = math.ceil(scale.left_m / metres), math.ceil(_WIDTH_PX / length) + 1
    for number in range(first, first + count):
        x, _ = scale.pixel((number * metres, 0.0))
        cv2.line(picture, (x, 0), (x, scale.height_px), _GRID, 1)
    first = math.floor(scale.top_m / metres)
    for number in range(first, first - math.ceil(scale.height_px / length) - 1, -1):
        _, row = scale.pixel((0.0, number * metres))
        cv2.line(picture, (0, row), (_WIDTH_PX, row), _GRID, 1)
    cv2.line(picture, (left, y), (left + length, y), INK, 2)
    for x in (left, left + length):
        cv2.line(picture, (x, y - 4), (x, y + 4), INK, 2)
    text = f'{metres:g} m'
    put_line(picture, Line(text, 0.45), y - 7, left)
    return left, y - 22, left + max(length, text_width_px(text, 0.45)), y + 6


def _legend(scene_map: SceneMap) -> NDArray[np.uint8]:
    """What the colours mean: when a landmark was seen first."""
    block = np.full((_LEGEND_PX, _WIDTH_PX, 3), PAPER, np.uint8)
    start, end = _span_ns(scene_map)
    left, length = _LEFT_PX, 300
    for column in range(length):
        block[8:20, left + column] = _colour(column / (length - 1))
    put_line(block, Line('first seen at 0 s', 0.4), 36, left)
    text = f'{(end - start) / NS_PER_S:.0f} s'
    put_line(block, Line(text, 0.4), 36, left + length - text_width_px(text, 0.4))
    put_line(
        block,
        Line('triangles: where the camera looked; grey names: not sure', 0.4, FAINT),
        20,
        left + length + 30,
    )
    return block
