# SPDX-License-Identifier: Apache-2.0
"""What servers refuse, each in words of servers of today, and what is asked instead."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import json
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, DeadlineError, ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.connection import ImagesRefusedError, RefusedError
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.core.types.images import EncodedImage
import pytest

from test.chat_server import ChatServer, RecordedRequest, Script

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

USER = ChatMessage('user', 'Where?')
PLAIN = ChatRequest((USER,), Sampling(max_tokens=100))
WITH_SYSTEM = replace(PLAIN, messages=(ChatMessage('system', 'You are a robot.'), USER))
IMAGES = tuple(EncodedImage(b'\xff\xd8' + bytes([n]), 'jpeg') for n in range(2))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer() as running:
        yield running


def client_of(server: ChatServer, model: str = '', retries: int = 1) -> HttpChatClient:
    return HttpChatClient(ChatConfig(server.url, model, retries=retries, backoff_s=0.01))


def reply_text(
    client: HttpChatClient, request: ChatRequest = PLAIN, deadline_s: float = 10
) -> str:
    return ''.join(chunk.text for chunk in client.stream(request, deadline_s))


def request_with_images(*images: EncodedImage) -> ChatRequest:
    return replace(PLAIN, messages=(replace(USER, images=images),))


def refuses(
    detail: str, condition: Callable[[RecordedRequest], object], status: int = 400
) -> Callable[[RecordedRequest], Script]:
    """A server that refuses some requests, and answers the others."""
    body = json.dumps({'error': {'message': detail, 'type': 'invalid_request_error'}})
    return lambda request: Script(status=status, body=body) if condition(request) else Script()


def has_system(request: RecordedRequest) -> bool:
    return any(message['role'] == 'system' for message in request.body['messages'])


SYSTEM_REFUSALS = [
    (400, 'System role not supported'),
    (400, 'Conversation roles must alternate user/assistant/user/assistant/...'),
    (500, 'Jinja Exception: System role not supported'),
    (422, "messages.0.role: Input should be 'user' or 'assistant'"),
    (400, 'Only user and assistant roles are supported!'),
    (400, 'bad request'),
]


@pytest.mark.parametrize(('status', 'detail'), SYSTEM_REFUSALS)
def test_system_text_goes_before_the_users_where_there_is_no_such_role(
    server: ChatServer, status: int, detail: str
) -> None:
    server.default = refuses(detail, has_system, status)
    client = client_of(server)
    assert reply_text(client, WITH_SYSTEM) == reply_text(client, WITH_SYSTEM) == 'Hello there'
    roles = [[m['role'] for m in request.body['messages']] for request in server.requests]
    assert roles == [['system', 'user'], ['user'], ['user']]  # the second time at once
    assert server.requests[-1].text == 'You are a robot.\n\nWhere?'


def test_system_text_that_breaks_the_server_twice_goes_before_the_users(
    server: ChatServer,
) -> None:
    def default(request: RecordedRequest) -> Script:
        return (
            Script(status=500, body='Internal Server Error') if has_system(request) else Script()
        )

    server.default = default
    client = client_of(server)
    assert reply_text(client, WITH_SYSTEM) == reply_text(client, WITH_SYSTEM) == 'Hello there'
    assert [has_system(request) for request in server.requests] == [True, True, False, False]


def test_server_that_broke_once_keeps_its_system_role(server: ChatServer) -> None:
    server.play(Script(status=500, body='Internal Server Error'))
    client = client_of(server)
    assert reply_text(client, WITH_SYSTEM) == reply_text(client, WITH_SYSTEM) == 'Hello there'
    assert all(map(has_system, server.requests))


def test_requests_at_one_time_learn_from_the_first(server: ChatServer) -> None:
    server.default = refuses('System role not supported', has_system)
    client = client_of(server)
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: reply_text(client, WITH_SYSTEM), range(8)))
    assert replies == ['Hello there'] * 8
    assert sum(map(has_system, server.requests)) == 1


def test_turn_of_the_first_request_is_waited_for_no_longer_than_the_deadline(
    server: ChatServer,
) -> None:
    server.default = Script(hang_after=0)
    client = client_of(server)
    with ThreadPoolExecutor(2) as pool:
        late = [pool.submit(reply_text, client, WITH_SYSTEM, 0.4) for _ in range(2)]
    assert all(isinstance(each.exception(), DeadlineError) for each in late)


@pytest.mark.parametrize(
    'detail',
    [
        "Unsupported parameter: 'max_tokens' is not supported with this model. "
        "Use 'max_completion_tokens' instead.",
        'Unrecognized request argument supplied: max_tokens',
    ],
)
def test_limit_is_sent_under_its_other_name(server: ChatServer, detail: str) -> None:
    server.default = refuses(detail, lambda request: 'max_tokens' in request.body)
    client = client_of(server)
    assert reply_text(client) == reply_text(client) == 'Hello there'
    assert len(server.requests) == 3
    assert server.requests[-1].body['max_completion_tokens'] == 100
    assert 'max_tokens' not in server.requests[-1].body


def test_several_refusals_are_learned_one_after_the_other(
    server: ChatServer, caplog: pytest.LogCaptureFixture
) -> None:
    def default(request: RecordedRequest) -> Script:
        for name in ('max_tokens', 'temperature', 'logprobs'):
            if name in request.body:
                return Script(status=400, body=f'{{"detail": "{name} is not supported"}}')
        return refuses('no system role', has_system)(request)

    server.default = default
    client = client_of(server)
    request = replace(WITH_SYSTEM, top_logprobs=3)
    assert reply_text(client, request) == reply_text(client, request) == 'Hello there'
    assert len(server.requests) == 6
    (warning,) = [record.getMessage() for record in caplog.records]
    assert warning == f'{server.url} refuses temperature: it samples as it likes'


def test_refusal_that_nothing_mends_is_the_first_one_in_few_attempts(server: ChatServer) -> None:
    detail = "This model's maximum context length is 100 tokens, your request has max_tokens 900"
    server.default = refuses(detail, lambda request: True)
    with pytest.raises(RefusedError, match='maximum context length is 100'):
        reply_text(client_of(server), WITH_SYSTEM)
    assert len(server.requests) == 1


class TestModelNames:
    @staticmethod
    def wanting(request: RecordedRequest) -> Script:
        names = {'small', 'large'}
        if request.body.get('model') in names:
            return Script()
        detail = [{'type': 'missing', 'loc': ['body', 'model'], 'msg': 'Field required'}]
        return Script(status=422, body=json.dumps({'detail': detail}))

    def test_sole_model_is_used(self, server: ChatServer) -> None:
        server.default, server.models = self.wanting, [{'id': 'small'}]
        client = client_of(server)
        assert reply_text(client) == reply_text(client) == 'Hello there'
        assert [request.body.get('model') for request in server.requests] == [
            None,
            'small',
            'small',
        ]

    def test_sole_model_is_tried_whatever_the_words(self, server: ChatServer) -> None:
        server.models = [{'id': 'small'}, {'id': 'tuned', 'parent': 'small'}]
        server.default = refuses('Please pass a valid model', lambda r: 'model' not in r.body)
        assert reply_text(client_of(server), WITH_SYSTEM) == 'Hello there'
        assert server.requests[-1].body['model'] == 'small'

    def test_several_are_named_in_one_line(self, server: ChatServer) -> None:
        server.default, server.models = self.wanting, [{'id': 'small'}, {'id': 'large'}]
        with pytest.raises(ModelError) as error:
            client_of(server).info(10)
        assert f'small, large): name one, as {server.url}#small' in str(error.value)
        assert '\n' not in str(error.value)

    def test_url_may_name_the_model(self, server: ChatServer) -> None:
        server.default, server.models = self.wanting, [{'id': 'small'}, {'id': 'large'}]
        client = HttpChatClient(ChatConfig(f'{server.url}/v1#large'))
        assert reply_text(client) == 'Hello there'
        assert server.requests[0].body['model'] == 'large'

    def test_model_that_is_not_served_is_named_beside_those_that_are(
        self, server: ChatServer
    ) -> None:
        server.default, server.models = self.wanting, [{'id': 'small'}, {'id': 'large'}]
        with pytest.raises(ModelError, match="serves small, large, not 'huge'"):
            client_of(server, 'huge').info(10)

    @pytest.mark.parametrize(('url', 'model'), [('http://h#', ''), ('http://h#a', 'b')])
    def test_name_must_be_one(self, url: str, model: str) -> None:
        with pytest.raises(ConfigError, match='expected URL#MODEL'):
            ChatConfig(url, model)


class TestWaits:
    @pytest.mark.parametrize('status', [429, 503])
    def test_server_is_left_alone_as_long_as_it_says(
        self, server: ChatServer, status: int
    ) -> None:
        busy = Script(status=status, headers={'Retry-After': '1'})
        server.play(busy, busy)
        start = time.monotonic()
        assert reply_text(client_of(server, retries=0)) == 'Hello there'
        assert time.monotonic() - start >= 2.0
        assert len(server.requests) == 3

    def test_first_probe_waits_too(self, server: ChatServer) -> None:
        server.list_scripts.append(Script(status=429, headers={'retry-after-ms': '200'}))
        server.play(Script(status=429, headers={'Retry-After': '0'}))
        assert client_of(server, retries=0).info(10).name == 'scripted'

    def test_date_is_read_against_that_of_the_reply(self, server: ChatServer) -> None:
        date = 'Fri, 25 Nov 2099 11:00:00 GMT'
        server.play(Script(status=429, headers={'Retry-After': date}))
        with pytest.raises(ModelError, match=r'left alone for \d+ s'):
            reply_text(client_of(server), deadline_s=5)

    def test_wait_beyond_the_deadline_is_not_begun(self, server: ChatServer) -> None:
        server.play(Script(status=429, body='slow down', headers={'Retry-After': '60'}))
        start = time.monotonic()
        with pytest.raises(ModelError, match=r'status 429: slow down; .* left alone for 60 s'):
            reply_text(client_of(server), deadline_s=20)
        assert time.monotonic() - start < 10
        assert len(server.requests) == 1


FEW_IMAGES = [
    'At most 1 image(s) may be provided in one request.',
    'At most 1 image(s) may be provided in one prompt. Set --limit-mm-per-prompt to raise it',
    'You set image=1 (or defaulted to 1) in `--limit-mm-per-prompt`. Found 2 items',
    'multiple images are not supported by this model',
    'bad request',
]
BLIND = [
    (400, 'This model is not a multimodal model'),
    (500, 'image input is not supported - hint: you may need to provide the mmproj'),
    (422, 'messages.0.content: Input should be a valid string'),
    (400, 'this model does not support image input'),
    (400, "unknown variant `image_url`, expected `text`"),
    (400, 'bad request'),
]  # fmt: skip


class TestImages:
    @pytest.mark.parametrize('detail', FEW_IMAGES)
    def test_too_many_are_refused_once(self, server: ChatServer, detail: str) -> None:
        server.default = refuses(detail, lambda request: len(request.images) > 1)
        client = client_of(server)
        for _ in range(3):
            with pytest.raises(ImagesRefusedError, match='--limit-mm-per-prompt') as error:
                reply_text(client, request_with_images(*IMAGES))
            assert error.value.limit == 1
        refused = [request for request in server.requests if len(request.images) > 1]
        assert len(refused) <= 2  # where its words do not tell, one more with images of our own
        assert reply_text(client, request_with_images(IMAGES[0])) == 'Hello there'

    @pytest.mark.parametrize(('status', 'detail'), BLIND)
    def test_server_without_vision_is_asked_once(
        self, server: ChatServer, status: int, detail: str
    ) -> None:
        server.default = refuses(detail, lambda request: request.images, status)
        client = client_of(server)
        for images in (IMAGES, IMAGES, IMAGES[:1]):
            with pytest.raises(ImagesRefusedError, match='has no vision') as error:
                reply_text(client, request_with_images(*images))
            assert error.value.limit == 0
        assert sum(bool(request.images) for request in server.requests) <= 3
        assert reply_text(client) == 'Hello there'

    def test_one_request_that_is_refused_says_nothing_of_others(self, server: ChatServer) -> None:
        server.default = refuses('bad pixels', lambda request: IMAGES[1].data in request.images)
        client = client_of(server)
        with pytest.raises(RefusedError, match='bad pixels') as error:
            reply_text(client, request_with_images(*IMAGES))
        assert not isinstance(error.value, ImagesRefusedError)
        assert reply_text(client, request_with_images(IMAGES[0], IMAGES[0])) == 'Hello there'


def event(delta: dict[str, object], finish: str | None = None, **more: object) -> str:
    choice = {'index': 0, 'delta': delta, 'finish_reason': finish, **more}
    return f'data: {json.dumps({"choices": [choice]})}\n'


class TestReplies:
    def test_empty_reason_ends_nothing(self, server: ChatServer) -> None:
        server.play(Script(('one ', 'two ', 'three'), other_finish=''))
        assert reply_text(client_of(server)) == 'one two three'

    def test_content_may_come_in_typed_parts(self, server: ChatServer) -> None:
        thinking = {'type': 'thinking', 'thinking': [{'type': 'text', 'text': 'left, so B'}]}
        answer = {'type': 'text', 'text': '<answer>B</answer>'}
        server.play(
            Script(raw=(event({'content': [thinking]}), event({'content': [answer]}, 'stop')))
        )
        assert reply_text(client_of(server)) == '<think>left, so B</think><answer>B</answer>'

    def test_token_without_a_probability_leaves_the_answer_whole(self, server: ChatServer) -> None:
        top = [{'token': 'B', 'logprob': -0.1}, {'token': 'C', 'logprob': None}, None]
        entries = [
            {'token': 'A', 'logprob': None, 'top_logprobs': None},
            {'token': 'B', 'logprob': -0.1, 'top_logprobs': top},
            None,
        ]
        raw = (event({'content': 'AB'}, logprobs={'content': entries}), event({}, 'stop'))
        server.play(Script(raw=raw))
        (chunk,) = client_of(server).stream(replace(PLAIN, top_logprobs=2), 10)
        assert chunk.text == 'AB'
        assert [(token.token, token.top) for token in chunk.tokens] == [('B', (('B', -0.1),))]

    @pytest.mark.parametrize(
        ('thought', 'pieces', 'text'),
        [
            ('left', ('<answer>', 'B</answer>'), '<think>left</think><answer>B</answer>'),
            ('left', ('\n<th', 'ink>so B</think>', 'B'), '<think>left\nso B</think>B'),
            ('<think>left</think>B', (), '<think>left</think>B'),
            ('left</think>B', (), '<think>left</think>B'),
            ('<think>left</think>', ('B',), '<think>left</think>B'),
            ('left', ('</think>', 'B'), '<think>left</think>B'),
            ('\n', ('<think>left</think>', 'B'), '<think>left</think>B'),
            ('\n\n', ('B',), '<think>\n\n</think>B'),
            ('left', ('<', '3'), '<think>left</think><3'),
        ],
    )
    def test_there_is_one_thought_whoever_writes_the_tags(
        self, server: ChatServer, thought: str, pieces: tuple[str, ...], text: str
    ) -> None:
        server.play(Script(pieces, thought=thought))
        assert reply_text(client_of(server)) == text

    @pytest.mark.parametrize(
        ('finish', 'ending'),
        [('length', 'length'), ('max_tokens', 'length'), ('SAFETY', 'content_filter')],
    )
    def test_words_for_an_ending_differ(
        self, server: ChatServer, finish: str, ending: str
    ) -> None:
        server.play(Script(('a',), finish=finish))
        assert [chunk.ending for chunk in client_of(server).stream(PLAIN, 10)] == ['', ending]

    def test_why_it_ended_is_said_where_that_is_not_as_usual(self, server: ChatServer) -> None:
        server.play(Script(('a',), finish='length'), Script(('a',)))
        client = client_of(server)
        assert [chunk.ending for chunk in client.stream(PLAIN, 10)] == ['', 'length']
        assert [chunk.ending for chunk in client.stream(PLAIN, 10)] == ['']
