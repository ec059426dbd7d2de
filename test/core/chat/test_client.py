# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
import gc
import json
import math
from pathlib import Path
import socket
import threading
import time
from typing import TYPE_CHECKING
import warnings

from embodied_r_ros.common.errors import CancelledError, ConfigError, DeadlineError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import (
    ChatChunk,
    ChatMessage,
    ChatRequest,
    TokenAlternatives,
)
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.core.types.deltas import ModelInfo
from embodied_r_ros.core.types.images import EncodedImage
import pytest

from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Iterator

QUESTION = ChatRequest((ChatMessage('user', 'Hi'),), Sampling(max_tokens=100))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


def client_of(server: ChatServer, **settings: object) -> HttpChatClient:
    return HttpChatClient(ChatConfig(url=server.url, backoff_s=0.01, **settings))  # type: ignore[arg-type]


def reply_text(
    client: HttpChatClient, request: ChatRequest = QUESTION, deadline_s: float = 10
) -> str:
    return ''.join(chunk.text for chunk in client.stream(request, deadline_s))


def open_sockets() -> int:
    links = [str(path.readlink()) for path in Path('/proc/self/fd').iterdir() if path.is_symlink()]
    return sum(link.startswith(('socket:', 'anon_inode:[eventpoll]')) for link in links)


def test_text_comes_piece_by_piece(server: ChatServer) -> None:
    server.play(Script(('a ', 'b ', 'c'), delay_s=0.2))
    start = time.monotonic()
    times = [time.monotonic() - start for _ in client_of(server).stream(QUESTION, 10)]
    assert len(times) == 3
    assert times[0] < times[2] - 0.2


def test_request_says_what_is_asked(server: ChatServer) -> None:
    sampling = Sampling(temperature=0.5, top_p=0.9, max_tokens=7, seed=3)
    reply_text(
        client_of(server, model='nano'), ChatRequest((ChatMessage('user', 'Hi'),), sampling)
    )
    assert server.requests[0].body == {
        'model': 'nano',
        'messages': [{'role': 'user', 'content': 'Hi'}],
        'stream': True,
        'max_tokens': 7,
        'temperature': 0.5,
        'top_p': 0.9,
        'seed': 3,
    }


def test_images_follow_the_text_byte_for_byte(server: ChatServer) -> None:
    images = (EncodedImage(b'\xff\xd8first', 'jpeg'), EncodedImage(b'\x89PNGsecond', 'png'))
    reply_text(client_of(server), ChatRequest((ChatMessage('user', 'Look', images),)))
    parts = server.requests[0].body['messages'][0]['content']
    assert [part['type'] for part in parts] == ['text', 'image_url', 'image_url']
    assert parts[2]['image_url']['url'].startswith('data:image/png;base64,')
    assert server.requests[0].images == [image.data for image in images]


def test_probabilities_arrive_with_their_tokens(server: ChatServer) -> None:
    top = (('A', math.log(0.75)), ('B', math.log(0.25)))
    server.play(Script(('A',), top=top))
    request = ChatRequest((ChatMessage('user', 'Hi'),), top_logprobs=2)
    (chunk,) = client_of(server).stream(request, 10)
    assert chunk.tokens == (TokenAlternatives('A', math.log(0.75), top),)
    assert server.requests[0].body['top_logprobs'] == 2


def test_thought_that_a_server_took_out_is_put_back(server: ChatServer) -> None:
    server.play(Script(('<answer>', 'B</answer>'), thought='left, so B'))
    assert reply_text(client_of(server)) == '<think>left, so B</think><answer>B</answer>'


def test_refused_schema_is_left_out_once_and_for_all(server: ChatServer) -> None:
    server.refused_fields = frozenset({'response_format'})
    client = client_of(server)
    request = ChatRequest((ChatMessage('user', 'Hi'),), json_schema={'type': 'object'})
    assert reply_text(client, request) == reply_text(client, request) == 'Hello there'
    assert ['response_format' in recorded.body for recorded in server.requests] == [
        True,
        False,
        False,
    ]


def test_refusal_may_come_within_the_stream(server: ChatServer) -> None:
    server.play(Script(raw=('data: {"error": {"message": "no such grammar", "code": 400}}',)))
    client = client_of(server)
    request = ChatRequest((ChatMessage('user', 'Hi'),), json_schema={'type': 'object'})
    assert reply_text(client, request) == 'Hello there'
    assert 'response_format' not in server.requests[1].body


