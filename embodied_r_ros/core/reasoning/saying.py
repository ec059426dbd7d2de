# SPDX-License-Identifier: Apache-2.0
"""What tools computed becomes an answer: an option, a number, yes or no, or a sentence.

Nothing is answered that a result does not decide: a tie, a border between two sides, a thing that
was not looked for everywhere, are unknown, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
import json
import math
import re
from typing import Any, NoReturn, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.calls import read_question
from embodied_r_ros.core.reasoning.checks import check_completion
from embodied_r_ros.core.reasoning.forms import (
    asks_yes_no,
    dimension_of,
    is_of_length,
    unit_of,
    Wanted,
    wanted_by,
)
from embodied_r_ros.core.reasoning.quantities import (
    compared_values,
    in_digits,
    Quantity,
    quantity_in,
)
from embodied_r_ros.core.reasoning.reading import (
    AFTER,
    BEFORE,
    BEFORE_OR_AFTER,
    Call,
    CLOCK,
    directions_in,
    FLOOR,
    Form,
    goal_of_order,
    LARGEST,
    LEFT_OR_RIGHT,
    MISREAD,
    NEAR,
    NO_TOOL,
    Reading,
    SINCE_START,
)
from embodied_r_ros.core.scene.names import find_names, is_group, resolve, SHAPE_NAMES
from embodied_r_ros.core.scene.tools import NotKnownError, SIDES, START, UNITS
from embodied_r_ros.core.types.answers import AnswerKind, Check, ToolCall
from embodied_r_ros.core.types.vocabulary import is_unnamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.scene.names import Name
    from embodied_r_ros.core.scene.tools import Result, Scene
    from embodied_r_ros.core.types.answers import Answer, Freshness

_SECOND = 0.1  # probability of calls that were not the first choice, from which they count
_MOVE = re.compile(r'^(?:turned |moved )?(?:to the )?')  # before the side of a move
_DOUBTFUL = 0.3  # probability of calls, below which agreement may be chance
_SURE = 0.75  # the same, from which calls are taken where the two readers disagree
_LISTS = frozenset({'order', 'nearest', 'visited'})  # tools whose values are names
_ALONE, _ELSE = 'read without a model alone: ', 'without a model the question reads so: '
_ONE_READER = 'computed by tools; nothing checked how the question was read'
_LEAST_COVERAGE = 0.9  # of the surroundings, from which what was not seen is not there
_LEAST_NAMES = 3  # labels with a name, from which whoever perceives is taken to name things
_BORDER_DEG = 12.0  # nearer to a border between two sides, neither is said
_STRAIGHT_DEG = 30.0  # what is farther off is not straight ahead
_MOST_OFF_DEG = 90.0  # what is farther off is another direction
_BACK_M, _AWAY_M = 0.5, 1.0
# Up to which two things are near each other, and from which they are not.
_NEAR_M, _NOT_NEAR_M = 1.0, 2.0
_MOST_MARKS = 4  # observations that are cited one by one
_SAME_DEG = 25.0  # up to which two views look the same way
_MOST_UNKNOWN = 0.25  # share of motions that may be unknown where no other was of a direction
_RISE_M, _TURN_DEG = 0.15, 15.0  # from which there is a rise or a turn
_NEAR_SHARE = 0.1  # by which a model may round a number
_SIDES_ALONE = frozenset({'left', 'right'})
_FEW = 1e-6
# Directions as options and questions name them, and their middles [degrees], positive left.
_DIRECTIONS = (
    (r'(?:anti|counter)[- ]?clockwise', 90), (r'clockwise', -90),
    (r'(?:front|ahead)\b.*\bleft|left.*\b(?:front|ahead)', 45),
    (r'(?:front|ahead)\b.*\bright|right.*\b(?:front|ahead)', -45),
    (r'(?:back|behind)\b.*\bleft|left.*\b(?:back|behind)', 135),
    (r'(?:back|behind)\b.*\bright|right.*\b(?:back|behind)', -135),
    (r'opposite|around|behind|backwards?|\bback\b', 180), (r'\bleft', 90),
    (r'\bright', -90),
    (r'ahead|forward|straight|in front|\bfront\b|\bface the\b|same (?:way|direction)', 0),
)  # fmt: skip
_RISES = {
    'up': r'up|higher|climb\w*|ris\w+|rose|above',
    'at the same height': r'same|unchanged|neither|level',
    'down': r'down|lower|drop\w*|descend\w*|s[iau]nk|below',
}  # fmt: skip
_STILL_OR_MOVING = (
    r'still|stand\w*|stay\w*|stationary|fixed|hover\w*|same (?:place|spot)',
    r'mov(?:ed|es|ing)|travel\w*|walk\w*|driv\w+|went|going',
)


class _FormError(InputError):
    """What was computed has not the form that is asked for."""


def _refuse(reason: str) -> NoReturn:
    """Say that results do not decide."""
    raise InputError(reason)


@dataclass(frozen=True)
class ToolAnswer:
    """What tools answer."""

    kind: AnswerKind
    text: str = ''  # the option, the number, yes or no, a name; empty: unknown
    option_index: int = -1
    number: float = math.nan
    unit: str = ''
    sentence: str = ''  # with what it rests on, or why it is unknown
    results: tuple[Result, ...] = ()
    readings: tuple[Reading, ...] = ()
    candidates: tuple[str, ...] = ()  # among which a person has to choose

    @property
    def is_known(self) -> bool:
        """Whether there is an answer."""
        return self.kind is not AnswerKind.UNKNOWN

    @property
    def has_ground(self) -> bool:
        """Whether what was perceived decides it, and not its rough edges.

        A way is summed over keyframes, which cut corners; a last sight may be at a border; one of
        several things may not have been found, or another one be meant; things known by colour
        and shape alone may be anything, or pieces of one.
        """
        is_number = self.kind is AnswerKind.NUMBER or len(self.results) > 1
        if is_number and any(map(_is_rough, self.results)):
            return False
        if any(len(each.candidates) > 1 or each.facts.get('unknown') for each in self.results):
            return False
        lists = [result.value for result in self.results if result.tool == 'things']
        return not any(
            isinstance(labels, tuple) and all(map(is_unnamed, labels)) for labels in lists
        )

    @property
    def think(self) -> str:
        """The reasoning in words: each result, with the observations that it rests on."""
        return ' '.join(map(cited, self.results)) or self.sentence


def _is_rough(result: Result) -> bool:
    """Whether a number may be off by more than its margin says."""
    return result.tool in ('count', 'seen') or (
        result.tool == 'motion' and result.arguments[0] == 'way'
    )


def cited(result: Result) -> str:
    """A result's sentence with the observations that it rests on."""
    numbers = result.evidence.numbers
    marks = ', '.join(f'[{number}]' for number in numbers)
    if len(numbers) > _MOST_MARKS:
        marks = f'[{min(numbers)}] to [{max(numbers)}]'
    return f'{result.text[:-1]} ({marks}).' if marks and result.is_known else result.text


