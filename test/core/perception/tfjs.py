# SPDX-License-Identifier: Apache-2.0
"""A graph model of TensorFlow.js as ONNX, for the few kinds of nodes that NanoDet has."""

from __future__ import annotations

import base64
import json
from typing import Any, TYPE_CHECKING

import numpy as np
import onnx
from onnx import helper, numpy_helper, TensorProto

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

_OPSET = 17
_TO_CHANNELS_FIRST, _TO_CHANNELS_LAST = [0, 3, 1, 2], [0, 2, 3, 1]


def onnx_of_tfjs(model: Path) -> onnx.ModelProto:
    """Convert a model.json, with its weights beside it.

    Raises:
        KeyError: It has a kind of node that is not known here.
    """
    content = json.loads(model.read_text())
    return _Conversion(content, _weights(content, model.parent)).model()


def _weights(content: dict[str, Any], folder: Path) -> dict[str, NDArray[Any]]:
    """The constants by name; a quantisation to float16 is undone."""
    arrays = {}
    for group in content['weightsManifest']:
        data, at = b''.join((folder / name).read_bytes() for name in group['paths']), 0
        for entry in group['weights']:
            stored = np.dtype(entry.get('quantization', {}).get('dtype', entry['dtype']))
            count = int(np.prod(entry['shape'], dtype=np.int64))
            array = np.frombuffer(data, stored, count, at).reshape(entry['shape'])
            arrays[entry['name']] = array.astype(entry['dtype'])
            at += count * stored.itemsize
    return arrays


