# SPDX-License-Identifier: Apache-2.0
"""What the labels of a person are worth: `python -m examples.people --out out/people`.

A robot in simulated rooms is asked questions, and a reviewer who is mostly right labels its
answers. Labels become rows, rows a candidate (`training.improve`), the candidate stands in the
shadow of the model that serves, and `training.promote --after-shadow` decides. Beside it stand
candidates of the same labels, shuffled among the questions: what they gain is not due to what
people said. All are compared with the start on rooms that nobody labelled, whose truth is known.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from dataclasses import dataclass, replace
import json
from pathlib import Path
from random import Random
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.own_messages import answer_to_msg, delta_to_msg, mark_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.chat.settings import model_digest
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.episodes.label_check import append_label, read_scope
from embodied_r_ros.episodes.labels import answer_in_words, label_id
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.reasoning.completions import parse_completion, read_answer
from embodied_r_ros.reasoning.prompts import REASON_PROMPT_VERSION
from embodied_r_ros.scene.memory import MemoryConfig
from embodied_r_ros.types.answers import Answer, AnswerKind, Freshness, SHADOW_ANSWER, shadow_id
from embodied_r_ros.types.deltas import ModelInfo
from embodied_r_ros.types.episodes import EpisodeEvent, EpisodeMark, Label, LabelKind

from examples.children import ran, ROOT
from training.eval.statistics import interval_over_runs, paired_test

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.questions.row import Row

Words = tuple[object, ...]
_FACTORY = BagMessageFactory()
_MEMORY = MemoryConfig()
_STEP_S = 7200.0
_MAX_TOKENS = 512  # as the embedded profile answers
_WHO = 'reviewer'
_ANSWER_NS = 1_000_000_000  # that an answer is said to have taken: nothing is timed here
_SHOWN = ('training.promote',)


def answer_of(row: Row, completion: str, model: ModelInfo) -> Answer:
    """What a model said to the question of a row, as the reasoner publishes it."""
    prompt = row.prompt(_MEMORY)
    deltas, scene = row.semantic_deltas(), prompt.scene
    read = read_answer(parse_completion(completion), row.options)
    kind, index, text = read or (AnswerKind.UNKNOWN, -1, '')
    return Answer(
        row.id,
        row.question,
        kind,
        row.options,
        index,
        text,
        think=parse_completion(completion).think,
        completion=completion,
        delta_ids=tuple(delta.to_id for delta in deltas[scene.omitted :]),
        deltas_merged=scene.merged,
        deltas_omitted=scene.omitted,
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        observation_stamp_ns=deltas[-1].stamp_ns if deltas else 0,
        freshness=Freshness.FRESH if read else Freshness.REFUSED,
        model=replace(model, prompt_version=REASON_PROMPT_VERSION),
        latency_ns=_ANSWER_NS,
        episode_id=row.episode_id,
    )


def write_recordings(
    folder: Path, rows: Sequence[Row], spoken: Sequence[tuple[ModelInfo, Mapping[str, str]]]
) -> None:
    """Write a recording per episode, as the recorder would have.

    Args:
        folder: For the recordings.
        rows: The questions; the longest deltas of an episode are its own.
        spoken: The model that serves and what it said, by row; then the candidate, if any.
    """
    by_episode: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_episode[row.episode_id].append(row)
    for episode_id, own in by_episode.items():
        deltas = max((row.semantic_deltas() for row in own), key=len)
        begin_ns = deltas[0].stamp_ns
        mark = EpisodeMark(begin_ns, episode_id, EpisodeEvent.START, scene_id=own[0].scene_id)
        with BagWriter(folder / episode_id) as bag:
            for topic, kind in (
                ('episode_mark', 'EpisodeMark'),
                ('semantic_delta', 'SemanticDelta'),
            ):
                bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{kind}')
            bag.write('/episode_mark', mark_to_msg(_FACTORY, mark), begin_ns)
            for delta in deltas:
                bag.write('/semantic_delta', delta_to_msg(_FACTORY, delta), delta.stamp_ns)
            for topic, (model, said) in zip(('answer', SHADOW_ANSWER), spoken, strict=False):
                bag.add_topic(f'/{topic}', 'embodied_r_msgs/msg/Answer')
                for row in own:
                    answer = answer_of(row, said[row.id], model)
                    name = shadow_id(row.id) if topic == SHADOW_ANSWER else row.id
                    msg = answer_to_msg(_FACTORY, replace(answer, id=name))
                    bag.write(f'/{topic}', msg, answer.observation_stamp_ns or begin_ns)


@dataclass(frozen=True)
class Reviewer:
    """Labels answers, right with some probability; otherwise with another option."""

    right: float
    seed: int
    shuffles: bool = False  # labels are given to other questions with as many options

    def label(self, folder: Path, rows: Sequence[Row], said: Mapping[str, str]) -> None:
        """Label each answer beside its recording."""
        rng = Random(self.seed)
        indices = {row.id: self._index(row, rng) for row in rows}
        if self.shuffles:
            by_count: dict[int, list[str]] = defaultdict(list)
            for row in rows:
                by_count[len(row.options)].append(row.id)
            for ids in by_count.values():
                mixed = rng.sample(ids, len(ids))
                indices |= dict(zip(ids, [indices[one] for one in mixed], strict=True))
        scopes = {name: read_scope(folder / name) for name in {row.episode_id for row in rows}}
        for row in rows:
            after = row.options[indices[row.id]]
            answer = answer_of(row, said[row.id], ModelInfo())
            kind = LabelKind.RIGHT if answer_in_words(answer) == after else LabelKind.CORRECT
            label = Label(label_id(_WHO, row.id), row.id, kind, _WHO, 1, after=after)
            append_label(folder / row.episode_id, label, scopes[row.episode_id])

    def _index(self, row: Row, rng: Random) -> int:
        """The option that the reviewer takes for right."""
        true = ord(row.solution) - ord('A')
        others = [index for index in range(len(row.options)) if index != true]
        return true if rng.random() < self.right else rng.choice(others)


class People:
    """The steps, each in the folders that the ones before it left."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Take the command line; the output folder is empty."""
        self.args, self.out = args, args.out.resolve()
        self.start = args.model.resolve()
        self._begin = time.monotonic()
        self._count = 0

    def step(self, *words: object, well: Sequence[int] = (0,)) -> int:
        """Run one command of the project; returns its exit code."""
        texts = [str(word) for word in words]
        self._count += 1
        log = self.out / 'logs' / f'{self._count:02}-{texts[0]}.log'
        sys.stderr.write(f'{time.monotonic() - self._begin:6.0f} s  $ {shlex.join(texts)}\n')
        code = ran(texts, log, _STEP_S, well)
        if texts[0] in _SHOWN:
            sys.stderr.write(log.with_suffix('.out').read_text())
        return code

    def rows(self, name: str, rooms: int, seed: int, split: str) -> list[Row]:
        """Questions with options about simulated rooms, all in one split."""
        folder, rows = self.out / name, self.out / f'{name}.jsonl'
        words: Words = ('--episodes', rooms, '--seed', seed, '--no-images', '--out', folder)
        self.step('embodied-r', 'sim', 'indoor', *words)
        share = 1 if split == 'test' else 0
        words = ('--deltas', 'true', '--moments', self.args.moments, '--test-share', share)
        self.step('embodied-r', 'questions', folder, *words, '--out', rows)
        return [row for row in read_rows(rows) if row.options and len(row.solution) == 1]

    def completions(self, model: Path, name: str, split: str) -> dict[str, str]:
        """What a model says to the rows of a file, greedily, by row."""
        out = self.out / f'{name}-{model.name}.said.jsonl'
        words: Words = ('--model', model, '--rows', self.out / f'{name}.jsonl', '--out', out)
        words += ('--split', split, '--count', 1, '--temperature', 0, '--judge', 'none')
        words += ('--max-tokens', _MAX_TOKENS)
        self.step('training.rollouts', *words)
        samples = map(json.loads, out.read_text().splitlines())
        return {sample['id']: sample['completions'][0] for sample in samples}

    def candidate(self, name: str, bags: Path, seed: int) -> Path:
        """What `training.improve` makes of labelled recordings."""
        frozen, out = self.out / f'{name}.frozen.json', self.out / name
        self.step('embodied-r', 'episodes', 'freeze', name, bags, '--out', frozen)
        words: Words = ('--frozen', frozen, '--out', out, '--model', self.start, '--seed', seed)
        words += ('--steps', self.args.steps, '--limit', self.args.limit, '--no-promote')
        for option in ('recipe', 'control'):
            if value := getattr(self.args, option):
                words += (f'--{option}', value)
        self.step('training.improve', *words)
        candidate: Path = next(out.glob('candidate-*'))
        return candidate

    def right(self, model: Path) -> dict[str, float]:
        """Which rows of the rooms that nobody labelled a model answers rightly, 0 or 1 by row."""
        report = self.out / f'{model.parent.name}-{model.name}.json'
        words: Words = ('--model', model, '--rows', self.out / 'unseen.jsonl', '--json', report)
        self.step('training.evaluate', *words, '--judge', 'none', '--cache', self.out / 'cache')
        outcomes = json.loads(report.read_text())['outcomes']
        return {outcome['id']: outcome['accuracy'] or 0.0 for outcome in outcomes}

    def run(self) -> int:
        """Go round; returns whether the gate let the first candidate through (0) or not (1)."""
        asked = self.rows('asked', self.args.rooms, 60_300, 'train')
        unseen = self.rows('unseen', self.args.test_rooms, 60_400, 'test')
        asked = [row for row in asked if row.split == 'train']
        serving = ModelInfo(self.start.name, model_digest(self.start))
        said = self.completions(self.start, 'asked', 'train')
        before = self.right(self.start)
        scenes = {row.id: row.scene_id for row in read_rows(self.out / 'unseen.jsonl')}
        candidates, lines = [], []
        for kind in ('labels', 'shuffled'):
            gains = []
            for seed in range(self.args.seeds):
                bags = self.out / f'{kind}-{seed}-bags'
                write_recordings(bags, asked, [(serving, said)])
                Reviewer(self.args.right, seed, kind == 'shuffled').label(bags, asked, said)
                candidates.append(self.candidate(f'{kind}-{seed}', bags, seed))
                after = self.right(candidates[-1])
                gains.append([after[one] - before[one] for one in scenes])
            lines.append(gain_line(kind, gains, list(scenes.values())))
        base = sum(before.values()) / len(before)
        sys.stdout.write('\n'.join([f'start     {base:.1%} of {len(before)}', *lines]) + '\n')
        return self.promote(unseen, serving, candidates[0])

    def promote(self, rows: Sequence[Row], serving: ModelInfo, candidate: Path) -> int:
        """Let a candidate stand in the shadow, label what both said, and let the gate decide."""
        rows = [row for row in rows if row.split == 'test']
        said = self.completions(self.start, 'unseen', 'test')
        beside = self.completions(candidate, 'unseen', 'test')
        bags = self.out / 'shadow-bags'
        shadow = ModelInfo(candidate.name, model_digest(candidate))
        write_recordings(bags, rows, [(serving, said), (shadow, beside)])
        Reviewer(self.args.right, 0).label(bags, rows, said)
        words: Words = ('--rows', self.out / 'unseen.jsonl', '--against', self.start)
        words += (
            '--judge',
            'none',
            '--slot',
            self.out / 'slot',
            '--after-shadow',
            bags,
            '--latency-rows',
            0,
        )
        words += ('--by', 'examples.people', '--cache', self.out / 'cache')
        return self.step('training.promote', candidate, *words, well=(0, 1))