def answer_by_tools(
    question: str, options: Sequence[str], scene: Scene, *, takes_orders: bool = False
) -> ToolAnswer:
    """Answer a question without a model.

    Args:
        question: A person's words.
        options: The options; none: a free question.
        scene: What is known.
        takes_orders: Whether an order to go to a thing is answered by the thing, with the way.

    Raises:
        ConfigError: What reads questions is not installed.
    """
    readings = tuple(read_question(question, options, scene.labels))
    readings = readings or (Reading(question, doubt='I do not understand the question'),)
    if takes_orders:
        readings = tuple(map(goal_of_order, readings))
    return answer_readings(readings, options, scene)


def answer_readings(
    readings: tuple[Reading, ...], options: Sequence[str], scene: Scene
) -> ToolAnswer:
    """Answer a question that was read: all its parts, or of one with options the one that is."""
    answers = [answer_reading(reading, options, scene) for reading in readings]
    known = [answer for answer in answers if answer.is_known]
    if len(answers) == 1 or (options and len(known) == 1):
        return known[0] if options and known else answers[0]
    sentence = ' '.join(answer.sentence for answer in answers)
    results = tuple(result for answer in answers for result in answer.results)
    text = '; '.join(f'{a.text} {a.unit}'.strip() for a in known)
    kind = AnswerKind.TEXT if known and not options else AnswerKind.UNKNOWN
    return ToolAnswer(kind, text, sentence=sentence, results=results, readings=readings)


def combine_readings(
    read: ToolAnswer, other: ToolAnswer | None, confidence: float = math.nan, least: float = 0.0
) -> tuple[ToolAnswer, Check, str]:
    """One answer of two readings of a question, and what their comparison says of it.

    Args:
        read: What the calls of a model answer.
        other: What the reader without a model answers; None: there is none.
        confidence: Probability of the calls; NaN: not known.
        least: What it must be where the other reader does not understand the question.
    """
    if not read.is_known:
        is_misread = any(reading.doubt.startswith(MISREAD) for reading in read.readings)
        is_beyond = other and all(reading.is_beyond for reading in other.readings)
        found = other if is_misread or is_beyond else None
        reason = f'{_ALONE}{read.sentence}' if found else ''
        return found or read, Check.UNCHECKED, reason
    if other is None or not other.is_known:
        if confidence < least:
            sentence = f'I am not sure what is asked. {read.sentence}'
            read = replace(read, kind=AnswerKind.UNKNOWN, text='', option_index=-1,
                           number=math.nan, sentence=sentence)  # fmt: skip
        return read, Check.UNCHECKED, 'only one of two readers understands the question'
    if _says_the_same(read, other):
        tools = [{result.tool for result in each.results} for each in (read, other)]
        # Of two answers, two tools may give the same one by chance.
        is_loose = read.text in ('yes', 'no') or read.text != other.text
        is_chance = confidence < _DOUBTFUL or (is_loose and tools[0] != tools[1])
        is_sound = read.has_ground and not is_chance
        return read, Check.VERIFIED if is_sound else Check.UNCHECKED, ''
    if confidence < least or confidence >= _SURE:
        taken, words = (other, _ALONE) if confidence < least else (read, _ELSE)
        left = read if taken is other else other
        return taken, Check.UNCHECKED, f'{words}{left.sentence}'
    reason = f'The question reads two ways. {read.sentence} {other.sentence} Which do you mean?'
    two = (read.text, other.text)
    nothing = ToolAnswer(
        AnswerKind.UNKNOWN, sentence=reason, results=(*read.results, *other.results),
        readings=(*read.readings, *other.readings), candidates=two,
    )  # fmt: skip
    return nothing, Check.UNCHECKED, 'the question reads two ways'