class _Conversion:
    """Takes the nodes of a graph, inputs first; what depends on constants alone is computed."""

    def __init__(self, content: dict[str, Any], weights: dict[str, NDArray[Any]]) -> None:
        self._sources = {node['name']: node for node in content['modelTopology']['node']}
        self._constants = weights
        self._signature = content['signature']
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._done = set(weights)

    def model(self) -> onnx.ModelProto:
        """The ONNX model, checked."""
        inputs = [_value(entry) for entry in self._signature['inputs'].values()]
        self._done |= {value.name for value in inputs}
        outputs = [_value(entry) for entry in self._signature['outputs'].values()]
        for output in outputs:
            self._convert(output.name)
        graph = helper.make_graph(
            self._nodes, 'tfjs', inputs, outputs, list(self._initializers.values())
        )
        opset = helper.make_opsetid('', _OPSET)
        model = helper.make_model(graph, opset_imports=[opset], ir_version=8)
        onnx.checker.check_model(model)
        return model

    def _convert(self, name: str) -> None:
        if name in self._done:
            return
        self._done.add(name)
        node = self._sources[name]
        inputs = [entry.removeprefix('^') for entry in node.get('input', [])]
        for entry in inputs:
            self._convert(entry.partition(':')[0])
        if all(entry in self._constants for entry in inputs):
            self._constants[name] = _FOLDED[node['op']](*(self._constants[i] for i in inputs))
        else:
            getattr(self, f'_{node["op"].lower()}')(name, inputs, node.get('attr', {}))

    def _add_node(self, kind: str, inputs: list[str], outputs: list[str], **attr: Any) -> None:
        for entry in inputs:
            if entry in self._constants:
                tensor = numpy_helper.from_array(self._constants[entry], entry)
                self._initializers[entry] = tensor
        self._nodes.append(helper.make_node(kind, inputs, outputs, **attr))

    def _constant(self, name: str, value: Any, kind: type = np.int64) -> str:
        self._constants[name] = np.asarray(value, kind)
        return name

    def _simple(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        kind = {'addv2': 'Add'}.get(self._sources[name]['op'].lower(), self._sources[name]['op'])
        self._add_node(kind, inputs, [name])

    _add = _addv2 = _sigmoid = _identity = _simple

    def _transpose(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        self._add_node('Transpose', inputs[:1], [name], perm=self._constants[inputs[1]].tolist())

    def _leakyrelu(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        self._add_node('LeakyRelu', inputs, [name], alpha=float(attr['alpha']['f']))

    def _concatv2(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        self._add_node('Concat', inputs[:-1], [name], axis=int(self._constants[inputs[-1]]))

    def _reshape(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        shape = self._constant(f'{name}/shape', self._constants[inputs[1]])
        self._add_node('Reshape', [inputs[0], shape], [name])

    def _pad(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        pads = self._constant(f'{name}/pads', self._constants[inputs[1]].T.ravel())
        self._add_node('Pad', [inputs[0], pads, *inputs[2:]], [name])

    _padv2 = _pad

    def _splitv(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        sizes = self._constants[inputs[1]]
        outputs = [name, *(f'{name}:{number}' for number in range(1, len(sizes)))]
        split = self._constant(f'{name}/split', sizes)
        axis = int(self._constants[inputs[2]])
        self._add_node('Split', [inputs[0], split], outputs, axis=axis)

    def _conv2d(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        kernel = self._constants[inputs[1]]
        weights = self._constant(f'{name}/W', kernel.transpose(3, 2, 0, 1), np.float32)
        _refuse_padding(attr)
        strides = [int(step) for step in attr['strides']['list']['i'][1:3]]
        self._channels_first('Conv', name, [inputs[0], weights], strides=strides)

    def _maxpool(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        _refuse_padding(attr)
        kernel, strides = (
            [int(step) for step in attr[key]['list']['i'][1:3]] for key in ('ksize', 'strides')
        )
        self._channels_first('MaxPool', name, inputs, kernel_shape=kernel, strides=strides)

    def _resizebilinear(self, name: str, inputs: list[str], attr: dict[str, Any]) -> None:
        # Sizes of channels and batch are those of the input, which only its scales can leave.
        first, resized = f'{name}/first', f'{name}/resized'
        self._add_node('Transpose', inputs[:1], [first], perm=_TO_CHANNELS_FIRST)
        self._add_node('Shape', [first], [f'{name}/batch'], start=0, end=2)
        size = self._constant(f'{name}/size', self._constants[inputs[1]])
        self._add_node('Concat', [f'{name}/batch', size], [f'{name}/sizes'], axis=0)
        self._add_node(
            'Resize',
            [first, '', '', f'{name}/sizes'],
            [resized],
            mode='linear',
            coordinate_transformation_mode='half_pixel',
        )
        self._add_node('Transpose', [resized], [name], perm=_TO_CHANNELS_LAST)

    def _channels_first(self, kind: str, name: str, inputs: list[str], **attr: Any) -> None:
        """A node that takes (N, C, H, W), between two transpositions."""
        first, result = f'{name}/first', f'{name}/result'
        self._add_node('Transpose', inputs[:1], [first], perm=_TO_CHANNELS_FIRST)
        self._add_node(kind, [first, *inputs[1:]], [result], **attr)
        self._add_node('Transpose', [result], [name], perm=_TO_CHANNELS_LAST)


def _dense(
    where: NDArray[Any], shape: NDArray[Any], values: NDArray[Any], default: NDArray[Any]
) -> NDArray[Any]:
    dense = np.full(tuple(int(size) for size in shape.ravel()), default)
    dense[tuple(where.reshape(-1, dense.ndim).T)] = values
    return dense


_FOLDED: dict[str, Callable[..., NDArray[Any]]] = {
    'SparseToDense': _dense,
    'AddV2': np.add,
    'Add': np.add,
}


def _refuse_padding(attr: dict[str, Any]) -> None:
    padding = base64.b64decode(attr['padding']['s'])
    assert padding == b'VALID', padding


def _value(entry: dict[str, Any]) -> onnx.ValueInfoProto:
    shape = [int(dim['size']) for dim in entry['tensorShape']['dim']]
    name = entry['name'].partition(':')[0]
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
