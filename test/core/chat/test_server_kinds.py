# SPDX-License-Identifier: Apache-2.0
"""What model servers do, a line for each kind: over real HTTP, with what should come of it."""

from __future__ import annotations

from dataclasses import replace
import json
import math
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, DeadlineError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest, ending_problem
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.serving.profiles import load_profile
import pytest
import yaml

from test.chat_server import ChatServer, RecordedRequest, Script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

USER = ChatMessage('user', 'Where?')
PLAIN = ChatRequest((USER,), Sampling(max_tokens=1000))
ANSWER = '<think>left</think><answer>B</answer>'
PIECES = ('<think>left', '</think>', '<answer>B</answer>')
CHOICES = replace(PLAIN, top_logprobs=2)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(default=Script(PIECES)) as running:
        yield running


def client_of(server: ChatServer, **settings: Any) -> HttpChatClient:
    return HttpChatClient(ChatConfig(server.url, backoff_s=0.01, **settings))


def reply_text(
    client: HttpChatClient, request: ChatRequest = PLAIN, deadline_s: float = 10
) -> str:
    return ''.join(chunk.text for chunk in client.stream(request, deadline_s))


def data_of(piece: str, finish: str | None = None, **more: Any) -> str:
    """The JSON of an event."""
    choice = {'index': 0, 'delta': {'content': piece}, 'finish_reason': finish, **more}
    return json.dumps({'choices': [choice]}, ensure_ascii=False)


def event(piece: str, finish: str | None = None, **more: Any) -> str:
    return f'data: {data_of(piece, finish, **more)}\n'


def body_of(text: str, **more: Any) -> str:
    """A whole reply, as of a request without a stream."""
    choice = {'message': {'role': 'assistant', 'content': text, **more}, 'finish_reason': 'stop'}
    return json.dumps({'model': 'm', 'choices': [choice]})


def broken_in_two(data: str) -> str:
    """The JSON of an event over two lines of data, as a writer of indented JSON breaks it."""
    return f'data: {data[:12]}\ndata: {data[12:]}\n'


EVENTS = tuple(event(piece) for piece in PIECES)
DONE = 'data: [DONE]\n'
STREAM = (*EVENTS, event('', 'stop'), DONE)
FRAMES: dict[str, Script] = {
    'lines end in CR': Script(
        raw=tuple(line.replace('\n', '\r') for line in STREAM), line_end='\r'
    ),
    'lines end in CRLF': Script(
        raw=tuple(line.replace('\n', '\r\n') for line in STREAM), line_end='\r\n'
    ),
    'an event over two data lines': Script(
        raw=(*(broken_in_two(data_of(piece)) for piece in PIECES), DONE)
    ),
    'empty data': Script(raw=('data:\n', *EVENTS[:1], 'data: \n', *EVENTS[1:], 'data:\n', DONE)),
    'comments': Script(raw=(': ping\n', *EVENTS[:2], ':\n', *EVENTS[2:], DONE)),
    'names and numbers of events': Script(
        raw=tuple(f'event: message\nid: {n}\nretry: 3\n{e}' for n, e in enumerate(STREAM))
    ),
    'no blank after the colon': Script(raw=tuple(e.replace('data: ', 'data:') for e in STREAM)),
    'a mark of byte order': Script(raw=('\ufeff' + STREAM[0], *STREAM[1:])),
    'no empty lines between events': Script(raw=tuple(line.strip() for line in STREAM)),
    'no line end at the end': Script(
        raw=(*EVENTS, event('', 'stop')[:-1]), line_end='\n', content_type='text/event-stream'
    ),
    'separators of lines within JSON': Script(
        raw=(event('<think>left\u2028\x85</think>'), event('<answer>B</answer>'), DONE)
    ),
    'plain text': Script(raw=STREAM, content_type='text/plain'),
    'capitals': Script(raw=STREAM, content_type='Text/Event-Stream'),
    'a charset': Script(raw=STREAM, content_type='text/event-stream; charset=utf-8'),
    'no type': Script(raw=STREAM, content_type=''),
    'bytes': Script(raw=STREAM, content_type='application/octet-stream'),
    'one body': Script(raw=(body_of(ANSWER),), content_type='application/json'),
    'one body over lines': Script(
        raw=(json.dumps(json.loads(body_of(ANSWER)), indent=1),), content_type='application/json'
    ),
    'one body that says it is a stream': Script(raw=(body_of(ANSWER),)),
    'one body of plain text': Script(raw=(body_of(ANSWER),), content_type='text/plain'),
    'one body with a thought of its own': Script(
        raw=(body_of('<answer>B</answer>', reasoning_content='left'),),
        content_type='application/json; charset=utf-8',
    ),
    'lines of JSON': Script(
        raw=(*map(data_of, PIECES), data_of('', 'stop')), content_type='application/x-ndjson'
    ),
    'text in the field of completions': Script(
        raw=(json.dumps({'choices': [{'text': ANSWER, 'finish_reason': 'stop'}]}),),
        content_type='application/json',
    ),
}


