# SPDX-License-Identifier: Apache-2.0
"""What a recording loses when its process is killed or its file is cut, and how long repair takes.

A process records 30 images a second, and an answer every 1.5 s, and is killed by SIGKILL at a
seeded moment; what the recovered bag lacks is the loss. One long recording is cut at seeded bytes
and recovered; the baseline of the time is copying the same file, synced.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
import json
import os
from pathlib import Path
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.recording import Recording
from embodied_r_ros.bags.recovery import mcap_files, recover
from embodied_r_ros.bags.writer import GrowingBag
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.data.episodes.inspect import audit_bag
from mcap.reader import make_reader

from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse

_STRING = 'std_msgs/msg/String'
_IMAGE, _ANSWER = '/image', '/answer'
_MOST_LOST_S = 1.0
_MB = 1024 * 1024


@dataclass(frozen=True)
class Loss:
    """What was lost over all kills."""

    kills: int
    longest_s: float  # age of the oldest message that is not in the bag, at the kill
    median_s: float
    answers: int  # that the recorder said were safe
    answers_lost: int


@dataclass(frozen=True)
class Repair:
    """How a long recording was recovered."""

    mb: float
    cuts: int
    seconds: float  # median over the cuts
    times_copy: float  # the same over the time to copy the file
    audit_s: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--kills', type=some_count, default=20, help='processes that are killed (%(default)s)')
    add('--mb', type=some_count, default=200, help='size of the long recording (%(default)s)')
    add('--cuts', type=some_count, default=5, help='bytes at which it is cut (%(default)s)')
    add('--seed', type=int, default=0, help='of the moments and the bytes (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budgets are met."""
    draw = random.Random(args.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        loss = measure_kills(folder, args.kills, draw)
        repair = measure_repair(folder, args.mb, args.cuts, draw)
    print(f'{loss.kills} recordings killed: {loss.median_s:.2f} s lost (median)')
    print(
        f'{repair.mb:.0f} MB cut at {repair.cuts} bytes: recovered in {repair.seconds:.1f} s, '
        f'{repair.times_copy:.1f} times a copy; audit {repair.audit_s:.1f} s'
    )
    budgets = [
        Budget('longest loss at a kill', loss.longest_s, _MOST_LOST_S, 's'),
        Budget(f'answers lost of {loss.answers}', loss.answers_lost, 0),
    ]
    print_budgets(budgets)
    if args.json:
        figures = {
            'loss': asdict(loss),
            'repair': asdict(repair),
            'budgets': [budget.to_json() for budget in budgets],
        }
        args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def measure_kills(folder: Path, kills: int, draw: random.Random) -> Loss:
    """Kill recordings and see what their bags lack."""
    lost_s: list[float] = []
    answers = answers_lost = 0
    for index in range(kills):
        bag = folder / f'killed_{index}'
        safe, killed_s = _record_and_kill(bag, draw.uniform(1.0, 3.0))
        recover(bag)
        times = [json.loads(text.split(' ')[0]) for text in _texts(bag, _IMAGE)]
        lost_s.append(killed_s - max(times, default=0.0))
        kept = set(_texts(bag, _ANSWER))
        answers += len(safe)
        answers_lost += len(set(safe) - kept)
        shutil.rmtree(bag)
    return Loss(kills, max(lost_s), statistics.median(lost_s), answers, answers_lost)


def measure_repair(folder: Path, mb: int, cuts: int, draw: random.Random) -> Repair:
    """Cut a long recording at some bytes and recover it."""
    whole = folder / 'long'
    bag = _new_bag(whole)
    for index in range(mb * 20):
        bag.write(_IMAGE, _cdr(draw.randbytes(52_000).hex()), index)  # half of it, compressed
        if index % 15 == 0:
            bag.sync()
    bag.close()
    began_s = time.perf_counter()
    audit_bag(whole)
    audit_s = time.perf_counter() - began_s
    copies, times = [], []
    for _ in range(cuts):
        cut = folder / 'cut'
        began_s = time.perf_counter()
        shutil.copytree(whole, cut)
        [path] = mcap_files(cut)
        with path.open('rb') as file:
            os.fsync(file.fileno())
        copies.append(time.perf_counter() - began_s)
        size = path.stat().st_size
        os.truncate(path, draw.randrange(size // 2, size))
        began_s = time.perf_counter()
        recover(cut)
        times.append(time.perf_counter() - began_s)
        shutil.rmtree(cut)
    seconds, copy_s = statistics.median(times), statistics.median(copies)
    return Repair(size / _MB, cuts, seconds, seconds / copy_s, audit_s)


def _record_and_kill(bag: Path, after_s: float) -> tuple[list[str], float]:
    """Answers that were safe when a recording was killed, and when that was [s, monotonic]."""
    command = [sys.executable, '-m', 'bench.episodes', str(bag)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout
    first = process.stdout.readline()
    time.sleep(after_s)
    process.kill()
    killed_s = time.monotonic()
    rest, _ = process.communicate()
    *lines, _ = f'{first}{rest}'.split('\n')  # the last line may be cut
    return lines, killed_s


def _record(folder: str) -> None:
    """Record until the end of the process; say which answers are on the disk."""
    draw = random.Random(0)
    recording = Recording(_new_bag(Path(folder)))
    for index in range(100_000):
        recording.write(_IMAGE, _cdr(f'{time.monotonic()} {draw.randbytes(20_000).hex()}'), index)
        if index % 45 == 0:
            text = f'answer-{index}'
            recording.write(_ANSWER, _cdr(text), index, is_urgent=True)
            recording.when_safe(partial(_say, text))
        time.sleep(1 / 30)


def _say(text: str, is_safe: bool) -> None:
    if is_safe:
        print(text, flush=True)


def _new_bag(folder: Path) -> GrowingBag:
    bag = GrowingBag(folder, {})
    for topic in (_IMAGE, _ANSWER):
        bag.add_topic(topic, _STRING)
    return bag


def _texts(bag: Path, topic: str) -> list[str]:
    store, texts = embodied_typestore(), []
    for path in mcap_files(bag):
        with path.open('rb') as file:
            for _, _, message in make_reader(file, validate_crcs=True).iter_messages(topic):
                text: Any = store.deserialize_cdr(message.data, _STRING)
                texts.append(str(text.data))
    return texts


def _cdr(text: str) -> bytes:
    store = embodied_typestore()
    return bytes(store.serialize_cdr(store.types[_STRING](data=text), _STRING))


if __name__ == '__main__':
    _record(sys.argv[1])
