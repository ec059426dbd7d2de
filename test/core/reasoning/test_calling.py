# SPDX-License-Identifier: Apache-2.0
"""A model that writes calls: they are run, and both readers of a question have to agree."""

from __future__ import annotations

from dataclasses import replace
import math
import time
from typing import TYPE_CHECKING

from embodied_r_ros.core.chat.protocol import ChatChunk, ChatMessage, TokenAlternatives
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reading import Reading
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.reasoning.saying import answer_by_tools, answer_readings, combine_readings
from embodied_r_ros.core.reasoning.shadow import Shadow, ShadowConfig
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Check, shadow_id
from embodied_r_ros.core.types.deltas import DeltaKind, Motion, MotionSource, SemanticDelta
from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
import pytest

from test.core.reasoning.test_reasoner import ask, ScriptedClient, SECOND_NS

if TYPE_CHECKING:
    from collections.abc import Iterator
    import threading

    from embodied_r_ros.core.chat.protocol import ChatRequest

MOVED = Motion(MotionSource.ODOMETRY, 0.7, 0.0, 0.0, (0.5, 0.0, 0.0), is_metric=True)
TURNED = tuple(
    SemanticDelta(
        number * SECOND_NS,
        DeltaKind.CHANGE if number else DeltaKind.FIRST,
        number,
        max(0, number - 1),
        action='moved forward 0.5 m, turned left 40°' if number else '',
        motion=MOVED if number else Motion(),
    )
    for number in range(3)
)
WHICH = Question('Which way did you turn?')


def test_the_model_gets_the_compact_prompt_and_a_grammar() -> None:
    client = ScriptedClient(' motion(turn)')
    answer = ask(client, WHICH, TURNED, 2.5, writes='calls')
    (request,) = client.requests
    assert request.messages == (ChatMessage('user', answer.prompt),)
    assert answer.prompt == 'Things: \nQuestion: Which way did you turn?\nCall:'
    assert 'motion ::= ' in request.grammar
    assert answer.model.prompt_version == 'calls-1'
    assert answer.completion == ' motion(turn)'


def test_what_both_readers_read_is_verified() -> None:
    answer = ask(ScriptedClient(' motion(turn)'), WHICH, TURNED, 2.5, writes='calls')
    assert (answer.text, answer.check) == ('to the left', Check.VERIFIED)
    assert [call.tool for call in answer.calls] == ['motion']
    assert answer.evidence()['observations'] == [1, 2, 3]


def test_what_one_reader_alone_understands_is_not_verified() -> None:
    question = Question('On which flank came the initial swerve?')
    answer = ask(ScriptedClient(' moves(turned; first)'), question, TURNED, 2.5, writes='calls')
    assert answer.text == 'turned left'
    assert answer.check is Check.UNCHECKED
    unread = ask(ScriptedClient(' unknown()'), WHICH, TURNED, 2.5, writes='calls')
    assert (unread.kind, unread.check) == (AnswerKind.UNKNOWN, Check.UNCHECKED)


def swung(*degrees: int) -> tuple[SemanticDelta, ...]:
    """Turns on the spot, positive to the left."""
    turns = [Motion(), *(replace(MOVED, yaw_rad=math.radians(each)) for each in degrees)]
    words = ['', *(f'turned {"left" if d > 0 else "right"} {abs(d)}°' for d in degrees)]
    return tuple(
        replace(TURNED[min(n, 1)], stamp_ns=n * SECOND_NS, to_id=n, from_id=max(0, n - 1),
                action=words[n], motion=turns[n])
        for n in range(len(turns))
    )  # fmt: skip


def test_a_question_that_reads_two_ways_is_not_answered() -> None:
    client = ScriptedClient(' moves(turned; first)')
    answer = ask(client, WHICH, swung(40, -90), 2.5, writes='calls')
    assert answer.kind is AnswerKind.UNKNOWN
    assert 'reads two ways' in answer.sentence
    assert 'My first move' in answer.sentence
    assert answer.choices == ('turned left', 'to the right')
    alone = ask(client, WHICH, swung(40, -90), 2.5, writes='calls', check=False)
    assert alone.text == 'turned left'


def test_one_answer_of_two_tools_is_not_verified() -> None:
    client = ScriptedClient(' moves(turned; first)')
    answer = ask(client, WHICH, TURNED, 2.5, writes='calls')
    assert (answer.text, answer.check) == ('turned left', Check.UNCHECKED)


class Doubting(ScriptedClient):
    """Says one call after another, each with its probability."""

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        text, share = self.pieces[len(self.requests)].split('=')
        self.requests.append(request)
        yield ChatChunk(text, (TokenAlternatives(text, math.log(float(share)), ()),))


