# SPDX-License-Identifier: Apache-2.0
"""What it saves to compute nothing of a batch twice (training/tiny/shared_prefix.py).

Steps of the recipe of training/configs/nano.yaml with a constant reward, on the same rows with the
same seed: as TRL computes them, which is the baseline, and with shared prefixes. The learning rate
is 0. The first step warms up.
"""

from __future__ import annotations

from dataclasses import asdict
import json
from pathlib import Path
import tempfile
from typing import TYPE_CHECKING

from bench import training
from bench.report import Budget, print_budgets
from training.eval.document_tables import DocumentTable, write_tables

if TYPE_CHECKING:
    import argparse

_LIMIT = 0.6  # of the baseline's time


STEPS = DocumentTable(
    'bench sharing', 'steps', ('median of a step', 'plain', '`share_prefixes`', 'ratio')
)
TABLES = (STEPS,)
_COMPUTED = ('generation', 'forward', 'backward, optimizer', 'step')


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    training.add_arguments(parser)


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether enough is saved."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = args.rows or training.make_rows(Path(scratch), args.rooms, args.seed)
        constant = [training.constant_reward] * 3
        plain = training.measure(constant, rows, args, shared=False)
        shared = training.measure(constant, rows, args)
    print(
        f'{args.steps} steps of {args.prompts} x {args.completions} completions with '
        f'{shared.completion_tokens:.0f} tokens (mean)'
    )
    print(f'{"median of a step":20} {"plain":>10} {"shared":>10} {"ratio":>8}')
    for part, seconds in plain.parts_s.items():
        own = shared.parts_s[part]
        print(f'{part:20} {seconds:>8.3f} s {own:>8.3f} s {own / max(seconds, 1e-9):>8.2f}')
    ratio = shared.parts_s['step'] / plain.parts_s['step']
    budget = Budget('a step with shared prefixes', ratio, _LIMIT, 'of the time without')
    print_budgets([budget])
    times = [(part, plain.parts_s[part], shared.parts_s[part]) for part in _COMPUTED]
    rows = [(part, f'{a:.1f} s', f'{b:.1f} s', f'{b / a:.2f}') for part, a, b in times]
    write_tables(args, {STEPS: rows})
    if args.json:
        figures = {'plain': asdict(plain), 'shared': asdict(shared), 'budgets': [budget.to_json()]}
        args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0 if budget.is_met else 1
