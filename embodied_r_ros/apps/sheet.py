# SPDX-License-Identifier: Apache-2.0
"""Sheets of pictures with wrapped text; the contact sheet of an episode."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING
from unicodedata import combining, normalize

import cv2
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.reasoning.image_targets import read_box, read_points
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.images import shrink
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.images import EncodedImage, PackedMask
    from embodied_r_ros.core.types.keyframes import Keyframe
    from numpy.typing import NDArray

_FONT = cv2.FONT_HERSHEY_SIMPLEX
INK, PAPER = (40, 40, 40), (255, 255, 255)
_MARK = (40, 40, 220)
_COLUMNS = 4  # of cards


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
    rows = [Line(part, line.scale, line.colour) for line in lines for part in _wrap(line, width)]
    height = sum(line.height_px for line in rows) + 8
    block = np.full((height, width, 3), PAPER, np.uint8)
    y = 0
    for line in rows:
        y += line.height_px
        put_line(block, line, y)
    return block


def _wrap(line: Line, width: int) -> list[str]:
    rows, current = [], ''
    for word in line.text.split():
        longer = f'{current} {word}'.strip()
        if current and text_width_px(longer, line.scale) > width:
            rows.append(current)
            longer = word
        current = longer
    return [*rows, current] if current else rows


def text_width_px(text: str, scale: float) -> int:
    """Width of a row of text [px]."""
    pieces = text.split('°')
    width = sum(cv2.getTextSize(_plain(piece), _FONT, scale, 1)[0][0] for piece in pieces)
    return int(width + (len(pieces) - 1) * _degree_px(scale))


def _degree_px(scale: float) -> int:
    return round(12 * scale) + 2


def _plain(text: str) -> str:
    """The text in the characters that OpenCV's fonts have: é as e, … as three dots."""
    parts = (char for char in normalize('NFKD', text) if not combining(char))
    return ''.join(char if ' ' <= char <= '~' else '?' for char in parts)


def put_line(block: NDArray[np.uint8], line: Line, y: int, x: int = 0) -> None:
    """Draw one row of text; OpenCV's fonts have no degree sign, so it is drawn as a ring."""
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
    write_whole(path, data.tobytes())


def write_place_picture(path: Path, image: EncodedImage, answer: str) -> None:
    """Write an image with the points or the box that an answer to a question about it names.

    Raises:
        ImageError: The image cannot be decoded.
        InputError: The file cannot be written.
    """
    picture = image.decode().copy()
    height, width = picture.shape[:2]
    box = read_box(answer)
    corners = [(box[0], box[1]), (box[2], box[3])] if box else read_points(answer)
    pixels = [(round(x * (width - 1) / 1000), round(y * (height - 1) / 1000)) for x, y in corners]
    for colour, thickness in ((PAPER, 4), (_MARK, 2)):
        if box:
            cv2.rectangle(picture, pixels[0], pixels[1], colour, thickness)
        for pixel in [] if box else pixels:
            cv2.drawMarker(picture, pixel, colour, cv2.MARKER_CROSS, 20, thickness)
    write_sheet(path, [picture])


