# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.cache import ReplyCache
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.questions.row import Row, write_rows
from embodied_r_ros.serving.profiles import load_profile

from test.chat_server import ChatServer, RecordedRequest, Script
from test.tiny_models import save_language_model
from training import evaluate
from training.eval import generation
from training.eval.grading import Grade
from training.eval.judging import NONE_OF_THESE

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from training.eval.judging import JudgeCase

MEMORY = MemoryConfig()
ROWS = [
    Row(
        f'r{i}', f'e{i}', f's{i // 2}', 'test', 'layout', 'camera', 'where',
        'Where is the box?', 'choice', ('left', 'right'), 'AB'[i % 2],
        ({'stamp_ns': 0, 'action': '', 'change': f'A box {i}° {side}.', 'items': []},),
    )
    for i, side in enumerate(['left', 'right'] * 3)
]  # fmt: skip
PROMPTS = [row.prompt(MEMORY) for row in ROWS]


def reader(request: RecordedRequest) -> Script:
    """Reads the side from the scene; says nothing useful without one."""
    letter = 'A' if '° left' in request.text else 'B' if '° right' in request.text else 'neither'
    return Script((f'<think>Seen.</think><answer>{letter}</answer>',))


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    folder = tmp_path / 'weights'
    save_language_model(folder)
    return folder


def count_requests(server: ChatServer) -> int:
    return sum('Where is the box?' in request.text for request in server.requests)


def test_interrupted_evaluation_goes_on_where_it_stopped(tmp_path: Path) -> None:
    cache = ReplyCache(0, tmp_path / 'cache')

    def fails_once(request: RecordedRequest) -> Script:
        return Script(status=403) if 'A box 5°' in request.text else reader(request)

    with ChatServer(fails_once, [{'id': 'm'}], 'm') as server:
        with pytest.raises(ModelError, match='wants an access token'):
            evaluate.evaluate(server.url, ROWS, MEMORY, Sampling(), cache)
        server.default = reader
        server.requests.clear()
        report = evaluate.evaluate(server.url, ROWS, MEMORY, Sampling(), cache)
        # The one that failed, and the one prompt of all rows when nothing was seen.
        assert count_requests(server) == 2
        assert evaluate.evaluate(server.url, ROWS, MEMORY, Sampling(), cache) == report
        assert count_requests(server) == 2
    assert (report['accuracy'], report['question_only_accuracy']) == (1.0, 0.0)


def test_model_is_named_behind_the_url() -> None:
    with ChatServer(reader, models=[{'id': 'small'}, {'id': 'large'}]) as server:
        generation.generate(f'{server.url}#large', PROMPTS[:1], Sampling())
        assert {request.body['model'] for request in server.requests} == {'large'}
        server.default = Script(status=404, body='no such model')
        with pytest.raises(ModelError, match="serves small, large, not 'huge'"):
            generation.generate(f'{server.url}#huge', PROMPTS[:1], Sampling())


def test_completions_that_were_cut_off_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    def hasty(request: RecordedRequest) -> Script:
        return replace(reader(request), finish='length' if '° left' in request.text else 'stop')

    with ChatServer(hasty) as server:
        generation.generate(server.url, PROMPTS, Sampling(max_tokens=9))
    line = f'{server.url}: 3 of 6 completions: the model was cut off at its limit of 9 tokens'
    assert line in capsys.readouterr().err


def test_report_has_the_outcome_of_every_row() -> None:
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        report = evaluate.evaluate(server.url, ROWS, MEMORY, Sampling())
    assert [outcome['id'] for outcome in report['outcomes']] == [row.id for row in ROWS]
    assert [outcome['answer'] for outcome in report['outcomes']] == list('ABABAB')
    assert report['by_scene'] == {f's{i}': {'n': 2, 'accuracy': 1.0} for i in range(3)}
    assert report['consistency'] is None
    types = report['by_type'].values()
    blind = sum(entry['n'] * entry['question_only_accuracy'] for entry in types) / report['n']
    assert blind == pytest.approx(report['question_only_accuracy']) != report['accuracy']


class Sceptic:
    """A fake judge: no reasoning leads anywhere."""

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        return [NONE_OF_THESE] * len(cases)


def test_held_out_words_are_reported_on_their_own() -> None:
    rows = [replace(row, meta={'held_out_wording': i < 2}) for i, row in enumerate(ROWS)]
    right = Grade(format=True, accuracy=1.0, answer='A')
    grades = [replace(right, accuracy=float(i < 1)) for i in range(len(rows))]
    found = evaluate.by_wording(rows, grades)
    assert {name: (own['n'], own['accuracy']) for name, own in found.items()} == {
        'held out': (2, 0.5),
        'known': (4, 0.0),
    }
    assert evaluate.by_wording(ROWS, grades) == {}


def test_rates_of_checked_answers_stand_apart() -> None:
    names = ['verified', 'unsupported', 'verified', '', 'verified', 'unsupported']
    right = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    grades = [
        Grade(format=True, accuracy=value, answer='A', check=name)
        for name, value in zip(names, right, strict=True)
    ]
    found = evaluate.by_check(ROWS, grades)
    assert {name: (own['n'], own['accuracy']) for name, own in found.items()} == {
        'unsupported': (2, 0.0),
        'verified': (3, pytest.approx(2 / 3)),
    }
    assert evaluate.by_check(ROWS, [replace(grade, check='') for grade in grades]) == {}


