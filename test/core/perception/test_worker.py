# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import dataclass, field, replace
import math
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.core.perception.egomotion import followed_motion
from embodied_r_ros.core.perception.perceiver import perceive_all, perceive_pair
from embodied_r_ros.core.perception.worker import PerceptionWorker, WorkerConfig
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    ModelInfo,
    Motion,
    MotionSource,
    SemanticDelta,
)
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

FIRST, CHANGE, FAILED = DeltaKind.FIRST, DeltaKind.CHANGE, DeltaKind.FAILED


def keyframe(index: int, camera: str = 'front', episode_id: str = '') -> Keyframe:
    image = EncodedImage(b'', 'jpeg')
    stamp_ns = 1_000_000_000 * (index + 1)
    made = Keyframe(index, stamp_ns, image, KeyframeReason.LOW_OVERLAP, max(0, index - 1))
    return replace(made, camera=camera, episode_id=episode_id)


@dataclass
class GatedPerceiver:
    """A fake perceiver: it names the pair, once the gate of the later keyframe is open."""

    gates: dict[int, threading.Event] = field(default_factory=dict)
    begun: list[int] = field(default_factory=list)
    running: int = 0
    most_running: int = 0

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        self.begun.append(later.id)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        opened = self.gates[later.id].wait(10) if later.id in self.gates else True
        self.running -= 1
        if not opened or later.id == 13:
            msg = 'unlucky'
            raise ValueError(msg)
        kind = CHANGE if earlier else FIRST
        return SemanticDelta(
            later.stamp_ns,
            kind,
            later.id,
            (earlier or later).id,
            camera=later.camera,
            motion=(earlier and followed_motion(earlier, later)) or Motion(),
        )

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        return FocusText(keyframe.id, keyframe.stamp_ns, '')

    def check(self, deadline_s: float) -> None:
        """Always well."""

    def info(self) -> ModelInfo:
        return ModelInfo('gated')

    def open(self) -> None:
        for gate in self.gates.values():
            gate.set()

    def gate(self, *ids: int) -> None:
        self.gates.update((index, threading.Event()) for index in ids)


@dataclass
class Bench:
    """A worker on the fake perceiver, and what it published."""

    perceiver: GatedPerceiver
    worker: PerceptionWorker
    deltas: list[SemanticDelta]

    def pairs(self) -> list[tuple[int, int, int]]:
        return [(delta.from_id, delta.to_id, delta.skipped) for delta in self.deltas]


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    deltas: list[SemanticDelta] = []
    perceiver = GatedPerceiver()
    config = WorkerConfig(**getattr(request, 'param', {}))
    worker = PerceptionWorker(perceiver, deltas.append, config)
    yield Bench(perceiver, worker, deltas)
    perceiver.open()
    assert worker.close(10)


def eventually(condition: object, timeout_s: float = 5.0) -> bool:
    assert callable(condition)
    end = time.monotonic() + timeout_s
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return bool(condition())


def test_motion_is_put_together_over_keyframes_that_are_passed_over(bench: Bench) -> None:
    step = Motion(MotionSource.FOLLOWED, 0.5, 0.0, 0.0, (1.0, 0.0, 0.0), True, 0.9)
    bench.perceiver.gate(0, 1)
    for index in range(2):
        bench.worker.submit(keyframe(index))
    assert eventually(lambda: len(bench.perceiver.begun) == 2)
    for index in range(2, 6):
        way = replace(step, translation=(float(index), 0.0, 0.0))
        bench.worker.submit(replace(keyframe(index), motion=way))
    bench.perceiver.open()
    assert bench.worker.wait_idle(5)
    assert bench.pairs()[2:] == [(1, 4, 2), (4, 5, 0)]
    motion = bench.deltas[2].motion
    assert motion.yaw_rad == pytest.approx(1.5)
    x = sum(index * math.cos(0.5 * turns) for turns, index in enumerate((2, 3, 4)))
    assert motion.translation[0] == pytest.approx(x)


def test_each_keyframe_is_paired_with_the_one_before(bench: Bench) -> None:
    for index in range(4):
        bench.worker.submit(keyframe(index))
        assert bench.worker.wait_idle(5)
    assert bench.pairs() == [(0, 0, 0), (0, 1, 0), (1, 2, 0), (2, 3, 0)]
    assert [delta.kind for delta in bench.deltas] == [FIRST, CHANGE, CHANGE, CHANGE]
    assert all(delta.latency_ns > 0 for delta in bench.deltas)


