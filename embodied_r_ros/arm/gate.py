# SPDX-License-Identifier: Apache-2.0
"""The gate between a proposal and whatever acts on it: one after the other, closed in doubt."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
import math
from typing import TYPE_CHECKING

from embodied_r_ros.arm.gate_rules import Accepted, excerpt, ProposalCase, RULES, Stamped, target
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from embodied_r_ros.arm.gate_rules import PositionIn
    from embodied_r_ros.types.answers import KeypointProposal

RUNGS = ('primary', 'secondary', 'local')
_CORNERS = ('workspace_min', 'workspace_max')


@dataclass(frozen=True)
class GateConfig(Settings):
    """The rules. Where the workspace or the step is not set, every proposal is refused."""

    workspace_frame: str = setting(
        '', 'frame of the workspace; empty: not set, and every proposal is refused'
    )
    workspace_min: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'least x, y, z of the workspace, in its frame [m]'
    )
    workspace_max: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'largest x, y, z of the workspace, in its frame [m]'
    )
    max_step_m: float = setting(
        0.0,
        'longest step to a keypoint [m]; 0: not set, and every proposal is refused',
        between=(0, 1000),
    )
    step_from: str = setting(
        'pose',
        'where a step begins: pose (`current_pose`), or accepted (the keypoint accepted last; the '
        'first step begins at the pose)',
        choices=('pose', 'accepted'),
    )
    tool_frame: str = setting(
        '', 'frame of the end effector, for tf; empty: `current_pose` tells where it is'
    )
    max_pose_age_s: float = setting(
        0.5, 'age up to which `current_pose` counts [s]', between=(0.01, 60)
    )
    tf_wait_s: float = setting(
        0.1,
        'longest wait for tf2 to know the frame of a proposal, or of a pose, at its stamp [s]',
        between=(0, 1),
    )
    min_confidence: float = setting(
        0.5, 'least confidence; 0: any, an unknown one too', between=(0, 1)
    )
    max_age_s: float = setting(
        5.0, 'greatest age of the newest observation [s]', between=(0.01, 3600)
    )
    rungs: tuple[str, ...] = setting(
        ('primary',),
        'rungs whose models may propose: primary, secondary, local; the lower ones need degraded',
    )
    degraded: bool = setting(
        False,
        'take proposals of a fallback, from observations of one, or with failed ones in between',
    )
    max_rate_hz: float = setting(
        1.0, 'keypoints are accepted at most this often [Hz]', between=(0.001, 1000)
    )
    confirm: bool = setting(False, 'an operator confirms every keypoint (`confirm_keypoint`)')
    confirm_within_s: float = setting(10.0, 'time for that confirmation [s]', between=(0.1, 3600))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in _CORNERS:
            value = getattr(self, name)
            if len(value) != 3 or not all(map(math.isfinite, value)):
                msg = f'{name} is {list(value)}: expected three finite numbers'
                raise ConfigError(msg)
        low, high = self.workspace_min, self.workspace_max
        if self.workspace_frame and not all(a < b for a, b in zip(low, high, strict=True)):
            msg = (
                f'workspace_min is {list(low)}, workspace_max {list(high)}: expected each '
                'coordinate of workspace_min below that of workspace_max'
            )
            raise ConfigError(msg)
        if not self.rungs or set(self.rungs) - set(RUNGS):
            msg = f'rungs is {list(self.rungs)}: expected some of {", ".join(RUNGS)}'
            raise ConfigError(msg)


CONFIRMATION = 'confirmation'  # the rule that an operator decides
_REASON_CHARS = 300
_REMEMBERED = 1000  # ids of accepted proposals


class Decision(Enum):
    """What became of a proposal."""

    ACCEPTED = 'accepted'
    REFUSED = 'refused'
    WAITING = 'waiting'  # for the operator


@dataclass(frozen=True)
class Judgement:
    """The gate's decision on a proposal."""

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
            reason = f'another proposal waits for its operator: {excerpt(self.waiting.id)}'
            return _refuse(proposal, CONFIRMATION, reason)
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
            waits = excerpt(proposal.id) if proposal else 'none'
            msg = (
                f'proposal {excerpt(proposal_id)!r} does not wait for an operator; '
                f'waiting: {waits}'
            )
            raise InputError(msg)
        if late := self.expire(now_ns):
            return late
        self.waiting = None
        if not let_through:
            return _refuse(proposal, CONFIRMATION, 'the operator refused it')
        case = replace(self._case(proposal, now_ns), waited_ns=now_ns - self._since_ns)
        return _refusal(case) or self._accept(case)

    def expire(self, now_ns: int) -> Judgement | None:
        """Refuse what has waited too long; None where nothing has."""
        waited_ns = now_ns - self._since_ns
        if self.waiting is None or 0 <= waited_ns <= self.config.confirm_within_s * NS_PER_S:
            return None
        return self.dismiss(f'no operator confirmed it within {self.config.confirm_within_s:g} s')

    def dismiss(self, reason: str) -> Judgement | None:
        """Refuse what waits; None where nothing does."""
        proposal, self.waiting = self.waiting, None
        return _refuse(proposal, CONFIRMATION, reason) if proposal else None

    def forget(self) -> None:
        """Forget the pose and what was accepted: time begins anew. Ids stay known."""
        self._pose, self._accepted = None, None

    def _case(self, proposal: KeypointProposal, now_ns: int) -> ProposalCase:
        return ProposalCase(
            proposal,
            now_ns,
            self.config,
            self._position_in,
            self._pose,
            self._accepted,
            self._ids,
        )

    def _accept(self, case: ProposalCase) -> Judgement:
        proposal, frame = case.proposal, case.config.workspace_frame
        # Where it is in the workspace now; the frame in which it was proposed may move.
        self._accepted = Accepted(target(case), frame, case.now_ns)
        self._ids.append(proposal.id)
        return Judgement(proposal, Decision.ACCEPTED)


def _refusal(case: ProposalCase) -> Judgement | None:
    """Ask the rules in turn; None where none refuses."""
    for name, rule in RULES.items():
        try:
            reason = rule(case)
        except ValueError as error:
            reason = _words(error)
        except Exception as error:
            reason = f'the rule failed: {type(error).__name__}: {_words(error)}'
        if reason:
            return _refuse(case.proposal, name, reason)
    return None


def _words(error: Exception) -> str:
    """An error's text on one line, and never empty: that would let through."""
    return as_data(' '.join(str(error).split()))[:_REASON_CHARS] or type(error).__name__


def _refuse(proposal: KeypointProposal, rule: str, reason: str) -> Judgement:
    return Judgement(proposal, Decision.REFUSED, rule, reason)
