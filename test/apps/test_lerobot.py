# SPDX-License-Identifier: Apache-2.0
"""Recordings as a dataset of LeRobot: what its published schema asks for, and our own importer."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.arm.demonstration_bag import read_demonstration
from embodied_r_ros.arm.import_lerobot import VideoFrames
from embodied_r_ros.arm.import_lerobot_metadata import LeRobotMetadata
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import whole_folder
from embodied_r_ros.core.types.episodes import Label, LabelKind, LabelVerdict, WrittenQuestion
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.data.episodes.label_check import append_label, read_scope
import numpy as np
import pytest
import yaml

from test.arm.bags import RATE_HZ, SETUP, tool_at
from test.arm.bags import write_bag as arm_bag
from test.data.questions.test_logged import answer, label, SECOND_NS, write_bag

if TYPE_CHECKING:
    from collections.abc import Callable

pa, parquet = pytest.importorskip('pyarrow'), pytest.importorskip('pyarrow.parquet')
pytest.importorskip('av')

SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'
CAMERA = 'observation.images.camera'
# Fields of a row, as lerobot.datasets.language has them.
EVENT = {'role', 'content', 'style', 'camera', 'tool_calls'}
PERSISTENT = {*EVENT, 'timestamp'}


def picture(height: int = 48, width: int = 64) -> EncodedImage:
    return encode_image(np.full((height, width, 3), (10, 60, 200), np.uint8))


def recording(folder: Path, number: int, image: EncodedImage | None = None, **more: Any) -> Path:
    """A recording with two answers at one moment, of which one was corrected."""
    given = [
        replace(answer(f'{number}-{name}'), observation_stamp_ns=3 * SECOND_NS) for name in 'ab'
    ]
    corrected = label(LabelVerdict.CORRECTED, 'right', f'{number}-a')
    images = more.pop('images', [image or picture()])
    path = folder / f'e{number}'
    return write_bag(path, given, [corrected], images=images, episode_id=f'e{number}', **more)


@pytest.fixture(scope='module')
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of two recordings, to the second of which a question was added by a person."""
    folder = tmp_path_factory.mktemp('lerobot')
    recording(folder / 'bags', 1)
    second = recording(folder / 'bags', 2)
    question = WrittenQuestion('How many lamps?', 5 * SECOND_NS)
    written = Label('q1', 'q1', LabelKind.QUESTION, 'ann', 1, after='2', question=question)
    append_label(second, written, read_scope(second))
    out = str(folder / 'out')
    assert main(['episodes', 'export', 'lerobot', str(folder / 'bags'), '--out', out]) == 0
    return folder / 'out'


def rows(dataset: Path, number: int) -> list[dict[str, Any]]:
    table = parquet.read_table(dataset / f'data/chunk-000/file-{number:03d}.parquet')
    return list(table.to_pylist())


def test_dataset_says_what_it_holds(dataset: Path) -> None:
    info = json.loads((dataset / 'meta/info.json').read_text())
    assert (info['codebase_version'], info['fps'], info['robot_type']) == ('v3.0', 10, None)
    assert (info['total_episodes'], info['total_frames'], info['total_tasks']) == (2, 82, 1)
    assert info['splits'] == {'train': '0:2'}
    assert info['features'][CAMERA]['shape'] == [48, 64, 3]
    language = {'dtype': 'language', 'shape': [1], 'names': None}
    assert info['features']['language_events'] == language
    assert info['features']['language_persistent'] == language
    stats = json.loads((dataset / 'meta/stats.json').read_text())
    assert np.shape(stats[CAMERA]['mean']) == (3, 1, 1)
    assert np.ravel(stats[CAMERA]['mean']) == pytest.approx(
        [200 / 255, 60 / 255, 10 / 255], abs=0.03
    )
    assert (stats['index']['min'], stats['index']['max'], stats['index']['count']) == (
        [0],
        [81],
        [82],
    )
    [first, second] = parquet.read_table(
        dataset / 'meta/episodes/chunk-000/file-000.parquet'
    ).to_pylist()
    assert (first['dataset_from_index'], first['dataset_to_index']) == (0, 41)
    assert (second['dataset_from_index'], second['dataset_to_index']) == (41, 82)
    assert (second[f'videos/{CAMERA}/file_index'], second['data/file_index']) == (1, 1)
    assert second[f'videos/{CAMERA}/to_timestamp'] == pytest.approx(4.1)
    tasks = parquet.read_table(dataset / 'meta/tasks.parquet')
    assert json.loads(tasks.schema.metadata[b'pandas'])['index_columns'] == ['task']