def test_failure_of_a_server_is_no_refusal(server: ChatServer) -> None:
    server.play(Script(raw=('data: {"error": {"message": "engine died", "code": 500}}',)))
    client = client_of(server)
    request = ChatRequest((ChatMessage('user', 'Hi'),), json_schema={'type': 'object'})
    with pytest.raises(ModelError, match='gave up: engine died'):
        reply_text(client, request)
    reply_text(client, request)
    assert 'response_format' in server.requests[1].body


def test_schema_is_sent_where_the_server_takes_it(server: ChatServer) -> None:
    schema = {'type': 'object', 'required': ['a']}
    reply_text(client_of(server), ChatRequest((ChatMessage('user', 'Hi'),), json_schema=schema))
    assert server.requests[0].body['response_format']['json_schema']['schema'] == schema


@pytest.mark.parametrize('text', ['line\u2028separator', 'next\x85line', 'crlf\r\n', 'naïve 漢字'])
def test_text_is_not_broken_at_unusual_characters(server: ChatServer, text: str) -> None:
    server.play(Script((text,)))
    assert reply_text(client_of(server)) == text


def test_deadline_holds_over_the_whole_stream(server: ChatServer) -> None:
    server.play(Script(('word ',) * 100, delay_s=0.1))
    start = time.monotonic()
    with pytest.raises(DeadlineError, match=r'not done within 0\.5 s'):
        reply_text(client_of(server), deadline_s=0.5)
    assert time.monotonic() - start < 1.0
    assert server.wait_for(lambda state: state.disconnects == 1)


def test_deadline_holds_while_nothing_comes(server: ChatServer) -> None:
    server.play(Script(hang_after=0))
    start = time.monotonic()
    with pytest.raises(DeadlineError):
        reply_text(client_of(server), deadline_s=0.3)
    assert time.monotonic() - start < 0.8


@pytest.mark.parametrize('deadline_ms', [0, 1, 2, 3, 5, 8, 13])
def test_deadline_holds_at_every_step_of_a_request(server: ChatServer, deadline_ms: int) -> None:
    server.default = Script(hang_after=0)
    client = client_of(server)
    for step in range(10):
        with pytest.raises(DeadlineError):
            reply_text(client, deadline_s=(deadline_ms + step / 10) / 1000)


def test_deadline_holds_while_connecting() -> None:
    with socket.socket() as full:
        full.bind(('127.0.0.1', 0))
        full.listen(0)
        url = f'http://127.0.0.1:{full.getsockname()[1]}'
        # The backlog is full, so the next connection is never made.
        waiting = [socket.socket() for _ in range(4)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(full.getsockname())
        start = time.monotonic()
        with pytest.raises(DeadlineError):
            reply_text(HttpChatClient(ChatConfig(url=url, connect_timeout_s=60)), deadline_s=0.3)
        assert time.monotonic() - start < 0.8
        for each in waiting:
            each.close()


@pytest.mark.parametrize('script', [Script(hang_after=1), Script(('w ',) * 999, delay_s=0.02)])
def test_cancel_ends_the_generation_on_the_server(server: ChatServer, script: Script) -> None:
    server.play(script)
    cancel = threading.Event()
    threading.Timer(0.3, cancel.set).start()
    start = time.monotonic()
    with pytest.raises(CancelledError, match='cancelled'):
        list(client_of(server).stream(QUESTION, 20, cancel))
    assert time.monotonic() - start < 0.3 + 0.2
    assert server.wait_for(lambda state: state.disconnects == 1, timeout_s=0.5)


def test_dropped_iterator_ends_the_generation_too(server: ChatServer) -> None:
    server.play(Script(hang_after=1))
    chunks = client_of(server).stream(QUESTION, 20)
    next(chunks)
    chunks.close()  # type: ignore[attr-defined]
    assert server.wait_for(lambda state: state.disconnects == 1, timeout_s=0.5)


def test_nothing_is_left_open_and_no_thread_runs_on(server: ChatServer) -> None:
    client = client_of(server)
    reply_text(client)
    server.wait_for(lambda state: state.active == 0)
    threads, sockets = threading.active_count(), open_sockets()
    server.play(*[Script(), Script(cut_after=1), Script(status=404), Script(hang_after=1)] * 3)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter('always')
        for _ in range(12):
            with suppress(ModelError):
                reply_text(client, deadline_s=0.1)
        gc.collect()
    assert [str(warning.message) for warning in told] == []
    assert server.wait_for(lambda state: state.active == 0)
    time.sleep(0.05)
    assert threading.active_count() <= threads
    assert open_sockets() <= sockets


def test_passing_failure_is_tried_again(server: ChatServer) -> None:
    server.play(Script(status=503, body='loading'), Script(cut_after=0))
    assert reply_text(client_of(server, retries=2)) == 'Hello there'
    assert len(server.requests) == 3


def test_attempts_are_bounded(server: ChatServer) -> None:
    server.default = Script(status=502, body='{"error": {"message": "no worker"}}')
    with pytest.raises(ModelError, match='failed with status 502: no worker'):
        reply_text(client_of(server, retries=2))
    assert len(server.requests) == 3


def test_broken_stream_is_not_told_twice(server: ChatServer) -> None:
    server.play(Script(('one ', 'two ', 'three'), cut_after=2))
    heard: list[ChatChunk] = []
    with pytest.raises(ModelError, match=f'{server.url} (broke the connection|ended the reply)'):
        heard.extend(client_of(server).stream(QUESTION, 10))
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ('script', 'message'),
    [
        (Script(raw=('data: {"choices": [',)), 'not JSON'),
        (Script(raw=('data: [1]',)), 'no object'),
        (Script(raw=('data: {"choices": [{"delta": {"content": 3}}]}',)), 'not a chat completion'),
        (Script(raw=('data: {"error": "CUDA out of memory"}',)), 'gave up: CUDA out of memory'),
        (Script(raw=('data: ' + '[' * 100_000,)), 'not JSON'),
        (Script(raw=('data: {"error": {"message": "odd", "code": [400]}}',)), 'gave up: odd'),
        (Script(status=404, body='[' * 100_000), 'status 404'),
        (Script(content_type='text/html', raw=('<html>',)), 'is it a model server'),
        (Script(status=404, body='{"detail": "no such model"}'), 'status 404: no such model'),
    ],
)
def test_garbage_is_an_error_that_says_what_came(
    server: ChatServer, script: Script, message: str
) -> None:
    server.default = script
    with pytest.raises(ModelError, match=message):
        reply_text(client_of(server, retries=0))


