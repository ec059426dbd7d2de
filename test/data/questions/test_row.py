# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.data.questions.indoor import Draft
from embodied_r_ros.data.questions.row import (
    QuestionWithSolution,
    read_rows,
    Row,
    RowBuilder,
    write_rows,
)
import pytest

if TYPE_CHECKING:
    from pathlib import Path

ROW = Row(
    id='e1/3/net_turn/ab',
    episode_id='e1',
    scene_id='s1',
    split='train',
    source='layout',
    camera='camera',
    question_type='net_turn',
    question='Which way?',
    answer_kind='choice',
    options=('left', 'right'),
    solution='B',
    deltas=({'stamp_ns': 5, 'action': '', 'change': 'New: red tall object ahead.', 'items': []},),
    focus=({'keyframe_id': 0, 'stamp_ns': 5, 'text': 'a red lamp', 'camera': 'camera'},),
    meta={'note': 'ünï'},
)


def test_one_builder_makes_rows_of_drafts_and_of_answers() -> None:
    drafts = [
        Draft('Which way?', ('ahead', 'left', 'behind'), 'left', source='odometry'),
        Draft('How many?', (), '3', answer_kind='number'),
        Draft('How many?', (), 'unknown', answer_kind='number'),
    ]
    solved = [QuestionWithSolution.of_draft('net_turn', draft, Random(1)) for draft in drafts]
    assert [q.answer_kind for q in solved] == ['choice', 'number', 'number']
    choice, number, _ = solved
    assert choice.options[ord(choice.solution) - ord('A')] == 'left'
    assert (
        number.digest
        != choice.digest
        == QuestionWithSolution.of_draft('net_turn', drafts[0], Random(1)).digest
    )

    builder = RowBuilder('e1', 's1', 'test', 'camera', 'recorded')
    row = builder.row('9/net_turn', choice, (), meta={'truth': {}}, camera='other')
    assert (row.id, row.scene_id, row.split, row.source) == (
        'e1/9/net_turn',
        's1',
        'test',
        choice.source,
    )
    assert list(row.meta) == ['deltas', 'truth']
    assert row.camera == 'other'
    Row.from_json(row.to_json())

    written = QuestionWithSolution('asked', 'How far?', (), '2.5 m', 'label')
    assert RowBuilder('m', 'm', 'train').row('q', written, ()).answer_kind == 'number'
    assert RowBuilder('m', 'm', 'train').row('q', replace(written, solution='far'), ()).meta == {}


def test_row_survives_a_file(tmp_path: Path) -> None:
    path = tmp_path / 'rows.jsonl'
    more = replace(ROW, id='e1/4', solution='unknown', extra={'own_field': [1, 2]})
    assert write_rows(path, [ROW, more]) == 2
    assert [row.to_json() for row in read_rows(path)] == [ROW.to_json(), more.to_json()]


def test_prompt_of_a_row_holds_scene_focus_and_options() -> None:
    user = ROW.prompt(MemoryConfig()).user
    assert 'New: red tall object ahead.' in user
    assert '0.0 s: a red lamp' in user
    assert user.endswith('Question: Which way?\nA. left\nB. right')


def test_solution_as_text() -> None:
    assert ROW.solution_text() == 'right'
    assert replace(ROW, solution='unknown').solution_text() == 'unknown'
    places = {
        '{"inside": [0, 0, 20, 40]}': '(10, 20)',
        '{"bbox_2d": [1, 2, 3, 4]}': '(1, 2, 3, 4)',
    }
    for solution, text in places.items():
        row = RowBuilder('e', 's', 'test').row(
            'q', QuestionWithSolution('place', 'Point at it.', (), solution, 'items'), ()
        )
        assert Row.from_json(row.to_json()).solution_text() == text


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'solution': 'C'}, "solution is 'C', expected one of A, B, unknown"),
        ({'options': ['left']}, 'one option alone'),
        ({'options': 'left'}, "options is 'left', expected a list"),
        ({'answer_kind': 'letter'}, "answer_kind is 'letter', expected one of choice"),
        ({'question': None}, 'question is None, expected a text'),
        ({'split': 'foo'}, "split is 'foo', expected one of train, validation, test"),
        (
            {'answer_kind': 'number', 'options': [], 'solution': 'abc'},
            "solution is 'abc', expected a number or unknown",
        ),
        (
            {'answer_kind': 'point', 'options': [], 'solution': '(3, 4)'},
            r'solution is .* expected \{"inside": …\} or \{"point_2d": …\} without options',
        ),
        (
            {'answer_kind': 'box', 'options': [], 'solution': '{"inside": [1, 2, 3, 4]}'},
            r'solution is .* expected \{"bbox_2d": \[left, top',
        ),
        ({'answer_kind': 'box', 'solution': '{"bbox_2d": [1, 2, 3, 4]}'}, 'without options'),
        ({'options': [1, 2]}, 'option 1 is no text'),
        ({'deltas': [7]}, 'delta 7 is no object'),
        ({'focus': [{'x': 1}]}, r"focus \{'x': 1\} is not readable: expected keyframe_id"),
        ({'focus': [{'keyframe_id': 0, 'stamp_ns': 5, 'text': 7}]}, 'is not readable'),
        ({'meta': [1]}, r'meta is \[1\], expected an object'),
        ({'meta': {'tools': {'turns': ['a']}}}, 'tools of meta is .*: expected turns and calls'),
        ({'meta': {'tools': {'turns': [], 'calls': [{'x': 1}]}}}, 'expected turns and calls'),
    ],
)
def test_bad_field_is_named_with_its_place(
    tmp_path: Path, change: dict[str, object], message: str
) -> None:
    path = tmp_path / 'rows.jsonl'
    path.write_text(json.dumps({**json.loads(ROW.to_json()), **change}) + '\n')
    with pytest.raises(InputError, match=message) as error:
        list(read_rows(path))
    assert str(error.value).startswith(f'{path}:1: ')


