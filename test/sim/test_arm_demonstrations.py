# SPDX-License-Identifier: Apache-2.0
"""Demonstrations of the simulated arm: what their bags hold is what a robot would record."""

from __future__ import annotations

from dataclasses import replace
from importlib.util import find_spec
import json
from typing import Any, TYPE_CHECKING

import pytest

if find_spec('metaworld') is None:
    pytest.skip('Meta-World is not installed', allow_module_level=True)
pytest.importorskip('embodied_r_ros.sim.indoor.world')

from embodied_r_ros.arm.demonstration import DemonstrationTruth
from embodied_r_ros.arm.robot import ArmSetup, load_robot
from embodied_r_ros.arm.table import table_view
from embodied_r_ros.bags.messages import (
    encoded_image_from_msg,
    intrinsics_from_camera_info,
    pose_from_msg,
    transform_from_msg,
)
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeOutcome
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.data.own_messages import mark_from_msg
from embodied_r_ros.sim.arm.demonstrations import demonstrate, generate
from embodied_r_ros.sim.arm.tasks import ArmTask, TASKS
from embodied_r_ros.sim.arm.world import camera_pose
from embodied_r_ros.sim.indoor.episodes import EpisodeOrigin
from embodied_r_ros.sim.runs import SimArmConfig
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

SEED = 4
SMALL = SimArmConfig('pick', rate_hz=10.0, width_px=96, height_px=72)
Messages = dict[str, list[tuple[int, Any]]]


def read(path: Path) -> Messages:
    found: Messages = {}
    with open_bag(path) as reader:
        for topic, stamp_ns, msg in read_messages(reader, {c.topic for c in reader.connections}):
            found.setdefault(topic, []).append((stamp_ns, msg))
    return found


@pytest.fixture(scope='module')
def messages(tmp_path_factory: pytest.TempPathFactory) -> Messages:
    out = tmp_path_factory.mktemp('arm') / 'out'
    [path] = generate(SMALL, SEED, 1, out)
    return read(path)


def truth_of(messages: Messages) -> DemonstrationTruth:
    return DemonstrationTruth.from_json(messages['/truth/demonstration'][0][1].data)


def chain(messages: Messages, index: int) -> Pose:
    """The tool in the task frame, by the transforms alone."""
    known = {
        item.child_frame_id: transform_from_msg(item)
        for topic, number in (('/tf_static', 0), ('/tf', index))
        for item in messages[topic][number][1].transforms
    }
    place: Any = np.zeros(3)
    frame = 'tool'
    while frame != 'table_center':
        pose = known[frame]
        place, frame = pose.rotation() @ place + pose.position, pose.frame_id
    x, y, z = (float(value) for value in place)
    return Pose((x, y, z), (0.0, 0.0, 0.0, 1.0), frame)


def test_every_stamp_has_image_pose_joints_gripper_and_transforms(messages: Messages) -> None:
    stamps = truth_of(messages).stamps_ns
    for topic in (
        '/image/compressed',
        '/ee_pose',
        '/joint_states',
        '/gripper/joint_states',
        '/tf',
    ):
        assert tuple(stamp_ns for stamp_ns, _ in messages[topic]) == stamps
    image = encoded_image_from_msg(messages['/image/compressed'][0][1]).decode()
    assert image.shape == (72, 96, 3)
    camera = intrinsics_from_camera_info(messages['/camera_info'][0][1])
    assert camera == SMALL.camera()


def test_joints_have_velocities_that_are_those_of_their_positions(messages: Messages) -> None:
    states = [msg for _, msg in messages['/joint_states']]
    assert all(len(msg.name) == len(msg.position) == len(msg.velocity) == 7 for msg in states)
    positions, velocities = (
        np.array([getattr(msg, name) for msg in states]) for name in ('position', 'velocity')
    )
    moved = np.diff(positions, axis=0)
    mean = (velocities[1:] + velocities[:-1]) / 2 * 0.1
    assert np.abs(moved).max() > 0.02
    assert np.abs(moved - mean).max() < 0.02


def test_transforms_lead_to_where_the_tool_is(messages: Messages) -> None:
    for index in (0, 20, -1):
        told = pose_from_msg(messages['/ee_pose'][index][1].pose, 'table_center').position
        assert np.allclose(chain(messages, index).position, told, atol=1e-9)


def test_the_camera_faces_the_robot(messages: Messages) -> None:
    camera = next(
        transform_from_msg(item)
        for item in messages['/tf_static'][0][1].transforms
        if item.child_frame_id == 'camera_optical_frame'
    )
    seen = intrinsics_from_camera_info(messages['/camera_info'][0][1])
    assert seen is not None

    def pixel(point: tuple[float, float, float]) -> Any:
        u, v, w = seen.matrix() @ camera.rotation().T @ np.subtract(point, camera.position)
        return np.array([u / w, v / w, w])

    origin = pixel((0.1, 0.0, 0.0))
    assert pixel((0.1, 0.1, 0.0))[0] > origin[0] + 3  # y is right
    assert pixel((0.1, 0.0, 0.1))[1] < origin[1] - 3  # z is up
    assert pixel((0.2, 0.0, 0.0))[2] < origin[2] - 0.03  # x is nearer
    image = encoded_image_from_msg(messages['/image/compressed'][0][1]).decode()
    (block,) = truth_of(messages).things
    u, v, _ = pixel(block.positions[0])
    colour = {'red': 2, 'green': 1, 'blue': 0}.get(block.label.split()[0])
    if colour is not None:  # yellow is two of them
        assert int(image[round(v), round(u)].argmax()) == colour


