# SPDX-License-Identifier: Apache-2.0
"""Memory and speed of the models of the profiles on a GPU: their shapes, with random weights.

Neither depends on what a model learned, so that only a tokenizer is needed, in a folder:
`hf download Qwen/Qwen2.5-3B-Instruct tokenizer.json tokenizer_config.json --local-dir DIR`.
Perceivers are shown two images of 640x480 with the prompt of a keyframe, the reasoner reads scenes
of rows. Then the reasoner takes a step of reinforcement learning with training/configs/
qwen2.5-3b-lora.yaml. Transformers generates, token by token: a server such as vLLM is faster.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
from io import BytesIO
from itertools import islice
import json
from pathlib import Path
import tempfile
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.perception.grounding import golden_image
from embodied_r_ros.perception.vlm import later_prompt
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.reasoning.prompts import Prompt
from embodied_r_ros.scene.memory import MemoryConfig, SceneText
from embodied_r_ros.types.images import encode_image
import numpy as np
import PIL.Image
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from bench import training
from training.eval.generation import chat_text
from training.run.models import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

_RECIPE = Path(__file__).resolve().parents[1] / 'training' / 'configs' / 'qwen2.5-3b-lora.yaml'
_PIXELS = {'shortest_edge': 65_536, 'longest_edge': 307_200}  # as the profiles have it
_SIZE = 640, 480
_LEAST_PART_S = 0.05  # of a table: less is 0.0 s, as of rewards where nothing is well-formed
# ChatML, as Qwen2.5 has it, without its default system message.
_CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' "
    "+ message['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
_VISION_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}"
    "{% for part in message['content'] %}{% if part['type'] == 'image' %}"
    "{{ '<|vision_start|><|image_pad|><|vision_end|>' }}{% else %}{{ part['text'] }}{% endif %}"
    "{% endfor %}{{ '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def _qwen3_text(hidden: int, inner: int) -> dict[str, Any]:
    rope = {'rope_type': 'default', 'rope_theta': 5e6, 'mrope_section': [24, 20, 20]}
    return {
        'vocab_size': 151_936,
        'hidden_size': hidden,
        'intermediate_size': inner,
        'num_hidden_layers': 36,
        'num_attention_heads': 32,
        'num_key_value_heads': 8,
        'head_dim': 128,
        'max_position_embeddings': 262_144,
        'rope_parameters': {**rope, 'mrope_interleaved': True},
    }


# What the config.json of each model says of its shape.
SHAPES: dict[str, dict[str, Any]] = {
    'Qwen2.5-3B': {
        'model_type': 'qwen2',
        'vocab_size': 151_936,
        'hidden_size': 2048,
        'intermediate_size': 11_008,
        'num_hidden_layers': 36,
        'num_attention_heads': 16,
        'num_key_value_heads': 2,
        'max_position_embeddings': 32_768,
        'rope_parameters': {'rope_type': 'default', 'rope_theta': 1e6},
        'tie_word_embeddings': True,
    },
    'Qwen3-VL-4B': {
        'model_type': 'qwen3_vl',
        'tie_word_embeddings': True,
        'text_config': {**_qwen3_text(2560, 9728), 'tie_word_embeddings': True},
        'vision_config': {
            'depth': 24,
            'hidden_size': 1024,
            'intermediate_size': 4096,
            'num_heads': 16,
            'out_hidden_size': 2560,
            'deepstack_visual_indexes': [5, 11, 17],
        },
    },
    'Qwen3-VL-8B': {
        'model_type': 'qwen3_vl',
        'tie_word_embeddings': False,
        'text_config': _qwen3_text(4096, 12_288),
        'vision_config': {
            'depth': 27,
            'hidden_size': 1152,
            'intermediate_size': 4304,
            'num_heads': 16,
            'out_hidden_size': 4096,
            'deepstack_visual_indexes': [8, 16, 24],
        },
    },
}
REASONER = 'Qwen2.5-3B'


@dataclass(frozen=True)
class ServedFigures:
    """What was measured of a model that replies to requests."""

    weights_gib: float
    cache_kib: float  # keys and values of a token
    prompt_tokens: int
    first_s: float  # of a request alone, until its first token
    alone_tokens_s: float  # of a request alone, after its first token
    together_tokens_s: float  # of all requests, from their start
    peak_gib: float  # what tensors took with all requests
    reply_s: float  # from start to end of all requests, for each of them


def build(name: str, device: str) -> Any:
    """A model of a published shape [bfloat16], of weights drawn from torch's seeded generator."""
    config = AutoConfig.for_model(**SHAPES[name])
    is_shown = 'vision_config' in SHAPES[name]
    kind: Any = AutoModelForImageTextToText if is_shown else AutoModelForCausalLM
    with torch.device(device):
        return kind.from_config(config, dtype=torch.bfloat16).eval()