class Sheet:
    """A page of one width: paragraphs and rows of cards, one below the other."""

    def __init__(self, card_px: int, margin_px: int) -> None:
        """Say how wide a card and a margin are [px]; four cards stand side by side."""
        self.card_px, self.margin_px = card_px, margin_px
        self.width_px = _COLUMNS * (card_px + margin_px) + margin_px
        self._parts: list[NDArray[np.uint8]] = []

    def add(self, picture: NDArray[np.uint8]) -> None:
        """Add a picture of the full width. Shape (H, width_px, 3)."""
        self._parts.append(picture)

    def add_text(self, lines: Sequence[Line]) -> None:
        """Add a paragraph between the margins."""
        self._add_block(text_block(lines, self.width_px - 2 * self.margin_px))

    def add_cards(self, cards: Sequence[NDArray[np.uint8]]) -> None:
        """Add cards in rows. Shape of each (H, card_px, 3)."""
        for first in range(0, len(cards), _COLUMNS):
            row = cards[first : first + _COLUMNS]
            height = max(card.shape[0] for card in row)
            block = np.full((height, self.width_px - 2 * self.margin_px, 3), PAPER, np.uint8)
            for column, card in enumerate(row):
                left = column * (self.card_px + self.margin_px)
                block[: card.shape[0], left : left + self.card_px] = card
            self._add_block(block)

    def card(self, image: NDArray[np.uint8] | None, lines: Sequence[Line]) -> NDArray[np.uint8]:
        """An image as wide as a card, with text below; None: the text alone."""
        text = text_block(lines, self.card_px)
        if image is None:
            return text
        size = self.card_px, round(image.shape[0] * self.card_px / image.shape[1])
        return np.vstack([cv2.resize(image, size, interpolation=cv2.INTER_AREA), text])

    def write(self, path: Path) -> None:
        """Write the page as PNG; the file appears only when it is complete.

        Raises:
            InputError: The file cannot be written.
        """
        write_sheet(path, self._parts)

    def _add_block(self, block: NDArray[np.uint8]) -> None:
        page = np.full((block.shape[0] + self.margin_px, self.width_px, 3), PAPER, np.uint8)
        top, left = self.margin_px // 2, self.margin_px
        page[top : top + block.shape[0], left : left + block.shape[1]] = block
        self.add(page)


