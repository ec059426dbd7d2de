# SPDX-License-Identifier: Apache-2.0
"""Semantic deltas: what each keyframe adds, in words, and motions put together."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
import math
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import (
    as_position,
    rotation_from_ypr,
    vector_of_direction,
    yaw_pitch_roll,
)
from embodied_r_ros.core.types.vocabulary import is_unnamed
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.types.arrays import Float64s
    from embodied_r_ros.core.types.geometry import Pose

NAN = math.nan
Box = tuple[float, float, float, float]
SURE = 0.5  # confidence from which on a name is told as one
CANNOT_TELL = 'cannot tell'  # the action of a motion that is not known


class Rung(Enum):
    """Place of a model among its fallbacks; lower is better."""

    UNSET = 0
    PRIMARY = 1
    SECONDARY = 2
    LOCAL = 3
    REFUSE = 4


@dataclass(frozen=True)
class ModelInfo:
    """Which model spoke."""

    name: str = ''  # as its server names it, or 'classical'; empty: no model
    digest: str = ''  # 'sha256:<hex>'; empty: unknown
    adapter: str = ''  # LoRA adapter; empty: none
    rung: Rung = Rung.UNSET
    prompt_version: str = ''  # e.g. 'reason-1'; empty: no prompt


class DeltaKind(Enum):
    """What kind of statement a delta is."""

    FIRST = 0  # a description: nothing to compare with
    CHANGE = 1  # the camera moved or the scene changed
    NO_CHANGE = 2  # neither did
    FAILED = 3  # the perceiver could not tell


class MotionSource(Enum):
    """What a motion was computed from."""

    UNKNOWN = 0  # cannot tell
    ODOMETRY = 1  # two odometry poses; metric
    TWO_VIEW = 2  # two-view geometry; direction only
    MODEL = 3  # words of a vision-language model; no numbers
    FOLLOWED = 4  # followed through all images in between; metric where something gave scale


class ScaleSource(Enum):
    """What gave a motion or a distance its metres."""

    UNKNOWN = 0  # nothing did
    ODOMETRY = 1  # poses of the camera, from odometry or transforms
    DEPTH = 2  # a depth image
    FLOOR = 3  # the height of the camera above the floor
    IMU = 4  # accelerations
    MODEL = 5  # a vision-language model's guess
    SIZES = 6  # usual sizes of named things
    RELATIVE = 7  # nothing did, and lengths can be compared with one another


@dataclass(frozen=True)
class Motion:
    """Motion of the camera between two keyframes, in the earlier one's body axes (REP 103)."""

    source: MotionSource = MotionSource.UNKNOWN
    yaw_rad: float = NAN  # positive turns left
    pitch_rad: float = NAN  # positive tilts the view down
    roll_rad: float = NAN  # positive rolls clockwise, seen from behind the camera
    # [m]; else a direction, or, with the scale RELATIVE, in a unit that is that of the motion
    # before, where that is RELATIVE too.
    translation: tuple[float, float, float] = (NAN, NAN, NAN)
    is_metric: bool = False
    confidence: float = NAN  # share of the evidence that agrees, 0..1
    scale: ScaleSource = ScaleSource.UNKNOWN  # what gave the metres, where there are some
    way_m: float = NAN  # length of the way in between, which may wind

    @property
    def way(self) -> tuple[float, float, float]:
        """The translation [m], or where there are no metres its direction, of length 1 or 0."""
        length = 1.0 if self.is_metric else math.hypot(*self.translation) or 1.0
        return as_position(value / length for value in self.translation)


# Of a camera that stands, whatever its lens.
NO_MOTION = Motion(MotionSource.FOLLOWED, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), confidence=1.0)


class ItemStatus(Enum):
    """What happened to an item between two keyframes."""

    VISIBLE = 0
    APPEARED = 1
    LEFT = 2  # seen before, not now; its direction is the last one known
    MOVED = 3  # moved by itself


