# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path

import cv2
from embodied_r_ros.cli.main import main
import pytest

from test.arm.bags import tool_at, write_bag


@pytest.fixture(scope='module')
def bag(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp('bags') / 'wave'
    write_bag(path)
    return path


def test_keypoints_are_listed_as_json_lines(bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['keypoints', str(bag), '--json']) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row['reason'] for row in rows] == ['stop', 'gripper', 'last']
    assert list(rows[0]) == ['index', 'stamp_ns', 'position', 'gripper', 'reason']
    assert [row['gripper'] for row in rows] == ['open', 'closed', 'closed']
    assert rows[0]['position'] == pytest.approx(tool_at(0.6, -0.3), abs=1e-6)
    assert rows[0]['stamp_ns'] == 10**9 + rows[0]['index'] * 50_000_000


def test_the_rule_of_arm_is_another_one(bag: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['keypoints', str(bag), '--rule', 'arm', '--json']) == 0
    assert len(capsys.readouterr().out.splitlines()) > 3


def test_what_a_robot_calls_a_stop_counts(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    robot = tmp_path / 'slow.yaml'
    robot.write_text('stops: {min_stop_s: 2.0}\n')
    assert main(['keypoints', str(bag), '--robot', str(robot), '--json']) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row['reason'] for row in rows] == ['gripper', 'last']


def test_the_picture_has_a_mark_and_a_card_for_each(
    bag: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / 'sheet.png'
    assert main(['keypoints', str(bag), '--picture', str(file)]) == 0
    sheet = cv2.imread(str(file))
    assert sheet is not None
    for colour in ((170, 95, 20), (50, 50, 200), (70, 140, 40)):
        assert (sheet == colour).all(axis=2).sum() > 100
    assert 'closed  gripper' in capsys.readouterr().out
    assert main(['keypoints', str(bag), '--picture', str(tmp_path / 'no' / 'x.png')]) == 2
    assert 'cannot write' in capsys.readouterr().err


def test_a_bag_without_an_arm_ends_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    sample = next((Path(__file__).parents[3] / 'samples').glob('*/*/*.mcap'))
    assert main(['keypoints', str(sample)]) == 2
    assert capsys.readouterr().err.count('\n') == 1
