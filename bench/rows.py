# SPDX-License-Identifier: Apache-2.0
"""How fast bags become rows, and whether memory depends on how many there are.

Simulated rooms with images, all of one length. `embodied-r questions` runs in a process of its own
for each figure: from true deltas, which are only read, and from what the classical perceiver makes
of the images. The baseline of speed is real time, that of memory a quarter of the bags. The budget
of speed counts the time that the process had a core for: other work on the machine does not count.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from embodied_r_ros.cli import questions
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.cli.main import main as embodied_r
from embodied_r_ros.sim.indoor.episodes import generate
from embodied_r_ros.sim.runs import IndoorConfig

from bench.report import Budget, judge, peak_mb

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_SOURCES = ('true', 'classical')
_MORE = 4  # times as many bags, for memory
_LEAST_SPEED = 10.0
_UNIT = 'times real time, by CPU time'
_MOST_GROWTH = 1.2


@dataclass(frozen=True)
class RowsFigures:
    """What one process needed."""

    bags: int
    rows: int
    speed: float  # times real time
    cpu_speed: float  # the same by the time that it had a core for
    peak_mb: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--episodes', type=some_count, default=4, help='bags; memory also with four times as many')
    add('--duration', type=float, default=20.0, help='of each [s] (%(default)s)')
    add('--rate', type=float, default=10.0, help='images per second (%(default)s)')
    add('--size', type=int, nargs=2, default=(320, 240), metavar=('W', 'H'), help='320 240')
    add('--seed', type=int, default=32000, help='of the rooms (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    width, height = args.size
    config = IndoorConfig(args.rate, args.duration, width, height, kinds='all')
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        count = _MORE * args.episodes
        bags = list(generate(config, args.seed, count, folder / 'bags'))
        by_source = {
            source: [
                measure(bags[:n], source, args.duration, folder / f'{source}{n}.jsonl')
                for n in (args.episodes, count)
            ]
            for source in _SOURCES
        }
    print(f'bags of {args.duration:g} s, {args.size[0]}x{args.size[1]} at {args.rate:g} Hz')
    print(table(by_source))
    budgets = [budget for source in _SOURCES for budget in budgets_of(source, *by_source[source])]
    figures = {source: [asdict(f) for f in both] for source, both in by_source.items()}
    return judge(budgets, args.json, figures)


def measure(bags: Sequence[Path], source: str, duration_s: float, rows: Path) -> RowsFigures:
    """What a process of its own needs to derive the rows of bags, start excluded."""
    command = [sys.executable, '-m', 'bench.rows', str(rows), source, *map(str, bags)]
    process = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    seconds, cpu_s, peak = map(float, process.stdout.split())
    length_s = duration_s * len(bags)
    count = len(rows.read_text().splitlines())
    return RowsFigures(len(bags), count, length_s / seconds, length_s / cpu_s, peak)


def table(figures: dict[str, list[RowsFigures]]) -> str:
    """The figures as text."""
    lines = [
        f'{"deltas":10} {"bags":>5} {"rows":>6} {"times real time":>16}'
        f' {"by CPU time":>12} {"peak memory":>12}'
    ]
    lines += [
        f'{source:10} {f.bags:>5} {f.rows:>6} {f.speed:>16.1f} {f.cpu_speed:>12.1f}'
        f' {f.peak_mb:>9.0f} MB'
        for source, both in figures.items()
        for f in both
    ]
    return '\n'.join(lines)


def budgets_of(source: str, few: RowsFigures, many: RowsFigures) -> list[Budget]:
    """Speed over the many, and how much more memory they take than the few."""
    growth = many.peak_mb / few.peak_mb
    return [
        Budget(f'{source} deltas', many.cpu_speed, _LEAST_SPEED, _UNIT, at_least=True),
        Budget(f'{source} deltas, memory for four times the bags', growth, _MOST_GROWTH, 'times'),
    ]


def _derive(rows: str, source: str, *bags: str) -> None:
    assert questions  # the verb is loaded by name, and is not to be loaded on the clock
    began_s, cpu_began_s = time.perf_counter(), time.process_time()
    code = embodied_r(['questions', *bags, '--deltas', source, '--out', rows])
    seconds, cpu_s = time.perf_counter() - began_s, time.process_time() - cpu_began_s
    print(seconds, cpu_s, peak_mb())
    sys.exit(code)


if __name__ == '__main__':
    _derive(*sys.argv[1:])
