# SPDX-License-Identifier: Apache-2.0
"""Reasonings about anything, in loose English, for a judge that is not to know one form only.

What they are about is made up, down to words that do not exist: a judge that copies the conclusion
has to find it among the options, because it has never read it before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random


@dataclass(frozen=True)
class Solved:
    """A question with its reasoning, taken apart."""

    kind: str
    question: str
    options: tuple[str, ...]
    think: str  # without its conclusion
    end: str  # the conclusion, as it is worded
    answer: str  # what it says


_THINGS = (
    'chair', 'table', 'sofa', 'door', 'window', 'lamp', 'plant', 'shelf', 'box', 'ball', 'cup',
    'bottle', 'book', 'screen', 'bed', 'desk', 'cabinet', 'bin', 'pillow', 'clock', 'car', 'tree',
    'tower', 'bridge', 'sign', 'person', 'dog', 'bag', 'drawer', 'block', 'gripper', 'shop',
)  # fmt: skip
_PLACES = (
    'on the left', 'on the right', 'ahead', 'behind', 'to the left', 'to the right', 'above',
    'below', 'in the corner', 'near the door', 'front left', 'back right', 'outside', 'upstairs',
)  # fmt: skip
_MOVES = (
    'turn left', 'turn right', 'go straight', 'move forward', 'move backward', 'stop', 'go up',
    'go down', 'turn around', 'look up', 'wait', 'slightly left',
)  # fmt: skip
_SYLLABLES = (
    'ba',
    'ke',
    'lo',
    'mi',
    'nu',
    'ra',
    'se',
    'ti',
    'vo',
    'za',
    'dro',
    'fli',
    'gan',
    'pel',
)
_ASKED = {
    'place': ('Where is the {0} now?', 'On which side of the {1} is the {0}?'),
    'thing': (
        'What came into view first?',
        'Which of these is nearest?',
        'What is behind the {0}?',
    ),
    'move': ('What should the robot do next to reach the {0}?', 'How did the camera move?'),
    'number': ('How many of the {0}s were seen?', 'How far is the {0} from the {1}?'),
}
_FILLERS = (
    'At the start the {0} is in view.', 'The {0} is {2}.', 'Then the robot passes the {1}.',
    'It cannot be {3}, because the {0} is in the way.', 'First I thought of {3}.',
    'In [3] the {0} is {2} of the {1}.', 'The robot turned, so {3} is wrong.',
    'Nothing is said about the {1}.', 'Option {3} would need a longer way.',
)  # fmt: skip
_ENDS = (
    ' So {}.', ' So the answer is {}.', ' It is {}.', ' Thus I choose {}.', ' That leaves {}.',
    ' The right one is {}.', ' Hence, {}', ' The {subject} is {}.', ' I would say {}.',
)  # fmt: skip


def small_talk(rng: Random) -> Solved:
    """A question about something, some thoughts, and a conclusion."""
    kind = rng.choice(list(_ASKED))
    subject, other = _thing(rng), _thing(rng)
    options = _options(kind, rng)
    answer = rng.choice(options)

    def filled(text: str) -> str:
        wrong = rng.choice([option for option in options if option != answer])
        return text.format(subject, other, rng.choice(_PLACES), wrong)

    said = [filled(text) for text in rng.sample(_FILLERS, rng.randint(1, 4))]
    return Solved(
        kind=f'talk about a {kind}',
        question=filled(rng.choice(_ASKED[kind])),
        options=options,
        think=' '.join(said),
        end=rng.choice(_ENDS).format(answer, subject=subject),
        answer=answer,
    )


def _options(kind: str, rng: Random) -> tuple[str, ...]:
    count = rng.randint(2, 6)
    if kind == 'number':
        unit = rng.choice(['', ' m', ' cm'])
        numbers = rng.sample(range(30), count)
        return tuple(f'{number}{unit}' for number in numbers)
    if kind == 'thing':
        return tuple({_thing(rng): None for _ in range(3 * count)})[:count]
    return tuple(rng.sample(_MOVES if kind == 'move' else _PLACES, count))


def _thing(rng: Random) -> str:
    if rng.random() < 0.5:
        return rng.choice(_THINGS)
    return made_up(rng)


def made_up(rng: Random) -> str:
    """A word that does not exist."""
    return ''.join(rng.choice(_SYLLABLES) for _ in range(rng.randint(2, 3)))
