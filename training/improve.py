# SPDX-License-Identifier: Apache-2.0
"""Recordings in, a better reasoner out: `python -m training.improve BAG… --out DIR`.

Questions are derived from the recordings, which prove their answers, and what serves now answers
each several times. One candidate is trained by reinforcement learning, one on the right ones of
these answers (the control that every gain has to beat). The better one on scenes of the split
`validation` goes to the gate of `training.promote`, which asks about scenes that no training saw.
Every command is printed before it runs; the same command again goes on where it was ended.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import dataclass, replace
import hashlib
import json
from pathlib import Path
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.processes import tie_command
from embodied_r_ros.episodes.inspect import bag_digest, file_sha256, labels_sha256
from embodied_r_ros.questions.row import read_rows, write_rows
from embodied_r_ros.serving.profiles import reasoner_config
from tqdm import tqdm

from training.eval.generation import model_identity
from training.eval.judging import add_judge_option
from training.promote import serving_model, slot_of
from training.run.command import run_command, run_in_fork
from training.run.manifest import begin_or_go_on
from training.run.models import is_adapter, is_complete, model_folder

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from embodied_r_ros.questions.row import Row

_ROOT = Path(__file__).resolve().parent.parent
_CONFIGS = Path(__file__).resolve().parent / 'configs'
# What may not change between one start of the command and the next, where it goes on.
_DECIDING = (
    'profile', 'deltas', 'no_odometry', 'moments', 'limit', 'steps', 'seed', 'recipe', 'control'
)  # fmt: skip
_SAMPLES = 4  # completions of a row that tell whether it teaches anything
Words = tuple[object, ...]


@dataclass(frozen=True)
class TrainedCandidate:
    """A way to train, and what it left."""

    name: str
    folder: Path

    def is_trained(self) -> bool:
        """Tell whether its training has ended."""
        return is_complete(self.folder)


# Splits in the order in which they get a scene, each with how many it is to have at least then.
_WANTED_SCENES = (('train', 1), ('test', 1), ('validation', 1), ('train', 2))
# How many scenes a split keeps when it gives one; of equally full ones the first gives.
_KEPT_SCENES = {'train': 2, 'validation': 1, 'test': 1}


def fill_splits(rows: list[Row]) -> list[Row]:
    """Give a split that lacks scenes some of the fullest other one.

    Splits are drawn scene by scene, so that few scenes may all be in one or two of them. Of four
    scenes or more each split gets one, and training two; what is in no need stays as drawn. Rows
    in wordings that are held out from training do not come with their scene there.

    Args:
        rows: The rows, with the splits as drawn.
    """
    splits = {row.scene_id: row.split for row in rows}
    in_known_words = {row.scene_id for row in rows if not _is_held_out(row)}
    for wanted, least in _WANTED_SCENES:
        eligible = in_known_words if wanted == 'train' else set(splits)
        lacks = list(splits.values()).count(wanted) < least
        if lacks and (scene := _spare_scene(splits, wanted, eligible)):
            splits[scene] = wanted
    return [
        replace(row, split=splits[row.scene_id])
        for row in rows
        if not (_is_held_out(row) and splits[row.scene_id] == 'train' != row.split)
    ]


def _spare_scene(splits: Mapping[str, str], wanted: str, eligible: Collection[str]) -> str:
    """A scene of the fullest split that can do without it, seeded by its name; empty: none can.

    Args:
        splits: Split by scene.
        wanted: The split that lacks one.
        eligible: Scenes that may go there.
    """
    counts = Counter(splits.values())
    givers = [
        split
        for split, kept in _KEPT_SCENES.items()
        if split != wanted
        and counts[split] > kept
        and any(splits[scene] == split for scene in eligible)
    ]
    if not givers:
        return ''
    giver = max(givers, key=lambda split: counts[split])
    return min(
        (scene for scene in eligible if splits[scene] == giver),
        key=lambda scene: hashlib.sha256(f'{wanted}:{scene}'.encode()).digest(),
    )


def _is_held_out(row: Row) -> bool:
    """Whether a row is in a wording that no training may read."""
    return bool(row.meta.get('held_out_wording'))


class Improvement:
    """The steps, each in what the ones before it left in the output folder."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Take the command line.

        Raises:
            InputError: There is no model to start from, or no slot to promote into.
            ConfigError: There is no such profile.
        """
        self.out: Path = args.out.resolve()
        self.args = args
        self.slot = slot_of(args.profile, args.slot)
        self.start = (
            model_folder(args.model) if args.model else serving_model(args.profile, self.slot)
        )
        reasoner = reasoner_config(profile=args.profile)
        self.budget = ('--token-budget', reasoner.token_budget)
        self.asks_maps = reasoner.use_map
        self.rows, self.samples = self.out / 'rows.jsonl', self.out / 'samples.jsonl'
        self.cache = ('--cache', args.cache.resolve() if args.cache else self.out / 'cache')
        self.judge = self.args.judge or ['none']
        self.candidates = [TrainedCandidate(name, self.out / name) for name in ('grpo', 'control')]

    def begin(self) -> None:
        """Note what everything is made from; what is there of something else is refused.

        Raises:
            InputError: It is, or the note cannot be written.
            BagError: A recording cannot be found or read.
        """
        deciding = {name: getattr(self.args, name) for name in _DECIDING}
        for name in ('recipe', 'control'):
            deciding[name] += f', sha256:{file_sha256(Path(deciding[name]))[:12]}'
        bags = find_bags(self.args.bags)
        read = tqdm(bags, unit=' bags', desc='compared', leave=False, disable=None)
        content = hashlib.sha256(''.join(bag_digest(bag).sha256 for bag in read).encode())
        deciding['recordings'] = f'{len(bags)} bags, sha256:{content.hexdigest()[:12]}'
        if any(sums := [labels_sha256(bag) for bag in bags]):
            labels = hashlib.sha256(' '.join(sums).encode()).hexdigest()
            deciding['recordings'] += f', labels sha256:{labels[:12]}'
        deciding['model'] = model_identity(str(self.start))
        deciding['judge'] = self.judge
        begin_or_go_on(self.out, deciding)

    def ask(self) -> None:
        """Derive rows, once, and check that there are some to train on and to decide by.

        Raises:
            InputError: A split is empty.
        """
        if not self.rows.exists():
            words: Words = ('--no-odometry',) if self.args.no_odometry else ()
            words += ('--deltas', self.args.deltas) if self.args.deltas else ()
            words += ('--maps',) if self.asks_maps else ()
            words += ('--moments', self.args.moments, '--test-share', 0.2)
            drawn = self.out / 'rows.drawn.jsonl'
            if not drawn.exists():
                self.step('embodied-r', 'questions', *self.args.bags, '--out', drawn, *words)
            write_rows(self.rows, fill_splits(list(read_rows(drawn))))
        scenes = Counter(
            split for split, _ in {(r.split, r.scene_id) for r in read_rows(self.rows)}
        )
        for split in ('train', 'validation', 'test'):
            if not scenes[split]:
                msg = (
                    f'{self.rows} has no rows of split {split!r} (scenes: {dict(scenes)}): record '
                    'more places, or name them in the marks of the episodes'
                )
                raise InputError(msg)

    def train(self) -> None:
        """Sample the start, then train both candidates, where they are not there yet."""
        words: Words = ('--model', self.start, '--rows', self.rows, '--out', self.samples)
        words += (*self.budget, *self._judged(), *self.cache)
        words += ('--count', _SAMPLES, '--limit', self.args.limit, '--max-tokens', 320)
        self.step('training.rollouts', *words)
        common: Words = ('--rows', self.rows, '--samples', self.samples, '--model', self.start)
        common += ('--token_budget', self.budget[1], '--seed', self.args.seed)
        recipes = (
            (
                'training.grpo',
                self.args.recipe,
                self.args.steps,
                ('--judge', *self.judge),
            ),
            ('training.sft', self.args.control, 4 * self.args.steps, ()),
        )
        for candidate, (module, config, steps, more) in zip(self.candidates, recipes, strict=True):
            if not candidate.is_trained():
                ends = ('--max_steps', steps, '--output_dir', candidate.folder, *more)
                self.step(module, '--config', config, *common, *ends)

    def choose(self) -> Path:
        """The candidate that is right more often on rows of the split `validation`."""
        right = {}
        for candidate in self.candidates:
            report = self.out / f'{candidate.name}-validation.json'
            self._evaluate(candidate.folder, 'validation', report)
            right[candidate] = json.loads(report.read_text())['accuracy']
        chosen = max(self.candidates, key=lambda candidate: right[candidate])
        accuracies = ', '.join(f'{each.name} {right[each]:.1%}' for each in self.candidates)
        self.say(f'right on rooms of validation: {accuracies}; chosen: {chosen.name}')
        if is_adapter(chosen.folder):
            return chosen.folder
        released = self.out / f'candidate-{chosen.name}'
        if not released.exists():
            self.step('training.release', chosen.folder, released)
        return released

    def decide(self, candidate: Path) -> int:
        """Show how it differs from the start, and let the gate decide: 0 promoted, 1 refused."""
        reports = [self.out / f'{name}-test.json' for name in ('start', 'candidate')]
        for folder, report in zip((self.start, candidate), reports, strict=True):
            self._evaluate(folder, 'test', report)
        self.step('training.compare', *reports, '--json', self.out / 'comparison.json')
        if self.args.no_promote:
            return 0
        words: Words = ('--rows', self.rows, '--profile', self.args.profile, '--slot', self.slot)
        words += ('--against', self.start, *self._judged(), *self.cache)
        words += ('--latency-rows', self.args.latency_rows)
        return self.step('training.promote', candidate, *words, well=(0, 1))

    def _evaluate(self, model: Path, split: str, report: Path) -> None:
        words: Words = ('--rows', self.rows, '--split', split, *self._judged())
        words += (*self.budget, *self.cache, '--json', report)
        self.step('training.evaluate', '--model', model, *words)

    def _judged(self) -> tuple[str, ...]:
        return tuple(word for judge in self.args.judge for word in ('--judge', judge))

    def step(self, *words: object, well: Sequence[int] = (0,)) -> int:
        """Run one command of the project, as if typed here; returns its exit code.

        Raises:
            EmbodiedRError: It ends with a code that is not of `well`.
        """
        texts = [str(word) for word in words]
        self.say(f'$ {shlex.join(texts)}')
        module = 'embodied_r_ros.cli.main' if texts[0] == 'embodied-r' else texts[0]
        if self.args.fork:
            code = run_in_fork(module, texts[1:], _ROOT)
        else:
            command = tie_command([sys.executable, '-m', module, *texts[1:]])
            quiet = subprocess.DEVNULL
            code = subprocess.run(command, cwd=_ROOT, stdin=quiet, check=False).returncode
        if code not in well:
            msg = f'{texts[0]} ended with code {code}: what it said stands above'
            raise EmbodiedRError(msg)
        return code

    def say(self, line: str) -> None:
        """Tell a line."""
        sys.stderr.write(f'{line}\n')
        sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='training.improve', description=__doc__)
    add = parser.add_argument
    add('bags', nargs='+', type=Path, metavar='BAG', help='recordings, or folders of them')
    add('--out', required=True, type=Path, metavar='DIR', help='for everything that is made')
    add('--model', metavar='DIR', help='to start from; default: what the profile serves now')
    add('--profile', default='embedded', help='whose reasoner it is (default: %(default)s)')
    add('--slot', default='', help="name or path of the slot; default: the profile's")
    add('--deltas', choices=('recorded', 'true', 'classical', 'vlm'), help='as of questions')
    add('--no-odometry', action='store_true', help='as of questions')
    add('--moments', type=int, default=4, help='to ask at, per episode (default: %(default)s)')
    add('--limit', type=int, default=1600, help='rows that are sampled (default: %(default)s)')
    add('--steps', type=int, default=40, help='of reinforcement learning (default: %(default)s)')
    add('--seed', type=int, default=0)
    add(
        '--recipe',
        default=str(_CONFIGS / 'improve-grpo.yaml'),
        metavar='FILE',
        help='of training.grpo',
    )
    add('--control', default=str(_CONFIGS / 'improve-control.yaml'), metavar='FILE', help='of sft')
    add('--latency-rows', type=int, default=20, help='as of promote; 0: do not time')
    text = 'of what models said before, which other runs may share; default: one of its own'
    add('--cache', type=Path, metavar='DIR', help=text)
    text = 'steps are forks of this process, which share what it has imported: for short runs'
    add('--fork', action='store_true', help=text)
    add('--no-promote', action='store_true', help='stop before the gate')
    add_judge_option(parser)
    return parser


def _run(args: argparse.Namespace) -> int:
    args.bags = [bag.resolve() for bag in args.bags]
    try:
        going = Improvement(args)
        going.out.mkdir(parents=True, exist_ok=True)
        going.begin()
        going.ask()
        going.train()
        return going.decide(going.choose())
    except KeyboardInterrupt:
        sys.stderr.write('training.improve: interrupted: the same command goes on\n')
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Improve: 0 promoted, 1 refused or failed, 2 for bad input."""
    return run_command(_parser(), _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
