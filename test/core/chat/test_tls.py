# SPDX-License-Identifier: Apache-2.0
"""Model servers behind real TLS, and the token that is told to them and to nobody else."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.serving.profiles import load_profile, profile_names
from embodied_r_ros.serving.served import served_model
import pytest

from test.certificates import Authority
from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = 'tok-5ecret-value'
QUESTION = ChatRequest((ChatMessage('user', 'Hi'),), Sampling(max_tokens=100))


@pytest.fixture(scope='module')
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp('authority'))


@pytest.fixture
def server(authority: Authority) -> Iterator[ChatServer]:
    with ChatServer(tls=authority.server(), token=TOKEN) as running:
        yield running


@pytest.fixture
def trusting(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('EMBODIED_R_CA_FILE', str(authority.ca_file))
    monkeypatch.setenv('EMBODIED_R_TOKEN', TOKEN)


def reply_text(server: ChatServer, url: str = '') -> str:
    client = HttpChatClient(ChatConfig(url=url or server.url, retries=0))
    return ''.join(chunk.text for chunk in client.stream(QUESTION, 10))


@pytest.mark.usefixtures('trusting')
def test_an_answer_comes_over_tls_with_a_token(server: ChatServer) -> None:
    assert server.url.startswith('https://')
    assert reply_text(server) == 'Hello there'
    assert server.requests[0].headers['Authorization'] == f'Bearer {TOKEN}'


@pytest.mark.usefixtures('trusting')
def test_a_model_given_as_a_url_is_reached_in_the_same_way(server: ChatServer) -> None:
    with served_model(server.url) as config:
        assert 'https' in config.url
        assert reply_text(server, config.url) == 'Hello there'


def test_an_unknown_authority_is_refused_with_what_to_do(
    server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('EMBODIED_R_TOKEN', TOKEN)
    with pytest.raises(ModelError, match=r'not to be trusted .* in EMBODIED_R_CA_FILE'):
        reply_text(server)
    assert server.requests == []


def test_another_authority_is_refused(
    server: ChatServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = Authority(tmp_path / 'other')
    monkeypatch.setenv('EMBODIED_R_CA_FILE', str(other.ca_file))
    with pytest.raises(ModelError, match='not to be trusted'):
        reply_text(server)


@pytest.mark.usefixtures('trusting')
def test_a_certificate_of_another_host_is_refused(authority: Authority) -> None:
    with (
        ChatServer(tls=authority.server('DNS:gpu.example')) as impostor,
        pytest.raises(ModelError, match='not to be trusted'),
    ):
        reply_text(impostor)


@pytest.mark.usefixtures('trusting')
def test_plain_http_is_no_tls(server: ChatServer) -> None:
    with ChatServer() as plain, pytest.raises(ModelError, match=r'no model server|broke the'):
        reply_text(plain, plain.url.replace('http:', 'https:'))
    with pytest.raises(ModelError):
        reply_text(server, server.url.replace('https:', 'http:'))


@pytest.mark.parametrize('content', [None, '', 'no certificate'])
def test_a_file_without_certificates_is_named(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'ca.pem'
    if content is not None:
        path.write_text(content)
    monkeypatch.setenv('EMBODIED_R_CA_FILE', str(path))
    with pytest.raises(ConfigError, match=f'EMBODIED_R_CA_FILE names {path}: .*expected'):
        HttpChatClient(ChatConfig(url='https://gpu.example'))


# What servers have been seen to do with a token that they do not like.
ECHOES = [
    Script(status=500, body=json.dumps({'error': {'message': f'bad header Bearer {TOKEN}'}})),
    Script(status=400, body=f'Incorrect API key provided: {TOKEN}.'),
    Script(raw=(f'data: {{"error": {{"message": "key {TOKEN} has no quota", "code": 429}}}}',)),
    Script(raw=(f'data: your key is {TOKEN}',)),
    Script(status=500, body='x' * 290 + TOKEN),  # cut off within the token
    Script(content_type=f'text/{TOKEN}', raw=(TOKEN,)),
]


@pytest.mark.usefixtures('trusting')
@pytest.mark.parametrize('script', ECHOES)
def test_a_server_that_repeats_the_token_does_not_make_us_tell_it(
    server: ChatServer, script: Script
) -> None:
    server.default = script
    with pytest.raises(ModelError) as told:
        reply_text(server)
    assert server.requests
    assert TOKEN[:5] not in ''.join(traceback.format_exception(told.value))


@pytest.mark.usefixtures('trusting')
def test_a_model_that_repeats_the_token_is_not_quoted(server: ChatServer) -> None:
    server.play(Script((f'I was sent {TOKEN}.',)))
    assert reply_text(server) == 'I was sent ....'


@pytest.mark.parametrize('tail', ['\n# comment', ' two words', '\x00', 'ü', '\x7f'])
def test_what_is_no_token_is_refused_without_telling_it(
    tail: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'token').write_text(TOKEN + tail + TOKEN, encoding='utf-8')
    monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', str(tmp_path / 'token'))
    with pytest.raises(ConfigError, match=r'EMBODIED_R_TOKEN_FILE .* holds no token') as told:
        HttpChatClient(ChatConfig())
    assert TOKEN not in ''.join(traceback.format_exception(told.value))


def test_bytes_that_are_no_text_are_not_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / 'token').write_bytes(TOKEN.encode() + b'\xff')
    monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', str(tmp_path / 'token'))
    with pytest.raises(ConfigError, match='cannot be read: it is not text') as told:
        HttpChatClient(ChatConfig())
    assert TOKEN not in ''.join(traceback.format_exception(told.value))


@pytest.mark.parametrize(
    'url',
    [
        f'https://me:{TOKEN}@gpu.example',
        f'https://{TOKEN}@gpu.example',
        f'https://gpu.example/?key={TOKEN}',
        f'https://gpu.example/v1?key={TOKEN}#part',
    ],
)
def test_a_url_with_a_secret_in_it_is_refused_without_telling_it(url: str) -> None:
    with pytest.raises(ConfigError, match='EMBODIED_R_TOKEN') as told:
        ChatConfig(url=url)
    assert TOKEN not in str(told.value)
    assert 'gpu.example' in str(told.value)


@pytest.mark.usefixtures('trusting')
def test_nothing_that_a_client_is_or_says_holds_the_token(server: ChatServer) -> None:
    config = ChatConfig(url=server.url)
    client = HttpChatClient(config)
    said = [repr(config), repr(client), str(client.info(10))]
    for deadline_s in (0.0, 10.0):
        try:
            said += [chunk.text for chunk in client.stream(QUESTION, deadline_s)]
        except EmbodiedRError as error:
            said.append(str(error))
    assert not [text for text in said if TOKEN in text]


@pytest.mark.parametrize('name', profile_names())
def test_every_shipped_server_listens_on_this_machine_alone(name: str) -> None:
    hosts = {server.host for server in load_profile(name).servers.values()}
    assert hosts <= {'127.0.0.1'}  # one without a model has none
