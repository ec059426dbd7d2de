# SPDX-License-Identifier: Apache-2.0
"""What people ask a robot about a place: what is there, where, how far, which way, since when."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.tools import called, ROBOT, START
from embodied_r_ros.core.types.things import named_things, plural, with_article
from embodied_r_ros.data.questions.indoor import Draft, NoSolution
from embodied_r_ros.data.questions.map_kinds import clearly_least, MAX_SLACK_SHARE
from embodied_r_ros.data.questions.path_kinds import (
    AWAY_M,
    choice_of_first,
    clear_quarter,
    directions,
    NO_PATH,
    place_truth,
    UNCLEAR,
)
from embodied_r_ros.data.questions.wordings import wording

if TYPE_CHECKING:
    from random import Random

    from embodied_r_ros.data.questions.map_kinds import MapKind, MapMoment

_ABSENT_SHARE = 0.5  # of the questions whether something is there
_ZERO_SHARE = 0.2  # of the counts

# Words for the quarter that something is in.
TURNS = {
    'ahead': 'straight ahead',
    'left': 'to the left',
    'right': 'to the right',
    'behind': 'behind you',
}
PRESENCE = ('yes', 'not that I have seen')


def list_things(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What is there: the list in which everything was seen."""
    labels = sorted(moment.things)
    absent = _absent_names(moment)
    if len(labels) < 3 or len(absent) < 3:
        return NoSolution('too few things, or no names of others')
    there, away = rng.sample(labels, 3), rng.sample(absent, 3)
    # Each name stands in two of the four lists: none is the odd one out.
    lists = [there] + [[*away[:i], there[i], *away[i + 1 :]] for i in range(3)]
    options = [', '.join(each) for each in lists]
    truth = {'there': labels[:20]}
    return choice_of_first(moment, wording('list_things', rng, held_out), options, truth)


def _absent_names(moment: MapMoment) -> list[str]:
    """Names of what the map has neither itself nor anything like it."""
    alike = {name for label in moment.things for name in moment.alike(label)}
    names = moment.absent(moment.names or named_things())
    # Of a small world of colours and shapes everything is like something.
    return [name for name in names if name not in alike] or names


def is_there(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Whether a thing was seen."""
    present, absent = sorted(moment.things), _absent_names(moment)
    is_absent = rng.random() < _ABSENT_SHARE
    names = absent if is_absent else present
    if not names:
        return NoSolution('no name that is certainly there, or certainly not')
    name = rng.choice(names)
    question = wording('is_there', rng, held_out, a_item=with_article(name))
    truth = {'item': name, 'count': 0 if is_absent else moment.tools.count(name).facts['there']}
    solution = PRESENCE[int(is_absent)]
    return Draft(question, PRESENCE, solution, source=moment.source, truth=truth)


def count_things(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How many things of a label were seen; none, where the truth is known."""
    # What has gone since was seen all the same.
    counts = {label: int(moment.tools.count(label).number) for label in moment.things}
    absent = _absent_names(moment) if moment.source == 'layout' else []
    if absent and rng.random() < _ZERO_SHARE:
        counts = {rng.choice(absent): 0}
    if not counts:
        return NoSolution('the map has no landmarks')
    number = rng.choice(sorted(set(counts.values())))
    label = rng.choice([label for label, count in counts.items() if count == number])
    question = wording('count_things', rng, held_out, items=plural(label))
    truth = {'item': label, 'count': number}
    return Draft(question, (), str(number), 'number', moment.source, truth)


def where_is(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """In which direction a thing is, and how far away."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        place = clear_quarter(moment, called(thing.label))
        if place and moment.slack_m <= MAX_SLACK_SHARE * place[2]:
            where, degrees, metres = place
            question = wording('where_is', rng, held_out, item=thing.label)
            truth = place_truth(thing.label, degrees, metres)
            return choice_of_first(moment, question, places_to_choose(where, metres, rng), truth)
    return NoSolution(UNCLEAR)


def places_to_choose(where: str, metres: float, rng: Random) -> list[str]:
    """A place in words, and three others: another direction, another distance, and both.

    Each part stands in two of the four, so that they do not tell which one is right.
    """
    other_m = metres * rng.choice((0.5, 2.0) if metres >= 2 else (2.0, 3.0))
    other = rng.choice([name for name in TURNS if name != where])
    places = ((metres, where), (metres, other), (other_m, where), (other_m, other))
    return [f'{off:.1f} m {TURNS[name]}' for off, name in places]


def way_to(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which way it is to a thing."""
    return directions(moment, rng, held_out, 'way_to', TURNS)


def way_back(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which way it is to the start."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    place = clear_quarter(moment, START)
    if place is None:
        return NoSolution('the start is too near, or near the border between two directions')
    truth = place_truth('start', *place[1:])
    question, options = wording('way_back', rng, held_out), tuple(TURNS.values())
    return Draft(question, options, TURNS[place[0]], source=moment.source, truth=truth)


def how_far(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How far a thing is in a straight line."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        metres = moment.tools.distance(called(thing.label)).number
        if metres >= AWAY_M and moment.slack_m <= MAX_SLACK_SHARE * metres:
            truth = {'item': thing.label, 'distance_m': round(metres, 3)}
            question = wording('how_far', rng, held_out, item=thing.label)
            return Draft(question, (), f'{metres:.1f}', 'number', moment.source, truth)
    return NoSolution('no thing is far enough away for its distance to be clear')


def nearest_thing(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which of four things is nearest now."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    off_m = moment.tools.gaps(ROBOT, list(moment.things)) if moment.things else {}
    for _ in range(20 if len(off_m) >= 3 else 0):
        labels = rng.sample(sorted(off_m), min(4, len(off_m)))
        if winner := clearly_least({label: off_m[label] for label in labels}, moment.slack_m):
            truth = {label: round(off_m[label], 2) for label in labels}
            question = wording('nearest_thing', rng, held_out)
            return Draft(question, tuple(labels), winner, source=moment.source, truth=truth)
    return NoSolution('no thing is clearly the nearest')


def last_seen(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """How long ago a thing was in view."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    ages = {thing.label: moment.tools.seen(thing.label).number for thing in moment.singles}
    old = sorted(label for label, age_s in ages.items() if age_s >= 1)
    if not old:
        return NoSolution('everything was in view within the last second')
    label = rng.choice(old)
    truth = {'item': label, 'age_s': round(ages[label], 2)}
    question = wording('last_seen', rng, held_out, item=label)
    return Draft(question, (), f'{ages[label]:.1f}', 'number', moment.source, truth)


PEOPLE_KINDS: dict[str, MapKind] = {
    'list_things': list_things,
    'is_there': is_there,
    'where_is': where_is,
    'last_seen': last_seen,
    'how_far': how_far,
    'way_back': way_back,
    'way_to': way_to,
    'nearest_thing': nearest_thing,
    'count_things': count_things,
}
