# SPDX-License-Identifier: Apache-2.0
"""Events of calls of tools, as the parsers of vLLM and llama.cpp stream them."""

from __future__ import annotations

import json
from typing import Any

from test.chat_server import Script


def script(*deltas: dict[str, Any], finish: str = 'tool_calls', **more: Any) -> Script:
    """A reply of these deltas, and of how it ends."""
    choices: list[dict[str, Any]] = [
        {'index': 0, 'delta': delta, 'finish_reason': None} for delta in deltas
    ]
    choices.append({'index': 0, 'delta': {}, 'finish_reason': finish})
    events = [{'model': 'scripted', 'choices': [choice]} for choice in choices]
    lines = [f'data: {json.dumps(event)}\n' for event in events]
    return Script(raw=(*lines, 'data: [DONE]\n'), **more)


def of_vllm(*calls: tuple[str, str], first: int = 1) -> list[dict[str, Any]]:
    """Calls in pieces: id and name first, then the arguments, five characters at a time."""
    deltas: list[dict[str, Any]] = [{'role': 'assistant', 'content': ''}]
    for index, (name, arguments) in enumerate(calls):
        own_id = f'chatcmpl-tool-{first + index}'
        head = {'id': own_id, 'type': 'function', 'index': index, 'function': {'name': name}}
        deltas.append({'tool_calls': [head]})
        for start in range(0, len(arguments), 5):
            piece = {'arguments': arguments[start : start + 5]}
            deltas.append({'tool_calls': [{'index': index, 'function': piece}]})
    return deltas


def of_llama(*calls: tuple[str, str]) -> list[dict[str, Any]]:
    """Whole calls, all in one piece."""
    whole = [
        {
            'index': index,
            'id': f'{index}llama',
            'type': 'function',
            'function': {'name': name, 'arguments': arguments},
        }
        for index, (name, arguments) in enumerate(calls)
    ]
    return [{'role': 'assistant', 'content': None}, {'tool_calls': whole}]