@pytest.mark.parametrize('kind', FRAMES)
def test_a_reply_is_read_however_it_is_framed(server: ChatServer, kind: str) -> None:
    server.play(FRAMES[kind])
    text = reply_text(client_of(server, retries=0))
    assert text.replace('\u2028\x85', '') == ANSWER


def test_pieces_come_at_once_where_lines_end_in_cr(server: ChatServer) -> None:
    lines = tuple(line.replace('\n', '\r') for line in STREAM)
    server.play(Script(raw=lines, line_end='\r', delay_s=0.2))
    start = time.monotonic()
    times = [time.monotonic() - start for _ in client_of(server).stream(PLAIN, 10)]
    assert times[0] < times[-1] - 0.2


@pytest.mark.parametrize('status', [301, 302, 307, 308])
@pytest.mark.parametrize('place', ['/other/v1/chat/completions', '{url}/x', 'x/'])
def test_requests_are_sent_on_within_a_host(server: ChatServer, status: int, place: str) -> None:
    location = {'Location': place.format(url=server.url)}
    server.play(Script(status=status, headers=location), Script(PIECES))
    assert reply_text(client_of(server, retries=0)) == ANSWER
    first, second = server.requests
    assert first.path != second.path
    assert first.body == second.body


@pytest.mark.parametrize('place', ['http://example.invalid/v1', 'ftp://127.0.0.1/', 'http://[:1'])
def test_requests_are_not_sent_on_to_others(server: ChatServer, place: str) -> None:
    server.play(Script(status=307, headers={'Location': place}))
    with pytest.raises(ModelError, match='sends requests on to') as error:
        reply_text(client_of(server, retries=0))
    assert place in str(error.value)


def test_requests_are_not_sent_on_for_ever(server: ChatServer) -> None:
    server.default = Script(status=308, headers={'Location': '/v1/chat/completions'})
    with pytest.raises(ModelError, match='sends requests on'):
        reply_text(client_of(server, retries=0))
    assert len(server.requests) < 10


@pytest.mark.parametrize('kind', ['text/html', 'text/plain', 'application/json', ''])
def test_what_is_no_reply_is_told_with_its_beginning(server: ChatServer, kind: str) -> None:
    server.play(Script(raw=('<html>Welcome to nginx',), content_type=kind))
    with pytest.raises(ModelError, match=r'is it a model server.*Welcome to nginx'):
        reply_text(client_of(server, retries=0))


