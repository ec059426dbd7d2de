# SPDX-License-Identifier: Apache-2.0
"""Answers that were given live, in real bags: what becomes a row, and why the others do not."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.core.reasoning.calls import calls_prompt, CALLS_PROMPT_VERSION, labels_to_list
from embodied_r_ros.core.reasoning.prompts import (
    build_prompt,
    REASON_PROMPT_VERSION,
    recorded_prompt,
    with_tools,
)
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import Answer, AnswerKind, FocusText, Freshness, ToolCall
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    ModelInfo,
    SemanticDelta,
)
from embodied_r_ros.core.types.episodes import AnswerLabel, EpisodeEvent, EpisodeMark, LabelVerdict
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.episodes.episode import read_answers
from embodied_r_ros.data.episodes.replay import prepare_replays, PromptSource
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_to_msg,
    keyframe_to_msg,
    label_to_msg,
    mark_to_msg,
)
from embodied_r_ros.data.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import Row
from embodied_r_ros.data.questions.wordings import PLACES, WORDINGS
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

SECOND_NS = 1_000_000_000
NO_IMAGE = EncodedImage(b'', 'jpeg')
FACTORY = BagMessageFactory()
MODEL = ModelInfo('nano', prompt_version=REASON_PROMPT_VERSION)
SIDES = ('left', 'right', 'ahead')
DEFAULT = MemoryConfig()


def delta_at(second: int) -> SemanticDelta:
    items = (Item(f'red tall object{second}', ItemStatus.APPEARED, 0.12345678, 0.1, 0.1, 2.3456),)
    kind = DeltaKind.FIRST if second == 1 else DeltaKind.CHANGE
    action = '' if second == 1 else 'moved forward 1.0 m'
    return SemanticDelta(
        second * SECOND_NS, kind, second, action=action, change=change_text(items), items=items
    )


SEEN = (*(delta_at(second) for second in range(1, 6)),)
FAILED = SemanticDelta(6 * SECOND_NS, DeltaKind.FAILED, 6, 5, error='no reply')


def answer(
    answer_id: str = 'run-1',
    question: str = 'Where is the door?',
    options: tuple[str, ...] = SIDES,
    deltas: Sequence[SemanticDelta] = SEEN[:4],
    memory: MemoryConfig = DEFAULT,
    focus: tuple[FocusText, ...] = (),
) -> Answer:
    """An answer as the reasoner gives it: the first option, or 'a door'."""
    prompt = build_prompt(question, options, deltas, focus, memory)
    return Answer(
        answer_id,
        question,
        AnswerKind.CHOICE if options else AnswerKind.TEXT,
        options,
        option_index=0 if options else -1,
        text=options[0] if options else 'a door',
        delta_ids=tuple(delta.to_id for delta in deltas[prompt.scene.omitted :]),
        deltas_merged=prompt.scene.merged,
        deltas_omitted=prompt.scene.omitted,
        focus=focus,
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        freshness=Freshness.FRESH,
        model=MODEL,
    )


def label(verdict: LabelVerdict, correction: str = '', answer_id: str = 'run-1') -> AnswerLabel:
    return AnswerLabel(9 * SECOND_NS, answer_id, verdict, correction, 'ann')


def write_bag(
    path: Path,
    answers: Sequence[Answer],
    labels: Sequence[AnswerLabel] = (),
    deltas: Sequence[SemanticDelta] = SEEN,
    *,
    provenance: str = '',
    shadows: Sequence[Answer] = (),
    episode_id: str = 'e1',
    images: Sequence[EncodedImage] = (NO_IMAGE,),
) -> Path:
    """What the recorder writes of a drive ahead, one metre each second."""
    mark = EpisodeMark(SECOND_NS, episode_id, EpisodeEvent.START, scene_id='lab')
    with BagWriter(path) as bag:
        for topic in ('Answer', 'AnswerLabel', 'SemanticDelta', 'Keyframe', 'EpisodeMark'):
            bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{topic}')
        bag.add_topic('/provenance', 'std_msgs/msg/String')
        bag.write('/EpisodeMark', mark_to_msg(FACTORY, mark), SECOND_NS)
        if provenance:
            said = FACTORY.make('std_msgs/msg/String', data=provenance)
            bag.write('/provenance', said, SECOND_NS)
        for order, delta in enumerate(deltas):
            pose = Pose((float(delta.to_id), 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            image, first = images[order % len(images)], KeyframeReason.FIRST
            keyframe = Keyframe(delta.to_id, delta.stamp_ns, image, first, 1, pose=pose)
            stamp_ns = SECOND_NS + order
            bag.write('/Keyframe', keyframe_to_msg(FACTORY, keyframe), stamp_ns)
            bag.write('/SemanticDelta', delta_to_msg(FACTORY, delta), stamp_ns)
        for given in answers:
            bag.write('/Answer', answer_to_msg(FACTORY, given), 8 * SECOND_NS)
        if shadows:
            bag.add_topic('/shadow_answer', 'embodied_r_msgs/msg/Answer')
        for own in shadows:
            bag.write('/shadow_answer', answer_to_msg(FACTORY, own), 8 * SECOND_NS + 1)
        for order, said_of_it in enumerate(labels):
            msg = label_to_msg(FACTORY, said_of_it)
            bag.write('/AnswerLabel', msg, 9 * SECOND_NS + order)
    return path


def logged_rows(bag: Path, coverage: Coverage | None = None) -> list[Row]:
    rows = rows_of([bag], RowsRecipe(QuestionsConfig()), coverage or Coverage())
    return [row for row in rows if 'answer_id' in row.meta]


@pytest.mark.parametrize(
    ('options', 'said', 'kind', 'solution'),
    [
        (SIDES, label(LabelVerdict.RIGHT), 'choice', 'A'),
        (SIDES, label(LabelVerdict.CORRECTED, 'ahead'), 'choice', 'C'),
        (SIDES, label(LabelVerdict.CORRECTED, 'b'), 'choice', 'B'),
        (SIDES, label(LabelVerdict.CORRECTED, 'Unknown'), 'choice', 'unknown'),
        ((), label(LabelVerdict.RIGHT), 'text', 'a door'),
        ((), label(LabelVerdict.CORRECTED, ' 3 '), 'number', '3'),
    ],
)
def test_label_is_the_solution(
    tmp_path: Path, options: tuple[str, ...], said: AnswerLabel, kind: str, solution: str
) -> None:
    coverage = Coverage()
    bag = write_bag(tmp_path / 'e1', [answer(options=options)], [said])
    (row,) = logged_rows(bag, coverage)
    assert (row.source, row.answer_kind, row.solution) == ('label', kind, solution)
    assert (row.scene_id, row.options) == ('lab', options)
    assert sum(n for key, n in coverage.splits.items() if key[1:] == ('asked', 'label')) == 1


def test_a_labelled_answer_of_a_model_that_writes_calls_is_a_row(tmp_path: Path) -> None:
    labels = labels_to_list('Where is the door?', (), Scene(SEEN[:4]))
    prompt = calls_prompt('Where is the door?', (), labels)
    model = replace(MODEL, prompt_version=CALLS_PROMPT_VERSION)
    own = replace(
        answer(options=()), prompt=prompt.user, prompt_sha256=prompt.sha256(), model=model
    )
    bag = write_bag(tmp_path / 'e1', [own], [label(LabelVerdict.CORRECTED, 'where(door)')])
    (row,) = logged_rows(bag)
    assert (row.solution, row.source) == ('where(door)', 'label')
    (replay,) = prepare_replays(read_answers(bag))
    assert replay.source is PromptSource.SAME
    assert replay.scene
    assert [delta.to_id for delta in replay.scene.deltas] == [delta.to_id for delta in SEEN[:4]]


def test_newest_label_counts(tmp_path: Path) -> None:
    labels = [label(LabelVerdict.RIGHT), label(LabelVerdict.CORRECTED, 'right')]
    (row,) = logged_rows(write_bag(tmp_path / 'e1', [answer()], labels))
    assert row.solution_text() == 'right'


def test_row_gives_the_very_prompt_that_was_answered(tmp_path: Path) -> None:
    memory = MemoryConfig(token_budget=200)
    looked = (FocusText(3, 3 * SECOND_NS, 'a door to the left'),)
    # Nothing of an earlier run of the extractor, whose ids are the same, was remembered.
    earlier = [replace(d, stamp_ns=d.stamp_ns - SECOND_NS // 2, change='No.') for d in SEEN]
    many = [*SEEN, FAILED, *(replace(delta_at(i), to_id=i) for i in range(7, 60))]
    given = answer(deltas=many[:50], memory=memory, focus=looked)
    assert given.deltas_merged + given.deltas_omitted > 0
    told = json.dumps({'parameters': {'reasoner.token_budget': 200}})
    bag = write_bag(
        tmp_path / 'e1', [given], [label(LabelVerdict.RIGHT)], [*earlier, *many], provenance=told
    )
    (row,) = logged_rows(bag)
    assert row.prompt(MemoryConfig(token_budget=1200)).user == given.prompt


@pytest.mark.parametrize(
    ('given', 'said', 'reason'),
    [
        (answer(), None, 'never labelled, and nothing else proves it'),
        (answer(), label(LabelVerdict.WRONG), 'labelled wrong, without the right answer'),
        (
            answer(),
            label(LabelVerdict.CORRECTED, 'above'),
            'the correction is none of the options',
        ),
        (
            replace(answer(), freshness=Freshness.REFUSED, text='', kind=AnswerKind.UNKNOWN),
            label(LabelVerdict.RIGHT),
            'labelled right, but there was no answer',
        ),
        (
            replace(answer(), prompt_sha256='0' * 64),
            label(LabelVerdict.RIGHT),
            'its prompt cannot be built again: another digest',
        ),
        (
            answer(
                memory=MemoryConfig(token_budget=200), deltas=[*SEEN, *map(delta_at, range(6, 40))]
            ),
            label(LabelVerdict.RIGHT),
            'not all deltas of its prompt are recorded',
        ),
        (
            replace(answer(), prompt='', prompt_sha256=''),
            label(LabelVerdict.CORRECTED, 'left'),
            'no prompt was sent to a model',
        ),
        (
            replace(answer(), model=ModelInfo('nano', prompt_version='reason-0')),
            label(LabelVerdict.RIGHT),
            f'its prompt is not of version {REASON_PROMPT_VERSION} or tools-1 or calls-1',
        ),
    ],
)
def test_answer_without_proof_is_counted_with_its_reason(
    tmp_path: Path, given: Answer, said: AnswerLabel | None, reason: str
) -> None:
    coverage = Coverage()
    bag = write_bag(tmp_path / 'e1', [given], [said] if said else [])
    assert logged_rows(bag, coverage) == []
    assert coverage.unsolved['asked', reason] == 1


def test_poses_prove_what_nobody_labelled(tmp_path: Path) -> None:
    options = tuple(PLACES.values())
    given = answer(question=WORDINGS['net_displacement'][0], options=options)
    (row,) = logged_rows(write_bag(tmp_path / 'e1', [given]))
    assert (row.question_type, row.source) == ('net_displacement', 'odometry')
    assert row.solution_text() == 'ahead of the start'


def test_a_row_holds_the_calls_of_its_model(tmp_path: Path) -> None:
    text = answer()
    calls = (
        ToolCall('count', ('door',), '1.0', text='I have seen 1 door.', turn=1, request_id='a1',
                 request='{"name": "door"}', reply='{"value": 1.0}'),
        ToolCall('where', ('door',), text='of a reader of ours'),
    )  # fmt: skip
    prompt = with_tools(build_prompt(text.question, SIDES, SEEN[:4], (), DEFAULT))
    model = replace(MODEL, prompt_version='tools-1')
    given = replace(
        text, turns=('Let me count.',), calls=calls, prompt_sha256=prompt.sha256(), model=model
    )
    (row,) = logged_rows(write_bag(tmp_path / 'e1', [given], [label(LabelVerdict.RIGHT)]))
    asked = Row.from_json(row.to_json()).prompt(MemoryConfig())
    assert asked.sha256() == given.prompt_sha256
    assert asked.messages() == recorded_prompt(given).messages()
    assert [message.role for message in asked.messages()] == [
        'system', 'user', 'assistant', 'tool',
    ]  # fmt: skip
    for other in (row.without_calls(), row.without_scene()):
        assert not other.prompt(MemoryConfig()).has_tools


def test_answers_do_not_go_with_deltas_that_were_not_read(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'e1', [answer()], [label(LabelVerdict.RIGHT)])
    coverage = Coverage()
    rows = rows_of([bag], RowsRecipe(QuestionsConfig(), 'classical', lambda path: SEEN), coverage)
    assert not any(row.source == 'label' for row in rows)
    reason = 'answers go with recorded deltas, not with classical ones'
    assert coverage.unsolved['asked', reason] == 1
