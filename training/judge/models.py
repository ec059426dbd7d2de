# SPDX-License-Identifier: Apache-2.0
"""Judges that run: a model in a folder, a model server, or several of them that vote."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any, TYPE_CHECKING

from embodied_r_ros.chat.client import HttpChatClient
from embodied_r_ros.chat.protocol import ChatMessage, ChatRequest
from embodied_r_ros.chat.settings import ChatConfig
from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.reasoning.completions import option_letter
from embodied_r_ros.types.answers import Sampling
import torch
from transformers.integrations import is_deepspeed_zero3_enabled, is_fsdp_enabled

from training.eval.generation import load_model, model_identity
from training.judge.cases import judge_messages, Panel, said_text
from training.run.models import is_url, model_folder
from training.run.templates import render

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from torch import Tensor

    from training.judge.cases import Judge, JudgeCase

_DEFAULT = ('models', 'judge')
_NO_JUDGE = 'none'
_BATCH = 16
_IN_FLIGHT = 8
_DEADLINE_S = 120.0
_TOP_LOGPROBS = 20  # as many as servers report


class FolderJudge:
    """A model in a folder. Not trained any further: it never sees a gradient."""

    def __init__(self, folder: Path) -> None:
        """Load the model.

        Raises:
            ModelError: It cannot be loaded.
        """
        self._model, self._tokenizer = load_model(folder)

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        """The likeliest candidate of each case; equal cases are judged once."""
        distinct = list(dict.fromkeys(cases))
        texts = {case: self._text(case) for case in distinct}
        distinct.sort(key=lambda case: len(texts[case]))  # of like length: little padding
        verdicts: dict[JudgeCase, str] = {}
        for start in range(0, len(distinct), _BATCH):
            batch = distinct[start : start + _BATCH]
            scores = self._scores([texts[c] for c in batch], [c.candidates() for c in batch])
            for case, own in zip(batch, scores, strict=True):
                verdicts[case] = case.candidates()[int(own.argmax())]
        return [verdicts[case] for case in cases]

    def _text(self, case: JudgeCase) -> str:
        return render(self._tokenizer, judge_messages(case))

    def _tokens(self, texts: Sequence[str], padding_side: str) -> tuple[Tensor, Tensor]:
        batch = self._tokenizer(
            list(texts),
            return_tensors='pt',
            padding=True,
            padding_side=padding_side,
            add_special_tokens=False,
        ).to(self._model.device)
        return batch['input_ids'], batch['attention_mask']

    @torch.inference_mode()
    def _scores(
        self, texts: Sequence[str], candidates: Sequence[tuple[str, ...]]
    ) -> Sequence[Tensor]:
        """Log probabilities of the candidates of each text, which itself is read once."""
        counts = [len(names) for names in candidates]
        end = self._tokenizer.eos_token
        conclusion_texts = [said_text(name) + end for names in candidates for name in names]
        asked_ids, prompt_ids = self._tokens(texts, 'left')  # (B, T)
        said_ids, spoken = self._tokens(conclusion_texts, 'right')  # (candidates of all, S)
        own = torch.repeat_interleave(torch.tensor(counts)).to(prompt_ids.device)

        # Without positions the padding would count, and a verdict depend on the rest of its batch.
        read = self._model(
            input_ids=asked_ids,
            attention_mask=prompt_ids,
            position_ids=(prompt_ids.cumsum(1) - 1).clamp(min=0),
            use_cache=True,
            logits_to_keep=1,
        )
        read.past_key_values.batch_select_indices(own)
        steps = torch.arange(said_ids.shape[1] - 1, device=prompt_ids.device)
        rest = self._model(
            input_ids=said_ids[:, :-1],
            attention_mask=torch.cat([prompt_ids[own], spoken[:, :-1]], dim=1),
            position_ids=prompt_ids.sum(1)[own, None] + steps,
            past_key_values=read.past_key_values,
        )
        logits = torch.cat([read.logits[own], rest.logits], dim=1).float()
        if not torch.isfinite(logits).all():
            msg = 'the judge gives no finite probabilities: its weights are broken'
            raise ModelError(msg)
        each = logits.log_softmax(-1).gather(-1, said_ids[..., None])[..., 0]
        scores: Sequence[Tensor] = torch.split((each * spoken).sum(1).cpu(), counts)
        return scores


class ServerJudge:
    """A model server that reports token probabilities, such as vLLM."""

    def __init__(self, url: str) -> None:
        """Connect at the first case."""
        self._client = HttpChatClient(ChatConfig(url=url))
        self._url = url

    def conclusions(self, cases: Sequence[JudgeCase]) -> list[str]:
        """The likeliest candidate of each case."""
        with ThreadPoolExecutor(_IN_FLIGHT) as pool:
            return list(pool.map(self._conclusion, cases))

    def _conclusion(self, case: JudgeCase) -> str:
        messages = tuple(
            ChatMessage(m['role'], m['content']) for m in judge_messages(case, lettered=True)
        )
        request = ChatRequest(
            messages, Sampling(0.0, 1.0, max_tokens=1, seed=0), top_logprobs=_TOP_LOGPROBS
        )
        chunks = list(self._client.stream(request, _DEADLINE_S))
        token = next((token for chunk in chunks for token in chunk.tokens), None)
        if token is None:
            msg = f'judge {self._url} reports no token probabilities: use a folder, or vLLM'
            raise ModelError(msg)
        names = case.candidates()
        named = {option_letter(index): name for index, name in enumerate(names)}
        for text, _ in sorted([(token.token, token.logprob), *token.top], key=lambda t: -t[1]):
            if text.strip() in named:
                return named[text.strip()]
        msg = f'judge {self._url} names no option: it said {token.token!r}, expected a letter'
        raise ModelError(msg)


def load_judge(names: Sequence[str]) -> Judge:
    """A judge from folders and URLs; several vote.

    Raises:
        InputError: A folder has no model, or its weights would be shared out among processes.
        ModelError: A model cannot be used as a judge.
    """
    folders = [name for name in names if not is_url(name)]
    if folders and (is_deepspeed_zero3_enabled() or is_fsdp_enabled()):
        msg = (
            f'judge {folders[0]} is a folder, and the processes of this run share out the weights '
            'of every model that they load (DeepSpeed ZeRO-3, or FSDP with '
            f'cpu_ram_efficient_loading): vllm serve {folders[0]}, and name its URL'
        )
        raise InputError(msg)
    judges: list[Any] = [
        ServerJudge(name) if is_url(name) else FolderJudge(model_folder(name)) for name in names
    ]
    return judges[0] if len(judges) == 1 else Panel(tuple(judges))


def add_judge_option(parser: argparse.ArgumentParser, unjudged: str = 'no consistency') -> None:
    """Declare `--judge`, whose values `judge_of` takes; `unjudged`: what is without a judge."""
    parser.add_argument(
        '--judge',
        action='append',
        default=[],
        metavar='DIR_OR_URL',
        help=f"several vote; '{_NO_JUDGE}': {unjudged}; default: {'/'.join(_DEFAULT)}",
    )


def judge_of(names: Sequence[str]) -> Judge | None:
    """The judge that `--judge` names, else the shipped one; None: 'none' was asked for.

    Raises:
        ConfigError: The shipped judge is not there.
        InputError: A folder has no model, or 'none' stands among others.
        ModelError: A model cannot be used as a judge.
    """
    named = _named(names)
    return load_judge(named) if named else None


def judge_identity(names: Sequence[str]) -> list[str]:
    """What decides the verdicts of the judge that `--judge` names; empty: 'none' was asked for.

    Raises:
        ConfigError: The shipped judge is not there.
        InputError: A folder has no model, or 'none' stands among others.
        ModelError: A server fails.
    """
    return sorted(map(model_identity, _named(names)))


def _named(names: Sequence[str]) -> list[str]:
    if is_unjudged(names):
        if len(names) > 1:
            msg = f'--judge {_NO_JUDGE} stands beside {len(names) - 1} others: give it alone'
            raise InputError(msg)
        return []
    return list(names) or [str(shared_path(*_DEFAULT))]


def is_unjudged(names: Sequence[str]) -> bool:
    """Tell whether `--judge` says that nobody is to judge."""
    return _NO_JUDGE in names
