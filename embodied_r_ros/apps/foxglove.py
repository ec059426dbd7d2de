# SPDX-License-Identifier: Apache-2.0
"""What was seen and said in a recording, as messages that Foxglove draws by itself.

One MCAP file of JSON: the pictures of keyframes, the boxes and names of their items, and a line
for each question with its answer. Opened with the recording, it lies over it: stamps are the same.
Schemas: https://docs.foxglove.dev/docs/sdk/schemas
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any, BinaryIO, TYPE_CHECKING

from embodied_r_ros.apps.review.film import jpeg_of_keyframe, read_keyframe
from embodied_r_ros.bags.format import LIBRARY
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.episodes.contents import keyframe_topics
from embodied_r_ros.data.episodes.episode import read_as_recorded
from embodied_r_ros.data.questions.proofs import recorded_questions
from mcap.writer import Writer
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.questions.proofs import RecordedQuestion

_JSON, _JSON_SCHEMA = 'json', 'jsonschema'
_INFO, _WARNING = 2, 3  # levels of foxglove.Log
_LINE_LOOP = 2
_TEXT_PX = 14
_TIME = {
    'type': 'object',
    'title': 'time',
    'properties': {'sec': {'type': 'integer'}, 'nsec': {'type': 'integer'}},
}
_TEXT, _LIST = {'type': 'string'}, {'type': 'array', 'items': {'type': 'object'}}
_WHOLE = {'type': 'integer'}
# What Foxglove must know of a message to read it: which texts are bytes, which values are times.
_SCHEMAS: dict[str, dict[str, Any]] = {
    'CompressedImage': {
        'timestamp': _TIME,
        'frame_id': _TEXT,
        'data': {**_TEXT, 'contentEncoding': 'base64'},
        'format': _TEXT,
    },
    'ImageAnnotations': {'circles': _LIST, 'points': _LIST, 'texts': _LIST},
    'Log': {
        'timestamp': _TIME,
        'level': _WHOLE,
        'message': _TEXT,
        'name': _TEXT,
        'file': _TEXT,
        'line': _WHOLE,
    },
}
_CLEAR = {'r': 0.0, 'g': 0.0, 'b': 0.0, 'a': 0.0}
_WHITE = {'r': 1.0, 'g': 1.0, 'b': 1.0, 'a': 1.0}
_SHADE = {'r': 0.0, 'g': 0.0, 'b': 0.0, 'a': 0.6}
_COLOURS = {  # of an item, by its status
    'APPEARED': {'r': 0.1, 'g': 0.8, 'b': 0.3, 'a': 1.0},
    'MOVED': {'r': 1.0, 'g': 0.6, 'b': 0.0, 'a': 1.0},
    'VISIBLE': {'r': 0.2, 'g': 0.6, 'b': 1.0, 'a': 1.0},
}


class FoxgloveFile:
    """An MCAP file of messages of Foxglove, each topic of one of its schemas."""

    def __init__(self, file: BinaryIO) -> None:
        """Begin a file that is open for writing."""
        self._channels: dict[str, int] = {}
        self._schemas: dict[str, int] = {}
        self._writer = Writer(file)
        self._writer.start(library=LIBRARY)

    def end(self) -> None:
        """Complete the file."""
        self._writer.finish()

    def write(self, topic: str, schema: str, stamp_ns: int, message: Mapping[str, Any]) -> None:
        """Write a message of one of the schemas, logged at its stamp."""
        if schema not in self._schemas:
            text = json.dumps(
                {
                    'title': f'foxglove.{schema}',
                    'type': 'object',
                    'properties': _SCHEMAS[schema],
                    'required': list(_SCHEMAS[schema]),
                }
            )
            self._schemas[schema] = self._writer.register_schema(
                f'foxglove.{schema}', _JSON_SCHEMA, text.encode()
            )
        if topic not in self._channels:
            self._channels[topic] = self._writer.register_channel(
                topic, _JSON, self._schemas[schema]
            )
        data = json.dumps(message, ensure_ascii=False, allow_nan=False).encode()
        self._writer.add_message(self._channels[topic], stamp_ns, data, stamp_ns)


def export_foxglove(bag: Path, path: Path) -> tuple[int, int]:
    """Write what was seen and said in a recording, for Foxglove.

    Args:
        bag: The recording.
        path: The MCAP file.

    Returns:
        How many keyframes and how many questions are in it.

    Raises:
        BagError: The recording cannot be read.
        InputError: There is nothing to write.
        OSError: The disk does not take it.
    """
    episode = read_as_recorded(bag)
    questions = recorded_questions(episode) if episode else []
    deltas = {(d.camera, d.stamp_ns): d for d in episode.deltas} if episode else {}
    with path.open('wb') as out:
        file = FoxgloveFile(out)
        shown = _write_keyframes(bag, file, deltas)
        for question in sorted(questions, key=lambda one: one.stamp_ns):
            message = _log(question)
            file.write('/embodied_r/answers', 'Log', question.stamp_ns, message)
        if not shown and not questions:
            msg = f'{bag} has neither keyframes with pictures nor questions'
            raise InputError(msg)
        file.end()
    return shown, len(questions)


def _write_keyframes(
    bag: Path, file: FoxgloveFile, deltas: Mapping[tuple[str, int], SemanticDelta]
) -> int:
    """Write keyframes with what they show; returns how many there are."""
    count = 0
    with open_bag(bag) as reader:
        for _, _, msg in read_messages(reader, keyframe_topics(reader)):
            keyframe = read_keyframe(msg)
            picture = jpeg_of_keyframe(keyframe) if keyframe and keyframe.image.data else b''
            if not keyframe or not picture:
                continue
            at, count = keyframe.stamp_ns, count + 1
            topic = f'/embodied_r/{keyframe.camera.strip("/") or "camera"}/keyframe'
            image = {
                'timestamp': _time(at),
                'frame_id': keyframe.frame_id,
                'data': base64.b64encode(picture).decode(),
                'format': 'jpeg',
            }
            file.write(f'{topic}/image', 'CompressedImage', at, image)
            if delta := deltas.get((keyframe.camera, at)):
                notes = _annotations(keyframe, delta)
                file.write(f'{topic}/annotations', 'ImageAnnotations', at, notes)
    return count


def _annotations(keyframe: Keyframe, delta: SemanticDelta) -> dict[str, Any]:
    """Boxes and names of items, and how the camera came here."""
    pixels = keyframe.image.decode()
    size = float(pixels.shape[1]), float(pixels.shape[0])
    at = _time(keyframe.stamp_ns)
    boxed = [item for item in delta.items if item.box]
    words = [delta.action] if delta.action else []
    words += [_name(item) for item in delta.items if not item.box]
    texts = [_text_note(at, (4.0, (2 + i) * 1.4 * _TEXT_PX), text) for i, text in enumerate(words)]
    for item in boxed:
        left, top, *_ = _corners(item, size)[0].values()
        texts.append(_text_note(at, (left, max(top, _TEXT_PX)), _name(item)))
    loops = [
        {
            'timestamp': at,
            'type': _LINE_LOOP,
            'points': _corners(item, size),
            'outline_color': _COLOURS.get(item.status.name, _WHITE),
            'outline_colors': [],
            'fill_color': _CLEAR,
            'thickness': 2.0,
            'metadata': [{'key': 'label', 'value': item.label}],
        }
        for item in boxed
    ]
    return {'circles': [], 'points': loops, 'texts': texts}


def _corners(item: Item, size: tuple[float, float]) -> list[dict[str, float]]:
    """The corners of an item's box in pixels, from the left top one on."""
    left, top, right, bottom = np.multiply(item.box or (0, 0, 0, 0), (*size, *size)).tolist()
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    return [{'x': x, 'y': y} for x, y in corners]


