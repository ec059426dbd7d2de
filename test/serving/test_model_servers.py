# SPDX-License-Identifier: Apache-2.0
"""Real servers with real models of the smallest shape: `transformers serve`, and vLLM.

vLLM lives in an environment of its own; the variable EMBODIED_R_VLLM names the Python of it.
"""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.perception.perceiver import perceive_all
from embodied_r_ros.core.perception.vlm import VlmConfig, VlmPerceiver
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.serving.profiles import profile_from_mapping
from embodied_r_ros.serving.served import served_model
from embodied_r_ros.serving.servers import ModelServers
import numpy as np
import pytest

from test.tiny_models import save_language_model, save_vision_language_model

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

VLLM_PYTHON = os.environ.get('EMBODIED_R_VLLM', '')
TRANSFORMERS = ['transformers', 'serve', '{model}', '--host', '{host}', '--port', '{port}']
VLLM = [
    VLLM_PYTHON,
    '-m',
    'vllm.entrypoints.openai.api_server',
    '--model={model}',
    '--host={host}',
    '--port={port}',
    '--dtype=float32',
    '--max-model-len=4096',
    '--enforce-eager',
    '--structured-outputs-config={"backend": "xgrammar", "disable_any_whitespace": true}',
]
VISION = [
    '--limit-mm-per-prompt={"image": 2, "video": 0}',
    '--mm-processor-kwargs={"size": {"shortest_edge": 3136, "longest_edge": 50176}}',
]


