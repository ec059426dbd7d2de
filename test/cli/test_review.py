# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import contextmanager
import socket
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli import review
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.profiles import load_profile

from test.apps.review.recordings import ANSWERS, record

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pytest


def serve(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str
) -> tuple[int, str, Any]:
    """Exit code, printed address, and the application that would be served."""
    served: list[Any] = []

    def end_at_once(app: Any, listening: socket.socket) -> None:
        served.append((app, listening.getsockname()))
        raise KeyboardInterrupt

    monkeypatch.setattr(review, 'serve_app', end_at_once)
    code = main(['review', *words])
    return code, capsys.readouterr().out, served[0]


def test_only_this_machine_is_served_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path / 'e1', ANSWERS[:1])
    code, out, (app, place) = serve(monkeypatch, capsys, str(tmp_path), '--port', '0')
    assert (code, place[0], app._token) == (0, '127.0.0.1', '')
    assert out == f'http://127.0.0.1:{place[1]}/\n'
    words = str(tmp_path), '--port', '0', '--host', '0.0.0.0'
    code, out, (app, place) = serve(monkeypatch, capsys, *words)
    assert out == f'http://0.0.0.0:{place[1]}/?token={app._token}\n'
    assert len(app._token) >= 32
    again = serve(monkeypatch, capsys, *words)[2][0]
    assert again._token != app._token


def test_bad_input_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path / 'e1', ANSWERS[:1])
    (tmp_path / 'empty').mkdir()
    with socket.create_server(('127.0.0.1', 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(['review', str(tmp_path), '--port', port]) == 2
    assert f'cannot listen on 127.0.0.1 port {port}' in capsys.readouterr().err
    for words, why in (
        ([str(tmp_path / 'empty')], 'is neither a bag nor a folder of bags'),
        ([str(tmp_path / 'none')], 'does not exist'),
        ([str(tmp_path), '--port', '70000'], 'cannot listen'),
        ([str(tmp_path), '--rows', str(tmp_path / 'none.jsonl')], 'cannot be read as rows'),
    ):
        more = [] if '--port' in words else ['--port', '0']
        assert main(['review', *words, *more]) == 2
        err = capsys.readouterr().err
        assert err.startswith('embodied-r: error: ')
        assert why in err


def test_a_shipped_model_reads_recordings_as_long_as_it_is_served(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    events: list[Any] = []

    @contextmanager
    def reach(model: str, _: Any) -> Iterator[ChatConfig]:
        events.append(model)
        yield ChatConfig()
        events.append('end')

    monkeypatch.setattr(review, 'served_model', reach)
    arm, url = str(shared_path('models', 'arm')), 'http://127.0.0.1:9'
    for model in (arm, url):
        with review.asker_of(model) as ask:
            events.append(ask._config.token_budget)
    served = load_profile('embedded-arm').reasoner['token_budget']
    assert events == [arm, served, 'end', url, ReasonerConfig.token_budget, 'end']
