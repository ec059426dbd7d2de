# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.arm.table import TableView
from embodied_r_ros.common.errors import CancelledError, DeadlineError, ModelError
from embodied_r_ros.core.chat.protocol import ChatChunk, ChatRequest
from embodied_r_ros.core.reasoning.prompts import image_prompt, shows_image
from embodied_r_ros.core.reasoning.question import (
    Phase,
    Question,
    ReasonerConfig,
    Refusal,
    RefusalCode,
    ShownImage,
)
from embodied_r_ros.core.reasoning.reasoner import Reasoner, worth_looking
from embodied_r_ros.core.types.answers import AnswerKind, FocusText, Freshness
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ModelInfo, Rung, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.landmarks import Landmark
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    import threading

    from embodied_r_ros.core.types.answers import Answer

SECOND_NS = 1_000_000_000
RIGHT = '<think>It was right.</think><answer>right</answer>'
SEEN = (
    SemanticDelta(10 * SECOND_NS, DeltaKind.FIRST, change='New: red tall object ahead.'),
    SemanticDelta(12 * SECOND_NS, DeltaKind.CHANGE, to_id=1, action='turned left 30°'),
)
WHERE = Question('Which way is the red object?', ('left', 'right'))


class ScriptedClient:
    """A fake model: says a fixed completion in pieces, or fails."""

    def __init__(
        self, *pieces: str, error: Exception | None = None, rung: Rung = Rung.PRIMARY
    ) -> None:
        self.pieces, self.error, self.rung = pieces, error, rung
        self.requests: list[ChatRequest] = []

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        self.requests.append(request)
        yield from (ChatChunk(piece) for piece in self.pieces)
        if self.error:
            raise self.error

    def info(self, deadline_s: float) -> ModelInfo:
        return ModelInfo('scripted', 'sha256:00', rung=self.rung)


def ask(
    client: ScriptedClient,
    question: Question = WHERE,
    deltas: Sequence[SemanticDelta] = SEEN,
    now_s: float = 12.5,
    **settings: object,
) -> Answer:
    reasoner = Reasoner(client, ReasonerConfig(**settings))  # type: ignore[arg-type]
    return reasoner.answer(
        question, deltas, answer_id='run-1', now_ns=lambda: round(now_s * SECOND_NS)
    )


def test_answer_carries_all_that_reproduces_it() -> None:
    client = ScriptedClient(RIGHT)
    answer = ask(client)
    assert (answer.kind, answer.option_index, answer.text) == (AnswerKind.CHOICE, 1, 'right')
    assert answer.think == 'It was right.'
    assert answer.prompt == client.requests[0].messages[1].text
    assert (answer.observation_stamp_ns, answer.observation_age_ns) == (
        12 * SECOND_NS,
        500_000_000,
    )
    assert (answer.freshness, answer.delta_ids) == (Freshness.FRESH, (0, 1))
    assert answer.model == ModelInfo('scripted', 'sha256:00', '', Rung.PRIMARY, 'reason-1')


@pytest.mark.parametrize(
    ('completion', 'options', 'kind', 'text'),
    [
        ('<think>x</think><answer>unknown</answer>', ('left', 'right'), AnswerKind.UNKNOWN, ''),
        ('<think>x</think><answer>2.5 m</answer>', (), AnswerKind.NUMBER, '2.5 m'),
        ('<think>x</think><answer>a chair</answer>', (), AnswerKind.TEXT, 'a chair'),
        ('<think>x</think><answer>A</answer>', ('left', 'right'), AnswerKind.CHOICE, 'left'),
    ],
)
def test_every_kind_of_answer(
    completion: str, options: tuple[str, ...], kind: AnswerKind, text: str
) -> None:
    answer = ask(ScriptedClient(completion), Question('How far?', options), check=False)
    assert (answer.kind, answer.text) == (kind, text)
    assert (answer.number == 2.5) == (kind is AnswerKind.NUMBER)


@pytest.mark.parametrize(
    ('client', 'question', 'deltas', 'code'),
    [
        (ScriptedClient(RIGHT), WHERE, (), RefusalCode.NO_OBSERVATION),
        (
            ScriptedClient(RIGHT),
            WHERE,
            (SemanticDelta(1, DeltaKind.FAILED),),
            RefusalCode.NO_OBSERVATION,
        ),
        (ScriptedClient(RIGHT), Question(' '), SEEN, RefusalCode.BAD_QUESTION),
        (ScriptedClient(RIGHT), Question('x?', ('a',)), SEEN, RefusalCode.BAD_QUESTION),
        (ScriptedClient(RIGHT), Question('x?', ('a', 'a')), SEEN, RefusalCode.BAD_QUESTION),
        (ScriptedClient('I cannot say'), WHERE, SEEN, RefusalCode.FORMAT),
        (
            ScriptedClient('<think>x</think><answer>up</answer>'),
            WHERE,
            SEEN,
            RefusalCode.FORMAT,
        ),
        (ScriptedClient('<th', error=ModelError('gone')), WHERE, SEEN, RefusalCode.MODEL),
        (ScriptedClient(error=DeadlineError('late')), WHERE, SEEN, RefusalCode.DEADLINE),
    ],
)
def test_refusal_has_a_code_and_what_is_known(
    client: ScriptedClient, question: Question, deltas: Sequence[SemanticDelta], code: RefusalCode
) -> None:
    with pytest.raises(Refusal) as refusal:
        ask(client, question, deltas)
    assert refusal.value.code is code
    assert refusal.value.answer.freshness is Freshness.REFUSED
    assert refusal.value.answer.question == question.text


