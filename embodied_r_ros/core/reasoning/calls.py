# SPDX-License-Identifier: Apache-2.0
"""The compact form in which a small model reads a question into calls of the scene's tools.

`Things: chair, sofa, tv / Question: … / Call:` -> ` nearest(sofa; tv, chair)`; several calls are
joined by ` + `, and `unknown()` stands for what no tool answers. Names are labels of the scene; a
thing that is not there is named as the question does. What the answer must be (a number, yes or
no, a side) is not the model's matter: it follows from the words of the question.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from difflib import get_close_matches
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_seen
from embodied_r_ros.core.reasoning.forms import asks_yes_no
from embodied_r_ros.core.reasoning.prompts import Prompt
from embodied_r_ros.core.reasoning.reading import (
    are_names,
    Call,
    COUNTED,
    is_foreign,
    is_order,
    MISREAD,
    NEW_TOOLS,
    NO_TOOL,
    parts_of,
    read_form,
    read_structure,
    Reading,
    START_WORDS,
    TURNING,
    what_of,
)
from embodied_r_ros.core.reasoning.sentences import readings_of
from embodied_r_ros.core.scene.memory import SceneText
from embodied_r_ros.core.scene.names import ANYTHING, find_names, Name, resolve
from embodied_r_ros.core.scene.tools import ROBOT, START, WAY
from embodied_r_ros.core.types.vocabulary import COLOUR_WORDS, SHAPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.reasoning.sentences import KnownSentence
    from embodied_r_ros.core.scene.tools import Scene

CALLS_PROMPT_VERSION = 'calls-1'
MOST_TOKENS = 96  # of the calls
UNKNOWN_CALL = Call('unknown', {})
_MOST_LABELS = 40  # that a prompt lists
_MOST_CALLS = 4
_MOST_NAMES = 8
_WHERE = re.compile(
    r'\b(?:on|in|at|under|behind|above|of)\s+(?:(?:an?|the|that|this|my|any of the)\s+)?$'
)
_TIMES = frozenset({'first', 'last', 'now'})  # where a place should stand
_LEAST_LIKE = 0.75  # of a word of a name and one of the question
_JOINT = ' + '
_CALL = re.compile(r'\s*(\w+)\s*\(([^()]*)\)\s*')
_NAME = re.compile(r"[\w][\w' -]{0,40}")
_NOT_READ = 'I do not understand the question'
_FOREIGN = 'I read questions in English alone'
_LIKE = 0.32  # least score of what a question is read as
_LISTED = re.compile(r'(?:\s|,|and|or|the|an?)*')
_PRONOUN = re.compile(r'\b(?:it|them|one|that)\b')


@dataclass(frozen=True)
class _Parameter:
    """A parameter of a tool: names of things, or one of some words."""

    name: str
    words: tuple[str, ...] = ()  # empty: names of things
    least: int = 1
    most: int = 1
    is_second: bool = False  # stands after the semicolon

    def takes(self, words: Sequence[str]) -> bool:
        """Whether these words may stand for it."""
        if self.words:
            return len(words) >= self.least and set(words) <= set(self.words)
        return len(words) >= self.least and all(map(_NAME.fullmatch, words))


_MANY: dict[str, Any] = {'least': 0, 'most': _MOST_NAMES}
_SECOND: dict[str, Any] = {'least': 0, 'is_second': True}
_SCOPES = ('all', 'now', 'here', 'ahead', 'left', 'right', 'behind')
_WHATS = ('turn', 'way', 'displacement', 'height', 'now', 'any')
_OF_MOVES = ('moved', 'turned', 'tilted', 'rolled')
_AMONG = _Parameter('among', **{**_MANY, 'is_second': True})
_TO = _Parameter('to')
# How a call of each tool is written: `name(parameter; second parameters)`.
_TOOLS: dict[str, tuple[_Parameter, ...]] = {
    'things': (_Parameter('scope', _SCOPES),),
    'count': (_Parameter('name'),),
    'where': (_Parameter('name'), _Parameter('at', **_SECOND), _Parameter('facing', **_SECOND)),
    'distance': (_Parameter('a'), _Parameter('b', least=0)),
    'nearest': (_TO, _AMONG),
    'farthest': (_TO, _AMONG),
    'size': (
        _Parameter('name'),
        _Parameter('dimension', ('longest', 'height', 'width', 'depth'), **_SECOND),
    ),
    'floor_area': (),
    'seen': (_Parameter('name'), _Parameter('sight', ('first', 'last'), is_second=True)),
    'order': (_Parameter('among', **_MANY),),
    'motion': (_Parameter('what', _WHATS),),
    'moves': (
        _Parameter('what', _OF_MOVES, least=0),
        _Parameter('which', ('first', 'last'), **_SECOND),
    ),
    'colour': (_Parameter('name'),),
    'visited': (_Parameter('among', **_MANY),),
    'way_to': (
        _Parameter('goal'),
        _Parameter('start', **_SECOND),
        _Parameter('facing', **_SECOND),
        _Parameter('via', **{**_MANY, 'is_second': True}),
    ),
    'unknown': (),
    # The rest is for known sentences alone: no model writes it.
    'beside': (_Parameter('a'), _Parameter('b')),
    'duration': (),
    'happened': (_Parameter('what', ('all', 'moved', 'gone')), _Parameter('name', least=0)),
    'raised': (_Parameter('among', **_MANY),),
    'changed': (
        _Parameter('what', ('all', 'new', 'gone', 'moved', 'been')),
        _Parameter('name', least=0),
    ),
}
_WRITTEN = {tool: own for tool, own in _TOOLS.items() if tool not in NEW_TOOLS}
_SOMETHING = re.compile(r'(?:^|\b(?:did|does|ha[sv]e?|is|was) )(?:some|any)(?:thing|one|body)\b')
_AWAY = re.compile(rf'{START_WORDS.pattern}|\b(?:back|out|off|first|from)\b')
# Of tags ("yes or no", "and if not, …") it denies nothing.
_DENIAL = re.compile(r'(?<!\bor )\b(?:no|not|nothing|none)\b(?!.*,)(?!\W*$)')
_HOW_OFTEN = re.compile(
    r'\b(?:how often|(?:how many|count|number of) (?:the |all )*(?:times|turns|corners|bends))\b'
)
_WHO = frozenset({'person', 'man', 'woman', 'visitor'})


def calls_prompt(question: str, options: Sequence[str], labels: Sequence[str]) -> Prompt:
    """The prompt of a model that writes calls."""
    return Prompt('', compact_prompt(question, options, labels), SceneText(''))


def compact_prompt(question: str, options: Sequence[str], labels: Sequence[str]) -> str:
    """What the model reads."""
    lines = [f'Things: {", ".join(labels)}', f'Question: {" ".join(question.split())}']
    lines += [f'Options: {"; ".join(options)}'] * bool(options)
    return '\n'.join([*lines, 'Call:'])


def labels_to_list(question: str, options: Sequence[str], scene: Scene) -> list[str]:
    """The labels that a prompt lists: all, or of many those that are named and the most seen.

    Labels of other characters than names have are left out: they would end the prompt's line, or a
    rule of the grammar. So are those that give orders.
    """
    known = [one for one in scene.labels if _NAME.fullmatch(one) and one == as_seen(one)]
    if len(known) <= _MOST_LABELS:
        return known
    named = [
        label
        for text in (question, *options)
        for name in find_names(text, scene.labels)
        for label in name.labels
        if label in known
    ]
    return list(dict.fromkeys((*named, *known)))[: max(_MOST_LABELS, len(set(named)))]


def format_calls(calls: Sequence[Call]) -> str:
    """Calls as a model writes them."""
    return ' ' + _JOINT.join(map(_written, calls))


def _written(call: Call) -> str:
    values = dict(call.arguments)
    name = 'farthest' if values.pop('farthest', '') else call.tool
    values = {'to': ROBOT, 'scope': 'all', 'sight': 'last', **values}
    sides: tuple[list[str], list[str]] = ([], [])
    for parameter in _TOOLS[name]:
        value = values.get(parameter.name) or ()
        sides[parameter.is_second].extend([value] if isinstance(value, str) else value)
    first, second = map(', '.join, sides)
    return f'{name}({first}{"; " * bool(second)}{second})'


def parse_calls(text: str, labels: Sequence[str]) -> tuple[Call, ...] | None:
    """The calls that a model wrote; None: a tool or its arguments are not as they must be.

    Args:
        text: Its completion.
        labels: The labels of the scene, in whose letters they are named.
    """
    known = {label.lower(): label for label in labels}
    parts = text.strip().splitlines()[0].split('+') if text.strip() else []
    calls = [_parsed(part, known) for part in parts]
    if not calls or None in calls or len(calls) > _MOST_CALLS:
        return None
    return tuple({str(call): call for call in calls if call is not None}.values())


def _parsed(part: str, known: dict[str, str]) -> Call | None:
    match = _CALL.fullmatch(part)
    if match is None or match[1] not in _TOOLS or match[2].count(';') > 1:
        return None
    sides = [[w.strip().lower() for w in side.split(',')] for side in match[2].split(';')]
    words = {False: sides[0] if sides[0] != [''] else [], True: [*sides[1:], []][0]}
    arguments: dict[str, Any] = {}
    for parameter in _TOOLS[match[1]]:
        own = words[parameter.is_second][: parameter.most]
        del words[parameter.is_second][: parameter.most]
        if not parameter.takes(own):
            return None
        if own:
            named = [known.get(word, word) for word in own]
            arguments[parameter.name] = named if parameter.most > 1 else named[0]
    if words[False] or words[True]:
        return None
    is_farthest = match[1] == 'farthest'
    more = {'farthest': 'yes'} if is_farthest else {}
    return Call('nearest' if is_farthest else match[1], {**arguments, **more})


def grammar(labels: Sequence[str], without: Sequence[Call] = ()) -> str:
    """A grammar (GBNF of llama.cpp) of the calls that a scene with these labels allows.

    Args:
        labels: Of the scene.
        without: Calls whose tools are left out; of `motion` alone what they ask of it.
    """
    out = {'farthest' if 'farthest' in call.arguments else what_of(call) for call in without}
    tools = ' | '.join(tool for tool in _WRITTEN if tool not in out)
    lines = [
        f'root ::= " " call ("{_JOINT}" call){{0,{_MOST_CALLS - 1}}}',
        f'call ::= {tools}'.replace('_', '-'),
        'name ::= ' + ' | '.join([*(f'"{label}"' for label in labels), 'other']),
        'other ::= [a-z] [a-z -]{1,24}',  # what is not there
    ]
    whats = tuple(what for what in _WHATS if what not in out) or _WHATS
    for tool, every in _WRITTEN.items():
        parameters = [replace(p, words=whats) if p.words is _WHATS else p for p in every]
        first = _sequence([p for p in parameters if not p.is_second], '')
        second = _sequence([p for p in parameters if p.is_second], '; ')
        rule = ' '.join(filter(None, (f'"{tool}("', first, second, '")"')))
        lines.append(f'{tool} ::= {rule}'.replace(f'{tool} ', f'{tool.replace("_", "-")} ', 1))
    return '\n'.join(lines)


def _sequence(parameters: Sequence[_Parameter], mark: str) -> str:
    """The rule of the parameters of one side: each may end it from where the rest is optional."""
    rule = ''
    for index in reversed(range(len(parameters))):
        each = parameters[index]
        value = ' | '.join(f'"{word}"' for word in each.words) if each.words else 'name'
        before = f'"{mark if index == 0 else ", "}" ' if mark or index else ''
        more = f' (", " name){{0,{each.most - 1}}}' if each.most > 1 else ''
        rule = f'{before}({value}){more} {rule}'.rstrip()
        rule = f'({rule})?' if each.least == 0 else rule
    return rule


# What a question asks for, without a model.


def read_question(question: str, options: Sequence[str], labels: Sequence[str]) -> list[Reading]:
    """Read a question, or each of several in one, by the sentences that it is like.

    Args:
        question: A person's words.
        options: The options; none: a free question.
        labels: The labels of the scene.

    Raises:
        ConfigError: The package with the vectors of words is not installed.
    """
    if is_foreign(question):
        return [Reading(question, doubt=_FOREIGN)]
    readings: list[Reading] = []
    parts = parts_of(question)
    for part in parts:
        told = readings[-1].names if readings else ()
        reading = _read_part(part, question, options, labels, told)
        if not (reading.calls and _in_no_unit(reading) in map(_in_no_unit, readings)):
            readings.append(reading)
    if len(readings) > 1 and all(reading.doubt for reading in readings[1:]):
        whole = _read_part(' '.join(parts), question, options, labels, ())
        return readings if whole.doubt else [whole]
    return readings


def _read_part(
    part: str, question: str, options: Sequence[str], labels: Sequence[str], told: Sequence[Name]
) -> Reading:
    """The reading of a part of a question, before which things were named."""
    asked = open_question(part, labels, told)
    if special := read_structure(part, options, labels, asked.names):
        return special
    wordings = [asked]
    if not asked.words and are_names(options, labels):
        of_options = f'{part.strip(" ?.!")}, {" or ".join(options)}'.lower()
        wordings.append(open_question(of_options, labels, told))  # one of these is meant
    for each in wordings:
        known, score = next(iter(readings_of(each.sentence, len(each.words))), (None, 0.0))
        if known and score >= _LIKE:
            return each.read_as(known, question, options, labels)
    return Reading(part, names=asked.names, doubt=_NOT_READ)


@dataclass(frozen=True)
class OpenQuestion:
    """A part of a question whose things are left open."""

    part: str
    names: tuple[Name, ...]
    sentence: str  # with {x}, {ys} … in place of things, as sentences.yaml has them
    words: tuple[str, ...]  # of these things

    def read_as(
        self, known: KnownSentence, question: str, options: Sequence[str], labels: Sequence[str]
    ) -> Reading:
        """Its reading, where it is read as a known sentence is."""
        colour = next((word for word in self.part.split() if word in COLOUR_WORDS), '')
        slots = dict(zip(known.slots, self.words, strict=True))
        calls = parse_calls(known.calls.format(c=f'{colour} thing'.strip(), **slots), labels)
        reading = _reading(self.part, question, options, labels, calls or ())
        is_misread = reading.doubt.startswith(MISREAD)
        return replace(reading, doubt=_NOT_READ) if is_misread else reading


def open_question(part: str, labels: Sequence[str], told: Sequence[Name]) -> OpenQuestion:
    """Leave the things of a question open.

    Args:
        part: One of `parts_of`.
        labels: The labels of the scene.
        told: What was named before it, for 'it' and 'them'.
    """
    names, sentence = find_names(part, labels), part
    if not names and _PRONOUN.search(part):
        names, sentence = list(told), _PRONOUN.sub('{x}' if told else 'thing', part)
    things = _things_of(part, names)
    words = list(dict.fromkeys(', '.join(name.text for name in own) for own, *_ in things))
    for own, start, end in reversed(things):
        if part[start:end].startswith(own[0].text):
            letter = 'xyzw'[min(words.index(', '.join(name.text for name in own)), 3)]
            plural = 's' if len(own) > 1 or own[0].is_plural else ''
            sentence = f'{sentence[:start]}{{{letter}{plural}}}{sentence[end:]}'
    return OpenQuestion(part, tuple(names), sentence, tuple(words))


def _things_of(part: str, names: Sequence[Name]) -> list[tuple[list[Name], int, int]]:
    """The names in a part, with their places; those of a list of three and more are one."""
    groups: list[list[Name]] = []
    for name in sorted(names, key=lambda name: name.start):
        if groups and _LISTED.fullmatch(part[groups[-1][-1].end : name.start]):
            groups[-1].append(name)
        else:
            groups.append([name])
    lists = [
        own for group in groups for own in ([group] if len(group) > 2 else map(_alone, group))
    ]
    return [(own, own[0].start, own[-1].end) for own in lists]


def _alone(name: Name) -> list[Name]:
    return [name]


def _in_no_unit(reading: Reading) -> list[Call]:
    """The calls of a reading, whatever unit is asked for."""
    return [
        replace(call, arguments={k: v for k, v in call.arguments.items() if k != 'unit'})
        for call in reading.calls
    ]


# What the answer must be.


def read_calls(
    question: str, options: Sequence[str], labels: Sequence[str], calls: Sequence[Call] | None
) -> tuple[Reading, ...]:
    """The readings of a question of which a model wrote the calls; None: it wrote none.

    A reading has a doubt where the calls leave out a thing that the question names.
    """
    if is_foreign(question):
        return (Reading(question, doubt=_FOREIGN),)
    parts = parts_of(question)
    groups = _groups(calls or (), len(parts))
    if len(groups) != len(parts):
        parts, groups = [' '.join(parts)], [tuple(calls or ())]
    return tuple(
        _reading(part, question, options, labels, group)
        for part, group in zip(parts, groups, strict=True)
    )


def _groups(calls: Sequence[Call], count: int) -> list[tuple[Call, ...]]:
    """Calls by the part of the question that they are of: each, or those of a tool together."""
    if len(calls) == count:
        return [(call,) for call in calls]
    groups: list[tuple[Call, ...]] = []
    for call in calls:
        if groups and groups[-1][-1].tool == call.tool:
            groups[-1] = (*groups[-1], call)
        else:
            groups.append((call,))
    return groups


def _reading(
    part: str,
    question: str,
    options: Sequence[str],
    labels: Sequence[str],
    calls: tuple[Call, ...],
) -> Reading:
    calls = tuple(_without_no_things(call, labels) for call in calls)
    names: list[Name] = []
    doubt = _doubt_of_calls(part, question, options, calls)
    if not doubt:
        names, doubt = _names_of(part, question, options, labels, calls)
    if doubt:
        return Reading(part, doubt=doubt)
    if calls[0].tool == 'things' and COUNTED.search(part):
        calls = (Call('count', {'name': 'thing'}),)
    return read_form(part, options, labels, names, calls)


def _has_twice(call: Call) -> bool:
    among = call.arguments.get('among', ())
    return len(set(among)) < len(among)


def _is_of_moves(call: Call) -> bool:
    return call.tool in ('motion', 'moves')


def _wants_yes_no(part: str, options: Sequence[str]) -> bool:
    return asks_yes_no('', options) if options else asks_yes_no(part, ())


def _doubt_of_calls(
    part: str, question: str, options: Sequence[str], calls: Sequence[Call]
) -> str:
    """Why calls cannot be what a question asks for, whatever it names; empty: they can."""
    if not calls or UNKNOWN_CALL in calls:
        return NO_TOOL if calls else _NOT_READ
    first = what_of(calls[0])
    is_open = not (options or _wants_yes_no(part, options))
    is_turn = first == 'moves' and 'what' not in calls[0].arguments and TURNING.search(part)
    is_start = START in map(_first_of, calls)
    is_from_start = any(START in map(call.arguments.get, ('at', 'b')) for call in calls)
    is_unsaid = is_from_start and not START_WORDS.search(question.lower())
    of_robot = [call for call in calls if call.tool not in ('nearest', 'way_to')]
    is_denied = (first == 'things' or _wants_yes_no(part, options)) and _DENIAL.search(part)
    doubts = {
        'what "no" or "not" denies is not clear: ask without it': is_denied,
        'how often I moved is not counted': _is_of_moves(calls[0]) and _HOW_OFTEN.search(part),
        'that is an order, not a question': is_order(part),
        f'{MISREAD}asks for the robot itself': ROBOT in map(_first_of, of_robot),
        'which turn is meant is not clear': is_turn,
        'whether I moved is no answer to that': is_open and first in ('now', 'any'),
        f'{MISREAD}has a thing twice': any(map(_has_twice, calls)),
        f'{MISREAD}is of me': all(map(_is_of_moves, calls)) and _SOMETHING.search(part),
        f'{MISREAD}adds the start': is_unsaid or (is_start and not _AWAY.search(question.lower())),
    }
    return next((doubt for doubt, holds in doubts.items() if holds), '')


def _first_of(call: Call) -> Any:
    return next(iter(call.arguments.values()), None)


def _without_no_things(call: Call, labels: Sequence[str]) -> Call:
    """The call with names of things alone where things and places must stand."""
    if call.tool == 'where' and call.arguments.get('at') in _TIMES:
        call = Call('where', {'name': call.arguments['name']})
    among = call.arguments.get('among') or []
    known = [word for word in among if word in labels or find_names(word, labels)]
    if len(known) < 2 or len(known) == len(among):
        return call
    return replace(call, arguments={**call.arguments, 'among': known})


def _is_said(name: Name, texts: Sequence[str], labels: Sequence[str]) -> bool:
    """Whether texts name a thing of a call, or have its words or such that resemble them."""
    if any(set(name.labels) & set(n.labels) for text in texts for n in find_names(text, labels)):
        return True
    words = re.findall(r'\w+', ' '.join(texts))
    own = [w for w in re.findall(r'\w+', name.text) if w not in ANYTHING and w not in SHAPES]
    return all(get_close_matches(word, words, 1, _LEAST_LIKE) for word in own)


def _names_of(
    part: str,
    question: str,
    options: Sequence[str],
    labels: Sequence[str],
    calls: Sequence[Call],
) -> tuple[list[Name], str]:
    """The names of the calls, where the question has them; and a doubt where they differ."""
    found = find_names(part, labels)
    if all(map(_is_of_moves, calls)) or any(call.arguments.get('facing') for call in calls):
        found = [name for name in found if name.kind not in _WHO]  # who stands or moves there
    rest = list(dict.fromkeys(_named(calls)))
    own = {word: {word, *resolve(word, labels).labels} for word in rest}
    names = []
    for name in found:
        word = next((w for w in own if own[w] & {name.text, name.kind, *name.labels}), None)
        if word is not None:
            is_part = calls[0].tool == 'count' and len(name.labels) >= len(own[word])
            names.append(name if is_part else replace(name, text=word))
            rest = [each for each in rest if each != word]
        elif name.kind and not _is_aside(name, part, calls):
            return [], f'{MISREAD}leaves out the {name.text}'
    end = max((name.end for name in names), default=0)
    added = [replace(resolve(word, labels), text=word, start=end, end=end) for word in rest]
    said = [question.lower(), *map(str.lower, options)]
    unsaid = next((name.text for name in added if not _is_said(name, said, labels)), '')
    return [*names, *added], f'{MISREAD}adds a {unsaid}' if unsaid else ''


def _is_aside(name: Name, part: str, calls: Sequence[Call]) -> bool:
    """Whether a thing that calls leave out, and the scene has not, only says where another is."""
    is_of_moves = all(map(_is_of_moves, calls))
    return not name.labels and (is_of_moves or bool(_WHERE.search(part[: name.start])))


def _named(calls: Sequence[Call]) -> Iterator[str]:
    for call in calls:
        shape = {p.name for p in _TOOLS[call.tool] if not p.words}
        for key, value in call.arguments.items():
            if key in shape:
                words = [value] if isinstance(value, str) else value
                yield from (word for word in words if word not in (ROBOT, START, WAY))
