# SPDX-License-Identifier: Apache-2.0
"""A small bag of an arm with two joints, whose end effector is known."""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration_bag import (
    ArmFrame,
    DemonstrationHead,
    write_demonstration,
)
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.core.types.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.core.types.images import encode_image
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

FRAME, RATE_HZ = 'table_center', 20.0
SETUP = ArmSetup(
    joints=('shoulder', 'elbow'),
    gripper_joints=('finger',),
    gripper_closed=0.0,
    gripper_open=0.04,
    gripper_topic='/gripper/joint_states',
    joint_topic='/joint_states',
)
URDF = """<robot name="two"><link name="base"/><link name="upper"/><link name="lower"/>
<link name="tool"/>
<joint name="shoulder" type="revolute"><parent link="base"/><child link="upper"/>
<origin xyz="0 0 0.2"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/>
</joint>
<joint name="elbow" type="revolute"><parent link="upper"/><child link="lower"/>
<origin xyz="0.4 0 0"/><axis xyz="0 0 1"/><limit lower="-3" upper="3" effort="1" velocity="1"/>
</joint>
<joint name="flange" type="fixed"><parent link="lower"/><child link="tool"/>
<origin xyz="0.3 0 0"/></joint></robot>"""
BASE = Pose((-0.5, 0.1, 0.0), (0.0, 0.0, 0.0, 1.0), FRAME)


def facing(place: tuple[float, float, float], yaw: float, parent: str) -> Pose:
    return Pose(place, quaternion_from_matrix(rotation_from_ypr(yaw, 0.0, 0.0)), parent)


def tool_at(shoulder: float, elbow: float) -> tuple[float, float, float]:
    """Where the end effector is in the task frame, by the law of the two links."""
    both = shoulder + elbow
    x = -0.5 + 0.4 * math.cos(shoulder) + 0.3 * math.cos(both)
    y = 0.1 + 0.4 * math.sin(shoulder) + 0.3 * math.sin(both)
    return x, y, 0.2


def angles(seconds: float) -> tuple[float, float]:
    """Still for half a second, on the way for one, still for one, back for one, still."""
    way = float(np.interp(seconds, [0.5, 1.5, 2.5, 3.5], [0.0, 0.6, 0.6, 0.1]))
    return way, -way / 2


def write_bag(path: Path, *, poses: bool = True, links: bool = True, **more: Any) -> None:
    """Write a demonstration of 4.5 s that closes its gripper at 2 s."""
    frames = []
    for index in range(90):
        at = index / RATE_HZ
        (q0, q1), (p0, p1) = angles(at), angles(at + 1e-3)
        image = np.full((24, 32, 3), index, np.uint8)
        frames.append(
            ArmFrame(
                stamp_ns=10**9 + round(at * 1e9),
                tool=Pose(tool_at(q0, q1), (0.0, 0.0, 0.0, 1.0), FRAME) if poses else None,
                joints=(q0, q1),
                velocities=() if more.get('still') else ((p0 - q0) * 1e3, (p1 - q1) * 1e3),
                gripper=(float(np.interp(at, [2.0, 2.2], [0.04, 0.01])),),
                image=encode_image(image),
                links={
                    'upper': facing((0.0, 0.0, 0.2), q0, 'base'),
                    'lower': facing((0.4, 0.0, 0.0), q1, 'upper'),
                }
                if links
                else {},
            )
        )
    fixed = {'base': BASE, 'tool': facing((0.3, 0.0, 0.0), 0.0, 'lower')}
    fixed = fixed if links else {'base': BASE}
    head = DemonstrationHead(
        'two-1',
        'bench',
        'wave',
        EpisodeOutcome.SUCCESS,
        more.get('setup', SETUP),
        {},
        fixed=fixed,
        urdf=more.get('urdf', URDF),
    )
    write_demonstration(path, head, frames)
