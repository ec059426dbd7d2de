# SPDX-License-Identifier: Apache-2.0
"""A model with a LoRA adapter that learns and samples in plain torch: prompts and completions."""

from __future__ import annotations

from dataclasses import dataclass
import math
import os
import sys
import time
from typing import Any, TYPE_CHECKING

import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from training.gguf_adapter import llama_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

RANK, ALPHA = 16, 32
_TARGETS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']
_EVERY = 8  # tokens, after which finished completions are taken out of the batch
Pair = tuple[list[int], list[int]]  # tokens of a prompt and of its completion


@dataclass(frozen=True)
class TrainingPlan:
    """How much of everything: supervised training, then reinforcement learning."""

    epochs: int = 3
    batch: int = 128  # rows of a supervised step
    rate: float = 1e-3
    seeds: int = 3
    steps: int = 60  # of reinforcement learning, at most
    prompts: int = 128  # of such a step
    samples: int = 16  # of each
    updates: int = 2  # of such a step
    rl_rate: float = 1e-4
    tokens: int = 56  # of a completion, at most
    at_once: int = 12_000  # tokens of a forward pass with gradients, padding included
    workers: int = 3  # processes that execute calls

    @classmethod
    def scaled(cls, scale: float) -> TrainingPlan:
        """A smaller plan of the same shape, to try it out."""
        if scale >= 1:
            return cls()
        return cls(
            epochs=1, batch=8, seeds=max(1, round(3 * scale)), steps=2, prompts=4, samples=4,
            at_once=700, workers=2,
        )  # fmt: skip


def log(text: str) -> None:
    """Print with the time since the run began."""
    began = float(os.environ.setdefault('RUN_BEGAN', str(time.time())))
    sys.stderr.write(f'{time.time() - began:6.1f} s  {text}\n')
    sys.stderr.flush()


def chunks_of(pairs: Sequence[Pair], most_tokens: int) -> list[list[Pair]]:
    """The pairs in the same order, in parts of at most so many tokens, padding included."""
    chunks: list[list[Pair]] = []
    longest = 0
    for pair in pairs:
        longest = max(longest, len(pair[0]) + len(pair[1]))
        if not chunks or longest * (len(chunks[-1]) + 1) > most_tokens:
            chunks.append([])
            longest = len(pair[0]) + len(pair[1])
        chunks[-1].append(pair)
    return chunks


def base_of(path: Path, dtype: torch.dtype) -> Any:
    """The model of a GGUF file, or of a folder as transformers saves it."""
    if not path.is_dir():
        return llama_of(path, dtype)
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(path, dtype=dtype)


