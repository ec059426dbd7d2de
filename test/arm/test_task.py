# SPDX-License-Identifier: Apache-2.0
"""When the next keypoint of a standing task is proposed."""

from __future__ import annotations

from embodied_r_ros.arm.task import ArmTaskConfig, StandingTask
import pytest

S = 1_000_000_000
TARGET, AWAY = (0.1, 0.0, 0.2), (0.1, 0.0, 0.25)
CONFIG = ArmTaskConfig('pick up the cup', task_rate_hz=1.0, reach_m=0.02, give_up_s=10.0)


def task_with_request(config: ArmTaskConfig = CONFIG) -> StandingTask:
    """A task whose first keypoint was proposed at 10 s."""
    task = StandingTask(config)
    assert task.wants(10 * S, 10 * S)
    task.note_request(10 * S)
    task.note_answer('run-1', 10 * S)
    return task


def task_with_keypoint(config: ArmTaskConfig = CONFIG) -> StandingTask:
    """One whose first keypoint was also accepted at 11 s."""
    task = task_with_request(config)
    task.note_acceptance('run-1', TARGET, 11 * S)
    return task


def test_without_a_task_nothing_is_proposed() -> None:
    assert not StandingTask(ArmTaskConfig()).wants(10 * S, 10 * S)


def test_before_anything_was_seen_nothing_is_proposed() -> None:
    assert not StandingTask(CONFIG).wants(10 * S, 0)


def test_one_proposal_at_a_time() -> None:
    task = StandingTask(CONFIG)
    task.note_request(10 * S)
    assert not task.wants(12 * S, 12 * S)
    task.note_answer('run-1', 12 * S)
    assert not task.wants(14 * S, 14 * S)
    task.note_acceptance('run-1', TARGET, 14 * S)
    assert not task.wants(16 * S, 16 * S)


def test_a_keypoint_is_reached_after_some_time_at_it() -> None:
    task = task_with_keypoint()
    task.see_pose((0.11, 0.0, 0.2), 13 * S)
    assert not task.wants(14 * S, 14 * S)
    task.see_pose((0.11, 0.0, 0.2), 13 * S + S // 2)
    assert task.wants(14 * S, 14 * S)


def test_passing_by_is_not_reaching() -> None:
    task = task_with_keypoint()
    for stamp_ns, place in ((13 * S, TARGET), (13 * S + S // 4, AWAY), (13 * S + S // 2, TARGET)):
        task.see_pose(place, stamp_ns)
    assert not task.wants(14 * S, 14 * S)


def test_a_position_that_is_no_number_is_not_reached() -> None:
    task = task_with_keypoint()
    for stamp_ns in (12 * S, 14 * S):
        task.see_pose((float('nan'), 0.0, 0.2), stamp_ns)
    assert not task.wants(15 * S, 15 * S)


def test_after_a_refusal_it_is_asked_again_at_the_rate() -> None:
    task = task_with_request()
    task.note_refusal('run-1', 10 * S + S // 10)
    assert not task.wants(10 * S + S // 2, 10 * S + S // 2)
    assert task.wants(11 * S, 11 * S)


def test_after_no_answer_it_is_asked_again_at_the_rate() -> None:
    task = StandingTask(CONFIG)
    task.note_request(10 * S)
    task.note_answer('', 10 * S + S // 2)
    assert not task.wants(10 * S + S * 3 // 4, 10 * S)
    assert task.wants(11 * S, 10 * S)


@pytest.mark.parametrize('name', ['accepted', 'refused'])
def test_proposals_of_others_change_nothing(name: str) -> None:
    task = task_with_request()
    if name == 'accepted':
        task.note_acceptance('other-1', TARGET, 11 * S)
        task.see_pose(TARGET, 12 * S)
        task.see_pose(TARGET, 13 * S)
    else:
        task.note_refusal('other-1', 11 * S)
    assert not task.wants(14 * S, 14 * S)


def test_what_is_neither_judged_nor_reached_is_given_up() -> None:
    for task in (task_with_request(), task_with_keypoint()):
        task.give_up_late(20 * S)
        assert not task.wants(20 * S, 20 * S)
        task.give_up_late(22 * S)
        assert task.wants(23 * S, 23 * S)


def test_it_is_given_up_though_nothing_is_seen_and_others_ask() -> None:
    for task in (task_with_request(), task_with_keypoint()):
        assert not task.wants(22 * S, 0)
        task.give_up_late(22 * S, is_asking=True)
        assert not task.wants(23 * S, 0)
        assert task.wants(23 * S, 23 * S)


def test_a_question_that_is_being_answered_is_not_given_up() -> None:
    task = StandingTask(CONFIG)
    task.note_request(10 * S)
    task.give_up_late(22 * S, is_asking=True)
    task.note_answer('run-1', 23 * S)
    task.note_acceptance('run-1', TARGET, 24 * S)
    assert task.phase == 'on the way to a keypoint'
    task = StandingTask(CONFIG)
    task.note_request(10 * S)
    task.give_up_late(22 * S)  # its answer was lost
    assert task.wants(23 * S, 23 * S)


def test_it_says_where_it_is_and_how_often_it_had_no_answer() -> None:
    assert StandingTask(ArmTaskConfig()).phase == 'no task'
    task = StandingTask(CONFIG)
    task.reset(9 * S)
    assert (task.phase, task.phase_s(10 * S)) == ('free for the next keypoint', 1.0)
    for seconds in (10, 12):
        task.note_request(seconds * S)
        assert (task.phase, task.phase_s(seconds * S + S // 2)) == (
            'the next keypoint is asked for',
            0.5,
        )
        task.note_answer('', (seconds + 1) * S)
    assert task.unanswered == 2
    task.note_request(14 * S)
    task.note_answer('run-1', 15 * S)
    assert (task.phase, task.phase_s(13 * S)) == ('a proposal is at the gate', 0.0)
    assert task.unanswered == 2
    task.reset()
    assert (task.unanswered, task.phase_s(99 * S)) == (0, 0.0)


def test_the_next_one_is_from_what_was_seen_since() -> None:
    task = task_with_keypoint()
    task.see_pose(TARGET, 13 * S)
    task.see_pose(TARGET, 14 * S)
    assert not task.wants(15 * S, 14 * S - 1)
    assert task.wants(15 * S, 14 * S)
    assert task.wants(16 * S + 1, 13 * S)  # nothing new for long


def test_a_new_beginning_forgets_what_was_on_its_way() -> None:
    task = task_with_keypoint()
    task.reset()
    assert task.wants(1 * S, 1 * S)
