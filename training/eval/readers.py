# SPDX-License-Identifier: Apache-2.0
"""What a robot answers to rows with an adapter of the small model: it reads, the tools compute.

It is asked and checked as live, by the real server.
"""

from __future__ import annotations

from dataclasses import asdict
import json
from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.cache import cache_key, ReplyCache
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import model_digest
from embodied_r_ros.core.reasoning.question import Question, Refusal
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import UNKNOWN
from embodied_r_ros.core.types.landmarks import newest_stamp_ns
from embodied_r_ros.serving.profiles import load_profile, READER, reasoner_config
from embodied_r_ros.serving.served import served_model
from tqdm import tqdm

from training.eval.grading import completion_of
from training.run.command import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.data.questions.row import Row


_BLIND = f'<think></think><answer>{UNKNOWN}</answer>'  # where nothing was seen


def base_of(profile: str) -> Path:
    """The base of a profile's adapters.

    Raises:
        InputError: It serves none, or its base is not here.
    """
    server = load_profile(profile).servers.get('reasoner')
    if server is None or not server.adapter:
        msg = f'the reasoner of profile {profile} takes no adapter in GGUF: name one that does'
        raise InputError(msg)
    return Path(server.model_argument())


def reader_completions(
    adapter: str, rows: Sequence[Row], cache: ReplyCache | None = None, profile: str = READER
) -> list[str]:
    """What is answered to rows, as completions that can be graded.

    Args:
        adapter: The adapter in GGUF.
        rows: The questions, with what was seen.
        cache: What was answered before, and keeps what is answered now.
        profile: As whose nodes ask.

    Raises:
        ModelError: The server does not start.
        InputError: The profile takes no adapters.
    """
    cache, config = cache or ReplyCache(0), reasoner_config(profile=profile)
    prefix = model_digest(base_of(profile), Path(adapter)), json.dumps(asdict(config))
    keys = [cache_key(*prefix, row.to_json()) for row in rows]
    known = {key: text for key in keys if (text := cache.get(key)) is not None}
    known |= {key: _BLIND for key, row in zip(keys, rows, strict=True) if not _is_seen(row)}
    if len(known) < len(set(keys)):
        with served_model(adapter, say, profile=profile) as chat:
            reasoner = Reasoner(HttpChatClient(chat), config)
            pairs = list(zip(keys, rows, strict=True))
            for key, row in tqdm(pairs, desc='answers', leave=False, disable=None):
                if key not in known:
                    known[key] = _completion(reasoner, row)
                    cache.put(key, known[key])
    return [known[key] for key in keys]


def _is_seen(row: Row) -> bool:
    return bool(row.deltas) or row.has_map


def _completion(reasoner: Reasoner, row: Row) -> str:
    """What is answered to a row."""
    deltas, scene_map = row.semantic_deltas(), row.scene_map() if row.has_map else None
    newest_ns = max((delta.stamp_ns for delta in deltas), default=0)
    newest_ns = newest_ns or (newest_stamp_ns(scene_map) if scene_map else 0)
    question = Question(row.question, row.options, scene_map=scene_map)
    try:
        answer = reasoner.answer(question, deltas, answer_id=row.id, now_ns=lambda: newest_ns)
    except Refusal as refusal:
        answer = refusal.answer  # unknown
    return completion_of(answer)
