# SPDX-License-Identifier: Apache-2.0
"""From a bag of a demonstration to rows about its arm."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.arm.demonstration import DemonstrationTruth, TrueThing
from embodied_r_ros.arm.episodes import read_arm_episode
from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.episodes import EpisodeOutcome
from embodied_r_ros.data.arm_room import has_arm
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.data.questions.splits import split_of
import numpy as np
import pytest

from test.arm.arms import camera, KEYPOINTS, STEP_NS, T0_NS, write_arm_bag

if TYPE_CHECKING:
    from pathlib import Path

ARM_KINDS = {'waypoint', 'current_state', 'movement'}


def test_a_bag_tells_samples_keypoints_camera_and_robot(tmp_path: Path) -> None:
    with open_bag(write_arm_bag(tmp_path / 'bag', 'table', at=camera(10))) as reader:
        assert has_arm(reader, None)
        shown = read_arm_episode(reader, None)
    places = [shown.states[index].position for index in shown.keypoints]
    assert np.allclose(places, [place for place, _ in KEYPOINTS], atol=1e-3)
    closed = [shown.states[index].closed for index in shown.keypoints]
    assert closed == [is_closed for _, is_closed in KEYPOINTS]
    assert shown.camera
    assert np.allclose(shown.camera.position, camera(10).position)
    assert shown.intrinsics
    assert shown.intrinsics.width == 320
    assert shown.metadata
    assert shown.metadata.gripper_size == (0.11, 0.03, 0.09)


def test_a_robot_by_name_tells_more_and_asks_as_it_says(tmp_path: Path) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    robot = tmp_path / 'mine.yaml'
    robot.write_text('metadata: {reference: [0.0, 0.1, 0.0]}\nquestions: {gripper: true}\n')
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--robot', str(robot), '--out', str(out)]) == 0
    rows = list(read_rows(out))
    assert 'gripper' in {row.question_type for row in rows}
    assert all('(0.000, 0.100, 0.000)' in row.question for row in rows if row.state)


def test_without_images_the_arm_is_asked_about_where_its_camera_is_declared(
    tmp_path: Path,
) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', images=False)
    robot = tmp_path / 'blind.yaml'
    robot.write_text('questions: {camera: declared}\n')
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--robot', str(robot), '--out', str(out)]) == 0
    rows = list(read_rows(out))
    assert {row.question_type for row in rows} == ARM_KINDS
    assert not any(row.deltas for row in rows)


def test_what_is_told_of_the_table_is_never_older_than_half_a_second(tmp_path: Path) -> None:
    """Its camera stands still and sees nothing move: other bags would give one keyframe."""
    bag, out = write_arm_bag(tmp_path / 'bag', 'table', at=camera()), tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--out', str(out)]) == 0
    rows = [row for row in read_rows(out) if row.state]
    ages_s = [(row.meta['stamp_ns'] - row.deltas[-1]['stamp_ns']) / 1e9 for row in rows]
    assert max(ages_s) < 0.5
    assert len(rows[-1].deltas) > 10
    assert all('red blocky object at (' in row.focus[0]['text'] for row in rows)
    seldom = tmp_path / 'seldom.yaml'
    seldom.write_text('placing: {look_every_s: 0.0}\n')
    again = tmp_path / 'again.jsonl'
    assert main(['questions', str(bag), '--robot', str(seldom), '--out', str(again)]) == 0
    assert {len(row.deltas) for row in read_rows(again)} == {1}


def true_things() -> DemonstrationTruth:
    """A block that is carried off, and a mat."""
    stamps = tuple(T0_NS + STEP_NS * number for number in range(100))
    block = tuple((0.1, -0.15 + 0.01 * max(0, n - 70), 0.02) for n in range(100))
    things = (
        TrueThing('block', 'red block', block),
        TrueThing('mat', 'blue mat', ((0.15, 0.1, 0.0),) * 100),
    )
    return DemonstrationTruth(stamps, things, (), 'table_center')


@pytest.mark.parametrize('images', [True, False])
def test_true_deltas_of_an_arm_tell_where_things_are(tmp_path: Path, images: bool) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera(), images=images, truth=true_things())
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--deltas', 'true', '--out', str(out)]) == 0
    first, *_, last = (row for row in read_rows(out) if row.question_type == 'current_state')
    mat = 'blue mat at (0.150, 0.100, 0.000).'
    assert first.focus[0]['text'] == f'On the table: red block at (0.100, -0.150, 0.020); {mat}'
    assert last.focus[0]['text'] == f'On the table: red block at (0.100, 0.050, 0.020); {mat}'
    assert [delta['action'] for delta in last.deltas][:2] == ['', 'stationary']
    moved = [delta['stamp_ns'] for delta in last.deltas if 'Moved: red block' in delta['change']]
    assert min(moved) == T0_NS + 80 * STEP_NS


def test_without_truth_there_are_no_true_deltas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--deltas', 'true', '--out', str(out)]) == 2
    assert 'has no true deltas' in capsys.readouterr().err


@pytest.mark.parametrize('outcome', [EpisodeOutcome.FAILURE, EpisodeOutcome.ABORTED])
def test_what_did_not_succeed_is_not_asked_about(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], outcome: EpisodeOutcome
) -> None:
    bag = write_arm_bag(
        tmp_path / 'bag', 'table', at=camera(), outcome=outcome, truth=true_things()
    )
    main(['questions', str(bag), '--deltas', 'true', '--out', str(tmp_path / 'rows.jsonl')])
    assert 'the demonstration did not succeed' in capsys.readouterr().err
    assert not any(row.state for row in read_rows(tmp_path / 'rows.jsonl'))


def test_a_robot_tells_what_its_stops_are(tmp_path: Path) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    file = tmp_path / 'slow.yaml'
    file.write_text('stops: {min_stop_s: 5.0, gripper_hold_s: 5.0}\n')
    with open_bag(bag) as reader:
        usual = read_arm_episode(reader, None)
        slow = read_arm_episode(reader, load_robot(str(file)))
    assert 1 <= len(slow.keypoints) < len(usual.keypoints)


def test_the_camera_that_a_robot_declares_is_checked_where_no_bag_tells_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, robot = write_arm_bag(tmp_path / 'bag', 'table'), tmp_path / 'mine.yaml'
    for degrees, is_facing in ((0, True), (180, False)):
        pose = camera(degrees)
        lines = f'camera_position: {list(map(float, pose.position))}, '
        lines += f'camera_orientation: {list(map(float, pose.orientation))}'
        robot.write_text(f'placing: {{{lines}}}\n')
        out = tmp_path / f'{degrees}.jsonl'
        main(['questions', str(bag), '--robot', str(robot), '--out', str(out)])
        assert any(row.state for row in read_rows(out)) is is_facing
        assert ('does not face the robot' in capsys.readouterr().err) is not is_facing


def test_a_layout_is_in_one_split_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = QuestionsConfig(test_share=0.5)
    names = [f'table {number}' for number in range(40)]
    train = next(name for name in names if split_of(name, config) == 'train')
    test = next(name for name in names if split_of(name, config) == 'test')
    bags = [
        write_arm_bag(tmp_path / 'a', train, at=camera()),
        write_arm_bag(tmp_path / 'b', test, at=camera(), shift_m=0.002),
        write_arm_bag(tmp_path / 'c', test, at=camera(), shift_m=0.1),
    ]
    out = tmp_path / 'rows.jsonl'
    assert (
        main(
            ['questions', *map(str, bags), '--set', 'questions.test_share=0.5', '--out', str(out)]
        )
        == 0
    )
    told = {(row.episode_id, row.split) for row in read_rows(out)}
    assert told == {('a', 'train'), ('c', 'test')}
    assert f'has the layout of scene {train!r} of another split' in capsys.readouterr().err