@dataclass(frozen=True)
class Item:
    """An object of a delta, as seen from the newer keyframe. NaN: unknown."""

    label: str  # what the perceiver can know, e.g. 'red tall object'
    status: ItemStatus = ItemStatus.VISIBLE
    bearing_rad: float = NAN  # positive left
    elevation_rad: float = NAN  # positive up
    size_rad: float = NAN  # the larger angle it covers
    distance_m: float = NAN  # to its middle
    confidence: float = NAN  # 0..1
    # Left, top, right, bottom in the newer keyframe, as shares of width and height, 0..1.
    box: Box | None = None
    scale: ScaleSource = ScaleSource.UNKNOWN  # what the distance rests on
    # Of what moved: left, right, away or nearer, as the camera sees it. Messages have it in words.
    moving: str = ''

    @property
    def is_doubtful(self) -> bool:
        """Whether its name is doubtful (`maybe chair`): nothing must rest on it alone."""
        return self.confidence < SURE and not is_unnamed(self.label)

    @property
    def position(self) -> tuple[float, float, float] | None:
        """The middle in the axes of the camera link [m]; None: distance or direction unknown."""
        if not all(map(math.isfinite, (self.bearing_rad, self.elevation_rad, self.distance_m))):
            return None
        return as_position(
            self.distance_m * vector_of_direction(self.bearing_rad, self.elevation_rad)
        )

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values; unknown numbers are left out, known ones rounded to 0.0001."""
        names = ('bearing_rad', 'elevation_rad', 'size_rad', 'distance_m', 'confidence')
        numbers = _figures(self, names)
        # As precise as the message: shares such as 1/160 round to either side otherwise.
        edges = [round(float(np.float32(edge)), 4) for edge in self.box or ()]
        box = {'box': edges} if edges else {}
        scale = {'scale': self.scale.name} if self.scale is not ScaleSource.UNKNOWN else {}
        moving = {'moving': self.moving} if self.moving else {}
        named = {'label': self.label, 'status': self.status.name}
        return {**named, **numbers, **box, **scale, **moving}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> Item:
        """Read what `to_json` wrote; null is unknown.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        try:
            known = {key: each for key, each in value.items() if each is not None}
            fields = {
                **known,
                'status': ItemStatus[known.get('status', 'VISIBLE')],
                'scale': ScaleSource[known.get('scale', 'UNKNOWN')],
            }
            if 'box' in fields:
                left, top, right, bottom = (float(edge) for edge in fields['box'])
                fields['box'] = (left, top, right, bottom)
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            msg = f'item {value!r} is not readable ({error}): expected label, status and numbers'
            raise InputError(msg) from None


