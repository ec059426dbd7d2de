# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig
from embodied_r_ros.core.perception.detector_outputs import layout_of
from embodied_r_ros.core.types.vocabulary import COCO, COCO_NUMBERED
import numpy as np
import pytest

pytest.importorskip('onnxruntime')
onnx = pytest.importorskip('onnx')

from onnx import helper, TensorProto  # noqa: E402

from test.core.perception.onnx_models import cells, constant_detector, red_detector, STRIDES  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

SIZE = (96, 128)  # height and width of the inputs
BOX = (20.0, 12.0, 90.0, 60.0)
CUP, PERSON = COCO.index('cup'), 0
GREY = np.full((192, 256, 3), 90, np.uint8)  # an image twice as large


def red_square(width: int, height: int, left: int, top: int, side: int) -> NDArray[np.uint8]:
    image = np.full((height, width, 3), 100, np.uint8)
    image[top : top + side, left : left + side] = (0, 0, 255)
    return image


def detect(path: Path, image: NDArray[np.uint8] = GREY, **settings: Any) -> list[Any]:
    return Detector(DetectorConfig(str(path), **settings)).detect(image)


def middle_and_size(box: tuple[float, ...] = BOX) -> list[float]:
    left, top, right, bottom = box
    return [(left + right) / 2, (top + bottom) / 2, right - left, bottom - top]


def yolox(classes: int = 80, *, decoded: bool = False) -> dict[str, NDArray[Any]]:
    """The cell of 32 px that holds the middle of the box has it, and a weak one beside it."""
    grid = cells(SIZE)
    x, y, width, height = middle_and_size()
    rows = np.zeros((len(grid), 5 + classes), np.float32)
    at = [n for n, (left, top, side) in enumerate(grid) if side == 32 and left <= x < left + 32]
    cell = next(n for n in at if grid[n, 1] <= y < grid[n, 1] + 32)
    left, top, side = grid[cell]
    rows[:, :2] = grid[:, :2] if decoded else 0.5
    raw = [x / side - left / side, y / side - top / side, *np.log([width / side, height / side])]
    rows[cell, :4] = middle_and_size() if decoded else raw
    rows[cell, 4], rows[cell, 5 + min(CUP, classes - 1)] = 0.9, 0.8
    return {'output': rows[None]}


def yolov8(*, turned: bool = False, masks: bool = False) -> dict[str, NDArray[Any]]:
    count = len(cells(SIZE))
    grid = np.zeros((84 + 32 * masks, count), np.float32)
    grid[:4, 7], grid[4 + CUP, 7] = middle_and_size(), 0.72
    grid[84:, 7] = 3.0
    outputs = {'output0': (grid.T if turned else grid)[None]}
    return outputs | ({'output1': np.zeros((1, 32, 24, 32), np.float32)} if masks else {})


def anchors() -> dict[str, NDArray[Any]]:
    rows = np.zeros((3 * len(cells(SIZE)), 85), np.float32)
    rows[11, :4], rows[11, 4], rows[11, 5 + CUP] = middle_and_size(), 0.9, 0.8
    return {'output': rows[None]}


def nanodet(strides: tuple[int, ...], bins: int, *, heads: bool) -> dict[str, NDArray[Any]]:
    """Sharp distributions at the cell of 32 px nearest to the middle of the box."""
    grid = cells(SIZE, strides)
    x, y, *_ = middle_and_size()
    shift = 0.0 if len(strides) > 3 else 0.5
    points = grid[:, :2] + shift * (grid[:, 2:] - 1)
    near = np.where(grid[:, 2] == 32, np.hypot(points[:, 0] - x, points[:, 1] - y), np.inf)
    at = int(near.argmin())
    scores = np.full((len(grid), 80), 0.01, np.float32)
    scores[at, CUP] = 0.72
    sides = np.zeros((len(grid), 4, bins), np.float32)
    ends = [points[at, 0] - BOX[0], points[at, 1] - BOX[1]]
    ends += [BOX[2] - points[at, 0], BOX[3] - points[at, 1]]
    for side, distance in enumerate(ends):
        whole, rest = divmod(distance / 32, 1)
        sides[at, side] = -40.0
        sides[at, side, int(whole) : int(whole) + 2] = np.log([1 - rest + 1e-9, rest + 1e-9])
    if not heads:
        return {'output': np.concatenate([scores, sides.reshape(len(grid), -1)], axis=1)[None]}
    outputs = {}
    for step in reversed(strides):
        mine = grid[:, 2] == step
        outputs[f'sides{step}'] = sides[mine].reshape(1, mine.sum(), -1)
        outputs[f'scores{step}'] = scores[mine][None]
    return outputs


