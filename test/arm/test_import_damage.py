# SPDX-License-Identifier: Apache-2.0
"""Damaged datasets of demonstrations: refused in one line, or left out and counted."""

from __future__ import annotations

import json
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.main import main
import numpy as np
import pytest

from test.arm.datasets import (
    CAMERA,
    check,
    FPS,
    grey,
    lerobot_v2,
    lerobot_v3,
    rlbench,
    ROWS,
    run,
    state,
    video,
    write,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytest.importorskip('pyarrow')
IMAGE = f'image: {CAMERA}'
FILE_OF = 'data/chunk-000/episode_{:06d}.parquet'
V3_DATA, V3_META = 'data/chunk-000/file-000.parquet', 'meta/episodes/chunk-000/file-000.parquet'
V3_VIDEO = f'videos/{CAMERA}/chunk-000/file-000.mp4'
VIDEO_OF = f'videos/chunk-000/{CAMERA}/episode_{{:06d}}.mp4'
Columns = dict[str, list[Any]]


def assert_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], *named: str, more: str = IMAGE
) -> None:
    """Exit code 2, one line that names what is wrong, and nothing written."""
    assert run(tmp_path / 'set', tmp_path, more) == (2, [])
    line = capsys.readouterr().err
    assert line.count('\n') == 1, line
    assert line.startswith('embodied-r: error: ')
    for text in named:
        assert text in line


def change_table(path: Path, change: Callable[[Columns], object]) -> None:
    """Write a parquet file again with other columns."""
    import pyarrow
    from pyarrow import parquet

    columns = parquet.read_table(path, partitioning=None).to_pydict()
    change(columns)
    write(path, pyarrow.table(columns))


def set_cell(name: str, row: int, value: Any) -> Callable[[Columns], None]:
    def change(columns: Columns) -> None:
        columns[name][row] = value

    return change


def set_column(name: str, values: list[Any]) -> Callable[[Columns], None]:
    return lambda columns: columns.update({name: values})


def keep_rows(*rows: int) -> Callable[[Columns], None]:
    def change(columns: Columns) -> None:
        for name, values in columns.items():
            columns[name] = [values[row] for row in rows]

    return change


def drop(name: str) -> Callable[[Columns], object]:
    return lambda columns: columns.pop(name)


def change_info(root: Path, **values: Any) -> None:
    path = root / 'meta' / 'info.json'
    content = json.loads(path.read_text())
    content |= {name: value for name, value in values.items() if value is not None}
    for name, value in values.items():
        if value is None:
            del content[name]
    path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ('values', 'named'),
    [
        ({'fps': None}, "'fps' is missing"),
        ({'fps': 0}, 'fps is 0'),
        ({'fps': math.nan}, "'fps' is nan"),
        ({'fps': True}, "'fps' is True"),
        ({'features': None}, "'features' is missing"),
        ({'data_path': None}, "'data_path' is missing"),
        ({'data_path': 'data/{episode}.parquet'}, "data_path has 'episode'"),
        ({'data_path': 'data/{episode_index:0999999999d}.parquet'}, 'data_path is'),
        ({'data_path': 'data/\0.parquet'}, 'which is no file'),
        ({'data_path': '/etc/{episode_index}'}, 'outside of the dataset'),
        ({'chunks_size': 0}, "'chunks_size' is 0"),
        ({'total_episodes': 3}, 'lists 2 episodes, and total_episodes'),
        ({'codebase_version': None}, "'codebase_version' is missing"),
    ],
)
def test_a_damaged_description_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], named: str
) -> None:
    lerobot_v2(tmp_path / 'set')
    change_info(tmp_path / 'set', **values)
    assert_refused(tmp_path, capsys, 'info.json' if 'version' not in named else '', named)


