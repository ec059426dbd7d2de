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

from training.data.degrade import enlarge_things, multiply_things, sparse
from training.data.random_maps import rows_of_random_maps
from training.data.rename import rename_things, without_shapes
from training.data.sft import examples, SftArguments
from training.data.traces import read_row
from training.tiny.place_exercises import made_up_name, place_exercises, sum_exercises

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
        if 'There: ' in told:
            lists = re.findall(r'^[A-D]\. (.+)$', told, re.MULTILINE)
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
    assert len(kinds) == 17
    assert sums > 100


def test_exercises_about_sizes_times_and_turns_add_up() -> None:
    sizes = stretches = turns = 0
    for example in [*place_exercises(200, 0), *sum_exercises(100, 0)]:
        told, right = example['prompt'][0]['content'], example['completion'][0]['content']
        for size, longest in re.findall(r'([\dx ]+) cm, longest (\d+)', right):
            assert int(longest) == max(map(int, size.split(' x ')))
            assert 'Things: ' not in told or f'{size} cm.' in told
            sizes += 1
        for name in re.findall(r'size of (.+?) not told', right):
            assert not re.search(rf'^- {name}: .* cm', told, re.MULTILINE)
        for start, end, seconds in re.findall(r'([\d.]+) to ([\d.]+): ([\d.]*\d)', right):
            assert float(seconds) == pytest.approx(float(start) - float(end))
            stretches += 1
        heading = 0
        for degrees, hand, then, way in re.findall(
            r'\[\d+\] (\d+)(?: (left|right))?: (\d+)(?: (left|right))?\.', right
        ):
            heading += int(degrees) * (-1 if hand == 'right' else 1)
            assert (heading - int(then) * (-1 if way == 'right' else 1)) % 360 == 0
            turns += 1
    assert min(sizes, stretches, turns) > 100


def test_an_order_with_one_thing_left_out_fits_one_option_or_several() -> None:
    ends = set()
    for example in place_exercises(300, 2):
        told, right = example['prompt'][0]['content'], example['completion'][0]['content']
        if untold := re.findall(r'(?<=\. )([a-z ]+) not told; A\.', right):
            order = told.partition(': ')[2].partition('.')[0].split('; ')
            options = re.findall(r'^[A-D]\. (.+)$', told, re.MULTILINE)
            fitting = [
                e for e in options if [n for n in e.split(', ') if n not in untold] == order
            ]
            is_one = len(fitting) == 1
            assert right.endswith(f'So {fitting[0]}.' if is_one else 'orders fit, so unknown.')
            ends.add(is_one)
    assert ends == {True, False}


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


def test_made_up_names_are_no_names_and_have_many_beginnings_and_endings() -> None:
    rng = Random(0)
    names = [made_up_name(rng) for _ in range(3000)]
    assert not set(names) & set(named_things())
    words = {word for name in names for word in name.split()}
    assert len({word[:3] for word in words}) > 500
    # What syllables of two letters never give.
    assert sum(any(part in word for part in ('ight', 'ect', 'c', 'x')) for word in words) > 100


@pytest.fixture(scope='module')
def rows() -> list[Row]:
    config = QuestionsConfig(seed=3, moments=1, test_share=0.0, maps=True)
    return [replace(row, split='train') for row in rows_of_random_maps(3, config, Coverage())]


def test_a_row_with_made_up_names_has_the_same_solution(rows: list[Row]) -> None:
    changed = 0
    for row in rows:
        new = rename_things(row, Random(row.id))
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


def test_a_map_of_fewer_things_loses_one_at_most_that_a_row_names(rows: list[Row]) -> None:
    made = [(row, sparse(row, Random(row.id))) for row in rows]
    assert sum(len(new.landmarks) < len(row.landmarks) for row, new in made) > len(rows) / 2
    assert any(new.room_area_m2 is None and row.room_area_m2 for row, new in made)
    assert (
        0.3 < sum(not any(e['size'] for e in new.landmarks) for _, new in made) / len(made) < 0.7
    )
    lost = []
    for row, new in made:
        texts = ' '.join([row.question, *row.options, row.solution])
        labels = {each['label'] for each in row.landmarks if each['label'] in texts}
        lost.append(len(labels - {each['label'] for each in new.landmarks}))
    assert max(lost) == 1
    assert 0.1 < sum(lost) / len(made) < 0.4


def test_a_map_without_sizes_gives_questions_that_nobody_can_answer(
    rows: list[Row], tmp_path: Path
) -> None:
    write_rows(tmp_path / 'rows.jsonl', rows * 5)
    arguments = SftArguments(
        rows=[str(tmp_path / 'rows.jsonl')], degraded_share=0, merged_share=0, sparse_share=1.0,
        kinds=['object_size_estimation', 'room_size_estimation'], token_budget=450,
    )  # fmt: skip
    told = [
        (each['prompt'][-1]['content'], each['completion'][0]['content'])
        for each in examples(arguments, 'train', 0)
    ]
    assert {'unknown' in answer for _, answer in told} == {True, False}
    for text, answer in told:
        asked = text.rpartition('Question: ')[2]
        unit = ' cm.' if 'centimeter' in asked or 'cm' in asked else 'Floor: '
        assert ('unknown' in answer) == (unit not in text)


def test_more_of_each_thing_are_counted(rows: list[Row]) -> None:
    counted = set()
    for row in rows:
        if row.question_type in ('object_counting', 'count_things'):
            new = multiply_things(row, Random(row.id))
            trace = read_row(new, BUDGET)
            assert trace
            assert trace.answer == new.solution
            counted.add(int(new.solution) / max(1, int(row.solution)))
    assert counted > {1}


def test_larger_things_have_larger_solutions(rows: list[Row]) -> None:
    grown = []
    for row in rows:
        if row.question_type == 'object_size_estimation':
            new = enlarge_things(row, Random(row.id))
            trace = read_row(new, BUDGET)
            assert trace
            assert float(trace.answer) == pytest.approx(float(new.solution), abs=3)
            grown.append(float(new.solution) / float(row.solution))
            unknown = replace(row, solution='unknown')
            assert enlarge_things(unknown, Random(row.id)) == unknown
    assert max(grown) > 1.5


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
