# SPDX-License-Identifier: Apache-2.0
"""Files of samples: what `training.rollouts` left, of which origin, and which rows it teaches by.

Each line tells its origin (weights, sampling, judge), and a file has one alone.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
import os
from random import Random
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError

from training.eval.generation import model_identity

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.scene.memory import MemoryConfig
    from embodied_r_ros.core.types.answers import Sampling
    from embodied_r_ros.data.questions.row import Row


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
    origin = {'token_budget': memory.token_budget, 'count': count}
    return {'model': model_identity(model), **asdict(sampling), **origin}


@dataclass(frozen=True)
class SampleOrigin:
    """What decides the samples of rows, and their grades."""

    origin: dict[str, Any]  # of `origin_of`
    judge: list[str]  # who grades free texts; empty: nobody
    texts: frozenset[str]  # ids of the rows with free texts

    def of(self, row_id: str) -> dict[str, Any]:
        """That of one row: a judge has no part in most."""
        has_judge = self.judge and row_id in self.texts
        return {**self.origin, **({'judge': self.judge} if has_judge else {})}

    def difference(self, value: dict[str, Any]) -> str:
        """What a line tells of its origin that is not so now; empty: it is of this one."""
        origin = value.get('origin')
        if not isinstance(origin, dict):
            return 'none is told'
        own = self.of(value['id'])
        # Who graded rows that are not asked now, with another split, is their own matter.
        free = set() if value['id'] in self.texts else {'judge'}
        names = [n for n in own | origin if n not in free and origin.get(n) != own.get(n)]
        return ', '.join(f'{n} {origin.get(n)!r}, not {own.get(n)!r}' for n in names)


def read_existing_samples(path: Path, origin: SampleOrigin) -> dict[str, dict[str, Any]]:
    """The samples, by row id, that a file has already.

    What a killed run left of a line is cut off: the next one would go on in it.

    Raises:
        InputError: The file cannot be read or written, or holds samples of another origin.
    """
    if not path.exists():
        return {}
    whole, torn = _read(path)
    samples = list(_parsed(path, whole))
    for value in samples:
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
            msg = f'{path} cannot be read, so that nothing can be added: {error.strerror}'
            raise InputError(msg) from None
    return {value['id']: value for value in samples}


def pass_rate(right: Sequence[bool]) -> float:
    """Share of the samples of a row that are right, 0..1."""
    return sum(right) / len(right) if right else 0.0


@dataclass(frozen=True)
class PassRateBand:
    """Pass rates of rows that teach: what is answered always or never does not."""

    low: float = 0.2
    high: float = 0.8

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            msg = (
                f'min_pass_rate is {self.low}, max_pass_rate {self.high}: expected shares from 0 '
                'to 1, the first not above the second'
            )
            raise InputError(msg)

    def split(self, samples: dict[str, dict[str, Any]]) -> tuple[set[str], set[str], set[str]]:
        """Ids of the rows below the band, in it, and above."""
        rates = {key: pass_rate(value['right']) for key, value in samples.items()}
        below = {key for key, rate in rates.items() if rate < self.low}
        above = {key for key, rate in rates.items() if rate > self.high}
        return below, rates.keys() - below - above, above


def teaching_samples(
    path: Path, anchor_share: float, band: PassRateBand | None = None
) -> dict[str, dict[str, Any]]:
    """Samples, by row id, of the rows that are asked, of those that the start was asked often.

    What it answers always or never teaches nothing at first: no group would differ. But a kind of
    question that it always answers, and that is asked no more, is lost unnoticed.

    Args:
        path: The file of samples.
        anchor_share: So many of the rows above the band are asked all the same.
        band: Pass rates of the rows that are asked; None: 0.2 to 0.8.

    Raises:
        InputError: The file cannot be read, or no row of it is asked.
    """
    sampled = read_samples(path)
    band = band or PassRateBand()
    below, inside, above = band.split(sampled)
    anchors = Random(0).sample(sorted(above), round(anchor_share * len(above)))
    sys.stderr.write(
        f'{len(inside)} of {len(sampled)} sampled rows have a pass rate of {band.low:.0%} to '
        f'{band.high:.0%}; {len(below)} are below, {len(above)} above, of which {len(anchors)} '
        'are kept\n'
    )
    kept = inside | set(anchors)
    if not kept:
        msg = (
            f'{path} holds nothing that teaches: {len(sampled)} sampled rows, of which '
            f'{len(above)} have a pass rate above {band.high:g} and {len(below)} below '
            f'{band.low:g}: sample others, or each more often (training.rollouts)'
        )
        raise InputError(msg)
    return {row: sampled[row] for row in sampled if row in kept}


def is_another(row: Row, memory: MemoryConfig, origin: dict[str, Any]) -> bool:
    """Tell whether samples are of another prompt, or were graded by another solution."""
    prompt_row = row.prompt(memory).sha256() != origin.get('prompt_sha256')
    return prompt_row or row.solution != origin.get(
        'solution', row.solution
    )  # older lines tell none
