# SPDX-License-Identifier: Apache-2.0
"""Where an order to go to something leads."""

from __future__ import annotations

from dataclasses import replace
import math
from typing import Any

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.goals import goal_proposal, is_order
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Check, ToolCall
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.landmarks import Landmark, LandmarkStatus, PathPoint, SceneMap
import pytest

FRIDGE = Landmark('refrigerator', (4.0, 0.0, 1.0), 1, (0.6, 0.8, 1.8), confidence=0.8)
CHAIRS = tuple(Landmark('chair', (0.0, y, 0.5), number) for number, y in ((2, 2.0), (3, -5.0)))
LAMP = Landmark('lamp', (-4.0, 0.0, 1.5), 9, status=LandmarkStatus.GONE)
PATH = (PathPoint(0, (0.0, 0.0, 1.2), 0.0), PathPoint(1, (0.0, -1.0, 1.2), 0.0))
PLACE = SceneMap((FRIDGE, *CHAIRS, LAMP), PATH, 'odom', scale=ScaleSource.DEPTH)
GO = Answer(
    'run-1',
    'Go to the fridge, please.',
    AnswerKind.TEXT,
    text='the fridge',
    observation_stamp_ns=7,
)


@pytest.mark.parametrize(
    ('question', 'expected'),
    [
        ('Go to the fridge.', True),
        ('please drive back to the dock', True),
        ('Can you take me to the door?', True),
        ('Which way should I go to the fridge?', False),
        ('Gotham to the left?', False),
        ('How far is it to the fridge?', False),
    ],
)
def test_an_order_is_told_from_a_question(question: str, expected: bool) -> None:
    assert is_order(question) is expected


def test_a_goal_keeps_away_from_the_edge_and_faces_the_thing() -> None:
    proposal = goal_proposal(GO, PLACE, 0.5)
    # Seen from the origin, the nearest place: 4 m, less half of the larger side, less 0.5 m.
    assert proposal.position == pytest.approx((3.1, 0.0, 0.0))
    assert proposal.orientation == pytest.approx((0.0, 0.0, 0.0, 1.0))
    assert (proposal.id, proposal.frame_id, proposal.confidence) == ('run-1', 'odom', 0.8)
    assert proposal.observation_stamp_ns == 7


def test_who_was_nearer_than_the_goal_backs_off() -> None:
    near = replace(PLACE, path=(PathPoint(0, (3.5, 0.0, 1.2), 0.0),))
    assert goal_proposal(GO, near, 0.5).position == pytest.approx((3.1, 0.0, 0.0))


def test_of_several_the_nearest_is_meant() -> None:
    proposal = goal_proposal(replace(GO, question='Go to a chair', text='Chairs'), PLACE, 1.0)
    assert proposal.position == pytest.approx((0.0, 1.0, 0.0))
    yaw = 2 * math.atan2(proposal.orientation[2], proposal.orientation[3])  # type: ignore[index]
    assert yaw == pytest.approx(math.pi / 2)


def test_the_answer_names_what_the_order_does_not() -> None:
    cook = replace(GO, question='Go to where food is kept cold.', kind=AnswerKind.UNKNOWN)
    named = replace(cook, kind=AnswerKind.CHOICE, confidence=0.6)
    assert goal_proposal(named, PLACE, 0.5).position == pytest.approx((3.1, 0.0, 0.0))
    assert goal_proposal(named, PLACE, 0.5).confidence == 0.6
    with pytest.raises(InputError, match='names a landmark of the map: it has refrigerator, cha'):
        goal_proposal(cook, PLACE, 0.5)


@pytest.mark.parametrize(
    'question',
    ['Go to the fridge behind the chair', 'Go close to the big old fridge', 'Head to that fridge'],
)
def test_what_the_order_names_first_is_meant(question: str) -> None:
    proposal = goal_proposal(replace(GO, question=question), PLACE, 0.5)
    assert proposal.position == pytest.approx((3.1, 0.0, 0.0))


@pytest.mark.parametrize(
    'named',
    [
        {'text': 'The refrigerator.'},
        {'sentence': 'The fridge is 4.0 m away, straight ahead.'},
        {'calls': (ToolCall('where', ('lamp',)), ToolCall('way_to', ('Fridges',)))},
        {'text': 'a chair', 'sentence': 'A chair stands by the fridge.'},
    ],
)
def test_an_answer_names_the_landmark_in_its_text_its_sentence_or_a_call(
    named: dict[str, Any],
) -> None:
    answer = replace(GO, **{'text': '3', 'kind': AnswerKind.NUMBER, **named})
    assert goal_proposal(answer, PLACE, 0.5).position == pytest.approx((3.1, 0.0, 0.0))


@pytest.mark.parametrize(
    ('other', 'problem'),
    [
        ({'text': '', 'kind': AnswerKind.UNKNOWN}, '^the answer is unknown$'),
        ({'text': '3', 'kind': AnswerKind.NUMBER}, "^the answer '3' does not name the refrig"),
        ({'text': 'chair'}, "^the answer 'chair' does not name the refrigerator$"),
        (
            {'text': 'chair', 'calls': (ToolCall('where', ('fridge',), turn=1),)},
            "^the answer 'chair' does not name the refrigerator$",
        ),
        ({'check': Check.UNSUPPORTED}, "^the answer 'the fridge' has no support"),
        ({'check': Check.UNSUPPORTED, 'question': 'Go to where it is cold.'}, 'has no support'),
    ],
)
def test_an_answer_that_does_not_stand_for_the_landmark_makes_no_goal(
    other: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        goal_proposal(replace(GO, **other), PLACE, 0.5)


@pytest.mark.parametrize(
    ('place', 'question', 'problem'),
    [
        (PLACE, 'Go to the lamp', 'lamp is gone'),
        (replace(PLACE, scale=ScaleSource.UNKNOWN), 'Go to the fridge', 'no metres'),
        (replace(PLACE, path=()), 'Go to the fridge', 'no path'),
        (SceneMap(), 'Go to the fridge', 'it has nothing'),
        (PLACE, 'Go to the sofa behind the fridge', "no landmark of the map before 'behind'"),
        (PLACE, 'Please drive to the cat next to the chair', "before 'next to'"),
    ],
)
def test_without_a_known_place_there_is_no_goal(
    place: SceneMap, question: str, problem: str
) -> None:
    with pytest.raises(InputError, match=problem):
        goal_proposal(replace(GO, question=question), place, 0.5)