@pytest.fixture(scope='module', autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Keep logs, trusted code and the settings of vLLM out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('XDG_STATE_HOME', str(tmp_path_factory.mktemp('state')))
        patch.setenv('HF_MODULES_CACHE', str(tmp_path_factory.mktemp('modules')))
        patch.setenv('VLLM_CPU_KVCACHE_SPACE', '1')
        yield


@pytest.fixture(scope='module')
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip('torch')
    folder = tmp_path_factory.mktemp('language')
    save_language_model(folder)
    return folder


@pytest.fixture(scope='module')
def vision_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip('torch')
    folder = tmp_path_factory.mktemp('vision')
    save_vision_language_model(folder)
    return folder


def serve(folder: Path, command: list[str], logs: Path) -> Iterator[HttpChatClient]:
    server = {'model': str(folder), 'command': command, 'port': 0, 'start_timeout_s': 600.0}
    profile = profile_from_mapping('tiny', {'servers': {'reasoner': server}})
    with ModelServers(profile, logs) as servers:
        yield HttpChatClient(servers.clients()['reasoner'])


@pytest.fixture(scope='module')
def transformers_text(language_model: Path) -> Iterator[HttpChatClient]:
    with served_model(str(language_model)) as config:
        yield HttpChatClient(config)


@pytest.fixture(scope='module')
def transformers_vision(
    vision_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpChatClient]:
    logs = tmp_path_factory.mktemp('logs')
    command = [*TRANSFORMERS, '--device', 'cpu', '--trust-remote-code']
    yield from serve(vision_model, command, logs)


def require_vllm(module: str) -> None:
    if not VLLM_PYTHON:
        pytest.skip('EMBODIED_R_VLLM names no Python with vLLM')
    done = subprocess.run([VLLM_PYTHON, '-c', f'import {module}'], capture_output=True, timeout=60)
    if done.returncode:
        pytest.skip(f'{VLLM_PYTHON} cannot import {module}')


@pytest.fixture(scope='module')
def vllm_text(
    language_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpChatClient]:
    require_vllm('vllm')
    yield from serve(language_model, VLLM, tmp_path_factory.mktemp('logs'))


@pytest.fixture(scope='module')
def vllm_vision(
    vision_model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[HttpChatClient]:
    # vLLM's Qwen2-VL imports torchvision, which must fit the torch beside it.
    require_vllm('torchvision')
    command = [*VLLM, *VISION, '--trust-remote-code']
    yield from serve(vision_model, command, tmp_path_factory.mktemp('logs'))


def reply_text(client: HttpChatClient, **sampling: Any) -> str:
    request = ChatRequest((ChatMessage('user', 'Where am I?'),), Sampling(**sampling))
    return ''.join(chunk.text for chunk in client.stream(request, 120))


def keyframes(count: int) -> list[Keyframe]:
    random = np.random.default_rng(0)
    images = [random.integers(0, 255, (240, 320, 3), np.uint8) for _ in range(count)]
    reason = KeyframeReason.LOW_OVERLAP
    return [
        Keyframe(index, index + 1, encode_image(image), reason, max(0, index - 1))
        for index, image in enumerate(images)
    ]


@pytest.fixture(params=['transformers_text', 'vllm_text'])
def text_client(request: pytest.FixtureRequest) -> HttpChatClient:
    client: HttpChatClient = request.getfixturevalue(request.param)
    return client


def test_server_is_known_by_its_folder_and_weights(
    text_client: HttpChatClient, language_model: Path
) -> None:
    info = text_client.info(60)
    assert info.name == language_model.name
    assert info.digest == model_digest(language_model)


def test_greedy_text_is_the_same_every_time(text_client: HttpChatClient) -> None:
    said = [reply_text(text_client, max_tokens=30) for _ in range(2)]
    assert said[0] == said[1] != ''


def test_prompt_is_not_echoed(text_client: HttpChatClient) -> None:
    assert 'Where am I' not in reply_text(text_client, max_tokens=30)


def test_cancel_frees_the_server(text_client: HttpChatClient) -> None:
    cancel = threading.Event()
    request = ChatRequest((ChatMessage('user', 'Go on.'),), Sampling(max_tokens=3500))
    chunks = text_client.stream(request, 120, cancel)
    next(chunks)
    cancel.set()
    start = time.monotonic()
    with pytest.raises(CancelledError):
        list(chunks)
    assert time.monotonic() - start < 0.3
    # `transformers serve` does one request at a time: this one would wait for the 3500 tokens.
    reply_text(text_client, max_tokens=2)
    assert time.monotonic() - start < 3.0


def test_vllm_gives_probabilities_and_obeys_the_schema(vllm_text: HttpChatClient) -> None:
    schema = {'type': 'object', 'properties': {'a': {'type': 'boolean'}}, 'required': ['a']}
    request = ChatRequest((ChatMessage('user', 'Hi'),), json_schema=schema, top_logprobs=3)
    chunks = list(vllm_text.stream(request, 120))
    assert ''.join(chunk.text for chunk in chunks) in {'{"a":true}', '{"a":false}'}
    tokens = [token for chunk in chunks for token in chunk.tokens]
    assert all(len(token.top) >= 3 and token.logprob <= 0 for token in tokens)


def test_random_vision_model_fails_after_bounded_attempts(
    transformers_vision: HttpChatClient,
) -> None:
    config = VlmConfig(max_tokens=32, retries=1, deadline_s=120.0)
    perceiver = VlmPerceiver(transformers_vision, config)
    assert perceiver.info().name
    delta = perceiver.perceive(*keyframes(2))
    # `transformers serve` enforces no schema, and random weights do not keep to one.
    assert delta.kind is DeltaKind.FAILED
    assert delta.error.startswith('no usable reply in 2 attempts: the reply holds no complete')
    with pytest.raises(ModelError, match='no usable reply'):
        perceiver.focus('Where is the door?', (), keyframes(1)[0], 120)


def test_random_vision_model_under_a_schema_perceives(vllm_vision: HttpChatClient) -> None:
    config = VlmConfig(
        max_tokens=2500, temperature=1.0, seed=3, deadline_s=240.0, pixels_per_image=50_176
    )
    perceiver = VlmPerceiver(vllm_vision, config)
    deltas = list(perceive_all(perceiver, keyframes(4), in_flight=4))
    assert [delta.kind is DeltaKind.FAILED for delta in deltas] == [False] * 4
    assert [delta.to_id for delta in deltas] == [0, 1, 2, 3]
    assert all(delta.change.isprintable() for delta in deltas)
    assert perceiver.focus('Where is the door?', (), keyframes(1)[0], 120).keyframe_id == 0
