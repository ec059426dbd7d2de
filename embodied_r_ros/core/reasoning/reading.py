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
_WHERE_NOW = re.compile(r'\bwhere (?:is|are|am) (?:the robot|we|you|i)\b')
_NOT_SAID = {
    'back': r'pointing|facing|turned|looking|heading|^what is (?:at|on|to)',
    'moves': (
        r'^where|where is|^what is|^in which direction did you start|once|twice|never|^who|'
        r'(?:what|which) (?:objects?|things?|items?)|how many|only|both'
    ),
    'moving': r'straight|all the time|always|whole|clos\w+|near\w*|far\w*|sidew\w+|which',
    'first_turn': r'once|twice|never',
    'nearest': r'ever|leftmost|rightmost',
    'visited': r'clos\w+|near\w*',
    'way': (
        r'time|^which|shortest|closest|one|apart|between|climb\w*|lift\w*|revers\w*|sideways|crow|'
        r'straight line|from (?:the )?(?:start|place|where)|above|ground'
    ),
    'turn': r'(?<!at )first|last|earliest|(?:just|only) once|once or|twice|never',
    'closer': r'leftmost|rightmost',
    'order': r'left|right(?! order)|how (?:many|long|much)|out of|disappear\w*|vanish\w*',
    'there': r'^(?:where|how|which|what|when|in which)',
    'size': r'seconds?|time|view|take|above|floor|ground',
    'things': r'out of|never|side|least|far|near\w*|clos\w+|slid\w*|rotat\w+|turn\w*',
    'where': r'your start\w*|you start|^what is (?:at|on|to|beside|behind)',
    'displacement': (
        r'higher|lower|which way|head|return|turn\w*|look\w*|fac(?:e|es|ed|ing)|heading|view'
    ),
    'distance': (
        r'how much (?:f[au]rther|closer|nearer)|which direction|which of|space|'
        r'(?<!you )(?:mov|shift|push|slid|roll)\w*'
    ),
    'raised': (
        r'near\w*|clos\w+|next|beside|between|under|inside|how|when|where|colou?rs?|left|right|'
        r'still|always|all the time|first|last|than (?:a|\d+|two|three) m\w*'
    ),
    'moved': (
        r'^where|direction|how|when|which way|towards?|colou?r|'
        r'(?:did|do|have|has|are|were|was|is) (?:you|u|we|i|it|the (?:camera|robot|drone))'
    ),
}
# What asks for what stands somewhere, and not for what is done or written there.
_STANDS = re.compile(
    r'\b(?:which|name)\b|\bwhat (?:thing|object)?s?\s*(?:is |are )?(?:up |there |\w+ing )*'
    r'(?:on|shares?|\w+s on)\b'
)
FLOOR = re.compile(r'\b(?:floor|ground)\b')
_FACING = re.compile(r'\bfac(?:e|es|ing)|look(?:s|ing)? (?:at|towards?)\b')
_STEPS = re.compile(r'(?:^|\s)\d+\.\s')
_FARTHEST = re.compile(r'\b(?:farthest|furthest|most distant|farther|further|far away(?:est)?)\b')
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
_DIMENSIONS = {
    'height': r'tall|high|height', 'width': r'wide|width|broad', 'depth': r'deep|depth',
}  # fmt: skip
_SIDES = {
    'left': 'left',
    'right': 'right(?! now| here| away| in| ahead| behind)',
    'ahead': 'ahead|front|forward|straight',
    'behind': 'behind|at (?:my|your|the|our) back|back of',
}
CLOCK = re.compile(r"\bo'?\s?clock\b|\bclock (?:direction|position|face)\b")
_NEAR = re.compile(r'\b(?:next to|near|beside|close (?:to|together|by))\b')
_EVER_NEAR = re.compile(
    r'\b(?:clos|near)(?:est|e?r?)\b.*\b(?:ever|c[ao]me|got|get|went|were|pass\w*)\b|'
    r'\b(?:ever|c[ao]me|got|get|went|were|pass\w*)\b.*\b(?:clos|near)(?:est|e?r?)\b'
)
_EITHER_OR = re.compile(r'\bor\b(?! (?:not|so|less|more than|a bit)\b)')  # one of two is meant
_EITHER = re.compile(r'\b(?:closer|nearer) to\b.*\bor\b')
_BESIDE = re.compile(r'\b(?:(?:left|right)\b.{0,24}?)+\b(?:of|from|than)\b')
_AGO = re.compile(r'\b(?:ago|since|before|until|till)\b')
_FURTHER = re.compile(
    r'\b(?:more|f[au]rther|f[au]rthest|most)(?: (?:to|on))?(?: the| your)? (?P<side>left|right)\b|'
    r'\b(?P<most>left|right) ?most\b'
)
_LARGER = re.compile(r'\b(?P<word>tall|high|long|wid|broad|bigg|larg)e?(?:er|r|est|st)\b')
_DIMENSION_OF = {'tall': 'height', 'high': 'height', 'wid': 'width', 'broad': 'width'}
_RECORDING = r'(?:clip|video|film|recording|footage|flight)'
_DURATION = re.compile(
    rf'\bhow (?:long\b.*\b{_RECORDING}|(?:long|many)\b.*\b(?:sec(?:ond)?s?|min(?:ute)?s?))\b|'
    rf'\bhow much time\b|\b(?:duration|length) of (?:the|this|your) {_RECORDING}\b'
)
_PART = re.compile(  # what is no duration of it all
    r'\b(?:ago|until|till?|before|after|since|when|while|first|still|st[ao]\w+|turn\w*|mov\w+|'
    r'each|per|between|s[ea][ew]n?|view|in|into|last (?!in\b)\w+)\b(?! sec)'
)
_FROM_START = re.compile(r'\b(?:sec(?:ond)?s? in(?:to)?|(?:at )?(?:what|which) (?:second|time))\b')
# What happened before the camera, and whether somebody is there.
_HAPPENED = re.compile(
    r'(?:^|\b(?:did|has|have|is|was) )(?P<what>what|anything|something)'
    r'(?: (?:has|have|is|was|did|just))* (?P<verb>happen\w*|chang\w*|mov\w*|disappear\w*|gone)'
    r'(?: (?:here|there|just now|now|recently|in view))?\W*$'
)
_EVENTS = {'moved': 'mov', 'gone': 'disappear'}
_ANYONE = re.compile(
    r'^is (?P<who>any(?:one|body)|some(?:one|body)) '
    r'(?:there|here|around|in (?:view|sight|the room))\W*$'
)
_NOW = re.compile(r'\b(?:still|now)\b')
_IN_VIEW = re.compile(r'\b(?:see\w*|view|sight|visible|picture|frame)\b')
_TILTS = {'tilted': r'\btilt', 'rolled': r'\broll(?:ed)?\b|\btip(?:ped)? over\b'}
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
_SHIFT = re.compile(r'\b(?:sidew\w+|slid\w*|strafe\w*|shuffl\w+|drift\w*|(?:back|for)wards?)\b')
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
_NEW_TOOLS = frozenset({'beside', 'duration', 'happened', 'raised'})
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
        return bool(self.moment) or self.wanted in _BEYOND or is_near or bool(tools & _NEW_TOOLS)

    @property
    def is_sure(self) -> bool:
        """Whether there is something to compute."""
        return bool(self.calls) and not self.doubt


