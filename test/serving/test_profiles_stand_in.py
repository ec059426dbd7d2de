# SPDX-License-Identifier: Apache-2.0
"""Profiles: servers that stand in, and how much a model is asked to read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.profiles import load_profile, served_budget, stand_in_server
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_server_that_stands_in_gets_no_token_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('EMBODIED_R_TOKEN', 'ours')
    server = stand_in_server('https://elsewhere.example', 'reasoner', 'SECONDARY')
    assert server.token() == ''
    monkeypatch.setenv('EMBODIED_R_TOKEN_SECONDARY', 'theirs')
    assert server.token() == 'theirs'


@pytest.mark.parametrize(('model', 'profile'), [('nano', 'embedded'), ('arm', 'embedded-arm')])
def test_budget_is_that_of_the_profile_that_serves_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str, profile: str
) -> None:
    folder, served = shared_path('models', model), load_profile(profile).reasoner['token_budget']
    assert served < ReasonerConfig.token_budget
    (tmp_path / 'link').symlink_to(folder)
    monkeypatch.chdir(folder.parent.parent)
    for name in (str(folder), f'models/{model}', f'models/{model}/', str(tmp_path / 'link')):
        assert served_budget(name) == served


def test_budget_of_another_model_is_the_usual_one(tmp_path: Path) -> None:
    others = [str(tmp_path), str(tmp_path / 'none'), 'Qwen/Qwen2.5-3B-Instruct', '']
    for name in (*others, 'http://127.0.0.1:8100', 'http://127.0.0.1:8100#models/nano'):
        assert served_budget(name) == ReasonerConfig.token_budget