def is_doubtful(read: ToolAnswer, confidence: float, least: float) -> bool:
    """Whether a second reading may help: calls were improbable, or no tool answers so."""
    if read.is_known:
        return confidence < least
    return any(reading.doubt and reading.doubt != NO_TOOL for reading in read.readings)


def holds(read: ToolAnswer, second: ToolAnswer, confidence: float) -> bool:
    """Whether a second reading, by other tools, gives the first answer, or a probable only one."""
    if not second.is_known or read.is_known:
        return second.is_known and _says_the_same(read, second)
    is_any = second.results[0].arguments[:1] in (('any',), ('now',))  # that is too weak
    return confidence >= _SECOND and not is_any


def _says_the_same(read: ToolAnswer, other: ToolAnswer) -> bool:
    """Whether two answers are one, also where they call its things otherwise."""
    said = [
        (a.option_index, {_MOVE.sub('', part) for part in a.text.split(', ')})
        for a in (read, other)
    ]
    if said[0] == said[1]:
        return True
    computed, others = (
        [(result.tool, result.evidence) for result in each.results] for each in (read, other)
    )
    is_of_things = (
        read.kind is other.kind is AnswerKind.TEXT and {t for t, _ in computed} <= _LISTS
    )
    return is_of_things and computed == others


def answer_reading(reading: Reading, options: Sequence[str], scene: Scene) -> ToolAnswer:
    """Answer one question that was read."""
    if not reading.is_sure:
        return _unknown(reading, (), reading.doubt)
    if not reading.moment:
        results = tuple(_run(scene, call.tool, call.arguments) for call in reading.calls)
        return say(reading, results, options, scene)
    name = '' if reading.moment == START else reading.moment
    try:
        then = scene.at_first(name)
    except NotKnownError as error:
        return _unknown(reading, (), str(error))
    answer = answer_reading(_at_moment(reading), options, then)
    when = f'When the {name} came into view' if name else 'At the start'
    sentence = answer.sentence.replace('In view now: ', '')
    return replace(answer, sentence=f'{when}: {sentence}', readings=(reading,))


def _at_moment(reading: Reading) -> Reading:
    """A reading of what was known at a moment: of all things, those in view then are meant."""
    calls = tuple(
        Call('things', {'scope': 'now'})
        if call.tool == 'things' and call.arguments.get('scope', 'all') in ('all', 'here')
        else call
        for call in reading.calls
    )
    return replace(reading, moment='', calls=calls)


def _run(scene: Scene, tool: str, arguments: dict[str, object]) -> Result:
    function: Callable[..., Result] = getattr(scene, tool)
    return function(**arguments)


def say(
    reading: Reading, results: tuple[Result, ...], options: Sequence[str], scene: Scene
) -> ToolAnswer:
    """The answer that results give to a question."""
    lacking = [result for result in results if not result.is_known]
    if lacking:
        return _unknown(reading, results, lacking[0].text)
    if results[0].tool == 'beside' and reading.form is Form.NAME:
        is_first = results[0].value == reading.wanted  # else the other one is more on that side
        results = (replace(results[0], value=results[0].arguments[not is_first]),)
    guessed = [n for n in reading.names if n.is_guess and n.labels and n.text not in n.labels]
    note = ''.join(f' (Taking {n.text!r} for the {n.labels[0]}.)' for n in guessed)
    try:
        if options:
            return _choose(reading, results, options, scene, note)
        if reading.form is Form.YES_NO:
            return _in_form(_yes_or_no(reading, results, scene, note), reading)
        return _in_form(_say_freely(reading, results, scene, note), reading)
    except InputError as error:
        doubt = str(error) if isinstance(error, _FormError) else ''
        return _unknown(replace(reading, doubt=doubt), results, str(error))


def _in_form(answer: ToolAnswer, reading: Reading) -> ToolAnswer:
    """The answer in the form that the question wants.

    Raises:
        InputError: What was computed has none.
    """
    wanted = wanted_by(reading.question, is_yes_no=asks_yes_no(reading.question, ()))
    metres = answer.results[0].facts.get('distance_m')
    is_number = answer.kind is AnswerKind.NUMBER
    asked = dimension_of(reading.question)
    is_length = metres is not None and asked in ('', 'length') and is_of_length(reading.question)
    if metres and wanted is Wanted.NUMBER and not is_number and is_length:
        unit = unit_of(reading.question) or 'm'
        length = metres / UNITS[unit]
        text = f'{length:.0f}' if unit == 'cm' else f'{length:.1f}'
        return replace(answer, kind=AnswerKind.NUMBER, text=text, number=length, unit=unit)
    given = quantity_in(f'1 {answer.unit}') if asked and is_number else None
    if given and asked != given.dimension:
        _refuse(f'a number of another unit is asked for. {answer.sentence}')
    fits = {
        Wanted.ANY: True,
        Wanted.NUMBER: is_number or bool(re.match(r'-?\d', answer.text)),
        Wanted.NAME: reading.form not in (Form.NUMBER, Form.PLACE, Form.YES_NO),
        Wanted.YES_NO: answer.text in ('yes', 'no'),
    }
    if not fits[wanted]:
        msg = f'{MISREAD}is not what is asked for. {answer.sentence}'
        raise _FormError(msg)
    return answer