def test_server_that_ignores_max_tokens_is_cut_off(server: ChatServer) -> None:
    server.play(Script(('x' * 1000, 'x' * 1000)))
    request = ChatRequest((ChatMessage('user', 'Hi'),), Sampling(max_tokens=4))
    with pytest.raises(ModelError, match='ignores max_tokens 4'):
        reply_text(client_of(server), request)


def test_absent_server_is_named_with_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        url = f'http://127.0.0.1:{free.getsockname()[1]}'
    with pytest.raises(ModelError, match=f'no model server at {url} .*embodied-r serve'):
        reply_text(HttpChatClient(ChatConfig(url=url, retries=0)))


def test_event_that_would_hold_the_interpreter_for_long_is_not_read(server: ChatServer) -> None:
    server.play(Script(raw=('data: [' + '0,' * 300_000 + '0]',)))
    with pytest.raises(ModelError, match='an event of more than 524288 bytes'):
        reply_text(client_of(server, retries=0))


def test_chunks_without_text_are_bounded_too(server: ChatServer) -> None:
    event = '{"choices": [{"delta": {}, "logprobs": {"content": [{"token": "", "logprob": 0}]}}]}'
    server.play(Script(raw=(f'data: {event}',) * 300))
    request = ChatRequest((ChatMessage('user', 'Hi'),), Sampling(max_tokens=1))
    with pytest.raises(ModelError, match='ignores max_tokens 1'):
        reply_text(client_of(server, retries=0), request)


