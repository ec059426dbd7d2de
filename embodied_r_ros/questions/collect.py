# SPDX-License-Identifier: Apache-2.0
"""Rows of many bags, one episode in memory at a time."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.questions.coverage import BagNote
from embodied_r_ros.questions.derive import rows_of_episode
from embodied_r_ros.questions.evenness import EvenAnswers
from embodied_r_ros.questions.logged import rows_of_answers
from embodied_r_ros.questions.robot import rows_of_arm
from embodied_r_ros.questions.splits import split_of, SplitGuard
from embodied_r_ros.recordings.bag_audit import why_unfit
from embodied_r_ros.recordings.bag_digest import bag_digest
from embodied_r_ros.recordings.episode_bag import read_episode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.derive import QuestionsConfig
    from embodied_r_ros.recordings.episode_bag import Episode
    from embodied_r_ros.rows import Row

_BAG_SUFFIXES = ('.mcap', '.db3')
_COMMON = 'its answer has come more often than its other options'


def find_bags(paths: Sequence[Path]) -> list[Path]:
    """Bags among some paths: each is a bag, or a folder of bags (not searched any deeper).

    Raises:
        BagError: A path does not exist or holds no bag, or a bag is named more than once.
    """
    bags = []
    for path in paths:
        if not path.exists():
            msg = f'{path} does not exist'
            raise BagError(msg)
        found = [path] if _is_bag(path) else sorted(p for p in path.glob('*') if _is_bag(p))
        if not found:
            msg = f'{path} is neither a bag nor a folder of bags'
            raise BagError(msg)
        bags += found
    inodes = [(stat.st_dev, stat.st_ino) for stat in (bag.stat() for bag in bags)]
    times = Counter(inodes)
    for bag, inode in zip(bags, inodes, strict=True):
        if times[inode] > 1:
            msg = f'{bag} is named more than once: name it once'
            raise BagError(msg)
    return bags


def _is_bag(path: Path) -> bool:
    if path.is_file():
        return path.suffix in _BAG_SUFFIXES
    return (path / 'metadata.yaml').exists() or any(
        file.suffix in _BAG_SUFFIXES for file in path.glob('*')
    )


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
    were not closed or fail their audit.

    Args:
        bags: Bags, as `find_bags` lists them.
        delta_source: One of DELTA_SOURCES; None: recorded where the bag has deltas.
        config: How many questions are derived.
        coverage: Counts what was derived and what had no solution.
        perceive: Perceives the images of a bag, where deltas are not read from it.
        is_forced: Use bags that fail their audit too.

    Raises:
        BagError: A bag is not readable, or does not have the deltas that are asked for.
    """
    guard = SplitGuard()
    even = EvenAnswers() if config.even_answers else None
    for bag in bags:
        digest = bag_digest(bag)
        note = BagNote(str(bag), digest.files, digest.sha256)
        if before := guard.copy_of(digest.sha256, note.name):
            coverage.leave_out(note, f'a copy of bag {before}')
            continue
        why = why_unfit(bag)
        if why and not is_forced:
            coverage.leave_out(note, why)
            continue
        episode = read_episode(bag, delta_source, perceive, config.robot)
        split = split_of(episode.scene_id, config)
        note = replace(
            note,
            episode_id=episode.id,
            scene_id=episode.scene_id,
            split=split,
            deltas=episode.delta_source,
            forced=why,
        )
        if twin := guard.twin_of(episode, split):
            coverage.leave_out(note, f'shows what scene {twin!r} of another split shows')
            continue
        shown = episode.arm
        if shown and (twin := guard.layout_twin_of(shown, episode.scene_id, split)):
            coverage.leave_out(note, f'has the layout of scene {twin!r} of another split')
            continue
        before_it = coverage.splits.total()
        yield from _admitted(_rows_of(episode, config, coverage), guard, even, coverage)
        coverage.bags.append(replace(note, rows=coverage.splits.total() - before_it))


def _rows_of(episode: Episode, config: QuestionsConfig, coverage: Coverage) -> Iterator[Row]:
    yield from rows_of_episode(episode, config, coverage)
    yield from rows_of_answers(episode, split_of(episode.scene_id, config), coverage)
    if episode.arm:
        yield from rows_of_arm(episode.arm, episode, config, coverage)


def _admitted(
    rows: Iterable[Row], guard: SplitGuard, even: EvenAnswers | None, coverage: Coverage
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