def _unknown(reading: Reading, results: tuple[Result, ...], reason: str) -> ToolAnswer:
    reason = f'{reason[:1].upper()}{reason[1:]}{"" if reason.endswith((".", "?")) else "."}'
    candidates = tuple(each for result in results for each in result.candidates)
    return ToolAnswer(
        AnswerKind.UNKNOWN, sentence=reason, results=results, readings=(reading,),
        candidates=candidates,
    )  # fmt: skip


def _check_sayable(reading: Reading, results: tuple[Result, ...], scene: Scene) -> None:
    """Refuse what decides nothing.

    Raises:
        InputError: The message says why.
    """
    first = results[0]
    if first.facts.get('is_tie'):
        a, b = first.candidates
        _refuse(f'The {a} and the {b} are about equally far. {first.text}')
    if reading.wanted == NEAR and first.facts['gaps_m'][first.value] > _NEAR_M:
        _refuse(f'I know of nothing so near. {first.text}')
    if first.facts.get('pieces') and len(results) == 1:
        _refuse(f'Whether it is {first.value:.0f} or more is not clear. {first.text}')
    for result in results:
        if result.tool == 'count' and not result.value:
            _check_ground(reading, result, scene)
    is_open = first.tool in ('things', *_LISTS) and not reading.names
    if is_open and len(scene.labels) == 1 and is_unnamed(scene.labels[0]):
        _refuse(f'{first.text} What I saw is known by colour and shape alone')


def _say_freely(
    reading: Reading, results: tuple[Result, ...], scene: Scene, note: str
) -> ToolAnswer:
    _check_sayable(reading, results, scene)
    sentence, first = ' '.join(result.text for result in results) + note, results[0]
    if reading.wanted == LARGEST:
        return _largest(reading, results, sentence)
    if reading.form is Form.NUMBER and len(results) == 1:
        value = _number_of(first, reading)
        is_whole = first.tool == 'count' or first.unit in ('cm', 'deg')
        text = f'{value:.0f}' if is_whole else f'{value:.1f}'
        return ToolAnswer(AnswerKind.NUMBER, text, -1, value, first.unit, sentence, results,
                          (reading,))  # fmt: skip
    text = ', '.join(_short(reading, result) for result in results)
    return ToolAnswer(AnswerKind.TEXT, text, sentence=sentence, results=results,
                      readings=(reading,))  # fmt: skip


def _largest(reading: Reading, results: tuple[Result, ...], sentence: str) -> ToolAnswer:
    """Which of some things is the largest."""
    first, second = sorted(results, key=lambda result: -result.number)[:2]
    if first.number - second.number <= max(first.margin, second.margin):
        _refuse(f'Neither clearly: {sentence}')
    return ToolAnswer(AnswerKind.TEXT, first.arguments[0], sentence=sentence, results=results,
                      readings=(reading,))  # fmt: skip


def _number_of(result: Result, reading: Reading) -> float:
    if result.facts.get('unknown') or isinstance(result.value, str):
        _refuse(f'Not all of it is known: {result.text}')
    if result.facts.get('has_time') is False:
        _refuse(result.text)
    if reading.wanted == SINCE_START:
        return float(result.facts['since_start_s'])
    if reading.wanted == 'both':
        return float(result.facts['left_deg'] + result.facts['right_deg'])
    if result.tool == 'motion' and result.unit == 'deg':
        side = result.facts.get(f'{reading.wanted}_deg') if reading.wanted else None
        return float(abs(result.value) if side is None else side)  # type: ignore[arg-type]
    return float(result.value)  # type: ignore[arg-type]


def _short(reading: Reading, result: Result) -> str:
    """The answer in few words."""
    value = result.arguments[0] if reading.kind == 'goal' else result.value
    if isinstance(value, tuple):
        is_told = result.tool == 'happened' and value and reading.form is Form.TEXT
        return result.text.rstrip('.') if is_told else _of_list(reading, value)
    if 'bearing_deg' in result.facts and reading.form is Form.PLACE:
        return _place(result, reading)
    if isinstance(value, bool):
        return 'moving' if value else 'standing still'
    if 'rise_m' not in result.facts and isinstance(value, float):
        return f'{abs(value) if result.unit == "deg" else value:.1f} {result.unit}'.strip()
    return _rise(result) if 'rise_m' in result.facts else str(value)


