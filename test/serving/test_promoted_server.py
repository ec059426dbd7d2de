# SPDX-License-Identifier: Apache-2.0
"""A promotion reaches a real `transformers serve`, and is taken back, behind one address."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.serving.profiles import profile_from_mapping
from embodied_r_ros.serving.promotion import promote, roll_back
from embodied_r_ros.serving.servers import ModelServers
import pytest
import yaml

from test.tiny_models import save_language_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = ['transformers', 'serve', '{model}', '--host', '{host}', '--port', '{port}']
TRY_FOR_S = 400.0


def test_answers_name_what_was_promoted_without_a_new_client(tmp_path: Path) -> None:
    torch = pytest.importorskip('torch')
    from transformers import AutoModelForCausalLM

    old, new = tmp_path / 'old', tmp_path / 'new'
    for folder in (old, new):
        save_language_model(folder)
    torch.manual_seed(1)
    changed = AutoModelForCausalLM.from_pretrained(new)
    changed.lm_head.weight.data.normal_()
    changed.save_pretrained(new)

    slot = tmp_path / 'slot'
    server = {'model': str(old), 'command': [*COMMAND, '--device', 'cpu'], 'port': 0}
    server |= {'promoted': str(slot), 'start_timeout_s': 400.0}
    profile = tmp_path / 'mine.yaml'
    profile.write_text(yaml.safe_dump({'servers': {'reasoner': server}}))
    command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'serve', str(profile)]
    with subprocess.Popen(
        [*command, '--log-dir', str(tmp_path)], stdout=subprocess.PIPE, text=True
    ) as owner:
        try:
            assert owner.stdout
            url = json.loads(owner.stdout.readline())['url']
            client = HttpChatClient(ChatConfig(url=url))
            config = ReasonerConfig(max_tokens=16, deadline_s=300.0)
            reasoner = Reasoner(client, config)
            assert digest_of_answer(reasoner) == model_digest(old)
            promote(slot, new, {})
            assert eventually(reasoner, model_digest(new))
            roll_back(slot)
            assert eventually(reasoner, model_digest(old))
        finally:
            owner.terminate()


def eventually(reasoner: Reasoner, digest: str) -> bool:
    """Ask until an answer names a digest; the restart of the server may refuse some questions."""
    end = time.monotonic() + TRY_FOR_S
    while time.monotonic() < end:
        try:
            if digest_of_answer(reasoner) == digest:
                return True
        except ModelError:
            time.sleep(0.5)
    return False


def digest_of_answer(reasoner: Reasoner) -> str:
    """Digest that an answer names; random weights keep to no format, and are refused for that.

    Raises:
        ModelError: There is no answer, because the server is not there.
    """
    delta = SemanticDelta(5, DeltaKind.FIRST, change='A door.')
    question = Question('Where is the door?')
    with pytest.raises(Refusal) as refused:
        reasoner.answer(question, [delta], answer_id='a', now_ns=lambda: 5)
    if refused.value.code is not RefusalCode.FORMAT:
        raise ModelError(str(refused.value))
    return refused.value.answer.model.digest


def test_vllm_takes_adapters_of_a_slot_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vllm = os.environ.get('EMBODIED_R_VLLM', '')
    if not vllm:
        pytest.skip('EMBODIED_R_VLLM names no Python with vLLM')
    peft = pytest.importorskip('peft')
    from transformers import AutoModelForCausalLM

    monkeypatch.setenv('VLLM_CPU_KVCACHE_SPACE', '1')
    base, slot = tmp_path / 'base', tmp_path / 'slot'
    save_language_model(base)
    for name in ('first', 'second'):
        config = peft.LoraConfig(r=8, target_modules='all-linear', init_lora_weights=False)
        model = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base), config)
        model.save_pretrained(tmp_path / name)
    command = [vllm, '-m', 'vllm.entrypoints.openai.api_server', '--model={model}']
    command += ['--host={host}', '--port={port}', '--dtype=float32', '--max-model-len=4096']
    command += ['--enforce-eager', '--enable-lora']
    server = {'model': str(base), 'command': command, 'port': 0, 'promoted': str(slot)}
    server['start_timeout_s'] = 600.0
    profile = profile_from_mapping('tiny', {'servers': {'reasoner': server}})
    with ModelServers(profile, tmp_path) as servers:
        client = HttpChatClient(servers.clients()['reasoner'])
        reasoner = Reasoner(client, ReasonerConfig(max_tokens=16, deadline_s=300.0))

        def comes(digest: str) -> bool:
            end = time.monotonic() + TRY_FOR_S
            while digest_of_answer(reasoner) != digest and time.monotonic() < end:
                servers.follow()
            return digest_of_answer(reasoner) == digest

        assert comes(model_digest(base))
        for name in ('first', 'second'):
            adapter = promote(slot, tmp_path / name, {}).folder
            assert comes(model_digest(base, adapter))
        roll_back(slot)
        assert comes(model_digest(base, tmp_path / 'first'))
