# SPDX-License-Identifier: Apache-2.0
"""The rules of the gate: each says why a proposal is refused, or nothing.

They read numbers, names of frames and enumerations. No rule reads what a model wrote in words:
the text of a proposal's task or reasoning cannot open the gate.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.types.answers import Freshness
from embodied_r_ros.types.poses import NoPose
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from embodied_r_ros.arm.gate import GateConfig
    from embodied_r_ros.types.answers import KeypointProposal
    from embodied_r_ros.types.geometry import Position

    PositionIn = Callable[[Position, str, str, int], Position | NoPose]
    Rule = Callable[['ProposalCase'], str]

# Clocks of a robot's computers, and a simulated one, may be so far apart.
_FUTURE_NS = 100_000_000
_SHOWN_CHARS = 80
_LEAST_NORM = 0.5  # of a quaternion, which should have 1


@dataclass(frozen=True)
class Stamped:
    """Where the end effector was."""

    position: Position  # [m]
    frame_id: str
    stamp_ns: int


@dataclass(frozen=True)
class Accepted:
    """The keypoint that was accepted last."""

    position: Position  # [m]
    frame_id: str
    at_ns: int


@dataclass(frozen=True)
class ProposalCase:
    """A proposal, and all that is looked at to judge it."""

    proposal: KeypointProposal
    now_ns: int
    config: GateConfig
    position_in: PositionIn
    pose: Stamped | None = None  # the newest one
    accepted: Accepted | None = None
    known_ids: Collection[str] = ()  # of proposals that were accepted
    waited_ns: int = 0  # for the operator

    def in_workspace_frame(self, position: Position, frame_id: str, stamp_ns: int) -> Position:
        """A position in the frame of the workspace.

        Raises:
            ValueError: It cannot be given there.
        """
        target = self.config.workspace_frame.lstrip('/')
        name = frame_id.lstrip('/')
        if not name:
            msg = 'the frame has no name'
            raise ValueError(msg)
        place = position if name == target else self.position_in(position, name, target, stamp_ns)
        if isinstance(place, NoPose):
            raise ValueError(place.reason)  # noqa: TRY004 - it is no wrong type
        if not _is_finite(place):
            msg = (
                f'a position of {excerpt(name)} is {list(place)} in {excerpt(target)}: not finite'
            )
            raise ValueError(msg)
        return place


def excerpt(text: str) -> str:
    """A foreign text, shortened and made harmless for a log line."""
    return as_data(text)[:_SHOWN_CHARS]


def _settings(case: ProposalCase) -> str:
    config = case.config
    if not config.workspace_frame:
        return 'workspace_frame is not set: set workspace_frame, workspace_min and workspace_max'
    return '' if config.max_step_m > 0 else 'max_step_m is not set: set the longest step'


def _proposal(case: ProposalCase) -> str:
    proposal = case.proposal
    if not proposal.id:
        return 'the proposal has no id'
    if proposal.id in case.known_ids:
        return 'a proposal of this id was accepted before'
    return _numbers(proposal) or _choice(proposal)


def _numbers(proposal: KeypointProposal) -> str:
    if not _is_finite(proposal.position):
        return f'the position is {list(proposal.position)}: expected finite numbers'
    turn = proposal.orientation
    if turn is not None and not (_is_finite(turn) and math.hypot(*turn) > _LEAST_NORM):
        return f'the orientation is {list(turn)}: expected a rotation'
    return ''


def _choice(proposal: KeypointProposal) -> str:
    index, candidates = proposal.candidate_index, proposal.candidates
    if not -1 <= index < len(candidates):
        return f'candidate {index} of {len(candidates)} does not exist'
    if index >= 0 and candidates[index] != proposal.position:
        return f'the position is not that of candidate {index}'
    return ''


def _age(case: ProposalCase) -> str:
    proposal = case.proposal
    if proposal.observation_stamp_ns <= 0:
        return 'the observation has no stamp'
    if proposal.freshness in {Freshness.STALE, Freshness.REFUSED}:
        return f'the reasoner calls its observations {proposal.freshness.name}'
    age_ns = case.now_ns - proposal.observation_stamp_ns
    if age_ns < -_FUTURE_NS:
        return f'the observation is {-age_ns / NS_PER_S:.1f} s ahead of the clock'
    allowed_s = case.config.max_age_s
    if age_ns - case.waited_ns > allowed_s * NS_PER_S:
        return f'the observation is {age_ns / NS_PER_S:.1f} s old, allowed are {allowed_s:.1f} s'
    return ''


def _rung(case: ProposalCase) -> str:
    name = case.proposal.model.rung.name.lower()
    if name not in case.config.rungs:
        return f'rung {name} proposes, allowed: {", ".join(case.config.rungs)}'
    if case.proposal.freshness is Freshness.DEGRADED and not case.config.degraded:
        return (
            'a fallback answered or perceived, or perception failed in between (setting: degraded)'
        )
    return ''


def _confidence(case: ProposalCase) -> str:
    least, value = case.config.min_confidence, case.proposal.confidence
    if not least:
        return ''
    if not 0 <= value <= 1:  # not a number is neither
        return f'the confidence is {value}: expected 0 to 1'
    return '' if value >= least else f'the confidence is {value:.2f}, asked are {least:.2f}'


def _workspace(case: ProposalCase) -> str:
    position = target(case)
    low, high = case.config.workspace_min, case.config.workspace_max
    for axis, value, least, most in zip('xyz', position, low, high, strict=True):
        if not least <= value <= most:
            frame = excerpt(case.config.workspace_frame)
            return f'{axis} is {value:.3f} m in {frame}: expected {least:.3f} to {most:.3f}'
    return ''


def _step(case: ProposalCase) -> str:
    step_m, allowed_m = math.dist(_start(case), target(case)), case.config.max_step_m
    # Written so that what is no number is refused.
    if step_m <= allowed_m:
        return ''
    return f'the step is {step_m:.3f} m long, allowed are {allowed_m:.3f} m'


def _rate(case: ProposalCase) -> str:
    if case.accepted is None:
        return ''
    since_s = (case.now_ns - case.accepted.at_ns) / NS_PER_S
    if since_s * case.config.max_rate_hz >= 1:
        return ''
    return f'{since_s:.2f} s since the last one, at most {case.config.max_rate_hz} Hz are allowed'


def target(case: ProposalCase) -> Position:
    """The keypoint in the workspace frame.

    Raises:
        ValueError: It cannot be given there.
    """
    proposal = case.proposal
    return case.in_workspace_frame(
        proposal.position, proposal.frame_id, proposal.observation_stamp_ns
    )


def _start(case: ProposalCase) -> Position:
    """Where the step begins, in the workspace frame.

    Raises:
        ValueError: The state is unknown.
    """
    config, accepted, pose = case.config, case.accepted, case.pose
    if config.step_from == 'accepted' and accepted is not None:
        return case.in_workspace_frame(accepted.position, accepted.frame_id, accepted.at_ns)
    if pose is None:
        msg = 'no pose came on current_pose'
        raise ValueError(msg)
    age_ns = case.now_ns - pose.stamp_ns
    if not -_FUTURE_NS <= age_ns <= config.max_pose_age_s * NS_PER_S:
        msg = f'the pose is {age_ns / NS_PER_S:.2f} s old, allowed are {config.max_pose_age_s} s'
        raise ValueError(msg)
    return case.in_workspace_frame(pose.position, pose.frame_id, pose.stamp_ns)


def _is_finite(values: Collection[float]) -> bool:
    return all(map(math.isfinite, values))


# In the order in which they apply. Each returns why the case is refused, or nothing, or
# raises ValueError with why it cannot be judged, which refuses too.
RULES: dict[str, Rule] = {
    'settings': _settings,
    'proposal': _proposal,
    'age': _age,
    'rung': _rung,
    'confidence': _confidence,
    'workspace': _workspace,
    'step': _step,
    'rate': _rate,
}