def test_submit_does_not_wait_for_a_slow_perceiver(bench: Bench) -> None:
    # Every gate is closed: which keyframes are passed over depends on when the threads begin.
    bench.perceiver.gate(*range(100))
    for index in range(100):
        bench.worker.submit(keyframe(index))
    # Whoever waited for a gate that nobody opens would have published its error.
    assert bench.deltas == []


@pytest.mark.parametrize('bench', [{'in_flight': 3, 'capacity': 10}], indirect=True)
def test_pairs_in_flight_are_published_in_order(bench: Bench) -> None:
    bench.perceiver.gate(0)
    for index in range(3):
        bench.worker.submit(keyframe(index))
    assert eventually(lambda: sorted(bench.perceiver.begun) == [0, 1, 2])
    assert eventually(lambda: bench.worker.stats().in_flight == 1)
    assert bench.deltas == []
    bench.perceiver.gates[0].set()
    assert bench.worker.wait_idle(5)
    assert [delta.to_id for delta in bench.deltas] == [0, 1, 2]


@pytest.mark.parametrize('bench', [{'in_flight': 2, 'capacity': 50}], indirect=True)
def test_finished_deltas_do_not_pile_up_behind_a_slow_one(bench: Bench) -> None:
    bench.perceiver.gate(0)
    for index in range(20):
        bench.worker.submit(keyframe(index))
    assert eventually(lambda: len(bench.perceiver.begun) == 2)
    time.sleep(0.05)
    assert sorted(bench.perceiver.begun) == [0, 1]


@pytest.mark.parametrize('bench', [{'in_flight': 1, 'capacity': 2}], indirect=True)
def test_backlog_is_coalesced_into_the_newest(bench: Bench) -> None:
    bench.perceiver.gate(0)
    bench.worker.submit(keyframe(0))
    assert eventually(lambda: bench.perceiver.begun == [0])
    for index in range(1, 9):
        bench.worker.submit(keyframe(index))
    stats = bench.worker.stats()
    assert stats.waiting <= 2
    assert stats.coalesced + stats.waiting == 8
    bench.perceiver.gates[0].set()
    assert bench.worker.wait_idle(5)
    # Of 1..8, the arrivals of 3, 5 and 7 each skip what waits; 7 and 8 remain.
    assert bench.pairs() == [(0, 0, 0), (0, 7, 6), (7, 8, 0)]
    assert bench.worker.stats().coalesced == 6


def test_cameras_are_streams_of_their_own(bench: Bench) -> None:
    for index in range(3):
        bench.worker.submit(keyframe(index, 'front'))
        bench.worker.submit(keyframe(10 + index, 'rear'))
        assert bench.worker.wait_idle(5)
    rear = [(delta.from_id, delta.to_id) for delta in bench.deltas if delta.camera == 'rear']
    assert rear == [(10, 10), (10, 11), (11, 12)]


@pytest.mark.parametrize('bench', [{'in_flight': 2, 'capacity': 50}], indirect=True)
def test_busy_camera_does_not_starve_another(bench: Bench) -> None:
    bench.perceiver.gate(0, 1)
    for index in range(30):
        bench.worker.submit(keyframe(index, 'front'))
    bench.worker.submit(keyframe(100, 'rear'))
    bench.perceiver.open()
    assert bench.worker.wait_idle(5)
    assert bench.perceiver.begun.index(100) < 6


def test_failing_perceiver_fails_one_delta_only(bench: Bench) -> None:
    for index in (12, 13, 14):
        bench.worker.submit(keyframe(index))
        assert bench.worker.wait_idle(5)
    failed = bench.deltas[1]
    assert (failed.kind, failed.from_id, failed.to_id) == (FAILED, 12, 13)
    assert failed.error == 'ValueError: unlucky'
    assert (failed.action, failed.change) == ('', '')
    assert bench.deltas[2].kind is CHANGE
    assert bench.worker.stats().failed == 1


def test_failing_listener_does_not_end_the_stream() -> None:
    told: list[int] = []

    def publish(delta: SemanticDelta) -> None:
        told.append(delta.to_id)
        raise RuntimeError

    worker = PerceptionWorker(GatedPerceiver(), publish)
    for index in range(3):
        worker.submit(keyframe(index))
        assert worker.wait_idle(5)
    assert worker.close(5)
    assert told == [0, 1, 2]


def test_slow_listener_is_told_one_delta_at_a_time() -> None:
    begun, told, gate = list[int](), list[int](), threading.Event()

    def publish(delta: SemanticDelta) -> None:
        begun.append(delta.to_id)
        gate.wait(10)
        told.append(delta.to_id)

    perceiver = GatedPerceiver()
    worker = PerceptionWorker(perceiver, publish, WorkerConfig(in_flight=3, capacity=10))
    for index in range(3):
        worker.submit(keyframe(index))
    assert eventually(lambda: len(perceiver.begun) == 3 and worker.stats().in_flight == 0)
    assert begun == [0]
    gate.set()
    assert worker.wait_idle(5)
    assert begun == told == [0, 1, 2]
    assert worker.close(5)


