# SPDX-License-Identifier: Apache-2.0
"""What 30 labels of one kind of question teach the reader that needs no model, within minutes.

Of one kind of question the reader knows five sentences of people, of all others four fifths. A
simulated person, wrong in a tenth, answers 30 questions in other sentences of that kind about
random rooms, as on the page of `review`. Then other sentences of all kinds are asked about other
rooms. The control learns from the same answers, shuffled.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
import os
from pathlib import Path
from random import Random
import tempfile
import time
from typing import Any, TYPE_CHECKING
from unittest.mock import patch

from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.core.reasoning import sentences
from embodied_r_ros.core.reasoning.calls import parse_calls, read_calls
from embodied_r_ros.core.reasoning.saying import answer_by_tools, answer_readings
from embodied_r_ros.core.reasoning.teaching import is_answer, lesson_of
from embodied_r_ros.core.scene.tools import Scene
import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, bootstrap
from tqdm import tqdm

from bench.report import Budget, judge
from training.data.random_maps import random_map_moment

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Sequence

KINDS = ('count({x})', 'where({x})', 'motion(turn)')
_KNOWN = 5  # sentences of the kind that the reader knows
_HELD_OUT = 0.2  # share of those of the others that it does not
_LABELS, _ROOMS, _WRONG = 30, 40, 0.1

_Sentences = list[tuple[str, str]]
_Values = NDArray[np.float64]


@dataclass(frozen=True)
class _Asked:
    """A question about a room, and what the right calls answer."""

    calls: str
    question: str
    room: int
    truth: str


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--seeds', type=some_count, default=3, help='runs (default: %(default)s)')
    parser.add_argument('--kind', choices=KINDS, action='append', help='default: each')
    parser.add_argument('--json', type=Path, metavar='FILE', help='write the figures')


def main(args: argparse.Namespace) -> int:
    """Teach and measure; 1: a bar is not met."""
    rooms = [Scene(place=random_map_moment(f'teaching {n}').scene) for n in range(_ROOMS)]
    budgets = []
    for kind in args.kind or KINDS:
        runs = [
            _run(kind, seed, rooms) for seed in tqdm(range(args.seeds), desc=kind, leave=False)
        ]
        gains = np.concatenate([run['gain'] for run in runs])
        low, high = _interval(gains)
        control = np.concatenate([run['control'] for run in runs])
        others = np.concatenate([run['others'] for run in runs])
        worse, better = int((others < 0).sum()), int((others > 0).sum())
        chance = binomtest(worse, worse + better).pvalue if worse + better else 1.0
        is_worse = worse > better and chance < 0.05 / len(KINDS)
        print(
            f'{kind}: {len(gains)} questions, right before {_share(runs, "before")}, after '
            f'{_share(runs, "after")}: {100 * gains.mean():+.1f} points ({100 * low:.1f} to '
            f'{100 * high:.1f}), shuffled {100 * control.mean():+.1f}; {len(others)} of other '
            f'kinds: {better} right that were not, {worse} no longer (p {chance:.2f}); '
            f'{sum(run["learned"] for run in runs)} of {_LABELS * len(runs)} labels taught, '
            f'{max(run["seconds"] for run in runs):.0f} s'
        )
        budgets += [
            Budget(f'points gained, {kind}', 100 * gains.mean(), 10, at_least=True),
            Budget(f'lower end of that, {kind}', 100 * low, 0, at_least=True),
            Budget(f'other kinds got worse, {kind}', float(is_worse), 0),
        ]  # fmt: skip
    return judge(budgets, args.json, {})


def _share(runs: Sequence[dict[str, _Values]], name: str) -> str:
    return f'{100 * np.concatenate([run[name] for run in runs]).mean():.0f} %'


def _interval(gains: _Values) -> tuple[float, float]:
    found = bootstrap((gains,), np.mean, random_state=0, n_resamples=2000, method='percentile')
    low, high = map(float, found.confidence_interval)
    return low, high


def _run(kind: str, seed: int, rooms: Sequence[Scene]) -> dict[str, _Values]:
    """One person, one kind: what is right before and after, and with the answers shuffled."""
    rng = Random(f'{kind} {seed}')
    kept, taught, asked, others = _split(kind, rng)
    with patch.object(sentences, 'package_sentences', lambda: kept):
        lessons = _questions(taught, rooms[: _ROOMS // 2], rng, 3)[:_LABELS]
        own = _questions(asked, rooms[_ROOMS // 2 :], rng, 4)
        rest = _questions(others, rooms[_ROOMS // 2 :], rng, 1)
        answers = [_answer_of_person(one, lessons, rng) for one in lessons]
        shuffled = rng.sample(answers, len(answers))
        before = [_right(each, rooms) for each in (own, rest)]
        begin = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, _data_in(folder):
            learned = _teach(lessons, answers, rooms)
            after = [_right(each, rooms) for each in (own, rest)]
        seconds = time.monotonic() - begin
        with tempfile.TemporaryDirectory() as folder, _data_in(folder):
            _teach(lessons, shuffled, rooms)
            control = _right(own, rooms)
    return {
        'before': before[0], 'after': after[0], 'gain': after[0] - before[0],
        'control': control - before[0], 'others': after[1] - before[1],
        'learned': np.array(learned), 'seconds': np.array(seconds),
    }  # fmt: skip


def _data_in(folder: str) -> Any:
    return patch.dict(os.environ, {'XDG_DATA_HOME': folder})


def _split(
    kind: str, rng: Random
) -> tuple[tuple[tuple[str, str], ...], _Sentences, _Sentences, _Sentences]:
    """What the reader knows; sentences to teach, to ask, and to ask of other kinds."""
    read = sentences.read_sentences()
    own = rng.sample(read['people'][kind], len(read['people'][kind]))
    middle = _KNOWN + (len(own) - _KNOWN) // 2
    rest = [(text, calls) for calls, texts in read['people'].items() if calls != kind
            for text in texts]  # fmt: skip
    others = rng.sample(rest, round(_HELD_OUT * len(rest)))
    unknown = {*others, *((text, kind) for text in own[_KNOWN:])}
    kept = tuple(
        (text, calls)
        for text, calls in sentences.package_sentences()
        if (text, calls) not in unknown and not (calls == kind and text not in own)
    )
    pairs = [(text, kind) for text in own]
    return kept, pairs[_KNOWN:middle], pairs[middle:], others


def _questions(
    texts: Iterable[tuple[str, str]], rooms: Sequence[Scene], rng: Random, each: int
) -> list[_Asked]:
    """Questions in these sentences, each about some rooms, which the right calls answer."""
    found = []
    for text, calls in texts:
        for room in rng.sample(range(len(rooms)), each):
            scene = rooms[room]
            names = dict(zip('xyzw', rng.sample(scene.labels, 4), strict=True))
            slots = {f'a{key}': f'a {name}' for key, name in names.items()}
            slots |= {f'{key}s': f'{name}s' for key, name in names.items()}
            question = text.format(**names, **slots, n='3', c='red')
            right = parse_calls(calls.format(**names, c='red thing'), scene.labels)
            answer = answer_readings(read_calls(question, (), scene.labels, right), (), scene)
            if answer.is_known:
                truth = f'{answer.text} {answer.unit}'.strip()
                found.append(_Asked(calls, question, room, truth))
    return rng.sample(found, len(found))


def _answer_of_person(asked: _Asked, all_asked: Sequence[_Asked], rng: Random) -> str:
    """The right answer, or in a tenth that of another question."""
    return rng.choice(all_asked).truth if rng.random() < _WRONG else asked.truth


def _teach(asked: Sequence[_Asked], answers: Sequence[str], rooms: Sequence[Scene]) -> int:
    learned = 0
    for one, answer in zip(asked, answers, strict=True):
        is_right = partial(is_answer, solution=answer, question=one.question, options=())
        lesson = lesson_of(one.question, (), rooms[one.room], is_right)
        if lesson.sentence:
            sentences.teach(lesson.sentence, lesson.calls)
            learned += 1
    return learned


def _right(asked: Sequence[_Asked], rooms: Sequence[Scene]) -> _Values:
    """Which of the questions about the second half of the rooms are answered rightly."""
    found = [answer_by_tools(one.question, (), rooms[_ROOMS // 2 + one.room]) for one in asked]
    return np.array([
        each.is_known and f'{each.text} {each.unit}'.strip() == one.truth
        for each, one in zip(found, asked, strict=True)
    ], float)  # fmt: skip
