# SPDX-License-Identifier: Apache-2.0
"""Questions from files in the shapes that the benchmarks publish, and predictions in and out."""

from __future__ import annotations

import base64
import csv
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError

from training.eval.benchmarks.multiple_choice import EGOSCHEMA, ERQA, MVBENCH, URBAN_VIDEO_BENCH
from training.eval.benchmarks.openeqa import OPENEQA
from training.eval.benchmarks.predictions import read_predictions, write_export
from training.eval.benchmarks.questions import read_records
from training.eval.benchmarks.vsi_bench import CHOICE_TYPES, VSI_BENCH

if TYPE_CHECKING:
    from pathlib import Path

pd: Any = pytest.importorskip('pandas')
PNG = b'\x89PNG\r\n\x1a\nrest'
VSI = [
    {
        'id': 7,
        'dataset': 'scannet',
        'scene_name': 'scene0011_00',
        'question_type': 'object_rel_distance',
        'question': 'Which is nearest?',
        'ground_truth': 'B',
        'options': ['A. lamp', 'B. sofa'],
    },
    {
        'id': 8,
        'dataset': 'scannet',
        'scene_name': 'scene0011_00',
        'question_type': 'object_counting',
        'question': 'How many chairs?',
        'ground_truth': '4',
        'options': None,
    },
]


def write_records(path: Path, records: list[dict[str, Any]]) -> Path:
    if path.suffix == '.parquet':
        pd.DataFrame(records).to_parquet(path)
    elif path.suffix == '.jsonl':
        path.write_text('\n'.join(map(json.dumps, records)) + '\n')
    elif path.suffix == '.json':
        path.write_text(json.dumps(records))
    else:
        with path.open('w', newline='') as file:
            kind = 'excel' if path.suffix == '.csv' else 'excel-tab'
            writer = csv.DictWriter(file, list(records[0]), dialect=kind)
            writer.writeheader()
            writer.writerows(records)
    return path


@pytest.mark.parametrize('suffix', ['.parquet', '.json', '.jsonl'])
def test_rows_of_vsi_bench(tmp_path: Path, suffix: str) -> None:
    choice, number = VSI_BENCH.read(write_records(tmp_path / f'test{suffix}', VSI))
    assert (choice.id, choice.truth, choice.options) == ('7', 'B', ('lamp', 'sofa'))
    assert choice.wording == (
        'These are frames of a video.\nWhich is nearest?\n'
        "Answer with the option's letter from the given choices directly."
    )
    assert number.wording.endswith(
        '\nHow many chairs?\nPlease answer the question using a single word or phrase.'
    )
    assert choice.video is not None
    assert choice.video.places == ('scannet/scene0011_00.mp4', 'scene0011_00.mp4')


@pytest.mark.parametrize('suffix', ['.csv', '.tsv'])
def test_rows_of_vsi_bench_in_a_table_are_read_and_exported(tmp_path: Path, suffix: str) -> None:
    questions = VSI_BENCH.read(write_records(tmp_path / f'test{suffix}', VSI))
    assert [question.options for question in questions] == [('lamp', 'sofa'), ()]
    assert [question.truth for question in questions] == ['B', '4']
    write_export('vsi-bench', tmp_path / 'm_VSI-Bench.tsv', questions, {})
    table = pd.read_csv(tmp_path / 'm_VSI-Bench.tsv', sep='\t')
    assert list(table['candidates']) == ["['A. lamp', 'B. sofa']", '[]']


@pytest.mark.parametrize(
    'cell', ['A. lamp', "['A. lamp' 'B. sofa']", "['A. lamp'\n 'B. sofa']", "['A. lamp', 3]", '[']
)
def test_a_cell_without_a_list_of_texts_is_named(tmp_path: Path, cell: str) -> None:
    """Pandas writes what it read from a parquet file without commas, as NumPy does."""
    path = write_records(tmp_path / 'test.csv', [{**VSI[0], 'options': cell}])
    with pytest.raises(InputError, match=r'row 0: options is .* expected a list of texts'):
        VSI_BENCH.read(path)


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        (
            {'question_type': 'colour'},
            "type is 'colour', expected one of object_counting",
        ),
        ({'ground_truth': 'two'}, "ground_truth is 'two', expected a number above 0"),
        ({'question': ''}, "row 1: question is '', expected a text"),
        ({'id': 7}, "id '7' comes 2 times"),
        ({'question_type': 'route_planning'}, 'options is None, expected a list of texts'),
        (
            {'question_type': 'route_planning', 'options': ['B. left']},
            "option 'B. left', expected a letter and a text",
        ),
    ],
)
def test_bad_rows_are_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        VSI_BENCH.read(write_records(tmp_path / 'test.json', [VSI[0], {**VSI[1], **change}]))


def test_real_questions_are_read_whole(footage: Path) -> None:
    path = footage / 'real' / 'vsi_bench' / 'test.parquet'
    questions = VSI_BENCH.read(path)
    assert len(questions) == 5130
    assert len({question.scene for question in questions}) == 288
    for question, record in zip(questions, read_records(path), strict=True):
        # Each ground truth gets the whole score by the rule, and each option has its letter.
        assert VSI_BENCH.score(question, record['ground_truth']) == 1
        assert bool(question.options) == (record['question_type'] in CHOICE_TYPES)
        assert not question.options or (
            [f'{letter}. {text}' for letter, text in zip('ABCD', question.options, strict=False)]
            == record['options']
        )