def test_two_requests_run_at_once(server: ChatServer) -> None:
    server.default = Script(('a',) * 5, delay_s=0.1)
    client = client_of(server)
    threads = [threading.Thread(target=reply_text, args=(client,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert server.most_active == 2


class TestToken:
    def test_is_taken_from_the_environment(
        self, server: ChatServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        server.token = 'secret'
        with pytest.raises(ModelError, match=r'wants an access token.*set EMBODIED_R_TOKEN'):
            reply_text(client_of(server))
        monkeypatch.setenv('EMBODIED_R_TOKEN', 'secret')
        assert reply_text(client_of(server)) == 'Hello there'

    def test_is_read_from_a_file(
        self, server: ChatServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        server.token = 'secret'
        (tmp_path / 'token').write_text('secret\n')
        monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', str(tmp_path / 'token'))
        assert reply_text(client_of(server)) == 'Hello there'

    def test_file_that_is_missing_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', '/nowhere/token')
        with pytest.raises(ConfigError, match='EMBODIED_R_TOKEN_FILE names /nowhere/token'):
            ChatConfig().token()

    def test_never_travels_unencrypted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('EMBODIED_R_TOKEN', 'secret')
        with pytest.raises(ConfigError, match='not encrypted: use https'):
            HttpChatClient(ChatConfig(url='http://gpu.example:8000'))
        HttpChatClient(ChatConfig(url='https://gpu.example:8000'))


@pytest.mark.parametrize(
    'url',
    [
        '127.0.0.1:8000',
        'ftp://host',
        'http://',
        'http://me:pw@host',
        'http://[::1',
        'http://host:port',
        'http://host:65536',
        'http://\udcff',
        'http://host/\udcff',
    ],
)
def test_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match='expected http'):
        ChatConfig(url=url)


@pytest.mark.parametrize('ending', ['', '/', '/v1', '/v1/'])
def test_url_may_end_as_its_server_prints_it(server: ChatServer, ending: str) -> None:
    assert reply_text(HttpChatClient(ChatConfig(url=server.url + ending))) == 'Hello there'


def weights(folder: Path, content: bytes = b'weights') -> Path:
    folder.mkdir(exist_ok=True)
    (folder / 'config.json').write_text('{}')
    (folder / 'model.safetensors').write_bytes(content)
    return folder


class TestInfo:
    def test_listed_model_is_known_without_asking_it(self, server: ChatServer) -> None:
        server.models = [{'id': 'a'}, {'id': 'b'}]
        assert client_of(server, model='b').info(5).name == 'b'
        assert server.requests == []

    def test_server_without_a_list_is_asked_for_one_token(self, server: ChatServer) -> None:
        server.name = 'org/nano@main'
        assert client_of(server).info(5).name == 'org/nano'
        assert server.requests[0].body['max_tokens'] == 1

    def test_other_model_is_refused(self, server: ChatServer) -> None:
        server.models = [{'id': 'scripted'}]
        with pytest.raises(ModelError, match="serves scripted, not 'large'"):
            client_of(server, model='large').info(5)

    def test_absent_server_is_an_error(self) -> None:
        with pytest.raises(ModelError, match='no model server at'):
            HttpChatClient(ChatConfig(url='http://127.0.0.1:9')).info(5)

    def test_digest_is_that_of_the_folder_that_is_served(
        self, server: ChatServer, tmp_path: Path
    ) -> None:
        server.name = f'{weights(tmp_path)}@main'
        info = client_of(server, model=str(tmp_path)).info(5)
        assert info.name == tmp_path.name
        assert info.digest == model_digest(tmp_path)

    def test_digest_is_unknown_for_weights_elsewhere(self, server: ChatServer) -> None:
        server.models = [{'id': 'org/model', 'root': 'org/model'}]
        assert client_of(server, model='org/model').info(5).digest == ''

    @pytest.mark.parametrize('root', ['/no\0where', '/' + 'x' * 5000, 7, ['a'], None])
    def test_folder_that_cannot_be_is_no_folder(self, server: ChatServer, root: object) -> None:
        server.models = [{'id': 'm', 'root': root}]
        assert client_of(server, model='m').info(5) == ModelInfo('m')

    @pytest.mark.parametrize('listed', ['[' * 100_000, '{"data": 3}', '{"data": [3]}', 'no JSON'])
    def test_list_that_is_none_is_no_list(self, server: ChatServer, listed: str) -> None:
        server.listed = listed
        assert client_of(server).info(5).name == 'scripted'

    def test_adapter_is_told_from_its_model(self, server: ChatServer, tmp_path: Path) -> None:
        base, lora = weights(tmp_path / 'base'), weights(tmp_path / 'lora', b'adapter')
        server.models = [
            {'id': 'base', 'root': str(base), 'parent': None},
            {'id': 'tuned', 'root': str(lora), 'parent': 'base'},
        ]
        info = client_of(server, model='tuned').info(5)
        assert (info.name, info.adapter) == ('base', 'tuned')
        assert info.digest == model_digest(base, lora) != model_digest(base)

    def test_server_that_changed_its_model_is_asked_again(self, server: ChatServer) -> None:
        client = client_of(server)
        assert client.info(5).name == 'scripted'
        server.name = 'retrained'
        reply_text(client)
        assert client.info(5).name == 'retrained'


class TestDigest:
    def test_follows_the_weights_and_not_the_card(self, tmp_path: Path) -> None:
        before = model_digest(weights(tmp_path))
        (tmp_path / 'README.md').write_text('card')
        assert model_digest(tmp_path) == before
        assert model_digest(weights(tmp_path, b'other weights')) != before

    def test_follows_the_tokenizer(self, tmp_path: Path) -> None:
        before = model_digest(weights(tmp_path))
        (tmp_path / 'tokenizer.json').write_text(json.dumps({'a': 1}))
        assert model_digest(tmp_path) != before

    def test_folder_without_weights_is_refused(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match='holds no model'):
            model_digest(tmp_path)
