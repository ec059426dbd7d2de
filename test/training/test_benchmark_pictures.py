# SPDX-License-Identifier: Apache-2.0
"""Benchmarks of pictures and plans, on rows in the shapes that they publish.

Expected values are worked out by hand from the code that the benchmarks publish.
"""

from __future__ import annotations

from dataclasses import replace
import doctest
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

import cv2
from embodied_r_ros.common.errors import InputError
import numpy as np

from test.chat_server import ChatServer, RecordedRequest, Script
from training import benchmark
from training.eval.benchmarks import pointing, spatialrgpt
from training.eval.benchmarks.planning import EMBODIEDBENCH, VLABENCH
from training.eval.benchmarks.pointing import ROBOSPATIAL, WHERE2PLACE
from training.eval.benchmarks.questions import BenchmarkQuestion, picture_bytes
from training.eval.benchmarks.scores import Scorer
from training.eval.benchmarks.spatialrgpt import SPATIALRGPT

if TYPE_CHECKING:
    from pathlib import Path


def picture(mask: bool = False) -> bytes:
    """Grey, or a mask that is bright from (320, 240) on."""
    image = np.full((480, 640), 0 if mask else 128, np.uint8)
    if mask:
        image[240:, 320:] = 255
    return cv2.imencode('.png', image)[1].tobytes()


def save(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(pointing).failed == doctest.testmod(spatialrgpt).failed == 0


@pytest.mark.parametrize('name', ['../secret.png', 'SECRET', 'a\0.png'])
def test_rows_name_no_file_of_another_folder(tmp_path: Path, name: str) -> None:
    secret = save(tmp_path / 'secret.png', picture())
    save(tmp_path / 'rows' / 'images' / 'own.png', picture())
    folder = tmp_path / 'rows' / 'images'
    assert picture_bytes('own.png', folder, 0) == picture()
    with pytest.raises(InputError, match=r'row 0: the image .* is not below'):
        picture_bytes(name.replace('SECRET', str(secret)), folder, 0)


FREE_SPACE = BenchmarkQuestion('0', 'w', '0', 'Where?', '', mask=picture(mask=True))


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('[(0.75, 0.75)]', 1), ('(0.5, 0.5)', 1), ('(0.499, 0.5)', 0), ('(400, 300)', 1),
        ('[(0.75, 0.75), (0.1, 0.1)]', 0.5), ('(1.0, 1.0)', 0), ('(-0.1, 0.9)', 0),
        ('(1, 1)', 0), ('(1, 0.9)', 0), ('(0.75, 300)', 0), ('[0.75, 0.75]', 0), ('', 0),
        ('0.75, 0.75', 0), ('( 0.75, 0.75)', 0), ('(0.75, 0.75 )', 0), ('(0.75;0.75)', 0),
        ('(0.75, 0.75, 0.9)', 0), ('(7, 8) no (0.75, 0.75)', 0.5), ('(.75, .75)', 0),
        ('(0.5, 0.5, 1.0, 1.0)', 1), ('(0.0, 0.0, 1.0, 1.0)', 0.25), ('(320, 240, 640, 480)', 1),
        ('(0.9, 0.9, 0.5, 0.5)', 0), ('(1, 0.5, 1.0, 1.0)', None), ('(0.5, 1, 1, 1)', 0),
        ('(' + '9' * 400 + ', 1)', None),
    ],
)  # fmt: skip
def test_points_of_where2place_are_in_the_mask(prediction: str, score: float | None) -> None:
    assert WHERE2PLACE.score(FREE_SPACE, prediction) == score


def test_rows_of_where2place_have_images_and_masks_beside_them(tmp_path: Path) -> None:
    rows = tmp_path / 'point_questions.jsonl'
    records = [{'question_id': 5 + n, 'image': f'{n}.png', 'text': f'Where {n}?'} for n in (0, 1)]
    rows.write_text('\n'.join(map(json.dumps, records)))
    with pytest.raises(InputError, match=r'row 0: the image .*00\.jpg cannot be read'):
        WHERE2PLACE.read(rows)
    for number in (0, 1):
        save(tmp_path / 'images' / f'{number}.png', picture())
        save(tmp_path / 'masks' / f'{number:02d}.jpg', picture(mask=True))
    first, second = WHERE2PLACE.read(rows)
    assert (first.id, second.id, first.wording) == ('5', '6', 'Where 0?')
    assert first.images == (picture(),)
    assert WHERE2PLACE.score(first, first.truth or '') == 1
    save(tmp_path / 'masks' / '01.jpg', b'no image')
    with pytest.raises(InputError, match='a mask is no image'):
        WHERE2PLACE.read(rows)