def test_rows_of_urban_video_bench(tmp_path: Path) -> None:
    record = {
        'Question_id': 3,
        'video_id': 'AerialVLN_1.mp4',
        'question_category': 'Proximity',
        'question': 'Question: Nearer? Choices: A. yes B. no',
        'answer': 'B',
    }
    (question,) = URBAN_VIDEO_BENCH.read(write_records(tmp_path / 'MCQ.parquet', [record]))
    assert (question.id, question.question_type, question.truth) == ('3', 'Proximity', 'B')
    assert question.options == ()
    assert question.wording.endswith('\nQuestion: Nearer? Choices: A. yes B. no')


def test_rows_of_openeqa(tmp_path: Path) -> None:
    record = {
        'question': 'Where is the mirror?',
        'answer': 'Next to the stairs',
        'category': 'object localization',
        'question_id': 'u-1',
        'episode_history': 'hm3d-v0/001-hm3d-TP',
        'extra_answers': ['by the stairs'],
    }
    (question,) = OPENEQA.read(write_records(tmp_path / 'open-eqa-v0.json', [record]))
    assert (question.id, question.truth) == ('u-1', 'Next to the stairs')
    assert question.video is not None
    assert question.video.places[0] == 'hm3d-v0/001-hm3d-TP'


def test_rows_of_egoschema_find_their_answers(tmp_path: Path) -> None:
    texts = {f'option {i}': f'C does {i}' for i in range(5)}
    records = [{'q_uid': name, 'question': 'What is done?', **texts} for name in ('a', 'b')]
    path = write_records(tmp_path / 'questions.json', records)
    (tmp_path / 'subset_answers.json').write_text('{"a": 3}')
    known, unknown = EGOSCHEMA.read(path)
    assert (known.truth, unknown.truth) == ('3', None)
    assert known.options == tuple(texts.values())
    card = {
        'question_idx': '0',
        'question': 'What?',
        'video_idx': 'v',
        'option': [f'{letter}. C does' for letter in 'ABCDE'],
        'answer': '2',
    }
    (question,) = EGOSCHEMA.read(write_records(tmp_path / 'card.parquet', [card]))
    assert (question.truth, question.options) == ('2', ('C does',) * 5)
    (question,) = EGOSCHEMA.read(write_records(tmp_path / 'card.tsv', [card]))
    assert (question.truth, question.options) == ('2', ('C does',) * 5)


@pytest.mark.parametrize('suffix', ['.json', '.csv', '.parquet'])
def test_a_row_without_an_answer_has_that_of_the_file(tmp_path: Path, suffix: str) -> None:
    texts = {f'option {i}': f'C does {i}' for i in range(5)}
    records = [
        {'q_uid': name, 'question': 'What is done?', **texts, 'answer': answer}
        for name, answer in (('a', None), ('b', ''), ('c', ' '), ('d', '0'), ('e', None))
    ]
    path = write_records(tmp_path / f'questions{suffix}', records)
    (tmp_path / 'subset_answers.json').write_text('{"a": 3, "b": 0, "c": 1, "d": 4}')
    assert [question.truth for question in EGOSCHEMA.read(path)] == ['3', '0', '1', '0', None]


def test_rows_of_mvbench_are_a_file_for_each_task(tmp_path: Path) -> None:
    record = {'video': 'v.mp4', 'question': 'What?', 'candidates': ['run', 'sit'], 'answer': 'sit'}
    write_records(tmp_path / 'fine_grained_action.json', [record])
    write_records(tmp_path / 'action_sequence.json', [{**record, 'start': 1.5, 'end': 4}])
    sequence, fine = MVBENCH.read(tmp_path)
    assert [q.id for q in (sequence, fine)] == ['action_sequence/0', 'fine_grained_action/0']
    assert [q.question_type for q in (sequence, fine)] == [
        'Action Sequence',
        'Fine-grained Action',
    ]
    assert (fine.truth, fine.options) == ('B', ('run', 'sit'))
    assert sequence.video is not None
    assert sequence.video.span_s == (1.5, 4.0)
    assert sequence.video.places == ('star/Charades_v1_480/v.mp4', 'v.mp4')
    table = {**record, 'index': 5, 'task_type': 'Action Count', 'candidates': "['run', 'sit']"}
    (row,) = MVBENCH.read(write_records(tmp_path / 'MVBench.tsv', [table]))
    assert (row.id, row.question_type, row.truth) == ('5', 'Action Count', 'B')
    with pytest.raises(InputError, match=r"answer is 'fly', expected one of \['run', 'sit'\]"):
        MVBENCH.read(write_records(tmp_path / 'state_change.json', [{**record, 'answer': 'fly'}]))


