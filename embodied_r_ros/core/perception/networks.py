# SPDX-License-Identifier: Apache-2.0
"""Networks in files, ONNX and TFLite: an image of numbers in, arrays out."""

from __future__ import annotations

import ast
from contextlib import suppress
from importlib.util import find_spec
from typing import Any, Protocol, TYPE_CHECKING
import zipfile

from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.common.settings import parse_yaml
from embodied_r_ros.common.untrusted import as_label
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.arrays import Float32s
    from numpy.typing import NDArray

_DEFAULT_SIDE_PX = 640  # of an input that takes any size
_MAX_SIDE_PX = 4096
MAX_LIST_BYTES = 1_000_000
_KINDS = {
    'tensor(float)': np.float32,
    'tensor(float16)': np.float16,
    'tensor(double)': np.float64,
    'tensor(uint8)': np.uint8,
}
TFLITE = '.tflite'


class Network(Protocol):
    """A loaded network that looks at one image. Not for several threads at once."""

    size: tuple[int, int]  # height and width of its input [px]
    outputs: list[str]  # their names
    names: tuple[str, ...]  # of the classes, as the file has them; empty: it does not

    def run(self, pixels: Float32s) -> list[NDArray[Any]]:
        """The outputs for an image.

        Args:
            pixels: As the network takes them. Shape (H, W, 3).

        Raises:
            ModelError: The network failed.
        """


def open_network(path: Path, device: str, threads: int) -> Network:
    """Load a file: TFLite by its ending, else ONNX.

    Args:
        path: The file.
        device: 'cpu' or 'cuda'.
        threads: That compute; 0: one per core.

    Raises:
        ConfigError: The library is not installed, or the file cannot be used.
    """
    is_tflite = path.suffix == TFLITE
    library = 'ai_edge_litert' if is_tflite else 'onnxruntime'
    if find_spec(library) is None:
        package = library.replace('_', '-')
        msg = f'{path.name} needs the library {package}: pip install {package}'
        raise ConfigError(msg)
    if not path.is_file():
        what = 'is a folder' if path.is_dir() else 'is not there'
        msg = f'{path} {what}: expected an ONNX or TFLite file (embodied-r models fetch detector)'
        raise ConfigError(msg)
    return (_Tflite if is_tflite else _Onnx)(path, device, threads)


def texts_of(value: Any) -> list[str]:
    """Names of a list, or of numbers with names, also below `names`; empty: neither."""
    if isinstance(value, dict) and isinstance(value.get('names'), dict | list):
        value = value['names']
    if isinstance(value, dict):
        numbers = {int(key): name for key, name in value.items() if str(key).isdecimal()}
        if len(numbers) < len(value) or max(numbers, default=0) > MAX_LIST_BYTES:
            return []
        value = [numbers.get(number, '') for number in range(max(numbers, default=-1) + 1)]
    are_names = isinstance(value, list) and all(isinstance(name, str) for name in value)
    return list(value) if are_names else []


def read_names(text: str, suffix: str) -> tuple[str, ...]:
    """The names in a file: YAML by its ending, else one a line; empty: there are none.

    Raises:
        yaml.YAMLError: It is not YAML.
    """
    is_yaml = suffix in {'.yaml', '.yml', '.json'}
    names = texts_of(parse_yaml(text)) if is_yaml else [s.strip() for s in text.splitlines()]
    while names and not names[-1]:
        names.pop()
    return tuple(as_label(name) for name in names)


class _Onnx:
    """A network of onnxruntime."""

    def __init__(self, path: Path, device: str, threads: int) -> None:
        self._session = _open_session(path, device, threads)
        self._input, self._sizes = _inputs(self._session, path)
        self._is_last = _is_channels_last(self._input.shape)
        self.size = _input_size(self._input.shape)
        self.outputs = [output.name for output in self._session.get_outputs()]
        # The names in the metadata, as Ultralytics and others write them.
        text = self._session.get_modelmeta().custom_metadata_map.get('names', '')
        self.names: tuple[str, ...] = ()
        with suppress(ValueError, SyntaxError, MemoryError, RecursionError):
            self.names = tuple(as_label(name) for name in texts_of(ast.literal_eval(text)))

    def run(self, pixels: Float32s) -> list[NDArray[Any]]:
        """The outputs for an image (see `Network.run`)."""
        ordered = pixels if self._is_last else pixels.transpose(2, 0, 1)
        feed = {self._input.name: np.ascontiguousarray(ordered[None], _KINDS[self._input.type])}
        if self._sizes is not None:
            integer = np.int32 if 'int32' in self._sizes.type else np.int64
            feed[self._sizes.name] = np.array([[self.size[1], self.size[0]]], integer)
        try:
            outputs: list[NDArray[Any]] = self._session.run(self.outputs, feed)
        except Exception as error:  # onnxruntime has a family of its own, without a common base
            raise _failure(error) from error
        return outputs


