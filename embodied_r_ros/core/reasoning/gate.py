# SPDX-License-Identifier: Apache-2.0
"""The gate between a proposal and whatever acts on it: one after the other, closed in doubt.

Each rule says why a proposal is refused, or nothing. Rules read numbers, names of frames and
enumerations. No rule reads what a model wrote in words: the text of a proposal's task or reasoning
cannot open the gate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
import math
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.core.types.poses import NoPose

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from embodied_r_ros.core.types.answers import KeypointProposal
    from embodied_r_ros.core.types.geometry import Position

    PositionIn = Callable[[Position, str, str, int], Position | NoPose]
    Rule = Callable[['ProposalCase'], str]

# Clocks of a robot's computers, and a simulated one, may be so far apart.
_FUTURE_NS = 100_000_000
_SHOWN_CHARS = 80
_LEAST_NORM = 0.5  # of a quaternion, which should have 1


@dataclass(frozen=True)
class StampedPosition:
    """Where the end effector was, or a keypoint that was accepted."""

    position: Position  # [m]
    frame_id: str
    stamp_ns: int


@dataclass(frozen=True)
class ProposalCase:
    """A proposal, and all that is looked at to judge it."""

    proposal: KeypointProposal
    now_ns: int
    config: GateConfig
    position_in: PositionIn
    pose: StampedPosition | None = None  # the newest one
    accepted: StampedPosition | None = None  # the keypoint that was accepted last
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
    since_s = (case.now_ns - case.accepted.stamp_ns) / NS_PER_S
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
        return case.in_workspace_frame(accepted.position, accepted.frame_id, accepted.stamp_ns)
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
        'where a step begins: at the pose (`current_pose`), or at what was accepted last',
        choices=('pose', 'accepted'),
    )
    tool_frame: str = setting(
        '',
        'frame of the end effector, for tf; empty: `current_pose` tells where it is',
        read_only=True,
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
        'take what a fallback proposed or perceived, or what follows failed perception',
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
        self._pose: StampedPosition | None = None
        self._accepted: StampedPosition | None = None
        self._ids: deque[str] = deque(maxlen=_REMEMBERED)

    def see_pose(self, pose: StampedPosition) -> None:
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
        self._accepted = StampedPosition(target(case), frame, case.now_ns)
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
