# SPDX-License-Identifier: Apache-2.0
"""A small Qwen2-architecture language model from scratch: the same code path as Qwen2.5-3B.

The tokenizer is byte-level BPE with Qwen2's pre-tokenizer. A folder whose config says `qwen2` is
always loaded with that class, whatever tokenizer was saved there, so no other kind may be used.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

START, END, PAD = '<|im_start|>', '<|im_end|>', '<|endoftext|>'
# ChatML, as Qwen2.5 has it, without its default system message.
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class NanoSize:
    """Shape of the model."""

    vocab_size: int = 1024
    hidden_size: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    intermediate_size: int = 512
    context: int = 4096


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Any:
    """Train a tokenizer on texts; the tags of a completion stay ordinary text.

    Training decodes completions without special tokens: were `<think>` one of them, every
    completion would lose its format.
    """
    base = Qwen2Tokenizer(eos_token=END, pad_token=PAD)
    tokenizer = base.train_new_from_iterator(
        texts, vocab_size=vocab_size, new_special_tokens=[PAD, START, END]
    )
    tokenizer.eos_token, tokenizer.pad_token = END, PAD
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(size: NanoSize, tokenizer: Any) -> Any:
    """A model with random weights, drawn from torch's seeded generator."""
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden_size,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        intermediate_size=size.intermediate_size,
        max_position_embeddings=size.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = Qwen2ForCausalLM(config)
    model.generation_config.eos_token_id = tokenizer.eos_token_id
    model.generation_config.pad_token_id = tokenizer.pad_token_id
    return model


def load_tokenizer(folder: Path) -> Any:
    """Load a tokenizer and prove that it reads what it writes.

    Raises:
        ValueError: Text does not survive encoding and decoding, so another class was saved there.
    """
    tokenizer = AutoTokenizer.from_pretrained(
        folder, local_files_only=True, trust_remote_code=False
    )
    probe = '<think>[2] turned left 30°: ahead 1.2 m.</think><answer>red tall object</answer>'
    ids = tokenizer(probe, add_special_tokens=False)['input_ids']
    if tokenizer.decode(ids, skip_special_tokens=True) != probe:
        msg = f'the tokenizer in {folder} does not give text back: save a byte-level BPE there'
        raise ValueError(msg)
    return tokenizer
