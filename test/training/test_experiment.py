# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
import subprocess
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.episodes.episode import read_layout
from embodied_r_ros.questions.row import write_rows
import yaml

from test.questions.test_kinds import layout, SECOND_NS
from test.tiny_models import save_language_model
from test.training.test_sft import turning_row
from training import experiment
from training.experiments import models, recordings
from training.experiments.config import PolicyConfig, read_experiment, TrainingConfig
from training.experiments.figures import charts_of, log_of
from training.experiments.recordings import (
    once_a_second,
    pair_questions,
    questions_at,
    questions_at_end,
)

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row

ROOT = Path(__file__).resolve().parents[2]
NANO = str(shared_path('models', 'nano'))
SMALL = {'max_tokens': 24, 'cache': 'cache'}
ONE_MODEL = {'kind': 'models', 'models': {'nano': NANO}, 'rows': {'turns': 'rows.jsonl'}}


@pytest.fixture(scope='module')
def worlds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two short recordings of simulated rooms: 6 s, 30 images each."""
    pytest.importorskip('embodied_r_ros.sim.indoor.world')
    from embodied_r_ros.sim.indoor.episodes import generate
    from embodied_r_ros.sim.runs import IndoorConfig

    config = IndoorConfig(duration_s=6.0, rate_hz=5.0, width_px=160, height_px=120)
    folder = tmp_path_factory.mktemp('sim') / 'worlds'
    assert len(list(generate(config, 21, 2, folder))) == 2
    return folder


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(**values: Any) -> dict[str, Any]:
    """Run an experiment; its report."""
    settings = {**SMALL, 'out': 'out', **values}
    Path('some.yaml').write_text(yaml.safe_dump(settings, sort_keys=False))
    assert experiment.main(['--config', 'some.yaml']) == 0
    report: dict[str, Any] = json.loads(Path('out/report.json').read_text())
    return report


def state(folder: Path, step: int, accuracy: float) -> None:
    """The state of a GRPO run after so many steps."""
    folder.mkdir(parents=True, exist_ok=True)
    rewards = {'rewards/accuracy_reward/mean': accuracy}
    rewards['rewards/consistency_reward/mean'] = accuracy / 2
    history = [{'step': at, **rewards} for at in range(1, step + 1)]
    (folder / 'trainer_state.json').write_text(json.dumps({'log_history': history}))


def test_grid_of_models_rows_and_judges_with_curves(capsys: pytest.CaptureFixture[str]) -> None:
    save_language_model(Path('start'))
    state(Path('start/checkpoint-2'), 2, 0.4)
    write_rows(Path('rows.jsonl'), [turning_row(i, 'test') for i in range(4)])
    report = run(
        kind='models',
        title='Start & <nano>',
        models={'start': 'start', 'nano': NANO},
        rows={'turns': 'rows.jsonl'},
        judges={'nobody': 'none', 'folder': ['start']},
        max_tokens=160,
    )
    cells = {(cell['model'], cell['judge']): cell for cell in report['cells']}
    assert len(cells) == 4
    nano, start = cells['nano', 'folder'], cells['start', 'folder']
    assert nano['format'] > start['format'] == 0.0  # random weights answer nothing
    assert start['against_first'] is None
    assert nano['against_first']['difference'] == nano['accuracy'] - start['accuracy']
    assert nano['execution']['n'] > 0
    assert cells['nano', 'nobody']['consistency'] is None
    assert nano['consistency'] is not None
    assert report['curves']['accuracy'] == {'start': [[1, 2], [0.4, 0.4]]}
    page = Path('out/report.html').read_text()
    assert '<script' not in page
    assert '<h1>Start &amp; &lt;nano&gt;</h1>' in page
    assert page.count('<svg') == 3  # accuracy, types, curves
    assert 'turns' in capsys.readouterr().out


def counting_row(seed: int) -> Row:
    """A row that the shipped reasoner answers rightly."""
    first = {'stamp_ns': 0, 'action': '', 'change': 'No object stands out.', 'items': []}
    seen = 'New: red tall object 10° left 5° down 2.1 m.'
    second = {'stamp_ns': 10**9, 'action': 'turned left 30°', 'change': seen, 'items': []}
    return replace(
        turning_row(seed, 'test'),
        question_type='how_many',
        question='How many red objects have you seen?',
        options=('0', '1', '2', '3'),
        solution='B',
        deltas=(first, second),
    )


def test_seeds_of_a_recipe_are_told_as_one(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ('a', 'b'):
        save_language_model(Path(name))
    write_rows(Path('rows.jsonl'), [counting_row(i) for i in range(6)])
    report = run(
        kind='models',
        models={'start': 'a', 'rl-0': NANO, 'rl-1': 'b', 'control': 'b'},
        seeds={'control': ['control'], 'rl': ['rl-0', 'rl-1']},
        rows={'turns': 'rows.jsonl'},
        max_tokens=320,
    )
    right = {cell['model']: cell['accuracy'] for cell in report['cells']}
    control, rl = report['means']
    assert right['rl-0'] > right['rl-1'] == 0.0  # random weights answer nothing
    assert rl['accuracy'] == pytest.approx((right['rl-0'] + right['rl-1']) / 2)
    assert (rl['lowest'], rl['highest']) == (0.0, right['rl-0'])
    low, high = rl['interval_95']
    assert low <= rl['accuracy'] <= high
    assert rl['by_type']['how_many'] == {
        'n': 6,
        'accuracy': rl['accuracy'],
        'interval_95': [low, high],
    }
    assert rl['against_first']['difference'] == pytest.approx(rl['accuracy'])
    assert rl['before'] == 'control'
    assert rl['against_before']['difference'] == pytest.approx(rl['accuracy'])
    assert control['against_before'] is None
    assert 'mean of 2' in capsys.readouterr().out
    assert 'lowest to highest' in Path('out/report.html').read_text()


def test_blind_model_is_asked_without_what_was_seen() -> None:
    write_rows(Path('rows.jsonl'), [counting_row(i) for i in range(6)])
    report = run(
        kind='models',
        models={'nano': NANO, 'blind': str(NANO)},
        blind='blind',
        rows={'turns': 'rows.jsonl'},
        max_tokens=320,
    )
    nano, blind = report['cells']
    assert nano['accuracy'] > blind['accuracy'] == nano['question_only_accuracy']
    assert blind['against_first']['difference'] < 0  # of the same rows


@pytest.mark.parametrize(('name', 'value'), [('blind', ['nobody']), ('images', {'nobody': 'x'})])
def test_who_is_told_otherwise_has_to_be_one_of_the_models(
    name: str, value: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    values = {'kind': 'models', 'models': {'a': NANO}, 'rows': {'b': 'c'}, name: value}
    Path('some.yaml').write_text(yaml.safe_dump(values))
    assert experiment.main(['--config', 'some.yaml']) == 2
    assert f"{name} names 'nobody'" in capsys.readouterr().err


def test_each_temperature_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    write_rows(Path('rows.jsonl'), [turning_row(i, 'test') for i in range(3)])
    report = run(
        kind='models',
        models={'nano': NANO},
        rows={'turns': 'rows.jsonl'},
        temperatures=[0, 1.5],
        max_tokens=160,
    )
    assert [cell['rows'] for cell in report['cells']] == ['turns', 'turns, at 1.5']
    greedy, hot = (cell['words'] for cell in report['cells'])
    assert greedy != hot  # so hot, reasonings are not as long as they were
    assert 'turns, at 1.5' in capsys.readouterr().out


def test_missing_model_is_trained_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('PYTHONPATH', str(ROOT))
    write_rows(Path('rows.jsonl'), [turning_row(i, 'train') for i in range(8)])
    values = {
        'kind': 'models',
        'models': {'trained': 'trained'},
        'rows': {'turns': 'rows.jsonl'},
        'limit': 2,
        'train': [
            {
                'recipe': 'sft',
                'config': str(ROOT / 'training/configs/smoke-sft.yaml'),
                'output': 'trained',
                'settings': {'rows': ['rows.jsonl'], 'max_steps': 1},
            }
        ],
    }
    assert run(**values)['cells'][0]['n'] == 2
    weights = Path('trained/model.safetensors')
    before = weights.stat().st_mtime_ns
    run(**values)
    assert weights.stat().st_mtime_ns == before


WHOLE = ('config.json', 'model.safetensors', 'tokenizer.json')
SHARDS = ('config.json', 'model-00001-of-00002.safetensors', 'tokenizer.json')
ADAPTER = ('adapter_config.json', 'adapter_model.safetensors', 'tokenizer.json')


@pytest.mark.parametrize('files', [WHOLE, SHARDS, ADAPTER])
def test_model_that_was_cut_off_while_it_was_saved_is_trained_again(
    files: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []

    def ran(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command[command.index('--output_dir') + 1])
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(subprocess, 'run', ran)
    Path('run.yaml').touch()
    for left_out in (*files, ''):
        folder = Path(f'without {left_out}')
        folder.mkdir()
        for name in files:
            if name != left_out:
                (folder / name).touch()
        models.train(TrainingConfig(config='run.yaml', output=str(folder)))
    assert started == [f'without {name}' for name in files]


def test_missing_judge_is_said_before_anything_is_trained(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained: list[TrainingConfig] = []
    monkeypatch.setattr(models, 'train', trained.append)
    write_rows(Path('rows.jsonl'), [turning_row(0, 'test')])
    values = {
        'kind': 'models',
        'models': {'trained': 'trained'},
        'rows': {'turns': 'rows.jsonl'},
        'judges': {'own': 'nowhere'},
        'train': [{'recipe': 'grpo', 'config': 'grpo.yaml', 'output': 'trained'}],
    }
    Path('some.yaml').write_text(yaml.safe_dump(values))
    assert experiment.main(['--config', 'some.yaml']) == 2
    assert 'nowhere' in capsys.readouterr().err
    assert not trained


def test_perception_and_reasoning_lose_on_the_same_questions(
    worlds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {'kind': 'perception', 'worlds': str(worlds), 'moments': 1, 'model': NANO}
    report = run(**values)
    true, perceived = report['texts']['true'], report['texts']['classical']
    assert report['asked'] == report['pairs'] == true['model']['n'] == perceived['model']['n'] > 8
    assert (report['left_out'], report['at_another_moment']) == (
        {'true': {}, 'classical': {}}, 0,
    )  # fmt: skip
    assert true['reader']['accuracy'] > 0.9
    lost = report['losses']['classical']
    gap = true['reader']['accuracy'] - perceived['reader']['accuracy']
    assert lost['perception']['difference'] == pytest.approx(gap)
    gap = perceived['reader']['accuracy'] - perceived['model']['accuracy']
    assert lost['reasoning']['difference'] == pytest.approx(gap)
    assert 'perception' not in report['losses']['true']
    assert Path('out/report.html').read_text().count('<svg') == 2

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(recordings, '_perceived', refuse)  # all of it is in the cache
    assert run(**values) == report


def test_images_alone_tell_no_lengths(worlds: Path) -> None:
    report = run(kind='perception', worlds=str(worlds), moments=1, model=NANO, images_alone=True)
    read = {name: figures['reader']['accuracy'] for name, figures in report['texts'].items()}
    assert read['true'] > read['images alone']
    assert read['classical'] > read['images alone']
    assert {figures['model']['n'] for figures in report['texts'].values()} == {report['asked']}


def test_policies_look_at_their_frames_and_are_asked_the_same(worlds: Path) -> None:
    report = run(
        kind='keyframes',
        worlds=[str(worlds)],
        model=NANO,
        draws=1,
        policies={
            'uniform': {'choose': 'uniform', 'count': 5},
            'keyframes': {},
            'alone': {'in_pairs': False},
            'all': {'choose': 'every'},
        },
    )
    policies = report['policies']
    assert (report['episodes'], policies['uniform']['frames']) == (2, 5)
    assert policies['all']['frames'] == policies['all']['images'] == 30
    assert 2 < policies['keyframes']['frames'] == policies['alone']['frames'] < 30
    assert len({figures['n'] for figures in policies.values()}) == 1
    assert policies['uniform']['against_first']['difference'] == 0
    # Without the image before, nobody knows how the camera moved.
    read = {name: policies[name]['reader']['by_type'] for name in ('keyframes', 'alone')}
    assert read['keyframes']['height_change']['accuracy'] == 1.0
    assert 'all' in Path('out/report.html').read_text()


@pytest.mark.parametrize(
    ('values', 'problem'),
    [
        ({**ONE_MODEL, 'temperatures': []}, 'temperatures is []: expected one or more'),
        ({**ONE_MODEL, 'temperatures': [0, 3]}, 'temperatures is [0, 3]: expected one or more'),
        ({'kind': 'grid'}, "kind is 'grid': expected one of models, perception, keyframes"),
        ({'kind': 'models', 'modles': {}}, "did you mean 'models'"),
        ({'kind': 'models', 'models': {}, 'rows': {'a': 'b'}}, 'models has 0 entries'),
        ({'kind': 'models', 'models': ['a'], 'rows': {'a': 'b'}}, 'expected names with values'),
        ({'kind': 'models', 'models': {'a': 3}, 'rows': {'a': 'b'}}, 'models.a is 3'),
        ({'kind': 'models', 'models': {'a': 'x'}, 'rows': {'a': 'none.jsonl'}}, 'none.jsonl'),
        ({'kind': 'models', 'train': [{'config': 'a'}]}, "lacks 'output'"),
        ({'kind': 'perception'}, 'give either worlds, or rows'),
        ({'kind': 'perception', 'worlds': 'nowhere'}, 'nowhere does not exist'),
        ({'kind': 'keyframes', 'worlds': 'w'}, 'policies has 0 entries'),
        ({'kind': 'keyframes', 'policies': {'a': {'choose': 'some'}}}, "choose is 'some'"),
        ({'kind': 'keyframes', 'policies': {'a': None}}, 'policies.a is None'),
        ([], 'expected settings'),
    ],
)
def test_bad_config_is_one_clear_line(
    values: Any, problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path('bad.yaml').write_text(yaml.safe_dump(values))
    assert experiment.main(['--config', 'bad.yaml']) == 2
    error = capsys.readouterr().err
    assert problem in error
    assert error.count('\n') == 1
    assert not Path('runs/experiments').exists()


def test_config_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert experiment.main(['--config', 'none.yaml']) == 2
    assert 'none.yaml cannot be read as YAML' in capsys.readouterr().err


CONFIGS = sorted((ROOT / 'training/configs/experiments').glob('*.yaml'))


@pytest.mark.parametrize('path', CONFIGS, ids=lambda path: path.stem)
def test_shipped_experiment_is_readable(path: Path) -> None:
    assert read_experiment(path).out == f'runs/experiments/{path.stem}'


def test_rows_pair_by_what_they_ask() -> None:
    rows = questions_at(layout(), [i * SECOND_NS for i in (1, 2, 3, 4)], 1, 0)
    assert len(rows) > 4
    other = [replace(row, deltas=()) for row in rows[1:]]
    other[0] = replace(other[0], solution='unknown')
    found = pair_questions({'first': rows, 'second': other})
    assert [row.id for row in found.rows['second']] == [row.id for row in rows[2:]]
    assert found.left_out == {
        'first': {'not asked in every text': 1, 'has another solution elsewhere': 1},
        'second': {'has another solution elsewhere': 1},
    }
    assert found.other_moment == len(rows) - 2
    with pytest.raises(InputError, match='no question is in all of a, b'):
        pair_questions({'a': rows[:1], 'b': rows[1:]})


def test_questions_at_the_end_do_not_depend_on_the_images_looked_at(worlds: Path) -> None:
    truth = read_layout(worlds / 'episode_00000')
    assert truth
    rows = questions_at_end(truth, 3, 5)
    assert len({(row.question_type, row.question) for row in rows}) == len(rows) > 8
    assert {row.deltas[-1]['stamp_ns'] for row in rows} == {truth.images[-1].stamp_ns}
    assert questions_at_end(truth, 3, 5) == rows


def test_images_are_chosen_evenly_and_end_with_the_last() -> None:
    assert recordings.evenly(3, 5) == [0, 1, 2]
    assert recordings.evenly(11, 3) == [0, 5, 10]
    assert len(set(recordings.evenly(33, 32))) == 32
    stamps = [i * SECOND_NS // 10 for i in range(26)]
    assert once_a_second(stamps) == [stamps[i] for i in (0, 10, 20, 25)]


def test_images_at_a_rate(worlds: Path) -> None:
    from embodied_r_ros.bags.sources import open_source

    with open_source(worlds / 'episode_00000') as source:
        images = list(source)
    assert recordings.at_most(images, 1.0) == [0, 5, 10, 15, 20, 25, 29]
    kept = recordings.choose_keyframes(images, PolicyConfig(max_overlap=0.9))
    assert len(kept) > len(recordings.choose_keyframes(images, PolicyConfig(max_overlap=0.3)))
    assert kept[-1].stamp_ns == images[-1].stamp_ns


def test_newest_state_of_a_run_is_read() -> None:
    for step in (9, 10):
        state(Path(f'run/checkpoint-{step}'), step, 0.5)
    assert len(log_of(Path('run'))) == 10
    charts = charts_of({'run': 'run', 'no log': 'empty', 'server': 'http://127.0.0.1:9'})
    assert list(charts) == ['accuracy', 'consistency', 'consistency of the right answers']
    assert charts['consistency of the right answers']['run'][1][0] == 0.5
    Path('run/checkpoint-10/trainer_state.json').write_text('{')
    with pytest.raises(InputError, match='checkpoint-10'):
        log_of(Path('run'))
