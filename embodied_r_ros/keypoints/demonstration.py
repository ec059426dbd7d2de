# SPDX-License-Identifier: Apache-2.0
"""A demonstration as numbers: what the arm did, sample by sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import InputError
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.recordings.layout import Vector
    from numpy.typing import NDArray

_NS = 1_000_000_000


@dataclass(frozen=True)
class Demonstration:
    """Samples of one demonstration, in order of time."""

    stamps_ns: NDArray[np.int64]  # (N,)
    positions: NDArray[np.float64]  # (N, 3), end effector in the task frame [m]
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

    def __len__(self) -> int:
        """Give the number of samples."""
        return len(self.stamps_ns)

    def seconds(self) -> NDArray[np.float64]:
        """Time of each sample since the first one [s]. Shape (N,)."""
        return np.asarray((self.stamps_ns - self.stamps_ns[0]) / _NS)

    def tool_speeds(self) -> NDArray[np.float64]:
        """Speed of the end effector at each sample [m/s], by differences. Shape (N,)."""
        velocity = np.gradient(self.positions, self.seconds(), axis=0)
        return np.asarray(np.linalg.norm(velocity, axis=1))

    def position(self, index: int) -> Vector:
        """Where the end effector is at a sample [m]."""
        x, y, z = (float(value) for value in self.positions[index])
        return x, y, z

    def at_rate(self, rate_hz: float) -> Demonstration:
        """The same at even times: at each the newest sample that is not later.

        Args:
            rate_hz: Samples per second, more than 0.
        """
        step_ns = round(_NS / rate_hz)
        stamps = np.arange(self.stamps_ns[0], self.stamps_ns[-1] + 1, step_ns, dtype=np.int64)
        taken = np.searchsorted(self.stamps_ns, stamps, side='right') - 1
        return replace(
            self,
            stamps_ns=stamps,
            positions=self.positions[taken],
            openings=None if self.openings is None else self.openings[taken],
            joint_speeds=None if self.joint_speeds is None else self.joint_speeds[taken],
            orientations=None if self.orientations is None else self.orientations[taken],
        )


@dataclass(frozen=True)
class Keypoint:
    """Where the arm comes to, and why that counts."""

    index: int  # of its sample
    stamp_ns: int
    position: Vector  # of the end effector in the task frame [m]
    is_open: bool | None  # the gripper; None: not recorded
    reason: str  # 'gripper', 'stop' or 'last'

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        gripper = None if self.is_open is None else 'open' if self.is_open else 'closed'
        return {
            'index': self.index,
            'stamp_ns': self.stamp_ns,
            'position': list(self.position),
            'gripper': gripper,
            'reason': self.reason,
        }
