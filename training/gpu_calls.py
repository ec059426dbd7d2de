# SPDX-License-Identifier: Apache-2.0
"""Teaches a small model to call tools, on one card within minutes: `python -m training.gpu_calls`.

First supervised training on calls, then reinforcement learning (GRPO) whose reward executes them,
with several seeds, beside a control of equal compute that learns the right ones of the start's own
completions. All are evaluated on held-out rows. Plain torch and PEFT: what TRL's trainers cost in
start-up and generation is more than a borrowed card has. Whatever is done is saved at once, and
the clock shortens what is left.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
import gzip
import json
import math
import multiprocessing
import os
from pathlib import Path
from random import Random
import shutil
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.reasoning.calls import parse_calls
from embodied_r_ros.reasoning.completions import UNKNOWN
import torch

from training.adapter_learner import base_of, chunks_of, Learner, log, Pair, Steps, TrainingPlan
from training.data.call_rows import (
    CallRow,
    is_same,
    outcome_of,
    read_call_rows,
    read_scenes,
    scene_of,
)
from training.eval.statistics import bootstrap_interval, interval_over_runs, paired_test
from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.pool import Pool

    from embodied_r_ros.scene.tools import Scene
    from torch import Tensor

_FORMAT, _WRONG = 0.1, -0.3  # rewards beside 1 for what is right
_CLIP = 0.2
_EVEN = 1e-3  # spread of rewards up to which a group is unanimous
_FOR_RL = 0.2  # share of the training rows that supervised training does not read
_GREEDY_AT_ONCE = 500
_LEAST_S = 25  # a phase with less time is not begun
METHODS = ('grpo', 'control')


# What completions are worth: their calls are executed, in processes of their own.

_ROWS: list[CallRow] = []
_MAPS: dict[str, Any] = {}
_SCENES: dict[str, Scene] = {}


def _judge(job: tuple[int, str]) -> tuple[bool, tuple[str, ...]]:
    """Whether a completion has the form of calls, and what they answer."""
    index, text = job
    row = _ROWS[index]
    if row.scene not in _SCENES:
        _SCENES[row.scene] = scene_of(_MAPS[row.scene])
    calls = parse_calls(text, row.labels)
    if calls is None:
        return False, (UNKNOWN, '', 'no calls')
    return True, outcome_of(row.question, row.options, _SCENES[row.scene], calls)


class CallJudge:
    """Executes completions; each different one of a row once."""

    def __init__(self, rows: list[CallRow], maps: dict[str, Any], workers: int) -> None:
        """Start the processes, before anything is on the card."""
        _ROWS[:], self.rows = rows, rows
        _MAPS.update(maps)
        context = multiprocessing.get_context('fork')
        self._pool: Pool | None = context.Pool(workers) if workers > 1 else None

    def verdicts(self, jobs: Sequence[tuple[int, str]]) -> list[str]:
        """'right', 'unknown', 'wrong', or 'malformed' for each row's index and completion."""
        unique = sorted(set(jobs))
        mapped = self._pool.map(_judge, unique, 8) if self._pool else map(_judge, unique)
        found = {
            job: self._verdict(job[0], *each) for job, each in zip(unique, mapped, strict=True)
        }
        return [found[job] for job in jobs]

    def _verdict(self, index: int, is_formed: bool, outcome: tuple[str, ...]) -> str:
        if not is_formed:
            return 'malformed'
        if is_same(outcome, self.rows[index].outcome):
            return 'right'
        return 'unknown' if outcome[0] == UNKNOWN else 'wrong'

    def close(self) -> None:
        """End the processes."""
        if self._pool:
            self._pool.terminate()


def reward_of(verdict: str) -> float:
    """What a completion is worth."""
    return {'right': 1 + _FORMAT, 'unknown': _FORMAT, 'wrong': _FORMAT + _WRONG}.get(verdict, 0.0)


# The phases.


