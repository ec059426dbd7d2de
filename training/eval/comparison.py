# SPDX-License-Identifier: Apache-2.0
"""Which models are better on the same rows: `training.evaluate compare A.json B.json …`.

A.json and the others are reports of `training.evaluate --json`. Each is compared with the first,
and of several so is the mean: they are runs of one recipe. The test is paired: every row is asked
of both, and whole scenes are resampled and flipped (`statistics.py`).
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import asdict
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

from training.eval.asking import add_report_option, write_report
from training.eval.figures import gain_text
from training.eval.statistics import interval_over_runs, paired_test
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    Pair = tuple[dict[str, Any], dict[str, Any]]

_OF_A_MODEL = (
    'model', 'identity', 'format', 'consistency', 'unknown', 'answered', 'wrong',
    'question_only_accuracy',
)  # fmt: skip


def compare(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Compare two reports over the rows that both have; differences are second minus first.

    Raises:
        InputError: They share no row, or a row was asked with another prompt.
    """
    pairs = _paired(first, second)
    groups: dict[str, dict[str, list[Pair]]] = {'question_type': {}, 'scene_id': {}}
    for name, table in groups.items():
        grouped = defaultdict(list)
        for pair in pairs:
            grouped[pair[0][name]].append(pair)
        table.update(sorted(grouped.items()))
    return {
        'first': {name: first[name] for name in _OF_A_MODEL},
        'second': {name: second[name] for name in _OF_A_MODEL},
        'rows_in_one_only': first['n'] + second['n'] - 2 * len(pairs),
        **_figures(pairs),
        'by_type': {kind: _figures(some) for kind, some in groups['question_type'].items()},
        'by_scene': {scene: _rates(some) for scene, some in groups['scene_id'].items()},
    }


def _paired(first: dict[str, Any], second: dict[str, Any]) -> list[Pair]:
    by_id = {outcome['id']: outcome for outcome in second['outcomes']}
    pairs = [(o, by_id[o['id']]) for o in first['outcomes'] if o['id'] in by_id]
    if not pairs:
        msg = 'the two reports share no row: evaluate both models on the same file of rows'
        raise InputError(msg)
    for a, b in pairs:
        if (a['prompt_sha256'], a['solution']) != (b['prompt_sha256'], b['solution']):
            msg = (
                f'row {a["id"]!r} was another one in the two reports: evaluate both models on '
                'the same rows, with the same token budget'
            )
            raise InputError(msg)
    return pairs


def _rates(pairs: Sequence[Pair]) -> dict[str, Any]:
    scores = [(a['accuracy'] or 0.0, b['accuracy'] or 0.0) for a, b in pairs]
    return {
        'n': len(pairs),
        'first_accuracy': sum(a for a, _ in scores) / len(pairs),
        'second_accuracy': sum(b for _, b in scores) / len(pairs),
        'better': sum(b > a for a, b in scores),
        'worse': sum(b < a for a, b in scores),
    }


def _figures(pairs: Sequence[Pair]) -> dict[str, Any]:
    differences = [(b['accuracy'] or 0.0) - (a['accuracy'] or 0.0) for a, b in pairs]
    paired = paired_test(differences, [a['scene_id'] for a, _ in pairs])
    return {**_rates(pairs), **(asdict(paired) if paired else {})}


def mean_over_runs(first: dict[str, Any], runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What runs of one recipe gain on the first; the interval resamples both scenes and runs.

    Raises:
        InputError: The runs were not asked the same rows.
    """
    pairs = [_paired(first, run) for run in runs]
    if len({tuple(a['id'] for a, _ in some) for some in pairs}) > 1:
        msg = 'the reports are of other rows: evaluate all runs on the same file of rows'
        raise InputError(msg)
    gains = [[(b['accuracy'] or 0.0) - (a['accuracy'] or 0.0) for a, b in some] for some in pairs]
    rates = [_rates(some)['second_accuracy'] for some in pairs]
    return {
        'runs': len(runs),
        'accuracy': sum(rates) / len(rates),
        'lowest': min(rates),
        'highest': max(rates),
        'difference': sum(map(sum, gains)) / (len(gains) * len(gains[0])),
        'interval_95': interval_over_runs(gains, [a['scene_id'] for a, _ in pairs[0]]),
    }


def table(comparison: dict[str, Any]) -> str:
    """The comparison as text."""
    lines = [
        f'first   {comparison["first_accuracy"]:6.1%}  {comparison["first"]["model"]}',
        f'second  {comparison["second_accuracy"]:6.1%}  {comparison["second"]["model"]}',
        f'difference {gain_text(comparison)}, p = {comparison["p_value"]:.2g}',
        f'{comparison["n"]} rows of {comparison["scenes"]} scenes: second right where first was '
        f'not {comparison["better"]}, the other way round {comparison["worse"]}',
    ]
    if comparison['rows_in_one_only']:
        lines.append(f'{comparison["rows_in_one_only"]} rows are in one report only: left out')
    lines += [
        f'  {kind:<20} {entry["first_accuracy"]:6.1%} {entry["second_accuracy"]:6.1%} '
        f'{entry["difference"]:+7.1%}  p = {entry["p_value"]:<7.2g} (n = {entry["n"]})'
        for kind, entry in comparison['by_type'].items()
    ]
    return '\n'.join(lines)


def read_report(path: Path) -> dict[str, Any]:
    """Read a report of `training.evaluate --json`.

    Raises:
        InputError: It is none, or one without the outcomes of its rows.
    """
    try:
        report = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        msg = f'{path} cannot be read as a report: {error}'
        raise InputError(msg) from None
    if not isinstance(report, dict) or not {'outcomes', *_OF_A_MODEL} <= report.keys():
        msg = f'{path} lacks the outcomes of its rows: make it with training.evaluate --json'
        raise InputError(msg)
    return report


def _run(args: argparse.Namespace) -> int:
    first, *others = map(read_report, [args.first, *args.others])
    comparisons = [compare(first, other) for other in others]
    texts = list(map(table, comparisons))
    report = comparisons[0]
    if len(others) > 1:
        mean = mean_over_runs(first, others)
        report = {'comparisons': comparisons, 'mean': mean}
        spread = f'{mean["lowest"]:.1%} to {mean["highest"]:.1%}'
        texts.append(
            f'mean of {len(others)} runs {mean["accuracy"]:.1%} ({spread}): '
            f'difference {gain_text(mean)}'
        )
    write_report(args.json, report)
    sys.stdout.write('\n\n'.join(texts) + '\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare reports with the first of them."""
    parser = argparse.ArgumentParser(prog='training.evaluate compare', description=__doc__)
    parser.add_argument('first', type=Path, metavar='A.json')
    parser.add_argument('others', type=Path, nargs='+', metavar='B.json')
    add_report_option(parser)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
