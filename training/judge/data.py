# SPDX-License-Identifier: Apache-2.0
"""Reasonings with the conclusion that they lead to: what a judge is trained and measured on."""

from __future__ import annotations

from dataclasses import dataclass, replace
import re
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.vocabulary import COLOURS, SHAPES

from training.data.degrade import degrade_deltas
from training.data.map_traces import MAP_QUESTIONS
from training.data.reword import reword_row
from training.data.traces import read_row
from training.judge.cases import JudgeCase, NONE_OF_THESE

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from random import Random

    from embodied_r_ros.questions.row import Row


@dataclass(frozen=True)
class WorkedExample:
    """A question with its reasoning, taken apart."""

    kind: str
    question: str
    options: tuple[str, ...]
    think: str  # without its conclusion
    end: str  # the conclusion, as it is worded
    answer: str  # what it says
    topic: str = ''  # the item, thing or colour that it is about; empty: none that no option names
    others: tuple[str, ...] = ()  # what the topic may be taken for


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


def small_talk(rng: Random) -> WorkedExample:
    """A question about something, some thoughts, and a conclusion."""
    kind = rng.choice(list(_ASKED))
    subject, other = _thing(rng), _thing(rng)
    options = _options(kind, rng)
    answer = rng.choice(options)

    def filled(text: str) -> str:
        wrong = rng.choice([option for option in options if option != answer])
        return text.format(subject, other, rng.choice(_PLACES), wrong)

    remarks = [filled(text) for text in rng.sample(_FILLERS, rng.randint(1, 4))]
    return WorkedExample(
        kind=f'talk about a {kind}',
        question=filled(rng.choice(_ASKED[kind])),
        options=options,
        think=' '.join(remarks),
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


KINDS = ('whole', 'flipped', 'renamed', 'swapped', 'cut', 'bare')
# The end of a trace: 'so left.', 'First is red flat object.', 'red objects: 2.'
_END = re.compile(r'(?:[.,;]? so| First is| nearest is|(?<=objects):) (?P<answer>[^.;:]+)\.$')
# A conclusion is a joint, a form with the answer, and a full stop.
_JOINTS = (
    ', so', '. So', '. Therefore', '; hence', '. Then', '. In short', '. All in all',
    '. As a result', '. It follows that', '. Finally', '. That means', '. Clearly',
    '. Because of this', '.', ':',
)  # fmt: skip
_FORMS = (
    '{}', 'it is {}', 'it must be {}', 'the answer is {}', 'the answer: {}', 'we get {}',
    'I choose {}', 'I take {}', 'the result is {}', '{} it is', '{} is right', 'it can only be {}',
    'I would say {}', 'the right one is {}', 'that gives {}', 'that leaves {}', 'one finds {}',
)  # fmt: skip
# No training sample has any of these.
_HELD_OUT_JOINTS = (', thus', '. This way', '. To conclude')
_HELD_OUT_FORMS = ('this makes it {}', 'my conclusion is {}', '{} is what follows', 'only {} fits')
# Share of joints that are made up, so that no list of them is learned by heart.
_MADE_UP_SHARE = 0.3
_DEGRADED_SHARE = 0.15
# Share of the training questions that are garbled: a judge that has learned the usual wordings by
# heart takes a question in other words for one about something else.
_GARBLED_SHARE = 0.4
_REWORDED_SHARE = 0.6
# Of what leads nowhere only half is used: with more of it a judge says nothing else for long.
_NOWHERE_SHARE = 0.5
# A colour alone is what judges are slow to compare: it is renamed more often than an item.
COLOURS_RENAMED = 3
_COLOURS = [colour.name for colour in COLOURS]
_LABEL = re.compile(rf'\b(?:{"|".join(_COLOURS)}) (?:{"|".join(SHAPES)}) object\b')
_COLOUR = re.compile(rf'\b(?:{"|".join(_COLOURS)}) (?=objects?\b)')


@dataclass(frozen=True)
class Sample:
    """A case, and where its reasoning leads; `answer` stands beside it in the completion."""

    case: JudgeCase
    conclusion: str  # one of the case's candidates
    answer: str  # the question's own answer; the completion is consistent if both are the same
    kind: str  # one of KINDS


def samples(
    rows: Iterable[Row],
    rng: Random,
    held_out: bool,
    talk_share: float = 0.25,
    garble: bool = False,
    colours_renamed: int = COLOURS_RENAMED,
) -> Iterator[Sample]:
    """Samples of rows: one of each kind per row, where it can be made.

    Args:
        rows: Rows of one split.
        rng: Draws wordings, other options and partners.
        held_out: Word every conclusion as no training sample does.
        talk_share: So many small talks per row.
        garble: Put most of the questions in other words, and a share in words that do not exist.
        colours_renamed: So many samples in which the colour that a question counts is another.
    """
    latest: dict[str, WorkedExample] = {}  # of each kind
    for row in rows:
        worded = reword_row(row, rng) if garble and rng.random() < _REWORDED_SHARE else row
        solved = [s for s in (_solve(worded, rng),) if s]
        solved += [small_talk(rng)] if rng.random() < talk_share else []
        for plain in solved:
            may_garble = garble and plain.kind not in MAP_QUESTIONS  # which name several things
            garbled = may_garble and rng.random() < _GARBLED_SHARE
            one = (
                replace(plain, question=garbled_question(plain.question, rng))
                if garbled
                else plain
            )
            yield from _own(one, rng, held_out, colours_renamed)
            # Of its own kind half of the time: the hard ones.
            near = one.kind in latest and rng.random() < 0.5
            partner = latest[one.kind if near else rng.choice(list(latest))] if latest else None
            sample = _swapped(one, partner) if partner and rng.random() < _NOWHERE_SHARE else None
            yield from (sample,) if sample else ()
            latest[one.kind] = one


def _solve(row: Row, rng: Random) -> WorkedExample | None:
    degraded_row = degrade_deltas(row, rng) if rng.random() < _DEGRADED_SHARE else row
    trace = read_row(degraded_row, MemoryConfig())
    if trace is None:
        return None
    match = _END.search(trace.think)
    # The answer of a question about a place may be a sentence, or have a point.
    end = match[0] if match else f' So {trace.answer.removesuffix(".")}.'
    if not trace.think.endswith(end):
        return None
    options = row.options or (trace.answer,)
    topic = _topic(row.question)
    topic, others = (topic, ()) if topic or not row.landmarks else _thing_topic(row)
    think = trace.think.removesuffix(end)
    return WorkedExample(
        row.question_type, row.question, options, think, end, trace.answer, topic, others
    )


def _thing_topic(row: Row) -> tuple[str, tuple[str, ...]]:
    """The thing that a question about a place names and no option does, and all others."""
    names = {str(landmark['label']) for landmark in row.landmarks}
    unnamed = {name for name in names if not any(name in option for option in row.options)}
    asked = sorted((name for name in unnamed if name in row.question), key=len)
    if not asked:
        return '', ()
    return asked[-1], tuple(sorted(name for name in names if name not in row.question))


def _other_numbers(answer: str) -> list[str]:
    """Numbers that a free answer might have been."""
    if '.' not in answer:
        return [str(n) for n in range(6)]
    return [f'{float(answer) * factor:.1f}' for factor in (0.5, 0.8, 1.3, 2.0)]


def _wording(rng: Random, held_out: bool) -> str:
    """Words around a conclusion."""
    if held_out:
        return f'{rng.choice(_HELD_OUT_JOINTS)} {rng.choice(_HELD_OUT_FORMS)}.'
    joint = rng.choice(_JOINTS)
    if rng.random() < _MADE_UP_SHARE:
        joint = f'. {made_up(rng).capitalize()}'
    return f'{joint} {rng.choice(_FORMS)}.'


def _own(
    solved: WorkedExample, rng: Random, held_out: bool, colours_renamed: int
) -> Iterator[Sample]:
    """What is made of a reasoning by itself."""
    reworded = _wording(rng, held_out) if held_out or rng.random() < 0.5 else None
    # Of a free question the answer is the only option: what else it might be is made up.
    numbers = _other_numbers(solved.answer) if len(solved.options) == 1 else []
    others = [o for o in (*solved.options, UNKNOWN, *numbers) if o != solved.answer]
    other = rng.choice(others)

    def ending(answer: str) -> str:
        if reworded:
            return reworded.format(answer.removesuffix('.'))
        worded = solved.end.replace(solved.answer, answer)
        return f'{worded.rstrip(".")}.'

    think = solved.think.rstrip('.;') if reworded else solved.think
    whole = think + ending(solved.answer)
    yield _sample(solved, whole, solved.answer, 'whole')
    yield _sample(solved, think + ending(other), other, 'flipped')
    conclusion = rng.choice([solved.answer, other])
    bare = _wording(rng, held_out).format(conclusion.removesuffix('.')).lstrip('.,;: ')
    yield _sample(solved, bare, conclusion, 'bare')
    topic = solved.topic
    if topic and topic in whole:
        is_colour = bool(_COLOUR.match(f'{topic}object'))
        for _ in range(colours_renamed if is_colour else 1):
            another = rng.choice(solved.others) if solved.others else _another(topic, rng)
            renamed = whole.replace(topic, another)
            yield _sample(solved, renamed, NONE_OF_THESE, 'renamed')
    words = solved.think.split()
    if len(words) > 4 and rng.random() < _NOWHERE_SHARE:
        cut = ' '.join(words[: rng.randint(2, len(words) * 4 // 5)])
        yield _sample(solved, cut, NONE_OF_THESE, 'cut')


def _sample(solved: WorkedExample, think: str, conclusion: str, kind: str) -> Sample:
    case = JudgeCase(solved.question, solved.options, think)
    is_conclusion = conclusion in (*solved.options, UNKNOWN)
    return Sample(case, conclusion if is_conclusion else NONE_OF_THESE, solved.answer, kind)


def _swapped(solved: WorkedExample, other: WorkedExample) -> Sample | None:
    """A question under the reasoning of another; None where it might be its own."""
    elsewhere = solved.topic and other.topic and solved.topic != other.topic
    no_option = other.answer not in (*solved.options, UNKNOWN)
    if not elsewhere and not no_option:
        return None
    return _sample(solved, other.think + other.end, NONE_OF_THESE, 'swapped')


def garbled_question(question: str, rng: Random) -> str:
    """A question in other words, down to words that do not exist; what it is about stays."""
    topic = _topic(question).strip()
    before, _, after = question.partition(topic) if topic else (question, '', '')
    share = rng.uniform(0.2, 0.9)

    def other(text: str) -> list[str]:
        return [made_up(rng) if rng.random() < share else word for word in text.split()]

    return ' '.join([*other(before), topic, *other(after)] if topic else other(before))


def _topic(question: str) -> str:
    """The item or the colour that a question is about; empty: neither."""
    match = _LABEL.search(question) or _COLOUR.search(question)
    return match[0] if match else ''


def _another(topic: str, rng: Random) -> str:
    """Another item or colour, often one that shares a word."""
    if not topic.endswith('object'):
        return rng.choice([name for name in _COLOURS if name != topic.strip()]) + ' '
    colour, shape, _ = topic.split()
    labels = [
        f'{other} {form} object'
        for other in _COLOURS
        for form in SHAPES
        if (other == colour) != (form == shape)
    ]
    return rng.choice(labels)
