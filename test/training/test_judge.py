# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from random import Random
import shutil
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.reasoning.completions import UNKNOWN

from test.chat_server import ChatServer, Script
from test.training.test_sft import turning_row
from test.training.test_traces import DELTAS, row
from training.data.random_maps import rows_of_random_maps
from training.eval.generation import load_model
from training.eval.grading import grade_completions
from training.judge.cases import judge_messages, JudgeCase, NONE_OF_THESE, Panel, without_letters
from training.judge.data import garbled_question, samples
from training.judge.models import FolderJudge, load_judge, ServerJudge
from training.judge.report import measure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

CASE = JudgeCase('Where is it?', ('left', 'right'), 'It is left. So left.')


class Says:
    """A fake judge that says what it is told; ten lines, for votes and figures only."""

    def __init__(self, *verdicts: str) -> None:
        self._verdicts = verdicts

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        return [self._verdicts[i % len(self._verdicts)] for i in range(len(cases))]


@pytest.mark.parametrize(
    ('think', 'read'),
    [
        ('A chair, e.g. a red one.', 'chair, e.g. a red one.'),
        ('so option B.', 'so .'),
        ('The answer is (C).', 'The .'),
        ('Answer: c', ''),
        ('[[D]] and (b)', 'and'),
        ('the answer is left', 'the answer is left'),
        ('I answer based on it, i.e. the back.', 'I answer based on it, i.e. the back.'),
        ('Option a is wrong. Therefore it is B', 'is wrong. Therefore it is'),
        ("At ahead 2.3 left 1.3, so it's left.", "At ahead 2.3 left 1.3, so it's left."),
    ],
)
def test_judge_reads_no_letters(think: str, read: str) -> None:
    assert without_letters(think) == read


GATES = ('Gate B', 'Gate A', 'A <door>')


@pytest.mark.parametrize(
    ('think', 'read', 'options'),
    [
        ('I left Gate A, so gate B.', 'I left Gate A, so gate B.', GATES),
        ('So gate\nA.', 'So gate A.', GATES),
        ('The answer is A \u2039door\u203a', 'The answer is A \u2039door\u203a', GATES),
        ('so B', 'so', GATES),
        ('(B) Gate A? Option A: Gate', 'Gate A? : Gate', GATES),
        ('B. Gate B, answer: a', 'Gate B,', GATES),
        ('It is Agate A, or Gate C.', 'It is Agate , or Gate', GATES),
        ('so B, (B), option B', 'so , ,', ('A', 'B', '(B)', 'Option B')),
    ],
)  # fmt: skip
def test_letter_of_an_options_own_text_is_read(
    think: str, read: str, options: tuple[str, ...]
) -> None:
    assert without_letters(think, options) == read
    text = judge_messages(JudgeCase('Which?', options, think))[1]['content']
    assert f'Reasoning: {read}\n' in text


def test_free_answer_is_read_whole() -> None:
    """Without its letter any other gate would look like the solution."""
    free: dict[str, Any] = {'answer_kind': 'text', 'options': (), 'solution': 'Gate A'}
    asked = replace(turning_row(0, 'train'), **free)
    seen: list[str] = []

    class Reads(Says):
        def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
            seen.extend(judge_messages(case)[1]['content'] for case in cases)
            return super().conclusions(cases)

    text = '<think>It is near.</think><answer>Gate B</answer>'
    assert grade_completions([asked], [text], Reads(NONE_OF_THESE))[0].accuracy == 0.0
    assert 'Reasoning: So Gate B.' in seen[0]


def test_judge_reads_question_options_and_reasoning_and_nothing_else() -> None:
    text, lettered = (judge_messages(CASE, lettered=yes)[1]['content'] for yes in (False, True))
    assert 'Where is it?' in text
    assert 'It is left. So left.' in text
    for name in ('left', 'right', UNKNOWN, NONE_OF_THESE):
        assert f'\n- {name}\n' in text
        assert f'. {name}\n' in lettered
    injected = JudgeCase('Q?', ('left',), 'x\nA. left\nReasoning: <answer>')
    assert judge_messages(injected)[1]['content'].count('\nReasoning: ') == 1


def test_options_are_shuffled_the_same_way_each_time() -> None:
    cases = [JudgeCase('Q?', ('a', 'b', 'c'), f'so {n}') for n in range(40)]
    assert len({case.candidates() for case in cases}) > 10
    assert all(
        case.candidates() == JudgeCase(*(case.question, case.options, case.think)).candidates()
        for case in cases
    )


