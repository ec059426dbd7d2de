# SPDX-License-Identifier: Apache-2.0
"""The outputs of detectors as boxes, scores and classes, recognised by their shapes.

Detectors agree on no layout, and their files do not name one. Grids of anchor-free detectors are
told by their number of cells, which follows from the size of the input; the others by how many
outputs of which last dimension they have.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.arrays import Float32s, Float64s
    from numpy.typing import NDArray

_STRIDES = ((8, 16, 32), (8, 16, 32, 64))
_ANCHORS = 3  # per cell, of detectors with anchors
_MASK_CHANNELS = 32  # of the prototypes of segmenting detectors
_MAX_DECODED = 8.0  # middle of the offsets of a raw grid; decoded ones are pixels
_NORMALISED = 1.5  # boxes up to here are shares of the input
_NO_OBJECT = {92: 91, 82: 81, 81: 80}  # logits -> classes, where the last is "no object"
_BINS = {4 * 8, 4 * 11, 4 * 17}  # of the distributions of four sides
# Single-shot detectors as those with a MobileNet are: strides, sizes of the boxes of each grid as
# shares of the input, proportions (width by height), and by what offsets are divided.
_SSD_STRIDES = (16, 32, 64, 128, 256, 512)
_SSD_SIZES = (0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0)
_SSD_FIRST = ((0.1, 1.0), (0.2, 2.0), (0.2, 0.5))  # size and proportions in the first grid
_SSD_PROPORTIONS = (1.0, 2.0, 0.5, 3.0, 1 / 3)
_SSD_PLACE, _SSD_SIDE = 10.0, 5.0
_ENTRIES = 6  # of a row of left, top, right, bottom, score, class


@dataclass(frozen=True)
class BoxCandidates:
    """What a detector proposes, before weak and double ones are left out."""

    boxes: Float32s  # left, top, right, bottom [px of the input]. Shape (N, 4)
    scores: Float32s  # 0..1. Shape (N,)
    classes: NDArray[np.int64]  # numbers of classes. Shape (N,)


@dataclass(frozen=True)
class OutputLayout:
    """How outputs are to be read, and which input goes with them."""

    name: str  # 'yolox', 'anchors', 'yolov8', 'nanodet', 'ssd', 'detr', 'rows' or 'boxes'
    classes: int  # number of classes that it tells apart; 0: the outputs do not say
    pixels: str  # what a network with it usually takes: a key of detector.PIXELS
    fit: str  # 'corner', 'centre' or 'stretch'
    strides: tuple[int, ...] = ()


def layout_of(
    shapes: Sequence[tuple[int, ...]], size: tuple[int, int], classes: int = 0
) -> OutputLayout:
    """Recognise a layout.

    Args:
        shapes: Of the outputs.
        size: Height and width of the input [px].
        classes: Number of names that the model or the user gives; 0: unknown.

    Raises:
        ConfigError: The layout is none of those known; the message names the shapes.
    """
    flat = [shape[1:] if _has_batch(shapes) else shape for shape in shapes]
    # Masks of segmenting detectors are left out.
    grids = [shape for shape in flat if len(shape) <= 2]
    masks = _MASK_CHANNELS if len(grids) < len(flat) else 0
    layout = None
    if len(grids) == 1 and len(grids[0]) == 2:
        layout = _layout_of_one((grids[0][0], grids[0][1]), size, classes, masks)
    elif len(grids) > 1:
        layout = _layout_of_heads(grids, size, classes) or _layout_of_several(grids, size)
    if layout is None:
        known = ', '.join(_READERS)
        msg = (
            f'the outputs of the detector have shapes {", ".join(map(str, shapes))} for an input '
            f'of {size[1]}x{size[0]} px: expected one of the layouts {known} (docs/models.md)'
        )
        raise ConfigError(msg)
    return layout


def read_outputs(
    layout: OutputLayout,
    outputs: Sequence[NDArray[Any]],
    names: Sequence[str],
    size: tuple[int, int],
) -> BoxCandidates:
    """Read the outputs of one image.

    Args:
        layout: As `layout_of` recognised it.
        outputs: Arrays.
        names: Of the outputs.
        size: Height and width of the input [px].
    """
    grids = [np.asarray(output, np.float32) for output in outputs]
    grids = [grid[0] for grid in grids] if _has_batch([grid.shape for grid in grids]) else grids
    kept = [(grid, name) for grid, name in zip(grids, names, strict=True) if grid.ndim <= 2]
    arrays, kept_names = [grid for grid, _ in kept], [name.lower() for _, name in kept]
    given = _Outputs(layout, arrays, kept_names, size)
    boxes, scores, classes = _READERS[layout.name](given)
    sound = np.isfinite(boxes).all(axis=1) & np.isfinite(scores)
    return BoxCandidates(
        boxes[sound].astype(np.float32),
        scores[sound].astype(np.float32),
        classes[sound].astype(np.int64),
    )


def _has_batch(shapes: Sequence[tuple[int, ...]]) -> bool:
    """Whether the first dimension of each output counts images."""
    return max(map(len, shapes)) > 2 and all(shape[:1] == (1,) for shape in shapes)


def _cells(size: tuple[int, int], strides: tuple[int, ...]) -> list[int]:
    """Number of cells of each grid over an input."""
    return [math.ceil(size[0] / step) * math.ceil(size[1] / step) for step in strides]


def _layout_of_one(
    shape: tuple[int, int], size: tuple[int, int], classes: int, masks: int
) -> OutputLayout | None:
    for strides in _STRIDES:
        count = sum(_cells(size, strides))
        if count in shape:
            # The other dimension holds the box and the classes.
            is_last = shape[0] == count
            fields = (shape[1] if is_last else shape[0]) - masks
            return _layout_of_grid(fields, strides, classes, is_last=is_last)
        if _ANCHORS * count in shape:
            fields = (shape[1] if shape[0] == _ANCHORS * count else shape[0]) - masks
            return OutputLayout('anchors', fields - 5, 'rgb_unit', 'centre', strides)
    if shape[1] in {_ENTRIES, _ENTRIES + 1}:
        return OutputLayout('rows', 0, 'rgb_unit', 'centre')
    return None


def _layout_of_grid(
    fields: int, strides: tuple[int, ...], classes: int, *, is_last: bool
) -> OutputLayout | None:
    """The layout of one grid with so many values per cell."""
    bins = fields - classes
    by_count = {4: 'yolov8', 5: 'yolox'}.get(bins, '') if classes else ''
    # A distribution has 8 bins per side, or another number that the names leave.
    of_distributions = bins if classes and bins % 4 == 0 and bins > 4 else 32
    if not by_count and is_last and (len(strides) > 3 or of_distributions == bins):
        return OutputLayout(
            'nanodet', fields - of_distributions, 'bgr_imagenet', 'stretch', strides
        )
    name = by_count or ('yolox' if is_last else 'yolov8')
    if name == 'yolox':
        return OutputLayout('yolox', fields - 5, 'bgr', 'corner', strides) if fields > 5 else None
    return (
        OutputLayout('yolov8', fields - 4, 'rgb_unit', 'centre', strides) if fields > 4 else None
    )


def _layout_of_heads(
    shapes: Sequence[tuple[int, ...]], size: tuple[int, int], classes: int
) -> OutputLayout | None:
    """NanoDet: for each grid one output with classes and one with four distributions."""
    for strides in _STRIDES:
        cells = _cells(size, strides)
        widths = {shape[-1] for shape in shapes}
        if sorted(shape[0] for shape in shapes) != sorted([*cells, *cells]) or len(widths) != 2:
            continue
        # Where the names do not say which is which: one of the usual numbers of bins.
        bins = widths - {classes} if classes in widths else widths & _BINS
        if len(bins) == 1:
            (number,) = widths - bins
            return OutputLayout('nanodet', number, 'bgr_imagenet', 'stretch', strides)
    return None


def _layout_of_several(
    shapes: Sequence[tuple[int, ...]], size: tuple[int, int]
) -> OutputLayout | None:
    """Boxes beside logits, or beside scores and classes."""
    boxes = [shape for shape in shapes if len(shape) == 2 and shape[1] == 4]
    if len(boxes) != 1:
        return None
    count = boxes[0][0]
    flat = [shape for shape in shapes if shape in {(count,), (count, 1)}]
    wide = [shape for shape in shapes if len(shape) == 2 and shape not in boxes and shape[1] > 1]
    if len(flat) == 2:
        return OutputLayout('boxes', 0, 'rgb_unit', 'stretch')
    if len(wide) == 1 and wide[0][0] == count:
        logits = wide[0][1]
        if count == len(_ssd_boxes(size)):
            return OutputLayout('ssd', logits, 'rgb_signed', 'stretch')
        # RT-DETR was trained without normalisation; the others were not.
        pixels = 'rgb_unit' if logits == 80 else 'rgb_imagenet'
        return OutputLayout('detr', _NO_OBJECT.get(logits, logits), pixels, 'stretch')
    return None


@dataclass(frozen=True)
class _Outputs:
    """The outputs of one image, and how to read them."""

    layout: OutputLayout
    arrays: list[NDArray[Any]]
    names: list[str]
    size: tuple[int, int]  # height and width of the input [px]

    def boxes(self) -> NDArray[Any]:
        """The output of four columns."""
        return next(array for array in self.arrays if array.ndim == 2 and array.shape[1] == 4)


_Read = tuple['NDArray[Any]', 'NDArray[Any]', 'NDArray[Any]']


def _centres(given: _Outputs, offset: float) -> tuple[Float32s, Float32s]:
    """Column and row of each cell, in cells, and its stride. Shapes (N, 2) and (N, 1)."""
    points, steps = [], []
    for step in given.layout.strides:
        rows, columns = (math.ceil(side / step) for side in given.size)
        grid = np.stack(np.meshgrid(np.arange(columns), np.arange(rows)), axis=-1).reshape(-1, 2)
        points.append(grid + offset * (step - 1) / step)
        steps.append(np.full((len(grid), 1), step))
    return np.concatenate(points).astype(np.float32), np.concatenate(steps).astype(np.float32)


def _corners(boxes: NDArray[Any]) -> NDArray[Any]:
    """Boxes of middle and size as left, top, right, bottom."""
    half = boxes[:, 2:4] / 2
    return np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1)


def _best(scores: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
    return scores.max(axis=1), scores.argmax(axis=1)


def _probabilities(values: NDArray[Any]) -> NDArray[Any]:
    """What is no probability yet, through the logistic function."""
    if values.size and values.min() >= 0 and values.max() <= 1:
        return values
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -60, 60))))


def _by_cell(given: _Outputs) -> NDArray[Any]:
    """The grid with one row per cell, without the coefficients of masks."""
    layout, grid = given.layout, given.arrays[0]
    extra = {'yolov8': 4, 'yolox': 5, 'anchors': 5}[layout.name]
    fields = layout.classes + extra
    rows = grid if grid.shape[1] in {fields, fields + _MASK_CHANNELS} else grid.T
    return rows[:, :fields]


def _read_yolox(given: _Outputs) -> _Read:
    """Middle and logarithm of the size per cell, objectness, classes; or decoded already."""
    rows = _by_cell(given)
    boxes = rows[:, :4]
    if np.median(np.abs(boxes[:, :2])) < _MAX_DECODED:
        points, steps = _centres(given, 0.0)
        sizes = np.exp(np.minimum(boxes[:, 2:4], 20)) * steps
        boxes = np.concatenate([(boxes[:, :2] + points) * steps, sizes], axis=1)
    scores, classes = _best(_probabilities(rows[:, 5:]))
    return _corners(boxes), scores * _probabilities(rows[:, 4]), classes


def _read_anchors(given: _Outputs) -> _Read:
    """YOLOv5 and YOLOv7: middle and size [px], objectness, classes."""
    rows = _by_cell(given)
    scores, classes = _best(_probabilities(rows[:, 5:]))
    return _corners(rows[:, :4]), scores * _probabilities(rows[:, 4]), classes


def _read_yolov8(given: _Outputs) -> _Read:
    """YOLOv8 and later: middle and size [px], classes; objectness is in them."""
    rows = _by_cell(given)
    scores, classes = _best(_probabilities(rows[:, 4:]))
    return _corners(rows[:, :4]), scores, classes


def _read_nanodet(given: _Outputs) -> _Read:
    """Classes, and for each side of the box a distribution over its distance in strides."""
    layout, arrays = given.layout, given.arrays
    if len(arrays) == 1:
        scores, sides = np.split(arrays[0], [layout.classes], axis=1)
    else:
        cells = _cells(given.size, layout.strides)
        heads = [[a for a in arrays if len(a) == count] for count in cells]
        scores = np.concatenate([_head(pair, layout, of_classes=True) for pair in heads])
        sides = np.concatenate([_head(pair, layout, of_classes=False) for pair in heads])
    bins = sides.shape[1] // 4
    powers = sides.reshape(-1, 4, bins)
    shares = np.exp(powers - powers.max(axis=2, keepdims=True))
    distances = (shares * np.arange(bins)).sum(axis=2) / shares.sum(axis=2)
    # NanoDet-Plus, of four grids, measures from the corner of a cell, its forerunner from the
    # middle.
    points, steps = _centres(given, 0.0 if len(layout.strides) > 3 else 0.5)
    boxes = np.concatenate([points - distances[:, :2], points + distances[:, 2:]], axis=1) * steps
    return boxes, *_best(_probabilities(scores))


def _head(pair: list[NDArray[Any]], layout: OutputLayout, *, of_classes: bool) -> NDArray[Any]:
    """Of the two outputs of one grid, that with classes or that with distributions."""
    return next(a for a in pair if (a.shape[1] == layout.classes) == of_classes)


def _read_detr(given: _Outputs) -> _Read:
    """Middle and size as shares of the input, and logits of each query."""
    boxes = given.boxes()
    logits = next(a for a in given.arrays if a is not boxes and len(a) == len(boxes))
    if logits.shape[1] in _NO_OBJECT:
        powers = np.exp(logits - logits.max(axis=1, keepdims=True))
        probabilities = (powers / powers.sum(axis=1, keepdims=True))[:, :-1]
    else:
        probabilities = _probabilities(logits)
    return _corners(boxes) * _scale(boxes, given.size), *_best(probabilities)


def _ssd_boxes(size: tuple[int, int]) -> Float64s:
    """Middle and size of the boxes that offsets are measured from, as shares. Shape (N, 4)."""
    boxes = []
    for number, step in enumerate(_SSD_STRIDES):
        share, following = _SSD_SIZES[number : number + 2]
        kinds = [*((share, each) for each in _SSD_PROPORTIONS), (math.sqrt(share * following), 1)]
        rows, columns = (math.ceil(side / step) for side in size)
        sides = [
            (s * math.sqrt(p), s / math.sqrt(p)) for s, p in (kinds if number else _SSD_FIRST)
        ]
        boxes += [
            ((column + 0.5) / columns, (row + 0.5) / rows, *side)
            for row in range(rows)
            for column in range(columns)
            for side in sides
        ]
    return np.array(boxes)


def _read_ssd(given: _Outputs) -> _Read:
    """Offsets from boxes, rows first, and logits, of which the first class is the background."""
    offsets, size = given.boxes(), given.size
    logits = next(array for array in given.arrays if array is not offsets)
    boxes = _ssd_boxes(size)
    middles = offsets[:, [1, 0]] / _SSD_PLACE * boxes[:, 2:] + boxes[:, :2]
    sides = np.exp(np.minimum(offsets[:, [3, 2]] / _SSD_SIDE, 20)) * boxes[:, 2:]
    scores, classes = _best(_probabilities(logits)[:, 1:])
    corners = _corners(np.concatenate([middles, sides], axis=1)) * np.array([size[1], size[0]] * 2)
    return corners, scores, classes + 1


def _read_rows(given: _Outputs) -> _Read:
    """Left, top, right, bottom, score, class in each row; or image, box, class, score."""
    rows = given.arrays[0]
    if rows.shape[1] > _ENTRIES:
        rows = rows[:, [1, 2, 3, 4, 6, 5]]
    return rows[:, :4] * _scale(rows[:, :4], given.size), rows[:, 4], np.rint(rows[:, 5])


def _read_boxes(given: _Outputs) -> _Read:
    """Corners of boxes, and two flat outputs: classes are whole numbers, scores are not."""
    boxes, names, arrays = given.boxes(), given.names, given.arrays
    flat = [
        (name, array.ravel())
        for name, array in zip(names, arrays, strict=True)
        if array is not boxes and array.size == len(boxes)
    ]
    flat.sort(key=lambda pair: _is_of_classes(*pair))
    (_, scores), (_, classes) = flat
    if names[[array is boxes for array in arrays].index(True)].startswith('detection_boxes'):
        boxes = boxes[:, [1, 0, 3, 2]]  # TensorFlow has rows first
    return boxes * _scale(boxes, given.size), scores, np.rint(classes)


def _is_of_classes(name: str, values: NDArray[Any]) -> int:
    """Above 0: these are numbers of classes; below: scores."""
    if any(word in name for word in ('class', 'label')):
        return 2
    if 'score' in name or 'conf' in name:
        return -2
    return 1 if values.size and values.max() > 1 else -1


def _scale(boxes: NDArray[Any], size: tuple[int, int]) -> NDArray[Any]:
    """What brings boxes to pixels of the input. Shape (4,)."""
    is_share = not boxes.size or np.abs(boxes).max() <= _NORMALISED
    return np.array([size[1], size[0]] * 2) if is_share else np.ones(4)


_READERS = {
    'yolox': _read_yolox,
    'anchors': _read_anchors,
    'yolov8': _read_yolov8,
    'nanodet': _read_nanodet,
    'ssd': _read_ssd,
    'detr': _read_detr,
    'rows': _read_rows,
    'boxes': _read_boxes,
}