@dataclass(frozen=True)
class SemanticDelta:
    """What one keyframe adds. Two equal ids: the first keyframe."""

    stamp_ns: int  # of the newer keyframe's image
    kind: DeltaKind
    to_id: int = 0
    from_id: int = 0
    from_stamp_ns: int = 0
    action: str = ''  # motion in words
    change: str = ''  # what is new, gone or moved, in words
    motion: Motion = field(default_factory=Motion)
    items: tuple[Item, ...] = ()
    camera: str = 'camera'
    frame_id: str = 'camera_optical_frame'
    episode_id: str = ''
    skipped: int = 0  # keyframes coalesced away in between
    model: ModelInfo = field(default_factory=ModelInfo)
    latency_ns: int = 0
    error: str = ''  # why it failed
    pose: Pose | None = None  # of the camera link at the newer keyframe
    # Stamp of the newest image that shows the same, live; 0: none. It is not recorded.
    seen_ns: int = 0

    @property
    def told_action(self) -> str:
        """The action as it is told: of a failed delta the motion 'cannot tell'."""
        return CANNOT_TELL if self.kind is DeltaKind.FAILED else self.action

    def to_row(self, *, with_camera: bool = False) -> dict[str, Any]:
        """The part that the reasoner reads, as plain JSON values (the `deltas` of a row).

        A failed delta keeps its place, with a motion that cannot be told and nothing seen. The
        camera is told where there are several to tell apart (`row_deltas`).
        """
        return {
            'stamp_ns': self.stamp_ns,
            **({'camera': self.camera} if with_camera else {}),
            'action': self.told_action,
            'change': self.change,
            'items': [item.to_json() for item in self.items],
        }

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values of all of it; numbers that are not known are left out.

        Places are x forward, y left, z up of the camera [m].
        """
        return {
            'from_id': self.from_id,
            'to_id': self.to_id,
            'stamp_ns': self.stamp_ns,
            'kind': self.kind.name,
            'action': self.action,
            'change': self.change,
            'items': [_with_position(item) for item in self.items],
            'motion': _motion_to_json(self.motion),
            'skipped': self.skipped,
            'error': self.error,
            'model': {
                'name': self.model.name,
                'digest': self.model.digest,
                'rung': self.model.rung.name,
            },
        }

    @classmethod
    def from_row(cls, value: dict[str, Any]) -> SemanticDelta:
        """Read what `to_row` wrote; a delta without action is a first one.

        Raises:
            InputError: A field is missing or has the wrong type.
        """
        try:
            items = tuple(Item.from_json(item) for item in value['items'])
            action, change = str(value['action']), str(value['change'])
            kind = DeltaKind.CHANGE if action else DeltaKind.FIRST
            camera = str(value.get('camera', 'camera'))
            stamp_ns = int(value['stamp_ns'])
            return cls(stamp_ns, kind, action=action, change=change, items=items, camera=camera)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            msg = f'delta {value!r} is unreadable: {error} (wants stamp_ns, action, change, items)'
            raise InputError(msg) from None


def _with_position(item: Item) -> dict[str, Any]:
    place = item.position
    position = {'position': [round(value, 3) for value in place]} if place else {}
    return {**item.to_json(), **position}


def _motion_to_json(motion: Motion) -> dict[str, Any]:
    figures = _figures(motion, ('yaw_rad', 'pitch_rad', 'roll_rad', 'confidence', 'way_m'))
    if all(math.isfinite(value) for value in motion.translation):
        figures['translation'] = [round(value, 4) for value in motion.translation]
    return {'source': motion.source.name, 'is_metric': motion.is_metric, **figures}


def _figures(value: Item | Motion, names: Sequence[str]) -> dict[str, Any]:
    """The fields of some names that are known, rounded to 0.0001."""
    numbers = {name: getattr(value, name) for name in names}
    return {name: round(number, 4) for name, number in numbers.items() if math.isfinite(number)}


def row_deltas(deltas: Sequence[SemanticDelta]) -> tuple[dict[str, Any], ...]:
    """The `deltas` of a row. Cameras are named where there are several, as in a prompt."""
    several = len({delta.camera for delta in deltas}) > 1
    return tuple(delta.to_row(with_camera=several) for delta in deltas)


STATIONARY = 'stationary'
NOTHING_SEEN = 'No object stands out.'
ANGLE_STEP_DEG = 5  # text gives angles in steps of this
_MIN_MOVE_M = 0.05  # shorter metric moves are not worth a word
_MIN_SHARE = 0.4  # share of a unit direction that an axis needs to be named
# Of each axis the words for positive and negative (REP 103), and of turns about z, y, x the verb.
_MOVES = (('forward', 'backward'), ('left', 'right'), ('up', 'down'))
_TURNS = (
    ('turned', 'left', 'right'),
    ('tilted', 'down', 'up'),
    ('rolled', 'clockwise', 'anticlockwise'),
)
_HEADINGS = {
    ItemStatus.APPEARED: 'New',
    ItemStatus.VISIBLE: 'In view',
    ItemStatus.MOVED: 'Moved',
    ItemStatus.LEFT: 'Gone',
}
_STEP = re.compile(
    r'(?P<verb>moved|turned|tilted|rolled) '
    r'(?P<direction>forward|backward|left|right|up|down|clockwise|anticlockwise)'
    r'(?: (?P<amount>\d+(?:\.\d+)?) ?(?P<unit>m|°))?$'
)


@dataclass(frozen=True)
class MotionStep:
    """One part of an action: 'turned left 30°'."""

    verb: str  # moved, turned, tilted, rolled
    direction: str
    amount: float | None  # [m] or [degrees]; None: not known

    def text(self) -> str:
        """The step in words."""
        if self.amount is None:
            return f'{self.verb} {self.direction}'
        amount = f'{self.amount:.1f} m' if self.verb == 'moved' else f'{self.amount:.0f}°'
        return f'{self.verb} {self.direction} {amount}'


def rounded_degrees(angle_rad: float) -> int:
    """The angle in degrees, in steps of ANGLE_STEP_DEG."""
    return _stepped(math.degrees(angle_rad))


def _stepped(degrees: float) -> int:
    return ANGLE_STEP_DEG * round(degrees / ANGLE_STEP_DEG)


def motion_steps(motion: Motion) -> list[MotionStep]:
    """Split a motion into steps, moves first; empty: stationary or unknown."""
    angles = motion.yaw_rad, motion.pitch_rad, motion.roll_rad
    least = _MIN_MOVE_M if motion.is_metric else _MIN_SHARE
    steps = _steps(motion.way, map(math.degrees, angles), least)
    if motion.is_metric:
        return steps
    return [replace(each, amount=None) if each.verb == 'moved' else each for each in steps]


def _steps(moves: Iterable[float], turns: Iterable[float], least: float) -> list[MotionStep]:
    """The steps of moves along each axis, from a length on, and of turns [degrees]."""
    steps = []
    for value, (positive, negative) in zip(moves, _MOVES, strict=True):
        if least <= abs(value) < math.inf:
            direction = positive if value > 0 else negative
            steps.append(MotionStep('moved', direction, round(abs(value), 1)))
    for value, (verb, positive, negative) in zip(turns, _TURNS, strict=True):
        degrees = _stepped(value) if math.isfinite(value) else 0
        if degrees:
            steps.append(MotionStep(verb, positive if degrees > 0 else negative, abs(degrees)))
    return steps


def action_text(motion: Motion) -> str:
    """Motion in words; 'stationary' for none and 'cannot tell' for an unknown one."""
    if motion.source is MotionSource.UNKNOWN:
        return CANNOT_TELL
    return ', '.join(step.text() for step in motion_steps(motion)) or STATIONARY


def parse_action(action: str) -> list[MotionStep] | None:
    """Read an action back into its steps; None where it is not of this grammar or unknown."""
    if action == STATIONARY:
        return []
    matches = [_STEP.match(part.strip()) for part in action.split(',')]
    if not all(matches):
        return None
    return [
        MotionStep(m['verb'], m['direction'], float(m['amount']) if m['amount'] else None)
        for m in matches
        if m
    ]


def direction_text(bearing_rad: float, elevation_rad: float) -> str:
    """A viewing direction in words: '30° left 10° down', 'ahead'; empty where unknown."""
    if not math.isfinite(bearing_rad):
        return ''
    side = rounded_degrees(bearing_rad)
    words = [f'{abs(side)}° {"left" if side > 0 else "right"}' if side else 'ahead']
    height = rounded_degrees(elevation_rad) if math.isfinite(elevation_rad) else 0
    if height:
        words.append(f'{abs(height)}° {"up" if height > 0 else "down"}')
    return ' '.join(words)


def item_text(item: Item) -> str:
    """An item in words: label, direction, then distance, or apparent size where that is all.

    "Maybe" is before the label of what is doubtful.

    "Wide" is the larger of the angles covered across and up, as `Item.size_rad` is: neither
    messages nor rows carry a width, and models were trained on this word.
    """
    label = f'maybe {item.label}' if item.is_doubtful else item.label
    words = [label, direction_text(item.bearing_rad, item.elevation_rad)]
    if math.isfinite(item.distance_m):
        words.append(f'{item.distance_m:.1f} m')
    elif math.isfinite(item.size_rad):
        words.append(f'({max(1, round(math.degrees(item.size_rad)))}° wide)')
    text = ' '.join(word for word in words if word)
    return f'{text}, moving {item.moving}' if item.moving else text


def with_ways(items: Iterable[Item], change: str) -> tuple[Item, ...]:
    """Items of a message, with where they move as its words say."""
    told = set(re.split(r'[:;.] ', f'{change} '))
    ways = ('left', 'right', 'away', 'nearer')
    return tuple(
        next((m for way in ways if item_text(m := replace(item, moving=way)) in told), item)
        if item.status is ItemStatus.MOVED
        else item
        for item in items
    )


def change_text(items: Iterable[Item]) -> str:
    """What is new, in view, moved or gone, in words. An item that is gone has no direction."""
    groups: dict[str, list[str]] = {heading: [] for heading in _HEADINGS.values()}
    for item in items:
        text = item.label if item.status is ItemStatus.LEFT else item_text(item)
        groups[_HEADINGS[item.status]].append(text)
    sentences = [f'{heading}: {"; ".join(texts)}.' for heading, texts in groups.items() if texts]
    return ' '.join(sentences) or NOTHING_SEEN


# Unit vector (forward, left, up) of each direction of a move, and sign of each turn.
_AXES = {
    word: sign * axis
    for axis, words in zip(np.eye(3), _MOVES, strict=True)
    for word, sign in zip(words, (1, -1), strict=True)
}
_SIGNS = {word: sign for _, *words in _TURNS for word, sign in zip(words, (1, -1), strict=True)}


@dataclass(frozen=True)
class NetMotion:
    """What a row of actions amounts to, in the axes of its start (x forward, y left, z up)."""

    x_m: float = 0.0
    y_m: float = 0.0
    z_m: float = 0.0
    turn_deg: float = 0.0  # positive left, not wrapped
    tilt_deg: float = 0.0  # positive down
    roll_deg: float = 0.0  # positive clockwise
    unmeasured: tuple[str, ...] = ()  # moves and turns whose amount is not stated, in words
    unknown: int = 0  # actions that are unknown, or are not of the grammar


def step_rotation_and_move(steps: Iterable[MotionStep]) -> tuple[Float64s | None, Float64s | None]:
    """Rotation (3, 3) and move (3,) [m] of the steps of an action; None: one has no amount."""
    move, turns = np.zeros(3), dict.fromkeys(('turned', 'tilted', 'rolled'), 0.0)
    unmeasured: set[str] = set()
    for step in steps:
        if step.amount is None:
            unmeasured.add(step.verb)
        elif step.verb == 'moved':
            move += step.amount * _AXES[step.direction]
        else:
            turns[step.verb] += _SIGNS[step.direction] * step.amount
    rotation = rotation_from_ypr(*map(math.radians, turns.values()))
    return (
        None if unmeasured & turns.keys() else rotation,
        None if 'moved' in unmeasured else move,
    )


def net_motion(actions: Iterable[str]) -> NetMotion:
    """Put actions together. Each one moves first and turns then, as `wording` writes them.

    A camera that looks down moves up in its own axes where it goes ahead, so that all three turns
    count for where the next move leads.
    """
    position, rotation, turned_deg = np.zeros(3), np.eye(3), 0.0
    unmeasured: dict[str, None] = {}
    unknown = 0
    for action in actions:
        steps = parse_action(action)
        if steps is None:
            unknown += 1
            continue
        unmeasured |= dict.fromkeys(step.text() for step in steps if step.amount is None)
        measured = [step for step in steps if step.amount is not None]
        turns, move = step_rotation_and_move(measured)
        if turns is not None and move is not None:  # as those that are measured are
            position += rotation @ move
            rotation = rotation @ turns
        turned_deg += sum(
            _SIGNS[step.direction] * (step.amount or 0.0)
            for step in measured
            if step.verb == 'turned'
        )
    turn, tilt, roll = map(math.degrees, yaw_pitch_roll(rotation))
    turn += 360 * round((turned_deg - turn) / 360)
    return NetMotion(*as_position(position), turn, tilt, roll, tuple(unmeasured), unknown)


def compose_actions(actions: Iterable[str]) -> str:
    """The one action that several amount to, in words; empty for none."""
    actions = list(actions)
    if not actions:
        return ''
    net = net_motion(actions)
    if net.unknown == len(actions):
        return CANNOT_TELL
    turns = net.turn_deg, net.tilt_deg, net.roll_deg
    words = [each.text() for each in _steps((net.x_m, net.y_m, net.z_m), turns, _MIN_MOVE_M)]
    text = ', '.join([*words, *net.unmeasured]) or STATIONARY
    return f'{text}, partly {CANNOT_TELL}' if net.unknown else text
