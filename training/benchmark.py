# SPDX-License-Identifier: Apache-2.0
"""A published benchmark by its own rows and scoring: `python -m training.benchmark NAME`.

With `--model` a model is asked about videos, or images that come with the rows; with
`--predictions` what any program said is scored. Without videos and predictions only the blind
baselines are.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.episodes.perception_cache import PerceptionCache
from embodied_r_ros.serving.profiles import reasoner_config

from training.eval.asking import (
    add_asking_options,
    add_report_option,
    draw_rows,
    opened_cache,
    write_report,
)
from training.eval.benchmarks.multiple_choice import EGOSCHEMA, ERQA, MVBENCH, URBAN_VIDEO_BENCH
from training.eval.benchmarks.openeqa import OPENEQA
from training.eval.benchmarks.predictions import (
    ask,
    AskedQuestions,
    check_export,
    NOTHING_KNOWN,
    perceive_videos,
    read_maps,
    read_predictions,
    without_images,
    write_export,
)
from training.eval.benchmarks.scores import (
    baselines,
    NO_SCORES,
    score_predictions,
    scored_questions,
    scored_report,
    summary,
)
from training.eval.benchmarks.vsi_bench import VSI_BENCH
from training.eval.figures import interval_text
from training.eval.generation import model_identity
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from embodied_r_ros.core.chat.cache import ReplyCache
    from embodied_r_ros.data.episodes.offline import RecordingScene

    from training.eval.benchmarks.questions import BenchmarkQuestion

_MOST_BYTES = 10 * 2**30  # of scenes: those of a whole benchmark

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (VSI_BENCH, URBAN_VIDEO_BENCH, OPENEQA, EGOSCHEMA, MVBENCH, ERQA)
}


def table(report: dict[str, Any]) -> str:
    """The report as text, in percent."""
    columns = {'score': report, **report['baselines']}
    columns = {name: values for name, values in columns.items() if values['by_type']}
    names = [name.replace('_', ' ') for name in columns]
    kinds = list(dict.fromkeys(kind for values in columns.values() for kind in values['by_type']))
    lines = [f'{report["benchmark"]:<28}' + ''.join(f'{name:>15}' for name in names)]
    rows = {'overall': [values['overall'] for values in columns.values()]} if columns else {}
    rows |= {
        f'  {kind}': [values['by_type'].get(kind) for values in columns.values()] for kind in kinds
    }
    lines += [
        f'{name:<28}' + ''.join(f'{_rate(value):>15}' for value in values)
        for name, values in rows.items()
    ]
    lines += [
        f'{name.replace("_", " ")}: 95 %{interval_text(values["interval_95"])}'
        for name, values in columns.items()
        if values['interval_95']
    ]
    lines.append(f'questions: {report["n"]} of {report["rows"]}')
    return '\n'.join(lines)


def _rate(value: float | None) -> str:
    return '-' if value is None else f'{value:.1%}'


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='training.benchmark', description=__doc__)
    add = parser.add_argument
    add('name', choices=list(BENCHMARKS), metavar='NAME', help=', '.join(BENCHMARKS))
    add('--rows', required=True, type=Path, metavar='FILE', help='as the benchmark publishes it')
    add('--model', metavar='DIR_OR_URL', help='ask this model')
    source = parser.add_mutually_exclusive_group()
    source.add_argument('--videos', type=Path, metavar='DIR', help='perceive the videos in it')
    source.add_argument('--maps', type=Path, metavar='DIR', help='a MAP.json for each scene')
    source.add_argument(
        '--predictions', type=Path, metavar='FILE.jsonl', help='score lines of id, prediction'
    )
    add_asking_options(parser)
    add('--export', type=Path, metavar='FILE', help='write predictions for the suite of NAME')
    add_report_option(parser)
    return parser


def _check(args: argparse.Namespace) -> None:
    """Refuse arguments that do not go together, before any work is done."""
    source = '--videos' if args.videos else '--maps' if args.maps else ''
    benchmark = BENCHMARKS[args.name]
    has_images = benchmark.has_images
    problems = {
        'predictions are scored without a model: leave --model out': args.predictions
        and args.model,
        f'{args.name} brings its images with it: leave {source} out': has_images and source,
        f'{source} needs --model': source and not args.model,
        f'answers to {args.name} need marks: give --export, mark them, and score --predictions': (
            args.model and benchmark.is_marked and not args.export
        ),
        '--export needs predictions: give --predictions, or --model and --videos': args.export
        and not (args.predictions or source or (args.model and has_images)),
    }
    for problem, is_there in problems.items():
        if is_there:
            raise InputError(problem)
    if args.export:
        check_export(args.name, args.export)


@dataclass(frozen=True)
class Replies:
    """What was said to the questions, by their ids."""

    texts: dict[str, str] | None = None  # None: nobody was asked about scenes
    errors: dict[str, str] = field(default_factory=dict)  # why there is no text
    marks: dict[str, float] = field(default_factory=dict)  # that came with them
    blind: AskedQuestions | None = None  # without the scenes; None: not asked
    about: dict[str, Any] = field(default_factory=dict)  # who said it


def _given_replies(args: argparse.Namespace, ids: Collection[str]) -> Replies:
    predictions = read_predictions(args.predictions, ids)
    marks = {}
    if BENCHMARKS[args.name].is_marked:
        marks = {name: p.mark for name, p in predictions.items() if p.mark is not None}
        unmarked = predictions.keys() - marks.keys()
        if unmarked:
            msg = f'{args.predictions}: {min(unmarked)!r} has no mark: add one from 1 to 5'
            raise InputError(msg)
    return Replies({name: p.text for name, p in predictions.items()}, marks=marks)


def _asked_replies(
    args: argparse.Namespace, questions: Sequence[BenchmarkQuestion], cache: ReplyCache
) -> Replies:
    sampling = Sampling(0.0, 1.0, args.max_tokens or Sampling.max_tokens, args.seed)
    memory = reasoner_config(args.model, token_budget=args.token_budget).memory()
    about = {
        'model': args.model,
        'identity': model_identity(args.model),
        'sampling': asdict(sampling),
    }
    nothing = dict.fromkeys((question.id for question in questions), NOTHING_KNOWN)
    known = [question for question in questions if question.truth is not None]
    replies = Replies(about=about)
    perceived = _scenes(args, questions)
    if perceived is not None:
        scenes, errors = perceived
        answers = ask(args.model, questions, scenes, memory, sampling, cache)
        replies = Replies(answers.texts, errors | answers.errors, about=about)
    if BENCHMARKS[args.name].is_marked:
        return replies
    blind = ask(args.model, without_images(known), nothing, memory, sampling, cache)
    return replace(replies, blind=blind)


def _scenes(
    args: argparse.Namespace, questions: Sequence[BenchmarkQuestion]
) -> tuple[dict[str, RecordingScene], dict[str, str]] | None:
    """What is known of the scenes, and why nothing is, by question; None: no scene is shown."""
    if args.videos:
        return perceive_videos(questions, args.videos, _perceived_before(args.cache))
    if args.maps:
        return read_maps(questions, args.maps)
    if BENCHMARKS[args.name].has_images:
        return dict.fromkeys((question.id for question in questions), NOTHING_KNOWN), {}
    return None


def _perceived_before(folder: str) -> PerceptionCache | None:
    return None if folder == 'none' else PerceptionCache(Path(folder) / 'perceived', _MOST_BYTES)


def _report(args: argparse.Namespace) -> dict[str, Any]:
    benchmark = BENCHMARKS[args.name]
    cache = opened_cache(args.cache)
    published = benchmark.read(args.rows)
    questions = draw_rows(published, args.limit, args.seed)
    known = [question for question in questions if question.truth is not None]
    replies = Replies()
    if args.predictions:
        replies = _given_replies(args, {question.id for question in published})
    elif args.model:
        replies = _asked_replies(args, questions, cache)
    blind = baselines(benchmark, known)
    if replies.blind:
        scores = score_predictions(benchmark, known, replies.blind.texts, {})
        blind['question_only'] = {
            **summary(benchmark, scored_questions(known, scores)),
            'missing': len(replies.blind.errors),
        }
    scored = {**NO_SCORES, 'n': len(known)}
    if replies.texts is not None:
        scored = scored_report(benchmark, known, replies.texts, replies.errors, replies.marks)
        if args.export:
            write_export(benchmark.name, args.export, questions, replies.texts)
    head = {'benchmark': benchmark.name, 'rows': len(questions), **replies.about}
    return {**head, **scored, 'baselines': blind}


def _run(args: argparse.Namespace) -> int:
    _check(args)
    report = _report(args)
    write_report(args.json, report)
    sys.stdout.write(table(report) + '\n')
    for line in _shortfalls(report):
        sys.stderr.write(line + '\n')
    return 1 if report['errors'] else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Score a benchmark, and print the scores."""
    return run_command(_parser(), _run, arguments)


def _shortfalls(report: dict[str, Any]) -> list[str]:
    """What is missing, in words."""
    lines = []
    if report['missing']:
        lines.append(f'questions without a prediction, counted as wrong: {report["missing"]}')
    if report.get('left_out'):
        lines.append(f'predictions without a score, left out: {report["left_out"]}')
    if report['errors']:
        first = report['errors'][0]
        count = len(report['errors'])
        lines.append(f'questions that failed: {count}; the first, {first["id"]}: {first["error"]}')
    return lines


if __name__ == '__main__':
    sys.exit(main())