# How servers say that there is no room, with the tokens that are left, of 1000 that were wanted.
NO_ROOM = {
    'vLLM 0.4': (
        "This model's maximum context length is 1024 tokens. However, you requested 1124 tokens "
        '(124 in the messages, 1000 in the completion). Please reduce the length of the messages '
        'or completion.',
        900,
    ),
    'vLLM 0.10': (
        "'max_tokens' or 'max_completion_tokens' is too large: 1000. This model's maximum context "
        'length is 1024 tokens and your request has 124 input tokens (1000 > 1024 - 124).',
        900,
    ),
    'vLLM 0.15': (
        "This model's maximum context length is 1024 tokens. However, your request has 124 input "
        "tokens plus 1000 'max_tokens'. Please reduce one or the other. (parameter=input_tokens, "
        'max_tokens, value=(124, 1000))',
        900,
    ),
    'SGLang': (
        "Requested token count exceeds the model's maximum context length of 1024 tokens. You "
        'requested a total of 1124 tokens: 124 tokens from the input messages and 1000 tokens for '
        'the completion. Please reduce the number of tokens in the input messages or the '
        'completion to fit within the limit.',
        900,
    ),
    'LiteLLM': (
        'litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - This '
        "model's maximum context length is 1,024 tokens. However, you requested 1,124 tokens (124 "
        'in the messages, 1,000 in the completion).',
        900,
    ),
    'OpenAI': (
        'max_tokens is too large: 1000. This model supports at most 512 completion tokens, '
        'whereas you provided 1000.',
        512,
    ),
    'Groq': (
        '`max_tokens` must be less than or equal to `512`, the maximum value for `max_tokens` is '
        'less than the `context_window` for this model',
        512,
    ),
    'TGI': (
        'Input validation error: `inputs` tokens + `max_new_tokens` must be <= 1024. Given: 124 '
        '`inputs` tokens and 1000 `max_new_tokens`',
        900,
    ),
    'DeepSeek': ('Invalid max_tokens value, the valid range of max_tokens is [1, 512]', 512),
    'DashScope': ('Range of max_tokens should be [1, 512]', 512),
    'Anthropic': (
        'max_tokens: 1000 > 512, which is the maximum allowed number of output tokens for it',
        512,
    ),
    'Mistral': (
        'Prompt contains 124 tokens and 1000 max tokens, too large for model with 1024 maximum '
        'context length',
        900,
    ),
}  # fmt: skip


@pytest.mark.parametrize('kind', NO_ROOM)
def test_tokens_are_lowered_to_the_room_and_that_is_remembered(
    server: ChatServer, kind: str
) -> None:
    words, room = NO_ROOM[kind]
    body = json.dumps({'error': {'message': words, 'type': 'invalid_request_error', 'code': 400}})

    server.default = lambda request: (
        Script(PIECES) if request.body['max_tokens'] <= room else Script(status=400, body=body)
    )
    client = client_of(server)
    assert reply_text(client) == reply_text(client) == ANSWER
    assert [request.body['max_tokens'] for request in server.requests] == [1000, room, room]
    assert [request.body.get('temperature') for request in server.requests] == [0.0] * 3


def test_room_is_one_less_where_the_whole_of_it_is_refused(server: ChatServer) -> None:
    words = NO_ROOM['SGLang'][0]
    server.default = lambda request: (
        Script(PIECES)
        if request.body['max_tokens'] < 900
        else Script(status=400, body=words.replace('1000', str(request.body['max_tokens'])))
    )
    assert reply_text(client_of(server)) == ANSWER
    assert server.requests[-1].body['max_tokens'] == 899


def test_no_room_at_all_is_told_in_the_words_of_the_server(server: ChatServer) -> None:
    words = 'the request exceeds the available context size (512 tokens), try increasing it'
    server.default = Script(status=400, body=json.dumps({'error': {'message': words}}))
    with pytest.raises(ModelError, match=r'available context size \(512 tokens\)'):
        reply_text(client_of(server))
    assert len(server.requests) == 1


CUTS = {
    'model_length of Mistral': ({}, 'model_length'),
    'usage': ({'usage': {'completion_tokens': 40, 'total_tokens': 1024}}, 'length'),
    'timings of llama.cpp': ({'timings': {'predicted_n': 40}}, 'length'),
}


@pytest.mark.parametrize('kind', CUTS)
def test_a_context_that_cuts_is_named_as_that(server: ChatServer, kind: str) -> None:
    more, reason = CUTS[kind]
    last = json.loads(data_of('', reason)) | more
    server.play(Script(raw=(event('<think>I see'), f'data: {json.dumps(last)}\n', DONE)))
    *_, chunk = client_of(server).stream(PLAIN, 10)
    assert chunk.ending == 'context'
    problem = ending_problem('<think>I see', chunk.ending, 1000)
    assert 'context' in problem
    assert 'raise max_tokens' not in problem