def gain_line(kind: str, gains: Sequence[Sequence[float]], scenes: Sequence[str]) -> str:
    """The mean gain over the seeds with its 95 % interval, and the gain of each."""
    each = [sum(run) / len(run) for run in gains]
    if len(gains) > 1:
        low, high = interval_over_runs(gains, scenes)
    else:
        paired = paired_test(gains[0], scenes)
        low, high = (paired and paired.interval_95) or (-1.0, 1.0)
    seeds = ', '.join(f'{gain:+.1%}' for gain in each)
    return f'{kind:<9} {sum(each) / len(each):+.1%} ({low:+.1%} to {high:+.1%}; seeds: {seeds})'


def main(arguments: Sequence[str] | None = None) -> int:
    """Go round: 0 promoted, 1 refused or failed, 2 for bad input."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog='examples.people', description=__doc__)
    add = parser.add_argument
    add('--out', type=Path, default=Path('out/people'), help='new or empty (%(default)s)')
    add('--model', type=Path, default=ROOT / 'models' / 'nano', help='the start')
    add('--rooms', type=int, default=60, help='rooms that are asked about (%(default)s)')
    add('--test-rooms', type=int, default=60, help='rooms that nobody labels (%(default)s)')
    add('--moments', type=int, default=3, help='as of questions (%(default)s)')
    add('--right', type=float, default=0.9, help='how often the reviewer is right (%(default)s)')
    add('--seeds', type=int, default=3)
    add('--steps', type=int, default=40, help='as of training.improve (%(default)s)')
    add('--limit', type=int, default=1600, help='as of training.improve (%(default)s)')
    add('--recipe', default='', help='as of training.improve')
    add('--control', default='', help='as of training.improve')
    args = parser.parse_args(arguments)
    try:
        if args.out.exists() and (not args.out.is_dir() or any(args.out.iterdir())):
            msg = f'{args.out} is not an empty folder: remove it, or choose another'
            raise InputError(msg)
        (args.out / 'logs').mkdir(parents=True)
        return People(args).run()
    except EmbodiedRError as error:
        sys.stderr.write(f'examples.people: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        sys.stderr.write('examples.people: interrupted\n')
        return 130


if __name__ == '__main__':
    sys.exit(main())
