# SPDX-License-Identifier: Apache-2.0
"""Recordings in, a better reader out: `python -m training.improve BAG… --out DIR`.

Questions are derived from the recordings, which prove their answers, or people do. The adapter
that serves now learns the calls that give the solutions, and what it becomes goes to the gate of
`training.promote`, which asks about scenes that no training saw. Every command is printed before
it runs; the same command again goes on where it was ended.
"""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
import hashlib
import math
from pathlib import Path
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.data.episodes.inspect import bag_digest, labels_sha256
from embodied_r_ros.data.questions.row import read_rows, write_rows
from embodied_r_ros.serving.profiles import READER
from tqdm import tqdm

from training.data.call_rows import read_call_rows, write_call_rows
from training.data.calls import write_calls
from training.data.selection import rows_of_split
from training.data.taught_rows import taught_rows
from training.eval.asking import draw_rows
from training.eval.readers import base_of
from training.gguf_adapter import ADAPTER_FILE
from training.promote import serving_model, slot_of
from training.run.command import run_command, run_step
from training.run.manifest import begin_or_go_on

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row

_ROOT = Path(__file__).resolve().parent.parent
# What may not change between one start of the command and the next, where it goes on.
_DECIDING = ('profile', 'deltas', 'moments', 'labelled', 'limit', 'epochs', 'seed')
_RECIPE = _ROOT / 'training' / 'configs' / 'reader.yaml'
_RATE = 3e-4  # of the training: less than from the base, which knows nothing
_STEP = ('--gradient_accumulation_steps', 1)
_KEPT = 0.5  # rows of random rooms, as a share of what is taught
Words = tuple[object, ...]


def fill_splits(rows: list[Row]) -> list[Row]:
    """Two splits: what `validation` has trains too, and of two scenes or more each has one.

    Splits are drawn scene by scene, so that few scenes may all be in one. Rows in wordings that
    are held out from training do not come with their scene there.
    """
    splits = {row.scene_id: 'test' if row.split == 'test' else 'train' for row in rows}
    in_known_words = {row.scene_id for row in rows if not _is_held_out(row)}
    for wanted, eligible in (('train', in_known_words), ('test', set(splits))):
        others = [scene for scene in eligible if splits[scene] != wanted]
        if wanted not in splits.values() and len(splits) > 1 and others:
            drawn = min(others, key=lambda scene: hashlib.sha256(scene.encode()).digest())
            splits[drawn] = wanted
    return [
        replace(row, split=splits[row.scene_id])
        for row in rows
        if not (_is_held_out(row) and splits[row.scene_id] == 'train' != row.split)
    ]


def _is_held_out(row: Row) -> bool:
    """Whether a row is in a wording that no training may read."""
    return bool(row.meta.get('held_out_wording'))


def _of_people(rows: list[Row], seed: int) -> list[Row]:
    """What people solved, and as many others to decide by, so that what was known counts too."""
    own = [row for row in rows if row.source == 'label']
    others = [row for row in rows if row.split == 'test' and row.source != 'label']
    count = sum(row.split == 'test' for row in own)
    return [*own, *(draw_rows(others, count, seed) if count else ())]