@pytest.mark.parametrize('now_s', [30.0, 5.0])
def test_old_or_future_observation_is_never_fresh(now_s: float) -> None:
    assert ask(ScriptedClient(RIGHT), now_s=now_s).freshness is Freshness.STALE
    with pytest.raises(Refusal) as refusal:
        ask(ScriptedClient(RIGHT), now_s=now_s, stale='refuse')
    assert refusal.value.code is RefusalCode.STALE


def test_failed_perception_is_no_observation() -> None:
    blind = (*SEEN, SemanticDelta(60 * SECOND_NS, DeltaKind.FAILED, error='blank'))
    answer = ask(ScriptedClient(RIGHT), deltas=blind, now_s=60.0)
    assert answer.observation_stamp_ns == 12 * SECOND_NS
    assert answer.observation_age_ns == 48 * SECOND_NS
    assert answer.freshness is Freshness.STALE
    with pytest.raises(Refusal) as refusal:
        ask(ScriptedClient(RIGHT), deltas=blind, now_s=60.0, stale='refuse')
    assert refusal.value.code is RefusalCode.STALE


def test_answer_that_took_too_long_is_not_fresh() -> None:
    times = iter([12 * SECOND_NS, 30 * SECOND_NS, 30 * SECOND_NS])
    reasoner = Reasoner(ScriptedClient(RIGHT), ReasonerConfig())
    answer = reasoner.answer(WHERE, SEEN, answer_id='x', now_ns=lambda: next(times))
    assert answer.freshness is Freshness.STALE


def test_model_that_does_not_say_its_rung_is_the_configured_one() -> None:
    assert ask(ScriptedClient(RIGHT, rung=Rung.UNSET)).model.rung is Rung.PRIMARY
    assert ask(ScriptedClient(RIGHT, rung=Rung.SECONDARY)).model.rung is Rung.SECONDARY


def test_lower_rung_and_failed_perception_degrade() -> None:
    assert ask(ScriptedClient(RIGHT, rung=Rung.LOCAL)).freshness is Freshness.DEGRADED
    failed = (*SEEN, SemanticDelta(12 * SECOND_NS, DeltaKind.FAILED))
    assert ask(ScriptedClient(RIGHT), deltas=failed).freshness is Freshness.DEGRADED


@pytest.mark.parametrize(
    ('rung', 'freshness'),
    [
        (Rung.UNSET, Freshness.FRESH),
        (Rung.PRIMARY, Freshness.FRESH),
        (Rung.LOCAL, Freshness.DEGRADED),
    ],
)
def test_perceiver_that_stood_in_degrades(rung: Rung, freshness: Freshness) -> None:
    stood_in = SemanticDelta(
        12 * SECOND_NS, DeltaKind.CHANGE, model=ModelInfo('classical', rung=rung)
    )
    assert ask(ScriptedClient(RIGHT), deltas=(*SEEN, stood_in)).freshness is freshness


def test_cancel_is_passed_on() -> None:
    with pytest.raises(CancelledError):
        ask(ScriptedClient(error=CancelledError('asked to')))


def test_text_is_told_piece_by_piece_with_its_phase() -> None:
    heard: list[tuple[Phase, str]] = []
    client = ScriptedClient('<think>It', ' was.</think><answer>', 'right</answer>')
    Reasoner(client, ReasonerConfig()).answer(
        WHERE,
        SEEN,
        answer_id='x',
        now_ns=lambda: 12 * SECOND_NS,
        listener=lambda phase, text: heard.append((phase, text)),
    )
    assert [phase for phase, _ in heard] == [Phase.THINK, Phase.ANSWER, Phase.ANSWER]
    assert ''.join(text for _, text in heard) == ''.join(client.pieces)


