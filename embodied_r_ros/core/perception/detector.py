# SPDX-License-Identifier: Apache-2.0
"""Object detectors in ONNX and TFLite files: an image in, things with names and boxes out.

`DetectorPerceiver` is the classical perceiver, with names for what a detector knows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
import hashlib
from itertools import chain
from pathlib import Path
import threading
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.chat.settings import file_sum
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.detector_outputs import layout_of, read_outputs
from embodied_r_ros.core.perception.fusion import fused_objects, without
from embodied_r_ros.core.perception.items import outside_fixed
from embodied_r_ros.core.perception.networks import MAX_LIST_BYTES, open_network, read_names
from embodied_r_ros.core.perception.trust import confidence_of
from embodied_r_ros.core.types.deltas import ModelInfo, Rung, SURE
from embodied_r_ros.core.types.vocabulary import COCO, COCO_NUMBERED, Detection, OBJECTRON
import numpy as np
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.perception.classical import ClassicalConfig
    from embodied_r_ros.core.perception.detector_outputs import BoxCandidates
    from embodied_r_ros.core.perception.items import ItemView
    from embodied_r_ros.core.types.arrays import Float64s, UInt8s
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from numpy.typing import NDArray

_LEAST_SCORE = 0.05  # weaker boxes are none
_GREY = 114  # beside a picture that does not fill the input
_ONE_THING = 0.85  # boxes of two classes that overlap more are of one thing
_IMAGENET = (np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375]))  # RGB
# What a network takes: order of channels, and what is subtracted from and divides 0..255.
PIXELS: dict[str, tuple[str, Any, Any]] = {
    'bgr': ('bgr', 0.0, 1.0),
    'rgb': ('rgb', 0.0, 1.0),
    'bgr_unit': ('bgr', 0.0, 255.0),
    'rgb_unit': ('rgb', 0.0, 255.0),
    'rgb_signed': ('rgb', 127.5, 127.5),
    'bgr_imagenet': ('bgr', _IMAGENET[0][::-1], _IMAGENET[1][::-1]),
    'rgb_imagenet': ('rgb', *_IMAGENET),
}
FITS = ('corner', 'centre', 'stretch')
_LISTS = {'coco': COCO, 'coco91': COCO_NUMBERED, 'objectron': OBJECTRON}


@dataclass(frozen=True)
class DetectorConfig(Settings):
    """Which detector looks at keyframes, and what counts as found."""

    model: str = setting(
        '',
        'path of an ONNX or TFLite file, or of several with commas between, which all look',
        read_only=True,
    )
    classes: str = setting(
        '',
        'names of the classes: a file with one a line, or YAML; coco, coco91, objectron; empty: '
        'its own, or the list of that length; of several, with commas',
        read_only=True,
    )
    threshold: float = setting(
        0.0,
        'score from which a name is sure; 0: as measured for class and network, else 0.4',
        between=(0, 1),
    )
    unnamed: bool = setting(
        False, 'patches of one colour that no detector names are items too, as without a detector'
    )
    overlap: float = setting(
        0.5, 'of two boxes of one class that overlap more, the weaker is left out', between=(0, 1)
    )
    max_things: int = setting(20, 'things of one image at most, the surest', between=(1, 300))
    pixels: str = setting(
        'auto',
        'what the network takes; auto: what its layout usually does',
        choices=('auto', *PIXELS),
        read_only=True,
    )
    fit: str = setting(
        'auto',
        'where the picture lies in the input; stretch: without its proportions; auto: by layout',
        choices=('auto', *FITS),
        read_only=True,
    )
    device: str = setting(
        'cpu', 'what computes; cuda needs onnxruntime-gpu', choices=('cpu', 'cuda'), read_only=True
    )
    threads: int = setting(
        0, 'threads that compute; 0: one per core', between=(0, 256), read_only=True
    )

    def files(self) -> list[tuple[Path, str]]:
        """The files, and the names of the classes of each.

        Raises:
            ConfigError: There are several names for one file, or too few.
        """
        paths = [Path(part.strip()).expanduser() for part in self.model.split(',')]
        classes = [part.strip() for part in self.classes.split(',')]
        if len(classes) not in {1, len(paths)} or (self.classes and len(classes) < len(paths)):
            msg = (
                f'classes is {self.classes!r}, for {len(paths)} files: expected one for each, in '
                'their order, with commas between; empty where a file has its own'
            )
            raise ConfigError(msg)
        return list(zip(paths, classes * (len(paths) // len(classes)), strict=True))


class Detector:
    """Loaded detectors. Safe for use from several threads; one image is looked at at a time."""

    def __init__(self, config: DetectorConfig) -> None:
        """Load the files and let each look once, which shows the layout of its outputs.

        Raises:
            ConfigError: A library is not installed, or a file, its outputs or its classes cannot
                be used.
        """
        self.config = config
        files = config.files()
        self._lock = threading.Lock()
        self._readers = [_Reader(path, classes, config) for path, classes in files]
        self.name = '+'.join(path.stem for path, _ in files)
        sums = [file_sum(path) for path, _ in files]
        whole = hashlib.sha256(''.join(sums).encode()).hexdigest()
        self.digest = f'sha256:{sums[0] if len(sums) == 1 else whole}'

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of what it knows."""
        names = (name for reader in self._readers for name in reader.classes if name)
        return tuple(dict.fromkeys(names))

    def detect(self, image: UInt8s, least: float = 0.0) -> list[Detection]:
        """Find things, the surest first.

        Args:
            image: BGR, uint8, (H, W, 3).
            least: Least confidence; 0: what is sure.

        Raises:
            ModelError: A network failed.
        """
        with self._lock:
            found = [reader.detect(image, least or SURE) for reader in self._readers]
        things = sorted(chain(*found), key=lambda one: -one.score)
        return things[: self.config.max_things]


