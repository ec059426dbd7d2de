# SPDX-License-Identifier: Apache-2.0
"""Signs on the walls of a room: what stands on them in letters, and the same as a QR code.

They are pictures and nothing else: no ray meets them, and what is true of a room does not change.
Black on white, they are no coloured things either.
"""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.errors import InputError
from embodied_r_ros.showing.drawing import Line, text_block
import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_CHARS = 200  # a longer text is too small to be read
SIZE_M = (1.2, 0.6)  # width and height of a sign
CENTRE_M = 1.75  # above the floor: over most furniture, and in view
_SIDE_PX = 256  # of the code, and of the letters beside it
_MARGIN_PX = 8
_QUIET = 4  # modules of white that a code needs around it
_SCALES = (1.2, 1.0, 0.8, 0.65, 0.5, 0.4, 0.3, 0.25)


def texts_of(given: str) -> tuple[str, ...]:
    """Texts of signs: the lines of a file of that name, or the text itself.

    Raises:
        InputError: There is no text, or one that no sign can hold.
    """
    try:
        lines = Path(given).read_text().splitlines() if _is_file(given) else [given]
    except (OSError, ValueError) as error:
        msg = f'cannot read signs from {given}: {error}'
        raise InputError(msg) from None
    texts = tuple(line.strip() for line in lines if line.strip())
    if not texts:
        msg = f'signs {given!r} have no text: expected a text, or a file with one on each line'
        raise InputError(msg)
    for text in texts:
        if len(text) > MAX_CHARS:
            msg = f'sign {text[:40]!r}… has {len(text)} characters: expected at most {MAX_CHARS}'
            raise InputError(msg)
    return texts


def _is_file(given: str) -> bool:
    try:
        return Path(given).is_file()
    except (OSError, ValueError):  # no file can be called so
        return False


def scrambled(text: str, seed: int = 0) -> str:
    """The same characters in an order that means nothing: a sign that looks alike."""
    characters = list(text)
    Random(f'{seed}:{text}').shuffle(characters)
    return ''.join(characters)


def sign_picture(text: str) -> NDArray[np.uint8]:
    """Draw a sign.

    Returns:
        RGB image: the code on the left, letters on the right. Shape (H, W, 3).

    Raises:
        InputError: OpenCV is too old to make codes.
    """
    return np.hstack([_code(text), _letters(text)])


def _code(text: str) -> NDArray[np.uint8]:
    if not hasattr(cv2, 'QRCodeEncoder'):
        msg = f'OpenCV {cv2.__version__} makes no QR codes: install 4.5.5 or newer'
        raise InputError(msg)
    modules = np.asarray(cv2.QRCodeEncoder.create().encode(text), np.uint8)
    modules = np.pad(modules, _QUIET, constant_values=255)
    side = (_SIDE_PX, _SIDE_PX)
    grey = cv2.resize(modules, side, interpolation=cv2.INTER_NEAREST)
    return np.asarray(cv2.cvtColor(grey, cv2.COLOR_GRAY2RGB), np.uint8)


def _letters(text: str) -> NDArray[np.uint8]:
    """The text, as large as it fits; what does not fit even in small letters is cut off."""
    width = _SIDE_PX - 2 * _MARGIN_PX
    for scale in _SCALES:
        block = text_block([Line(text, scale, (0, 0, 0))], width)
        if block.shape[0] <= _SIDE_PX and _widest_px(text, scale) <= width:
            break
    bold = cv2.erode(block[:_SIDE_PX], np.ones((2, 2), np.uint8))
    picture = np.full((_SIDE_PX, _SIDE_PX, 3), 255, np.uint8)
    top = (_SIDE_PX - bold.shape[0]) // 2
    picture[top : top + bold.shape[0], _MARGIN_PX : _MARGIN_PX + width] = bold
    return picture


def _widest_px(text: str, scale: float) -> int:
    """Width of the longest word [px]."""
    font = cv2.FONT_HERSHEY_SIMPLEX
    return max(cv2.getTextSize(word, font, scale, 1)[0][0] for word in text.split())
