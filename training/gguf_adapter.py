# SPDX-License-Identifier: Apache-2.0
"""Between GGUF and torch: `python -m training.gguf_adapter ADAPTER BASE.gguf --out LORA.gguf`.

Reads the weights of a small Llama (SmolLM2) from a GGUF file, dequantised, and writes a LoRA
adapter of PEFT as llama.cpp loads it (`--lora`). Both keep the rows of q and k in another order:
PEFT and transformers by halves of a head, llama.cpp by pairs.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
import re
import sys
from typing import Any, TYPE_CHECKING

import numpy as np
import torch

from training.run.command import run_command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

_PARTS = {
    'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v',
    'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up',
    'mlp.down_proj': 'ffn_down', 'input_layernorm': 'attn_norm',
    'post_attention_layernorm': 'ffn_norm',
}  # fmt: skip
_WHOLE = {
    'token_embd.weight': 'model.embed_tokens.weight',
    'output_norm.weight': 'model.norm.weight',
}
_PEFT = re.compile(r'base_model\.model\.model\.layers\.(\d+)\.(.+)\.lora_([AB])\.weight')


def llama_of(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a GGUF file, of the architecture llama with tied embeddings."""
    from gguf import dequantize, GGUFReader
    from transformers import LlamaConfig, LlamaForCausalLM

    reader = GGUFReader(path)
    field = {name: each.contents() for name, each in reader.fields.items() if 'llama.' in name}
    heads = field['llama.attention.head_count'], field['llama.attention.head_count_kv']
    tensors = {each.name: each for each in reader.tensors}
    config = LlamaConfig(
        vocab_size=int(tensors['token_embd.weight'].shape[1]),
        hidden_size=field['llama.embedding_length'],
        intermediate_size=field['llama.feed_forward_length'],
        num_hidden_layers=field['llama.block_count'],
        num_attention_heads=heads[0],
        num_key_value_heads=heads[1],
        max_position_embeddings=field['llama.context_length'],
        rms_norm_eps=float(field['llama.attention.layer_norm_rms_epsilon']),
        rope_parameters={
            'rope_type': 'default',
            'rope_theta': float(field['llama.rope.freq_base']),
        },
        tie_word_embeddings=True,
    )
    state = {}
    names = dict(_WHOLE)
    for layer in range(config.num_hidden_layers):
        for own, other in _PARTS.items():
            names[f'blk.{layer}.{other}.weight'] = f'model.layers.{layer}.{own}.weight'
    for theirs, ours in names.items():
        value = dequantize(tensors[theirs].data, tensors[theirs].tensor_type)
        if theirs.endswith(('attn_q.weight', 'attn_k.weight')):
            value = by_halves(value, heads['attn_k' in theirs])
        state[ours] = torch.from_numpy(np.ascontiguousarray(value)).to(dtype)
    model = LlamaForCausalLM(config).to(dtype)
    missing, unexpected = model.load_state_dict(state, strict=False)
    assert not unexpected, unexpected
    assert set(missing) <= {'lm_head.weight'}, missing
    model.tie_weights()
    return model


def by_pairs(value: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k as llama.cpp has them."""
    rows, *rest = value.shape
    return value.reshape(heads, 2, rows // heads // 2, *rest).swapaxes(1, 2).reshape(value.shape)


def by_halves(value: NDArray[Any], heads: int) -> NDArray[Any]:
    """Rows of q or k as transformers has them."""
    rows, *rest = value.shape
    return value.reshape(heads, rows // heads // 2, 2, *rest).swapaxes(1, 2).reshape(value.shape)


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


def _run(args: argparse.Namespace) -> int:
    count = write_gguf_adapter(args.adapter, args.base, args.out)
    sys.stderr.write(f'{args.out}: {count} tensors, {args.out.stat().st_size / 1e6:.1f} MB\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the adapter."""
    parser = argparse.ArgumentParser(prog='training.gguf_adapter', description=__doc__)
    parser.add_argument('adapter', type=Path)
    parser.add_argument('base', type=Path)
    parser.add_argument('--out', type=Path, required=True)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