FAINT = (125, 125, 125)
_GOOD, _BAD, _ACCENT = (70, 140, 40), (50, 50, 200), (170, 95, 20)
_CARD_PX, _MARGIN_PX = 380, 24
_MAX_CARDS = 16
_NEAR, _NEAR_SHARE = 0.3, 0.15  # a measure this near to the truth, or by this share, is right


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question, its answer, and the truth where it is known."""

    answer: Answer
    truth: str = ''  # text of the true answer; empty: not known
    refusal: str = ''  # why there is no answer; empty: there is one

    @property
    def is_right(self) -> bool | None:
        """Whether the answer is the truth; None where that is not known.

        A refusal is not the answer 'unknown': it is right for no question. A measure is right
        that is near to the truth, '1.4 m'.
        """
        if not self.truth:
            return None
        if self.refusal:
            return False
        if self.answer.unit and math.isfinite(self.answer.number):
            true = float(self.truth.split()[0])
            return abs(self.answer.number - true) <= max(_NEAR, _NEAR_SHARE * abs(true))
        return (self.answer.text or 'unknown') == self.truth


def write_contact_sheet(
    path: Path,
    title: str,
    keyframes: Sequence[Keyframe],
    deltas: Sequence[SemanticDelta],
    questions: Sequence[AnsweredQuestion],
) -> None:
    """Write the picture as PNG; it appears only when it is complete.

    Keyframes have the numbers by which prompts and answers call their deltas: `[1]` is the first.

    Args:
        path: The file.
        title: First line.
        keyframes: Keyframes in order; at most 16, evenly chosen, are shown.
        deltas: All semantic deltas; those of a shown keyframe are printed below it.
        questions: Questions with their answers.

    Raises:
        InputError: The file cannot be written.
    """
    head = f'{len(keyframes)} keyframes, {len(deltas)} semantic deltas'
    sheet = _keyframe_sheet(title, head, keyframes, dict(enumerate(deltas, 1)))
    for question in questions:
        sheet.add_text(_question_lines(question))
    sheet.write(path)


def _keyframe_sheet(
    title: str, head: str, keyframes: Sequence[Keyframe], deltas: Mapping[int, SemanticDelta]
) -> Sheet:
    """A sheet that shows keyframes; deltas are given by their numbers."""
    sheet = Sheet(_CARD_PX, _MARGIN_PX)
    start_ns = keyframes[0].stamp_ns if keyframes else 0
    numbers = {delta.to_id: number for number, delta in deltas.items()}
    sheet.add_text([Line(title, 0.9), Line(head, 0.5, FAINT)])
    cards = []
    for keyframe in _evenly(keyframes, _MAX_CARDS):
        number = numbers.get(keyframe.id, 0)
        delta = deltas.get(number)
        lines = _keyframe_lines(keyframe, delta, number, start_ns)
        cards.append(sheet.card(_picture(keyframe, delta), lines))
    sheet.add_cards(cards)
    return sheet


class KeyframeSample:
    """An even sample of keyframes and their deltas for a sheet, bounded however many come."""

    def __init__(self) -> None:
        self.total = 0
        self._stride = 1
        self._keyframes: dict[int, Keyframe] = {}  # by id
        self._deltas: dict[int, SemanticDelta] = {}  # by their numbers, from 1

    def keep(self, keyframes: Iterable[Keyframe]) -> Iterator[Keyframe]:
        """Pass keyframes on and keep some of them."""
        for keyframe in keyframes:
            if self.total % self._stride == 0:
                self._keyframes[keyframe.id] = keyframe
            self.total += 1
            if len(self._keyframes) > 2 * _MAX_CARDS:
                self._stride *= 2
                self._keyframes = dict(list(self._keyframes.items())[::2])
            yield keyframe

    def note(self, deltas: Iterable[SemanticDelta]) -> Iterator[SemanticDelta]:
        """Pass deltas on and keep those of the keyframes that are kept."""
        for number, delta in enumerate(deltas, 1):
            if delta.to_id in self._keyframes:
                self._deltas[number] = delta
            yield delta

    def write(self, path: Path, title: str) -> None:
        """Write the sheet, as `write_contact_sheet` does.

        Raises:
            InputError: The file cannot be written.
        """
        head = f'{self.total} keyframes, {self.total} semantic deltas'
        keyframes = list(self._keyframes.values())
        deltas = {n: delta for n, delta in self._deltas.items() if delta.to_id in self._keyframes}
        _keyframe_sheet(title, head, keyframes, deltas).write(path)


def _picture(keyframe: Keyframe, delta: SemanticDelta | None) -> NDArray[np.uint8]:
    image = with_fixed(shrink(keyframe.image.decode(), _CARD_PX), keyframe.fixed_mask)
    return with_items(image, delta.items) if delta else image


def with_fixed(image: NDArray[np.uint8], mask: PackedMask | None) -> NDArray[np.uint8]:
    """A picture on which hatching covers what is fixed to the camera.

    Args:
        image: BGR, uint8, (H, W, 3).
        mask: What is fixed; None: nothing is known.
    """
    if mask is None:
        return image
    height, width = image.shape[:2]
    fixed = mask.unpack(width, height)
    rows, columns = np.indices((height, width))
    drawn = image.copy()
    drawn[fixed] = drawn[fixed] // 2 + np.array(_FIXED_COLOUR, np.uint8) // 2
    drawn[fixed & ((rows + columns) % _HATCH_PX == 0)] = _FIXED_COLOUR
    return drawn


_FIXED_COLOUR, _HATCH_PX = (150, 150, 150), 8
_BOX = {
    ItemStatus.APPEARED: (60, 200, 60),
    ItemStatus.VISIBLE: (240, 170, 40),
    ItemStatus.MOVED: (40, 140, 250),
}
_LABEL_SCALE, _LABEL_ROW_PX, _DARK = 0.42, 15, (30, 30, 30)


def with_items(image: NDArray[np.uint8], items: Sequence[Item]) -> NDArray[np.uint8]:
    """A picture with the boxes of items on it, each with its name and distance.

    Args:
        image: BGR, uint8, (H, W, 3).
        items: As seen in it; those without a box are left out.

    Returns:
        A picture of the same size.
    """
    drawn = image.copy()
    height, width = image.shape[:2]
    label_spans: list[tuple[int, int, int]] = []  # left, right and row of each label
    shown = [item for item in items if item.box and item.status is not ItemStatus.LEFT]
    for item in shown:
        left, top, right, bottom = item.box or (0, 0, 0, 0)
        corners = (
            (round(left * width), round(top * height)),
            (
                round(right * width) - 1,
                round(bottom * height) - 1,
            ),
        )
        cv2.rectangle(drawn, *corners, _DARK, 3)
        cv2.rectangle(drawn, *corners, _BOX[item.status], 1)
    for item in shown:
        left, top, *_ = item.box or (0, 0)
        distance = f' {item.distance_m:.1f} m' if math.isfinite(item.distance_m) else ''
        text = f'{item.label}{distance}'
        long_px = text_width_px(text, _LABEL_SCALE) + 6
        x = max(0, min(round(left * width), width - long_px))
        y = _free_row(round(top * height) - _LABEL_ROW_PX, x, x + long_px, height, label_spans)
        label_spans.append((x, x + long_px, y))
        label = np.full((_LABEL_ROW_PX, long_px, 3), _BOX[item.status], np.uint8)
        put_line(label, Line(text, _LABEL_SCALE, _DARK), _LABEL_ROW_PX - 4, 3)
        space = drawn[y : y + _LABEL_ROW_PX, x : x + long_px]
        space[:] = label[: space.shape[0], : space.shape[1]]
    return drawn


def _free_row(
    y: int, left: int, right: int, height: int, label_spans: Sequence[tuple[int, int, int]]
) -> int:
    """The row at or below a wanted one where no other label is."""
    y = max(0, y)
    while y < height - _LABEL_ROW_PX and any(
        left < end and start < right and abs(y - row) < _LABEL_ROW_PX
        for start, end, row in label_spans
    ):
        y += _LABEL_ROW_PX
    return max(0, min(y, height - _LABEL_ROW_PX))


def _evenly(keyframes: Sequence[Keyframe], limit: int) -> list[Keyframe]:
    if len(keyframes) <= limit:
        return list(keyframes)
    chosen = np.linspace(0, len(keyframes) - 1, limit).round().astype(int)
    return [keyframes[index] for index in chosen]


def _keyframe_lines(
    keyframe: Keyframe, delta: SemanticDelta | None, number: int, start_ns: int
) -> list[Line]:
    seconds = (keyframe.stamp_ns - start_ns) / 1e9
    overlap = 'none' if keyframe.overlap is None else f'{keyframe.overlap:.2f}'
    reason = keyframe.reason.name.lower().replace('_', ' ')
    lines = [
        Line(f'[{number}] {seconds:.1f} s' if number else f'{seconds:.1f} s', 0.55),
        Line(f'{reason}, overlap {overlap}, {keyframe.inliers} inliers', 0.42, FAINT),
    ]
    if delta:
        lines += [Line(delta.action, 0.45, _ACCENT)] if delta.action else []
        lines += [Line(delta.error or delta.change, 0.45)]
    return lines


def _question_lines(question: AnsweredQuestion) -> list[Line]:
    answer = question.answer
    answer_text = 'none' if question.refusal else answer.text or 'unknown'
    verdict = {True: 'right', False: f'wrong, true is: {question.truth}', None: ''}
    colour = {True: _GOOD, False: _BAD, None: INK}[question.is_right]
    options = '   '.join(f'{chr(65 + i)}. {text}' for i, text in enumerate(answer.options))
    result = f'Answer: {answer_text}' + (
        f'  ({verdict[question.is_right]})' if verdict[question.is_right] else ''
    )
    model = (
        f'{answer.model.name}, {answer.freshness.name.lower()}, {answer.latency_ns / 1e9:.1f} s'
    )
    return [
        Line(answer.question, 0.65),
        *([Line(options, 0.5, FAINT)] if options else []),
        Line(question.refusal or answer.think, 0.48),
        Line(result, 0.6, colour),
        *([Line(answer.sentence, 0.5)] if answer.sentence else []),
        *([] if question.refusal else [_check_line(answer)]),
        Line(model, 0.42, FAINT),
    ]


_CHECK = {Check.VERIFIED: _GOOD, Check.UNSUPPORTED: _BAD, Check.UNCHECKED: FAINT}


def _check_line(answer: Answer) -> Line:
    """Whether an answer agrees with what was seen, and what it rests on."""
    evidence = answer.evidence()
    numbers = ' '.join(f'[{number}]' for number in evidence['observations'])
    landmarks = ', '.join(map(str, evidence['landmarks']))
    parts = [
        answer.check.name.lower() + (f': {answer.check_reason}' if answer.check_reason else ''),
        f'rests on {numbers}' if numbers else '',
        f'landmarks {landmarks}' if landmarks else '',
    ]
    return Line('; '.join(filter(None, parts)), 0.5, _CHECK[answer.check])