def test_foreign_questions_are_told_from_items_that_are_nowhere() -> None:
    kinds = ['unanswerable'] * 3 + ['where']
    told = [('layout', 'unknown'), ('layout', 'unknown'), ('foreign', 'unknown'), ('layout', 'A')]
    rows = [
        replace(row, source=source, solution=solution, question_type=kind)
        for row, (source, solution), kind in zip(ROWS, told, kinds, strict=False)
    ]
    grades = [Grade(format=True, accuracy=float(i), answer='A') for i in (1, 0, 0, 1)]
    found = evaluate.by_reason(rows, grades)
    assert {name: (own['n'], own['accuracy']) for name, own in found.items()} == {
        'absent': (2, 0.5),
        'foreign': (1, 0.0),
    }


def test_report_has_the_verdict_of_a_judge() -> None:
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        report = evaluate.evaluate(server.url, ROWS, MEMORY, Sampling(), judge=Sceptic())
    assert (report['accuracy'], report['consistency']) == (1.0, 0.0)


class Agreeable:
    """A fake judge: every answer is the solution."""

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        return [case.options[0] for case in cases]


def test_question_only_is_judged_as_accuracy_is() -> None:
    asked: dict[str, Any] = {'answer_kind': 'text', 'options': (), 'solution': 'on the left'}
    rows = [replace(row, **asked) for row in ROWS]
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        judged, alone = (
            evaluate.evaluate(server.url, rows, MEMORY, Sampling(), judge=judge)
            for judge in (Agreeable(), None)
        )
    assert (judged['accuracy'], judged['question_only_accuracy']) == (1.0, 1.0)
    assert (alone['accuracy'], alone['question_only_accuracy']) == (0.0, 0.0)


def test_split_without_rows_names_those_that_there_are(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    words = ['--model', 'http://127.0.0.1:9', '--rows', str(tmp_path / 'rows.jsonl')]
    assert evaluate.main([*words, '--split', 'tset']) == 2
    assert "no rows of split 'tset': name one that it has, 'test' (6" in capsys.readouterr().err


def test_table_tells_how_often_unknown_is_said_and_right() -> None:
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        report = evaluate.evaluate(server.url, ROWS, MEMORY, Sampling())
    lines = evaluate.table({**report, 'unknown': {'precision': 0.25, 'recall': None}}).splitlines()
    assert 'unknown, precision      25.0%' in lines
    assert 'unknown, recall             -' in lines


def test_other_sampling_or_model_is_another_completion(tmp_path: Path) -> None:
    cache = ReplyCache(0, tmp_path / 'cache')
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        for sampling in (Sampling(), Sampling(temperature=1.0), Sampling(temperature=1.0, seed=3)):
            generation.generate(server.url, PROMPTS, sampling, cache=cache)
        assert count_requests(server) == 3 * len(ROWS)
        server.models = [{'id': 'n'}]
        server.name = 'n'
        generation.generate(server.url, PROMPTS, Sampling(), cache=cache)
        assert count_requests(server) == 4 * len(ROWS)


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_what_is_kept_is_what_would_be_generated(
    weights: Path, tmp_path: Path, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(generation, '_BATCH', 2)
    sampling = Sampling(temperature, 1.0, 6, seed=1)
    whole = generation.generate(str(weights), PROMPTS, sampling)
    assert len(set(whole)) > 1 or temperature == 0
    cache = ReplyCache(0, tmp_path / 'cache')
    complete, calls = generation._complete, 0

    def complete_then_stop(*args: Any) -> list[str]:
        nonlocal calls
        calls += 1
        if calls == 2:
            raise KeyboardInterrupt
        return complete(*args)

    monkeypatch.setattr(generation, '_complete', complete_then_stop)
    with pytest.raises(KeyboardInterrupt):
        generation.generate(str(weights), PROMPTS, sampling, cache)
    assert generation.generate(str(weights), PROMPTS, sampling, cache) == whole
    assert calls == 4  # three batches, and the one that was cut off
    assert generation.generate(str(weights), PROMPTS, sampling, cache) == whole
    assert calls == 4


def test_command_writes_and_prints_a_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    with ChatServer(reader, [{'id': 'm'}], 'm') as server:
        words = ['--model', server.url, '--rows', str(tmp_path / 'rows.jsonl')]
        words += ['--cache', str(tmp_path / 'cache'), '--json', str(tmp_path / 'a.json')]
        words += ['--judge', 'none']
        assert evaluate.main(words) == 0
    out, err = capsys.readouterr()
    assert out.startswith('accuracy               100.0%')
    assert '(of 3 scenes)' in out
    assert ', question only ' in out
    assert 'does not tell which weights it serves' in err
    assert json.loads((tmp_path / 'a.json').read_text())['n'] == 6


def test_cache_that_cannot_be_made_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    words = ['--model', 'http://127.0.0.1:9', '--rows', str(tmp_path / 'rows.jsonl')]
    words += ['--judge', 'none']
    assert evaluate.main([*words, '--cache', str(tmp_path / 'rows.jsonl')]) == 2
    assert 'the cache' in capsys.readouterr().err


def test_shipped_model_reads_scenes_as_long_as_it_is_served(
    tmp_path: Path, token_budgets: Callable[[str], list[int]]
) -> None:
    budgets = token_budgets('training.evaluate.evaluate')
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    arm, url = str(shared_path('models', 'arm')), 'http://127.0.0.1:9'
    command = ['--rows', str(tmp_path / 'rows.jsonl'), '--cache', 'none', '--judge', 'none']
    for words in ([arm], [arm, '--token-budget', '700'], [url]):
        assert evaluate.main([*command, '--model', *words]) == 2
    served = load_profile('embedded-arm').reasoner['token_budget']
    assert budgets == [served, 700, MemoryConfig.token_budget]
