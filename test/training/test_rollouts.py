# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
import shutil
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.data.questions.row import write_rows

from test.chat_server import ChatServer, RecordedRequest, Script
from test.tiny_models import save_language_model
from test.training.test_sft import turning_row
from training import rollouts
from training.data.samples import PassRateBand, read_samples, teaching_samples
from training.eval import generation
from training.eval.judging import NONE_OF_THESE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.data.questions.row import Row

SAID = ('a chair', 'a seat', 'a table')  # by the seed


@pytest.fixture(scope='module')
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('weights')
    save_language_model(folder)
    return folder


@pytest.fixture
def words(tmp_path: Path, weights: Path) -> list[str]:
    """Arguments that sample twice of each of three rows."""
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(3)])
    shutil.copytree(weights, tmp_path / 'model')
    given = ['--rows', tmp_path / 'rows.jsonl', '--out', tmp_path / 'samples.jsonl']
    given += ['--model', tmp_path / 'model', '--count', '2', '--max-tokens', '4']
    return list(map(str, given))


def lines(tmp_path: Path) -> list[dict[str, Any]]:
    text = (tmp_path / 'samples.jsonl').read_text()
    return [json.loads(line) for line in text.removesuffix('\n').split('\n')]


def test_lines_tell_their_origin_and_a_stopped_run_goes_on(
    words: list[str], tmp_path: Path
) -> None:
    assert rollouts.main([*words, '--limit', '2']) == 0
    first = lines(tmp_path)
    assert [line['origin']['model'] for line in first] == [model_digest(tmp_path / 'model')] * 2
    assert first[0]['origin']['temperature'] == 1.0
    assert rollouts.main(words) == 0
    assert lines(tmp_path)[:2] == first
    assert {line['id'] for line in lines(tmp_path)} == {'r0', 'r1', 'r2'}


