# SPDX-License-Identifier: Apache-2.0
"""`embodied-r changes`: exit codes, what it prints, and the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter, RELIABLE_QOS
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.landmarks import read_scene_map
from embodied_r_ros.data.own_messages import keyframe_to_msg
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.types.geometry import Pose

BALL = Solid((2.0, 0.6, 0.3), (0.5, 0.5, 0.5), (40, 40, 230), is_ball=True)
BOX = Solid((1.8, -0.8, 0.25), (0.5, 0.5, 0.5), (230, 60, 20))
WAY = [pose_at(-1.5 + 0.1 * n, -0.9 + 0.35 * n, 0.8, 0.6 - 0.2 * n) for n in range(6)]
BACK = [pose_at(-1.3 - 0.05 * n, 0.8 - 0.35 * n, 0.7, -0.5 + 0.2 * n) for n in range(6)]


def record(folder: Path, room: Room, way: list[Pose], solids: tuple[Solid, ...], day: int) -> Path:
    """A bag with the keyframes of a robot."""
    make = BagMessageFactory()
    with BagWriter(folder) as writer:
        writer.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe', RELIABLE_QOS)
        for number, pose in enumerate(way):
            stamp_ns = (86_400 * day + 1 + number) * 1_000_000_000
            image = encode_image(room.view(pose, solids))
            reason = KeyframeReason.LOW_OVERLAP
            last = max(0, number - 1)
            keyframe = Keyframe(
                number, stamp_ns, image, reason, last, intrinsics=CAMERA, pose=pose
            )
            writer.write('/keyframe', keyframe_to_msg(make, keyframe), stamp_ns)
    return folder


@pytest.fixture(scope='module')
def bags(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Two visits to one room, and one to another."""
    folder, room = tmp_path_factory.mktemp('visits'), Room(1)
    return {
        'before': str(record(folder / 'before', room, WAY, (BALL, BOX), 0)),
        'after': str(record(folder / 'after', room, BACK, (BOX,), 1)),
        'other': str(record(folder / 'other', Room(2), WAY, (BALL, BOX), 1)),
    }


def test_a_thing_that_was_taken_is_gone(
    bags: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page, both = tmp_path / 'page.html', tmp_path / 'both.json'
    words = ['changes', bags['before'], bags['after'], '--json', '--map', str(both)]
    assert main([*words, '--out', str(page)]) == 0
    value = json.loads(capsys.readouterr().out)
    (change,) = value['changes']
    assert (change['kind'], change['label']) == ('gone', 'red round object')
    assert change['from'] == pytest.approx(BALL.centre, abs=0.3)
    assert change['to'] is None
    assert change['looks'] >= 2
    assert change['shown_before']['keyframe'] < len(WAY)
    assert change['shown_after']['keyframe'] < len(BACK)
    assert (value['same'], value['is_metric']) == (1, True)
    text = page.read_text()
    assert text.count('data:image/jpeg;base64,') == 2
    assert 'gone: red round object' in text
    landmarks = {one.label.split()[0]: one for one in read_scene_map(both).landmarks}
    assert landmarks['blue'].last_seen_ns > 86_400 * 1_000_000_000
    assert landmarks['red'].last_seen_ns < 86_400 * 1_000_000_000


def test_words_for_people(bags: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['changes', bags['before'], bags['after']]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith('gone ')
    assert '1 things are where they were' not in captured.err
    assert '1 thing is where it was; joined by' in captured.err


def test_without_poses_lengths_have_no_metres(
    bags: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ['changes', bags['before'], bags['after'], '--json']
    assert main([*words, '--set', 'classical.use_odometry=false']) == 0
    assert json.loads(capsys.readouterr().out)['is_metric'] is False


def test_another_room_is_not_joined(
    bags: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / 'page.html'
    assert main(['changes', bags['before'], bags['other'], '--out', str(page)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ''
    assert captured.err.startswith('embodied-r: failed: could not find itself in the old map: ')
    assert not page.exists()


@pytest.mark.parametrize(
    ('after', 'options', 'words'),
    [
        ('nothing', [], 'nothing'),
        ('.', [], ''),
        ('before', ['--perceiver', 'recorded'], '--perceiver recorded'),
        ('before', ['--out', 'no/folder/page.html'], 'no/folder'),
    ],
)
def test_bad_input_is_told_in_one_line(
    bags: dict[str, str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    after: str,
    options: list[str],
    words: str,
) -> None:
    second = bags.get(after, str(tmp_path / after))
    assert main(['changes', bags['before'], second, *options]) == 2
    captured = capsys.readouterr()
    assert captured.out == ''
    assert captured.err.startswith('embodied-r: error: ')
    assert words in captured.err


@pytest.mark.parametrize(
    ('question', 'visit', 'told'),
    [
        ('what is missing since yesterday?', 'before', 'The red round object is gone'),
        ('has anything changed since the last visit?', 'before', 'Yes: the red round'),
        ('was the ball moved since yesterday?', 'before', 'I did not see that'),
        ('what is new here?', 'before', 'Nothing that I saw changed'),
        ('have we been here before?', 'before', 'Yes: I was here before'),
        ('have we been here before?', 'other', 'I did not find myself in the earlier visit'),
        ('what changed since last time?', '', 'I was told of no earlier visit'),
    ],
)
def test_what_changed_since_an_earlier_visit_is_answered(
    question: str,
    visit: str,
    told: str,
    bags: dict[str, str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = ['--before', bags[visit]] if visit else []
    assert main(['ask', bags['after'], question, '--perceiver', 'classical', *given]) == 0
    assert capsys.readouterr().out.startswith(told)