def reader_of(name: str, tokenizer: Any) -> Any:
    """What makes tensors of prompts: the tokenizer, or a processor for texts and images."""
    if 'vision_config' not in SHAPES[name]:
        tokenizer.chat_template = _CHAT_TEMPLATE
        return tokenizer
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    return Qwen3VLProcessor(
        Qwen2VLImageProcessor(patch_size=16, size=_PIXELS),
        tokenizer,
        Qwen3VLVideoProcessor(),
        chat_template=_VISION_TEMPLATE,
    )


def keyframe_prompt() -> Prompt:
    """What a perceiver is asked about a keyframe: two images, and for things with boxes."""
    image = encode_image(cv2.resize(golden_image(), _SIZE).astype(np.uint8), 90)
    system, user = later_prompt(image, image, 'thousandths')
    return Prompt(system.text, user.text, SceneText(''), user.images)


def scene_prompts(rows: Path, count: int, budget: int) -> list[Prompt]:
    """The prompts of the rows with the longest scenes, of at most so many tokens each.

    Raises:
        InputError: There are none.
    """
    longest = sorted(islice(read_rows(rows), 2000), key=lambda row: len(row.deltas), reverse=True)
    if not longest:
        msg = f'{rows} holds no rows'
        raise InputError(msg)
    prompts = [row.prompt(MemoryConfig(token_budget=budget)) for row in longest[:count]]
    return (prompts * count)[:count]


def measure(
    model: Any, reader: Any, prompts: Sequence[Prompt], tokens: int, cache_kib: float
) -> ServedFigures:
    """Time the replies to one prompt and to all of them, each of so many tokens."""
    reader.padding_side = getattr(reader, 'tokenizer', reader).padding_side = 'left'
    one, every = tensors(reader, prompts[:1], model), tensors(reader, prompts, model)
    generated_s(model, one, 8)  # warms up
    generated_s(model, every, 8)
    first_s = generated_s(model, one, 1)
    alone_s = generated_s(model, one, tokens)
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    together_s = generated_s(model, every, tokens)
    return ServedFigures(
        weights_gib=sum(w.numel() * w.element_size() for w in model.parameters()) / 2**30,
        cache_kib=cache_kib,
        prompt_tokens=int(one['attention_mask'].sum()),
        first_s=first_s,
        alone_tokens_s=(tokens - 1) / (alone_s - first_s),
        together_tokens_s=tokens * len(prompts) / together_s,
        peak_gib=training.peak_gib(),
        reply_s=together_s / len(prompts),
    )


