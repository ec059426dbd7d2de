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
import shutil
import signal
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.own_messages import answer_to_msg, delta_to_msg, mark_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.chat.settings import model_digest
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.episodes.label_check import append_label, read_scope
from embodied_r_ros.episodes.labels import label_id
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.reasoning.completions import parse_completion, read_answer, UNKNOWN
from embodied_r_ros.reasoning.prompts import REASON_PROMPT_VERSION
from embodied_r_ros.serving.profiles import reasoner_config
from embodied_r_ros.types.answers import Answer, AnswerKind, Freshness, SHADOW_ANSWER, shadow_id
from embodied_r_ros.types.deltas import ModelInfo
from embodied_r_ros.types.episodes import EpisodeEvent, EpisodeMark, Label, LabelKind

from examples.children import ROOT, run_child
from training.data.samples import read_samples
from training.eval.statistics import interval_over_runs, paired_test
from training.run.models import model_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.scene.memory import MemoryConfig

Words = tuple[object, ...]
_FACTORY = BagMessageFactory()
_STRING = 'std_msgs/msg/String'
_PROFILE = 'embedded'
_START = ROOT / 'runs' / 'starts' / 'nano-sft'
_STEP_S = 14_400.0
_WHO = 'reviewer'
_ANSWER_NS = 1_000_000_000  # that an answer is said to have taken: nothing is timed here


