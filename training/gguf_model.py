# SPDX-License-Identifier: Apache-2.0
"""A small model of the Qwen2 architecture as one GGUF file, which llama.cpp serves without torch.

    python -m training.gguf_model models/arm models/arm/gguf/arm.gguf

Weights are kept in 16 bits, norms and biases in 32. The tokenizer is byte-level BPE with the
splitting of Qwen2; words that were added to it stay whole, as there.
"""

from __future__ import annotations

import json
from pathlib import Path
import re
import sys
from typing import Any

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.files import whole_file
import numpy as np

from training.gguf_adapter import close_gguf, PARTS

_PARTS = PARTS | {'input_layernorm': 'attn_norm', 'post_attention_layernorm': 'ffn_norm'}
_WHOLE = {
    'model.embed_tokens.weight': 'token_embd.weight',
    'model.norm.weight': 'output_norm.weight',
    'lm_head.weight': 'output.weight',
}
_KINDS = np.float32, np.float16  # of vectors, and of matrices
_LAYER = re.compile(r'model\.layers\.(\d+)\.(.+)\.(weight|bias)')


def _gguf_name(name: str) -> str:
    if match := _LAYER.fullmatch(name):
        return f'blk.{match[1]}.{_PARTS[match[2]]}.{match[3]}'
    return _WHOLE[name]


def _add_sizes(writer: Any, config: dict[str, Any]) -> None:
    writer.add_block_count(config['num_hidden_layers'])
    writer.add_context_length(config['max_position_embeddings'])
    writer.add_embedding_length(config['hidden_size'])
    writer.add_feed_forward_length(config['intermediate_size'])
    writer.add_head_count(config['num_attention_heads'])
    writer.add_head_count_kv(config['num_key_value_heads'])
    writer.add_rope_freq_base(config['rope_parameters']['rope_theta'])
    writer.add_layer_norm_rms_eps(config['rms_norm_eps'])


def _add_tokenizer(writer: Any, folder: Path, config: dict[str, Any]) -> None:
    from gguf import TokenType

    tokenizer = json.loads((folder / 'tokenizer.json').read_text(encoding='utf-8'))
    tokens = [f'[unused {index}]' for index in range(config['vocab_size'])]
    types = [TokenType.UNUSED] * len(tokens)
    for token, index in tokenizer['model']['vocab'].items():
        tokens[index], types[index] = token, TokenType.NORMAL
    for added in tokenizer['added_tokens']:
        kind = TokenType.CONTROL if added['special'] else TokenType.USER_DEFINED
        tokens[added['id']], types[added['id']] = added['content'], kind
    writer.add_tokenizer_model('gpt2')
    writer.add_tokenizer_pre('qwen2')
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges([' '.join(pair) for pair in tokenizer['model']['merges']])
    writer.add_add_bos_token(False)
    writer.add_eos_token_id(config['eos_token_id'])
    if config.get('pad_token_id') is not None:
        writer.add_pad_token_id(config['pad_token_id'])
    writer.add_chat_template((folder / 'chat_template.jinja').read_text(encoding='utf-8'))


def write_gguf_model(folder: Path, path: Path) -> None:
    """Write the model of a folder as a file.

    Args:
        folder: As `save_pretrained` of transformers writes it: weights in safetensors, one file.
        path: The file; what is there is replaced once the new one is whole.

    Raises:
        InputError: It is not of the Qwen2 architecture, or a file is missing.
    """
    from gguf import GGUFWriter, LlamaFileType
    from safetensors.numpy import load_file

    try:
        config = json.loads((folder / 'config.json').read_text(encoding='utf-8'))
        weights = load_file(folder / 'model.safetensors')
    except OSError as error:
        msg = f'{folder} is no folder with a model: {error}'
        raise InputError(msg) from error
    if config['model_type'] != 'qwen2':
        msg = (
            f'{folder} is of the architecture {config["model_type"]!r}, and only qwen2 can be '
            'written here: for others use convert_hf_to_gguf.py of llama.cpp'
        )
        raise InputError(msg)
    path.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(path) as unfinished:
        writer = GGUFWriter(unfinished, 'qwen2')
        writer.add_file_type(LlamaFileType.MOSTLY_F16)
        _add_sizes(writer, config)
        _add_tokenizer(writer, folder, config)
        for name, value in sorted(weights.items()):
            writer.add_tensor(_gguf_name(name), value.astype(_KINDS[value.ndim > 1]))
        close_gguf(writer)


def main(arguments: list[str]) -> int:
    """Write the model of a folder."""
    if len(arguments) != 2:
        sys.stderr.write(f'{__doc__}')
        return 2
    folder, path = map(Path, arguments)
    try:
        write_gguf_model(folder, path)
    except EmbodiedRError as error:
        sys.stderr.write(f'error: {error}\n')
        return 2
    sys.stdout.write(f'{path}: {path.stat().st_size / 1e6:.1f} MB\n')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
