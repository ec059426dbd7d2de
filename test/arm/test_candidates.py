# SPDX-License-Identifier: Apache-2.0
"""Which positions are proposed to choose from."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations
import math
from typing import Any

from embodied_r_ros.arm.candidates import (
    Candidate,
    CandidatesConfig,
    propose_candidates,
    RANDOM,
    SeenThing,
)
from embodied_r_ros.arm.robot import load_robot, robot_from_mapping, RobotMetadata
from embodied_r_ros.common.errors import ConfigError, InputError
from hypothesis import given
from hypothesis import strategies as st
import pytest

BOX = ((-0.1, -0.25, 0.0), (0.3, 0.25, 0.3))
ROBOT = RobotMetadata(workspace_low=BOX[0], workspace_high=BOX[1])
CONFIG = CandidatesConfig(grasp_height_m=0.014, clearance_m=0.154)
BLOCK, MAT = SeenThing('red block', (0.1, 0.1, 0.02)), SeenThing('blue mat', (0.2, -0.1, 0.0))
HOME = (0.0, 0.0, 0.16)
PLACES = st.tuples(st.floats(-0.2, 0.4), st.floats(-0.4, 0.4), st.floats(0.0, 0.3))


def by_label(
    tool: tuple[float, float, float] = HOME,
    things: tuple[SeenThing, ...] = (BLOCK, MAT),
    config: CandidatesConfig = CONFIG,
    seed: str = 'run-1',
) -> dict[str, tuple[float, float, float]]:
    """Candidates that have a reason, by label."""
    found = propose_candidates(things, tool, ROBOT, config, seed)
    return {each.label: each.position for each in found if each.label != RANDOM}


def test_from_above_each_thing_is_approached_from_above() -> None:
    assert by_label() == {
        'above the red block': (0.1, 0.1, 0.154),
        'above the blue mat': (0.2, -0.1, 0.154),
    }


def test_only_what_the_tool_is_over_is_gone_down_to() -> None:
    config = CandidatesConfig(grasp_height_m=0.014, clearance_m=0.154, onto_height_m=0.058)
    assert by_label((0.101, 0.1, 0.15), config=config) == {
        'at the red block': (0.1, 0.1, 0.014),
        'onto the red block': (0.1, 0.1, 0.058),
        'above the blue mat': (0.2, -0.1, 0.154),
    }


def test_from_below_the_way_leads_up_or_along_and_never_across() -> None:
    config = CandidatesConfig(clearance_m=0.154, slide_m=0.15)
    assert by_label((0.1, 0.1, 0.014), config=config) == {
        'up from here': (0.1, 0.1, 0.154),
        'sliding forward': (0.25, 0.1, 0.014),
        'sliding backward': (-0.05, 0.1, 0.014),
    }


def test_a_push_begins_behind_a_thing_and_ends_before_the_other() -> None:
    config = CandidatesConfig(
        grasp_height_m=0.014, clearance_m=0.154, behind_m=0.075, push_gap_m=0.045
    )
    things = SeenThing('block', (0.05, 0.1, 0.02)), SeenThing('mat', (0.2, 0.1, 0.0))
    high = by_label(things=things, config=config)
    assert high['above, behind the block, towards the mat'] == (-0.025, 0.1, 0.154)
    over = by_label((-0.025, 0.1, 0.154), things, config)
    assert over['behind the block, towards the mat'] == (-0.025, 0.1, 0.014)
    low = by_label((-0.025, 0.1, 0.014), things, config)
    assert low['pushing the block, towards the mat'] == (0.155, 0.1, 0.014)


def test_staying_is_a_candidate_only_where_it_is_asked_for() -> None:
    tool = (0.1, 0.1, 0.154)
    assert tool not in by_label(tool).values()
    assert by_label(tool, config=CandidatesConfig(stay=True))['here'] == tool


@pytest.mark.parametrize('count', [2, 4, 7])
def test_random_positions_fill_up(count: int) -> None:
    found = propose_candidates((), HOME, ROBOT, CandidatesConfig(fill_to=count), 'run-1')
    assert [each.label for each in found] == [RANDOM] * count


def test_more_than_the_most_are_left_out_by_lot() -> None:
    things = [SeenThing(f'thing {n}', (0.05 * (n % 5), 0.1 * (n // 5), 0.0)) for n in range(10)]
    config = CandidatesConfig(most=5)
    drawn = {propose_candidates(things, HOME, ROBOT, config, f'run-{n}') for n in range(20)}
    assert {len(found) for found in drawn} == {5}
    assert len({each.label for found in drawn for each in found}) == 10


def test_the_seed_decides() -> None:
    def found(seed: str) -> tuple[Candidate, ...]:
        return propose_candidates((BLOCK,), HOME, ROBOT, CONFIG, seed)

    assert found('run-1') == found('run-1')
    assert found('run-1') != found('run-2')
    right = [
        [each.label for each in found(f'{n}')].index('above the red block') for n in range(99)
    ]
    assert set(right) == {0, 1, 2, 3}  # no letter tells which one has a reason


@given(st.lists(PLACES, max_size=6), PLACES, st.booleans(), st.integers(0, 99))
def test_candidates_lie_apart_in_the_workspace(
    places: list[Any], tool: tuple[float, float, float], stay: bool, seed: int
) -> None:
    config = CandidatesConfig(
        onto_height_m=0.058, behind_m=0.075, push_gap_m=0.045, slide_m=0.15, stay=stay
    )
    things = [SeenThing(f'thing {n}', place) for n, place in enumerate(places)]
    found = propose_candidates(things, tool, ROBOT, config, str(seed))
    assert config.fill_to <= len(found) <= config.most
    others = [each.position for each in found if each.label != 'here']
    for one, other in combinations([*others, tool], 2):
        assert math.dist(one, other) >= config.min_distance_m - 0.001  # the tool is rounded
    for position in others:
        assert all(a <= p <= b for a, p, b in zip(BOX[0], position, BOX[1], strict=True))


def test_heights_are_over_the_reference() -> None:
    high = replace(ROBOT, reference=(0.0, 0.0, 0.1))
    found = propose_candidates((BLOCK,), (0.0, 0.0, 0.26), high, CONFIG, 'run-1')
    assert (0.1, 0.1, 0.254) in [each.position for each in found]


def test_a_workspace_without_room_is_refused() -> None:
    tiny = RobotMetadata(workspace_low=(0.0, 0.0, 0.0), workspace_high=(0.01, 0.01, 0.01))
    with pytest.raises(InputError, match='the sampler found 0 candidates in the workspace'):
        propose_candidates((), (0.0, 0.0, 0.0), tiny, CONFIG, 'run-1')


@pytest.mark.parametrize(
    ('settings', 'why'),
    [
        ({'fill_to': 5, 'most': 4}, 'most is 4: expected fill_to'),
        ({'fill_to': 27}, 'fill_to is 27: expected 2 to 26'),
        ({'clearance_m': 0.02}, 'clearance_m is 0.02: expected more than grasp_height_m'),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError, match=why):
        CandidatesConfig(**settings)


def test_a_robot_file_has_them() -> None:
    assert load_robot('sawyer_sim').candidates.clearance_m == 0.154
    assert robot_from_mapping('mine', {'candidates': {'stay': True}}).candidates.stay
    with pytest.raises(ConfigError, match='CandidatesConfig has no setting'):
        robot_from_mapping('mine', {'candidates': {'step': True}})


def test_a_workspace_that_is_not_told_is_asked_for() -> None:
    assert load_robot('sawyer_sim').metadata.workspace() == BOX
    with pytest.raises(ConfigError, match='set workspace_low and workspace_high'):
        RobotMetadata().workspace()
