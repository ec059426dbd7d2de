# SPDX-License-Identifier: Apache-2.0
"""What questions about a place need again and again, several at once: the steps of its traces.

Looking up who lies where from what, turning from one direction to another, the least of several
distances, and orders in time. Names are those for training and made-up ones: what is learned is to
copy a name, not to know it.
"""

from __future__ import annotations

from functools import cache
from itertools import chain, permutations
from random import Random
import re
from string import ascii_uppercase
from typing import Any, TYPE_CHECKING

from embodied_r_ros.questions.wordings import MAP_WORDINGS
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.map_relations import (
    metres_text,
    ordinal,
    quadrant_of_turn,
    side_of_turn,
    turn_word,
)
from embodied_r_ros.types.deltas import ANGLE_STEP_DEG, MotionStep
from embodied_r_ros.types.things import is_held_out_name, named_things

from training.data.map_oracle import change_word
from training.data.map_traces import turn_between, turn_sum
from training.data.place_words import MORE_MAP_WORDINGS
from training.data.scene_reader import SceneLine
from training.tiny.dead_reckoning import Walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MADE_UP_SHARE = 0.5
_SPLICED_SHARE = 0.5  # of the words of such a name, those of parts of two words
_WHOLE_SHARE = 0.3  # of those that begin with a whole word
_CONSONANTS, _VOWELS = 'bdfghjklmnprstvwyz', 'aeiou'
_SYLLABLES = [
    *(consonant + vowel for consonant in _CONSONANTS for vowel in _VOWELS),
    *(vowel + consonant for consonant in 'lmnrst' for vowel in _VOWELS),
    *('st', 'tr', 'ck', 'nd', 'ng', 'sh', 'th', 'ant', 'ish', 'oon', 'ell', 'and', 'est'),
]
_TURN_WORDS: dict[str, Callable[[float], str]] = {
    'left or right': lambda turn: 'left' if turn > 0 else 'right',
    'left, right or back': side_of_turn,
    'as quadrants': quadrant_of_turn,
    'as actions': lambda turn: turn_word(turn) or 'straight on',
}
_SUMS = (16, 32)  # of an exercise
_LISTS = (2, 4)
_MOST_M = 9.0
_STEPS = range(0, 360, 10)


def made_up_name(rng: Random) -> str:
    """A name of nothing: one or two words of two or three syllables, or of parts of two words."""
    while True:
        name = ' '.join(_made_up_word(rng) for _ in range(rng.choice((1, 1, 2))))
        if name not in named_things():
            return name


def _made_up_word(rng: Random) -> str:
    if rng.random() >= _SPLICED_SHARE:
        return ''.join(rng.choices(_SYLLABLES, k=rng.choice((2, 2, 3))))
    # Names that no map for training has are of parts like these.
    words = _common_words()
    head, tail = rng.choice(words), rng.choice(words)
    most = len(head) if rng.random() < _WHOLE_SHARE else rng.randint(1, len(head))
    word = head[:most] + tail[-rng.randint(1, 4) :]
    return f'{word}o' if word in words else word


@cache
def _common_words() -> tuple[str, ...]:
    """Words of questions about places, and of the names for training."""
    names = [name for name in named_things() if not is_held_out_name(name)]
    wordings = (*MAP_WORDINGS.values(), *MORE_MAP_WORDINGS.values())
    texts = ' '.join([*names, *chain.from_iterable(wordings)]).lower()
    return tuple(sorted(set(re.findall(r'[a-z]{3,}', texts))))


def some_names(count: int, rng: Random) -> list[str]:
    """Different names of things, some of them made up."""
    known = [name for name in named_things() if not is_held_out_name(name)]
    names: dict[str, None] = {}
    while len(names) < count:
        is_made_up = rng.random() < _MADE_UP_SHARE
        names[made_up_name(rng) if is_made_up else rng.choice(known)] = None
    return list(names)


