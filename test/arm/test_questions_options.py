# SPDX-License-Identifier: Apache-2.0
"""Wrong options of questions about an arm: how far they are, and that they tell nothing."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import propose_candidates, round_position, SeenThing
from embodied_r_ros.arm.question_options import workspace, wrong_movements
from embodied_r_ros.arm.robot import load_robot, Robot, RobotMetadata, RobotQuestionsConfig
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.data.questions.coverage import Coverage
from hypothesis import given
from hypothesis import strategies as st
import pytest

from test.arm.arms import arm, MOVEMENTS
from test.arm.robot_rows import FACING, positions, ROBOT, rows_of
from test.training.arm_rows import arm_rows, BLOCK, MAT

if TYPE_CHECKING:
    from embodied_r_ros.core.types.movement import Movement


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
        own = {round_position(place) for place in (row.state, row.keypoint)}  # type: ignore[arg-type]
        for wrong in set(positions(row)) - own:
            pairs = zip(low, wrong, high, strict=True)
            assert all(a - 5e-4 <= b <= c + 5e-4 for a, b, c in pairs)
    bare = Robot('bare', RobotMetadata(reference=(0.0, 0.0, 0.01)))
    low, high = workspace(FACING, bare)
    assert low == pytest.approx((-0.1, -0.25, 0.01))
    assert high == pytest.approx((0.25, 0.2, 0.26))


def test_balanced_positions_do_not_tell_by_nearness_which_is_right() -> None:
    """The right one is as often the farthest from the state as the nearest, with room for it."""
    ranks: Counter[int] = Counter()
    sources: Counter[str] = Counter()
    low, high = workspace(FACING, ROBOT)
    for seed in range(8):
        for row in rows_of(seed=seed, nearness='balanced', stride=5, kinds=('waypoint',)):
            reach_m = math.dist(row.state, row.keypoint)
            sources.update(wrong['source'] for wrong in row.meta['truth']['distractors'])
            for place in positions(row):
                assert all(
                    a - 5e-4 <= b <= c + 5e-4 for a, b, c in zip(low, place, high, strict=True)
                )
            if reach_m > 0.1:
                far = [math.dist(place, row.state) for place in positions(row)]
                ranks[sum(value < reach_m - 1e-3 for value in far)] += 1
    shares = [ranks[rank] / ranks.total() for rank in range(4)]
    assert ranks.total() > 50
    assert all(0.1 < share < 0.4 for share in shares), shares
    assert sources['near'] > 20


def test_too_many_options_for_the_workspace_are_no_question() -> None:
    coverage = Coverage()
    rows = rows_of(coverage=coverage, options=8, min_distance_m=0.5)
    assert {row.question_type for row in rows} == {'movement'}
    reason = 'too few wrong positions are far enough from the others'
    assert coverage.unsolved['waypoint', reason] > 0


def test_wrong_movements_are_next_to_the_right_one() -> None:
    for row in rows_of(wrong_movements='adjacent'):
        if row.question_type == 'movement':
            right = MOVEMENTS[row.solution_text()]
            wrong = {MOVEMENTS[option] for option in row.options} - {right}
            assert wrong <= set(right.adjacent())
            assert len(wrong) == 3


@pytest.mark.parametrize(('options', 'edges'), [(2, 1), (4, 2), (8, 3)])
@given(right=st.sampled_from(list(MOVEMENTS.values())), seed=st.integers(0, 99))
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


def test_candidates_are_options_as_on_the_robot() -> None:
    """The right one is the proposed position that is nearest to the keypoint."""
    rows = [
        row
        for row in arm_rows(grip='arrival', distractors='candidates')
        if row.question_type == 'waypoint'
    ]
    robot = load_robot('sawyer_sim')
    assert {len(row.options) for row in rows} <= set(range(4, robot.candidates.most + 1))
    assert len({len(row.options) for row in rows}) > 1
    for row in rows:
        offs = [math.dist(place, row.keypoint) for place in positions(row)]
        assert row.solution_text() == row.options[offs.index(min(offs))]
        assert min(offs) <= 0.05
        assert math.dist(row.state, row.keypoint) >= robot.candidates.min_distance_m
    home = rows[0]
    things = (SeenThing('red block', BLOCK), SeenThing('blue mat', MAT))
    seed = f'{home.episode_id}/{home.meta["state_index"]}'
    proposed = propose_candidates(things, home.state, robot.metadata, robot.candidates, seed)  # type: ignore[arg-type]
    assert {each.position for each in proposed} == set(positions(home))


def test_where_nothing_can_be_placed_there_are_no_candidates_to_ask_for() -> None:
    coverage = Coverage()
    robot = replace(ROBOT, placing=PlacingConfig())  # nobody knows where the camera is
    settings: Any = {
        'camera': 'declared',
        'distractors': 'candidates',
        'kinds': ('waypoint',),
    }
    assert not rows_of(arm(), robot, coverage, **settings)
    assert {why for _, why in coverage.unsolved} == {
        'candidates are sampled where things are seen, and nothing is placed'
    }
