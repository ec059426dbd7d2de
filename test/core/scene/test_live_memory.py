# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.core.scene.memory import LiveMemory, MemoryConfig
from embodied_r_ros.core.types.deltas import DeltaKind, SemanticDelta
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
    assert memory.start_episode('e1', 5) == 1
    memory.add(delta(2, 'e1'))
    assert (stamps(memory), memory.episode_id, memory.resets) == ([2], 'e1', 1)


def test_late_delta_from_before_the_episode_is_left_out(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
    memory.start_episode('e2', 5)
    memory.add(delta(5, 'e2'))
    assert not memory.add(delta(4, 'e1'))
    assert (stamps(memory), memory.left_out) == ([5], 1)


def test_late_delta_without_episode_is_left_out(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
    assert not memory.add(delta(4, ''))
    assert memory.left_out == 1


def test_camera_that_hears_no_marks_is_seen_in_an_episode(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
    assert [memory.add(delta(stamp_ns)) for stamp_ns in (4, 5, 6)] == [False, True, True]
    assert (stamps(memory), memory.left_out, memory.episode_id) == ([5, 6], 1, 'e1')


def test_episode_that_its_first_delta_starts_begins_at_its_stamp(memory: LiveMemory) -> None:
    memory.add(delta(5, 'e1'))
    assert [memory.add(delta(stamp_ns)) for stamp_ns in (4, 5)] == [False, True]


def test_episode_of_unknown_start_leaves_out_what_names_none(memory: LiveMemory) -> None:
    memory.start_episode('e1', 0)
    assert not memory.add(delta(4))


def test_delta_that_is_late_after_a_stop_forgets_nothing(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
    memory.add(delta(6, 'e1'))
    memory.stop_episode()
    assert memory.add(delta(7, 'e1'))
    assert memory.add(delta(8))
    assert (stamps(memory), memory.episode_id) == ([6, 7, 8], '')


def test_delta_of_a_stopped_episode_does_not_end_the_next(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
    memory.stop_episode()
    memory.start_episode('e2', 9)
    assert not memory.add(delta(8, 'e1'))
    assert memory.add(delta(10, 'e2'))
    assert (stamps(memory), memory.episode_id) == ([10], 'e2')


def test_first_delta_of_an_episode_starts_it_before_its_mark_comes(memory: LiveMemory) -> None:
    memory.add(delta(1))
    memory.add(delta(2, 'e1'))
    assert memory.start_episode('e1', 5) == 0
    assert (stamps(memory), memory.episode_id) == ([2], 'e1')


def test_what_was_seen_in_an_episode_is_known_after_it(memory: LiveMemory) -> None:
    memory.start_episode('e1', 5)
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


def test_delta_that_comes_after_its_episode_was_stopped_belongs_to_it(memory: LiveMemory) -> None:
    memory.start_episode('e1', 0)
    memory.add(delta(1, 'e1'))
    memory.stop_episode()
    assert memory.add(delta(2, 'e1'))
    assert memory.add(delta(3, ''))
    assert (stamps(memory), memory.episode_id, memory.left_out) == ([1, 2, 3], '', 0)


def test_late_delta_of_a_stopped_episode_does_not_end_the_next(memory: LiveMemory) -> None:
    memory.start_episode('e1', 0)
    memory.add(delta(1, 'e1'))
    memory.stop_episode()
    memory.start_episode('e2', 0)
    assert not memory.add(delta(2, 'e1'))
    assert memory.add(delta(3, 'e2'))
    assert (stamps(memory), memory.episode_id, memory.left_out) == ([3], 'e2', 1)


def test_late_deltas_of_earlier_episodes_are_known_as_such(memory: LiveMemory) -> None:
    for episode_id in ('e1', 'e2', 'e3'):
        memory.start_episode(episode_id, 0)
        memory.stop_episode()
    assert not memory.add(delta(1, 'e1'))
    assert not memory.add(delta(2, 'e2'))
    assert memory.add(delta(3, 'e3'))
