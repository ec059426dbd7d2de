# SPDX-License-Identifier: Apache-2.0
"""Questions of UrbanVideo-Bench that a scene map decides, and what its directions need."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.scene.tools import called
from embodied_r_ros.data.questions.indoor import Draft, NoSolution, quarter_name
from embodied_r_ros.data.questions.wordings import wording

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

    from embodied_r_ros.data.questions.map_kinds import MapKind, MapMoment

_NEAR_M = 1.0  # at most so far is near, or beside
AWAY_M = 0.8  # nearer than this, a thing has no direction

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


PATH_KINDS: dict[str, MapKind] = {
    'object_recall': object_recall,
    'landmark_position': landmark_position,
    'action_generation': action_generation,
}
