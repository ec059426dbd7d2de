# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math
from typing import Any

from embodied_r_ros.arm.proposal import (
    GRIPPER_NEXT,
    keypoint_question,
    proposal_of,
    with_gripper,
)
from embodied_r_ros.arm.table import TableView
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.answers import Answer, AnswerKind, FocusText, Freshness, Gripper
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ItemStatus, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
import pytest

CANDIDATES = ((0.1, 0.2, 0.3), (-0.1, 0.0, 0.25))
ANSWER = Answer(
    'run-4',
    'which?',
    AnswerKind.CHOICE,
    option_index=1,
    confidence=0.75,
    think='it is nearer',
    observation_stamp_ns=5,
    freshness=Freshness.FRESH,
)


def test_candidates_become_options() -> None:
    question = keypoint_question('pick the cup', 'table', CANDIDATES)
    assert question.options == ('(0.100, 0.200, 0.300)', '(-0.100, 0.000, 0.250)')
    assert 'pick the cup' in question.text
    assert 'frame table' in question.text


def test_labels_name_the_candidates() -> None:
    question = keypoint_question('pick the cup', 'table', CANDIDATES, ['cup', 'plate'])
    assert question.options[1] == 'plate at (-0.100, 0.000, 0.250)'


def test_chosen_option_is_the_proposal() -> None:
    proposal = proposal_of(ANSWER, 'pick', 'table', CANDIDATES)
    assert (proposal.id, proposal.position, proposal.candidate_index) == (
        'run-4',
        (-0.1, 0.0, 0.25),
        1,
    )
    assert (proposal.confidence, proposal.freshness) == (0.75, Freshness.FRESH)
    assert proposal.orientation is None
    assert proposal.gripper is None


def test_unknown_is_no_proposal() -> None:
    unknown = replace(ANSWER, kind=AnswerKind.UNKNOWN, option_index=-1)
    with pytest.raises(InputError, match='cannot know'):
        proposal_of(unknown, 'pick', 'table', CANDIDATES)


@pytest.mark.parametrize(
    ('request_', 'message'),
    [
        (('', 'table', CANDIDATES), "task '' in frame 'table'"),
        (('pick', '', CANDIDATES), 'expected both'),
        (('pick', 'table', CANDIDATES, ['cup']), '1 labels for 2 candidates'),
        (('pick', 'table', ((0.0, float('nan'), 0.0),)), 'not all finite'),
    ],
)
def test_request_that_contradicts_itself_is_refused(
    request_: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        keypoint_question(*request_)


HERE = TableView(
    Pose((1.0, 0.0, 1.02), (-0.6532815, -0.6532815, 0.2705981, 0.2705981), 'table_center'),
    0.0,
    0.02,
    (-0.2, -0.3, 0.0),
    (0.5, 0.3, 0.4),
)


def delta_with(*items: Item, stamp_ns: int = 7, camera: str = 'front') -> SemanticDelta:
    return SemanticDelta(stamp_ns, DeltaKind.CHANGE, 3, items=items, camera=camera)


def test_what_is_seen_on_the_table_is_told_with_its_position() -> None:
    block = Item('red blocky object', bearing_rad=0.0, elevation_rad=0.0)
    gone = Item('blue object', ItemStatus.LEFT, bearing_rad=0.0, elevation_rad=0.0)
    above = Item('green object', bearing_rad=0.0, elevation_rad=1.0)
    look = HERE.describe([delta_with(), delta_with(block, gone, above)])
    assert look == FocusText(
        3, 7, 'On the table: red blocky object at (0.000, 0.000, 0.020).', 'front'
    )
    held = replace(HERE, tool=(0.3, 0.0, 0.33)).describe([delta_with(block)])
    assert held
    assert held.text == 'At the end effector: red blocky object.'


def test_only_the_newest_view_of_the_camera_at_the_table_is_told() -> None:
    block = Item('red blocky object', bearing_rad=0.0, elevation_rad=0.0)
    assert HERE.describe([delta_with(block), delta_with()]) is None
    assert HERE.describe([]) is None
    both = [delta_with(block), delta_with(camera='wrist')]
    assert HERE.describe(both) is None
    assert replace(HERE, name='front').describe(both)


def gripper_answer(**changes: Any) -> Answer:
    made = Answer('run-5', 'open?', AnswerKind.CHOICE, option_index=1, confidence=0.9)
    return replace(made, **{'freshness': Freshness.FRESH, **changes})


def test_the_gripper_is_part_of_the_proposal() -> None:
    proposal = with_gripper(proposal_of(ANSWER, 'pick', 'table', CANDIDATES), gripper_answer())
    assert GRIPPER_NEXT.of_task('pick', 'table').options == ('open', 'closed')
    assert proposal.gripper is Gripper.CLOSED
    assert (proposal.id, proposal.think) == ('run-4', 'it is nearer')
    assert proposal.confidence == 0.75


def test_a_proposal_is_as_sure_and_fresh_as_its_weaker_answer() -> None:
    proposal = proposal_of(ANSWER, 'pick', 'table', CANDIDATES)
    weaker = with_gripper(proposal, gripper_answer(confidence=0.4, freshness=Freshness.STALE))
    assert (weaker.confidence, weaker.freshness) == (0.4, Freshness.STALE)
    late = replace(proposal, freshness=Freshness.STALE)
    degraded = gripper_answer(freshness=Freshness.DEGRADED)
    assert with_gripper(late, degraded).freshness is Freshness.STALE
    unsure = with_gripper(proposal, gripper_answer(confidence=float('nan')))
    assert math.isnan(unsure.confidence)


def test_a_gripper_that_is_not_known_is_not_proposed() -> None:
    proposal = proposal_of(ANSWER, 'pick', 'table', CANDIDATES)
    assert with_gripper(proposal, gripper_answer(kind=AnswerKind.UNKNOWN)) == proposal
