# SPDX-License-Identifier: Apache-2.0
"""How each kind of question may be worded; the last wording of each is held out from training.

The first wordings of questions about a scene map are those of the benchmarks (VSI-Bench;
UrbanVideo-Bench, where it has one): they are what a robot will be asked.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
        'Compared with the start, which way does the robot look now?',
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

# Of questions about a scene map.
_QUADRANTS = (
    '\nThe directions refer to the quadrants of a Cartesian plane (if I am standing at the origin '
    'and facing along the positive y-axis).'
)
_AT_THE_BACK = (
    '\nAn object is to my back if I would have to turn at least 135 degrees in order to face it.'
)
_ROUTE_STEPS = 'You will perform the following actions (Note: for each [please fill in], choose '
_ROUTE_NOTE = f"{_ROUTE_STEPS}either 'turn back,' 'turn left,' or 'turn right.'): {{steps}}."
_DIRECTION_END = 'front-left, front-right, back-left, or back-right'

MAP_WORDINGS: dict[str, tuple[str, ...]] = {
    # VSI-Bench
    'object_counting': (
        'How many {item}(s) are in this room?',
        'How many {items} does this room have?',
        'Count the {items} in this room.',
        'What is the number of {items} that this room holds?',
    ),
    'object_abs_distance': (
        'Measuring from the closest point of each object, what is the distance between the {a} '
        'and the {b} (in meters)?',
        'How many meters apart are the {a} and the {b} at their closest points?',
        'How far is the {a} from the {b}, closest point to closest point (in meters)?',
        'What is the gap between the {a} and the {b} in meters?',
    ),
    'object_rel_distance': (
        'Measuring from the closest point of each object, which of these objects ({options}) is '
        'the closest to the {reference}?',
        'Which of these is nearest to the {reference}: {options}?',
        'Of {options}, which one stands closest to the {reference}?',
        'Among {options}, what has the smallest distance to the {reference}?',
    ),
    'object_rel_direction_easy': (
        'If I am standing by the {at} and facing the {facing}, is the {item} to the left or the '
        'right of the {facing}?',
        'I stand at the {at} and look at the {facing}. Is the {item} left or right of it?',
        'Seen from the {at} towards the {facing}, is the {item} on the left or on the right?',
        'From the {at}, with the {facing} straight ahead, to which hand is the {item}?',
    ),
    'object_rel_direction_medium': (
        'If I am standing by the {at} and facing the {facing}, is the {item} to my left, right, '
        f'or back?{_AT_THE_BACK}',
        'I stand at the {at} and look at the {facing}. Is the {item} to my left, right, or back '
        '(a turn of at least 135 degrees)?',
        'If somebody stands by the {at} and faces the {facing}, where is the {item}: left, right, '
        'or back?',
        'From the {at}, with the {facing} straight ahead, must one turn left, right, or back to '
        'face the {item}?',
    ),
    'object_rel_direction_hard': (
        'If I am standing by the {at} and facing the {facing}, is the {item} to my '
        f'{_DIRECTION_END}?{_QUADRANTS}',
        f'I stand at the {{at}} and look at the {{facing}}. Is the {{item}} {_DIRECTION_END}?',
        'If somebody stands by the {at} and faces the {facing}, in which quadrant is the {item}: '
        f'{_DIRECTION_END}?',
        'From the {at}, with the {facing} straight ahead, which quadrant has the {item}?',
    ),
    'object_size_estimation': (
        'What is the length of the longest dimension (length, width, or height) of the {item}, '
        'measured in centimeters?',
        'How many centimeters does the {item} measure at its longest?',
        'How large is the {item}, along its longest side, in centimeters?',
        'What is the greatest extent of the {item} in centimeters?',
    ),
    'room_size_estimation': (
        'What is the size of this room (in square meters)? \nIf multiple rooms are shown, '
        'estimate the size of the combined space.',
        'How large is this room, in square meters?',
        'How many square meters of floor does this room have?',
        'What is the floor area of this place in square meters?',
    ),
    'obj_appearance_order': (
        'What will be the first-time appearance order of the following categories in the video: '
        '{options}?',
        'In which order did these come into view for the first time: {options}?',
        'Put these in the order in which they were first seen: {options}.',
        'Of {options}, what was seen first, second, third and last?',
    ),
    'route_planning': (
        'You are a robot beginning at the {start} and facing the {facing}. You want to navigate '
        f'to the {{goal}}. {_ROUTE_NOTE} You have reached the final destination.',
        'You are a robot beginning at the {start} facing the {facing}. You want to navigate to '
        f'the {{goal}}. {_ROUTE_NOTE} You have reached the final destination.',
        'You stand at the {start} and face the {facing}. Fill in the turns (back, left or right) '
        'of your way to the {goal}: {steps}.',
        'From the {start}, looking at the {facing}, a robot goes to the {goal}. Which turns are '
        'left out: {steps}?',
    ),
    # UrbanVideo-Bench, as far as tools decide it
    'object_recall': (
        'What is near the {item}?',
        'What is next to the {item}?',
        'Which of these stands beside the {item}?',
        'What has its place right at the {item}?',
    ),
    'landmark_position': (
        'When you reach the current location, what is your position from the {item}?',
        'Where is the {item} relative to you at your current location?',
        'At the current location, on which side of you is the {item}?',
        'As you are now, where do you have the {item}?',
    ),
    'action_generation': (
        'At the initial position, you are asked to navigate to the {item}. What is your next '
        'step?',
        'You want to go to the {item}. In terms of next steps, what is the best next step?',
        'What do you do next in order to get to the {item}?',
        'Which action brings you on your way to the {item} now?',
    ),
    # What people ask a robot
    'list_things': (
        'What is there?',
        'What have you seen so far?',
        'Which things are here?',
        'What can be found in this place?',
    ),
    'is_there': (
        'Is there {a_item} here?',
        'Have you seen {a_item}?',
        'Did you come across {a_item}?',
        'Does this place have {a_item}, as far as you have looked?',
    ),
    'where_is': (
        'Where is the {item}?',
        'Where did you see the {item}, as seen from here?',
        'Where can I find the {item}?',
        'Which way and how far is it to the {item}?',
    ),
    'last_seen': (
        'How many seconds ago did you last see the {item}?',
        'When was the {item} last seen (in seconds before now)?',
        'How long ago, in seconds, was the {item} in view for the last time?',
        'How many seconds have gone by since your last sight of the {item}?',
    ),
    'how_far': (
        'How far is the {item} from you now (in meters)?',
        'How many meters away is the {item}?',
        'What is the distance from here to the {item}, in meters?',
        'How many meters would it be from you to the {item} in a straight line?',
    ),
    'way_back': (
        'Which way is it back to the start?',
        'Which way back to where you began?',
        'In which direction is your starting point now?',
        'Where would you have to head in order to return to the beginning?',
    ),
    'way_to': (
        'Which way is it to the {item}?',
        'Which way back to the {item}?',
        'In which direction do I go for the {item}?',
        'Where would you have to head in order to be at the {item}?',
    ),
    'nearest_thing': (
        'Which of these is closest to you now?',
        'What are you nearest to at the moment?',
        'Which of these things is the least far from here?',
        'To which of these is it the shortest way now?',
    ),
    'count_things': (
        'How many {items} did you see?',
        'How many {items} have you seen so far?',
        'How many different {items} have been in view?',
        'What is the number of {items} that you came across?',
    ),
}

# What no map tells of a thing, and options to choose from: (for training, held out).
UNKNOWN_PROPERTIES: dict[bool, tuple[tuple[str, tuple[str, ...]], ...]] = {
    False: (
        ('What colour is the {item}?', ('white', 'brown', 'grey', 'blue')),
        ('How heavy is the {item}?', ('1 kg', '5 kg', '20 kg')),
        ('Who does the {item} belong to?', ('the tenant', 'a guest', 'nobody')),
        ('What is the {item} made of?', ('wood', 'metal', 'plastic', 'glass')),
        ('What is inside the {item}?', ('nothing', 'paper', 'clothes')),
        ('Where will the {item} be tomorrow?', ('here', 'in another room', 'outside')),
        ('Is the {item} warm?', ('yes', 'no')),
        ('Is the {item} switched on?', ('yes', 'no')),
        ('What is written on the {item}?', ('a name', 'a number', 'a warning')),
        ('How much did the {item} cost?', ()),
    ),
    True: (
        ('How old is the {item}?', ('a year', 'ten years', 'fifty years')),
        ('Who will use the {item} next?', ('a child', 'the owner', 'a robot')),
        ('Is the {item} broken?', ('yes', 'no')),
        ('Which brand is the {item} of?', ()),
    ),
}


def wording(kind: str, rng: Random, held_out: bool, **words: str) -> str:
    """Word a question of a kind, filling in names such as `item`."""
    *common, rare = WORDINGS.get(kind) or MAP_WORDINGS[kind]
    return (rare if held_out else rng.choice(common)).format(**words)


def wording_pattern(template: str) -> re.Pattern[str]:
    """What matches a wording with any names filled in; groups by the names of the slots.

    >>> wording_pattern('Where is the {item}?').fullmatch('Where is the red cup?')['item']
    'red cup'
    """
    pieces: list[str] = []
    slots: set[str] = set()
    for text, slot in re.findall(r'([^{]*)(?:\{(\w+)\})?', template):
        pieces.append(re.escape(text))
        if slot:
            pieces.append(f'(?P={slot})' if slot in slots else f'(?P<{slot}>.+?)')
            slots.add(slot)
    return re.compile(''.join(pieces), re.DOTALL)
