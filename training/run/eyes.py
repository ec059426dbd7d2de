# SPDX-License-Identifier: Apache-2.0
"""Eyes for a small language model: `python -m training.run.eyes MODEL OUT`.

A vision-language model of LLaVA's architecture: the language model as it is, a vision transformer
of random weights, and a projection in between. Small enough to be trained on a CPU by the recipes
that train large ones (`images` of training.sft and training.grpo).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import whole_folder
import torch
from transformers import (
    AutoModelForCausalLM,
    CLIPImageProcessorPil,
    CLIPVisionConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    LlavaProcessor,
)

from training.run.command import run_command, weights_in
from training.run.models import load_tokenizer, model_folder, SAFELY

if TYPE_CHECKING:
    from collections.abc import Sequence

IMAGE = '<image>'
# ChatML, for contents that are texts or lists of parts.
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}"
    "{% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}{{ '<image>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{% endif %}{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


@dataclass(frozen=True)
class EyesSize:
    """Shape of the vision transformer."""

    side_px: int = 224  # images are scaled to a square, nothing is cut off
    patch_px: int = 16
    hidden_size: int = 128
    layers: int = 4
    heads: int = 4


def with_eyes(folder: Path, size: EyesSize) -> tuple[Any, Any]:
    """A language model with eyes, of weights drawn from torch's seeded generator.

    Args:
        folder: With the language model and its tokenizer.
        size: Of its vision transformer.

    Returns:
        The model, and its processor for texts and images.
    """
    tokenizer = load_tokenizer(folder)
    tokenizer.add_special_tokens({'additional_special_tokens': [IMAGE]})
    tokenizer.chat_template = _CHAT_TEMPLATE
    language = AutoModelForCausalLM.from_pretrained(folder, **SAFELY)
    language.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    config = LlavaConfig(
        vision_config=CLIPVisionConfig(
            image_size=size.side_px,
            patch_size=size.patch_px,
            hidden_size=size.hidden_size,
            intermediate_size=4 * size.hidden_size,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
        ),
        text_config=language.config,
        image_token_id=tokenizer.convert_tokens_to_ids(IMAGE),
        vision_feature_layer=-1,
        vision_feature_select_strategy='default',
        tie_word_embeddings=language.config.tie_word_embeddings,
    )
    model = LlavaForConditionalGeneration(config)
    model.model.language_model.load_state_dict(language.model.state_dict())
    model.lm_head.load_state_dict(language.lm_head.state_dict())
    model.tie_weights()
    model.generation_config = language.generation_config
    return model, _processor(tokenizer, size)


def _processor(tokenizer: Any, size: EyesSize) -> Any:
    square = {'height': size.side_px, 'width': size.side_px}
    return LlavaProcessor(
        CLIPImageProcessorPil(size=square, do_center_crop=False),
        tokenizer,
        patch_size=size.patch_px,
        vision_feature_select_strategy='default',
        chat_template=_CHAT_TEMPLATE,
        num_additional_image_tokens=1,  # CLIP's own, which `default` leaves out again
    )


def _run(args: argparse.Namespace) -> int:
    folder = model_folder(args.model)
    torch.manual_seed(args.seed)
    model, processor = with_eyes(folder, EyesSize())
    with weights_in(args.out), whole_folder(args.out) as unfinished:
        model.save_pretrained(unfinished)
        processor.save_pretrained(unfinished)
    count = sum(weight.numel() for weight in model.parameters())
    sys.stderr.write(f'{args.out}: {count / 1e6:.1f} million parameters\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Build it, and save it in a folder."""
    parser = argparse.ArgumentParser(prog='training.run.eyes', description=__doc__)
    parser.add_argument('model', metavar='MODEL', help='folder of a language model')
    parser.add_argument('out', type=Path, metavar='OUT', help='new or empty folder for it')
    parser.add_argument('--seed', type=int, default=0, help='of its random weights')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