def supervise(
    learner: Learner, rows: Sequence[CallRow], until: float, seed: int
) -> dict[str, Any]:
    """Learn the calls of the rows, for some epochs or until a time."""
    plan, rng, began = learner.plan, Random(seed), time.time()
    pairs = [(learner.ids(row.prompt), [*learner.ids(row.call), learner.end]) for row in rows]
    pairs = [pair for pair in pairs if len(pair[0]) + len(pair[1]) <= 640]
    per_epoch = math.ceil(len(pairs) / plan.batch)
    steps = Steps(learner, plan.rate, plan.epochs * per_epoch, falls=True)
    loss = 0.0
    for _ in range(plan.epochs):
        for batch in _batches(pairs, plan.batch, rng):
            of_clock = (time.time() - began) / max(1.0, until - began)
            if of_clock >= 1:
                break
            total = sum(len(completion) for _, completion in batch)
            sums = []
            for chunk in chunks_of(batch, plan.at_once):
                own = -learner.log_probabilities(chunk)[0].sum() / total
                own.backward()  # type: ignore[no-untyped-call]
                sums.append(own.detach())
            # Where the clock is faster than the steps, the rate falls by the clock.
            steps.take(max(steps.done / steps.total, of_clock if of_clock > 0.5 else 0.0))
            if steps.done % max(1, steps.total // 12) == 0:
                loss = float(sum(sums))
                log(f'sft step {steps.done}/{steps.total} loss {loss:.3f}')
    learner.merge()
    seconds = time.time() - began
    return {'steps': steps.done, 'planned': steps.total, 'loss': loss, 'seconds': seconds}


def _batches(pairs: Sequence[Pair], size: int, rng: Random) -> list[list[Pair]]:
    """An epoch of batches in random order, each of pairs of like length."""
    order = list(range(len(pairs)))
    rng.shuffle(order)
    megas = [order[i : i + 16 * size] for i in range(0, len(order), 16 * size)]
    flat = [i for mega in megas for i in sorted(mega, key=lambda i: len(pairs[i][0]))]
    batches = [[pairs[i] for i in flat[k : k + size]] for k in range(0, len(flat), size)]
    rng.shuffle(batches)
    return batches


def evaluate(learner: Learner, judge: CallJudge, indices: Sequence[int]) -> list[dict[str, str]]:
    """Greedy answers to rows: the completion of each, and what it is worth."""
    prompts = {i: learner.ids(judge.rows[i].prompt) for i in indices}
    order = sorted(indices, key=lambda i: len(prompts[i]))
    size = _GREEDY_AT_ONCE if learner.is_fast else 16
    texts: dict[int, str] = {}
    for start in range(0, len(order), size):
        own = order[start : start + size]
        sampled = learner.sample([prompts[i] for i in own], 0.0)
        texts.update((i, learner.text_of(each)) for i, each in zip(own, sampled, strict=True))
    verdicts = judge.verdicts([(i, texts[i]) for i in indices])
    return [{'text': texts[i], 'verdict': v} for i, v in zip(indices, verdicts, strict=True)]


def reinforce(
    learner: Learner,
    judge: CallJudge,
    indices: Sequence[int],
    method: str,
    until: float,
    seed: int,
) -> dict[str, Any]:
    """Reinforcement learning from a start, or its control, for some steps or until a time.

    Both sample as many completions and take as many updates of as many sequences. GRPO samples
    from what it has become and learns by advantages; the control samples from the start, and
    learns the right completions of the same groups: those that are not unanimous.
    """
    plan, rng = learner.plan, Random(seed)
    generator = torch.Generator(learner.device).manual_seed(seed)
    steps = Steps(learner, plan.rl_rate, plan.steps * plan.updates, falls=False)
    history: list[dict[str, float]] = []
    began = time.time()
    longest = 0.0
    while len(history) < plan.steps and time.time() + longest < until:
        at = time.time()
        chosen = rng.sample(list(indices), min(plan.prompts, len(indices)))
        prompts = [learner.ids(judge.rows[i].prompt) for i in chosen for _ in range(plan.samples)]
        owners = [i for i in chosen for _ in range(plan.samples)]
        completions = learner.sample(prompts, 1.0, generator)
        jobs = [(i, learner.text_of(c)) for i, c in zip(owners, completions, strict=True)]
        verdicts = judge.verdicts(jobs)
        rewards = torch.tensor([reward_of(v) for v in verdicts]).view(-1, plan.samples)
        mixed, weights = _lessons(rewards, verdicts, method, rng)
        pairs = [(prompts[k], completions[k]) for k in mixed]
        if pairs:
            _learn(learner, steps, pairs, weights, method)
        if method == 'grpo':
            learner.merge()
        shares = {name: verdicts.count(name) / len(verdicts) for name in ('right', 'wrong')}
        history.append(
            {
                **shares, 'reward': float(rewards.mean()), 'sequences': len(pairs),
                'seconds': round(time.time() - at, 2),
            }
        )  # fmt: skip
        longest = max(longest, time.time() - at)
        if len(history) % 4 == 1:
            log(f'{method} {seed} step {len(history)} {json.dumps(history[-1])}')
    learner.merge()
    return {'steps': len(history), 'seconds': time.time() - began, 'history': history}


def _lessons(
    rewards: Tensor, verdicts: Sequence[str], method: str, rng: Random
) -> tuple[list[int], Tensor]:
    """Which completions are learned, in random order, and with which weights.

    Those of groups that are not unanimous; by the control as many, drawn from the right ones.
    """
    spread = rewards.std(1, keepdim=True)
    advantages = ((rewards - rewards.mean(1, keepdim=True)) / (spread + 1e-4)).flatten()
    mixed = (spread > _EVEN).expand_as(rewards).flatten().nonzero()[:, 0].tolist()
    rng.shuffle(mixed)
    if method == 'grpo':
        return mixed, advantages[mixed]
    right = [k for k in mixed if verdicts[k] == 'right']
    drawn = rng.choices(right, k=len(mixed)) if right else []
    return drawn, torch.ones(len(drawn))


def _learn(
    learner: Learner, steps: Steps, pairs: list[Pair], weights: Tensor,
    method: str,
) -> None:  # fmt: skip
    """The updates of a step: the clipped objective of GRPO, or plain likelihood."""
    chunks = chunks_of(pairs, learner.plan.at_once)
    sizes = [len(chunk) for chunk in chunks]
    parts = torch.split(weights.to(learner.device), sizes)
    old: list[Tensor] = []
    if method == 'grpo':
        with torch.no_grad():
            old = [learner.log_probabilities(chunk)[0] for chunk in chunks]
    half = math.ceil(len(chunks) / learner.plan.updates)
    for start in range(0, len(chunks), half):
        own = range(start, min(start + half, len(chunks)))
        total = sum(len(completion) for k in own for _, completion in chunks[k])
        for k in own:
            values, owner = learner.log_probabilities(chunks[k])
            weight = parts[k][owner]
            if method == 'grpo':
                ratio = (values - old[k]).exp()
                gain = torch.min(ratio * weight, ratio.clamp(1 - _CLIP, 1 + _CLIP) * weight)
            else:
                gain = values * weight
            (-gain.sum() / total).backward()  # type: ignore[no-untyped-call]
        steps.take()


# The run.


def summary(rows: Sequence[CallRow], answers: Sequence[dict[str, str]]) -> dict[str, Any]:
    """Shares of right, unknown, wrong and malformed answers, with intervals, of rows and kinds."""
    verdicts = [answer['verdict'] for answer in answers]
    scenes = [row.scene for row in rows]
    shares: dict[str, Any] = {'n': len(rows)}
    for name in ('right', 'unknown', 'wrong', 'malformed'):
        values = [float(verdict == name) for verdict in verdicts]
        interval = bootstrap_interval(values, scenes)
        shares[name] = {'share': sum(values) / max(1, len(values)), 'interval_95': interval}
    same = [float(a['text'] == row.call) for a, row in zip(answers, rows, strict=True)]
    shares['same_call'] = sum(same) / max(1, len(same))
    of_kind: dict[str, list[str]] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        of_kind.setdefault(row.kind, []).append(verdict)
        group = 'without an answer' if row.outcome[0] == UNKNOWN else 'with an answer'
        of_kind.setdefault(group, []).append(verdict)
    shares['of_kind'] = {
        kind: {'n': len(own), **{name: own.count(name) for name in sorted(set(own))}}
        for kind, own in sorted(of_kind.items())
    }
    return shares


class CallTraining:
    """A whole run: the phases, and what they leave."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args, self.plan = args, TrainingPlan.scaled(args.scale)
        if args.steps:
            self.plan = replace(self.plan, steps=args.steps)
        self.out, self.work = args.out, args.work
        self.until = args.until or time.time() + args.limit
        train, self.test = read_call_rows(args.rows, 'train'), read_call_rows(args.rows, 'test')
        if args.scale < 1:
            train = train[: max(40, round(args.scale * len(train)))]
            self.test = self.test[: max(16, round(args.scale * len(self.test)))]
        scenes = sorted({row.scene for row in train})
        kept = set(scenes[: max(1, round(_FOR_RL * len(scenes)))])
        self.supervised = [row for row in train if row.scene not in kept]
        self.rows = [*self.test, *(row for row in train if row.scene in kept)]
        self.figures: dict[str, Any] = {
            'plan': vars(self.plan), 'rows': len(self.supervised), 'test_rows': len(self.test),
            'rl_rows': len(self.rows) - len(self.test), 'limit_s': args.limit,
        }  # fmt: skip

    def judge(self) -> CallJudge:
        """What executes completions."""
        names = {row.scene for row in self.rows}
        maps = {k: v for k, v in read_scenes(self.args.rows).items() if k in names}
        return CallJudge(self.rows, maps, self.plan.workers)

    def save(self) -> None:
        """Write the figures so far."""
        path = self.out / 'figures.json'
        path.with_suffix('.part').write_text(json.dumps(self.figures, indent=1), encoding='utf-8')
        path.with_suffix('.part').rename(path)

    def child(self) -> int:
        """One seed of one method, from the start."""
        method, seed = self.args.method, self.args.seed
        judge = self.judge()
        learner = Learner(self.work / 'base', self.args.tokenizer, self.plan, seed)
        learner.load(self.work / 'start')
        indices = range(len(self.test), len(self.rows))
        result = reinforce(learner, judge, indices, method, self.until, seed)
        learner.save(self.work / f'{method}-{seed}')
        result['answers'] = evaluate(learner, judge, range(len(self.test)))
        judge.close()
        path = self.work / f'{method}-{seed}.json'
        path.with_suffix('.part').write_text(json.dumps(result), encoding='utf-8')
        path.with_suffix('.part').rename(path)
        return 0

    def parent(self) -> int:
        """All phases."""
        for folder in (self.out, self.work):
            folder.mkdir(parents=True, exist_ok=True)
        judge = self.judge()
        log(f'{len(self.supervised)} rows, {len(self.test)} test rows')
        dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
        base_of(self.args.model, dtype).save_pretrained(self.work / 'base')
        log('base weights saved')
        learner = Learner(self.work / 'base', self.args.tokenizer, self.plan, 0)
        self.figures['device'] = (
            torch.cuda.get_device_name() if torch.cuda.is_available() else 'cpu'
        )
        whole = self.until - time.time()
        result = supervise(learner, self.supervised, time.time() + 0.3 * whole, 0)
        learner.save(self.work / 'start')
        self.keep('start')
        log(f'sft {result}')
        answers = {'start': evaluate(learner, judge, range(len(self.test)))}
        self.figures['start'] = {**result, **summary(self.test, answers['start'])}
        self.figures['adapter_config'] = json.loads(
            (self.work / 'start' / 'adapter_config.json').read_text(encoding='utf-8')
        )
        self.save()
        log(f'start: right {self.figures["start"]["right"]}')
        judge.close()
        del learner
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        for number, method in enumerate(METHODS):
            left = self.until - time.time() - 5
            if left < _LEAST_S * (len(METHODS) - number) * max(0.1, min(1.0, self.args.scale)):
                log(f'{method} left out: {left:.0f} s left')
                continue
            answers.update(self.wave(method, time.time() + left / (len(METHODS) - number)))
        self.finish(answers)
        return 0

    def wave(self, method: str, until: float) -> dict[str, list[dict[str, str]]]:
        """All seeds of a method at once, until a time; the answers of those that ended."""
        command = [
            sys.executable, '-m', 'training.gpu_calls', '--model', self.args.model,
            '--tokenizer', self.args.tokenizer, '--rows', self.args.rows, '--out', self.out,
            '--work', self.work, '--scale', self.args.scale, '--method', method,
            '--until', until - min(30, 0.2 * (until - time.time())),
        ]  # fmt: skip
        seeds = range(1, self.plan.seeds + 1)
        children = {}
        for seed in seeds:
            # The control takes no more steps than GRPO had time for.
            steps = self.figures.get(f'grpo-{seed}', {}).get('steps', 0)
            own = [*map(str, command), '--seed', str(seed), '--steps', str(steps)]
            children[seed] = subprocess.Popen(own)
        answers = {}
        for seed, child in children.items():
            try:
                child.wait(max(1.0, until + 10 - time.time()))
            except subprocess.TimeoutExpired:
                child.kill()
            path = self.work / f'{method}-{seed}.json'
            if path.exists():
                result = json.loads(path.read_text(encoding='utf-8'))
                answers[f'{method}-{seed}'] = own = result.pop('answers')
                self.figures[f'{method}-{seed}'] = {**result, **summary(self.test, own)}
                if method == 'grpo' or seed == 1:
                    self.keep(f'{method}-{seed}')
                log(f'{method} {seed}: right {self.figures[f"{method}-{seed}"]["right"]}')
            else:
                log(f'{method} {seed}: no result ({child.returncode})')
            self.save()
        return answers

    def keep(self, name: str) -> None:
        """Copy an adapter to where results are kept: as one file, since few may come back."""
        source = self.work / name / 'adapter_model.safetensors'
        shutil.copyfile(source, self.out / f'{name}.safetensors')

    def finish(self, answers: dict[str, list[dict[str, str]]]) -> None:
        """Compare, and write the answers of all."""
        scenes = [row.scene for row in self.test]
        values = {
            name: [float(answer['verdict'] == 'right') for answer in own]
            for name, own in answers.items()
        }
        means = {}
        for method in METHODS:
            runs = [own for name, own in values.items() if name.startswith(method)]
            if runs:
                mean = [sum(each) / len(runs) for each in zip(*runs, strict=True)]
                means[method] = mean
                self.figures[method] = {
                    'runs': len(runs), 'right': sum(mean) / len(mean),
                    'interval_95': interval_over_runs(runs, scenes),
                    'against_start': _difference(values['start'], mean, scenes),
                }  # fmt: skip
        if len(means) == len(METHODS):
            self.figures['grpo_against_control'] = _difference(
                means['control'], means['grpo'], scenes
            )
        self.save()
        with gzip.open(self.out / 'answers.json.gz', 'wt', encoding='utf-8') as file:
            json.dump(answers, file)
        shown = ('grpo', 'control', 'grpo_against_control')
        log(json.dumps({key: self.figures.get(key) for key in shown}))


def _difference(
    one: Sequence[float], other: Sequence[float], scenes: Sequence[str]
) -> dict[str, Any] | None:
    test = paired_test([b - a for a, b in zip(one, other, strict=True)], scenes)
    return vars(test) if test else None


def _run(args: argparse.Namespace) -> int:
    log(f'begin {args.method or "all"} {args.seed}')
    run = CallTraining(args)
    return run.child() if args.method else run.parent()


def main(arguments: Sequence[str] | None = None) -> int:
    """Train and evaluate."""
    parser = argparse.ArgumentParser(prog='training.gpu_calls', description=__doc__)
    add = parser.add_argument
    add('--model', type=Path, required=True, metavar='FILE.gguf', help='or a folder')
    add('--tokenizer', type=Path, required=True, metavar='tokenizer.json')
    add('--rows', type=Path, required=True, metavar='FOLDER', help='of training.data.calls')
    add('--out', type=Path, required=True, metavar='FOLDER')
    add('--work', type=Path, default=Path('/tmp/gpu_calls'), help='for what is not kept')
    add('--limit', type=float, default=float(os.environ.get('LIMIT_S', '540')), help='seconds')
    add('--scale', type=float, default=1.0, help='below 1: of a tenth or so, to try it out')
    add('--method', choices=METHODS, help='one seed of one method alone, from the start in --work')
    add('--seed', type=int, default=1)
    add('--steps', type=int, default=0, help='of reinforcement learning, at most; 0: as planned')
    add('--until', type=float, default=0.0, help='Unix time at which --method ends')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
