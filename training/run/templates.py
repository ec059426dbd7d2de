# SPDX-License-Identifier: Apache-2.0
"""Chat templates of models in folders, and what they make of a prompt.

As for servers (`embodied_r_ros.core.chat.connection`): where a template has no system role, that
text stands before the user's.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.chat.connection import SYSTEM_GAP
from jinja2 import TemplateError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from datasets import Dataset

    Messages = Sequence[dict[str, Any]]

_PROBE = 'Be brief.'
_OPEN = '<think>'


def render(reader: Any, messages: Messages) -> str:
    """The text that a model reads of messages, up to where its reply begins.

    Args:
        reader: The model's tokenizer or processor.
        messages: System, user and so on; content is a text, or a list of typed parts.

    Raises:
        InputError: It has no chat template, or one that fails.
    """
    return _rendered(reader, fit_messages(reader, messages))


def fit_messages(reader: Any, messages: Messages) -> list[dict[str, Any]]:
    """Messages as the template of a model takes them.

    Raises:
        InputError: It has no chat template, or one that fails.
    """
    system = [message for message in messages if message['role'] == 'system']
    if not system or _takes_system(reader, in_parts=isinstance(system[0]['content'], list)):
        return list(messages)
    head = SYSTEM_GAP.join(_text(message['content']) for message in system)
    first, *rest = (message for message in messages if message['role'] != 'system')
    content = first['content']
    if isinstance(content, str):
        return [{**first, 'content': f'{head}{SYSTEM_GAP}{content}'}, *rest]
    return [{**first, 'content': [_part(f'{head}{SYSTEM_GAP}'), *content]}, *rest]


def fit_examples(dataset: Dataset, reader: Any) -> Dataset:
    """Examples of prompt and completion as supervised training takes them.

    Where a template ends the prompt inside the thought, or takes thoughts out of replies, prompts
    and completions become texts: a template must not change what is learned.

    Raises:
        InputError: The model has no chat template, or one that fails.
    """
    if not len(dataset):
        return dataset
    changes = ['prompt']
    if 'image' not in dataset.column_names and not keeps_thoughts(reader):
        changes = ['prompt', 'completion']
    elif fit_messages(reader, dataset[0]['prompt']) == dataset[0]['prompt']:
        return dataset

    def change(row: dict[str, Any]) -> dict[str, Any]:
        if len(changes) == 1:
            return {'prompt': fit_messages(reader, row['prompt'])}
        return _texts(reader, row)

    return dataset.map(change, remove_columns=changes, load_from_cache_file=False)


def keeps_thoughts(reader: Any) -> bool:
    """Tell whether a template leaves a reply as it is, behind the text of its prompt.

    Raises:
        InputError: The model has no chat template, or one that fails.
    """
    reply = f'{_OPEN}So it is.</think><answer>A</answer>'
    messages = [{'role': 'user', 'content': _PROBE}]
    prompt = _rendered(reader, messages)
    answer = {'role': 'assistant', 'content': reply}
    whole = _rendered(reader, [*messages, answer], add_generation_prompt=False)
    return whole.startswith(prompt + reply)


def _texts(reader: Any, row: dict[str, Any]) -> dict[str, str]:
    prompt = render(reader, row['prompt'])
    text = str(row['completion'][0]['content'])
    if prompt.rstrip().endswith(_OPEN):
        text = text.removeprefix(_OPEN)
    # The trainer adds the end of the reply, and a tokenizer the beginning of a text.
    start = getattr(reader, 'bos_token', None)
    if start and reader('')['input_ids'][:1] == [reader.bos_token_id]:
        prompt = prompt.removeprefix(start)
    return {'prompt': prompt, 'completion': text}


def _takes_system(reader: Any, *, in_parts: bool) -> bool:
    """Tell whether a template has a system role: it neither fails nor leaves the text out."""
    messages: list[dict[str, Any]] = [
        {'role': role, 'content': [_part(text)] if in_parts else text}
        for role, text in (('system', _PROBE), ('user', 'Where?'))
    ]
    try:
        return _PROBE in _rendered(reader, messages)
    except InputError:
        _rendered(reader, messages[1:])  # where this fails too, it is not for the system role
        return False


def _rendered(reader: Any, messages: Messages, *, add_generation_prompt: bool = True) -> str:
    name = getattr(reader, 'name_or_path', '') or 'the model'
    if not getattr(reader, 'chat_template', None):
        msg = (
            f'the tokenizer of {name} has no chat template: take a model that was tuned to '
            'instructions, or save one beside it as chat_template.jinja'
        )
        raise InputError(msg)
    try:
        text: str = reader.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=add_generation_prompt
        )
    except (TemplateError, ValueError, TypeError, KeyError) as error:
        why = ' '.join(str(error).split())
        msg = f'the chat template of {name} fails: {why}'
        raise InputError(msg) from None
    return text


def _part(text: str) -> dict[str, str]:
    return {'type': 'text', 'text': text}


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return ''.join(part.get('text', '') for part in content)
