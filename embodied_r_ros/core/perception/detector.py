# SPDX-License-Identifier: Apache-2.0
"""An object detector in an ONNX file: an image in, things with names and boxes out.

`DetectorPerceiver` is the classical perceiver, with names for what a detector knows.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
import threading
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.common.settings import parse_yaml, setting, Settings
from embodied_r_ros.common.untrusted import as_label
from embodied_r_ros.core.chat.settings import file_sum
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.detector_outputs import layout_of, read_outputs
from embodied_r_ros.core.perception.fusion import fused_objects, without
from embodied_r_ros.core.types.deltas import ModelInfo, Rung
from embodied_r_ros.core.types.vocabulary import COCO, COCO_NUMBERED, Detection
import numpy as np
import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.perception.classical import ClassicalConfig
    from embodied_r_ros.core.perception.detector_outputs import BoxCandidates
    from embodied_r_ros.core.perception.items import ItemView
    from embodied_r_ros.core.types.images import EncodedImage
    from embodied_r_ros.core.types.keyframes import Keyframe
    from numpy.typing import NDArray

_DEFAULT_SIDE_PX = 640  # of an input that takes any size
_MAX_SIDE_PX = 4096
_GREY = 114  # beside a picture that does not fill the input
_MAX_LIST_BYTES = 1_000_000
_ONE_THING = 0.85  # boxes of two classes that overlap more are of one thing
_IMAGENET = (np.array([123.675, 116.28, 103.53]), np.array([58.395, 57.12, 57.375]))  # RGB
# What a network takes: order of channels, and what is subtracted from and divides 0..255.
PIXELS: dict[str, tuple[str, Any, Any]] = {
    'bgr': ('bgr', 0.0, 1.0),
    'rgb': ('rgb', 0.0, 1.0),
    'bgr_unit': ('bgr', 0.0, 255.0),
    'rgb_unit': ('rgb', 0.0, 255.0),
    'bgr_imagenet': ('bgr', _IMAGENET[0][::-1], _IMAGENET[1][::-1]),
    'rgb_imagenet': ('rgb', *_IMAGENET),
}
FITS = ('corner', 'centre', 'stretch')
_LISTS = {'coco': COCO, 'coco91': COCO_NUMBERED}
_KINDS = {
    'tensor(float)': np.float32,
    'tensor(float16)': np.float16,
    'tensor(double)': np.float64,
    'tensor(uint8)': np.uint8,
}


@dataclass(frozen=True)
class DetectorConfig(Settings):
    """Which detector looks at keyframes, and what counts as found."""

    model: str = setting('', 'path of an ONNX file', read_only=True)
    classes: str = setting(
        '',
        'names of the classes: a file with one a line, or YAML; coco, coco91; empty: those of the '
        'model, or of COCO where it tells as many apart',
        read_only=True,
    )
    threshold: float = setting(0.4, 'least score of what is in view', between=(0.01, 1))
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
        'where the picture lies in the input: in the corner or centre with its proportions, or '
        'stretched; auto: what the layout usually takes',
        choices=('auto', *FITS),
        read_only=True,
    )
    device: str = setting(
        'cpu', 'what computes; cuda needs onnxruntime-gpu', choices=('cpu', 'cuda'), read_only=True
    )
    threads: int = setting(
        0, 'threads that compute; 0: one per core', between=(0, 256), read_only=True
    )


class Detector:
    """A loaded detector. Safe for use from several threads; one image is looked at at a time."""

    def __init__(self, config: DetectorConfig) -> None:
        """Load the model and let it look once, which shows the layout of its outputs.

        Raises:
            ConfigError: onnxruntime is not installed, or the file, its outputs or its classes
                cannot be used.
        """
        self.config = config
        self._path = Path(config.model).expanduser()
        self._session = _open_session(self._path, config)
        self._lock = threading.Lock()
        self._input, self._sizes = _inputs(self._session, self._path)
        self._is_channels_last = _is_channels_last(self._input.shape)
        self._size = _input_size(self._input.shape)
        self._outputs = [output.name for output in self._session.get_outputs()]
        names = _names(config.classes) or _names_of_model(self._session)
        self._pixels = PIXELS['rgb_unit' if config.pixels == 'auto' else config.pixels]
        try:
            blank = self._run(np.full((*self._size, 3), _GREY, np.uint8))
        except ModelError as error:
            msg = f'{self._path}: {error}'
            raise ConfigError(msg) from None
        try:
            self.layout = layout_of([array.shape for array in blank], self._size, len(names))
        except ConfigError as error:
            msg = f'{self._path}: {error}'
            raise ConfigError(msg) from None
        if config.pixels == 'auto':
            self._pixels = PIXELS[self.layout.pixels]
        self._fit = self.layout.fit if config.fit == 'auto' else config.fit
        self.classes = _see_names(names or _usual_names(self.layout.classes), self)
        self.digest = f'sha256:{file_sum(self._path)}'

    @property
    def name(self) -> str:
        """Name of the file, without its ending."""
        return self._path.stem

    def detect(self, image: NDArray[np.uint8], least: float = 0.0) -> list[Detection]:
        """Find things, the surest first.

        Args:
            image: BGR, uint8, (H, W, 3).
            least: Least score; 0: that of the settings.

        Raises:
            ModelError: The network failed.
        """
        height, width = image.shape[:2]
        network_input, scale, offset = _place(image, self._size, self._fit)
        candidates = read_outputs(self.layout, self._run(network_input), self._outputs, self._size)
        threshold = least or self.config.threshold
        numbers = _strongest(candidates, threshold, self.config.overlap)
        boxes = (candidates.boxes[numbers].reshape(-1, 2, 2) - offset) / scale
        boxes = np.clip(boxes, 0, (width, height)).reshape(-1, 4)
        detections = []
        for number, box in zip(numbers, boxes, strict=True):
            label = self._label(int(candidates.classes[number]))
            left, top, right, bottom = (float(value) for value in box)
            if label and right - left >= 1 and bottom - top >= 1:
                score = min(1.0, float(candidates.scores[number]))
                detections.append(Detection(label, score, (left, top, right, bottom)))
        return detections[: self.config.max_things]

    def _label(self, number: int) -> str:
        """Name of a class; empty: it has none, and the thing is left out."""
        return self.classes[number] if 0 <= number < len(self.classes) else ''

    def _run(self, network_input: NDArray[np.uint8]) -> list[NDArray[Any]]:
        """The outputs for an image that has the size of the input.

        Raises:
            ModelError: The network failed.
        """
        order, mean, spread = self._pixels
        pixels = (network_input if order == 'bgr' else network_input[..., ::-1]).astype(np.float32)
        pixels = (pixels - np.float32(mean)) / np.float32(spread)
        if not self._is_channels_last:
            pixels = pixels.transpose(2, 0, 1)
        kind = _KINDS[self._input.type]
        feed = {self._input.name: np.ascontiguousarray(pixels[None], kind)}
        if self._sizes is not None:
            sizes = [[self._size[1], self._size[0]]]
            integer = np.int32 if 'int32' in self._sizes.type else np.int64
            feed[self._sizes.name] = np.array(sizes, integer)
        try:
            with self._lock:
                outputs: list[NDArray[Any]] = self._session.run(self._outputs, feed)
        except Exception as error:  # onnxruntime has a family of its own, without a common base
            msg = f'the detector failed: {" ".join(str(error).split())[:300]}'
            raise ModelError(msg) from error
        return outputs


def _open_session(path: Path, config: DetectorConfig) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        msg = f'detectors need the library onnxruntime ({error}): pip install onnxruntime'
        raise ConfigError(msg) from None
    if not path.is_file():
        what = 'is a folder' if path.is_dir() else 'is not there'
        msg = f'{path} {what}: expected an ONNX file (embodied-r models fetch detector)'
        raise ConfigError(msg)
    providers = ['CPUExecutionProvider']
    if config.device == 'cuda':
        if 'CUDAExecutionProvider' not in onnxruntime.get_available_providers():
            msg = "device is 'cuda', and onnxruntime has no CUDA: pip install onnxruntime-gpu"
            raise ConfigError(msg)
        providers.insert(0, 'CUDAExecutionProvider')
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = config.threads
    options.log_severity_level = 3  # errors; others would stand between lines of output
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime has a family of its own, without a common base
        why = ' '.join(str(error).split())[:200]
        msg = f'{path} cannot be loaded as an ONNX model: {_hint(path)}{why}'
        raise ConfigError(msg) from None


def _hint(path: Path) -> str:
    """What a file is that is no model, where that is known."""
    with path.open('rb') as file:
        start = file.read(64)
    if start.startswith(b'version https://git-lfs'):
        return 'it is a pointer of Git LFS (git lfs pull fetches the file). '
    return 'it is a web page. ' if start.lstrip().startswith(b'<') else ''


def _inputs(session: Any, path: Path) -> tuple[Any, Any]:
    """The input for the image, and that for its size, where there is one.

    Raises:
        ConfigError: There are others.
    """
    inputs = session.get_inputs()
    images = [entry for entry in inputs if len(entry.shape) == 4 and 3 in entry.shape[1:]]
    others = [entry for entry in inputs if entry not in images]
    are_sizes = all(len(o.shape) == 2 and o.shape[1] == 2 and 'int' in o.type for o in others)
    is_known = len(images) == 1 and images[0].type in _KINDS
    if not is_known or len(others) > 1 or not are_sizes:
        inputs_text = ', '.join(f'{entry.name} {entry.type} {entry.shape}' for entry in inputs)
        msg = (
            f'{path} has the inputs {inputs_text}: expected one image of numbers, (1, 3, H, W) or '
            '(1, H, W, 3), and at most its size, (1, 2)'
        )
        raise ConfigError(msg)
    return images[0], others[0] if others else None


def _is_channels_last(shape: Sequence[Any]) -> bool:
    return bool(shape[1] != 3 and shape[3] == 3)


def _input_size(shape: Sequence[Any]) -> tuple[int, int]:
    """Height and width [px]; the usual ones where the model takes any."""
    sides = shape[1:3] if _is_channels_last(shape) else shape[2:4]
    fixed = [
        side if isinstance(side, int) and 0 < side <= _MAX_SIDE_PX else _DEFAULT_SIDE_PX
        for side in sides
    ]
    return fixed[0], fixed[1]


def _place(
    image: NDArray[np.uint8], size: tuple[int, int], fit: str
) -> tuple[NDArray[np.uint8], NDArray[np.float64], NDArray[np.float64]]:
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
    survivors = cv2.dnn.NMSBoxesBatched(
        corners.astype(float).tolist(),
        scores.astype(float).tolist(),
        candidates.classes[numbers].astype(int).tolist(),
        threshold,
        overlap,
    )
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
            text = file.read(_MAX_LIST_BYTES).decode()
        if path.suffix in {'.yaml', '.yml', '.json'}:
            names = _texts_of(parse_yaml(text))
        else:
            names = [line.strip() for line in text.splitlines()]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        msg = f'classes is {classes!r}: {" ".join(str(error).split())}'
        raise ConfigError(msg) from None
    while names and not names[-1]:
        names.pop()
    if not any(names):
        msg = f'{path} holds no names: expected one a line, or YAML with a list or numbers of them'
        raise ConfigError(msg)
    return tuple(as_label(name) for name in names)


def _texts_of(value: Any) -> list[str]:
    """Names of a list, or of numbers with names, also below `names`; empty: neither."""
    if isinstance(value, dict) and isinstance(value.get('names'), dict | list):
        value = value['names']
    if isinstance(value, dict):
        numbers = {int(key): name for key, name in value.items() if str(key).isdecimal()}
        if len(numbers) < len(value) or max(numbers, default=0) > _MAX_LIST_BYTES:
            return []
        value = [numbers.get(number, '') for number in range(max(numbers, default=-1) + 1)]
    are_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return list(value) if are_names else []


def _names_of_model(session: Any) -> tuple[str, ...]:
    """The names in the model's metadata, as Ultralytics and others write them; empty: none."""
    text = session.get_modelmeta().custom_metadata_map.get('names', '')
    try:
        return tuple(as_label(name) for name in _texts_of(ast.literal_eval(text)))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()


