# SPDX-License-Identifier: Apache-2.0
"""Completions of many prompts, from a folder with weights or from a model server.

A completion is kept by what decides it (model, prompt, sampling) as soon as it is there, so that
what was cut off goes on where it stopped, and is not computed twice.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from functools import lru_cache
from io import BytesIO
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.core.chat.cache import cache_key, ReplyCache
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.protocol import ending_problem
from embodied_r_ros.core.chat.settings import ChatConfig, model_digest
import PIL.Image
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from training.data.vision import load_processor
from training.run.models import (
    base_folder,
    is_gguf,
    is_url,
    is_vision_model,
    load_tokenizer,
    model_folder,
    SAFELY,
)
from training.run.templates import render

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from embodied_r_ros.core.reasoning.prompts import Prompt
    from embodied_r_ros.core.types.answers import Sampling

    Keep = Callable[[Prompt, str], None]

_DEADLINE_S = 600.0
_INFO_S = 60.0
_IN_FLIGHT = 8
_BATCH = 32  # prompts that a local model takes at once


def generate(
    model: str,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    cache: ReplyCache | None = None,
    token_variable: str = ChatConfig.token_variable,
    identity: str = '',
) -> list[str]:
    """Completions of prompts, in their order; equal prompts get the same one.

    Args:
        model: Folder with weights or with an adapter, or URL of a model server.
        prompts: The prompts; all of them with images, or none.
        sampling: How to sample; a temperature of 0 is greedy.
        cache: What was generated before, and keeps what is generated now.
        token_variable: Environment variable with the access token of a server.
        identity: What decides its completions, where that is known; empty: it is asked.

    Raises:
        InputError: `model` is neither a URL nor a folder with weights, or is to be shown images
            and reads text alone.
        ModelError: The server fails.
    """
    cache = cache or ReplyCache(0)
    identity = identity or model_identity(model, token_variable)
    prefix = (identity, *map(str, astuple(sampling)))
    keys = {prompt.sha256(): cache_key(*prefix, prompt.sha256()) for prompt in prompts}
    different = {prompt.sha256(): prompt for prompt in prompts}
    texts = {name: text for name in different if (text := cache.get(keys[name])) is not None}
    # A sampled completion depends on its batch: batches that began are made again as they were.
    again = different if sampling.temperature > 0 else different.keys() - texts.keys()
    wanted = [prompt for name, prompt in different.items() if name in again]

    def keep(prompt: Prompt, text: str) -> None:
        texts[prompt.sha256()] = text
        cache.put(keys[prompt.sha256()], text)

    if is_url(model):
        client = HttpChatClient(ChatConfig(url=model, token_variable=token_variable))
        missing = [prompt for prompt in wanted if prompt.sha256() not in texts]
        _from_server(client, model, missing, sampling, keep)
    elif len(texts) < len(different):
        folder = model_folder(model)
        _from_folder(folder, wanted, sampling, keep, texts.keys())
    return [texts[prompt.sha256()] for prompt in prompts]


def model_identity(model: str, token_variable: str = ChatConfig.token_variable) -> str:
    """What decides a model's completions: its digest, or without one its name at its server.

    Raises:
        InputError: `model` is neither a URL nor a folder with weights.
        ModelError: The server fails.
    """
    if is_gguf(model):
        return model_digest(Path(model))
    if not is_url(model):
        folder = model_folder(model)
        return model_digest(*dict.fromkeys([base_folder(folder), folder]))
    info = HttpChatClient(ChatConfig(url=model, token_variable=token_variable)).info(_INFO_S)
    if info.digest:
        return info.digest
    _say_weights_are_unknown(model, info.name)
    return f'{model} {info.name} {info.adapter}'


@lru_cache(maxsize=16)  # once for each server
def _say_weights_are_unknown(url: str, name: str) -> None:
    sys.stderr.write(
        f'{url} does not tell which weights it serves: what it says is kept under the name '
        f'{name!r}; name another cache when the weights change\n'
    )


def _from_server(
    client: HttpChatClient, url: str, prompts: Sequence[Prompt], sampling: Sampling, keep: Keep
) -> None:
    def complete(prompt: Prompt) -> str:
        """Keep a completion, and say why it may be incomplete."""
        chunks = list(client.stream(prompt.request(sampling), _DEADLINE_S))
        text = ''.join(chunk.text for chunk in chunks)
        keep(prompt, text)
        return ending_problem(text, chunks[-1].ending if chunks else '', sampling.max_tokens)

    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        replies = pool.map(complete, prompts)
        bar = tqdm(replies, total=len(prompts), desc='completions', leave=False, disable=None)
        problems = Counter(filter(None, bar))
    for problem, count in problems.items():
        sys.stderr.write(f'{url}: {count} of {len(prompts)} completions: {problem}\n')


def _from_folder(
    folder: Path,
    prompts: Sequence[Prompt],
    sampling: Sampling,
    keep: Keep,
    known: Collection[str],
) -> None:
    if is_vision_model(folder):
        model, reader = load_vision_model(folder)
    elif any(prompt.images for prompt in prompts):
        msg = f'{folder} reads text alone: name a vision-language model, or show it no images'
        raise InputError(msg)
    else:
        model, reader = load_model(folder)
    # Prompts of one length need no padding: sorting saves most of it.
    texts = sorted(
        ((chat_text(reader, prompt), prompt) for prompt in prompts),
        key=lambda pair: (len(pair[0]), pair[0]),
    )
    with tqdm(total=len(texts), desc='completions', leave=False, disable=None) as progress:
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            progress.update(len(batch))
            if all(prompt.sha256() in known for _, prompt in batch):
                continue
            torch.manual_seed(_batch_seed(sampling.seed, [prompt for _, prompt in batch]))
            batch_texts = _complete(model, reader, batch, sampling)
            for (_, prompt), text in zip(batch, batch_texts, strict=True):
                keep(prompt, text)


def _batch_seed(seed: int, batch: Sequence[Prompt]) -> int:
    """A seed of the batch's own, so that it does not matter which batches went before."""
    return int(cache_key(str(seed), *(prompt.sha256() for prompt in batch))[:12], 16)