class _Tflite:
    """A network of LiteRT, on the CPU."""

    def __init__(self, path: Path, device: str, threads: int) -> None:
        from ai_edge_litert.interpreter import Interpreter

        if device != 'cpu':
            msg = f"device is {device!r}, and TFLite computes on the CPU: set 'cpu', or take ONNX"
            raise ConfigError(msg)
        try:
            # None: as many as the library takes.
            self._network = Interpreter(str(path), num_threads=threads or None)
            self._network.allocate_tensors()
        except (ValueError, RuntimeError) as error:
            raise _not_loaded(path, 'a TFLite', error) from None
        inputs = self._network.get_input_details()
        self._input, self._outputs = inputs[0], self._network.get_output_details()
        shape = [int(side) for side in self._input['shape']]
        is_known = self._input['dtype'] in {np.float32, np.uint8, np.int8}
        if len(inputs) != 1 or len(shape) != 4 or shape[3] != 3 or not is_known:
            msg = (
                f'{path} has {len(inputs)} inputs, of {shape} {self._input["dtype"].__name__}: '
                'expected one image, (1, H, W, 3), of float32, uint8 or int8'
            )
            raise ConfigError(msg)
        self.size = _input_size(shape)
        self.outputs = [str(output['name']) for output in self._outputs]
        self.names = _packed_names(path)

    def run(self, pixels: Float32s) -> list[NDArray[Any]]:
        """The outputs for an image (see `Network.run`)."""
        kind, (scale, zero) = self._input['dtype'], self._input['quantization']
        if kind is not np.float32:
            limits = np.iinfo(kind)
            pixels = np.clip(np.rint(pixels / (scale or 1.0) + zero), limits.min, limits.max)
        try:
            self._network.set_tensor(self._input['index'], pixels[None].astype(kind))
            self._network.invoke()
            return [self._output(entry) for entry in self._outputs]
        except (ValueError, RuntimeError) as error:
            raise _failure(error) from error

    def _output(self, entry: dict[str, Any]) -> NDArray[Any]:
        values = self._network.get_tensor(entry['index'])
        scale, zero = entry['quantization']
        return np.asarray((values.astype(np.float32) - zero) * scale if scale else values)


def _packed_names(path: Path) -> tuple[str, ...]:
    """The list of classes that is packed into a TFLite file; empty: there is none."""
    with suppress(zipfile.BadZipFile, UnicodeDecodeError, OSError), zipfile.ZipFile(path) as file:
        entries = [entry for entry in file.infolist() if entry.filename.endswith('.txt')]
        if len(entries) == 1 and entries[0].file_size <= MAX_LIST_BYTES:
            return read_names(file.read(entries[0]).decode(), '.txt')
    return ()


def _failure(error: Exception) -> ModelError:
    return ModelError(f'the detector failed: {" ".join(str(error).split())[:300]}')


def _open_session(path: Path, device: str, threads: int) -> Any:
    import onnxruntime

    providers = ['CPUExecutionProvider']
    if device == 'cuda':
        if 'CUDAExecutionProvider' not in onnxruntime.get_available_providers():
            msg = "device is 'cuda', and onnxruntime has no CUDA: pip install onnxruntime-gpu"
            raise ConfigError(msg)
        providers.insert(0, 'CUDAExecutionProvider')
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # errors; others would stand between lines of output
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=providers)
    except Exception as error:  # onnxruntime has a family of its own, without a common base
        raise _not_loaded(path, 'an ONNX', error) from None


def _not_loaded(path: Path, kind: str, error: Exception) -> ConfigError:
    why = ' '.join(str(error).split())[:200]
    return ConfigError(f'{path} cannot be loaded as {kind} model: {_hint(path)}{why}')


def _hint(path: Path) -> str:
    """What a file is that is no model, where that is known."""
    with path.open('rb') as file:
        start = file.read(64)
    if start.startswith(b'version https://git-lfs'):
        return 'it is a pointer of Git LFS (git lfs pull fetches the file). '
    return 'it is a web page. ' if start.lstrip().startswith(b'<') else ''


def _inputs(session: Any, path: Path) -> tuple[Any, Any]:
    """The input for the image, and the one for its size if the network has it.

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
