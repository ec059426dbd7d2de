# SPDX-License-Identifier: Apache-2.0
"""One command from recordings to a reasoner that serves: its steps, and one real run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('peft')

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.main import main as embodied_r
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.episodes.labels import labels_path
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import write_rows
from embodied_r_ros.questions.splits import split_of

from test.training.test_evaluate import ROWS
from training import improve
from training.improve import Improvement
from training.run import command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.questions.row import Row

ROOT = Path(__file__).resolve().parents[2]
ARM = str(ROOT / 'models' / 'arm')
SPLITS = ('train', 'validation', 'test')


class Steps:
    """Stands in for the commands: notes them, and leaves what each would leave."""

    def __init__(self, right: dict[str, float], gate: int = 0) -> None:
        self.right, self.gate, self.words = right, gate, list[list[str]]()

    def __call__(self, _: Any, *words: object, well: Sequence[int] = (0,)) -> int:
        texts = [str(word) for word in words]
        self.words.append(texts)
        if texts[0] == 'embodied-r':
            rows = [replace(ROWS[0], split=split, scene_id=split) for split in SPLITS]
            write_rows(Path(texts[texts.index('--out') + 1]), rows)
        if '--output_dir' in texts:
            folder = Path(texts[texts.index('--output_dir') + 1])
            folder.mkdir(exist_ok=True)
            for name in ('config.json', 'model.safetensors', 'tokenizer.json'):
                (folder / name).write_text('{}')
        if texts[0] == 'training.evaluate':
            accuracy = self.right.get(Path(texts[texts.index('--model') + 1]).name, 0.5)
            Path(texts[texts.index('--json') + 1]).write_text(json.dumps({'accuracy': accuracy}))
        return self.gate if texts[0] == 'training.promote' else 0


def recording(tmp_path: Path, name: str) -> None:
    """A file in place of a recording, which the stand-in above does not read."""
    (tmp_path / 'bags').mkdir(exist_ok=True)
    (tmp_path / 'bags' / f'{name}.mcap').write_text(name)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps, *more: str) -> int:
    monkeypatch.setattr(Improvement, 'step', lambda *words, **well: steps(*words, **well))
    recording(tmp_path, 'first')
    given = [str(tmp_path / 'bags'), '--out', str(tmp_path / 'out'), '--slot', str(tmp_path / 's')]
    return improve.main([*given, '--model', ARM, *more])


@pytest.mark.parametrize(('better', 'worse'), [('grpo', 'control'), ('control', 'grpo')])
def test_the_better_candidate_of_validation_goes_to_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, better: str, worse: str
) -> None:
    steps = Steps({better: 0.6, worse: 0.4})
    assert run(tmp_path, monkeypatch, steps) == 0
    assert [words[0] for words in steps.words] == [
        'embodied-r', 'training.rollouts', 'training.grpo', 'training.sft', 'training.evaluate',
        'training.evaluate', 'training.release', 'training.evaluate', 'training.evaluate',
        'training.compare', 'training.promote',
    ]  # fmt: skip
    splits = [words[words.index('--split') + 1] for words in steps.words if '--split' in words]
    assert splits == ['validation', 'validation', 'test', 'test']
    released = steps.words[6]
    assert Path(released[1]).name == better
    assert steps.words[-1][1] == released[2]


def test_what_is_there_is_not_made_again_and_a_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, monkeypatch, Steps({}), '--no-promote') == 0
    again = Steps({}, gate=1)
    assert run(tmp_path, monkeypatch, again) == 1
    names = [words[0] for words in again.words]
    assert not {'embodied-r', 'training.grpo', 'training.sft'} & set(names)
    assert names[-1] == 'training.promote'


@pytest.mark.parametrize(
    ('more', 'told'),
    [
        (['--steps', '3'], 'steps 40, not 3'),
        (['--deltas', 'true'], "deltas None, not 'true'"),
        ([], "recordings '1 bags, sha256:"),
    ],
)
def test_what_is_there_of_something_else_is_not_gone_on_with(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    told: str,
) -> None:
    assert run(tmp_path, monkeypatch, Steps({}, gate=1)) == 1
    if not more:  # refused once, so more is recorded
        recording(tmp_path, 'second')
    again = Steps({})
    assert run(tmp_path, monkeypatch, again, *more) == 2
    assert told in capsys.readouterr().err
    assert not again.words


def test_new_labels_are_not_gone_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, Steps({}, gate=1)) == 1
    (bag,) = find_bags([tmp_path / 'bags'])
    labels_path(bag).write_text('{}\n')
    again = Steps({})
    assert run(tmp_path, monkeypatch, again) == 2
    assert ', labels sha256:' in capsys.readouterr().err
    assert not again.words


def test_steps_may_be_forks_that_share_what_was_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, '_SLOW_TO_IMPORT', ())
    given = [str(tmp_path), '--out', str(tmp_path / 'out'), '--slot', str(tmp_path / 's')]
    args = improve._parser().parse_args(
        [*given, '--fork', '--cache', str(tmp_path / 'said'), '--model', ARM]
    )
    improvement = Improvement(args)
    assert improvement.cache == ('--cache', (tmp_path / 'said').resolve())
    (tmp_path / 'good.json').write_text('{"a": 1}')
    assert improvement.step('json.tool', '--compact', tmp_path / 'good.json') == 0
    assert capfd.readouterr().out == '{"a":1}\n'
    (tmp_path / 'bad.json').write_text('{')
    with pytest.raises(EmbodiedRError, match=r'json.tool ended with code 1'):
        improvement.step('json.tool', tmp_path / 'bad.json')


def test_what_was_not_saved_wholly_is_trained_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, monkeypatch, Steps({}), '--no-promote') == 0
    (tmp_path / 'out' / 'control' / 'tokenizer.json').unlink()  # as if it had been ended before
    again = Steps({})
    assert run(tmp_path, monkeypatch, again, '--no-promote') == 0
    names = [words[0] for words in again.words]
    assert 'training.sft' in names
    assert 'training.grpo' not in names


def test_recordings_of_too_few_places_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'out').mkdir()
    write_rows(tmp_path / 'out' / 'rows.jsonl', [replace(ROWS[0], split='train')])
    steps = Steps({})
    assert run(tmp_path, monkeypatch, steps) == 2
    assert "no rows of split 'validation'" in capsys.readouterr().err
    assert not steps.words


def test_four_places_are_enough() -> None:
    rows = [replace(ROWS[0], split='train', scene_id=f'place {i}') for i in range(4)]
    filled = improve.fill_splits(rows)
    assert sorted(row.split for row in filled) == ['test', 'train', 'train', 'validation']
    assert improve.fill_splits(filled) == filled
    assert {row.split for row in improve.fill_splits(rows[:2])} == {'train'}


def places(*splits: str) -> list[Row]:
    """A row of each of some places, drawn for these splits."""
    return [
        replace(ROWS[0], split=split, scene_id=f'place {number}')
        for number, split in enumerate(splits)
    ]


@pytest.mark.parametrize('count', [4, 5, 6])
def test_each_split_gets_a_place_and_training_two_whatever_was_drawn(count: int) -> None:
    for splits in product(SPLITS, repeat=count):
        rows = places(*splits)
        filled = improve.fill_splits(rows)
        counts = Counter(row.split for row in filled)
        assert min(counts[split] for split in SPLITS) >= 1, splits
        assert counts['train'] >= 2, splits
        assert [row.scene_id for row in filled] == [row.scene_id for row in rows]
        assert improve.fill_splits(rows[::-1]) == filled[::-1]
        assert improve.fill_splits(filled) == filled


def test_four_places_are_enough_by_any_seed() -> None:
    are_short = 0
    for seed in range(300):
        config = QuestionsConfig(seed=seed, test_share=0.2)
        rows = places(*(split_of(f'place {number}', config) for number in range(4)))
        counts = Counter(row.split for row in rows)
        are_short += counts['train'] < 3 and not all(counts[split] for split in SPLITS)
        assert {row.split for row in improve.fill_splits(rows)} == set(SPLITS)
    assert are_short > 20  # of which training can give none


def test_the_fullest_split_gives() -> None:
    rows = places('train', 'train', 'train', 'test', 'test', 'test', 'test')
    filled = improve.fill_splits(rows)
    assert Counter(row.split for row in filled) == {'train': 3, 'test': 3, 'validation': 1}


def test_held_out_wordings_do_not_come_to_training_with_their_place() -> None:
    rows = [
        replace(row, meta={'held_out_wording': is_held_out})
        for row in places(*['test'] * 5)
        for is_held_out in (False, True)
    ]
    rows = [row for row in rows if row.scene_id != 'place 0' or row.meta['held_out_wording']]
    filled = improve.fill_splits(rows)
    scenes = dict({(row.scene_id, row.split) for row in filled})
    assert Counter(scenes.values()) == {'train': 2, 'test': 2, 'validation': 1}
    assert scenes['place 0'] != 'train'  # nothing would be left of it
    assert not any(row.meta['held_out_wording'] for row in filled if row.split == 'train')
    assert any(row.meta['held_out_wording'] for row in filled)


def test_a_place_keeps_the_split_that_it_was_drawn_for() -> None:
    drawn = ('test', 'test', 'train', 'train', 'train')
    rows = [
        replace(ROWS[0], split=split, scene_id=f'place {i}')
        for i, split in enumerate(drawn)
        for _ in range(2)
    ]
    filled = improve.fill_splits(rows)
    assert [row.split for row in filled[:4]] == ['test'] * 4
    scenes = {(row.scene_id, row.split) for row in filled}
    assert sorted(split for _, split in scenes) == ['test', 'test', 'train', 'train', 'validation']


def test_a_command_that_fails_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(tmp_path / 'none'), '--out', str(tmp_path / 'out')]
    assert improve.main([*given, '--slot', str(tmp_path / 'slot'), '--model', ARM]) == 2
    assert 'none does not exist' in capsys.readouterr().err
    recording(tmp_path, 'first')  # which is none
    given[0] = str(tmp_path / 'bags')
    assert improve.main([*given, '--slot', str(tmp_path / 'slot'), '--model', ARM]) == 1
    assert 'embodied-r ended with code ' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)  # ten programs, each of which loads torch
def test_recordings_become_a_candidate_that_the_gate_has_examined(tmp_path: Path) -> None:
    rooms = ['--episodes', '10', '--seed', '60223', '--no-images']
    assert embodied_r(['sim', 'indoor', *rooms, '--out', str(tmp_path / 'rooms')]) == 0
    given = [str(tmp_path / 'rooms'), '--out', str(tmp_path / 'out')]
    given += ['--slot', str(tmp_path / 'slot'), '--deltas', 'true', '--moments', '1']
    # The rate of the first step is 0, so one alone would give back the model that serves.
    given += ['--limit', '16', '--steps', '2', '--latency-rows', '0']
    code = improve.main([*given, '--model', ARM])
    (told,) = [*tmp_path.glob('slot/manifest.json'), *tmp_path.glob('slot/refusals/*.json')]
    assert (code == 0) is (told.name == 'manifest.json')
    assert json.loads(told.read_text())['rows']['split'] == 'test'
    assert json.loads((tmp_path / 'out' / 'comparison.json').read_text())['n'] > 0
