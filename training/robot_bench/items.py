# SPDX-License-Identifier: Apache-2.0
"""Files of open questions with references, one JSON line each, and the pictures they are about."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, field, fields, replace
import json
import os
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.images import choose_image_topic, raw_image
from embodied_r_ros.bags.messages import encoded_image_from_msg, stamp_ns_from_msg
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.images import encode_image, EncodedImage, image_format
from embodied_r_ros.data.questions.row import focus_problem

from training.data.lines import read_lines

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

KINDS = ('planning', 'high_level_action', 'movement', 'spatial')
MAX_SCORE = 3
_TEXTS = (
    'id', 'question_type', 'question', 'reference', 'task', 'context', 'scene_id',
    'scene', 'image', 'bag', 'topic',
)  # fmt: skip
_NEEDED = ('id', 'question_type', 'question', 'reference')


@dataclass(frozen=True)
class GivenAnswer:
    """An answer that somebody gave, and what people think of it."""

    answer: str
    by: str = ''  # who gave it
    scores: tuple[float, ...] = ()  # one per person, 0 to MAX_SCORE; empty: not scored yet


@dataclass(frozen=True)
class BenchItem:
    """An open question about what a camera sees of an arm at work."""

    id: str
    question_type: str  # one of KINDS
    question: str
    reference: str  # what a good answer says
    task: str = ''  # what the arm is doing, in words; empty: not told
    context: str = ''  # what is told besides: frame, robot, state; empty: nothing
    scene_id: str = ''  # items of one scene are not independent
    scene: str = ''  # what was seen, as text; empty: not told so
    deltas: tuple[dict[str, Any], ...] = ()  # what was seen, as rows have it
    focus: tuple[dict[str, Any], ...] = ()  # what keyframes of it showed besides, likewise
    image: str = ''  # file with what the camera sees now
    bag: str = ''  # recording with it
    topic: str = ''  # of the images in the bag; empty: it has one
    stamp_ns: int = 0  # the newest image of the bag up to then
    answers: tuple[GivenAnswer, ...] = ()
    meta: dict[str, Any] = field(default_factory=dict)

    def has_text(self) -> bool:
        """Tell whether what was seen can be told in text."""
        return bool(self.scene or self.deltas)

    def has_picture(self) -> bool:
        """Tell whether what was seen can be shown."""
        return bool(self.image or self.bag)

    def deltas_in_order(self) -> tuple[SemanticDelta, ...]:
        """What was seen, as deltas; a text is a first sight."""
        if self.scene:
            return (SemanticDelta(self.stamp_ns, DeltaKind.FIRST, change=self.scene),)
        return tuple(SemanticDelta.from_row(delta) for delta in self.deltas)

    def looks(self) -> tuple[FocusText, ...]:
        """What keyframes showed besides."""
        return tuple(FocusText(**look) for look in self.focus)

    def to_json(self) -> str:
        """One line of JSON, without what is empty."""
        value = {name: part for name, part in asdict(self).items() if part}
        return json.dumps(value, ensure_ascii=False, separators=(',', ':'))

    @classmethod
    def of(cls, value: dict[str, Any]) -> BenchItem:
        """Check plain JSON values, and take them.

        Raises:
            InputError: They are no item; the message names the field.
        """
        problem = _fields_problem(value) or _type_problem(value)
        if problem:
            msg = f'item {value.get("id", "?")!r}: {problem}'
            raise InputError(msg)
        return _checked(value)


def _fields_problem(value: dict[str, Any]) -> str:
    """Which fields are missing or unknown; empty: none."""
    names = [each.name for each in fields(BenchItem)]
    if unknown := sorted(value.keys() - set(names)):
        return f'it has {", ".join(unknown)}: expected some of {", ".join(names)}'
    missing = [name for name in _NEEDED if not str(value.get(name) or '').strip()]
    if missing:
        return f'it lacks {", ".join(missing)}'
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return 'it holds half of a character: write it anew, in UTF-8'
    return ''


def _type_problem(value: dict[str, Any]) -> str:
    """Which field has the wrong type, or the question; empty: none."""
    wanted: dict[str, type] = {**dict.fromkeys(_TEXTS, str), 'meta': dict}
    wanted |= {'deltas': list, 'focus': list, 'answers': list}
    for name, kind in wanted.items():
        if name in value and not isinstance(value[name], kind):
            return f'{name} is {value[name]!r}, expected a {kind.__name__}'
    if value['question_type'] not in KINDS:
        return f'question_type is {value["question_type"]!r}, expected one of {", ".join(KINDS)}'
    if type(value.get('stamp_ns', 0)) is not int:
        return f'stamp_ns is {value["stamp_ns"]!r}, expected integer nanoseconds'
    return ''


def _checked(value: dict[str, Any]) -> BenchItem:
    """An item of values whose types are right.

    Raises:
        InputError: A value is not allowed.
    """
    try:
        answers = tuple(_given(answer) for answer in value.get('answers', ()))
        lists = {name: tuple(value.get(name, ())) for name in ('deltas', 'focus')}
        item = BenchItem(**{**value, **lists, 'answers': answers})
        item.deltas_in_order()
        problem = _seen_problem(item) or _focus_problem(item)
    except InputError as error:
        problem = str(error)
    if problem:
        msg = f'item {value["id"]!r}: {problem}'
        raise InputError(msg)
    return replace(item, scene_id=item.scene_id or item.bag or item.image or item.id)


def _given(value: Any) -> GivenAnswer:
    names = {each.name for each in fields(GivenAnswer)}
    if not isinstance(value, dict) or not {'answer'} <= value.keys() <= names:
        msg = f'answer {value!r}: expected answer, and perhaps by and scores'
        raise InputError(msg)
    answer, by, scores = value['answer'], value.get('by', ''), value.get('scores', [])
    is_text = isinstance(answer, str) and isinstance(by, str) and answer.strip()
    if not is_text or not isinstance(scores, list) or not all(map(_is_score, scores)):
        msg = f'answer {value!r}: expected texts, and scores from 0 to {MAX_SCORE} in a list'
        raise InputError(msg)
    return GivenAnswer(answer, by, tuple(map(float, scores)))


def _is_score(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_SCORE


def _seen_problem(item: BenchItem) -> str:
    """What is wrong with what was seen; empty: nothing."""
    if item.image and item.bag:
        return 'it has an image and a bag: expected one of them'
    if item.scene and item.deltas:
        return 'it has a scene and deltas: expected one of them'
    if not item.has_text() and not item.has_picture():
        return 'nothing was seen: give image, bag with stamp_ns, scene, or deltas'
    if item.bag and item.stamp_ns <= 0:
        return f'stamp_ns is {item.stamp_ns}: expected which image of the bag is meant'
    return ''


def _focus_problem(item: BenchItem) -> str:
    """What is wrong with what keyframes showed besides; empty: nothing."""
    if item.focus and not item.deltas:
        return 'it has focus without deltas: expected both, or what was seen as a scene'
    return next(filter(None, map(focus_problem, item.focus)), '')


def read_items(path: Path) -> list[BenchItem]:
    """Items of a file, their paths made absolute.

    Raises:
        InputError: It cannot be read, a line is no item, an id comes twice, or there are none.
    """
    items: dict[str, BenchItem] = {}
    for place, value in read_lines(path, {}):
        try:
            item = BenchItem.of(value)
        except InputError as error:
            msg = f'{place}: {error}'
            raise InputError(msg) from None
        if item.id in items:
            msg = f'{place}: id {item.id!r} comes twice'
            raise InputError(msg)
        items[item.id] = _at(item, lambda name: str((path.parent / name).absolute()))
    if not items:
        msg = f'{path} has no items'
        raise InputError(msg)
    return list(items.values())


def write_items(path: Path, items: Iterable[BenchItem]) -> int:
    """Write items, their paths relative to the file; returns how many.

    Raises:
        InputError: It cannot be written.
    """
    moved = (_at(item, lambda name: os.path.relpath(name, path.parent)) for item in items)
    lines = [item.to_json() for item in moved]
    write_whole(path, ''.join(line + '\n' for line in lines), makes_folder=True)
    return len(lines)


def _at(item: BenchItem, moved: Callable[[str], str]) -> BenchItem:
    """An item with its paths moved."""
    image, bag = (name and moved(name) for name in (item.image, item.bag))
    return replace(item, image=image, bag=bag)


_MAX_SIDE_PX = 1024  # larger pictures are shrunk
_JPEG_QUALITY = 90


def pictures_of(items: Sequence[BenchItem]) -> dict[str, EncodedImage]:
    """Pictures by id of their items; items without one are left out. Each bag is read once.

    Raises:
        InputError: A picture is missing or cannot be read; the message names the item.
    """
    pictures = {item.id: _from_file(item) for item in items if item.image}
    by_bag: dict[tuple[str, str], list[BenchItem]] = defaultdict(list)
    for item in items:
        if item.bag:
            by_bag[item.bag, item.topic].append(item)
    for (bag, topic), own in by_bag.items():
        pictures |= _from_bag(Path(bag), topic, own)
    return pictures


def _from_file(item: BenchItem) -> EncodedImage:
    try:
        data = Path(item.image).read_bytes()
    except OSError as error:
        msg = f'item {item.id!r}: image {item.image} cannot be read: {error.strerror}'
        raise InputError(msg) from None
    return _fit(EncodedImage(data, image_format(data) or ''), item)


def _from_bag(bag: Path, topic: str, items: Sequence[BenchItem]) -> dict[str, EncodedImage]:
    """Pictures of the items of one bag."""
    newest: dict[str, tuple[int, Any]] = {}  # by id: stamp and message
    with open_bag(bag) as reader:
        name = choose_image_topic(reader, topic or None)
        for stamp_ns, msg in read_values(reader, [name], _stamped):
            for item in items:
                before = newest.get(item.id)
                if stamp_ns <= item.stamp_ns and (before is None or before[0] <= stamp_ns):
                    newest[item.id] = stamp_ns, msg
    for item in items:
        if item.id not in newest:
            text = f'item {item.id!r}: bag {bag} has no image at {item.stamp_ns} or before'
            raise InputError(text)
    return {item.id: _converted(newest[item.id][1], item) for item in items}


def _stamped(msg: Any) -> tuple[int, Any]:
    return stamp_ns_from_msg(msg.header.stamp), msg


def _converted(msg: Any, item: BenchItem) -> EncodedImage:
    try:
        if hasattr(msg, 'format'):
            return _fit(encoded_image_from_msg(msg), item)
        return encode_image(raw_image(msg), _JPEG_QUALITY, _MAX_SIDE_PX)
    except ImageError as error:
        text = f'item {item.id!r}: its image cannot be decoded: {error}'
        raise InputError(text) from None


def _fit(image: EncodedImage, item: BenchItem) -> EncodedImage:
    """The picture as it is, or encoded anew where it is larger than need be."""
    try:
        view = image.decode()
        large = max(view.shape[:2]) > _MAX_SIDE_PX
        return encode_image(view, _JPEG_QUALITY, _MAX_SIDE_PX) if large else image
    except ImageError as error:
        msg = f'item {item.id!r}: its image cannot be decoded: {error}'
        raise InputError(msg) from None