def answer_of(row: Row, completion: str, model: ModelInfo, memory: MemoryConfig) -> Answer:
    """What a model said to the question of a row, as the reasoner publishes it."""
    prompt = row.prompt(memory)
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
    folder: Path,
    rows: Sequence[Row],
    spoken: Sequence[tuple[ModelInfo, Mapping[str, str]]],
    memory: MemoryConfig,
) -> None:
    """Write a recording per episode, as the recorder would have.

    Args:
        folder: For the recordings.
        rows: The questions; the longest deltas of an episode are its own.
        spoken: The model that serves and what it said, by row; then the candidate, if any.
        memory: How much of a scene they were told.
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
            parameters = {'parameters': {'reasoner.token_budget': memory.token_budget}}
            bag.add_topic('/provenance', _STRING)
            note = _FACTORY.make(_STRING, data=json.dumps(parameters))
            bag.write('/provenance', note, begin_ns)
            bag.write('/episode_mark', mark_to_msg(_FACTORY, mark), begin_ns)
            for delta in deltas:
                bag.write('/semantic_delta', delta_to_msg(_FACTORY, delta), delta.stamp_ns)
            for topic, (model, said) in zip(('answer', SHADOW_ANSWER), spoken, strict=False):
                bag.add_topic(f'/{topic}', 'embodied_r_msgs/msg/Answer')
                for row in own:
                    answer = answer_of(row, said[row.id], model, memory)
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
            read = read_answer(parse_completion(said[row.id]), row.options)
            before = read and (UNKNOWN if read[0] is AnswerKind.UNKNOWN else read[2])
            kind = LabelKind.RIGHT if before == after else LabelKind.CORRECT
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
        """Take the command line."""
        self.args, self.out = args, args.out.resolve()
        self.start = model_folder(str(args.model)).resolve()
        self._begin = time.monotonic()
        reasoner = reasoner_config(profile=_PROFILE)
        self.memory = reasoner.memory()
        self.limits: Words = ('--max-tokens', reasoner.max_tokens)
        self.limits += ('--token-budget', reasoner.token_budget)

    def step(self, name: str, *words: object, well: Sequence[int] = (0,)) -> int:
        """Run one command of the project, unless it has ended well; returns its exit code.

        Raises:
            InputError: There was another command of that name.
            EmbodiedRError: It fails.
        """
        texts = [str(word) for word in words]
        log = self.out / 'logs' / f'{name}.log'
        ended = log.with_suffix('.json')
        if ended.exists():
            before, code = json.loads(ended.read_text())
            if before != texts:
                msg = f'{self.out} has {name} of other settings: name another --out, or delete it'
                raise InputError(msg)
            return int(code)
        begin = time.monotonic()
        sys.stderr.write(f'{begin - self._begin:6.0f} s  $ {shlex.join(texts)}\n')
        code = run_child(texts, log, _STEP_S, well)
        write_whole(ended, json.dumps([texts, code]))
        return code

    def rows(self, name: str, rooms: int, moments: int, seed: int, split: str) -> list[Row]:
        """Questions with options about rooms that a camera alone saw, all in one split."""
        folder, rows = self.out / name, self.out / f'{name}.jsonl'
        if not (self.out / 'logs' / f'{name}-rooms.json').exists():
            shutil.rmtree(folder, ignore_errors=True)  # cut off
        words: Words = ('--kinds', 'common', '--episodes', rooms, '--seed', seed)
        self.step(f'{name}-rooms', 'embodied-r', 'sim', 'indoor', *words, '--out', folder)
        words = ('--deltas', 'classical', '--no-odometry', '--moments', moments)
        words += ('--test-share', int(split == 'test'))
        self.step(f'{name}-rows', 'embodied-r', 'questions', folder, *words, '--out', rows)
        rows_read = [row for row in read_rows(rows) if row.split == split]
        return [row for row in rows_read if row.options and len(row.solution) == 1]

    def samples(self, model: Path, name: str, split: str) -> dict[str, dict[str, Any]]:
        """What a model says to the rows of a file as the robot asks it, by row."""
        what = f'{name}-{model.parent.name}-{model.name}'
        out = self.out / f'{what}.said.jsonl'
        words: Words = ('--model', model, '--rows', self.out / f'{name}.jsonl', '--out', out)
        words += ('--split', split, '--count', 1, '--temperature', 0, '--judge', 'none')
        words += ('--cache', self.out / 'cache')
        self.step(what, 'training.rollouts', *words, *self.limits)
        return read_samples(out)

    def candidate(self, name: str, asked: Sequence[Row], said: Mapping[str, str]) -> Path:
        """What `training.improve` makes of recordings that a reviewer has labelled."""
        bags, frozen, out = (self.out / f'{name}{end}' for end in ('-bags', '.frozen.json', ''))
        kind, seed = name.split('-')
        if not frozen.exists():
            shutil.rmtree(bags, ignore_errors=True)
            serving = ModelInfo(self.start.name, model_digest(self.start))
            write_recordings(bags, asked, [(serving, said)], self.memory)
            Reviewer(self.args.right, int(seed), kind == 'shuffled').label(bags, asked, said)
        words: Words = ('embodied-r', 'episodes', 'freeze', name, bags, '--out', frozen)
        self.step(f'{name}-freeze', *words)
        words = ('--frozen', frozen, '--out', out, '--model', self.start, '--seed', seed)
        words += ('--steps', self.args.steps, '--limit', self.args.limit, '--no-promote')
        words += ('--recipe', self.args.recipe, '--control', self.args.control)
        words += ('--judge', 'none', '--slot', self.out / 'slot', '--cache', self.out / 'cache')
        self.step(f'{name}-improve', 'training.improve', *words, '--fork')
        return candidate_of(out)

    def run(self) -> int:
        """Go round; returns whether the gate let the first candidate through (0) or not (1)."""
        args = self.args
        asked = self.rows('asked', args.rooms, args.moments, 60_300, 'train')
        unseen = self.rows('unseen', args.test_rooms, args.test_moments, 60_400, 'test')
        said = _first(self.samples(self.start, 'asked', 'train'))
        before = _right(self.samples(self.start, 'unseen', 'test'), unseen)
        scenes = [row.scene_id for row in unseen]
        gains: dict[str, list[list[float]]] = {'labels': [], 'shuffled': []}
        for seed in range(args.seeds):
            for kind, own in gains.items():
                candidate = self.candidate(f'{kind}-{seed}', asked, said)
                after = _right(self.samples(candidate, 'unseen', 'test'), unseen)
                own.append([b - a for a, b in zip(before, after, strict=True)])
            differences = [
                [a - b for a, b in zip(*pair, strict=True)]
                for pair in zip(gains['labels'], gains['shuffled'], strict=True)
            ]
            lines = [f'start       {sum(before) / len(before):.1%} of {len(before)}']
            lines += [gain_line(kind, own, scenes) for kind, own in gains.items()]
            lines += [gain_line('difference', differences, scenes)]
            write_whole(self.out / 'gains.txt', '\n'.join(lines) + '\n')
        sys.stdout.write((self.out / 'gains.txt').read_text())
        return self.promote(unseen, candidate_of(self.out / 'labels-0'))

    def promote(self, rows: Sequence[Row], candidate: Path) -> int:
        """Let a candidate stand in the shadow, label what both said, and let the gate decide."""
        bags, spoken = self.out / 'shadow-bags', []
        for model in (self.start, candidate):
            said = _first(self.samples(model, 'unseen', 'test'))
            spoken.append((ModelInfo(model.name, model_digest(model)), said))
        shutil.rmtree(bags, ignore_errors=True)
        write_recordings(bags, rows, spoken, self.memory)
        Reviewer(self.args.right, 0).label(bags, rows, spoken[0][1])
        words: Words = ('--rows', self.out / 'unseen.jsonl', '--against', self.start)
        words += ('--judge', 'none', '--slot', self.out / 'slot', '--latency-rows', 0)
        words += ('--after-shadow', bags, '--cache', self.out / 'cache')
        words += ('--by', 'examples.people')
        code = self.step('promote', 'training.promote', candidate, *words, well=(0, 1))
        sys.stdout.write((self.out / 'logs' / 'promote.out').read_text())
        return code


def candidate_of(out: Path) -> Path:
    """The model that `training.improve` left in its folder, beside reports of it."""
    return next(path for path in out.glob('candidate-*') if path.is_dir())


def _first(samples: Mapping[str, dict[str, Any]]) -> dict[str, str]:
    return {name: sample['completions'][0] for name, sample in samples.items()}


def _right(samples: Mapping[str, dict[str, Any]], rows: Sequence[Row]) -> list[float]:
    return [float(samples[row.id]['right'][0]) for row in rows]


def gain_line(kind: str, gains: Sequence[Sequence[float]], scenes: Sequence[str]) -> str:
    """The mean gain over the seeds with its 95 % interval, and the gain of each."""
    each = [sum(run) / len(run) for run in gains]
    if len(gains) > 1:
        low, high = interval_over_runs(gains, scenes)
    else:
        paired = paired_test(gains[0], scenes)
        low, high = (paired and paired.interval_95) or (-1.0, 1.0)
    seeds = ', '.join(f'{gain:+.1%}' for gain in each)
    return f'{kind:<11} {sum(each) / len(each):+.1%} ({low:+.1%} to {high:+.1%}; seeds: {seeds})'


def main(arguments: Sequence[str] | None = None) -> int:
    """Go round: 0 promoted, 1 refused or failed, 2 for bad input."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog='examples.people', description=__doc__)
    add = parser.add_argument
    add('--out', type=Path, default=Path('out/people'), help='(%(default)s)')
    add('--model', type=Path, default=_START, help='the start (%(default)s)')
    add('--rooms', type=int, default=30, help='rooms that are asked about (%(default)s)')
    add('--moments', type=int, default=4, help='of each, as of questions (%(default)s)')
    add('--test-rooms', type=int, default=30, help='rooms that nobody labels (%(default)s)')
    add('--test-moments', type=int, default=3, help='of each (%(default)s)')
    add('--right', type=float, default=0.9, help='how often the reviewer is right (%(default)s)')
    add('--seeds', type=int, default=3)
    add('--steps', type=int, default=12, help='as of training.improve (%(default)s)')
    add('--limit', type=int, default=400, help='as of training.improve (%(default)s)')
    add('--recipe', default='training/configs/people-grpo.yaml', help='(%(default)s)')
    add('--control', default='training/configs/people-control.yaml', help='(%(default)s)')
    args = parser.parse_args(arguments)
    try:
        try:
            (args.out / 'logs').mkdir(parents=True, exist_ok=True)
        except OSError as error:
            msg = f'cannot write to {args.out}: {error.strerror}'
            raise InputError(msg) from None
        return People(args).run()
    except EmbodiedRError as error:
        sys.stderr.write(f'examples.people: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        sys.stderr.write('examples.people: interrupted: the same command goes on\n')
        return 130


if __name__ == '__main__':
    sys.exit(main())
