# SPDX-License-Identifier: Apache-2.0
"""Fleets of recordings on Ray: overhead and cores.

The baseline is the plain command, `embodied-r collect --jobs N`, on the same simulated recordings,
with as many at once; each figure comes from a process of its own. Ray's start, until the first
recording is begun, and its end are told apart.
"""

from __future__ import annotations

from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
import json
from pathlib import Path
import shutil
import subprocess
import sys
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_sources
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.cli.main import main as embodied_r
from embodied_r_ros.data.episodes.collect import CollectConfig
from embodied_r_ros.data.episodes.collect_jobs import collect, collection, CollectStage
from embodied_r_ros.data.episodes.fleet_ray import FleetConfig, run_fleet
from embodied_r_ros.data.episodes.manifest import find_recordings

from bench.report import Budget, judge

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_MOST_OVERHEAD = 0.10
_LEROBOT_CALLS_PER_MIN = 100.0  # of `lerobot-annotate` at its defaults: 50 per 30-s episode


@dataclass(frozen=True)
class FleetFigures:
    """What a run took."""

    way: str  # plain or ray
    actors: int
    recordings: int
    seconds: float  # of all of it
    start_s: float  # until the first recording was begun, and from the last one's end
    work_s: float  # without that
    keyframes: int = 0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--episodes', type=some_count, default=4, help='recordings, for times (%(default)s)')
    add('--duration', type=float, default=60.0, help='of each [s] (%(default)s)')
    add('--rate', type=float, default=10.0, help='images per second (%(default)s)')
    add('--size', type=int, nargs=2, default=(320, 240), metavar=('W', 'H'), help='320 240')
    add('--actors', type=some_count, nargs='+', default=[1, 2], help='at once (1 2)')
    add('--seed', type=int, default=36000, help='of the rooms (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        bags = _bags(args, folder / 'bags')
        figures = [
            figure
            for actors in args.actors
            for figure in (_measure('plain', actors, bags), _measure('ray', actors, bags))
        ]
    print(table(figures, args.duration))
    budgets = budgets_of(figures)
    return judge(budgets, args.json, {'runs': [asdict(figure) for figure in figures]})


def table(figures: Sequence[FleetFigures], duration_s: float) -> str:
    """The figures as text."""
    lines = [f'{"":6} {"at once":>7} {"start and end":>14} {"work":>9} {"recordings/min":>15}']
    lines += [
        f'{f.way:6} {f.actors:>7} {f.start_s:>12.1f} s {f.work_s:>7.1f} s'
        f' {60 * f.recordings / f.work_s:>15.1f}'
        for f in figures
    ]
    minutes = duration_s / 60 * figures[0].recordings
    calls = figures[0].keyframes / minutes
    lines.append(
        f'a vision-language model would be asked {calls:.1f} times per minute of recording'
        f' (lerobot-annotate: about {_LEROBOT_CALLS_PER_MIN:.0f})'
    )
    of_recording = figures[0].recordings * duration_s / 3600  # [h]
    lines.append(
        'cost per hour of recording = '
        f'{figures[0].work_s * figures[0].actors / 3600 / of_recording:.3f} core-hours x price '
        f'+ {calls * 60:.0f} calls x seconds of a GPU per call / 3600 x price of a GPU-hour'
    )
    return '\n'.join(lines)


def budgets_of(figures: Sequence[FleetFigures]) -> list[Budget]:
    """Overhead against the plain command."""
    plain = {figure.actors: figure for figure in figures if figure.way == 'plain'}
    return [
        Budget(
            f'{figure.actors} at once: time over that of the plain command',
            figure.work_s / plain[figure.actors].work_s - 1,
            _MOST_OVERHEAD,
        )
        for figure in figures
        if figure.way == 'ray'
    ]


def _bags(args: argparse.Namespace, folder: Path) -> Path:
    """Simulated recordings."""
    size = 'x'.join(map(str, args.size))
    words = f'sim indoor --episodes {args.episodes} --seed {args.seed} --duration {args.duration}'
    code = embodied_r(
        [
            *words.split(),
            '--set',
            f'indoor.rate_hz={args.rate}',
            '--set',
            'indoor.kinds=all',
            '--size',
            size,
            '--out',
            str(folder),
        ]
    )
    assert code == 0
    return folder


def _measure(way: str, actors: int, bags: Path) -> FleetFigures:
    out = bags.with_name(f'{way}{actors}')
    figures = _in_process([way, actors, bags, out])
    shutil.rmtree(out)
    return FleetFigures(way, actors, **figures)


def _in_process(words: Sequence[object]) -> dict[str, Any]:
    command = [sys.executable, '-m', 'bench.fleet', *map(str, words)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    figures: dict[str, Any] = json.loads(process.stdout.splitlines()[-1])
    return figures


def _plain(actors: str, bags: str, out: str) -> dict[str, Any]:
    """The plain command's work: a process for each recording, so many at once."""
    began_s = time.perf_counter()
    results = list(collect(find_sources([Path(bags)]), Path(out), CollectConfig(), int(actors)))
    seconds = time.perf_counter() - began_s
    assert not any(result.reason for result in results)
    keyframes = sum(result.keyframes for result in results)
    return _figures(len(results), seconds, seconds, keyframes)


def _ray(actors: str, bags: str, out: str) -> dict[str, Any]:
    """The same on Ray."""
    config, folder = FleetConfig(actors=int(actors)), Path(out)
    began_s = time.perf_counter()
    recordings = find_recordings([bags], find_sources)
    stage = CollectStage(folder, CollectConfig(), config.threads())
    begun_s, ended_s, keyframes = [], [], 0
    with collection(folder, CollectConfig()):
        for status in run_fleet(stage, recordings, folder / 'fleet', config):
            assert not status.error, status.error
            ended_s.append(time.perf_counter())
            begun_s.append(ended_s[-1] - status.seconds)
            keyframes += status.keyframes
    seconds = time.perf_counter() - began_s
    return _figures(len(ended_s), seconds, max(ended_s) - min(begun_s), keyframes)


def _figures(recordings: int, seconds: float, work_s: float, keyframes: int) -> dict[str, Any]:
    return {
        'recordings': recordings,
        'seconds': seconds,
        'start_s': seconds - work_s,
        'work_s': work_s,
        'keyframes': keyframes,
    }


_PARTS = {'plain': _plain, 'ray': _ray}

if __name__ == '__main__':
    part, *words = sys.argv[1:]
    out = sys.stdout
    with redirect_stdout(sys.stderr):  # Ray prints there what it has to say
        result = _PARTS[part](*words)
    print(json.dumps(result), file=out)
