# SPDX-License-Identifier: Apache-2.0
"""The picture of a demonstration: speed, gripper and keypoints over time, and the images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps.lerobot_frames import Camera, pictures_at
from embodied_r_ros.apps.sheet import FAINT, INK, Line, PAPER, put_line, Sheet
from embodied_r_ros.bags.images import choose_image_topic
from embodied_r_ros.bags.messages import IMAGE_TYPES
from embodied_r_ros.bags.reader import topics_of_type
from embodied_r_ros.common.errors import ImageError, SourceError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import Demonstration, Keypoint
    from embodied_r_ros.arm.robot import ArmSetup
    from embodied_r_ros.bags.reader import BagReader
    from numpy.typing import NDArray

_WIDTH_PX, _PLOT_PX, _CARD_PX, _MARGIN_PX = 1280, 170, 290, 24
_LABEL_PX = 110  # left of a plot
_GRID = (225, 225, 225)
_COLOURS = {'gripper': (50, 50, 200), 'stop': (170, 95, 20), 'last': (70, 140, 40)}  # BGR
_MAX_CARDS, _TEXT = 16, 0.42


def images_at(
    reader: BagReader, setup: ArmSetup, stamps_ns: Sequence[int]
) -> dict[int, NDArray[np.uint8]]:
    """The newest image that is not later than each stamp; none where the bag has no images.

    Raises:
        SourceError: An image cannot be decoded, or there are several cameras.
        BagError: A message is damaged.
    """
    if not topics_of_type(reader, *IMAGE_TYPES):
        return {}
    topic = choose_image_topic(reader, setup.image_topic or None)
    stamps = sorted(set(stamps_ns))
    try:
        pictures = pictures_at(reader, Camera('', topic, is_keyframes=False), stamps)
        return dict(zip(stamps, pictures, strict=False))
    except ImageError as error:
        text = f'an image of {topic} cannot be decoded: {error}'
        raise SourceError(text) from None


def write_keypoint_sheet(
    path: Path,
    demonstration: Demonstration,
    keypoints: Sequence[Keypoint],
    images: dict[int, NDArray[np.uint8]],
) -> None:
    """Write the picture as PNG; it appears only when it is complete.

    Args:
        path: The file.
        demonstration: The demonstration.
        keypoints: Its keypoints; at most 16, the first ones, get a card. The last line says how
            many there are besides.
        images: BGR image by stamp of a keypoint; (H, W, 3). A card without one has text alone.

    Raises:
        InputError: The file cannot be written.
    """
    duration_s = demonstration.seconds()[-1]
    head = f'{len(keypoints)} keypoints in {duration_s:.1f} s, {len(demonstration)} samples'
    title = [Line(demonstration.task or demonstration.episode_id, 0.9), Line(head, 0.5, FAINT)]
    sheet = Sheet(_CARD_PX, _MARGIN_PX)
    sheet.add_text(title)
    if demonstration.joint_speeds is None:
        sheet.add(
            _plot(demonstration, keypoints, demonstration.tool_speeds(), 'tool speed', 'm/s')
        )
    else:
        fastest = np.abs(demonstration.joint_speeds).max(axis=1)
        sheet.add(_plot(demonstration, keypoints, fastest, 'fastest joint', 'rad/s'))
    if demonstration.openings is not None:
        sheet.add(_plot(demonstration, keypoints, demonstration.openings, 'gripper', 'open'))
    start_ns = int(demonstration.stamps_ns[0])
    numbered = list(enumerate(keypoints[:_MAX_CARDS], 1))
    sheet.add_cards(
        [sheet.card(images.get(k.stamp_ns), _card_lines(k, n, start_ns)) for n, k in numbered]
    )
    if more := len(keypoints) - len(numbered):
        rest = f'{more} more without a card, from number {_MAX_CARDS + 1} on: marked above.'
        sheet.add_text([Line(rest, 0.5)])
    sheet.write(path)


def _plot(
    demonstration: Demonstration,
    keypoints: Sequence[Keypoint],
    values: NDArray[np.float64],
    name: str,
    unit: str,
) -> NDArray[np.uint8]:
    """A line over time, with a mark at each keypoint. Shape (H, W, 3)."""
    page = np.full((_PLOT_PX, _WIDTH_PX, 3), PAPER, np.uint8)
    left, right, top, bottom = _LABEL_PX + _MARGIN_PX, _WIDTH_PX - _MARGIN_PX, 22, _PLOT_PX - 26
    seconds = demonstration.seconds()
    most = max(1e-6, float(values.max()))
    x = left + seconds / seconds[-1] * (right - left)
    y = bottom - np.clip(values / most, 0.0, 1.0) * (bottom - top)
    for second in range(int(seconds[-1]) + 1):
        at = round(left + second / seconds[-1] * (right - left))
        cv2.line(page, (at, top), (at, bottom), _GRID, 1)
        put_line(page, Line(f'{second}', _TEXT, FAINT), bottom + 18, at - 4)
    for number, keypoint in enumerate(keypoints, 1):
        at = round(float(x[keypoint.index]))
        colour = _COLOURS[keypoint.reason]
        cv2.line(page, (at, top), (at, bottom), colour, 2)
        put_line(page, Line(str(number), _TEXT, colour), top - 6, at - 5)
    points = np.column_stack([x, y]).round().astype(np.int32)
    cv2.polylines(page, [points], isClosed=False, color=INK, thickness=1, lineType=cv2.LINE_AA)
    put_line(page, Line(name, _TEXT, INK), top + 14, _MARGIN_PX)
    put_line(page, Line(f'max {most:.2f} {unit}', _TEXT, FAINT), top + 34, _MARGIN_PX)
    return page


def _card_lines(keypoint: Keypoint, number: int, start_ns: int) -> list[Line]:
    gripper = {True: ', open', False: ', closed', None: ''}[keypoint.is_open]
    place = ', '.join(f'{value:.3f}' for value in keypoint.position or ())
    seconds = (keypoint.stamp_ns - start_ns) / 1e9
    return [
        Line(f'{number}: {keypoint.reason}{gripper}', 0.55, _COLOURS[keypoint.reason]),
        Line(f'{seconds:.2f} s' + (f', [{place}] m' if place else ''), 0.42, FAINT),
    ]
