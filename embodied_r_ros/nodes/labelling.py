# SPDX-License-Identifier: Apache-2.0
"""Labels on answers: taken only when they are on the disk."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.episodes import AnswerLabel
from embodied_r_ros.errors import InputError
from embodied_r_ros.nodes.deferred import deferred
from embodied_r_ros.reasoning.labels import check_label

if TYPE_CHECKING:
    from embodied_r_msgs.srv import LabelAnswer
    from embodied_r_ros.nodes.lifecycle import ManagedNode
    from embodied_r_ros.recordings.episode_writer import EpisodeWriter

_NOT_RECORDED = 'the label was not recorded: the disk is too slow, or full'


async def take_label(
    node: ManagedNode,
    episode: EpisodeWriter | None,
    request: LabelAnswer.Request,
    response: LabelAnswer.Response,
) -> AnswerLabel | None:
    """Record a label in the running episode, and fill in the response.

    Returns:
        The label, once the disk has it; None: it was refused, and the response says why.
    """
    if not episode:
        response.error_code = response.ERROR_NOT_RECORDING
        response.error_msg = 'no episode is running: labels belong to the bag of their answer'
        return None
    found = episode.answers.find(request.answer_id)
    if found is None:
        response.error_code = response.ERROR_NO_SUCH_ANSWER
        wanted = repr(request.answer_id) if request.answer_id else 'any'
        response.error_msg = f'this episode has no answer {wanted}'
        return None
    try:
        verdict = check_label(request.verdict, request.correction)
    except InputError as error:
        response.error_code, response.error_msg = response.ERROR_BAD_LABEL, str(error)
        return None
    label = AnswerLabel(node.now_ns(), found, verdict, request.correction, request.operator_name)
    if not episode.label(label) or not await _is_safe(node, episode):
        response.error_code = response.ERROR_BAD_LABEL
        response.error_msg = episode.stats().error or _NOT_RECORDED
        return None
    response.answer_id = found
    return label


def _is_safe(node: ManagedNode, episode: EpisodeWriter) -> Any:
    """What tells, when it is awaited, whether all that was recorded is on the disk."""
    done = deferred(node)
    episode.when_safe(done.set_result)
    return done