def place_exercises(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations, each with several exercises of a kind about things."""
    rng = Random(f'places:{seed}')
    alike = (_stances, _stances, _legs, _legs, _least, _least, _order, _fits, _options, _counts)
    return _exercises(count, (*alike, _sizes), rng)


def sum_exercises(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations, each with many sums of a kind, without things."""
    several = (_turns, _numbers, _digits, _walks, _walks, _turning, _lengths, _stretches)
    return _exercises(count, (*several, _stretches), Random(f'sums:{seed}'))


def _exercises(
    count: int, kinds: Sequence[Callable[[Random], _Exercise]], rng: Random
) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        facts, question, lines = rng.choice(kinds)(rng)
        content = '\n'.join([*facts, f'Question: {question}'])
        yield {
            'prompt': [{'role': 'user', 'content': content}],
            'completion': [{'role': 'assistant', 'content': f' {" ".join(lines)}'}],
        }


_Exercise = tuple[list[str], str, list[str]]  # lines that tell, what is asked, what is right


def _turns(rng: Random) -> _Exercise:
    """Turns from one direction to another: what is drawn stands beside what follows from it."""
    name, word_of = rng.choice(list(_TURN_WORDS.items()))
    pairs = [(rng.choice(_STEPS), rng.choice(_STEPS)) for _ in range(rng.randint(*_SUMS))]
    right = [f'{turn_sum(a, b)}, {word_of(turn_between(a, b))};' for a, b in pairs]
    return [], f'Turns, {name}', right


def _walks(rng: Random) -> _Exercise:
    """Dead reckoning alone: steps that are drawn, and where each leads, as traces say it."""
    walk = Walk()
    for number in range(1, rng.randint(*_SUMS) // 2):
        ways = rng.sample(('forward', 'backward', 'left', 'right'), rng.choice((0, 1, 1, 2)))
        steps = [
            MotionStep('moved', way, rng.randint(1, rng.choice((9, 30))) / 10) for way in ways
        ]
        if rng.random() < 0.8:
            most_deg = rng.choice((60, 180))
            turn = ANGLE_STEP_DEG * rng.randint(1, most_deg // ANGLE_STEP_DEG)
            steps.append(MotionStep('turned', rng.choice(('left', 'right')), turn))
        walk.move(SceneLine(str(number), tuple(steps), False, (), (), ()))
    return [], 'Walk', [walk.text('').strip()]


def _turning(rng: Random) -> _Exercise:
    """Turns of many steps added up; of every second one by quarters alone."""
    walk, is_grid = Walk(), rng.random() < 1 / 2
    for number in range(1, rng.randint(*_SUMS)):
        degrees = 90 * rng.choice((0, 1, 1, 2)) if is_grid else ANGLE_STEP_DEG * rng.randint(0, 36)
        steps = (MotionStep('turned', rng.choice(('left', 'right')), degrees),) if degrees else ()
        walk.turn(SceneLine(str(number), steps, False, (), (), ()))
    return [], 'Turning', [walk.text('').strip()]


def _size_text(rng: Random) -> str:
    """Three extents as a map tells them, some of them the same."""
    sides = [round(10 ** rng.uniform(0.3, 2.5)) for _ in range(rng.choice((2, 3, 3)))]
    sides += rng.choices(sides, k=3 - len(sides))
    rng.shuffle(sides)
    return ' x '.join(map(str, sides))


def _longest_text(size: str) -> str:
    longest = max(size.split(' x '), key=int)
    return f'{size} cm, longest {longest}. So {longest}.'


def _lengths(rng: Random) -> _Exercise:
    """The longest side of many sizes."""
    return [], 'Lengths', [_longest_text(_size_text(rng)) for _ in range(rng.randint(*_SUMS) // 2)]


def _stretches(rng: Random) -> _Exercise:
    """How long two stretches of time took, by how long ago each began and ended."""
    right = []
    for _ in range(rng.randint(*_SUMS) // 2):
        most_s = 10 ** rng.uniform(0.7, 2.1)
        ago = sorted((rng.randint(0, round(10 * most_s)) for _ in range(3)), reverse=True)
        start, first, second = (tenths / 10 for tenths in ago)
        to_a, to_b = start - first, first - second
        sums = f'{start} to {first}: {to_a:.1f}; {first} to {second}: {to_b:.1f}'
        right.append(f'{sums}. Longer {max(to_a, to_b):.1f}.')
    return [], 'Stretches', right


def _numbers(rng: Random) -> _Exercise:
    """Distances of which one is the least, or that were others before, without names."""
    right = []
    for _ in range(rng.randint(*_SUMS) // 2):
        if rng.random() < 0.6:
            metres = [round(_MOST_M * rng.random() ** 1.5, 1) for _ in range(rng.randint(3, 5))]
            parts, least = [*map(metres_text, metres)], metres_text(min(metres))
            end = f'least {least}. So {least.removesuffix("m")}.'
        else:
            start = round(_MOST_M * rng.random(), 1)
            now = round(abs(start + rng.choice((rng.uniform(-0.25, 0.25), rng.gauss(0, 2)))), 1)
            parts = [f'start {metres_text(start)}, now {metres_text(now)}. So']
            end = change_word(start, now)
        right.append(f'{"; ".join(parts)}; {end}' if 'least' in end else f'{parts[0]} {end}')
    return [], 'Numbers', right


def _digits(rng: Random) -> _Exercise:
    """Distances as answers have them."""
    texts = [metres_text(_MOST_M * rng.random()) for _ in range(rng.randint(*_SUMS))]
    return [], 'Digits', [f'{text}. So {text.removesuffix("m")}.' for text in texts]


def _stances(rng: Random) -> _Exercise:
    """Who stands at one thing and faces another one looks for a third."""
    names = some_names(rng.randint(3, 5), rng)
    at = {(a, b): rng.choice(_STEPS) for a in names for b in names if a != b}
    word, word_of = rng.choice(list(_TURN_WORDS.items()))
    requests, right = [], []
    for _ in range(rng.randint(*_LISTS)):
        a, b, c = rng.sample(names, 3)
        requests.append(f'at {a}, facing {b}, to {c}')
        first, second = at[a, b], at[a, c]
        turn = word_of(turn_between(first, second))
        right.append(
            f'From {a}: {b} at {first}°; {c} at {second}°. {turn_sum(first, second)}, {turn}.'
        )
    facts = [
        f'From {a}: ' + '; '.join(f'{b} at {at[a, b]}°' for b in names if a != b) + '.'
        for a in names
    ]
    return facts, f'Turns, {word}: ' + '; '.join(requests), right


def _legs(rng: Random) -> _Exercise:
    """The turns of a way from thing to thing."""
    names = some_names(rng.randint(3, 5), rng)
    at = {(a, b): rng.choice(_STEPS) for a in names for b in names if a != b}
    start, *others = rng.sample(names, len(names))
    facing, stops = rng.choice(others), rng.sample(others, rng.randint(1, min(3, len(others))))
    right = [f'From {start}: {facing} at {at[start, facing]}°;']
    turns, place, before = [], start, at[start, facing]
    for stop in stops:
        direction = at[place, stop]
        turns.append(turn_word(turn_between(before, direction)) or 'straight on')
        leg = f'from {place}: {stop} at {direction}°. {turn_sum(before, direction)}'
        right.append(f'{leg}, {turns[-1]};')
        place, before = stop, direction
    facts = [
        f'From {a}: ' + '; '.join(f'{b} at {at[a, b]}°' for b in names if a != b) + '.'
        for a in names
    ]
    way = ', then to the '.join(stops)
    question = f'Way: at the {start}, facing the {facing}, to the {way}'
    return facts, question, [*right, f'So {", ".join(turns)}.']


def _sizes(rng: Random) -> _Exercise:
    """The longest sides of things, of which some have no size."""
    names = some_names(rng.randint(3, 6), rng)
    sizes = {name: _size_text(rng) for name in names if rng.random() < 2 / 3}
    facts, right = [], []
    for name in names:
        words = [
            f'{metres_text(_MOST_M * rng.random())} ahead',
            f'came {ordinal(rng.randint(1, 20))}',
        ]
        known = rng.sample(words, rng.randint(0, 2))
        known += [f'{sizes[name]} cm'] if name in sizes else []
        facts += [f'- {name}: {"; ".join(known)}.'] if known else []
        end = (
            _longest_text(sizes[name])
            if name in sizes
            else f'size of {name} not told, so {UNKNOWN}.'
        )
        right.append(f'{name} 1; {end}')
    order = rng.sample(range(len(names)), len(names))
    question = 'Longest: ' + '; '.join(names[place] for place in order)
    things = '; '.join(f'{name} 1' for name in names)
    return [f'Things: {things}.', *facts], question, [right[place] for place in order]


def _least(rng: Random) -> _Exercise:
    """Which is the nearest to something."""
    names = some_names(rng.randint(4, 6), rng)
    origins = rng.sample(names, rng.randint(*_LISTS))
    facts, right = [], {}
    for origin in origins:
        metres = [metres_text(_MOST_M * rng.random() ** 1.5) for _ in names]
        gaps = {name: gap for name, gap in zip(names, metres, strict=True) if name != origin}
        line = f'From {origin}: ' + '; '.join(f'{gap} {name}' for name, gap in gaps.items())
        least = min(gaps, key=lambda name: float(gaps[name].removesuffix('m')))
        facts.append(f'{line}.')
        digits = gaps[least].removesuffix('m')
        right[origin] = f'{line}; least {gaps[least]} {least}. So {digits}.'
    rng.shuffle(origins)
    question = 'Nearest: ' + '; '.join(f'to {origin}' for origin in origins)
    return facts, question, [right[origin] for origin in origins]


def _order(rng: Random) -> _Exercise:
    """In which order things came, what came next after one, and what after it at all."""
    names = some_names(rng.randint(4, 8), rng)
    word = rng.choice(('First seen', 'Reached'))
    requests, right = ['all'], [f'{word}: {"; ".join(names)}. So {", ".join(names)}.']
    for place in rng.sample(range(len(names) - 1), 3):
        name, later = names[place], names[place + 1 :]
        if rng.random() < 0.5:
            requests.append(f'next after {name}')
            right.append(f'after {name}: {later[0]}. So {later[0]}.')
        else:
            requests.append(f'all after {name}')
            right.append(f'after {name}: {"; ".join(later)}.')
    return [f'{word} in this order: {"; ".join(names)}.'], f'Orders: {"; ".join(requests)}', right


def _fits(rng: Random) -> _Exercise:
    """Which orders of some things agree with one that leaves one of them out."""
    names = some_names(rng.randint(3, 4), rng)
    orders = list(permutations(names))
    options = [rng.choice(orders)]
    while len(options) < 4:
        other = rng.choice(orders)
        options += [] if other in options else [other]
    untold = rng.choice(names)
    order = [name for name in rng.choice(options) if name != untold]
    right = [f'First seen: {"; ".join(order)}. {untold} not told;']
    facts = [f'First seen in this order: {"; ".join(order)}.']
    fitting = []
    for letter, option in zip(ascii_uppercase, options, strict=False):
        facts.append(f'{letter}. {", ".join(option)}')
        left = [name for name in option if name != untold]
        same = next((i for i, name in enumerate(left) if name != order[i]), len(left))
        right += [f'{letter}.', *(f'{name} yes;' for name in left[:same])]
        right += [f'{name} no;' for name in left[same : same + 1]]
        fitting += [option] if left == order else []
    is_known = len(fitting) == 1
    end = (
        f'So {", ".join(fitting[0])}.' if is_known else f'{len(fitting)} orders fit, so {UNKNOWN}.'
    )
    return facts, 'Which of these orders fits?', [*right, end]


def _options(rng: Random) -> _Exercise:
    """Which of some lists names nothing but what is there."""
    names = some_names(rng.randint(7, 12), rng)
    there, away = names[: len(names) // 2], names[len(names) // 2 :]
    length = rng.choice((2, 2, 3))
    good = rng.sample(there, length)
    lists = [good]
    while len(lists) < rng.choice((3, 4)):
        some = rng.sample(names, length)
        lists += [some] if set(some) & set(away) else []
    rng.shuffle(lists)
    letters = ascii_uppercase[: len(lists)]
    options = [f'{letter}. {", ".join(some)}' for letter, some in zip(letters, lists, strict=True)]
    right = []
    for letter, some in zip(letters, lists, strict=True):
        right.append(f'{letter}.')
        most = next((place for place, name in enumerate(some) if name in away), length)
        right += [f'{name} yes;' for name in some[:most]]
        if some is good:
            break
        right.append(f'{some[most]} no;')
    right.append(f'So {", ".join(good)}.')
    there = rng.sample(there, len(there))
    return [f'There: {"; ".join(there)}.', *options], 'Which list is there?', right


def _counts(rng: Random) -> _Exercise:
    """How many there are of some things, of which some are not there."""
    names = some_names(rng.randint(8, 12), rng)
    there, away = names[:-3], names[-3:]
    counts = {name: rng.choice((1, 1, 1, 2, 3, 4, 5)) for name in there}
    facts = [f'Things: {"; ".join(f"{name} {count}" for name, count in counts.items())}.']
    names_in_question = rng.sample(names, rng.randint(4, len(names)))
    names_in_question += [] if set(names_in_question) & set(away) else away[:1]
    right = [f'{name} {counts.get(name, "none")};' for name in names_in_question]
    return facts, f'How many: {"; ".join(names_in_question)}', right
