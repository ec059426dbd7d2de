# SPDX-License-Identifier: Apache-2.0
"""Between the action PredictKeypoint and the question that it means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.action import Ask, PredictKeypoint
from embodied_r_ros.conversions import proposal_to_msg, vector_from_msg
from embodied_r_ros.errors import InputError
from embodied_r_ros.nodes.limits import seconds
from embodied_r_ros.nodes.ros_types import ROS_MESSAGES
from embodied_r_ros.reasoning.asking import RefusalCode
from embodied_r_ros.reasoning.keypoints import keypoint_question, KeypointProposal, proposal_of

if TYPE_CHECKING:
    from embodied_r_ros.reasoning.answering import Outcome
    from embodied_r_ros.reasoning.asking import Question


def question_of(goal: Any) -> Question:
    """Make the question that a goal or request of PredictKeypoint means.

    Raises:
        InputError: It contradicts itself, or has nothing to choose from.
    """
    if not goal.candidates:
        msg = 'no candidates: this reasoner chooses between positions, it does not invent them'
        raise InputError(msg)
    candidates = [vector_from_msg(point) for point in goal.candidates]
    question = keypoint_question(goal.task, goal.frame_id, candidates, goal.candidate_labels)
    max_age_s, deadline_s = seconds(goal.max_age_s), seconds(goal.deadline_s)
    return replace(question, max_age_s=max_age_s, deadline_s=deadline_s)


def fill_keypoint(goal: Any, result: Any, outcome: Outcome) -> KeypointProposal | None:
    """Fill a result or response; returns the proposal where there is one."""
    result.error_code = outcome.code.value if outcome.code else Ask.Result.ERROR_NONE
    result.error_msg = outcome.message
    result.termination_reason = outcome.termination.value
    if not goal.candidates:
        result.error_code = PredictKeypoint.Result.ERROR_NO_CANDIDATES
    if outcome.code or not outcome.is_completed:
        return None
    candidates = [vector_from_msg(point) for point in goal.candidates]
    try:
        proposal = proposal_of(outcome.answer, goal.task, goal.frame_id, candidates)
    except InputError as error:
        result.error_code = RefusalCode.FORMAT.value
        result.error_msg = str(error)
        return None
    result.proposal = proposal_to_msg(ROS_MESSAGES, proposal)
    return proposal