def load_model(folder: Path) -> tuple[Any, Any]:
    """Load a model for inference, and its tokenizer, which pads on the left.

    On a GPU where there is one (of several processes, on that of this one), in half precision.

    Raises:
        ModelError: It cannot be loaded.
    """
    try:
        tokenizer = load_tokenizer(folder)
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from error
    tokenizer.padding_side = 'left'
    return _weights(AutoModelForCausalLM, folder), tokenizer


def load_vision_model(folder: Path) -> tuple[Any, Any]:
    """Load a vision-language model for inference as `load_model` does, and its processor.

    Raises:
        InputError: Its processor cannot be used here.
        ModelError: It cannot be loaded.
    """
    processor = load_processor(folder, 0)
    processor.tokenizer.padding_side = 'left'
    return _weights(AutoModelForImageTextToText, folder), processor


def _weights(kind: Any, folder: Path) -> Any:
    is_gpu = torch.cuda.is_available()
    dtype = torch.bfloat16 if is_gpu else torch.float32
    try:
        model = kind.from_pretrained(folder, dtype=dtype, **SAFELY).eval()
    except (OSError, ValueError) as error:
        raise _unusable(folder, error) from error
    return model.to('cuda') if is_gpu else model


def _unusable(folder: Path, error: Exception) -> ModelError:
    return ModelError(f'{folder} cannot be loaded as a model: {error}')


def prompt_messages(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt as messages, as tokenizers and data sets want them."""
    if prompt.images:
        return _messages_in_parts(prompt)
    return [{'role': message.role, 'content': message.text} for message in prompt.messages()]


def _messages_in_parts(prompt: Prompt) -> list[dict[str, Any]]:
    """A prompt as processors want it; its images come after the text, as servers are asked too."""
    return [
        {
            'role': message.role,
            'content': [
                {'type': 'text', 'text': message.text},
                *({'type': 'image'} for _ in message.images),
            ],
        }
        for message in prompt.messages()
    ]


def chat_text(reader: Any, prompt: Prompt) -> str:
    """The text of a prompt that the model reads, up to where its reply begins.

    Raises:
        InputError: It has no chat template, or one that fails.
    """
    in_parts = hasattr(reader, 'image_processor')
    messages = _messages_in_parts(prompt) if in_parts else prompt_messages(prompt)
    return render(reader, messages)


@torch.inference_mode()
def _complete(
    model: Any, reader: Any, turns: list[tuple[str, Prompt]], sampling: Sampling
) -> list[str]:
    """Completions of prompts with their texts, by a model with its tokenizer or processor."""
    pictures = [PIL.Image.open(BytesIO(i.data)) for _, prompt in turns for i in prompt.images]
    shown = {'images': pictures} if pictures else {}
    texts = [text for text, _ in turns]
    batch = reader(
        text=texts, return_tensors='pt', padding=True, add_special_tokens=False, **shown
    )
    how = (
        {'do_sample': True, 'temperature': sampling.temperature, 'top_p': sampling.top_p}
        if sampling.temperature > 0
        else {'do_sample': False}
    )
    ids = model.generate(**batch.to(model.device), max_new_tokens=sampling.max_tokens, **how)
    reply_texts: list[str] = reader.batch_decode(
        ids[:, batch['input_ids'].shape[1] :], skip_special_tokens=True
    )
    return reply_texts
