# SPDX-License-Identifier: Apache-2.0
"""Robots as YAML, and what prompts tell of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.arm.robot import load_robot
from embodied_r_ros.common.errors import ConfigError
import pytest

from test.arm.robot_rows import rows_of

if TYPE_CHECKING:
    from pathlib import Path


def test_metadata_tells_axes_reference_and_size() -> None:
    row = next(row for row in rows_of() if row.question_type == 'waypoint')
    for told in (
        'x grows towards the camera, which is forward, y to the right in the image, z upward.',
        'The centre of the table is at (0.000, 0.000, 0.000).',
        'The gripper measures 0.030 along x, 0.110 along y and 0.090 along z.',
    ):
        assert told in row.question


def test_what_is_told_by_default_is_the_same_to_the_byte() -> None:
    """Shipped models have learned these words."""
    told = (
        'x grows towards the camera, which is forward, y to the right in the image, z upward. '
        'The centre of the table is at (0.000, 0.000, 0.000). '
        'The gripper measures 0.030 along x, 0.110 along y and 0.090 along z.'
    )
    for name in ('sawyer_sim', 'sawyer_sim_balanced', 'sawyer_sim_loop', 'sawyer_sim_drawer'):
        assert load_robot(name).metadata.text() == told


def test_a_robot_tells_its_axes_in_its_own_words(tmp_path: Path) -> None:
    path = tmp_path / 'mine.yaml'
    path.write_text('metadata:\n  axes: >\n    x grows towards the door,\n    z upward.\n')
    text = load_robot(str(path)).metadata.text()
    centre = 'The centre of the table is at (0.000, 0.000, 0.000).'
    assert text == f'x grows towards the door, z upward. {centre}'
    path.write_text('metadata: {axes: ""}')
    assert load_robot(str(path)).metadata.text() == centre


def test_the_paper_robot_says_what_the_paper_prints() -> None:
    robot = load_robot('franka_rlbench')
    assert robot.questions.stride == 10
    text = robot.metadata.text()
    assert 'The centre of the table is at (0.250, 0.000, 0.752).' in text
    assert 'The gripper measures 0.060 along x, 0.200 along y and 0.090 along z.' in text
    assert 'Its fingers are 0.040 long.' in text


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('metadata: {reference: [.nan, 0, 0]}', 'expected three numbers'),
        ('metadata: {workspace_low: [0, 0, 0]}', 'expected both ends'),
        ('questions: {stride: 0}', 'stride is 0'),
        ('questions: {kinds: [waypoint, dance]}', "kinds has 'dance'"),
        ('questions: {deadbandm: 0.1}', "did you mean 'deadband_m'"),
        ('frames: {}', 'expected the sections metadata, questions, setup, placing, candidates'),
        ('metadata: 3', 'expected names and values'),
    ],
)
def test_robots_that_are_none_are_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / 'mine.yaml'
    path.write_text(text)
    with pytest.raises(ConfigError, match=f'robot .*mine.yaml: .*{message}'):
        load_robot(str(path))


def test_a_urdf_lies_beside_the_file_of_its_robot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / 'robots' / 'mine.yaml'
    path.parent.mkdir()
    for urdf, meant in (
        ('mine.urdf', path.parent / 'mine.urdf'),
        ('../b/mine.urdf', path.parent / '../b/mine.urdf'),
        ('/opt/mine.urdf', '/opt/mine.urdf'),
    ):
        path.write_text(f'setup: {{urdf: {urdf}}}')
        setup = load_robot(str(path)).setup
        assert setup
        assert setup.urdf == str(meant)
    path.write_text('setup: {tool_frame: hand}')
    setup = load_robot(str(path)).setup
    assert setup
    assert setup.urdf == ''
    monkeypatch.chdir(tmp_path)
    path.write_text('setup: {urdf: mine.urdf}')
    setup = load_robot('robots/mine.yaml').setup
    assert setup
    assert setup.urdf == 'robots/mine.urdf'


def test_a_robot_that_is_not_known_is_refused_with_those_that_are() -> None:
    with pytest.raises(ConfigError, match='known: franka_rlbench, sawyer_sim'):
        load_robot('sawyer')