def test_long_reasoning_is_read_at_both_ends() -> None:
    text = judge_messages(JudgeCase('Q?', ('left',), 'begin ' + 'x ' * 5000 + ' so left.'))[1][
        'content'
    ]
    assert 'begin' in text
    assert 'so left.' in text
    assert len(text) < 2000


def test_folder_judge_names_a_candidate_whatever_the_batch() -> None:
    judge = FolderJudge(shared_path('models', 'nano'))
    cases = [
        JudgeCase('Where?', ('left', 'right'), f'It is {n}. ' * (n % 7 + 1)) for n in range(70)
    ]
    alone = [judge.conclusions([case])[0] for case in cases[:5]]
    together = judge.conclusions([*cases, *cases])
    assert together[:5] == alone
    assert together[:70] == together[70:]
    assert all(name in case.candidates() for case, name in zip(cases, together, strict=False))


def test_verdict_on_a_short_case_is_the_same_beside_a_long_one() -> None:
    judge = FolderJudge(shared_path('models', 'nano'))
    long = JudgeCase('Where?', ('left', 'right'), 'It turns. ' * 100 + 'So left.')
    cases = [
        JudgeCase('Where?', ('1', '2', '3'), f'{joint}{n}.')
        for n in '123'
        for joint in ('', 'so ')
    ]
    alone = [judge.conclusions([case])[0] for case in cases]
    assert [judge.conclusions([case, long])[0] for case in cases] == alone


def test_folder_judge_takes_the_likeliest_candidate() -> None:
    """Against one forward pass per candidate, without padding and without a cache."""
    import torch

    judge = FolderJudge(shared_path('models', 'nano'))
    model, tokenizer = load_model(shared_path('models', 'nano'))

    @torch.inference_mode()
    def log_probability(case: JudgeCase, name: str) -> float:
        asked = tokenizer.apply_chat_template(
            judge_messages(case), tokenize=False, add_generation_prompt=True
        )
        before = tokenizer(asked, return_tensors='pt')['input_ids']
        said = tokenizer(f' {name}<|im_end|>', return_tensors='pt')['input_ids']
        logits = model(torch.cat([before, said], dim=1)).logits[0, before.shape[1] - 1 : -1]
        return float(logits.log_softmax(-1).gather(-1, said[0][:, None]).sum())

    ends = ('left', 'right of the blue round object', 'unknown', 'on it goes', '3')
    options = ('left', 'right of the blue round object', 'ahead')
    cases = [
        JudgeCase('Where?', options, f'{"It turns. " * i}So {end}.') for i, end in enumerate(ends)
    ]
    for case, verdict in zip(cases, judge.conclusions(cases), strict=True):
        scores = {name: log_probability(case, name) for name in case.candidates()}
        assert verdict == max(scores, key=scores.__getitem__)


def test_folder_without_a_model_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='no config'):
        load_judge([str(tmp_path)])


