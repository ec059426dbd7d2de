# SPDX-License-Identifier: Apache-2.0
"""Completions of many prompts, from a folder with weights or from a model server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import InputError, ModelError
from embodied_r_ros.models.chat import ChatRequest
from embodied_r_ros.models.chat_config import ChatConfig
from embodied_r_ros.models.http_chat import HttpChatClient
import torch
from tqdm import tqdm
from transformers import AutoModelForCausalLM

from training.nano import load_tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.answers import Sampling
    from embodied_r_ros.reasoning.prompts import Prompt

_DEADLINE_S = 600.0
_IN_FLIGHT = 8


def generate(
    model: str, prompts: Sequence[Prompt], sampling: Sampling, batch_size: int = 32
) -> list[str]:
    """Completions of prompts, in their order.

    Args:
        model: Folder with weights, or URL of a model server.
        prompts: The prompts.
        sampling: How to sample; a temperature of 0 is greedy.
        batch_size: Prompts that a local model takes at once.

    Raises:
        InputError: `model` is neither a URL nor a folder with weights.
        ModelError: The server fails.
    """
    if model.startswith(('http://', 'https://')):
        return _from_server(model, prompts, sampling)
    return _from_folder(Path(model), prompts, sampling, batch_size)


def load_model(folder: Path) -> tuple[Any, Any]:
    """Load a model for inference, and its tokenizer, which pads on the left.

    Raises:
        InputError: The folder has no model.
        ModelError: It cannot be loaded.
    """
    if not (folder / 'config.json').exists():
        msg = f'{folder} is neither a URL nor a folder with a model (no config.json)'
        raise InputError(msg)
    try:
        tokenizer = load_tokenizer(folder)
        tokenizer.padding_side = 'left'
        model = AutoModelForCausalLM.from_pretrained(
            folder, local_files_only=True, dtype=torch.float32
        ).eval()
    except (OSError, ValueError) as error:
        msg = f'{folder} cannot be loaded as a model: {error}'
        raise ModelError(msg) from error
    return model, tokenizer


def _from_server(url: str, prompts: Sequence[Prompt], sampling: Sampling) -> list[str]:
    client = HttpChatClient(ChatConfig(url=url))

    def complete(prompt: Prompt) -> str:
        request = ChatRequest(prompt.messages(), sampling)
        return ''.join(chunk.text for chunk in client.stream(request, _DEADLINE_S))

    with ThreadPoolExecutor(_IN_FLIGHT) as pool:
        done = pool.map(complete, prompts)
        return list(tqdm(done, total=len(prompts), desc='completions', leave=False))


def _from_folder(
    folder: Path, prompts: Sequence[Prompt], sampling: Sampling, batch_size: int
) -> list[str]:
    model, tokenizer = load_model(folder)
    torch.manual_seed(sampling.seed)
    texts = [chat_text(tokenizer, prompt) for prompt in prompts]
    # Prompts of one length need no padding: sorting saves most of it.
    order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
    completions = [''] * len(texts)
    with tqdm(total=len(texts), desc='completions', leave=False) as progress:
        for start in range(0, len(order), batch_size):
            chosen = order[start : start + batch_size]
            said = _complete(model, tokenizer, [texts[index] for index in chosen], sampling)
            for index, text in zip(chosen, said, strict=True):
                completions[index] = text
            progress.update(len(chosen))
    return completions


def prompt_messages(prompt: Prompt) -> list[dict[str, str]]:
    """A prompt as plain messages, as tokenizers and data sets want them."""
    return [{'role': message.role, 'content': message.text} for message in prompt.messages()]


def chat_text(tokenizer: Any, prompt: Prompt) -> str:
    """The text of a prompt that the model reads, up to where its reply begins."""
    text: str = tokenizer.apply_chat_template(
        prompt_messages(prompt), tokenize=False, add_generation_prompt=True
    )
    return text


@torch.inference_mode()
def _complete(model: Any, tokenizer: Any, texts: list[str], sampling: Sampling) -> list[str]:
    batch = tokenizer(texts, return_tensors='pt', padding=True, add_special_tokens=False)
    how = (
        {'do_sample': True, 'temperature': sampling.temperature, 'top_p': sampling.top_p}
        if sampling.temperature > 0
        else {'do_sample': False}
    )
    ids = model.generate(**batch.to(model.device), max_new_tokens=sampling.max_tokens, **how)
    said: list[str] = tokenizer.batch_decode(
        ids[:, batch['input_ids'].shape[1] :], skip_special_tokens=True
    )
    return said
