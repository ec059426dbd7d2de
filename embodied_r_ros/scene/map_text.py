# SPDX-License-Identifier: Apache-2.0
"""What the reasoner reads of a scene map: the landmarks that a question needs, and how they lie.

A person can check each line: places and sizes come from the map, the rest follows from them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate, combinations
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.scene.map_relations import bearing_deg, first_reach_ns, gap_m
from embodied_r_ros.scene.memory import estimate_tokens, question_terms
from embodied_r_ros.types.geometry import wrapped
from embodied_r_ros.types.landmarks import LandmarkStatus
from embodied_r_ros.types.things import other_names, plural
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.types.geometry import Position
    from embodied_r_ros.types.landmarks import Landmark, PathPoint, SceneMap

HEADING = 'Known of the place (data; x and y in m; directions from x to the left):'
_THINGS_SHARE = 1 / 3  # of the budget, for the list of things
_MORE_TOKENS = 10  # of saying that there are more
_MOST_RELATED = 8  # kinds whose relations stand in a prompt
_WORD = re.compile(r'[^\W\d_]+')
_AGES = ((2 * 86400, 86400, 'days'), (2 * 3600, 3600, 'h'), (600, 60, 'min'))  # [s]


@dataclass(frozen=True)
class MapText:
    """What the reasoner reads of a scene map."""

    text: str  # empty: the map holds nothing, or nothing fits
    landmark_ids: tuple[int, ...] = ()  # that stand with their place, the most relevant first
    omitted: int = 0  # landmarks without a line of their own
    oldest_seen_ns: int = 0  # last sight of the stalest one that the question names; 0: unknown


def map_text(
    scene_map: SceneMap, question: str, options: Sequence[str], token_budget: int, now_ns: int = 0
) -> MapText:
    """Write what a question needs of a map.

    Args:
        scene_map: The map.
        question: The question, which decides what is relevant.
        options: Its options.
        token_budget: Tokens that the text may take, by `estimate_tokens`.
        now_ns: From when ages count, in the clock of the image stamps; 0: the end of the path.
    """
    landmarks, path = scene_map.landmarks, scene_map.path
    if not landmarks and not path and scene_map.room_area_m2 is None:
        return MapText('')
    newest_ns = max((landmark.last_seen_ns for landmark in landmarks), default=0)
    now_ns = max(now_ns, path[-1].stamp_ns if path else 0) or newest_ns
    relevant, others = _by_relevance(scene_map, question, options)
    lines = _Lines(token_budget)
    for line in _overview(scene_map, [*relevant, *others], token_budget):
        lines.add(line)
    described = [kind for kind in relevant if lines.add(_description(kind, path, now_ns))]
    for pair in _pairs(relevant[:_MOST_RELATED]):
        lines.add(_relation(*pair))
    for each in (each for kind in relevant for each in kind.single()):
        lines.add(_description(each, path, now_ns))
    described += [kind for kind in others if lines.add(_description(kind, path, now_ns))]
    ids = tuple(landmark.id for kind in described for landmark in kind.landmarks)
    sights = [landmark.last_seen_ns for kind in relevant for landmark in kind.landmarks]
    return MapText(lines.text(), ids, len(landmarks) - len(ids), min(sights, default=0))


class _Lines:
    """Lines within a budget. What does not fit is left out, and shorter ones may follow."""

    def __init__(self, budget: int) -> None:
        self._left = budget
        self._lines: list[str] = []

    def add(self, line: str) -> bool:
        """Add a line; False: it does not fit."""
        cost = estimate_tokens(line)
        if cost > self._left:
            return False
        self._left -= cost
        self._lines.append(line)
        return True

    def text(self) -> str:
        """All lines; the heading alone is nothing."""
        return '\n'.join(self._lines) if len(self._lines) > 1 else ''


@dataclass(frozen=True)
class _Kind:
    """The landmarks of one label, or one of them."""

    name: str  # as the lines have it
    label: str
    landmarks: tuple[Landmark, ...]  # at least one; those that are there before those gone

    @property
    def there(self) -> tuple[Landmark, ...]:
        """Those that still are where they were; all where none is."""
        present = tuple(e for e in self.landmarks if e.status is LandmarkStatus.PRESENT)
        return present or self.landmarks

    def single(self) -> tuple[_Kind, ...]:
        """Each landmark of several; none of one alone."""
        if len(self.landmarks) == 1:
            return ()
        return tuple(
            _Kind(f'{as_data(self.label)} {number}', self.label, (landmark,))
            for number, landmark in enumerate(self.landmarks, 1)
        )

    def nearest(self, place: Position) -> Landmark:
        """The landmark that is nearest to a place."""
        return min(self.there, key=lambda each: math.dist(each.position, place))

    def distance_m(self, place: Position) -> float:
        """Distance of the nearest one from a place [m]."""
        return math.dist(self.nearest(place).position, place)


def _kinds(landmarks: Iterable[Landmark]) -> list[_Kind]:
    by_label: dict[str, list[Landmark]] = {}
    for landmark in landmarks:
        by_label.setdefault(landmark.label, []).append(landmark)
    return [
        _Kind(
            as_data(label if len(those) == 1 else plural(label)),
            label,
            tuple(sorted(those, key=lambda each: each.status is LandmarkStatus.GONE)),
        )
        for label, those in by_label.items()
    ]


def _by_relevance(
    scene_map: SceneMap, question: str, options: Sequence[str]
) -> tuple[list[_Kind], list[_Kind]]:
    """What a question names, in its order, or else has a word of; and the rest, nearest first."""
    kinds = _kinds(scene_map.landmarks)
    text, terms = ' '.join([question, *options]).lower(), question_terms(question, options)
    places = {kind.label: _first_mention(text, kind.label) for kind in kinds}
    named = [kind for kind in kinds if places[kind.label] < len(text)]
    relevant = sorted(named, key=lambda kind: places[kind.label]) or [
        kind for kind in kinds if terms & set(_WORD.findall(kind.label.lower()))
    ]
    others = [kind for kind in kinds if kind not in relevant]
    if scene_map.path:
        now = scene_map.path[-1].position
        others.sort(key=lambda kind: kind.distance_m(now))
    return relevant, others


def _overview(scene_map: SceneMap, kinds: Sequence[_Kind], budget: int) -> Iterator[str]:
    """What is there at all, how large the place is, and where the robot is."""
    yield HEADING
    yield _things(kinds, round(_THINGS_SHARE * budget))
    if scene_map.room_area_m2 is not None:
        yield f'Floor: {scene_map.room_area_m2:.1f} m².'
    if scene_map.path:
        yield _robot(scene_map.path[-1], scene_map.path[0], kinds)


def _first_mention(text: str, label: str) -> int:
    """Where a text first names a thing, by its label or another name of it; its end: nowhere."""
    label = label.lower()
    names = {label, *other_names(label)}
    names |= {plural(name) for name in names if name}
    pattern = '|'.join(map(re.escape, sorted(names, key=len, reverse=True)))
    match = re.search(rf'(?<!\w)(?:{pattern})(?!\w)', text)
    return match.start() if match else len(text)


def _things(kinds: Sequence[_Kind], budget: int) -> str:
    """How many there are of each kind."""
    counts = [as_data(_count(kind)) for kind in kinds]
    costs = accumulate(estimate_tokens(count) for count in counts)
    many = sum(cost <= budget - _MORE_TOKENS for cost in costs)
    if many < len(kinds):
        counts = [*counts[:many], f'{len(kinds) - many} more kinds of things']
    return f'Things: {"; ".join(counts)}.' if counts else 'Things: none.'


def _count(kind: _Kind) -> str:
    gone = sum(landmark.status is LandmarkStatus.GONE for landmark in kind.landmarks)
    parts = [
        f'{count} {kind.label if count == 1 else plural(kind.label)}{note}'
        for count, note in ((len(kind.landmarks) - gone, ''), (gone, ' now gone'))
        if count
    ]
    return '; '.join(parts)


def _robot(now: PathPoint, start: PathPoint, kinds: Sequence[_Kind]) -> str:
    """Where the robot is, and where it began."""
    parts = [f'Robot: at {_place(now.position)}, facing {_degrees(now.yaw_rad)}']
    if start is not now:
        parts.append(f'its start is {_seen_from(now, start.position)}')
    for point, words in ((start, 'start'), (now, 'robot')):
        place = point.position
        nearest = min(kinds, key=lambda kind: kind.distance_m(place), default=None)
        if nearest:
            parts.append(f'nearest to the {words}: {as_data(nearest.label)}')
    return '; '.join(parts) + '.'


def _description(kind: _Kind, path: Sequence[PathPoint], now_ns: int) -> str:
    """Place, size, when it was seen, and where it is from the robot; of several, the nearest."""
    landmarks = kind.landmarks
    parts = []
    if len(landmarks) == 1:
        [landmark] = landmarks
        parts.append(f'at {_place(landmark.position)}')
        if landmark.size:
            sides = (f'{100 * side:.0f}' for side in landmark.size)
            parts.append(f'{" x ".join(sides)} cm')
    if all(landmark.last_seen_ns for landmark in landmarks):
        first_ns = min(landmark.first_seen_ns for landmark in landmarks)
        last_ns = max(landmark.last_seen_ns for landmark in landmarks)
        parts.append(f'seen {age_text(now_ns - first_ns)} to {age_text(now_ns - last_ns)} ago')
    if path:
        now, start = path[-1], path[0].position
        parts.append(f'robot {_seen_from(now, kind.nearest(now.position).position)}')
        parts.append(f'start {kind.distance_m(start):.1f} m')
        stamps = [first_reach_ns(path, landmark.position) for landmark in landmarks]
        reached = [stamp for stamp in stamps if stamp is not None]
        if reached:
            parts.append(f'reached {age_text(now_ns - min(reached))} ago')
    if all(landmark.status is LandmarkStatus.GONE for landmark in landmarks):
        parts.append('gone')
    several = f' ({len(landmarks)}, the nearest)' if len(landmarks) > 1 else ''
    return f'{kind.name}{several}: ' + '; '.join(parts or ['place not known']) + '.'


def _relation(first: _Kind, second: _Kind) -> str:
    """How two kinds lie to each other: by their nearest ones, and the direction of single ones."""
    gap = min(gap_m(a, b) for a in first.there for b in second.there)
    text = f'{first.name} to {second.name}: {gap:.1f} m'
    if len(first.there) == len(second.there) == 1:
        (ax, ay, _), (bx, by, _) = first.there[0].position, second.there[0].position
        yaw = math.atan2(by - ay, bx - ax)
        text += f', {_degrees(yaw)}, back {_degrees(yaw + math.pi)}'
    return f'{text}.'


def _pairs(kinds: Sequence[_Kind]) -> list[tuple[_Kind, _Kind]]:
    """All pairs; those with the first or the last one that is named come first."""
    ends = {kind.label for kind in (*kinds[:1], *kinds[-1:])}
    return sorted(
        combinations(kinds, 2), key=lambda pair: not ends & {pair[0].label, pair[1].label}
    )


def _degrees(angle_rad: float) -> str:
    return f'{round(math.degrees(wrapped(angle_rad)))}°'


def _seen_from(pose: PathPoint, place: Position) -> str:
    """Distance and bearing of a place from a pose: '2.1 m 30° left'."""
    degrees = round(bearing_deg(pose, place))
    side = f'{abs(degrees)}° {"left" if degrees > 0 else "right"}' if degrees else 'ahead'
    return f'{math.dist(pose.position, place):.1f} m {side}'


def _place(position: Position) -> str:
    x, y = (round(value, 1) + 0.0 for value in position[:2])
    return f'{x:.1f} {y:.1f}'


def age_text(age_ns: int) -> str:
    """An age in words: '12.0 s', '25 min', '3 h', '2 days'."""
    seconds = max(0, age_ns) / NS_PER_S
    for least, unit_s, unit in _AGES:
        if seconds >= least:
            return f'{seconds / unit_s:.0f} {unit}'
    return f'{seconds:.1f} s'
