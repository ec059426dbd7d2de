# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.reasoning.live_memory import LiveMemory
from embodied_r_ros.reasoning.memory import MemoryConfig
import pytest


def delta(stamp_ns: int, episode_id: str = '') -> SemanticDelta:
    return SemanticDelta(stamp_ns, DeltaKind.CHANGE, episode_id=episode_id)


@pytest.fixture
def memory() -> LiveMemory:
    return LiveMemory(MemoryConfig())


def stamps(memory: LiveMemory) -> list[int]:
    return [d.stamp_ns for d in memory.deltas()]


def test_deltas_are_remembered_in_order(memory: LiveMemory) -> None:
    assert memory.add(delta(1))
    assert memory.add(delta(2))
    assert stamps(memory) == [1, 2]


def test_episode_forgets_what_was_before(memory: LiveMemory) -> None:
    memory.add(delta(1))
    assert memory.start_episode('e1') == 1
    memory.add(delta(2, 'e1'))
    assert (stamps(memory), memory.episode_id, memory.resets) == ([2], 'e1', 1)


def test_late_delta_from_before_the_episode_is_left_out(memory: LiveMemory) -> None:
    memory.start_episode('e1')
    memory.start_episode('e2')
    memory.add(delta(5, 'e2'))
    assert not memory.add(delta(4, 'e1'))
    assert (stamps(memory), memory.left_out) == ([5], 1)


def test_late_delta_without_episode_is_left_out(memory: LiveMemory) -> None:
    memory.start_episode('e1')
    assert not memory.add(delta(4, ''))
    assert memory.left_out == 1


def test_first_delta_of_an_episode_starts_it_before_its_mark_comes(memory: LiveMemory) -> None:
    memory.add(delta(1))
    memory.add(delta(2, 'e1'))
    assert memory.start_episode('e1') == 0
    assert (stamps(memory), memory.episode_id) == ([2], 'e1')


def test_what_was_seen_in_an_episode_is_known_after_it(memory: LiveMemory) -> None:
    memory.start_episode('e1')
    memory.add(delta(1, 'e1'))
    memory.stop_episode()
    assert memory.add(delta(2, ''))
    assert (stamps(memory), memory.episode_id) == ([1, 2], '')


def test_backward_clock_jump_forgets(memory: LiveMemory) -> None:
    memory.add(delta(10))
    memory.add(delta(3))
    assert (stamps(memory), memory.resets) == ([3], 1)


def test_reset_tells_how_much_was_forgotten(memory: LiveMemory) -> None:
    memory.add(delta(1))
    memory.add(delta(2))
    assert memory.reset() == 2
    assert memory.deltas() == ()
