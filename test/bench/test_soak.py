# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import contextmanager
import gc
import json
import os
import subprocess
import sys
import threading
import time
import tracemalloc

import pytest

pytest.importorskip('rclpy')
pytest.importorskip('embodied_r_msgs.msg')

from typing import TYPE_CHECKING

from embodied_r_ros.core.scene.memory import MemoryConfig
import numpy as np

from bench.__main__ import main
from bench.soak_record import (
    budgets_of,
    growth,
    handle_count,
    memory_mb,
    REASONER,
    Record,
    Request,
    Sampler,
    SoakSample,
    UNREADABLE,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

NODES = {
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'episode_recorder',
}


def record_of(
    memory: float = 0.0,
    handles: float = 0.0,
    drops: float = 0.0,
    latency: float = 0.0,
    deltas: int = 0,
) -> Record:
    """Twenty minutes in which so much grew, beside noise; drops by their rate per minute."""
    draw = np.random.default_rng(0)
    record = Record(sent=10, arrived=10)
    dropped = 0.0
    for step in range(240):
        t_s, share = step * 5.0, step / 240
        dropped += share * drops / 12
        noise = float(draw.normal(0, 0.1))
        record.samples.append(
            SoakSample(
                t_s,
                {
                    'node': 100 + memory * share + noise,
                    'model server': 50 + 900 * share,
                    REASONER: 120 + (memory - 5) * share + noise,
                },
                {'node': round(20 + handles * share), REASONER: 20},
                {'node': round(dropped)},
                round(deltas * share),
            )
        )
        record.keyframes.append((t_s, 0.02 + latency * share + noise / 100))
        record.requests.append(Request(t_s, 0.5 + latency * share + noise / 10, 'answered', False))
    return record


def failing(record: Record) -> set[str]:
    own = ['node', REASONER]
    return {budget.what for budget in budgets_of(record, own) if not budget.is_met}


def test_what_grows_fails_and_what_is_noisy_does_not() -> None:
    assert failing(record_of()) == set()
    assert failing(record_of(memory=14)) == {'node: memory grown'}
    assert failing(record_of(handles=6)) == {'node: handles grown'}
    assert failing(record_of(drops=60)) == {'node: drops grown'}
    assert failing(record_of(latency=1)) == {'keyframe latency grown', 'answer latency grown'}


def test_the_reasoner_may_grow_by_what_it_keeps_and_by_no_more_than_it_may_keep() -> None:
    most = MemoryConfig().max_deltas
    grown = {'node: memory grown', f'{REASONER}: memory grown'}
    assert failing(record_of(memory=30)) == grown
    assert failing(record_of(memory=30, deltas=most)) == {'node: memory grown'}
    assert failing(record_of(memory=60, deltas=most)) == grown
    unbounded = {*grown, 'deltas that the reasoner keeps'}
    assert failing(record_of(memory=60, deltas=10 * most)) == unbounded


def test_lost_images_and_unanswered_questions_fail() -> None:
    record = record_of()
    record.requests.append(Request(1200.0, 4.0, 'no model server', True))
    assert failing(record) == set()  # it was away
    record.requests.append(Request(1200.0, 0.5, UNREADABLE, False))
    assert failing(record) == set()  # the model's failure, not one of what carries it
    record.requests.append(Request(1200.0, 4.0, 'too late', False))
    record.arrived -= 1
    lost = 'images lost between camera and extractor'
    assert failing(record) == {lost, 'questions without an answer, server up'}


def test_the_warm_up_is_not_judged() -> None:
    record = record_of()
    for step, sample in enumerate(record.samples[:40]):
        sample.memory_mb['node'] = step * 2.0  # type: ignore[index]
    assert failing(record) == set()


def test_a_soak_without_figures_is_no_pass() -> None:
    assert failing(Record()) >= {'keyframe latency grown', 'answer latency grown'}


def test_growth_follows_the_slope_and_not_outliers() -> None:
    times = np.arange(1000.0)
    values = 3 + 0.01 * times
    values[::50] = 1e6
    assert growth(list(times), list(values)) == pytest.approx(9.99, rel=0.05)
    assert np.isnan(growth([1.0], [2.0]))


def test_processes_are_sampled_until_the_end() -> None:
    record = Record()
    seen = threading.Event()

    def pids() -> dict[str, int]:
        if len(record.samples) >= 2:
            seen.set()
        return {'this': os.getpid(), 'gone': 2**22 + 1}

    with Sampler(pids, lambda: {'node': 3}, lambda: 7, 0.01, record) as sampler:
        assert seen.wait(30)
        assert sampler.now_s() > 0
    count = len(record.samples)
    time.sleep(0.1)
    assert len(record.samples) == count
    sample = record.samples[-1]
    assert sample.memory_mb.keys() == sample.handles.keys() == {'this'}
    assert (sample.drops, sample.deltas) == ({'node': 3}, 7)


# Of its own, since a large process takes memory that it has already.
HOLDS = """
import sys
print('ready', flush=True)
sys.stdin.readline()
held, files = bytearray(b'1') * (64 << 20), [open('/dev/null'), open('/dev/null')]
print('holds', flush=True)
sys.stdin.readline()
"""


def test_handles_and_memory_are_those_of_the_process() -> None:
    command = [sys.executable, '-c', HOLDS]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        figures = []
        for _ in range(2):
            process.stdout.readline()
            figures.append((handle_count(process.pid), memory_mb(process.pid)))
            process.stdin.write('\n')
            process.stdin.flush()
    (handles, memory), (more_handles, more_memory) = figures
    assert more_handles == handles + 2
    assert more_memory > memory + 0.9 * 64
    with pytest.raises(OSError, match='No such'):
        memory_mb(2**22 + 1)


@contextmanager
def taking_note_of_memory() -> Iterator[Callable[[], float]]:
    gc.collect()
    tracemalloc.start()
    taken = 0.0
    try:
        yield lambda: taken
        gc.collect()
        taken = tracemalloc.get_traced_memory()[0] / 2**20
    finally:
        tracemalloc.stop()


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_few_seconds_of_everything(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    coordinator = pytest.importorskip('domain_coordinator')
    out = tmp_path / 'soak'
    plan = ['--minutes', '0.2', '--question', '1', '--restart', '4', '--sample', '0.25']
    with coordinator.domain_id() as domain:
        monkeypatch.setenv('ROS_DOMAIN_ID', str(domain))
        code = main(['soak', *plan, '--server', 'light', '--out', str(out)])
    found = json.loads((out / 'soak.json').read_text())
    assert code == (0 if all(budget['is_met'] for budget in found['budgets']) else 1)
    assert NODES | {'model server'} == set(found['samples'][-1]['memory_mb'])
    assert found['samples'][-1]['deltas'] > 1
    for sample in found['samples']:
        assert all(value > 1 for value in sample['memory_mb'].values())
        assert all(value > 2 for value in sample['handles'].values())
    assert 0 < found['arrived'] <= found['sent'] == 360
    assert all(latency > 0 for _, latency in found['keyframes'])
    away = [request for request in found['requests'] if request['is_away']]
    assert len(away) == len(found['restarts_s']) >= 1
    # The tools of the scene stand in where they can read the question.
    outcomes = {request['outcome'] for request in away}
    assert all(
        'no model server' in each or each in ('answered', 'unreadable') for each in outcomes
    )
    after = [
        a for a in found['requests'] if a['t_s'] > found['restarts_s'][0] and not a['is_away']
    ]
    assert 'answered' in {request['outcome'] for request in after}
