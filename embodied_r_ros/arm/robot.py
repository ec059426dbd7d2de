# SPDX-License-Identifier: Apache-2.0
"""A robot: what its recordings call things, and what prompts say of its frame and size."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.arm.candidates import CandidatesConfig
from embodied_r_ros.arm.keypoint_rules import RULES, SecondsRule
from embodied_r_ros.arm.table import PlacingConfig
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.settings import config_from_mapping, read_yaml, setting, Settings
from embodied_r_ros.core.types.geometry import position_text
from embodied_r_ros.data.arm_room import SETUP_TOPIC

if TYPE_CHECKING:
    from embodied_r_ros.arm.candidates import Box

_LISTS = ('joints', 'gripper_joints', 'reference', 'gripper_size')


@dataclass(frozen=True)
class ArmSetup(Settings):
    """How to read the demonstrations of one robot."""

    frame_id: str = setting('table_center', 'Task frame; positions are in it (REP 103 axes)')
    tool_frame: str = setting('tool', 'Frame of the end effector')
    poses: str = setting(
        'auto',
        'Where its pose comes from; none: it is not known, joints alone are',
        choices=('auto', 'topic', 'tf', 'urdf', 'none'),
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
        super().__post_init__()
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
        settings = {
            name: tuple(item) if name in _LISTS and isinstance(item, list) else item
            for name, item in value.items()
        }
        try:
            return config_from_mapping(cls, settings)
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


Section = TypeVar('Section')
ROBOT_KINDS = ('waypoint', 'current_state', 'movement')
_FAR_M = 1e6  # no arm gets there
_NUMBERS = ('reference', 'gripper_size', 'workspace_low', 'workspace_high')


@dataclass(frozen=True)
class RobotMetadata(Settings):
    """What a prompt states about a robot and its coordinates."""

    frame_id: str = setting('table_center', 'task frame; positions are in it')
    axes: str = setting(
        'x grows towards the camera, which is forward, y to the right in the image, z upward.',
        'which way the axes of the task frame go, as a sentence; empty: not told',
    )
    reference_name: str = setting('The centre of the table', 'what the reference point is')
    reference: tuple[float, ...] = setting(
        (0.0, 0.0, 0.0), 'a point of the workspace, x, y, z in the task frame [m]'
    )
    gripper_size: tuple[float, ...] = setting(
        (), 'gripper along x, y, z of the task frame [m]; empty: not told'
    )
    finger_length_m: float = setting(0.0, 'length of its fingers [m]; 0: not told', between=(0, 1))
    workspace_low: tuple[float, ...] = setting(
        (), 'least x, y, z that the end effector reaches [m]; empty: 0.1 m around what was shown'
    )
    workspace_high: tuple[float, ...] = setting((), 'greatest x, y, z [m]; empty: likewise')

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        super().__post_init__()
        for name in _NUMBERS:
            value = getattr(self, name)
            is_missing = not value and name != 'reference'
            if not is_missing and (len(value) != 3 or not all(map(_is_finite, value))):
                msg = f'{name} is {value!r}: expected three numbers x, y, z [m]'
                raise ConfigError(msg)
        low, high = self.workspace_low, self.workspace_high
        if len(low) != len(high) or any(a >= b for a, b in zip(low, high, strict=True)):
            msg = f'workspace {low!r} to {high!r}: expected both ends, the lower ones first'
            raise ConfigError(msg)

    def workspace(self) -> Box:
        """Least and greatest x, y, z at which the end effector may be [m].

        Raises:
            ConfigError: They are not stated.
        """
        if not self.workspace_low:
            msg = 'the workspace is not told: set workspace_low and workspace_high of the metadata'
            raise ConfigError(msg)
        (x, y, z), (a, b, c) = self.workspace_low, self.workspace_high
        return (x, y, z), (a, b, c)

    def text(self) -> str:
        """Axes, reference point and size, in sentences."""
        sentences = [
            ' '.join(self.axes.split()),
            f'{self.reference_name} is at {position_text(self.reference)}.',
        ]
        if self.gripper_size:
            x, y, z = (f'{value:.3f}' for value in self.gripper_size)
            sentences.append(f'The gripper measures {x} along x, {y} along y and {z} along z.')
        if self.finger_length_m:
            sentences.append(f'Its fingers are {self.finger_length_m:.3f} long.')
        return ' '.join(filter(None, sentences))


@dataclass(frozen=True)
class RobotQuestionsConfig(Settings):
    """How questions are made of demonstrations; what Robot-R1 leaves open has a setting here."""

    kinds: tuple[str, ...] = setting(ROBOT_KINDS, f'which are asked, of {", ".join(ROBOT_KINDS)}')
    stride: int = setting(10, 'every so many recorded states are asked about', between=(1, 1000))
    options: int = setting(4, 'options of a question', between=(2, 8))
    keypoint_rule: str = setting(
        'seconds',
        'which positions are keypoints: seconds (real robots), or as in the code of ARM (arm)',
        choices=RULES,
    )
    deadband_m: float = setting(
        0.005, 'a component of a movement of at most this is silent [m]', between=(0, 1)
    )
    grip: str = setting(
        'apart',
        'a motion of the gripper where the arm stands: a keypoint of its own (apart), or of the '
        'keypoint before it, at which the gripper then acts on arrival (arrival)',
        choices=('apart', 'arrival'),
    )
    distractors: str = setting(
        'mixed',
        'where wrong positions come from: the demonstration, the workspace, or both; candidates: '
        'options of waypoint questions are what the section `candidates` proposes, as on the '
        'robot, and the right one is that nearest to the keypoint',
        choices=('mixed', 'demonstration', 'workspace', 'candidates'),
    )
    min_distance_m: float = setting(
        0.05, 'from a wrong position to every other option, at least [m]', between=(0.001, 1)
    )
    nearness: str = setting(
        'any',
        'how near wrong positions of waypoint questions are to the state that is told: any, or '
        'balanced, so that the right one is as often the farthest as the nearest',
        choices=('any', 'balanced'),
    )
    wrong_movements: str = setting(
        'square',
        'wrong movements: corners of a square with the right one, or those that differ on one '
        'axis (adjacent, which gives the right one away: it is what all have in common)',
        choices=('square', 'adjacent'),
    )
    camera: str = setting(
        'facing',
        'cameras that do not face the robot: refused (facing), or nothing is checked (declared)',
        choices=('facing', 'declared'),
    )
    gripper: bool = setting(False, 'ask of the gripper at the keypoint too (not in Robot-R1)')

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        super().__post_init__()
        for kind in self.kinds:
            if kind not in ROBOT_KINDS:
                msg = f'kinds has {kind!r}: expected some of {", ".join(ROBOT_KINDS)}'
                raise ConfigError(msg)


@dataclass(frozen=True)
class Robot:
    """A robot, as its file describes it."""

    name: str = 'robot'
    metadata: RobotMetadata = field(default_factory=RobotMetadata)
    questions: RobotQuestionsConfig = field(default_factory=RobotQuestionsConfig)
    setup: ArmSetup | None = None  # how to read its recordings; None: as they say
    placing: PlacingConfig = field(default_factory=PlacingConfig)
    candidates: CandidatesConfig = field(default_factory=CandidatesConfig)
    stops: SecondsRule = field(default_factory=SecondsRule)  # what counts for `seconds`


def _is_finite(value: Any) -> bool:
    return type(value) in (int, float) and -_FAR_M <= value <= _FAR_M


def load_robot(name: str) -> Robot:
    """Load a shipped robot by its name, or one of the user's by the path of its file.

    Raises:
        ConfigError: It is missing, not YAML, or has a setting that is not allowed.
    """
    path = _robot_path(name)
    try:
        robot = robot_from_mapping(path.stem, read_yaml(path))
    except ConfigError as error:
        msg = f'robot {path}: {error}'
        raise ConfigError(msg) from None
    if not robot.setup or not robot.setup.urdf:
        return robot
    # As it lies beside the file, wherever the program runs; an absolute path stays.
    return replace(robot, setup=replace(robot.setup, urdf=str(path.parent / robot.setup.urdf)))


def robot_from_mapping(name: str, value: Any) -> Robot:
    """Make a robot of the plain values of a YAML file.

    Raises:
        ConfigError: Something is unknown or not allowed.
    """
    sections = {} if value is None else value
    names = [each.name for each in fields(Robot) if each.name != 'name']
    if not isinstance(sections, dict) or not set(sections) <= set(names):
        msg = f'it has {value!r}: expected the sections {", ".join(names)}'
        raise ConfigError(msg)
    return Robot(
        name,
        _section(RobotMetadata, 'metadata', sections),
        _section(RobotQuestionsConfig, 'questions', sections),
        ArmSetup.from_mapping(sections['setup'], 'setup') if 'setup' in sections else None,
        _section(PlacingConfig, 'placing', sections),
        _section(CandidatesConfig, 'candidates', sections),
        _section(SecondsRule, 'stops', sections),
    )


def _section(kind: type[Section], name: str, sections: dict[str, Any]) -> Section:
    values = sections.get(name) or {}
    if not isinstance(values, dict):
        msg = f'{name} is {values!r}: expected names and values'
        raise ConfigError(msg)
    settings = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
    return config_from_mapping(kind, settings)


def _robot_path(name: str) -> Path:
    if name.endswith(('.yaml', '.yml')) or '/' in name:
        return Path(name).expanduser()
    folder = shared_path('config', 'robots')
    names = sorted(path.stem for path in folder.glob('*.yaml'))
    if name not in names:
        msg = f'no robot {name!r}: known: {", ".join(names)} (or give the path of a YAML file)'
        raise ConfigError(msg)
    return folder / f'{name}.yaml'