def _of_list(reading: Reading, value: tuple[str, ...]) -> str:
    if reading.wanted == BEFORE_OR_AFTER:
        return 'before' if value[0] == reading.names[0].text else 'after'
    if not value:
        return 'none'
    one = value[-1] if reading.wanted == 'last' else value[0]
    is_one = reading.wanted == 'last' or reading.form is not Form.LIST
    return one if is_one else ', '.join(value)


def _rise(result: Result) -> str:
    """Up, down or neither, with the metres where they are known."""
    rise = result.facts['rise_m']
    if abs(rise) < _RISE_M:
        return 'at the same height'
    metres = f', {abs(rise):.1f} m' if isinstance(result.value, float) else ''
    return f'{"up" if rise > 0 else "down"}{metres}'


def _place(result: Result, reading: Reading) -> str:
    if len(result.candidates) > 1:
        return '; '.join(result.candidates)
    turned = result.facts.get('turn_deg')
    if turned is None and CLOCK.search(reading.question):
        return f"{round(-result.facts['bearing_deg'] / 30 - 1) % 12 + 1} o'clock"
    if turned is None and reading.wanted != LEFT_OR_RIGHT:
        return side_of(result.facts['bearing_deg'])
    turned = result.facts['bearing_deg'] if turned is None else turned
    if abs(turned) < _TURN_DEG:
        return 'neither way'
    return 'to the left' if turned > 0 else 'to the right'


def side_of(degrees: float) -> str:
    """A direction in a word: ahead, left, right or behind, with the side where it is oblique."""
    side = 'left' if degrees > 0 else 'right'
    off = abs(degrees)
    if off <= 20:
        return 'ahead'
    if off < 45:
        return f'ahead, to the {side}'
    return f'to the {side}' if off < 135 else 'behind' if off > 160 else f'behind, to the {side}'


def with_tool_answer(
    draft: Answer, found: ToolAnswer, freshness: Freshness, check: Check | None = None
) -> Answer:
    """An answer with what tools computed.

    Args:
        draft: The answer without them.
        found: What they answer.
        freshness: Of the answer.
        check: What a second reading of the question gave; None: there was none.
    """
    return replace(
        draft,
        kind=found.kind,
        option_index=found.option_index,
        text=found.text,
        number=found.number,
        unit=found.unit,
        think=found.think,
        sentence=found.sentence,
        choices=() if found.is_known else found.candidates,
        calls=_calls_with(draft, found.results),
        check=check or Check.UNCHECKED,
        check_reason=_ONE_READER * (check is None) if found.is_known else found.sentence,
        freshness=freshness,
    )


def _calls_with(answer: Answer, results: Sequence[Result]) -> tuple[ToolCall, ...]:
    """The calls that the model asked for, and what was computed beside them."""
    asked = [call for call in answer.calls if call.turn]
    known = {(call.tool, call.arguments) for call in asked}
    more = (call for call in map(call_of, results) if (call.tool, call.arguments) not in known)
    return (*asked, *more)


def with_check(
    answer: Answer, scene: Scene, found: ToolAnswer | None, own: ToolAnswer | None = None
) -> Answer:
    """An answer of a model with what its comparison with the scene gave.

    Args:
        answer: The answer, with its completion.
        scene: What was seen.
        found: What the tools answer to the same question; None: nothing is known of that.
        own: What the last calls of the model answer to it; None: it made none.
    """
    known = [each for each in (found, own) if each and each.is_known]
    computed = known[0] if known else None
    expected = computed.results[0] if computed and len(computed.results) == 1 else None
    parts = answer.completion, answer.question, answer.options, scene
    verdict = check_completion(*parts, expected)
    if own and computed is own and verdict.check is Check.VERIFIED:
        verdict = check_completion(*parts)  # one reader alone verifies nothing
        verdict = replace(verdict, reason=verdict.reason or _ONE_READER)
    check, reason = verdict.check, verdict.reason
    for each in known:
        if check is not Check.UNSUPPORTED and contradicts(answer, each):
            check, reason = Check.UNSUPPORTED, f'the tools of the scene say: {each.sentence}'
    if computed is None or answer.kind is AnswerKind.UNKNOWN:
        return replace(answer, check=check, check_reason=reason)
    return replace(
        answer,
        check=check,
        check_reason=reason,
        sentence=computed.sentence if check is Check.VERIFIED else '',
        unit=computed.unit if answer.kind is computed.kind else '',
        calls=_calls_with(answer, computed.results),
    )


def contradicts(answer: Answer, computed: ToolAnswer) -> bool:
    """Whether an answer is another one than tools computed."""
    if answer.kind is AnswerKind.UNKNOWN:
        return False
    if computed.kind is AnswerKind.CHOICE:
        return answer.option_index != computed.option_index
    if computed.kind is AnswerKind.NUMBER and answer.kind is AnswerKind.NUMBER:
        said = quantity_in(answer.text)
        return said is not None and not _is_near(said, computed)
    word = re.match(r'\W*(yes|no)\b', answer.text.lower())
    if word is None or computed.text not in ('yes', 'no'):
        return False
    return word[1] != computed.text


