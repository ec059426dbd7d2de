# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import math
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError, ModelError

from training.eval.grading import AskedQuestion, consistencies
from training.eval.judging import JudgeCase, NONE_OF_THESE
from training.grade import main as grade_main
from training.run.rewards import (
    accuracy_reward,
    consistency_reward,
    format_reward,
    require_finite,
    three_rewards,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SIDES = ('left', 'right', 'ahead')


class LastWord:
    """A fake judge in a few lines: the reasoning leads to the candidate that it names last."""

    def __init__(self) -> None:
        self.cases: list[JudgeCase] = []

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        self.cases += cases
        return [
            max((case.think.rfind(name), name) for name in case.candidates())[1]
            if any(name in case.think for name in case.candidates())
            else NONE_OF_THESE
            for case in cases
        ]


class Broken:
    """A fake judge that cannot judge."""

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        msg = f'no verdict on {len(cases)} cases'
        raise ModelError(msg)


def columns(*completions: str, solution: str = 'A', options: Any = SIDES) -> dict[str, Any]:
    many = len(completions)
    return {
        'completions': [[{'role': 'assistant', 'content': text}] for text in completions],
        'question': ['Where is it?'] * many,
        'options': [list(options)] * many,
        'solution': [solution] * many,
    }


def reply_text(think: str, answer: str) -> str:
    return f'<think>{think}</think><answer>{answer}</answer>'


@pytest.mark.parametrize(
    ('text', 'form', 'accuracy', 'consistency'),
    [
        (reply_text('So left.', 'A'), 1, 1, 1),
        (reply_text('So left.', '[[A]]'), 1, 1, 1),
        (reply_text('So left.', 'left'), 1, 1, 1),
        (reply_text('So right.', 'A'), 1, 1, 0),  # injected inconsistency
        (reply_text('So right.', 'B'), 1, 0, 0),  # consistent, but wrong: the gate
        (reply_text('So unknown.', 'unknown'), 1, 0, 0),
        (reply_text('It is B, e.g. here. So left.', 'A'), 1, 1, 1),
        (reply_text('Option A. Answer: A.', 'A'), 1, 1, 0),  # a letter is no reason
        (reply_text('', 'A'), 1, 1, 0),
        (reply_text('So left.', 'A') + ' indeed', 0, 1, 1),
        ('<answer>A</answer>', 0, 1, 0),
        ('So left. <answer>A</answer>', 0, 1, 0),
        (reply_text('So left.', 'A') + '<answer>A</answer>', 0, 0, 0),
        ('So left or right.', 0, 0, 0),
        ('', 0, 0, 0),
    ],
)
def test_rewards_of_one_completion(
    text: str, form: float, accuracy: float, consistency: float
) -> None:
    asked = columns(text)
    assert format_reward(**asked) == [form]
    assert accuracy_reward(LastWord())(**asked) == [accuracy]
    assert consistency_reward(LastWord())(**asked) == [consistency]


def test_places_in_the_image_are_rewarded_by_distance_and_overlap() -> None:
    answers = ['(150, 150)', '{"point_2d": [150, 250]}', '(150, 5000)', 'unknown', 'left of it']
    texts = [reply_text('There.', answer) for answer in answers]
    asked = columns(*texts, solution='{"inside": [100, 100, 200, 200]}', options=())
    assert accuracy_reward(None)(**asked) == [1, 0.5, 0, 0, 0]
    boxes = [reply_text('There.', '(100, 100, 200, 150)'), reply_text('There.', '(150, 150)')]
    asked = columns(*boxes, solution='{"bbox_2d": [100, 100, 200, 200]}', options=())
    assert accuracy_reward(None)(**asked) == [0.5, 0]


def test_only_right_answers_are_judged() -> None:
    judge = LastWord()
    wrong, right = reply_text('So right.', 'B'), reply_text('So left.', 'A')
    assert consistency_reward(judge)(**columns(wrong, right, '', right)) == [0, 1, 0, 1]
    assert len(judge.cases) == 2


def test_number_is_rewarded_by_its_relative_error() -> None:
    asked = columns(reply_text('So 5.', '5'), reply_text('So 4.', '4 m'), solution='4', options=())
    assert accuracy_reward(LastWord())(**asked) == pytest.approx([0.6, 1.0])


def test_number_that_is_nearly_right_gets_no_consistency() -> None:
    asked = columns(reply_text('So 5.', '5'), reply_text('So 4.', '4'), solution='4', options=())
    assert consistency_reward(LastWord())(**asked) == [0, 1]


def test_free_text_is_graded_by_the_judge() -> None:
    asked = columns(
        reply_text('x', 'a chair'), reply_text('x', 'the a chair'),
        reply_text('x', 'a lamp'), reply_text('x', 'unknown'),
        solution='a chair', options=(),
    )  # fmt: skip
    assert accuracy_reward(LastWord())(**asked) == [1.0, 1.0, 0.0, 0.0]


def test_the_judge_reads_the_free_texts_of_a_batch_once_for_all_rewards() -> None:
    judge = LastWord()
    rewards = three_rewards(judge)
    first, second = (
        columns(reply_text('So a chair.', f'{word} a chair'), solution='a chair', options=())
        for word in ('the', 'just')
    )
    for asked in (first, second):
        assert [reward(**asked) for reward in rewards][:2] == [[1.0], [1.0]]
    # Of each batch the answer once, and whether the reasoning leads to it.
    assert len(judge.cases) == 4


@pytest.mark.parametrize('value', [None, math.nan, math.inf])
def test_what_is_no_number_is_refused(value: Any) -> None:
    def odd_reward(completions: Any, **_: Any) -> list[float]:
        return [1.0, value]

    asked = columns(reply_text('So left.', 'A'), reply_text('So right.', 'B'))
    reward = require_finite(odd_reward)
    assert reward.__name__ == 'odd_reward'  # of TensorBoard's curve
    with pytest.raises(ModelError, match=f'odd_reward is {value} for .*<answer>B</answer>'):
        reward(**asked)
    with pytest.raises(ModelError, match='gave 2 rewards for 1 completions'):
        reward(**columns('x'))
    assert require_finite(format_reward)(**asked) == [1.0, 1.0]


def test_free_text_that_nobody_can_grade_is_refused() -> None:
    asked = columns(reply_text('So a lamp.', 'a lamp'), solution='a chair', options=())
    with pytest.raises(
        InputError, match="'a lamp' to the question 'Where is it\\?': name a judge"
    ):
        accuracy_reward(None)(**asked)
    assert [reward.__name__ for reward in three_rewards(None)] == [
        'format_reward', 'accuracy_reward',
    ]  # fmt: skip


def test_judge_that_fails_stops_the_rewards() -> None:
    with pytest.raises(ModelError, match='no verdict on 1 cases'):
        consistency_reward(Broken())(**columns(reply_text('So left.', 'A')))


def test_consistency_is_measured_for_wrong_answers_too() -> None:
    texts = [
        reply_text('So right.', 'B'),
        reply_text('So right.', 'A'),
        'none',
        reply_text('So up.', 'up'),
    ]
    asked = AskedQuestion('Where?', SIDES, 'A')
    assert consistencies([asked] * 4, texts, LastWord()) == [1.0, 0.0, None, 1.0]


def test_grade_command_gives_one_line_each(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, completions = tmp_path / 'rows.jsonl', tmp_path / 'completions.jsonl'
    row = {'id': 'r', 'question': 'Where?', 'options': list(SIDES), 'solution': 'A'}
    rows.write_text(json.dumps(row) + '\n')
    lines = [{'id': 'r', 'completion': text} for text in (reply_text('So left.', 'a'), 'so')]
    completions.write_text('\n'.join(map(json.dumps, lines)) + '\n')
    assert grade_main([str(rows), str(completions), '--judge', 'none', '--json']) == 0
    first, second = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert first == {'id': 'r', 'format': 1.0, 'accuracy': 1.0, 'consistency': None, 'answer': 'A'}
    assert second == {
        'id': 'r',
        'format': 0.0,
        'accuracy': None,
        'consistency': None,
        'answer': None,
    }


@pytest.mark.parametrize(
    ('options', 'solution', 'answer'),
    [
        (SIDES, 'b', 'B'),
        (SIDES, 'right', 'b'),
        (SIDES, '[[B]]', 'right'),
        (SIDES, 'Unknown', 'unknown'),
        ((), 'Unknown', 'unknown'),
        # JSON leaves these two as they are, and neither ends a line of the file.
        ((), 'left\u2028\u0085of it', 'left\u2028\u0085of it'),
    ],
)
def test_grade_command_reads_solutions_as_it_reads_answers(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    solution: str,
    answer: str,
) -> None:
    rows, completions = tmp_path / 'rows.jsonl', tmp_path / 'completions.jsonl'
    row = {'id': 'r', 'question': 'Where?', 'options': list(options), 'solution': solution}
    completion = {'id': 'r', 'completion': reply_text('So.', answer)}
    for path, value in ((rows, row), (completions, completion)):
        path.write_text(json.dumps(value, ensure_ascii=False) + '\n', encoding='utf-8')
    assert grade_main([str(rows), str(completions), '--judge', 'none', '--json']) == 0
    assert json.loads(capsys.readouterr().out)['accuracy'] == 1.0


@pytest.mark.parametrize(
    ('row', 'completion', 'complaint'),
    [
        (
            '{"id": "r"}',
            '{"id": "r", "completion": ""}',
            'rows.jsonl:1: question is None, expected a str',
        ),
        ('[1]', '{"id": "r", "completion": ""}', 'rows.jsonl:1: id is [1]'),
        ('{', '', 'rows.jsonl:1: '),
        (
            '{"id": "r", "question": "Q?", "options": ["a"], "solution": "A"}',
            '{"id": "r", "completion": ""}',
            'rows.jsonl:1: ',
        ),
        (
            '{"id": "r", "question": "Q?", "options": ["a", "b"], "solution": "Z"}',
            '{"id": "r", "completion": ""}',
            "rows.jsonl:1: solution is 'Z', expected one of A, B, unknown, or an option",
        ),
        (
            '{"id": "r", "question": "Q?", "options": [1, 2], "solution": "A"}',
            '{"id": "r", "completion": ""}',
            'rows.jsonl:1: option 1 is no text',
        ),
        (
            '{"id": "r", "question": "Q?", "options": [], "solution": "4"}',
            '{"id": "s", "completion": ""}',
            "no row has the id 's'",
        ),
        (
            '{"id": "r", "question": "Q?", "options": [], "solution": "4"}',
            '',
            'has no completions',
        ),
    ],
)
def test_grade_command_names_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, completion: str, complaint: str
) -> None:
    (tmp_path / 'rows.jsonl').write_text(row + '\n')
    (tmp_path / 'c.jsonl').write_text(completion + '\n')
    arguments = [str(tmp_path / 'rows.jsonl'), str(tmp_path / 'c.jsonl'), '--judge', 'none']
    assert grade_main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith('training.grade: error: ')
    assert complaint in error
