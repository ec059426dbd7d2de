# SPDX-License-Identifier: Apache-2.0
"""OpenEQA: `open-eqa-v0.json`, marks of a judge from 1 to 5 (facebookresearch/open-eqa).

What is sent to the judge, how its mark is read and what the marks make is as their code has it.
The wording of the judge's instruction is our own, of the same rule.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.reasoning.prompts import Prompt
from embodied_r_ros.core.scene.memory import SceneText
from embodied_r_ros.core.types.answers import Sampling

from training.eval.benchmarks.questions import (
    as_list,
    Benchmark,
    BenchmarkQuestion,
    different_truths,
    read_records,
    text_field,
    texts_field,
    VideoPart,
    without_doubles,
)
from training.eval.generation import generate

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.chat.cache import ReplyCache

JUDGE_SAMPLING = Sampling(0.0, 1.0, max_tokens=32, seed=0)
_LOWEST, _HIGHEST = 1, 5
_TAG = 'Your mark:'
_JUDGE = (
    'You mark answers to questions. The mark is one whole number from 1 to 5: 5 where the '
    'response says the same as the correct answer{extra}, 1 where it says something else '
    'altogether, and the numbers between where it is partly right.'
)
_EXTRA = ' or as one of the extra answers'
_EXAMPLES = (
    ('Is the lamp on?', 'no', ('it is off', 'switched off'), 'yes', 1),
    ('What stands next to the bed?', 'a chair', ('an armchair',), 'furniture', 3),
    ('Is there a rug on the floor?', 'yes', ('there is', 'yes, a red one'), 'yes', 5),
)
_AFTER = 'Answer in a few words. If what was seen does not tell, guess.'


def judge_prompt(question: BenchmarkQuestion, prediction: str) -> Prompt:
    """What a judge reads of a prediction, which is one line, so that it cannot pass for a mark."""
    with_extra = question.other_truths is not None
    cases = [
        _case(text, answer, extra if with_extra else None, response, str(mark))
        for text, answer, extra, response, mark in _EXAMPLES
    ]
    own = _case(
        question.plain_question(),
        question.truth or '',
        question.other_truths,
        as_data(prediction),
        '',
    )
    text = '\n\n'.join([*cases, own])
    return Prompt(_JUDGE.format(extra=_EXTRA if with_extra else ''), text, SceneText(''))


def _case(
    question: str, answer: str, extra: Sequence[str] | None, response: str, mark: str
) -> str:
    lines = [f'Question: {question}', f'Answer: {answer}']
    lines += [f'Extra answers: {list(extra)}'] if extra is not None else []
    lines += [f'Response: {response}', f'{_TAG} {mark}'.strip()]
    return '\n'.join(lines)


def judged_part(prediction: str) -> str:
    """What counts of a prediction: all up to its last full stop, if there is one.

    >>> [judged_part(text) for text in ('On it. I thi', 'on the table')]
    ['On it.', 'on the table']
    """
    end = prediction.rfind('.')
    return prediction[: end + 1] if end >= 0 else prediction


def read_mark(reply: str) -> int | None:
    """The mark in a judge's reply: digits alone, or what stands behind the tag; None: no mark.

    >>> [read_mark(text) for text in ('4', 'Your mark: 2', 'It is a 3.')]
    [4, 2, None]
    """
    text = reply.strip()
    if not text.isdigit():
        start = text.find(_TAG)
        if start < 0:
            return None
        text = text[start:].split('\n')[0].replace(_TAG, '')
    try:
        return int(text)
    except ValueError:
        return None


def mark_score(mark: float) -> float:
    """A mark as a score, 0..1; marks out of 1 to 5 count as the nearest of these."""
    return (min(max(mark, _LOWEST), _HIGHEST) - _LOWEST) / (_HIGHEST - _LOWEST)


def judge_marks(
    judge: str,
    questions: Sequence[BenchmarkQuestion],
    predictions: Sequence[str],
    cache: ReplyCache | None,
) -> list[int | None]:
    """Marks of predictions by a model; None: its reply has none.

    Args:
        judge: Folder or URL of a model server.
        questions: The questions.
        predictions: What was said to them.
        cache: What judges said before.

    Raises:
        InputError: `judge` is neither.
        ModelError: The judge fails.
    """
    prompts = [
        judge_prompt(question, judged_part(text))
        for question, text in zip(questions, predictions, strict=True)
    ]
    return [read_mark(reply) for reply in generate(judge, prompts, JUDGE_SAMPLING, cache=cache)]


def _judge_scores(
    judge: str,
    questions: Sequence[BenchmarkQuestion],
    predictions: Sequence[str],
    cache: ReplyCache | None,
) -> list[float | None]:
    marks = judge_marks(judge, questions, predictions, cache)
    return [None if mark is None else mark_score(mark) for mark in marks]


def read_openeqa(path: Path) -> list[BenchmarkQuestion]:
    """Read the questions.

    Raises:
        InputError: The file is none of OpenEQA.
    """
    questions = []
    for row, record in enumerate(read_records(path)):
        episode = text_field(record, 'episode_history', row)
        is_given = bool(as_list(record.get('extra_answers')))
        extra = texts_field(record, 'extra_answers', row) if is_given else None
        questions.append(
            BenchmarkQuestion(
                id=text_field(record, 'question_id', row),
                question_type=text_field(record, 'category', row),
                scene=episode,
                wording=f'{text_field(record, "question", row)}\n{_AFTER}',
                truth=text_field(record, 'answer', row),
                other_truths=extra,
                video=VideoPart((episode, f'{episode}.mp4', f'{episode.split("/")[-1]}.mp4')),
                record=record,
            )
        )
    return without_doubles(questions, path)


def _unjudged(question: BenchmarkQuestion, prediction: str) -> float | None:
    del question, prediction
    return None


OPENEQA = Benchmark(
    'openeqa', read_openeqa, _unjudged, different_truths, judge_scores=_judge_scores
)