@pytest.mark.parametrize(
    ('focus', 'question', 'looks'),
    [
        ('auto', 'Where is the green sofa?', 1),
        ('auto', 'Where is the red object?', 0),
        ('auto', 'How far did you turn?', 0),
        ('never', 'Where is the green sofa?', 0),
        ('always', 'How far did you turn?', 1),
    ],
)
def test_focus_looks_where_nothing_seen_mentions_the_question(
    focus: str, question: str, looks: int
) -> None:
    asked: list[str] = []

    def look(
        text: str,
        options: Sequence[str],
        deltas: Sequence[SemanticDelta],
        deadline_s: float,
        cancel: threading.Event | None,
    ) -> list[FocusText]:
        asked.append(text)
        return [FocusText(1, 12 * SECOND_NS, 'a green sofa on the left')]

    client = ScriptedClient('<think>x</think><answer>left</answer>')
    answer = Reasoner(client, ReasonerConfig(focus=focus), look).answer(
        Question(question), SEEN, answer_id='x', now_ns=lambda: 12 * SECOND_NS
    )
    assert len(asked) == looks
    assert ('a green sofa' in answer.prompt) == bool(looks)
    assert len(answer.focus) == looks


def test_keyframes_that_show_a_landmark_best_are_looked_at_before_the_newest() -> None:
    deltas = [SemanticDelta(i, DeltaKind.CHANGE, i) for i in range(9)]
    sofa, lamp = (
        Landmark(label, (0.0, 0.0, 0.0), keyframe_ids=ids)
        for label, ids in (('sofa', (2, 7)), ('lamp', (99,)))
    )
    chosen = [delta.to_id for delta in worth_looking(deltas, [sofa, lamp], 3)]
    assert chosen == [2, 7, 8]
    assert [delta.to_id for delta in worth_looking(deltas, [], 2)] == [7, 8]
    assert [delta.to_id for delta in worth_looking(deltas, [sofa], 1)] == [2]
    assert [delta.to_id for delta in worth_looking(deltas[:1], [], 4)] == [0]


def test_focus_takes_the_newest_keyframes_and_half_of_the_time() -> None:
    asked: list[tuple[list[int], float]] = []

    def look(
        text: str,
        options: Sequence[str],
        deltas: Sequence[SemanticDelta],
        deadline_s: float,
        cancel: threading.Event | None,
    ) -> list[FocusText]:
        asked.append(([delta.to_id for delta in deltas], deadline_s))
        return []

    walk = [SemanticDelta(i * SECOND_NS, DeltaKind.CHANGE, to_id=i) for i in range(1, 8)]
    config = ReasonerConfig(focus='always', focus_keyframes=2)
    Reasoner(ScriptedClient(RIGHT), config, look).answer(
        replace(WHERE, deadline_s=100.0), walk, answer_id='x', now_ns=lambda: 7 * SECOND_NS
    )
    [(ids, deadline_s)] = asked
    assert ids == [6, 7]
    assert 0 < deadline_s <= 50.0


@pytest.mark.parametrize('focus', ['never', 'auto', 'always'])
def test_what_lies_on_the_table_is_told_where_the_question_has_a_view_of_it(focus: str) -> None:
    turn = (-0.6532815, -0.6532815, 0.2705981, 0.2705981)
    eye = Pose((1.0, 0.0, 1.02), turn, 'table_center')
    view = TableView(eye, 0.0, 0.02, (-0.2, -0.3, 0.0), (0.5, 0.3, 0.4))
    item = Item('red blocky object', bearing_rad=0.0, elevation_rad=0.0)
    deltas = (*SEEN, SemanticDelta(12 * SECOND_NS, DeltaKind.CHANGE, 4, items=(item,)))
    asked: list[str] = []

    def look(question: str, *_: object) -> list[FocusText]:
        asked.append(question)
        return []

    client = ScriptedClient(RIGHT)
    question = Question('Where to go next?', ('left', 'right'), view=view)
    answer = Reasoner(client, ReasonerConfig(focus=focus), look).answer(
        question, deltas, answer_id='run-1', now_ns=lambda: 13 * SECOND_NS
    )
    line = '2.0 s: On the table: red blocky object at (0.000, 0.000, 0.020).'
    assert line in client.requests[0].messages[1].text.splitlines()
    assert [text.text for text in answer.focus] == [line.removeprefix('2.0 s: ')]
    assert bool(asked) == (focus == 'always')


def test_an_image_is_shown_in_place_of_all_that_is_told() -> None:
    client = ScriptedClient(RIGHT)
    image = EncodedImage(b'the view', 'jpeg')
    shown = ShownImage(image, 14 * SECOND_NS, 'eye')
    answer = ask(client, replace(WHERE, shown=shown), now_s=14.5, focus='always')
    message = client.requests[0].messages[1]
    assert message.images == (image,)
    assert message.text == (
        'Seen:\n(the image shows it)\nQuestion: Which way is the red object?\nA. left\nB. right'
    )
    assert shows_image(answer.prompt)
    assert answer.prompt_sha256 == image_prompt(WHERE.text, WHERE.options, image).sha256()
    assert (answer.observation_stamp_ns, answer.frame_id) == (14 * SECOND_NS, 'eye')
    assert (answer.observation_age_ns, answer.delta_ids) == (SECOND_NS // 2, ())
    assert answer.freshness is Freshness.FRESH
    assert ask(client, replace(WHERE, shown=shown), (), now_s=20).freshness is Freshness.STALE
