# SPDX-License-Identifier: Apache-2.0
"""A thought that a server sends in a field of its own, put back between its tags."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

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

    def end(self) -> str:
        """What is left to give out at the end."""
        text, self._held_thought, self._held_text = self._held_thought + self._held_text, '', ''
        return self._give(text) if text.strip() else ''

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