@pytest.mark.parametrize(
    ('line', 'named'),
    [
        ('{"episode_index": 1, "tas', 'line 2 is not JSON'),
        ('{"tasks": []}', "line 2: column 'episode_index' is missing"),
        ('{"episode_index": -1}', "line 2: column 'episode_index' is -1"),
        ('{"episode_index": 0}', 'episode 0 more than once'),
        ('{"episode_index": 1, "length": 29}', '9 rows of episode 1, and the metadata state'),
        ('', 'lists 1 episodes, and total_episodes'),
        ('[' * 100_000, 'line 2 is not JSON'),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_damaged_list_of_episodes_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, named: str
) -> None:
    lerobot_v2(tmp_path / 'set')
    path = tmp_path / 'set' / 'meta' / 'episodes.jsonl'
    first = path.read_text().split('\n')[0]
    path.write_text(f'{first}\n{line}\n')
    assert_refused(tmp_path, capsys, named)


def test_a_list_that_is_empty_absent_or_no_text_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    path = tmp_path / 'set' / 'meta' / 'episodes.jsonl'
    path.write_text('')
    assert_refused(tmp_path, capsys, 'episodes.jsonl lists no episodes')
    path.write_bytes(b'\xff\xfe')
    assert_refused(tmp_path, capsys, 'episodes.jsonl cannot be read')
    path.unlink()
    assert_refused(tmp_path, capsys, 'episodes.jsonl cannot be read')
    (tmp_path / 'set' / 'meta' / 'info.json').unlink()
    assert_refused(tmp_path, capsys, 'info.json cannot be read')


def without(columns: Columns, row: int) -> None:
    keep_rows(*(each for each in range(9) if each != row))(columns)


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (
            set_cell('observation.state', 2, None),
            "'observation.state', row 2 of episode 1 is null",
        ),
        (set_cell('observation.state', 2, [1.0]), 'row 2 of episode 1 has 1 numbers: expected 4'),
        (set_cell('observation.state', 3, [math.nan] * 4), 'row 3 of episode 1 has [nan'),
        (set_cell('observation.state', 3, [1e300] * 4), 'row 3 of episode 1 has [1e+297'),
        (set_column('observation.state', ['1', '2'] * 4 + ['3']), 'is of type string'),
        (drop('observation.joints'), "no column 'observation.joints'"),
        (set_cell('episode_index', 4, 0), "'episode_index', row 4 is 0: expected 1"),
        (set_cell('timestamp', 5, math.nan), "'timestamp', row 5 of episode 1 is nan"),
        (set_cell('timestamp', 5, 1e15), "'timestamp', row 5 of episode 1 is 1e+15"),
        (set_cell('timestamp', 5, 0.4), "'timestamp', row 5 of episode 1 is 0.4 s after 0.4 s"),
        (set_cell('frame_index', 5, 0), "'frame_index', row 5 of episode 1 is 0: expected 5"),
        (
            lambda columns: without(columns, 4),
            '8 rows of episode 1',
        ),
        (keep_rows(0), '1 rows of episode 1'),
        (set_cell(CAMERA, 3, None), f"'{CAMERA}', row 3 of episode 1 is empty"),
        (
            set_cell(CAMERA, 3, {'bytes': b'no image'}),
            "begins with b'no image'",
        ),
        (drop(CAMERA), f'no column {CAMERA!r}'),
    ],
)
def test_a_damaged_row_is_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Columns], object],
    named: str,
) -> None:
    lerobot_v2(tmp_path / 'set')
    change_table(tmp_path / 'set' / FILE_OF.format(1), change)
    assert_refused(tmp_path, capsys, 'episode_000001.parquet', named)


@pytest.mark.parametrize('kind', ['bytes_are_empty', 'bytes_are_null', 'no_bytes'])
@pytest.mark.parametrize('folder', ['', f'images/{CAMERA}/episode_000001', 'data/chunk-000'])
def test_an_image_that_a_path_names_is_read(tmp_path: Path, kind: str, folder: str) -> None:
    root = tmp_path / 'set'
    lerobot_v2(root)
    (root / folder).mkdir(parents=True, exist_ok=True)
    for row in range(ROWS[1]):
        cv2.imwrite(str(root / folder / f'frame_{row:06d}.png'), grey(1, row))
    parts: dict[str, dict[str, Any]]
    parts = {'bytes_are_empty': {'bytes': b''}, 'bytes_are_null': {'bytes': None}, 'no_bytes': {}}
    cells = [{**parts[kind], 'path': f'frame_{row:06d}.png'} for row in range(ROWS[1])]
    change_table(root / FILE_OF.format(1), set_column(CAMERA, cells))
    code, bags = run(root, tmp_path, IMAGE)
    assert code == 0
    check(bags)


