# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace
import errno
import json
import os
from pathlib import Path
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ConfigError, InputError, ModelError
from embodied_r_ros.common.files import user_name
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.serving.profiles import load_profile, profile_from_mapping
from embodied_r_ros.serving.promotion import (
    history,
    in_force,
    promote,
    roll_back,
    Signature,
    slot_folder,
)
from embodied_r_ros.serving.server_process import swap_adapters
from embodied_r_ros.serving.servers import ModelServers
import httpx
import pytest

from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.core.types.deltas import ModelInfo
    from embodied_r_ros.serving.profiles import Profile
    from embodied_r_ros.serving.promotion import PromotedModel

PATIENCE_S = 60.0
ANN = Signature('ann', '2026-11-26T12:00:00+00:00', 'it knows stairs')
# Says which model it serves; one called 'broken' does not start.
SERVER = """
import http.server, json, sys
host, port, model = sys.argv[1], int(sys.argv[2]), sys.argv[3]
if 'broken' in model:
    sys.exit('RuntimeError: no such layer')
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        if self.path != '/health':
            self.wfile.write(json.dumps({'data': [{'id': model, 'root': model}]}).encode())
http.server.HTTPServer((host, port), Handler).serve_forever()
"""


def model(folder: Path, weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / 'model.safetensors').write_text(weights)
    (folder / 'config.json').write_text('{}')
    return folder


@pytest.fixture
def models(tmp_path: Path) -> tuple[Path, Path]:
    return model(tmp_path / 'old', 'old'), model(tmp_path / 'new', 'new')


