# SPDX-License-Identifier: Apache-2.0
"""A task of an arm, keypoint by keypoint: when the next one is proposed live, and trials.

Of a standing task one proposal is on its way at a time. The next one comes when the keypoint that
was accepted is reached, when the gate refuses one, when the question had no answer, or when
nothing of this happens for long; at most at a given rate, and then from an observation since. It
is never a command. A trial gives an arm keypoints until its task succeeds. Its arm is a simulated
one, or whatever else has these methods; this module knows no simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
import math
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.core.types.geometry import Intrinsics, Pose, Position
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ArmTaskConfig(Settings):
    """What an arm is to do, and when the next keypoint is proposed."""

    task: str = setting('', 'keypoints of it are proposed one after the other; empty: none are')
    gripper: bool = setting(False, 'ask for the gripper at each keypoint too')
    task_rate_hz: float = setting(
        0.5, 'keypoints of the task are asked for at most this often [Hz]', between=(0.001, 10)
    )
    reach_m: float = setting(
        0.02, 'distance at which a keypoint is reached [m]', between=(0.0001, 1)
    )
    reach_s: float = setting(
        0.5, 'time at that distance, in which the gripper acts [s]', between=(0, 60)
    )
    give_up_s: float = setting(
        20.0,
        'a keypoint that is not reached, or not judged, is given up after this time [s]',
        between=(0.1, 3600),
    )
    look_s: float = setting(
        2.0, 'longest wait for something that was seen since [s]', between=(0, 60)
    )


class _Phase(Enum):
    """Where the task is, in words for diagnostics."""

    FREE = 'free for the next keypoint'
    ASKED = 'the next keypoint is asked for'
    PROPOSED = 'a proposal is at the gate'
    ACCEPTED = 'on the way to a keypoint'


# What is not over by itself: a question ends by its deadline.
_ON_THE_WAY = (_Phase.PROPOSED, _Phase.ACCEPTED)


class StandingTask:
    """Keeps the way of one proposal. For one thread; times are of the clock of the images."""

    def __init__(self, config: ArmTaskConfig) -> None:
        """Begin, as free to propose."""
        self.config = config
        self.reset()

    def reset(self, now_ns: int = 0) -> None:
        """Forget the proposal that is on its way: time or the task begins anew.

        Args:
            now_ns: The time; 0: not known.
        """
        self.unanswered = 0  # requests for a keypoint that gave none
        self._phase = _Phase.FREE
        self._id = ''
        self._target: Position | None = None
        self._since_ns = now_ns  # of the phase
        self._request_ns: int | None = None
        self._near_ns: int | None = None  # since when the end effector is at the target
        self._seen_after_ns = 0  # earlier observations do not count

    @property
    def phase(self) -> str:
        """Where the task is, in words."""
        return self._phase.value if self.config.task else 'no task'

    def phase_s(self, now_ns: int) -> float:
        """How long it has been there [s]; 0: not known."""
        return max(0, now_ns - self._since_ns) / NS_PER_S if self._since_ns else 0.0

    def give_up_late(self, now_ns: int, *, is_asking: bool = False) -> None:
        """Give up what takes longer than `give_up_s`. To be called now and then.

        Args:
            now_ns: The time.
            is_asking: Questions are being answered. One of them may be the task's, which ends by
                its own deadline.
        """
        has_limit = self._phase in _ON_THE_WAY or (
            not is_asking and self._phase is not _Phase.FREE
        )
        if has_limit and now_ns - self._since_ns > self.config.give_up_s * NS_PER_S:
            self._leave(now_ns)

    def wants(self, now_ns: int, seen_ns: int) -> bool:
        """Tell whether to ask for the next keypoint now.

        Args:
            now_ns: The time.
            seen_ns: Stamp of the newest observation; 0: there is none.
        """
        if not self.config.task or not seen_ns or self._phase is not _Phase.FREE:
            return False
        return self._is_due(now_ns) and self._has_looked(now_ns, seen_ns)

    def _is_due(self, now_ns: int) -> bool:
        """Tell whether the rate allows a request."""
        if self._request_ns is None:
            return True
        return now_ns - self._request_ns >= NS_PER_S / self.config.task_rate_hz

    def _has_looked(self, now_ns: int, seen_ns: int) -> bool:
        """Tell whether something was seen since, or was waited for long enough."""
        is_fresh = seen_ns >= self._seen_after_ns
        return is_fresh or now_ns - self._seen_after_ns > self.config.look_s * NS_PER_S

    def note_request(self, now_ns: int) -> None:
        """Note that the next keypoint was requested."""
        self._phase, self._since_ns, self._request_ns = _Phase.ASKED, now_ns, now_ns

    def note_answer(self, proposal_id: str, now_ns: int) -> None:
        """Note the proposal that came; an empty id: there is none."""
        if self._phase is _Phase.ASKED:
            self._phase = _Phase.PROPOSED if proposal_id else _Phase.FREE
            self._id, self._since_ns = proposal_id, now_ns
            self.unanswered += not proposal_id

    def note_acceptance(self, proposal_id: str, position: Position, now_ns: int) -> None:
        """Note that the gate accepted a proposal."""
        if proposal_id and proposal_id == self._id and self._phase is _Phase.PROPOSED:
            self._phase, self._since_ns = _Phase.ACCEPTED, now_ns
            self._target, self._near_ns = position, None

    def note_refusal(self, proposal_id: str, now_ns: int) -> None:
        """Note that the gate refused a proposal."""
        if proposal_id and proposal_id == self._id and self._phase is _Phase.PROPOSED:
            self._phase, self._since_ns = _Phase.FREE, now_ns

    def see_pose(self, position: Position, stamp_ns: int) -> None:
        """Take where the end effector was, in the frame of the keypoints [m]."""
        if self._phase is not _Phase.ACCEPTED or self._target is None:
            return
        # Written so that what is no number is far away.
        if not math.dist(position, self._target) <= self.config.reach_m:
            self._near_ns = None
            return
        if self._near_ns is None or stamp_ns < self._near_ns:
            self._near_ns = stamp_ns
        if stamp_ns - self._near_ns >= self.config.reach_s * NS_PER_S:
            self._leave(stamp_ns)

    def _leave(self, now_ns: int) -> None:
        """Ask for the next keypoint."""
        self._phase = _Phase.FREE
        self._since_ns = self._seen_after_ns = now_ns


class TrialArm(Protocol):
    """An arm before its task. Times are in seconds since its start."""

    @property
    def now_s(self) -> float:
        """The time [s]."""

    @property
    def camera(self) -> Intrinsics | None:
        """Its camera; None: it has no images."""

    @property
    def task(self) -> str:
        """What is to be done, in words."""

    def go(self, position: Position, *, closed: bool | None) -> None:
        """Go to a keypoint [m], and there open or close the gripper; None: neither."""

    def advance(self, until_s: float) -> None:
        """Let time pass until then [s]."""

    def is_busy(self) -> bool:
        """Tell whether it is still on its way to a keypoint."""

    def is_closed(self) -> bool:
        """Tell whether the gripper was commanded to close."""

    def is_done(self) -> bool:
        """Tell whether the task has succeeded."""

    def tool(self) -> Pose:
        """Pose of the tool in the task frame."""

    def image(self) -> NDArray[Any]:
        """What its camera sees. Shape (H, W, 3), BGR."""

    def camera_pose(self) -> Pose:
        """Pose of the camera's optical frame in the task frame."""

    def joints(self) -> Mapping[str, tuple[float, float]]:
        """Position [rad or m] and velocity of every joint, those of the gripper too."""

    def frames(self) -> Mapping[str, Pose]:
        """Pose of every frame in its parent."""


