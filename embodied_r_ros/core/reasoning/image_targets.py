# SPDX-License-Identifier: Apache-2.0
"""Points and boxes in an image as answers: how they are asked for, read, and scored.

Coordinates are thousandths of the width and height of the image: (0, 0) is its top left corner,
(1000, 1000) its bottom right one. The parser is that of live answers and of training alike.
"""

from __future__ import annotations

from dataclasses import dataclass
import json
import math
import re
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.untrusted import parsed_json
from embodied_r_ros.core.perception.fusion import overlap_of
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.deltas import Box

Point = tuple[float, float]  # x, y

POINT, BOX = 'point', 'box'
_RANGE = (
    'in thousandths of the width and height of the image, from (0, 0), top left, to '
    '(1000, 1000), bottom right.'
)
FORMS = {
    POINT: f'Answer with the point (x, y) {_RANGE}',
    BOX: f'Answer with the box (left, top, right, bottom) {_RANGE}',
}
_ASKS = {
    POINT: re.compile(r'(?i)\s*(?:please,? |can you |could you )?point (?:at|to)\b'),
    BOX: re.compile(
        r'(?i)\s*(?:please,? |can you |could you )?(?:draw|put|give|show)(?: me)? '
        r'(?:a|the) (?:bounding )?box (?:around|of|for)\b'
    ),
}
_FALL = 100.0  # so far from where it should be, a point is worth nothing [thousandths]
_MOST_PLACES = 100  # points of an answer, corners of an outline
_FULL = 1000.0

_NUMBER = r'[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)'
_LIST = rf'{_NUMBER}(?: ?, ?{_NUMBER})+'
_GROUP = re.compile(rf'[(\[] ?({_LIST}) ?,? ?[)\]]')
_NAMED = re.compile(rf'(?i)\bx ?[=:] ?({_NUMBER}) ?[,;]? ?y ?[=:] ?({_NUMBER})(?![0-9.])')
_BARE = re.compile(rf'({_LIST})\.?')
# <point x="10" y="20">cup</point>, <points x1="10" y1="20" x2=… y2=…>, as Molmo writes them.
_POINT_TAG = re.compile(r'(?i)<points?\b([^<>]*)>(?:([^<>]*)</points?>)?')
_ATTRIBUTE = re.compile(rf'(?i)\b([xy])([0-9]*) ?= ?["\']?({_NUMBER})["\']?(?![0-9.])')
_OTHER_TAG = re.compile(r'<[^<>]*>')  # <box>, <|box_start|>
_FENCE = re.compile(r'```(?:json)?(.*?)```', re.DOTALL)


def asked_kind(question: str, options: Sequence[str] = ()) -> str:
    """What a question about an image asks for: a point, a box; empty: neither.

    >>> [asked_kind(text) for text in ('Point at the cup.', 'Draw a box around it.', 'Where?')]
    ['point', 'box', '']
    """
    if options:
        return ''
    for kind, form in FORMS.items():
        if form in question:
            return kind
    return next((kind for kind, asks in _ASKS.items() if asks.match(question)), '')


def with_form(question: str, options: Sequence[str] = ()) -> str:
    """A question with the form of its answer, where it asks for a place in the image."""
    kind = asked_kind(question, options)
    return f'{question} {FORMS[kind]}' if kind and FORMS[kind] not in question else question


def kind_of_prompt(user: str) -> str:
    """What the question of a prompt wants by its form: a point, a box; empty: neither."""
    lines = user.rpartition('\nQuestion: ')[2].split('\n')
    return asked_kind(lines[0]) if any(form in lines[0] for form in FORMS.values()) else ''


def read_points(answer: str) -> tuple[Point, ...]:
    """The points that an answer is; empty: it is none, or one is not in the image.

    >>> read_points('(412, 388)'), read_points('{"point_2d": [412, 388], "label": "cup 2"}')
    (((412.0, 388.0),), ((412.0, 388.0),))
    >>> read_points('(412, 1001)'), read_points('412 or 388'), read_points('(1, 2, 3)')
    ((), (), ())
    """
    groups = _groups(answer, 'point_2d')
    points = [(group[0], group[1]) for group in groups if len(group) == 2]
    fits = 0 < len(points) == len(groups) <= _MOST_PLACES
    return tuple(points) if fits and _are_in_image(groups) else ()


def read_box(answer: str) -> Box | None:
    """The box that an answer is; None: it is none, several, without an area, or out of the image.

    >>> read_box('[10, 20, 30, 40]'), read_box('<box>(10, 20), (30, 40)</box>')
    ((10.0, 20.0, 30.0, 40.0), (10.0, 20.0, 30.0, 40.0))
    """
    groups = _groups(answer, 'bbox_2d')
    numbers = [number for group in groups for number in group]
    is_one = [len(group) for group in groups] in ([4], [2, 2])
    if not is_one or not _are_in_image(groups):
        return None
    left, top, right, bottom = numbers
    return (left, top, right, bottom) if left < right and top < bottom else None


def place_text(kind: str, answer: str) -> str | None:
    """An answer in the one spelling of places; None: it is no place of that kind.

    >>> place_text('point', '[{"point_2d": [3, 4]}, {"point_2d": [5.5, 6]}]')
    '(3, 4); (5.5, 6)'
    """
    if kind == BOX:
        box = read_box(answer)
        return _tuple_text(box) if box else None
    points = read_points(answer)
    return '; '.join(map(_tuple_text, points)) or None


def _tuple_text(numbers: Sequence[float]) -> str:
    return f'({", ".join(f"{number:.6g}" for number in numbers)})'