def _is_near(said: Quantity, computed: ToolAnswer) -> bool:
    """Whether a number is that of tools, within its margin, in whichever unit."""
    truth = quantity_in(f'{computed.number} {computed.unit}')
    values = compared_values(said, truth) if truth else None
    if values is None:
        return False
    share = max(computed.results[0].margin / max(abs(computed.number), _FEW), _NEAR_SHARE)
    return abs(values[0] - values[1]) <= share * abs(values[1]) + _FEW


def without_support(answer: Answer, found: ToolAnswer | None, freshness: Freshness) -> Answer:
    """What stands in the place of an answer that nothing supports: the tools', else unknown."""
    nothing = ToolAnswer(AnswerKind.UNKNOWN, sentence='Nothing that was seen supports an answer.')
    known = found if found and (found.is_known or found.candidates) else nothing
    rung = replace(answer.model, name='tools', digest='', adapter='', prompt_version='')
    model = rung if found and found.is_known else answer.model
    return with_tool_answer(replace(answer, model=model, confidence=math.nan), known, freshness)


def call_of(result: Result) -> ToolCall:
    """A result as answers and bags have it."""
    values = result.to_json()
    evidence = result.evidence
    return ToolCall(
        result.tool,
        tuple(result.arguments),
        json.dumps(values['value']) if result.is_known else '',
        result.unit,
        result.text,
        evidence.landmark_ids,
        evidence.delta_ids,
        evidence.numbers,
        evidence.stamps_ns,
    )


# Yes or no.


def _yes_or_no(
    reading: Reading, results: tuple[Result, ...], scene: Scene, note: str
) -> ToolAnswer:
    holds = [_holds(reading, result, scene) for result in results]
    sentence = ' '.join(result.text for result in results) + note
    word = 'yes' if all(holds) else 'no'
    sentence = f'{word.capitalize()}: {sentence[:1].lower()}{sentence[1:]}'
    sentence = re.sub(r'^(Yes|No): i ', r'\1: I ', sentence)
    return ToolAnswer(AnswerKind.TEXT, word, sentence=sentence, results=results,
                      readings=(reading,))  # fmt: skip


def _holds(reading: Reading, result: Result, scene: Scene) -> bool:
    """Whether a result makes a question's answer yes.

    Raises:
        InputError: It decides neither; the message says why.
    """
    rules: dict[str, Callable[[], bool]] = {
        'count': lambda: _is_there(reading, result, scene),
        'where': lambda: _is_on_side(reading.wanted, result),
        'nearest': lambda: _is_first(reading.wanted, result),
        'order': lambda: _is_first(reading.wanted, result),
        'distance': lambda: _is_close(reading, result),
        'visited': lambda: bool(result.value),
        'changed': lambda: bool(result.value) == (reading.wanted != 'still'),
        'happened': lambda: bool(result.value) == (reading.wanted != 'still'),
        'moves': lambda: _did_move(reading.wanted, result),
        'motion': lambda: _did(reading, result),
        'seen': lambda: bool(result.facts['in_view']),
        'beside': lambda: result.value == reading.wanted,
        'raised': lambda: _is_raised(reading, result),
    }
    if reading.limit and result.tool != 'count':
        return _is_within(reading, result)
    if result.tool not in rules or (result.tool == 'where' and not reading.wanted):
        _refuse('yes or no does not follow from what I can compute')
    return rules[result.tool]()


def _is_there(reading: Reading, result: Result, scene: Scene) -> bool:
    count = float(result.value)  # type: ignore[arg-type]
    if not count:
        _check_ground(reading, result, scene)
    if reading.limit is None:
        return count > 0
    way, number = reading.limit
    holds = {'more': count > number, 'at least': count >= number, 'less': count < number}
    return holds.get(way, count == number)


def _check_ground(reading: Reading, result: Result, scene: Scene) -> None:
    """Refuse to say that there is nothing where not enough was looked at.

    Raises:
        InputError: What was looked at does not tell.
    """
    named = [label for label in scene.labels if not is_unnamed(label)]
    name = next((n for n in reading.names if n.text == result.arguments[0]), None)
    is_thing = name is not None and name.kind and name.kind not in SHAPE_NAMES
    if is_thing and len(named) < _LEAST_NAMES:
        _refuse(f'{result.text} What I saw is known by colour and shape alone')
    if name is not None and is_group(name.kind):
        _refuse(f'{result.text} I know single things of that sort alone')
    of_past = re.search(
        r'\b(?:seen|saw|see|spot|notice\w*|come across|came across|was|were|ever)\b',
        reading.question,
    )
    share = scene.coverage
    if not of_past and not share >= _LEAST_COVERAGE:
        _refuse(result.text)


def _is_on_side(side: str, result: Result) -> bool:
    degrees = result.facts['bearing_deg']
    if len(result.candidates) > 1:
        _refuse(f'Which one? {result.text}')
    off = abs((degrees - SIDES[side] + 180) % 360 - 180)
    half = 45.0 if side in ('ahead', 'behind') else 80.0
    if abs(off - half) < _BORDER_DEG / 2 + result.facts.get('slack_deg', 0.0):
        _refuse(f'That is near the border: {result.text}')
    return bool(off < half)


