# SPDX-License-Identifier: Apache-2.0
"""`python -m bench [NAME [OPTION…]]`: measure speed and quality against baselines and budgets.

Without a name, all benches run as they are, each in a process of its own, but for the soak, which
takes its time, and those that need files; with one, its options are listed by --help.
Exit code 1 says that a budget is not met, or that a bench did not come to its end.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.processes import tie_command

if TYPE_CHECKING:
    from collections.abc import Iterable

# Name -> what it measures. A bench is a module with add_arguments(parser) and main(args) -> int.
BENCHES = {
    'asking': 'a question over ROS with 32 deltas: time to the first text',
    'changes': 'two visits to rendered rooms: joined or not, and what changed in between',
    'keyframes': 'overlap against rendered truth, time per image, rate from a bag',
    'layouts': "VSI-Bench's wordings about layouts of real rooms: right, unknown, wrong",
    'live': 'a live camera over DDS: images lost, latency, share of a core',
    'motion': 'motion between keyframes without odometry, rendered and real, and its time',
    'perception': 'motion and items of the classical perceiver against rendered truth',
    'recovery': 'nodes, model server and camera fail: time back to a fresh answer',
    'rows': 'rows from bags: times real time, and memory by the number of bags',
    'questions': 'plain questions of people about recordings: right, unknown, wrong',
    'scene': 'landmark maps against what is true of rooms and of real recordings',
    'soak': 'everything for half an hour: memory, handles, latency and drops over time',
    'teaching': '30 labels of one kind of question teach the reader without a model',
    'training': 'where the time of a GRPO step goes',
}


_ALONE = {'changes', 'soak', 'questions', 'layouts'}
_ROOT = Path(__file__).resolve().parents[1]


def run(name: str, arguments: list[str]) -> int:
    """Run one bench and return its exit code."""
    bench = import_module(f'bench.{name}')
    parser = argparse.ArgumentParser(prog=f'python -m bench {name}', description=bench.__doc__)
    bench.add_arguments(parser)
    args = parser.parse_args(arguments)
    try:
        return int(bench.main(args))
    except InputError as error:
        print(f'bench: error: {error}', file=sys.stderr)
        return 2


def run_all(names: Iterable[str]) -> int:
    """Run benches one after the other, also after one that breaks; 1: not all ended with 0."""
    codes = {}
    for name in names:
        print(f'\n{name}: {BENCHES[name]}', flush=True)
        start_s = time.monotonic()
        process = subprocess.run(
            tie_command([sys.executable, '-m', 'bench', name]), cwd=_ROOT, check=False
        )
        codes[name] = process.returncode, (time.monotonic() - start_s) / 60
    print(f'\n{"bench":14}{"exit code":>10}{"minutes":>9}')
    for name, (code, minutes) in codes.items():
        print(f'{name:14}{code:>10}{minutes:>9.1f}')
    return int(any(code for code, _ in codes.values()))


def main(arguments: list[str]) -> int:
    """Run the benches that were asked for."""
    listing = '\n'.join(f'  {name:12} {summary}' for name, summary in BENCHES.items())
    if arguments and arguments[0] in ('-h', '--help', '--list'):
        print(f'{__doc__}\nNAME is one of\n{listing}')
        return 0
    if arguments and arguments[0] not in BENCHES:
        print(
            f'bench: error: no bench {arguments[0]!r}: expected one of\n{listing}', file=sys.stderr
        )
        return 2
    if arguments:
        return run(arguments[0], arguments[1:])
    return run_all(name for name in BENCHES if name not in _ALONE)


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
