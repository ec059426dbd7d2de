# SPDX-License-Identifier: Apache-2.0
"""Rows that ask the same in other words.

`embodied-r questions` words each kind of question in a few ways, which a small model learns by
heart: in words that it has not met, it takes one kind for another. Here are more ways for
training alone. They are not those that the test rows hold out (`questions/wordings.py`).
"""

from __future__ import annotations

from dataclasses import replace
import re
from typing import TYPE_CHECKING

from embodied_r_ros.questions.wordings import WORDINGS

if TYPE_CHECKING:
    from random import Random

    from embodied_r_ros.rows import Row

MORE_WORDINGS: dict[str, tuple[str, ...]] = {
    'net_turn': (
        'Which way is the robot facing compared with when it started?',
        'In total, which way has the robot turned?',
        'What is the heading of the robot now, compared with its heading at the start?',
        'Where does the camera point now, measured against its first view?',
        'Add up the turns: how does the robot face relative to the start?',
        'How has the direction in which the robot looks changed since the beginning?',
        'Seen from its first heading, where does the robot look now?',
    ),
    'net_displacement': (
        'Where has the robot got to, relative to its starting point?',
        'Which way from the start does the robot stand now?',
        'In which direction has the robot moved overall?',
        'Adding up all moves, where does the robot end up?',
        'Where does the robot stand, measured from the place and heading it had first?',
        'From the point of view of the start, where is the robot?',
        'Which side of its starting place has the robot reached?',
    ),
    'height_change': (
        'Is the camera now above or below its first height?',
        'What happened to the height of the camera?',
        'Did the camera rise or sink, all in all?',
        'How high is the camera, compared with how high it was first?',
        'Relative to the beginning, has the camera gone up or down?',
        'What is the height of the camera now, measured against the start?',
    ),
    'item_direction': (
        'Where would one find the {item}, seen from the robot?',
        'Which way should the robot turn to see the {item}?',
        'Towards which side of the robot is the {item}?',
        'Tell the direction of the {item} from the robot.',
        'The {item}: in which direction does it lie now?',
        'As the robot stands now, where is the {item}?',
        'What is the direction from the robot to the {item} at present?',
    ),
    'first_sight': (
        'Which one was seen first?',
        'Which of them did the camera show first?',
        'What came into view first of all?',
        'Which of the following was noticed before the rest?',
        'In the order of being seen, which one comes first?',
        'Among these, what had the robot already seen before it saw the others?',
        'What was the first of these to be in view?',
    ),
    'how_many': (
        'What is the count of {colour} objects that were seen?',
        'How many objects that are {colour} has the camera shown?',
        'How many {colour} things were there to be seen?',
        'Tell the number of {colour} objects the robot came across.',
        'In all, how many {colour} objects has the robot seen?',
        'Of {colour} colour, how many objects were in view at some time?',
        'How often did a new {colour} object come into view?',
    ),
    'nearest': (
        'Which of them is the shortest way from the robot?',
        'What is closest to the robot now?',
        'Which one could the robot reach first from where it is?',
        'Which of the following stands nearest to the camera?',
        'At present, which one is the robot nearest to?',
        'What is the least distance away from the robot now?',
    ),
}


def reworded(row: Row, rng: Random) -> Row:
    """The same row in words for training; as it is where its words are of no known kind."""
    for kind, wordings in WORDINGS.items():
        for known in wordings:
            match = re.fullmatch(_pattern(known), row.question)
            if match and kind in MORE_WORDINGS:
                text = rng.choice(MORE_WORDINGS[kind]).format(**match.groupdict())
                return replace(row, question=text)
    return row


def _pattern(wording: str) -> str:
    """A wording as a regular expression whose groups are the names it leaves open."""
    parts = re.split(r'\{(\w+)\}', wording)
    return ''.join(
        f'(?P<{part}>.+)' if index % 2 else re.escape(part) for index, part in enumerate(parts)
    )