def test_rows_of_erqa_hold_several_images(tmp_path: Path) -> None:
    cell = json.dumps([base64.b64encode(PNG).decode()] * 2)
    row = {'index': 4, 'question': 'Which?', 'answer': 'A', 'category': 'Other', 'image': cell}
    (table,) = ERQA.read(write_records(tmp_path / 'ERQA.tsv', [row]))
    assert (table.id, table.question_type, table.images) == ('4', 'Other', (PNG, PNG))
    record = {'question': 'Which? A. one.', 'answer': 'A', 'question_type': 'Pointing'}
    images = [{'bytes': PNG}, {'bytes': PNG + b'2'}]
    (row_of_card,) = ERQA.read(
        write_records(tmp_path / 'erqa.parquet', [{**record, 'images': images}])
    )
    assert (row_of_card.id, row_of_card.question_type) == ('0', 'Pointing')
    assert row_of_card.images == (PNG, PNG + b'2')
    write_export('erqa', tmp_path / 'm_ERQA.tsv', [row_of_card], {'0': 'A'})
    exported = pd.read_csv(tmp_path / 'm_ERQA.tsv', sep='\t')
    assert list(exported['category']) == list(exported['question_type']) == ['Pointing']
    assert list(exported['prediction']) == ['A']


@pytest.mark.parametrize(
    ('name', 'content', 'message'),
    [
        ('a.xml', '<a/>', 'expected a file .parquet, .json'),
        ('a.json', '{"a": 1}', 'expected a list of objects'),
        ('a.json', '[]', 'has no questions'),
        ('a.jsonl', '[1]', 'is no JSON object'),
        ('a.parquet', 'none', 'cannot be read'),
    ],
)
def test_files_that_are_none(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=message):
        VSI_BENCH.read(tmp_path / name)
    with pytest.raises(InputError, match='is no file'):
        VSI_BENCH.read(tmp_path / 'missing.json')


def test_predictions_are_read_by_their_ids(tmp_path: Path) -> None:
    path = tmp_path / 'p.jsonl'
    path.write_text('{"id": 7, "prediction": "B."}\n\n{"id": "8", "prediction": "", "mark": 3}\n')
    predictions = read_predictions(path, {'7', '8'})
    assert [(name, p.text, p.mark) for name, p in predictions.items()] == [
        ('7', 'B.', None),
        ('8', '', 3.0),
    ]


@pytest.mark.parametrize(
    ('lines', 'message'),
    [
        (['{"id": 7, "prediction": 3}'], r'p.jsonl:1: prediction is 3, expected a str'),
        (['{"prediction": "A"}'], r'p.jsonl:1: id is None, expected a str or int'),
        (['{"id": 7, "prediction": "A"}'] * 2, r"p.jsonl:2: id '7' comes twice"),
        (['{"id": "7 ", "prediction": "A"}'], "no row has the id '7 '"),
        ([f'{{"id": {i}, "prediction": ""}}' for i in range(20, 28)], "'24' and 3 more"),
        (['{"id": 7, "prediction": "A", "mark": "5"}'], "mark is '5', expected a number"),
        ([], 'has no predictions'),
    ],
)
def test_bad_predictions_are_named(tmp_path: Path, lines: list[str], message: str) -> None:
    path = tmp_path / 'p.jsonl'
    path.write_text('\n'.join(lines))
    with pytest.raises(InputError, match=message):
        read_predictions(path, {'7', '8'})


def test_export_of_vsi_bench_is_a_table_for_vlmevalkit(tmp_path: Path) -> None:
    questions = VSI_BENCH.read(write_records(tmp_path / 'test.json', VSI))
    text = 'B.\tor\n"A"'
    write_export('vsi-bench', tmp_path / 'm_VSI-Bench.tsv', questions, {'7': text})
    # As its `load` and `evaluate` read it.
    table = pd.read_csv(tmp_path / 'm_VSI-Bench.tsv', sep='\t')
    assert list(table['index']) == [7, 8]
    assert list(table['question_type']) == [row['question_type'] for row in VSI]
    assert list(table['answer']) == ['B', '4']
    assert table['prediction'][0] == text
    assert pd.isna(table['prediction'][1])
    assert table['candidates'][0] == "['A. lamp', 'B. sofa']"
    with pytest.raises(InputError, match=r'exported to a file \.tsv'):
        write_export('vsi-bench', tmp_path / 'm.json', questions, {})


def test_lines_are_written_as_they_are_read(tmp_path: Path) -> None:
    questions = VSI_BENCH.read(write_records(tmp_path / 'test.json', VSI))
    write_export('vsi-bench', tmp_path / 'p.jsonl', questions, {'8': '3\n\u2028'})
    (name, prediction), *others = read_predictions(tmp_path / 'p.jsonl', {'7', '8'}).items()
    assert (name, prediction.text, others) == ('8', '3\n\u2028', [])


def test_a_benchmark_without_a_suite_is_exported_as_lines_alone(tmp_path: Path) -> None:
    questions = VSI_BENCH.read(write_records(tmp_path / 'test.json', VSI))
    with pytest.raises(InputError, match=r'exported to a file \.jsonl'):
        write_export('egoschema', tmp_path / 'e.json', questions, {})
