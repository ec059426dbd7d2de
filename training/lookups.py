# SPDX-License-Identifier: Apache-2.0
"""Exercises in reading a scene: many look-ups in one answer, in the words of the traces.

An answer to a question of a row rests on one or two places of the scene, so a small model hears
seldom that it read the wrong one: it takes the green tall object for the green round one, or the
distance of an item for that of its neighbour. An exercise asks for many places of the same scene.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from training.scene_reader import read_scene
from training.traces import first_lines, last_sight, sight_text, Trace
from training.walk import Walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from random import Random

    from embodied_r_ros.reasoning.memory import MemoryConfig
    from embodied_r_ros.rows import Row

    from training.scene_reader import SceneLine

    Exercise = Callable[[Sequence[SceneLine], Random], tuple[str, str] | None]

_MOST_ITEMS, _MOST_LINES = 4, 4
_DONE = 'done'


def lookups(
    row: Row, config: MemoryConfig, count: int, rng: Random
) -> Iterator[tuple[Row, Trace]]:
    """Ask for many places of a row's scene: so many exercises, each of another kind.

    Args:
        row: A question about the scene; its own words are not used.
        config: How memory tells the scene.
        count: Exercises at most.
        rng: Draws their kinds and what they ask for.

    Yields:
        The row as an exercise, and what a careful reader says.
    """
    lines = read_scene(row.prompt(config).user)
    for exercise in rng.sample(_EXERCISES, min(count, len(_EXERCISES))):
        asked = exercise(lines, rng) if lines else None
        if asked:
            question, said = asked
            exercise_row = replace(row, question=question, options=())
            # Where memory merges, what it keeps depends on the words of the question.
            if read_scene(exercise_row.prompt(config).user) == lines:
                yield exercise_row, Trace(said, _DONE)


def _last_sights(lines: Sequence[SceneLine], rng: Random) -> tuple[str, str] | None:
    """Go back to the last sight of several items, one of which was perhaps never there."""
    labels = list(first_lines(lines))
    if len(labels) < 2:
        return None
    asked = rng.sample(labels, min(len(labels), _MOST_ITEMS - 1))
    one, other = rng.sample(labels, 2)
    crossed = f'{one.split(" ", 1)[0]} {other.split(" ", 1)[-1]}'  # its colour, the other's shape
    if crossed not in asked:
        asked.insert(rng.randrange(len(asked) + 1), crossed)
    said = []
    for label in asked:
        walk = Walk()
        walk.say(f'{label}:')
        found = last_sight(label, lines, walk)
        if found is None:
            walk.say('Not seen.')
        elif found[1] is None:
            walk.say(f'[{lines[found[0]].label}] seen, not where.')
        said.append(walk.text('').rstrip())
    return f'Where was each of these last in view: {"; ".join(asked)}?', ' '.join(said)


def _sights_of_lines(lines: Sequence[SceneLine], rng: Random) -> tuple[str, str] | None:
    """Tell where the items of several lines were, in another order than the scene has them."""
    shown = [line for line in lines if line.items]
    chosen = rng.sample(shown, min(len(shown), _MOST_LINES))
    if not chosen:
        return None
    orders = [(line, rng.sample(line.items, len(line.items))) for line in chosen]
    asked = ', '.join(
        f'in [{line.label}] {"; ".join(item.label for item in items)}' for line, items in orders
    )
    said = ' '.join(
        f'[{line.label}] {"; ".join(f"{item.label} {sight_text(item)}" for item in items)}.'
        for line, items in orders
    )
    return f'Where was it: {asked}?', said


def _first_sights(lines: Sequence[SceneLine], rng: Random) -> tuple[str, str]:
    """Name what comes into view, line by line."""
    del rng
    first = first_lines(lines)
    said = (
        f'[{line.label}] {"; ".join(label for label, at in first.items() if at == index) or "no"}.'
        for index, line in enumerate(lines)
    )
    return 'What came into view, line by line?', ' '.join(said)


_EXERCISES: list[Exercise] = [_last_sights, _sights_of_lines, _first_sights]
