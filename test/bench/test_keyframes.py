# SPDX-License-Identifier: Apache-2.0
"""The keyframe bench: what counts as a wrong decision, and real recordings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import pytest

from bench.keyframes import errors, follow, measure_real, Official, Ours, OverlapEstimate, Periodic
from bench.real_sequences import read_sequence, true_overlap, TrueOverlap

if TYPE_CHECKING:
    from pathlib import Path


def judgement(said: float, with_holes: float, filled: float) -> OverlapEstimate:
    return OverlapEstimate(said, TrueOverlap(with_holes, filled))


def test_decisions_count_where_truth_is_sure() -> None:
    wrong_and_sure = judgement(0.6, 0.3, 0.4)
    wrong_near_the_threshold = judgement(0.6, 0.3, 0.48)
    holes_disagree = judgement(0.6, 0.7, 0.3)
    right = judgement(0.6, 0.9, 0.8)
    figures = errors([wrong_and_sure, wrong_near_the_threshold, holes_disagree, right])
    assert figures['decisions'] == 2
    assert figures['wrong_decisions'] == 0.5
    assert figures['wrong_of_all_decisions'] == 0.75


def test_error_is_against_the_middle_of_both_truths() -> None:
    figures = errors([judgement(0.6, 0.3, 0.5), judgement(0.4, 0.5, 0.5)])
    assert figures['mean_absolute_error'] == pytest.approx(0.15)
    assert figures['mean_error'] == pytest.approx(0.05)


def test_a_folder_without_depth_is_refused(tmp_path: Path) -> None:
    (tmp_path / 'walk' / 'images').mkdir(parents=True)
    (tmp_path / 'walk' / 'poses.txt').write_text('')
    with pytest.raises(InputError, match='no sequence with depth/'):
        measure_real(tmp_path)


@pytest.mark.parametrize(
    ('name', 'images', 'most_wrong', 'most_error'),
    [('walk_indoor', 90, 0.03, 0.06), ('cabinet', 58, 0.2, 0.12)],
)
def test_keyframes_hold_on_real_cameras(
    footage: Path, name: str, images: int, most_wrong: float, most_error: float
) -> None:
    shots = list(read_sequence(footage / 'real' / name))[:images]
    figures = errors(follow(Ours(), shots, true_overlap, own_references=True))
    assert figures['decisions'] > 20
    assert figures['wrong_decisions'] <= most_wrong
    assert figures['mean_absolute_error'] <= most_error


def test_the_published_extractor_is_worse_round_a_cabinet(footage: Path) -> None:
    # Else the recording would show nothing.
    shots = list(read_sequence(footage / 'real' / 'cabinet'))[:25]
    published, ours, periodic = (
        errors(follow(method, shots, true_overlap, own_references=True))['wrong_decisions']
        for method in (Official(), Ours(), Periodic(2))
    )
    assert ours < published
    assert ours < periodic
