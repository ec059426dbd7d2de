# SPDX-License-Identifier: Apache-2.0
"""The seam to every language model, and the OpenAI chat protocol as bytes.

A thought that a server sends in a field of its own is put back between its tags.
"""

from __future__ import annotations

from dataclasses import dataclass, field
import json
import math
import re
import time
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import DeadlineError, ModelError
from embodied_r_ros.common.untrusted import parsed_json
from embodied_r_ros.common.work import METER, TOKENS
from embodied_r_ros.core.types.answers import Sampling

if TYPE_CHECKING:
    from collections.abc import Iterator
    import threading

    from embodied_r_ros.core.types.deltas import ModelInfo
    from embodied_r_ros.core.types.images import EncodedImage

NO_TIME = (
    'no time left for the model: raise deadline_s, shorten what comes before it, or use a faster '
    'model'
)

_OPEN, _CLOSE = '<think>', '</think>'
_THOUGHT_KEYS = ('thinking', 'reasoning', 'reasoning_content', 'thought')
_TEXT_KEYS = ('text', 'content')


def content_parts(content: Any) -> list[tuple[bool, str]]:
    """Content as pieces in order: whether each is thought, and its text.

    Content is a text, or a list of typed parts: text, and thinking, which may have parts itself.

    Raises:
        TypeError: It is neither.
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [(False, content)]
    if isinstance(content, list):
        return [piece for part in content for piece in content_parts(part)]
    if not isinstance(content, dict):
        msg = f'content is {content!r}'
        raise TypeError(msg)
    kind = str(content.get('type') or '')
    is_thought = any(word in kind for word in ('think', 'reason', 'thought'))
    keys = (*_THOUGHT_KEYS, *_TEXT_KEYS) if is_thought else _TEXT_KEYS
    value = next((content[key] for key in keys if content.get(key)), None)
    return [(is_thought or inner, text) for inner, text in content_parts(value)]


def thought_text(value: Any) -> str:
    """The text of a field that holds a thought, whatever its parts are.

    Raises:
        TypeError: It holds no text.
    """
    return ''.join(text for _, text in content_parts(value))


@dataclass
class ThoughtJoiner:
    """Joins thoughts and text as they come, so that there is one thought, and then the rest.

    The model may write the tags too, in its thought or in its text: those are not doubled. What
    may become a tag is held back until it is known.
    """

    _is_thought: bool = False  # the last piece was of the field for thoughts
    _is_begun: bool = False  # some of that thought was given out
    _held_thought: str = ''
    _held_text: str = ''
    _is_open: bool = False  # what was given out has a thought without its end
    _tail: str = ''  # end of what was given out, in which a tag may begin

    def add_thought(self, piece: str) -> str:
        """What to give out for a piece of thought."""
        text, self._held_text = self._held_thought + self._held_text + piece, ''
        self._is_thought = True
        if self._is_begun:
            return self._give(text)
        start = text.lstrip()
        self._held_thought = text if _may_become(start, _OPEN) else ''
        if self._held_thought:
            return ''
        self._is_begun = True
        return self._give(text if start.startswith(_OPEN) or self._is_open else _OPEN + text)

    def add_text(self, piece: str) -> str:
        """What to give out for a piece of text."""
        if not self._is_thought:
            return self._give(piece)
        text = self._held_text + piece
        start = text.lstrip()
        is_undecided = _may_become(start, _OPEN) or _may_become(start, _CLOSE)
        self._held_text = text if is_undecided else ''
        if is_undecided:
            return ''
        text = self._joint(start) + (start if start.startswith(_OPEN) else text)
        self._held_thought, self._is_thought, self._is_begun = '', False, False
        return self._give(text)

    def _joint(self, text: str) -> str:
        """What must stand between the thought and the text after it."""
        has_tag = text.startswith((_OPEN, _CLOSE))
        if self._is_open:
            return '' if has_tag else _CLOSE
        is_blank_start = not self._is_begun and not self._tail
        return f'{_OPEN}{self._held_thought}{_CLOSE}' if is_blank_start and not has_tag else ''

    def end(self, *, closes: bool = False) -> str:
        """What is left to give out at the end, with the end of an open thought if wanted."""
        text, self._held_thought, self._held_text = self._held_thought + self._held_text, '', ''
        text = self._give(text) if text.strip() else ''
        return text + self._give(_CLOSE) if closes and self._is_open else text

    def _give(self, text: str) -> str:
        if self._is_open and text.startswith(_OPEN):  # of a thought that is open already
            text = '\n' + text[len(_OPEN) :]
        text_to_search = self._tail + text
        opened, closed = text_to_search.rfind(_OPEN), text_to_search.rfind(_CLOSE)
        if max(opened, closed) >= 0:
            self._is_open = opened > closed
        self._tail = text_to_search[-len(_CLOSE) :]
        return text


def _may_become(start: str, tag: str) -> bool:
    return len(start) < len(tag) and tag.startswith(start)


@dataclass(frozen=True)
class FunctionCall:
    """A call of a function that a model asks for."""

    id: str
    name: str
    arguments: str  # as the model wrote them: JSON, if it is right


def call_arguments(text: str) -> dict[str, Any] | None:
    """The arguments of a call; None: they are no object of JSON."""
    value = parsed_json(text or '{}')
    return value if isinstance(value, dict) else None


@dataclass(frozen=True)
class ChatMessage:
    """One message of a conversation; the text comes before the images."""

    role: str  # 'system', 'user', 'assistant' or 'tool'
    text: str
    images: tuple[EncodedImage, ...] = ()
    calls: tuple[FunctionCall, ...] = ()  # that an assistant asked for
    call_id: str = ''  # of a tool: the call that it replies to


@dataclass(frozen=True)
class ChatRequest:
    """What to ask a model."""

    messages: tuple[ChatMessage, ...]
    sampling: Sampling = field(default_factory=Sampling)
    json_schema: dict[str, Any] | None = None  # structured reply, enforced where the server can
    grammar: str = ''  # of the reply (GBNF of llama.cpp), enforced where the server can
    top_logprobs: int = 0  # alternatives to report per token; 0: none
    tools: tuple[dict[str, Any], ...] = ()  # functions that the model may call, as OpenAI has them
    may_call: bool = True  # False: the tools are shown, and it must answer without them


@dataclass(frozen=True)
class TokenAlternatives:
    """A generated token and the likeliest tokens in its place."""

    token: str
    logprob: float
    top: tuple[tuple[str, float], ...]  # (token, natural-log probability), likeliest first


@dataclass(frozen=True)
class ChatChunk:
    """A piece of generated text."""

    text: str
    tokens: tuple[TokenAlternatives, ...] = ()  # empty: the server gives no probabilities
    ending: str = ''  # of the last piece: 'length', 'content_filter' or the like; not 'stop'
    calls: tuple[FunctionCall, ...] = ()  # of the last piece: all that the model asks for


class ChatClient(Protocol):
    """A model behind some server. Every method may be called from several threads at once."""

    def stream(
        self, request: ChatRequest, deadline_s: float, cancel: threading.Event | None = None
    ) -> Iterator[ChatChunk]:
        """Yield the completion as it is generated.

        Args:
            request: What to ask.
            deadline_s: Time in which the last piece must have come [s].
            cancel: Ends the generation, on the server too, soon after it is set.

        Raises:
            DeadlineError: It was not complete in time.
            CancelledError: `cancel` was set.
            ModelError: The server failed or refused.
        """

    def info(self, deadline_s: float) -> ModelInfo:
        """Name and digest of the model that serves.

        Raises:
            ModelError: The server is not reachable or serves another model.
        """


def left_s(end: float) -> float:
    """Seconds until a point of the monotonic clock [s].

    Raises:
        DeadlineError: It has passed.
    """
    remaining_s = end - time.monotonic()
    if remaining_s <= 0:
        raise DeadlineError(NO_TIME)
    return remaining_s


def see_that_it_speaks(client: ChatClient, deadline_s: float) -> None:
    """Have a model generate one token: cheap, and more than a server's word that it is healthy.

    Raises:
        ModelError: It did not, or another model is served than the client is set to.
    """
    end = time.monotonic() + deadline_s
    request = ChatRequest((ChatMessage('user', 'Say yes.'),), Sampling(max_tokens=1))
    for _ in client.stream(request, deadline_s):
        pass
    client.info(max(0.0, end - time.monotonic()))


_MOST_CALL_CHARS = 64 * 1024  # of all calls of a reply


@dataclass
class CallJoiner:
    """Joins the pieces in which servers send calls of functions.

    A call is known by its index. Some servers begin another one at the same index, with a name and
    an id of its own; some name neither index nor id, or send arguments that are no text.
    """

    _calls: list[dict[str, str]] = field(default_factory=list)
    _at: dict[int, dict[str, str]] = field(default_factory=dict)  # the newest call of each index
    _chars: int = 0

    def add(self, piece: dict[str, Any]) -> None:
        """Take a piece.

        Raises:
            ModelError: The calls of the reply are too long.
        """
        function = piece.get('function') or {}
        name, own_id = str(function.get('name') or ''), str(piece.get('id') or '')
        index = piece.get('index')
        index = len(self._calls) - (not name) if index is None else int(index)
        call = self._at.get(index)
        if call is None or (name and own_id and own_id != call['id']):
            call = {'id': own_id or f'call_{len(self._calls) + 1}', 'name': '', 'arguments': ''}
            self._calls.append(call)
            self._at[index] = call
        arguments = function.get('arguments') or ''
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call['name'] = call['name'] or name
        call['arguments'] += text
        self._chars += len(text) + len(name) + 1
        if self._chars > _MOST_CALL_CHARS:
            msg = f'the calls of tools in a reply are longer than {_MOST_CALL_CHARS} characters'
            raise ModelError(msg)

    def end(self) -> tuple[FunctionCall, ...]:
        """The calls, once."""
        calls, self._calls, self._at = self._calls, [], {}
        return tuple(
            FunctionCall(*(value.encode(errors='replace').decode() for value in call.values()))
            for call in calls
        )


# Fields in which servers send thoughts, and their words for how a reply ended.
_THOUGHT_FIELDS = ('reasoning_content', 'reasoning', 'thinking')
_ENDINGS = {
    **dict.fromkeys(('stop', 'eos', 'eos_token', 'end_turn', 'stop_sequence'), ''),
    **dict.fromkeys(('tool_calls', 'tool_use', 'function_call'), ''),
    **dict.fromkeys(('max_tokens', 'max_output_tokens'), 'length'),
    **dict.fromkeys(('model_length', 'context_length_exceeded'), 'context'),
    **dict.fromkeys(('content-filter', 'safety', 'sensitive'), 'content_filter'),
}
_PROBLEMS = {
    'length': 'the model was cut off at its limit of {max_tokens} tokens: raise max_tokens',
    'context': 'the model was cut off where the context of its server was full: give the server a '
    'longer context, or shorten the prompt (token_budget)',
    'content_filter': 'a content filter of the server ended the reply: ask in other words',
    'tool_calls': 'the model called a tool in place of an answer: serve it without tools',
}
_NO_ENDING = {'', 'none', 'null'}
_DONE = '[DONE]'
_DECODER = json.JSONDecoder()
_ANSWER_END = '</answer>'
_BLANKS = re.compile(r'\s*')
_TAIL_CHARS = 32  # that blanks may follow the end of an answer


@dataclass
class EventReader:
    """Reads the data of events, one completion from its start to its end.

    Some servers take the text inside `<think>` out of the completion and send it as a field of its
    own. It is put back, so that a completion reads the same from every server.
    """

    is_complete: bool = False  # the server said that the completion is complete
    is_over: bool = False  # nothing comes after it
    tokens: int = 0  # of prompt and reply so far; 0: the server does not tell
    reply_tokens: int = 0  # of the reply alone
    model: str = ''  # what the server says it is
    _ending: str = ''  # what it last said of why the completion ended
    _tail: str = ''  # of the text so far
    _thoughts: ThoughtJoiner = field(default_factory=ThoughtJoiner)
    _calls: CallJoiner = field(default_factory=CallJoiner)

    def read(self, data: str) -> list[ChatChunk]:
        """Read the data of an event, or a body: the pieces of text that it holds.

        Raises:
            ModelError: It is not of the protocol, or reports an error of the server.
        """
        return [chunk for event in self._events(data) if (chunk := self._read_event(event))]

    @property
    def may_end(self) -> bool:
        """Whether nothing is missing: the server said so, or the answer is closed."""
        return self.is_complete or self._tail.rstrip().endswith(_ANSWER_END)

    @property
    def has_text(self) -> bool:
        """Whether something was said."""
        return bool(self._tail)

    def end(self, max_tokens: int) -> ChatChunk | None:
        """What is left to say at the end, and why it ended, of so many tokens; None: nothing."""
        ending = _ENDINGS.get(self._ending.casefold(), self._ending)
        if ending == 'length' and 0 < self.reply_tokens < max_tokens:
            ending = 'context'
        calls = self._calls.end()
        text = self._thoughts.end(closes=bool(calls))
        is_empty = not (text or ending or calls)
        return None if is_empty else ChatChunk(text, ending=ending, calls=calls)

    def _events(self, data: str) -> Iterator[dict[str, Any]]:
        """The objects in some data: one; of a server without empty lines between, several."""
        at = 0
        while (at := _BLANKS.match(data, at).end()) < len(data):  # type: ignore[union-attr]
            if data.startswith(_DONE, at):
                self.is_complete = self.is_over = True
                return
            event, at = _parse(data, at)
            yield event

    def _read_event(self, event: dict[str, Any]) -> ChatChunk | None:
        self.model = str(event.get('model') or self.model)
        self._note_usage(event)
        choices = event.get('choices') or []
        if not choices:
            return None
        try:
            return self._choice(choices[0])
        except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
            msg = f'an event is not a chat completion chunk ({error!r}): {str(event)[:200]}'
            raise ModelError(msg) from None

    def _note_usage(self, event: dict[str, Any]) -> None:
        """Count the tokens of a reply; some servers tell so with each event, of all until then."""
        usage = event.get('usage')
        total = usage.get('total_tokens') if isinstance(usage, dict) else None
        if isinstance(total, int) and total > self.tokens:
            METER.add(TOKENS, total - self.tokens)
            self.tokens = total
        for counts, name in ((usage, 'completion_tokens'), (event.get('timings'), 'predicted_n')):
            count = counts.get(name) if isinstance(counts, dict) else None
            self.reply_tokens = count if isinstance(count, int) else self.reply_tokens

    def _choice(self, choice: dict[str, Any]) -> ChatChunk | None:
        # A body that is no stream has a whole message; one of plain completions has a text.
        delta = choice.get('delta') or choice.get('message') or {'content': choice.get('text')}
        ending = str(choice.get('finish_reason') or '')
        if ending.casefold() == 'error':
            said = choice if choice.get('error') else delta.get('content') or 'it does not say why'
            raise ReportedError(error_detail(json.dumps(said)), _code_of(choice.get('error')))
        if ending.casefold() not in _NO_ENDING:
            self._ending, self.is_complete = ending, True
        for piece in delta.get('tool_calls') or []:
            self._calls.add(piece)
        text = self._joined(delta)
        # Half of a surrogate pair is legal in JSON, and in no message.
        text = text.encode(errors='replace').decode()
        self._tail = (self._tail + text)[-_TAIL_CHARS:]
        tokens = _alternatives(choice.get('logprobs'))
        return ChatChunk(text, tokens) if text or tokens else None

    def _joined(self, delta: dict[str, Any]) -> str:
        """The text of an event, with the tags at the changes between thoughts and text."""
        thought = thought_text(
            next((delta[name] for name in _THOUGHT_FIELDS if delta.get(name)), None)
        )
        pieces = [(True, thought), *content_parts(delta.get('content') or delta.get('refusal'))]
        return ''.join(
            self._thoughts.add_thought(piece) if is_thought else self._thoughts.add_text(piece)
            for is_thought, piece in pieces
            if piece
        )


class ReportedError(ModelError):
    """An error that the server reports in the stream."""

    def __init__(self, detail: str, code: int) -> None:
        """Take its words, and its status code; 0: it gives none."""
        super().__init__(f'the server gave up: {detail}')
        self.detail = detail
        self.code = code


def _parse(data: str, start: int) -> tuple[dict[str, Any], int]:
    """JSON object of an event that begins at a place, and where it ends.

    Raises:
        ModelError: It is none, or it is the server's own error.
    """
    try:
        event, end = _DECODER.raw_decode(data, start)
    except (ValueError, RecursionError):
        # `transformers serve` does not escape the messages of its errors.
        msg = f'the stream holds what is not JSON: {data[start : start + 200]}'
        raise ModelError(msg) from None
    if not isinstance(event, dict):
        msg = f'the stream holds JSON that is no object: {data[start : start + 200]}'
        raise ModelError(msg)
    if error := event.get('error'):
        # vLLM begins the stream before it looks at every part of the request.
        raise ReportedError(error_detail(data[start:end]), _code_of(error))
    return event, end


def _code_of(error: Any) -> int:
    """The status code of an error that a server reports; 0: it gives none."""
    code = error.get('code') if isinstance(error, dict) else None
    return int(code) if isinstance(code, (int, str)) and str(code).isdecimal() else 0


def _alternatives(logprobs: Any) -> tuple[TokenAlternatives, ...]:
    """Tokens with their alternatives; what is in another form is none, and loses no text."""
    content = logprobs.get('content') if isinstance(logprobs, dict) else None
    try:
        tokens = [_token(entry) for entry in filter(None, content or [])]
    except (KeyError, TypeError, AttributeError, ValueError):
        return ()
    return tuple(token for token in tokens if token)


def _token(entry: dict[str, Any]) -> TokenAlternatives | None:
    """A token with its alternatives; what a server gives no probability is left out."""
    top = tuple(
        (str(other['token']), float(other['logprob']))
        for other in filter(None, entry.get('top_logprobs') or [])
        if other.get('logprob') is not None
    )
    token, logprob = str(entry['token']), entry.get('logprob')
    if logprob is None and top:
        logprob = dict(top).get(token, -math.inf)
    return None if logprob is None else TokenAlternatives(token, float(logprob), top)


def ending_problem(text: str, ending: str, max_tokens: int) -> str:
    """Why a completion may be incomplete; empty: nothing is known to be wrong.

    Args:
        text: The completion.
        ending: Why it ended (see `ChatChunk`).
        max_tokens: Tokens that it could have.
    """
    if text.strip() and ending == 'tool_calls':
        return ''
    told = _PROBLEMS.get(
        ending, '' if text.strip() else 'the model said nothing: its reply is empty'
    )
    return told.format(max_tokens=max_tokens)


def error_detail(body: str) -> str:
    """What a server says went wrong, in one bounded line: OpenAI's, FastAPI's or plain text."""
    value = parsed_json(body)
    value = body if value is None else value
    for key in ('error', 'message', 'detail'):
        if isinstance(value, dict) and key in value:
            value = value[key]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return ' '.join(text.split())[:300]
