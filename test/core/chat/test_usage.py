# SPDX-License-Identifier: Apache-2.0
"""What calls cost, as servers say: asked for by fleets alone."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.work import CALLS, METER, TOKENS
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.core.chat.settings import ChatConfig
import pytest

from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Sequence

QUESTION = ChatRequest((ChatMessage('user', 'Hi'),))
TEXT = {'choices': [{'delta': {'content': 'yes'}}]}
END = {'choices': [{'delta': {}, 'finish_reason': 'stop'}]}


def usage(total: int) -> dict[str, Any]:
    return {'usage': {'prompt_tokens': total - 2, 'completion_tokens': 2, 'total_tokens': total}}


@pytest.mark.parametrize(
    ('events', 'tokens'),
    [
        ([TEXT, END, {'choices': [], **usage(12)}], 12),  # after the end, as vLLM does
        ([TEXT | usage(11), END | usage(12)], 12),  # with each event, of all until then
        ([TEXT, END], 0),
        ([TEXT | {'usage': None}, END | {'usage': {'total_tokens': 'many'}}], 0),
    ],
)
def test_tokens_are_counted_where_the_server_tells(
    monkeypatch: pytest.MonkeyPatch, events: Sequence[dict[str, Any]], tokens: int
) -> None:
    monkeypatch.setattr(METER, 'asks_for_tokens', True)
    lines = [f'data: {json.dumps(event)}' for event in events]
    with ChatServer() as server:
        server.play(Script(raw=(*lines, 'data: [DONE]')), Script(raw=tuple(lines)))
        client, before = HttpChatClient(ChatConfig(url=server.url)), METER.read()
        for _ in range(2):
            assert ''.join(chunk.text for chunk in client.stream(QUESTION, 10)) == 'yes'
        assert server.requests[0].body['stream_options'] == {'include_usage': True}
    done = METER.read()
    assert (done[TOKENS] - before[TOKENS], done[CALLS] - before[CALLS]) == (2 * tokens, 2)


def test_a_server_that_knows_no_such_field_is_asked_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ChatServer(refused_fields=frozenset({'stream_options'})) as server:
        client = HttpChatClient(ChatConfig(url=server.url))
        assert list(client.stream(QUESTION, 10))
        assert 'stream_options' not in server.requests[0].body
        monkeypatch.setattr(METER, 'asks_for_tokens', True)
        assert ''.join(chunk.text for chunk in client.stream(QUESTION, 10)) == 'Hello there'
        assert ['stream_options' in r.body for r in server.requests] == [False, True, False]