def test_a_limit_of_its_own_is_no_context(server: ChatServer) -> None:
    usage = {'usage': {'completion_tokens': 1000}}
    last = json.dumps(json.loads(data_of('', 'length')) | usage)
    server.play(Script(raw=(event('a'), f'data: {last}\n', DONE)))
    assert [chunk.ending for chunk in client_of(server).stream(PLAIN, 10)] == ['', 'length']


ENDS: dict[str, Script] = {
    'the word null': Script(PIECES, other_finish='null'),
    'the word None': Script(PIECES, other_finish='None'),
    'an empty word': Script(PIECES, other_finish=''),
    'stop on every piece': Script(PIECES, other_finish='stop'),
    'stop before the last piece': Script(
        raw=(*EVENTS[:2], event('', 'stop'), EVENTS[2], event('', 'stop'), DONE)
    ),
    'stop with the last piece but one': Script(
        raw=(EVENTS[0], event(PIECES[1], 'stop'), EVENTS[2], DONE)
    ),
    'no reason but the end': Script(raw=(*EVENTS, DONE)),
    'no end but a reason': Script(raw=(*EVENTS, event('', 'stop'))),
    'a connection that stays open after the reason': Script(
        raw=(*EVENTS, event('', 'stop'), ''), hang_after=4
    ),
    'the end of the body after the answer': Script(raw=EVENTS),
    'a break after the answer': Script(PIECES, cut_after=3),
    'a break after the answer, with a line end': Script((*PIECES, '\n'), cut_after=4),
    'a reason of another spelling': Script(PIECES, finish='STOP'),
    'a reason of another kind': Script(PIECES, finish='end_turn'),
    'thoughts after the answer': Script(
        raw=(*EVENTS, event('', None, delta={'reasoning_content': ''}), event('', 'stop'), DONE)
    ),
}  # fmt: skip


@pytest.mark.parametrize('kind', ENDS)
def test_what_was_said_counts_however_it_ends(server: ChatServer, kind: str) -> None:
    server.play(ENDS[kind])
    start = time.monotonic()
    assert reply_text(client_of(server, retries=0)).strip() == ANSWER
    assert len(server.requests) == 1
    assert time.monotonic() - start < 8  # of 10 until the deadline


@pytest.mark.parametrize('script', [Script(PIECES, cut_after=2), Script(raw=EVENTS[:2])])
def test_what_ends_within_the_answer_is_no_reply(server: ChatServer, script: Script) -> None:
    server.play(script)
    with pytest.raises(ModelError, match=r'broke the connection|ended the reply'):
        reply_text(client_of(server, retries=0))


def error_event(code: Any, words: str = 'try later') -> Script:
    return Script(raw=(f'data: {json.dumps({"error": {"message": words, "code": code}})}\n',))


WAITS: dict[str, tuple[Script, ...]] = {
    'loading': (Script(status=503, body='{"error": {"message": "Loading model"}}'),) * 6,
    'rate': (Script(status=429, body='Too many requests'),) * 6,
    'overload': (Script(status=529),) * 6,
    'gateway': (Script(status=502),),
    'gateway late': (Script(status=504),),
    'a cold start': (Script(PIECES, delay_s=0.5),),
    'error event 429': (error_event(429),) * 4,
    'error event 503': (error_event(503),) * 4,
    'error event 502': (error_event(502),),
    'error event of a code in quotes': (error_event('429'),) * 4,
    'error body': (
        Script(
            raw=('{"error": {"message": "overloaded", "code": 503}}',),
            content_type='application/json',
        ),
    )
    * 4,
    'a connection that breaks': (Script(status=0),),
    'nothing before the end': (Script(raw=('',)),),
}


@pytest.mark.parametrize('kind', WAITS)
def test_what_passes_is_waited_for_within_the_deadline(server: ChatServer, kind: str) -> None:
    server.play(*WAITS[kind])
    assert reply_text(client_of(server)) == ANSWER