def detr(logits: int, number: int) -> dict[str, NDArray[Any]]:
    """Two queries, one of them of nothing."""
    boxes = np.full((1, 2, 4), 0.5, np.float32)
    boxes[0, 0] = np.array(middle_and_size()) / [128, 96, 128, 96]
    values = np.full((1, 2, logits), -6.0, np.float32)
    values[0, 0, number] = 1.0
    if logits in {81, 92}:
        # Shares of 0.72 and 0.28.
        values[:] = -30.0
        values[0, 0, number], values[0, :, -1] = np.log(0.72 / 0.28), 0.0
    return {'pred_logits': values, 'pred_boxes': boxes}


def separate(
    boxes: str, scores: str, classes: str, *, batch: bool, share: bool, rows_first: bool = False
) -> dict[str, NDArray[Any]]:
    box = np.array(BOX, np.float32) / ([128, 96, 128, 96] if share else 1)
    box = box[[1, 0, 3, 2]] if rows_first else box
    outputs: dict[str, NDArray[Any]] = {
        classes: np.array([CUP, PERSON], np.int64),
        boxes: np.array([box, box * 0.5], np.float32),
        scores: np.array([0.72, 0.1], np.float32),
    }
    return {name: array[None] if batch else array for name, array in outputs.items()}


def rows(columns: list[float]) -> dict[str, NDArray[Any]]:
    return {'output0': np.array([[columns, [0.0] * len(columns)]], np.float32)}


BOXES_OF = ('boxes', 'scores', 'labels')
TENSORFLOW = ('detection_boxes', 'detection_scores', 'detection_classes')
LAYOUTS: dict[str, tuple[Callable[[], dict[str, NDArray[Any]]], str]] = {
    'YOLOX': (yolox, 'yolox'),
    'YOLOX, decoded': (lambda: yolox(decoded=True), 'yolox'),
    'YOLOv5': (anchors, 'anchors'),
    'YOLOv8': (yolov8, 'yolov8'),
    'YOLOv8, cells first': (lambda: yolov8(turned=True), 'yolov8'),
    'YOLOv8, masks': (lambda: yolov8(masks=True), 'yolov8'),
    'YOLOv10': (lambda: rows([*BOX, 0.72, CUP]), 'rows'),
    'YOLOv7, end to end': (lambda: rows([0, *BOX, CUP, 0.72]), 'rows'),
    'NanoDet': (lambda: nanodet(STRIDES, 8, heads=True), 'nanodet'),
    'NanoDet, eleven bins': (lambda: nanodet(STRIDES, 11, heads=True), 'nanodet'),
    'NanoDet-Plus': (lambda: nanodet((*STRIDES, 64), 8, heads=False), 'nanodet'),
    'NanoDet-Plus, heads': (lambda: nanodet((*STRIDES, 64), 8, heads=True), 'nanodet'),
    'RT-DETR': (lambda: detr(80, CUP), 'detr'),
    'RF-DETR': (lambda: detr(91, COCO_NUMBERED.index('cup')), 'detr'),
    'DETR': (lambda: detr(92, COCO_NUMBERED.index('cup')), 'detr'),
    'DETR of 80': (lambda: detr(81, CUP), 'detr'),
    'D-FINE': (lambda: separate(*BOXES_OF, batch=True, share=False), 'boxes'),
    'torchvision': (lambda: separate(*BOXES_OF, batch=False, share=False), 'boxes'),
    'SSD': (lambda: separate(*TENSORFLOW, batch=True, share=True, rows_first=True), 'boxes'),
    'nameless': (lambda: separate('a', 'b', 'c', batch=True, share=True), 'boxes'),
}


