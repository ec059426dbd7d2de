# SPDX-License-Identifier: Apache-2.0
"""What a question of a person must be answered by: names, form, and what makes it yes.

Which tool is meant says a sentence that the question is like, or a model (calls.py). It is
careful, not clever: where the names do not fit, the reading has a doubt, and nothing is computed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from itertools import pairwise
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.reasoning.forms import asks_yes_no, STATEMENT, unit_of, YES_NO
from embodied_r_ros.core.reasoning.quantities import in_digits, limit_in
from embodied_r_ros.core.reasoning.sentences import known, plain_text
from embodied_r_ros.core.scene.memory import COMMON_WORDS
from embodied_r_ros.core.scene.names import find_names, Name, SHAPE_NAMES
from embodied_r_ros.core.scene.tools import ROBOT, START, WAY
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS

if TYPE_CHECKING:
    from collections.abc import Sequence


_MOST_CHARS = 1000
_NO_SLOTS = str.maketrans('{}', '()')  # a person's braces are none of a known sentence
_OF_ENGLISH = 0.2  # least share of the words that questions in English have
_SHORT_QUESTION = 6  # words: of what it is, is said before it
_LETTERS = re.compile(r'[^\W\d_]+')
_QUESTION = (
    r'(?:how|what|whats|which|where|wheres|when|who|is|are|was|were|did|do|does|have|can|count)'
)
_NEXT = re.compile(rf'\?+\s*(?:and\s+)?(?={_QUESTION}\b)|(?:,\s*|\s+)and\s+(?={_QUESTION}\b)')
_SENTENCE = re.compile(r'(?<=[.!:])\s+')
START_WORDS = re.compile(
    r'\b(?:start(?:ed|ing)?|beginning|began|begin|origin|came from|home|set off)\b'
)
# What asks for what stands somewhere, and not for what is done or written there.
_STANDS = re.compile(
    r'\b(?:which|name)\b|\bwhat (?:thing|object)?s?\s*(?:is |are )?(?:up |there |\w+ing )*'
    r'(?:on|shares?|\w+s on)\b'
)
FLOOR = re.compile(r'\b(?:floor|ground)\b')
_FACING = re.compile(r'\bfac(?:e|es|ing)|look(?:s|ing)? (?:at|towards?)\b')
# What asks of the start, or of when a thing came into view, and not of now.
_AT_START = re.compile(
    r'\b(?:(?:at|in|on|from) (?:the )?(?:very )?(?:start|begin|beginning)\b|'
    r'to (?:start|begin) with|'
    r'initially|(?:when|as) (?:you|u|we|it|i|the \w+) (?:first )?(?:start\w*|began|set off|opened|'
    r'took off|looked)|first (?:opened|looked))\b'
)
_AT_SIGHT = re.compile(
    r'\b(?:pop(?:ped|s)? up|appear(?:ed|s)?|c[ao]mes? into (?:view|sight|the picture|the frame)|'
    r'turn(?:ed|s)? up|show(?:ed|s)? up|first (?:seen|saw|see|spotted)|'
    r'(?:first )?(?:saw|spotted|noticed))\b'
)
_THEN_TOOLS = frozenset({'beside', 'things', 'where', 'nearest', 'count', 'distance'})
_FIRST = re.compile(r'\b(?:first|beginning|initially|earliest|start)\b')
_LAST = re.compile(r'\b(?:last|latest|recently|final\w*|end)\b')
_SIDES = {
    'left': 'left',
    'right': 'right(?! now| here| away| in| ahead| behind)',
    'ahead': 'ahead|front|forward|straight',
    'behind': 'behind|at (?:my|your|the|our) back|back of',
}
CLOCK = re.compile(r"\bo'?\s?clock\b|\bclock (?:direction|position|face)\b")
_NEAR = re.compile(r'\b(?:next to|near|beside|close (?:to|together|by))\b')
# One of two is meant.
_EITHER_OR = re.compile(r'\bor\b(?! (?:not|so|less|more(?! to| left| right)|a bit)\b)')
_EITHER = re.compile(r'\b(?:closer|nearer) to\b.*\bor\b')
_FURTHER = re.compile(
    r'\b(?:more|f[au]rther|f[au]rthest|most)(?: (?:to|on))?(?: the| your)? (?P<side>left|right)\b|'
    r'\b(?P<most>left|right) ?most\b'
)
_LARGER = re.compile(r'\b(?P<word>tall|high|long|wid|broad|bigg|larg)e?(?:er|r|est|st)\b')
_FROM_START = re.compile(r'\b(?:sec(?:ond)?s? in(?:to)?|(?:at )?(?:what|which) (?:second|time))\b')
_LENGTHS = 'far|distance|many|much|met(?:er|re)s?|feet|cm'  # words that ask for a number
_NOW = re.compile(r'\b(?:still|now)\b')
_IN_VIEW = re.compile(r'\b(?:see\w*|view|sight|visible|picture|frame)\b')
_TURNS = {
    'left': r'left(?:ish|wards?)?|(?:anti|counter)[- ]?clockwise',
    'right': r'right(?:ish|wards?)?|(?<!anti)(?<!counter)(?<!-)clockwise',
}
_MOVES = {
    'forward': 'forwards?|ahead|straight',
    'backward': 'backwards?|back(?:ed)? up|reverse',
    'left': 'left(?:wards?)?',
    'right': 'right(?:wards?)?(?! now| at| away| after| before| in| from)',
    'up': r'(?<!back )(?<!backed )up|climb\w*|ris\w+|rose',
    'down': r'down|descend\w*|sink|sank',
}
TURNING = re.compile(r'\b(?:turn\w*|rotat\w*|spin\w*|spun|veer\w*)\b')
# Of what a number of each tool is; of the others it is a length.
_NUMBERS_OF = {'count': '', 'turn': 'angle', 'seen': 'time', 'duration': 'time'}
_COLOUR = '|'.join(sorted(COLOUR_WORDS))
_ANYTHING = re.compile(rf'\b(any|some)thing ({_COLOUR})\b')
_MORE = re.compile(
    r'\b(?P<way>more than|at least|over|fewer than|less than|exactly|only|just)?\s*'
    r'\b(?P<number>\d+)\s+$'
)
_EACH = re.compile(r'(?:please |so |and )*(?:what|which|list|name|enumerate|tell)\b')
_REPEATED = re.compile(r'\b(?:still|twice|times|often|again|bigger|smaller|taller|larger|same)\b')
BEFORE_OR_AFTER, SINCE_START, LEFT_OR_RIGHT = 'before or after', 'since start', 'left or right'
NEAR, EITHER, LARGEST, EVER = 'near', 'either', 'largest', 'ever'  # what some questions want
_BEYOND = frozenset({BEFORE_OR_AFTER, EITHER, LARGEST, EVER})
# Which the compact form does not have.
NEW_TOOLS = frozenset({'beside', 'changed', 'duration', 'happened', 'raised'})
COUNTED = re.compile(r'\b(?:how many|number|count|tally|total|sum|quantity|amount)\b')
NO_TOOL = 'I can only tell what was seen, where it is, and how I moved'
MISREAD = 'the reading '  # begins a doubt where calls of a model do not fit the words
BEFORE, AFTER = r'\b(?:before|sooner|earlier)\b', r'\b(?:after|later)\b'
_BEFORE_OR_AFTER = re.compile(rf'{BEFORE}.*\bor {AFTER}|{AFTER}.*\bor {BEFORE}')
_GOAL = re.compile(
    r'^(?:please |now )?(?:go|drive|move|walk|navigate|head|come|bring|take|fetch|'
    r'turn (?:a?round|back))\b'
)


class Form(Enum):
    """What an answer must be."""

    TEXT = 'text'
    NUMBER = 'number'
    PLACE = 'place'
    NAME = 'name'
    LIST = 'list'
    YES_NO = 'yes or no'


_IN_UNITS = frozenset({'distance', 'size', 'floor_area', 'way', 'displacement', 'height'})
_FORMS = {
    'things': Form.LIST, 'size': Form.NUMBER, 'floor_area': Form.NUMBER, 'way': Form.NUMBER,
    'duration': Form.NUMBER, 'way_to': Form.PLACE,
}  # fmt: skip


@dataclass(frozen=True)
class Call:
    """A tool and its arguments."""

    tool: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Reading:
    """What a question asks for."""

    question: str
    kind: str = ''
    calls: tuple[Call, ...] = ()
    form: Form = Form.TEXT
    wanted: str = ''  # of yes or no: the side, name or word that makes it yes
    # Likewise: 'less' or 'more' than so many metres, seconds, things, or degrees of a turn.
    limit: tuple[str, float] | None = None
    names: tuple[Name, ...] = ()
    moment: str = ''  # of which it is asked: the start, or a thing whose first sight; empty: now
    doubt: str = ''  # why nothing is computed; empty: nothing is in doubt

    @property
    def is_beyond(self) -> bool:
        """Whether the calls of the compact form have no words for it."""
        tools = {call.tool for call in self.calls}
        is_near = self.wanted == NEAR and 'distance' in tools
        return bool(self.moment) or self.wanted in _BEYOND or is_near or bool(tools & NEW_TOOLS)

    @property
    def is_sure(self) -> bool:
        """Whether there is something to compute."""
        return bool(self.calls) and not self.doubt


def _plain(question: str) -> str:
    text = question[:_MOST_CHARS].translate(_NO_SLOTS)
    return _ANYTHING.sub(r'\1 \2 thing', plain_text(text))


def is_foreign(question: str) -> bool:
    """Whether hardly a word of a question is one that questions in English have."""
    words = _LETTERS.findall(question.lower())
    english = COMMON_WORDS | known().words | COLOUR_WORDS | SHAPE_NAMES
    share = sum(word in english for word in words) / max(1, len(words))
    least = _OF_ENGLISH if question.isascii() else 2 * _OF_ENGLISH
    return (len(words) > 3 or not question.isascii()) and share < least


def parts_of(question: str) -> list[str]:
    """The questions in one text, in lower case; the text itself where there is one."""
    text = _plain(question)
    return _parts(text) or [text]


def read_form(
    part: str,
    options: Sequence[str],
    labels: Sequence[str],
    names: Sequence[Name],
    calls: Sequence[Call],
) -> Reading:
    """Read what must answer a question of which the calls are known, and what makes it yes.

    Args:
        part: One of `parts_of`.
        options: The options; none: a free question.
        labels: The labels of the scene.
        names: The things that it names.
        calls: What computes the answer, at least one.
    """
    reading = _Question(part, options, labels, names).by_calls(calls)
    return replace(reading, moment=_moment_of(part, reading))


def read_structure(
    part: str, options: Sequence[str], labels: Sequence[str], names: Sequence[Name]
) -> Reading | None:
    """Read an order, or a question whose form alone says what it asks; None: it is neither.

    Args:
        part: One of `parts_of`.
        options: The options; none: a free question.
        labels: The labels of the scene.
        names: The things that it names.
    """
    question = _Question(part, options, labels, names)
    if is_order(part):
        return question.doubt('that is an order to go somewhere, not a question', 'goal')
    reading = question.by_structure()
    return reading and replace(reading, moment=_moment_of(part, reading))


def _moment_of(part: str, reading: Reading) -> str:
    """Of when a question is: the start, or when the thing came into view; empty: now."""
    if not reading.is_sure or reading.calls[0].tool not in _THEN_TOOLS:
        return ''
    if any(START in str(call.arguments) for call in reading.calls):
        return ''
    if _AT_START.search(part):
        return START
    is_sight = reading.calls[0].tool == 'where' and _AT_SIGHT.search(part)
    return str(reading.calls[0].arguments['name']) if is_sight else ''


def _asks(sentence: str) -> bool:
    return bool(YES_NO.match(sentence) or re.search(rf'\b{_QUESTION}\b', sentence))


def _parts(text: str) -> list[str]:
    """The questions in a text. What only orders an answer is none."""
    sentences = _SENTENCE.split(text)
    asked = [one for one in sentences if '?' in one or re.match(rf'{_QUESTION}\b', one)]
    if any(map(_asks, asked)):
        is_short = len(_LETTERS.findall(' '.join(asked))) < _SHORT_QUESTION
        told = [one for one in sentences if one not in asked and (is_short or find_names(one, ()))]
        text = ' '.join([*told, *asked])
    if _FACING.search(text):
        return [text]
    return [part.strip(' ,') for part in _NEXT.split(text) if part.strip(' ?,.!')]


class _Question:
    """A question of which the calls are known, or its structure."""

    def __init__(
        self, text: str, options: Sequence[str], labels: Sequence[str], names: Sequence[Name]
    ) -> None:
        self.text, self.options, self.labels, self.names = text, options, labels, list(names)
        told = STATEMENT.search(text)
        if told:
            self.text = text[: told.start('tag' if told['tag'] else 'after')]
        self.is_yes_no = bool(told) or asks_yes_no(self.text, options)
        self.is_either = bool(_EITHER_OR.search(self.text))
        of_options = bool(options) and not asks_yes_no('', options)
        self.is_open = of_options or (self.is_either and not options)  # a name or side will do
        self.unit = unit_of(self.text)
        self.words = [name.text for name in self.names]

    def doubt(self, why: str, kind: str = '') -> Reading:
        """A reading by which nothing is computed."""
        return Reading(self.text, kind, names=tuple(self.names), doubt=why)

    def has(self, words: str) -> bool:
        """Whether it has one of some words, which are a regular expression."""
        return bool(re.search(rf'\b(?:{words})\b', self.text))

    def made(self, calls: Sequence[Call], form: Form, **fields: Any) -> Reading:
        """A reading; one of yes or no has to be answered so, but where `open_too` is given."""
        is_open_too = bool(fields.pop('open_too', False))
        calls = [_in_unit(call, self.unit) for call in calls]
        limit = limit_in(self.text) if self.is_yes_no and form is Form.NUMBER else None
        first = what_of(calls[0])
        if limit and limit[1].dimension == _NUMBERS_OF.get(first, 'length'):
            calls, form, is_angle = list(map(replace_unit, calls)), Form.YES_NO, first == 'turn'
            fields['limit'] = (limit[0], limit[1].value if is_angle else limit[1].base())
        is_open_too |= self.is_open
        if self.is_yes_no and form is not Form.YES_NO and not is_open_too:
            return self.doubt('yes or no does not follow from what I can compute')
        return Reading(self.text, first, tuple(calls), form, names=tuple(self.names), **fields)

    def by_calls(self, calls: Sequence[Call]) -> Reading:
        """What the answer must be, which the calls compute."""
        read = getattr(self, f'_{what_of(calls[0])}', None)
        if read:
            made: Reading = read(list(calls))
            return made
        return self.made(calls, _FORMS.get(what_of(calls[0]), Form.TEXT))

    @property
    def _of_options(self) -> list[str]:
        """Things that the options name, where each names one."""
        found = [find_names(option.lower(), self.labels) for option in self.options]
        return [each[0].text for each in found if len(each) == 1] if all(found) else []

    def _are_joined(self) -> bool:
        """Whether nothing but 'and', 'or' and commas stands between the names."""
        between = [self.text[a.end : b.start] for a, b in pairwise(self.names)]
        joint = r'(?:\s|,|and|or|the|an?|any|how many|number of)*'
        return all(re.fullmatch(joint, each) for each in between)

    def _sides(self, words: dict[str, str]) -> list[str]:
        return [side for side, word in words.items() if self.has(word)]

    # By the words alone.

    def by_structure(self) -> Reading | None:
        """A question whose form alone says what it asks: who stands where, and faces what."""
        facing_at = _FACING.search(self.text)
        if not facing_at or len(self.words) < 3:
            return None
        if len(self.words) > 3:
            return self.doubt('I read no steps of a route')
        before = [name for name in self.names if name.end <= facing_at.start()]
        after = [name for name in self.names if name.start >= facing_at.end()]
        if len(before) == 1 and len(after) >= 2:
            who, front, item = before[0], after[0], after[1]
        elif len(before) == 2 and len(after) == 1:
            item, who, front = before[0], before[1], after[0]
        else:
            return self.doubt('who stands where, and faces what, is not clear')
        call = Call('where', {'name': item.text, 'at': who.text, 'facing': front.text})
        return self._where([call])

    # By the tool of the calls.

    def _beside(self, calls: list[Call]) -> Reading:
        further, sides = (
            _FURTHER.search(self.text),
            self._sides({'left': 'left', 'right': 'right'}),
        )
        if further and not self.is_yes_no:
            return self.made(calls, Form.NAME, wanted=further['side'] or further['most'])
        is_of_one = self.is_yes_no and len(sides) == 1
        form, wanted = (Form.YES_NO, sides[0]) if is_of_one else (Form.PLACE, LEFT_OR_RIGHT)
        return self.made(calls, form, wanted=wanted, open_too=True)

    def _count(self, calls: list[Call]) -> Reading:
        if self.is_yes_no and _NOW.search(self.text) and _IN_VIEW.search(self.text):
            call = Call('seen', {'name': calls[0].arguments['name'], 'sight': 'last'})
            return self.made([call], Form.YES_NO)
        is_counted = COUNTED.search(self.text) and not self.is_yes_no
        is_clear = self._are_joined() and not _EACH.match(self.text)
        if is_counted or not is_clear or _REPEATED.search(self.text):
            return self.made(calls, Form.NUMBER)
        before = self.text[: self.names[0].start] if self.names else ''
        number = _MORE.search(in_digits(before))
        self.is_yes_no = True
        if number is None:
            return self.made(calls, Form.YES_NO)
        way = {'more than': 'more', 'over': 'more', 'fewer than': 'less', 'less than': 'less'}
        limit = (way.get(number['way'] or '', number['way'] or 'exactly'), float(number['number']))
        return self.made(calls, Form.YES_NO, limit=limit)

    def _where(self, calls: list[Call]) -> Reading:
        sides = self._sides(_SIDES)
        if self.is_yes_no and not self.options and len(sides) == 1 and not self.is_either:
            return self.made(calls, Form.YES_NO, wanted=sides[0])
        is_of_sides = sides == ['left', 'right'] and self.is_either
        is_of_sides |= not sides and self.has('(?:which|what) (?:side|hand)')
        wanted = LEFT_OR_RIGHT if is_of_sides else ''
        is_open = len(calls) == 1 and len(sides) != 1
        return self.made(calls, Form.PLACE, wanted=wanted, open_too=is_open)

    def _distance(self, calls: list[Call]) -> Reading:
        if self.is_yes_no and not limit_in(self.text) and _NEAR.search(self.text):
            return self.made(list(map(replace_unit, calls)), Form.YES_NO, wanted=NEAR)
        is_ever = calls[0].arguments.get('b') == WAY
        return self.made(calls, Form.NUMBER, wanted=EVER if is_ever else '')

    def _nearest(self, calls: list[Call]) -> Reading:
        words, arguments = self.words, calls[0].arguments
        if len(words) == 3 and _EITHER.search(self.text):
            self.is_yes_no = False
            call = Call('nearest', {'to': words[0], 'among': words[1:]})
            return self.made([call], Form.NAME, wanted=EITHER)
        if self.is_yes_no and len(words) in (2, 3) and not self.is_open:
            is_than = self.has('than')
            return self.made(calls, Form.YES_NO, wanted=words[0]) if is_than else self._no_form
        to, among = arguments['to'], arguments.get('among', self._of_options)
        if to == ROBOT and len(among) == len(self.names) == 1:
            among = list(self.names[0].labels)  # of several things of one name
        if len(among) == 1:
            return self._no_form
        calls = [Call('nearest', {**arguments, 'among': among})] if among else calls
        is_near = to not in (ROBOT, START) and not among and _NEAR.search(self.text)
        return self.made(calls, Form.NAME, wanted=NEAR if is_near else '')

    @property
    def _no_form(self) -> Reading:
        return self.doubt('compared with what is not clear')

    def _size(self, calls: list[Call]) -> Reading:
        is_one_of = len(calls) > 1 and _LARGER.search(self.text)
        form, wanted = (Form.NAME, LARGEST) if is_one_of else (Form.NUMBER, '')
        return self.made(calls, form, wanted=wanted)

    def _seen(self, calls: list[Call]) -> Reading:
        if self.is_yes_no and _NOW.search(self.text) and _IN_VIEW.search(self.text):
            return self.made(calls, Form.YES_NO)
        is_first = calls[0].arguments.get('sight') == 'first'
        is_from_start = (is_first or _FROM_START.search(self.text)) and not self.has('ago')
        return self.made(calls, Form.NUMBER, wanted=SINCE_START if is_from_start else '')

    def _order(self, calls: list[Call]) -> Reading:
        words = calls[0].arguments.get('among', self._of_options)
        either = _BEFORE_OR_AFTER.search(' or '.join([self.text, *self.options]))
        if (self.is_yes_no or either) and not are_names(self.options, self.labels):
            if len(words) != 2:
                return self.doubt('which came before which is not clear')
            if either:
                return self.made(calls, Form.TEXT, wanted=BEFORE_OR_AFTER, open_too=True)
            return self.made(calls, Form.YES_NO, wanted=words[self.has(AFTER)])
        self.is_yes_no = False
        wanted = 'last' if _LAST.search(self.text) and not _FIRST.search(self.text) else ''
        is_list = self.has('order|sequence')
        return self.made(calls, Form.LIST if is_list else Form.NAME, wanted=wanted)

    def _turn(self, calls: list[Call]) -> Reading:
        sides = self._sides(_TURNS)
        is_than = len(sides) == 2 and self.is_yes_no and self.has('than')
        wanted = min(sides, key=self.text.find) if is_than or len(sides) == 1 else ''
        is_number = self.has('how (?:much|many|far)|angle') or re.search(r'\bdeg', self.text)
        if is_number and not self.is_yes_no:
            return self.made(calls, Form.NUMBER, wanted='both' if self.has('both') else wanted)
        if self.is_yes_no and limit_in(self.text) and TURNING.search(self.text):
            return self.made(calls, Form.NUMBER)
        wanted = 'same' if self.has('same (?:way|direction)') else wanted
        if self.is_yes_no and wanted and not self.is_either:
            return self.made(calls, Form.YES_NO, wanted=wanted)
        if self.is_yes_no and re.search(r'^\w+ \w+ (?:turn|rotate)d?\W*$', self.text):
            return self.made([Call('moves', {'what': 'turned'})], Form.YES_NO)
        return self.made(calls, Form.PLACE, open_too=len(sides) == 2)

    def _displacement(self, calls: list[Call]) -> Reading:
        if self.options and any(map(self.has, _SIDES.values())):
            return self.made([Call('where', {'name': START})], Form.PLACE, open_too=True)
        if self.is_yes_no and not limit_in(self.text):
            return self.made(calls, Form.YES_NO, wanted='back')
        is_number = self.unit or self.has(_LENGTHS) or self.is_yes_no
        return self.made(calls, Form.NUMBER if is_number else Form.PLACE)

    def _moves(self, calls: list[Call]) -> Reading:
        words, what = directions_in(self.text), calls[0].arguments.get('what', '')
        if what == 'turned':
            sides = [side for side in words if side in ('left', 'right')]
            if self.is_yes_no and len(sides) == 1:
                return self.made(calls, Form.YES_NO, wanted=sides[0])
            is_open = len(sides) > 1 or not YES_NO.match(self.text)
            return self.made(calls, Form.PLACE, open_too=is_open)
        if what in ('tilted', 'rolled') and self.is_yes_no and not words:
            return self.made(calls, Form.YES_NO)
        if self.is_yes_no and len(words) == 1 and not self.is_either:
            return self.made(calls, Form.YES_NO, wanted=words[0])
        return self.made(calls, Form.TEXT, wanted=' '.join(words))

    def _happened(self, calls: list[Call]) -> Reading:
        what, is_named = calls[0].arguments['what'], 'name' in calls[0].arguments
        if self.is_yes_no or (is_named and not self.options):
            is_still = self.has(r'stay\w*|still|kept|keep|same')
            wanted = '' if what != 'moved' else 'still' if is_still else 'moved'
            return self.made(calls, Form.YES_NO, wanted=wanted)
        is_name = what == 'moved' and (self.options or not self.text.startswith('what'))
        return self.made(calls, Form.NAME if is_name else Form.TEXT)

    def _changed(self, calls: list[Call]) -> Reading:
        is_one = self.is_yes_no or 'name' in calls[0].arguments or 'been' in str(calls[0])
        wanted = 'still' if self.has(r'stay\w*|still|same|where it was') else ''
        return self.made(calls, Form.YES_NO if is_one else Form.LIST, wanted=wanted)

    def _raised(self, calls: list[Call]) -> Reading:
        on = re.compile(r'\b(?:on|shares?)\s+(?:(?:top of )?(?:the|an?|that|its)\s+)?(?:\w+\s+)?$')
        is_it = re.search(r'\bon (?:it|that)\b', self.text)
        below = [
            n for n in self.names if on.search(self.text[: n.start]) or (is_it and not n.labels)
        ]
        names = [name.text for name in self.names if name not in below]
        is_floor = bool(FLOOR.search(self.text))
        is_said = below or is_floor or self.has('higher up|highest')
        is_open = is_floor and not (self.is_yes_no or self.options)
        is_asked = self.is_yes_no or _STANDS.search(self.text)
        if any(name.labels for name in below) or is_open or not (is_said and is_asked):
            return self.doubt('what stands on what is not clear')
        among = names or self._of_options
        calls = [Call('raised', {'among': among} if among else {})]
        if self.is_yes_no and not self.options:
            return self.made(calls, Form.YES_NO)
        is_list = re.search(r'^what|\bare\b', self.text)
        return self.made(calls, Form.LIST if is_list else Form.NAME, open_too=True)

    def _now(self, calls: list[Call]) -> Reading:
        still = self.has(r'still(?! moving)|stop\w*|stand\w*|stationary|static')
        if still and self.is_either:
            return self.made(calls, Form.TEXT, open_too=True)
        self.is_yes_no = True
        return self.made(calls, Form.YES_NO, wanted='still' if still else 'moving')

    _any = _now

    def _height(self, calls: list[Call]) -> Reading:
        words = directions_in(self.text)
        words += ['up'] * self.has(r'higher|gain\w*') + ['down'] * self.has(r'lower|los[et]\w*')
        if self.has('how (?:many|much|far)') or limit_in(self.text):
            self.is_yes_no &= not self.has('how (?:many|much|far)')
            return self.made(calls, Form.NUMBER)
        if self.is_yes_no and len(set(words)) == 1 and words[0] in ('up', 'down'):
            return self.made(calls, Form.YES_NO, wanted=words[0])
        is_open = (bool(words) and ' or ' in self.text) or self.has('height|altitude|level')
        return self.made(calls, Form.TEXT, open_too=is_open)

    def _visited(self, calls: list[Call]) -> Reading:
        words = calls[0].arguments.get('among') or self._of_options
        if self.is_yes_no and not self.options:
            if len(words) != 1:
                return self.doubt('which thing is meant is not clear')
            return self.made(calls, Form.YES_NO, wanted=words[0])
        self.is_yes_no = False
        return self.made(calls, Form.NAME if _FIRST.search(self.text) else Form.LIST)


def is_order(question: str) -> bool:
    """Whether a question tells to go somewhere instead of asking."""
    return bool(_GOAL.match(question)) and 'me back' not in question


def what_of(call: Call) -> str:
    """What a call computes: its tool, or what it asks of the motion."""
    return str(call.arguments['what'] if call.tool == 'motion' else call.tool)


def _in_unit(call: Call, unit: str) -> Call:
    """A call with the unit of the question, where it takes one."""
    takes_it = unit and what_of(call) in _IN_UNITS
    return Call(call.tool, {**call.arguments, 'unit': unit}) if takes_it else call


def replace_unit(call: Call) -> Call:
    """The same call, in metres where it is of a length."""
    is_length = call.tool not in _NUMBERS_OF and call.arguments.get('what') != 'turn'
    return Call(call.tool, {**call.arguments, 'unit': 'm'}) if is_length else call


def goal_of_order(reading: Reading) -> Reading:
    """The reading of an order to go to a thing: the way there; any other one as it is."""
    name = reading.names[0] if len(reading.names) == 1 else None
    if reading.kind != 'goal' or name is None or len(name.labels) != 1:
        return reading
    call = Call('way_to', {'goal': name.labels[0]})
    return replace(reading, calls=(call,), form=Form.NAME, doubt='')


def directions_in(text: str) -> list[str]:
    """Directions of moves that a text names."""
    return [word for word, p in _MOVES.items() if re.search(rf'\b(?:{p})\b', text)]


def are_names(options: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether there are options, and each names something."""
    return bool(options) and all(find_names(option.lower(), labels) for option in options)