SQUARE = BenchmarkQuestion(
    '0', 'context', '0', 'Where?', '[(0, 0), (0.5, 0), (0.5, 0.5), (0, 0.5)]'
)
YES = BenchmarkQuestion('1', 'compatibility', '1', 'Does it fit?', 'Yes')


@pytest.mark.parametrize(
    ('question', 'prediction', 'score'),
    [
        (YES, 'yes', 1), (YES, ' YES, it does', 1), (YES, 'Yesterday', 1), (YES, 'no', 0),
        (YES, 'It does: yes', 0), (YES, '**Yes**', 0), (YES, '', 0),
        (SQUARE, '(0.2, 0.3)', 1), (SQUARE, '[(0.2,0.3), (0.9, 0.9)]', 1),
        (SQUARE, '[0.9, 0.9] or (0.2, 0.3)', 1), (SQUARE, '(0.9, 0.9) or (0.2, 0.3)', 0),
        (SQUARE, '[[0.2, 0.3]]', 1), (SQUARE, '0.2, 0.3', 0), (SQUARE, '(20, 30)', 0),
        (SQUARE, '[(2e-1, 0.3),]', 1), (SQUARE, '[-0.2, 0.3]', 0), (SQUARE, '[2e-1, 3e-1]', 1),
        (SQUARE, '(-0.2, 0.3)', 0), (SQUARE, '[', 0), (SQUARE, '[]', 0), (SQUARE, '["a"]', 0),
        (SQUARE, '[' * 9000 + ']', 0), (SQUARE, '(.2, .3)', 0), (SQUARE, '(0.2 0.3)', 0),
        (SQUARE, '[("a", 1)]', 0), (SQUARE, '(0, 0)', 1), (SQUARE, '(0.5, 0.5)', 0),
    ],
)  # fmt: skip
def test_answers_of_robospatial(
    question: BenchmarkQuestion, prediction: str, score: float
) -> None:
    assert ROBOSPATIAL.score(question, prediction) == score


def test_rows_of_robospatial(tmp_path: Path) -> None:
    save(tmp_path / 'images' / 'a.png', picture())
    record = {'category': 'context', 'question': 'Where?', 'answer': SQUARE.truth}
    rows = save(
        tmp_path / 'annotations.json',
        json.dumps(
            [{**record, 'img': 'images/a.png'}, {**record, 'answer': '', 'img': 'none'}]
        ).encode(),
    )
    [question] = ROBOSPATIAL.read(rows)
    assert (question.scene, question.question_type) == ('images/a.png', 'context')
    assert ROBOSPATIAL.score(question, '(0.1, 0.1)') == 1


def region_row(category: str, answer: str, kind: str = 'quantitative') -> dict[str, Any]:
    return {
        'id': category,
        'image_info': {'file_path': 'a.png', 'height': 480, 'width': 640},
        'text_q': f'What of Region [0]? {category}',
        'qa_info': {'type': kind, 'category': category},
        'conversations': [{'from': 'human', 'value': '?'}, {'from': 'gpt', 'value': answer}],
        'bbox': [[100, 100, 200, 9000]],
    }


@pytest.fixture
def regions(tmp_path: Path) -> Path:
    save(tmp_path / 'a.png', picture())
    rows = [
        region_row('width_data', 'The width of Region [0] is 1.00 meters.'),
        region_row('direction', "Around the 12 o'clock direction."),
        region_row('left_predicate', 'Yes, Region [0] is to the left.', 'qualitative'),
    ]
    return save(tmp_path / 'bench.json', json.dumps(rows).encode())


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('1 m', 1), ('It is 125 cm wide.', 1), ('0.75 meters', 1), ('0.74 m', 0), ('1.26 m', 0),
        ('39.4 inches', 1), ('3 feet', 1), ('3 feet 3 inches', 1), ("3' 3\"", 1), ('3.3ft', 1),
        ('1 m (39 in)', 1), ('1 m or 2 m', 0), ('1', 0), ('about one metre', 0), ('', 0),
        ('Region [1]', 0), ('1.0.0 m', 0), ('x1 m', 0), ('1 mile', 0), ('1m', 1), ('-1 m', 1),
    ],
)  # fmt: skip
def test_length_of_spatialrgpt_is_within_a_quarter(
    regions: Path, prediction: str, score: float
) -> None:
    assert SPATIALRGPT.score(SPATIALRGPT.read(regions)[0], prediction) == score


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ("12 o'clock", 1), ("1 o'clock", 1), ("at 11 o'clock.", 1), ("2 o'clock", 0), ('12', 0),
        ("13 o'clock", 0), ("0 o'clock", 0), ("1 or 11 o'clock", 1), ("6 o'clock, 12 o'clock", 0),
    ],
)  # fmt: skip
def test_direction_of_spatialrgpt_is_within_an_hour(
    regions: Path, prediction: str, score: float
) -> None:
    assert SPATIALRGPT.score(SPATIALRGPT.read(regions)[1], prediction) == score