@dataclass(frozen=True)
class TrialConfig(Settings):
    """When a trial ends without success."""

    max_keypoints: int = setting(16, 'keypoints that are gone to', between=(1, 1000))
    max_s: float = setting(120.0, 'time of the arm [s]', between=(1, 36_000))


@dataclass(frozen=True)
class TrialStep:
    """One keypoint of a trial."""

    at_s: float  # when it was sent
    tool: Position  # where the tool was then [m]
    candidates: tuple[Position, ...]  # [m]
    chosen: int  # of the candidates
    closed: bool | None  # the gripper there; None: as before

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            'at_s': round(self.at_s, 3),
            'tool': [round(value, 4) for value in self.tool],
            'candidates': [list(position) for position in self.candidates],
            'chosen': self.chosen,
            'closed': self.closed,
        }


@dataclass(frozen=True)
class Trial:
    """How a trial went."""

    id: str
    task: str  # in words
    is_success: bool
    seconds: float
    steps: tuple[TrialStep, ...]
    refusals: tuple[str, ...] = ()  # why proposals did not pass the gate
    warnings: tuple[str, ...] = ()  # of the nodes that led it, each once

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            'id': self.id,
            'task': self.task,
            'success': self.is_success,
            'seconds': round(self.seconds, 3),
            'steps': [step.to_json() for step in self.steps],
            'refusals': list(self.refusals),
            'warnings': list(self.warnings),
        }


def success_rate(trials: Sequence[Trial]) -> float:
    """Share of the trials that succeeded; of none, 0."""
    return sum(trial.is_success for trial in trials) / max(1, len(trials))