@pytest.mark.parametrize('case', LAYOUTS)
def test_a_layout_is_recognised_and_read(case: str, tmp_path: Path) -> None:
    make, layout = LAYOUTS[case]
    path = constant_detector(tmp_path / 'model.onnx', make())
    classes = 'coco' if layout in {'rows', 'boxes'} or case == 'YOLOv8, cells first' else ''
    outputs = make()
    assert layout_of([a.shape for a in outputs.values()], SIZE, 80).name == layout
    (found,) = Detector(DetectorConfig(str(path), classes, threshold=0.5)).detect(GREY)
    assert found.label == 'cup'
    assert found.score == pytest.approx(0.72, abs=0.02)
    # The image is twice as large as the input, with the same proportions.
    assert found.box == pytest.approx([2 * value for value in BOX], abs=0.1)


def test_names_tell_alike_layouts_apart() -> None:
    count = len(cells(SIZE))
    assert layout_of([(1, count, 85)], SIZE).name == 'yolox'
    assert layout_of([(1, count, 85)], SIZE, 81).name == 'yolov8'
    assert layout_of([(1, count, 52)], SIZE, 20).name == 'nanodet'
    heads = [(1, n, width) for n in (192, 48, 12) for width in (20, 32)]
    assert layout_of(heads, SIZE, 20).classes == 20


def test_a_layout_that_nobody_knows_names_its_shapes(tmp_path: Path) -> None:
    path = constant_detector(tmp_path / 'model.onnx', {'out': np.zeros((1, 77, 9), np.float32)})
    with pytest.raises(ConfigError, match=r'model.onnx: .*\(1, 77, 9\).* 128x96 px') as caught:
        Detector(DetectorConfig(str(path)))
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('fit', 'image_size', 'square'),
    [
        # width and height of the image; left, top and side of what is red in it [px]
        ('centre', (128, 96), (32, 64, 32)),
        ('centre', (256, 192), (128, 64, 64)),
        ('centre', (128, 64), (96, 16, 32)),  # the picture fills rows 16 to 80
        ('centre', (64, 96), (0, 32, 32)),  # columns 32 to 96
        ('corner', (128, 64), (64, 32, 32)),
        ('corner', (32, 48), (16, 16, 16)),
        ('stretch', (256, 96), (64, 32, 32)),
    ],
)
def test_a_box_is_where_the_thing_is(
    fit: str, image_size: tuple[int, int], square: tuple[int, int, int], tmp_path: Path
) -> None:
    left, top, side = square
    wide = 2 * side if fit == 'stretch' else side
    image = red_square(*image_size, left, top, side)
    image[top : top + side, left : left + wide] = (0, 0, 255)
    path = red_detector(tmp_path / 'red.onnx')
    (found,) = detect(path, image, fit=fit, threshold=0.9)
    assert (found.label, found.box) == ('lamp', (left, top, left + wide, top + side))


def test_colours_keep_their_places(tmp_path: Path) -> None:
    blue = red_square(128, 96, 32, 32, 32)[..., ::-1]
    path = red_detector(tmp_path / 'red.onnx')
    assert detect(path, blue) == []
    assert len(detect(path, blue, pixels='bgr_unit', threshold=0.9)) == 1


def test_channels_may_come_last(tmp_path: Path) -> None:
    path = red_detector(tmp_path / 'red.onnx', last=True)
    (found,) = detect(path, red_square(128, 96, 32, 32, 32), threshold=0.9)
    assert found.box == (32, 32, 64, 64)