@pytest.mark.parametrize(
    ('path', 'named'),
    [
        ('frame_000003.png', "names 'frame_000003.png', which is not in the dataset"),
        ('../frame.png', 'outside of the dataset'),
        ('/etc/hostname', 'outside of the dataset'),
        ('meta/info.json', 'expected a PNG or JPEG image'),
    ],
    ids=lambda value: str(value)[:20],
)
def test_an_image_that_a_path_does_not_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], path: str, named: str
) -> None:
    lerobot_v2(tmp_path / 'set')
    cells = set_cell(CAMERA, 3, {'bytes': None, 'path': path})
    change_table(tmp_path / 'set' / FILE_OF.format(0), cells)
    assert_refused(tmp_path, capsys, 'row 3 of episode 0', named)


@pytest.mark.parametrize('rows', [6, 8, 10, 29])
def test_a_video_of_another_length_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    lerobot_v2(tmp_path / 'set', 'video')
    monkeypatch.setattr('test.arm.datasets.ROWS', (6, rows))
    video(tmp_path / 'set' / VIDEO_OF.format(1), [1])
    named = f'episode_000001.mp4 has {rows} images of episode 1, and its table has 9 rows'
    assert_refused(tmp_path, capsys, named)


def test_an_image_that_cannot_be_decoded_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    whole = cv2.imencode('.jpg', grey(0, 0))[1].tobytes()
    for data, what in ((whole[:-20], 'is cut off'), (whole[:20] + whole[-2:], 'is no image')):
        cells = set_cell(CAMERA, 3, {'bytes': data})
        change_table(tmp_path / 'set' / FILE_OF.format(0), cells)
        assert_refused(tmp_path, capsys, f"'{CAMERA}', row 3 of episode 0 {what}")
    other = cv2.imencode('.png', grey(0, 0)[:20])[1].tobytes()
    change_table(tmp_path / 'set' / FILE_OF.format(0), set_cell(CAMERA, 3, {'bytes': other}))
    assert_refused(tmp_path, capsys, 'row 3 of episode 0 is 64x20: expected 64x48')


def test_a_video_that_is_damaged_within_is_refused_where_it_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / 'set'
    lerobot_v3(root)
    content = bytearray((root / V3_VIDEO).read_bytes())
    # Headers of frames, of which only the first one is a keyframe. Damaged is one of episode 1.
    starts = [at for at in range(len(content)) if content[at : at + 4] == b'\0\0\1\xb6']
    content[starts[8] + 4 : starts[9]] = bytes([255]) * (starts[9] - starts[8] - 4)
    (root / V3_VIDEO).write_bytes(content)
    code, bags = run(root, tmp_path, IMAGE)
    assert (code, [bag.name for bag in bags]) == (2, ['episode_000000'])
    line = capsys.readouterr().err
    assert line.count('\n') == 1
    assert 'file-000.mp4, frame 8, cannot be' in line
    code, bags = run(root, tmp_path, IMAGE, '--skip-damaged')
    assert (code, [bag.name for bag in bags]) == (0, ['episode_000000'])
    assert 'episode_000001' in capsys.readouterr().err


@pytest.mark.parametrize('name', [FILE_OF, VIDEO_OF])
def test_an_episode_whose_files_are_absent_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    lerobot_v2(tmp_path / 'set', 'video')
    (tmp_path / 'set' / name.format(0)).unlink()
    code, bags = run(tmp_path / 'set', tmp_path, IMAGE)
    assert (code, [bag.name for bag in bags]) == (0, ['episode_000001'])
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith('1 episodes are listed, and their files absent')
    assert 'episode_000000' in lines[0]
    assert lines[1].startswith('1 of 2 episodes are bags')


def test_files_may_be_links_that_lead_elsewhere(tmp_path: Path) -> None:
    root = tmp_path / 'set'
    lerobot_v2(root, 'video')
    for number, name in enumerate((FILE_OF.format(0), VIDEO_OF.format(1))):
        (root / name).rename(tmp_path / f'blob{number}')
        (root / name).symlink_to(tmp_path / f'blob{number}')
    code, bags = run(root, tmp_path, IMAGE)
    assert code == 0
    check(bags)