def _text_note(at: dict[str, int], place: tuple[float, float], text: str) -> dict[str, Any]:
    return {
        'timestamp': at,
        'position': {'x': place[0], 'y': place[1]},
        'text': text,
        'font_size': float(_TEXT_PX),
        'text_color': _WHITE,
        'background_color': _SHADE,
        'metadata': [],
    }


def _name(item: Item) -> str:
    distance = f', {item.distance_m:.1f} m' if math.isfinite(item.distance_m) else ''
    return f'{item.label} ({item.status.name.lower()}{distance})'


def _log(question: RecordedQuestion) -> dict[str, Any]:
    """A question and its answer as a line; a warning where the robot said something else."""
    options = f' ({" | ".join(question.options)})' if question.options else ''
    is_other = bool(question.answered) and question.answered != question.answer
    said = f'; the robot said {question.answered}' if is_other else ''
    think = f'\n{question.think}' if question.think else ''
    return {
        'timestamp': _time(question.stamp_ns),
        'level': _WARNING if is_other else _INFO,
        'message': f'{question.question}{options}: {question.answer} '
        f'[{question.source}]{said}{think}',
        'name': question.model or 'label',
        'file': question.id,
        'line': 0,
    }


def _time(stamp_ns: int) -> dict[str, int]:
    sec, nsec = divmod(stamp_ns, NS_PER_S)
    return {'sec': sec, 'nsec': nsec}
