# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
import json
import math
from pathlib import Path
import shlex
from typing import Any

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.images import encode_image, StampedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import keyframe_to_msg
import numpy as np
import pytest

from bench.own_body import own_parts, with_own_parts
from test.raycast_room import pose_at, Room

ROOT = Path(__file__).parents[2]
FIELDS = ['index', 'stamp_ns', 'is_keyframe', 'reference_index', 'overlap', 'inliers', 'reason']


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three equal images, then three equal images of something else."""
    rng = np.random.default_rng(1)
    for index in range(6):
        if index % 3 == 0:
            coarse = rng.integers(0, 255, (30, 40, 3), np.uint8)
            image = cv2.resize(coarse, (320, 240), interpolation=cv2.INTER_NEAREST)
        cv2.imwrite(str(tmp_path / f'{index}.png'), image)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(['keyframes', *map(str, arguments), '--json']) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_keyframes_are_listed_as_json_lines(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = run(capsys, folder)
    assert list(first) == FIELDS
    assert (first['index'], first['reference_index'], first['reason']) == (0, None, 'first')
    assert second == {
        'index': 3,
        'stamp_ns': 300_000_000,
        'is_keyframe': True,
        'reference_index': 0,
        'overlap': 0.0,
        'inliers': second['inliers'],
        'reason': 'new_view',
    }


def test_what_is_fixed_to_the_camera_is_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room, surface = Room(3), Room(9).view(pose_at(0, 0, 1.2))
    seen = [
        StampedImage(
            index, 0, room.view(pose_at(0, 0, 1.2, 0.9 * math.sin(0.2 * index), 0.05 * index))
        )
        for index in range(20)
    ]
    folder = tmp_path / 'images'
    folder.mkdir()
    for image in with_own_parts(seen, 'gripper', surface):
        cv2.imwrite(str(folder / f'{image.index:03}.png'), image.image)
    assert main(['keyframes', str(folder), '--json']) == 0
    told = capsys.readouterr()
    assert list(json.loads(told.out.splitlines()[0])) == FIELDS
    [line] = [line for line in told.err.splitlines() if 'fixed to the camera' in line]
    assert 'bottom (found at image' in line
    mask = tmp_path / 'mask.png'
    cv2.imwrite(str(mask), own_parts('gripper', 320, 240).astype(np.uint8) * 255)
    assert main(['keyframes', str(folder), '--json', '--set', f'keyframe.mask={mask}']) == 0
    assert f'17% of the image, bottom (by {mask})' in capsys.readouterr().err


def test_a_mask_of_another_size_is_one_error(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mask = tmp_path / 'masks' / 'mask.png'
    mask.parent.mkdir()
    cv2.imwrite(str(mask), np.zeros((480, 640), np.uint8))
    assert main(['keyframes', str(folder), '--set', f'keyframe.mask={mask}']) == 2
    told = capsys.readouterr()
    line = told.err.splitlines()[-1]
    assert (
        line == f'embodied-r: error: mask {mask} is 640x480: expected 320x240, as the images are'
    )
    assert not told.out


@pytest.mark.parametrize('damaged', [None, 1])
def test_a_recording_of_keyframes_lists_them(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    damaged: int | None,
) -> None:
    """As our recorder leaves it with `images: keyframes`, of a robot with two cameras."""
    picture, kind = np.full((48, 64, 3), 90, np.uint8), 'embodied_r_msgs/msg/Keyframe'
    with BagWriter(tmp_path / 'bag') as bag:
        for topic in ('/front/keyframe', '/rear/keyframe'):
            bag.add_topic(topic, kind)
        for index in range(3):
            stamp_ns = 10**18 + index * 10**9
            keyframe = Keyframe(
                index, stamp_ns, encode_image(picture), KeyframeReason.ROLL, 0, camera='front'
            )
            msg = keyframe_to_msg(BagMessageFactory(), keyframe)
            if index == damaged:
                data = bytes(embodied_typestore().serialize_cdr(msg, kind))[:40]
                bag.write_serialized('/front/keyframe', data, stamp_ns)
            else:
                bag.write('/front/keyframe', msg, stamp_ns)
            other = keyframe_to_msg(BagMessageFactory(), replace(keyframe, camera='rear'))
            bag.write('/rear/keyframe', other, stamp_ns + 1)
    rows = run(capsys, tmp_path / 'bag')
    expected = [10**18 + index * 10**9 for index in range(3) if index != damaged]
    assert [row['stamp_ns'] for row in rows] == expected
    assert {row['reason'] for row in rows} == {'roll'}
    assert main(['keyframes', str(tmp_path / 'bag'), '--budget', '1']) == 2
    assert '--budget is for images of which keyframes are chosen' in capsys.readouterr().err
    assert '3 keyframes of camera rear' in caplog.text
    assert ('a message of topic /front/keyframe is left out' in caplog.text) == bool(damaged)


def test_all_frames_lists_every_image(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(capsys, folder, '--all-frames', '--rate', '2')
    assert [row['stamp_ns'] for row in rows] == [500_000_000 * index for index in range(6)]
    assert [row['is_keyframe'] for row in rows] == [True, False, False, True, False, False]
    assert [row['reference_index'] for row in rows] == [None, 0, 0, 0, 3, 3]
    assert [row['reason'] for row in rows] == ['first', None, None, 'new_view', None, None]


def test_the_table_is_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(['keyframes', str(folder)]) == 0
    heading, first, second = capsys.readouterr().out.splitlines()
    assert heading.split() == ['image', 'time', 'compared', 'overlap', 'inliers', 'reason']
    assert first.split()[::5] == ['0', 'first']
    assert second.split()[-1] == 'new_view'


def test_the_page_shows_what_is_printed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    blocks = Path('docs', 'concepts.md').read_text().split('```')[1::2]
    shown = {
        block.splitlines()[1]: following.lstrip('\n')
        for block, following in pairwise(blocks)
        if following.startswith('\n   image ')
    }
    assert len(shown) == 1
    for command, table in shown.items():
        program, *arguments = shlex.split(command)
        assert program == 'embodied-r'
        assert main(arguments) == 0
        printed = capsys.readouterr().out
        rows, shown_rows = printed.splitlines(), table.splitlines()
        gap = next(at for at, row in enumerate(shown_rows) if row.strip() == '...')
        rows = [*rows[:gap], *rows[gap + 1 - len(shown_rows) :]]
        lines = list(zip(rows, [r for r in shown_rows if r.strip() != '...'], strict=True))
        assert lines[0][0] == lines[0][1]
        for now, then in lines[1:]:
            # Another OpenCV finds other inliers, so only what the page is about must agree.
            (_, _, _, overlap, _, reason), (_, _, _, shown_overlap, _, shown_reason) = (
                line.split() for line in (now, then)
            )
            assert reason == shown_reason
            assert float(overlap) == pytest.approx(float(shown_overlap), abs=0.1)


def test_a_budget_limits_the_keyframes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run(capsys, folder, '--set', 'keyframe.max_interval_s=0.1', '--budget', '3')
    assert len(rows) == 3
    assert [row['reference_index'] for row in rows[1:]] == [row['index'] for row in rows[:-1]]


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['nowhere.mp4'], 'nowhere.mp4 does not exist'),
        (['.', '--set', 'keyframe.max_overlap=2'], 'max_overlap is 2.0: expected 0 to 1'),
        (['.', '--rate', 'nan'], 'rate_hz is nan: expected'),
        (['FOLDER', '--budget', '1'], 'budget is 1: expected at least 2'),
        (['FOLDER', '--budget', '5', '--all-frames'], 'a budget of 5 keyframes cannot be told'),
        (['FOLDER', '--topic', '/x'], "is a folder and has no topic '/x'"),
    ],
)
def test_bad_input_is_one_line_and_code_two(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, *options = arguments
    assert main(['keyframes', source.replace('FOLDER', str(folder)), *options]) == 2
    out, error = capsys.readouterr()
    assert out == ''
    notes, line = error.splitlines()[:-1], error.splitlines()[-1]
    assert line.startswith('embodied-r: error: ')
    assert all('has no times' in note for note in notes)
    assert message in line