def test_a_file_that_no_list_has_is_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / 'set'
    lerobot_v2(root)
    (root / FILE_OF.format(2)).write_bytes((root / FILE_OF.format(1)).read_bytes())
    code, bags = run(root, tmp_path, IMAGE)
    assert (code, len(bags)) == (0, 2)
    assert '1 files that the metadata do not list (episode_000002' in capsys.readouterr().err


def test_a_dataset_named_by_a_way_round_has_all_its_files_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    (tmp_path / 'beside').mkdir()
    code, bags = run(tmp_path / 'beside' / '..' / 'set', tmp_path, IMAGE)
    assert (code, len(bags)) == (0, 2)
    assert 'do not list' not in capsys.readouterr().err


def test_damaged_episodes_are_left_out_where_that_is_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set')
    nan = set_cell('observation.state', 3, [math.nan] * 4)
    change_table(tmp_path / 'set' / FILE_OF.format(0), nan)
    code, bags = run(tmp_path / 'set', tmp_path, IMAGE, '--skip-damaged')
    assert (code, [bag.name for bag in bags]) == (0, ['episode_000001'])
    lines = capsys.readouterr().err.splitlines()
    assert 'row 3 of episode 0 has [nan' in lines[0]
    assert lines[0].endswith('left out')
    assert lines[-1].startswith('1 of 2 episodes are bags')


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (set_cell('episode_index', 1, None), "row 1: column 'episode_index' is None"),
        (set_cell('episode_index', 1, 0), 'lists episode 0 more than once'),
        (drop('data/chunk_index'), "column 'data/chunk_index' is missing"),
        (set_cell(f'videos/{CAMERA}/from_timestamp', 1, math.nan), "from_timestamp' is nan"),
        (set_cell(f'videos/{CAMERA}/from_timestamp', 1, 0.0), 'images of episode 1'),
        (set_cell('length', 1, 29), '9 rows of episode 1'),
        (keep_rows(), 'lists no episodes'),
    ],
)
def test_a_damaged_list_of_v3_is_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Columns], object],
    named: str,
) -> None:
    lerobot_v3(tmp_path / 'set')
    change_table(tmp_path / 'set' / V3_META, change)
    assert_refused(tmp_path, capsys, named)


@pytest.mark.parametrize('count', [600, 600_000])
def test_a_text_that_is_repeated_without_end_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    """Some hundred bytes in the file; as texts 600 MB, or 600 GB."""
    import pyarrow
    from pyarrow import parquet

    lerobot_v3(tmp_path / 'set')
    path = tmp_path / 'set' / V3_META
    rows = parquet.read_table(path, partitioning=None)
    text = pyarrow.DictionaryArray.from_arrays(
        pyarrow.array([0] * 2 * count, 'int32'), pyarrow.array(['x' * 1_000_000])
    )
    tasks = pyarrow.ListArray.from_arrays(pyarrow.array([0, count, 2 * count], 'int32'), text)
    rows = rows.set_column(rows.schema.get_field_index('tasks'), 'tasks', tasks)
    parquet.write_table(rows, path, compression='zstd', store_schema=False)
    assert path.stat().st_size < 100_000
    assert_refused(tmp_path, capsys, V3_META, "'tasks' has", 'bytes: expected at most 500,000,000')


def test_episodes_that_have_images_in_common_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v3(tmp_path / 'set')
    key = f'videos/{CAMERA}'

    def change(columns: Columns) -> None:
        columns[f'{key}/from_timestamp'] = [0.0, 0.3]
        del columns[f'{key}/to_timestamp']

    change_table(tmp_path / 'set' / V3_META, change)
    assert_refused(tmp_path, capsys, 'episodes 0 and 1 have images in common')


def test_rows_in_any_order_of_the_list_are_the_same_episodes(tmp_path: Path) -> None:
    lerobot_v3(tmp_path / 'set')
    change_table(tmp_path / 'set' / V3_META, keep_rows(1, 0))
    code, bags = run(tmp_path / 'set', tmp_path, IMAGE)
    assert code == 0
    assert [shown.task for shown in check(bags)] == ['task 0', 'task 1']


