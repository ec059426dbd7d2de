# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import sys
import types
from typing import Any, TYPE_CHECKING
import zipfile

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig
from embodied_r_ros.core.perception.detector_outputs import layout_of, read_outputs
from embodied_r_ros.core.types.vocabulary import OBJECTRON
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SIZE = (300, 300)
ANCHORS, CLASSES = 1917, 24
GREY = np.full((600, 600, 3), 90, np.uint8)


class FakeInterpreter:
    """A TFLite network that finds one chair in any image, in its last and largest box."""

    def __init__(self, path: str, num_threads: int | None) -> None:
        self.seen: Any = None

    def allocate_tensors(self) -> None:
        pass

    def get_input_details(self) -> list[dict[str, Any]]:
        shape = np.array([1, *SIZE, 3])
        return [{'index': 0, 'shape': shape, 'dtype': np.float32, 'quantization': (0.0, 0)}]

    def get_output_details(self) -> list[dict[str, Any]]:
        return [{'index': n, 'name': f'out{n}', 'quantization': (0.0, 0)} for n in (1, 2)]

    def set_tensor(self, index: int, values: NDArray[Any]) -> None:
        assert values.shape == (1, *SIZE, 3)
        assert -1 <= values.min() <= values.max() <= 1
        self.seen = values

    def invoke(self) -> None:
        assert self.seen is not None

    def get_tensor(self, index: int) -> NDArray[np.float32]:
        return outputs()[index - 1][None]


def outputs() -> list[NDArray[np.float32]]:
    """No offsets, and one logit of a chair at the last box: square, and as large as the input."""
    logits = np.full((ANCHORS, CLASSES), -9.0, np.float32)
    logits[:, 0] = 9.0  # the background
    logits[-6, OBJECTRON.index('chair')] = 2.0
    return [np.zeros((ANCHORS, 4), np.float32), logits]


@pytest.fixture
def tflite(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A file that a stand-in for the library loads."""
    module = types.ModuleType('ai_edge_litert.interpreter')
    module.Interpreter = FakeInterpreter  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'ai_edge_litert', types.ModuleType('ai_edge_litert'))
    monkeypatch.setitem(sys.modules, 'ai_edge_litert.interpreter', module)
    monkeypatch.setattr('embodied_r_ros.core.perception.networks.find_spec', lambda name: name)
    path = tmp_path / 'ssd.tflite'
    path.write_bytes(b'model')
    return path


def test_a_single_shot_detector_is_recognised_and_read() -> None:
    layout = layout_of([array[None].shape for array in outputs()], SIZE)
    assert (layout.name, layout.classes) == ('ssd', CLASSES)
    found = read_outputs(layout, outputs(), ['boxes', 'classes'], SIZE)
    best = int(found.scores.argmax())
    assert OBJECTRON[found.classes[best]] == 'chair'
    assert found.scores[best] == pytest.approx(0.88, abs=0.01)
    middle, half = 150.0, 0.95 * 150.0
    edges = [middle - half, middle - half, middle + half, middle + half]
    assert found.boxes[best] == pytest.approx(edges, abs=0.1)


def test_a_tflite_file_names_things(tflite: Path) -> None:
    (chair,) = Detector(DetectorConfig(str(tflite))).detect(GREY)
    assert chair.label == 'chair'
    assert chair.box == pytest.approx((15.0, 15.0, 585.0, 585.0), abs=0.2)


def test_names_that_a_file_packs_count(tflite: Path) -> None:
    with zipfile.ZipFile(tflite, 'a') as file:
        file.writestr('labels.txt', '\n'.join(f'kind {n}' for n in range(CLASSES)))
    (thing,) = Detector(DetectorConfig(str(tflite))).detect(GREY)
    assert thing.label == f'kind {OBJECTRON.index("chair")}'


def test_several_look_at_once(tflite: Path) -> None:
    other = tflite.with_name('other.tflite')
    other.write_bytes(b'another')
    both = Detector(DetectorConfig(f'{tflite}, {other}'))
    assert len({one.source for one in both.detect(GREY)}) == 2
    assert both.name == 'ssd+other'
    assert both.digest != Detector(DetectorConfig(str(tflite))).digest
    with pytest.raises(ConfigError, match='expected one for each'):
        Detector(DetectorConfig(f'{tflite},{other}', 'coco'))


def test_tflite_computes_on_the_cpu(tflite: Path) -> None:
    with pytest.raises(ConfigError, match="device is 'cuda'"):
        Detector(DetectorConfig(str(tflite), device='cuda'))
