# SPDX-License-Identifier: Apache-2.0
"""Rows of an episode: every kind of question at several moments."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.landmarks import SceneMap
from embodied_r_ros.data.arm_room import arm_room
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.indoor import ask_kinds, KINDS, Moment, NoSolution
from embodied_r_ros.data.questions.map_kinds import MapMoment
from embodied_r_ros.data.questions.map_rows import (
    EVERY_MAP_KIND,
    layout_map,
    MAP_KINDS,
    perceived_map,
)
from embodied_r_ros.data.questions.row import builder_of, QuestionWithSolution
from embodied_r_ros.data.questions.splits import split_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embodied_r_ros.data.episodes.episode import Episode
    from embodied_r_ros.data.questions.indoor import Draft
    from embodied_r_ros.data.questions.row import Row, RowBuilder

_MIN_DELTAS = 3  # with fewer, there is nothing to add up


@dataclass(frozen=True)
class QuestionsConfig(Settings):
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
    maps: bool = setting(False, 'ask also what a scene map answers, of what was seen so far')
    map_slack_m: float = setting(
        0.3, 'how far places of a map that no truth proves may be off [m]', between=(0, 10)
    )
    robot: Any = None  # `Robot` whose demonstrations the questions are about; None: as recorded


def derive_rows(
    episode: Episode, config: QuestionsConfig | None = None, coverage: Coverage | None = None
) -> list[Row]:
    """Derive questions with their solutions from what an episode proves.

    >>> from pathlib import Path
    >>> from embodied_r_ros import derive_rows, read_episode
    >>> rows = derive_rows(read_episode(Path('samples/indoor/episode_00000'), 'true'))
    >>> len(rows) >= 10
    True

    Args:
        episode: The episode.
        config: How many, and of which kinds; None: as usual.
        coverage: Counts what had no solution; None: nobody wants to know.
    """
    config, coverage = config or QuestionsConfig(), coverage or Coverage()
    rows = [*rows_of_episode(episode, config, coverage)]
    if episode.arm:
        rows += arm_room().rows_of_arm(episode.arm, episode, config, coverage)
    return rows


def rows_of_episode(
    episode: Episode, config: QuestionsConfig, coverage: Coverage
) -> Iterator[Row]:
    """Derive an episode's rows; what has no solution is counted in `coverage`.

    Args:
        episode: The episode.
        config: How many, and whether of its scene map too.
        coverage: Counts what had no solution.
    """
    rng = Random(f'{config.seed}:{episode.id}')
    split = split_of(episode.scene_id, config)
    builder = builder_of(episode, split)
    moments = _moments(episode, rng)
    if not moments:
        coverage.unsolved['every kind', f'fewer than {_MIN_DELTAS} deltas'] += 1
    keys: set[tuple[str, int]] = set()
    for count, moment in enumerate(moments):
        if count >= config.moments and len(keys) >= config.min_rows:
            return
        place = _place(moment, split, config)
        scene = place.scene if isinstance(place, MapMoment) else None
        drafts = ask_kinds(KINDS, moment, split, rng, coverage)
        for row in _rows_of_drafts(builder, moment, drafts, rng):
            key = (row.question, len(moment.deltas))
            if key not in keys:
                keys.add(key)
                # As live prompts have it: the map stands there whatever the question is.
                yield row.with_map(scene) if scene else row
        if place:
            for row in _map_rows(builder, moment, place, config, coverage):
                yield row.with_map(scene or SceneMap())


def _place(moment: Moment, split: str, config: QuestionsConfig) -> MapMoment | NoSolution | None:
    """What is known of the place; None: it is not asked for."""
    if not config.maps:
        return None
    if moment.layout:
        return layout_map(moment)
    return perceived_map(moment, split, config.map_slack_m)


def _map_rows(
    builder: RowBuilder,
    moment: Moment,
    place: MapMoment | NoSolution,
    config: QuestionsConfig,
    coverage: Coverage,
) -> Iterator[Row]:
    """Rows about the scene map of a moment, without it."""
    if isinstance(place, NoSolution):
        coverage.unsolved[EVERY_MAP_KIND, place.reason] += 1
        return
    # Of its own, so that the other rows are the same with and without these.
    rng = Random(f'{config.seed}:{builder.episode_id}:map:{len(moment.deltas)}')
    drafts = ask_kinds(MAP_KINDS, place, builder.split, rng, coverage)
    yield from _rows_of_drafts(builder, moment, drafts, rng)


def _moments(episode: Episode, rng: Random) -> list[Moment]:
    """All moments of an episode, the last one first, then the others in random order."""
    counts = list(range(_MIN_DELTAS, len(episode.deltas) + 1))
    rng.shuffle(counts)
    counts.sort(key=lambda count: count != len(episode.deltas))
    return [Moment.of(episode, count) for count in counts]


def _rows_of_drafts(
    builder: RowBuilder, moment: Moment, drafts: Iterable[tuple[str, Draft, bool]], rng: Random
) -> Iterator[Row]:
    """Rows about what was seen up to a moment."""
    for kind, draft, held_out in drafts:
        question = QuestionWithSolution.of_draft(kind, draft, rng)
        yield builder.row(
            f'{len(moment.deltas)}/{kind}/{question.digest}',
            question,
            moment.deltas,
            meta={'truth': draft.truth, 'held_out_wording': held_out},
        )
