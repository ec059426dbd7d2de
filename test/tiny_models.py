# SPDX-License-Identifier: Apache-2.0
"""Real models of the smallest shape, with random weights, for tests of serving.

The tokenizer is a byte-level BPE like that of Qwen2. The attention heads have 64 dimensions, which
every server can do on a CPU.
"""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_SPECIAL = (
    '<|endoftext|>',
    '<|im_start|>',
    '<|im_end|>',
    '<|vision_start|>',
    '<|vision_end|>',
    '<|vision_pad|>',
    '<|image_pad|>',
    '<|video_pad|>',
)
_TEMPLATE = """\
{%- for m in messages -%}
<|im_start|>{{ m['role'] }}
{% if m['content'] is string %}{{ m['content'] }}{% else %}{% for c in m['content'] %}\
{% if 'image' in c['type'] %}<|vision_start|><|image_pad|><|vision_end|>{% else %}\
{{ c['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_SHAPE = {
    'hidden_size': 128,
    'intermediate_size': 128,
    'num_hidden_layers': 2,
    'num_attention_heads': 2,
    'num_key_value_heads': 1,
    'max_position_embeddings': 8192,
}
# Transformers' processor of Qwen2-VL wants one for videos, which wants torchvision.
_PROCESSOR = '''
from transformers import Qwen2VLProcessor
from transformers.processing_utils import ProcessorMixin


class StillsProcessor(Qwen2VLProcessor):
    """Qwen2-VL's processor for images only."""

    def __init__(self, image_processor=None, tokenizer=None, chat_template=None, **kwargs):
        self.image_token, self.video_token = '<|image_pad|>', '<|video_pad|>'
        self.image_token_id = tokenizer.convert_tokens_to_ids(self.image_token)
        self.video_token_id = tokenizer.convert_tokens_to_ids(self.video_token)
        ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)
'''


def save_language_model(folder: Path) -> None:
    """Save a Qwen2 of 0.2 million random parameters, with its tokenizer."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    tokenizer = _save_tokenizer(folder)
    torch.manual_seed(0)
    ids = {'eos_token_id': tokenizer.eos_token_id, 'pad_token_id': tokenizer.pad_token_id}
    config = Qwen2Config(vocab_size=len(tokenizer), **_SHAPE, **ids)
    Qwen2ForCausalLM(config).save_pretrained(folder)


def save_vision_language_model(folder: Path) -> None:
    """Save a Qwen2-VL of 0.3 million random parameters, with its processor.

    Its processor is code in the folder, so that a server must trust it.
    """
    import torch
    from transformers import (
        Qwen2VLConfig,
        Qwen2VLForConditionalGeneration,
        Qwen2VLImageProcessorPil,
    )

    tokenizer = _save_tokenizer(folder)
    Qwen2VLImageProcessorPil(patch_size=14, merge_size=2).save_pretrained(folder)
    (folder / 'processing_stills.py').write_text(_PROCESSOR)
    processor = {'AutoProcessor': 'processing_stills.StillsProcessor'}
    values = {'processor_class': 'StillsProcessor', 'auto_map': processor}
    (folder / 'processor_config.json').write_text(json.dumps(values))
    text = {
        **_SHAPE,
        'vocab_size': len(tokenizer),
        'bos_token_id': None,
        'eos_token_id': tokenizer.eos_token_id,
        'pad_token_id': tokenizer.pad_token_id,
        'rope_parameters': {
            'rope_type': 'default',
            'mrope_section': [8, 12, 12],
            'rope_theta': 1e6,
        },
    }
    vision = {'depth': 2, 'embed_dim': 128, 'hidden_size': 128, 'num_heads': 2, 'mlp_ratio': 1}
    names = {'image_token_id': '<|image_pad|>', 'video_token_id': '<|video_pad|>'}
    names |= {'vision_start_token_id': '<|vision_start|>', 'vision_end_token_id': '<|vision_end|>'}
    ids = {name: tokenizer.convert_tokens_to_ids(token) for name, token in names.items()}
    torch.manual_seed(0)
    config = Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    Qwen2VLForConditionalGeneration(config).save_pretrained(folder)


def _save_tokenizer(folder: Path) -> Any:
    from tokenizers import decoders, models, pre_tokenizers, Tokenizer, trainers
    from transformers import Qwen2TokenizerFast

    bytes_only = Tokenizer(models.BPE())
    bytes_only.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bytes_only.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=list(_SPECIAL), initial_alphabet=alphabet
    )
    bytes_only.train_from_iterator(['the camera moved forward and turned left'], trainer)
    tokenizer = Qwen2TokenizerFast(
        tokenizer_object=bytes_only,
        eos_token='<|im_end|>',
        pad_token='<|endoftext|>',
        additional_special_tokens=list(_SPECIAL[1:]),
    )
    tokenizer.chat_template = _TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer
