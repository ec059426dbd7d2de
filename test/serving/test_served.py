# SPDX-License-Identifier: Apache-2.0
"""Servers that stay for the next question: found again, ended by themselves, never orphans."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.common.files import shared_path, user_folder
from embodied_r_ros.serving.served import end_warm_servers, served_reasoner
from embodied_r_ros.serving.servers import default_log_dir
import pytest
import yaml

from test.serving.test_servers import entry, eventually_gone, is_running, program

__all__ = ['program']  # a fixture

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

QUESTION = 'How far is the chair from you?'
MAP = {
    'frame_id': 'odom',
    'scale': 'odometry',
    'landmarks': [{'label': 'chair', 'position': [3, 0, 0.5], 'observations': 3}],
    'path': [{'stamp_ns': 0, 'position': [0, 0, 0.5], 'yaw_rad': 0}],
}


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'state'))
    yield
    end_warm_servers()


def write_profile(folder: Path, name: str = 'mine', **settings: Any) -> str:
    file = folder / f'{name}.yaml'
    file.write_text(json.dumps({'servers': {'reasoner': settings}}))
    return str(file)


def states() -> list[dict[str, Any]]:
    """What the keepers that live say."""
    files = sorted(user_folder('cache', 'servers').glob('*.json'))
    return [json.loads(file.read_text()) for file in files]


def use(profile: str) -> int:
    """The process of the server that a profile is served by."""
    with served_reasoner(profile, stays=True):
        (state,) = states()
    return int(state['server_pid'])


class TestWithoutAModel:
    """A server that is a real process and serves no model."""

    def test_stays_after_use_and_is_used_again(self, program: Path, tmp_path: Path) -> None:
        profile = write_profile(tmp_path, **entry(program))
        first = use(profile)
        assert is_running(first)
        assert use(profile) == first

    def test_ends_by_itself_with_its_log(self, program: Path, tmp_path: Path) -> None:
        server = use(write_profile(tmp_path, **entry(program, stays_s=0.5)))
        assert eventually_gone(server)
        keeper = next(iter(states()), {'pid': 0})['pid']
        assert not keeper or eventually_gone(keeper)
        assert states() == []
        assert list(default_log_dir().iterdir()) == []

    def test_does_not_end_while_it_is_used(self, program: Path, tmp_path: Path) -> None:
        profile = write_profile(tmp_path, **entry(program, stays_s=0.4))
        with served_reasoner(profile, stays=True):
            (state,) = states()
            time.sleep(2)
            assert is_running(state['server_pid'])

    @pytest.mark.parametrize('who', ['server_pid', 'pid'])
    def test_is_started_afresh_where_it_was_killed(
        self, who: str, program: Path, tmp_path: Path
    ) -> None:
        profile = write_profile(tmp_path, **entry(program))
        first = use(profile)
        os.kill(states()[0][who], signal.SIGKILL)
        second = use(profile)
        assert second != first
        assert eventually_gone(first)
        assert is_running(second)

    def test_outlives_who_started_it(self, program: Path, tmp_path: Path) -> None:
        profile = write_profile(tmp_path, **entry(program))
        code = (
            'import os; from embodied_r_ros.serving.served import served_reasoner\n'
            f'with served_reasoner({profile!r}, stays=True):\n'
            '    os.kill(os.getpid(), 9)'
        )
        assert subprocess.run([sys.executable, '-c', code]).returncode == -signal.SIGKILL
        (state,) = states()
        assert use(profile) == state['server_pid']

    def test_two_who_ask_at_once_start_one(self, program: Path, tmp_path: Path) -> None:
        profile = write_profile(tmp_path, **entry(program))
        code = (
            'from embodied_r_ros.serving.served import served_reasoner\n'
            f'with served_reasoner({profile!r}, stays=True) as chat:\n'
            '    print(chat.url, flush=True)'
        )
        both = [
            subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, text=True)
            for _ in range(2)
        ]
        urls = {process.communicate(timeout=60)[0].strip() for process in both}
        assert len(urls) == 1
        assert len(states()) == 1

    def test_another_model_or_setting_has_another_server(
        self, program: Path, tmp_path: Path
    ) -> None:
        weights = tmp_path / 'model.gguf'
        weights.write_bytes(b'one')
        settings = entry(program, model=str(weights))
        profile = write_profile(tmp_path, **settings)
        pids = {use(profile)}
        weights.write_bytes(b'another')
        for changed in (settings, {**settings, 'threads': 2}):
            with served_reasoner(write_profile(tmp_path, **changed), stays=True):
                pids |= {state['server_pid'] for state in states()}
        assert len(pids) == 3

    def test_is_another_one_with_another_token(
        self, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        profile = write_profile(tmp_path, **entry(program))
        use(profile)
        monkeypatch.setenv('EMBODIED_R_TOKEN', 'secret')
        with served_reasoner(profile, stays=True):
            assert len(states()) == 2
        files = user_folder('cache', 'servers').iterdir()
        assert not any('secret' in file.name + file.read_text() for file in files)

    def test_that_does_not_start_says_why(self, program: Path, tmp_path: Path) -> None:
        profile = write_profile(tmp_path, **entry(program, 'dies'))
        with pytest.raises(ModelError, match='CUDA out of memory'):
            use(profile)
        assert states() == []

    def test_of_which_nothing_is_to_stay_ends_with_its_use(
        self, program: Path, tmp_path: Path
    ) -> None:
        profile = write_profile(tmp_path, **entry(program, stays_s=0))
        with served_reasoner(profile, stays=True):
            pass
        with served_reasoner(write_profile(tmp_path, **entry(program))):  # as in a demo
            pass
        assert states() == []

    def test_is_ended_by_serve(
        self, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        server = use(write_profile(tmp_path, **entry(program)))
        assert main(['serve', '--stop']) == 0
        assert 'org/model: ended' in capsys.readouterr().err
        assert eventually_gone(server)
        assert states() == []
        assert main(['serve', '--stop']) == 0

    def test_file_of_a_keeper_that_is_gone_says_nothing(
        self, program: Path, tmp_path: Path
    ) -> None:
        profile = write_profile(tmp_path, **entry(program))
        first = use(profile)
        (file,) = user_folder('cache', 'servers').glob('*.json')
        stale = file.read_text()
        assert main(['serve', '--stop']) == 0
        file.write_text(stale.replace(f'"pid": {json.loads(stale)["pid"]}', '"pid": 1'))
        assert use(profile) != first


@pytest.mark.timeout(240)
def test_next_question_finds_the_real_model_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip('xllamacpp')
    source = tmp_path / 'map.json'
    source.write_text(json.dumps(MAP))
    values = yaml.safe_load(shared_path('config', 'models', 'embedded.yaml').read_text())
    values['servers']['reasoner']['stays_s'] = 60.0
    profile = tmp_path / 'mine.yaml'
    profile.write_text(yaml.safe_dump(values))
    command = ['ask', str(source), QUESTION, '--profile', str(profile), '--deadline', '100']
    pids, said = [], []
    for _ in range(2):
        assert main([*command, '--json']) == 0
        pids.append(states()[0]['server_pid'])
        said.append(capsys.readouterr())
    assert pids[0] == pids[1]
    assert ['starting' in one.err for one in said] == [True, False]
    assert all('stays for 1 min: `embodied-r serve --stop`' in one.err for one in said)
    answers = [json.loads(one.out) for one in said]
    assert [answer['completion'] for answer in answers] == [answers[0]['completion']] * 2
    os.kill(pids[0], signal.SIGKILL)
    assert main([*command, '--json']) == 0
    assert json.loads(capsys.readouterr().out)['completion'] == answers[0]['completion']
    assert states()[0]['server_pid'] != pids[0]
