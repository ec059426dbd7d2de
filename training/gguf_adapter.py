# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter of PEFT for a small Llama (SmolLM2), as llama.cpp loads it (`--lora`), and back.

Both keep the rows of q and k in another order: PEFT by halves of a head, llama.cpp by pairs.
"""

from __future__ import annotations

import json
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from gguf import GGUFWriter
    from numpy.typing import NDArray

ADAPTER_FILE = 'reader.gguf'  # in the output folder of a training
PARTS = {  # of a layer
    'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down',
}  # fmt: skip
_PEFT = re.compile(r'base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight')


def by_pairs(value: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k as llama.cpp has them."""
    rows, *rest = value.shape
    return value.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(value.shape)


def by_halves(value: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k as PEFT has them."""
    rows, *rest = value.shape
    return value.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(value.shape)


def _heads(base: Path) -> dict[str, int]:
    """How many heads of a model in GGUF stand in the rows of q and k."""
    from gguf import GGUFReader

    fields = GGUFReader(base).fields
    return {
        'attn_q': fields['llama.attention.head_count'].contents(),
        'attn_k': fields['llama.attention.head_count_kv'].contents(),
    }


def read_gguf_adapter(file: Path, base: Path) -> dict[str, NDArray[Any]]:
    """The tensors of an adapter in GGUF under the names that PEFT gives them.

    Args:
        file: The adapter.
        base: The GGUF file of its base model, for its heads.

    Raises:
        InputError: It is no such adapter.
    """
    from gguf import GGUFReader

    heads, names, tensors = _heads(base), {own: name for name, own in PARTS.items()}, {}
    try:
        for tensor in GGUFReader(file).tensors:
            _, layer, part, _, letter = tensor.name.split('.')
            value = np.array(tensor.data)
            if letter == 'lora_b' and part in heads:
                value = by_halves(value, heads[part])
            place = f'base_model.model.model.layers.{layer}.{names[part]}'
            tensors[f'{place}.lora_{letter[-1].upper()}.weight'] = value
    except (OSError, ValueError, KeyError, IndexError) as error:
        msg = f'{file} is no adapter of a small Llama in GGUF: {error}'
        raise InputError(msg) from None
    return tensors


def write_gguf_adapter(adapter: Path, base: Path, out: Path) -> int:
    """Write a LoRA adapter of PEFT as GGUF, in 16 bits; returns the number of tensors.

    Args:
        adapter: Folder with adapter_config.json and adapter_model.safetensors.
        base: The GGUF file of its base model, for its heads.
        out: Where to.
    """
    from gguf import GGUFWriter
    from safetensors.numpy import load_file

    heads = _heads(base)
    config = json.loads((adapter / 'adapter_config.json').read_text(encoding='utf-8'))
    writer = GGUFWriter(out, 'llama')
    writer.add_string('general.type', 'adapter')
    writer.add_string('adapter.type', 'lora')
    writer.add_float32('adapter.lora.alpha', float(config['lora_alpha']))
    tensors = load_file(adapter / 'adapter_model.safetensors')
    for name, value in sorted(tensors.items()):
        match = _PEFT.fullmatch(name)
        if match is None:
            msg = f'{name}: no layer of a llama'
            raise ValueError(msg)
        layer, part, letter = int(match[1]), PARTS[match[2]], match[3].lower()
        if letter == 'b' and part in heads:
            value = by_pairs(value, heads[part])
        writer.add_tensor(
            f'blk.{layer}.{part}.weight.lora_{letter}', np.ascontiguousarray(value, np.float16)
        )
    close_gguf(writer)
    return len(tensors)


def close_gguf(writer: GGUFWriter) -> None:
    """Write what was added, and close the file."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