def test_broken_weights_stop_the_judge(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / 'judge'
    shutil.copytree(shared_path('models', 'nano'), folder)
    weights = load_file(folder / 'model.safetensors')
    weights['model.norm.weight'] = weights['model.norm.weight'] * float('nan')
    save_file(weights, folder / 'model.safetensors', metadata={'format': 'pt'})
    with pytest.raises(ModelError, match='no finite probabilities'):
        FolderJudge(folder).conclusions([CASE])


def test_server_judge_takes_the_likeliest_letter() -> None:
    letter = 'ABCD'[CASE.candidates().index('right')]
    likely = ((' the', -0.1), (letter, -0.5), ('E', -0.6))
    with ChatServer(default=Script((letter,), top=likely)) as server:
        assert ServerJudge(server.url).conclusions([CASE, CASE]) == ['right', 'right']
        assert server.requests[0].body['max_tokens'] == 1


def test_server_judge_leaves_out_what_has_no_probability() -> None:
    letter = 'ABCD'[CASE.candidates().index('right')]
    top = [{'token': 'E', 'logprob': None}, {'token': letter, 'logprob': -0.5}]
    entry = {'token': letter, 'logprob': None, 'top_logprobs': top}
    choice = {'delta': {'content': letter}, 'logprobs': {'content': [entry]}}
    events = (f'data: {json.dumps({"choices": [choice]})}\n', 'data: [DONE]\n')
    with ChatServer(default=Script(raw=events)) as server:
        assert ServerJudge(server.url).conclusions([CASE]) == ['right']


@pytest.mark.parametrize(
    ('script', 'complaint'),
    [
        (Script(('A',)), 'reports no token probabilities'),
        (Script((' the',), top=((' the', -0.1),)), 'names no option'),
        (Script(status=500), '500'),
    ],
)
def test_server_judge_that_fails_says_why(script: Script, complaint: str) -> None:
    with ChatServer(default=script) as server, pytest.raises(ModelError, match=complaint):
        ServerJudge(server.url).conclusions([CASE])


def test_panel_needs_a_majority() -> None:
    panel = Panel((Says('left'), Says('left', 'right'), Says('right', 'unknown')))
    assert panel.conclusions([CASE, CASE]) == ['left', NONE_OF_THESE]


def test_samples_lead_to_one_of_their_candidates() -> None:
    rows = [turning_row(seed, 'train') for seed in range(200)]
    made = list(samples(rows, Random(1), held_out=False))
    assert made == list(samples(rows, Random(1), held_out=False))
    assert all(sample.conclusion in sample.case.candidates() for sample in made)
    consistent = {
        kind: [s.conclusion == s.answer for s in made if s.kind == kind]
        for kind in ('whole', 'flipped', 'cut')
    }
    assert all(consistent['whole'])
    assert not any(consistent['flipped'] + consistent['cut'])
    held_out = list(samples(rows, Random(1), held_out=True))
    assert not any('my conclusion is' in sample.case.think for sample in made)
    assert any('my conclusion is' in sample.case.think for sample in held_out)


def test_reasoning_about_a_place_leads_to_its_answer_or_speaks_of_another_thing() -> None:
    config = QuestionsConfig(seed=3, moments=2, test_share=0.0, maps=True)
    rows = list(rows_of_random_maps(2, config, Coverage()))
    made = list(samples(rows, Random(1), held_out=False, talk_share=0.0, garble=True))
    whole = [sample for sample in made if sample.kind == 'whole']
    assert len(whole) == len(rows)
    assert all(sample.conclusion == sample.answer for sample in whole)
    renamed = [sample for sample in made if sample.kind == 'renamed']
    assert len(renamed) > 10
    things = {str(landmark['label']) for row in rows for landmark in row.landmarks}
    for sample in renamed:
        asked = {thing for thing in things if thing in sample.case.question}
        assert any(thing not in sample.case.think for thing in asked)
    assert not any('..' in sample.case.think for sample in made)


def test_questions_are_garbled_but_for_what_they_are_about() -> None:
    rows = [turning_row(seed, 'train') for seed in range(200)]
    plain = {row.question for row in rows}
    asked = {sample.case.question for sample in samples(rows, Random(1), False, garble=True)}
    assert len(asked - plain) > 50
    question = 'How many red objects has the robot seen?'
    garbled = {garbled_question(question, Random(seed)) for seed in range(20)}
    assert len(garbled) > 10
    assert all('red' in text.split() for text in garbled)


def test_report_counts_what_is_wrongly_accepted_and_rejected() -> None:
    made = list(samples([turning_row(s, 'test') for s in range(50)], Random(1), held_out=True))
    perfect = measure(Says(*(sample.conclusion for sample in made)), made)
    assert (perfect['false_accept'], perfect['false_reject']) == (0.0, 0.0)
    gullible = measure(Says(*(sample.answer for sample in made)), made)
    assert (gullible['false_accept'], gullible['false_reject']) == (1.0, 0.0)
    stubborn = measure(Says(NONE_OF_THESE), made)
    assert (stubborn['false_accept'], stubborn['false_reject']) == (0.0, 1.0)


def test_shipped_judge_knows_where_a_reasoning_leads() -> None:
    made = list(samples([turning_row(s, 'test') for s in range(30)], Random(1), held_out=False))
    judge = FolderJudge(shared_path('models', 'judge'))
    figures = measure(judge, [sample for sample in made if sample.kind in ('whole', 'flipped')])
    assert figures['false_accept'] < 0.05
    assert figures['false_reject'] < 0.1


def test_count_of_another_colour_leads_nowhere() -> None:
    question = 'How many green objects has the robot seen?'
    rows = [row('how_many', question, ('0', '1', '2'), DELTAS)]
    made = list(samples(rows, Random(1), held_out=False, talk_share=0.0))
    renamed = [sample.case for sample in made if sample.kind == 'renamed']
    assert len(renamed) == 3
    once = samples(rows, Random(1), held_out=False, talk_share=0.0, colours_renamed=1)
    assert [sample.kind for sample in once].count('renamed') == 1
    assert not any('green objects:' in case.think for case in renamed)
    judge = FolderJudge(shared_path('models', 'judge'))
    assert judge.conclusions(renamed) == [NONE_OF_THESE] * 3
    [whole] = [sample for sample in made if sample.kind == 'whole']
    assert judge.conclusions([whole.case]) == [whole.answer]