def excludes(kind: str, sentence: str) -> bool:
    """Whether a sentence has words that a question of a kind has not."""
    return bool(re.search(rf'\b(?:{_NOT_SAID.get(kind, "$^")})\b', sentence))


def _plain(question: str) -> str:
    return _ANYTHING.sub(r'\1 \2 thing', plain_text(question[:_MOST_CHARS]))


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


def read_as(
    kind: str, part: str, options: Sequence[str], labels: Sequence[str], names: Sequence[Name]
) -> Reading:
    """Read a question of a kind that is known: what its answer must be, and what makes it yes.

    Args:
        kind: The name of a method below, or 'structure' for a stance or a route.
        part: One of `parts_of`.
        options: The options; none: a free question.
        labels: The labels of the scene.
        names: The things that it names.
    """
    reader = _Reader(part, options, labels, names)
    if kind == 'structure':
        return reader.by_structure() or reader._doubt('it has no stance and no route')
    reading: Reading = getattr(reader, f'_{kind}')()
    return replace(reading, kind=kind)


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
    reader = _Reader(part, options, labels, names)
    if is_order(part):
        return reader._doubt('that is an order to go somewhere, not a question', 'goal')
    return reader.by_structure()


def moment_of(part: str, reading: Reading) -> str:
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
    if any(map(_asks, asked)) and not _STEPS.search(text):
        is_short = len(_LETTERS.findall(' '.join(asked))) < _SHORT_QUESTION
        told = [one for one in sentences if one not in asked and (is_short or find_names(one, ()))]
        text = ' '.join([*told, *asked])
    if _FACING.search(text) or _STEPS.search(text):
        return [text]
    return [part.strip(' ,') for part in _NEXT.split(text) if part.strip(' ?,.!')]


