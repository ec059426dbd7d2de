# SPDX-License-Identifier: Apache-2.0
"""Profiles: servers that stand in, and how a model is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.profiles import load_profile, reasoner_config, stand_in_server
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def test_server_that_stands_in_gets_no_token_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('EMBODIED_R_TOKEN', 'ours')
    server = stand_in_server('https://elsewhere.example', 'reasoner', 'SECONDARY')
    assert server.token() == ''
    monkeypatch.setenv('EMBODIED_R_TOKEN_SECONDARY', 'theirs')
    assert server.token() == 'theirs'


def test_model_is_asked_as_the_profile_says_that_serves_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, profile = 'arm', 'embedded-arm'
    folder, settings = shared_path('models', model), load_profile(profile).reasoner
    served = ReasonerConfig(**settings)
    assert served != ReasonerConfig()
    (tmp_path / 'link').symlink_to(folder)
    monkeypatch.chdir(folder.parent.parent)
    for name in (str(folder), f'models/{model}', f'models/{model}/', str(tmp_path / 'link')):
        assert reasoner_config(name) == served
    assert reasoner_config(profile=profile) == served


def test_another_model_is_asked_as_usual(tmp_path: Path) -> None:
    others = [str(tmp_path), str(tmp_path / 'none'), 'Qwen/Qwen2.5-3B-Instruct', '']
    for name in (*others, 'http://127.0.0.1:8100', 'http://127.0.0.1:8100#models/arm'):
        assert reasoner_config(name) == ReasonerConfig()


def test_what_is_given_wins_over_the_profile() -> None:
    config = reasoner_config(profile='embedded-arm', token_budget=700, max_tokens=None)
    settings = {**load_profile('embedded-arm').reasoner, 'token_budget': 700}
    assert config == ReasonerConfig(**settings)
    with pytest.raises(ConfigError, match='token_budget is 3'):
        reasoner_config(profile='embedded-arm', token_budget=3)