@pytest.mark.parametrize(
    ('calls', 'text', 'asked'),
    [
        ((' moves(turned; first)=0.9',), 'turned left', 1),
        # Improbable calls, and others that give the same answer, another one, or none.
        ((' moves(turned; first)=0.4', ' motion(turn)=0.2'), 'turned left', 2),
        ((' moves(turned; first)=0.4', ' moves(turned; first)=0.4'), '', 2),
        ((' moves(turned; first)=0.4', ' moves(moved; first)=0.2'), '', 2),
        ((' moves(turned; first)=0.4', ' unknown()=0.2'), '', 2),
        # Calls that do not fit the words, and others that do.
        ((' where(robot)=0.7', ' moves(turned; first)=0.2'), 'turned left', 2),
        ((' where(robot)=0.7', ' moves(turned; first)=0.05'), '', 2),
        ((' where(robot)=0.7', 'left'), '', 2),
        ((' unknown()=0.7',), '', 1),
    ],
)
def test_a_doubtful_reading_is_read_again(calls: tuple[str, ...], text: str, asked: int) -> None:
    client = Doubting(*(call if '=' in call else f'{call}=1' for call in calls))
    question = Question('On which flank came the initial swerve?')
    answer = ask(client, question, TURNED, 2.5, writes='calls')
    assert (answer.text, len(client.requests)) == (text, asked)
    assert answer.check is Check.UNCHECKED
    if asked == 2:
        tool = calls[0].split('(')[0].strip()
        rules = [request.grammar.splitlines()[1] for request in client.requests]
        assert tool in rules[0]
        assert f'{tool} |' not in rules[1]


def test_what_is_no_call_is_answered_by_the_tools_or_refused() -> None:
    answer = ask(ScriptedClient('left, I think'), WHICH, TURNED, 2.5, writes='calls')
    assert (answer.text, answer.model.name) == ('to the left', 'tools')
    with pytest.raises(Refusal) as refusal:
        ask(ScriptedClient('left'), WHICH, TURNED, 2.5, writes='calls', check=False)
    assert refusal.value.code is RefusalCode.FORMAT


def test_a_prompt_of_calls_is_not_repeated_without_its_scene() -> None:
    answer = ask(ScriptedClient(' motion(turn)'), WHICH, TURNED, 2.5, writes='calls')
    reasoner = Reasoner(ScriptedClient(' motion(turn)'), ReasonerConfig())
    with pytest.raises(Refusal, match='ask anew'):
        reasoner.repeat(answer, answer_id='again', now_ns=lambda: 0)


def test_with_its_scene_a_candidate_is_asked_anew() -> None:
    answer = ask(ScriptedClient(' motion(turn)'), WHICH, TURNED, 2.5, writes='calls')
    candidate = Reasoner(ScriptedClient(' motion(turn)'), ReasonerConfig(writes='calls'))
    delivered: list[Answer] = []
    shadow = Shadow(candidate, ShadowConfig(), lambda: True, lambda: 0, delivered.append)
    shadow.offer(answer, None, Scene(TURNED))
    end = time.monotonic() + 10
    while not delivered and time.monotonic() < end:
        time.sleep(0.01)
    shadow.close()
    (own,) = delivered
    assert (own.text, own.prompt_sha256) == (answer.text, answer.prompt_sha256)
    assert own.id == shadow_id(answer.id)
    assert (shadow.stats().answered, shadow.stats().same) == (1, 1)


def test_sure_calls_win_over_the_reader_without_a_model() -> None:
    scene = Scene(TURNED)
    read, other = (answer_by_tools(text, (), scene) for text in (WHICH.text, 'how far did we go?'))
    sure, check, reason = combine_readings(read, other, 0.9)
    assert (sure, check) == (read, Check.UNCHECKED)
    assert other.sentence in reason
    unsure, _, _ = combine_readings(read, other, 0.5)
    assert unsure.candidates == (read.text, other.text)
    unread = answer_by_tools('write a poem', (), scene)
    assert combine_readings(unread, other, 0.9)[0] is unread
    assert not combine_readings(read, unread, 0.5, least=0.6)[0].is_known
    misread = answer_readings((Reading('', doubt='the reading adds a cow'),), (), scene)
    found, _, reason = combine_readings(misread, other, 0.9)
    assert (found, reason) == (other, 'read without a model alone: The reading adds a cow.')


def test_two_names_of_the_things_are_one_answer() -> None:
    things = [Landmark(n, (x, 0.0, 0.5), first_seen_ns=x) for x, n in enumerate(('sofa', 'tv'), 1)]
    scene = Scene(place=SceneMap(tuple(things), (PathPoint(1, (0.0, 0.0, 0.5), 0.0),)))
    read, other = (
        answer_by_tools(text, (), scene)
        for text in (
            'which is nearer, the sofa or the tv?',
            'which is nearer, the couch or the telly?',
        )
    )
    assert combine_readings(read, other)[1] is Check.VERIFIED