def test_list_of_models_is_waited_for_too(server: ChatServer) -> None:
    server.list_scripts.extend([Script(status=503, body='Loading model')] * 6)
    server.models = [{'id': 'm'}]
    assert client_of(server, model='m').info(10).name == 'm'


def test_what_does_not_pass_is_named_at_the_deadline(server: ChatServer) -> None:
    server.default = Script(status=503, body='{"error": {"message": "Loading model"}}')
    with pytest.raises(ModelError, match=r'status 503: Loading model.*allow more time'):
        reply_text(client_of(server), deadline_s=2.0)
    assert len(server.requests) > 1


def test_waits_do_not_flood_the_server(server: ChatServer) -> None:
    server.default = Script(status=503)
    client = HttpChatClient(ChatConfig(server.url, backoff_s=0.05))
    with pytest.raises(ModelError, match='status 503'):
        reply_text(client, deadline_s=1.5)
    assert len(server.requests) < 8


def asks_for_logprobs(request: RecordedRequest) -> bool:
    return 'logprobs' in request.body


LISTS: dict[str, Any] = {
    'a list of numbers': [-0.1, -0.2],
    'a list of entries': [{'token': 'B', 'logprob': -0.1, 'top_logprobs': []}],
    'as of completions': {'tokens': ['B'], 'token_logprobs': [-0.1], 'top_logprobs': [{'B': -1}]},
    'content of words': {'content': ['B']},
    'a number': -0.1,
    'alternatives by token': {
        'content': [{'token': 'B', 'logprob': -0.1, 'top_logprobs': {'B': -0.1, 'C': -3.0}}]
    },
    'no numbers': {'content': [{'token': 'B', 'logprob': 'high', 'top_logprobs': None}]},
}


@pytest.mark.parametrize('kind', LISTS)
def test_log_probabilities_of_another_form_leave_the_answer(server: ChatServer, kind: str) -> None:
    events = [event(piece, logprobs=LISTS[kind]) for piece in PIECES]
    server.play(Script(raw=(*events, DONE)))
    chunks = list(client_of(server, retries=0).stream(CHOICES, 10))
    assert ''.join(chunk.text for chunk in chunks) == ANSWER
    tokens = [token for chunk in chunks for token in chunk.tokens]
    assert all(math.isfinite(token.logprob) for token in tokens)


REFUSALS: dict[str, Script] = {
    'a connection that is closed': Script(status=0),
    'a stream that is closed': Script(PIECES, cut_after=0),
    'an error': Script(status=500, body='Internal Server Error'),
    'a refusal': Script(status=400, body='{"detail": "logprobs are not supported"}'),
    'a refusal without a word': Script(status=422, body=''),
    'an event of an error': error_event(400, 'logprobs is not available'),
}


@pytest.mark.parametrize('kind', REFUSALS)
def test_log_probabilities_are_left_out_where_they_are_refused(
    server: ChatServer, kind: str
) -> None:
    server.default = lambda request: (
        REFUSALS[kind] if asks_for_logprobs(request) else Script(PIECES)
    )
    client = client_of(server)
    assert reply_text(client, CHOICES) == reply_text(client, CHOICES) == ANSWER
    assert [asks_for_logprobs(request) for request in server.requests][-2:] == [False] * 2
    assert len(server.requests) <= 4


def test_a_connection_that_broke_once_says_nothing_of_log_probabilities(
    server: ChatServer,
) -> None:
    server.play(Script(status=0))
    client = client_of(server)
    assert reply_text(client, CHOICES) == reply_text(client, CHOICES) == ANSWER
    assert all(map(asks_for_logprobs, server.requests))


