# SPDX-License-Identifier: Apache-2.0
"""The reply of a vision-language model: its JSON schema, its reading, the delta it becomes."""

from __future__ import annotations

from dataclasses import dataclass
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.common.untrusted import as_data, as_seen, parsed_json
from embodied_r_ros.core.perception.egomotion import known_motion
from embodied_r_ros.core.perception.fusion import fused_items
from embodied_r_ros.core.perception.perceiver import delta_of_pair
from embodied_r_ros.core.types.deltas import (
    action_text,
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    Motion,
    MotionSource,
    MotionStep,
    STATIONARY,
)
from embodied_r_ros.core.types.geometry import Intrinsics

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.core.perception.grounding import Grounding
    from embodied_r_ros.core.types.deltas import Box, ModelInfo, SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe

# Kind of motion -> (verb, direction) of `wording`; the ten of Embodied-R.
MOTIONS = {
    'move_forward': ('moved', 'forward'),
    'move_backward': ('moved', 'backward'),
    'move_left': ('moved', 'left'),
    'move_right': ('moved', 'right'),
    'move_up': ('moved', 'up'),
    'move_down': ('moved', 'down'),
    'rotate_left': ('turned', 'left'),
    'rotate_right': ('turned', 'right'),
    'tilt_up': ('tilted', 'up'),
    'tilt_down': ('tilted', 'down'),
}
NO_MOTION, MOTION_UNKNOWN = 'none', 'cannot_tell'
AMOUNTS = ('slight', 'moderate', 'large')
STATUSES = {
    'appeared': ItemStatus.APPEARED,
    'gone': ItemStatus.LEFT,
    'moved': ItemStatus.MOVED,
    'visible': ItemStatus.VISIBLE,
}
# Direction -> share of half the angle of view, positive left and up.
DIRECTIONS = {'left': 0.8, 'ahead_left': 0.4, 'ahead': 0.0, 'ahead_right': -0.4, 'right': -0.8}
HEIGHTS = {'above': 0.5, 'level': 0.0, 'below': -0.5}
CONFIDENCES = {'low': 0.3, 'medium': 0.6, 'high': 0.9}
_MAX_EDGE = 1e6  # of a box; also refuses what is not a number
_THOUGHT = re.compile(r'(?:\s*<think>.*?</think>)+', re.DOTALL)
_MAX_MOTIONS, _MAX_ITEMS, _MAX_TEXTS = 4, 12, 4
_LABEL_CHARS, _TEXT_CHARS, _SUMMARY_CHARS, _FOCUS_CHARS = 60, 60, 300, 500


class ReplyError(ModelError):
    """A reply is not of its schema."""


@dataclass(frozen=True)
class SeenMotion:
    """A motion of the camera, as judged by eye."""

    kind: str  # of MOTIONS, or NO_MOTION or MOTION_UNKNOWN alone
    amount: str = 'moderate'  # of AMOUNTS


@dataclass(frozen=True)
class ReplyItem:
    """An object in view, or gone from it."""

    label: str
    status: str  # of STATUSES
    direction: str  # of DIRECTIONS
    height: str  # of HEIGHTS
    confidence: str  # of CONFIDENCES
    # Left, top, right, bottom in the newest picture and in the one before, in the coordinates of
    # the model; None: not in that picture, or not asked for.
    box: Box | None = None
    earlier_box: Box | None = None


@dataclass(frozen=True)
class SceneReply:
    """A model's description of one view, or of two."""

    summary: str
    items: tuple[ReplyItem, ...]
    visible_text: tuple[str, ...] = ()
    motions: tuple[SeenMotion, ...] = ()  # empty: of one view


