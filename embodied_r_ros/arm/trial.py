# SPDX-License-Identifier: Apache-2.0
"""Trials: an arm gets keypoints until its task succeeds, and how that went.

The arm is a simulated one, or whatever else has these methods; this module knows no simulator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.settings import setting, Settings

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.types.geometry import Intrinsics, Pose, Position
    from numpy.typing import NDArray


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
    wait_s: float = setting(
        0.0,
        'time that passes before each keypoint is told, with looks on the way and meanwhile as '
        'often as the robot has them (placing.look_every_s), as live [s]; 0: a look each keypoint',
        between=(0, 60),
    )


@dataclass(frozen=True)
class TrialStep:
    """One keypoint of a trial."""

    at_s: float  # when it was sent
    tool: Position  # where the tool was then [m]
    candidates: tuple[Position, ...]  # [m]
    chosen: int  # of the candidates
    closed: bool | None  # the gripper there; None: as before
    image: NDArray[Any] | None = None  # the camera's image then, BGR; None: not kept

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without the image."""
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

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, without images."""
        return {
            'id': self.id,
            'task': self.task,
            'success': self.is_success,
            'seconds': round(self.seconds, 3),
            'steps': [step.to_json() for step in self.steps],
            'refusals': list(self.refusals),
        }


def success_rate(trials: Sequence[Trial]) -> float:
    """Share of the trials that succeeded; of none, 0."""
    return sum(trial.is_success for trial in trials) / max(1, len(trials))
