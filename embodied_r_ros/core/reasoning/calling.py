# SPDX-License-Identifier: Apache-2.0
"""Calls of the scene's tools that a large model asks for by the OpenAI protocol.

What is wrong with a call is its result, so that the model may mend it.
"""

from __future__ import annotations

from dataclasses import replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.untrusted import as_data, as_label, as_seen
from embodied_r_ros.core.chat.protocol import call_arguments
from embodied_r_ros.core.reasoning.calls import read_calls
from embodied_r_ros.core.reasoning.prompts import MOST_CALLS
from embodied_r_ros.core.reasoning.reading import Call
from embodied_r_ros.core.reasoning.saying import answer_readings, call_of, cited
from embodied_r_ros.core.scene.registry import call_tool, schema_of, TOOLS
from embodied_r_ros.core.types.answers import ToolCall

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.chat.protocol import FunctionCall
    from embodied_r_ros.core.reasoning.saying import ToolAnswer
    from embodied_r_ros.core.scene.tools import Result, Scene

_MOST_CHARS = 2000  # of the arguments of a call
_ERROR_CHARS = 300


def run_calls(
    scene: Scene, asked: Sequence[FunctionCall], before: Sequence[ToolCall], turn: int
) -> list[ToolCall]:
    """Run the calls of one turn in their order.

    Args:
        scene: What is known.
        asked: The calls.
        before: Those of the turns before, which count among the calls that a model may make.
        turn: The turn, from 1.
    """
    left = max(0, MOST_CALLS - len(before))
    return [_run(scene, call, turn, is_left=n < left) for n, call in enumerate(asked)]


def _run(scene: Scene, asked: FunctionCall, turn: int, *, is_left: bool) -> ToolCall:
    try:
        result = _result(scene, asked, is_left=is_left)
    except InputError as error:
        text = as_data(str(error))[:_ERROR_CHARS]
        call, reply = ToolCall(as_label(asked.name), text=text), {'error': text}
    else:
        call, value = call_of(result), result.to_json()
        more = {key: value[key] for key in ('unit', 'landmarks') if value[key]}
        reply = {'text': cited(result), 'value': value['value'], **more}
    told = as_seen(json.dumps(reply, ensure_ascii=False))
    return replace(call, turn=turn, request_id=asked.id, request=asked.arguments, reply=told)


def _result(scene: Scene, asked: FunctionCall, *, is_left: bool) -> Result:
    """What a call computes.

    Raises:
        InputError: There is no such tool, it takes other arguments, or no call is left.
    """
    if not is_left:
        msg = f'{MOST_CALLS} calls were made, and no more are: answer now'
        raise InputError(msg)
    is_short = len(asked.arguments) <= _MOST_CHARS
    arguments = call_arguments(asked.arguments) if is_short else None
    if arguments is None:
        msg = f'the arguments are {asked.arguments[:80]!r}: expected an object of JSON, such as '
        msg += f'{{"name": "chair"}}, of at most {_MOST_CHARS} characters'
        raise InputError(msg)
    return call_tool(scene, asked.name, arguments)


def is_repeated(calls: Sequence[ToolCall], before: Sequence[ToolCall]) -> bool:
    """Tell whether all calls were made before, with the same arguments: a loop."""
    known = {(call.tool, call.request) for call in before}
    return all((call.tool, call.request) in known for call in calls)


def answer_by_calls(
    question: str, options: Sequence[str], scene: Scene, calls: Sequence[ToolCall]
) -> ToolAnswer | None:
    """What the last calls that gave something answer to a question; None: none did.

    It is unknown where they are not what the question asks for.
    """
    turns = [call.turn for call in calls if call.turn and call.value]
    last = [call for call in calls if turns and call.turn == turns[-1] and call.value]
    read = [Call(call.tool, _all_arguments(call)) for call in last]
    readings = read_calls(question, options, scene.labels, read) if read else ()
    return answer_readings(readings, options, scene) if readings else None


def _all_arguments(call: ToolCall) -> dict[str, Any]:
    """The arguments of a call that have a value, in the order of the tool's own."""
    given = call_arguments(call.request) or {}
    properties = schema_of(TOOLS[call.tool])['parameters']['properties']
    values = {key: given.get(key, value.get('default')) for key, value in properties.items()}
    return {key: value for key, value in values.items() if value}
