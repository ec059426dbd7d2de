# SPDX-License-Identifier: Apache-2.0
"""How often a model is right, with its blind baselines: `python -m training.evaluate [SUITE]`.

Completions are kept as they come, so an evaluation that was cut off goes on where it stopped.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.core.chat.settings import is_reader
from embodied_r_ros.core.types.answers import Sampling
from embodied_r_ros.data.questions.row import Row, rows_as_asked
from embodied_r_ros.serving.profiles import READER, reasoner_config

from training.data.selection import rows_of_split
from training.data.vision import rows_with_images
from training.eval.asking import (
    add_asking_options,
    add_report_option,
    draw_rows,
    opened_cache,
    write_report,
)
from training.eval.figures import interval_text
from training.eval.generation import generate, model_identity
from training.eval.grading import (
    best_constant,
    Grade,
    grade_completions,
    grade_with_consistency,
)
from training.eval.judging import add_judge_option, judge_of
from training.eval.readers import reader_completions
from training.eval.statistics import bootstrap_interval
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.chat.cache import ReplyCache
    from embodied_r_ros.core.scene.memory import MemoryConfig

    from training.eval.judging import Judge


# Besides rows of this project: the module of each, and what it is about.
SUITES = {
    'benchmark': ('training.benchmark', 'a published benchmark by its own rows and scoring'),
    'compare': (
        'training.eval.comparison',
        'which of reports is better than the first, paired by row',
    ),
    'grade': ('training.grade', 'completions that any program wrote'),
}


def evaluate(  # noqa: PLR0913, PLR0917
    model: str,
    rows: Sequence[Row],
    memory: MemoryConfig,
    sampling: Sampling,
    cache: ReplyCache | None = None,
    judge: Judge | None = None,
    profile: str = READER,
) -> dict[str, Any]:
    """Ask a model every question, with and without what was seen, and grade the answers.

    Every row counts in `accuracy`: an answer that cannot be graded is wrong there. Rates are 0..1.
    `outcomes` has what became of each row, for a paired comparison (`compare.py`). An adapter of
    the small model answers with its tools, as the nodes of a profile.
    """

    def completions_of(group: Sequence[Row]) -> list[str]:
        if is_reader(model):
            return reader_completions(model, group, cache, profile)
        return generate(model, [row.prompt(memory) for row in group], sampling, cache=cache)

    completions = completions_of(rows)
    grades = grade_with_consistency(rows, completions, judge)
    without = [row.without_scene() for row in rows]
    blind = grade_completions(without, completions_of(without), judge)
    scenes = [row.scene_id for row in rows]
    right = [g.accuracy or 0.0 for g in grades]
    return {
        'n': len(rows),
        'accuracy': _mean(right),
        'interval_95': bootstrap_interval(right, scenes),
        'answered': _mean([float(g.is_known) for g in grades]),
        'wrong': _mean([float(g.is_wrong) for g in grades]),
        'format': _mean([float(g.format) for g in grades]),
        'consistency': mean_known([g.consistency for g in grades]),
        'words': _mean([len(text.split()) for text in completions]),
        'by_type': _beside_blind(by_type(rows, grades), by_type(rows, blind), constants(rows)),
        'by_wording': by_wording(rows, grades),
        'unanswerable': by_reason(rows, grades),
        'by_check': by_check(rows, grades),
        'majority_baseline': majority_baseline(rows),
        'question_only_accuracy': _mean([g.accuracy or 0.0 for g in blind]),
        'unknown': unknown_rates(rows, grades),
        'model': model,
        'identity': model_identity(model),
        'sampling': asdict(sampling),
        'by_scene': by_scene(rows, grades),
        'outcomes': _outcomes(rows, grades, memory),
    }


def _outcomes(
    rows: Sequence[Row], grades: Sequence[Grade], memory: MemoryConfig
) -> list[dict[str, Any]]:
    return [
        {
            'id': row.id,
            'scene_id': row.scene_id,
            'question_type': row.question_type,
            # Who is shown an image is compared on the same rows.
            'prompt_sha256': Row.prompt(row, memory).sha256(),
            'solution': row.solution,
            **asdict(g),
        }
        for row, g in zip(rows, grades, strict=True)
    ]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else 0.0


def mean_known(values: Sequence[float | None]) -> float | None:
    """Mean of the values that are known; None: none is."""
    values_known = [value for value in values if value is not None]
    return _mean(values_known) if values_known else None


def by_type(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, dict[str, Any]]:
    """Accuracy of each question type, with its interval and count."""
    return rates(_grouped(rows, grades, lambda row, _: row.question_type))


def constants(rows: Sequence[Row]) -> dict[str, float]:
    """Accuracy of the best constant answer to each question type."""
    kinds = sorted({row.question_type for row in rows})
    return {kind: best_constant([r for r in rows if r.question_type == kind]) for kind in kinds}


def _beside_blind(
    types: dict[str, dict[str, Any]],
    unseen: dict[str, dict[str, Any]],
    constant: dict[str, float],
) -> dict[str, dict[str, Any]]:
    return {
        kind: {
            **entry,
            'question_only_accuracy': unseen[kind]['accuracy'],
            'constant_accuracy': constant[kind],
        }
        for kind, entry in types.items()
    }


def by_wording(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, dict[str, Any]]:
    """Accuracy in wordings of the training rows and in held-out ones; empty: rows do not tell."""
    names = {False: 'known', True: 'held out', None: None}
    return rates(_grouped(rows, grades, lambda row, _: names[row.meta.get('held_out_wording')]))


# Of questions without an answer, by what proves that there is none.
_REASONS = {'layout': 'absent', 'foreign': 'foreign'}


def by_reason(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, dict[str, Any]]:
    """Accuracy where nothing seen can tell: an item that is nowhere, or a foreign question."""

    def reason(row: Row, _: Grade) -> str | None:
        of_kind = row.question_type == 'unanswerable'
        return _REASONS.get(row.source, row.source) if of_kind else None

    return rates(_grouped(rows, grades, reason))


def by_check(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, dict[str, Any]]:
    """Accuracy of verified, unsupported and unchecked answers; empty: nothing checked them."""
    return rates(_grouped(rows, grades, lambda _, g: g.check or None))


def rates(groups: dict[str, list[tuple[float, str]]]) -> dict[str, dict[str, Any]]:
    """Accuracy of each group, with its interval and count."""
    table = {}
    for name, values in groups.items():
        right, scenes = zip(*values, strict=True)
        table[name] = {
            'n': len(values),
            'accuracy': _mean(right),
            'interval_95': bootstrap_interval(right, scenes),
        }
    return table


def by_scene(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, dict[str, Any]]:
    """Accuracy in each scene, and its count; one scene alone has no interval."""
    groups = _grouped(rows, grades, lambda row, _: row.scene_id)
    return {
        scene: {'n': len(values), 'accuracy': _mean([right for right, _ in values])}
        for scene, values in groups.items()
    }


def _grouped(
    rows: Sequence[Row], grades: Sequence[Grade], group: Callable[[Row, Grade], str | None]
) -> dict[str, list[tuple[float, str]]]:
    """Accuracy and scene of the rows of each group, in alphabetical order of the groups.

    None: the row is of no group.
    """
    groups: dict[str, list[tuple[float, str]]] = defaultdict(list)
    for row, g in zip(rows, grades, strict=True):
        if (name := group(row, g)) is not None:
            groups[name].append((g.accuracy or 0.0, row.scene_id))
    return dict(sorted(groups.items()))


def majority_baseline(rows: Sequence[Row]) -> float:
    """Accuracy of the best constant answer (a letter, or 'unknown')."""
    counts = Counter(row.solution for row in rows if row.answer_kind == 'choice')
    return max(counts.values(), default=0) / len(rows) if rows else 0.0


def unknown_rates(rows: Sequence[Row], grades: Sequence[Grade]) -> dict[str, float | None]:
    """Precision and recall of the answer 'unknown'; None where they are not defined."""
    says_unknown = [g.answer == 'unknown' for g in grades]
    true = [row.solution == 'unknown' for row in rows]
    both = sum(s and t for s, t in zip(says_unknown, true, strict=True))
    return {
        'precision': both / sum(says_unknown) if any(says_unknown) else None,
        'recall': both / sum(true) if any(true) else None,
    }


def table(report: dict[str, Any]) -> str:
    """The report as text."""
    lines = [
        f'{"accuracy":<22} {report["accuracy"]:6.1%} {interval_text(report["interval_95"])}',
        f'{"wrong, not unknown":<22} {report["wrong"]:6.1%}  (answered {report["answered"]:.1%})',
        f'{"rows":<22} {report["n"]:6}  (of {len(report["by_scene"])} scenes)',
        f'{"majority answer":<22} {report["majority_baseline"]:6.1%}',
        f'{"question only":<22} {report["question_only_accuracy"]:6.1%}',
        f'{"format":<22} {report["format"]:6.1%}',
        f'{"consistency, judged":<22} {_rate(report["consistency"])}',
        f'{"unknown, precision":<22} {_rate(report["unknown"]["precision"])}',
        f'{"unknown, recall":<22} {_rate(report["unknown"]["recall"])}',
    ]
    lines += [
        f'  {kind:<20} {entry["accuracy"]:6.1%}  (n = {entry["n"]},'
        f' question only {entry["question_only_accuracy"]:.1%},'
        f' constant {entry["constant_accuracy"]:.1%})'
        for kind, entry in report['by_type'].items()
    ]
    lines += [
        f'{f"{heading} {name}":<22} {entry["accuracy"]:6.1%}  (n = {entry["n"]})'
        for heading, key in (('words', 'by_wording'), ('unknown as', 'unanswerable'))
        for name, entry in report[key].items()
        if len(report[key]) > 1
    ]
    lines += [
        f'{name:<22} {entry["accuracy"]:6.1%}  (n = {entry["n"]})'
        for name, entry in report['by_check'].items()
    ]
    return '\n'.join(lines)


def _rate(value: float | None) -> str:
    return f'{"-":>6}' if value is None else f'{value:6.1%}'


def _parser() -> argparse.ArgumentParser:
    suites = ''.join(f'\n  {name:<12} {text}' for name, (_, text) in SUITES.items())
    parser = argparse.ArgumentParser(
        prog='training.evaluate',
        description=__doc__,
        epilog=f'suites (training.evaluate SUITE --help):{suites}',
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add('--model', required=True, metavar='DIR_OR_URL', help='or ADAPTER.gguf')
    add('--rows', required=True, type=Path, metavar='FILE')
    add('--split', help='only rows of this split; default: all rows of the file')
    add_asking_options(parser)
    add('--temperature', type=float, help='0: greedy; default: likewise')
    text = 'of training.data.vision: show them to a VLM'
    add('--images', type=Path, metavar='DIR', help=text)
    add_judge_option(parser)
    add_report_option(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    rows = draw_rows(rows_of_split(args.rows, args.split), args.limit, args.seed)
    rows = rows_with_images(rows, args.images) if args.images else rows
    config = reasoner_config(
        args.model,
        token_budget=args.token_budget,
        temperature=args.temperature,
        max_tokens=args.max_tokens,
    )
    rows, memory = rows_as_asked(rows, config), config.memory()
    sampling = Sampling(config.temperature, config.top_p, config.max_tokens, args.seed)
    judge, cache = judge_of(args.judge), opened_cache(args.cache)
    report = evaluate(args.model, rows, memory, sampling, cache, judge)
    write_report(args.json, report)
    sys.stdout.write(table(report) + '\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate, and print the report."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words and words[0] in SUITES:
        suite: int = import_module(SUITES[words[0]][0]).main(words[1:])
        return suite
    return run_command(_parser(), _run, words)


if __name__ == '__main__':
    sys.exit(main())
