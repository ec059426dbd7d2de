# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
import json
import os
from pathlib import Path
import shutil
import subprocess
import threading
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.data.questions.row import write_rows
from embodied_r_ros.serving.profiles import profile_from_mapping
from embodied_r_ros.serving.servers import ModelServers, RUNTIME_UPDATES
from safetensors.torch import save_file
import torch
from trl import GRPOConfig
from trl.generation import vllm_client

from test.tiny_models import save_language_model
from test.training.arm_rows import arm_rows
from test.training.commands import run_training
from test.training.test_sft import turning_row

if TYPE_CHECKING:
    from collections.abc import Sequence

from training import grpo
from training.data.batches import grouped_by_length
from training.data.grpo import (
    GrpoArguments,
    training_prompts,
    validation_prompts,
)
from training.data.sft import examples, SftArguments
from training.grpo import equal_groups, parse_stages, Stage, stage_at, trainer_of
from training.run.manifest import newest_checkpoint
from training.run.models import load_tokenizer
from training.run.rewards import format_reward

ROOT = Path(__file__).resolve().parents[2]


# What a recipe for GPUs is run with here, for one step.
ON_A_CPU = (
    '--use_cpu', 'true', '--bf16', 'false', '--use_vllm', 'false', '--model_init_kwargs', '{}',
    '--max_steps', '1', '--report_to', 'none',
    '--per_device_train_batch_size', '4', '--gradient_accumulation_steps', '2',
    '--num_generations', '4', '--max_completion_length', '8', '--threads', '1',
    '--eval_strategy', 'no', '--log_completions', 'false',
)  # fmt: skip


def run_grpo(
    folder: Path, *more: str, config: str = 'smoke', processes: int = 1
) -> subprocess.CompletedProcess[str]:
    words = ['--config', f'training/configs/{config}.yaml', '--model', 'models/arm']
    words += ['--rows', str(folder / 'rows.jsonl'), '--output_dir', str(folder / 'out'), *more]
    words += ['--ddp_backend', 'gloo'] if processes > 1 else []
    return run_training('grpo', words, processes)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [row for row in arm_rows() if row.question_type in ('waypoint', 'movement')]
    write_rows(tmp_path / 'rows.jsonl', [replace(row, split='train') for row in rows])
    return tmp_path


def test_smoke_recipe_trains_through_its_stages_and_saves(folder: Path) -> None:
    done = run_grpo(folder)
    assert done.returncode == 0, done.stderr[-3000:]
    assert (
        'step 0: stage 1 of 2, format : accuracy : consistency = 0.70 : 0.30 : 0.00' in done.stderr
    )
    assert (
        'step 1: stage 2 of 2, format : accuracy : consistency = 0.30 : 0.70 : 0.00' in done.stderr
    )
    assert (folder / 'out' / 'model.safetensors').exists()
    history = json.loads((folder / 'out' / 'checkpoint-2' / 'trainer_state.json').read_text())
    steps = history['log_history'][:2]
    assert all('zero_variance_share' in log for log in steps)
    assert all(log['grad_norm'] > 0 for log in steps)


def test_stages_follow_each_other_in_proportion() -> None:
    stages = parse_stages(['2 x 7:3:0', '2 x 3:7:0', '8 x 1:7:2'])
    assert stages[2] == Stage(8.0, (0.1, 0.7, 0.2))
    assert [stage_at(stages, step, 12) for step in range(13)] == [0, 0, 1, 1, *[2] * 9]
    assert [stage_at(stages, step, 6) for step in range(6)] == [0, 1, 2, 2, 2, 2]


@pytest.mark.parametrize(
    'text', ['1..2 x 1:1:1', '7:3:0', '0 x 1:1:1', '2 x 0:0:0', '2 x 1:2', 'two x 1:2:3']
)
def test_bad_stage_is_named(text: str) -> None:
    with pytest.raises(InputError, match='epochs x format:accuracy:consistency'):
        parse_stages([text])


def test_half_written_checkpoint_is_not_resumed(tmp_path: Path) -> None:
    assert newest_checkpoint(str(tmp_path)) is None
    for step in (9, 10, 11):
        (tmp_path / f'checkpoint-{step}').mkdir()
    for step in (9, 10):
        (tmp_path / f'checkpoint-{step}' / 'trainer_state.json').write_text('{}')
    assert newest_checkpoint(str(tmp_path)) == str(tmp_path / 'checkpoint-10')
    assert not (tmp_path / 'checkpoint-11').exists()
    weights = tmp_path / 'checkpoint-10' / 'model.safetensors'
    save_file({'w': torch.zeros(64)}, weights)
    assert newest_checkpoint(str(tmp_path)) == str(tmp_path / 'checkpoint-10')
    weights.write_bytes(weights.read_bytes()[:-8])  # the machine ended before it was on the disk
    assert newest_checkpoint(str(tmp_path)) == str(tmp_path / 'checkpoint-9')


