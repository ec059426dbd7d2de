# SPDX-License-Identifier: Apache-2.0
"""The tools of a scene by their names, as models and assistants call them.

Schemas come from the functions: types from their hints, words from their docstrings. Where the
description of an argument begins with a quoted word, its quoted words are all that it may be.
"""

from __future__ import annotations

from functools import cache
import inspect
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.tools import Scene

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from embodied_r_ros.core.scene.tools import Result

TOOLS: dict[str, Callable[..., Result]] = {
    tool.__name__: tool
    for tool in (
        Scene.things, Scene.count, Scene.where, Scene.distance, Scene.nearest, Scene.size,
        Scene.floor_area, Scene.seen, Scene.order, Scene.motion, Scene.moves, Scene.visited,
        Scene.way_to, Scene.beside, Scene.duration, Scene.happened, Scene.raised,
        Scene.changed,
    )
}  # fmt: skip
_TYPES: dict[str, dict[str, Any]] = {  # of hints
    'str': {'type': 'string'},
    'float | None': {'type': 'number'},
    'Sequence[str]': {'type': 'array', 'items': {'type': 'string'}},
}
_ARGUMENT = re.compile(r'^ {4}(\w+): (.*(?:\n {8}.*)*)', re.MULTILINE)


def tool_schemas() -> list[dict[str, Any]]:
    """The tools as the OpenAI protocol lists functions."""
    return [{'type': 'function', 'function': schema_of(tool)} for tool in TOOLS.values()]


@cache
def schema_of(function: Callable[..., Any]) -> dict[str, Any]:
    """Name, description and JSON schema of a method."""
    text, _, arguments = (inspect.getdoc(function) or '').partition('\n\nArgs:\n')
    described = {match[1]: ' '.join(match[2].split()) for match in _ARGUMENT.finditer(arguments)}
    properties: dict[str, Any] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        if name == 'self':
            continue
        value = {**_TYPES[parameter.annotation], 'description': described[name]}
        default = parameter.default
        if described[name].startswith("'"):
            quoted = re.findall("'([^']*)'", described[name])
            value['enum'] = quoted if default in (*quoted, parameter.empty) else [*quoted, default]
        if default is not parameter.empty:
            value['default'] = list(default) if isinstance(default, tuple) else default
        properties[name] = value
    parameters = {
        'type': 'object',
        'properties': properties,
        'required': [name for name, value in properties.items() if 'default' not in value],
        'additionalProperties': False,
    }
    return {'name': function.__name__, 'description': text, 'parameters': parameters}


def call_tool(scene: Scene, name: str, arguments: Mapping[str, Any]) -> Result:
    """Call a tool by its name.

    Raises:
        InputError: There is no such tool, or it does not take these arguments.
    """
    if name not in TOOLS:
        msg = f'there is no tool {name!r}: expected one of {", ".join(TOOLS)}'
        raise InputError(msg)
    parameters = schema_of(TOOLS[name])['parameters']
    properties, required = parameters['properties'], parameters['required']
    for key in (*arguments, *required):
        if key not in properties:
            msg = f'{name} takes no {key!r}: expected {", ".join(properties) or "no argument"}'
            raise InputError(msg)
        if problem := _problem(arguments.get(key), properties[key]):
            given = f'is {arguments[key]!r}' if key in arguments else 'is missing'
            what = properties[key]['description']
            msg = f'{name}: {key} {given}: expected {problem} ({what})'
            raise InputError(msg)
    return TOOLS[name](scene, **arguments)


def _problem(value: Any, schema: Mapping[str, Any]) -> str:
    """What was expected instead of a value; empty: it is that."""
    if schema['type'] == 'array':
        is_list = isinstance(value, list | tuple)
        fits = is_list and all(isinstance(each, str) and each.strip() for each in value)
        return '' if fits else 'a list of texts'
    if 'enum' in schema:
        return '' if value in schema['enum'] else f'one of {schema["enum"]}'
    is_text = isinstance(value, str) and (value.strip() or value == schema.get('default'))
    return '' if is_text else 'a text'