@pytest.mark.parametrize(
    ('changes', 'told'),
    [
        ([], 'model '),
        (['--temperature', '0.5'], 'temperature 1.0, not 0.5'),
        (['--token-budget', '300'], 'token_budget 1200, not 300'),
        (['--max-tokens', '5'], 'max_tokens 4, not 5'),
        (['--count', '3'], 'count 2, not 3'),
    ],
)
def test_file_of_another_origin_is_not_gone_on_with(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: list[str],
    told: str,
) -> None:
    assert rollouts.main([*words, '--limit', '1']) == 0
    before = (tmp_path / 'samples.jsonl').read_bytes()
    if not changes:  # the model is trained on
        card = json.loads((tmp_path / 'model' / 'config.json').read_text())
        (tmp_path / 'model' / 'config.json').write_text(json.dumps({**card, 'rms_norm_eps': 0.1}))
    capsys.readouterr()
    assert rollouts.main([*words, *changes]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f'has samples of another origin ({told}' in line
    assert line.endswith('name another --out, or delete it')
    assert (tmp_path / 'samples.jsonl').read_bytes() == before


def test_folder_of_out_is_made_or_refused_by_name(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words[words.index('--out') + 1] = str(tmp_path / 'new' / 'samples.jsonl')
    assert rollouts.main([*words, '--limit', '1']) == 0
    assert (tmp_path / 'new' / 'samples.jsonl').exists()
    (tmp_path / 'file').touch()
    words[words.index('--out') + 1] = str(tmp_path / 'file' / 'samples.jsonl')
    capsys.readouterr()
    assert rollouts.main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert f'--out {tmp_path}/file/samples.jsonl cannot be written' in line


@pytest.mark.parametrize('changes', [{'question': 'Which way now?'}, {'solution': 'D'}])
def test_row_that_is_another_is_not_taken_for_the_old_one(
    changes: dict[str, str], words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert rollouts.main([*words, '--limit', '1']) == 0
    (tmp_path / 'rows.jsonl').unlink()
    rows = [replace(turning_row(i, 'train'), **changes) for i in range(3)]  # type: ignore[arg-type]
    write_rows(tmp_path / 'rows.jsonl', rows)
    assert rollouts.main(words) == 2
    assert 'which is asked or solved otherwise now' in capsys.readouterr().err.splitlines()[-1]


def test_file_without_origins_is_read_and_not_gone_on_with(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {'id': 'r0', 'completions': ['a', 'b'], 'right': [True, False]}
    (tmp_path / 'samples.jsonl').write_text(json.dumps(value) + '\n')
    assert rollouts.main(words) == 2
    assert 'another origin (none is told)' in capsys.readouterr().err
    kept = {'completions': ['a', 'b'], 'right': [True, False]}
    assert read_samples(tmp_path / 'samples.jsonl') == {'r0': kept}


@pytest.mark.parametrize('cut', [1, 20])
def test_row_after_a_torn_line_is_kept(words: list[str], tmp_path: Path, cut: int) -> None:
    assert rollouts.main([*words, '--limit', '2']) == 0
    file = tmp_path / 'samples.jsonl'
    first, _ = lines(tmp_path)
    file.write_bytes(file.read_bytes()[:-cut])
    assert rollouts.main(words) == 0
    assert lines(tmp_path)[0] == first
    assert sorted(line['id'] for line in lines(tmp_path)) == ['r0', 'r1', 'r2']
    assert len(read_samples(file)) == 3


def test_line_torn_within_a_letter_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    value = {'id': 'r0', 'completions': ['one\u2028two'], 'right': [True]}
    whole = json.dumps(value, ensure_ascii=False).encode() + b'\n'
    (tmp_path / 'samples.jsonl').write_bytes(whole + b'{"id": "caf\xc3')
    assert read_samples(tmp_path / 'samples.jsonl')['r0']['completions'] == ['one\u2028two']
    assert 'is no sample: passed over' in capsys.readouterr().err


def text_row(number: int) -> Row:
    asked: dict[str, Any] = {
        'question': f'What is number {number}?',
        'answer_kind': 'text',
        'options': (),
    }
    return replace(turning_row(number, 'train'), **asked, solution='a chair')


def names_things(request: RecordedRequest) -> Script:
    return Script((f'<think>Seen.</think><answer>{SAID[request.body.get("seed", 0)]}</answer>',))


def judges(request: RecordedRequest) -> Script:
    """A seat is a chair; no other thing is. Asked who it is, a server says yes."""
    meant = 'a chair' if 'Reasoning: So a seat.' in request.text else NONE_OF_THESE
    lines = request.text.splitlines()
    letters = [line[0] for line in lines if line.endswith(f'. {meant}')]
    return Script((letters[0],), top=((letters[0], -0.1),)) if letters else Script(('yes',))


@pytest.fixture
def judge() -> Iterator[ChatServer]:
    with ChatServer(judges, [{'id': 'wise'}], 'wise') as server:
        yield server


@pytest.fixture
def asks(tmp_path: Path) -> Iterator[list[str]]:
    """Arguments that sample three times of two rows with a free text and of one other."""
    write_rows(tmp_path / 'rows.jsonl', [text_row(0), text_row(1), turning_row(2, 'train')])
    with ChatServer(names_things, [{'id': 'm'}], 'm') as server:
        given = ['--rows', tmp_path / 'rows.jsonl', '--out', tmp_path / 'samples.jsonl']
        yield list(map(str, [*given, '--model', server.url, '--count', 3]))


def test_free_texts_are_compared_by_the_judge_and_taught(
    asks: list[str], judge: ChatServer, tmp_path: Path
) -> None:
    assert rollouts.main([*asks, '--judge', judge.url]) == 0
    found = {line['id']: line for line in lines(tmp_path)}
    assert found['r0']['right'] == found['r1']['right'] == [True, True, False]
    assert found['r0']['pass_rate'] == 0.6667
    assert found['r0']['origin']['judge'] == [f'{judge.url} wise ']
    assert 'judge' not in found['r2']['origin']
    # The solution to the letter and an answer to a choice are no case for a judge.
    assert sum('Reasoning: ' in request.text for request in judge.requests) == 4
    assert teaching_samples(tmp_path / 'samples.jsonl', 0.0).keys() == {'r0', 'r1'}


def test_without_a_judge_a_free_text_is_right_to_the_letter(
    asks: list[str], tmp_path: Path
) -> None:
    assert rollouts.main([*asks, '--judge', 'none']) == 0
    found = {line['id']: line for line in lines(tmp_path)}
    assert found['r0']['right'] == [True, False, False]
    assert 'judge' not in found['r0']['origin']


def test_judge_is_not_looked_for_where_no_row_needs_one(words: list[str], tmp_path: Path) -> None:
    rows = [replace(turning_row(3, 'train'), answer_kind='number', options=(), solution='4')]
    open_ended: dict[str, Any] = {
        'answer_kind': 'text',
        'options': (),
        'solution': '(0.1, 0.2, 0.3)',
    }
    rows += [replace(turning_row(4, 'train'), **open_ended), text_row(5)]
    rows[-1] = replace(rows[-1], split='test')
    (tmp_path / 'rows.jsonl').unlink()
    write_rows(tmp_path / 'rows.jsonl', rows)
    assert rollouts.main([*words, '--judge', 'http://127.0.0.1:9']) == 0
    assert not any('judge' in line['origin'] for line in lines(tmp_path))
    assert rollouts.main([*words, '--split', 'test', '--judge', 'http://127.0.0.1:9']) == 1


@pytest.mark.parametrize(
    ('split', 'told'),
    [
        ('trian', "no rows of split 'trian': name one that it has, 'test' (1 rows), 'train' (3 "),
        (None, 'has no rows at all'),
    ],
)
def test_split_without_rows_is_bad_input(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    split: str | None,
    told: str,
) -> None:
    (tmp_path / 'rows.jsonl').unlink()
    rows = [turning_row(i, 'train' if i else 'test') for i in range(4)]
    write_rows(tmp_path / 'rows.jsonl', rows if split else [])
    assert rollouts.main([*words, *(['--split', split] if split else [])]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert told in line
    assert not (tmp_path / 'samples.jsonl').exists()


def test_rows_are_chosen_by_their_pass_rates(tmp_path: Path) -> None:
    path = tmp_path / 'samples.jsonl'
    values = [
        {'id': f'{right}', 'completions': ['a'] * 10, 'right': [i < right for i in range(10)]}
        for right in range(11)
    ]
    path.write_text('\n'.join(map(json.dumps, values)) + '\n')
    assert [*teaching_samples(path, 0.0)] == ['2', '3', '4', '5', '6', '7', '8']
    assert [*teaching_samples(path, 1.0)] == [*teaching_samples(path, 0.0), '9', '10']
    assert [*teaching_samples(path, 0.0, PassRateBand(0.01, 0.99))] == [
        str(i) for i in range(1, 10)
    ]
    with pytest.raises(InputError, match=r'min_pass_rate is 0.9, max_pass_rate 0.8: expected'):
        PassRateBand(0.9, 0.8)


@pytest.mark.parametrize(('right', 'anchors'), [([], 1.0), ([True], 0.0), ([False], 1.0)])
def test_samples_that_teach_nothing_are_bad_input(
    tmp_path: Path, right: list[bool], anchors: float
) -> None:
    value = {'id': 'r0', 'completions': ['a', 'b'], 'right': right * 2}
    path = tmp_path / 'samples.jsonl'
    path.write_text(json.dumps(value) + '\n' if right else '')
    with pytest.raises(InputError, match=r'jsonl holds nothing that teaches: [01] sampled'):
        teaching_samples(path, anchors)


def test_what_was_said_before_is_graded_anew(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words += ['--cache', str(tmp_path / 'cache')]
    assert rollouts.main(words) == 0
    before = lines(tmp_path)
    (tmp_path / 'rows.jsonl').unlink()
    rows = [replace(turning_row(i, 'train'), solution='D') for i in range(3)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    words[words.index('--out') + 1] = str(tmp_path / 'again.jsonl')
    monkeypatch.setattr(generation, '_from_folder', lambda *_: pytest.fail('asked again'))
    assert rollouts.main(words) == 0
    again = [json.loads(line) for line in (tmp_path / 'again.jsonl').read_text().splitlines()]
    assert [line['completions'] for line in again] == [line['completions'] for line in before]
    assert {line['solution'] for line in again} == {'D'}
