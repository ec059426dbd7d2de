# SPDX-License-Identifier: Apache-2.0
"""Rows of many bags, one episode in memory at a time, with balanced answers."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import BagError, ImageError, InputError
from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.episodes.inspect import bag_digest, labels_sha256, why_unfit
from embodied_r_ros.questions.coverage import BagNote
from embodied_r_ros.questions.derive import rows_of_arm, rows_of_episode
from embodied_r_ros.questions.indoor import KINDS
from embodied_r_ros.questions.labelled import rows_of_written, with_solutions_of_people
from embodied_r_ros.questions.logged import rows_of_answers
from embodied_r_ros.questions.map_rows import rows_of_map
from embodied_r_ros.questions.map_unknown import MAP_KINDS
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.questions.splits import split_of, SplitGuard
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.types.landmarks import read_scene_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from embodied_r_ros.episodes.episode import Episode
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


MAP_SUFFIX = '.json'  # of scene maps among bags
_MAX_LISTED = 3  # bags, of those of which none can be used
_COMMON = 'its answer has come more often than its other options'


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
    guard = _apart_from(config.apart_from)
    even = BalancedAnswers() if config.even_answers else None

    is_any_damaged = False
    for bag in bags:
        note = BagNote(str(bag), {}, '')
        rows: list[Row] = []
        try:
            note = _note_of(bag)
            if bag.suffix == MAP_SUFFIX:
                note, rows = _derive_from_map(bag, note, config, guard, coverage)
            else:
                note = _fitness(bag, note, guard, is_forced=is_forced)
                if not note.left_out:
                    episode = read_episode(bag, delta_source, perceive, config.robot)
                    note, rows = _derive(episode, note, config, guard, coverage)
        except (InputError, ImageError) as error:  # hours of work on the others would be lost
            note = replace(note, left_out=str(error))
            is_any_damaged = True
        if note.left_out:
            coverage.leave_out(note, note.left_out)
            continue
        before_it = coverage.splits.total()
        yield from _admit(rows, guard, even, coverage)
        coverage.bags.append(replace(note, rows=coverage.splits.total() - before_it))
    if is_any_damaged and all(note.left_out for note in coverage.bags):
        raise BagError(_why_none(coverage.bags))


def _apart_from(files: Sequence[str]) -> SplitGuard:
    """What knows the rows of other files, each as a split of its own."""
    guard = SplitGuard()
    for file in files:
        for row in read_rows(Path(file)):
            guard.remember(row, file)
    return guard


def _note_of(bag: Path) -> BagNote:
    digest = bag_digest(bag)
    return BagNote(str(bag), digest.files, digest.sha256, labels=labels_sha256(bag))


def _fitness(bag: Path, note: BagNote, guard: SplitGuard, *, is_forced: bool) -> BagNote:
    """The reason why a bag is left out without being read, or used all the same.

    Raises:
        BagError: It cannot be read.
    """
    if before := guard.copy_of(note.sha256, note.name):
        return replace(note, left_out=f'a copy of bag {before}')
    try:
        why = why_unfit(bag)
    except OSError as error:
        msg = f'bag {bag} cannot be read: {error.strerror}'
        raise BagError(msg) from None
    return replace(note, forced=why) if is_forced else replace(note, left_out=why)


def _derive(
    episode: Episode, note: BagNote, config: QuestionsConfig, guard: SplitGuard, coverage: Coverage
) -> tuple[BagNote, list[Row]]:
    """The note on a bag that was read, and its rows, where it is not left out.

    Raises:
        InputError: It is not of the requested robot.
    """
    split = split_of(episode.scene_id, config)
    note = replace(
        note,
        episode_id=episode.id,
        scene_id=episode.scene_id,
        split=split,
        deltas=episode.delta_source,
    )
    if twin := guard.twin_of(episode, split):
        why = f'shows what scene {twin!r} of another split shows'
        return replace(note, left_out=why), []
    demonstration = episode.arm
    if demonstration and (twin := guard.layout_twin_of(demonstration, episode.scene_id, split)):
        why = f'has the layout of scene {twin!r} of another split'
        return replace(note, left_out=why), []
    return note, list(_rows_of(episode, config, coverage))


def _derive_from_map(
    path: Path, note: BagNote, config: QuestionsConfig, guard: SplitGuard, coverage: Coverage
) -> tuple[BagNote, list[Row]]:
    """The note on a scene map, and its rows, where it is not left out.

    Raises:
        InputError: It is not readable as a scene map.
    """
    if before := guard.copy_of(note.sha256, note.name):
        return replace(note, left_out=f'a copy of map {before}'), []
    name = f'{path.resolve().parent.name}/{path.stem}'
    split = split_of(name, config)
    note = replace(note, episode_id=name, scene_id=name, split=split)
    if other := guard.other_split_of(name, split):
        return replace(note, left_out=f'the place is in split {other}'), []
    return note, list(rows_of_map(read_scene_map(path), name, config, coverage))


def _why_none(bags: Sequence[BagNote]) -> str:
    """Why no bag can be used, of the first ones."""
    reasons = [f'{bag.name}: {bag.left_out}' for bag in bags[:_MAX_LISTED]]
    reasons += [f'and {len(bags) - _MAX_LISTED} others'] if len(bags) > _MAX_LISTED else []
    return f'no bag can be used: {"; ".join(reasons)}'


def _rows_of(episode: Episode, config: QuestionsConfig, coverage: Coverage) -> Iterator[Row]:
    split = split_of(episode.scene_id, config)
    derived = [*rows_of_episode(episode, config, coverage)]
    if episode.arm:
        derived += rows_of_arm(episode.arm, episode, config, coverage)
    yield from with_solutions_of_people(derived, episode, coverage)
    yield from rows_of_answers(episode, split, coverage)
    yield from rows_of_written(episode, split, coverage)


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
