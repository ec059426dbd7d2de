# SPDX-License-Identifier: Apache-2.0
"""A demonstration of an arm: samples, and the states and keypoints questions are made of.

What is true of a simulated one (its keypoints, by construction, and where things are) travels in
the bag as JSON on `truth/demonstration`. Positions are in the task frame.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.geometry import as_position, NS_PER_S
from embodied_r_ros.core.types.layout import truth_from_json, truth_to_json
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.arm.robot import RobotMetadata
    from embodied_r_ros.arm.table import TableView
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose, Position
    from embodied_r_ros.core.types.layout import Vector
    from numpy.typing import NDArray

TRUTH_TOPIC = '/truth/demonstration'
TRUTH_VERSION = 1


@dataclass(frozen=True)
class Demonstration:
    """Samples of one demonstration, in order of time."""

    stamps_ns: NDArray[np.int64]  # (N,)
    # (N, 3), end effector in the task frame [m]; None: not known, joint speeds are
    positions: NDArray[np.float64] | None
    openings: NDArray[np.float64] | None = None  # (N,), 0 closed to 1 open; None: not recorded
    joint_speeds: NDArray[np.float64] | None = None  # (N, J) [rad/s]; None: not recorded
    # (N, 4), end effector in the task frame, quaternions x, y, z, w; None: not all are known
    orientations: NDArray[np.float64] | None = None
    episode_id: str = ''
    task: str = ''  # in words
    frame_id: str = ''  # the task frame

    def __post_init__(self) -> None:
        """Refuse samples that are out of order, or of different number.

        Raises:
            InputError: They are.
        """
        count = len(self.stamps_ns)
        parts = (self.positions, self.openings, self.joint_speeds, self.orientations)
        if count < 2 or any(len(part) != count for part in parts if part is not None):
            msg = f'demonstration {self.episode_id!r} has {count} samples: expected 2 or more'
            raise InputError(msg)
        if np.any(np.diff(self.stamps_ns) <= 0):
            msg = f'demonstration {self.episode_id!r} has stamps that go back: record it again'
            raise InputError(msg)
        if self.positions is None and self.joint_speeds is None:
            msg = (
                f'demonstration {self.episode_id!r} has neither positions nor joint speeds: '
                'expected one of them'
            )
            raise InputError(msg)

    def __len__(self) -> int:
        """Give the number of samples."""
        return len(self.stamps_ns)

    def seconds(self) -> NDArray[np.float64]:
        """Time of each sample since the first one [s]. Shape (N,)."""
        return np.asarray((self.stamps_ns - self.stamps_ns[0]) / NS_PER_S)

    def tool_speeds(self) -> NDArray[np.float64]:
        """Speed of the end effector at each sample [m/s], by differences. Shape (N,).

        Raises:
            InputError: Its positions are not known.
        """
        if self.positions is None:
            msg = f'demonstration {self.episode_id!r} has no positions: its joints alone are known'
            raise InputError(msg)
        velocity = np.gradient(self.positions, self.seconds(), axis=0)
        return np.asarray(np.linalg.norm(velocity, axis=1))

    def position(self, index: int) -> Vector | None:
        """Where the end effector is at a sample [m]; None: not known."""
        if self.positions is None:
            return None
        x, y, z = (float(value) for value in self.positions[index])
        return x, y, z

    def joint_turns(self) -> NDArray[np.float64]:
        """How far each joint has turned since the first sample [rad], by its speed. Shape (N, J).

        Raises:
            InputError: Its joint speeds are not known.
        """
        if self.joint_speeds is None:
            msg = f'demonstration {self.episode_id!r} has no joint speeds: expected some'
            raise InputError(msg)
        means = (self.joint_speeds[1:] + self.joint_speeds[:-1]) / 2
        steps = means * np.diff(self.seconds())[:, None]
        return np.vstack([np.zeros(self.joint_speeds.shape[1]), np.cumsum(steps, axis=0)])

    def at_rate(self, rate_hz: float) -> Demonstration:
        """The same at even times: at each the newest sample that is not later.

        Args:
            rate_hz: Samples per second, more than 0.
        """
        step_ns = round(NS_PER_S / rate_hz)
        stamps = np.arange(self.stamps_ns[0], self.stamps_ns[-1] + 1, step_ns, dtype=np.int64)
        indices = np.searchsorted(self.stamps_ns, stamps, side='right') - 1
        return replace(
            self,
            stamps_ns=stamps,
            positions=None if self.positions is None else self.positions[indices],
            openings=None if self.openings is None else self.openings[indices],
            joint_speeds=None if self.joint_speeds is None else self.joint_speeds[indices],
            orientations=None if self.orientations is None else self.orientations[indices],
        )


@dataclass(frozen=True)
class Keypoint:
    """Where the arm comes to, and why that counts."""

    index: int  # of its sample
    stamp_ns: int
    position: Vector | None  # of the end effector in the task frame [m]; None: not known
    is_open: bool | None  # the gripper; None: not recorded
    reason: str  # 'gripper', 'stop' or 'last'

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        gripper = None if self.is_open is None else 'open' if self.is_open else 'closed'
        return {
            'index': self.index,
            'stamp_ns': self.stamp_ns,
            'position': None if self.position is None else list(self.position),
            'gripper': gripper,
            'reason': self.reason,
        }


_SAME_PLACE_M = 0.02  # between two keypoints of which only the gripper differs


@dataclass(frozen=True)
class ArmState:
    """An arm at one stamp."""

    stamp_ns: int
    position: Position  # of the end effector in the task frame [m]
    closed: bool | None = None  # the gripper, at keypoints; None: not known


@dataclass(frozen=True)
class ArmEpisode:
    """An arm that is shown a task, from its first state to its last."""

    task: str  # in words
    frame_id: str  # the task frame
    states: tuple[ArmState, ...]  # in order of time
    keypoints: tuple[int, ...]  # indices of states, rising
    camera: Pose | None = None  # optical frame in the task frame; None: not known
    intrinsics: Intrinsics | None = None
    metadata: RobotMetadata | None = None  # as the recording states it; None: it does not
    view: TableView | None = None  # how things on the table are placed; None: they are not

    def __post_init__(self) -> None:
        """Refuse what contradicts itself.

        Raises:
            InputError: Keypoints are no rising indices of states, or stamps do not rise.
        """
        stamps = [state.stamp_ns for state in self.states]
        if any(b <= a for a, b in pairwise(stamps)):
            msg = f'demonstration of {self.task!r}: expected states in order of time'
            raise InputError(msg)
        rising = sorted(set(self.keypoints)) == list(self.keypoints)
        if not rising or not set(self.keypoints) <= set(range(len(stamps))):
            msg = (
                f'demonstration of {self.task!r}: keypoints are {list(self.keypoints)}, '
                f'expected rising indices of {len(stamps)} states'
            )
            raise InputError(msg)

    @property
    def keypoint_places(self) -> list[Position]:
        """Positions of its keypoints [m]."""
        return [self.states[index].position for index in self.keypoints]

    def keypoint_pairs(self, stride: int) -> Iterator[tuple[int, int]]:
        """Every `stride`-th state with the keypoint after it, as indices of states.

        As in ARM and Robot-R1, the next keypoint is the first one that comes strictly later.
        A state with no later keypoint is left out.
        """
        for index in range(0, len(self.states), stride):
            later = next((keypoint for keypoint in self.keypoints if keypoint > index), None)
            if later is not None:
                yield index, later

    def gripping_on_arrival(self) -> ArmEpisode:
        """The same where the gripper acts as the arm arrives, not at a keypoint of its own.

        A keypoint at which only the gripper moves goes away; the one before it, at which the arm
        came to that place, has the gripper as it is afterwards.
        """
        keypoints: list[int] = []
        states = list(self.states)
        for index in self.keypoints:
            now, before = states[index], states[keypoints[-1]] if keypoints else None
            is_there = before and math.dist(before.position, now.position) < _SAME_PLACE_M
            if before and is_there and before.closed is not now.closed:
                states[keypoints[-1]] = replace(before, closed=now.closed)
            else:
                keypoints.append(index)
        return replace(self, states=tuple(states), keypoints=tuple(keypoints))

    def state_at(self, stamp_ns: int) -> ArmState | None:
        """The newest state that is not later than a stamp; None: there is none."""
        after = bisect_right(self.states, stamp_ns, key=lambda state: state.stamp_ns)
        return self.states[after - 1] if after else None


def arm_episode(
    samples: Demonstration,
    keypoints: Sequence[Keypoint],
    camera: tuple[Pose | None, Intrinsics | None] = (None, None),
    metadata: RobotMetadata | None = None,
) -> ArmEpisode:
    """Put together what questions are made of.

    Args:
        samples: What the arm did, sample by sample.
        keypoints: Where it came to, in order.
        camera: Pose of its optical frame in the task frame, and intrinsics, where known.
        metadata: What the recording states about the robot; None: nothing.

    Raises:
        InputError: It contradicts itself, or its positions are not known.
    """
    if samples.positions is None:
        msg = f'demonstration of {samples.task!r} has no positions: its joints alone are known'
        raise InputError(msg)
    is_open = {keypoint.index: keypoint.is_open for keypoint in keypoints}
    states = []
    for index, (stamp_ns, position) in enumerate(
        zip(samples.stamps_ns.tolist(), samples.positions.tolist(), strict=True)
    ):
        x, y, z = position
        opened = is_open.get(index)
        states.append(ArmState(stamp_ns, (x, y, z), None if opened is None else not opened))
    indices = tuple(keypoint.index for keypoint in keypoints)
    return ArmEpisode(samples.task, samples.frame_id, tuple(states), indices, *camera, metadata)


@dataclass(frozen=True)
class TrueKeypoint:
    """A waypoint of the expert, and from when to when the arm is there."""

    stamp_ns: int  # the motion to it ends, or the gripper gets its command
    until_ns: int  # the next motion begins
    position: Vector  # of the tool, as it was commanded [m]
    closed: bool  # the gripper, at its end
    reason: str  # 'stop', 'gripper' or 'last'


@dataclass(frozen=True)
class TrueThing:
    """A thing of the scene, and where it is at each recorded stamp."""

    name: str  # 'block', 'support', 'mat' or 'drawer'
    label: str  # in words
    positions: tuple[Vector, ...]  # centre, or the handle of a drawer [m]


@dataclass(frozen=True)
class DemonstrationTruth:
    """Everything that is true of a demonstration."""

    stamps_ns: tuple[int, ...]  # of the positions of things
    things: tuple[TrueThing, ...]
    keypoints: tuple[TrueKeypoint, ...]
    frame_id: str
    version: int = TRUTH_VERSION

    def to_json(self) -> str:
        """One line of JSON; lengths are rounded to 0.00001 m."""
        return truth_to_json(asdict(self), digits=5)

    @classmethod
    def from_json(cls, text: str) -> DemonstrationTruth:
        """Read what `to_json` wrote.

        Raises:
            InputError: It is not JSON, is of another version, or a field is missing or unknown.
        """
        return truth_from_json(text, 'truth', TRUTH_VERSION, _truth, 'simulate it again')


def _truth(value: dict[str, Any]) -> DemonstrationTruth:
    things = tuple(
        TrueThing(**{**item, 'positions': tuple(as_position(at) for at in item['positions'])})
        for item in value['things']
    )
    keypoints = tuple(
        TrueKeypoint(**{**item, 'position': as_position(item['position'])})
        for item in value['keypoints']
    )
    stamps = tuple(int(stamp) for stamp in value['stamps_ns'])
    values = {'stamps_ns': stamps, 'things': things, 'keypoints': keypoints}
    return DemonstrationTruth(**{**value, **values})