@pytest.mark.parametrize('solution', ['2.5', '-30', 'unknown'])
def test_number_may_be_a_solution(solution: str) -> None:
    row = replace(ROW, answer_kind='number', options=(), solution=solution)
    assert Row.from_json(row.to_json()) == row


@pytest.mark.parametrize('kind', ['number', 'text'])
def test_unknown_is_read_in_the_letters_in_which_it_is_graded(kind: str) -> None:
    row = replace(ROW, answer_kind=kind, options=(), solution=' Unknown')
    assert Row.from_json(row.to_json()).solution == 'unknown'


@pytest.mark.parametrize('stamp', ['soon', None])
def test_delta_that_is_not_readable_is_named(stamp: object) -> None:
    row = replace(ROW, deltas=({**ROW.deltas[0], 'stamp_ns': stamp},))
    with pytest.raises(InputError, match='is unreadable'):
        row.semantic_deltas()


@pytest.mark.parametrize('line', ['{', '[1]', '{"id": "x"}', '"x"'])
def test_line_that_is_no_row_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / 'rows.jsonl'
    path.write_text(line + '\n')
    with pytest.raises(InputError):
        list(read_rows(path))


def test_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='cannot be read as rows'):
        list(read_rows(tmp_path / 'none.jsonl'))


def test_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / 'rows.jsonl'
    path.write_text('mine')
    with pytest.raises(InputError, match='exists already'):
        write_rows(path, [ROW])
    assert path.read_text() == 'mine'


def test_interrupted_writing_leaves_nothing(tmp_path: Path) -> None:
    def fail() -> object:
        yield ROW
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_rows(tmp_path / 'rows.jsonl', fail())  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


ARM = replace(
    ROW,
    question_type='movement',
    options=('up', 'down'),
    solution='A',
    state=(0.1, 0.0, 0.05),
    keypoint=(0.1, 0.004, 0.25),
    frame_id='table_center',
    deadband_m=0.005,
)


def test_row_of_an_arm_survives_a_file() -> None:
    again = Row.from_json(ARM.to_json())
    assert again == ARM
    assert json.loads(ARM.to_json())['state'] == [0.1, 0.0, 0.05]


def test_row_of_no_arm_does_not_speak_of_one() -> None:
    assert not {'state', 'keypoint', 'frame_id', 'deadband_m'} & set(json.loads(ROW.to_json()))


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'state': [0.1, 0.2]}, r'state is \[0.1, 0.2\], expected x, y, z'),
        ({'keypoint': [0.1, 0.2, float('nan')]}, 'keypoint is'),
        ({'state': [0.1, 0.2, 10**400]}, 'state is'),
        ({'state': 3}, 'state is 3, expected a list'),
        ({'frame_id': ''}, "frame_id is '', expected the frame"),
        ({'deadband_m': None}, 'deadband_m is None, expected metres'),
        ({'solution': 'B'}, "solution is 'down', but from state to keypoint it is 'up'"),
        ({'deadband_m': 0.003}, "it is 'slightly right, up'"),
        ({'solution': 'unknown'}, "solution is 'unknown', but"),
    ],
)
def test_row_of_an_arm_that_contradicts_itself_is_refused(
    change: dict[str, object], message: str
) -> None:
    value = {**json.loads(ARM.to_json()), **change}
    with pytest.raises(InputError, match=message):
        Row.from_mapping(value)
