# SPDX-License-Identifier: Apache-2.0
"""What a robot's recordings call things: its topics, frames, joints and gripper.

It travels in a bag of ours on `arm_setup`, as JSON; for other bags a user writes it as YAML.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import json
from typing import TYPE_CHECKING

from embodied_r_ros.config import check_settings, config_from_mapping, setting
from embodied_r_ros.errors import ConfigError
from embodied_r_ros.yaml_files import read_yaml

if TYPE_CHECKING:
    from pathlib import Path

SETUP_TOPIC = '/arm_setup'
_LISTS = ('joints', 'gripper_joints', 'reference', 'gripper_size')


@dataclass(frozen=True)
class ArmSetup:
    """How to read the demonstrations of one robot."""

    frame_id: str = setting('table_center', 'Task frame; positions are in it (REP 103 axes)')
    tool_frame: str = setting('tool', 'Frame of the end effector')
    poses: str = setting(
        'auto', 'Where its pose comes from', choices=('auto', 'topic', 'tf', 'urdf')
    )
    pose_topic: str = setting('', 'PoseStamped topic; empty: the only one')
    image_topic: str = setting('', 'Camera that faces the robot; empty: the only one')
    joint_topic: str = setting('', 'JointState of the arm; empty: the only one, or /joint_states')
    joints: tuple[str, ...] = setting((), 'Joints of the arm; empty: all but those of the gripper')
    gripper_topic: str = setting('', 'JointState of the gripper; empty: that of the arm')
    gripper_joints: tuple[str, ...] = setting((), 'Added up, they are its opening; empty: none')
    gripper_closed: float = setting(0.0, 'Their sum when it is closed', between=(-1e6, 1e6))
    gripper_open: float = setting(1.0, 'Their sum when it is open', between=(-1e6, 1e6))
    urdf: str = setting('', 'File with the URDF; empty: /robot_description of the bag')
    task: str = setting('', 'Task in words, where the bag has no episode marks')
    reference: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'Centre of the table in the task frame [m]'
    )
    gripper_size: tuple[float, ...] = setting((), 'Gripper along x, y, z [m]; empty: not known')

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)
        if self.gripper_joints and self.gripper_open == self.gripper_closed:
            msg = f'gripper_open and gripper_closed are both {self.gripper_open}: expected two'
            raise ConfigError(msg)
        for name in ('reference', 'gripper_size'):
            if len(value := getattr(self, name)) not in ((3,) if name == 'reference' else (0, 3)):
                msg = f'{name} is {value!r}: expected three numbers x, y, z [m]'
                raise ConfigError(msg)

    def opening(self, total: float) -> float:
        """Opening of the gripper, 0 closed to 1 open, of the sum of its joints."""
        return (total - self.gripper_closed) / (self.gripper_open - self.gripper_closed)

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_mapping(cls, value: object, source: str) -> ArmSetup:
        """Read plain values, as of YAML or JSON.

        Raises:
            ConfigError: They are no settings of this class.
        """
        if not isinstance(value, dict):
            msg = (
                f'{source} is not a list of settings of an arm: expected `frame_id: …` and others'
            )
            raise ConfigError(msg)
        listed = {
            name: tuple(item) if name in _LISTS and isinstance(item, list) else item
            for name, item in value.items()
        }
        try:
            return config_from_mapping(cls, listed)
        except ConfigError as error:
            msg = f'{source}: {error}'
            raise ConfigError(msg) from None

    @classmethod
    def from_json(cls, text: str) -> ArmSetup:
        """Read what `to_json` wrote.

        Raises:
            ConfigError: It is something else.
        """
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        return cls.from_mapping(value, SETUP_TOPIC)

    @classmethod
    def from_yaml(cls, path: Path) -> ArmSetup:
        """Read a file of settings.

        Raises:
            ConfigError: It cannot be read, or has a setting that is not known or not allowed.
        """
        return cls.from_mapping(read_yaml(path), str(path))