class Improvement:
    """The steps, each in what the ones before it left in the output folder."""

    def __init__(self, args: argparse.Namespace) -> None:
        """Take the command line.

        Raises:
            InputError: The profile serves no adapters, or there is no slot to promote into.
            ConfigError: There is no such profile.
        """
        self.out: Path = args.out.resolve()
        self.args = args
        self.base = base_of(args.profile)
        self.slot = slot_of(args.profile, args.slot)
        self.start = args.start or serving_model(args.profile, self.slot)
        self.rows, self.calls = self.out / 'rows.jsonl', self.out / 'calls.jsonl.gz'
        self.candidate = self.out / 'candidate' / ADAPTER_FILE

    def begin(self) -> None:
        """Note what everything is made from; what is there of something else is refused.

        Raises:
            InputError: It is, or the note cannot be written.
            BagError: A recording cannot be found or read.
        """
        deciding = {name: getattr(self.args, name) for name in _DECIDING}
        bags = find_bags(self.args.bags)
        read = tqdm(bags, unit=' bags', desc='compared', leave=False, disable=None)
        content = hashlib.sha256(''.join(bag_digest(bag).sha256 for bag in read).encode())
        deciding['recordings'] = f'{len(bags)} bags, sha256:{content.hexdigest()[:12]}'
        if any(sums := [labels_sha256(bag) for bag in bags]):
            labels = hashlib.sha256(' '.join(sums).encode()).hexdigest()
            deciding['recordings'] += f', labels sha256:{labels[:12]}'
        deciding['model'] = model_digest(self.base, self.start)
        begin_or_go_on(self.out, deciding)

    def ask(self) -> None:
        """Derive rows, once, and check that there are some to train on and to decide by.

        Raises:
            InputError: A split is empty.
        """
        if not self.rows.exists():
            words: Words = ('--deltas', self.args.deltas) if self.args.deltas else ()
            words += ('--maps', '--set', f'questions.moments={self.args.moments}')
            words += ('--set', 'questions.test_share=0.2')
            drawn = self.out / 'rows.drawn.jsonl'
            if not drawn.exists():
                run_step('embodied-r', 'questions', *self.args.bags, '--out', drawn, *words)
            rows = fill_splits(list(read_rows(drawn)))
            write_rows(self.rows, _of_people(rows, self.args.seed) if self.args.labelled else rows)
        scenes = Counter(
            split for split, _ in {(r.split, r.scene_id) for r in read_rows(self.rows)}
        )
        if not (scenes['train'] and scenes['test']):
            msg = (
                f'{self.rows} has rows of {sum(scenes.values())} scenes, of which one trains and '
                'another decides: record more places, or name them in the marks of the episodes'
            )
            raise InputError(msg)

    def train(self) -> None:
        """Teach what serves the calls that give the solutions, where that is not done yet.

        Rows of random rooms go with them, so that it keeps what it knows.

        Raises:
            InputError: Nothing can be learned from the rows.
        """
        if self.candidate.exists():
            return
        rows = rows_of_split(self.rows, 'train')
        taught, left_out = taught_rows(rows)
        for reason, count in left_out.most_common():
            self.say(f'{count:6} left out: {reason}')
        if not taught:
            msg = f'no call gives the solution of any of {len(rows)} rows: nothing can be learned'
            raise InputError(msg)
        taught = draw_rows(taught, self.args.limit, self.args.seed)
        known = math.ceil(_KEPT * len(taught))
        self.say(f'{len(taught)} questions teach calls, beside {known} of random rooms')
        write_calls(self.out / 'random', known, self.args.seed)
        kept = read_call_rows(self.out / 'random' / 'train.jsonl.gz')
        write_call_rows(self.calls, [*taught, *kept])
        trained = self.out / 'training'
        words: Words = ('--rows', self.calls, '--model', self.base, '--adapter', self.start)
        words += ('--output_dir', trained, '--seed', self.args.seed, '--learning_rate', _RATE)
        words += ('--num_train_epochs', self.args.epochs, *_STEP)
        run_step('training.sft', '--config', _RECIPE, *words)
        write_whole(self.candidate, (trained / ADAPTER_FILE).read_bytes(), makes_folder=True)

    def decide(self) -> int:
        """Let the gate decide: 0 promoted, 1 refused."""
        words: Words = ('--rows', self.rows, '--profile', self.args.profile, '--slot', self.slot)
        words += ('--against', self.start, '--cache', self.out / 'cache')
        words += ('--limit', self.args.test_limit, '--seed', self.args.seed)
        words += ('--no-promote',) * self.args.no_promote
        return run_step('training.promote', self.candidate, *words, well=(0, 1))

    def say(self, line: str) -> None:
        """Tell a line."""
        sys.stderr.write(f'{line}\n')
        sys.stderr.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog='training.improve', description=__doc__)
    add = parser.add_argument
    add('bags', nargs='+', type=Path, metavar='BAG', help='recordings, or folders of them')
    add('--out', required=True, type=Path, metavar='DIR', help='for everything that is made')
    add('--start', type=Path, metavar='ADAPTER.gguf', help='default: what the profile serves now')
    add('--profile', default=READER, help='whose reasoner it is (default: %(default)s)')
    add('--slot', default='', help="name or path of the slot; default: the profile's")
    add('--deltas', choices=('recorded', 'true', 'classical', 'vlm'), help='as of questions')
    add('--moments', type=int, default=4, help='to ask at, per episode (default: %(default)s)')
    add('--labelled', action='store_true', help='learn from what people solved alone')
    add('--limit', type=int, default=800, help='questions that are learned (default: %(default)s)')
    add('--epochs', type=int, default=2, help='how often (default: %(default)s)')
    add('--test-limit', type=int, default=400, help='that decide; 0: all (default: %(default)s)')
    add('--seed', type=int, default=0)
    add('--no-promote', action='store_true', help='show what the gate says, and promote nothing')
    return parser


def _run(args: argparse.Namespace) -> int:
    args.bags = [bag.resolve() for bag in args.bags]
    try:
        going = Improvement(args)
        going.out.mkdir(parents=True, exist_ok=True)
        going.begin()
        going.ask()
        going.train()
        return going.decide()
    except KeyboardInterrupt:
        sys.stderr.write('training.improve: interrupted: the same command goes on\n')
        return 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Improve: 0 promoted, 1 refused or failed, 2 for bad input."""
    return run_command(_parser(), _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
