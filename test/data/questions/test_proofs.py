# SPDX-License-Identifier: Apache-2.0
"""What a recording proves of questions in our words, on a scene that is known by hand."""

from __future__ import annotations

from dataclasses import replace

from embodied_r_ros.core.types.answers import Answer, AnswerKind, Freshness
from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
from embodied_r_ros.data.episodes.answers import AnswerLog
from embodied_r_ros.data.episodes.episode import Episode
from embodied_r_ros.data.questions.proofs import solution_of_place
import pytest

from test.data.questions.test_kinds import DELTAS, layout, POSES, SECOND_NS

QUARTERS = ('behind', 'ahead', 'left', 'right')
WHERE = 'Where is the {} now, as seen from the robot?'
TRUE = Episode('e1', 's1', 'camera', DELTAS, 'recorded', POSES, layout())
# Facing north from the origin.
MAP = SceneMap(
    (Landmark('red chair', (0.0, 4.0, 0.5)), Landmark('lamp', (-4.0, 0.2, 0.5), 1)),
    (PathPoint(2 * SECOND_NS, (0.0, 0.0, 1.0), 1.5708),),
)
MAPPED = replace(TRUE, layout=None, poses=(), log=AnswerLog(maps=(MAP,)))


def answer(question: str, options: tuple[str, ...] = QUARTERS, second: int = 99) -> Answer:
    return Answer(
        'run-1',
        question,
        AnswerKind.CHOICE,
        options,
        text='left',
        observation_stamp_ns=second * SECOND_NS,
        freshness=Freshness.FRESH,
    )


@pytest.mark.parametrize(
    ('episode', 'given', 'proven'),
    [
        (TRUE, answer(WHERE.format('blue round object')), ('ahead', 'layout')),
        (TRUE, answer('How many red objects has the robot seen?', ('1', '2')), ('1', 'layout')),
        (TRUE, answer('How many red objects has the robot seen?', ('2', '3')), None),
        (TRUE, answer(WHERE.format('yellow blocky object')), None),  # never seen
        (TRUE, answer('What is the robot for?'), None),
        (TRUE, answer(WHERE.format('blue round object'), second=0), None),  # nothing was seen yet
        (MAPPED, answer(WHERE.format('red chair')), ('ahead', 'map')),
        (MAPPED, answer(WHERE.format('sofa')), None),
        (MAPPED, answer('How many lamps are in this room?', ()), None),
        (MAPPED, answer('How many lamp(s) are in this room?', ()), ('1', 'map')),
        (MAPPED, answer(WHERE.format('lamp'), second=1), None),  # the map is of later
    ],
)
def test_a_place_proves_what_it_decides(
    episode: Episode, given: Answer, proven: tuple[str, str] | None
) -> None:
    assert solution_of_place(episode, given) == proven


def test_options_decide_where_the_words_name_nothing() -> None:
    question = 'Which of these did the robot see first?'
    seen = ('red tall object', 'blue round object', 'green flat object')
    assert solution_of_place(TRUE, answer(question, seen)) == ('red tall object', 'layout')
    others = ('red tall object', 'blue round object', 'a door')
    assert solution_of_place(TRUE, answer(question, others)) is None


def test_a_refusal_is_not_compared() -> None:
    refused = replace(answer(WHERE.format('blue round object')), freshness=Freshness.REFUSED)
    assert solution_of_place(TRUE, refused) is None
