# SPDX-License-Identifier: Apache-2.0
"""What the reasoner reads of a scene map: the landmarks that a question needs, and how they lie.

A person can check each line: places and sizes come from the map, the rest follows from them. What
the words of a question ask for stands first. The rest follows only in a generous budget: each line
more is one more that a small reasoner may mistake.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import accumulate, groupby
import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_seen
from embodied_r_ros.core.scene.map_relations import (
    age_text,
    bearing_deg,
    first_reach_ns,
    gap_m,
    level_m,
    metres_text,
    ordinal,
    turn_text,
)
from embodied_r_ros.core.scene.memory import estimate_tokens, question_terms
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.landmarks import LandmarkStatus, thin_path
from embodied_r_ros.core.types.things import first_mentions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap

HEADING = 'Known of the place (data; x and y in m; directions in degrees to the left of x):'
_THINGS_SHARE = 1 / 3  # of the budget, for the list of things
_OTHERS_SHARE = 1 / 12  # likewise where the question names some, for those it does not name
_SPARE_SHARE = 1 / 3  # of the budget, up to which what is not asked for may follow
_MORE_TOKENS = 10  # of saying that there are more
_MOST_RELATED = 8  # kinds whose relations stand in a prompt
_WORD = re.compile(r'[^\W\d_]+')
_STEP_DEG = 10  # of directions: no question is asked whose answer would hang on less

# Which words ask for what, as regular expressions. The first five are facts about a thing, the
# others relate two.
_TOPIC_WORDS = {
    'where': r"""
        action ahead around away bearing behind bot current\w* direction\w* from\sme from\sus
        get go going head\w* here left locat\w+ machine moment move my near\sme next now off our
        position\w* present right robot side step straight surround\w* to\sme to\sus turn way we
        where\w* you\w*""",
    'start': r"""
        back\sat back\sfrom back\sto become began begin\w* begun bring\w* brought came\sfrom
        chang\w+ come\sfrom commenc\w+ compar\w+ constant decreas\w+ depart\w* double\sback
        drift\w* durations? ended ending endpoints? ends? farther final\w* finish\w*
        first\sto\slast from\swhat from\swhich further gain\w* get\sback going\sback go\sback
        gr[eo]w\w* greater home\w* increas\w+ initial\w* journey lasted less longer lose losing
        lost more narrow\w* nearer origin\w* outset periods? picked\sup return\w* run set\soff
        set\sout setting shr[aiu]nk\w* since smaller start\w* taken? terminat\w+ till took trip
        way\sback while widen\w*""",
    'seen': r"""
        added addition\w* ago appear\w* arriv\w+ before camera catch caught cropped\sup
        detect\w* discover\w* durations? earl\w+ encounter\w* eyes faster find\w* first found
        glimps\w+ last lasted later latest longer meet\w* met new newly notic\w+ novel observ\w+
        order perceiv\w+ periods? pictures? popped quick\w* ranking recogni\w+ record\w*
        register\w* saw seconds? seeing seen? sees sequence show\w* sight\w* slow slower spot\w*
        subsequent\w* take till time\w* took turned\sup turn\swas view\w* visible wait\w* when
        while""",
    'reached': r"""
        after along arriv\w+ asked assign\w+ behind busy came? checklist come command\w* doing
        done driv\w+ drove duty errands? far\shave follow\w* goal\w* instruct\w+ itinerary job
        leg mission next onwards? ordered orders part pass\w* past phase plan\w* portion
        progress reach\w* request\w* route segment sent stage status stops? subsequent\w*
        suppos\w+ tasked tasks? then told tour travel\w* visit\w* walk\w* went""",
    'size': r"""
        big\w* centi\w+ cm dimension\w* extent height large\w* length long longest measur\w+
        size tall\w* width""",
    'gap': r"""
        adjacent adjoin\w* alongside apart away beside between border\w* clos\w+ company
        distan\w+ far farther fewest flank\w* further gap handiest just\sby least met(?:er|re)s?
        minimal minimum near\w* neighbo\w+ next\sdoor next\sto proximity quickest range
        right\sat right\sby separat\w* short\w* side\sby\sside soonest space span touch\w*
        vicinity""",
    'direction': r"""
        ahead bearing diagonal\w* eyes\son fac(?:e|es|ed|ing) forward front in\sfront left
        leftwards? looking looks? nose point(?:ed|ing) quadrant\w* quarter rightwards? towards?
        turns?""",
}
_TOPICS = {
    topic: re.compile(rf'\b(?:{"|".join(words.split())})\b', re.IGNORECASE)
    for topic, words in _TOPIC_WORDS.items()
}
_RELATIONS = frozenset({'gap', 'direction'})
_STANCE = 3  # things: who stands at one and faces another asks for the direction of a third
_FACTS = (*(topic for topic in _TOPICS if topic not in _RELATIONS), 'place')
# What common words ask for ("then", "you", "took"), the first to go where lines do not fit.
_SPARE_FACTS = ('reached', 'where', 'start')


@dataclass(frozen=True)
class MapText:
    """What the reasoner reads of a scene map."""

    text: str  # empty: the map holds nothing, or nothing fits
    landmark_ids: tuple[int, ...] = ()  # about which a line tells, in the order of the lines
    omitted: int = 0  # landmarks about which none does
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
    # As rows carry it, so that they give the very text of a live prompt.
    scene_map = replace(scene_map, path=thin_path(scene_map.path))
    landmarks, path = scene_map.landmarks, scene_map.path
    if not _has_lines(scene_map):
        return MapText('')
    newest_ns = max((landmark.last_seen_ns for landmark in landmarks), default=0)
    now_ns = max(now_ns, path[-1].stamp_ns if path else 0) or newest_ns
    relevant, others = _by_relevance(scene_map, question, options)
    topics = _topics(question)
    moment = _moment([*relevant, *others], path, now_ns)
    page = _Page(_Lines(token_budget), moment)
    for line in _overview(scene_map, relevant, others, token_budget):
        page.lines.add(line)
    robot = _robot(path, [*relevant, *others], now_ns) if path else ''
    is_robot_asked = not relevant or 'start' in topics
    if is_robot_asked:
        page.lines.add(robot)
    related = relevant[:_MOST_RELATED] if topics & _RELATIONS else []
    origins = _from_which(related, question, is_level='direction' not in topics)
    page.relate(origins, related, topics & _RELATIONS)
    page.order(relevant, topics)
    is_stance = 'direction' in topics and len(origins) >= _STANCE
    facts = [name for name in _FACTS if name in topics and not is_stance]
    page.describe(relevant, page.facts_that_fit(relevant, facts))
    page.lines.keep_to(round(_SPARE_SHARE * token_budget))
    if not is_robot_asked:
        page.lines.add(robot)
    page.describe(relevant, [name for name in _FACTS if name not in facts])
    page.describe([each for kind in relevant for each in kind.single()], _FACTS)
    page.describe(others, _FACTS)
    ids = page.landmark_ids()
    sights = [landmark.last_seen_ns for kind in relevant for landmark in kind.landmarks]
    return MapText(page.lines.text(), ids, len(landmarks) - len(ids), min(sights, default=0))


def _has_lines(scene_map: SceneMap) -> bool:
    """Whether there is something to tell, in metres: other lengths would be taken for such."""
    is_empty = not scene_map.landmarks and not scene_map.path and scene_map.room_area_m2 is None
    return not is_empty and scene_map.scale is not ScaleSource.RELATIVE


def _topics(question: str) -> set[str]:
    """What the words of a question ask for; all of it where they do not say."""
    topics = {topic for topic, words in _TOPICS.items() if words.search(question)}
    # How far it was from the start is for comparison with how far it is now.
    return topics | ({'where'} if 'start' in topics else set()) or {*_TOPICS, 'place'}


@dataclass(frozen=True)
class _Moment:
    """What the facts about a thing are seen from: the way so far, and what came before what."""

    path: Sequence[PathPoint]
    now_ns: int
    came: dict[str, int]  # label: place among all labels by first sight, 1 for the first
    reached: dict[str, int]  # likewise by when the way first led there; those it did not are out


def _moment(kinds: Sequence[_Kind], path: Sequence[PathPoint], now_ns: int) -> _Moment:
    came = {
        kind.label: min(landmark.first_seen_ns for landmark in kind.landmarks)
        for kind in kinds
        if all(landmark.last_seen_ns for landmark in kind.landmarks)
    }
    stamps = {
        kind.label: [
            stamp
            for landmark in kind.landmarks
            if (stamp := first_reach_ns(path, landmark.position)) is not None
        ]
        for kind in (kinds if path else ())
    }
    reached = {label: min(those) for label, those in stamps.items() if those}
    return _Moment(path, now_ns, _places(came), _places(reached))


def _places(stamps_ns: dict[str, int]) -> dict[str, int]:
    """Places in the order of time; what is of the same time has the same place."""
    order = sorted(stamps_ns.values())
    return {label: 1 + order.index(stamp_ns) for label, stamp_ns in stamps_ns.items()}


class _Lines:
    """Lines within a budget. What does not fit is left out, and shorter ones may follow."""

    def __init__(self, budget: int) -> None:
        self._budget = self._left = budget
        self._lines: list[str] = []

    def fit(self, lines: Iterable[str]) -> bool:
        """Whether all of some lines fit."""
        return sum(map(estimate_tokens, lines)) <= self._left

    def keep_to(self, budget: int) -> None:
        """Make the budget smaller, also where more than it was used already."""
        self._left -= self._budget - budget
        self._budget = budget

    def add(self, line: str) -> bool:
        """Add a line; False: it says nothing, or does not fit."""
        cost = estimate_tokens(line)
        if not line or cost > self._left:
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
    is_whole: bool = True  # all of the label

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
            _Kind(f'{as_seen(self.label)} {number}', self.label, (landmark,), is_whole=False)
            for number, landmark in enumerate(self.landmarks, 1)
        )

    def nearest(self, place: Position) -> Landmark:
        """The landmark that is nearest to a place."""
        return min(self.there, key=lambda each: math.dist(each.position, place))

    def distance_m(self, place: Position) -> float:
        """Distance of the nearest one from a place [m]."""
        return math.dist(self.nearest(place).position, place)

    def level_m(self, place: Position) -> float:
        """Least distance of any from a place, as seen from above [m]."""
        return min(level_m(each.position, place) for each in self.landmarks)


def _kinds(landmarks: Iterable[Landmark]) -> list[_Kind]:
    by_label: dict[str, list[Landmark]] = {}
    for landmark in landmarks:
        by_label.setdefault(landmark.label, []).append(landmark)
    return [
        _Kind(
            as_seen(label),
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
    places = first_mentions(text, [kind.label for kind in kinds])
    named = [kind for kind in kinds if kind.label in places]
    relevant = sorted(named, key=lambda kind: places[kind.label]) or [
        kind for kind in kinds if terms & set(_WORD.findall(kind.label.lower()))
    ]
    others = [kind for kind in kinds if kind not in relevant]
    if scene_map.path:
        now = scene_map.path[-1].position
        others.sort(key=lambda kind: kind.distance_m(now))
    return relevant, others


def _overview(
    scene_map: SceneMap, relevant: Sequence[_Kind], others: Sequence[_Kind], budget: int
) -> Iterator[str]:
    """What is there at all, and how large the place is."""
    yield HEADING
    yield _things(relevant, others, budget)
    if scene_map.room_area_m2 is not None:
        yield f'Floor: {scene_map.room_area_m2:.1f} m².'


def _things(relevant: Sequence[_Kind], others: Sequence[_Kind], budget: int) -> str:
    """How many there are of each kind."""
    counts = [_count(kind) for kind in (*relevant, *others)]
    costs = list(accumulate(estimate_tokens(count) for count in counts))
    most = round(_THINGS_SHARE * budget)
    if relevant:
        most = min(most, costs[len(relevant) - 1] + round(_OTHERS_SHARE * budget))
    many = sum(cost <= most - _MORE_TOKENS for cost in costs)
    if many < len(counts):
        counts = [*counts[:many], f'{len(counts) - many} more kinds']
    return f'Things: {"; ".join(counts)}.' if counts else 'Things: none.'


def _count(kind: _Kind) -> str:
    gone = sum(landmark.status is LandmarkStatus.GONE for landmark in kind.landmarks)
    text = f'{as_seen(kind.label)} {len(kind.landmarks) - gone}'
    return f'{text} ({gone} gone)' if gone else text


def _robot(path: Sequence[PathPoint], kinds: Sequence[_Kind], now_ns: int) -> str:
    """Where the robot is, and where it began."""
    now, start = path[-1], path[0]
    parts = [f'Robot: at {_place(now.position)}, facing {_degrees(now.yaw_rad)}']
    if start is not now:
        began = age_text(now_ns - start.stamp_ns)
        parts.append(f'began {began} ago; start {_seen_from(now, start.position)}')
    for point, words in ((start, 'start'), (now, 'robot')):
        place = point.position
        nearest = min(kinds, key=lambda kind: kind.level_m(place), default=None)
        if nearest:
            parts.append(f'nearest to the {words}: {as_seen(nearest.label)}')
    return '; '.join(parts) + '.'


def _description(kind: _Kind, moment: _Moment, facts: Collection[str]) -> str:
    """Facts about a thing, or the nearest of several; empty: none of them is known."""
    known = [text for fact in facts if (text := _FACT_TEXTS[fact](kind, moment))]
    if known and all(landmark.status is LandmarkStatus.GONE for landmark in kind.landmarks):
        known.append('gone')
    # Behind a space, a name is the same tokens as in a sentence.
    return f'- {kind.name}: {"; ".join(known)}.' if known else ''


def _where(kind: _Kind, moment: _Moment) -> str:
    if not moment.path:
        return ''
    nearest = 'nearest ' if len(kind.landmarks) > 1 else ''
    now = moment.path[-1]
    return nearest + _seen_from(now, kind.nearest(now.position).position)


def _from_start(kind: _Kind, moment: _Moment) -> str:
    path = moment.path
    return f'start {metres_text(kind.distance_m(path[0].position))}' if path else ''


def _sights(kind: _Kind, moment: _Moment) -> str:
    if not all(landmark.last_seen_ns for landmark in kind.landmarks):
        return ''
    first_ns = min(landmark.first_seen_ns for landmark in kind.landmarks)
    last_ns = max(landmark.last_seen_ns for landmark in kind.landmarks)
    ages = [age_text(moment.now_ns - stamp_ns) for stamp_ns in (first_ns, last_ns)]
    place = moment.came.get(kind.label, 0) if kind.is_whole else 0
    came = f'came {ordinal(place)}; ' if place else ''
    return f'{came}seen {ages[0]} to {ages[1]} ago'


def _reach(kind: _Kind, moment: _Moment) -> str:
    if not moment.path or not kind.is_whole:
        return ''
    place = moment.reached.get(kind.label)
    return f'reached {ordinal(place)}' if place else 'not reached'


def _extent(kind: _Kind, moment: _Moment) -> str:
    del moment
    size = kind.landmarks[0].size if len(kind.landmarks) == 1 else None
    return f'{" x ".join(f"{100 * side:.0f}" for side in size)} cm' if size else ''


def _position(kind: _Kind, moment: _Moment) -> str:
    del moment
    return f'at {_place(kind.landmarks[0].position)}' if len(kind.landmarks) == 1 else ''


_FACT_TEXTS: dict[str, Callable[[_Kind, _Moment], str]] = {
    'where': _where,
    'start': _from_start,
    'seen': _sights,
    'reached': _reach,
    'size': _extent,
    'place': _position,
}


class _Page:
    """The lines about things, and about which of them there are any."""

    def __init__(self, lines: _Lines, moment: _Moment) -> None:
        self.lines = lines
        self._moment = moment
        self._about: list[_Kind] = []

    def describe(self, kinds: Iterable[_Kind], facts: Collection[str]) -> None:
        """Add a line of facts about each thing."""
        for kind in kinds:
            if self.lines.add(_description(kind, self._moment, facts)):
                self._about.append(kind)

    def facts_that_fit(self, kinds: Sequence[_Kind], facts: Sequence[str]) -> Sequence[str]:
        """Facts of which the lines of all things fit: a thing named is worth more than a fact.

        All of them where no choice leaves room for each thing.
        """
        fewer = list(facts)
        for spare in ('', *_SPARE_FACTS):
            fewer = [fact for fact in fewer if fact != spare]
            if self.lines.fit(_description(kind, self._moment, fewer) for kind in kinds):
                return fewer or facts
        return facts

    def relate(
        self, origins: Sequence[_Kind], kinds: Sequence[_Kind], topics: Collection[str]
    ) -> None:
        """Add a line of how things lie to each of some; without any, how near they are."""
        if 'gap' in topics and not origins:
            self.lines.add(_from_robot(kinds, self._moment.path))
        for kind in origins:
            if self.lines.add(_relations(kind, kinds, topics)):
                self._about.append(kind)

    def order(self, kinds: Sequence[_Kind], topics: Collection[str]) -> None:
        """Add the orders in time of several things, where they are asked for."""
        for line in _in_time(kinds, topics, self._moment):
            self.lines.add(line)

    def landmark_ids(self) -> tuple[int, ...]:
        """The landmarks about which a line tells, in the order of the lines."""
        return tuple(
            dict.fromkeys(landmark.id for kind in self._about for landmark in kind.landmarks)
        )


def _from_which(kinds: Sequence[_Kind], question: str, *, is_level: bool) -> list[_Kind]:
    """The kinds from which others are seen: that are named first and last, and then the others.

    Args:
        kinds: Those that a question is about.
        question: The question: what stands in its options alone is seen from others.
        is_level: Whether gaps are asked for, which are as long from either side.
    """
    places = first_mentions(question.lower(), [kind.label for kind in kinds])
    named = [kind for kind in kinds if kind.label in places]
    if not named or len(kinds) < 2:
        return []
    ends = [*named[:1], *named[1:][-1:]]
    return ends if is_level else [*ends, *(kind for kind in kinds if kind not in ends)]


def _relations(kind: _Kind, kinds: Sequence[_Kind], topics: Collection[str]) -> str:
    """How others lie to a kind: by their nearest ones, and the direction of single ones."""
    entries = []
    for other in kinds:
        if other is kind:
            continue
        words = [other.name]
        if 'gap' in topics:
            gaps = (gap_m(a, b) for a in kind.there for b in other.there)
            # In front of the name: who looks for the nearest one finds a number, then its name.
            words.insert(0, metres_text(min(gaps)))
        if 'direction' in topics and len(kind.there) == len(other.there) == 1:
            (ax, ay, _), (bx, by, _) = kind.there[0].position, other.there[0].position
            words.append(f'at {_degrees(math.atan2(by - ay, bx - ax))}')
        if len(words) > 1:
            entries.append(' '.join(words))
    return f'From {kind.name}: {"; ".join(entries)}.' if entries else ''


def _in_time(kinds: Sequence[_Kind], topics: Collection[str], moment: _Moment) -> Iterator[str]:
    """In which order several things came, and were reached, as far as that is asked for."""
    labels = [kind.label for kind in kinds if len(kinds) > 1]
    for topic, places, name in (
        ('seen', moment.came, 'First seen'),
        ('reached', moment.reached, 'Reached'),
    ):
        order = sorted(places.keys() & labels, key=lambda label: (places[label], label))
        if topic in topics and order:
            groups = groupby(order, key=places.__getitem__)
            texts = [', '.join(map(as_seen, together)) for _, together in groups]
            yield f'{name} in this order: {"; ".join(texts)}.'


def _from_robot(kinds: Sequence[_Kind], path: Sequence[PathPoint]) -> str:
    """How far each of several things is from the robot; empty: that is not known."""
    if len(kinds) < 2 or not path:
        return ''
    now = path[-1].position
    entries = [f'{metres_text(kind.distance_m(now))} {kind.name}' for kind in kinds]
    return f'From the robot: {"; ".join(entries)}.'


def _stepped(degrees: float) -> int:
    """An angle in the steps of the text [degrees]."""
    return _STEP_DEG * round(degrees / _STEP_DEG)


def _degrees(angle_rad: float) -> str:
    return f'{_stepped(math.degrees(angle_rad)) % 360}°'


def _seen_from(pose: PathPoint, place: Position) -> str:
    """Distance and bearing of a place from a pose: '2.1m 30° to the left'."""
    degrees = _stepped(bearing_deg(pose, place))
    # What is behind is as far to the left as to the right.
    where = turn_text(180 if degrees == -180 else degrees)
    return f'{metres_text(math.dist(pose.position, place))} {where}'


def _place(position: Position) -> str:
    x, y = (round(value, 1) + 0.0 for value in position[:2])
    return f'{x:.1f} {y:.1f}'
