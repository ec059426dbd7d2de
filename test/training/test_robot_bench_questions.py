# SPDX-License-Identifier: Apache-2.0
"""Open questions about demonstrations: references come from what is true alone."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration import ArmState, TrueThing
from embodied_r_ros.arm.robot import Robot, RobotQuestionsConfig
from embodied_r_ros.arm.rows import rows_of_arm
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.core.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, direction_of_vector
from embodied_r_ros.data.arm_room import keyframing_of
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.offline import perceive_path
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
import numpy as np
import pytest

from test.arm.arms import (
    camera,
    episode,
    samples_at_rest,
    STEP_NS,
    T0_NS,
    TASK,
    truth_of_bag,
    write_arm_bag,
)
from training.robot_bench import questions
from training.robot_bench.items import KINDS, read_items
from training.robot_bench.questions import items_of, main
from training.robot_bench.references import main_actions, moments_of, open_questions, steps_of

if TYPE_CHECKING:
    from pathlib import Path

TRUTH = truth_of_bag()
STATES = [
    ArmState(T0_NS + STEP_NS * number, place)
    for number, (place, _) in enumerate(samples_at_rest())
]
PLAN = [
    'reach for the red block',
    'grasp the red block',
    'lift the red block',
    'carry the red block over the blue mat',
    'put the red block down on the blue mat',
    'let go of the red block',
    'move the gripper up and away',
]


def asked_at(number: int) -> dict[str, str]:
    """References of the questions at a sample."""
    [moment] = moments_of(TRUTH, [STATES[number]], 1, Random(0))
    return {asked.question_type: asked.reference for asked in open_questions(moment, Random(0))}


def test_steps_are_told_by_what_they_do_to_things() -> None:
    steps = steps_of(TRUTH, STATES[0].position)
    assert main_actions(steps) == PLAN
    assert [step.held for step in steps] == ['', '', *['block'] * 4, '', '']


@pytest.mark.parametrize(
    ('task', 'plan'),
    [
        (
            'push',
            [
                'close the gripper',
                'move to the side of the * block that is farther from the camera',
                'push the * block to the * mat',
                'move the gripper up and away',
            ],
        ),
        (
            'drawer',
            [
                'reach for the handle of the * drawer',
                'grasp the handle of the * drawer',
                'pull the * drawer open',
                'let go of the handle of the * drawer',
                'move the gripper up and away',
            ],
        ),
        ('stack', [step.replace('red', '*').replace('blue mat', '* block') for step in PLAN]),
    ],
)
def test_steps_of_the_simulated_tasks_are_told(task: str, plan: list[str]) -> None:
    if find_spec('metaworld') is None:
        pytest.skip('Meta-World is not installed')
    from embodied_r_ros.sim.arm.demonstrations import demonstrate
    from embodied_r_ros.sim.arm.tasks import COLOURS
    from embodied_r_ros.sim.indoor.episodes import EpisodeOrigin
    from embodied_r_ros.sim.runs import SimArmConfig

    shown = demonstrate(SimArmConfig(task, rate_hz=10.0, images=False), EpisodeOrigin(1, 0, 0))
    start = shown.frames[0].tool
    assert start is not None
    told = main_actions(steps_of(shown.truth, start.position))
    for colour in COLOURS:
        told = [step.replace(f'the {colour} ', 'the * ') for step in told]
    assert told == plan


def test_what_is_asked_at_a_moment_is_about_what_is_still_to_be_done() -> None:
    first = asked_at(0)
    assert first['planning'].startswith('1. Reach for the red block. 2. Grasp the red block. 3. ')
    assert first['planning'].count('. ') == 2 * len(PLAN) - 1
    assert first['high_level_action'] == 'Reach for the red block.'
    assert first['movement'] == 'Move forward, left.'
    # The block is held, and on its way down to the mat.
    later = asked_at(23 * 5 + 2)
    assert later['high_level_action'] == 'Put the red block down on the blue mat.'
    assert later['movement'] == 'Move down.'
    assert later['planning'].startswith('1. Put the red block down on the blue mat. 2. Let go')
    # At rest on the block, before the gripper closes.
    assert asked_at(23 + 16)['movement'] == 'Close the gripper.'


def test_how_things_lie_is_told_as_the_camera_sees_it() -> None:
    def all_of(number: int) -> dict[str, str]:
        [moment] = moments_of(TRUTH, [STATES[number]], 1, Random(0))
        found = {}
        for seed in range(200):
            *_, spatial = open_questions(moment, Random(seed))
            found[spatial.question] = spatial.reference
        return found

    start = all_of(0)
    assert start['Where is the red block, compared with the blue mat?'] == (
        'Compared with the blue mat, the red block is slightly farther from the camera, '
        'further left.'
    )
    assert start['Where is the gripper, compared with the red block?'] == (
        'Compared with the red block, the gripper is farther from the camera, further right, '
        'higher.'
    )
    gripper = 'Is the gripper open or closed, and what does it hold?'
    assert start[gripper] == 'The gripper is open, and holds nothing.'
    assert len(start) == 5
    held = 'The gripper is closed, and holds the red block.'
    later = all_of(23 * 5 + 2)
    assert later[gripper] == held
    # Where a hand is that holds something, compared with that, is no question.
    assert len(later) == 4
    assert later['Where is the gripper, compared with the blue mat?'] == (
        'Compared with the blue mat, the gripper is higher.'
    )


def test_nothing_is_asked_where_two_answers_are_right() -> None:
    # While the gripper closes, and on the last two centimetres of a way.
    for number in (23 * 2 + 3, 13, 23 * 8 - 3):
        assert moments_of(TRUTH, [STATES[number]], 1, Random(0)) == []


def test_moments_are_on_the_way_to_different_keypoints() -> None:
    found = moments_of(TRUTH, STATES, 5, Random(1))
    left = [len(moment.steps) for moment in found]
    assert left == sorted(set(left), reverse=True)
    assert len(left) == 5
    assert len(moments_of(TRUTH, STATES, 100, Random(1))) == 8
    stamps = [moment.state.stamp_ns for moment in found]
    assert stamps == [m.state.stamp_ns for m in moments_of(TRUTH, STATES, 5, Random(1))]
    some, others = (moments_of(TRUTH, STATES, 8, Random(seed)) for seed in (1, 2))
    assert [m.state for m in some] != [m.state for m in others]


def test_a_thing_that_moves_without_being_held_is_pushed() -> None:
    block = TRUTH.things[0]
    held = tuple((x, y, 0.02) for x, y, _ in block.positions)
    never = [replace(point, closed=False, reason='stop') for point in TRUTH.keypoints]
    truth = replace(
        TRUTH, things=(TrueThing('block', 'red block', held),), keypoints=tuple(never[3:5])
    )
    [_, pushed] = steps_of(truth, STATES[0].position)
    assert pushed.action == 'push the red block'


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    return write_arm_bag(tmp_path / 'bags' / 'a', 'table-1', at=camera(), truth=TRUTH)


def test_command_writes_items_with_what_was_seen_and_where(bag: Path, tmp_path: Path) -> None:
    out = tmp_path / 'bench.jsonl'
    command = [str(bag.parent), '--out', str(out), '--moments', '2']
    assert main(command) == 0
    items = read_items(out)
    assert [item.question_type for item in items] == [*KINDS, *KINDS]
    assert {item.scene_id for item in items} == {'table-1'}
    for item in items:
        assert item.task == TASK
        assert item.deltas
        assert all(delta['stamp_ns'] <= item.stamp_ns for delta in item.deltas)
        assert 'The end effector is at (' in item.context
        assert item.bag.endswith('bags/a')
    text = out.read_text()
    assert str(tmp_path) not in text
    assert main(command) == 0
    assert out.read_text() == text


def test_what_was_seen_later_is_not_told(bag: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = episode('e', None, seen=6).deltas
    monkeypatch.setattr(questions, '_perceived', lambda _: list(seen))
    told = {item.stamp_ns: len(item.deltas) for item in items_of(bag, 8, 0)}
    assert told == {
        stamp_ns: sum(delta.stamp_ns <= stamp_ns for delta in seen) for stamp_ns in told
    }
    assert len(set(told.values())) > 3


def test_the_scene_is_told_as_rows_of_arms_tell_it(bag: Path) -> None:
    """The camera stands still, so that time decides what is looked at."""

    def perceive(path: Path) -> list[SemanticDelta]:
        return list(perceive_path(path, classical_perceiver(), keyframing_of(path, None)))

    shown = read_episode(bag, perceive=perceive)
    assert shown.arm
    assert shown.arm.metadata
    robot = Robot('robot', shown.arm.metadata, RobotQuestionsConfig(stride=1))
    rows = {
        row.meta['stamp_ns']: row
        for row in rows_of_arm(shown.arm, shown, QuestionsConfig(robot=robot), Coverage())
        if row.question_type == 'waypoint'
    }
    items = list(items_of(bag, 4, 0))
    assert len(items) == 4 * len(KINDS)
    for item in items:
        row = rows[item.stamp_ns]
        assert (item.deltas, item.focus) == (row.deltas, row.focus)
        assert item.stamp_ns - item.deltas[-1]['stamp_ns'] < 0.6e9
        assert 'On the table: red ' in item.focus[0]['text']


def test_what_is_at_the_end_effector_is_not_told_as_on_the_table(
    bag: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, seen = camera(), []
    for state in STATES[::10]:
        way = BODY_FROM_OPTICAL @ at.rotation().T @ np.subtract(state.position, at.position)
        bearing, elevation = direction_of_vector(way)
        held = Item('red blocky object', bearing_rad=bearing, elevation_rad=elevation)
        seen.append(SemanticDelta(state.stamp_ns, DeltaKind.FIRST, items=(held,)))
    monkeypatch.setattr(questions, '_perceived', lambda _: seen)
    told = [look['text'] for item in items_of(bag, 4, 0) for look in item.focus]
    assert set(told) == {'At the end effector: red blocky object.'}


@pytest.mark.parametrize(
    ('more', 'why'),
    [
        ({'truth': None}, 'has no /truth/demonstration, so nothing proves a reference'),
        ({'at': camera(180.0)}, 'need a camera that faces the robot: it stands 180 degrees'),
        ({'at': None}, 'need a camera that faces the robot: its pose is not known'),
        ({'images': False}, 'shows no arm: record it with images'),
    ],
)
def test_bags_without_truth_or_a_camera_that_faces_the_robot_are_refused(
    tmp_path: Path, more: dict[str, object], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {'at': camera(), 'truth': TRUTH, **more}
    path = write_arm_bag(tmp_path / 'a', 'table-1', **given)  # type: ignore[arg-type]
    with pytest.raises(InputError, match=why):
        list(items_of(path, 1, 0))
    assert main([str(path), '--out', str(tmp_path / 'bench.jsonl')]) == 2
    assert capsys.readouterr().err.startswith('training.robot_bench.questions: error: ')
    assert not (tmp_path / 'bench.jsonl').exists()
