# SPDX-License-Identifier: Apache-2.0
"""Several sampled completions of each row: `python -m training.rollouts --model M --rows FILE`.

They tell which rows a model answers rightly now and then, which are those that reinforcement
learning can learn from (`training.grpo --samples`), and they are what rejection sampling, the
control of every RL result, is trained on (`training.sft --samples`). A run that was stopped goes
on where it was.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
import json
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.answers import Sampling
from embodied_r_ros.errors import EmbodiedRError, InputError
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.rows import read_rows
from tqdm import tqdm

from training.evaluate import drawn
from training.generate import generate
from training.grading import grade

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.rows import Row

_AT_ONCE = 64  # rows per call of the model, after which what was sampled is kept


def sample(
    model: str, rows: Sequence[Row], count: int, sampling: Sampling, memory: MemoryConfig
) -> Iterable[dict[str, Any]]:
    """Sample and grade completions of rows, in their order.

    Yields:
        For each row `id`, `completions`, and for each of them whether it is `right`.

    Raises:
        InputError: There is no model.
        ModelError: It fails.
    """
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        prompts = [row.prompt(memory) for row in some]
        # Each time with a seed of its own: equal prompts of one call are completed once.
        tries = [
            generate(model, prompts, replace(sampling, seed=sampling.seed + number))
            for number in range(count)
        ]
        for index, row in enumerate(some):
            own = [texts[index] for texts in tries]
            right = [grade(row, text).accuracy == 1.0 for text in own]
            yield {'id': row.id, 'completions': own, 'right': right}


def read_samples(path: Path) -> dict[str, dict[str, Any]]:
    """Samples by row id; a line that a killed run left unfinished is passed over.

    Raises:
        InputError: The file cannot be read.
    """
    found = {}
    try:
        lines = path.read_text(encoding='utf-8').splitlines()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read as samples: {error}'
        raise InputError(msg) from None
    for line in lines:
        try:
            value = json.loads(line)
            found[value['id']] = {'completions': value['completions'], 'right': value['right']}
        except (ValueError, KeyError, TypeError):
            sys.stderr.write(f'{path}: {line[:60]!r} is no sample: passed over\n')
    return found


def unanimous(samples: dict[str, dict[str, Any]]) -> set[str]:
    """Ids of the rows whose samples are all right or all wrong."""
    return {key for key, value in samples.items() if len(set(value['right'])) == 1}


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample, and say how often the model was right."""
    parser = argparse.ArgumentParser(prog='training.rollouts', description=__doc__)
    parser.add_argument('--model', required=True, metavar='DIR_OR_URL')
    parser.add_argument('--rows', required=True, type=Path, metavar='FILE')
    parser.add_argument('--out', required=True, type=Path, metavar='SAMPLES.jsonl')
    parser.add_argument('--split', default='train')
    parser.add_argument('--count', type=int, default=8, help='completions per row')
    parser.add_argument('--limit', type=int, default=0, help='so many rows; 0: all')
    parser.add_argument('--temperature', type=float, default=1.0)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--max-tokens', type=int, default=Sampling.max_tokens)
    parser.add_argument('--token-budget', type=int, default=MemoryConfig.token_budget)
    args = parser.parse_args(arguments)
    try:
        done = read_samples(args.out) if args.out.exists() else {}
        rows = [row for row in read_rows(args.rows) if row.split == args.split]
        rows = [row for row in drawn(rows, args.limit, args.seed) if row.id not in done]
        # Completions of a batch wait for the longest: alike questions over alike histories.
        rows.sort(key=lambda row: (row.question_type, len(row.deltas)))
        sampling = Sampling(args.temperature, 1.0, args.max_tokens, args.seed)
        made = sample(args.model, rows, args.count, sampling, MemoryConfig(args.token_budget))
        with args.out.open('a', encoding='utf-8') as out:
            for value in tqdm(made, total=len(rows), unit=' rows', disable=None):
                out.write(json.dumps(value, ensure_ascii=False) + '\n')
                out.flush()
        samples = read_samples(args.out)
    except EmbodiedRError as error:
        sys.stderr.write(f'training.rollouts: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    right = [value for sampled in samples.values() for value in sampled['right']]
    share = sum(right) / len(right) if right else 0.0
    sys.stdout.write(
        f'{len(samples)} rows, {share:.1%} of the completions right,'
        f' {len(unanimous(samples))} rows unanimous\n'
    )
    return 0


if __name__ == '__main__':
    sys.exit(main())