def test_the_arm_is_at_each_true_keypoint_at_its_stamp(messages: Messages) -> None:
    truth = truth_of(messages)
    assert [keypoint.reason for keypoint in truth.keypoints] == ['stop', 'stop', 'gripper', 'last']
    stamps = np.array(truth.stamps_ns)
    for keypoint in truth.keypoints:
        index = int(np.searchsorted(stamps, keypoint.until_ns)) - 1
        at = pose_from_msg(messages['/ee_pose'][index][1].pose, '').position
        assert np.linalg.norm(np.subtract(at, keypoint.position)) < 0.012
    setup = ArmSetup.from_json(messages['/arm_setup'][0][1].data)
    fingers = [setup.opening(sum(msg.position)) for _, msg in messages['/gripper/joint_states']]
    assert fingers[0] > 0.95
    assert fingers[-1] < 0.4


def test_marks_tell_the_task_and_that_it_succeeded(messages: Messages) -> None:
    start, stop = (mark_from_msg(msg) for _, msg in messages['/episode_mark'])
    assert (start.event, stop.event) == (EpisodeEvent.START, EpisodeEvent.STOP)
    assert start.task.startswith('pick up the ')
    assert stop.outcome is EpisodeOutcome.SUCCESS
    block = truth_of(messages).things[0]
    assert block.positions[-1][2] > block.positions[0][2] + 0.07


@pytest.mark.parametrize('task', sorted(TASKS))
def test_the_expert_succeeds_at_every_task(task: str) -> None:
    shown = demonstrate(SimArmConfig(task, images=False), EpisodeOrigin(SEED, 0, 0))
    assert shown.is_success
    assert 4 <= len(shown.truth.keypoints) <= 8


def test_noise_changes_what_is_measured_and_nothing_else() -> None:
    exact, noisy = (
        demonstrate(
            SimArmConfig('pick', images=False, rate_hz=10.0, noise=noise), EpisodeOrigin(1, 0, 0)
        )
        for noise in (0.0, 5.0)
    )
    assert exact.truth == noisy.truth
    assert exact.frames[0].velocities != noisy.frames[0].velocities


def test_only_successes_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = TASKS['pick']
    verdicts = iter([False, True])
    monkeypatch.setitem(TASKS, 'pick', ArmTask(task.draw, task.plan, lambda *_: next(verdicts)))
    config = SimArmConfig('pick', images=False, rate_hz=5.0)
    [path] = generate(config, SEED, 1, tmp_path / 'out')
    assert json.loads(read(path)['/provenance'][0][1].data)['origin']['attempt'] == 1
    monkeypatch.setitem(TASKS, 'pick', ArmTask(task.draw, task.plan, lambda *_: False))
    monkeypatch.setattr('embodied_r_ros.sim.arm.demonstrations._ATTEMPTS', 1)
    with pytest.raises(EmbodiedRError, match='the expert failed 1 times at pick'):
        list(generate(config, SEED, 1, tmp_path / 'more'))


def test_the_command_line_writes_demonstrations(tmp_path: Path) -> None:
    command = ['sim', 'arm', '--task', 'drawer', '--episodes', '1', '--seed', '2', '--no-images']
    assert main([*command, '--set', 'arm.rate_hz=5', '--out', str(tmp_path / 'out')]) == 0
    found = read(tmp_path / 'out' / 'episode_00000')
    assert '/image/compressed' not in found
    assert mark_from_msg(found['/episode_mark'][0][1]).task == 'open the drawer'


def test_a_missing_robot_gives_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr('embodied_r_ros.sim.find_spec', lambda _: None)
    command = ['sim', 'arm', '--episodes', '1', '--seed', '2', '--out', str(tmp_path / 'out')]
    assert main(command) == 2
    assert 'pip install metaworld==3.1.1' in capsys.readouterr().err


@pytest.mark.parametrize('name', ['sawyer_sim', 'sawyer_sim_balanced'])
def test_the_file_of_the_robot_tells_where_the_camera_is(name: str) -> None:
    robot = load_robot(name)
    as_shipped = load_robot('sawyer_sim')
    named = replace(robot, name=as_shipped.name, questions=as_shipped.questions)
    assert named == as_shipped
    view = table_view(None, robot.metadata, robot.placing)
    assert view
    there = camera_pose()
    assert (view.camera.position, view.camera.frame_id) == (there.position, there.frame_id)
    # Computed there, decimal in the file: processors round the last bit differently.
    assert view.camera.orientation == pytest.approx(there.orientation, abs=1e-12)


def test_the_robot_of_the_loop_grips_on_arrival_and_is_else_the_same() -> None:
    robot, as_shipped = load_robot('sawyer_sim_loop'), load_robot('sawyer_sim')
    assert (robot.questions.grip, robot.candidates.stay) == ('arrival', False)
    assert robot.questions.distractors == 'candidates'
    questions, candidates = as_shipped.questions, replace(robot.candidates, stay=True)
    named = replace(robot, name=as_shipped.name, questions=questions, candidates=candidates)
    assert named == as_shipped
