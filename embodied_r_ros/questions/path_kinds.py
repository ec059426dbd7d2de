# SPDX-License-Identifier: Apache-2.0
"""Questions about a scene map, the way through it and the place now.

Those of UrbanVideo-Bench that a map and a path decide, and what people ask a robot.
"""

from __future__ import annotations

from itertools import product
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.questions.indoor import Draft, quarter, Unsolved
from embodied_r_ros.questions.map_kinds import clearly_least, first_sights_ns, RATIO
from embodied_r_ros.questions.wordings import wording
from embodied_r_ros.scene.map_relations import (
    approaches,
    bearing_deg,
    first_reach_ns,
    level_m,
    nearest_gap_m,
    REACH_M,
)
from embodied_r_ros.types.things import named_things, plural, with_article
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from embodied_r_ros.questions.map_kinds import MapKind, MapMoment
    from embodied_r_ros.types.geometry import Position
    from embodied_r_ros.types.landmarks import PathPoint

_NEAR_M = 1.0  # at most so far is near, or beside
_AT_M = 1.5  # at most so far from it, a way starts or ends at a thing
_NOT_REACHED = 1.6  # times the reach, at least, from which a thing is not reached
_AWAY_M = 0.8  # nearer than this, a thing has no direction
_MAX_SLACK_SHARE = 0.15
_ORDER_NS = NS_PER_S // 2
_ABSENT_SHARE = 0.5  # of the questions whether something is there
_ZERO_SHARE = 0.2  # of the counts

# Words for the quarter that something is in, by who is asked.
TURNS = {
    'ahead': 'straight ahead',
    'left': 'to the left',
    'right': 'to the right',
    'behind': 'behind you',
}
ACTIONS = {
    'ahead': 'I go forward.',
    'left': 'I turn left.',
    'right': 'I turn right.',
    'behind': 'I turn around.',
}
POSITIONS = {
    'ahead': 'I face the {item}.',
    'left': 'I have the {item} to my left.',
    'right': 'I have the {item} to my right.',
    'behind': 'I have my back to the {item}.',
}
CHANGES = ('It increases.', 'It decreases.', 'It remains constant.')
PRESENCE = ('yes', 'not that I have seen')
START_END = 'Start at the {a} and end at the {b}.'
GOING, ARRIVED = 'I go to the {item}.', 'I have arrived at the {item}.'
LONGER = (
    'It takes longer from the start to the {a}.',
    'It takes longer from the {a} to the {b}.',
    'Both take approximately the same time.',
)
_NO_PATH = 'the map has no path'
_UNCLEAR = 'no thing in a clear direction'


def _choice(
    moment: MapMoment, question: str, options: Sequence[str], truth: Mapping[str, Any]
) -> Draft:
    """A choice whose first option is right."""
    return Draft(question, tuple(options), options[0], source=moment.source, truth=dict(truth))


def clear_quarter(moment: MapMoment, to: Position) -> tuple[str, float, float] | None:
    """Quarter, bearing [degrees] and distance [m] of a place from now; None: it is not clear."""
    now = moment.now
    if now is None:
        return None
    level, degrees = level_m(now.position, to), bearing_deg(now, to)
    if level < _AWAY_M:
        return None
    slack_deg = 2 * moment.angle_slack_deg(level)
    names = {quarter(degrees + off) for off in (-slack_deg, 0.0, slack_deg)}
    where = names.pop()
    if names or where is None:
        return None
    return where, degrees, math.dist(now.position, to)