@pytest.mark.parametrize(
    ('rows', 'named'),
    [
        ([*range(6), 7, 6, *range(8, 15)], "'frame_index', row 0 of episode 1 is 1"),
        ([*range(5), 6, 5, *range(7, 15)], "'episode_index', row"),
        (list(range(14)), '8 rows of episode 1'),
    ],
)
def test_rows_of_v3_that_are_missing_or_out_of_order_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[int], named: str
) -> None:
    lerobot_v3(tmp_path / 'set')
    change_table(tmp_path / 'set' / V3_DATA, keep_rows(*rows))
    assert_refused(tmp_path, capsys, 'file-000.parquet', named)


def test_rows_of_episodes_that_no_list_has_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v3(tmp_path / 'set')
    change_table(tmp_path / 'set' / V3_META, keep_rows(1))
    change_info(tmp_path / 'set', total_episodes=1)
    code, bags = run(tmp_path / 'set', tmp_path, IMAGE)
    assert (code, [bag.name for bag in bags]) == (0, ['episode_000001'])
    assert '6 rows of episodes that the metadata do not list' in capsys.readouterr().err


def test_images_of_no_episode_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lerobot_v3(tmp_path / 'set')
    monkeypatch.setattr('test.arm.datasets.ROWS', (6, 9, 20))
    video(tmp_path / 'set' / V3_VIDEO, [0, 1, 2])
    code, bags = run(tmp_path / 'set', tmp_path, IMAGE)
    assert code == 0
    assert 'file-000.mp4 has 20 images of no episode: left out' in capsys.readouterr().err
    assert len(bags) == 2


def arrays() -> dict[str, Any]:
    rows = range(ROWS[1])
    return {
        'observation.state': [state(1, row) for row in rows],
        'observation.joints': [[10.0 * row, 90.0] for row in rows],
    }


@pytest.mark.parametrize('as_json', [True, False])
@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (lambda a: a.update({'observation.joints': a['observation.joints'][:5]}), 'has 5 rows'),
        (set_cell('observation.state', 3, [math.nan] * 4), 'row 3 of episode1 has [nan'),
        (drop('observation.joints'), "no column 'observation.joints'"),
        (set_column('observation.joints', ['a'] * 9), 'expected numbers'),
        (lambda a: a.clear(), 'has no rows'),
    ],
)
def test_damaged_numbers_of_rlbench_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Columns], object],
    named: str,
    *,
    as_json: bool,
) -> None:
    rlbench(tmp_path / 'set', as_json=as_json)
    content = arrays()
    change(content)
    folder = next((tmp_path / 'set').rglob('episode1'))
    if as_json:
        (folder / 'low_dim.json').write_text(json.dumps(content))
    else:
        changed: dict[str, Any] = {name: np.array(rows) for name, rows in content.items()}
        np.savez(folder / 'low_dim.npz', **changed)
    file = 'low_dim.json' if as_json else 'low_dim.npz'
    assert_refused(tmp_path, capsys, file, named, more='image: front_rgb')


@pytest.mark.parametrize(
    ('row', 'named'),
    [
        (None, 'row 3 of episode1 is None'),
        ([1.0], 'row 3 of episode1 has shape (1,)'),
        ([1.0, [2.0], 3.0, 4.0], 'row 3 of episode1 is [1.0'),
        ([10**400] * 4, 'row 3 of episode1 is [1000'),
    ],
)
def test_a_damaged_row_of_json_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], row: Any, named: str
) -> None:
    rlbench(tmp_path / 'set', as_json=True)
    content = arrays()
    content['observation.state'][3] = row
    file = next((tmp_path / 'set').rglob('episode1/low_dim.json'))
    file.write_text(json.dumps(content))
    assert_refused(tmp_path, capsys, 'low_dim.json', named, more='')


def more_images(folder: Path, count: int) -> None:
    for row in range(ROWS[1], ROWS[1] + count):
        cv2.imwrite(str(folder / f'{row}.png'), grey(1, 0))


@pytest.mark.parametrize(
    ('change', 'named'),
    [
        (lambda f: more_images(f, 20), 'has 29 images, and'),
        (lambda f: (f / '4.png').rename(f / '9.png'), 'no image of number 4'),
        (lambda f: (f / '4.png').rename(f / 'four.png'), 'one image for each number'),
        (lambda f: (f / '4.png').write_bytes(b''), '4.png is empty'),
    ],
)
def test_images_of_rlbench_that_do_not_fit_are_refused(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Path], object],
    named: str,
) -> None:
    rlbench(tmp_path / 'set', as_json=True)
    change(next((tmp_path / 'set').rglob('episode1/front_rgb')))
    assert_refused(tmp_path, capsys, named, more='image: front_rgb')


