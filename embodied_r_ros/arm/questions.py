# SPDX-License-Identifier: Apache-2.0
"""The kinds of questions about an arm: where it goes next, where it is, and how it gets there.

The three of Robot-R1, and one that it has not: the gripper at the keypoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
import math
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.candidates import propose_candidates, round_position
from embodied_r_ros.arm.proposal import (
    GRIPPER_NEXT,
    keypoint_question,
    task_text,
)
from embodied_r_ros.arm.question_options import (
    wrong_movements,
    wrong_positions,
    WrongPosition,
)
from embodied_r_ros.arm.robot import Robot
from embodied_r_ros.arm.table import seen_things
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import (
    position_text,
)
from embodied_r_ros.core.types.movement import Movement
from embodied_r_ros.data.questions.indoor import Draft, NoSolution

if TYPE_CHECKING:
    from embodied_r_ros.arm.demonstration import ArmEpisode, ArmState
    from embodied_r_ros.arm.table import TableView
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Position

SOURCE = 'demonstration'  # what proves the solutions
_CANDIDATE_NEAR_M = 0.05  # to the keypoint: what is meant, where a perceiver placed it wrongly
_NO_DISTRACTORS = 'too few wrong positions are far enough from the others'
_STATE = 'At which position is the end effector now?'
_MOVEMENT = (
    'Which movement takes the end effector to its next position? Forward is towards the camera, '
    'left and right are as in the image.'
)


@dataclass(frozen=True)
class ArmMoment:
    """A state of a demonstration, and the keypoint after it."""

    demonstration: ArmEpisode
    index: int  # of the state
    keypoint_index: int  # of the state at the keypoint
    deltas: tuple[SemanticDelta, ...] = ()  # the deltas until then
    seed: str = ''  # of candidates

    @property
    def state(self) -> ArmState:
        """The arm now."""
        return self.demonstration.states[self.index]

    @property
    def keypoint(self) -> ArmState:
        """The arm at its next keypoint."""
        return self.demonstration.states[self.keypoint_index]

    def view(self, *, with_tool: bool = True) -> TableView | None:
        """The table as the camera saw it last; None: nothing is placed, or there is no delta."""
        if self.demonstration.view is None or not self.deltas:
            return None
        then = self.demonstration.state_at(self.deltas[-1].stamp_ns) if with_tool else None
        return replace(self.demonstration.view, tool=then.position if then else None)


ArmKind = Callable[[ArmMoment, Robot, Random], 'Draft | NoSolution']


def waypoint(moment: ArmMoment, robot: Robot, rng: Random) -> Draft | NoSolution:
    """Which position comes next; the prompt is that of the action PredictKeypoint."""
    options = _waypoint_options(moment, robot, rng)
    if isinstance(options, NoSolution):
        return options
    right, wrong = options
    question = keypoint_question(
        moment.demonstration.task,
        moment.demonstration.frame_id,
        [right, *(each.position for each in wrong)],
        robot=robot.metadata,
        state=moment.state.position,
    )
    truth = {'distractors': [_distances(each.source, each.position, moment) for each in wrong]}
    return _draft(question.text, question.options, truth)


def _waypoint_options(
    moment: ArmMoment, robot: Robot, rng: Random
) -> tuple[Position, list[WrongPosition]] | NoSolution:
    """The right position and the wrong ones."""
    right, state = moment.keypoint.position, moment.state.position
    if robot.questions.distractors == 'candidates':
        return propose_options(right, moment, robot)
    wrong = wrong_positions(right, moment.demonstration, robot, rng, state)
    return (right, wrong) if wrong else NoSolution(_NO_DISTRACTORS)


def propose_options(
    keypoint: Position, moment: ArmMoment, robot: Robot
) -> tuple[Position, list[WrongPosition]] | NoSolution:
    """What the sampler of candidates proposes: the one nearest to the keypoint, and the others."""
    view, state = moment.view(), moment.state.position
    if view is None:
        return NoSolution('candidates are sampled where things are seen, and nothing is placed')
    things = seen_things(moment.deltas, view)
    try:
        candidates = propose_candidates(
            things, state, robot.metadata, robot.candidates, moment.seed
        )
    except InputError as error:
        return NoSolution(str(error))
    right = min(candidates, key=lambda each: math.dist(each.position, keypoint))
    if math.dist(right.position, keypoint) > _CANDIDATE_NEAR_M:
        return NoSolution('no candidate is near the keypoint')
    others = [
        WrongPosition(each.position, 'candidate') for each in candidates if each is not right
    ]
    return right.position, others


def current_state(moment: ArmMoment, robot: Robot, rng: Random) -> Draft | NoSolution:
    """Where the end effector is now; the state is not stated."""
    right = moment.state.position
    wrong = wrong_positions(right, moment.demonstration, robot, rng)
    if not wrong:
        return NoSolution(_NO_DISTRACTORS)
    options = [position_text(right), *(position_text(each.position) for each in wrong)]
    truth = {'distractors': [_distances(each.source, each.position, moment) for each in wrong]}
    return _draft(_text(moment, _STATE, robot, with_state=False), options, truth)


def movement(moment: ArmMoment, robot: Robot, rng: Random) -> Draft | NoSolution:
    """Which movement, in words, leads to the next keypoint."""
    config = robot.questions
    right = Movement.between(moment.state.position, moment.keypoint.position, config.deadband_m)
    if right is None:
        return NoSolution('the way to the keypoint is not longer than the deadband')
    wrong = wrong_movements(right, config, rng)
    options = [right.words(), *(each.words() for each, _ in wrong)]
    truth = {'distractors': [{'source': how} for _, how in wrong]}
    question = _text(moment, _MOVEMENT, robot)
    return _draft(question, options, truth)


def gripper(moment: ArmMoment, robot: Robot, rng: Random) -> Draft | NoSolution:
    """Whether the gripper is open or closed at the next keypoint."""
    del rng
    if moment.keypoint.closed is None:
        return NoSolution('the state of the gripper is not known')
    options = ['closed', 'open'] if moment.keypoint.closed else ['open', 'closed']
    return _draft(_text(moment, GRIPPER_NEXT.text, robot), options, {})


def arm_kinds(robot: Robot) -> dict[str, ArmKind]:
    """The kinds of question about a robot, by question type."""
    config = robot.questions
    kinds: dict[str, ArmKind] = {name: _PAPER_KINDS[name] for name in config.kinds}
    if config.gripper:
        kinds['gripper'] = gripper
    return kinds


def _draft(question: str, options: list[str] | tuple[str, ...], truth: dict[str, Any]) -> Draft:
    """A draft whose first option is right."""
    return Draft(question, tuple(options), options[0], source=SOURCE, truth=truth)


def _text(moment: ArmMoment, question: str, robot: Robot, *, with_state: bool = True) -> str:
    demonstration = moment.demonstration
    state = moment.state.position if with_state else None
    return task_text(demonstration.task, question, demonstration.frame_id, robot.metadata, state)


def _distances(source: str, wrong: Position, moment: ArmMoment) -> dict[str, Any]:
    """Where a wrong position comes from, and how far it is from what matters [m]."""
    to_keypoint = math.dist(wrong, round_position(moment.keypoint.position))
    to_state = math.dist(wrong, round_position(moment.state.position))
    return {
        'source': source,
        'to_keypoint_m': round(to_keypoint, 3),
        'to_state_m': round(to_state, 3),
    }


_PAPER_KINDS: dict[str, ArmKind] = {
    'waypoint': waypoint,
    'current_state': current_state,
    'movement': movement,
}
