# SPDX-License-Identifier: Apache-2.0
"""Reasoning traces about a place: what an oracle of the lines above 'Seen:' would write.

Each names what the question names and how many of it there are, quotes the numbers that matter,
and takes one small step at a time. It says unknown where a thing is not among those of the place,
or a number is not told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
import re
from string import ascii_uppercase
from typing import TYPE_CHECKING, TypeVar

from embodied_r_ros.questions.path_kinds import (
    ACTIONS,
    ARRIVED,
    GOING,
    POSITIONS,
    START_END,
)
from embodied_r_ros.questions.people_kinds import PRESENCE, TURNS
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.map_relations import (
    ordinal,
    quadrant_of_turn,
    quarter_of_turn,
    side_of_turn,
    turn_text,
    turn_word,
)
from embodied_r_ros.types.things import plural

from training.data.map_oracle import (
    change_word,
    kind_and_words,
    longer_word,
    place_option,
    route_stops,
)
from training.data.map_reader import PlaceText, ThingText

if TYPE_CHECKING:
    from training.data.map_reader import Bearing

NOT_TOLD = f'Nothing of the place tells that, so {UNKNOWN}.'
_ROBOT = 'the robot'
_FEWEST_TOLD = 2  # of some things that are compared, where one is not told
_NO_TURN = '?'  # of a route: the text does not tell it

_Known = TypeVar('_Known', str, 'Bearing')
_Words = dict[str, str]
_Options = Sequence[str]


class _NotKnown(Exception):  # noqa: N818 - it is an answer, not an error
    """The text does not tell; the message says what."""


class _Page:
    """The text about a place, and what is said about it."""

    def __init__(self, place: PlaceText) -> None:
        self.place = place
        self.sentences: list[str] = []

    def say(self, text: str) -> None:
        self.sentences.append(text)

    def count(self, *names: str, gone: bool = False) -> list[int]:
        """Say how many there are of some names.

        Raises:
            _NotKnown: There is none of one of them.
        """
        return [self._count(name, gone) for name in dict.fromkeys(names)]

    def _count(self, name: str, gone: bool) -> int:
        there, away = self.place.counts.get(name, (0, 0))
        number = there + (away if gone else 0)
        self.say(f'{name} {self.number_text(name)};')
        if not number:
            msg = f'no {name}'
            raise _NotKnown(msg)
        return number

    def number_text(self, name: str) -> str:
        """How the text counts a name: '2', '2 (1 gone)', or 'none'."""
        there, away = self.place.counts.get(name, (0, 0))
        if not there and not away:
            return 'none'
        return f'{there} ({away} gone)' if away else f'{there}'

    def thing(self, name: str) -> ThingText:
        return self.place.things.get(name, ThingText())

    def where(self, name: str) -> Bearing:
        """Where a thing is from the robot.

        Raises:
            _NotKnown: The text does not tell.
        """
        return _known(self.thing(name).where, f'{name} not told')

    def gap(self, a: str, b: str) -> str:
        """Gap between two things [m].

        Raises:
            _NotKnown: The text does not tell.
        """
        return _known(self.place.gaps.get((a, b), ''), f'{a} to {b} not told')

    def direction(self, a: str, b: str) -> int:
        """Direction from one thing to another [degrees].

        Raises:
            _NotKnown: The text does not tell.
        """
        direction = self.place.directions.get((a, b))
        if direction is None:
            msg = f'{a} to {b} not told'
            raise _NotKnown(msg)
        return direction


def _known(value: _Known | None, what: str) -> _Known:
    """A value that the text tells.

    Raises:
        _NotKnown: It is None or empty.
    """
    if not value:
        raise _NotKnown(what)
    return value


def turn_between(facing: int, to: int) -> int:
    """Turn from one direction to another, in (-180, 180], positive to the left [degrees]."""
    turn = (to - facing) % 360
    return turn - 360 if turn > 180 else turn


def turn_sum(facing: int, to: int) -> str:
    """The sum of a turn: 'at 30°, at 90°: 60° to the left'."""
    return f'at {facing}°, at {to}°: {turn_text(turn_between(facing, to))}'


_Solver = Callable[[_Page, _Words, _Options], str]


def _counting(page: _Page, words: _Words, options: _Options) -> str:
    del options
    return str(page.count(_item(page, words))[0])


def _count_seen(page: _Page, words: _Words, options: _Options) -> str:
    del options
    item = _item(page, words)
    if page.number_text(item) == 'none':
        page.say(f'{item} none.')
        return '0'
    return str(page.count(item, gone=True)[0])


def _item(page: _Page, words: _Words) -> str:
    """The one of several that are asked for."""
    if item := words.get('item'):
        return item
    several = words['items']
    return next((label for label in page.place.counts if plural(label) == several), several)


def _apart(page: _Page, words: _Words, options: _Options) -> str:
    del options
    page.count(words['a'], words['b'])
    gap = page.gap(words['a'], words['b'])
    page.say(f'From {words["a"]}: {gap}m {words["b"]}.')
    return gap


def _least(page: _Page, values: dict[str, str]) -> str:
    """Say which of some distances, each told before its name, is the least."""
    name = min(values, key=lambda each: float(values[each]))
    page.say(f'least {values[name]}m {name}.')
    return name


def _closest(page: _Page, words: _Words, options: _Options) -> str:
    reference = words['reference']
    page.count(reference)
    return _least_of(
        page, reference, words['options'].split(', ') if 'options' in words else options
    )


def _least_of(page: _Page, origin: str, names: Sequence[str]) -> str:
    """Say how far some things are from another one, and which is the nearest.

    One of three or more may be left out where it is not told: it seldom is the nearest.

    Raises:
        _NotKnown: More is not told.
    """
    names = _as_told(page, names)
    *others, last = names
    is_untold = len(names) > _FEWEST_TOLD and (origin, last) not in page.place.gaps
    gaps = {name: page.gap(origin, name) for name in (others if is_untold else names)}
    entries = [f'{gap}m {name};' for name, gap in gaps.items()]
    page.say(
        f'From {origin}: {" ".join([*entries, f"{last} not told;"] if is_untold else entries)}'
    )
    return _least(page, gaps)


def _as_told(page: _Page, names: Sequence[str]) -> list[str]:
    """Names in the order in which the text tells of them, those of which it does not last."""
    places = {label: place for place, label in enumerate(page.place.counts)}
    return sorted(dict.fromkeys(names), key=lambda name: places.get(name, len(places)))


def _beside(page: _Page, words: _Words, options: _Options) -> str:
    return _closest(page, {'reference': words['item']}, options)


def _direction(name_of: Callable[[float], str]) -> _Solver:
    def solve(page: _Page, words: _Words, options: _Options) -> str:
        del options
        at, facing, item = (words[name] for name in ('at', 'facing', 'item'))
        page.count(at, facing, item)
        a, b = page.direction(at, facing), page.direction(at, item)
        answer = name_of(turn_between(a, b))
        page.say(f'From {at}: {facing} at {a}°; {item} at {b}°. {turn_sum(a, b)}, {answer}.')
        return answer

    return solve


def _longest(page: _Page, words: _Words, options: _Options) -> str:
    del options
    page.count(words['item'])
    size = _known(page.thing(words['item']).size, f'size of {words["item"]} not told')
    longest: str = max(size.split(' x '), key=int)
    page.say(f'{size} cm, longest {longest}.')
    return longest


def _area(page: _Page, words: _Words, options: _Options) -> str:
    del words, options
    area = _known(page.place.area_m2, 'floor not told')
    page.say(f'Floor: {area} m².')
    return str(area)


def _order(page: _Page, words: _Words, options: _Options) -> str:
    # The text tells the order: who copies it needs not sort.
    names = words['options'].split(', ')
    order = [name for name in page.place.came if name in names]
    if len(order) < max(len(names) - 1, _FEWEST_TOLD):
        msg = 'order not told'
        raise _NotKnown(msg)
    page.say(f'First seen: {"; ".join(order)}.')
    if len(order) == len(names):
        return ', '.join(order)
    (untold,) = set(names) - set(order)
    page.say(f'{untold} not told;')
    return _only_order(page, order, untold, options)


def _only_order(page: _Page, order: Sequence[str], untold: str, options: _Options) -> str:
    """The one option in which all but one thing come in an order; says how far each agrees.

    Raises:
        _NotKnown: None does, or several.
    """
    fitting = []
    for letter, option in zip(ascii_uppercase, options, strict=False):
        page.say(f'{letter}.')
        names = [name for name in option.split(', ') if name != untold]
        for name, right in zip(names, order, strict=False):
            page.say(f'{name} {"yes" if name == right else "no"};')
            if name != right:
                break
        else:
            fitting.append(option)
    if len(fitting) != 1:
        msg = f'{len(fitting)} orders fit'
        raise _NotKnown(msg)
    return fitting[0]


def _after(page: _Page, name: str, order: Sequence[str]) -> list[str]:
    """What comes after a thing in an order; the thing is there."""
    page.count(name)
    later = order[order.index(name) + 1 :] if name in order else ()
    if not later:
        msg = f'nothing after {name}'
        raise _NotKnown(msg)
    return list(later)


def _route(page: _Page, words: _Words, options: _Options) -> str:
    stops, has_blank = route_stops(words['steps'])
    at, facing = words['start'], words['facing']
    if sum(has_blank) > 1:
        # The turns that are known may leave a single option: go on past what is not there.
        for name in dict.fromkeys((at, facing, *stops)):
            page.say(f'{name} {page.number_text(name)};')
    else:
        page.count(at, facing, *stops)
    before = page.place.directions.get((at, facing))
    page.say(f'From {at}: {facing} {_at_text(before)};')
    turns = []
    for stop, is_blank in zip(stops, has_blank, strict=True):
        direction = page.place.directions.get((at, stop))
        leg = f'from {at}: {stop} {_at_text(direction)}'
        if before is None or direction is None:
            word = _NO_TURN
            page.say(f'{leg}, {word};')
        else:
            word = turn_word(turn_between(before, direction)) or 'straight on'
            page.say(f'{leg}. {turn_sum(before, direction)}, {word};')
        at, before = stop, direction
        turns += [word] if is_blank else []
    return _with_turns(turns, options)


def _at_text(direction: int | None) -> str:
    return 'not told' if direction is None else f'at {direction}°'


def _with_turns(turns: Sequence[str], options: _Options) -> str:
    """The turns of a route, or the one option that has those that are known.

    Raises:
        _NotKnown: Several options have them.
    """
    if _NO_TURN not in turns:
        return ', '.join(turns)
    fitting = [
        option
        for option in options
        if len(words := option.split(', ')) == len(turns)
        and all(turn in (_NO_TURN, word) for turn, word in zip(turns, words, strict=True))
    ]
    if len(fitting) != 1 or set(turns) == {_NO_TURN}:
        msg = 'a turn is not told'
        raise _NotKnown(msg)
    return fitting[0]


def _ends(page: _Page, words: _Words, options: _Options) -> str:
    del words, options
    start, end = (
        _known(page.place.nearest.get(name), f'nearest to the {name} not told')
        for name in ('start', 'robot')
    )
    page.say(f'Nearest to the start: {start}; nearest to the robot: {end}.')
    return START_END.format(a=start, b=end)


def _reached(page: _Page, name: str) -> int:
    """Place of a thing by when the way led there; 0: it did not."""
    reached = page.thing(name).reached
    if reached is None:
        msg = f'{name} not told'
        raise _NotKnown(msg)
    return reached


def _reach_text(place: int) -> str:
    return f'reached {ordinal(place)}' if place else 'not reached'


def _next(page: _Page, words: _Words, options: _Options) -> str:
    del options
    name = _after(page, words['item'], page.place.reached)[0]
    page.say(f'after {words["item"]}: {name}.')
    return name


def _later(page: _Page, words: _Words, options: _Options) -> str:
    later = _after(page, words['item'], page.place.came)
    page.say(f'after {words["item"]}: {"; ".join(later)}.')
    return _first_option(page, options, lambda name: 'yes' if name in later else '')


def _first_option(page: _Page, options: _Options, told: Callable[[str], str]) -> str:
    """The first option of which everything is told; says what of each is, until something is not.

    Raises:
        _NotKnown: There is none.
    """
    for letter, option in zip(ascii_uppercase, options, strict=False):
        page.say(f'{letter}.')
        for name in option.split(', '):
            page.say(f'{name} {told(name) or "no"};')
            if not told(name):
                break
        else:
            return option
    msg = 'no such option'
    raise _NotKnown(msg)


def _change(page: _Page, words: _Words, options: _Options) -> str:
    del options
    item = words['item']
    page.count(item)
    now = page.where(item).metres
    start = _known(page.thing(item).start_m, f'start to {item} not told')
    page.say(f'start {start}m, now {now}m.')
    return change_word(float(start), float(now))


def _longer(page: _Page, words: _Words, options: _Options) -> str:
    del options
    a, b = words['a'], words['b']
    page.count(a, b)
    start = _known(page.place.began_s, 'beginning not told')
    first, second = (str(_known(page.thing(name).first_s, f'{name} not told')) for name in (a, b))
    to_a, to_b = float(start) - float(first), float(first) - float(second)
    page.say(f'Began {start}; first seen: {a} {first}; {b} {second}.')
    page.say(f'{start} to {first}: {to_a:.1f}; {first} to {second}: {to_b:.1f}.')
    return longer_word(to_a, to_b).format(**words)


def _quarter(page: _Page, name: str, bearing: Bearing) -> str:
    where = quarter_of_turn(bearing.degrees)
    text = bearing.text()
    page.say(f'{name} {bearing.metres}m {text}, {where};')
    return where


def _by_quarter(texts: dict[str, str]) -> _Solver:
    """Solves by the quarter in which a thing is now."""

    def solve(page: _Page, words: _Words, options: _Options) -> str:
        del options
        page.count(words['item'])
        return texts[_quarter(page, words['item'], page.where(words['item']))].format(**words)

    return solve


def _around(page: _Page, words: _Words, options: _Options) -> str:
    del words
    names = [
        match[1]
        for match in re.finditer(r'(?:I face|to|have) the (.+?)(?: to my \w+)?\.', options[0])
    ]
    wheres = [_quarter(page, name, page.where(name)) for name in names]
    right = ' '.join(
        POSITIONS[where].format(item=name) for where, name in zip(wheres, names, strict=True)
    )
    if right not in options:
        raise _NotKnown(right)
    return right


def _progress(page: _Page, words: _Words, options: _Options) -> str:
    del options
    stops = words['stops'].removeprefix('the ').split(', then to the ')
    for stop in stops:
        reached = _reached(page, stop)
        page.say(f'{stop} {_reach_text(reached)};')
        if not reached:
            return GOING.format(item=stop)
    return ARRIVED.format(item=stops[-1])


def _list_there(page: _Page, words: _Words, options: _Options) -> str:
    del words

    def told(name: str) -> str:
        text = page.number_text(name)
        return '' if text == 'none' else text

    return _first_option(page, options, told)


def _presence(page: _Page, words: _Words, options: _Options) -> str:
    del options
    name = re.sub(r'^an? ', '', words['a_item'])
    number = page.number_text(name)
    page.say(f'{name} {number}.')
    return PRESENCE[int(number == 'none')]


def _place(page: _Page, words: _Words, options: _Options) -> str:
    item = words['item']
    page.count(item)
    bearing = page.where(item)
    where = TURNS[_quarter(page, item, bearing)]
    if options:
        return place_option(where, float(bearing.metres), options)
    return f'{bearing.metres} m {where}'


def _age(page: _Page, words: _Words, options: _Options) -> str:
    del options
    page.count(words['item'])
    last: str = _known(page.thing(words['item']).last_s, f'{words["item"]} not told')
    page.say(f'Last seen {last} s ago.')
    return last


def _distance(page: _Page, words: _Words, options: _Options) -> str:
    del options
    page.count(words['item'])
    metres = page.where(words['item']).metres
    page.say(f'{words["item"]} {metres}m.')
    return metres


def _nearest(page: _Page, words: _Words, options: _Options) -> str:
    del words
    for name in options:
        # Where they stand in no line together, each one's own line tells it.
        if where := page.thing(name).where:
            page.place.gaps.setdefault((_ROBOT, name), where.metres)
    return _least_of(page, _ROBOT, options)


def _back(page: _Page, words: _Words, options: _Options) -> str:
    del words, options
    return TURNS[_quarter(page, 'start', _known(page.place.start, 'start not told'))]


SOLVERS: dict[str, _Solver] = {
    'object_counting': _counting,
    'object_abs_distance': _apart,
    'object_rel_distance': _closest,
    'object_rel_direction_easy': _direction(lambda turn: 'left' if turn > 0 else 'right'),
    'object_rel_direction_medium': _direction(side_of_turn),
    'object_rel_direction_hard': _direction(quadrant_of_turn),
    'object_size_estimation': _longest,
    'room_size_estimation': _area,
    'obj_appearance_order': _order,
    'route_planning': _route,
    'start_end_position': _ends,
    'object_recall': _beside,
    'sequence_recall': _next,
    'scene_recall': _later,
    'proximity': _change,
    'duration': _longer,
    'landmark_position': _by_quarter(POSITIONS),
    'cognitive_map': _around,
    'progress_evaluation': _progress,
    'action_generation': _by_quarter(ACTIONS),
    'list_things': _list_there,
    'is_there': _presence,
    'where_is': _place,
    'last_seen': _age,
    'how_far': _distance,
    'way_back': _back,
    'way_to': _by_quarter(TURNS),
    'nearest_thing': _nearest,
    'count_things': _count_seen,
}
MAP_QUESTIONS = frozenset(
    {*SOLVERS, 'unknown_thing', 'unknown_relation', 'unknown_size', 'unknown_property'}
)


def read_place_question(
    question: str, options: Sequence[str], place: PlaceText
) -> tuple[str, str]:
    """Reasoning and answer of an oracle that reads the text about a place alone.

    Args:
        question: The question, as the prompt has it.
        options: The options, as the prompt has them; empty for a free question.
        place: What the prompt tells of the place.
    """
    kind_words = kind_and_words(question)
    if kind_words is None:
        return NOT_TOLD, UNKNOWN
    page = _Page(place)
    try:
        answer = SOLVERS[kind_words[0]](page, kind_words[1], options)
    except _NotKnown as error:
        page.say(f'{error}, so {UNKNOWN}.')
        return ' '.join(page.sentences), UNKNOWN
    page.say(f'So {answer.removesuffix(".")}.')
    return ' '.join(page.sentences), answer