def test_regions_are_drawn_and_qualities_are_judged(regions: Path) -> None:
    questions = SPATIALRGPT.read(regions)
    assert [q.question_type for q in questions] == ['width', 'direction', 'left/right']
    shown = cv2.imdecode(np.frombuffer(questions[0].images[0], np.uint8), cv2.IMREAD_COLOR)
    assert shown is not None
    assert np.abs(shown[300, 100].astype(int) - 128).max() > 40
    assert SPATIALRGPT.score(questions[2], 'Yes') is None

    def judge(request: RecordedRequest) -> Script:
        good = 'Response: Indeed' in request.text
        return Script(('Your mark: 1' if good else 'I cannot say',))

    texts = ['1 m', "12 o'clock", 'Indeed\nYour mark: 1']
    with ChatServer(judge, [{'id': 'judge'}], 'judge') as server:
        scorer = Scorer(SPATIALRGPT, server.url, None)
        assert scorer.score(questions, texts) == [1, 1, 1]
        assert scorer.score(questions, ['2 m', '', 'No']) == [0, 0, 0]
        asked = [request.text for request in server.requests if 'Response: ' in request.text]
        assert len(asked) == 2
        assert 'Indeed Your mark: 1' in asked[0]


@pytest.mark.parametrize(
    ('change', 'message'),
    [
        ({'qa_info': None}, 'row 0: expected qa_info and conversations'),
        ({'conversations': []}, 'row 0: expected qa_info and conversations'),
        ({'bbox': [[1, 2]]}, 'row 0: bbox is'),
        ({'qa_info': {'type': 'quantitative', 'category': 'colour'}}, 'row 0: qa_info is'),
        ({'image_info': {}}, 'row 0: the image'),
    ],
)
def test_rows_of_spatialrgpt_that_are_none(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    save(tmp_path / 'a.png', picture())
    rows = [{**region_row('width_data', '1 m'), **change}]
    with pytest.raises(InputError, match=message):
        SPATIALRGPT.read(save(tmp_path / 'bench.json', json.dumps(rows).encode()))


def skill(name: str, entity: object = None, container: object = None) -> dict[str, Any]:
    params = {'target_entity_name': entity, 'target_container_name': container}
    return {'name': name, 'params': {k: v for k, v in params.items() if v is not None}}


PLAN = [skill('pick', 1), skill('place', None, 2), skill('pick', 3), skill('place', None, 2)]


def plan_text(*skills: dict[str, Any]) -> str:
    return json.dumps({'skill_sequence': list(skills)})


@pytest.mark.parametrize(
    ('prediction', 'in_order', 'in_any_order'),
    [
        (plan_text(*PLAN), 1, 1),
        (f'So:\n```json\n{plan_text(*PLAN)}\n```\nDone.', 1, 1),
        (plan_text(*PLAN[2:], *PLAN[:2]), 0.9, 1),  # only the order is wrong
        (plan_text(*PLAN[:2]), 0.2 + 0.2 + 0.05 + 0.05, 0.2 + 0.2 + 0.05 + 0.05),
        (plan_text(*PLAN, *PLAN), 1, 1),  # more costs nothing
        # Two entities and one subtask are other ones.
        (plan_text(*PLAN[:2], skill('pick', 4), PLAN[3]), 0.4 + 0.3 + 0.075 + 0.05, 0.825),
        (plan_text(skill('press')), 0, 0), (plan_text(), 0, 0), ('pick 1', 0, 0), ('', 0, 0),
        ('[]', 0, 0), ('{"skill_sequence": 3}', 0, 0), ('{"skill_sequence": [{}]}', 0, 0),
        (plan_text({'name': 'pick'}), 0, 0), (plan_text(skill('pick', [1])), 0, 0),
        (f'Answer: {plan_text(*PLAN)}', 0, 0), ('[' * 9000, 0, 0),
    ],
)  # fmt: skip
def test_plans_of_vlabench_are_skills_entities_and_their_order(
    tmp_path: Path, prediction: str, in_order: float, in_any_order: float
) -> None:
    for task in ('cook', 'sort'):
        example = tmp_path / task / 'example0'
        save(example / 'input' / 'instruction.txt', b'Tidy up.\n')
        for name in ('input.png', 'input_mask.png'):
            save(example / 'input' / name, picture())
        plan = json.dumps({'skill_sequence': PLAN}).encode()
        save(example / 'output' / 'operation_sequence.json', plan)
    with pytest.raises(InputError, match=r'seq_independent_task\.json cannot be read'):
        VLABENCH.read(tmp_path)
    save(tmp_path / 'seq_independent_task.json', b'["sort"]')
    cook, sort = VLABENCH.read(tmp_path)
    assert (cook.id, sort.question_type, len(cook.images)) == ('cook/example0', 'sort', 2)
    assert 'instruction: Tidy up.\n' in cook.wording
    assert VLABENCH.score(cook, prediction) == pytest.approx(in_order)
    assert VLABENCH.score(sort, prediction) == pytest.approx(in_any_order)


@pytest.mark.parametrize('in_order', [True, False])
def test_a_plan_without_a_subtask_is_worth_what_vlabench_gives_it(in_order: bool) -> None:
    alone = [skill('pick', 1)]
    question = BenchmarkQuestion(
        'q', 'cook', 's', 'w', '', record={'skills': alone, 'in_order': in_order}
    )
    # The expert's plan has none: VLABench fails there and gives 0, whatever the answer.
    assert VLABENCH.score(question, plan_text(*alone)) == 0
    # Only the answer has none: three of the four shares are worth something.
    question = replace(question, record={'skills': PLAN[:2], 'in_order': in_order})
    assert VLABENCH.score(question, plan_text(*alone)) == pytest.approx(0.2 + 0.2 + 0.05)


def test_episodes_of_embodiedbench_are_averaged_by_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, successes in {'base': (1.0, 0.0, 1.0), 'spatial': (0.0,)}.items():
        for number, success in enumerate(successes):
            record = {
                'task_success': success,
                'planner_steps': 2 * number,
                'instruction': f'{name} {number}',
                'reward': [0.5],
            }
            file = tmp_path / name / 'results' / f'episode_{number}_final_res.json'
            save(file, json.dumps(record).encode())
    save(tmp_path / 'base' / 'results' / 'summary.json', b'{}')
    out = tmp_path / 'report.json'
    command = ['embodiedbench', '--rows', str(tmp_path), '--json', str(out)]
    assert benchmark.main(command) == 0
    report = json.loads(out.read_text())
    assert report['n'] == 4
    assert report['by_type'] == {'base': pytest.approx(2 / 3), 'spatial': 0}
    assert report['overall'] == pytest.approx(1 / 3)
    assert report['averages'] == {'task_success': 0.5, 'planner_steps': 1.5}
    assert report['baselines'] == {}
    assert 'mean planner_steps: 1.5' in capsys.readouterr().out
    assert benchmark.main([*command, '--model', 'models/arm']) == 2
    assert 'has what was done in its files' in capsys.readouterr().err
    save(tmp_path / 'base' / 'results' / 'episode_9_res.json', b'{"task_success": 2}')
    with pytest.raises(InputError, match='task_success is 2, expected'):
        EMBODIEDBENCH.read(tmp_path)


def test_predictions_and_a_model_that_sees_are_scored(regions: Path, tmp_path: Path) -> None:
    lines = [{'id': 'width_data', 'prediction': '1 m'}, {'id': 'direction', 'prediction': '?'}]
    predictions = save(tmp_path / 'said.jsonl', '\n'.join(map(json.dumps, lines)).encode())
    out = tmp_path / 'report.json'
    command = ['spatialrgpt-bench', '--rows', str(regions), '--json', str(out), '--cache', 'none']
    assert benchmark.main([*command, '--predictions', str(predictions)]) == 0
    report = json.loads(out.read_text())
    assert report['by_type'] == {'direction': 0, 'width': 1, 'left/right': 0}
    with ChatServer(Script(('<answer>1</answer>',)), [{'id': 'eyes'}], 'eyes') as server:
        assert benchmark.main([*command, '--model', server.url, '--judge', server.url]) == 0
        assert sum(bool(request.images) for request in server.requests) == 3
    assert benchmark.main([*command, '--model', server.url]) == 2