def scene_schema(*, two_views: bool, with_boxes: bool = False) -> dict[str, Any]:
    """JSON schema of the reply about one view, or about two, with or without boxes."""
    item = {
        'label': _string(_LABEL_CHARS),
        'status': _one_of(STATUSES),
        'direction': _one_of(DIRECTIONS),
        'height': _one_of(HEIGHTS),
        'confidence': _one_of(CONFIDENCES),
    }
    if with_boxes:
        # An empty one: the thing is not in that picture.
        item['box'] = _list({'type': 'number'}, 4)
        item |= {'earlier_box': item['box']} if two_views else {}
    motion = {'kind': _one_of([*MOTIONS, NO_MOTION, MOTION_UNKNOWN]), 'amount': _one_of(AMOUNTS)}
    fields = {'summary': _string(_SUMMARY_CHARS)}
    if two_views:
        fields['motions'] = _list(_object(motion), _MAX_MOTIONS, at_least=1)
    else:
        item.pop('status')
    fields['items'] = _list(_object(item), _MAX_ITEMS)
    fields['visible_text'] = _list(_string(_TEXT_CHARS), _MAX_TEXTS)
    return _object(fields)


def focus_schema() -> dict[str, Any]:
    """JSON schema of the reply about a question."""
    return _object({'visible': {'type': 'boolean'}, 'text': _string(_FOCUS_CHARS)})


def golden_schema(labels: Sequence[str]) -> dict[str, Any]:
    """JSON schema of the reply about where shapes are."""
    box = _list({'type': 'number'}, 4)
    return _object({'items': _list(_object({'label': _one_of(labels), 'box': box}), len(labels))})


def read_golden(text: str) -> dict[str, Box]:
    """Read where shapes are, by label, in the coordinates of the model; without boxes: empty.

    Raises:
        ReplyError: The reply is not of the schema.
    """
    entries = _field(_json_object(text), 'items', list)
    boxes = {_field(entry, 'label', str): _box(entry.get('box')) for entry in entries}
    return {label: box for label, box in boxes.items() if box}


def read_scene(text: str, *, two_views: bool) -> SceneReply:
    """Read a reply about one view, or about two.

    Strings and lists that are too long are cut, and what is no box counts as none; everything else
    must be as the schema says.

    Raises:
        ReplyError: The reply is not of the schema, or contradicts itself.
    """
    value = _json_object(text)
    items = [_item(entry, two_views) for entry in _field(value, 'items', list)[:_MAX_ITEMS]]
    motions = _motions(_field(value, 'motions', list)) if two_views else ()
    texts = [_bound(entry, _TEXT_CHARS) for entry in _field(value, 'visible_text', list)]
    summary = _bound(_field(value, 'summary', str), _SUMMARY_CHARS)
    return SceneReply(summary, tuple(items), tuple(filter(None, texts[:_MAX_TEXTS])), motions)


def read_focus(text: str) -> str:
    """Read a reply about a question; empty where nothing of it is in view.

    Raises:
        ReplyError: The reply is not of the schema.
    """
    value = _json_object(text)
    description = _bound(_field(value, 'text', str), _FOCUS_CHARS)
    return description if _field(value, 'visible', bool) else ''


def _json_object(text: str) -> dict[str, Any]:
    """The JSON object in a reply, which models like to wrap in a code fence, after thinking."""
    text = text[thinking.end() :] if (thinking := _THOUGHT.match(text)) else text
    value = _parse_braces(text)
    if value is None:
        # The chat template may have ended the prompt with the opening tag.
        value = _parse_braces(text.partition('</think>')[2])
    if value is None:
        msg = f'the reply holds no complete JSON object: {as_data(text[:80])!r}'
        raise ReplyError(msg)
    return value


def _parse_braces(text: str) -> dict[str, Any] | None:
    """The JSON object between the first and the last brace; None: there is none."""
    start, end = text.find('{'), text.rfind('}')
    value = parsed_json(text[start : end + 1], is_strict=False) if start >= 0 else None
    return value if isinstance(value, dict) else None


