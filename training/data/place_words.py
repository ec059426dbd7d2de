# SPDX-License-Identifier: Apache-2.0
"""More words for questions about a place: for training alone, and none that is held out.

Of what stands in brackets one is chosen. Each says with a word of `scene/map_text.py` what it asks
for, so that the text about the place holds it.
"""

from __future__ import annotations

import re

# What a question may begin with; most begin at once.
OPENERS = ('', '', '', '', 'Tell me: ', 'From what is known of the place: ', 'Please say: ')
_STAND = '[I am at|I stand beside|You stand at|A person stands by|The robot is at] the {at}'
_FACE = '[facing|looking at|looking towards|turned towards] the {facing}'
_QUADRANTS = 'front-left, front-right, back-left, or back-right'
MORE_MAP_WORDINGS: dict[str, tuple[str, ...]] = {
    'object_counting': (
        '[Give|Say] the count of {items} [here|in this place|in the room].',
        'How many {items} [stand|are there|can be counted] in [the|this] room?',
        '[Number|Total] of {items} [here|in the room]?',
        'How often is there [one of the|one of] {items} in this room?',
    ),
    'object_abs_distance': (
        '[Give|Say|Estimate] the distance between the {a} and the {b} [in meters|in metres].',
        'From the {a} to the {b}: how [far|many meters] is it, between their closest points?',
        'How far [away from|from] the {a} [stands|lies|is] the {b}, in meters?',
        'Measure from the {a} to the {b}, at their closest: how many [meters|metres] apart?',
    ),
    'object_rel_distance': (
        'The {reference}: which of {options} is [nearest|closest] to it?',
        'Which [object|thing] is [nearest|closest] to the {reference}, of these: {options}?',
        'Seen from the {reference}, which is [the closest|the nearest|least far]: {options}?',
        '[Compare|Look at] {options}. Which is [closest|nearest] to the {reference}?',
    ),
    'object_rel_direction_easy': (
        f'{_STAND}, {_FACE}. Is the {{item}} [on the left or on the right|left or right]?',
        f'{_STAND}, {_FACE}: [to which side|on which side, left or right,] is the {{item}}?',
        '[Being|Placed] at the {at} and looking at the {facing}, is the {item} right or left?',
        'Who stands at the {at} and looks at the {facing}: has he the {item} left or right?',
    ),
    'object_rel_direction_medium': (
        f'{_STAND}, {_FACE}. Is the {{item}} [left, right, or back|to the left, right or back]?',
        f'{_STAND}, {_FACE}. Left, right or back: where is the {{item}}?',
        '[Being|Placed] at the {at} and looking at the {facing}, is the {item} left, right or '
        'back?',
        'Who stands at the {at} and looks at the {facing}: has he the {item} left, right or back?',
    ),
    'object_rel_direction_hard': (
        f'{_STAND}, {_FACE}. Is the {{item}} {_QUADRANTS}?',
        f'{_STAND}, {_FACE}. Where is the {{item}}: {_QUADRANTS}?',
        '[Being|Placed] at the {at} and looking at the {facing}, in which quarter is the {item}?',
        'Who stands at the {at} and looks at the {facing}: in which quadrant is the {item}?',
    ),
    'object_size_estimation': (
        '[Give|Say|Estimate] the longest dimension of the {item} in centimeters.',
        'The {item}: how many centimeters is its [longest|largest] side?',
        '[What|Which] length has the {item}, along the longest of its sides, in centimeters?',
        'How many centimeters [long|tall] is the {item}, where it is largest?',
    ),
    'room_size_estimation': (
        '[Give|Say|Estimate] the [area|size] of [this room|the room] in square meters.',
        'How big is [this room|the room|the floor], in square meters?',
        '[This room|The room]: how many square meters is its floor?',
    ),
    'obj_appearance_order': (
        '[Order|List|Name] these by [their first sight|when each was first seen]: {options}.',
        '{options}: in [what|which] order did they [appear|come into view|come in sight]?',
        'In [what|which] order [have you seen|did you see] {options}?',
        'Starting with what was seen first, what is the order of {options}?',
        '[Bring|Put] {options} in the order of their [first sight|first appearance].',
        'Of {options}: [what|which] [came|was noticed] first, and in what order the others?',
        'Say of {options} what you [noticed|saw] first, [then|next] and at the end.',
        '{options}: [which|what] was first in view, [what then|which next], which last?',
        'First, then and last: how did {options} [appear|come into view]?',
    ),
    'route_planning': (
        'You [begin|set out] at the {start}, [facing|looking at] the {facing}, and go to the '
        '{goal}. Which turns [belong in the gaps|must be filled in]: {steps}?',
        'A robot stands at the {start} and [faces|looks at] the {facing}. Fill in the turns of '
        'its way to the {goal}: {steps}.',
        'Facing the {facing}, you stand at the {start}. Which turns does the way to the {goal} '
        'lack: {steps}?',
        'To go to the {goal}, beginning at the {start} with a look at the {facing}, say each '
        'turn that is blank: {steps}.',
    ),
    'start_end_position': (
        'What [was near|stood by] the start of your way, and what [is near|stands by] its end?',
        '[Between which things|From what to what] did your journey lead, from its start to now?',
        'At which things [begins|starts] the way, and at which is its end?',
    ),
    'object_recall': (
        'What is [closest|nearest] to the {item}?',
        'Which [of them|thing] is near the {item}?',
        'The {item}: what is [next to|close to|near] it?',
        'What stands [at the least distance from|nearest to] the {item}?',
        'What is [placed|put] right by the {item}?',
        'What has the {item} [close to|near] it?',
    ),
    'sequence_recall': (
        'After [you reached|you came to|passing] the {item}, what [was next|did you pass]?',
        'Which [one|of these] came after the {item} on your [route|tour]?',
        'What was passed next after the {item}?',
        'Once at the {item}, what did [the way|your way] come to next?',
        'Which was the next thing that you reached once past the {item}?',
    ),
    'scene_recall': (
        'What [appeared|came into view|was noticed] after the first sight of the {item}?',
        '[When you had|After you had] seen the {item}, what did you see for the first time?',
        'Which [of these|things] were seen only after the {item}?',
        'The {item} was seen. What was seen [later|after that] for the first time?',
        'What was new to [you|your view] once you had met the {item}?',
        'Once you saw the {item}, what [else|more] came?',
    ),
    'proximity': (
        'Is the {item} [closer or farther|nearer or farther] now, compared with the start?',
        'From the start to now, how did the distance to the {item} [change|become]?',
        'How has your way changed the distance from you to the {item} since the start?',
        'Did you [come|get] nearer to the {item} or go farther away since the start?',
        'Has the {item} become nearer or farther [since the start|since you began]?',
        'Is the distance to the {item} greater or smaller now than at the start?',
    ),
    'duration': (
        'Which time was longer: from the start to seeing the {a}, or from that to seeing the {b}?',
        'When was more time spent: from the start until you saw the {a}, or from that until you '
        'saw the {b}?',
    ),
    'landmark_position': (
        '[At present|Now], where is the {item} from you?',
        'The {item}: on which side of [you|the robot] is it now?',
        'Where do you have the {item} [now|at this moment]?',
        'In relation to you, where is the {item} now?',
    ),
    'cognitive_map': (
        'What is [around|about] you [here|now|at the moment]?',
        'How are things placed around you [here|now|at present]?',
        '[Say|Tell] what surrounds you [here|now].',
        'How does what you saw lie about you [now|at present]?',
    ),
    'progress_evaluation': (
        'You were told to go to {stops}. [What do you do|What is going on] now?',
        'The route is: go to {stops}. Which part of it do you do now?',
        'Of the route to {stops}, what do you do [now|at the moment]?',
    ),
    'action_generation': (
        'What is your next [step|action] [to get to|to reach|on the way to] the {item} now?',
        '[To go to|To reach] the {item}, what do you do now?',
        'You are sent to the {item}. What do you do [now|first]?',
    ),
    'list_things': (
        'What [things|objects] [are here|are there|have you seen]?',
        '[List|Name|Tell me] [some things that you saw|what is here|what there is here].',
        'What [did you see|was seen|did you notice] [here|so far|in this room]?',
        'Which [objects|things] does [this room|this place|the room] have?',
    ),
    'is_there': (
        '[Can you tell whether|Say whether] there is {a_item} here.',
        'Did you [see|notice|find] {a_item} [here|in this room]?',
        'Is {a_item} [in this room|to be found here|in this place]?',
        'Does this room have {a_item}?',
    ),
    'where_is': (
        '[Say|Tell] where the {item} is [now|from here].',
        'The {item}: where is it from here?',
        'Where [must|should] one [look|go] for the {item}?',
        'How far and which way is the {item} from here?',
    ),
    'last_seen': (
        'How [long|many seconds] ago was the {item} last [seen|in view]?',
        'How many seconds is it since the {item} was [last seen|last in view]?',
        'When did you last see the {item}, in seconds [ago|before now]?',
    ),
    'how_far': (
        'How far [away|from here] is the {item} [now|at the moment], in meters?',
        '[Give|Say] the distance from you to the {item} in meters.',
        'The {item}: how many meters is it from [here|you|the robot]?',
    ),
    'way_back': (
        'Where is the start from here: which way?',
        '[Which way|In which direction] [do I|must I|does the robot] go to get to the start?',
        'The start: in which direction is it [now|from here]?',
        'Which direction leads back to [the start|where you started]?',
    ),
    'way_to': (
        '[Which way|In which direction] [do I|must I|does the robot] go to get to the {item}?',
        'The {item}: in which direction is it [now|from here]?',
        'Which way do I [turn|go] for the {item}?',
        'In which direction is the {item} now?',
    ),
    'nearest_thing': (
        'Which [one|thing|of them] is [closest|nearest] to [you|the robot|here] now?',
        'What is [closest|nearest] to you [now|here]?',
        'Which of these is the least [distance away|far away] now?',
        'What do you have [nearest|closest] to you [now|at present]?',
        'Which one is nearest from where you are?',
        'Which of these would you reach by the shortest way?',
        'Where is the way shortest [now|from here]: to which of them?',
        'To what would you have the [shortest|least long] way from here?',
    ),
    'count_things': (
        'How many {items} [did you notice|came into view|were seen] [so far|up to now|in all]?',
        '{items}: how many [of them|] did you see [so far|up to now]?',
        'In all, how many {items} [did you see|have been seen]?',
    ),
}
# What no map tells of a thing, as in `UNKNOWN_PROPERTIES`.
MORE_PROPERTIES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ('Is the {item} [new|clean|heavy|cheap|soft|loud]?', ('yes', 'no')),
    ('Who [bought|cleaned|made|moved] the {item}?', ('a guest', 'the tenant', 'nobody')),
    ('When was the {item} [bought|built|cleaned]?', ('today', 'last year', 'long ago')),
    ('How [expensive|useful|loud|soft] is the {item}?', ('very', 'a little', 'not at all')),
    ('What is the {item} [worth|called|used for]?', ()),
    ('Why is the {item} here?', ('to be used', 'by chance')),
    ('Which [company|country|shop] has the {item} come from?', ('a large one', 'a small one')),
    ('What [smell|taste|sound] has the {item}?', ()),
)


def more_pattern(wording: str) -> re.Pattern[str]:
    """What matches any form of a wording, begun in any way; groups by the names of its slots."""
    pieces = [f'(?:{"|".join(re.escape(opener) for opener in sorted(set(OPENERS)))})']
    for text, choice, slot in re.findall(r'([^{\[]*)(?:\[([^]]*)\]|\{(\w+)\})?', wording):
        pieces.append(re.escape(text))
        if choice:
            pieces.append(f'(?:{"|".join(map(re.escape, choice.split("|")))})')
        if slot:
            pieces.append(f'(?P<{slot}>.+?)')
    return re.compile(''.join(pieces), re.DOTALL)
