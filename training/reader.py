# SPDX-License-Identifier: Apache-2.0
"""Teaches SmolLM2 to write calls: `python -m training.reader BASE.gguf --rows ROWS --out OUT`.

Supervised training of a LoRA adapter on the rows of `training.data.calls`, in plain torch and
PEFT: minutes on one card, hours on a CPU. The adapter is written as PEFT has it and as GGUF,
which llama.cpp loads.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
import math
from pathlib import Path
from random import Random
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import whole_file
import torch
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence
from tqdm import tqdm

from training.data.call_rows import read_call_rows
from training.gguf_adapter import read_gguf_adapter, write_gguf_adapter
from training.run.command import run_command, weights_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray
    from torch import Tensor

RANK, ALPHA = 16, 32
_TARGETS = ['q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj']
_MOST_TOKENS = 640  # of a row
_WARM = 0.05  # share of the training in which the rate rises
_LEAST_RATE = 0.02  # share of the rate at the end
_OF_CARD = 12_000  # tokens of a forward pass on a card
_ALIKE = 16  # batches whose rows are sorted by length
Pair = tuple[list[int], list[int]]  # tokens of a prompt and of its completion


@dataclass(frozen=True)
class TrainingPlan:
    """How much of everything."""

    epochs: int = 2
    batch: int = 128  # rows of a step
    rate: float = 1e-3
    at_once: int = 1000  # tokens of a forward pass with gradients, padding included
    limit_s: float = math.inf  # when the rate has fallen to its end, whatever is left


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


class Learner:
    """A model with a LoRA adapter that learns completions of prompts."""

    def __init__(
        self, model: Any, tokenizer: Any, end: int, plan: TrainingPlan, seed: int
    ) -> None:
        """Take a causal model; its weights are those of the base and stay.

        Args:
            model: Of transformers.
            tokenizer: Likewise.
            end: The token that ends a completion.
            plan: How to train.
            seed: Of the adapter's first weights and of the order of rows.
        """
        from peft import get_peft_model, LoraConfig

        torch.manual_seed(seed)
        self.plan, self._rng = plan, Random(seed)
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        torch.set_float32_matmul_precision('high')
        config = LoraConfig(
            r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules=_TARGETS,
            task_type='CAUSAL_LM',
        )  # fmt: skip
        self.peft = get_peft_model(model.to(self.device), config)
        self.model = self.peft.base_model.model
        for parameter in self.parameters():
            parameter.data = parameter.data.float()
        self.tokenizer, self.end = tokenizer, end

    def parameters(self) -> list[Tensor]:
        """Those that learn."""
        return [each for each in self.peft.parameters() if each.requires_grad]

    def ids(self, text: str) -> list[int]:
        """Tokens of a text."""
        return list(self.tokenizer.encode(text, add_special_tokens=False))

    def log_probabilities(self, pairs: Sequence[Pair]) -> Tensor:
        """Of all tokens of completions after their prompts. Shape (T,)."""
        ids = [torch.tensor([*prompt, *completion]) for prompt, completion in pairs]
        tokens = pad_sequence(ids, batch_first=True, padding_value=self.end)
        mask = torch.zeros_like(tokens)
        learned = torch.zeros_like(tokens, dtype=torch.bool)
        for row, (prompt, completion) in enumerate(pairs):
            mask[row, : len(prompt) + len(completion)] = 1
            learned[row, len(prompt) - 1 : len(prompt) + len(completion) - 1] = True
        targets = torch.cat([torch.tensor(completion) for _, completion in pairs]).to(self.device)
        tokens, mask, learned = (each.to(self.device) for each in (tokens, mask, learned))
        is_fast = self.device.type == 'cuda'
        with torch.autocast(self.device.type, torch.bfloat16, enabled=is_fast):
            hidden = self.model.model(input_ids=tokens, attention_mask=mask).last_hidden_state
            logits = self.model.lm_head(hidden[learned])
        return -cross_entropy(logits.float(), targets, reduction='none')

    def learn(self, texts: Sequence[tuple[str, str]]) -> list[float]:
        """Learn completions of prompts, and their ends; the loss per token of each step.

        The rate rises, then falls to the end of the last epoch or of the time.
        """
        plan, began = self.plan, time.monotonic()
        pairs = [(self.ids(prompt), [*self.ids(text), self.end]) for prompt, text in texts]
        pairs = [pair for pair in pairs if len(pair[0]) + len(pair[1]) <= _MOST_TOKENS]
        total = max(1, plan.epochs * math.ceil(len(pairs) / plan.batch))
        parameters = self.parameters()
        optimizer = torch.optim.AdamW(parameters, lr=plan.rate, weight_decay=0.0)
        batches = (batch for _ in range(plan.epochs) for batch in self._batches(pairs))
        losses: list[float] = []
        bar = tqdm(batches, total=total, unit=' steps', mininterval=5)
        for step, batch in enumerate(bar):
            share = max(step / total, (time.monotonic() - began) / plan.limit_s)
            if share >= 1:
                break
            warm = min(1.0, (share + 1 / total) / _WARM)
            fall = 0.5 * (1 + math.cos(math.pi * share))
            for group in optimizer.param_groups:
                group['lr'] = plan.rate * warm * max(fall, _LEAST_RATE)
            losses.append(self._step(batch))
            torch.nn.utils.clip_grad_norm_(parameters, 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            bar.set_postfix(loss=f'{losses[-1]:.3f}', refresh=False)
        return losses

    def _step(self, batch: Sequence[Pair]) -> float:
        """The gradients of a batch, and its loss per token."""
        tokens = sum(len(completion) for _, completion in batch)
        loss = 0.0
        for chunk in chunks_of(batch, self.plan.at_once):
            own = -self.log_probabilities(chunk).sum() / tokens
            own.backward()  # type: ignore[no-untyped-call]
            loss += float(own.detach())
        return loss

    def _batches(self, pairs: Sequence[Pair]) -> list[list[Pair]]:
        """An epoch of batches in random order, each of pairs of like length."""
        size, order = self.plan.batch, list(range(len(pairs)))
        self._rng.shuffle(order)
        groups = [order[i : i + _ALIKE * size] for i in range(0, len(order), _ALIKE * size)]
        flat = [i for group in groups for i in sorted(group, key=lambda i: len(pairs[i][0]))]
        batches = [[pairs[i] for i in flat[k : k + size]] for k in range(0, len(flat), size)]
        self._rng.shuffle(batches)
        return batches

    def load(self, tensors: Mapping[str, NDArray[Any]]) -> None:
        """Go on from an adapter, as `read_gguf_adapter` gives it."""
        from peft import set_peft_model_state_dict

        state = {name: torch.from_numpy(value) for name, value in tensors.items()}
        set_peft_model_state_dict(self.peft, state)

    def save(self, folder: Path) -> None:
        """Save the adapter as PEFT does, in 16 bits."""
        from peft import get_peft_model_state_dict
        from safetensors.torch import save_file

        folder.mkdir(parents=True, exist_ok=True)
        self.peft.peft_config['default'].save_pretrained(str(folder))
        state = get_peft_model_state_dict(self.peft, save_embedding_layers=False)
        halves = {k: v.detach().to('cpu', torch.float16).contiguous() for k, v in state.items()}
        with whole_file(folder / 'adapter_model.safetensors') as unfinished:
            save_file(halves, unfinished)


def learner_of(base: Path, plan: TrainingPlan, seed: int) -> Learner:
    """A learner of the model in a GGUF file, whose weights are dequantised."""
    from gguf import GGUFReader
    from transformers import AutoModelForCausalLM, AutoTokenizer

    dtype = torch.bfloat16 if torch.cuda.is_available() else torch.float32
    model = AutoModelForCausalLM.from_pretrained(base.parent, gguf_file=base.name, dtype=dtype)
    tokenizer = AutoTokenizer.from_pretrained(base.parent, gguf_file=base.name)
    end = GGUFReader(base).fields['tokenizer.ggml.eos_token_id'].contents()
    return Learner(model, tokenizer, end, plan, seed)


def _run(args: argparse.Namespace) -> int:
    rows = read_call_rows(args.rows, 'train')
    at_once = _OF_CARD if torch.cuda.is_available() else TrainingPlan.at_once
    limit_s = args.limit or math.inf
    plan = TrainingPlan(args.epochs, args.batch, args.rate, at_once, limit_s)
    learner = learner_of(args.base, plan, args.seed)
    if args.start:
        learner.load(read_gguf_adapter(args.start, args.base))
    losses = learner.learn([(row.prompt, row.call) for row in rows])
    with weights_in(args.out):
        learner.save(args.out)
    with whole_file(args.out / 'reader.gguf') as unfinished:
        write_gguf_adapter(args.out, args.base, unfinished)
    last = losses[-20:]
    mean = sum(last) / max(1, len(last))
    sys.stderr.write(f'{len(rows)} rows, {len(losses)} steps, loss {mean:.4f} at the end\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, and write the adapter."""
    parser = argparse.ArgumentParser(prog='training.reader', description=__doc__)
    add = parser.add_argument
    add('base', type=Path, metavar='BASE.gguf', help='SmolLM2-135M-Instruct')
    add('--rows', type=Path, required=True, metavar='FOLDER', help='of training.data.calls')
    add('--out', type=Path, required=True, metavar='FOLDER')
    add('--epochs', type=int, default=TrainingPlan.epochs, help='default: %(default)s')
    add('--start', type=Path, metavar='ADAPTER.gguf', help='to go on from')
    add('--batch', type=int, default=TrainingPlan.batch, help='rows of a step (%(default)s)')
    add('--rate', type=float, default=TrainingPlan.rate, help='of learning (%(default)s)')
    add('--limit', type=float, default=0.0, metavar='S', help='time to train [s]; 0: none')
    add('--seed', type=int, default=0)
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
