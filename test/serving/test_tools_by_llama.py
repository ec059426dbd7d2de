# SPDX-License-Identifier: Apache-2.0
"""A real llama.cpp parses the calls of a real model: whatever that says, the loop ends well."""

from __future__ import annotations

import json
from pathlib import Path

from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
from embodied_r_ros.core.types.answers import AnswerKind, Check
from embodied_r_ros.data.episodes.offline import ask_about, RecordingScene
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.served import served_reasoner
import pytest
import yaml

from test.core.scene.test_registry import PLACE

TEMPLATE = Path(__file__).with_name('tools.jinja').read_text(encoding='utf-8')


@pytest.fixture
def profile(tmp_path: Path) -> Path:
    """SmolLM2 without our adapter, under a template that has tools: its own has none."""
    command = ['llama-server', '--model={model}', '--host={host}', '--port={port}']
    command += ['--ctx-size=4096', '--chat-template', TEMPLATE]
    server = load_profile('embedded').servers['reasoner']
    value = {'model': server.model, 'command': command, 'threads': 2}
    path = tmp_path / 'smollm2.yaml'
    path.write_text(yaml.safe_dump({'servers': {'reasoner': value}}))
    return path


@pytest.mark.timeout(600)
def test_a_real_model_calls_a_tool_and_the_loop_ends(profile: Path) -> None:
    pytest.importorskip('xllamacpp')
    scene = RecordingScene((), scene_map=PLACE)
    config = ReasonerConfig(tools=True, max_tokens=40, deadline_s=500.0)
    heard: list[str] = []
    with served_reasoner(str(profile)) as chat:
        question = Question('How far is the chair from you?')
        answer = ask_about(scene, question, chat, config, lambda _, text: heard.append(text))
    assert answer.turns
    asked = [call for call in answer.calls if call.turn]
    for call in asked:
        assert json.loads(call.reply).keys() & {'text', 'error'}
        assert f'{call.tool}({call.request})' in ''.join(heard)
    # Either what the tools compute, or nothing.
    assert answer.kind is AnswerKind.UNKNOWN or round(answer.number, 1) == 1.5
    assert answer.check is not Check.UNSUPPORTED
    assert answer.prompt.endswith('Question: How far is the chair from you?')
