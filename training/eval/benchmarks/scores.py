# SPDX-License-Identifier: Apache-2.0
"""Scores of a benchmark's questions as a whole and by type, with intervals and blind baselines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean
from typing import Any, TYPE_CHECKING

from training.eval.benchmarks.openeqa import mark_score
from training.eval.benchmarks.questions import different_truths
from training.eval.statistics import bootstrap_interval, interval_over_groups

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from training.eval.benchmarks.questions import Benchmark, BenchmarkQuestion


# Answers to questions of one type, to choose from.
Constants = Callable[['Sequence[BenchmarkQuestion]'], 'list[str]']


# The scores of a report that scores nothing.
NO_SCORES: dict[str, Any] = {
    'overall': None,
    'interval_95': None,
    'by_type': {},
    'missing': 0,
    'errors': [],
}


@dataclass(frozen=True)
class ScoredQuestion:
    """A question with its score."""

    question: BenchmarkQuestion
    score: float  # 0..1


def scored_questions(
    questions: Sequence[BenchmarkQuestion], scores: Sequence[float | None]
) -> list[ScoredQuestion]:
    """The questions that have a score."""
    return [
        ScoredQuestion(question, score)
        for question, score in zip(questions, scores, strict=True)
        if score is not None
    ]


def summary(benchmark: Benchmark, scored: Sequence[ScoredQuestion]) -> dict[str, Any]:
    """Overall score with its interval, and the score of each type, 0..1.

    `by_type` also has the types that the benchmark averages into one, and this one.
    """
    types = _by_type(scored)
    means = {kind: fmean(item.score for item in items) for kind, items in types.items()}
    merged = {
        name: fmean(means[kind] for kind in kinds if kind in means)
        for name, kinds in benchmark.merged_types.items()
        if any(kind in means for kind in kinds)
    }
    weights = _weights(benchmark, {kind: len(items) for kind, items in types.items()})
    overall = sum(weights[kind] * mean for kind, mean in means.items())
    return {
        'n': len(scored),
        'overall': overall / sum(weights.values()) if weights else None,
        'interval_95': _interval(benchmark, scored, weights),
        'by_type': {**means, **merged},
    }


def type_figures(scored: Sequence[ScoredQuestion]) -> dict[str, dict[str, Any]]:
    """Count and interval of each type."""
    return {
        kind: {
            'n': len(items),
            'interval_95': bootstrap_interval(
                [item.score for item in items], [item.question.scene for item in items]
            ),
        }
        for kind, items in _by_type(scored).items()
    }


def most_frequent_truth(questions: Sequence[BenchmarkQuestion]) -> list[str]:
    """The most frequent ground truth, as a constant answer."""
    return different_truths(questions)[:1]


def constant_baseline(
    benchmark: Benchmark,
    questions: Sequence[BenchmarkQuestion],
    constants: Constants,
) -> dict[str, Any]:
    """A blind baseline: one answer to all questions of a type, chosen on these very questions.

    Args:
        benchmark: The benchmark.
        questions: The questions.
        constants: Answers to questions of one type, of which the best one counts.
    """
    groups: dict[str, list[BenchmarkQuestion]] = defaultdict(list)
    for question in questions:
        groups[question.question_type].append(question)
    answers: dict[str, str] = {}
    scored: list[ScoredQuestion] = []
    for kind, own in sorted(groups.items()):
        best: list[ScoredQuestion] = []
        for constant in constants(own):
            scores = scored_questions(own, [benchmark.score(q, constant) for q in own])
            if not best or _total(scores) > _total(best):
                best, answers[kind] = scores, constant
        scored += best
    return {**summary(benchmark, scored), 'answers': answers}


def _total(scored: Sequence[ScoredQuestion]) -> float:
    return sum(item.score for item in scored)


def _by_type(scored: Sequence[ScoredQuestion]) -> dict[str, list[ScoredQuestion]]:
    groups: dict[str, list[ScoredQuestion]] = defaultdict(list)
    for item in scored:
        groups[item.question.question_type].append(item)
    return dict(sorted(groups.items()))


def _weights(benchmark: Benchmark, counts: Mapping[str, int]) -> dict[str, float]:
    """Weight of each type's mean in the overall score."""
    if not benchmark.is_mean_of_types:
        return {kind: float(count) for kind, count in counts.items()}
    weights = dict.fromkeys(counts, 1.0)
    for kinds in benchmark.merged_types.values():
        present = [kind for kind in kinds if kind in counts]
        weights.update(dict.fromkeys(present, 1 / len(present) if present else 1.0))
    return weights


def _interval(
    benchmark: Benchmark, scored: Sequence[ScoredQuestion], weights: Mapping[str, float]
) -> tuple[float, float] | None:
    values = [item.score for item in scored]
    scenes = [item.question.scene for item in scored]
    if not benchmark.is_mean_of_types:
        return bootstrap_interval(values, scenes)
    kinds = [item.question.question_type for item in scored]
    return interval_over_groups(values, scenes, kinds, weights)


def score_predictions(
    benchmark: Benchmark,
    questions: Sequence[BenchmarkQuestion],
    texts: Mapping[str, str],
    marks: Mapping[str, float],
) -> list[float | None]:
    """Scores of questions, of which those without a prediction are wrong; None: left out.

    Args:
        benchmark: Whose rule counts.
        questions: The questions.
        texts: What was said, by their ids.
        marks: That predictions bring with them, by their ids.
    """
    known = {q.id: benchmark.score(q, texts[q.id]) for q in questions if q.id in texts}
    known |= {name: mark_score(mark) for name, mark in marks.items()}
    return [known.get(question.id, 0.0) for question in questions]


def baselines(
    benchmark: Benchmark, questions: Sequence[BenchmarkQuestion]
) -> dict[str, dict[str, Any]]:
    """Blind baselines that need no model; empty: they are not marked."""
    if benchmark.is_marked:
        return {}
    kinds = {'best_constant': benchmark.constants, 'most_frequent': most_frequent_truth}
    return {
        name: constant_baseline(benchmark, questions, constants)
        for name, constants in kinds.items()
    }


def scored_report(
    benchmark: Benchmark,
    questions: Sequence[BenchmarkQuestion],
    texts: Mapping[str, str],
    errors: Mapping[str, str],
    marks: Mapping[str, float],
) -> dict[str, Any]:
    """Scores of predictions, and what became of each question.

    Args:
        benchmark: What scores them.
        questions: Those with a ground truth.
        texts: The predictions, by the id of the question; others are missing, and wrong.
        errors: Why some are missing.
        marks: That predictions bring with them.
    """
    scores = score_predictions(benchmark, questions, texts, marks)
    scored = scored_questions(questions, scores)
    return {
        **summary(benchmark, scored),
        'types': type_figures(scored),
        'missing': sum(question.id not in texts for question in questions),
        'left_out': len(questions) - len(scored),
        'errors': [
            {'id': question.id, 'error': errors[question.id]}
            for question in questions
            if question.id in errors
        ],
        'outcomes': [
            {
                'id': question.id,
                'question_type': question.question_type,
                'scene': question.scene,
                'prediction': texts.get(question.id),
                'score': score,
            }
            for question, score in zip(questions, scores, strict=True)
        ],
    }
