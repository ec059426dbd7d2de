# SPDX-License-Identifier: Apache-2.0
"""What a model server takes, learned from its refusals, and the requests that it gets so."""

from __future__ import annotations

import base64
from dataclasses import dataclass, replace
import json
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.chat.protocol import ChatMessage
from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.common.meter import METER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from embodied_r_ros.chat.protocol import ChatRequest
    from embodied_r_ros.types.images import EncodedImage

# Status codes of a server that does not understand a request, or a part of it.
REFUSALS = frozenset({400, 404, 405, 413, 415, 422, 501})
# Fields that can be left out, with the words by which servers name them.
_OPTIONAL = {
    'response_format': ('response_format', 'json_schema', 'grammar', 'structured', 'guided'),
    'logprobs': ('logprobs',),
    'stream_options': ('stream_options', 'include_usage'),
    'seed': ('seed',),
    'temperature': ('temperature',),
    'top_p': ('top_p',),
}
SAMPLING_FIELDS = frozenset({'seed', 'temperature', 'top_p'})
# Of those, what a server may refuse without naming it.
_EXTRA = frozenset(_OPTIONAL) - SAMPLING_FIELDS
SYSTEM_GAP = '\n\n'  # between the system text and the user's, where they are one
_LIMITS = ('max_tokens', 'max_completion_tokens')


class RefusedError(ModelError):
    """The server does not understand the request, or a part of it: asking again is of no use."""

    def __init__(self, message: str, detail: str = '') -> None:
        """Take what to tell, and the server's own words."""
        super().__init__(message)
        self.detail = detail or message


class ImagesRefusedError(RefusedError):
    """The server takes fewer images per request; this does not change while it runs."""

    def __init__(self, message: str, limit: int) -> None:
        """Take what to tell, and the number of images that it takes; 0: it sees nothing."""
        super().__init__(message)
        self.limit = limit


@dataclass(frozen=True)
class Terms:
    """What a server takes. Nothing is known at first, and all is asked."""

    left_out: frozenset[str] = frozenset()  # optional fields that it refuses
    limit_field: str = 'max_tokens'
    has_system_role: bool = True
    model: str = ''  # its only model, which it wants named; empty: it need not be


def request_body(request: ChatRequest, model: str, terms: Terms | None = None) -> bytes:
    """Write the JSON body of a streaming chat request.

    Args:
        request: What to ask.
        model: Name of the model at its server; empty leaves the choice to the server.
        terms: What the server takes.
    """
    terms = terms or Terms()
    sampling = request.sampling
    messages = request.messages if terms.has_system_role else merge_system(request.messages)
    body: dict[str, Any] = {
        'messages': [_message(message) for message in messages],
        'stream': True,
        terms.limit_field: sampling.max_tokens,
        'temperature': sampling.temperature,
        'top_p': sampling.top_p,
    }
    if model or terms.model:
        body['model'] = model or terms.model
    if sampling.seed:
        body['seed'] = sampling.seed
    if request.json_schema is not None:
        schema = {'name': 'reply', 'schema': request.json_schema, 'strict': True}
        body['response_format'] = {'type': 'json_schema', 'json_schema': schema}
    if request.top_logprobs and 'logprobs' not in terms.left_out:
        body |= {'logprobs': True, 'top_logprobs': request.top_logprobs}
    if METER.asks_for_tokens:
        body['stream_options'] = {'include_usage': True}
    kept = {name: value for name, value in body.items() if name not in terms.left_out}
    return json.dumps(kept).encode()


def merge_system(messages: Sequence[ChatMessage]) -> tuple[ChatMessage, ...]:
    """The messages for a model without a system role: that text stands before the user's."""
    system = SYSTEM_GAP.join(message.text for message in messages if message.role == 'system')
    others = [message for message in messages if message.role != 'system']
    if not system:
        return tuple(messages)
    if not others or others[0].role != 'user':
        return ChatMessage('user', system), *others
    return replace(others[0], text=f'{system}{SYSTEM_GAP}{others[0].text}'), *others[1:]


def _message(message: ChatMessage) -> dict[str, Any]:
    if not message.images:
        return {'role': message.role, 'content': message.text}
    parts: list[dict[str, Any]] = [{'type': 'text', 'text': message.text}]
    parts += [
        {'type': 'image_url', 'image_url': {'url': data_url(image)}} for image in message.images
    ]
    return {'role': message.role, 'content': parts}


def data_url(image: EncodedImage) -> str:
    """Write an image as a data URL (RFC 2397); its bytes are not encoded again."""
    return f'data:image/{image.format};base64,{base64.b64encode(image.data).decode()}'


def image_count(request: ChatRequest) -> int:
    """How many images a request shows."""
    return sum(len(message.images) for message in request.messages)


RequestKind = tuple[bool, bool, bool, int]  # what a server may refuse in a request


