# SPDX-License-Identifier: Apache-2.0
"""OpenEQA: `open-eqa-v0.json`, with marks from 1 to 5 that predictions bring with them.

The judge that gives marks is that of facebookresearch/open-eqa; what marks make is as there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.eval.benchmarks.questions import (
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    read_records,
    text_field,
    VideoPart,
    without_doubles,
)

if TYPE_CHECKING:
    from pathlib import Path

_LOWEST, _HIGHEST = 1, 5
_AFTER = 'Answer in a few words. If what was seen does not tell, guess.'


def mark_score(mark: float) -> float:
    """A mark as a score, 0..1; marks out of 1 to 5 count as the nearest of these."""
    return (min(max(mark, _LOWEST), _HIGHEST) - _LOWEST) / (_HIGHEST - _LOWEST)


def read_openeqa(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions.

    Raises:
        InputError: The file is none of OpenEQA.
    """
    questions = []
    for row, record in enumerate(read_records(path)):
        episode = text_field(record, 'episode_history', row)
        questions.append(
            BenchmarkQuestion(
                id=text_field(record, 'question_id', row),
                question_type=text_field(record, 'category', row),
                scene=episode,
                wording=f'{text_field(record, "question", row)}\n{_AFTER}',
                truth=text_field(record, 'answer', row),
                video=VideoPart((episode, f'{episode}.mp4', f'{episode.split("/")[-1]}.mp4')),
                record=record,
            )
        )
    return without_doubles(questions, path)


def _unjudged(question: BenchmarkQuestion, prediction: str) -> float | None:
    del question, prediction
    return None


OPENEQA = Benchmark('openeqa', read_openeqa, _unjudged, different_truths, is_marked=True)
