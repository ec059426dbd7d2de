# SPDX-License-Identifier: Apache-2.0
"""What the review page knows of a question beside its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.review.library import Library
from embodied_r_ros.apps.review.pages import ReviewService
from embodied_r_ros.apps.review.recording import Opinion, read_recording
from embodied_r_ros.core.reasoning.prompts import Prompt
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.memory import SceneText
from embodied_r_ros.core.types.answers import Freshness, shadow_id
from embodied_r_ros.core.types.deltas import Item, ModelInfo
from embodied_r_ros.data.episodes.replay import PromptSource, Replay, replay_report
from embodied_r_ros.data.episodes.replay_deltas import pair_to_json, ReplayedDelta

from test.apps.review.recordings import record
from test.data.questions.test_logged import answer, SEEN, write_bag

if TYPE_CHECKING:
    from pathlib import Path


def test_a_candidate_in_the_shadow_that_answers_otherwise_is_a_disagreement(
    tmp_path: Path,
) -> None:
    given = [answer(f'run-{number}') for number in range(3)]
    model = ModelInfo('candidate', 'sha256:c')
    said = ('left', 'right', '')
    shadows = [
        replace(one, id=shadow_id(one.id), text=text, model=model)
        for one, text in zip(given, said, strict=True)
    ]
    shadows[2] = replace(shadows[2], freshness=Freshness.REFUSED)  # it said nothing
    found = read_recording(write_bag(tmp_path / 'e1', given, shadows=shadows)).questions
    assert [question.answer for question in found] == ['left'] * 3
    by = 'candidate, in the shadow'
    assert [q.opinions for q in found] == [(Opinion('left', by),), (Opinion('right', by),), ()]
    assert [question.is_disputed for question in found] == [False, True, False]


def test_questions_of_one_moment_are_in_natural_order(tmp_path: Path) -> None:
    ids = [f'run-{number}' for number in range(11)]
    bag = write_bag(tmp_path / 'e1', [answer(name) for name in sorted(ids)])
    assert [question.id for question in read_recording(bag).questions] == ids
    library = Library(bag)
    try:
        assert [question.id for question in library.questions('e1')] == ids
    finally:
        library.close()


def report_of(episode_id: str) -> dict[str, Any]:
    """A report of `embodied-r replay` in which another perceiver and model say something else."""
    pairs = [
        ReplayedDelta(replace(delta, items=(Item('door'),) * number), delta, CameraView())
        for number, delta in enumerate(SEEN)
    ]
    said = replace(answer('run-1'), text='right', option_index=1, model=ModelInfo('other'))
    replay = Replay(
        answer('run-1'), None, Prompt('', '', SceneText('')), PromptSource.OTHER_DELTAS
    )
    replay = replace(replay, answers=(said,), errors=('',))
    report = replay_report('e1', episode_id, [replay], ['URL'], None)
    keyframes = list(map(pair_to_json, pairs))
    return {**report, 'perceiver': {'name': 'detector/x', 'digest': ''}, 'keyframes': keyframes}


def test_a_replay_is_shown_beside_the_recording_differences_first(tmp_path: Path) -> None:
    record(tmp_path / 'e1')
    library = Library(tmp_path, replays=[report_of('e1'), report_of('another')])
    try:
        value = ReviewService(library, lambda: 0).recording({'e': 'e1', 'filter': 'replayed'})
    finally:
        library.close()
    assert value['replay']['perceiver'] == 'detector/x'
    moments = value['replay']['moments']
    counts = [one['differences'] for one in moments]
    assert counts == sorted(counts, reverse=True)
    assert counts[0] > 0
    assert [one['position'] for one in moments] == [*range(len(SEEN))][::-1]
    assert moments[0]['recorded']['change'] == SEEN[-1].change
    first = value['questions'][0]
    assert (first['id'], first['is_hit'], first['is_disputed']) == ('run-1', True, True)
    assert [one['answer'] for one in first['replayed']] == ['right']
    assert first['replayed'][0]['by'] == 'other, replayed with detector/x'
    assert not any(question['is_hit'] for question in value['questions'][1:])
