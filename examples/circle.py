# SPDX-License-Identifier: Apache-2.0
"""The whole circle on a laptop: `python -m examples.circle` (or `make circle`).

Rooms are simulated and collected. Somebody with words of a ship asks about them and labels the
answers; the small model that reads questions is taught by these labels, and passes the gate or
not; where it does, a robot that runs answers with it, and it is rolled back. Every command is
printed before it runs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import shlex
import signal
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.demo import DemoQuestion
from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.reasoning.calls import parse_calls
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.core.types.episodes import Label, LabelKind, WrittenQuestion
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.label_check import append_label, read_scope
from embodied_r_ros.data.questions.indoor import Moment, NoSolution
from embodied_r_ros.data.questions.map_rows import layout_map
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.serving.promotion import in_force

from examples.children import run_child
from examples.robot import running
from training.data.call_rows import outcome_of, scene_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.core.scene.tools import Scene
    from embodied_r_ros.data.episodes.episode import Episode

_STEP_S = 3600.0
_SHOWN = ('training.improve', 'training.promote')
# With this seed 8 of 20 rooms are held out as test: splits go by the room's name.
_ROOMS = ('--episodes', '20', '--seed', '60220', '--set', 'indoor.kinds=all')
# What somebody from a ship asks, with options, and what that means.
_SIDES = ('ahead', 'to the left', 'to the right', 'behind')
_WORDS: dict[str, tuple[str, tuple[str, ...]]] = {
    '{x}, bearing': ('where({x})', _SIDES),
    'hull of the {x} in meters?': ('size({x}; longest)', ()),
    '{x}: range?': ('distance({x})', ()),
    'log {x}: seconds since last contact?': ('seen({x}; last)', ()),
    'swing since start?': ('motion(turn)', ('to the left', 'to the right')),
    'odometer, in meters?': ('motion(way)', ()),
    'net drift in meters?': ('motion(displacement)', ()),
}
_THINGS = 2  # of a room that are asked about
_LIMIT, _EPOCHS = 40, 2  # of the training: what some minutes allow


def sailors_questions(scene: Scene) -> Iterator[tuple[Question, str]]:
    """The questions of somebody who knows a place, with their true answers."""
    for words, (call, options) in _WORDS.items():
        for label in scene.labels[: _THINGS if '{x}' in words else 1]:
            question = words.format(x=label)
            calls = parse_calls(call.format(x=label), scene.labels)
            kind, text, _ = outcome_of(question, options, scene, calls)
            if kind != 'unknown':
                yield Question(question, options), text


def true_scene(episode: Episode) -> Scene:
    """What was there in truth, where the camera has come by.

    Raises:
        InputError: The recording is none of a simulated room.
    """
    parts = episode.poses, episode.layout, episode.no_poses, episode.pose_source
    place = layout_map(Moment(episode.deltas, *parts))
    if isinstance(place, NoSolution):
        raise InputError(place.reason)
    return scene_of(place.scene)


class Circle:
    """The steps, each in the folders that the ones before it left."""

    def __init__(self, out: Path) -> None:
        """Take the output folder, which is empty."""
        self.out, self.slot = out, out / 'slot'
        self.start = load_profile('embedded').servers['reasoner'].identity()
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
        """Camera recordings become episodes."""
        rooms = self.out / 'rooms'
        self.step('embodied-r', 'sim', 'indoor', *_ROOMS, '--workers', 2, '--out', rooms)
        self.step('embodied-r', 'collect', rooms, '--jobs', 2, '--out', self.out / 'episodes')

    def label(self) -> None:
        """Somebody asks about every room, and writes the true answers beside its recording."""
        count = 0
        for bag in find_bags([self.out / 'episodes']):
            episode, scope = read_episode(bag, 'recorded'), read_scope(bag)
            for number, (question, solution) in enumerate(sailors_questions(true_scene(episode))):
                stamp_ns = episode.deltas[-1].stamp_ns
                written = WrittenQuestion(question.text, stamp_ns, question.options)
                name = f'sailor-{number}'
                label = Label(name, name, LabelKind.QUESTION, 'sailor', time.time_ns(),
                              after=solution, question=written)  # fmt: skip
                append_label(bag, label, scope)
                count += 1
        self.say(f'{count} questions are asked and answered, as on the page of embodied-r review')

    def improve(self, *more: str) -> bool:
        """Teach, and show what the gate says; tells whether it lets the candidate through.

        Raises:
            EmbodiedRError: It could not be examined.
        """
        words: tuple[object, ...] = ('--labelled', '--out', self.out / 'improved')
        words += ('--slot', self.slot)
        words += ('--moments', 1, '--limit', _LIMIT, '--epochs', _EPOCHS, *more)
        code = self.step('training.improve', self.out / 'episodes', *words, well=(0, 1))
        if code and not list(self.slot.glob('refusals/*.json')):  # 1 is also that of a failure
            msg = f'training.improve failed: see {self.out / "logs"}'
            raise EmbodiedRError(msg)
        return code == 0

    def on_the_robot(self) -> tuple[bool, dict[str, str]]:
        """Ask before, after the promotion and after the rollback, while the nodes stay up.

        Returns:
            Whether the gate let the candidate through, and the digest that answered at each stage.
        """
        rows = read_rows(self.out / 'improved' / 'rows.jsonl')
        held_out = next(row for row in rows if row.split == 'test').episode_id
        source = self.out / 'rooms' / f'episode_{held_out.rpartition("-")[2]}'
        (bag,) = (self.out / 'episodes').glob(f'{source.name}-*')
        true = true_scene(read_episode(bag, 'recorded'))
        asked = [DemoQuestion(*each) for each in sailors_questions(true)]
        start = model_digest(self.start)
        with running(source, self.out, self.slot, asked, self.say) as robot:
            spoke = {'before': robot.answer_of(start).model.digest}
            passed = self.improve()
            promoted = in_force(self.slot)
            if promoted:
                spoke['promoted'] = robot.answer_of(promoted.digest).model.digest
                self.step('training.promote', '--rollback', '--slot', self.slot)
                spoke['rolled back'] = robot.answer_of(start).model.digest
        return passed, spoke


def summary(slot: Path, spoke: dict[str, str], *, passed: bool) -> str:
    """What came of it, as a table."""
    (file,) = [*slot.glob('manifests/*.json'), *slot.glob('refusals/*.json')]
    record = json.loads(file.read_text())
    comparison = record['comparison']
    lines = [_line('all questions', comparison)]
    lines += [_line('of the sailor', kind) for name, kind in comparison['by_type'].items()
              if name == 'asked']  # fmt: skip
    wrong = [f'{comparison[side]["wrong"]:.1%}' for side in ('first', 'second')]
    lines.append(f'{"wrong":<14} {" -> ".join(wrong)}')
    lines += [f'{stage:<14} {digest[:19]}  answered' for stage, digest in spoke.items()]
    failed = [check['name'] for check in record['checks'] if not check['passed']]
    refused = f'refused for {", ".join(failed)}: the gain may be chance, so nothing was promoted'
    lines.append(f'{"gate":<14} {"passed" if passed else refused}')
    return '\n'.join(lines)


def _line(name: str, figures: dict[str, Any]) -> str:
    first, second = (f'{figures[f"{side}_accuracy"]:.1%}' for side in ('first', 'second'))
    ends = figures.get('interval_95')
    interval = f'{figures["difference"]:+.1%} ({ends[0]:+.1%} to {ends[1]:+.1%})' if ends else ''
    return f'{name:<14} {first} -> {second} right, {interval} n = {figures["n"]}'


def main(arguments: Sequence[str] | None = None) -> int:
    """Go round once: 0, 1 where a step fails, 2 for bad input."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog='examples.circle', description=__doc__)
    parser.add_argument('--out', type=Path, default=Path('out/circle'), help='(%(default)s)')
    args = parser.parse_args(arguments)
    try:
        circle = Circle(_prepare_output(args.out.resolve()))
        circle.collect()
        circle.label()
        circle.improve('--no-promote')
        passed, spoke = circle.on_the_robot()
    except EmbodiedRError as error:
        sys.stderr.write(f'examples.circle: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    except KeyboardInterrupt:
        sys.stderr.write('examples.circle: interrupted\n')
        return 130
    sys.stdout.write(summary(circle.slot, spoke, passed=passed) + '\n')
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
