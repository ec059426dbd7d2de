# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path
import shutil
from typing import Any

import pytest

pytest.importorskip('torch')
pytest.importorskip('peft')

from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.questions.row import write_rows
from embodied_r_ros.serving.promotion import history

from test.tiny_models import save_language_model
from test.training.test_compare import report
from test.training.test_evaluate import ROWS
from training import promote
from training.promote import Latency


@pytest.fixture(scope='module')
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('weights')
    save_language_model(folder)
    return folder


@pytest.fixture
def words(tmp_path: Path, weights: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Arguments of a promotion; how good a model is stands in the name of its folder."""
    write_rows(tmp_path / 'rows.jsonl', ROWS)
    for name in ('weak', 'strong'):
        (tmp_path / name).mkdir()
        (tmp_path / name / 'model.safetensors').write_text(name)
        (tmp_path / name / 'config.json').write_text('{}')

    def evaluate(model: str, rows: Any, *_: Any) -> dict[str, Any]:
        del rows
        good = 'strong' in model
        found = report(model, [good or i % 2 == 0 for i in range(100)])
        return {**found, 'consistency': None}

    def measure(models: tuple[str, str], *_: Any) -> tuple[Latency, Latency]:
        return Latency(1.0, 2.0, 3), Latency(1.0, 2.0, 3)

    monkeypatch.setattr(promote, 'evaluate', evaluate)
    monkeypatch.setattr(promote, 'measure', measure)
    fixed = ['--rows', tmp_path / 'rows.jsonl', '--slot', tmp_path / 'slot', '--cache', 'none']
    fixed += ['--profile', 'embedded-arm']
    return [str(tmp_path / 'strong'), *map(str, fixed), '--against', str(tmp_path / 'weak')]


def manifest(tmp_path: Path) -> Any:
    return json.loads((tmp_path / 'slot' / 'manifest.json').read_text())


def test_candidate_that_passes_is_signed_off_and_taken_back(
    words: list[str], tmp_path: Path
) -> None:
    signed = ['--judge', 'none', '--by', 'ann']
    assert promote.main([*words, *signed]) == 0
    record = manifest(tmp_path)
    assert (bool(record['date']), record['signed_off_by']) == (True, 'ann')
    assert record['digest'] == model_digest(tmp_path / 'strong')
    assert record['comparison']['first']['model'] == str(tmp_path / 'weak')
    assert len(record['rows']['sha256']) == 64
    assert all(check['passed'] for check in record['checks'])
    back = ['--rollback', '--slot', str(tmp_path / 'slot')]
    assert promote.main([*back, '--by', 'bob', '--why', 'it turns in circles']) == 0
    assert manifest(tmp_path)['number'] == 0
    assert promote.main(back) == 2
    events = [(e['action'], e['number'], e['by'], e['why']) for e in history(tmp_path / 'slot')]
    assert events == [('promote', 1, 'ann', ''), ('rollback', 0, 'bob', 'it turns in circles')]
    assert all(e['date'] for e in history(tmp_path / 'slot'))


def test_who_promotes_signs_where_nobody_is_named(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('getpass.getuser', lambda: 'eve')
    assert promote.main([*words, '--judge', 'none']) == 0
    assert manifest(tmp_path)['signed_off_by'] == 'eve'

    def nameless() -> str:
        msg = 'uid 4711 has no entry'
        raise KeyError(msg)

    monkeypatch.setattr('getpass.getuser', nameless)
    assert promote.main(['--rollback', '--slot', str(tmp_path / 'slot')]) == 0
    assert promote.main([*words, '--judge', 'none']) == 0
    assert manifest(tmp_path)['signed_off_by'] == f'uid {os.getuid()}'


def test_candidate_that_is_refused_leaves_its_figures(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert promote.main([*words, '--min-gain', '0.9']) == 1
    out, err = capsys.readouterr()
    assert 'REFUSED  gain' in out
    assert not (tmp_path / 'slot' / 'manifest.json').exists()
    path = Path(err.split('refused: ')[1].strip())
    refusal = json.loads(path.read_text())
    assert refusal['digest'] == model_digest(tmp_path / 'strong')
    assert refusal['comparison']['difference'] == 0.5


def test_incumbent_is_what_serves(words: list[str], tmp_path: Path) -> None:
    words = [*words[:-2], '--judge', 'none']
    weak = [str(tmp_path / 'weak'), *words[1:], '--against', str(tmp_path / 'strong')]
    assert promote.main([*weak, '--min-gain', '-1']) == 0
    assert promote.main(words) == 0
    incumbent = Path(manifest(tmp_path)['comparison']['first']['model'])
    assert model_digest(incumbent) == model_digest(tmp_path / 'weak')
    assert manifest(tmp_path)['previous'] == 1


def test_gate_asks_as_the_nodes_of_the_profile_and_against_its_own_model(
    words: list[str], tmp_path: Path
) -> None:
    judged = ['--judge', 'none']
    assert promote.main([*words[:-2], '--profile', 'embedded-arm', *judged]) in {0, 1}
    record = manifest(tmp_path)
    assert Path(record['comparison']['first']['model']).parts[-2:] == ('models', 'arm')
    assert (record['token_budget'], record['max_tokens']) == (200, 320)
    assert promote.main(['--rollback', '--slot', str(tmp_path / 'slot')]) == 0
    assert promote.main([*words, *judged, '--token-budget', '700']) == 0
    assert manifest(tmp_path)['token_budget'] == 700


def test_slot_is_that_of_the_profile(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path / 'data'))
    at = words.index('--slot')
    words = [*words[:at], *words[at + 2 :], '--judge', 'none', '--profile', 'embedded-arm']
    assert promote.main(words) == 0
    slot = tmp_path / 'data' / 'embodied_r_ros' / 'promoted' / 'embedded-arm'
    assert (slot / 'manifest.json').exists()
    # As training.improve hands it on to a command that runs elsewhere.
    assert promote.slot_of('embedded', './slot') == Path.cwd() / 'slot'


@pytest.mark.parametrize(
    ('changes', 'message'),
    [
        (['--profile', 'gpu-24gb', '--against', ''], 'is no folder here: name one that is'),
        (['--profile', 'nowhere'], 'nowhere'),
        (['--profile', 'embedded'], 'takes adapters in GGUF, and'),
        (['--slot', 's3://bucket/slot'], 'is a URL: expected a name, or the path'),
        (['--against', 'STRONG'], 'is the incumbent itself'),
        (['--split', 'validation'], "has no rows of split 'validation'"),
        (['--against', '/nowhere'], '/nowhere is neither a URL nor a folder'),
    ],
)
def test_bad_input_is_one_line(
    words: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    changes: list[str],
    message: str,
) -> None:
    changes = [change.replace('STRONG', str(tmp_path / 'strong')) for change in changes]
    assert promote.main([*words, *changes]) == 2
    said = capsys.readouterr().err.splitlines()
    assert said[-1].startswith('training.promote: error: ')
    assert message in said[-1]


def save_adapter(weights: Path, adapter: Path) -> None:
    """Save a LoRA adapter of random weights for a model."""
    import peft
    import torch
    from transformers import AutoModelForCausalLM

    torch.manual_seed(1)
    model = AutoModelForCausalLM.from_pretrained(weights)
    config = peft.LoraConfig(r=4, target_modules='all-linear', init_lora_weights=False)
    peft.get_peft_model(model, config).save_pretrained(adapter)


def test_adapter_in_force_is_timed_merged_and_then_replaced(
    words: list[str], weights: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Path] = []

    def measure(models: tuple[str, str], *_: Any) -> tuple[Latency, Latency]:
        timed.extend(map(Path, models))
        assert all((folder / 'config.json').exists() for folder in timed)  # as servers want it
        return Latency(1.0, 2.0, 3), Latency(1.0, 2.0, 3)

    monkeypatch.setattr(promote, 'measure', measure)
    save_adapter(weights, tmp_path / 'lora')
    untimed = ['--as-adapter', '--latency-rows', '0', '--judge', 'none', '--min-gain', '-1']
    assert promote.main([str(tmp_path / 'lora'), *words[1:], *untimed]) == 0
    assert not timed
    adapter = manifest(tmp_path)['digest']
    assert promote.main([*words[:-2], '--judge', 'none']) == 0
    assert timed[1] == tmp_path / 'strong'
    record = manifest(tmp_path)
    assert (record['digest'], record['previous']) == (model_digest(tmp_path / 'strong'), 1)
    # What was asked, and what the manifest names, is the adapter itself.
    assert model_digest(Path(record['comparison']['first']['model'])) == adapter


def test_adapter_is_merged_into_a_whole_model(weights: Path, tmp_path: Path) -> None:
    from training.eval.generation import generate, model_identity
    from training.run.models import merge_adapter

    adapter = tmp_path / 'adapter'
    save_adapter(weights, adapter)
    prompts = [row.prompt(MemoryConfig()) for row in ROWS[:2]]
    greedy = Sampling(max_tokens=12)
    whole = merge_adapter(adapter, tmp_path / 'whole')
    plain, merge = (generate(str(folder), prompts, greedy) for folder in (weights, whole))
    assert plain != merge
    for name in ('tokenizer.json', 'tokenizer_config.json', 'chat_template.jinja'):
        (adapter / name).write_bytes((weights / name).read_bytes())
    assert generate(str(adapter), prompts, greedy) == merge
    assert model_identity(str(adapter)) == model_digest(weights, adapter)


@pytest.mark.parametrize('kind', ['float32', 'bfloat16'])
def test_merged_model_is_as_precise_as_the_one_below(
    weights: Path, tmp_path: Path, kind: str
) -> None:
    from safetensors.torch import load_file
    import torch
    from transformers import AutoModelForCausalLM

    from training.run.models import merge_adapter

    base, dtype = tmp_path / 'base', getattr(torch, kind)
    shutil.copytree(weights, base)
    AutoModelForCausalLM.from_pretrained(base, dtype=dtype).save_pretrained(base)
    save_adapter(base, tmp_path / 'adapter')
    whole = load_file(
        merge_adapter(tmp_path / 'adapter', tmp_path / 'whole') / 'model.safetensors'
    )
    assert {tensor.dtype for tensor in whole.values()} == {dtype}
    plain = load_file(base / 'model.safetensors')
    assert any(not torch.equal(plain[name], whole[name]) for name in plain)
