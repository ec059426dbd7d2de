# SPDX-License-Identifier: Apache-2.0
"""Questions of UrbanVideo-Bench that a scene map and the way through it decide."""

from __future__ import annotations

from itertools import product
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.map_relations import REACH_M
from embodied_r_ros.core.scene.tools import called, ROBOT, START
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.questions.indoor import Draft, NoSolution, quarter_name
from embodied_r_ros.data.questions.map_kinds import clearly_least, first_sights_ns, RATIO
from embodied_r_ros.data.questions.wordings import wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from embodied_r_ros.data.questions.map_kinds import MapKind, MapMoment

_NEAR_M = 1.0  # at most so far is near, or beside
_AT_M = 1.5  # at most so far from it, a way starts or ends at a thing
_NOT_REACHED = 1.6  # times the reach, at least, from which a thing is not reached
AWAY_M = 0.8  # nearer than this, a thing has no direction
_ORDER_NS = NS_PER_S // 2

# Words for the quarter that something is in.
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
START_END = 'Start at the {a} and end at the {b}.'
GOING, ARRIVED = 'I go to the {item}.', 'I have arrived at the {item}.'
LONGER = (
    'It takes longer from the start to the {a}.',
    'It takes longer from the {a} to the {b}.',
    'Both take approximately the same time.',
)
NO_PATH = 'the map has no path'
UNCLEAR = 'no thing in a clear direction'


def choice_of_first(
    moment: MapMoment, question: str, options: Sequence[str], truth: Mapping[str, Any]
) -> Draft:
    """A choice whose first option is right."""
    return Draft(question, tuple(options), options[0], source=moment.source, truth=dict(truth))


def clear_quarter(moment: MapMoment, name: str) -> tuple[str, float, float] | None:
    """Quarter, bearing [degrees] and distance [m] of a thing from now; None: it is not clear."""
    place = moment.tools.where(name)
    if not place.is_known or place.facts['level_m'] < AWAY_M:
        return None
    degrees, slack_deg = place.number, place.facts['slack_deg']
    names = {quarter_name(degrees + off) for off in (-slack_deg, 0.0, slack_deg)}
    where = names.pop()
    if names or where is None:
        return None
    return where, degrees, place.facts['distance_m']


def directions(
    moment: MapMoment, rng: Random, held_out: bool, kind: str, words: dict[str, str]
) -> Draft | NoSolution:
    """In which quarter a thing is."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        if place := clear_quarter(moment, called(thing.label)):
            where, degrees, metres = place
            options = {name: text.format(item=thing.label) for name, text in words.items()}
            return Draft(
                wording(kind, rng, held_out, item=thing.label),
                tuple(options.values()),
                options[where],
                source=moment.source,
                truth=place_truth(thing.label, degrees, metres),
            )
    return NoSolution(UNCLEAR)


def place_truth(label: str, degrees: float, metres: float) -> dict[str, Any]:
    """The numbers behind a place as seen from now."""
    return {'item': label, 'bearing_deg': round(degrees, 1), 'distance_m': round(metres, 2)}


def landmark_position(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """On which side of the robot a thing is."""
    return directions(moment, rng, held_out, 'landmark_position', POSITIONS)


def action_generation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What to do next on the way to a thing."""
    return directions(moment, rng, held_out, 'action_generation', ACTIONS)


def cognitive_map(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What is around the robot: two things, each in its direction."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    places = {
        thing.label: place[0]
        for thing in moment.singles
        if (place := clear_quarter(moment, called(thing.label)))
    }
    if len(places) < 2:
        return NoSolution(UNCLEAR)
    a, b = rng.sample(sorted(places), 2)
    right = places[a], places[b]
    other_a = rng.choice([name for name in POSITIONS if name not in right])
    other_b = rng.choice([name for name in POSITIONS if name not in (*right, other_a)])
    options = [
        f'{POSITIONS[first].format(item=a)} {POSITIONS[second].format(item=b)}'
        for first, second in product((right[0], other_a), (right[1], other_b))
    ]
    return choice_of_first(moment, wording('cognitive_map', rng, held_out), options, places)


