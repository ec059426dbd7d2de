# SPDX-License-Identifier: Apache-2.0
"""What is true of a simulated demonstration: its keypoints, by construction, and where things are.

It travels in the bag as JSON on `truth/demonstration`. Positions are in the task frame.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.types.layout import as_vector, truth_from_json, truth_to_json

if TYPE_CHECKING:
    from embodied_r_ros.types.layout import Vector

TRUTH_TOPIC = '/truth/demonstration'
TRUTH_VERSION = 1


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
        TrueThing(**{**item, 'positions': tuple(as_vector(at) for at in item['positions'])})
        for item in value['things']
    )
    keypoints = tuple(
        TrueKeypoint(**{**item, 'position': as_vector(item['position'])})
        for item in value['keypoints']
    )
    stamps = tuple(int(stamp) for stamp in value['stamps_ns'])
    values = {'stamps_ns': stamps, 'things': things, 'keypoints': keypoints}
    return DemonstrationTruth(**{**value, **values})
