# SPDX-License-Identifier: Apache-2.0
"""A candidate in the shadow, against a real model server."""

from __future__ import annotations

from dataclasses import replace
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.reasoning.prompts import build_prompt, image_prompt
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.reasoning.shadow import Shadow, ShadowConfig
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import (
    Answer,
    AnswerKind,
    Check,
    Freshness,
    RejectedCompletion,
    Sampling,
    ToolCall,
)
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, SemanticDelta
from embodied_r_ros.core.types.images import EncodedImage
import pytest

from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Iterator

RIGHT = Script(('<think>It was right.</think>', '<answer>B</answer>'))
HANGING = Script(('<think>', 'Well'), hang_after=2)
DELTAS = (SemanticDelta(10**9, DeltaKind.FIRST, 1, change='New: a red chair.'),)
QUESTION, OPTIONS = 'Which way is the chair?', ('left', 'right')
IMAGE = EncodedImage(b'a picture', 'jpeg')
PROMPT = build_prompt(QUESTION, OPTIONS, DELTAS, (), MemoryConfig())


def serving_answer(answer_id: str = 'run-1', option: int = 0) -> Answer:
    """An answer of the model that serves."""
    return Answer(
        answer_id,
        QUESTION,
        AnswerKind.CHOICE,
        OPTIONS,
        option,
        OPTIONS[option],
        think='It was there.',
        delta_ids=(1,),
        prompt=PROMPT.user,
        prompt_sha256=PROMPT.sha256(),
        sampling=Sampling(0.5, 0.9, 77, 3),
        observation_stamp_ns=10**9,
        freshness=Freshness.FRESH,
        model=ModelInfo('serving', 'sha256:1'),
        episode_id='e1',
    )


class Watcher:
    """A shadow whose answers are collected, and somebody who may ask."""

    def __init__(self, server: ChatServer, **settings: Any) -> None:
        self.answers: list[Answer] = []
        self.changed = threading.Condition()
        self.idle = True
        client = HttpChatClient(ChatConfig(server.url, 'candidate', retries=0))
        reasoner = Reasoner(client, ReasonerConfig())
        config = ShadowConfig('unused', **settings)
        self.shadow = Shadow(reasoner, config, lambda: self.idle, lambda: 2 * 10**9, self.take)

    def take(self, answer: Answer) -> None:
        with self.changed:
            self.answers.append(answer)
            self.changed.notify_all()

    def wait(self, count: int) -> list[Answer]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.answers) >= count, 10)
            return list(self.answers)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(default=RIGHT, models=[{'id': 'candidate'}]) as made:
        yield made


@pytest.fixture
def watcher(server: ChatServer) -> Iterator[Watcher]:
    made = Watcher(server)
    yield made
    made.shadow.close()


def test_candidate_answers_the_very_prompt(watcher: Watcher, server: ChatServer) -> None:
    checked = replace(
        serving_answer(),
        sentence='It is on the left.',
        unit='m',
        check=Check.VERIFIED,
        check_reason='seen',
        calls=(ToolCall('where', ('chair',)),),
        rejected=(RejectedCompletion('right', 'it is left'),),
        has_goal=True,
    )
    watcher.shadow.offer(checked)
    own = watcher.wait(1)[0]
    assert (own.sentence, own.unit, own.check, own.check_reason) == ('', '', Check.UNCHECKED, '')
    assert (own.calls, own.rejected, own.has_goal) == ((), (), False)
    assert (own.id, own.text, own.option_index) == ('run-1-shadow', 'right', 1)
    assert (own.think, own.model.name) == ('It was right.', 'candidate')
    assert own.latency_ns >= own.wait_ns + own.generation_ns > own.generation_ns > 0
    same = (
        'question',
        'options',
        'prompt',
        'prompt_sha256',
        'sampling',
        'delta_ids',
        'episode_id',
    )
    assert [getattr(own, name) for name in same] == [
        getattr(serving_answer(), name) for name in same
    ]
    body = server.requests[0].body
    assert server.requests[0].text == PROMPT.user
    assert body['messages'][0]['content'] == PROMPT.system
    assert (body['temperature'], body['top_p'], body['max_tokens'], body['seed']) == (
        0.5,
        0.9,
        77,
        3,
    )