def proximity(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Whether the robot came nearer to a thing."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    for thing in rng.sample(moment.singles, len(moment.singles)):
        before, now = (
            moment.tools.distance(called(thing.label), end).number for end in (START, ROBOT)
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
    return NoSolution('no thing whose distance clearly changed, or clearly did not')


def start_end_position(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """At which things the way starts and ends."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    ends = [_thing_at(moment, end) for end in (START, ROBOT)]
    others = sorted(label for label in moment.things if label not in ends)
    a, b = ends
    if not a or not b or a == b or len(others) < 2:
        return NoSolution('the way does not start at one thing and end at another')
    other_a, other_b = rng.sample(others, 2)
    pairs = product((a, other_a), (b, other_b))
    options = [START_END.format(a=first, b=second) for first, second in pairs]
    truth = {'start': a, 'end': b}
    return choice_of_first(moment, wording('start_end_position', rng, held_out), options, truth)


def _thing_at(moment: MapMoment, end: str) -> str:
    """Label of the thing at an end of the way; empty: there is none, or more than one."""
    off_m = moment.tools.gaps(end, from_above=True) if moment.things else {}
    label = clearly_least(off_m, moment.slack_m) if len(off_m) >= 2 else ''
    is_at = label in moment.things and off_m[label] + moment.slack_m <= _AT_M
    return label if is_at else ''


def object_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What is near a thing."""
    for item in rng.sample(moment.singles, len(moment.singles)):
        gaps = {
            label: moment.tools.distance(called(label), called(item.label)).number
            for label in moment.things
            if label != item.label
        }
        near = [label for label, gap in gaps.items() if gap + moment.slack_m <= _NEAR_M]
        far = [label for label, gap in gaps.items() if gap - moment.slack_m >= 2 * _NEAR_M]
        if near and len(far) >= 3:
            options = [rng.choice(near), *rng.sample(far, 3)]
            question = wording('object_recall', rng, held_out, item=item.label)
            truth = {label: round(gaps[label], 2) for label in options}
            return choice_of_first(moment, question, options, truth)
    return NoSolution('nothing stands near one thing and clearly away from others')


def reach_stamps(moment: MapMoment) -> dict[str, int | None]:
    """Stamp at which each thing of its own label was reached [ns]; None: it clearly was not.

    What was passed at neither a small nor a large distance is left out.
    """
    stamps: dict[str, int | None] = {}
    labels = [thing.label for thing in moment.singles]
    way = moment.tools.visited(labels).facts
    for label in labels if way else ():
        off_m, stamp_ns = way['off_m'][label], way['stamps_ns'].get(label)
        if stamp_ns is not None and off_m + moment.slack_m <= REACH_M:
            stamps[label] = stamp_ns
        elif off_m - moment.slack_m >= _NOT_REACHED * REACH_M:
            stamps[label] = None
    return stamps


def _in_order(stamps: dict[str, int | None]) -> list[str]:
    """Labels that were reached, in order, each clearly after the one before."""
    order: list[str] = []
    times = {label: stamp for label, stamp in stamps.items() if stamp is not None}
    for label in sorted(times, key=times.__getitem__):
        if not order or times[label] - times[order[-1]] >= _ORDER_NS:
            order.append(label)
    return order


def sequence_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """What the way led to after a thing."""
    stamps = reach_stamps(moment)
    order = _in_order(stamps)
    if len(order) < 2 or len(stamps) < 4:
        return NoSolution('the way led to fewer than two things, one after the other')
    index = rng.randrange(len(order) - 1)
    item, answer = order[index : index + 2]
    never = [label for label, stamp in stamps.items() if stamp is None]
    others = [label for label in (*order, *never) if label not in (item, answer)]
    if len(others) < 2:
        return NoSolution('too few other things to choose from')
    options = [answer, *rng.sample(others, min(3, len(others)))]
    question = wording('sequence_recall', rng, held_out, item=item)
    start_ns = moment.tools.start.stamp_ns
    truth = {
        label: round((stamp - start_ns) / NS_PER_S, 1)
        for label in (item, *options)
        if (stamp := stamps[label]) is not None
    }
    return choice_of_first(moment, question, options, truth)


def progress_evaluation(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """On which part of a route the robot is."""
    stamps = reach_stamps(moment)
    order = _in_order(stamps)
    never = [label for label, stamp in stamps.items() if stamp is None]
    count = rng.randrange(min(3, len(order)) + 1)
    past = [order[index] for index in sorted(rng.sample(range(len(order)), count))]
    stops = past + rng.sample(never, min(len(never), 3 - count))
    if len(stops) < 3:
        return NoSolution('too few things that were clearly reached, or clearly not')
    text = ', then to '.join(f'the {stop}' for stop in stops)
    options = [*(GOING.format(item=stop) for stop in stops), ARRIVED.format(item=stops[-1])]
    truth = {'stops': stops, 'reached': count}
    question = wording('progress_evaluation', rng, held_out, stops=text)
    return Draft(question, tuple(options), options[count], source=moment.source, truth=truth)


def duration(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
    """Which of two stretches of the way took longer."""
    if not moment.scene.path:
        return NoSolution(NO_PATH)
    first_ns = first_sights_ns(moment)
    singles = [thing.label for thing in moment.singles if thing.label in first_ns]
    for _ in range(20 if len(singles) >= 2 else 0):
        a, b = sorted(rng.sample(singles, 2), key=first_ns.__getitem__)
        to_a = (first_ns[a] - moment.tools.start.stamp_ns) / NS_PER_S
        to_b = (first_ns[b] - first_ns[a]) / NS_PER_S
        is_clear = max(to_a, to_b) >= max(RATIO * min(to_a, to_b), min(to_a, to_b) + 1)
        is_same = min(to_a, to_b) >= 1 and abs(to_a - to_b) <= 0.05 * max(to_a, to_b)
        if min(to_a, to_b) >= 0.5 and (is_clear or is_same):
            options = tuple(text.format(a=a, b=b) for text in LONGER)
            solution = options[2 if is_same else int(to_b > to_a)]
            question = wording('duration', rng, held_out, a=a, b=b)
            truth = {'to_a_s': round(to_a, 1), 'to_b_s': round(to_b, 1)}
            return Draft(question, options, solution, source=moment.source, truth=truth)
    return NoSolution('no two stretches of the way whose times clearly differ')


def scene_recall(moment: MapMoment, rng: Random, held_out: bool) -> Draft | NoSolution:
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
            return choice_of_first(moment, question, options, dict(sorted(truth.items())))
    return NoSolution('too few things came into view before and after another one')


PATH_KINDS: dict[str, MapKind] = {
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
}
