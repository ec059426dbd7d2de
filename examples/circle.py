# SPDX-License-Identifier: Apache-2.0
"""The whole circle on a laptop: `python -m examples.circle` (or `make circle`).

Rooms are simulated and collected, and questions derived; a model is trained, evaluated and
promoted; nodes that run answer with it, and it is rolled back. Every command is printed before it
runs. The settings are tiny, so the candidate is an exercise, not a better model, whatever model it
starts from.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import shlex
import signal
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.chat.settings import model_digest
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.questions.row import read_rows

from examples.children import ROOT, run_child
from examples.robot import running

if TYPE_CHECKING:
    from collections.abc import Sequence

_START = ROOT / 'models' / 'arm'
_STEP_S = 1800.0
_SHOWN = ('training.evaluate', 'training.compare', 'training.promote')
# With this seed 6 of 16 rooms are held out as test, 2 as validation: splits go by the room's name.
_ROOMS = ('--episodes', '16', '--seed', '60220')
_TEST_ROWS = 60
# What is let through when the gate has refused: anything, and the manifest says so.
_REHEARSAL = ('--min-gain=-1', '--min-format=0', '--max-unknown-loss=1')


class Circle:
    """The steps, each in the folders that the ones before it left."""

    def __init__(self, out: Path, start: Path) -> None:
        """Take the output folder, which is empty, and the model to start from."""
        self.out, self.start = out, start
        self.rows, self.slot = out / 'rows.jsonl', out / 'slot'
        self.candidate = out / 'candidate'
        self._begin = time.monotonic()
        self._count = 0

    def say(self, line: str) -> None:
        """Tell a line, with the time since the begin [s]."""
        sys.stderr.write(f'{time.monotonic() - self._begin:6.0f} s  {line}\n')

    def step(self, *words: object, well: Sequence[int] = (0,)) -> int:
        """Run one command of the project; returns its exit code."""
        texts = [str(word) for word in words]
        self._count += 1
        log = self.out / 'logs' / f'{self._count:02}-{texts[0]}.log'
        self.say(f'$ {shlex.join(texts)}')
        code = run_child(texts, log, _STEP_S, well)
        if texts[0] in _SHOWN:
            sys.stderr.write(log.with_suffix('.out').read_text())
        return code

    def collect(self) -> None:
        """Camera recordings become episodes, and episodes rows of training and of test rooms."""
        rooms, episodes = self.out / 'rooms', self.out / 'episodes'
        self.step('embodied-r', 'sim', 'indoor', *_ROOMS, '--workers', 2, '--out', rooms)
        self.step('embodied-r', 'collect', rooms, '--jobs', 2, '--out', episodes)
        self.step('embodied-r', 'questions', episodes, '--out', self.rows)

    def train(self) -> None:
        """A few steps on answers, then a few of reinforcement learning."""
        sft, grpo = self.out / 'sft', self.out / 'grpo'
        common = ('--rows', self.rows, '--output_dir')
        config = 'training/configs/circle-{}.yaml'.format
        self.step('training.sft', '--config', config('sft'), '--model', self.start, *common, sft)
        words = ('--config', config('grpo'), '--model', sft)
        self.step('training.grpo', *words, *common, grpo)
        self.step('training.release', grpo, self.candidate)

    def evaluate(self) -> None:
        """Start and candidate on the rooms that were held out, and how they differ."""
        reports = [self.out / f'{name}.json' for name in ('start', 'candidate')]
        for model, report in zip((self.start, self.candidate), reports, strict=True):
            words = ('--model', model, '--json', report)
            self.step('training.evaluate', *words, *self._graded())
        self.step('training.compare', *reports, '--json', self.out / 'comparison.json')

    def promote(self) -> bool:
        """Promote the candidate; tells whether the gate as it is has let it through.

        Raises:
            EmbodiedRError: It could not be examined.
        """
        words = ('training.promote', self.candidate, '--against', self.start, *self._graded())
        words += ('--profile', 'embedded-arm', '--slot', self.slot, '--by', 'examples.circle')
        words += ('--latency-rows',)
        if self.step(*words, 5, well=(0, 1)) == 0:
            return True
        if not list(self.slot.glob('refusals/*.json')):  # 1 is also the code of a failure
            msg = f'training.promote failed: see {self.out / "logs"}'
            raise EmbodiedRError(msg)
        self.say('refused, as it should be: so short a training proves no gain. To show the way')
        self.say('onto the robot, it is promoted without conditions; the manifest tells them.')
        self.step(*words, 0, *_REHEARSAL)
        return False

    def on_the_robot(self) -> tuple[bool, dict[str, str]]:
        """Ask before, after the promotion and after the rollback, while the nodes stay up.

        Returns:
            Whether the gate let the candidate through, and the digest that answered at each stage.
        """
        held_out = next(row for row in read_rows(self.rows) if row.split == 'test').episode_id
        source = self.out / 'rooms' / f'episode_{held_out.rpartition("-")[2]}'
        start, candidate = model_digest(self.start), model_digest(self.candidate)
        with running(source, self.out, self.slot, self.start, self.say) as robot:
            spoke = {'before': robot.answer_of(start).model.digest}
            passed = self.promote()
            spoke['promoted'] = robot.answer_of(candidate).model.digest
            self.step('training.promote', '--rollback', '--slot', self.slot)
            spoke['rolled back'] = robot.answer_of(start).model.digest
        return passed, spoke

    def _graded(self) -> tuple[object, ...]:
        words = ('--rows', self.rows, '--split', 'test', '--limit', _TEST_ROWS)
        return *words, '--cache', self.out / 'cache'


def summary(out: Path, spoke: dict[str, str], *, passed: bool) -> str:
    """What came of it, as a table."""
    lines = []
    for name in ('start', 'candidate'):
        report = json.loads((out / f'{name}.json').read_text())
        ends = report['interval_95']
        interval = f'{ends[0]:.1%} to {ends[1]:.1%}' if ends else 'one scene: no interval'
        figure = f'{report["accuracy"]:.1%} ({interval}, n = {report["n"]})'
        lines.append(f'{name:<12} {report["identity"][:19]}  {figure}')
    lines += [f'{stage:<12} {digest[:19]}  answered' for stage, digest in spoke.items()]
    lines.append(f'{"gate":<12} {"passed" if passed else "refused; promoted without conditions"}')
    return '\n'.join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Go round once: 0, 1 where a step fails, 2 for bad input."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog='examples.circle', description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('out/circle'), help='(%(default)s)')
    parser.add_argument('--model', type=Path, default=_START, help='the start (%(default)s)')
    args = parser.parse_args(arguments)
    try:
        circle = Circle(_prepare_output(args.out.resolve()), args.model.resolve())
        circle.collect()
        circle.train()
        circle.evaluate()
        passed, spoke = circle.on_the_robot()
    except EmbodiedRError as error:
        sys.stderr.write(f'examples.circle: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        sys.stderr.write('examples.circle: interrupted\n')
        return 130
    sys.stdout.write(summary(args.out, spoke, passed=passed) + '\n')
    return 0


def _prepare_output(out: Path) -> Path:
    """The output folder, made.

    Raises:
        InputError: It is not empty.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f'{out} is not an empty folder: remove it, or choose another'
        raise InputError(msg)
    (out / 'logs').mkdir(parents=True)
    return out


if __name__ == '__main__':
    sys.exit(main())