def cache_kib(name: str) -> float:
    """Keys and values of a token [KiB], in half precision."""
    shape: dict[str, int] = SHAPES[name].get('text_config', SHAPES[name])
    size = shape.get('head_dim', shape['hidden_size'] // shape['num_attention_heads'])
    return 2 * shape['num_hidden_layers'] * shape['num_key_value_heads'] * size * 2 / 1024


def tensors(reader: Any, prompts: Sequence[Prompt], model: Any) -> Any:
    """Prompts as the model reads them, padded on the left."""
    images = [PIL.Image.open(BytesIO(i.data)) for prompt in prompts for i in prompt.images]
    shown = {'images': images} if images else {}
    texts = [chat_text(reader, prompt) for prompt in prompts]
    batch = reader(
        text=texts, return_tensors='pt', padding=True, add_special_tokens=False, **shown
    )
    return batch.to(model.device)


@torch.inference_mode()
def generated_s(model: Any, batch: Any, tokens: int) -> float:
    """How long exactly so many tokens of each request take [s]."""
    start_s = training.now_s()
    model.generate(**batch, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False)
    return training.now_s() - start_s


def served_figures(args: argparse.Namespace, rows: Path, folder: Path) -> dict[str, ServedFigures]:
    """What was measured of each model; the reasoner is left in a folder for the step."""
    served = {}
    for name in args.models:
        reader = reader_of(name, load_tokenizer(args.tokenizer))
        prompts = [keyframe_prompt()] * args.requests
        if name == REASONER:
            prompts = scene_prompts(rows, args.requests, args.budget)
        model = build(name, 'cuda')
        served[name] = measure(model, reader, prompts, args.tokens, cache_kib(name))
        print(f'{name}: {served[name]}', flush=True)
        if name == REASONER:
            model.save_pretrained(folder)
            reader.save_pretrained(folder)
        del model
        torch.cuda.empty_cache()
    return served


def step_figures(folder: Path, rows: Path, args: argparse.Namespace) -> training.TrainerFigures:
    """The first step of the recipe with the model of a folder, and without a judge.

    The first alone: what never ends is generated token by token, which takes minutes.
    """
    parser = argparse.ArgumentParser()
    training.add_arguments(parser)
    how = f'--config {_RECIPE} --model {folder} --batch {args.batch}'
    how += f' --prompts {args.prompts} --completions 8 --tokens {args.completion_tokens}'
    options = parser.parse_args(how.split())
    options.steps = 0
    return training.measure(rows, options)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--tokenizer', type=Path, required=True, metavar='DIR', help="Qwen's")
    add('--models', nargs='*', choices=SHAPES, default=list(SHAPES), help='default: all of them')
    add('--requests', type=some_count, default=4, help='at once (%(default)s)')
    add('--tokens', type=some_count, default=300, help='of a reply (%(default)s)')
    add('--budget', type=some_count, default=1200, help='tokens of a scene (%(default)s)')
    add('--rows', type=Path, help='rows made before; default: made from simulated rooms')
    add(
        '--prompts',
        type=some_count,
        default=32,
        help='of a step, with 8 completions each (%(default)s)',
    )
    add(
        '--batch', type=some_count, default=16, help='completions in a backward pass (%(default)s)'
    )
    add('--completion-tokens', type=some_count, default=1024, help='at most (%(default)s)')
    add('--no-step', action='store_true', help='leave out the step')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure and print; 2: there is no GPU."""
    if not torch.cuda.is_available():
        msg = 'torch sees no GPU (CUDA): its CPU build has none'
        raise InputError(msg)
    print(f'{torch.cuda.get_device_name()}, torch {torch.__version__}')
    torch.manual_seed(0)
    step = None
    with tempfile.TemporaryDirectory() as scratch:
        rows = args.rows or training.make_rows(Path(scratch), 8, 31000)
        served = served_figures(args, rows, Path(scratch, REASONER))
        if REASONER in served and not args.no_step:
            step = step_figures(Path(scratch, REASONER), rows, args)
            print(f'{step.completion_tokens:.0f} tokens a completion, {step.gpu_gib:.1f} GiB')
            parts = (f'{part:24}{seconds:9.2f} s' for part, seconds in step.parts_s.items())
            print('\n'.join(parts))
    if args.json:
        figures = {name: asdict(figure) for name, figure in served.items()}
        figures |= {'step': asdict(step)} if step else {}
        args.json.write_text(json.dumps(figures, indent=2) + '\n')
    return 0