class _Reader:
    """One file: what it takes, and how its outputs are to be read."""

    def __init__(self, path: Path, classes: str, config: DetectorConfig) -> None:
        self._config = config
        self._source = str(path)
        self._network = open_network(path, config.device, config.threads)
        self._size = self._network.size
        names = _names(classes) or self._network.names
        self._pixels = PIXELS['rgb_unit' if config.pixels == 'auto' else config.pixels]
        try:
            blank = self._run(np.full((*self._size, 3), _GREY, np.uint8))
            self._layout = layout_of([array.shape for array in blank], self._size, len(names))
        except (ConfigError, ModelError) as error:
            msg = f'{path}: {error}'
            raise ConfigError(msg) from None
        if config.pixels == 'auto':
            self._pixels = PIXELS[self._layout.pixels]
        self._fit = self._layout.fit if config.fit == 'auto' else config.fit
        count = self._layout.classes
        self.classes = _see_names(names or _usual_names(count), count, path)

    def detect(self, image: UInt8s, least: float) -> list[Detection]:
        """Find things, the surest first (see `Detector.detect`)."""
        height, width = image.shape[:2]
        network_input, scale, offset = _place(image, self._size, self._fit)
        outputs = self._run(network_input)
        candidates = read_outputs(self._layout, outputs, self._network.outputs, self._size)
        numbers = _strongest(candidates, _LEAST_SCORE, self._config.overlap)
        boxes = (candidates.boxes[numbers].reshape(-1, 2, 2) - offset) / scale
        boxes = np.clip(boxes, 0, (width, height)).reshape(-1, 4)
        detections = []
        for number, box in zip(numbers, boxes, strict=True):
            label = self._label(int(candidates.classes[number]))
            left, top, right, bottom = (float(value) for value in box)
            if label and right - left >= 1 and bottom - top >= 1:
                score = self._confidence(label, min(1.0, float(candidates.scores[number])))
                if score >= least:
                    edges = left, top, right, bottom
                    detections.append(Detection(label, score, edges, self._source))
        return detections

    def _confidence(self, label: str, score: float) -> float:
        return confidence_of(score, self._layout.name, label, self._config.threshold)

    def _label(self, number: int) -> str:
        """Name of a class; empty: it has none, and the thing is left out."""
        return self.classes[number] if 0 <= number < len(self.classes) else ''

    def _run(self, network_input: UInt8s) -> list[NDArray[Any]]:
        """The outputs for an image that has the size of the input.

        Raises:
            ModelError: The network failed.
        """
        order, mean, spread = self._pixels
        pixels = (network_input if order == 'bgr' else network_input[..., ::-1]).astype(np.float32)
        return self._network.run((pixels - np.float32(mean)) / np.float32(spread))


def _place(image: UInt8s, size: tuple[int, int], fit: str) -> tuple[UInt8s, Float64s, Float64s]:
    """The image in the size of the input, with scale and offset of its columns and rows."""
    height, width = image.shape[:2]
    if fit == 'stretch':
        scale = np.array([size[1] / width, size[0] / height])
    else:
        scale = np.full(2, min(size[1] / width, size[0] / height))
    columns, rows = (max(1, round(side)) for side in (width * scale[0], height * scale[1]))
    shrinks = scale.max() < 1
    resized = cv2.resize(
        image, (columns, rows), interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR
    )
    left, top = (size[1] - columns) // 2, (size[0] - rows) // 2
    if fit == 'corner':
        left = top = 0
    network_input = np.full((*size, 3), _GREY, np.uint8)
    network_input[top : top + rows, left : left + columns] = resized
    return (
        network_input,
        np.array([columns / width, rows / height]),
        np.array([left, top], np.float64),
    )


def _strongest(candidates: BoxCandidates, threshold: float, overlap: float) -> list[int]:
    """Numbers of the candidates that are left, the surest first.

    One thing can be of two classes; the surer one is its name.
    """
    numbers = np.flatnonzero(candidates.scores >= threshold)
    boxes, scores = candidates.boxes[numbers], candidates.scores[numbers]
    corners = np.column_stack([boxes[:, :2], boxes[:, 2:] - boxes[:, :2]])
    apart = corners.astype(float)  # no box of a class overlaps one of another
    apart[:, 0] += candidates.classes[numbers] * (2.0 * np.abs(boxes).max(initial=0.0) + 1.0)
    survivors = cv2.dnn.NMSBoxes(apart.tolist(), scores.astype(float).tolist(), threshold, overlap)
    order = np.array(sorted(np.ravel(survivors), key=lambda number: -scores[number]), np.int64)
    alone = cv2.dnn.NMSBoxes(
        corners[order].tolist(), scores[order].astype(float).tolist(), threshold, _ONE_THING
    )
    return [int(n) for n in numbers[order[np.asarray(alone, np.int64).ravel()]]]


