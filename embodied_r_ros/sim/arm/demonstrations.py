# SPDX-License-Identifier: Apache-2.0
"""Demonstrations of the simulated arm: the expert shows a task, and what succeeds is kept."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueThing, TRUTH_TOPIC
from embodied_r_ros.arm.demonstration_bag import (
    ArmFrame,
    CAMERA_FRAME,
    DemonstrationHead,
    GRIPPER_TOPIC,
    JOINT_TOPIC,
    write_demonstration,
)
from embodied_r_ros.arm.robot import ArmSetup
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.core.types.geometry import NS_PER_S, yaw_pitch_roll
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.sim.arm.tasks import schedule, TASKS, true_keypoints
from embodied_r_ros.sim.arm.world import (
    ArmRenderer,
    ArmWorld,
    BASE_FRAME,
    camera_pose,
    CHAIN,
    CLOSED_M,
    GRIPPER_JOINTS,
    GRIPPER_SIZE_M,
    JOINTS,
    LEAD_S,
    OPEN_M,
    TASK_FRAME,
    TOOL_FRAME,
    TOOL_M,
)
from embodied_r_ros.sim.indoor.episodes import EpisodeOrigin
from embodied_r_ros.sim.runs import run_episodes
import mujoco
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.geometry import Pose
    from embodied_r_ros.core.types.layout import Vector
    from embodied_r_ros.sim.arm.tasks import ArmScene, Leg
    from embodied_r_ros.sim.runs import SimArmConfig

START_NS = 1_700_000_000_000_000_000
_ATTEMPTS = 20  # draws per demonstration
# What encoders of such an arm are good for.
_POSITION_NOISE_RAD, _VELOCITY_NOISE_RAD_S, _FINGER_NOISE_M = 1e-4, 4e-3, 1e-4


@dataclass(frozen=True)
class ExpertAttempt:
    """What one attempt of the expert came to."""

    scene: ArmScene
    frames: tuple[ArmFrame, ...]
    truth: DemonstrationTruth
    urdf: str
    fixed: dict[str, Pose]  # frames that never move, in their parents
    is_success: bool


def generate(
    config: SimArmConfig, seed: int, episodes: int, out: Path, workers: int = 1
) -> Iterator[Path]:
    """Write demonstrations that succeeded, one bag each, and yield their folders.

    Args:
        config: What they are like.
        seed: Seed of the run, not negative.
        episodes: How many to keep.
        out: Folder for the bags; it does not exist yet, or is empty.
        workers: Processes to use; 1: this one.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
        EmbodiedRError: The expert fails again and again.
    """
    write = partial(_write, config, seed, out)
    return run_episodes(write, seed, episodes, out, workers)


def demonstrate(config: SimArmConfig, origin: EpisodeOrigin) -> ExpertAttempt:
    """Let the expert show a task once.

    Args:
        config: The task, and what is recorded.
        origin: Which draw of which run it is; decides everything that chance does.
    """
    task = TASKS[config.task]
    # One stream each, so that what is measured does not change what happens.
    key = [origin.seed, origin.index, origin.attempt, sorted(TASKS).index(config.task)]
    world_rng, noise_rng = (np.random.default_rng([*key, part]) for part in range(2))
    scene = task.draw(world_rng)
    legs = schedule(task.plan(scene), world_rng)
    world = ArmWorld(scene)
    places: list[dict[str, Vector]] = []
    frames = []
    for frame in _record(world, legs, config, noise_rng):
        frames.append(frame)
        places.append(world.places())
    things = tuple(
        TrueThing(
            thing.name, f'{thing.colour} {thing.name}', tuple(at[thing.name] for at in places)
        )
        for thing in scene.things
    )
    stamps = tuple(frame.stamp_ns for frame in frames)
    truth = DemonstrationTruth(stamps, things, true_keypoints(legs, START_NS), TASK_FRAME)
    return ExpertAttempt(
        scene=scene,
        frames=tuple(frames),
        truth=truth,
        urdf=_urdf_of(world.model),
        fixed=world.fixed(),
        is_success=task.is_done(scene, places[-1]),
    )


def _record(
    world: ArmWorld, legs: Sequence[Leg], config: SimArmConfig, rng: np.random.Generator
) -> Iterator[ArmFrame]:
    """What is recorded while the expert goes its way."""
    if not config.images:
        yield from _states(world, legs, config, rng, None)
        return
    with ArmRenderer(world, config.camera()) as renderer:
        yield from _states(world, legs, config, rng, renderer)


def _states(
    world: ArmWorld,
    legs: Sequence[Leg],
    config: SimArmConfig,
    rng: np.random.Generator,
    renderer: ArmRenderer | None,
) -> Iterator[ArmFrame]:
    for index in range(int(legs[-1].end_s * config.rate_hz) + 1):
        at_s = index / config.rate_hz
        _lead_until(world, legs, at_s)
        image = encode_image(renderer.image(), config.jpeg_quality) if renderer else None
        positions, velocities = world.joints()
        positions += rng.normal(0.0, config.noise * _POSITION_NOISE_RAD, len(positions))
        velocities += rng.normal(0.0, config.noise * _VELOCITY_NOISE_RAD_S, len(velocities))
        fingers = world.fingers() + rng.normal(0.0, config.noise * _FINGER_NOISE_M, 2)
        yield ArmFrame(
            stamp_ns=START_NS + round(at_s * NS_PER_S),
            tool=world.tool(),
            joints=tuple(positions.tolist()),
            velocities=tuple(velocities.tolist()),
            gripper=tuple(fingers.tolist()),
            image=image,
            links=world.links(),
        )


def _lead_until(world: ArmWorld, legs: Sequence[Leg], until_s: float) -> None:
    """Lead the tool along its legs until a time since the start [s]."""
    while (now := float(world.data.time)) < until_s - 1e-9:
        leg = next((leg for leg in legs if now < leg.end_s), legs[-1])
        if now >= leg.begin_s:
            world.lead(leg.tool_at(now), closed=leg.waypoint.closed)
        world.advance(min(until_s, now + LEAD_S))


def _write(config: SimArmConfig, seed: int, out: Path, index: int) -> Path:
    for attempt in range(_ATTEMPTS):
        origin = EpisodeOrigin(seed, index, attempt)
        result = demonstrate(config, origin)
        if result.is_success:
            path = out / f'episode_{index:05d}'
            write_demonstration(path, _head(result, config, origin), result.frames)
            return path
    msg = (
        f'demonstration {index} of seed {seed}: the expert failed {_ATTEMPTS} times at '
        f'{config.task}: choose another seed'
    )
    raise EmbodiedRError(msg)


def _head(
    attempt: ExpertAttempt, config: SimArmConfig, origin: EpisodeOrigin
) -> DemonstrationHead:
    name = f'{config.task}-{origin.seed}-{origin.index:05d}'
    setup = ArmSetup(
        frame_id=TASK_FRAME,
        tool_frame=TOOL_FRAME,
        joints=JOINTS,
        gripper_joints=GRIPPER_JOINTS,
        gripper_closed=CLOSED_M,
        gripper_open=OPEN_M,
        gripper_topic=GRIPPER_TOPIC,
        joint_topic=JOINT_TOPIC,
        task=attempt.scene.text,
        gripper_size=GRIPPER_SIZE_M,
    )
    return DemonstrationHead(
        episode_id=f'arm-{name}',
        scene_id=f'table-{name}',
        task=attempt.scene.text,
        outcome=EpisodeOutcome.SUCCESS,
        setup=setup,
        origin={'simulator': 'arm', 'origin': asdict(origin), 'config': asdict(config)},
        camera=config.camera() if config.images else None,
        fixed={**attempt.fixed, CAMERA_FRAME: camera_pose()},
        urdf=attempt.urdf,
        truth={TRUTH_TOPIC: attempt.truth.to_json()},
    )


def _urdf_of(model: Any) -> str:
    """The arm as URDF, from its base to its tool: links and joints, without shapes.

    Args:
        model: A `mujoco.MjModel` with the arm.
    """
    lines, parent = ['<robot name="sawyer">', f'<link name="{BASE_FRAME}"/>'], BASE_FRAME
    for name in CHAIN:
        body = model.body(name)
        joint = model.joint(int(body.jntadr[0])) if int(body.jntnum[0]) else None
        lines += _urdf_joint(parent, name, body.pos, body.quat, joint)
        parent = name
    lines += _urdf_joint('hand', TOOL_FRAME, (TOOL_M, 0.0, 0.0), (1.0, 0.0, 0.0, 0.0), None)
    return '\n'.join([*lines, '</robot>'])


def _urdf_joint(parent: str, child: str, place: Any, turn: Any, joint: Any) -> list[str]:
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.asarray(turn, np.float64))
    rotation = matrix.reshape(3, 3)
    yaw, pitch, roll = yaw_pitch_roll(rotation)
    if math.hypot(rotation[0, 0], rotation[1, 0]) < 1e-6:  # roll and yaw turn about one axis
        yaw, roll = math.atan2(-rotation[0, 1], rotation[1, 1]), 0.0
    x, y, z = (float(value) for value in place)
    kind = 'revolute' if joint else 'fixed'
    lines = [
        f'<link name="{child}"/>',
        f'<joint name="{joint.name if joint else child + "_mount"}" type="{kind}">',
        f'<parent link="{parent}"/><child link="{child}"/>',
        f'<origin xyz="{x!r} {y!r} {z!r}" rpy="{roll!r} {pitch!r} {yaw!r}"/>',
    ]
    if joint:
        axis = ' '.join(repr(float(value)) for value in joint.axis)
        low, high = (repr(float(value)) for value in joint.range)
        limit = f'<limit lower="{low}" upper="{high}" effort="100" velocity="2"/>'
        lines.append(f'<axis xyz="{axis}"/>{limit}')
    return [*lines, '</joint>']