def test_new_episode_begins_with_a_first_delta(bench: Bench) -> None:
    for index, episode in enumerate(['one', 'one', 'two']):
        bench.worker.submit(keyframe(index, episode_id=episode))
        assert bench.worker.wait_idle(5)
    assert [delta.kind for delta in bench.deltas] == [FIRST, CHANGE, FIRST]


def test_stamps_that_run_backward_begin_anew(bench: Bench) -> None:
    for index in (5, 6, 2):
        bench.worker.submit(keyframe(index))
        assert bench.worker.wait_idle(5)
    assert [delta.kind for delta in bench.deltas] == [FIRST, CHANGE, FIRST]


def test_reset_lets_nothing_old_through(bench: Bench) -> None:
    bench.perceiver.gate(0)
    bench.worker.submit(keyframe(0))
    assert eventually(lambda: bench.perceiver.begun == [0])
    assert bench.worker.reset()
    bench.perceiver.gates[0].set()
    bench.worker.submit(keyframe(1))
    assert bench.worker.wait_idle(5)
    assert bench.pairs() == [(1, 1, 0)]
    assert bench.worker.keyframe(0) is None
    assert bench.worker.stats().discarded == 1


def test_newest_keyframes_are_kept_for_a_focus() -> None:
    worker = PerceptionWorker(GatedPerceiver(), lambda delta: None, WorkerConfig(kept_keyframes=3))
    for index in range(5):
        worker.submit(keyframe(index))
    found = [worker.keyframe(index) for index in range(5)]
    assert [kept.id if kept else None for kept in found] == [None, None, 2, 3, 4]
    worker.submit(keyframe(4, 'rear'))
    assert worker.keyframe(4) is None  # two cameras: which one?
    rear = worker.keyframe(4, 'rear')
    assert rear is not None
    assert rear.camera == 'rear'
    assert worker.close()


def test_close_does_not_wait_for_ever() -> None:
    perceiver, told = GatedPerceiver(), list[SemanticDelta]()
    perceiver.gate(0)
    worker = PerceptionWorker(perceiver, told.append)
    worker.submit(keyframe(0))
    assert eventually(lambda: perceiver.begun == [0])
    start = time.monotonic()
    assert not worker.close(0.1)
    assert time.monotonic() - start < 1.0
    perceiver.gates[0].set()
    assert eventually(lambda: perceiver.running == 0)
    time.sleep(0.02)
    assert told == []


def test_close_ends_every_thread() -> None:
    before = threading.active_count()
    worker = PerceptionWorker(GatedPerceiver(), lambda delta: None, WorkerConfig(in_flight=8))
    assert threading.active_count() == before + 8
    assert worker.close(5)
    assert threading.active_count() == before
    worker.submit(keyframe(0))
    assert worker.stats().discarded == 1


class TestPerceiveAll:
    def test_skips_nothing_and_keeps_the_order(self) -> None:
        deltas = list(perceive_all(GatedPerceiver(), map(keyframe, range(20)), in_flight=4))
        assert [(delta.from_id, delta.to_id) for delta in deltas] == [
            (max(0, index - 1), index) for index in range(20)
        ]

    def test_reads_only_as_far_as_needed(self) -> None:
        read: list[int] = []

        def keyframes() -> Iterator[Keyframe]:
            for index in range(100):
                read.append(index)
                yield keyframe(index)

        deltas = perceive_all(GatedPerceiver(), keyframes(), in_flight=3)
        next(deltas)
        assert len(read) == 3
        next(deltas)
        assert len(read) == 4

    def test_runs_as_many_at_once_as_asked(self) -> None:
        perceiver = GatedPerceiver()
        perceiver.gate(0, 1, 2)
        deltas = perceive_all(perceiver, map(keyframe, range(6)), in_flight=3)
        threading.Timer(0.2, perceiver.open).start()
        assert len(list(deltas)) == 6
        assert perceiver.most_running == 3

    def test_failure_is_a_delta(self) -> None:
        deltas = list(perceive_all(GatedPerceiver(), map(keyframe, (12, 13, 14))))
        assert [delta.kind for delta in deltas] == [FIRST, FAILED, CHANGE]


def test_pair_of_two_episodes_is_no_pair() -> None:
    delta = perceive_pair(GatedPerceiver(), keyframe(0, episode_id='a'), keyframe(1))
    assert (delta.kind, delta.from_id) == (FIRST, 1)
