# SPDX-License-Identifier: Apache-2.0
"""How each kind of question may be worded; the last wording of each is held out from training."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.questions.map_wordings import MAP_WORDINGS

if TYPE_CHECKING:
    from random import Random

# Options of the motion questions, by the quarter that a direction lies in.
FACINGS = {
    'ahead': 'the same way as at the start',
    'left': 'to the left of it',
    'right': 'to the right of it',
    'behind': 'the opposite way',
}
PLACES = {
    'ahead': 'ahead of the start',
    'behind': 'behind the start',
    'left': 'to the left of the start',
    'right': 'to the right of the start',
}
# Options of `revisit`: is it at its first place, and does it have its first view?
RETURNS = {
    'back': 'back at the start, facing the same way',
    'turned': 'back at the start, facing another way',
    'away': 'away from the start',
}
HEIGHTS = ('higher', 'lower', 'at the same height')

WORDINGS: dict[str, tuple[str, ...]] = {
    'net_turn': (
        'Which way does the robot face now, compared with the start?',
        'After all its turns, where does the robot look, compared with the beginning?',
        'Compared with its first view, which way is the robot turned now?',
        'Taking all turns together, how is the robot oriented now relative to how it began?',
    ),
    'net_displacement': (
        'Where is the robot now, as seen from its start and first heading?',
        'Compared with the starting point, where has the robot ended up?',
        'Taking the first view as forward, where is the robot now?',
        'Relative to where and how it began, at which side of the start does the robot stand now?',
    ),
    'height_change': (
        'Is the camera higher or lower than at the start?',
        'How has the height of the camera changed since the start?',
        'Compared with the first view, at what height is the camera now?',
        'Did the camera end up above or below the height at which it began?',
    ),
    'revisit': (
        'Is the robot back where it started?',
        'Has the robot come back to its first place and its first view?',
        'Compared with the place and the view of its start, where is the robot now?',
        'Did the way of the robot end at the place and with the view with which it had begun?',
    ),
    'item_direction': (
        'Where is the {item} now, as seen from the robot?',
        'In which direction from the robot is the {item} now?',
        'If the robot wanted to face the {item}, where would it have to look?',
        'On which side of the robot does the {item} lie at this moment?',
    ),
    'first_sight': (
        'Which of these did the robot see first?',
        'Which of these came into view before the others?',
        'What did the robot see earliest?',
        'Of these, which one appeared to the robot at the earliest time?',
    ),
    'how_many': (
        'How many {colour} objects has the robot seen?',
        'How many different {colour} objects came into view so far?',
        'Count the {colour} objects that the robot saw.',
        'What is the number of {colour} objects that have been in view until now?',
    ),
    'nearest': (
        'Which of these is nearest to the robot now?',
        'Which of these is closest to the camera now?',
        'What is the robot standing closest to now?',
        'Of these, which one has the shortest distance to the robot at this moment?',
    ),
}

# Kinds that the camera's poses alone prove, and that are worded without names of items.
MOTION_KINDS = ('net_turn', 'net_displacement', 'height_change', 'revisit')

# Questions that no observation of these kinds can answer: (for training, held out).
FOREIGN: dict[bool, tuple[tuple[str, tuple[str, ...]], ...]] = {
    False: (
        ('What is the temperature of the room?', ('18 degrees', '21 degrees', '25 degrees')),
        ('What is the person in the room called?', ('Ann', 'Bob', 'Carl')),
        ('Which day of the week is it?', ('Monday', 'Wednesday', 'Sunday')),
        ('How heavy is the robot?', ('5 kg', '20 kg', '80 kg')),
        ('Which music is playing?', ('jazz', 'a march', 'none')),
        ('What does the room smell of?', ('paint', 'coffee', 'nothing')),
        ('Who built this house?', ('a company', 'the owner', 'nobody knows')),
        ('What is written on the door?', ('exit', 'private', 'push')),
        ('How full is the battery?', ('a quarter', 'half', 'full')),
        ('Which colour does the robot itself have?', ('white', 'black', 'orange')),
        ('What is 17 times 23?', ('391', '401', '361')),
        ('Is it raining outside?', ('yes', 'no', 'a little')),
    ),
    True: (
        ('What is the capital of France?', ('Lyon', 'Paris', 'Nice')),
        ('How old is the building?', ('5 years', '50 years', '200 years')),
        ('What will the robot do tomorrow?', ('charge', 'patrol', 'rest')),
        ('Which language do the people here speak?', ('French', 'Korean', 'Spanish')),
        ('What does the sofa cost?', ('100', '500', '2000')),
        ('Is somebody talking?', ('yes', 'no', 'two people are')),
    ),
}


def wording(kind: str, rng: Random, held_out: bool, **words: str) -> str:
    """Word a question of a kind, filling in names such as `item`."""
    *common, rare = (WORDINGS if kind in WORDINGS else MAP_WORDINGS)[kind]
    return (rare if held_out else rng.choice(common)).format(**words)
