# SPDX-License-Identifier: Apache-2.0
"""Node `proposal_gate`: lets those keypoint proposals through that its rules allow.

Whatever acts listens to `keypoint_accepted` only, where a proposal comes out as it came in, or to
`keypoint_accepted/pose`, where its pose does. What is refused goes to `keypoint_refused` with the
rule and the reason. Where the node does not run, is not active or is not set up, nothing comes
out.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from embodied_r_msgs.msg import KeypointProposal
from embodied_r_msgs.srv import LabelAnswer
from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.reasoning.gate import Decision, excerpt, Gate, GateConfig, StampedPosition
from embodied_r_ros.core.types.episodes import check_label, LabelVerdict
from embodied_r_ros.data.own_messages import proposal_from_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Health, Level
from embodied_r_ros.nodes.frames import follow_tool, FrameLine, Frames
from embodied_r_ros.nodes.node_base import ManagedNode
from embodied_r_ros.nodes.run import run
from geometry_msgs.msg import PoseStamped, Quaternion

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.reasoning.gate import Judgement
    from embodied_r_ros.core.types.answers import KeypointProposal as Proposal

_LOOK_S = 0.1
MESSAGE = 'message'  # the rule that a proposal can be read


@dataclass(frozen=True)
class GateNames:
    """The node and the topics of a gate."""

    node: str
    proposal: str  # what comes in
    accepted: str  # what comes out as it came in
    pose: str  # and its pose alone, for what knows nothing of proposals
    refused: str
    confirm: str  # the service
    current_pose: str  # where the one that acts is


class ProposalGate(ManagedNode):
    """Stands between proposals and whatever acts."""

    groups: ClassVar = {GateConfig: ''}
    names: ClassVar = GateNames(
        'proposal_gate',
        'keypoint_proposal',
        'keypoint_accepted',
        'keypoint_accepted/pose',
        'keypoint_refused',
        'confirm_keypoint',
        'current_pose',
    )

    def __init__(self, **options: Any) -> None:
        super().__init__(self.names.node, **options)

    def configure(self) -> None:
        """Announce what comes out, and take operators' words."""
        self._accepted = self.publisher(KeypointProposal, self.names.accepted, topics.RESULT)
        self._accepted_pose = self.publisher(PoseStamped, self.names.pose, topics.RESULT)
        self._refused = self.publisher(DiagnosticStatus, self.names.refused, topics.RESULT)
        self.serve(LabelAnswer, self.names.confirm, self._confirm)

    def activate(self) -> None:
        """Judge what comes, knowing of nothing from before."""
        frames = Frames(self)
        self._gate = Gate(self.parameters.config(GateConfig), frames.position_in)
        self._poses = FrameLine(self, frames, self._limits, self._gate.see_pose)
        self._proposals = FrameLine(self, frames, self._limits, self._judge)
        self._waiting: KeypointProposal | None = None
        self._counts: Counter[str] = Counter()
        self._last_refusal = ''
        self.while_active.callback(self._dismiss, 'the gate was deactivated')
        config = self._gate.config
        follow_tool(
            self,
            frames,
            config.tool_frame,
            config.workspace_frame,
            self._take_pose,
            self.names.current_pose,
        )
        self.subscribe(
            KeypointProposal,
            self.names.proposal,
            self._take_proposal,
            topics.RESULT,
            sender='spatial_reasoner',
        )
        self.every(_LOOK_S, self._expire)
        self.when_clock_jumps_back(self._begin_anew)

    def reconfigure(self) -> None:
        """Judge by other rules from now on; what waits, when it is confirmed."""
        if self.is_active:
            self._gate.config = self.parameters.config(GateConfig)

    def report(self) -> Health:
        """Say what was accepted and refused, and why the last one was."""
        waiting = self._gate.waiting
        values = {
            'accepted': self._counts['accepted'],
            'waiting': excerpt(waiting.id) if waiting else '',
        }
        values |= {f'refused_{k}': n for k, n in self._counts.items() if k != 'accepted'}
        values['last_refusal'] = self._last_refusal
        if waiting:
            return Health(Level.OK, f'{_place(waiting)} waits for an operator', values)
        if self._last_refusal:
            return Health(Level.WARN, f'refused {self._last_refusal}', values)
        return Health(Level.OK, 'judging proposals', values)

    def _take_pose(self, msg: PoseStamped) -> None:
        position = vector_from_msg(msg.pose.position)
        stamp_ns = stamp_ns_from_msg(msg.header.stamp)
        pose = StampedPosition(position, msg.header.frame_id, stamp_ns)
        self._poses.take(pose, pose.frame_id, stamp_ns)

    def _take_proposal(self, msg: KeypointProposal) -> None:
        try:
            proposal = proposal_from_msg(msg)
        except Exception as error:  # whatever it is: it cannot be judged
            self._refuse(msg.id, MESSAGE, f'the message is not a proposal: {excerpt(str(error))}')
            return
        stamp_ns = proposal.observation_stamp_ns
        self._proposals.take((proposal, msg), proposal.frame_id, stamp_ns)

    def _limits(self) -> tuple[str, float]:
        """The frame in which positions are wanted, and how long transforms are waited for [s]."""
        return self._gate.config.workspace_frame, self._gate.config.tf_wait_s

    def _judge(self, arrival: tuple[Proposal, KeypointProposal]) -> None:
        proposal, msg = arrival
        judgement = self._gate.judge(proposal, self.now_ns())
        if judgement.decision is Decision.WAITING:
            self._waiting = msg
            self.get_logger().info(f'{_place(proposal)}: {judgement.reason}')
        else:
            self._tell(judgement, msg)

    def _confirm(
        self, request: LabelAnswer.Request, response: LabelAnswer.Response
    ) -> LabelAnswer.Response:
        if not self.is_active:
            return _not_done(response, response.ERROR_NO_SUCH_ANSWER, 'the gate is not active')
        try:
            let_through = _lets_through(request)
        except InputError as error:
            return _not_done(response, response.ERROR_BAD_LABEL, str(error))
        try:
            judgement = self._gate.confirm(
                request.answer_id, self.now_ns(), let_through=let_through
            )
        except InputError as error:
            return _not_done(response, response.ERROR_NO_SUCH_ANSWER, str(error))
        who = excerpt(request.operator_name) or 'not stated'
        decision = 'confirmed' if let_through else 'refused'
        self.get_logger().info(f'{_place(judgement.proposal)}: {decision} by operator: {who}')
        self._tell(judgement, self._waiting)
        if let_through and judgement.decision is Decision.REFUSED:
            reason = f'it is refused now: {judgement.rule}: {judgement.reason}'
            return _not_done(response, response.ERROR_NO_SUCH_ANSWER, reason)
        response.answer_id = judgement.proposal.id
        return response

    def _tell(self, judgement: Judgement, msg: KeypointProposal | None) -> None:
        """Say what became of a proposal, which came in as `msg`."""
        if judgement.decision is Decision.ACCEPTED:
            self._counts['accepted'] += 1
            self._last_refusal = ''
            self._accepted.publish(msg)
            if msg is not None:
                self._accepted_pose.publish(self.pose_of(msg))
        else:
            self._refuse(judgement.proposal.id, judgement.rule, judgement.reason)

    def pose_of(self, msg: KeypointProposal) -> PoseStamped:
        """The pose that comes out for a proposal that is accepted.

        Where no orientation is proposed, no rotation stands for it.
        """
        pose: PoseStamped = deepcopy(msg.pose)
        if not msg.orientation_valid:
            pose.pose.orientation = Quaternion(w=1.0)
        return pose

    def _refuse(self, proposal_id: str, rule: str, reason: str) -> None:
        self._counts[rule] += 1
        self._last_refusal = f'{excerpt(proposal_id)}: {rule}: {reason}'
        self.get_logger().warning(f'refused {self._last_refusal}')
        status = DiagnosticStatus(level=DiagnosticStatus.WARN, name=rule, message=reason)
        status.values = [KeyValue(key='id', value=proposal_id)]
        self._refused.publish(status)

    def _expire(self) -> None:
        if judgement := self._gate.expire(self.now_ns()):
            self._tell(judgement, None)

    def _dismiss(self, reason: str) -> None:
        for _, msg in self._proposals.clear():
            self._refuse(msg.id, 'workspace', f'its frame was waited for, and {reason}')
        if judgement := self._gate.dismiss(reason):
            self._tell(judgement, None)

    def _begin_anew(self) -> None:
        self._dismiss('time jumped back')
        self._poses.clear()
        self._gate.forget()


def _place(proposal: Any) -> str:
    x, y, z = proposal.position
    return f'{excerpt(proposal.id)} ({x:.3f}, {y:.3f}, {z:.3f}) m in {excerpt(proposal.frame_id)}'


def _lets_through(request: LabelAnswer.Request) -> bool:
    """Tell whether an operator confirms.

    Raises:
        InputError: The verdict is neither yes nor no.
    """
    verdict = check_label(request.verdict, request.correction)
    if verdict is LabelVerdict.CORRECTED:
        msg = 'a keypoint is right or wrong: it cannot be corrected here'
        raise InputError(msg)
    return verdict is LabelVerdict.RIGHT


def _not_done(response: LabelAnswer.Response, code: int, message: str) -> LabelAnswer.Response:
    response.error_code, response.error_msg = code, message
    return response


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the node."""
    return run(ProposalGate, arguments)
