# SPDX-License-Identifier: Apache-2.0
"""Folders of images: streams are told apart, and times are those of names and lists."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import SourceError
from embodied_r_ros.data.episodes.perception_cache import recording_key
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.images import StampedImage

T0_NS = 1_305_031_102_175_304_007
COUNT = 4


def write(folder: Path, names: Sequence[str], grey: int = 0) -> Path:
    """Images whose brightness tells their order."""
    folder.mkdir(exist_ok=True)
    for index, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.full((24, 32, 3), grey + index, np.uint8))
    return folder


def read(path: Path, topic: str | None = None, rate_hz: float | None = None) -> list[StampedImage]:
    with open_source(path, topic, rate_hz) as source:
        images = list(source)
        assert source.length == len(images)
    return images


def stamps(path: Path, **arguments: Any) -> list[int]:
    return [image.stamp_ns for image in read(path, **arguments)]


PAIRS = [
    ('frame-{:06}.color.png', 'frame-{:06}.depth.png', 'color'),
    ('{:04}.png', '{:04}_mask.png', '0000.png'),
    ('left{:04}.png', 'right{:04}.png', 'left'),
    ('cam0_{:04}.png', 'cam1_{:04}.png', 'cam0'),
    ('{:04}_cam0.png', '{:04}_cam1.png', 'cam0'),
    ('cam_0_{:04}.png', 'cam_1_{:04}.png', 'cam_0'),
    ('{:04}.bmp', '{:04}.png', 'bmp'),
    ('1305031102.{:06}_ir.png', '1305031102.{:06}_rgb.png', 'ir'),
]


@pytest.mark.parametrize(('first', 'second', 'name'), PAIRS)
def test_streams_of_a_folder_are_told_apart_and_asked_for(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    first: str,
    second: str,
    name: str,
) -> None:
    folder = write(tmp_path / 'f', [first.format(i) for i in range(COUNT)])
    write(folder, [second.format(i) for i in range(COUNT + 1)], grey=100)
    assert main(['keyframes', str(folder)]) == 2
    out, err = capsys.readouterr()
    assert not out
    assert err.count('\n') == 1
    assert f'2 streams of images ({COUNT} such as {first.format(0)}' in err
    assert f'{COUNT + 1} such as {second.format(0)}): choose one with --topic' in err
    assert [round(each.image.mean()) for each in read(folder, name)] == list(range(COUNT))
    assert main(['keyframes', str(folder), '--topic', name]) == 0
    with pytest.raises(SourceError, match="no streams named 'up'"):
        read(folder, 'up')


def test_cameras_that_share_a_counter_are_two_streams(tmp_path: Path) -> None:
    names = [f'cam{i % 2}_{i:04}.png' for i in range(2 * COUNT)]
    folder = write(tmp_path / 'f', names)
    with pytest.raises(SourceError, match='2 streams'):
        read(folder)
    assert [round(each.image.mean()) for each in read(folder, 'cam1')] == [1, 3, 5, 7]


@pytest.mark.parametrize(
    'names',
    [
        ['hall.png', 'kitchen.png', 'sofa.png'],
        ['hall1.png', 'hall2.png', 'kitchen.png', 'sofa.png'],
        [f'{i:03}_{33 + i % 2}.png' for i in range(COUNT)],  # with the exposure
        [f'IMG_20240131_1015{i:02}.png' for i in range(COUNT)],
        [f'{1_700_000_000 + i // 2}_{i % 2}00000000.png' for i in range(COUNT)],
    ],
)
def test_names_of_one_stream_are_no_question(tmp_path: Path, names: list[str]) -> None:
    folder = write(tmp_path / 'f', names)
    assert [round(each.image.mean()) for each in read(folder)] == list(range(len(names)))


def test_a_picture_with_another_kind_of_name_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write(tmp_path / 'f', [f'{i:03}.png' for i in range(COUNT)])
    write(folder, ['mask.png'], grey=200)
    assert len(read(folder)) == COUNT
    assert 'left out: no other has a name like theirs; the first: mask.png' in caplog.text


TIMES_NS = [T0_NS + ns for ns in (0, 33_000_000, 99_000_000, 100_000_000)]


def seconds(stamp_ns: int, digits: int) -> str:
    return f'{stamp_ns // 10**9}.{stamp_ns % 10**9:09}'[: 11 + digits]


@pytest.mark.parametrize(
    ('name_of', 'step'),
    [
        (lambda ns: f'{seconds(ns, 6)}.png', 1000),  # TUM
        (lambda ns: f'{ns}.png', 1),  # EuRoC
        (lambda ns: f'rgb_{ns // 1000}_left.png', 1000),
        (lambda ns: f'{ns // 10**9}_{ns % 10**9:09}.png', 1),
        (lambda ns: f'{seconds(ns, 9)}.png', 1),
        (lambda ns: f'2011-05-10-12-38-22.{ns % 10**9:09}.png', 1),
    ],
)
def test_names_that_are_times_are_the_stamps(tmp_path: Path, name_of: Any, step: int) -> None:
    write(tmp_path / 'f', [name_of(ns) for ns in TIMES_NS])
    assert stamps(tmp_path / 'f') == [ns // step * step for ns in TIMES_NS]
    assert stamps(tmp_path / 'f', rate_hz=2.0) == [0, 5 * 10**8, 10**9, 15 * 10**8]


def test_names_in_seconds_of_a_simulation_are_the_stamps(tmp_path: Path) -> None:
    folder = write(tmp_path / 'f', ['0.0.png', '0.5.png', '0.75.png', '10.25.png'])
    assert stamps(folder) == [0, 500_000_000, 750_000_000, 10_250_000_000]


@pytest.mark.parametrize(
    ('name', 'lines', 'expected'),
    [
        (
            'timestamps.txt',
            ['2011-09-26 13:02:25.964389445', '2011-09-26 13:02:26.064389445'],
            [1_317_042_145_964_389_445, 1_317_042_146_064_389_445],
        ),
        ('times.txt', ['# s', '0.000000e+00', '1.03736e-01', ''], [0, 103_736_000]),
        ('times.txt', [f'{T0_NS},a.png', f'{T0_NS + 7},b.png'], [T0_NS, T0_NS + 7]),
    ],
)
@pytest.mark.parametrize('is_above', [True, False])
def test_a_list_beside_images_gives_their_times(
    tmp_path: Path, name: str, lines: list[str], expected: list[int], *, is_above: bool
) -> None:
    folder = write(tmp_path / 'data', ['0000000000.png', '0000000001.png'])
    before = recording_key(folder)
    (tmp_path if is_above else folder).joinpath(name).write_text('\n'.join(lines))
    assert stamps(folder) == expected
    assert recording_key(folder) != before


@pytest.mark.parametrize(
    ('text', 'why'),
    [
        ('1.0\n', 'has 1 times for the 2 images of'),
        ('1.0\n2.0\n3.0\n', 'has more times for the 2 images of'),
        ('2.0\n1.0\n', 'do not rise and are not used'),
        ('one\ntwo\n', 'lists no times that can be read'),
    ],
)
def test_a_list_that_does_not_fit_is_told_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, why: str
) -> None:
    folder = write(tmp_path / 'f', ['0.png', '1.png'])
    (folder / 'timestamps.txt').write_text(text)
    assert stamps(folder) == [0, 100_000_000]
    assert why in caplog.text


def write_depth(folder: Path, names: Sequence[str]) -> None:
    folder.mkdir(exist_ok=True)
    for index, name in enumerate(names):
        cv2.imwrite(str(folder / name), np.full((24, 32), 1000 * (index + 1), np.uint16))


def distances(path: Path, topic: str | None = None) -> list[float | None]:
    images = read(path, topic)
    return [
        None if image.depth is None else round(float(image.depth[0, 0]), 3) for image in images
    ]


def test_depth_is_paired_with_the_nearest_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path / 'rgb', [f'{seconds(ns, 6)}.png' for ns in TIMES_NS])
    near = [TIMES_NS[0] - 15_000_000, TIMES_NS[1] + 12_000_000, TIMES_NS[3] + 2_000_000]
    write_depth(tmp_path / 'depth', [f'{seconds(ns, 6)}.png' for ns in near])
    assert distances(tmp_path / 'rgb') == [1.0, 2.0, 3.0, 3.0]
    assert not caplog.text
    (tmp_path / 'depth' / f'{seconds(near[0], 6)}.png').unlink()
    assert distances(tmp_path / 'rgb') == [None, 2.0, 3.0, 3.0]
    assert '1 images have no depth' in caplog.text


def test_depth_in_the_same_folder_belongs_to_the_images_of_its_numbers(tmp_path: Path) -> None:
    folder = write(tmp_path / 'f', [f'frame-{i:06}.color.png' for i in range(3)])
    write_depth(folder, [f'frame-{i:06}.depth.png' for i in range(3)])
    assert distances(folder, 'color') == [1.0, 2.0, 3.0]


def test_depth_of_another_name_without_a_number_belongs_to_nothing(tmp_path: Path) -> None:
    folder = write(tmp_path / 'images', ['hall.png', 'sofa.png'])
    write_depth(tmp_path / 'depth', ['hall.png', 'oven.png'])
    assert distances(folder) == [1.0, None]