def _motions(entries: Sequence[Any]) -> tuple[SeenMotion, ...]:
    kinds = (*MOTIONS, NO_MOTION, MOTION_UNKNOWN)
    motions = {
        kind: SeenMotion(kind, _choice(entry, 'amount', AMOUNTS))
        for entry in entries
        for kind in [_choice(entry, 'kind', kinds)]
    }
    alone = motions.keys() & {NO_MOTION, MOTION_UNKNOWN}
    opposites = [pair for pair in _opposites() if motions.keys() >= pair]
    if not motions or opposites or (alone and len(motions) > 1):
        msg = f'motions {sorted(motions)} contradict each other, or none is given'
        raise ReplyError(msg)
    return tuple(motions.values())


def _opposites() -> list[set[str]]:
    kinds = list(MOTIONS)
    return [set(kinds[start : start + 2]) for start in range(0, len(kinds), 2)]


def _item(entry: Any, two_views: bool) -> ReplyItem:
    label = _bound(_field(entry, 'label', str), _LABEL_CHARS)
    if not label:
        msg = 'an item has an empty label'
        raise ReplyError(msg)
    return ReplyItem(
        label,
        _choice(entry, 'status', STATUSES) if two_views else 'visible',
        _choice(entry, 'direction', DIRECTIONS),
        _choice(entry, 'height', HEIGHTS),
        _choice(entry, 'confidence', CONFIDENCES),
        _box(entry.get('box')),
        _box(entry.get('earlier_box')) if two_views else None,
    )


def _box(value: Any) -> Box | None:
    """Four finite numbers; None: it is something else."""
    are_numbers = isinstance(value, list) and all(type(edge) in {int, float} for edge in value)
    if not are_numbers or len(value) != 4 or not all(abs(edge) < _MAX_EDGE for edge in value):
        return None
    left, top, right, bottom = (float(edge) for edge in value)
    return left, top, right, bottom


def _field(value: Any, name: str, kind: type) -> Any:
    field = value.get(name) if isinstance(value, dict) else None
    if not isinstance(field, kind):
        msg = f'{name} is {as_data(str(field)[:40])!r}: expected a {kind.__name__}'
        raise ReplyError(msg)
    return field


def _choice(entry: Any, name: str, choices: Mapping[str, Any] | Sequence[str]) -> str:
    choice: str = _field(entry, name, str)
    if choice not in choices:
        msg = f'{name} is {as_data(choice[:40])!r}: expected one of {", ".join(choices)}'
        raise ReplyError(msg)
    return choice


def _bound(text: Any, most: int) -> str:
    """One harmless line of at most `most` characters."""
    line = ' '.join(as_seen(str(text)).split())
    return line if len(line) <= most else line[: most - 1].rstrip() + '…'


def _object(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        'type': 'object',
        'properties': fields,
        'required': list(fields),
        'additionalProperties': False,
    }


def _list(items: dict[str, Any], at_most: int, at_least: int = 0) -> dict[str, Any]:
    return {'type': 'array', 'items': items, 'minItems': at_least, 'maxItems': at_most}


def _string(most: int) -> dict[str, Any]:
    return {'type': 'string', 'maxLength': most}


def _one_of(names: Mapping[str, Any] | Sequence[str]) -> dict[str, Any]:
    return {'type': 'string', 'enum': list(names)}


_AMOUNT_WORDS = {'slight': 'slightly', 'large': 'a lot'}
# Order of the grammar: moves before turns.
_ORDER = {kind: place for place, kind in enumerate(MOTIONS)}


@dataclass(frozen=True)
class Places:
    """What says where the things of a reply are."""

    assumed_hfov_rad: float  # horizontal angle of view where the keyframe has no intrinsics
    grounding: Grounding | None = None  # by boxes; None: directions are classes
    # Of a detector; where one and an item of the model mean one thing, they become one.
    others: Sequence[Item] = ()


