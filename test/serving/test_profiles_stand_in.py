# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.serving.profiles import stand_in_server

if TYPE_CHECKING:
    import pytest


def test_server_that_stands_in_gets_no_token_but_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('EMBODIED_R_TOKEN', 'ours')
    server = stand_in_server('https://elsewhere.example', 'reasoner', 'SECONDARY')
    assert server.token() == ''
    monkeypatch.setenv('EMBODIED_R_TOKEN_SECONDARY', 'theirs')
    assert server.token() == 'theirs'
