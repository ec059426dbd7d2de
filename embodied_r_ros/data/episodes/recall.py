# SPDX-License-Identifier: Apache-2.0
"""Recall over recordings: where something was seen, when, near what, and by which keyframes.

No model is asked. What was perceived counts: items of deltas, and for what is near them the places
of the recording's scene. Recordings are read one at a time, and a few hits are kept of each:
memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache, cached_property
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.scene.names import find_names, Name, resolve
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    direction_text,
    Item,
    ItemStatus,
)
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.landmarks import SceneMap
from embodied_r_ros.core.types.things import named_things, with_article
from embodied_r_ros.core.types.vocabulary import COCO
from embodied_r_ros.data.episodes.episode import Episode, read_as_recorded
from embodied_r_ros.data.episodes.offline import map_of_episode
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.geometry import Pose, Position

NEAR_M = 1.5  # between things that count as near each other
_NEAR_RAD = math.radians(15.0)  # likewise where no distance is known
_LAST_WORDS = frozenset(('last', 'latest', 'where'))
_BETWEEN = re.compile(r'\b(?:near|by|beside|next to|close to|on|at|in|under|with)\b')
_MOST_THINGS = 4


class Order(Enum):
    """Which sight is asked for."""

    BEST = 'best'
    FIRST = 'first'
    LAST = 'last'


@dataclass(frozen=True)
class RecallQuery:
    """What is looked for in recordings."""

    text: str
    things: tuple[Name, ...]
    near: tuple[Name, ...] = ()  # each thing is near all of these
    order: Order = Order.BEST

    def in_words(self) -> str:
        """What is looked for: 'a chair near a table', 'a person and a dog'."""
        things, near = ([with_article(n.in_words) for n in ns] for ns in (self.things, self.near))
        parts = [' and '.join(things), *near]
        return as_data(' near '.join(parts))


def named_query(
    things: Sequence[str], near: Sequence[str] = (), order: Order = Order.BEST
) -> RecallQuery:
    """Look for all of some things, near all of others; names are as labels or people have them."""
    text = ' near '.join([' and '.join(things), *near])
    return RecallQuery(text, _exactly(things), _exactly(near), order=order)


def _exactly(names: Sequence[str]) -> tuple[Name, ...]:
    # A name that no vocabulary has is a label itself.
    texts = [' '.join(name.lower().split()) for name in names]
    return tuple(resolve(text, [text]) for text in texts if text)


def read_query(question: str) -> RecallQuery:
    """What a question looks for: the things that it names, the second near the first.

    A name in double quotes is taken as it is given.

    Raises:
        InputError: It names no thing that is known.
    """
    text = ' '.join(question.lower().split())
    text = f'somebody{text[3:]}' if text.startswith('who ') else text
    exact = _exactly(re.findall(r'"([^"]+)"', text))
    found = [name for name in find_names(text, _labels()) if not _is_no_name(name, text)]
    names = [*exact, *(() if exact else found)][:_MOST_THINGS]
    if not names:
        msg = f'{question!r} names nothing that is known: write a name of its own in quotes'
        raise InputError(msg)
    words = set(re.findall(r"[a-z']+", text))
    order = Order.LAST if _LAST_WORDS & words else Order.BEST
    is_near = len(found) == len(names) == 2 and _BETWEEN.search(
        text[names[0].end : names[1].start]
    )
    return RecallQuery(
        question,
        tuple(names[:1] if is_near else names),
        tuple(names[1:] if is_near else ()),
        Order.FIRST if 'first' in words else order,
    )


@cache
def _labels() -> tuple[str, ...]:
    # Not who was asked.
    return tuple(sorted({*named_things(), *COCO} - {'camera', 'drone', 'robot'}))


def _is_no_name(name: Name, text: str) -> bool:
    """Tell whether a word names no thing here: "which bags", and what only resembles a name."""
    before = ''.join(text[: name.start].split()[-1:])
    if name.text == 'bags':
        return before in {'which', 'what', 'many', 'all', 'the'}
    is_error = before in {'a', 'an', 'the', 'any', 'some', 'no'} and ' ' not in name.kind
    return name.is_guess and not is_error


@dataclass(frozen=True)
class RecallHit:
    """A moment of a recording that shows what is looked for."""

    camera: str
    keyframe_id: int
    stamp_ns: int
    offset_s: float  # from the first keyframe
    label: str  # as perceived
    direction: str = ''  # in words, from the camera
    distance_m: float | None = None
    box: tuple[float, float, float, float] | None = None  # shares of the view
    position: Position | None = None  # in `frame_id` [m]
    frame_id: str = ''
    confidence: float | None = None  # of the perceiver, 0..1; None: it did not say
    prominence: float = 0.0  # how well the keyframe shows it, 0..1


@dataclass(frozen=True)
class RecordingRecall:
    """What recall found in one recording."""

    name: str
    hits: tuple[RecallHit, ...] = ()  # the chosen ones, in the order of time
    count: int = 0  # keyframes with a hit
    first_ns: int = 0
    last_ns: int = 0
    keyframes: int = 0  # that were perceived
    failed: int = 0  # that could not be
    scene_id: str = ''
    problem: str = ''  # why nothing could be looked for


@dataclass(frozen=True)
class RecallResult:
    """What recall found in many recordings."""

    query: RecallQuery
    recordings: tuple[RecordingRecall, ...]  # that answer the question
    searched: int  # recordings that could be
    problems: tuple[RecordingRecall, ...]  # those that could not

    @property
    def newest(self) -> RecordingRecall | None:
        """The recording with the last sight; None: none has one."""
        return max(self.recordings, key=lambda one: one.last_ns, default=None)


def recall(
    query: RecallQuery, bags: Iterable[Path], most_hits: int = 3, read: Reader | None = None
) -> RecallResult:
    """Look for something in recordings.

    Args:
        query: What is looked for.
        bags: The recordings.
        most_hits: Hits that are kept of each.
        read: Reads a recording; None: from its file.
    """
    kept, problems, searched = [], [], 0
    for bag in bags:
        one = recall_in(query, bag, most_hits, read)
        if one.problem:
            problems.append(one)
            continue
        searched += 1
        if one.count:
            kept.append(one)
    if query.order is Order.LAST:
        kept.sort(key=lambda one: -one.last_ns)
    elif query.order is Order.FIRST:
        kept.sort(key=lambda one: one.first_ns)
    return RecallResult(query, tuple(kept), searched, tuple(problems))


# Reads what was recorded of an episode; None: nothing was perceived.
Reader = Callable[['Path'], 'Episode | None']


def recall_in(
    query: RecallQuery, bag: Path, most_hits: int = 3, read: Reader | None = None
) -> RecordingRecall:
    """Look for something in one recording; a damaged one says so in `problem`."""
    name = recording_name(bag)
    episode, problem = read_safely(bag, read)
    if episode is None:
        return RecordingRecall(name, problem=problem)
    failed = sum(delta.kind is DeltaKind.FAILED for delta in episode.deltas)
    perceived = len(episode.deltas) - failed
    if not perceived:
        why = f'none of its {failed} keyframes could be perceived'
        return RecordingRecall(name, problem=why)
    search = _Search(query, episode)
    by_moment = {(hit.camera, hit.stamp_ns): hit for hit in reversed(search.hits())}
    hits = sorted(by_moment.values(), key=lambda hit: hit.stamp_ns)
    return RecordingRecall(
        name,
        tuple(_chosen(hits, query.order, most_hits)),
        len(hits),
        hits[0].stamp_ns if hits else 0,
        hits[-1].stamp_ns if hits else 0,
        perceived,
        failed,
        episode.scene_id,
    )


def recording_name(bag: Path) -> str:
    """What a recording is called: '.' has no name of its own."""
    return bag.name or bag.resolve().name


def read_safely(bag: Path, read: Reader | None = None) -> tuple[Episode | None, str]:
    """An episode, or why there is none: a damaged recording must not end the others."""
    try:
        episode = (read or read_as_recorded)(bag)
    except (EmbodiedRError, OSError, ValueError, ArithmeticError, LookupError) as error:
        return None, as_data(' '.join(str(error).split()))
    why = 'it was not perceived: `embodied-r collect` makes an episode of it'
    return episode, '' if episode else why


def _chosen(hits: Sequence[RecallHit], order: Order, most: int) -> list[RecallHit]:
    """The first or last hits, or those that show it best; in the order of time."""
    if order is Order.FIRST:
        return list(hits[:most])
    if order is Order.LAST:
        return list(hits[-most:])
    best = sorted(hits, key=lambda hit: -hit.prominence)
    return sorted(best[:most], key=lambda hit: hit.stamp_ns)


@dataclass(frozen=True)
class _Spot:
    """An item of a keyframe, and where it is."""

    item: Item
    position: Position | None  # in the frame of the poses [m]


class _Search:
    """One recording that is searched."""

    def __init__(self, query: RecallQuery, episode: Episode) -> None:
        self._query, self._episode = query, episode
        self._deltas = episode.posed_deltas
        self._begin_ns = min(delta.stamp_ns for delta in episode.deltas)

    def hits(self) -> list[RecallHit]:
        """All moments that show what is looked for; none where one of the things is nowhere."""
        each = [list(self._of(thing)) for thing in self._query.things]
        return [hit for hits in each for hit in hits] if all(each) else []

    def _of(self, thing: Name) -> Iterator[RecallHit]:
        """Moments that show a thing, near all that it is to be near."""
        for number, spots in enumerate(self._spots):
            fitting = [spot for spot in spots if thing.fits(spot.item.label)]
            for spot in sorted(fitting, key=lambda spot: -_prominence(spot.item)):
                if all(self._is_near(number, spot, other) for other in self._query.near):
                    yield self._hit(number, spot)
                    break

    def _hit(self, number: int, spot: _Spot) -> RecallHit:
        item, delta = spot.item, self._deltas[number]
        return RecallHit(
            delta.camera,
            delta.to_id,
            delta.stamp_ns,
            (delta.stamp_ns - self._begin_ns) / NS_PER_S,
            item.label,
            direction_text(item.bearing_rad, item.elevation_rad),
            item.distance_m if math.isfinite(item.distance_m) else None,
            item.box,
            spot.position,
            delta.pose.frame_id if spot.position and delta.pose else '',
            confidence=item.confidence if math.isfinite(item.confidence) else None,
            prominence=_prominence(item),
        )

    @cached_property
    def _spots(self) -> list[list[_Spot]]:
        return [
            [
                _Spot(item, _placed(item, delta.pose))
                for item in delta.items
                if item.status is not ItemStatus.LEFT
            ]
            for delta in self._deltas
        ]

    @cached_property
    def _map(self) -> SceneMap:
        """The map of the recording, which is made where a question needs it."""
        try:
            return map_of_episode(self._episode) or SceneMap()
        except (EmbodiedRError, ValueError, LookupError):
            return SceneMap()

    def _is_near(self, number: int, spot: _Spot, thing: Name) -> bool:
        """Whether a thing is near an item: in its keyframe, else by the places of the scene."""
        others = [s for s in self._spots[number] if s is not spot and thing.fits(s.item.label)]
        at = spot.position
        return any(_are_near(spot, other) for other in others) or (
            at is not None
            and any(
                thing.fits(one.label) and math.dist(one.position, at) <= NEAR_M
                for one in self._map.landmarks
            )
        )


def _placed(item: Item, pose: Pose | None) -> Position | None:
    """The place of an item in the frame of the poses; None: it is not known."""
    if pose is None or item.position is None:
        return None
    x, y, z = np.asarray(pose.position) + pose.rotation() @ np.asarray(item.position)
    return float(x), float(y), float(z)


def _are_near(one: _Spot, other: _Spot) -> bool:
    """Whether two items of a keyframe are near each other: by their places, else bearings."""
    a, b = one.item.position, other.item.position
    if a and b:
        return math.dist(a, b) <= NEAR_M
    apart = abs(one.item.bearing_rad - other.item.bearing_rad)
    return apart <= _NEAR_RAD  # NaN: not known, which is not near


def _prominence(item: Item) -> float:
    """How well a keyframe shows an item: large, in the middle, and sure."""
    size = item.size_rad if math.isfinite(item.size_rad) else 0.1
    off = abs(item.bearing_rad) if math.isfinite(item.bearing_rad) else 0.3
    sure = item.confidence if math.isfinite(item.confidence) else 0.5
    return min(1.0, size) * sure / (1.0 + off)