def test_candidate_is_shown_the_image_that_the_prompt_shows(
    watcher: Watcher, server: ChatServer
) -> None:
    prompt = image_prompt(QUESTION, OPTIONS, IMAGE)
    watcher.shadow.offer(
        replace(serving_answer(), prompt=prompt.user, prompt_sha256=prompt.sha256()), IMAGE
    )
    watcher.wait(1)
    assert (server.requests[0].text, server.requests[0].images) == (prompt.user, [IMAGE.data])


def test_stats_say_how_often_both_say_the_same(watcher: Watcher) -> None:
    watcher.shadow.offer(serving_answer('run-1', option=0))
    watcher.shadow.offer(serving_answer('run-2', option=1))
    watcher.wait(2)
    stats = watcher.shadow.stats()
    assert (stats.answered, stats.same, stats.failed, stats.dropped) == (2, 1, 0, 0)


def test_question_that_went_to_no_model_is_left(watcher: Watcher, server: ChatServer) -> None:
    watcher.shadow.offer(replace(serving_answer('run-1'), prompt='', prompt_sha256=''))
    watcher.shadow.offer(serving_answer('run-2'))
    assert [answer.id for answer in watcher.wait(1)] == ['run-2-shadow']
    assert len(server.requests) == 1


def test_candidate_waits_while_somebody_waits_and_the_oldest_are_dropped(
    server: ChatServer,
) -> None:
    watcher = Watcher(server, in_line=2)
    watcher.idle = False
    for number in range(4):
        watcher.shadow.offer(serving_answer(f'run-{number}'))
    assert not server.wait_for(lambda server: bool(server.requests), 0.2)
    assert (watcher.shadow.stats().waiting, watcher.shadow.stats().dropped) == (2, 2)
    watcher.idle = True
    assert [answer.id for answer in watcher.wait(2)] == ['run-2-shadow', 'run-3-shadow']
    watcher.shadow.close()


def test_generation_ends_when_somebody_asks(watcher: Watcher, server: ChatServer) -> None:
    server.play(HANGING)
    watcher.shadow.offer(serving_answer('run-1'))
    assert server.wait_for(lambda server: server.active == 1)
    watcher.shadow.give_way()
    assert server.wait_for(lambda server: server.disconnects == 1)
    watcher.shadow.offer(serving_answer('run-2'))
    assert [answer.id for answer in watcher.wait(1)] == ['run-2-shadow']
    assert watcher.shadow.stats().dropped == 1


def test_candidate_with_a_machine_of_its_own_gives_way_to_nobody(server: ChatServer) -> None:
    watcher = Watcher(server, gives_way=False)
    watcher.idle = False
    watcher.shadow.offer(serving_answer())
    watcher.shadow.give_way()
    assert watcher.wait(1)[0].text == 'right'
    watcher.shadow.close()


def test_candidate_that_fails_is_refused_counted_and_asked_again(
    watcher: Watcher, server: ChatServer
) -> None:
    server.play(Script(('<answer>perhaps</answer>',)), Script(status=500, body='broken'))
    for number in range(3):
        watcher.shadow.offer(serving_answer(f'run-{number}'))
    unreadable, broken, right = watcher.wait(3)
    assert unreadable.freshness is broken.freshness is Freshness.REFUSED
    assert (unreadable.completion, unreadable.text) == ('<answer>perhaps</answer>', '')
    assert right.text == 'right'
    stats = watcher.shadow.stats()
    assert (stats.answered, stats.failed, stats.problem) == (1, 2, '')


def test_closing_ends_what_runs_and_drops_what_waits(server: ChatServer) -> None:
    watcher = Watcher(server)
    server.play(HANGING)
    for number in range(3):
        watcher.shadow.offer(serving_answer(f'run-{number}'))
    assert server.wait_for(lambda server: server.active == 1)
    watcher.shadow.close()
    assert watcher.shadow.stats().dropped == 3
    watcher.shadow.offer(serving_answer('late'))
    assert (watcher.shadow.stats().waiting, watcher.answers) == (0, [])
