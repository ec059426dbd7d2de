# SPDX-License-Identifier: Apache-2.0
"""Judges of open answers: model servers that score each against its reference (`rubric.py`).

A judge that fails ends the run with its reason. A reply without a score that can be read is asked
for once more, and then counted as unreadable: no score is ever guessed.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass
from typing import TYPE_CHECKING

from embodied_r_ros.chat.cache import cache_key
from embodied_r_ros.chat.protocol import ChatRequest
from embodied_r_ros.common.errors import InputError, ModelError

from training.generate import server_identity
from training.robot_bench.asking import each, server_client
from training.robot_bench.rubric import again_messages, judge_messages, read_reason, read_score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.chat.cache import ReplyCache
    from embodied_r_ros.chat.protocol import ChatMessage
    from embodied_r_ros.types.answers import Sampling

    from training.robot_bench.rubric import OpenCase

_DEADLINE_S = 300.0


@dataclass(frozen=True)
class Verdict:
    """What a judge says of an answer."""

    score: int | None  # 0 to MAX_SCORE; None: its replies cannot be read
    reason: str = ''


class OpenJudge:
    """A judge behind a model server. Its verdicts are kept as they come."""

    def __init__(
        self, name: str, token_variable: str, sampling: Sampling, cache: ReplyCache
    ) -> None:
        """Ask the server who it is.

        Args:
            name: URL of the server; `URL#MODEL` names one of several models.
            token_variable: Environment variable with the access token of this server alone.
            sampling: How it is asked.
            cache: What was said before.

        Raises:
            InputError: The name is no URL.
            ModelError: The server fails.
        """
        self.name = name
        self._client = server_client(name, token_variable)
        self._sampling = sampling
        self._cache = cache
        try:
            self.identity = server_identity(self._client, name)
        except ModelError as error:
            msg = f'judge {name}: {error}'
            raise ModelError(msg) from None

    def verdicts(self, cases: Sequence[OpenCase]) -> list[Verdict]:
        """A verdict on each answer; equal cases are judged once.

        Raises:
            ModelError: The judge failed.
        """
        distinct = list(dict.fromkeys(cases))
        found = each(self._verdict, distinct, f'judge {self.name}')
        by_case = dict(zip(distinct, found, strict=True))
        return [by_case[case] for case in cases]

    def _verdict(self, case: OpenCase) -> Verdict:
        messages = judge_messages(case)
        reply = self._reply(messages)
        score = read_score(reply)
        if score is None:
            reply = self._reply(again_messages(messages, reply))
            score = read_score(reply)
        return Verdict(score, read_reason(reply))

    def _reply(self, messages: tuple[ChatMessage, ...]) -> str:
        parts = [part for message in messages for part in (message.role, message.text)]
        key = cache_key(self.identity, *map(str, astuple(self._sampling)), *parts)
        reply = self._cache.get(key)
        if reply is None:
            request = ChatRequest(messages, self._sampling)
            reply = ''.join(chunk.text for chunk in self._client.stream(request, _DEADLINE_S))
            self._cache.put(key, reply)
        return reply


def judges_of(names: Sequence[str], sampling: Sampling, cache: ReplyCache) -> list[OpenJudge]:
    """The judges that are named, each with a token of its own.

    Raises:
        InputError: A name is no URL, or two judges are the same model.
        ModelError: A server fails.
    """
    judges: list[OpenJudge] = []
    for number, name in enumerate(names, 1):
        own = f'EMBODIED_R_TOKEN_JUDGE{number if number > 1 else ""}'
        judge = OpenJudge(name, own, sampling, cache)
        twin = next((other.name for other in judges if other.identity == judge.identity), '')
        if twin:
            msg = (
                f'--judge {twin} and {name} are the same model, which agrees with itself: '
                'expected different ones'
            )
            raise InputError(msg)
        judges.append(judge)
    return judges
