# SPDX-License-Identifier: Apache-2.0
"""Calls of tools in the streams of servers, each of which writes them in its own way."""

from __future__ import annotations

import json
from typing import Any

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import (
    ChatMessage,
    ChatRequest,
    EventReader,
    FunctionCall,
)
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.scene.registry import tool_schemas
import pytest

from test.chat_server import ChatServer, Script
from test.tool_events import of_llama, of_vllm, script

TWO = (('distance', '{"a": "chair"}'), ('where', '{"name": "table"}'))
REQUEST = ChatRequest((ChatMessage('user', 'Hi'),), tools=tuple(tool_schemas()))


def joined(played: Script) -> tuple[str, list[tuple[str, str, str]]]:
    """Text and calls of a stream."""
    reader = EventReader()
    chunks = [chunk for line in played.raw for chunk in reader.read(line.removeprefix('data: '))]
    chunks += filter(None, [reader.end(1000)])
    calls = [call for chunk in chunks for call in chunk.calls]
    return ''.join(c.text for c in chunks), [(c.id, c.name, c.arguments) for c in calls]


def piece(name: str | None, arguments: Any, **more: Any) -> dict[str, Any]:
    return {'tool_calls': [{**more, 'function': {'name': name, 'arguments': arguments}}]}


@pytest.mark.parametrize(
    ('deltas', 'ids'),
    [
        (of_vllm(*TWO), ('chatcmpl-tool-1', 'chatcmpl-tool-2')),
        (of_llama(*TWO), ('0llama', '1llama')),
        (  # LMDeploy: another call at the same index has a name and an id of its own
            [piece(n, '', index=0, id=f'id-{n}') for n, _ in TWO[:1]]
            + [piece(None, TWO[0][1], index=0, id='')]
            + [piece(TWO[1][0], '', index=0, id='id-2'), piece(None, TWO[1][1], index=0, id='')],
            ('id-distance', 'id-2'),
        ),
        (  # SGLang: every piece has the id
            [piece(n, '', index=i, id=str(i)) for i, (n, _) in enumerate(TWO)]
            + [piece(None, a, index=i, id=str(i)) for i, (_, a) in enumerate(TWO)],
            ('0', '1'),
        ),
        ([piece(name, json.loads(text)) for name, text in TWO], ('call_1', 'call_2')),
    ],
)
def test_calls_of_every_server_are_joined(
    deltas: list[dict[str, Any]], ids: tuple[str, ...]
) -> None:
    expected = [(own, *call) for own, call in zip(ids, TWO, strict=True)]
    assert joined(script(*deltas)) == ('', expected)
    assert joined(script(*deltas, finish='stop')) == ('', expected)


def test_a_thought_before_calls_is_closed() -> None:
    deltas = [{'reasoning_content': 'I need '}, {'reasoning_content': 'two.'}, *of_llama(*TWO)]
    text, calls = joined(script(*deltas))
    assert text == '<think>I need two.</think>'
    assert len(calls) == 2


def test_endless_arguments_end_the_reply() -> None:
    deltas = [piece('where', 'x' * 5000, index=0, id='a')] * 14
    with pytest.raises(ModelError, match='longer than'):
        joined(script(*deltas))


def test_tools_calls_and_results_are_sent_as_the_protocol_has_them() -> None:
    asked = FunctionCall('a1', 'distance', '{"a": "chair"}')
    messages = (
        *REQUEST.messages,
        ChatMessage('assistant', '', calls=(asked,)),
        ChatMessage('tool', '{"value": 2.0}', call_id='a1'),
    )
    with ChatServer(models=[{'id': 'scripted'}]) as server:
        client = HttpChatClient(ChatConfig(server.url))
        list(client.stream(ChatRequest(messages, tools=REQUEST.tools), 10.0))
        list(client.stream(ChatRequest(messages, tools=REQUEST.tools, may_call=False), 10.0))
    free, bound = (request.body for request in server.requests)
    assert free['tools'] == bound['tools'] == tool_schemas()
    assert (free['tool_choice'], bound['tool_choice']) == ('auto', 'none')
    function = {'name': 'distance', 'arguments': '{"a": "chair"}'}
    call = {'id': 'a1', 'type': 'function', 'function': function}
    assert free['messages'][1:] == [
        {'role': 'assistant', 'content': '', 'tool_calls': [call]},
        {'role': 'tool', 'content': '{"value": 2.0}', 'tool_call_id': 'a1'},
    ]


@pytest.mark.parametrize(
    ('status', 'said'),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
        (500, 'tools param requires --jinja flag'),
        (400, 'registry.ollama.ai/library/gemma3:4b does not support tools'),
    ],
)
def test_a_server_without_tools_is_asked_once_and_told_how(status: int, said: str) -> None:
    refusal = Script(status=status, body=json.dumps({'error': {'message': said}}))
    with ChatServer(default=refusal, models=[{'id': 'scripted'}]) as server:
        client = HttpChatClient(ChatConfig(server.url))
        with pytest.raises(ModelError, match=r'set reasoner\.tools: false') as error:
            list(client.stream(REQUEST, 10.0))
    assert said in str(error.value)
    assert len(server.requests) == 1


def test_a_server_that_takes_no_parallel_calls_is_asked_without() -> None:
    refused = frozenset({'parallel_tool_calls'})
    with ChatServer(models=[{'id': 'scripted'}], refused_fields=refused) as server:
        list(HttpChatClient(ChatConfig(server.url)).stream(REQUEST, 10.0))
    assert [len(request.body['tools']) for request in server.requests] == [len(tool_schemas())] * 2
    assert 'parallel_tool_calls' not in server.requests[1].body