def _is_raised(reading: Reading, result: Result) -> bool:
    if result.facts['is_mixed']:
        _refuse(f'Some are and some are not: {result.text}')
    return bool(result.value) != bool(FLOOR.search(reading.question))


def _is_first(wanted: str, result: Result) -> bool:
    if result.facts.get('is_tie') or result.facts.get('together'):
        _refuse(f'Neither clearly: {result.text}')
    first = result.value[0] if isinstance(result.value, tuple) else result.value
    return first == wanted


def _is_close(reading: Reading, result: Result) -> bool:
    if reading.wanted != NEAR or _NEAR_M < result.facts['distance_m'] < _NOT_NEAR_M:
        _refuse(f'How near is near is not said: {result.text}')
    return bool(result.facts['distance_m'] <= _NEAR_M)


def _is_within(reading: Reading, result: Result) -> bool:
    """Whether a number is less, or more, than the one that the question names."""
    assert reading.limit
    way, limit = reading.limit
    value = abs(_number_of(result, reading))
    if abs(value - limit) <= result.margin:
        _refuse(f'That is too near to tell: {result.text}')
    return bool((value < limit) == (way == 'less'))


def _did_move(wanted: str, result: Result) -> bool:
    counts = result.facts['counts']
    if not wanted:
        return bool(result.value)
    if result.arguments[1]:  # of the first or last one alone
        return bool(result.value) and str(result.value[0]).endswith(f' {wanted}')  # type: ignore[index]
    if any(key == f'moved {wanted}' for key in counts):
        return True
    unknown, known = result.facts['unknown'], sum(counts.values())
    if unknown > _MOST_UNKNOWN * (unknown + known):
        _refuse(f'{unknown} of my motions are not known. {result.text}')
    return False


def _did_turn(wanted: str, result: Result) -> bool:
    if wanted == 'same':
        off = abs(result.facts['bearing_deg'])
        if _SAME_DEG < off < 2 * _SAME_DEG:
            _refuse(f'Nearly: {result.text}')
        return bool(off <= _SAME_DEG)
    net, own = result.facts['turn_deg'], result.facts[f'{wanted}_deg']
    if abs(net) < _TURN_DEG or (own >= _TURN_DEG) != (own > abs(net) / 2):
        _refuse(f'Neither clearly: {result.text}')
    return bool((net > 0) == (wanted == 'left'))


def _did(reading: Reading, result: Result) -> bool:
    what, wanted = result.arguments[0], reading.wanted
    if what == 'any' and wanted == 'still' and result.value:
        if not result.facts['stood']:
            _refuse('whether I ever stood is not known: a short stop leaves no keyframe')
        return True
    if what in ('now', 'any'):
        return bool(result.value) == (wanted == 'moving')
    if what == 'turn':
        return _did_turn(wanted, result)
    if what == 'height':
        rise = result.facts['rise_m']
        return bool(abs(rise) >= _RISE_M and (rise > 0) == (wanted == 'up'))
    away = float(result.facts['distance_m'])
    if _BACK_M < away < _AWAY_M:
        _refuse(f'Nearly: {result.text}')
    return away <= _BACK_M


# Options.


def _choose(
    reading: Reading, results: tuple[Result, ...], options: Sequence[str], scene: Scene, note: str
) -> ToolAnswer:
    result = results[0]
    if 'turn_deg' in result.facts and _SIDES_ALONE.issuperset(map(_side_word, options)):
        result = replace(result, facts=_of_turn(result))  # which way, not where it looks now
        results = (result, *results[1:])
    if result.facts.get('is_tie'):
        _refuse(f'Neither clearly: {result.text}')
    lowered = [option.strip().lower() for option in options]
    of_option = _misfit_of_order if reading.wanted == BEFORE_OR_AFTER else _misfit
    scores = [of_option(option, reading, results, scene) for option in lowered]
    if isinstance(result.value, bool) and min(scores) == math.inf and len(options) == 2:
        opposite = replace(result, value=not result.value)  # the one that says so is not meant
        says = [of_option(option, reading, (opposite,), scene) == 0 for option in lowered]
        scores = [math.inf if each else 0.0 for each in says]
    best = min(scores)
    index = scores.index(best)
    if best == math.inf or scores.count(best) > 1:
        _refuse(f'No option says so alone: {result.text}')
    if re.match(r'(?:unknown|cannot tell|not sure)', lowered[index]):
        return _unknown(reading, results, result.text)
    sentence = ' '.join(each.text for each in results) + note
    return ToolAnswer(AnswerKind.CHOICE, options[index], index, sentence=sentence,
                      results=results, readings=(reading,))  # fmt: skip


def _side_word(option: str) -> str:
    """The side that an option alone is: 'left' of 'to the left'; else the option."""
    return re.sub(r'^(?:more )?(?:to )?(?:the |my |your )?', '', option.strip().lower())


def _of_turn(result: Result) -> dict[str, Any]:
    turned = result.facts['turn_deg']
    side = 90.0 if turned > 0 else -90.0
    return {**result.facts, 'bearing_deg': side, 'is_tie': abs(turned) < _TURN_DEG}