class _Reader:
    """Reads one question."""

    def __init__(
        self, text: str, options: Sequence[str], labels: Sequence[str], names: Sequence[Name]
    ) -> None:
        self.text, self.options, self.labels, self.names = text, options, labels, list(names)
        told = STATEMENT.search(text)
        if told:
            self.text = text[: told.start('tag' if told['tag'] else 'after')]
        self.is_yes_no = bool(told) or asks_yes_no(self.text, options)
        self.is_either = bool(_EITHER_OR.search(self.text))
        self.unit = unit_of(self.text)

    def _doubt(self, why: str, kind: str = '') -> Reading:
        return Reading(self.text, kind, names=tuple(self.names), doubt=why)

    def _made(self, calls: Sequence[Call], form: Form, **fields: Any) -> Reading:
        is_open_too = bool(fields.pop('open_too', False))
        limit = limit_in(self.text) if self.is_yes_no and form is Form.NUMBER else None
        first = calls[0].arguments.get('what', calls[0].tool)
        if limit and limit[1].dimension == _NUMBERS_OF.get(first, 'length'):
            calls, form, is_angle = list(map(replace_unit, calls)), Form.YES_NO, first == 'turn'
            fields['limit'] = (limit[0], limit[1].value if is_angle else limit[1].base())
        is_open_too |= self.is_either and not self.options
        if self.is_yes_no and form is not Form.YES_NO and not is_open_too:
            return self._doubt('yes or no does not follow from what I can compute')
        return Reading(self.text, '', tuple(calls), form, names=tuple(self.names), **fields)

    def _call(self, tool: str, **arguments: Any) -> Call:
        return Call(tool, {key: value for key, value in arguments.items() if value})

    @property
    def _words(self) -> list[str]:
        return [name.text for name in self.names]

    @property
    def _of_options(self) -> list[str]:
        """Things that the options name, where each names one."""
        found = [find_names(option.lower(), self.labels) for option in self.options]
        return [each[0].text for each in found if len(each) == 1] if all(found) else []

    def _of_events(self) -> Reading | None:
        """What happened, and whether somebody is there."""
        if event := _HAPPENED.search(self.text):
            return replace(self._happened(event), kind='happened')
        if anyone := _ANYONE.search(self.text):
            self.is_yes_no = True
            call = self._call('count', name=anyone['who'])
            return replace(self._made([call], Form.YES_NO), kind='there')
        return None

    def _happened(self, event: re.Match[str]) -> Reading:
        what = next((w for w, word in _EVENTS.items() if word in event['verb']), 'all')
        form = Form.YES_NO if event['what'] != 'what' else Form.TEXT
        self.is_yes_no = form is Form.YES_NO
        return self._made([self._call('happened', what=what)], form)

    def by_structure(self) -> Reading | None:
        """Questions whose form alone says what they ask: a stance, or the steps of a route."""
        words = self._words
        if _STEPS.search(self.text) and len(words) >= 3:
            start, facing, *_ = words
            stops = _stops(self.text, self.labels)
            if not stops:
                return self._doubt('I know none of the places that the steps lead to')
            call = self._call('way_to', goal=stops[-1], start=start, facing=facing, via=stops[:-1])
            blanks = ' '.join(_blanks(self.text))
            made = self._made([call], Form.PLACE, open_too=True, wanted=blanks)
            return replace(made, kind='route')
        limit = limit_in(self.text) if self.is_yes_no else None
        is_time = _DURATION.search(self.text) or (limit and limit[1].dimension == 'time')
        if not words and is_time and not _PART.search(self.text):
            return replace(self._made([self._call('duration')], Form.NUMBER), kind='duration')
        if len(words) == 2 and (beside := self._beside()):
            return replace(beside, kind='beside')
        return self._by_stance() if len(words) >= 3 else self._of_events()

    def _by_stance(self) -> Reading | None:
        facing_at = _FACING.search(self.text)
        if not facing_at:
            return None
        before = [name for name in self.names if name.end <= facing_at.start()]
        after = [name for name in self.names if name.start >= facing_at.end()]
        if len(before) == 1 and len(after) >= 2:
            who, front, item = before[0], after[0], after[1]
        elif len(before) == 2 and len(after) == 1:
            item, who, front = before[0], before[1], after[0]
        else:
            return self._doubt('who stands where, and faces what, is not clear')
        call = self._call('where', name=item.text, at=who.text, facing=front.text)
        return replace(self._side_of(call), kind='stance')

    def _beside(self) -> Reading | None:
        """On which side of one thing another one is, or which is more on a side, as seen."""
        (first, second), side = self.names, _BESIDE.search(self.text)
        call = self._call('beside', a=first.text, b=second.text)
        further = _FURTHER.search(self.text)
        if further and not self.is_yes_no:
            return self._made([call], Form.NAME, wanted=further['side'] or further['most'])
        if not (side and first.end <= side.start() and side.end() <= second.start):
            return None
        sides = set(re.findall(r'left|right', side[0]))
        is_of_one = self.is_yes_no and len(sides) == 1
        form, wanted = (Form.YES_NO, sides.pop()) if is_of_one else (Form.PLACE, LEFT_OR_RIGHT)
        return self._made([call], form, wanted=wanted, open_too=True)

    def _side_of(self, call: Call) -> Reading:
        sides = [side for side, word in _SIDES.items() if re.search(rf'\b(?:{word})\b', self.text)]
        if self.is_yes_no and not self.options and len(sides) == 1 and not self.is_either:
            return self._made([call], Form.YES_NO, wanted=sides[0])
        wanted = LEFT_OR_RIGHT if sides == ['left', 'right'] and self.is_either else ''
        is_open = not self.is_yes_no or len(sides) != 1
        return self._made([call], Form.PLACE, wanted=wanted, open_too=is_open)

    def _things(self) -> Reading:
        if self.names and any(name.kind for name in self.names):
            return self._doubt('what is asked of it is not clear')
        is_here = re.search(r'\b(?:around|here|near(?:by)?|close by)\b', self.text)
        return self._made([self._call('things', scope='here' if is_here else '')], Form.LIST)

    def _count(self) -> Reading:
        if self.unit or re.search(
            r'how many (?:degrees|seconds|met|feet|minutes|turns|times)', self.text
        ):
            return self._doubt('how many of what is not clear')
        if not self.names and re.search(r'\b(?:things|objects|items)\b', self.text):
            return self._made([self._call('count', name='thing')], Form.NUMBER)
        if not self.names:
            return self._doubt('I do not know what is to be counted')
        if not self._are_joined():
            return self._doubt('what is to be counted is not clear')
        calls = [self._call('count', name=word) for word in self._words]
        return self._made(calls, Form.NUMBER)

    def _are_joined(self) -> bool:
        """Whether nothing but 'and', 'or' and commas stands between the names."""
        between = [self.text[a.end : b.start] for a, b in pairwise(self.names)]
        joint = r'(?:\s|,|and|or|the|an?|any|how many|number of)*'
        return all(re.fullmatch(joint, each) for each in between)

    def _there(self) -> Reading:
        if not self.names or (_NOW.search(self.text) and _IN_VIEW.search(self.text)):
            return self._seen()
        if not self._are_joined():
            return self._doubt('I cannot tell what is on or in what')
        if _EACH.match(self.text) or _REPEATED.search(self.text):
            return self._doubt('what, how often, or compared with what, is not clear')
        calls = [self._call('count', name=word) for word in self._words]
        number = _MORE.search(in_digits(self.text[: self.names[0].start]))
        self.is_yes_no = True
        if number is None:
            return self._made(calls, Form.YES_NO)
        way = {'more than': 'more', 'over': 'more', 'fewer than': 'less', 'less than': 'less'}
        limit = (way.get(number['way'] or '', number['way'] or 'exactly'), float(number['number']))
        return self._made(calls, Form.YES_NO, limit=limit)

    def _colour(self) -> Reading:
        known = [name.text for name in self.names if name.labels]
        if len(known) != 1 or self.is_yes_no:
            return self._doubt('of which thing the colour is asked is not clear')
        return self._made([self._call('colour', name=known[0])], Form.TEXT)

    def _where(self) -> Reading:
        if not self.names:
            return (
                self._back()
                if START_WORDS.search(self.text)
                else self._doubt('I do not know that thing')
            )
        if not self._are_joined():
            return self._doubt('where what is, seen from where, is not clear')
        at = START if START_WORDS.search(self.text) else ''
        calls = [self._call('where', name=word, at=at) for word in self._words]
        return self._made(calls, Form.PLACE)

    def _side(self) -> Reading:
        sides = [side for side, word in _SIDES.items() if re.search(rf'\b(?:{word})\b', self.text)]
        if not self.names and len(sides) == 1 and not self.is_yes_no:
            return self._made([self._call('things', scope=sides[0])], Form.LIST)
        if not self.names and sides and START_WORDS.search(self.text):
            return self._side_of(self._call('where', name=START))
        is_what = re.match(r'(?:so |and )?(?:what|which)', self.text)
        if len(self.names) != 1 or (is_what and not self.options):
            return self._doubt('which thing is meant is not clear')
        return self._side_of(self._call('where', name=self._words[0]))

    def _distance(self) -> Reading:
        words = self._words
        if START_WORDS.search(self.text) and not words:
            return self._displacement()
        if not words:
            return self._doubt('between what is not clear')
        other = words[1] if len(words) > 1 else START if START_WORDS.search(self.text) else ''
        is_ever = not other and bool(_EVER_NEAR.search(self.text))
        call = self._call('distance', a=words[0], b=WAY if is_ever else other, unit=self.unit)
        if len(words) > 2:
            return self._doubt('between which two things is not clear')
        if self.is_yes_no and not limit_in(self.text) and _NEAR.search(self.text):
            return self._made([replace_unit(call)], Form.YES_NO, wanted=NEAR)
        return self._made([call], Form.NUMBER, wanted=EVER if is_ever else '')

    def _nearest(self) -> Reading:
        words, listed = self._words, self._of_options
        farthest = 'yes' if _FARTHEST.search(self.text) else ''
        to = ROBOT
        mark = re.compile(r'\b(?:to|from|beside|by|near)\s+(?:the |an? |my |your )?$')
        after = [name for name in self.names if mark.search(self.text[: name.start])]
        if len(after) > 1:
            return self._doubt('what is compared with what is not clear')
        to = after[0].text if after else ROBOT
        if START_WORDS.search(self.text) and to == ROBOT:
            to = START
        among = [word for word in words if word != to] or listed
        if self.is_yes_no and len(words) == 2 and _NEAR.search(self.text):
            call = self._call('distance', a=words[0], b=words[1])
            return self._made([call], Form.YES_NO, wanted=NEAR)
        if len(among) == 1 and to == ROBOT and len(labels := self.names[0].labels) > 1:
            among = list(labels)  # of several things of one name
        if len(among) == 1 or self.is_yes_no:
            return self._doubt('what is compared with what is not clear')
        call = self._call('nearest', to=to, among=among, farthest=farthest)
        is_near = to not in (ROBOT, START) and not among and _NEAR.search(self.text)
        return self._made([call], Form.NAME, wanted=NEAR if is_near else '')

    def _closer(self) -> Reading:
        words = self._words
        if len(words) == 3 and _EITHER.search(self.text):
            self.is_yes_no = False
            call = self._call('nearest', to=words[0], among=words[1:])
            return self._made([call], Form.NAME, wanted=EITHER)
        if not self.is_yes_no or len(words) not in (2, 3):
            return self._nearest() if not self.is_yes_no else self._doubt('compared with what?')
        to = words[1] if len(words) == 3 else ROBOT
        if not re.search(r'\bthan\b', self.text):
            return self._doubt('compared with what is not clear')
        farther = 'yes' if _FARTHEST.search(self.text) else ''
        among = [words[0], words[-1]]
        call = self._call('nearest', to=to, among=among, farthest=farther)
        return self._made([call], Form.YES_NO, wanted=words[0])

    def _size(self) -> Reading:
        if not self.names:
            return self._area()
        dimension = next(
            (k for k, word in _DIMENSIONS.items() if re.search(rf'\b(?:{word})\b', self.text)), ''
        )
        if 'longest' in self.text:
            dimension = 'longest'
        larger = _LARGER.search(self.text)
        if larger and len(self.names) > 1 and self._are_joined():
            return self._largest(_DIMENSION_OF.get(larger['word'], ''))
        if len(self.names) > 1:
            return self._doubt('of which thing the size is asked is not clear')
        call = self._call('size', name=self._words[0], dimension=dimension, unit=self.unit)
        return self._made([call], Form.NUMBER)

    def _largest(self, dimension: str) -> Reading:
        calls = [self._call('size', name=word, dimension=dimension) for word in self._words]
        return self._made(calls, Form.NAME, wanted=LARGEST)

    def _area(self) -> Reading:
        if not re.search(
            r'\b(?:room|floor|place|space|area|it|flat|apartment|house)\b', self.text
        ):
            return self._doubt('of what the size is asked is not clear')
        return self._made([self._call('floor_area', unit=self.unit)], Form.NUMBER)

    def _seen(self) -> Reading:
        is_while = re.search(r'\bhow long\b', self.text) and not _AGO.search(self.text)
        if not self.names or is_while:
            return self._doubt('I do not know that thing')
        is_first = _FIRST.search(self.text) or _AT_SIGHT.search(self.text)
        sight = 'first' if is_first and not _LAST.search(self.text) else 'last'
        call = self._call('seen', name=self._words[0], sight=sight)
        if self.is_yes_no and _NOW.search(self.text) and _IN_VIEW.search(self.text):
            return self._made([call], Form.YES_NO)
        is_from_start = sight == 'first' or _FROM_START.search(self.text)
        if is_from_start and not re.search(r'\bago\b', self.text):
            return self._made([call], Form.NUMBER, wanted=SINCE_START)
        if not (_AGO.search(self.text) or _LAST.search(self.text) or 'when' in self.text):
            return self._doubt('since when is not clear')
        return self._made([call], Form.NUMBER)

    def _order(self) -> Reading:
        words = self._words or self._of_options
        either = _BEFORE_OR_AFTER.search(' or '.join([self.text, *self.options]))
        if (self.is_yes_no or either) and not _are_names(self.options, self.labels):
            return self._before(words, is_either=bool(either))
        self.is_yes_no = False
        wanted = 'last' if _LAST.search(self.text) and not _FIRST.search(self.text) else ''
        if len(words) == 1 or (not words and re.search(f'{BEFORE}|{AFTER}', self.text)):
            return self._doubt('compared with what is not clear')
        form = Form.LIST if re.search(r'\border|sequence\b', self.text) else Form.NAME
        return self._made([self._call('order', among=words)], form, wanted=wanted)

    def _before(self, words: list[str], *, is_either: bool) -> Reading:
        if len(words) != 2:
            return self._doubt('which came before which is not clear')
        call = self._call('order', among=words)
        if is_either:
            return self._made([call], Form.TEXT, wanted=BEFORE_OR_AFTER, open_too=True)
        return self._made([call], Form.YES_NO, wanted=words[bool(re.search(AFTER, self.text))])

    def _turn(self) -> Reading:
        if self.names:
            return self._doubt('of which turn it is asked is not clear')
        call, sides = self._call('motion', what='turn'), self._sides_of_turn()
        is_than = len(sides) == 2 and self.is_yes_no and re.search(r'\bthan\b', self.text)
        wanted = min(sides, key=self.text.find) if is_than or len(sides) == 1 else ''
        if not self.is_yes_no and re.search(r'\bhow (?:much|many|far)\b|\bdeg', self.text):
            wanted = 'both' if re.search(r'\bboth\b', self.text) else wanted
            return self._made([call], Form.NUMBER, wanted=wanted)
        if self.is_yes_no and limit_in(self.text) and TURNING.search(self.text):
            return self._made([call], Form.NUMBER)
        wanted = 'same' if re.search(r'\bsame (?:way|direction)\b', self.text) else wanted
        if self.is_yes_no and wanted and not self.is_either:
            return self._made([call], Form.YES_NO, wanted=wanted)
        has_turned = self.is_yes_no and re.search(r'^\w+ \w+ (?:turn|rotate)d?\W*$', self.text)
        call = self._call('moves', what='turned') if has_turned else call
        form = Form.YES_NO if has_turned else Form.PLACE
        return self._made([call], form, open_too=len(sides) == 2)

    def _sides_of_turn(self) -> list[str]:
        return [side for side, word in _TURNS.items() if re.search(rf'\b(?:{word})\b', self.text)]

    def _first_turn(self) -> Reading:
        if self.names:
            return self._doubt('of which turn it is asked is not clear')
        which = 'last' if _LAST.search(self.text) else 'first'
        sides = [side for side in ('left', 'right') if re.search(rf'\b{side}\b', self.text)]
        call = self._call('moves', what='turned', which=which)
        if self.is_yes_no and len(sides) == 1:
            return self._made([call], Form.YES_NO, wanted=sides[0])
        is_open = len(sides) > 1 or not YES_NO.match(self.text)
        return self._made([call], Form.PLACE, open_too=is_open)

    def _way(self) -> Reading:
        if self.names or (self.is_yes_no and not limit_in(self.text)):
            return self._doubt('which way is meant is not clear')
        return self._made([self._call('motion', what='way', unit=self.unit)], Form.NUMBER)

    def _displacement(self) -> Reading:
        if self.names or not (self.is_yes_no or START_WORDS.search(self.text)):
            return self._doubt('which way is meant is not clear')
        call = self._call('motion', what='displacement', unit=self.unit)
        if self.options and any(
            re.search(rf'\b(?:{word})\b', self.text) for word in _SIDES.values()
        ):
            return self._made([self._call('where', name=START)], Form.PLACE, open_too=True)
        if self.is_yes_no and limit_in(self.text):
            return self._made([call], Form.NUMBER)
        if self.is_yes_no:
            return self._made([call], Form.YES_NO, wanted='back')
        is_number = self.unit or re.search(r'\b(?:far|distance|many|much)\b', self.text)
        return self._made([call], Form.NUMBER if is_number else Form.PLACE)

    def _moves(self) -> Reading:
        if self.names:
            return self._doubt('which move is meant is not clear')
        which = 'first' if _FIRST.search(self.text) else 'last' if _LAST.search(self.text) else ''
        words = self._directions()
        tilts = [what for what, word in _TILTS.items() if re.search(word, self.text)]
        if self.is_yes_no and len(tilts) == 1 and not words:
            call = self._call('moves', what=tilts[0])
            return self._made([call], Form.YES_NO)
        what = 'moved' if _SHIFT.search(self.text) and not TURNING.search(self.text) else ''
        call = self._call('moves', what=what, which=which)
        if self.is_yes_no and len(words) == 1 and not self.is_either:
            return self._made([call], Form.YES_NO, wanted=words[0])
        return self._made([call], Form.TEXT, wanted=' '.join(words))

    def _directions(self) -> list[str]:
        return directions_in(self.text)

    def _moved(self) -> Reading:
        if len(self.names) > 1:
            return self._doubt('which thing is meant is not clear')
        call = self._call('happened', what='moved', name=''.join(self._words))
        is_still = re.search(r'\b(?:stay\w*|still|kept|keep|same)\b', self.text)
        if self.is_yes_no or (self.names and not self.options):
            return self._made([call], Form.YES_NO, wanted='still' if is_still else 'moved')
        return self._made([call], Form.NAME)

    def _raised(self) -> Reading:
        on = re.compile(r'\b(?:on|shares?)\s+(?:(?:top of )?(?:the|an?|that|its)\s+)?(?:\w+\s+)?$')
        is_it = re.search(r'\bon (?:it|that)\b', self.text)
        below = [
            n for n in self.names if on.search(self.text[: n.start]) or (is_it and not n.labels)
        ]
        names = [name.text for name in self.names if name not in below]
        is_floor = bool(FLOOR.search(self.text))
        is_said = below or is_floor or re.search(r'\b(?:higher up|highest)\b', self.text)
        is_open = is_floor and not (self.is_yes_no or self.options)
        is_asked = self.is_yes_no or _STANDS.search(self.text)
        if any(name.labels for name in below) or is_open or not (is_said and is_asked):
            return self._doubt('what stands on what is not clear')
        call = self._call('raised', among=names or self._of_options)
        if self.is_yes_no and not self.options:
            return self._made([call], Form.YES_NO)
        is_list = re.search(r'^what|\bare\b', self.text)
        return self._made([call], Form.LIST if is_list else Form.NAME, open_too=True)

    def _moving(self) -> Reading:
        if self.names:
            return self._doubt('whether I or it moves is not clear')
        still = re.search(
            r'\b(?:still(?! moving)|stop\w*|stand\w*|stationary|static)\b', self.text
        )
        is_all = re.search(
            r'\b(?:at all|around|ever|any)\b|^(?:did|ha(?:s|ve)) .*\bmov(?:e|ing)', self.text
        )
        call = self._call('motion', what='any' if is_all else 'now')
        if still and re.search(r'\bor\b', self.text):
            return self._made([call], Form.TEXT, open_too=True)
        self.is_yes_no = True
        return self._made([call], Form.YES_NO, wanted='still' if still else 'moving')

    def _height(self) -> Reading:
        if self.names:
            return self._doubt('whose height is meant is not clear')
        words = self._directions()
        if set(words) - {'up', 'down'} or re.search(r'\bfirst\b', self.text):
            return self._doubt('which move is meant is not clear')
        if re.search(r'\b(?:higher|gain\w*)\b', self.text):
            words.append('up')
        if re.search(r'\b(?:lower|los[et]\w*)\b', self.text):
            words.append('down')
        call = self._call('motion', what='height', unit=self.unit)
        is_number = re.search(r'\bhow (?:many|much|far)\b', self.text)
        if is_number or limit_in(self.text):
            self.is_yes_no = not is_number
            return self._made([call], Form.NUMBER)
        if self.is_yes_no and len(set(words)) == 1:
            return self._made([call], Form.YES_NO, wanted=words[0])
        is_open = (bool(words) and ' or ' in self.text) or re.search(
            r'\b(?:height|altitude|level)\b', self.text
        )
        return self._made([call], Form.TEXT, open_too=is_open)

    def _back(self) -> Reading:
        if self.names or self.text.startswith('when'):
            return self._doubt('the way to what is not clear')
        if _WHERE_NOW.search(self.text) or re.search(r'\bdid (?:you|we) start\b', self.text):
            return self._doubt('where from, or where to, is not clear')
        if self.is_yes_no or re.search(r'\bhow far|distance\b', self.text):
            return self._displacement()
        return self._made([self._call('way_to', goal=START)], Form.PLACE)

    def _way_to(self) -> Reading:
        if len(self.names) != 1 or self.is_yes_no:
            return self._doubt('the way to what is not clear')
        return self._made([self._call('way_to', goal=self._words[0])], Form.PLACE)

    def _visited(self) -> Reading:
        words = self._words or self._of_options
        if self.is_yes_no and not self.options:
            if len(words) != 1:
                return self._doubt('which thing is meant is not clear')
            return self._made([self._call('visited', among=words)], Form.YES_NO, wanted=words[0])
        self.is_yes_no = False
        form = Form.NAME if _FIRST.search(self.text) else Form.LIST
        return self._made([self._call('visited', among=words)], form)

    def _none(self) -> Reading:
        return self._doubt(NO_TOOL)


def is_order(question: str) -> bool:
    """Whether a question tells to go somewhere instead of asking."""
    return bool(_GOAL.match(question)) and 'me back' not in question


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


def _steps(text: str) -> list[str]:
    return [step.strip() for step in _STEPS.split(text)[1:]]


def _stops(text: str, labels: Sequence[str]) -> list[str]:
    """The stops of a route's numbered steps."""
    found = [find_names(step, labels) for step in _steps(text) if not step.startswith('[')]
    return [names[0].text for names in found if names]


def _blanks(text: str) -> list[str]:
    """For each leg of a route, whether the turn before it is left out: 'yes' or 'no'."""
    steps = _steps(text)
    return [
        'yes' if index and steps[index - 1].startswith('[') else 'no'
        for index, step in enumerate(steps)
        if not step.startswith('[')
    ]


def directions_in(text: str) -> list[str]:
    """Directions of moves that a text names."""
    return [word for word, p in _MOVES.items() if re.search(rf'\b(?:{p})\b', text)]


def _are_names(options: Sequence[str], labels: Sequence[str]) -> bool:
    return bool(options) and all(find_names(option.lower(), labels) for option in options)