def scene_delta(
    reply: SceneReply,
    earlier: Keyframe | None,
    later: Keyframe,
    model: ModelInfo,
    places: Places,
) -> SemanticDelta:
    """Build the delta of a pair of keyframes, or of a first one, from a model's reply.

    Args:
        reply: The model's reply.
        earlier: The earlier keyframe; None: there is none.
        later: The newer keyframe.
        model: The model.
        places: What says where things are, beside the words of the model.
    """
    motion = known_motion(earlier, later) if earlier else None
    by_eye = motion is None
    if motion is None:
        unknown = not reply.motions or reply.motions[0].kind == MOTION_UNKNOWN
        motion = Motion(MotionSource.UNKNOWN if unknown else MotionSource.MODEL)
    action = _action(motion, reply.motions) if earlier else ''
    half_angles = _half_angles(later, places.assumed_hfov_rad)
    items = tuple(_item_of_reply(item, half_angles) for item in reply.items)
    if places.grounding:
        items = tuple(
            places.grounding.place(item, entry.box, entry.earlier_box, motion)
            for item, entry in zip(items, reply.items, strict=True)
        )
    items = fused_items(items, places.others)
    return delta_of_pair(
        earlier,
        later,
        _kind(earlier, action, items),
        action=action,
        change=_change(reply, items, by_eye=by_eye),
        motion=motion,
        items=items,
        model=model,
    )


def _action(motion: Motion, by_eye: Sequence[SeenMotion]) -> str:
    if motion.source is not MotionSource.MODEL:
        return action_text(motion)
    return ', '.join(_step(step).text() for step in _steps(by_eye)) or STATIONARY


def _steps(motions: Sequence[SeenMotion]) -> list[SeenMotion]:
    return sorted(
        (motion for motion in motions if motion.kind in MOTIONS), key=lambda s: _ORDER[s.kind]
    )


def _step(motion: SeenMotion) -> MotionStep:
    verb, direction = MOTIONS[motion.kind]
    return MotionStep(verb, direction, None)


def _change(reply: SceneReply, items: Sequence[Item], *, by_eye: bool) -> str:
    """What is new, in sentences: the summary, the items, rough amounts, writing in view."""
    rough = [
        f'{_step(motion).text()} {_AMOUNT_WORDS[motion.amount]}'
        for motion in _steps(reply.motions)
        if by_eye and motion.amount in _AMOUNT_WORDS
    ]
    quoted = ['"{}"'.format(text.replace('"', "'")) for text in reply.visible_text]
    sentences = [
        reply.summary,
        change_text(items) if items else '',
        f'By eye: {", ".join(rough)}.' if rough else '',
        f'Writing in view: {", ".join(quoted)}.' if quoted else '',
    ]
    return ' '.join(sentence for sentence in sentences if sentence) or change_text(items)


def _kind(earlier: Keyframe | None, action: str, items: Sequence[Item]) -> DeltaKind:
    if earlier is None:
        return DeltaKind.FIRST
    same = all(item.status is ItemStatus.VISIBLE for item in items)
    return DeltaKind.NO_CHANGE if action == STATIONARY and same else DeltaKind.CHANGE


def _half_angles(keyframe: Keyframe, assumed_hfov_rad: float) -> tuple[float, float]:
    """Half the horizontal and half the vertical angle of view [rad]."""
    camera = keyframe.intrinsics or Intrinsics.from_fov(4, 3, assumed_hfov_rad)
    return math.atan2(camera.width / 2, camera.fx), math.atan2(camera.height / 2, camera.fy)


def _item_of_reply(reply_item: ReplyItem, half_angles: tuple[float, float]) -> Item:
    return Item(
        label=reply_item.label,
        status=STATUSES[reply_item.status],
        bearing_rad=DIRECTIONS[reply_item.direction] * half_angles[0],
        elevation_rad=HEIGHTS[reply_item.height] * half_angles[1],
        confidence=CONFIDENCES[reply_item.confidence],
    )
