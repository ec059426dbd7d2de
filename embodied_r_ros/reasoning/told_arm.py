# SPDX-License-Identifier: Apache-2.0
"""An arm as live prompts tell it: in its task frame, where words for axes hold for its camera."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from embodied_r_ros.camera_axes import axis_view, turned
from embodied_r_ros.errors import InputError
from embodied_r_ros.perception.placing import table_view

if TYPE_CHECKING:
    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.perception.placing import TableView
    from embodied_r_ros.robots import Robot, RobotMetadata

Position = tuple[float, float, float]  # [m]


@dataclass(frozen=True)
class ToldArm:
    """What is told of an arm, in a frame of its own: the task frame, turned where need be."""

    robot: Robot | None = None  # None: nothing is told of one
    view: TableView | None = None  # its table; None: where the camera is, is not known
    quarters: int = 0  # turns of the task frame about z by 90 degrees

    @property
    def metadata(self) -> RobotMetadata | None:
        """What is told of the robot, in that frame."""
        return self.robot.metadata if self.robot else None

    def frame(self, frame_id: str) -> str:
        """Name of that frame, for positions of the frame that is named."""
        return self.robot.metadata.frame_id if self.robot else frame_id

    def told(self, position: Position) -> Position:
        """A position of the task frame in that frame [m]."""
        return turned(position, self.quarters) if self.quarters else position

    def meant(self, position: Position) -> Position:
        """A position of that frame in the task frame [m]."""
        return turned(position, -self.quarters) if self.quarters else position


def told_arm(robot: Robot, camera: Pose | None, tool: Position | None = None) -> ToldArm:
    """How an arm is told, by how its camera stands.

    Args:
        robot: What its file tells; `questions.camera` says which cameras are allowed.
        camera: Pose of the optical frame in the task frame; None: as the file places it. Where
            that is unknown too, nothing can be checked.
        tool: Where the end effector was when the image was taken [m]; None: not known.

    Raises:
        InputError: Words for axes do not hold for the camera, or only in a turned frame, which is
            not allowed.
    """
    view = table_view(camera, robot.metadata, robot.placing, tool)
    quarters = _quarters(view.camera, robot) if view else 0
    if view is None or not quarters:
        return ToldArm(robot, view)
    robot = replace(robot, metadata=robot.metadata.turned(quarters))
    return ToldArm(robot, view.turned(quarters), quarters)


def _quarters(camera: Pose, robot: Robot) -> int:
    """Quarters by which the task frame is turned, so that its words hold."""
    allowed = robot.questions.camera
    if allowed == 'declared':
        return 0
    seen = axis_view(camera, robot.metadata.reference)
    if seen.why_not:
        msg = (
            f'no words for axes hold for the camera: {seen.why_not}. Correct its pose '
            "(camera_position in the robot's file, or tf), or set `camera: declared` in the "
            "file's questions where it faces the robot"
        )
        raise InputError(msg)
    if seen.quarters and allowed == 'facing':
        msg = (
            f'the camera does not face the robot, but stands {90 * seen.quarters} degrees round '
            "from there: `camera: any` in the questions of the robot's file asks in a frame that "
            'is turned so far'
        )
        raise InputError(msg)
    return seen.quarters