def _directions(
    moment: MapMoment, rng: Random, held_out: bool, kind: str, words: dict[str, str]
) -> Draft | Unsolved:
    """In which quarter a thing is."""
    if moment.now is None:
        return Unsolved(_NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        if place := clear_quarter(moment, thing.position):
            where, degrees, metres = place
            options = {name: text.format(item=thing.label) for name, text in words.items()}
            return Draft(
                wording(kind, rng, held_out, item=thing.label),
                tuple(options.values()),
                options[where],
                source=moment.source,
                truth=_place_truth(thing.label, degrees, metres),
            )
    return Unsolved(_UNCLEAR)


def _place_truth(label: str, degrees: float, metres: float) -> dict[str, Any]:
    return {'item': label, 'bearing_deg': round(degrees, 1), 'distance_m': round(metres, 2)}


def landmark_position(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """On which side of the robot a thing is."""
    return _directions(moment, rng, held_out, 'landmark_position', POSITIONS)


def action_generation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What to do next on the way to a thing."""
    return _directions(moment, rng, held_out, 'action_generation', ACTIONS)


def way_to(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Which way it is to a thing."""
    return _directions(moment, rng, held_out, 'way_to', TURNS)


def way_back(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Which way it is to the start."""
    if moment.start is None:
        return Unsolved(_NO_PATH)
    place = clear_quarter(moment, moment.start.position)
    if place is None:
        return Unsolved('the start is too near, or near the border between two directions')
    truth = _place_truth('start', *place[1:])
    question, options = wording('way_back', rng, held_out), tuple(TURNS.values())
    return Draft(question, options, TURNS[place[0]], source=moment.source, truth=truth)


def cognitive_map(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What is around the robot: two things, each in its direction."""
    if moment.now is None:
        return Unsolved(_NO_PATH)
    places = {
        thing.label: place[0]
        for thing in moment.singles
        if (place := clear_quarter(moment, thing.position))
    }
    if len(places) < 2:
        return Unsolved(_UNCLEAR)
    a, b = rng.sample(sorted(places), 2)
    right = places[a], places[b]
    other_a = rng.choice([name for name in POSITIONS if name not in right])
    other_b = rng.choice([name for name in POSITIONS if name not in (*right, other_a)])
    options = [
        f'{POSITIONS[first].format(item=a)} {POSITIONS[second].format(item=b)}'
        for first, second in product((right[0], other_a), (right[1], other_b))
    ]
    return _choice(moment, wording('cognitive_map', rng, held_out), options, places)


def where_is(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """In which direction a thing is, and how far away."""
    if moment.now is None:
        return Unsolved(_NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        place = clear_quarter(moment, thing.position)
        if place and moment.slack_m <= _MAX_SLACK_SHARE * place[2]:
            where, degrees, metres = place
            question = wording('where_is', rng, held_out, item=thing.label)
            truth = _place_truth(thing.label, degrees, metres)
            return _choice(moment, question, places_to_choose(where, metres, rng), truth)
    return Unsolved(_UNCLEAR)


def places_to_choose(where: str, metres: float, rng: Random) -> list[str]:
    """A place in words, and three others: another direction, another distance, and both.

    Each part stands in two of the four, so that they do not tell which one is right.
    """
    other_m = metres * rng.choice((0.5, 2.0) if metres >= 2 else (2.0, 3.0))
    other = rng.choice([name for name in TURNS if name != where])
    places = ((metres, where), (metres, other), (other_m, where), (other_m, other))
    return [f'{off:.1f} m {TURNS[name]}' for off, name in places]


def how_far(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """How far a thing is in a straight line."""
    if moment.now is None:
        return Unsolved(_NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        metres = math.dist(moment.now.position, thing.position)
        if metres >= _AWAY_M and moment.slack_m <= _MAX_SLACK_SHARE * metres:
            truth = {'item': thing.label, 'distance_m': round(metres, 3)}
            question = wording('how_far', rng, held_out, item=thing.label)
            return Draft(question, (), f'{metres:.1f}', 'number', moment.source, truth)
    return Unsolved('no thing is far enough away for its distance to be clear')


def nearest_thing(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Which of four things is nearest now."""
    now = moment.now
    if now is None:
        return Unsolved(_NO_PATH)
    off_m = {
        label: min(math.dist(now.position, thing.position) for thing in those)
        for label, those in moment.things.items()
    }
    for _ in range(20 if len(off_m) >= 3 else 0):
        labels = rng.sample(sorted(off_m), min(4, len(off_m)))
        if winner := clearly_least({label: off_m[label] for label in labels}, moment.slack_m):
            truth = {label: round(off_m[label], 2) for label in labels}
            question = wording('nearest_thing', rng, held_out)
            return Draft(question, tuple(labels), winner, source=moment.source, truth=truth)
    return Unsolved('no thing is clearly the nearest')


def proximity(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Whether the robot came nearer to a thing."""
    if moment.now is None or moment.start is None:
        return Unsolved(_NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        before, now = (
            math.dist(point.position, thing.position) for point in (moment.start, moment.now)
        )
        change = now - before
        is_clear = abs(change) >= 0.5 + 2 * moment.slack_m and (
            max(before, now) >= RATIO * min(before, now)
        )
        is_same = abs(change) + 2 * moment.slack_m <= 0.15
        if is_clear or is_same:
            solution = CHANGES[2 if is_same else int(change < 0)]
            question = wording('proximity', rng, held_out, item=thing.label)
            truth = {'item': thing.label, 'start_m': round(before, 2), 'now_m': round(now, 2)}
            return Draft(question, CHANGES, solution, source=moment.source, truth=truth)
    return Unsolved('no thing whose distance clearly changed, or clearly did not')


def start_end_position(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """At which things the way starts and ends."""
    if moment.now is None or moment.start is None:
        return Unsolved(_NO_PATH)
    ends = [_thing_at(moment, point) for point in (moment.start, moment.now)]
    others = sorted(label for label in moment.things if label not in ends)
    a, b = ends
    if not a or not b or a == b or len(others) < 2:
        return Unsolved('the way does not start at one thing and end at another')
    other_a, other_b = rng.sample(others, 2)
    pairs = product((a, other_a), (b, other_b))
    options = [START_END.format(a=first, b=second) for first, second in pairs]
    truth = {'start': a, 'end': b}
    return _choice(moment, wording('start_end_position', rng, held_out), options, truth)


def _thing_at(moment: MapMoment, point: PathPoint) -> str:
    """Label of the thing at which a point is; empty: there is none, or more than one."""
    off_m: dict[str, float] = {}
    for landmark in moment.scene.landmarks:
        metres = level_m(point.position, landmark.position)
        off_m[landmark.label] = min(metres, off_m.get(landmark.label, math.inf))
    label = clearly_least(off_m, moment.slack_m) if len(off_m) >= 2 else ''
    is_at = label in moment.things and off_m[label] + moment.slack_m <= _AT_M
    return label if is_at else ''


def object_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What is near a thing."""
    for item in rng.sample(moment.singles, len(moment.singles)):
        gaps = {
            label: nearest_gap_m(those, item)
            for label, those in moment.things.items()
            if label != item.label
        }
        near = [label for label, gap in gaps.items() if gap + moment.slack_m <= _NEAR_M]
        far = [label for label, gap in gaps.items() if gap - moment.slack_m >= 2 * _NEAR_M]
        if near and len(far) >= 3:
            options = [rng.choice(near), *rng.sample(far, 3)]
            question = wording('object_recall', rng, held_out, item=item.label)
            truth = {label: round(gaps[label], 2) for label in options}
            return _choice(moment, question, options, truth)
    return Unsolved('nothing stands near one thing and clearly away from others')


def reach_stamps(moment: MapMoment) -> dict[str, int | None]:
    """Stamp at which each thing of its own label was reached [ns]; None: it clearly was not.

    What was passed at neither a small nor a large distance is left out.
    """
    stamps: dict[str, int | None] = {}
    path = moment.scene.path
    for thing in moment.singles if path else ():
        off_m, _ = approaches(path, thing.position)
        stamp_ns = first_reach_ns(path, thing.position)
        if stamp_ns is not None and off_m + moment.slack_m <= REACH_M:
            stamps[thing.label] = stamp_ns
        elif off_m - moment.slack_m >= _NOT_REACHED * REACH_M:
            stamps[thing.label] = None
    return stamps


def _in_order(stamps: dict[str, int | None]) -> list[str]:
    """Labels that were reached, in order, each clearly after the one before."""
    order: list[str] = []
    times = {label: stamp for label, stamp in stamps.items() if stamp is not None}
    for label in sorted(times, key=times.__getitem__):
        if not order or times[label] - times[order[-1]] >= _ORDER_NS:
            order.append(label)
    return order


def sequence_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What the way led to after a thing."""
    stamps = reach_stamps(moment)
    order = _in_order(stamps)
    if len(order) < 2 or len(stamps) < 4:
        return Unsolved('the way led to fewer than two things, one after the other')
    index = rng.randrange(len(order) - 1)
    item, answer = order[index : index + 2]
    never = [label for label, stamp in stamps.items() if stamp is None]
    others = [label for label in (*order, *never) if label not in (item, answer)]
    if len(others) < 2:
        return Unsolved('too few other things to choose from')
    options = [answer, *rng.sample(others, min(3, len(others)))]
    question = wording('sequence_recall', rng, held_out, item=item)
    start_ns = moment.scene.path[0].stamp_ns
    truth = {
        label: round((stamp - start_ns) / NS_PER_S, 1)
        for label in (item, *options)
        if (stamp := stamps[label]) is not None
    }
    return _choice(moment, question, options, truth)


def progress_evaluation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """On which part of a route the robot is."""
    stamps = reach_stamps(moment)
    order = _in_order(stamps)
    never = [label for label, stamp in stamps.items() if stamp is None]
    count = rng.randrange(min(3, len(order)) + 1)
    past = [order[index] for index in sorted(rng.sample(range(len(order)), count))]
    stops = past + rng.sample(never, min(len(never), 3 - count))
    if len(stops) < 3:
        return Unsolved('too few things that were clearly reached, or clearly not')
    text = ', then to '.join(f'the {stop}' for stop in stops)
    options = [*(GOING.format(item=stop) for stop in stops), ARRIVED.format(item=stops[-1])]
    truth = {'stops': stops, 'reached': count}
    question = wording('progress_evaluation', rng, held_out, stops=text)
    return Draft(question, tuple(options), options[count], source=moment.source, truth=truth)


def duration(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Which of two stretches of the way took longer."""
    if moment.start is None:
        return Unsolved(_NO_PATH)
    first_ns = first_sights_ns(moment)
    singles = [thing.label for thing in moment.singles if thing.label in first_ns]
    for _ in range(20 if len(singles) >= 2 else 0):
        a, b = sorted(rng.sample(singles, 2), key=first_ns.__getitem__)
        to_a = (first_ns[a] - moment.start.stamp_ns) / NS_PER_S
        to_b = (first_ns[b] - first_ns[a]) / NS_PER_S
        is_clear = max(to_a, to_b) >= max(RATIO * min(to_a, to_b), min(to_a, to_b) + 1)
        is_same = min(to_a, to_b) >= 1 and abs(to_a - to_b) <= 0.05 * max(to_a, to_b)
        if min(to_a, to_b) >= 0.5 and (is_clear or is_same):
            options = tuple(text.format(a=a, b=b) for text in LONGER)
            solution = options[2 if is_same else int(to_b > to_a)]
            question = wording('duration', rng, held_out, a=a, b=b)
            truth = {'to_a_s': round(to_a, 1), 'to_b_s': round(to_b, 1)}
            return Draft(question, options, solution, source=moment.source, truth=truth)
    return Unsolved('no two stretches of the way whose times clearly differ')


def scene_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What came into view only after a thing had."""
    first_ns = first_sights_ns(moment)
    for item in rng.sample(sorted(first_ns), len(first_ns)):
        later = [k for k, stamp in first_ns.items() if stamp - first_ns[item] >= _ORDER_NS]
        before = [k for k, stamp in first_ns.items() if first_ns[item] - stamp >= _ORDER_NS]
        if len(later) >= 2 and len(before) >= 2:
            lists = list(product(*zip(rng.sample(later, 2), rng.sample(before, 2), strict=True)))
            options = [', '.join(each) for each in lists]
            start_ns = min(first_ns.values())
            truth = {
                label: round((first_ns[label] - start_ns) / NS_PER_S, 1)
                for label in {item, *(name for each in lists for name in each)}
            }
            question = wording('scene_recall', rng, held_out, item=item)
            return _choice(moment, question, options, dict(sorted(truth.items())))
    return Unsolved('too few things came into view before and after another one')


def list_things(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """What is there: the list in which everything was seen."""
    labels = sorted(moment.things)
    absent = _absent_names(moment)
    if len(labels) < 3 or len(absent) < 3:
        return Unsolved('too few things, or no names of others')
    there, away = rng.sample(labels, 3), rng.sample(absent, 3)
    # Each name stands in two of the four lists: none is the odd one out.
    lists = [there] + [[*away[:i], there[i], *away[i + 1 :]] for i in range(3)]
    options = [', '.join(each) for each in lists]
    truth = {'there': labels[:20]}
    return _choice(moment, wording('list_things', rng, held_out), options, truth)


def _absent_names(moment: MapMoment) -> list[str]:
    """Names of what the map has neither itself nor anything like it."""
    alike = {name for label in moment.things for name in moment.alike(label)}
    names = moment.absent(moment.names or named_things())
    # Of a small world of colours and shapes everything is like something.
    return [name for name in names if name not in alike] or names


def is_there(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """Whether a thing was seen."""
    present, absent = sorted(moment.things), _absent_names(moment)
    is_absent = rng.random() < _ABSENT_SHARE
    names = absent if is_absent else present
    if not names:
        return Unsolved('no name that is certainly there, or certainly not')
    name = rng.choice(names)
    question = wording('is_there', rng, held_out, a_item=with_article(name))
    truth = {'item': name, 'count': len(moment.things.get(name, ()))}
    solution = PRESENCE[int(is_absent)]
    return Draft(question, PRESENCE, solution, source=moment.source, truth=truth)


def count_things(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """How many things of a label were seen; none, where the truth is known."""
    # What has gone since was seen all the same.
    labels = [landmark.label for landmark in moment.scene.landmarks]
    counts = {label: labels.count(label) for label in moment.things}
    absent = _absent_names(moment) if moment.source == 'layout' else []
    if absent and rng.random() < _ZERO_SHARE:
        counts = {rng.choice(absent): 0}
    if not counts:
        return Unsolved('the map has no landmarks')
    number = rng.choice(sorted(set(counts.values())))
    label = rng.choice([label for label, count in counts.items() if count == number])
    question = wording('count_things', rng, held_out, items=plural(label))
    truth = {'item': label, 'count': number}
    return Draft(question, (), str(number), 'number', moment.source, truth)


def last_seen(moment: MapMoment, rng: Random, held_out: bool) -> Draft | Unsolved:
    """How long ago a thing was in view."""
    now = moment.now
    if now is None:
        return Unsolved(_NO_PATH)
    ages = {
        thing.label: (now.stamp_ns - thing.last_seen_ns) / NS_PER_S
        for thing in moment.singles
        if thing.last_seen_ns
    }
    old = sorted(label for label, age_s in ages.items() if age_s >= 1)
    if not old:
        return Unsolved('everything was in view within the last second')
    label = rng.choice(old)
    truth = {'item': label, 'age_s': round(ages[label], 2)}
    question = wording('last_seen', rng, held_out, item=label)
    return Draft(question, (), f'{ages[label]:.0f}', 'number', moment.source, truth)


PATH_KINDS: dict[str, MapKind] = {
    # UrbanVideo-Bench
    'start_end_position': start_end_position,
    'object_recall': object_recall,
    'sequence_recall': sequence_recall,
    'scene_recall': scene_recall,
    'proximity': proximity,
    'duration': duration,
    'landmark_position': landmark_position,
    'cognitive_map': cognitive_map,
    'progress_evaluation': progress_evaluation,
    'action_generation': action_generation,
    # people
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
