# SPDX-License-Identifier: Apache-2.0
"""How often a judge errs: `python -m training.judge.report --judge DIR_OR_URL --rows FILE`.

False accept: the reasoning leads elsewhere, yet the judge takes it for the answer's (the right
answer under another item's reasoning, or under a flipped conclusion). False reject: the reasoning
does lead to the answer. Measured twice: in wordings of the training, half of which are those of
the traces, and with every conclusion worded as no training sample words it.
"""

from __future__ import annotations

import argparse
from itertools import islice
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import write_whole

from training.eval.document_tables import (
    add_markdown_option,
    DocumentTable,
    percent,
    write_tables,
)
from training.judge.data import KINDS
from training.judge.models import load_judge
from training.judge.train import split_samples
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.judge.cases import Judge
    from training.judge.data import Sample


def measure(judge: Judge, made: Sequence[Sample]) -> dict[str, Any]:
    """Rates (0..1) of a judge's errors over samples, in all and by kind.

    Raises:
        ModelError: The judge failed.
    """
    verdicts = judge.conclusions([sample.case for sample in made])
    pairs = list(zip(made, verdicts, strict=True))
    return {
        'n': len(made),
        **_rates(pairs),
        'by_kind': {kind: _rates([p for p in pairs if p[0].kind == kind]) for kind in KINDS},
    }


def _rates(pairs: Sequence[tuple[Sample, str]]) -> dict[str, float | None]:
    accepted = [(s.conclusion == s.answer, verdict == s.answer) for s, verdict in pairs]
    wrong = [kind_accepted for consistent, kind_accepted in accepted if not consistent]
    right = [kind_accepted for consistent, kind_accepted in accepted if consistent]
    return {
        'agreement': _mean([verdict == sample.conclusion for sample, verdict in pairs]),
        'false_accept': _mean(wrong),
        'false_reject': None if not right else 1 - (_mean(right) or 0.0),
    }


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def table(report: dict[str, Any]) -> str:
    """The report as text."""

    def line(name: str, rates: dict[str, Any]) -> str:
        shown = (rates[key] for key in ('agreement', 'false_accept', 'false_reject'))
        return f'{name:<10}' + ''.join(
            f'{"-" if v is None else format(v, ".2%"):>15}' for v in shown
        )

    lines = [f'{"reasoning":<10}{"agreement":>15}{"false accept":>15}{"false reject":>15}']
    lines += [line(kind, rates) for kind, rates in report['by_kind'].items()]
    return '\n'.join([*lines, line('all', report)])


ERRORS = DocumentTable(
    'training.judge.report',
    'errors',
    (
        'reasoning', 'agreement', 'false accept', 'false reject', 'held-out: agreement',
        'false accept', 'false reject',
    ),
)  # fmt: skip


def document_rows(report: dict[str, Any]) -> list[tuple[str, ...]]:
    """The lines of ERRORS: rates by kind of reasoning, in known and in held-out wordings."""

    def cells(figures: dict[str, Any]) -> list[str]:
        rates = [figures[key] for key in ('agreement', 'false_accept', 'false_reject')]
        return [percent(rate, 1) for rate in rates]

    both = list(report.values())
    kinds = [(kind, *(c for one in both for c in cells(one['by_kind'][kind]))) for kind in KINDS]
    return [*kinds, ('all', *(cell for one in both for cell in cells(one)))]


def _run(args: argparse.Namespace) -> int:
    judge = load_judge(args.judge)
    report = {}
    for name, held_out in (('known wordings', False), ('held-out wordings', True)):
        sample_list = split_samples(args.rows, args.split, args.seed, held_out)
        report[name] = measure(judge, list(islice(sample_list, args.limit)))
    if args.json:
        write_whole(args.json, json.dumps(report, indent=2) + '\n', makes_folder=True)
    for name, figures in report.items():
        sys.stdout.write(f'{name}, {figures["n"]} samples\n{table(figures)}\n')
    write_tables(args, {ERRORS: document_rows(report)})
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(prog='training.judge.report', description=__doc__)
    parser.add_argument('--judge', required=True, action='append', metavar='DIR_OR_URL')
    parser.add_argument('--rows', required=True, action='append', metavar='FILE')
    parser.add_argument('--split', default='test')
    parser.add_argument('--limit', type=int, default=3000, help='samples of each wording, at most')
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the report here too')
    add_markdown_option(parser)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