class Learner:
    """The model with its adapter, and a copy with the adapter merged, which samples faster."""

    def __init__(self, base: Path, tokenizer: Path, plan: TrainingPlan, seed: int) -> None:
        from peft import get_peft_model, LoraConfig
        from tokenizers import Tokenizer
        from transformers import AutoModelForCausalLM

        torch.manual_seed(seed)
        self.plan = plan
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        self.is_fast = self.device.type == 'cuda'
        dtype = torch.bfloat16 if self.is_fast else torch.float32
        torch.set_float32_matmul_precision('high')
        model = AutoModelForCausalLM.from_pretrained(base, dtype=dtype)
        self.merged = AutoModelForCausalLM.from_pretrained(base, dtype=dtype).to(self.device)
        self.merged.requires_grad_(False).eval()
        config = LoraConfig(
            r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=_TARGETS,
            task_type='CAUSAL_LM',
        )  # fmt: skip
        self.peft = get_peft_model(model.to(self.device), config)
        self.model = self.peft.base_model.model
        for parameter in self.peft.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        self.tokenizer = Tokenizer.from_file(str(tokenizer))
        self.end = int(model.config.eos_token_id or 2)

    def parameters(self) -> list[Tensor]:
        """Those that learn."""
        return [each for each in self.peft.parameters() if each.requires_grad]

    def ids(self, text: str) -> list[int]:
        """Tokens of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    @torch.no_grad()
    def merge(self) -> None:
        """Bring the merged copy up to date."""
        for name, layer in self.model.named_modules():
            if hasattr(layer, 'lora_A'):
                a, b = layer.lora_A['default'].weight, layer.lora_B['default'].weight
                weight = layer.base_layer.weight
                whole = weight.float() + (ALPHA / RANK) * (b.float() @ a.float())
                self.merged.get_submodule(name).weight.copy_(whole.to(weight.dtype))

    def log_probabilities(self, pairs: Sequence[Pair]) -> tuple[Tensor, Tensor]:
        """Of the tokens of completions after their prompts, and the pair of each. Shape (T,)."""
        ids = [torch.tensor([*prompt, *completion]) for prompt, completion in pairs]
        tokens = pad_sequence(ids, batch_first=True, padding_value=self.end)
        mask = torch.zeros_like(tokens)
        learned = torch.zeros_like(tokens, dtype=torch.bool)
        for row, (prompt, completion) in enumerate(pairs):
            mask[row, : len(prompt) + len(completion)] = 1
            learned[row, len(prompt) - 1 : len(prompt) + len(completion) - 1] = True
        owner = torch.arange(len(pairs))[:, None].expand_as(tokens)[learned].to(self.device)
        targets = torch.cat([torch.tensor(completion) for _, completion in pairs]).to(self.device)
        tokens, mask, learned = (each.to(self.device) for each in (tokens, mask, learned))
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_fast):
            hidden = self.model.model(input_ids=tokens, attention_mask=mask).last_hidden_state
            logits = self.model.lm_head(hidden[learned])
        return -cross_entropy(logits.float(), targets, reduction='none'), owner

    @torch.no_grad()
    def sample(
        self, prompts: Sequence[list[int]], temperature: float = 1.0, generator: Any = None
    ) -> list[list[int]]:
        """A completion of each prompt by the merged copy, with its end; temperature 0: greedy."""
        from transformers import DynamicCache

        tokens, mask = self._padded(prompts)
        cache, positions = DynamicCache(), (mask.cumsum(1) - 1).clamp(min=0)
        done: list[list[int]] = [[] for _ in prompts]
        alive = torch.arange(len(prompts))
        written: list[Tensor] = []
        is_over = torch.zeros(len(prompts), dtype=torch.bool, device=self.device)
        for step in range(self.plan.tokens):
            hidden = self.merged.model(
                input_ids=tokens, attention_mask=mask, position_ids=positions,
                past_key_values=cache, use_cache=True,
            ).last_hidden_state  # fmt: skip
            if step == 0 and not torch.isfinite(hidden[:, -1]).all():
                # Some kernels make NaN of what attends to padding alone.
                log('attention is not finite: the slow one is used')
                self.merged.set_attn_implementation('eager')
                return self.sample(prompts, temperature, generator)
            following = self._drawn(hidden[:, -1], temperature, generator)
            written.append(following)
            is_over |= following == self.end
            if step % _EVERY == _EVERY - 1 or step == self.plan.tokens - 1:
                self._take(done, alive, written)
                written = []
                kept = (~is_over).nonzero()[:, 0]
                if not len(kept):
                    break
                if len(kept) < len(alive):
                    cache.batch_select_indices(kept)
                    alive, is_over = alive[kept.cpu()], is_over[kept]
                    mask, positions, following = mask[kept], positions[kept], following[kept]
            tokens = following[:, None]
            mask = torch.cat([mask, torch.ones_like(tokens)], 1)
            positions = positions[:, -1:] + 1
        return [each[: each.index(self.end) + 1] if self.end in each else each for each in done]

    def _padded(self, prompts: Sequence[list[int]]) -> tuple[Tensor, Tensor]:
        """Tokens with the shorter prompts padded on the left, and which of them are no padding."""
        longest = max(map(len, prompts))
        tokens = [[self.end] * (longest - len(p)) + p for p in prompts]
        mask = [[0] * (longest - len(p)) + [1] * len(p) for p in prompts]
        return (
            torch.tensor(tokens, device=self.device),
            torch.tensor(mask, device=self.device),
        )

    def _drawn(self, hidden: Tensor, temperature: float, generator: Any) -> Tensor:
        logits: Tensor = self.merged.lm_head(hidden).float()
        if not temperature:
            return logits.argmax(-1)
        shares = (logits / temperature).softmax(-1)
        return torch.multinomial(shares, 1, generator=generator)[:, 0]

    def _take(self, done: list[list[int]], alive: Tensor, written: list[Tensor]) -> None:
        for index, tokens in zip(alive.tolist(), torch.stack(written, 1).tolist(), strict=True):
            done[index] += tokens

    def text_of(self, tokens: Sequence[int]) -> str:
        """What a completion says."""
        return str(self.tokenizer.decode([each for each in tokens if each != self.end]))

    def save(self, folder: Path) -> None:
        """Save the adapter as PEFT does, in 16 bits."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        self.peft.peft_config['default'].save_pretrained(str(folder))
        state = get_peft_model_state_dict(self.peft, save_embedding_layers=False)
        halves = {k: v.detach().to('cpu', torch.float16).contiguous() for k, v in state.items()}
        save_file(halves, folder / 'adapter_model.safetensors')

    def load(self, folder: Path) -> None:
        """Continue from a saved adapter."""
        from peft import set_peft_model_state_dict
        from safetensors.torch import load_file

        set_peft_model_state_dict(self.peft, load_file(folder / 'adapter_model.safetensors'))
        self.merge()


class Steps:
    """Adam over the adapter, with a rate that rises and falls."""

    def __init__(self, learner: Learner, rate: float, total: int, *, falls: bool) -> None:
        self.parameters = learner.parameters()
        self.optimizer = torch.optim.AdamW(self.parameters, lr=rate, weight_decay=0.0)
        self.rate, self.total, self.falls, self.done = rate, max(1, total), falls, 0

    def take(self, share: float | None = None) -> None:
        """Change the weights by their gradients.

        Args:
            share: Of the training that is done; None: by the steps.
        """
        share = self.done / self.total if share is None else share
        warm = min(1.0, (self.done + 1) / max(1.0, 0.05 * self.total))
        fall = 0.5 * (1 + math.cos(math.pi * min(1.0, share))) if self.falls else 1.0
        for group in self.optimizer.param_groups:
            group['lr'] = self.rate * warm * max(fall, 0.02)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.done += 1
