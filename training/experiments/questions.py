# SPDX-License-Identifier: Apache-2.0
"""The same questions of a recording for several texts of it; rows paired by what they ask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.episode import Episode, read_layout
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig, rows_of_episode
from embodied_r_ros.types.deltas import DeltaKind, SemanticDelta

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.layout import Layout

_NS = 1_000_000_000


def simulated(worlds: Sequence[Path], limit: int) -> Iterator[tuple[Path, Layout]]:
    """Bags of simulated worlds with what is true of them, at most so many (0: all).

    Raises:
        BagError: There is no such bag.
        InputError: One does not hold what is true of it.
    """
    for bag in islice(find_bags(worlds), limit or None):
        layout = read_layout(bag)
        if layout is None:
            msg = f'bag {bag} has no true layout: use bags of embodied-r sim indoor'
            raise InputError(msg)
        yield bag, layout


def questions_at(layout: Layout, stamps_ns: Sequence[int], moments: int, seed: int) -> list[Row]:
    """Questions at several of the given moments, solved by what is true; without any deltas.

    They are worded as in training, and of the split `test`: what is compared are texts.
    """
    poses = tuple(layout.image_at(stamp_ns).pose(layout.frame_id) for stamp_ns in stamps_ns)
    # Which questions have a solution depends on when was looked, not on what was said of it.
    deltas = tuple(SemanticDelta(stamp_ns, DeltaKind.CHANGE) for stamp_ns in stamps_ns)
    episode = Episode(layout.episode_id, layout.scene_id, 'camera', deltas, 'true', poses, layout)
    config = QuestionsConfig(moments, 1, seed, test_share=0.0, validation_share=0.0)
    return [replace(row, split='test') for row in rows_of_episode(episode, config, Coverage())]


def questions_at_end(layout: Layout, draws: int, seed: int) -> list[Row]:
    """Questions at the end of a recording, which do not depend on which images are looked at.

    What was in view counts once a second: what was to be seen for a moment only is not asked for.
    """
    stamps = once_a_second([image.stamp_ns for image in layout.images])
    rows: dict[tuple[str, str], Row] = {}
    for draw in range(draws):
        for row in questions_at(layout, stamps, 1, seed + draw):
            rows.setdefault((row.question_type, row.question), row)
    return list(rows.values())


def once_a_second(stamps_ns: Sequence[int]) -> list[int]:
    """A stamp of each second, and the last one."""
    indices: list[int] = []
    for stamp_ns in stamps_ns:
        if not indices or stamp_ns >= indices[-1] + 0.999 * _NS:
            indices.append(stamp_ns)
    return indices if indices[-1] == stamps_ns[-1] else [*indices, stamps_ns[-1]]


@dataclass(frozen=True)
class PairedQuestions:
    """The same questions, told by several texts."""

    rows: dict[str, list[Row]]  # by text, in one order
    left_out: dict[str, dict[str, int]]  # by text: why, and how many
    other_moment: int  # pairs in which the newest image is not the same


def paired(texts: Mapping[str, Sequence[Row]]) -> PairedQuestions:
    """Pair rows by id, where question, options and solution are the same in all texts.

    Raises:
        InputError: No question is in all of them.
    """
    by_id = {name: {row.id: row for row in rows} for name, rows in texts.items()}
    left_out: dict[str, Counter[str]] = {name: Counter() for name in texts}
    kept: list[str] = []
    for name, rows in by_id.items():
        for key in rows:
            reason = _why_not(key, by_id)
            if reason:
                left_out[name][reason] += 1
            elif name == next(iter(by_id)):
                kept.append(key)
    if not kept:
        msg = f'no question is in all of {", ".join(texts)}: derive them from the same recordings'
        raise InputError(msg)
    aligned = {name: [rows[key] for key in kept] for name, rows in by_id.items()}
    times = zip(*([_newest_ns(row) for row in rows] for rows in aligned.values()), strict=True)
    counts = {name: dict(reasons) for name, reasons in left_out.items()}
    return PairedQuestions(aligned, counts, sum(len(set(stamps)) > 1 for stamps in times))


def _why_not(key: str, by_id: Mapping[str, Mapping[str, Row]]) -> str:
    """Why a row is not paired; empty: it is."""
    same = [rows[key] for rows in by_id.values() if key in rows]
    if len(same) < len(by_id):
        return 'not asked in every text'
    questions = {(row.question, row.options, row.solution) for row in same}
    return 'has another solution elsewhere' if len(questions) > 1 else ''


def _newest_ns(row: Row) -> int:
    return int(row.deltas[-1]['stamp_ns']) if row.deltas else 0
