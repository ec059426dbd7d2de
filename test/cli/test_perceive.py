# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.main import main
import pytest

from test.chat_server import ChatServer, RecordedRequest, Script
from test.raycast_room import pose_at, Room, Solid

if TYPE_CHECKING:
    from pathlib import Path

BALL = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
FIELDS = [
    'from_id',
    'to_id',
    'stamp_ns',
    'kind',
    'action',
    'change',
    'items',
    'motion',
    'skipped',
    'error',
    'model',
]


@pytest.fixture(scope='module')
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A camera at rest, then turned to the left."""
    path = tmp_path_factory.mktemp('turning')
    room = Room(0, contrast=0.6)
    for index, yaw in enumerate((0.0, 0.0, 0.85)):
        image = room.view(pose_at(-0.8, 0.0, 1.0, yaw, 0.1), (BALL,))
        cv2.imwrite(str(path / f'{index}.png'), image)
    return path


def perceive(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    assert main(['perceive', *map(str, arguments), '--json']) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def error_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(['perceive', *map(str, arguments)]) == 2
    captured = capsys.readouterr()
    assert captured.out == ''
    assert captured.err.startswith('embodied-r: error: ')
    assert captured.err.count('\n') == 1
    return captured.err


def test_a_json_line_per_delta(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = perceive(capsys, folder, '--set', 'classical.assumed_hfov_rad=1.5708')
    assert list(first) == FIELDS
    assert (first['kind'], first['action'], first['items'][0]['label']) == (
        'FIRST',
        '',
        'red round object',
    )
    assert (second['kind'], second['stamp_ns']) == ('CHANGE', 200_000_000)
    assert second['action'].startswith('turned left 50°')
    assert (second['model']['name'], second['model']['rung']) == ('classical', 'PRIMARY')


def test_a_listing_for_people(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(
            [
                'perceive',
                str(folder),
                '--set',
                'classical.assumed_hfov_rad=1.5708',
                '--set',
                'classical.camera_height_m=1.0',
            ]
        )
        == 0
    )
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == '[1]  0.000 s  FIRST'
    assert lines[1].startswith('    In view: red round object 15° left')
    assert lines[1].endswith(' m.')
    assert lines[3].startswith('    turned left')


def test_more_keyframes_on_request(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [
        line['kind'] for line in perceive(capsys, folder, '--set', 'keyframe.max_interval_s=0.1')
    ]
    assert kinds == ['FIRST', 'NO_CHANGE', 'CHANGE']


def test_odometry_of_a_bag_is_left_out_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip('embodied_r_ros.sim.indoor.world')
    given = 'sim indoor --episodes 1 --seed 78 --duration 6 --set indoor.kinds=all --out'
    assert main([*given.split(), str(tmp_path / 'w')]) == 0
    capsys.readouterr()
    bag = tmp_path / 'w' / 'episode_00000'
    with_odometry = perceive(capsys, bag)
    without = perceive(capsys, bag, '--set', 'classical.use_odometry=false')
    assert any(re.search(r'moved \w+ \d', delta['action']) for delta in with_odometry)
    assert not any(re.search(r'moved \w+ \d', delta['action']) for delta in without)
    assert len(without) == len(with_odometry)


def test_bad_input_is_one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert 'nowhere' in error_of(capsys, '/nowhere')
    assert '--profile, or --set chat.url=URL' in error_of(capsys, folder, '--perceiver', 'vlm')
    dead = 'http://127.0.0.1:9'
    assert dead in error_of(capsys, folder, '--perceiver', 'vlm', '--set', f'chat.url={dead}')
    assert 'assumed_hfov_rad' in error_of(
        capsys, folder, '--set', 'classical.assumed_hfov_rad=6.98132'
    )


def test_a_profile_without_a_perceiver_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = error_of(capsys, folder, '--perceiver', 'vlm', '--profile', 'embedded')
    assert 'has no perceiver' in message


def scene_reply(request: RecordedRequest) -> Script:
    """What a model says to one view or to two."""
    reply: dict[str, Any] = {'summary': 'A ball ahead.', 'items': [], 'visible_text': []}
    if len(request.images) > 1:
        reply['motions'] = [{'kind': 'rotate_left', 'amount': 'moderate'}]
    return Script((json.dumps(reply),))


def test_server_without_vision_is_one_line_and_exit_code_1(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def blind(request: RecordedRequest) -> Script:
        return Script(status=400, body='not a multimodal model') if request.images else Script()

    with ChatServer(blind, models=[{'id': 'scripted'}]) as server:
        arguments = ['--perceiver', 'vlm', '--set', f'chat.url={server.url}', '--json']
        assert main(['perceive', str(folder), *arguments]) == 1
        assert sum(bool(request.images) for request in server.requests) == 1
    out, err = capsys.readouterr()
    assert {json.loads(line)['kind'] for line in out.splitlines()} == {'FAILED'}
    note, line = err.splitlines()
    assert 'has no times' in note
    assert line.startswith('embodied-r: failed: none of 2 keyframes could be perceived: ')
    assert 'has no vision' in line


def test_views_are_described_alone_where_a_server_takes_one_image(
    folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def near(request: RecordedRequest) -> Script:
        body = 'At most 1 image(s) may be provided in one prompt.'
        many = len(request.images) > 1
        return Script(status=400, body=body) if many else scene_reply(request)

    with ChatServer(near, models=[{'id': 'scripted'}]) as server:
        arguments = ['--perceiver', 'vlm', '--set', f'chat.url={server.url}#scripted', '--json']
        assert (
            main(['perceive', str(folder), *arguments, '--set', 'keyframe.max_interval_s=0.1'])
            == 0
        )
        assert sum(len(request.images) > 1 for request in server.requests) == 1
    deltas = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [delta['kind'] for delta in deltas] == ['FIRST', 'NO_CHANGE', 'CHANGE']
    assert [delta['action'] for delta in deltas[1:]] == ['stationary', 'cannot tell']
    told = [record.getMessage() for record in caplog.records]
    assert sum('--limit-mm-per-prompt' in line for line in told) == 1


def detector_options(model: Path) -> list[str]:
    values = (
        'classical.assumed_hfov_rad=1.5708',
        f'detector.model={model}',
        'detector.threshold=0.3',
    )
    return [f'--set={value}' for value in values]


def test_a_detector_names_things(
    folder: Path, red_lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = detector_options(red_lamps)
    for kind in ('detector', 'auto'):
        first, _ = perceive(capsys, folder, '--perceiver', kind, *options)
        assert 'red lamp' in {item['label'] for item in first['items']}
        assert first['model']['name'] == 'detector/red'
        assert first['model']['digest'].startswith('sha256:')


def test_auto_says_what_it_uses(
    folder: Path,
    red_lamps: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    arguments = ['perceive', str(folder), '--perceiver', 'auto', '--json']
    assert main(arguments) == 0
    out, err = capsys.readouterr()
    assert err.startswith(
        'embodied-r: perceiver classical (no server is given and no detector fetched)\n'
    )
    assert json.loads(out.splitlines()[0])['model']['name'] == 'classical'
    assert main([*arguments, '--set', f'detector.model={red_lamps!s}']) == 0
    assert f'embodied-r: perceiver detector ({red_lamps})\n' in capsys.readouterr().err
    with ChatServer(scene_reply, models=[{'id': 'scripted'}]) as server:
        assert main([*arguments, '--set', f'chat.url={server.url}']) == 0
    assert f'embodied-r: perceiver vlm ({server.url})\n' in capsys.readouterr().err
    with ChatServer(scene_reply, models=[{'id': 'scripted'}]) as server:
        given = [f'--set=chat.url={server.url}', f'--set=detector.model={red_lamps}']
        assert main([*arguments, *given]) == 0
    there = f'{server.url} and {red_lamps}'
    assert f'embodied-r: perceiver fused ({there})\n' in capsys.readouterr().err


def test_what_a_model_and_a_detector_name_is_one_item(
    folder: Path, red_lamps: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = detector_options(red_lamps)
    alone, _ = perceive(capsys, folder, '--perceiver', 'detector', *options)
    lamps = [item for item in alone['items'] if item['label'] == 'red lamp']

    def reply(request: RecordedRequest) -> Script:
        scene = json.loads(scene_reply(request).pieces[0])
        place = {'direction': 'ahead_left', 'height': 'level', 'confidence': 'high'}
        status = {'status': 'visible'} if 'motions' in scene else {}
        labels = ('red reading lamp', 'wooden stool')
        scene['items'] = [{'label': label, **status, **place} for label in labels]
        return Script((json.dumps(scene),))

    with ChatServer(reply, models=[{'id': 'scripted'}]) as server:
        arguments = ('--perceiver', 'fused', '--set', f'chat.url={server.url}', *options)
        first, second = perceive(capsys, folder, *arguments)
    labels = [item['label'] for item in first['items']]
    assert labels[:2] == ['red reading lamp', 'wooden stool']
    assert labels.count('red lamp') == len(lamps) - 1
    both = {'label': 'red reading lamp', 'confidence': 0.9}
    assert first['items'][0] in [{**lamp, **both} for lamp in lamps]
    assert 'red reading lamp' in first['change']
    assert len(first['items']) == len(alone['items']) + 1
    assert first['model']['name'] == 'scripted + detector/red'
    assert second['kind'] == 'CHANGE'


def test_a_model_and_a_detector_are_both_needed(
    folder: Path,
    red_lamps: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    fused = (folder, '--perceiver', 'fused')
    assert 'needs a server' in error_of(capsys, *fused, '--set', f'detector.model={red_lamps}')
    assert 'fused needs a detector' in error_of(
        capsys, *fused, '--set', 'chat.url=http://127.0.0.1:9'
    )


def test_a_detector_that_cannot_be_used_is_one_line(
    folder: Path,
    red_lamps: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    detector, model = ('--perceiver', 'detector', '--set'), 'detector.model='
    assert 'models fetch detector' in error_of(capsys, folder, *detector[:2])
    assert 'nowhere.onnx is not there' in error_of(
        capsys, folder, *detector, f'{model}/nowhere.onnx'
    )
    picture = folder / '0.png'
    assert 'cannot be loaded as an ONNX' in error_of(
        capsys, folder, *detector, f'{model}{picture}'
    )
    message = error_of(
        capsys, folder, *detector, f'{model}{red_lamps}', '--set', 'detector.threshold=7'
    )
    assert '--set detector.threshold is 7.0: expected 0 to 1' in message
    assert '--perceiver detector' in error_of(
        capsys, folder, '--set', f'detector.model={red_lamps}'
    )


def test_a_picture_shows_what_was_perceived(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = perceive(capsys, folder, '--set', 'classical.assumed_hfov_rad=1.5708')
    assert (
        perceive(
            capsys,
            folder,
            '--set',
            'classical.assumed_hfov_rad=1.5708',
            '--picture',
            tmp_path / 'a.png',
        )
        == plain
    )
    picture = cv2.imread(str(tmp_path / 'a.png'))
    assert picture is not None
    assert (picture == (240, 170, 40)).all(axis=2).any()  # the box of what is in view
    error = error_of(capsys, folder, '--picture', tmp_path / 'no' / 'a.png')
    assert 'cannot write' in error


def test_depth_beside_images_gives_items_their_distance(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    room, pose = Room(0, contrast=0.6), pose_at(-0.8, 0.0, 1.0, 0.0, 0.1)
    for name in ('images', 'depth'):
        (tmp_path / name).mkdir()
    cv2.imwrite(str(tmp_path / 'images' / '0.png'), room.view(pose, (BALL,)))
    steps = (room.depth(pose, (BALL,)) * 5000).astype('uint16')
    cv2.imwrite(str(tmp_path / 'depth' / '0.png'), steps)
    arguments = (
        tmp_path / 'images',
        '--set',
        'classical.assumed_hfov_rad=1.5708',
        '--set',
        'source.depth_unit_m=0.0002',
    )
    [delta] = perceive(capsys, *arguments)
    [item] = delta['items']
    assert item['scale'] == 'DEPTH'
    assert item['distance_m'] == pytest.approx(2.63, abs=0.15)
    [delta] = perceive(capsys, *arguments, '--set', 'source.depth_topic=none')
    assert 'distance_m' not in delta['items'][0]
    assert 'depth_unit_m' in error_of(
        capsys, tmp_path / 'images', '--set', 'source.depth_unit_m=-1'
    )
