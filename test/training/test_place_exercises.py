# SPDX-License-Identifier: Apache-2.0
"""Exercises about places are solved right, and rows about places may have made-up names."""

from __future__ import annotations

from dataclasses import replace
from random import Random
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import Row, write_rows
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.deltas import change_text, Item
from embodied_r_ros.types.things import is_held_out_name, named_things
import pytest

from training.data.degrade import sparse
from training.data.random_maps import rows_of_random_maps
from training.data.rename import renamed, without_shapes
from training.data.sft import examples, SftArguments
from training.data.traces import read_row
from training.tiny.place_exercises import place_exercises, sum_exercises

if TYPE_CHECKING:
    from pathlib import Path

BUDGET = MemoryConfig(450)
HELD_OUT = {name for name in named_things() if is_held_out_name(name)}


def test_exercises_follow_from_what_they_tell() -> None:
    kinds, sums = set(), 0
    for example in [*place_exercises(200, 0), *sum_exercises(100, 0)]:
        told, _, asked = example['prompt'][0]['content'].rpartition('Question: ')
        kinds.add(asked.split(':')[0])
        right = example['completion'][0]['content']
        for a, b, turn, hand in re.findall(
            r'at (\d+)°, at (\d+)°: (?:ahead|(\d+)° to the (left|right))', right
        ):
            sign = -1 if hand == 'right' else 1
            assert (int(b) - int(a) - sign * int(turn or 0)) % 360 == 0
        for line in re.findall(r'From [^:]+: (?:[\d.]+m [^;]+; )+least [\d.]+m', right):
            *others, least = map(float, re.findall(r'([\d.]+)m', line))
            assert least == min(others)
            assert line.partition('; least')[0] in told
        for name, later in re.findall(r'after ([^:]+): ([^.]+)', right):
            order = f'{told.partition(": ")[2].strip().removesuffix(".")};'
            assert f'{name}; {later};' in order
        if lists := re.findall(r'^[A-D]\. (.+)$', told, re.MULTILINE):
            there = told.partition('There: ')[2].partition('.')[0].split('; ')
            good = right.partition('So ')[2].removesuffix('.')
            assert good == next(each for each in lists if set(each.split(', ')) <= set(there))
        for start, now, way in re.findall(r'start ([\d.]+)m, now ([\d.]+)m. So It (\w+)', right):
            change = float(now) - float(start)
            assert way in (('remains',) if abs(change) < 0.3 else ('increases', 'decreases'))
            assert way != ('decreases' if change > 0 else 'increases')
        x, y = 0.0, 0.0
        for step, then in re.findall(rf'({_PLACE}), at ({_PLACE})', right):
            ahead, left = _metres(step)
            x, y = x + ahead, y + left
            assert _metres(then) == pytest.approx((x, y))
            sums += 1
    assert len(kinds) == 11
    assert sums > 100


_PLACE = r'(?:ahead|behind) \d+\.\d (?:left|right) \d+\.\d'


def _metres(place: str) -> tuple[float, float]:
    """Metres ahead and to the left."""
    way, along, side, across = place.split()
    return (
        float(along) * (-1 if way == 'behind' else 1),
        float(across) * (-1 if side == 'right' else 1),
    )


def test_exercises_name_nothing_that_is_held_out() -> None:
    names = {
        name.removesuffix('.').strip()
        for example in place_exercises(300, 1)
        for name in re.findall(r'From ([^:]+):', example['prompt'][0]['content'])
    }
    assert len(names) > 100
    assert not names & HELD_OUT


@pytest.fixture(scope='module')
def rows() -> list[Row]:
    config = QuestionsConfig(seed=3, moments=1, test_share=0.0, maps=True)
    return [replace(row, split='train') for row in rows_of_random_maps(3, config, Coverage())]


def test_a_row_with_made_up_names_has_the_same_solution(rows: list[Row]) -> None:
    changed = 0
    for row in rows:
        new = renamed(row, Random(row.id))
        trace, old = read_row(new, BUDGET), read_row(row, BUDGET)
        assert trace
        assert old
        is_right = old.answer == row.solution_text()
        changed += is_right and trace.answer != new.solution_text()
        if row.question_type.startswith('object_rel'):
            labels = {landmark['label'] for landmark in row.landmarks}
            assert not any(re.search(rf'\b{label}\b', new.question) for label in labels)
            assert new.question != row.question
    assert changed <= 0.02 * len(rows)  # longer names may leave no room for a line


def test_a_thing_of_each_colour_loses_its_shape_wherever_it_is_named() -> None:
    names = ('red tall object', 'red flat object', 'blue round object')
    items = [Item(name, bearing_rad=0.2) for name in names]
    delta = {
        'stamp_ns': 0,
        'action': '',
        'change': change_text(items),
        'items': [item.to_json() for item in items],
    }
    landmarks = tuple({'label': name, 'position': [1, 2, 0]} for name in names)
    row = Row(
        'r', 'e', 's', 'train', 'layout', 'camera', 'object_counting',
        'How many blue round objects, red tall objects and red flat objects are here?', 'choice',
        ('the blue round object', 'a fan'), 'A', (delta,), landmarks=landmarks,
    )  # fmt: skip
    new = without_shapes(row, Random(0))
    (told,) = new.deltas
    assert new.question.count(' objects') == 3
    assert new.options == ('the blue object', 'a fan')
    labels = [landmark['label'] for landmark in new.landmarks]
    assert sorted(labels)[0] == 'blue object'
    assert labels.count('red object') == 1
    assert all(f'{label}s' in new.question for label in labels)
    assert [item['label'] for item in told['items']] == labels
    assert all(f' {label} ' in told['change'] for label in labels)
    assert {without_shapes(row, Random(seed)).question for seed in range(9)} != {new.question}


def test_a_map_of_fewer_things_keeps_what_a_row_names(rows: list[Row]) -> None:
    made = [(row, sparse(row, Random(row.id))) for row in rows]
    assert sum(len(new.landmarks) < len(row.landmarks) for row, new in made) > len(rows) / 2
    assert any(new.room_area_m2 is None and row.room_area_m2 for row, new in made)
    for row, new in made:
        texts = ' '.join([row.question, *row.options, row.solution])
        labels = {each['label'] for each in row.landmarks if each['label'] in texts}
        assert labels <= {each['label'] for each in new.landmarks}


def test_kinds_are_taken_as_often_as_they_weigh(rows: list[Row], tmp_path: Path) -> None:
    write_rows(tmp_path / 'rows.jsonl', rows)
    arguments = SftArguments(
        rows=[str(tmp_path / 'rows.jsonl')], degraded_share=0, merged_share=0, token_budget=450
    )

    def many(*weights: str) -> int:
        arguments.weights = list(weights)
        return sum(1 for _ in examples(arguments, 'train', 0))

    once, routes = many(), sum(row.question_type == 'route_planning' for row in rows)
    assert routes
    assert many('route_planning=3') == once + 2 * routes
    assert many('route_planning=0') == once - routes
    with pytest.raises(InputError, match='route_planning=2'):
        many('route_planning')