def request_kind(request: ChatRequest) -> RequestKind:
    """What of a request a server may refuse: requests of one kind are refused alike."""
    has_system = any(message.role == 'system' for message in request.messages)
    is_structured = request.json_schema is not None
    return has_system, is_structured, bool(request.top_logprobs), image_count(request)


_SYSTEM_WORDS = re.compile(
    r'system\W*(?:role|message|prompt|instruction)|role\W*system|roles? must alternate|'
    r'(?:only|expected).{0,30}\buser\b.{0,20}\bassistant\b|unknown role|invalid role|'
    r'unsupported role|developer\W*instruction',
    re.IGNORECASE,
)
_TOO_LONG = re.compile(
    r'context (?:length|size|window)|too (?:long|large|many tokens)|maximum.{0,30}tokens|exceed',
    re.IGNORECASE,
)
_MODEL_WANTED = re.compile(
    r"\bmodel\b.{0,60}(?:required|missing|must|not found|not exist|provide|specif|select|unknown|"
    r"invalid|empty|no such|null)|(?:required|missing|provide|specify|select|unknown|invalid|"
    r"no such|which).{0,60}\bmodel\b",
    re.IGNORECASE | re.DOTALL,
)  # fmt: skip
_BLIND = re.compile(
    r'not a (?:multi-?modal|vision)|(?:no|without|lacks?) (?:vision|image)|text[- ]only|mmproj|'
    r'(?:not|n\'t|cannot) (?:support|accept|process|handle|allow|take)\w*[^.]{0,40}'
    r'(?:image|vision|multi-?modal)|(?:image|vision|multi-?modal)[^.]{0,40}'
    r'(?:not supported|unsupported|not (?:allowed|available|enabled))|at most 0 image|'
    r'unsupported content|(?:unknown|invalid|unsupported)[^.]{0,30}(?:part|image_url)|'
    r'only (?:supports? )?text|(?:must|should) be a (?:valid )?string|expected (?:a )?str',
    re.IGNORECASE,
)
_FEW_IMAGES = re.compile(
    r'(?:at most|up to|maximum of|only|limit of|more than)\W+(?P<count>\d+|one|a single)\W+image|'
    r'limit-mm-per-prompt|(?:too many|multiple|several|two) images|'
    r'images? per (?:prompt|request|message)|single image',
    re.IGNORECASE,
)
_IMAGE_LIMIT = re.compile(r'["\']?image["\']?\s*[:=]\s*(\d+)')


def reads_as_refusal(detail: str) -> bool:
    """Tell whether an error of any status is about what a server can never do.

    Some servers answer so with status 500.
    """
    return any(pattern.search(detail) for pattern in (_SYSTEM_WORDS, _BLIND, _FEW_IMAGES))


def reads_as_too_long(detail: str) -> bool:
    """Tell whether a refusal is about the length of the request."""
    return bool(_TOO_LONG.search(detail))


def wants_model(detail: str) -> bool:
    """Tell whether a refusal is about a model that was not named."""
    return bool(_MODEL_WANTED.search(detail))


def image_limit(detail: str, count: int) -> int | None:
    """How many images a server takes that refused so many; None: its words do not tell."""
    if not count:
        return None
    if few := _FEW_IMAGES.search(detail):
        count_text = few['count'] or (
            number[1] if (number := _IMAGE_LIMIT.search(detail)) else '1'
        )
        limit = int(count_text) if count_text.isdecimal() else 1
        return limit if limit < count else None
    return 0 if _BLIND.search(detail) else None


def other_terms(terms: Terms, request: ChatRequest, detail: str) -> Iterator[Terms]:
    """Terms on which a refused request may be accepted, the likeliest first.

    Args:
        terms: Those on which it was refused.
        request: The request.
        detail: What the server said.
    """
    text = detail.casefold()
    fields = _fields(terms, request)
    named = {name for name in fields if any(word in text for word in _OPTIONAL[name])}
    other_limit = _LIMITS[terms.limit_field == _LIMITS[0]]
    has_system = terms.has_system_role and any(m.role == 'system' for m in request.messages)
    is_long = reads_as_too_long(detail)
    if named and not is_long:
        yield replace(terms, left_out=terms.left_out | named)
    if other_limit in text or (terms.limit_field in text and not is_long):
        yield replace(terms, limit_field=other_limit)
    if has_system and _SYSTEM_WORDS.search(detail):
        yield replace(terms, has_system_role=False)
    less = replace(terms, left_out=terms.left_out | (fields & _EXTRA))
    yield less
    if has_system and not is_long:
        yield replace(terms, has_system_role=False)
        yield replace(less, has_system_role=False)


def _fields(terms: Terms, request: ChatRequest) -> frozenset[str]:
    """Optional fields that a request has on these terms."""
    has = {
        'response_format': request.json_schema is not None,
        'logprobs': bool(request.top_logprobs),
        'stream_options': METER.asks_for_tokens,
        'seed': bool(request.sampling.seed),
    }
    return frozenset(name for name in _OPTIONAL if has.get(name, True)) - terms.left_out