def _are_in_image(groups: Sequence[Sequence[float]]) -> bool:
    return all(0 <= number <= _FULL for group in groups for number in group)


def _groups(answer: str, key: str) -> list[list[float]]:
    """The groups of numbers that an answer is made of; empty: it has others, or none."""
    fenced = _FENCE.fullmatch(answer.strip())
    text = ' '.join((fenced[1] if fenced else answer).split())
    value = _json(text)
    if value is not None:
        return _groups_of_json(value, key)
    if _POINT_TAG.search(text):
        return _groups_of_tags(text)
    text = _OTHER_TAG.sub(' ', text).strip()
    if bare := _BARE.fullmatch(text):
        return [_numbers(bare[1])]
    groups = []
    for pattern in (_GROUP, _NAMED):
        groups += [_numbers(','.join(match.groups())) for match in pattern.finditer(text)]
        text = pattern.sub(' ', text)
    # Numbers besides could be meant as well.
    return [] if any(map(str.isnumeric, text)) else groups


def _numbers(text: str) -> list[float]:
    return [float(number) for number in text.split(',')]


def _json(text: str) -> Any:
    """The value of a JSON text with objects or lists; None: it is none."""
    return parsed_json(text) if text[:1] in ('{', '[') else None


def _groups_of_json(value: Any, key: str) -> list[list[float]]:
    """Groups of `{key: […]}`, `{"x": …, "y": …}`, lists of numbers, and lists of these.

    Other keys are not read: `point` and `box_2d` have y first with some models.
    """
    if isinstance(value, dict):
        value = value[key] if key in value else [value.get('x'), value.get('y')]
    elif isinstance(value, list) and value and all(isinstance(v, (dict, list)) for v in value):
        parts = [_groups_of_json(part, key) for part in value[: _MOST_PLACES + 1]]
        return [group for part in parts for group in part] if all(parts) else []
    is_group = isinstance(value, list) and all(map(_is_number, value))
    return [[float(number) for number in value]] if is_group and value else []


def _is_number(value: Any) -> bool:
    # Numbers far out of the image need not be floats at all.
    return type(value) in (int, float) and -_FULL < value < 2 * _FULL


def _groups_of_tags(text: str) -> list[list[float]]:
    groups = []
    for tag in _POINT_TAG.finditer(text):
        values: dict[str, dict[str, float]] = {}
        for axis, number, value in _ATTRIBUTE.findall(tag[1]):
            values.setdefault(number, {})[axis.lower()] = float(value)
        if not values or any(len(point) != 2 for point in values.values()):
            return []
        groups += [[point['x'], point['y']] for point in values.values()]
    return [] if any(map(str.isnumeric, _POINT_TAG.sub(' ', text))) else groups


@dataclass(frozen=True)
class ImageTarget:
    """Where a point or a box should be: the solution of a question about an image."""

    kind: str  # POINT or BOX
    outline: tuple[Point, ...]  # one point; otherwise the corners of the area, in order

    @classmethod
    def of(cls, solution: str) -> ImageTarget | None:
        """Read a solution; None: it is of another kind.

        `{"bbox_2d": [l, t, r, b]}` is a box; `{"point_2d": [x, y]}` a point;
        `{"inside": [l, t, r, b]}` or `{"inside": [[x, y], …]}` an area that points should be in.
        """
        value = _json(solution.strip()) if solution.lstrip().startswith('{') else None
        if not isinstance(value, dict) or len(value) != 1:
            return None
        [(key, place)] = value.items()
        if key == 'point_2d':
            outline = read_points(json.dumps(place))
            return cls(POINT, outline) if len(outline) == 1 else None
        if key not in ('inside', 'bbox_2d') or not isinstance(place, list):
            return None
        box = read_box(json.dumps(place))
        if box:
            left, top, right, bottom = box
            corners = ((left, top), (right, top), (right, bottom), (left, bottom))
            return cls(BOX if key == 'bbox_2d' else POINT, corners)
        outline = read_points(json.dumps(place)) if key == 'inside' else ()
        return cls(POINT, outline) if len(outline) >= 3 else None

    def box(self) -> Box:
        """The box around the outline."""
        xs, ys = zip(*self.outline, strict=True)
        return min(xs), min(ys), max(xs), max(ys)

    def text(self) -> str:
        """An answer that is right, as good as one can be: the middle of an area, or the box."""
        left, top, right, bottom = self.box()
        if self.kind == BOX:
            return _tuple_text((left, top, right, bottom))
        middle = ((left + right) / 2, (top + bottom) / 2)
        if self._distance(middle) > 0:  # of a crescent
            middle = self.outline[0]
        return _tuple_text(middle)

    def score(self, answer: str) -> float | None:
        """How right an answer is, 0..1; None: it is no place in the image.

        Of a box its overlap (intersection over union). Of a point 1 inside the area or at the
        point, falling to 0 at a tenth of the image from there; of several points the mean.
        """
        if self.kind == BOX:
            box = read_box(answer)
            return overlap_of(box, self.box()) if box else None
        points = read_points(answer)
        if not points:
            return None
        nearness = [max(0.0, 1.0 - self._distance(point) / _FALL) for point in points]
        return sum(nearness) / len(nearness)

    def _distance(self, point: Point) -> float:
        """Distance of a point from the area, 0 inside [thousandths]."""
        if len(self.outline) == 1:
            return math.dist(point, self.outline[0])
        polygon = np.asarray(self.outline, np.float32)
        return max(0.0, -float(cv2.pointPolygonTest(polygon, point, measureDist=True)))
