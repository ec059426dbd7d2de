# SPDX-License-Identifier: Apache-2.0
"""Recordings and reviewers of the example of labels: what they say becomes rows, and no more."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.chat.settings import model_digest
from embodied_r_ros.cli.main import main as embodied_r
from embodied_r_ros.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import write_rows
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.deltas import ModelInfo
import pytest

pytest.importorskip('torch')

from examples import people
from examples.people import gain_line, main, Reviewer, write_recordings
from training import improve, promote
from training.eval.shadow import read_shadowed, shadow_report

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row

SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'
MEMORY = MemoryConfig(450)
SERVING, CANDIDATE = ModelInfo('nano', 'sha256:s'), ModelInfo('better', 'sha256:c')


@pytest.fixture(scope='module')
def questions() -> list[Row]:
    """Questions about a simulated room, whose answers are known."""
    rows = rows_of([SAMPLE], RowsRecipe(QuestionsConfig(moments=2), 'true'), Coverage())
    return [row for row in rows if row.options and len(row.solution) == 1]


def completions_of(rows: list[Row], letter: str = 'A') -> dict[str, str]:
    return {row.id: f'<think>so</think><answer>{letter}</answer>' for row in rows}


def true(rows: list[Row]) -> dict[str, str]:
    return {row.id: f'<think>so</think><answer>{row.solution}</answer>' for row in rows}


def solutions_by_labels(tmp_path: Path, rows: list[Row], reviewer: Reviewer) -> dict[str, str]:
    """Solutions of the rows that a reviewer's labels give, by question."""
    write_recordings(tmp_path / 'bags', rows, [(SERVING, completions_of(rows))], MEMORY)
    reviewer.label(tmp_path / 'bags', rows, completions_of(rows))
    bags = sorted((tmp_path / 'bags').iterdir())
    found = [*rows_of(bags, RowsRecipe(QuestionsConfig()), Coverage())]
    found = [row for row in found if row.source != 'foreign']  # questions of another kind
    assert {row.source for row in found} == {'label'}
    return {str(row.meta['answer_id']): row.solution for row in found}


@pytest.mark.parametrize(('right', 'share'), [(1.0, 1.0), (0.0, 0.0)])
def test_labels_become_the_solutions_of_rows(
    tmp_path: Path, questions: list[Row], right: float, share: float
) -> None:
    found = solutions_by_labels(tmp_path, questions, Reviewer(right, 0))
    assert len(found) == len(questions) > 5
    assert sum(found[row.id] == row.solution for row in questions) == share * len(questions)


def test_shuffled_labels_are_the_same_ones_of_other_questions(
    tmp_path: Path, questions: list[Row]
) -> None:
    plain = solutions_by_labels(tmp_path / 'a', questions, Reviewer(1.0, 0))
    mixed = solutions_by_labels(tmp_path / 'b', questions, Reviewer(1.0, 0, shuffles=True))
    assert sorted(plain.values()) == sorted(mixed.values())
    assert plain != mixed


def test_both_models_stand_in_the_shadow_recordings(tmp_path: Path, questions: list[Row]) -> None:
    spoken = [(SERVING, completions_of(questions)), (CANDIDATE, true(questions))]
    write_recordings(tmp_path, questions, spoken, MEMORY)
    Reviewer(1.0, 0).label(tmp_path, questions, completions_of(questions))
    report = shadow_report(read_shadowed([tmp_path]), SERVING.digest, CANDIDATE.digest)
    assert (report['solved'], report['dropped'], report['failed']) == (len(questions), 0, 0)
    assert report['second_accuracy'] == 1.0
    assert report['difference'] == sum(row.solution != 'A' for row in questions) / len(questions)


def test_file_in_place_of_the_folder_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'file').touch()
    assert main(['--out', str(tmp_path / 'file')]) == 2
    assert capsys.readouterr().err.startswith('examples.people: error: cannot write to')


def test_gain_is_told_with_its_interval() -> None:
    scenes = ['a', 'a', 'b', 'b']
    assert gain_line('labels', [[1.0] * 4, [0.0] * 4], scenes) == (
        'labels      +50.0% (+0.0% to +100.0%; seeds: +100.0%, +0.0%)'
    )


class Commands:
    """Stands in for the commands: reads each by its parser, and leaves what it would leave."""

    def __init__(self, rows: list[Row]) -> None:
        self.rows, self.words = rows, list[list[str]]()

    def __call__(self, words: list[str], log: Path, limit_s: float, well: Any = (0,)) -> int:
        del limit_s
        self.words.append(words)
        log.with_suffix('.out').write_text('')
        given = {a: b for a, b in pairwise(words) if a.startswith('--')}
        if words[:2] == ['embodied-r', 'questions']:
            split = 'test' if given['--test-share'] == '1' else 'train'
            write_rows(Path(given['--out']), [replace(row, split=split) for row in self.rows])
        elif words[:3] == ['embodied-r', 'episodes', 'freeze']:
            assert embodied_r(words[1:]) == 0
        elif words[0] == 'training.rollouts':
            good = Path(given['--model']).parent.name.startswith('labels')
            texts = true(self.rows) if good else completions_of(self.rows)
            lines = [
                {'id': name, 'completions': [text], 'right': [good]}
                for name, text in texts.items()
            ]
            Path(given['--out']).write_text('\n'.join(map(json.dumps, lines)))
        elif words[0] == 'training.improve':
            improve._parser().parse_args(words[1:])
            folder = Path(given['--out']) / 'candidate-control'
            folder.mkdir(parents=True)
            (folder / 'model.safetensors').write_text(given['--out'])
            (folder.parent / 'candidate-test.json').write_text('{}')  # its report
        elif words[0] == 'training.promote':
            promote._parser().parse_args(words[1:])
        return int(max(well))


@pytest.fixture
def start(tmp_path: Path) -> Path:
    """A folder that passes for a model."""
    (tmp_path / 'start').mkdir()
    for name in ('config.json', 'model.safetensors', 'tokenizer.json'):
        (tmp_path / 'start' / name).write_text('{}')
    return tmp_path / 'start'


def test_circle_goes_from_labels_to_the_gate(
    tmp_path: Path,
    start: Path,
    questions: list[Row],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    commands, out = Commands(questions), tmp_path / 'out'
    monkeypatch.setattr(people, 'run_child', commands)
    given = ['--out', str(out), '--model', str(start), '--seeds', '2', '--steps', '3']
    assert main(given) == 1
    assert [words[0] for words in commands.words if words[0] != 'embodied-r'] == [
        *['training.rollouts'] * 2, *['training.improve', 'training.rollouts'] * 4,
        'training.promote',
    ]  # fmt: skip
    lines = capsys.readouterr().out.splitlines()[-4:]
    assert lines[0] == f'start       0.0% of {len(questions)}'
    assert [line[:18] for line in lines[1:]] == [
        'labels      +100.0%'[:18], 'shuffled    +0.0% '[:18], 'difference  +100.0%'[:18],
    ]  # fmt: skip
    gate = commands.words[-1]
    bags = gate[gate.index('--after-shadow') + 1]
    candidate = out / 'labels-0' / 'candidate-control'
    assert gate[1] == str(candidate)
    report = shadow_report(
        read_shadowed([Path(bags)]), model_digest(start), model_digest(candidate)
    )
    assert report['solved'] == len(questions)
    # The same command goes on where it was ended; another one is refused.
    monkeypatch.setattr(people, 'run_child', again := Commands(questions))
    assert main(given) == 1
    assert not again.words
    assert main([*given[:-1], '4']) == 2
    assert 'labels-0-improve of other settings' in capsys.readouterr().err
