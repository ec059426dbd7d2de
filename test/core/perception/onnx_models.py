# SPDX-License-Identifier: Apache-2.0
"""Tiny ONNX detectors: one that finds what is bright, and one that says the same of any image."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper, TensorProto

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

STRIDES = (8, 16, 32)
_OPSET, _IR = 17, 8


def save(
    path: Path,
    graph: onnx.GraphProto,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid('', _OPSET)], ir_version=_IR
    )
    helper.set_model_props(model, dict(metadata or {}))
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
    return path


def constant_detector(
    path: Path,
    outputs: Mapping[str, NDArray[np.generic]],
    shape: Sequence[int | str] = (1, 3, 96, 128),
    metadata: Mapping[str, str] | None = None,
    inputs: Sequence[onnx.ValueInfoProto] = (),
    kind: int = TensorProto.FLOAT,
) -> Path:
    """A detector with the same outputs for every image."""
    image = helper.make_tensor_value_info('images', kind, list(shape))
    nodes, infos, values = [], [], []
    for name, array in outputs.items():
        nodes.append(helper.make_node('Identity', [f'{name}_value'], [name]))
        tensor = numpy_helper.from_array(np.asarray(array), f'{name}_value')
        values.append(tensor)
        infos.append(helper.make_tensor_value_info(name, tensor.data_type, array.shape))
    graph = helper.make_graph(nodes, 'constant', [image, *inputs], infos, values)
    return save(path, graph, metadata)


def cells(size: tuple[int, int], strides: Sequence[int] = STRIDES) -> NDArray[np.float32]:
    """Left, top and side of every cell [px]. Shape (N, 3)."""
    rows = [
        (column * step, row * step, step)
        for step in strides
        for row in range(-(-size[0] // step))
        for column in range(-(-size[1] // step))
    ]
    return np.array(rows, np.float32)


def red_detector(
    path: Path, size: tuple[int, int] = (96, 128), names: str = "{0: 'lamp'}", last: bool = False
) -> Path:
    """A detector, laid out as YOLOv8, of squares of 32 px that are red all over.

    Args:
        path: Where it is written.
        size: Height and width of its input [px], multiples of 32.
        names: The metadata `names`.
        last: Whether its input has the channels last.
    """
    shape = [1, *size, 3] if last else [1, 3, *size]
    image = helper.make_tensor_value_info('images', TensorProto.FLOAT, shape)
    grid = cells(size)
    boxes = np.stack([*(grid[:, i] + grid[:, 2] / 2 for i in (0, 1)), grid[:, 2], grid[:, 2]])
    # Red minus the other two, as a share.
    weights = np.array([1.0, -0.5, -0.5], np.float32).reshape(1, 3, 1, 1)
    values: dict[str, Any] = {'boxes': boxes[None].astype(np.float32), 'weights': weights}
    nodes = [helper.make_node('Transpose', ['images'], ['first'], perm=[0, 3, 1, 2])]
    nodes = nodes if last else [helper.make_node('Identity', ['images'], ['first'])]
    nodes.append(helper.make_node('Conv', ['first', 'weights'], ['red']))
    for step in STRIDES:
        values |= {f'weight{step}': np.float32(step / 32), f'flat{step}': np.array([1, 1, -1])}
        pool = {'kernel_shape': [step, step], 'strides': [step, step]}
        nodes += [
            helper.make_node('AveragePool', ['red'], [f'pool{step}'], **pool),
            helper.make_node('Reshape', [f'pool{step}', f'flat{step}'], [f'cells{step}']),
            helper.make_node('Mul', [f'cells{step}', f'weight{step}'], [f'scores{step}']),
        ]
    scores = [f'scores{step}' for step in STRIDES]
    nodes += [
        helper.make_node('Concat', scores, ['all'], axis=2),
        helper.make_node('Clip', ['all', 'zero', 'one'], ['scores']),
        helper.make_node('Concat', ['boxes', 'scores'], ['output0'], axis=1),
    ]
    values |= {'zero': np.float32(0), 'one': np.float32(1)}
    output = helper.make_tensor_value_info('output0', TensorProto.FLOAT, [1, 5, len(grid)])
    tensors = [numpy_helper.from_array(np.asarray(v), name) for name, v in values.items()]
    graph = helper.make_graph(nodes, 'red', [image], [output], tensors)
    return save(path, graph, {'names': names})