class TestAccess:
    def test_a_profile_gives_headers_and_query(
        self, server: ChatServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        monkeypatch.setenv('MY_KEY', 'k-1234')
        server.models = [{'id': 'm'}]
        client = {
            'url': f'{server.url}/openai/deployments/d/chat/completions',
            'query': ['api-version=2024-10-21'],
            'headers': ['api-key: $MY_KEY', 'X-Title: robot'],
        }
        file = tmp_path / 'mine.yaml'
        file.write_text(yaml.safe_dump({'clients': {'reasoner': client}}))
        config = load_profile(str(file)).client('reasoner')
        assert 'k-1234' not in repr(config)
        assert reply_text(HttpChatClient(config)) == ANSWER
        (request,) = server.requests
        path = '/openai/deployments/d/chat/completions?api-version=2024-10-21'
        assert request.path == path
        assert request.headers['api-key'] == 'k-1234'
        assert request.headers['X-Title'] == 'robot'

    def test_the_list_of_models_is_asked_alike(
        self, server: ChatServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('MY_KEY', 'k-1234')
        server.models = [{'id': 'm'}]
        config = ChatConfig(
            server.url, 'm', query=('api-version=1',), headers=('api-key: $MY_KEY',)
        )
        assert HttpChatClient(config).info(5).name == 'm'

    def test_what_a_server_repeats_of_a_key_is_not_told(
        self, server: ChatServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('MY_KEY', 'k-1234')
        server.default = Script(status=403 + 1, body='{"detail": "key k-1234 is odd"}')
        with pytest.raises(ModelError, match=r'key \.\.\. is odd'):
            reply_text(client_of(server, headers=('api-key: $MY_KEY',)))

    @pytest.mark.parametrize('header', ['api-key: k-1234', 'Authorization: Bearer k', 'X-Token:t'])
    def test_no_secret_stands_in_a_profile(self, header: str) -> None:
        with pytest.raises(ConfigError, match=r'\$VARIABLE') as error:
            ChatConfig('http://127.0.0.1', headers=(header,))
        assert 'k-1234' not in str(error.value)

    @pytest.mark.parametrize(
        'settings',
        [{'headers': ('api-key',)}, {'headers': ('a b: c',)}, {'query': ('version',)}],
    )
    def test_what_is_none_is_named(self, settings: dict[str, Any]) -> None:
        with pytest.raises(ConfigError, match='expected'):
            ChatConfig('http://127.0.0.1', **settings)

    def test_a_variable_that_is_not_set_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv('MY_KEY', raising=False)
        with pytest.raises(ConfigError, match='MY_KEY'):
            HttpChatClient(ChatConfig('http://127.0.0.1', headers=('api-key: $MY_KEY',)))

    def test_a_key_never_travels_unencrypted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv('MY_KEY', 'k-1234')
        with pytest.raises(ConfigError, match='not encrypted: use https'):
            HttpChatClient(ChatConfig('http://gpu.example', headers=('api-key: $MY_KEY',)))


CALL = {'tool_calls': [{'index': 0, 'function': {'name': 'look', 'arguments': '{}'}}]}


@pytest.mark.parametrize('reason', ['tool_calls', 'stop', 'function_call'])
def test_a_reply_of_tool_calls_alone_is_named(server: ChatServer, reason: str) -> None:
    called = json.dumps({'choices': [{'delta': CALL, 'finish_reason': None}]})
    server.play(Script(raw=(f'data: {called}\n', event('', reason), DONE)))
    chunks = list(client_of(server).stream(PLAIN, 10))
    assert 'called a tool' in ending_problem('', chunks[-1].ending, 1000)


MISTAKES = {
    'in the choice': event('', 'error', error={'code': 502, 'message': 'engine died'}),
    'beside it': 'data: '
    + json.dumps(json.loads(data_of('', 'error')) | {'error': {'message': 'engine died'}})
    + '\n',
    'in the text': event('engine died', 'error'),
}


@pytest.mark.parametrize('kind', MISTAKES)
def test_an_error_as_the_reason_is_named_with_its_message(server: ChatServer, kind: str) -> None:
    server.default = Script(raw=(event('<think>'), MISTAKES[kind], DONE))
    with pytest.raises(ModelError, match='engine died'):
        reply_text(client_of(server, retries=0))


def test_a_cold_start_beyond_the_deadline_is_one_line(server: ChatServer) -> None:
    server.default = Script(PIECES, delay_s=5)
    with pytest.raises(DeadlineError, match='allow more time'):
        reply_text(client_of(server), deadline_s=0.5)
