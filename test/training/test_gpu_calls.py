# SPDX-License-Identifier: Apache-2.0
"""Training on calls with a tiny random model: what a run leaves, and what is learned from what."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from random import Random

from embodied_r_ros.reasoning.calls import format_calls, parse_calls
import pytest
import torch

from training.adapter_learner import chunks_of, Learner, Steps, TrainingPlan
from training.data.call_rows import is_same, outcome_of, read_call_rows, read_scenes, scene_of
from training.data.calls import write_calls
from training.gpu_calls import _learn, _lessons, main, reward_of


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows, a tiny model with random weights, and a tokenizer of bytes."""
    from tokenizers import decoders, models, pre_tokenizers, Tokenizer
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp('gpu_calls')
    write_calls(folder / 'rows', 60, 16, 5)
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {'<pad>': 0, '<unk>': 1, '<end>': 2}
    vocabulary.update({letter: index + 3 for index, letter in enumerate(letters)})
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token='<unk>'))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / 'tokenizer.json'))
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        eos_token_id=2,
    )
    LlamaForCausalLM(config).save_pretrained(folder / 'base')
    return folder


@pytest.fixture
def learner(folder: Path) -> Learner:
    return Learner(folder / 'base', folder / 'tokenizer.json', TrainingPlan.scaled(0.01), 0)


@pytest.mark.slow
def test_labels_are_executable_and_scenes_are_held_out(folder: Path) -> None:
    scenes = read_scenes(folder / 'rows')
    rows = [row for split in ('train', 'test') for row in read_call_rows(folder / 'rows', split)]
    assert len(rows) == 76
    for row in rows:
        calls = parse_calls(row.call, row.labels)
        assert calls is not None
        assert format_calls(calls) == row.call
        outcome = outcome_of(row.question, row.options, scene_of(scenes[row.scene]), calls)
        assert is_same(outcome, row.outcome)
    of_split = {
        split: {row.scene for row in rows if row.split == split} for split in ('train', 'test')
    }
    assert not of_split['train'] & of_split['test']


@pytest.mark.slow
def test_sampling_is_what_the_merged_model_says(learner: Learner) -> None:
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.normal_(0, 0.1)
    learner.merge()
    prompts = [learner.ids(text) for text in ('Call:', 'a much longer prompt', 'x')]
    completions = learner.sample(prompts, 0.0)
    for prompt, completion in zip(prompts, completions, strict=True):
        ids = list(prompt)
        for token in completion:
            logits = learner.peft(torch.tensor([ids])).logits[0, -1]
            assert int(logits.argmax()) == token
            ids.append(token)


@pytest.mark.slow
@pytest.mark.parametrize('method', ['grpo', 'control'])
def test_what_is_rewarded_becomes_more_likely(learner: Learner, method: str) -> None:
    prompts = [learner.ids('Call:')] * 4
    completions = [[*learner.ids(text), learner.end] for text in (' a()', ' b()', ' b()', ' c()')]
    verdicts = ['right', 'wrong', 'unknown', 'malformed']
    rewards = torch.tensor([[reward_of(verdict) for verdict in verdicts]])
    lessons, weights = _lessons(rewards, verdicts, method, Random(0))
    assert len(lessons) == 4
    pairs = list(zip(prompts, completions, strict=True))

    def likely(index: int) -> float:
        with torch.no_grad():
            return float(learner.log_probabilities([pairs[index]])[0].sum())

    before = [likely(index) for index in range(4)]
    steps = Steps(learner, 1e-2, 4, falls=False)
    for _ in range(4):
        _learn(learner, steps, [pairs[k] for k in lessons], weights, method)
    assert likely(0) - before[0] > likely(3) - before[3]


def test_unanimous_groups_teach_nothing() -> None:
    rewards = torch.tensor([[1.1, 1.1], [1.1, 0.0]])
    lessons, _ = _lessons(rewards, ['right', 'right', 'right', 'malformed'], 'grpo', Random(0))
    assert sorted(lessons) == [2, 3]


def test_chunks_hold_no_more_tokens_than_fit() -> None:
    pairs = [([0] * n, [0]) for n in (3, 9, 2, 2, 30)]
    chunks = chunks_of(pairs, 20)
    assert [len(chunk) for chunk in chunks] == [2, 2, 1]
    assert [pair for chunk in chunks for pair in chunk] == pairs


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_leaves_adapters_figures_and_answers(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / 'out'
    arguments = ['--model', folder / 'base', '--tokenizer', folder / 'tokenizer.json', '--rows',
                 folder / 'rows', '--out', out, '--work', tmp_path / 'work', '--scale', 0.01,
                 '--limit', 400]  # fmt: skip
    assert main([str(each) for each in arguments]) == 0
    names = {path.name for path in out.iterdir()}
    adapters = {'start.safetensors', 'grpo-1.safetensors', 'control-1.safetensors'}
    assert names == {*adapters, 'figures.json', 'answers.json.gz'}
    figures = json.loads((out / 'figures.json').read_text())
    for name in ('start', 'grpo-1', 'control-1'):
        shares = [
            figures[name][key]['share'] for key in ('right', 'unknown', 'wrong', 'malformed')
        ]
        assert sum(shares) == pytest.approx(1)
    assert figures['grpo-1']['steps'] >= figures['control-1']['steps'] > 0
    with gzip.open(out / 'answers.json.gz', 'rt') as file:
        answers = json.load(file)
    assert {len(own) for own in answers.values()} == {figures['test_rows']}
    assert Path(tmp_path / 'work' / 'start' / 'adapter_config.json').exists()