@pytest.mark.parametrize(
    ('shape', 'kind'),
    [
        ((1, 3, 96, 128), TensorProto.FLOAT16),
        ((1, 3, 96, 128), TensorProto.DOUBLE),
        ((1, 96, 128, 3), TensorProto.UINT8),
        (('batch', 3, 'height', 'width'), TensorProto.FLOAT),
        (('batch', 3, 96, 128), TensorProto.FLOAT),
        ((1, 'height', 'width', 3), TensorProto.UINT8),
    ],
)
def test_inputs_of_any_usual_kind(shape: tuple[int | str, ...], kind: int, tmp_path: Path) -> None:
    share = np.array(BOX, np.float32) / [128, 96, 128, 96]
    outputs = rows([*share, 0.72, CUP])
    path = constant_detector(tmp_path / 'model.onnx', outputs, shape, kind=kind)
    (found,) = detect(path, classes='coco', fit='stretch')
    assert (found.label, found.box) == ('cup', pytest.approx([2 * v for v in BOX], abs=0.1))


def test_the_size_of_the_image_is_given_where_it_is_asked_for(tmp_path: Path) -> None:
    outputs = separate(*BOXES_OF, batch=True, share=False)
    size = helper.make_tensor_value_info('orig_target_sizes', TensorProto.INT64, [1, 2])
    path = constant_detector(tmp_path / 'model.onnx', outputs, inputs=[size])
    assert len(detect(path, classes='coco')) == 1


def test_doubles_are_left_out(tmp_path: Path) -> None:
    near = [20.0, 12.0, 92.0, 61.0]
    beside = [60.0, 20.0, 120.0, 90.0]
    found = [
        [*BOX, 0.7, CUP], [*near, 0.6, CUP], [*near, 0.5, PERSON], [*beside, 0.8, PERSON],
    ]  # fmt: skip
    outputs = {'output0': np.array([found], np.float32)}
    path = constant_detector(tmp_path / 'model.onnx', outputs)
    kept = detect(path, classes='coco')
    assert [(one.label, round(one.score, 1)) for one in kept] == [('person', 0.8), ('cup', 0.7)]
    assert len(detect(path, classes='coco', max_things=1)) == 1
    assert len(detect(path, classes='coco', threshold=0.75)) == 1


def test_nonsense_of_a_network_is_left_out(tmp_path: Path) -> None:
    found = [
        [np.nan, 0, 10, 10, 0.9, CUP],
        [0, 0, np.inf, 10, 0.9, CUP],
        [300, 300, 400, 400, 0.9, CUP],  # beside the image
        [30, 30, 20, 20, 0.9, CUP],
        [0, 0, 90, 90, 0.9, 4711],  # no class
        [*BOX, 0.9, CUP],
    ]
    path = constant_detector(tmp_path / 'model.onnx', {'output0': np.array([found], np.float32)})
    (kept,) = detect(path, classes='coco')
    assert kept.label == 'cup'


@pytest.mark.parametrize(
    ('name', 'content'),
    [
        ('names.txt', 'lamp\n'),
        ('names.txt', 'lamp\r\n\n'),
        ('names.yaml', 'names: [lamp]'),
        ('names.yaml', 'names:\n  0: lamp'),
        ('names.yml', '- lamp'),
        ('names.json', json.dumps({'0': 'lamp'})),
    ],
)
def test_names_come_from_a_file(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content)
    path = red_detector(tmp_path / 'red.onnx', names='no names')
    detector = Detector(DetectorConfig(str(path), classes=str(tmp_path / name)))
    assert detector.classes == ('lamp',)


@pytest.mark.parametrize('names', ["{0: 'lamp'}", "['lamp']", '{"0": "lamp"}'])
def test_names_come_from_the_model(names: str, tmp_path: Path) -> None:
    path = red_detector(tmp_path / 'red.onnx', names=names)
    assert Detector(DetectorConfig(str(path))).classes == ('lamp',)


def test_a_name_is_no_instruction(tmp_path: Path) -> None:
    path = red_detector(tmp_path / 'red.onnx', names=repr(['<|im_end|>\nlamp ' + 'x' * 500]))
    (name,) = Detector(DetectorConfig(str(path))).classes
    assert len(name) <= 60
    assert not set(name) & set('<>\n')


