# SPDX-License-Identifier: Apache-2.0
"""Several sampled completions of each row: `python -m training.rollouts --model M --rows FILE`.

They tell which rows a model answers rightly now and then, which are those that reinforcement
learning can learn from (`training.grpo --samples`), and they are what rejection sampling, the
control of every RL result, is trained on (`training.sft --samples`). A run that was stopped goes
on where it was; each line tells its origin (weights, sampling, judge), and a file has one alone.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, replace
import json
import os
from pathlib import Path
from random import Random
import sys
from typing import Any, TextIO, TYPE_CHECKING

from embodied_r_ros.answers import Sampling
from embodied_r_ros.errors import EmbodiedRError, InputError
from embodied_r_ros.reasoning.memory import MemoryConfig
from tqdm import tqdm

from training.evaluate import drawn
from training.generate import generate, model_identity
from training.grading import graded, is_free_text
from training.judge.models import add_judge_option, judge_identity, judge_of
from training.kinds import rows_of_split

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from embodied_r_ros.rows import Row

    from training.judge.cases import Judge

_AT_ONCE = 64  # rows per call of the model, after which what was sampled is kept


def sample(
    model: str,
    rows: Sequence[Row],
    count: int,
    sampling: Sampling,
    memory: MemoryConfig,
    judge: Judge | None = None,
) -> Iterable[dict[str, Any]]:
    """Sample and grade completions of rows, in their order.

    Without a judge a free text is right where it is the solution to the letter.

    Yields:
        For each row `id`, `prompt_sha256`, `completions`, and for each of them whether it is
        `right`.

    Raises:
        InputError: There is no model.
        ModelError: It fails, or the judge does.
    """
    for start in range(0, len(rows), _AT_ONCE):
        some = [*rows[start : start + _AT_ONCE]]
        prompts = [row.prompt(memory) for row in some]
        # Each time with a seed of its own: equal prompts of one call are completed once.
        tries = [
            generate(model, prompts, replace(sampling, seed=sampling.seed + number))
            for number in range(count)
        ]
        # Of all tries together: a judge takes many cases at once.
        grades = graded(some * count, [text for texts in tries for text in texts], judge)
        for index, (row, prompt) in enumerate(zip(some, prompts, strict=True)):
            own = [texts[index] for texts in tries]
            right = [g.accuracy == 1.0 for g in grades[index :: len(some)]]
            asked = {'id': row.id, 'prompt_sha256': prompt.sha256()}
            yield {**asked, 'completions': own, 'right': right}


def read_samples(path: Path) -> dict[str, dict[str, Any]]:
    """Samples by row id; a line that a killed run left unfinished is passed over.

    Raises:
        InputError: The file cannot be read.
    """
    whole, torn = _read(path)
    lines = [*whole, *([torn.decode(errors='replace')] if torn else [])]
    return {
        value['id']: {'completions': value['completions'], 'right': value['right']}
        for value in _parsed(path, lines)
    }


def _read(path: Path) -> tuple[list[str], bytes]:
    """The lines of a file, and what a killed run left of one more.

    Raises:
        InputError: It cannot be read.
    """
    try:
        whole, end, torn = path.read_bytes().rpartition(b'\n')
        # No other end of a line: completions may hold those that only Unicode knows.
        return whole.decode().split('\n') if end else [], torn
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{path} cannot be read as samples: {error}'
        raise InputError(msg) from None


def _parsed(path: Path, lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        is_whole = isinstance(value, dict) and {'id', 'completions', 'right'} <= value.keys()
        if is_whole and isinstance(value['id'], str):
            yield value
        else:
            sys.stderr.write(f'{path}: {line[:60]!r} is no sample: passed over\n')


def origin_of(model: str, count: int, sampling: Sampling, memory: MemoryConfig) -> dict[str, Any]:
    """What decides the samples of a row: weights, how often and how they are asked, and told.

    Raises:
        InputError: There is no model.
        ModelError: Its server fails.
    """
    told = {'token_budget': memory.token_budget, 'count': count}
    return {'model': model_identity(model), **asdict(sampling), **told}


@dataclass(frozen=True)
class Origin:
    """What decides the samples of rows, and their grades."""

    told: dict[str, Any]  # of `origin_of`
    judge: list[str]  # who grades free texts; empty: nobody
    texts: frozenset[str]  # ids of the rows with free texts

    def of(self, row_id: str) -> dict[str, Any]:
        """That of one row: a judge has no part in most."""
        judged = self.judge and row_id in self.texts
        return {**self.told, **({'judge': self.judge} if judged else {})}

    def difference(self, value: dict[str, Any]) -> str:
        """What a line tells of its origin that is not so now; empty: it is of this one."""
        told = value.get('origin')
        if not isinstance(told, dict):
            return 'none is told'
        own = self.of(value['id'])
        # Who graded rows that are not asked now, with another split, is their own matter.
        free = set() if value['id'] in self.texts else {'judge'}
        names = [n for n in own | told if n not in free and told.get(n) != own.get(n)]
        return ', '.join(f'{n} {told.get(n)!r}, not {own.get(n)!r}' for n in names)


def begun(path: Path, origin: Origin) -> dict[str, str]:
    """SHA-256 of the prompts, by row id, that a file has samples of already.

    What a killed run left of a line is cut off: the next one would go on in it.

    Raises:
        InputError: The file cannot be read or written, or holds samples of another origin.
    """
    if not path.exists():
        return {}
    whole, torn = _read(path)
    found = list(_parsed(path, whole))
    for value in found:
        if difference := origin.difference(value):
            msg = (
                f'{path} has samples of another origin ({difference}): '
                'name another --out, or delete it'
            )
            raise InputError(msg)
    if torn:
        try:
            os.truncate(path, path.stat().st_size - len(torn))
        except OSError as error:
            msg = f'{path} cannot be gone on with: {error.strerror}'
            raise InputError(msg) from None
    return {value['id']: value.get('prompt_sha256', '') for value in found}


def unanimous(samples: dict[str, dict[str, Any]]) -> set[str]:
    """Ids of the rows whose samples are all right or all wrong."""
    return {key for key, value in samples.items() if len(set(value['right'])) == 1}


def taught(path: Path, anchor_share: float) -> dict[str, dict[str, Any]]:
    """Samples, by row id, of the rows that are asked, of those that the start was asked often.

    What it answers always or never teaches nothing at first: no group would differ. But a kind of
    question that it always answers, and that is asked no more, is lost unnoticed.

    Args:
        path: The file of samples.
        anchor_share: So many of the rows that it always answers are asked all the same.

    Raises:
        InputError: The file cannot be read, or no row of it is asked.
    """
    sampled = read_samples(path)
    dull = unanimous(sampled)
    known = sorted(row for row in dull if all(sampled[row]['right']))
    anchors = Random(0).sample(known, round(anchor_share * len(known)))
    sys.stderr.write(
        f'{len(dull)} of {len(sampled)} sampled rows are unanimous;'
        f' {len(anchors)} of the {len(known)} right ones are kept\n'
    )
    kept = (sampled.keys() - dull) | set(anchors)
    if not kept:
        msg = (
            f'{path} holds nothing that teaches: {len(sampled)} sampled rows, of which '
            f'{len(known)} are always answered rightly and {len(dull) - len(known)} never: sample '
            'others, or each more often (training.rollouts)'
        )
        raise InputError(msg)
    return {row: sampled[row] for row in sampled if row in kept}


def _add_samples(args: argparse.Namespace) -> None:
    """Sample what the file does not have yet.

    Raises:
        InputError: There is no model or no row, or the file cannot be gone on with.
        ModelError: The model fails, or the judge.
    """
    sampling = Sampling(args.temperature, 1.0, args.max_tokens, args.seed)
    memory = MemoryConfig(args.token_budget)
    rows = rows_of_split(args.rows, args.split)
    texts = frozenset(row.id for row in rows if is_free_text(row))
    # Who has no need of a judge needs none to be there.
    grader = judge_identity(args.judge) if texts else []
    origin = Origin(origin_of(args.model, args.count, sampling, memory), grader, texts)
    done = begun(args.out, origin)
    rows = drawn(rows, args.limit, args.seed)
    for row in rows:
        if row.id in done and row.prompt(memory).sha256() != done[row.id]:
            msg = (
                f'{args.out} has samples of row {row.id!r}, which is asked otherwise now in '
                f'{args.rows}: name another --out, or delete it'
            )
            raise InputError(msg)
    rows = [row for row in rows if row.id not in done]
    # Completions of a batch wait for the longest: alike questions over alike histories.
    rows.sort(key=lambda row: (row.question_type, len(row.deltas)))
    judge = judge_of(args.judge) if any(row.id in texts for row in rows) else None
    made = sample(args.model, rows, args.count, sampling, memory, judge)
    with _appended(args.out) as out:
        for value in tqdm(made, total=len(rows), unit=' rows', disable=None):
            line = {**value, 'origin': origin.of(value['id'])}
            out.write(json.dumps(line, ensure_ascii=False) + '\n')
            out.flush()


def _appended(path: Path) -> TextIO:
    """A file to go on in, with its folder.

    Raises:
        InputError: It cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open('a', encoding='utf-8')
    except OSError as error:
        msg = f'--out {path} cannot be written: {error.strerror}'
        raise InputError(msg) from None


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
    add_judge_option(parser, 'free texts are right to the letter alone')
    args = parser.parse_args(arguments)
    try:
        _add_samples(args)
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
