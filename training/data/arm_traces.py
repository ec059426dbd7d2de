# SPDX-License-Identifier: Apache-2.0
"""Reasoning traces about arms: what an oracle of positions, state and task would write.

It knows how things are fetched and put down: the hand goes above a thing, down to it, takes hold,
lifts, goes above the place, down, and lets go. Which of these comes next it reads from where the
thing and the hand are. All is in whole centimetres. It says where the hand should be, and goes
through the options until one is there.

What is to be compared or subtracted stands side by side, an axis at a time: a small model takes
the wrong one of three numbers that it has to look up at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.core.types.geometry import position_text
from embodied_r_ros.core.types.movement import Movement

from training.data.arm_reader import cm_of, cm_text, is_of_drawer, read_arm, things_of
from training.data.tasks import is_pushed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row

    from training.data.arm_reader import ArmPrompt, Cm

# In whole centimetres, as the demonstrations that are learned from have it.
_ABOVE, _LOW = 15, 2  # the hand above things, and a little above where it holds them
_ON_MAT, _ON_BLOCK = 1, 5  # the hand with a block on a mat, and on a block
_OVER, _NEARLY = 1, 4  # so far aside the hand is over a thing, and on its way down to it
_OVER_MAT = 3  # over a mat, which is told where its front is
_HOME: Cm = (0, 0, 16)
_BEHIND, _SHORT = 7, 5  # the hand behind a block that it pushes, and before its end
_ABOVE_HANDLE, _AT_HANDLE, _PULL = 18, 11, 17  # the hand at a drawer, and its way back
_MATCH = 3  # so far off along every axis, an option is what was expected


@dataclass(frozen=True)
class Trace:
    """Reasoning and the answer that it leads to."""

    think: str
    answer: str
    letter: str = ''  # of the option that the answer is, where it is given by that

    def completion(self) -> str:
        """The trace as a completion; the spaces make its words the same tokens as in the scene."""
        return f'<think> {self.think}</think><answer> {self.letter or self.answer}</answer>'


@dataclass(frozen=True)
class ArmStep:
    """What comes next, why, and where that is."""

    why: str
    ends: tuple[Cm, ...]  # the likeliest first
    closed: bool = False  # the gripper there, once it is there


def waypoint(row: Row) -> tuple[str, str] | None:
    """Reasoning and option for the next position; None: the prompt does not tell it."""
    arm = read_arm(row)
    step = next_step(arm) if arm else None
    places = [place for option in row.options if (place := cm_of(option))]
    if arm is None or step is None or len(places) < len(row.options):
        return None
    sentences = [*_start(arm), step.why]
    if not places:
        best = position_text([value / 100 for value in step.ends[0]])
        return ' '.join([*sentences, f'Next {cm_text(step.ends[0])}. It is: {best}.']), best
    choice = None
    for word, end in zip(('Next', 'Or', 'Or'), step.ends, strict=False):
        choice = next((i for i, place in enumerate(places) if _is_near(place, end)), None)
        looked_at = places if choice is None else places[: choice + 1]
        lines = [f'{i}. {_compared(place, end)}' for i, place in enumerate(looked_at, 1)]
        sentences += [f'{word} {cm_text(end)}:', *lines]
        if choice is not None:
            break
    if choice is None:
        choice = closest(step.ends[-1], places)
    return ' '.join([*sentences, f'Closest: {choice + 1}.']), row.options[choice]


def closest(end: Cm, places: Sequence[Cm]) -> int:
    """Which of some places is nearest to an end; one that is near on every axis goes first."""
    near = [i for i, place in enumerate(places) if _is_near(place, end)]
    return near[0] if near else min(range(len(places)), key=lambda i: _off(places[i], end))


def movement(row: Row) -> tuple[str, str] | None:
    """Reasoning and option for the way to the next position; None: the prompt does not tell."""
    arm = read_arm(row)
    step = next_step(arm) if arm else None
    if arm is None or step is None or arm.state is None:
        return None
    # A movement is asked for, so that the hand does not stay where it is.
    end = next((end for end in step.ends if end != arm.state), arm.state)
    x, y, z = (b - a for a, b in zip(arm.state, end, strict=True))
    words = movement_words((x, y, z))
    best = likest(words, row.options)
    if best is None:
        return None
    half = max(map(abs, (x, y, z))) // 2
    sentences = [*_start(arm), step.why, f'Next {cm_text(end)}.']
    along = [cm_text((a, b, b - a)) for a, b in zip(arm.state, end, strict=True)]
    sentences.append(f'From, to, way: {", ".join(along)}.')
    sentences += [f'Way {cm_text((x, y, z))}, half {half:02d}: {words}.', f'Most like: {best}.']
    return ' '.join(sentences), best


def gripper(row: Row) -> tuple[str, str] | None:
    """Reasoning and answer for the gripper at the next position, where it acts on arrival."""
    arm = read_arm(row)
    step = next_step(arm) if arm else None
    if arm is None or step is None:
        return None
    best = 'closed' if step.closed else 'open'
    return ' '.join([*_start(arm), step.why, f'Gripper: {best}.']), best


def movement_words(way: Cm) -> str:
    """Words for a way in whole centimetres; 'stay' for none."""
    x, y, z = (value / 100 for value in way)
    direction = Movement.between((0.0, 0.0, 0.0), (x, y, z), 0.005)
    return direction.words() if direction else 'stay'


def likest(words: str, options: Sequence[str]) -> str | None:
    """The option whose movement is most like some words; None: there is none, or no movements."""
    if words == 'stay' or words in options or not options:
        return words if words in options else None
    wanted = Movement.from_words(words).levels
    try:
        levels = [Movement.from_words(option).levels for option in options]
    except InputError:
        return None
    unlike = [sum(abs(a - b) for a, b in zip(own, wanted, strict=True)) for own in levels]
    return options[unlike.index(min(unlike))]


def next_step(prompt: ArmPrompt) -> ArmStep | None:
    """What comes next in a task; None: the prompt does not tell."""
    colours = things_of(prompt.task)
    if not colours or prompt.state is None:
        return None
    thing, *others = colours
    if is_of_drawer(prompt.task):
        return _open(prompt, prompt.state, thing)
    if is_pushed(prompt.task) and others:
        return _push(prompt, prompt.state, thing, others[0])
    if thing not in (*prompt.at_tool, *prompt.on_table):
        return None
    goes_on = _with_it if thing in prompt.at_tool else _without_it
    return goes_on(prompt, prompt.state, thing, others[0] if others else '')


def _without_it(prompt: ArmPrompt, hand: Cm, thing: str, place: str) -> ArmStep | None:
    """The hand is empty."""
    x, y, z = prompt.on_table[thing]
    there = prompt.on_table.get(place)
    if place in prompt.at_tool or (there and _aside(there, (x, y, z)) <= _NEARLY):
        return ArmStep(f'{thing} is put: up.', ((hand[0], hand[1], _above(prompt, place)),))
    if _aside((x, y, z), hand) > (_OVER if hand[2] >= _ABOVE - 1 else _NEARLY):
        return ArmStep(f'Hand not over {thing}: above it.', ((x, y, _ABOVE),))
    return ArmStep(f'Hand over {thing}: down.', ((x, y, 1), hand), closed=True)


def _with_it(prompt: ArmPrompt, hand: Cm, thing: str, place: str) -> ArmStep | None:
    """The hand has the thing, or touches it."""
    z = hand[2]
    there = prompt.on_table.get(place)
    over = (_OVER if _is_stacked(prompt) else _OVER_MAT) if z >= _ABOVE - 1 else _NEARLY
    if place in prompt.at_tool or (there and _aside(there, hand) <= over):
        return _put(prompt, hand, thing, place)
    if not place or z < _ABOVE - 1:
        return _lift(hand, thing)
    if there is None:
        return None
    above = (there[0], there[1], _above(prompt, place))
    return ArmStep(f'{thing} lifted: above {place}.', (above, hand), closed=True)


def _lift(hand: Cm, thing: str) -> ArmStep:
    """The hand has the thing, or takes it, where it was found."""
    x, y, z = hand
    up = (x, y, _ABOVE + 1)
    if z >= _ABOVE // 2:
        return ArmStep(f'{thing} in hand: lift.', (up,), closed=True)
    # A little above it, the hand is on its way down rather than up, which begins quickly.
    if z == _LOW:
        return ArmStep(f'{thing} at hand: take it, or lift.', ((x, y, 1), up), closed=True)
    return ArmStep(f'{thing} in hand, low: lift, or take it.', (up, hand), closed=True)


def _put(prompt: ArmPrompt, hand: Cm, thing: str, place: str) -> ArmStep:
    """The hand has the thing over its place, or at it."""
    x, y, z = hand
    low = _ON_BLOCK if _is_stacked(prompt) else _ON_MAT
    if z < _ABOVE // 2:
        ends = ((x, y, _above(prompt, place)), (x, y, min(z, low)))
        return ArmStep(f'{thing} at {place}: up, or let go.', ends)
    return ArmStep(f'{thing} over {place}: down.', ((x, y, low), hand))


def _push(prompt: ArmPrompt, hand: Cm, thing: str, place: str) -> ArmStep | None:
    """The closed hand goes behind the thing and pushes it to its place."""
    at, there = prompt.on_table.get(thing), prompt.on_table.get(place)
    x, y, z = hand
    if there is None or (at is None and thing not in prompt.at_tool):
        return None
    if x >= there[0] - _SHORT - 1 and abs(y - there[1]) <= _NEARLY:
        return ArmStep(f'Hand at {place}: up, or stay.', ((x, y, _ABOVE), hand), closed=True)
    if at is None or (z <= _LOW and x < at[0]):
        return ArmStep(
            f'Hand behind {thing}: push.', ((there[0] - _SHORT, y, 1), hand), closed=True
        )
    return _go_behind(hand, thing, (at[0] - _BEHIND, at[1], _ABOVE))


def _go_behind(hand: Cm, thing: str, behind: Cm) -> ArmStep:
    """The hand is on its way to where it pushes from."""
    if hand == _HOME:
        return ArmStep(
            f'Hand at home: above behind {thing}, or close.', (behind, hand), closed=True
        )
    if _aside(behind, hand) <= (_OVER if hand[2] >= _ABOVE - 1 else _NEARLY):
        return ArmStep(
            f'Hand over there: down behind {thing}.', ((*behind[:2], 1), hand), closed=True
        )
    return ArmStep(f'Hand away: above behind {thing}.', (behind,), closed=True)


def _open(prompt: ArmPrompt, hand: Cm, handle: str) -> ArmStep | None:
    """The hand goes above the handle of a drawer, down to it, takes hold, and pulls it back."""
    x, y, z = hand
    at = prompt.on_table.get(handle)
    # The hand hides the handle that it is at, and now and then the one that it is over.
    aside = _aside(at, hand) if at else 0
    if z < _ABOVE:
        if handle in prompt.at_tool or aside <= _NEARLY:
            return ArmStep(f'Hand at {handle}: pull.', ((x - _PULL, y, z),), closed=True)
        return ArmStep(f'Hand low, not at {handle}: up.', ((x, y, _ABOVE_HANDLE),))
    if at and aside > _OVER:
        return ArmStep(f'Hand not over {handle}: above it.', ((*at[:2], _ABOVE_HANDLE),))
    if at or z == _ABOVE_HANDLE:
        return ArmStep(f'Hand over {handle}: down.', ((x, y, _AT_HANDLE),), closed=True)
    return None


def _is_stacked(prompt: ArmPrompt) -> bool:
    return prompt.task.startswith('stack')


def _above(prompt: ArmPrompt, place: str) -> int:
    """Height of the hand above a place, with a thing in it [cm]."""
    return _ABOVE + 1 + ((_ON_BLOCK - _ON_MAT) if place and _is_stacked(prompt) else 0)


def _start(prompt: ArmPrompt) -> list[str]:
    """What was read, before anything is made of it."""
    colours = dict.fromkeys(things_of(prompt.task))
    sentences = []
    for colour in colours:
        place = prompt.on_table.get(colour)
        where = (
            'at hand' if colour in prompt.at_tool else cm_text(place[:2]) if place else 'not seen'
        )
        sentences.append(f'{colour} {where};')
    assert prompt.state is not None
    return [*sentences, f'hand {cm_text(prompt.state)}.']


def _aside(a: Cm, b: Cm) -> int:
    """How far two positions are apart across the table, along the axis on which it is most."""
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def _compared(place: Cm, end: Cm) -> str:
    """Place and end, axis by axis until they are not near each other."""
    comparisons = []
    for axis, a, b in zip('xyz', place, end, strict=True):
        comparisons.append(f'{axis} {cm_text((a, b))}')
        if abs(a - b) > _MATCH:
            return ' '.join([*comparisons, 'no;'])
    return ' '.join([*comparisons, 'yes.'])


def _is_near(a: Cm, b: Cm) -> bool:
    return all(abs(x - y) <= _MATCH for x, y in zip(a, b, strict=True))


def _off(a: Cm, b: Cm) -> int:
    return sum(abs(x - y) for x, y in zip(a, b, strict=True))


# Where the end effector is now, no text tells that has no item for it: there is no reader for it.
ARM_READERS = {'waypoint': waypoint, 'movement': movement, 'gripper': gripper}


def read_row(row: Row) -> Trace | None:
    """What an oracle of the row's prompt answers, and why; None: the text does not tell."""
    reader = ARM_READERS.get(row.question_type)
    trace = reader(row) if reader else None
    if trace is None:
        return None
    # With three digits of three figures, positions are copied wrong where letters are not.
    is_place = row.question_type == 'waypoint' and trace[1] in row.options
    return Trace(*trace, option_letter(row.options.index(trace[1])) if is_place else '')