class TestSlot:
    def test_holds_copies_that_a_later_training_does_not_change(
        self, tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        slot = tmp_path / 'slot'
        (models[1] / 'checkpoint-1').mkdir()
        assert in_force(slot) is None
        promoted = promote(slot, models[1], {'accuracy': 0.7})
        model(models[1], 'trained on')
        assert in_force(slot) == promoted
        assert (promoted.number, promoted.previous) == (1, 0)
        assert promoted.digest == model_digest(promoted.folder) != model_digest(models[1])
        assert [p.name for p in promoted.folder.iterdir() if p.is_dir()] == []
        assert json.loads((slot / 'manifest.json').read_text())['accuracy'] == 0.7

    def test_goes_back_one_promotion_at_a_time(
        self, tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        slot = tmp_path / 'slot'
        first = promote(slot, models[0], {})
        second = promote(slot, models[1], {})
        assert second.previous == first.number
        assert roll_back(slot) == first == in_force(slot)
        third = promote(slot, models[1], {})
        assert (third.number, third.previous, third.folder) == (3, 1, second.folder)
        assert roll_back(slot) == first
        assert roll_back(slot) is None
        assert in_force(slot) is None
        with pytest.raises(ConfigError, match='there is nothing to take back'):
            roll_back(slot)

    def test_whose_model_was_changed_is_not_served(
        self, tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        promoted = promote(tmp_path / 'slot', models[0], {})
        (promoted.folder / 'model.safetensors').write_text('other weights')
        with pytest.raises(ConfigError, match='is not what was promoted'):
            in_force(tmp_path / 'slot')

    @pytest.mark.parametrize('damage', ['changed', 'gone'])
    def test_whose_copy_is_damaged_gets_it_anew(
        self, tmp_path: Path, models: tuple[Path, Path], damage: str
    ) -> None:
        slot = tmp_path / 'slot'
        weights = promote(slot, models[0], {}).folder / 'model.safetensors'
        if damage == 'gone':
            weights.unlink()
        else:
            weights.write_text('half of')
        promoted = promote(slot, models[0], {})
        assert in_force(slot) == promoted
        assert weights.read_text() == 'old'
        assert [path.name for path in weights.parent.parent.iterdir()] == [promoted.folder.name]

    @pytest.mark.parametrize(
        'change', [{'model': '../../elsewhere'}, {'model': ''}, {'number': float('inf')}]
    )
    def test_names_no_model_outside_of_it(
        self, tmp_path: Path, models: tuple[Path, Path], change: dict[str, object]
    ) -> None:
        promote(tmp_path, models[0], {})
        path = tmp_path / 'manifest.json'
        path.write_text(json.dumps(json.loads(path.read_text()) | change))
        with pytest.raises(ConfigError, match='is no manifest'):
            in_force(tmp_path)

    def test_has_whole_entries_in_its_history_or_none(
        self, tmp_path: Path, models: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def run_full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, 'No space left on device')

        slot = tmp_path / 'slot'
        with monkeypatch.context() as full:
            full.setattr(os, 'fsync', run_full)
            with pytest.raises(InputError, match=r'0001\.json: No space left on device'):
                promote(slot, models[0], {}, ANN)
        assert not any((slot / 'history').iterdir())
        assert promote(slot, models[0], {}, ANN).number == 1
        assert [entry['by'] for entry in history(slot)] == ['ann']

    def test_is_no_url(self) -> None:
        with pytest.raises(ConfigError, match="slot 's3://bucket/slot' is a URL: expected a name"):
            slot_folder('s3://bucket/slot')

    def test_by_name_lies_in_the_users_data(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
        assert slot_folder('embedded') == tmp_path / 'embodied_r_ros' / 'promoted' / 'embedded'
        assert slot_folder('./here') == Path('here')
        assert load_profile('embedded').servers['reasoner'].promoted == 'embedded'


class TestCommands:
    def test_publish_take_back_and_tell(
        self, tmp_path: Path, models: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
    ) -> None:
        own, shared = tmp_path / 'own', str(tmp_path / 'mounted' / 'slot')
        promoted = promote(own, models[1], {'accuracy': 0.7})
        words = ['models', 'publish', str(own), shared, '--why', 'a week of trial']
        assert main(words) == 0
        assert capsys.readouterr().out == f'{promoted.digest}\n'
        there = in_force(Path(shared))
        assert there
        assert (there.digest, there.record['accuracy']) == (promoted.digest, 0.7)
        assert there.folder.name == promoted.folder.name
        assert main(['models', 'rollback', shared]) == 0
        assert capsys.readouterr().out == "the profile's own model\n"
        assert main(['models', 'history', shared]) == 0
        events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [(event['by'], event['why']) for event in events] == [
            (user_name(), 'a week of trial'),
            (user_name(), ''),
        ]
        assert main(['models', 'rollback', shared]) == 2
        assert main(['models', 'publish', str(tmp_path / 'none'), shared]) == 2
        assert 'there is nothing to publish' in capsys.readouterr().err
        assert main(['models', 'history', str(tmp_path / 'none')]) == 0
        assert 'nothing was ever promoted in' in capsys.readouterr().err

    def test_serve_follows_instead_of_the_profiles_slot(self, tmp_path: Path) -> None:
        slot = str(tmp_path / 'slot')
        profile = load_profile('embedded-arm').with_overrides(follow=slot)
        assert profile.servers['reasoner'].promoted == slot
        with pytest.raises(ConfigError, match='has 0 servers that follow a slot'):
            load_profile('gpu-24gb').with_overrides('perceiver', follow=slot)


class TestServers:
    @pytest.fixture
    def serving(self, tmp_path: Path, models: tuple[Path, Path]) -> Iterator[tuple[Any, ...]]:
        """Servers that serve the old model, and what they said."""
        (tmp_path / 'server.py').write_text(SERVER)
        command = [sys.executable, str(tmp_path / 'server.py'), '{host}', '{port}', '{model}']
        entry = {'model': str(models[0]), 'command': command, 'port': 0}
        entry['promoted'] = str(tmp_path / 'slot')
        profile = profile_from_mapping('test', {'servers': {'reasoner': entry}})
        said: list[str] = []
        with ModelServers(profile, tmp_path, say=said.append) as servers:
            yield servers, said

    def test_take_what_is_promoted_behind_the_same_address_and_give_it_back(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        servers, _ = serving
        url = servers.clients()['reasoner'].url
        assert served_digest(url) == model_digest(models[0])
        process = servers.running[0].pid
        servers.follow()
        assert servers.running[0].pid == process
        promote(tmp_path / 'slot', models[1], {})
        servers.follow()
        assert served_digest(url) == model_digest(models[1])
        assert len(servers.running) == 1
        roll_back(tmp_path / 'slot')
        servers.follow()
        assert served_digest(url) == model_digest(models[0])

    def test_start_with_what_is_promoted(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        servers, _ = serving
        promoted = promote(tmp_path / 'slot', models[1], {})
        again = ModelServers(servers._profile, tmp_path)
        assert again.commands['reasoner'][-1] == str(promoted.folder)

    def test_go_on_as_before_where_the_new_model_does_not_start(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path, models: tuple[Path, Path]
    ) -> None:
        servers, said = serving
        url = servers.clients()['reasoner'].url
        promote(tmp_path / 'slot', model(tmp_path / 'broken', 'x'), {})
        servers.follow()
        assert served_digest(url) == model_digest(models[0])
        assert any('RuntimeError: no such layer' in line for line in said)
        before = len(said)
        (tmp_path / 'slot' / 'manifest.json').write_text('{')
        servers.follow()
        assert 'goes on as before, because' in said[before]
        servers.check()


def served_digest(url: str) -> str:
    listed = httpx.get(f'{url}/v1/models', timeout=10, trust_env=False).json()
    return model_digest(Path(listed['data'][0]['id']))


def answering(reasoner: Reasoner) -> ModelInfo:
    """The model that answers a question."""
    delta = SemanticDelta(5, DeltaKind.FIRST, change='A door.')
    question = Question('Where is the door?')
    return reasoner.answer(question, [delta], answer_id='a', now_ns=lambda: 5).model


def test_answer_names_the_model_that_spoke_and_not_the_one_before(
    models: tuple[Path, Path],
) -> None:
    said = Script(('<think>It is.</think><answer>here</answer>',))
    with ChatServer(said, name=str(models[0])) as server:
        reasoner = Reasoner(HttpChatClient(ChatConfig(url=server.url)), ReasonerConfig())

        def digest() -> str:
            return answering(reasoner).digest

        assert digest() == model_digest(models[0])
        # Another server behind the same address, without a failure in between.
        server.name = str(models[1])
        assert [digest(), digest()] == [model_digest(models[1])] * 2


# Serves the adapters that it was told to load, like vLLM, and says which one it was asked.
ADAPTERS = """
import http.server, json, sys
host, port, base = sys.argv[1], int(sys.argv[2]), sys.argv[3]
adapters = {}
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        loaded = [{'id': n, 'root': r, 'parent': 'base'} for n, r in adapters.items()]
        self.reply({'data': [{'id': 'base', 'root': base}, *loaded]})
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        if self.path == '/v1/load_lora_adapter' and body['lora_name'] in adapters:
            return self.reply({'message': 'The lora adapter x has already been loaded.'}, 400)
        if self.path == '/v1/load_lora_adapter' and 'broken' not in body['lora_path']:
            adapters[body['lora_name']] = body['lora_path']
        elif self.path == '/v1/unload_lora_adapter':
            if adapters.pop(body['lora_name'], None) is None:
                return self.reply({'message': 'cannot be found'}, 404)
        elif self.path != '/v1/chat/completions':
            return self.reply({'message': 'no such rank'}, 400)
        text = '<think>It is.</think><answer>here</answer>'
        event = {'model': body.get('model', 'base'), 'choices': [
            {'delta': {'content': text}, 'finish_reason': 'stop'}]}
        self.reply(event)
    def reply(self, value, status=200):
        chat = 'choices' in value
        text = json.dumps(value)
        self.send_response(status)
        self.send_header('Content-Type', 'text/event-stream' if chat else 'application/json')
        self.end_headers()
        self.wfile.write((f'data: {text}\\n\\n' if chat else text).encode())
http.server.HTTPServer((host, port), Handler).serve_forever()
"""


@dataclass(frozen=True)
class _Fleet:
    """Robots that follow one slot."""

    robots: list[ModelServers]
    said: list[str]

    def answers_by(self, promoted: PromotedModel, base: Path) -> bool:
        """Wait until every robot answers by an adapter, loaded under a name of its version."""
        digest = promoted.digest.removeprefix('sha256:')
        wanted = {(f'promoted-{digest[:12]}', model_digest(base, promoted.folder))}
        clients = [HttpChatClient(servers.clients()['reasoner']) for servers in self.robots]
        reasoners = [Reasoner(client, ReasonerConfig()) for client in clients]
        until, versions = time.monotonic() + PATIENCE_S, set[tuple[str, str]]()
        while versions != wanted and time.monotonic() < until:
            for servers in self.robots:
                servers.follow()
            infos = [answering(reasoner) for reasoner in reasoners]
            versions = {(info.adapter, info.digest) for info in infos}
        return versions == wanted


class TestAdapters:
    @pytest.fixture
    def base(self, tmp_path: Path) -> Path:
        return model(tmp_path / 'base', 'base')

    def profile(self, tmp_path: Path, base: Path, slot: str) -> Profile:
        (tmp_path / 'server.py').write_text(ADAPTERS)
        command = [sys.executable, str(tmp_path / 'server.py'), '{host}', '{port}', '{model}']
        entry = {'model': str(base), 'command': [*command, '--enable-lora'], 'port': 0}
        entry['promoted'] = slot
        return profile_from_mapping('test', {'servers': {'reasoner': entry}})

    @pytest.fixture
    def serving(self, tmp_path: Path, base: Path) -> Iterator[tuple[Any, ...]]:
        said: list[str] = []
        profile = self.profile(tmp_path, base, str(tmp_path / 'slot'))
        with ModelServers(profile, tmp_path, say=said.append) as servers:
            yield servers, said

    def adapter(self, folder: Path) -> Path:
        model(folder, folder.name)
        (folder / 'config.json').rename(folder / 'adapter_config.json')
        return folder

    def test_are_taken_by_the_running_server_and_named_in_answers(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path, base: Path
    ) -> None:
        servers, _ = serving
        process, slot = servers.running[0].pid, tmp_path / 'slot'
        reasoner = Reasoner(HttpChatClient(servers.clients()['reasoner']), ReasonerConfig())

        def digest() -> str:
            return answering(reasoner).digest

        assert digest() == model_digest(base)
        for name in ('first', 'second'):
            promoted = promote(slot, self.adapter(tmp_path / name), {})
            servers.follow()
            assert digest() == model_digest(base, promoted.folder)
        roll_back(slot)
        servers.follow()
        assert digest() == model_digest(base, tmp_path / 'first')
        roll_back(slot)
        servers.follow()
        assert digest() == model_digest(base)
        assert servers.running[0].pid == process

    def test_that_the_server_has_dropped_itself_do_not_stop_the_next(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path, base: Path
    ) -> None:
        servers, said = serving
        reasoner = Reasoner(HttpChatClient(servers.clients()['reasoner']), ReasonerConfig())
        first = promote(tmp_path / 'slot', self.adapter(tmp_path / 'first'), {})
        servers.follow()
        assert answering(reasoner).digest == model_digest(base, first.folder)
        name = f'promoted-{first.digest.removeprefix("sha256:")[:12]}'
        url = f'{servers.clients()["reasoner"].base_url()}/v1/unload_lora_adapter'
        assert httpx.post(url, json={'lora_name': name}).status_code == 200
        second = promote(tmp_path / 'slot', self.adapter(tmp_path / 'second'), {})
        servers.follow()
        assert 'took the adapter' in said[-1]
        assert answering(reasoner).digest == model_digest(base, second.folder)

    @pytest.fixture
    def fleet(self, tmp_path: Path, base: Path) -> Iterator[_Fleet]:
        """Two robots that mount one slot at two places."""
        (tmp_path / 'slot').mkdir()
        said: list[str] = []
        with ExitStack() as stack:
            robots = []
            for name in ('a', 'b'):
                (tmp_path / name).symlink_to(tmp_path / 'slot')
                profile = self.profile(tmp_path, base, str(tmp_path / name))
                logs = tmp_path / f'log-{name}'
                robots.append(stack.enter_context(ModelServers(profile, logs, say=said.append)))
            yield _Fleet(robots, said)

    def test_reach_all_robots_and_are_taken_back_from_all(
        self, fleet: _Fleet, tmp_path: Path, base: Path
    ) -> None:
        first = promote(tmp_path / 'a', self.adapter(tmp_path / 'first'), {})
        assert fleet.answers_by(first, base)
        second = promote(tmp_path / 'b', self.adapter(tmp_path / 'second'), {})
        assert fleet.answers_by(second, base)
        (tmp_path / 'slot').rename(tmp_path / 'away')
        before = len(fleet.said)
        for servers in fleet.robots:
            servers.follow()
        assert fleet.said[before:] == []  # while the drive is away, what serves goes on
        (tmp_path / 'away').rename(tmp_path / 'slot')
        assert fleet.answers_by(second, base)
        roll_back(tmp_path / 'a')
        assert fleet.answers_by(first, base)

    def test_that_are_loaded_already_are_taken(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path
    ) -> None:
        """As after a training that was killed: names are those of contents."""
        url = serving[0].clients()['reasoner'].base_url()
        for _ in range(2):
            swap_adapters(url, '', 'same', tmp_path)
        with pytest.raises(ModelError, match='status 400: no such rank'):
            swap_adapters(url, '', 'other', tmp_path / 'broken')

    def test_that_are_refused_leave_what_was(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path
    ) -> None:
        servers, said = serving
        promote(tmp_path / 'slot', self.adapter(tmp_path / 'broken'), {})
        servers.follow()
        assert 'goes on as before, because' in said[-1]
        assert 'no such rank' in said[-1]
        servers.check()

    def test_need_a_server_that_takes_them(
        self, serving: tuple[ModelServers, list[str]], tmp_path: Path
    ) -> None:
        servers, said = serving
        servers._adapters['reasoner']._config = replace(
            servers._configs['reasoner'], command=('transformers', 'serve')
        )
        promote(tmp_path / 'slot', self.adapter(tmp_path / 'first'), {})
        servers.follow()
        assert 'transformers takes no adapters: give --enable-lora' in said[-1]
