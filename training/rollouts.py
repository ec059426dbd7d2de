# SPDX-License-Identifier: Apache-2.0
"""Several sampled completions of each row: `python -m training.rollouts --model M --rows FILE`.

They tell which rows a model answers rightly now and then, which are those that reinforcement
learning can learn from (`training.grpo --samples`), and they are what rejection sampling, the
control of every RL result, is trained on (`training.sft --samples`). A run that was stopped goes
on where it was; each line tells its origin (weights, sampling, judge), and a file has one alone.
"""

from __future__ import annotations

import argparse
from contextlib import contextmanager
from dataclasses import replace
import json
from pathlib import Path
import sys
from typing import Any, TextIO, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling
from tqdm import tqdm

from training.data.samples import (
    is_another,
    origin_of,
    pass_rate,
    PassRateBand,
    read_existing_samples,
    read_samples,
    SampleOrigin,
)
from training.data.selection import rows_of_split
from training.eval.asking import add_cache_option, draw_rows, opened_cache
from training.eval.generation import generate
from training.eval.grading import grade_completions, is_free_text
from training.eval.judging import add_judge_option, judge_identity, judge_of
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.core.chat.cache import ReplyCache
    from embodied_r_ros.data.questions.row import Row

    from training.eval.judging import Judge

_AT_ONCE = 64  # rows per call of the model, after which what was sampled is kept


def sample(  # noqa: PLR0913, PLR0917
    model: str,
    rows: Sequence[Row],
    count: int,
    sampling: Sampling,
    memory: MemoryConfig,
    judge: Judge | None = None,
    cache: ReplyCache | None = None,
) -> Iterable[dict[str, Any]]:
    """Sample and grade completions of rows, in their order.

    Without a judge a free text is right where it is the solution to the letter. What the model
    said before is taken from the cache, and graded all the same.

    Yields:
        For each row `id`, `prompt_sha256`, `solution`, its `pass_rate`, `completions`, and for
        each of them whether it is `right`.

    Raises:
        InputError: There is no model.
        ModelError: It fails, or the judge does.
    """
    for start in range(0, len(rows), _AT_ONCE):
        some = [*rows[start : start + _AT_ONCE]]
        prompts = [row.prompt(memory) for row in some]
        # Each time with a seed of its own: equal prompts of one call are completed once.
        tries = [
            generate(model, prompts, replace(sampling, seed=sampling.seed + number), cache=cache)
            for number in range(count)
        ]
        # Of all tries together: a judge takes many cases at once.
        grades = grade_completions(
            some * count, [text for texts in tries for text in texts], judge
        )
        for index, (row, prompt) in enumerate(zip(some, prompts, strict=True)):
            own = [texts[index] for texts in tries]
            right = [g.accuracy == 1.0 for g in grades[index :: len(some)]]
            sample_origin = {
                'id': row.id,
                'prompt_sha256': prompt.sha256(),
                'solution': row.solution,
                'pass_rate': round(pass_rate(right), 4),
            }
            yield {**sample_origin, 'completions': own, 'right': right}


def _add_samples(args: argparse.Namespace) -> None:
    """Sample what the file does not have yet.

    Raises:
        InputError: There is no model or no row, or the file cannot be continued.
        ModelError: The model fails, or the judge.
    """
    sampling = Sampling(args.temperature, 1.0, args.max_tokens, args.seed)
    memory = MemoryConfig(args.token_budget)
    rows = rows_of_split(args.rows, args.split)
    texts = frozenset(row.id for row in rows if is_free_text(row))
    # Who has no need of a judge needs none to be there.
    grader = judge_identity(args.judge) if texts else []
    origin = SampleOrigin(origin_of(args.model, args.count, sampling, memory), grader, texts)
    finished = read_existing_samples(args.out, origin)
    rows = draw_rows(rows, args.limit, args.seed)
    for row in rows:
        if row.id in finished and is_another(row, memory, finished[row.id]):
            msg = (
                f'{args.out} has samples of row {row.id!r}, which is asked or solved otherwise '
                f'now in {args.rows}: name another --out, or delete it'
            )
            raise InputError(msg)
    rows = [row for row in rows if row.id not in finished]
    # Completions of a batch wait for the longest: alike questions over alike histories.
    rows.sort(key=lambda row: (row.question_type, len(row.deltas)))
    judge = judge_of(args.judge) if any(row.id in texts for row in rows) else None
    cache = opened_cache(args.cache)
    new_samples = sample(args.model, rows, args.count, sampling, memory, judge, cache)
    with _appended(args.out) as out:
        for value in tqdm(new_samples, total=len(rows), unit=' rows', disable=None):
            line = {**value, 'origin': origin.of(value['id'])}
            out.write(json.dumps(line, ensure_ascii=False) + '\n')
            out.flush()


@contextmanager
def _appended(path: Path) -> Iterator[TextIO]:
    """A file to continue, with its folder.

    Raises:
        InputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open('a', encoding='utf-8') as out:
            yield out
    except EmbodiedRError:  # of the model; a missed deadline would be an OSError too
        raise
    except OSError as error:
        msg = f'--out {path} cannot be written: {error.strerror}'
        raise InputError(msg) from None


def _run(args: argparse.Namespace) -> int:
    _add_samples(args)
    samples = read_samples(args.out)
    right = [value for sampled in samples.values() for value in sampled['right']]
    band = PassRateBand()
    below, inside, above = map(len, band.split(samples))
    rates = f'{below} below {band.low:.0%}, {above} above {band.high:.0%}, {inside} teach'
    share = pass_rate(right)
    sys.stdout.write(
        f'{len(samples)} rows, {share:.1%} of the completions right; pass rates: {rates}\n'
    )
    return 0


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
    add_cache_option(parser, 'none')
    add_judge_option(parser, 'free texts are right to the letter alone')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
