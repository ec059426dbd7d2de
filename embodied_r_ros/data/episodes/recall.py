# SPDX-License-Identifier: Apache-2.0
"""Recall over recordings: where something was seen, when, near what, and by which keyframes.

No model is asked. What was perceived counts (items of deltas, with the map that they give), else
the words of deltas, else recorded answers and labels of people; each hit says which. Recordings
are read one at a time, and a few hits are kept of each: memory does not grow with their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, cached_property, lru_cache
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.scene.map_relations import gap_m
from embodied_r_ros.core.scene.memory import question_terms
from embodied_r_ros.core.scene.names import find_names, Name, names_of, resolve
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Freshness
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    direction_text,
    Item,
    ItemStatus,
)
from embodied_r_ros.core.types.episodes import LabelVerdict
from embodied_r_ros.core.types.geometry import NS_PER_S, vector_of_direction
from embodied_r_ros.core.types.landmarks import SceneMap
from embodied_r_ros.core.types.things import named_things, plural, with_article
from embodied_r_ros.core.types.vocabulary import COCO
from embodied_r_ros.data.episodes.episode import Episode, read_as_recorded
from embodied_r_ros.data.episodes.offline import map_of_episode
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose, Position
    from embodied_r_ros.core.types.landmarks import Landmark

NEAR_M = 1.5  # between things that count as near each other
_NEAR_RAD, _NEAR_SHARE = math.radians(15.0), 0.1  # likewise where no distance is known
_MOST_NEAR = 3  # things that a hit names beside its own
_GONE = re.compile(r'\bGone: [^.]*\.')
_WORDS = 200  # characters of a text that a hit quotes


# Words of questions, by what they say of the things that are looked for.
_NEAR = """
near by beside alongside around next close front behind under beneath on above below over at in
inside with holding carrying between against
"""
_NOT = "no without not never doesn't don't isn't aren't lack lacks lacking"
# Nothing that could be looked for, though some resemble a thing.
_REST = """
show shows shown showing visible appear appears appeared contain contains recording recordings
episode episodes keyframe keyframes bags stand stands standing lie lies lying sit sits sitting lay
stood sat made happened place time moment latest
"""
_NEAR_WORDS, _NOT_WORDS = frozenset(_NEAR.split()), frozenset(_NOT.split())
_UNNAMED = _NEAR_WORDS | _NOT_WORDS | frozenset(_REST.split())
_LAST_WORDS = frozenset(('last', 'latest', 'where'))
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
    is_any: bool = False  # one of the things is enough; else a recording shows all of them
    order: Order = Order.BEST
    is_without: bool = False  # recordings that do not show it are asked for
    unread: tuple[str, ...] = ()  # words of a question that had no part in it

    def in_words(self) -> str:
        """What is looked for: 'a chair near a table', 'a person and a dog'."""
        things, near = ([with_article(n.in_words) for n in ns] for ns in (self.things, self.near))
        parts = [(' or ' if self.is_any else ' and ').join(things), *near]
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


def read_query(question: str, near: Sequence[str] = ()) -> RecallQuery:
    """What a question looks for, by the things that it names and few words between them.

    Args:
        question: The question.
        near: What the things are to be near, by exact names, whatever the question says.

    Raises:
        InputError: It names no thing that is known, or says what cannot be looked for.
    """
    text = ' '.join(question.lower().split())
    text = f'somebody{text[3:]}' if text.startswith('who ') else text
    names = [name for name in find_names(text, _labels()) if not _is_no_name(name, text)]
    names = names[:_MOST_THINGS]
    if not names:
        msg = f'{question!r} names nothing that is known: name it by --thing NAME, or with `find`'
        raise InputError(msg)
    words = [(match[0], match.start()) for match in re.finditer(r"[a-z']+", text)]
    others = question_terms(text) - _UNNAMED
    others -= question_terms(' '.join(name.text for name in names))
    not_at = next((at for word, at in words if word in _NOT_WORDS), -1)
    if not_at > names[0].start and (len(names) > 1 or any(w in text[not_at:] for w in others)):
        msg = f'{question!r} asks for a thing that is not so, or is without another: ask for each'
        raise InputError(msg)
    second_at = names[1].start if len(names) > 1 else 0
    between = {word for word, at in words if names[0].end <= at < second_at}
    is_near = bool(between & _NEAR_WORDS) and 'or' not in between
    order = Order.LAST if _LAST_WORDS & dict(words).keys() else Order.BEST
    return RecallQuery(
        question,
        tuple(names[:1] if is_near else names),
        _exactly(near) or tuple(names[1:] if is_near else ()),
        'or' in between,
        Order.FIRST if 'first' in dict(words) else order,
        not_at >= 0,
        tuple(sorted(others)),
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
    return name.is_guess and (not is_error or name.text in _UNNAMED)


class Ground(Enum):
    """What a hit rests on, the surest first."""

    ITEM = 'perceived'
    WORDS = 'words of the perceiver'
    LABEL = 'label of a person'
    ANSWER = 'recorded answer'


@dataclass(frozen=True)
class RecallHit:
    """A moment of a recording that shows what is looked for."""

    camera: str
    keyframe_id: int
    stamp_ns: int
    offset_s: float  # from the first keyframe
    label: str  # as perceived; of words, what was looked for
    ground: Ground
    direction: str = ''  # in words, from the camera
    distance_m: float | None = None
    box: tuple[float, float, float, float] | None = None  # shares of the view
    position: Position | None = None  # in `frame_id` [m]
    frame_id: str = ''
    near: tuple[tuple[str, float], ...] = ()  # what is near it, with its gap [m], nearest first
    words: str = ''  # that were found
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
        if bool(one.count) is not query.is_without:
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
        tuple(search.with_surroundings(hit) for hit in _chosen(hits, query.order, most_hits)),
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
    best = sorted(hits, key=lambda hit: (list(Ground).index(hit.ground), -hit.prominence))
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
        """All moments that show what is looked for, by their grounds."""
        query = self._query
        groups = [query.things] if query.is_any else [(thing,) for thing in query.things]
        each = [self._of(group, query.near) for group in groups]
        return [hit for hits in each for hit in hits] if all(each) else []

    def _of(self, things: Sequence[Name], near: Sequence[Name]) -> list[RecallHit]:
        """Moments that show any of some things, near all of others."""
        said = [
            self._worded(delta, ground, words)
            for delta, ground, solution, words in self._statements
            if _names(solution, things, ()) and _names(words, (), near)
        ]
        return [*self._perceived(things, near), *said]

    def _perceived(self, things: Sequence[Name], near: Sequence[Name]) -> Iterator[RecallHit]:
        for number, spots in enumerate(self._spots):
            fitting = [s for s in spots if any(thing.fits(s.item.label) for thing in things)]
            for spot in sorted(fitting, key=lambda spot: -_prominence(spot.item)):
                if all(self._is_near(number, spot, thing) for thing in near):
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
            Ground.ITEM,
            direction_text(item.bearing_rad, item.elevation_rad),
            item.distance_m if math.isfinite(item.distance_m) else None,
            item.box,
            spot.position,
            delta.pose.frame_id if spot.position and delta.pose else '',
            confidence=item.confidence if math.isfinite(item.confidence) else None,
            prominence=_prominence(item),
        )

    @cached_property
    def _statements(self) -> list[tuple[SemanticDelta, Ground, str, str]]:
        """What was said of moments: where, by whom, the solution, and that with its question."""
        texts = [(delta, _free_text(delta)) for delta in self._deltas]
        said = [(delta, Ground.WORDS, text, text) for delta, text in texts]
        for ground, stamp_ns, question, solution in self._solutions():
            known = sum(delta.stamp_ns <= stamp_ns for delta in self._deltas)
            if known:
                words = f'{question} {solution}'
                said.append((self._deltas[known - 1], ground, solution, words))
        return said

    def _solutions(self) -> Iterator[tuple[Ground, int, str, str]]:
        """Answers that nobody calls wrong, what people corrected, and what they wrote."""
        log, layer = self._episode.log, self._episode.labels
        for answer in log.answers:
            label, at = log.labels.get(answer.id), (answer.observation_stamp_ns, answer.question)
            is_right = label is None or label.verdict is LabelVerdict.RIGHT
            if is_right and answer.id not in log.disputed and _says(answer):
                yield Ground.ANSWER, *at, answer.text
            if label and label.verdict is LabelVerdict.CORRECTED:
                yield Ground.LABEL, *at, label.correction
        for written in layer.questions().values():
            if written.question and written.after:
                at = written.question.stamp_ns, written.question.text
                yield Ground.LABEL, *at, written.after

    def _worded(self, delta: SemanticDelta, ground: Ground, text: str) -> RecallHit:
        words = as_data(text)[:_WORDS]
        name = ' or '.join(thing.in_words for thing in self._query.things)
        offset_s = (delta.stamp_ns - self._begin_ns) / NS_PER_S
        at = delta.camera, delta.to_id, delta.stamp_ns, offset_s
        return RecallHit(*at, name, ground, words=words)

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
        """Whether a thing is near an item: in its keyframe, else in the map."""
        delta, spots = self._deltas[number], self._spots[number]
        others = [other for other in spots if other is not spot and thing.fits(other.item.label)]
        if any(_are_near(spot, other) for other in others):
            return True
        own = self._landmark_of(spot.item.label, delta, spot.position)
        at = spot.position or (own.position if own else None)
        return at is not None and any(
            thing.fits(one.label) and one is not own and math.dist(one.position, at) <= NEAR_M
            for one in self._map.landmarks
        )

    def _landmark_of(
        self, label: str, at: SemanticDelta | RecallHit, position: Position | None
    ) -> Landmark | None:
        """The landmark that an item of a moment is; None: it is not told which."""
        alike = [one for one in self._map.landmarks if one.label == label]
        if position is not None:
            near = [one for one in alike if math.dist(one.position, position) <= NEAR_M]
            return min(near, key=lambda one: math.dist(one.position, position), default=None)
        then = [one for one in alike if one.first_seen_ns <= at.stamp_ns <= one.last_seen_ns]
        return then[0] if len(then) == 1 else None

    def with_surroundings(self, hit: RecallHit) -> RecallHit:
        """A hit with what lies near it, by the map."""
        own = self._landmark_of(hit.label, hit, hit.position)
        at = hit.position or (own.position if own else None)
        if at is None:
            return hit
        others = [one for one in self._map.landmarks if one is not own]
        far = {one.id: gap_m(one, own) if own else math.dist(one.position, at) for one in others}
        near = sorted((far[one.id], one.label) for one in others if far[one.id] <= 2 * NEAR_M)
        neighbours = tuple((label, far_m) for far_m, label in near[:_MOST_NEAR])
        frame_id = hit.frame_id or self._map.frame_id
        return replace(hit, position=at, frame_id=frame_id, near=neighbours)


def _free_text(delta: SemanticDelta) -> str:
    """What a perceiver wrote beside its items, without what is gone."""
    derived = change_text(delta.items) if delta.items else ''
    return _GONE.sub('', delta.change.replace(derived, '') if derived else delta.change)


def _says(answer: Answer) -> bool:
    return answer.freshness is not Freshness.REFUSED and answer.kind is not AnswerKind.UNKNOWN


def _names(text: str, things: Sequence[Name], near: Sequence[Name]) -> bool:
    """Tell whether a text names any of some things, and all of others, and not that none is."""
    text = text.lower()
    is_any = not things or any(_in_text(thing).search(text) for thing in things)
    return is_any and all(_in_text(thing).search(text) for thing in near)


@lru_cache(64)
def _in_text(thing: Name) -> re.Pattern[str]:
    names = names_of(thing.kind) if thing.kind else frozenset(('object', 'thing', 'item'))
    every = sorted({*names, *map(plural, names)}, key=len, reverse=True)
    before = rf'{re.escape(thing.colour)}\W+(?:\w+\W+)?' if thing.colour else ''
    pattern = '|'.join(map(re.escape, every))
    return re.compile(rf'(?<!\bno )(?<!\bwithout )(?<!\bwithout a )\b{before}(?:{pattern})\b')


def _placed(item: Item, pose: Pose | None) -> Position | None:
    """The place of an item in the frame of the poses; None: it is not known."""
    if pose is None or item.position is None:
        return None
    ray = vector_of_direction(item.bearing_rad, item.elevation_rad)
    x, y, z = np.asarray(pose.position) + item.distance_m * (pose.rotation() @ ray)
    return float(x), float(y), float(z)


def _are_near(one: _Spot, other: _Spot) -> bool:
    """Whether two items of a keyframe are near each other: by their places, else in the view."""
    a, b = one.item.position, other.item.position
    if a and b:
        return math.dist(a, b) <= NEAR_M
    if one.item.box and other.item.box:
        return _box_gap(one.item.box, other.item.box) <= _NEAR_SHARE
    apart = abs(one.item.bearing_rad - other.item.bearing_rad)
    return apart <= _NEAR_RAD  # NaN: not known, which is not near


def _box_gap(a: Sequence[float], b: Sequence[float]) -> float:
    """Distance between two boxes, as a share of the view; 0 where they touch."""
    across = max(0.0, a[0] - b[2], b[0] - a[2])
    return math.hypot(across, max(0.0, a[1] - b[3], b[1] - a[3]))


def _prominence(item: Item) -> float:
    """How well a keyframe shows an item: large, in the middle, and sure."""
    size = item.size_rad if math.isfinite(item.size_rad) else 0.1
    off = abs(item.bearing_rad) if math.isfinite(item.bearing_rad) else 0.3
    sure = item.confidence if math.isfinite(item.confidence) else 0.5
    return min(1.0, size) * sure / (1.0 + off)
