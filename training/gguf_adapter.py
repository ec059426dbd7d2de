# SPDX-License-Identifier: Apache-2.0
"""A LoRA adapter of PEFT for a small Llama (SmolLM2), as llama.cpp loads it (`--lora`).

Both keep the rows of q and k in another order: PEFT by halves of a head, llama.cpp by pairs.
"""

from __future__ import annotations

import json
import re
from typing import Any, TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_PARTS = {
    'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down',
}  # fmt: skip
_PEFT = re.compile(r'base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight')


def by_pairs(value: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k as llama.cpp has them."""
    rows, *rest = value.shape
    return value.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(value.shape)


def write_gguf_adapter(adapter: Path, base: Path, out: Path) -> int:
    """Write a LoRA adapter of PEFT as GGUF, in 16 bits; returns the number of tensors.

    Args:
        adapter: Folder with adapter_config.json and adapter_model.safetensors.
        base: The GGUF file of its base model, for its heads.
        out: Where to.
    """
    from gguf import GGUFReader, GGUFWriter
    from safetensors.numpy import load_file

    fields = GGUFReader(base).fields
    heads = {
        'attn_q': fields['llama.attention.head_count'].contents(),
        'attn_k': fields['llama.attention.head_count_kv'].contents(),
    }
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
        layer, part, letter = int(match[1]), _PARTS[match[2]], match[3].lower()
        if letter == 'b' and part in heads:
            value = by_pairs(value, heads[part])
        writer.add_tensor(
            f'blk.{layer}.{part}.weight.lora_{letter}', np.ascontiguousarray(value, np.float16)
        )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return len(tensors)
