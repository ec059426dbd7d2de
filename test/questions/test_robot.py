# SPDX-License-Identifier: Apache-2.0
"""Questions about an arm: rows that prove themselves, and the prompt of the live action."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.camera_axes import turned
from embodied_r_ros.errors import ConfigError, InputError
from embodied_r_ros.geometry import quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.movement import Movement, movements
from embodied_r_ros.questions.arm_episode import arm_episode, ArmEpisode, ArmState
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.distractors import rounded, workspace, wrong_movements
from embodied_r_ros.questions.robot import EVERY_KIND, rows_of_arm
from embodied_r_ros.questions.splits import split_of, SplitGuard
from embodied_r_ros.reasoning.completions import choice_index
from embodied_r_ros.reasoning.keypoints import keypoint_question
from embodied_r_ros.reasoning.memory import MemoryConfig
from embodied_r_ros.reasoning.prompts import build_prompt
from embodied_r_ros.robots import (
    load_robot,
    position_text,
    Robot,
    RobotMetadata,
    RobotQuestionsConfig,
)
from embodied_r_ros.rows import Row
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from test.questions.arms import arm, camera, episode, Found, KEYPOINTS, Samples, TASK

if TYPE_CHECKING:
    from pathlib import Path

ROBOT = load_robot('sawyer_sim')
FACING = arm(at=camera())


def rows_of(
    shown: ArmEpisode = FACING,
    robot: Robot = ROBOT,
    coverage: Coverage | None = None,
    *,
    seed: int = 0,
    **questions: Any,
) -> list[Row]:
    robot = replace(robot, questions=replace(robot.questions, **questions))
    config = QuestionsConfig(seed=seed, robot=robot)
    recorded = episode('e1', shown)
    return list(rows_of_arm(shown, recorded, config, coverage or Coverage()))


def positions(row: Row) -> list[tuple[float, ...]]:
    return [tuple(float(part) for part in option[1:-1].split(', ')) for option in row.options]


def test_every_tenth_state_is_asked_about_in_three_ways() -> None:
    rows = rows_of()
    asked = Counter((row.meta['state_index'], row.question_type) for row in rows)
    assert set(asked.values()) == {1}
    assert {index for index, _ in asked} == set(range(0, len(FACING.states) - 1, 10))
    kinds = {'waypoint', 'current_state', 'movement'}
    assert {kind for _, kind in asked} == kinds
    for row in rows:
        assert row.keypoint == FACING.states[row.meta['keypoint_index']].position
        later = [index for index in FACING.keypoints if index > row.meta['state_index']]
        assert row.meta['keypoint_index'] == min(later)


def test_solutions_are_the_keypoint_the_state_and_the_words_between_them() -> None:
    for row in rows_of():
        way = Movement.between(row.state, row.keypoint, 0.005)
        solutions = {
            'waypoint': position_text(row.keypoint),
            'current_state': position_text(row.state),
            'movement': way.words() if way else 'none',
        }
        assert row.solution_text() == solutions[row.question_type]
        assert len(row.options) == len(set(row.options)) == 4
        assert row.frame_id == 'table_center'


def test_rows_survive_their_file() -> None:
    for row in rows_of(gripper=True, rotation='yaw'):
        again = Row.from_json(row.to_json())
        assert again.to_json() == row.to_json()
        assert (again.state, again.keypoint) == (row.state, row.keypoint)


def test_the_prompt_of_a_row_is_that_of_the_live_action() -> None:
    memory = MemoryConfig()
    for row in rows_of():
        if row.question_type != 'waypoint':
            continue
        question = keypoint_question(
            TASK,
            'table_center',
            [(x, y, z) for x, y, z in positions(row)],
            robot=ROBOT.metadata,
            state=(row.state[0], row.state[1], row.state[2]),
        )
        live = build_prompt(question.text, question.options, row.semantic_deltas(), (), memory)
        assert row.prompt(memory) == live
        assert 'The end effector is at' in live.user


def test_only_what_was_seen_by_then_is_told() -> None:
    for row in rows_of():
        seen = [
            delta
            for delta in episode('e1', FACING).deltas
            if delta.stamp_ns <= row.meta['stamp_ns']
        ]
        assert len(row.deltas) == len(seen)


def test_metadata_tells_axes_reference_and_size() -> None:
    row = next(row for row in rows_of() if row.question_type == 'waypoint')
    for told in (
        'x grows towards the camera, which is forward, y to the right in the image, z upward.',
        'The centre of the table is at (0.000, 0.000, 0.000).',
        'The gripper measures 0.030 along x, 0.110 along y and 0.090 along z.',
    ):
        assert told in row.question


def test_the_paper_robot_says_what_the_paper_prints() -> None:
    robot = load_robot('franka_rlbench')
    assert robot.questions.stride == 10
    text = robot.metadata.text()
    assert 'The centre of the table is at (0.250, 0.000, 0.752).' in text
    assert 'The gripper measures 0.060 along x, 0.200 along y and 0.090 along z.' in text
    assert 'Its fingers are 0.040 long.' in text


def test_the_state_is_not_told_where_it_is_asked_for() -> None:
    for row in rows_of():
        assert ('The end effector is at' in row.question) == (row.question_type != 'current_state')


def test_movements_can_be_asked_without_state_and_metadata() -> None:
    rows = [row for row in rows_of(movement_context=False) if row.question_type == 'movement']
    assert rows
    assert not any('The end effector is at' in row.question for row in rows)
    assert not any('centre of the table' in row.question for row in rows)


@pytest.mark.parametrize('distractors', ['mixed', 'demonstration', 'workspace'])
def test_wrong_positions_keep_their_distance(distractors: str) -> None:
    coverage = Coverage()
    sources = set()
    rows = rows_of(coverage=coverage, distractors=distractors, min_distance_m=0.08)
    for row in rows:
        coverage.count(row)
        if row.question_type == 'movement':
            continue
        options = positions(row)
        near = min(math.dist(a, b) for i, a in enumerate(options) for b in options[:i])
        assert near >= 0.08
        sources |= {wrong['source'] for wrong in row.meta['truth']['distractors']}
    expected = {'demonstration': {'keypoint', 'state'}, 'workspace': {'workspace'}}
    assert sources == expected.get(distractors, {'keypoint', 'state', 'workspace'})


def test_wrong_positions_of_the_workspace_are_in_it_and_not_below_the_table() -> None:
    low, high = workspace(FACING, ROBOT)
    for row in rows_of(distractors='workspace'):
        if row.question_type == 'movement':
            continue
        for wrong in set(positions(row)) - {rounded(row.state), rounded(row.keypoint)}:  # type: ignore[arg-type]
            pairs = zip(low, wrong, high, strict=True)
            assert all(a - 5e-4 <= b <= c + 5e-4 for a, b, c in pairs)
    bare = Robot('bare', RobotMetadata(reference=(0.0, 0.0, 0.01)))
    low, high = workspace(FACING, bare)
    assert low == pytest.approx((-0.1, -0.25, 0.01))
    assert high == pytest.approx((0.25, 0.2, 0.26))


def test_too_many_options_for_the_workspace_are_no_question() -> None:
    coverage = Coverage()
    rows = rows_of(coverage=coverage, options=8, min_distance_m=0.5)
    assert {row.question_type for row in rows} == {'movement'}
    reason = 'too few wrong positions are far enough from the others'
    assert coverage.unsolved['waypoint', reason] > 0


def test_no_wrong_position_is_further_than_asked() -> None:
    for row in rows_of(max_distance_m=0.12, distractors='workspace'):
        for wrong in row.meta['truth']['distractors']:
            name = 'to_state_m' if row.question_type == 'current_state' else 'to_keypoint_m'
            assert wrong.get(name, 0.0) <= 0.12 + 1e-3


def test_wrong_movements_are_next_to_the_right_one() -> None:
    for row in rows_of(wrong_movements='adjacent'):
        if row.question_type == 'movement':
            right = Movement.from_words(row.solution_text())
            wrong = {Movement.from_words(option) for option in row.options} - {right}
            assert wrong <= set(right.adjacent())
            assert len(wrong) == 3


@pytest.mark.parametrize(('options', 'edges'), [(2, 1), (4, 2), (8, 3)])
@given(right=st.sampled_from(list(movements())), seed=st.integers(0, 99))
def test_options_in_a_square_do_not_tell_which_is_right(
    options: int, edges: int, right: Movement, seed: int
) -> None:
    config = RobotQuestionsConfig(options=options)
    every = [right, *(movement for movement, _ in wrong_movements(right, config, Random(seed)))]
    assert len(set(every)) == options
    for option in every:
        differ = [
            sum(a != b for a, b in zip(option.levels, other.levels, strict=True))
            for other in every
        ]
        assert sorted(differ) == sorted(f'{corner:b}'.count('1') for corner in range(2**edges))


def test_no_movement_is_asked_of_a_way_that_is_silent() -> None:
    coverage = Coverage()
    rows = rows_of(coverage=coverage, deadband_m=0.3)
    assert 'movement' not in {row.question_type for row in rows}
    reason = 'the way to the keypoint is not longer than the deadband'
    assert coverage.unsolved['movement', reason] == len(rows) / 2


def test_the_report_tells_where_wrong_options_come_from_and_how_far_they_are() -> None:
    coverage = Coverage()
    far = []
    for row in rows_of():
        coverage.count(row)
        if row.question_type == 'waypoint':
            far += [wrong['to_keypoint_m'] for wrong in row.meta['truth']['distractors']]
    distances = coverage.distances['waypoint', 'keypoint']
    assert distances.steps.total() == len(far)
    median = sorted(far)[(len(far) - 1) // 2]
    assert distances.quantile(0.5) == pytest.approx(median, abs=0.0101)
    assert distances.quantile(1.0) == pytest.approx(max(far), abs=0.0101)
    table = coverage.table()
    assert 'wrong options      distance to      10%' in table
    assert f'waypoint           keypoint      {distances.quantile(0.1):>6.2f}' in table
    assert sum(coverage.wrong[kind, how] for kind, how in coverage.wrong if kind == 'movement')


def test_the_seed_decides() -> None:
    first, again, other = ([row.to_json() for row in rows_of(seed=seed)] for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_what_else_is_asked_does_not_change_a_question() -> None:
    alone = [row.to_json() for row in rows_of(kinds=('movement',))]
    among = [row.to_json() for row in rows_of(gripper=True) if row.question_type == 'movement']
    assert alone == among


@pytest.mark.parametrize(
    ('bearing_deg', 'quarters'), [(0, 0), (90, 1), (180, 2), (-90, 3), (20, 0), (-165, 2)]
)
def test_words_hold_for_the_camera_wherever_it_stands(bearing_deg: float, quarters: int) -> None:
    """Rows of a camera behind or beside the robot are those of one that faces it, turned."""
    shown = arm(at=camera(bearing_deg))
    rows = rows_of(shown, camera='any')
    assert rows
    for row in rows:
        index = row.meta['state_index']
        assert row.state == turned(shown.states[index].position, quarters)
        end = f'_turned_{90 * quarters}' if quarters else ''
        assert row.frame_id == f'table_center{end}'
        assert Row.from_json(row.to_json()).question_type == row.question_type
        if row.question_type != 'movement':
            assert f'in the frame {row.frame_id}.' in row.question
    # The first way goes to +x and -y, and hardly down.
    first = next(row for row in rows if row.question_type == 'movement')
    said = set(first.solution_text().split(', '))
    expected = [
        {'forward', 'left'}, {'backward', 'left'}, {'backward', 'right'}, {'forward', 'right'}
    ]  # fmt: skip
    assert {word.removeprefix('slightly ') for word in said} - {'down', 'up'} == expected[quarters]


@pytest.mark.parametrize(
    ('at', 'why'),
    [
        (camera(180), 'stands 180 degrees round from there'),
        (camera(90), 'stands 90 degrees round'),
        (camera(45), '45 degrees aside'),
        (camera(0, 85), 'from above'),
        (None, "the pose of the camera in 'table_center' is not known"),
        (replace(camera(), frame_id='base'), 'is not known'),
    ],
)
def test_a_camera_that_does_not_face_the_robot_is_refused(at: Any, why: str) -> None:
    coverage = Coverage()
    assert rows_of(arm(at=at), coverage=coverage) == []
    ((kind, reason),) = coverage.unsolved
    assert kind == EVERY_KIND
    assert why in reason
    assert rows_of(arm(at=at), camera='declared')


def test_another_frame_than_the_robots_is_refused() -> None:
    with pytest.raises(InputError, match="is in frame 'base', robot 'sawyer_sim' in 'table_c"):
        rows_of(arm(at=camera(), frame_id='base'))


def test_gripper_and_rotation_are_asked_only_when_wanted() -> None:
    assert {row.question_type for row in rows_of()} == {'waypoint', 'current_state', 'movement'}
    for row in rows_of(gripper=True):
        if row.question_type == 'gripper':
            number = FACING.keypoints.index(row.meta['keypoint_index'])
            assert row.solution_text() == ('closed' if KEYPOINTS[number][1] else 'open')
            assert set(row.options) == {'open', 'closed'}


@pytest.mark.parametrize(
    ('turn_deg', 'expected'),
    [
        (0, 'not turned'), (20, 'not turned'), (40, '45 degrees counterclockwise'),
        (-50, '45 degrees clockwise'), (135, '135 degrees counterclockwise'), (179, 'half round'),
        (-179, 'half round'),
    ],
)  # fmt: skip
@pytest.mark.parametrize('pitch', [0.0, math.pi / 2, math.pi])
def test_turns_about_the_vertical_are_told_whichever_way_the_tool_points(
    turn_deg: float, expected: str, pitch: float
) -> None:
    tool = rotation_from_ypr(0.3, pitch, 0.1)
    end = rotation_from_ypr(math.radians(turn_deg), 0.0, 0.0) @ tool
    states = (
        ArmState(1, (0.0, 0.0, 0.1), None, quaternion_from_matrix(tool)),
        ArmState(2, (0.1, 0.0, 0.1), None, quaternion_from_matrix(end)),
    )
    shown = ArmEpisode('turn it', 'table_center', states, (1,), camera())
    for quarters in (0, 180):
        rows = rows_of(replace(shown, camera=camera(quarters)), rotation='yaw', camera='any')
        (row,) = (row for row in rows if row.question_type == 'rotation')
        assert row.solution_text() == expected


@given(st.tuples(*[st.floats(-3, 3)] * 3))
def test_the_nearest_quarter_turn_is_nearest(angles: tuple[float, float, float]) -> None:
    turn = rotation_from_ypr(*angles)
    then = quaternion_from_matrix(turn)
    states = (ArmState(1, (0.0, 0.0, 0.1)), ArmState(2, (0.1, 0.0, 0.1), None, then))
    shown = ArmEpisode('turn it', 'table_center', states, (1,), camera())
    rows = rows_of(shown, rotation='quaternion', kinds=(), options=8)
    (row,) = rows

    def off(option: str) -> float:
        parts = [float(part) for part in option[1:-1].split(', ')]
        return 1 - abs(sum(a * b for a, b in zip(parts, then, strict=True)))

    assert off(row.solution_text()) <= min(map(off, row.options)) + 2e-3
    # No orientation is further than this from the nearest of the 24.
    assert 2 * math.acos(max(-1.0, 1 - off(row.solution_text()))) < math.radians(64)


def test_splits_follow_the_scene_and_a_layout_is_in_one_of_them() -> None:
    config = QuestionsConfig(test_share=0.5, robot=ROBOT)
    names = [f'table {number}' for number in range(30)]
    train = next(name for name in names if split_of(name, config) == 'train')
    test = next(name for name in names if split_of(name, config) == 'test')
    guard = SplitGuard()
    assert guard.layout_twin_of(FACING, train, 'train') == ''
    assert guard.layout_twin_of(arm(shift_m=0.002), test, 'test') == train
    assert guard.layout_twin_of(arm(shift_m=0.05), test, 'test') == ''
    assert guard.layout_twin_of(arm(shift_m=0.001), 'other', 'train') == ''
    rows = list(rows_of_arm(FACING, episode('e', FACING, scene=test), config, Coverage()))
    assert {(row.split, row.scene_id) for row in rows} == {('test', test)}


def test_answers_are_read_by_letter_and_by_text() -> None:
    for row in rows_of():
        right = choice_index(row.solution_text(), row.options)
        assert right is not None
        assert choice_index(f'[[{row.solution}]]', row.options) == right


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('metadata: {reference: [1, 2]}', 'reference is'),
        ('metadata: {gripper_size: [a, b, c]}', 'expected three numbers'),
        ('metadata: {reference: [.nan, 0, 0]}', 'expected three numbers'),
        ('metadata: {workspace_low: [0, 0, 0]}', 'expected both ends'),
        ('questions: {stride: 0}', 'stride is 0'),
        ('questions: {kinds: [waypoint, dance]}', "kinds has 'dance'"),
        ('questions: {max_distance_m: 0.01}', 'expected more than min_distance_m'),
        ('questions: {deadbandm: 0.1}', "did you mean 'deadband_m'"),
        ('frames: {}', 'expected the sections metadata, questions, setup'),
        ('[1]', 'expected the sections'),
        ('metadata: 3', 'expected names and values'),
    ],
)
def test_robots_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / 'mine.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match=f'robot .*mine.yaml: .*{message}'):
        load_robot(str(path))


def test_a_robot_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match='known: franka_rlbench, sawyer_sim'):
        load_robot('sawyer')


def test_a_turned_robot_has_its_sizes_turned() -> None:
    robot = RobotMetadata(
        reference=(0.2, 0.1, 0.0),
        gripper_size=(0.1, 0.2, 0.3),
        workspace_low=(-0.1, -0.2, 0.0),
        workspace_high=(0.3, 0.4, 0.5),
    ).turned(1)
    assert robot.frame_id == 'table_center_turned_90'
    assert robot.reference == (0.1, -0.2, 0.0)
    assert robot.gripper_size == (0.2, 0.1, 0.3)
    assert (robot.workspace_low, robot.workspace_high) == ((-0.2, -0.3, 0.0), (0.4, 0.1, 0.5))


@pytest.mark.parametrize('keypoints', [(3, 2), (2, 2), (-1,), (2, 113)])
def test_keypoints_that_are_no_rising_indices_are_refused(keypoints: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match='expected rising indices of 113 states'):
        replace(FACING, keypoints=keypoints)


def test_stamps_that_stand_still_are_refused() -> None:
    samples = Samples(np.zeros(3, np.int64), np.zeros((3, 3)), TASK, 'table_center')
    with pytest.raises(InputError, match='order of time'):
        arm_episode(samples, [Found(2, None)])
