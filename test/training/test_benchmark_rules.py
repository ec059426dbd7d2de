# SPDX-License-Identifier: Apache-2.0
"""Each rule against strings that a more or less strict one would score otherwise.

Expected values are worked out by hand from the code that the benchmarks publish.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip('torch')

import numpy as np

from training.eval.benchmarks import openeqa, scores
from training.eval.benchmarks.multiple_choice import (
    EGOSCHEMA,
    egoschema_index,
    ERQA,
    MVBENCH,
    URBAN_VIDEO_BENCH,
)
from training.eval.benchmarks.questions import BenchmarkQuestion
from training.eval.benchmarks.vsi_bench import (
    best_number,
    DIRECTION_TYPES,
    mean_relative_accuracy,
    VSI_BENCH,
)

CHOICE = BenchmarkQuestion('1', 'route_planning', 's', 'Where?', 'A', ('left', 'right'))
NUMBER = BenchmarkQuestion('2', 'object_counting', 's', 'How many?', '3')


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('A', 1), ('a', 1), ('A.', 1), ('a..', 1), ('A. left', 1), ('A left', 1), ('A\n', 1),
        ('A) foo', 0), ('(A)', 0), ('The answer is A', 0), ('A.left', 0), ('A.\n', 0),
        (' A', 0), ('A\nleft', 0), ('A,', 0), ('left', 0), ('', 0), ('B', 0), ('**A**', 0),
    ],
)  # fmt: skip
def test_choice_of_vsi_bench_is_its_first_word(prediction: str, score: float) -> None:
    assert VSI_BENCH.score(CHOICE, prediction) == score


@pytest.mark.parametrize(
    ('prediction', 'truth', 'score'),
    [
        ('3', '3', 1), ('3.', '3', 1), ('3.0', '3', 1), ('3 cm', '3', 1), ('3\n', '3', 1),
        ('+3', '3', 1), ('\u0663', '3', 1), ('1e3', '1000', 1), ('1_000', '1000', 1),
        ('1,234', '1234', 0), ('1,234', '1', 0), ('3cm', '3', 0), ('three', '3', 0),
        ('about 3', '3', 0), (' 3', '3', 0), ('', '3', 0), ('-', '3', 0), ('-3', '3', 0),
        ('nan', '3', 0), ('inf', '3', 0), ('1e400', '3', 0), ('0', '3', 0), ('0x3', '3', 0),
    ],
)  # fmt: skip
def test_number_of_vsi_bench_is_its_first_word(prediction: str, truth: str, score: float) -> None:
    assert VSI_BENCH.score(replace(NUMBER, truth=truth), prediction) == score


def test_number_of_vsi_bench_is_as_right_as_thresholds_say() -> None:
    # |2 - 3| / 3 lies within 0.5, 0.45, 0.4 and 0.35.
    assert VSI_BENCH.score(NUMBER, '2') == pytest.approx(0.4)
    assert VSI_BENCH.score(replace(NUMBER, truth='4'), '2') == pytest.approx(0.1)  # 0.5 <= 0.5
    assert VSI_BENCH.score(replace(NUMBER, truth='4'), '6.001') == 0
    # On a limit the rounding decides: 0.35 of 0.2 is 0.07, and yet 0.27 is too far from it.
    assert mean_relative_accuracy(9.5, 10) == 1
    assert mean_relative_accuracy(13, 20) == pytest.approx(0.4)
    assert mean_relative_accuracy(0.27, 0.2) == pytest.approx(0.3)


def test_best_number_is_better_than_all_others() -> None:
    truths = np.random.default_rng(3).uniform(0.5, 6, 40).round(1)
    best = best_number(list(truths))
    value = np.mean([mean_relative_accuracy(best, truth) for truth in truths])
    others = [
        np.mean([mean_relative_accuracy(other, truth) for truth in truths])
        for other in np.linspace(0.1, 9, 2000)
    ]
    assert value >= max(others) > np.mean(others)


def test_overall_of_vsi_bench_takes_three_directions_as_one_type() -> None:
    kinds = {'object_counting': 0.9, **dict(zip(DIRECTION_TYPES, (0.0, 0.3, 0.6), strict=True))}
    scored = [
        scores.ScoredQuestion(replace(NUMBER, question_type=kind, scene=f's{scene}'), score)
        for kind, score in kinds.items()
        for scene in range(4)
        for _ in range(scene + 1)
    ]
    report = scores.summary(VSI_BENCH, scored)
    assert report['by_type']['object_rel_direction'] == pytest.approx(0.3)
    assert report['overall'] == pytest.approx((0.9 + 0.3) / 2)
    # All scenes agree, so that nothing is uncertain.
    assert report['interval_95'] == pytest.approx((0.6, 0.6))
    assert scores.summary(MVBENCH, scored)['overall'] == pytest.approx((0.9 + 0.3 + 0.6) / 4)


def test_interval_of_types_is_wider_where_scenes_differ() -> None:
    rng = np.random.default_rng(0)
    scored = [
        scores.ScoredQuestion(replace(NUMBER, question_type=kind, scene=f's{scene}'), score)
        for scene in range(12)
        for kind, score in (('room_size_estimation', scene % 2), ('object_counting', rng.random()))
    ]
    low, high = scores.summary(VSI_BENCH, scored)['interval_95']
    assert low < scores.summary(VSI_BENCH, scored)['overall'] < high
    assert high - low > 0.1
    assert scores.summary(VSI_BENCH, scored[:2])['interval_95'] is None  # of one scene


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('Option: [A]; Reason: it is near', 1), ('Option:A', 1), ('Option: [[ A', 1), ('A', 1),
        ('a', 1), ('A. left', 1), ('Apple', 1), ('I say Option: A', 1), ('Option:\nA', 1),
        ('Option: [a]', 0), ('option: [A]', 0), ('Option: **A**', 0), ('Option: []; Reason', 0),
        ('(A)', 0), (' A', 0), ('The answer is A', 0), ('Option: [B] or A', 0),
        ('', None), ('nan', None), ('None', None), ('N/A', None), ('none', 0),
    ],
)  # fmt: skip
def test_option_of_urban_video_bench(prediction: str, score: float | None) -> None:
    assert URBAN_VIDEO_BENCH.score(CHOICE, prediction) == score


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('(A) left', 1), ('A', 1), ('a.', 1), ('(A', 1), ('A)', 1), ('[(A)]', 1), ('A left', 1),
        ('(a)left', 1), ('A\nB', 1), ('', 1), ('.', 1), ('(', 1), ('A:', 0), ('A)left', 0),
        ('The answer is (A)', 0), ('B', 0), ('left', 0), ('**A**', 0),
    ],
)  # fmt: skip
def test_option_of_mvbench_is_part_of_its_letter_in_brackets(
    prediction: str, score: float
) -> None:
    assert MVBENCH.score(CHOICE, prediction) == score


@pytest.mark.parametrize(
    ('prediction', 'score'),
    [
        ('A', 1), ('a', 1), (' A. ', 1), ('.A.\n', 1), ('A.', 1), ('A. left', 0), ('(A)', 0),
        ('The answer is A', 0), ('', 0), ('B', 0), ('A)', 0),
    ],
)  # fmt: skip
def test_letter_of_erqa_stands_alone(prediction: str, score: float) -> None:
    assert ERQA.score(CHOICE, prediction) == score


@pytest.mark.parametrize(
    ('prediction', 'index'),
    [
        ('0', 0), (' 4\n', 4), ('5', -1), ('-1', -1), ('A', 0), ('E', 4), ('a', -1), ('A.', -1),
        ('B. C runs.', 1), ('B. C runs', -1), ('C runs.', 1), ('C runs', -1), ('', -1),
        ('C sits', 2), ('C sits.', -1), ('C. C sits. Then C stands.', 2), ('(A)', -1),
    ],
)  # fmt: skip
def test_option_of_egoschema(prediction: str, index: int) -> None:
    # Of a text alone only its first sentence counts, and then without its full stop.
    options = ('C walks', 'C runs', 'C sits. Then C stands', 'C reads.', 'C sleeps')
    question = replace(CHOICE, options=options, truth='1')
    assert egoschema_index(question, prediction) == index
    assert EGOSCHEMA.score(question, prediction) == (index == 1)


def test_marks_of_openeqa_become_scores() -> None:
    assert [openeqa.mark_score(mark) for mark in (1, 2, 3, 5)] == [0, 0.25, 0.5, 1]
    assert (openeqa.mark_score(0), openeqa.mark_score(7)) == (0, 1)


def test_constants_are_the_best_of_their_type() -> None:
    letters = [replace(CHOICE, id=str(i), truth='ABB'[i % 3], scene=str(i)) for i in range(9)]
    numbers = [replace(NUMBER, id=f'n{i}', truth='2' if i < 3 else '9') for i in range(5)]
    blind = scores.baselines(VSI_BENCH, [*letters, *numbers])
    assert blind['best_constant']['answers']['route_planning'] == 'B'
    assert blind['most_frequent']['answers'] == {'route_planning': 'B', 'object_counting': '2'}
    assert blind['most_frequent']['by_type']['object_counting'] == pytest.approx(0.6)
    best = blind['best_constant']
    assert best['by_type']['object_counting'] >= 0.6
    assert best['overall'] == pytest.approx((2 / 3 + best['by_type']['object_counting']) / 2)
