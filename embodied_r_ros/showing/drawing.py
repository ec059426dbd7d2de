# SPDX-License-Identifier: Apache-2.0
"""Wrapped text in pictures, with OpenCV's fonts, and sheets of such pictures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

import cv2
from embodied_r_ros.errors import InputError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_FONT = cv2.FONT_HERSHEY_SIMPLEX
INK, PAPER = (40, 40, 40), (255, 255, 255)


@dataclass(frozen=True)
class Line:
    """A line of text, which wraps to the width that it is drawn in."""

    text: str
    scale: float = 0.45
    colour: tuple[int, int, int] = INK

    @property
    def height_px(self) -> int:
        """Height of one row [px]."""
        return round(38 * self.scale)


def text_block(lines: Sequence[Line], width: int) -> NDArray[np.uint8]:
    """Draw lines of text on white, wrapped.

    Args:
        lines: The lines.
        width: Width of the picture [px].

    Returns:
        A BGR picture of that width, as high as the text needs. Shape (H, width, 3).
    """
    wrapped = [
        Line(part, line.scale, line.colour) for line in lines for part in _wrap(line, width)
    ]
    height = sum(line.height_px for line in wrapped) + 8
    block = np.full((height, width, 3), PAPER, np.uint8)
    y = 0
    for line in wrapped:
        y += line.height_px
        _put(block, line, y)
    return block


def _wrap(line: Line, width: int) -> list[str]:
    rows, current = [], ''
    for word in line.text.split():
        longer = f'{current} {word}'.strip()
        if current and _width_px(longer, line.scale) > width:
            rows.append(current)
            longer = word
        current = longer
    return [*rows, current] if current else rows


def _width_px(text: str, scale: float) -> int:
    pieces = text.split('°')
    drawn = sum(cv2.getTextSize(_plain(piece), _FONT, scale, 1)[0][0] for piece in pieces)
    return int(drawn + (len(pieces) - 1) * _degree_px(scale))


def _degree_px(scale: float) -> int:
    return round(12 * scale) + 2


def _plain(text: str) -> str:
    """The text in the characters that OpenCV's fonts have: é as e, … as three dots."""
    parts = (char for char in normalize('NFKD', text) if not combining(char))
    return ''.join(char if ' ' <= char <= '~' else '?' for char in parts)


def _put(block: NDArray[np.uint8], line: Line, y: int) -> None:
    """Draw one row of text; OpenCV's fonts have no degree sign, so it is drawn as a ring."""
    x = 0
    for number, piece in enumerate(line.text.split('°')):
        if number:
            radius = max(1, round(4 * line.scale))
            centre = (x + radius + 1, y - round(18 * line.scale))
            cv2.circle(block, centre, radius, line.colour, 1, cv2.LINE_AA)
            x += _degree_px(line.scale)
        text = _plain(piece)
        cv2.putText(block, text, (x, y), _FONT, line.scale, line.colour, 1, cv2.LINE_AA)
        x += cv2.getTextSize(text, _FONT, line.scale, 1)[0][0]


def write_sheet(path: Path, parts: Sequence[NDArray[np.uint8]]) -> None:
    """Write pictures of one width as one PNG file, the first at the top.

    Raises:
        InputError: The file cannot be written.
    """
    _, data = cv2.imencode('.png', np.vstack(parts))
    unfinished = path.with_name(path.name + '.tmp')
    try:
        unfinished.write_bytes(data.tobytes())
        unfinished.replace(path)
    except OSError as error:
        msg = f'cannot write {path}: {error.strerror}'
        raise InputError(msg) from None