def test_the_rate_of_a_video_is_that_of_its_rows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v3(tmp_path / 'set')
    change_table(
        tmp_path / 'set' / V3_DATA,
        lambda columns: columns.update(timestamp=[1.2 * s for s in columns['timestamp']]),
    )
    assert_refused(tmp_path, capsys, 'no image of row 4 of episode 0', f'every {1 / FPS:.4f} s')


def at_times(seconds: Callable[[int], float]) -> Callable[[Columns], None]:
    return lambda columns: columns.update(
        timestamp=[seconds(row) for row in range(len(columns['timestamp']))]
    )


@pytest.mark.parametrize(
    ('seconds', 'fps', 'words'),
    [
        (lambda row: 100 * row, FPS, ('500.00 s, and 0.50 s', 'milliseconds: divide them by 1,')),
        (lambda row: row / 10, 50, ('6 times last 0.50 s, and 0.10 s at the fps 50',)),
        (lambda row: row / 30, FPS, ('last 0.17 s, and 0.50 s at the fps 10',)),
    ],
)
def test_times_that_contradict_the_rate_are_refused_with_both_durations(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    seconds: Callable[[int], float],
    fps: float,
    words: tuple[str, ...],
) -> None:
    lerobot_v2(tmp_path / 'set')
    change_table(tmp_path / 'set' / FILE_OF.format(0), at_times(seconds))
    change_info(tmp_path / 'set', fps=fps)
    assert_refused(tmp_path, capsys, "column 'timestamp', of episode 0", *words)


def test_a_video_of_another_rate_than_its_rows_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v2(tmp_path / 'set', 'video')
    for index in range(len(ROWS)):
        file = tmp_path / 'set' / FILE_OF.format(index)
        change_table(file, at_times(lambda row: 3 * row / FPS))
    change_info(tmp_path / 'set', fps=FPS / 3)
    named = ('episode_000000.mp4: 6 times last 0.50 s, and 1.50 s', 'expected as long')
    assert_refused(tmp_path, capsys, *named)


def test_jitter_is_no_other_rate(tmp_path: Path) -> None:
    lerobot_v2(tmp_path / 'set')
    times = at_times(lambda row: row / FPS + 0.04 * (row % 2))
    change_table(tmp_path / 'set' / FILE_OF.format(0), times)
    assert run(tmp_path / 'set', tmp_path, IMAGE)[0] == 0


def deep(row: int) -> bytes:
    return cv2.imencode('.png', np.full((48, 64), 1000 + row, np.uint16))[1].tobytes()


def test_depth_is_no_camera_of_colours(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lerobot_v2(tmp_path / 'set')
    cells = [{'bytes': deep(row)} for row in range(ROWS[0])]
    change_table(tmp_path / 'set' / FILE_OF.format(0), set_column(CAMERA, cells))
    assert_refused(tmp_path, capsys, f'{CAMERA!r}, row 0 of episode 0 is depth (grey, 16 bits)')
    rlbench(tmp_path / 'other', as_json=True)
    image = next((tmp_path / 'other').rglob('0.png'))
    image.write_bytes(deep(0))
    (tmp_path / 'set').rename(tmp_path / 'first')
    (tmp_path / 'other').rename(tmp_path / 'set')
    assert_refused(tmp_path, capsys, '0.png is depth', more='image: front_rgb')


@pytest.mark.parametrize('key', ['video.is_depth_map', 'is_depth_map'])
def test_a_camera_that_its_dataset_calls_depth_is_none(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], key: str
) -> None:
    lerobot_v2(tmp_path / 'set')
    change_info(tmp_path / 'set', features={CAMERA: {'dtype': 'image', 'info': {key: True}}})
    assert_refused(tmp_path, capsys, f'camera {CAMERA!r} is of depth')


def test_a_video_of_depth_is_no_camera_of_colours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    av = pytest.importorskip('av')
    lerobot_v2(tmp_path / 'set', 'video')
    with av.open(str(tmp_path / 'set' / VIDEO_OF.format(0)), 'w', format='matroska') as container:
        stream = container.add_stream('ffv1', rate=FPS)
        stream.width, stream.height, stream.pix_fmt = 64, 48, 'gray16le'
        for row in range(ROWS[0]):
            pixels = np.full((48, 64), 1000 + row, np.uint16)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(pixels, format='gray16le')))
        container.mux(stream.encode())
    assert_refused(tmp_path, capsys, 'episode_000000.mp4 is of depth')


