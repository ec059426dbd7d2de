# SPDX-License-Identifier: Apache-2.0
"""Rows of many bags, one episode in memory at a time, with balanced answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
from embodied_r_ros.questions.coverage import BagNote
from embodied_r_ros.questions.indoor import KINDS
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.questions.part import (
    as_copy,
    part_file,
    read_part,
    RowsPart,
    RowsRecipe,
)
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.questions.splits import SplitGuard
from embodied_r_ros.reasoning.completions import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from embodied_r_ros.episodes.manifest import FleetRecording
    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.derive import QuestionsConfig
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.deltas import SemanticDelta

_EVEN_KINDS = {*KINDS, *MAP_KINDS}
_AHEAD = 2  # an answer may have come so many times more often than any other of its options


class BalancedAnswers:
    """Counts answers by split and kind of question, as rows come.

    Robots mostly stay at one height and look ahead: a guess by that alone is right far more often
    than one option in three or four is. Questions about arms choose their options themselves.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)

    def admits(self, row: Row) -> bool:
        """Count a row, unless its answer has come much more often than its other options."""
        if row.question_type not in _EVEN_KINDS or not row.options or row.solution == UNKNOWN:
            return True
        counts, answer = self._counts[row.split, row.question_type], row.solution_text()
        if counts[answer] > _AHEAD + max(counts[o] for o in row.options if o != answer):
            return False
        counts[answer] += 1
        return True


_MAX_LISTED = 3  # bags, of those of which none can be used
_COMMON = 'its answer has come more often than its other options'


class RowsMerger:
    """Puts parts together, in the order in which they come: what an earlier one has, wins.

    Copies of recordings, what another split has already and answers that are too common are left
    out.
    """

    def __init__(self, config: QuestionsConfig, coverage: Coverage) -> None:
        """Begin.

        Args:
            config: How questions are derived.
            coverage: Counts what comes in and what is left out.

        Raises:
            InputError: A file of `config.apart_from` cannot be read.
        """
        self._guard = _apart_from(config.apart_from)
        self._even = BalancedAnswers() if config.even_answers else None
        self._coverage = coverage
        self._is_any_damaged = False

    def copy_of(self, digest: str, name: str) -> str:
        """Name of an earlier recording with the same content; empty: there was none."""
        return self._guard.copy_of(digest, name)

    def add(self, part: RowsPart) -> Iterator[Row]:
        """Take a part, and give its rows that stay."""
        coverage, note = self._coverage, part.note
        self._is_any_damaged |= part.is_damaged
        if note.sha256 and (before := self.copy_of(note.sha256, note.name)):
            note = as_copy(part, before).note
        left_out = note.left_out or self._why_twin(part)
        if left_out:
            coverage.leave_out(note, left_out)
            return
        coverage.unsolved.update(part.unsolved)
        coverage.left_out.update(part.disputed)
        before_it = coverage.splits.total()
        yield from _admit(part.rows, self._guard, self._even, coverage)
        coverage.bags.append(replace(note, rows=coverage.splits.total() - before_it))

    def end(self) -> None:
        """See that something could be used.

        Raises:
            BagError: No recording was readable with the requested deltas.
        """
        bags = self._coverage.bags
        if self._is_any_damaged and all(note.left_out for note in bags):
            raise BagError(_why_none(bags))

    def _why_twin(self, part: RowsPart) -> str:
        """Which scene of another split a part is of too, in words; empty: of none."""
        note, guard = part.note, self._guard
        if part.is_map:
            other = guard.other_split_of(note.scene_id, note.split)
            return f'the place is in split {other}' if other else ''
        if twin := guard.twin_of(note.scene_id, note.split, part.pieces):
            return f'shows what scene {twin!r} of another split shows'
        if part.layout and (twin := guard.layout_twin_of(*part.layout, note.scene_id, note.split)):
            return f'has the layout of scene {twin!r} of another split'
        return ''


def rows_of_bags(
    bags: Iterable[Path],
    delta_source: str | None,
    config: QuestionsConfig,
    coverage: Coverage,
    perceive: Callable[[Path], Sequence[SemanticDelta]] | None = None,
    *,
    is_forced: bool = False,
) -> Iterator[Row]:
    """Derive the rows of bags, in the order given.

    What an earlier bag has in another split is left out, and so are copies of bags, and bags that
    were not closed, fail their audit, or cannot be read: one bad bag does not end the work on the
    others.

    Args:
        bags: Bags, as `find_bags` lists them, and files of scene maps.
        delta_source: One of DELTA_SOURCES; None: recorded where the bag has deltas.
        config: How many questions are derived.
        coverage: Counts what was derived and what had no solution.
        perceive: Perceives the images of a bag, where deltas are not read from it.
        is_forced: Use bags that fail their audit too.

    Raises:
        InputError: A file of `config.apart_from` cannot be read.
        BagError: No bag is readable and has the requested deltas.
    """
    return rows_of(bags, RowsRecipe(config, delta_source, perceive, is_forced), coverage)


def rows_of(bags: Iterable[Path], recipe: RowsRecipe, coverage: Coverage) -> Iterator[Row]:
    """The same by a recipe (see `rows_of_bags`)."""
    merger = RowsMerger(recipe.config, coverage)
    for bag in bags:
        yield from merger.add(recipe.part_of(bag, str(bag), merger.copy_of))
    merger.end()


def rows_of_fleet(
    recordings: Iterable[FleetRecording],
    parts: Path,
    failed: Mapping[str, str],
    config: QuestionsConfig,
    coverage: Coverage,
) -> Iterator[Row]:
    """Put the parts of a fleet together, one in memory at a time, as `rows_of_bags` would.

    Args:
        recordings: All of the fleet.
        parts: Folder of their parts (`RowsStage`).
        failed: Why a recording has no part, by id.
        config: How questions are derived.
        coverage: Counts what was derived and what was left out.

    Raises:
        InputError: A part or a file of `config.apart_from` cannot be read.
        BagError: No recording could be used.
    """
    merger = RowsMerger(config, coverage)
    for recording in recordings:
        file = part_file(parts, recording)
        if not file.exists() and recording.id in failed:
            note = BagNote(recording.source, {}, '', left_out=failed[recording.id])
            part = RowsPart(note, is_damaged=True)
        else:
            part = read_part(file)
            part = replace(part, note=replace(part.note, name=recording.source))
        yield from merger.add(part)
    merger.end()


def _apart_from(files: Sequence[str]) -> SplitGuard:
    """What knows the rows of other files, each as a split of its own."""
    guard = SplitGuard()
    for file in files:
        for row in read_rows(Path(file)):
            guard.remember(row, file)
    return guard


def _why_none(bags: Sequence[BagNote]) -> str:
    """Why no bag can be used, of the first ones."""
    reasons = [f'{bag.name}: {bag.left_out}' for bag in bags[:_MAX_LISTED]]
    reasons += [f'and {len(bags) - _MAX_LISTED} others'] if len(bags) > _MAX_LISTED else []
    return f'no bag can be used: {"; ".join(reasons)}'


def _admit(
    rows: Iterable[Row], guard: SplitGuard, even: BalancedAnswers | None, coverage: Coverage
) -> Iterator[Row]:
    """Rows that no other split has already, and whose answers are not too common."""
    for row in rows:
        if other := guard.clash_of(row):
            reason = f'the same is asked of the same deltas in split {other}'
            coverage.left_out[row.question_type, reason] += 1
        elif even and not even.admits(row):
            coverage.left_out[row.question_type, _COMMON] += 1
        else:
            coverage.count(row)
            yield row
