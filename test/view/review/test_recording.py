# SPDX-License-Identifier: Apache-2.0
"""What the review page knows of a question beside its answer."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.types.answers import Freshness, shadow_id
from embodied_r_ros.types.deltas import ModelInfo
from embodied_r_ros.view.review.recording import Opinion, read_recording

from test.questions.test_logged import answer, write_bag

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
