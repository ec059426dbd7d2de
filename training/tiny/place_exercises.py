# SPDX-License-Identifier: Apache-2.0
"""What questions about a place need again and again, several at once: the steps of its traces.

Looking up who lies where from what, turning from one direction to another, the least of several
distances, and orders in time. Names are those for training and made-up ones: what is learned is to
copy a name, not to know it.
"""

from __future__ import annotations

from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.scene.map_relations import quadrant_of_turn, side_of_turn, turn_word
from embodied_r_ros.scene.map_text import metres_text, ordinal
from embodied_r_ros.types.things import is_held_out_name, named_things

from training.data.map_traces import turn_between, turn_sum

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MADE_UP_SHARE = 0.4
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
_MOST_M, _MOST_PLACES = 9.0, 40
_STEPS = range(0, 360, 10)


def made_up_name(rng: Random) -> str:
    """A name of nothing: one or two words of two or three syllables."""
    words = range(rng.choice((1, 1, 2)))
    return ' '.join(''.join(rng.choices(_SYLLABLES, k=rng.choice((2, 2, 3)))) for _ in words)


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
    return _exercises(count, (_stances, _stances, _least, _least, _order, _next, _counts), rng)


def sum_exercises(count: int, seed: int) -> Iterator[dict[str, Any]]:
    """Conversations, each with many sums of a kind, without things."""
    return _exercises(count, (_turns, _turns, _numbers, _digits), Random(f'sums:{seed}'))


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


def _numbers(rng: Random) -> _Exercise:
    """Distances of which one is the least, and places in order, likewise without names."""
    right = []
    for _ in range(rng.randint(*_SUMS) // 2):
        if rng.random() < 0.6:
            metres = [round(_MOST_M * rng.random() ** 1.5, 1) for _ in range(rng.randint(3, 5))]
            parts, least = [*map(metres_text, metres)], metres_text(min(metres))
            end = f'least {least}. So {least.removesuffix("m")}.'
        else:
            places = rng.sample(range(1, rng.randint(5, _MOST_PLACES)), rng.randint(2, 4))
            parts = [f'came {ordinal(place)}' for place in places]
            end = f'In order: {"; ".join(f"came {ordinal(place)}" for place in sorted(places))}.'
        right.append(f'{"; ".join(parts)}; {end}')
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


def _places(names: Sequence[str], rng: Random) -> dict[str, int]:
    places = rng.sample(range(1, rng.randint(len(names) + 1, _MOST_PLACES)), len(names))
    return dict(zip(names, places, strict=True))


def _order(rng: Random) -> _Exercise:
    """In which order things came."""
    came = _places(some_names(rng.randint(4, 7), rng), rng)
    facts = [f'- {name}: came {ordinal(place)}.' for name, place in came.items()]
    requests, right = [], []
    for _ in range(rng.randint(*_LISTS)):
        some = rng.sample(list(came), rng.randint(2, 4))
        order = sorted(some, key=came.__getitem__)
        requests.append(', '.join(some))
        right.append(
            ' '.join(f'{name} came {ordinal(came[name])} {name};' for name in some)
            + ' In order: '
            + '; '.join(f'came {ordinal(came[name])} {name}' for name in order)
            + f'. So {", ".join(order)}.'
        )
    return facts, f'In which order: {"; ".join(requests)}', right


def _next(rng: Random) -> _Exercise:
    """What was reached next after something."""
    names = some_names(rng.randint(4, 6), rng)
    reached = _places(names, rng)
    away = set(rng.sample(names, rng.choice((0, 0, 1))))
    texts = {
        name: 'not reached' if name in away else f'reached {ordinal(reached[name])}'
        for name in names
    }
    origins = rng.sample([name for name in names if name not in away], 2)
    right = []
    for item in origins:
        others = [name for name in names if name != item]
        later = [e for e in others if e not in away and reached[e] > reached[item]]
        after = min(later, key=reached.__getitem__, default='')
        end = f'next {texts[after]} {after}.' if after else 'nothing after it.'
        facts_text = ' '.join(f'{name} {texts[name]} {name};' for name in others)
        right.append(f'{item} {texts[item]}; {facts_text} {end}')
    lines = [f'- {name}: {texts[name]}.' for name in names]
    return lines, 'Next after: ' + '; '.join(origins), right


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