POINTER = b'version https://git-lfs.github.com/spec/v1\noid sha256:' + b'a' * 64 + b'\nsize 9\n'


@pytest.mark.parametrize(
    ('dtype', 'pattern'),
    [
        ('image', '*.parquet'),
        ('video', '*.mp4'),
        ('image', 'info.json'),
        ('image', 'episodes.jsonl'),
    ],
)
def test_pointers_in_place_of_files_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], dtype: str, pattern: str
) -> None:
    lerobot_v2(tmp_path / 'set', dtype)
    for file in (tmp_path / 'set').rglob(pattern):
        file.write_bytes(POINTER)
    name = pattern.removeprefix('*')
    assert_refused(tmp_path, capsys, name, 'is a Git LFS pointer', 'run `git lfs pull`')


def test_pointers_in_place_of_episodes_and_images_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lerobot_v3(tmp_path / 'set')
    (tmp_path / 'set' / V3_META).write_bytes(POINTER)
    assert_refused(tmp_path, capsys, 'file-000.parquet cannot be read: it is a Git LFS pointer')
    (tmp_path / 'set').rename(tmp_path / 'first')
    rlbench(tmp_path / 'set', as_json=False)
    for file in (tmp_path / 'set').rglob('0.png'):
        file.write_bytes(POINTER)
    assert_refused(tmp_path, capsys, '0.png cannot be read: it is a', more='image: front_rgb')
    for file in (tmp_path / 'set').rglob('low_dim.npz'):
        file.write_bytes(POINTER)
    assert_refused(tmp_path, capsys, 'low_dim.npz cannot be read: it is a', more='')


@pytest.mark.parametrize(
    ('files', 'kind', 'advice'),
    [
        (['episode_0.hdf5'], 'HDF5', 'forge'),
        (['features.json', 'x-train.tfrecord-00000-of-00001'], 'RLDS', 'forge'),
        (['.zgroup', 'data/action/.zarray', 'meta/.zgroup'], 'zarr', 'forge'),
        (['episode_0001/data.json', 'episode_0001/colors/0.jpg'], 'Unitree', 'unitree_lerobot'),
    ],
)
def test_datasets_of_other_kinds_are_named(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    files: list[str],
    kind: str,
    advice: str,
) -> None:
    for name in files:
        file = tmp_path / 'set' / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b'{}')
    assert_refused(tmp_path, capsys, kind, 'convert it to LeRobot', advice)
    assert main(['demos', 'mapping', str(tmp_path / 'set')]) == 2
    assert kind in capsys.readouterr().err


def test_a_small_table_of_many_rows_is_refused_unread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import pyarrow
    from pyarrow import parquet

    lerobot_v2(tmp_path / 'set')
    rows = 4_000_000
    columns: dict[str, Any] = {
        'observation.state': pyarrow.FixedSizeListArray.from_arrays(np.zeros(4 * rows), 4),
        'observation.joints': pyarrow.FixedSizeListArray.from_arrays(np.zeros(2 * rows), 2),
        'timestamp': np.zeros(rows),
        'frame_index': np.zeros(rows, np.int64),
        'episode_index': np.zeros(rows, np.int64),
    }
    file = tmp_path / 'set' / FILE_OF.format(0)
    table = pyarrow.table(columns)
    with parquet.ParquetWriter(file, table.schema, compression='zstd') as writer:
        writer.write_table(table)
        writer.write_table(table)
    assert file.stat().st_size < 1_000_000
    assert_refused(tmp_path, capsys, "column 'observation.state' has 32,000,000 values", more='')


def test_a_small_archive_of_many_numbers_is_refused_unread(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rlbench(tmp_path / 'set', as_json=False)
    file = next((tmp_path / 'set').rglob('low_dim.npz'))
    np.savez_compressed(file, x=np.zeros((10_000_000, 4)))
    assert file.stat().st_size < 1_000_000
    assert_refused(tmp_path, capsys, 'low_dim.npz unpacks to 320,000,', more='')