def _usual_names(count: int) -> tuple[str, ...]:
    """Names of COCO, where a model tells as many classes apart; 90 are 91 without the first."""
    lists = {len(COCO): COCO, len(COCO_NUMBERED): COCO_NUMBERED, 90: COCO_NUMBERED[1:]}
    return lists.get(count, ())


def _see_names(names: tuple[str, ...], detector: Detector) -> tuple[str, ...]:
    """The names of a detector's classes.

    Raises:
        ConfigError: There are none, or not as many as it tells apart.
    """
    count = detector.layout.classes
    if names and count in {0, len(names)}:
        return names
    model = detector.config.model
    if names:
        msg = f'{model} tells {count} classes apart, and there are {len(names)} names for them'
    elif count:
        msg = f'{model} tells {count} classes apart and names none: give a file of their names'
    else:
        msg = f'{model} names no classes: give a file of their names, or coco or coco91'
    raise ConfigError(msg)


_CACHED_IMAGES = 4
# What scores so much of the threshold still tells that a thing did not leave.
_UNSURE = 0.5
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
    ) -> None:
        """Prepare.

        Args:
            detector: Finds things; None: only `boxes_of` does.
            config: Of the classical perceiver.
            rung: Its place among fallbacks.
            boxes_of: What others found in a keyframe, such as a ROS node; None: there are none.
        """
        super().__init__(config, rung)
        self._detector = detector
        self._boxes_of = boxes_of
        name, digest = (f'detector/{detector.name}', detector.digest) if detector else ('', '')
        self._info = ModelInfo(name or 'detections', digest, rung=rung)
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
            own = self._detections(keyframe.image)
        threshold = self._detector.config.threshold if self._detector else 0.0
        # Others have thresholds of their own.
        strong = [*(self._boxes_of(keyframe) if self._boxes_of else ())]
        strong += [one for one in own if one.score >= threshold]
        weak = [one for one in own if one.score < threshold]
        image, intrinsics = self._image(keyframe.image), self._intrinsics(keyframe)
        objects = fused_objects(strong, view.objects, image, intrinsics)
        unsure = fused_objects(weak, (), image, intrinsics)
        return replace(view, objects=objects, unsure=without(unsure, objects))

    def _detect(self, encoded: EncodedImage) -> tuple[Detection, ...]:
        if self._detector is None:
            return ()
        least = self._detector.config.threshold * _UNSURE
        return tuple(self._detector.detect(self._image(encoded), least))