def test_dataset_has_a_card(dataset: Path) -> None:
    _, head, text = (dataset / 'README.md').read_text().split('---\n', 2)
    [config] = yaml.safe_load(head)['configs']
    assert len(list(dataset.glob(config['data_files']))) == 2
    features = json.loads((dataset / 'meta/info.json').read_text())['features']
    assert [name for name in features if f'\n| {name} | ' not in text] == []
    assert '| episodes | 2 |\n| frames | 82 |' in text


def test_frames_are_on_a_grid_with_a_picture_each(dataset: Path) -> None:
    for number in range(2):
        frames = rows(dataset, number)
        assert [row['frame_index'] for row in frames] == list(range(41))
        assert [row['index'] for row in frames] == list(range(41 * number, 41 * (number + 1)))
        seconds = np.arange(41, dtype=np.float32) / 10
        assert [row['timestamp'] for row in frames] == pytest.approx(seconds)
        video = VideoFrames(dataset / f'videos/{CAMERA}/chunk-000/file-{number:03d}.mp4')
        assert video.seconds == pytest.approx(np.arange(41) / 10)
        pixels = next(iter(video.read(40, 1)))
        assert pixels.mean(axis=(0, 1)) == pytest.approx([10, 60, 200], abs=8)
        video.close()


def test_frame_shows_the_newest_picture_until_then(tmp_path: Path) -> None:
    greys = [40, 80, 120, 160, 200]
    images = [encode_image(np.full((48, 64, 3), grey, np.uint8)) for grey in greys]
    bag, out = recording(tmp_path, 1, images=images), tmp_path / 'out'
    assert main(['episodes', 'export', 'lerobot', str(bag), '--out', str(out)]) == 0
    video = VideoFrames(out / f'videos/{CAMERA}/chunk-000/file-000.mp4')
    found = [float(pixels.mean()) for pixels in video.read(0, 41)]
    video.close()
    assert found == pytest.approx([greys[frame // 10] for frame in range(41)], abs=4)


def test_questions_stand_at_their_stamps_as_the_schema_of_lerobot_has_them(dataset: Path) -> None:
    found = {
        number: [
            (row['frame_index'], event)
            for row in rows(dataset, number)
            for event in row['language_events']
        ]
        for number in range(2)
    }
    # A frame has one pair of a camera, so that of two questions of one moment one is on the next.
    assert [frame for frame, _ in found[0]] == [20, 20, 21, 21]
    assert [frame for frame, _ in found[1]] == [20, 20, 21, 21, 40, 40]
    for _, event in (*found[0], *found[1]):
        assert set(event) == EVENT
        assert (event['style'], event['camera'], event['tool_calls']) == ('vqa', CAMERA, None)
    roles = [event['role'] for _, event in found[0]]
    assert roles == ['user', 'assistant'] * 2
    assert found[0][0][1]['content'] == 'Where is the door?\nA. left\nB. right\nC. ahead'
    answers = [
        json.loads(event['content'])
        for _, event in (*found[0], *found[1])
        if event['role'] == 'assistant'
    ]
    assert all({'label', 'attribute', 'value'} <= set(one) for one in answers)  # shape `attribute`
    assert [(one['value'], one['source']) for one in answers] == [
        ('right', 'label'),
        ('left', 'answered'),
        ('right', 'label'),
        ('left', 'answered'),
        ('2', 'label'),
    ]


def test_motion_holds_from_where_it_begins(dataset: Path) -> None:
    frames = rows(dataset, 0)
    assert all(row['language_persistent'] == frames[0]['language_persistent'] for row in frames)
    motions = frames[0]['language_persistent']
    assert all(set(row) == PERSISTENT and row['camera'] is None for row in motions)
    assert [(row['style'], row['content']) for row in motions] == [
        ('motion', 'moved forward 1.0 m')
    ] * 4
    stamps = {row['timestamp'] for row in frames}
    assert [row['timestamp'] for row in motions] == [0.0, 1.0, 2.0, 3.0]
    assert all(row['timestamp'] in stamps for row in motions)


def test_columns_have_the_types_of_lerobot(dataset: Path) -> None:
    schema = parquet.read_schema(dataset / 'data/chunk-000/file-000.parquet')
    assert schema.field('timestamp').type == pa.float32()
    assert schema.field('task_index').type == pa.int64()
    event = schema.field('language_events').type.value_type
    assert not event.field('role').nullable
    assert event.field('content').nullable
    assert event.field('tool_calls').type.value_type == pa.json_()
    persistent = schema.field('language_persistent').type.value_type
    assert persistent.field('timestamp').type == pa.float32()


def test_poses_become_the_state_and_our_importer_reads_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / 'out'
    words = ['episodes', 'export', 'lerobot', str(SAMPLE), '--rate', '2', '--out', str(out)]
    assert main(words) == 0
    [entry] = LeRobotMetadata(out, CAMERA).entries()
    assert (entry.length, entry.task) == (40, 'look around')
    assert entry.video
    assert entry.video.is_file()
    [(bag, shown)] = imported_again(out, tmp_path, capsys)
    [states] = columns(out, 'observation.state')
    assert bag.name == 'episode_000000'
    assert np.allclose(shown.positions, states[:, :3], atol=1e-6)
    assert np.allclose(shown.orientations, states[:, 3:7], atol=1e-6)


def imported_again(
    out: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> list[tuple[Path, Any]]:
    """Bags of an exported dataset by the mapping that our own importer proposes, and the arm."""
    capsys.readouterr()
    assert main(['demos', 'mapping', str(out)]) == 0
    mapping, again = tmp_path / 'mapping.yaml', tmp_path / 'again'
    mapping.write_text(capsys.readouterr().out)
    assert main(['demos', 'import', str(out), '--mapping', str(mapping), '--out', str(again)]) == 0
    found = []
    for bag in sorted(again.iterdir()):
        with open_bag(bag) as reader:
            found.append((bag, read_demonstration(reader)))
    return found


def columns(dataset: Path, *names: str) -> list[np.ndarray[Any, Any]]:
    """Values of columns of the first episode, whose shapes are those that the dataset tells."""
    features = json.loads((dataset / 'meta/info.json').read_text())['features']
    found = []
    for name in names:
        values = np.array([row[name] for row in rows(dataset, 0)])
        assert (
            values.shape[1:] == tuple(features[name]['shape']) == (len(features[name]['names']),)
        )
        found.append(values)
    return found


def test_action_of_a_camera_is_the_velocity_to_the_next_frame(tmp_path: Path) -> None:
    out = tmp_path / 'out'
    words = ['episodes', 'export', 'lerobot', str(SAMPLE), '--rate', '5', '--out', str(out)]
    assert main(words) == 0
    states, actions = columns(out, 'observation.state', 'action')
    names = json.loads((out / 'meta/info.json').read_text())['features']['action']['names']
    assert names == ['x.vel', 'y.vel', 'z.vel', 'yaw.vel']
    assert np.abs(actions[:, 0]).max() > 0.1  # m/s, and turns:
    assert np.abs(actions[:, 3]).max() > 0.1
    # Going by the actions from the first pose leads along all poses.
    place = states[0, :2].astype(float)
    yaw = 2 * np.arctan2(states[0, 5], states[0, 6])
    for state, (forward, left, _, turn) in zip(states, actions.astype(float), strict=True):
        assert place == pytest.approx(state[:2], abs=0.01)
        assert np.cos(yaw - 2 * np.arctan2(state[5], state[6])) > 0.999
        along, across = np.array([np.cos(yaw), np.sin(yaw)]), np.array([-np.sin(yaw), np.cos(yaw)])
        place += (forward * along + left * across) / 5
        yaw += turn / 5
    assert not actions[-1].any()


def test_action_of_an_arm_is_its_next_state(tmp_path: Path) -> None:
    arm_bag(tmp_path / 'arm')
    out = tmp_path / 'out'
    words = ['episodes', 'export', 'lerobot', str(tmp_path / 'arm'), '--out', str(out)]
    assert main(words) == 0
    states, actions = columns(out, 'observation.state', 'action')
    assert states[0] == pytest.approx([*tool_at(0.0, 0.0), 0, 0, 0, 1, 1], abs=1e-6)
    assert states[-1] == pytest.approx([*tool_at(0.1, -0.05), 0, 0, 0, 1, 0.25], abs=1e-6)
    assert np.array_equal(actions[:-1], states[1:])
    assert np.array_equal(actions[-1], states[-1])


def test_an_arm_that_was_exported_comes_back_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm_bag(tmp_path / 'arm')
    out = tmp_path / 'out'
    words = [str(tmp_path / 'arm'), '--rate', f'{RATE_HZ:g}', '--out', str(out)]
    assert main(['episodes', 'export', 'lerobot', *words]) == 0
    [(_, again)] = imported_again(out, tmp_path, capsys)
    with open_bag(tmp_path / 'arm') as reader:
        before = read_demonstration(reader)
    assert again.task == before.task
    for name in ('positions', 'orientations', 'openings'):
        assert np.allclose(getattr(again, name), getattr(before, name), atol=1e-6)
    assert np.abs(again.seconds() - before.seconds()).max() < 1e-6


def test_without_poses_there_is_neither_state_nor_action(dataset: Path) -> None:
    features = json.loads((dataset / 'meta/info.json').read_text())['features']
    assert not {'observation.state', 'action'} & {*features, *rows(dataset, 0)[0]}


def test_arm_whose_state_is_another_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arm_bag(tmp_path / 'a')
    arm_bag(tmp_path / 'b', setup=replace(SETUP, gripper_joints=()))
    out = str(tmp_path / 'out')
    words = [str(tmp_path / 'a'), str(tmp_path / 'b'), '--out', out]
    assert main(['episodes', 'export', 'lerobot', *words]) == 0
    assert 'left out: b: its state is x, y, z, qx, qy, qz, qw, and' in capsys.readouterr().err


def pair(folder: Path, spoil: Callable[[Path], Path]) -> tuple[Path, Path]:
    return recording(folder, 1), spoil(folder)


@pytest.mark.parametrize(
    ('spoil', 'why'),
    [
        (lambda folder: recording(folder, 2, picture(48, 32)), 'have 32x48 pixels'),
        (lambda folder: recording(folder, 2, EncodedImage(b'', 'jpeg')), 'has no pictures'),
        (lambda folder: recording(folder, 2, EncodedImage(b'no picture', 'jpeg')), ''),
    ],
)
def test_recording_that_does_not_fit_is_left_out_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], spoil: Callable[[Path], Path], why: str
) -> None:
    bags, out = pair(tmp_path, spoil), tmp_path / 'out'
    assert main(['episodes', 'export', 'lerobot', *map(str, bags), '--out', str(out)]) == 0
    assert 'left out: e2: ' in (err := capsys.readouterr().err)
    assert why in err
    assert '1 episodes, 41 frames, 2 questions' in err
    assert len(list(out.glob('videos/*/*/*.mp4'))) == 1
    assert main(['episodes', 'export', 'lerobot', str(bags[0]), '--out', str(out)]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ['e1', 'e2', 'out']


def test_of_two_that_export_to_one_folder_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / 'out'
    with ExitStack() as late:
        second = late.enter_context(whole_folder(out))
        (second / 'file').write_text('second')
        monkeypatch.setattr('os.getpid', lambda: 1)
        with whole_folder(out) as first:
            (first / 'file').write_text('first')
        with pytest.raises(InputError, match=r'cannot write to .*out: '):
            late.close()
    assert [path.name for path in tmp_path.iterdir()] == ['out']
    assert (out / 'file').read_text() == 'first'


def test_nothing_is_left_where_no_recording_fits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = recording(tmp_path, 1, EncodedImage(b'', 'jpeg'))
    assert main(['episodes', 'export', 'lerobot', str(bag), '--out', str(tmp_path / 'o')]) == 2
    assert 'no recording could be exported' in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ['e1']
