# SPDX-License-Identifier: Apache-2.0
"""The gate: judges proposals one after the other, and lets one wait for its operator.

Whatever a rule cannot judge is refused, an exception in a rule too. At most one proposal waits;
what comes meanwhile is refused, so that an operator who names an id confirms what was shown.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING

from embodied_r_ros.errors import InputError
from embodied_r_ros.gating.rules import Accepted, Case, RULES, shown, Stamped, target
from embodied_r_ros.untrusted import as_data

if TYPE_CHECKING:
    from embodied_r_ros.gating.config import GateConfig
    from embodied_r_ros.gating.rules import PositionIn
    from embodied_r_ros.reasoning.keypoints import KeypointProposal

CONFIRMATION = 'confirmation'  # the rule that an operator decides
_NS = 1_000_000_000
_REASON_CHARS = 300
_REMEMBERED = 1000  # ids of accepted proposals


class Decision(Enum):
    """What became of a proposal."""

    ACCEPTED = 'accepted'
    REFUSED = 'refused'
    WAITING = 'waiting'  # for the operator


@dataclass(frozen=True)
class Judgement:
    """What the gate says of a proposal."""

    proposal: KeypointProposal
    decision: Decision
    rule: str = ''  # that refused it, or for which it waits
    reason: str = ''  # one line, without what others wrote


class Gate:
    """Judges proposals. For one thread at a time."""

    def __init__(self, config: GateConfig, position_in: PositionIn) -> None:
        """Close the gate.

        Args:
            config: The rules.
            position_in: Gives a position of one frame in another.
        """
        self.config = config
        self.waiting: KeypointProposal | None = None
        self._position_in = position_in
        self._since_ns = 0  # when it began to wait
        self._pose: Stamped | None = None
        self._accepted: Accepted | None = None
        self._ids: deque[str] = deque(maxlen=_REMEMBERED)

    def see_pose(self, pose: Stamped) -> None:
        """Take where the end effector is."""
        self._pose = pose

    def judge(self, proposal: KeypointProposal, now_ns: int) -> Judgement:
        """Judge a new proposal.

        Args:
            proposal: The proposal.
            now_ns: Time of the clock that stamps images.
        """
        case = self._case(proposal, now_ns)
        if refusal := _refusal(case):
            return refusal
        if not self.config.confirm:
            return self._accept(case)
        if self.waiting is not None:
            reason = f'another proposal waits for its operator: {shown(self.waiting.id)}'
            return _refused(proposal, CONFIRMATION, reason)
        self.waiting, self._since_ns = proposal, now_ns
        reason = f'an operator has {self.config.confirm_within_s:g} s to confirm it'
        return Judgement(proposal, Decision.WAITING, CONFIRMATION, reason)

    def confirm(self, proposal_id: str, now_ns: int, *, let_through: bool) -> Judgement:
        """Take the operator's word; a confirmed proposal is judged again, as things are now.

        Args:
            proposal_id: The proposal that the operator means.
            now_ns: The time.
            let_through: False: the operator refuses it.

        Raises:
            InputError: No such proposal waits.
        """
        proposal = self.waiting
        if proposal is None or proposal.id != proposal_id:
            waits = shown(proposal.id) if proposal else 'none'
            msg = (
                f'proposal {shown(proposal_id)!r} does not wait for an operator; waiting: {waits}'
            )
            raise InputError(msg)
        if late := self.expire(now_ns):
            return late
        self.waiting = None
        if not let_through:
            return _refused(proposal, CONFIRMATION, 'the operator refused it')
        case = replace(self._case(proposal, now_ns), waited_ns=now_ns - self._since_ns)
        return _refusal(case) or self._accept(case)

    def expire(self, now_ns: int) -> Judgement | None:
        """Refuse what has waited too long; None where nothing has."""
        waited_ns = now_ns - self._since_ns
        if self.waiting is None or 0 <= waited_ns <= self.config.confirm_within_s * _NS:
            return None
        return self.dismiss(f'no operator confirmed it within {self.config.confirm_within_s:g} s')

    def dismiss(self, reason: str) -> Judgement | None:
        """Refuse what waits; None where nothing does."""
        proposal, self.waiting = self.waiting, None
        return _refused(proposal, CONFIRMATION, reason) if proposal else None

    def forget(self) -> None:
        """Forget the pose and what was accepted: time begins anew. Ids stay known."""
        self._pose, self._accepted = None, None

    def _case(self, proposal: KeypointProposal, now_ns: int) -> Case:
        return Case(
            proposal,
            now_ns,
            self.config,
            self._position_in,
            self._pose,
            self._accepted,
            self._ids,
        )

    def _accept(self, case: Case) -> Judgement:
        proposal, frame = case.proposal, case.config.workspace_frame
        # Where it is in the workspace now; the frame in which it was proposed may move.
        self._accepted = Accepted(target(case), frame, case.now_ns)
        self._ids.append(proposal.id)
        return Judgement(proposal, Decision.ACCEPTED)


def _refusal(case: Case) -> Judgement | None:
    """Ask the rules in turn; None where none refuses."""
    for name, rule in RULES.items():
        try:
            reason = rule(case)
        except ValueError as error:
            reason = _words(error)
        except Exception as error:
            reason = f'the rule failed: {type(error).__name__}: {_words(error)}'
        if reason:
            return _refused(case.proposal, name, reason)
    return None


def _words(error: Exception) -> str:
    """What an error says, on one line, and never nothing: that would let through."""
    return as_data(' '.join(str(error).split()))[:_REASON_CHARS] or type(error).__name__


def _refused(proposal: KeypointProposal, rule: str, reason: str) -> Judgement:
    return Judgement(proposal, Decision.REFUSED, rule, reason)
