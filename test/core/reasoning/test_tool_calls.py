# SPDX-License-Identifier: Apache-2.0
"""A large model that calls the scene's tools: the loop, its ends, and how it is recorded."""

from __future__ import annotations

from dataclasses import replace
import json
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import CancelledError, ConfigError
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.prompts import recorded_prompt, SYSTEM_OF_TOOLS
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.scene.registry import tool_schemas
from embodied_r_ros.core.types.answers import AnswerKind, Check
import pytest

from test.chat_server import ChatServer, Script
from test.core.scene.test_registry import PLACE
from test.tool_events import of_llama, of_vllm, script

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.core.types.answers import Answer

NOW_NS = 1_100_000_000
FAR = Question('How far is the chair from you?', scene_map=PLACE)
ODD = Question('Chair, and its remoteness?', scene_map=PLACE)  # read by no reader of ours
CHAIR = ('distance', '{"a": "chair"}')
TABLE = ('distance', '{"a": "table"}')
RIGHT = Script(('<think>The tool says 1.5 m.</think>', '<answer>1.5 m</answer>'))
WRONG = Script(('<think>The tool says 5 m.</think><answer>5.0 m</answer>',))


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A scripted model server."""
    with ChatServer(default=RIGHT, models=[{'id': 'scripted'}]) as made:
        yield made


def reasoner_of(server: ChatServer, **settings: Any) -> Reasoner:
    client = HttpChatClient(ChatConfig(server.url, 'scripted', retries=0))
    return Reasoner(client, ReasonerConfig(tools=True, **settings))


def ask(server: ChatServer, question: Question = FAR, **more: Any) -> Answer:
    reasoner = reasoner_of(server, **more.pop('settings', {}))
    return reasoner.answer(question, (), answer_id='run-1', now_ns=lambda: NOW_NS, **more)


def told(server: ChatServer, number: int) -> list[dict[str, Any]]:
    """What the tools said before a request, as JSON."""
    messages = server.requests[number].body['messages']
    return [json.loads(each['content']) for each in messages if each['role'] == 'tool']


def test_a_call_in_pieces_is_run_and_its_result_told(server: ChatServer) -> None:
    heard: list[str] = []
    server.play(script(*of_vllm(CHAIR)))
    answer = ask(server, listener=lambda phase, text: heard.append(text))
    first, second = (request.body for request in server.requests)
    assert first['tools'] == tool_schemas()
    assert first['messages'][0]['content'] == SYSTEM_OF_TOOLS
    assert [message['role'] for message in second['messages']] == [
        'system', 'user', 'assistant', 'tool',
    ]  # fmt: skip
    assert second['messages'][3]['tool_call_id'] == 'chatcmpl-tool-1'
    (result,) = told(server, 1)
    assert result['value'] == pytest.approx(1.5, abs=0.1)
    assert 'The chair is' in result['text']
    assert (answer.text, answer.check, answer.turns) == ('1.5 m', Check.VERIFIED, ('',))
    (call,) = answer.calls
    assert (call.turn, call.request_id, call.request) == (1, 'chatcmpl-tool-1', CHAIR[1])
    assert json.loads(call.reply) == result
    assert call.text in ''.join(heard)
    assert answer.model.prompt_version == 'tools-1'


def test_two_calls_at_once_are_run_in_their_order(server: ChatServer) -> None:
    server.play(script(*of_llama(TABLE, CHAIR)))
    answer = ask(server)
    assert [result['text'].split()[1] for result in told(server, 1)] == ['table', 'chair']
    assert [(call.turn, call.request) for call in answer.calls] == [(1, TABLE[1]), (1, CHAIR[1])]


def test_a_wrong_call_gets_its_error_and_may_be_mended(server: ChatServer) -> None:
    bad = [('fly', '{}'), ('distance', '{"thing": "chair"}'), ('distance', '{"a": ')]
    server.play(script(*of_vllm(*bad)), script(*of_vllm(CHAIR, first=4)))
    answer = ask(server)
    errors = [result['error'] for result in told(server, 1)]
    assert "there is no tool 'fly'" in errors[0]
    assert "takes no 'thing'" in errors[1]
    assert 'expected an object of JSON' in errors[2]
    sent = server.requests[1].body['messages'][2]['tool_calls']
    assert sent[2]['function']['arguments'] == '{}'  # servers refuse a history without JSON
    assert answer.calls[2].request == '{"a": '
    assert (answer.check, len(answer.turns)) == (Check.VERIFIED, 2)


def test_the_same_call_again_is_a_loop(server: ChatServer) -> None:
    server.default = script(*of_llama(CHAIR))
    answer = ask(server)
    choices = [request.body['tool_choice'] for request in server.requests]
    assert choices == ['auto', 'auto', 'none']
    assert (answer.model.name, answer.text, answer.check) == ('tools', '1.5', Check.VERIFIED)
    alone = ask(server, ODD)
    assert (alone.text, alone.check) == ('1.5', Check.UNCHECKED)
    server.default = script(*of_vllm(('fly', '{}')))
    assert ask(server, ODD).kind is AnswerKind.UNKNOWN


def test_at_most_six_calls_are_made(server: ChatServer) -> None:
    pairs = [('where', json.dumps({'name': f'chair {n}'})) for n in range(8)]
    server.play(*(script(*of_llama(*pairs[n : n + 2])) for n in (0, 2)))
    server.play(script(*of_llama(*pairs[4:])))
    answer = ask(server)
    assert [request.body['tool_choice'] for request in server.requests] == [*['auto'] * 3, 'none']
    results = told(server, 3)
    assert ['6 calls were made' in str(result.get('error')) for result in results] == [
        *[False] * 6, True, True,
    ]  # fmt: skip
    assert answer.text == '1.5 m'


def test_thoughts_between_calls_are_kept(server: ChatServer) -> None:
    server.play(script({'reasoning_content': 'Ask the tool.'}, *of_llama(CHAIR)))
    server.play(script({'reasoning_content': 'So 1.5 m.'}, {'content': '<answer>1.5 m</answer>'},
                       finish='stop'))  # fmt: skip
    answer = ask(server)
    assert answer.turns == ('<think>Ask the tool.</think>',)
    assert (answer.think, answer.text) == ('So 1.5 m.', '1.5 m')
    assert server.requests[1].body['messages'][2]['content'] == answer.turns[0]


def test_a_deadline_in_the_midst_leaves_what_was_computed(server: ChatServer) -> None:
    server.play(script(*of_llama(CHAIR)), replace(RIGHT, hang_after=1))
    answer = ask(server, replace(FAR, deadline_s=3.0))
    assert (answer.model.name, answer.text) == ('tools', '1.5')
    server.play(script(*of_llama(('things', '{}'))), replace(RIGHT, hang_after=1))
    with pytest.raises(Refusal) as refusal:
        ask(server, replace(ODD, deadline_s=3.0))
    assert refusal.value.code is RefusalCode.DEADLINE
    assert [call.tool for call in refusal.value.answer.calls] == ['things']


def test_a_cancel_ends_the_loop(server: ChatServer) -> None:
    cancel = threading.Event()
    server.play(script(*of_llama(CHAIR)), replace(RIGHT, hang_after=1))

    def hear(_: object, text: str) -> None:
        if 'The tool says' in text:  # the second reply has begun
            cancel.set()

    with pytest.raises(CancelledError):
        ask(server, listener=hear, cancel=cancel)
    assert server.wait_for(lambda chat: chat.disconnects == 1)
    assert len(server.requests) == 2


def test_an_answer_against_the_last_results_is_asked_once_more(server: ChatServer) -> None:
    server.play(script(*of_llama(CHAIR)), WRONG)
    answer = ask(server, ODD)
    repair = server.requests[2].body
    roles = [message['role'] for message in repair['messages']]
    assert roles == ['system', 'user', 'assistant', 'tool', 'assistant', 'user']
    assert repair['tool_choice'] == 'none'
    assert answer.text == '1.5 m'
    assert len(answer.rejected) == 1


def test_what_one_reader_alone_understands_is_not_verified(server: ChatServer) -> None:
    question = Question('Altitude of chair apex?', scene_map=PLACE)
    server.play(script(*of_llama(('size', '{"name": "chair", "dimension": "height"}'))))
    server.play(Script(('<think>By the tool.</think><answer>90 cm</answer>',)))
    answer = ask(server, question)
    assert (answer.text, answer.check) == ('90 cm', Check.UNCHECKED)
    assert 'nothing checked how the question was read' in answer.check_reason


def test_a_recorded_loop_gives_its_last_prompt_again(server: ChatServer) -> None:
    server.play(script(*of_vllm(CHAIR, TABLE)), script(*of_llama(('things', '{}'))))
    answer = ask(server)
    with ChatServer(default=WRONG, models=[{'id': 'scripted'}]) as other:
        repeated = reasoner_of(other).repeat(answer, answer_id='again', now_ns=lambda: NOW_NS)
    (request,) = other.requests
    asked = server.requests[-1].body
    assert request.body['messages'] == asked['messages']
    assert request.body['tools'] == asked['tools']
    assert request.body['tool_choice'] == 'none'
    assert (repeated.text, repeated.turns) == ('5.0 m', answer.turns)
    assert recorded_prompt(answer).sha256() == answer.prompt_sha256 == repeated.prompt_sha256


def test_a_question_of_an_arm_is_asked_in_text(server: ChatServer) -> None:
    ask(server, replace(FAR, of_task=True))
    assert 'tools' not in server.requests[0].body


def test_two_ways_to_call_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match='tools is true'):
        ReasonerConfig(tools=True, writes='calls')