def _misfit_of_order(
    option: str, reading: Reading, results: tuple[Result, ...], _: Scene
) -> float:
    words = BEFORE if _short(reading, results[0]) == 'before' else AFTER
    return 0.0 if re.search(words, option) else math.inf


def _misfit(option: str, reading: Reading, results: tuple[Result, ...], scene: Scene) -> float:
    """How badly an option says what results say; infinite: it says something else."""
    result = results[0]
    word = re.match(r'(yes|no|not)\b', option)
    if word and reading.form is Form.YES_NO:
        holds = all(_holds(reading, each, scene) for each in results)
        return 0.0 if (word[1] == 'yes') == holds else math.inf
    is_said = _says_word(option, result, scene)
    if is_said is not None:
        return 0.0 if is_said else math.inf
    if isinstance(result.value, tuple):
        return _misfit_of_names(option, reading, result, scene)
    parts = [_misfit_of_direction(option, result), _misfit_of_number(option, result)]
    known = [part for part in parts if part is not None]
    return sum(known) if known else math.inf


def _says_word(option: str, result: Result, scene: Scene) -> bool | None:
    """Whether an option says a name, up or down, or moving or not; None: it is another result."""
    named = any(name.labels for name in _names_in(option, scene.labels))
    if result.tool == 'raised' and not named:
        is_mixed = result.facts['is_mixed']
        return not is_mixed and bool(FLOOR.search(option)) != bool(result.value)
    if isinstance(result.value, bool):
        said = (bool(re.search(rf'\b(?:{words})\b', option)) for words in _STILL_OR_MOVING)
        return tuple(said) == (not result.value, result.value)
    if 'rise_m' in result.facts:
        return bool(re.search(rf'\b(?:{_RISES[_rise(result).split(",")[0]]})\b', option))
    if isinstance(result.value, str):
        names = find_names(option, scene.labels)
        is_named = any(_is_same(result.value, name, scene) for name in names)
        return is_named or result.value.lower() == option
    return None


def _misfit_of_names(option: str, reading: Reading, result: Result, scene: Scene) -> float:
    value = result.value if isinstance(result.value, tuple) else ()
    if result.tool == 'moves':
        return _misfit_of_move(option, value)
    labels = tuple(dict.fromkeys((*scene.labels, *value)))
    parts = [part.strip() for part in re.split(r',|;|\band\b|\bthen\b', option) if part.strip()]
    named = [names[0] for part in parts if (names := _names_in(part, labels))]
    if not named:
        return math.inf
    places = [[i for i, each in enumerate(value) if _is_same(each, name, scene)] for name in named]
    if not all(places):
        return math.inf
    order = [own[0] for own in places]
    if reading.form is Form.NAME or len(named) == 1:
        wanted = len(value) - 1 if reading.wanted == 'last' else 0
        return 0.0 if order == [wanted] else math.inf
    return 0.0 if order == sorted(order) else math.inf


def _names_in(option: str, labels: Sequence[str]) -> list[Name]:
    """The things that an option names; a colour alone is one too."""
    alone = resolve(option, labels)
    return find_names(option, labels) or ([alone] if alone.labels else [])


def _is_same(word: str, name: Name, scene: Scene) -> bool:
    """Whether a word of a result and a name of an option mean one thing."""
    if word.lower() == name.text or word in name.labels:
        return True
    return bool(name.labels) and resolve(word, scene.labels).labels == name.labels


def _misfit_of_move(option: str, value: tuple[str, ...]) -> float:
    """Which of the moves, the most frequent first, an option names."""
    said = directions_in(option)
    ranks = (rank for rank, move in enumerate(value) if move.split()[-1] in said)
    return next(map(float, ranks), math.inf)


def _misfit_of_direction(option: str, result: Result) -> float | None:
    """How far a direction is from the middle of the one that an option names [turns].

    None: the result or the option has none.
    """
    if 'bearing_deg' not in result.facts:
        return None
    if len(result.candidates) > 1:
        return math.inf
    hour = re.match(r"(?:at )?(\d+) ?o'?\s?clock", in_digits(option.replace('\u2019', "'")))
    named = (m for pattern, m in _DIRECTIONS if re.search(pattern, option))
    middle = -30 * int(hour[1]) if hour else next(named, None)
    if middle is None:
        return None
    off = abs((result.facts['bearing_deg'] - middle + 180) % 360 - 180)
    most = _STRAIGHT_DEG if 'straight' in option else _MOST_OFF_DEG
    # Of a direction and a distance, the direction counts first.
    return float(off / 360) if off <= most else math.inf


def _misfit_of_number(option: str, result: Result) -> float | None:
    """How far a number is from that of an option, as a share; None: the option has none."""
    option = in_digits(option)
    match = re.search(r'\d', option)
    quantity = quantity_in(option[match.start() :]) if match else None
    if quantity is None:
        return None
    metres = result.facts.get('distance_m') if quantity.dimension == 'length' else None
    value = result.value if metres is None else metres
    said = quantity.value if metres is None else quantity.base()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(abs(said - value) / max(abs(value), _FEW))
