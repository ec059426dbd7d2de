# SPDX-License-Identifier: Apache-2.0
"""Rows of an episode: every kind of question at several moments, and what had no solution."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.deltas import row_deltas
from embodied_r_ros.questions.kinds import Draft, KINDS, settled, Unsolved
from embodied_r_ros.questions.moment import Moment
from embodied_r_ros.questions.splits import split_of
from embodied_r_ros.rows import Row

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.recordings.episode_bag import Episode
    from embodied_r_ros.robots import Robot

_MIN_DELTAS = 3  # with fewer, there is nothing to add up


@dataclass(frozen=True)
class QuestionsConfig:
    """How many questions are derived, and how scenes are split."""

    moments: int = setting(
        4, 'moments of an episode at which questions are asked', between=(1, 64)
    )
    min_rows: int = setting(
        10, 'rows an episode should give; more moments are tried for it', between=(1, 1000)
    )
    seed: int = setting(0, 'seed of the choice of questions and of the split', between=(0, 2**31))
    test_share: float = setting(0.1, 'share of the scenes for the test split', between=(0, 1))
    validation_share: float = setting(
        0.1, 'share of the scenes for the validation split', between=(0, 1)
    )
    even_answers: bool = setting(
        False, 'leave out rows whose answer has come more often than their other options'
    )
    robot: Robot | None = None  # whose demonstrations are asked about; None: as recorded
    apart_from: tuple[str, ...] = ()  # files of rows that nothing is shared with

    def __post_init__(self) -> None:
        check_settings(self)


def rows_of_episode(
    episode: Episode, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Derive an episode's rows; what has no solution is counted in `coverage`."""
    rng = Random(f'{config.seed}:{episode.id}')
    split = split_of(episode.scene_id, config)
    moments = _moments(episode, rng)
    if not moments:
        coverage.unsolved['every kind', f'fewer than {_MIN_DELTAS} deltas'] += 1
    seen: set[tuple[str, int]] = set()
    for count, moment in enumerate(moments):
        if count >= config.moments and len(seen) >= config.min_rows:
            return
        for kind, ask in KINDS.items():
            # Half of the test rows are worded as no training row is.
            held_out = split == 'test' and rng.random() < 0.5
            draft = ask(moment, rng, held_out)
            if isinstance(draft, Unsolved):
                coverage.unsolved[kind, draft.reason] += 1
                continue
            row = _row(episode, moment, kind, draft, split, rng)
            row.meta['held_out_wording'] = held_out
            key = (row.question, len(moment.deltas))
            if key not in seen:
                seen.add(key)
                yield row


def _moments(episode: Episode, rng: Random) -> list[Moment]:
    """All moments of an episode, the last one first, then the others in random order."""
    counts = list(range(_MIN_DELTAS, len(episode.deltas) + 1))
    rng.shuffle(counts)
    counts.sort(key=lambda count: count != len(episode.deltas))
    return [
        Moment(
            episode.deltas[:count],
            episode.poses[:count],
            episode.layout,
            episode.no_poses,
            episode.pose_source,
        )
        for count in counts
    ]


def _row(
    episode: Episode, moment: Moment, kind: str, draft: Draft, split: str, rng: Random
) -> Row:
    options, solution, digest = settled(draft, rng)
    number = len(moment.deltas)
    return Row(
        id=f'{episode.id}/{number}/{kind}/{digest}',
        episode_id=episode.id,
        scene_id=episode.scene_id,
        split=split,
        source=draft.source,
        camera=episode.camera,
        question_type=kind,
        question=draft.question,
        answer_kind=draft.answer_kind,
        options=options,
        solution=solution,
        deltas=row_deltas(moment.deltas),
        meta={'deltas': episode.delta_source, 'truth': draft.truth},
    )