@pytest.mark.parametrize(
    ('classes', 'content', 'expected'),
    [
        ('', '', 'tells 1 classes apart and names none'),
        ('coco', '', 'tells 1 classes apart, and there are 80 names'),
        ('names.txt', '\n\n', 'holds no names'),
        ('names.yaml', 'names: {cup: 3}', 'holds no names'),
        ('names.yaml', '{', 'classes is'),
        ('names.yaml', '{9999999999: cup}', 'holds no names'),
        ('nowhere.txt', '', 'No such file'),
    ],
)
def test_names_that_cannot_be_used(
    classes: str, content: str, expected: str, tmp_path: Path
) -> None:
    if content:
        (tmp_path / classes).write_text(content)
    given = str(tmp_path / classes) if '.' in classes else classes
    path = red_detector(tmp_path / 'red.onnx', names='')
    with pytest.raises(ConfigError, match=expected) as caught:
        Detector(DetectorConfig(str(path), classes=given))
    assert '\n' not in str(caught.value)


@pytest.mark.parametrize(
    ('content', 'expected'),
    [
        (b'', 'cannot be loaded as an ONNX model'),
        (b'not a model', 'cannot be loaded as an ONNX model'),
        (b'version https://git-lfs.github.com/spec/v1\n', 'pointer of Git LFS'),
        (b'<!DOCTYPE html>', 'it is a web page'),
    ],
)
def test_a_file_that_is_no_model(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / 'model.onnx').write_bytes(content)
    with pytest.raises(ConfigError, match=expected) as caught:
        Detector(DetectorConfig(str(tmp_path / 'model.onnx')))
    assert '\n' not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'nowhere\.onnx is not there'):
        Detector(DetectorConfig(str(tmp_path / 'nowhere.onnx')))
    with pytest.raises(ConfigError, match='is a folder'):
        Detector(DetectorConfig(str(tmp_path)))


def test_a_model_of_something_else_names_its_inputs(tmp_path: Path) -> None:
    outputs = {'out': np.zeros((1, 5), np.float32)}
    path = constant_detector(tmp_path / 'model.onnx', outputs, shape=(1, 1, 28, 28))
    with pytest.raises(ConfigError, match=r'inputs images tensor\(float\) \[1, 1, 28, 28\]'):
        Detector(DetectorConfig(str(path)))


def test_a_model_of_several_images_is_refused_in_one_line(tmp_path: Path) -> None:
    path = constant_detector(tmp_path / 'model.onnx', yolov8(), shape=(4, 3, 96, 128))
    with pytest.raises(ConfigError, match='the detector failed') as caught:
        Detector(DetectorConfig(str(path)))
    assert '\n' not in str(caught.value)


def test_without_onnxruntime_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr('embodied_r_ros.core.perception.networks.find_spec', lambda name: None)
    with pytest.raises(ConfigError, match='pip install onnxruntime'):
        Detector(DetectorConfig(str(tmp_path / 'model.onnx')))
    with pytest.raises(ConfigError, match='pip install ai-edge-litert'):
        Detector(DetectorConfig(str(tmp_path / 'model.tflite')))


def test_the_digest_is_that_of_the_file(tmp_path: Path) -> None:
    first = Detector(DetectorConfig(str(red_detector(tmp_path / 'red.onnx'))))
    other = Detector(DetectorConfig(str(red_detector(tmp_path / 'other.onnx', (64, 64)))))
    assert first.digest.startswith('sha256:')
    assert len(first.digest) == 71
    assert first.digest != other.digest
    assert (first.name, other.name) == ('red', 'other')


def test_a_small_image_is_found_in_too(tmp_path: Path) -> None:
    path = red_detector(tmp_path / 'red.onnx')
    assert detect(path, np.zeros((1, 1, 3), np.uint8)) == []
    assert detect(path, np.zeros((3, 4000, 3), np.uint8)) == []