def test_groups_are_of_zero_variance_where_the_rewards_that_count_are_equal() -> None:
    rewards = torch.tensor([[1.0, 0.1], [1.0, 0.1], [1.0, 0.1], [1.0, 0.2]])
    assert equal_groups(rewards, torch.tensor([0.7, 0.3]), 2).tolist() == [True, False]
    assert equal_groups(rewards, torch.tensor([1.0, 0.0]), 2).tolist() == [True, True]


def test_groups_of_zero_variance_are_left_out_of_the_loss_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each completion of one question is right, so that its group has nothing to learn by."""
    rows = [turning_row(i, 'train') for i in range(16)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    held = {}
    for drops in (True, False):
        arguments = GrpoArguments(
            [str(tmp_path / 'rows.jsonl')], str(shared_path('models', 'arm')), ['none'],
            ['1 x 1:1:0'], drop_zero_variance=drops, threads=1,
        )  # fmt: skip
        config = GRPOConfig(
            str(tmp_path / str(drops)), use_cpu=True, bf16=False, report_to='none', max_steps=1,
            per_device_train_batch_size=8, num_generations=4, max_completion_length=8,
            gradient_checkpointing=False, save_strategy='no', eval_strategy='steps',
        )  # fmt: skip

        def first_is_easy(completions: Any, **_: Any) -> list[float]:
            return [1.0 if i < 4 else i % 2 for i in range(len(completions))]

        trainer = trainer_of(arguments, config, [format_reward, first_is_easy])
        trainer.model.train()
        batch = trainer._generate_and_score_completions(
            [row for row in list(trainer.train_dataset)[:2] for _ in range(4)]
        )
        held[drops] = batch
        assert (trainer.equal_groups, trainer.groups) == (1, 2)
    assert held[True]['tool_mask'].any(dim=1).tolist() == [False] * 4 + [True] * 4
    mask = held[True]['completion_mask']
    assert held[True]['num_items_in_batch'] == mask[4:].sum()
    assert 'grpo: no validation rows: nothing is evaluated meanwhile' in capsys.readouterr().err
    assert held[False]['num_items_in_batch'] == held[False]['completion_mask'].sum()


def test_a_server_samples_with_the_adapter_of_each_step_under_a_name_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(i, 'train') for i in range(4)])
    sampled, swaps = [], []

    class FakeServer:
        model = 'base'

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def generate(self, prompts: list[list[int]], n: int, **_: Any) -> dict[str, Any]:
            sampled.append(self.model)
            tokens = [[5 + i] * 3 for i in range(len(prompts) * n)]
            logprobs = [[[-1.0]] * 3] * len(tokens)
            return {'prompt_ids': prompts, 'completion_ids': tokens, 'logprobs': logprobs}

    def swap(url: str, old: str, new: str, folder: Path, headers: dict[str, str]) -> None:
        assert headers == {'Authorization': 'Bearer a-secret-word'}
        assert model_digest(folder).startswith('sha256:' + new.removeprefix('policy-'))
        swaps.append((url, old, new))

    monkeypatch.setattr(grpo, 'AdapterClient', FakeServer)
    monkeypatch.setenv('EMBODIED_R_TOKEN', 'a-secret-word')
    monkeypatch.setattr(grpo, 'swap_adapters', swap)
    arguments = GrpoArguments(
        [str(tmp_path / 'rows.jsonl')], str(shared_path('models', 'arm')), ['none'],
        ['1 x 1:1:0'], lora_rank=2, threads=1,
    )  # fmt: skip
    config = GRPOConfig(
        str(tmp_path / 'out'), use_cpu=True, bf16=False, report_to='none', max_steps=2,
        per_device_train_batch_size=4, num_generations=4, max_completion_length=3,
        gradient_checkpointing=False, save_strategy='no', learning_rate=0.1,
    )  # fmt: skip

    def odd(completions: Any, **_: Any) -> list[float]:
        return [i % 2 for i in range(len(completions))]

    trainer = trainer_of(arguments, config, [format_reward, odd])
    with pytest.raises(InputError, match=r"url is 'here:8000': expected http\(s\)"):
        trainer.sample_at('here:8000')
    with pytest.raises(InputError, match='is not encrypted'):
        trainer.sample_at('http://here/v1/')
    trainer.sample_at('https://here/v1/')
    trainer.train()
    [first, second] = sampled
    assert swaps == [('https://here', '', first), ('https://here', first, second)]
    assert first != second
    assert [path.name for path in (tmp_path / 'out' / 'adapters').iterdir()] == [second]
    arguments.lora_rank = 0
    with pytest.raises(InputError, match='give lora_rank'):
        trainer_of(arguments, config, [format_reward]).sample_at('http://here')


def test_a_server_of_adapters_may_want_a_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            token = self.headers.get('Authorization')
            asked.append((self.path, token))
            is_known = self.path == '/health' or token == 'Bearer a-secret-word'
            self.send_response(200 if is_known else 401)
            self.end_headers()
            self.wfile.write(b'{"data": [{"id": "base"}]}' if is_known else b'Unauthorized')

        def log_message(self, *_: Any) -> None: ...

    monkeypatch.setattr(vllm_client, 'is_vllm_available', lambda: True)
    # What requests would send instead of a header of ours.
    (tmp_path / 'netrc').write_text('machine 127.0.0.1 login someone password else\n')
    monkeypatch.setenv('NETRC', str(tmp_path / 'netrc'))
    with ThreadingHTTPServer(('127.0.0.1', 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        url = f'http://127.0.0.1:{server.server_address[1]}'
        assert grpo.AdapterClient(url, 'a-secret-word').model == 'base'
        with pytest.raises(Exception, match='Request failed: 401'):
            grpo.AdapterClient(url, 'another-word')
        server.shutdown()
    assert asked[1] == ('/v1/models', 'Bearer a-secret-word')


# vLLM in the process that trains, in float32. The CPU build packs weights for oneDNN and leaves
# none that a trainer could write to.
COLOCATED = """
import functools, runpy, vllm
from vllm import _custom_ops
_custom_ops._supports_onednn = False
vllm.LLM = functools.partial(vllm.LLM, dtype='float32', enforce_eager=True)
runpy.run_module('training.grpo', run_name='__main__', alter_sys=True)
"""


@pytest.fixture
def python_of_vllm(monkeypatch: pytest.MonkeyPatch) -> str:
    python = os.environ.get('EMBODIED_R_VLLM', '')
    whole = [python, '-c', 'import trl, peft, rosbags']
    if not python or subprocess.run(whole, check=False).returncode:
        pytest.skip('EMBODIED_R_VLLM names no Python with vLLM and TRL')
    for name, value in (
        ('VLLM_CPU_KVCACHE_SPACE', '1'), ('TORCHDYNAMO_DISABLE', '1'), (RUNTIME_UPDATES, 'True'),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    return python


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize('mode', ['server', 'colocate'])
def test_vllm_samples_what_the_trainer_would(folder: Path, python_of_vllm: str, mode: str) -> None:
    """Two steps, the second with an adapter that has learned: with the first it would differ."""
    model = str(shared_path('models', 'arm'))
    words = ['--config', 'training/configs/qwen2.5-3b-lora.yaml', '--model', model, *ON_A_CPU]
    words += ['--rows', str(folder / 'rows.jsonl'), '--output_dir', str(folder / 'out')]
    words += ['--judge', 'none', '--stages', '1 x 1:1:0', '--max_steps', '2', '--save_steps', '2']
    words += ['--num_generations', '8', '--temperature', '1.5', '--max_completion_length', '96']
    words += ['--learning_rate', '0.02', '--warmup_steps', '0', '--logging_steps', '1']
    words += ['--drop_zero_variance', 'false']  # `kl` is of what is in the loss

    def train_with_vllm(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [python_of_vllm, *command], cwd=ROOT, capture_output=True, text=True, check=False
        )

    if mode == 'colocate':
        more = ['--use_vllm', 'true', '--vllm_max_model_length', '1024']
        done = train_with_vllm('-c', COLOCATED, *words, *more)
    else:
        command = [python_of_vllm, '-m', 'vllm.entrypoints.openai.api_server']
        command += ['--model={model}', '--host={host}', '--port={port}', '--dtype=float32']
        command += ['--max-model-len=1024']
        command += ['--enforce-eager', '--enable-lora', '--max-lora-rank=32', '--max-num-seqs=8']
        command += ['--max-num-batched-tokens=1024', '--logprobs-mode=processed_logprobs']
        server = {'model': model, 'command': command, 'port': 0, 'start_timeout_s': 1500.0}
        profile = profile_from_mapping('nano', {'servers': {'reasoner': server}})
        with ModelServers(profile, folder) as servers:
            url = servers.clients()['reasoner'].base_url()
            done = train_with_vllm('-m', 'training.grpo', *words, '--adapter_server', url)
    assert done.returncode == 0, done.stderr[-3000:]
    history = json.loads((folder / 'out' / 'checkpoint-2' / 'trainer_state.json').read_text())
    steps = [log for log in history['log_history'] if 'grad_norm' in log]
    assert steps[0]['grad_norm'] > 0
    apart = [log['sampling/sampling_logp_difference/max'] for log in steps]
    assert max(apart) < 1e-3
    assert steps[1]['kl'] > 10 * max(apart)  # it is not the start's any more


def tokens_of_last_prompts(state: dict[str, Any], completions: int) -> int:
    before, last = (log for log in state['log_history'] if 'num_tokens' in log)
    written = completions * last['completions/mean_length']
    return round(float(last['num_tokens'] - before['num_tokens'] - written))


@pytest.mark.parametrize(
    ('name', 'processes', 'others'),
    [
        pytest.param('qwen2.5-3b-lora', 2, 1, marks=pytest.mark.slow),
        pytest.param('qwen2.5-3b-8gpu', 1, 2, marks=pytest.mark.slow),
    ],
)
def test_gpu_recipe_goes_on_with_another_number_of_processes(
    folder: Path, name: str, processes: int, others: int
) -> None:
    """With a small model of its architecture: in the same stage, at the same prompts."""
    save_language_model(folder / 'model')
    more = ['--model', str(folder / 'model'), '--judge', 'http://127.0.0.1:9', *ON_A_CPU]
    more += ['--max_steps', '2', '--stages', '1 x 7:3:0', '1 x 1:7:2', '--save_steps', '1']
    more += ['--logging_steps', '1']
    done = run_grpo(folder, *more, config=name, processes=processes)
    assert done.returncode == 0, done.stderr[-3000:]
    weights = 'adapter_model' if name == 'qwen2.5-3b-lora' else 'model'
    state = folder / 'out' / 'checkpoint-2' / 'trainer_state.json'
    uninterrupted = json.loads(state.read_text())
    (folder / 'out' / f'{weights}.safetensors').unlink()
    shutil.rmtree(state.parent)  # as if it had been ended after one step

    done = run_grpo(folder, *more, config=name, processes=others)
    assert done.returncode == 0, done.stderr[-3000:]
    accumulated = 2 * processes // others
    assert f'gradient_accumulation_steps is {accumulated}, not 2: a step has' in done.stderr
    assert 'step 1: stage 2 of 2' in done.stderr
    assert 'step 0: stage' not in done.stderr
    assert (folder / 'out' / f'{weights}.safetensors').exists()
    resumed = json.loads(state.read_text())
    assert resumed['epoch'] == uninterrupted['epoch']
    tokens = [tokens_of_last_prompts(each, 8 * processes) for each in (resumed, uninterrupted)]
    assert tokens[0] == tokens[1] > 0


@pytest.mark.parametrize('machines', [1, 2])
@pytest.mark.parametrize('kind', ['deepspeed', 'fsdp2'])
def test_accelerate_launches_with_the_files_that_share_out_weights(
    kind: str, machines: int
) -> None:
    name = f'accelerate-{kind}' + ('' if machines == 1 else f'-{machines}nodes')
    words = ['--config_file', str(ROOT / 'training' / 'configs' / f'{name}.yaml')]
    words += ['--main_process_ip', 'head', '--machine_rank', str(machines - 1)]
    args, *_ = _validate_launch_command(
        launch_command_parser().parse_args([*words, '-m', 'training.grpo'])
    )
    assert (args.num_machines, args.num_processes) == (machines, 6 if machines == 1 else 16)
    assert args.machine_rank == machines - 1
    if kind == 'deepspeed':
        assert (args.use_deepspeed, args.zero_stage) == (True, 3)
        if machines > 1:  # else it wants pdsh and a file of hosts
            assert args.deepspeed_multinode_launcher == 'standard'
        return
    environment = prepare_multi_gpu_env(args)
    assert (args.use_fsdp, environment['FSDP_VERSION']) == (True, '2')
    assert environment['FSDP_STATE_DICT_TYPE'] == 'FULL_STATE_DICT'
    assert environment['FSDP_CPU_RAM_EFFICIENT_LOADING'] == 'false'


def test_prompts_whose_completions_are_of_like_length_are_asked_together() -> None:
    lengths = [float(7919 * i % 1000) for i in range(203)]

    def spread(order: Sequence[int]) -> float:
        groups = [[lengths[i] for i in order[at : at + 4]] for at in range(0, len(order), 4)]
        return sum(max(group) - min(group) for group in groups) / len(groups)

    order = grouped_by_length(lengths, 4, seed=1)
    assert sorted(order) == list(range(203))
    assert spread(order) < spread(range(203)) / 3
    assert order == grouped_by_length(lengths, 4, seed=1)
    assert order != grouped_by_length(lengths, 4, seed=2)
    # Where nothing is known of the lengths, only whole groups change places.
    same = grouped_by_length([0.0] * 8, 4, seed=1)
    assert same in ([*range(8)], [*range(4, 8), *range(4)])


BRIEF, LONGER = (f'<think>{text}</think><answer>A</answer>' for text in ('So.', 'So it is.'))


def test_only_rows_that_samples_differ_on_are_trained_on(tmp_path: Path) -> None:
    rows = [turning_row(seed, split) for seed, split in enumerate(['train'] * 4 + ['validation'])]
    rows = [replace(row, id=f'row{index}') for index, row in enumerate(rows)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    sampled = {
        'row0': [True, True],
        'row1': [True, False],
        'row2': [False, True],
        'row3': [False, False],
    }
    lines = [
        json.dumps({'id': name, 'completions': [BRIEF, LONGER], 'right': right})
        for name, right in sampled.items()
    ]
    (tmp_path / 'samples.jsonl').write_text('\n'.join(lines) + '\n')
    words = ([str(tmp_path / 'rows.jsonl')], 'model', ['judge'], ['1 x 7:3:0'])
    tokenizer = load_tokenizer(shared_path('models', 'arm'))
    file = str(tmp_path / 'samples.jsonl')
    for samples, anchors, expected in ((file, 0.0, 2), (file, 1.0, 3), ('', 0.0, 4)):
        arguments = GrpoArguments(*words, samples=samples, anchor_share=anchors)
        prompts = training_prompts(arguments, tokenizer, at_once=2, seed=0)
        assert prompts is not None
        assert len(prompts) == expected
        assert len(validation_prompts(arguments, tokenizer) or ()) == 1
        told = training_prompts(arguments, tokenizer, at_once=2, seed=0, epochs=3)
        assert told is not None
        asked = [str(prompt) for prompt in told['prompt']]
        assert Counter(asked) == Counter([str(prompt) for prompt in prompts['prompt']] * 3)
    for anchors, learned in ((0.0, [BRIEF, LONGER]), (1.0, [BRIEF, LONGER, BRIEF, LONGER])):
        control = SftArguments(words[0], 'model', samples=file, anchor_share=anchors)
        made = [each['completion'][0]['content'] for each in examples(control, 'train')]
        assert made == learned


def test_empty_file_of_samples_is_not_the_same_as_none(tmp_path: Path) -> None:
    write_rows(tmp_path / 'rows.jsonl', [turning_row(1, 'train'), turning_row(2, 'validation')])
    file = tmp_path / 'samples.jsonl'
    file.touch()
    words = ([str(tmp_path / 'rows.jsonl')], 'model', ['judge'], ['1 x 7:3:0'])
    arguments = GrpoArguments(*words, samples=str(file))
    tokenizer = load_tokenizer(shared_path('models', 'arm'))
    with pytest.raises(InputError, match='holds nothing that teaches'):
        training_prompts(arguments, tokenizer, at_once=1, seed=0)
    assert len(validation_prompts(arguments, tokenizer) or ()) == 1
    with pytest.raises(InputError, match='holds nothing that teaches'):
        list(examples(SftArguments(words[0], 'model', samples=str(file)), 'train'))


def test_every_epoch_asks_all_prompts_in_another_order(tmp_path: Path) -> None:
    rows = [replace(turning_row(seed, 'train', 9), id=f'row{seed}') for seed in range(7)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    arguments = GrpoArguments([str(tmp_path / 'rows.jsonl')], 'model', ['judge'], ['1 x 7:3:0'])
    tokenizer = load_tokenizer(shared_path('models', 'arm'))
    prompts = training_prompts(arguments, tokenizer, at_once=1, seed=0, epochs=2)
    assert prompts is not None
    asked = [str(prompt) for prompt in prompts['prompt']]
    assert len(set(asked)) == 7
    # Groups change places within eight, so the two epochs overlap there.
    assert Counter(asked) == dict.fromkeys(asked, 2)
    assert asked[:7] != asked[7:]
