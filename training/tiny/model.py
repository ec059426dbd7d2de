# SPDX-License-Identifier: Apache-2.0
"""A small Qwen2-architecture language model from scratch, and Muon, which trains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from pytorch_optimizer import Muon
from transformers import AutoTokenizer, Qwen2Config, Qwen2ForCausalLM, Qwen2Tokenizer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from torch.optim import Optimizer
    from trl import SFTConfig

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


def muon(model: Any, config: SFTConfig) -> Optimizer:
    """An optimizer of a language model's weights, with learning rate and decay as configured."""
    head = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    inner = [weight for weight in weights if weight.ndim == 2 and id(weight) not in head]
    of_layers = {id(weight) for weight in inner}
    others = [weight for weight in weights if id(weight) not in of_layers]
    usual = {'lr': config.learning_rate, 'weight_decay': config.weight_decay}
    return Muon(
        [
            {'params': inner, 'use_muon': True, 'use_adjusted_lr': True, **usual},
            {'params': others, 'use_muon': False, 'betas': (0.9, 0.95), **usual},
        ]
    )