def _names(classes: str) -> tuple[str, ...]:
    """Names by the setting; empty: it does not say.

    Raises:
        ConfigError: The file is missing, or no list of names.
    """
    if not classes or classes in _LISTS:
        return _LISTS.get(classes, ())
    path = Path(classes).expanduser()
    try:
        with path.open('rb') as file:
            names = read_names(file.read(MAX_LIST_BYTES).decode(), path.suffix)
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f'classes is {classes!r}: {" ".join(str(error).split())}'
        raise ConfigError(msg) from None
    if not any(names):
        msg = f'{path} holds no names: expected one a line, or YAML with a list or numbers of them'
        raise ConfigError(msg)
    return names


def _usual_names(count: int) -> tuple[str, ...]:
    """The list of as many classes; 90 are those of COCO without the first."""
    lists = {len(names): names for names in _LISTS.values()} | {90: COCO_NUMBERED[1:]}
    return lists.get(count, ())


def _see_names(names: tuple[str, ...], count: int, path: Path) -> tuple[str, ...]:
    """The names of the classes of a file that tells so many apart.

    Raises:
        ConfigError: There are none, or not as many.
    """
    if names and count in {0, len(names)}:
        return names
    if names:
        msg = f'{path} tells {count} classes apart, and there are {len(names)} names for them'
    elif count:
        msg = f'{path} tells {count} classes apart and names none: give a file of their names'
    else:
        msg = f'{path} names no classes: give a file of their names, or coco or coco91'
    raise ConfigError(msg)


_CACHED_IMAGES = 4
# Confidence from which on a name is told, and from which on it shows that a thing did not leave.
_TOLD, _UNSURE = 0.35, 0.2
_CHECK_SIDE_PX = 64


class DetectorPerceiver(ClassicalPerceiver):
    """Perceives by geometry, colour and the boxes of a detector. Safe for several threads.

    It looks at keyframes alone, once at each. Motion, distances and colours are those of the
    classical perceiver; a thing that both find is one item.
    """

    def __init__(
        self,
        detector: Detector | None,
        config: ClassicalConfig | None = None,
        rung: Rung = Rung.PRIMARY,
        boxes_of: Callable[[Keyframe], Sequence[Detection]] | None = None,
        boxes_name: str = '',
    ) -> None:
        """Prepare.

        Args:
            detector: Finds things; None: only `boxes_of` does.
            config: Of the classical perceiver.
            rung: Its place among fallbacks.
            boxes_of: What others found in a keyframe, such as a ROS node; None: there are none.
            boxes_name: Who they are; empty: that is not known.
        """
        super().__init__(config, rung)
        self._detector = detector
        self._boxes_of = boxes_of
        name, digest = (f'detector/{detector.name}', detector.digest) if detector else ('', '')
        self._info = ModelInfo(name or boxes_name or 'detections', digest, rung=rung)
        self._look_lock = threading.Lock()
        self._detections = lru_cache(_CACHED_IMAGES)(self._detect)

    def check(self, deadline_s: float) -> None:
        """See that the network computes.

        Raises:
            ModelError: It does not.
        """
        if self._detector:
            self._detector.detect(np.full((_CHECK_SIDE_PX, _CHECK_SIDE_PX, 3), 114, np.uint8))

    def view(self, keyframe: Keyframe) -> ItemView:
        """What a keyframe shows: things with names, and what else has a colour.

        Raises:
            ImageError: The image cannot be decoded.
            ModelError: The detector failed.
        """
        view = super().view(keyframe)
        # One image is the later one of a pair and the earlier one of the next, in another thread.
        with self._look_lock:
            found = [*self._detections(keyframe.image)]
        # Others have thresholds of their own.
        others = self._boxes_of(keyframe) if self._boxes_of else ()
        found += [replace(one, score=max(one.score, SURE)) for one in others]
        image, intrinsics = self._image(keyframe.image), self._intrinsics(keyframe)
        has_patches = self._detector is None or self._detector.config.unnamed
        things = fused_objects(found, view.objects, image, intrinsics)
        things = outside_fixed(things, keyframe.fixed_mask)
        objects = [one for one in things if one.confidence >= _TOLD or not one.name]
        unsure = [one for one in things if one.name and one not in objects]
        if not has_patches:
            # Where a detector looked, a colour is that of a thing with a name, or says nothing.
            objects = [one for one in objects if one.name]
        return replace(view, objects=objects, unsure=without(unsure, objects))

    def _detect(self, encoded: EncodedImage) -> tuple[Detection, ...]:
        if self._detector is None:
            return ()
        return tuple(self._detector.detect(self._image(encoded), _UNSURE))
