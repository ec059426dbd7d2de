# SPDX-License-Identifier: Apache-2.0
"""The tools of a scene as models see and call them."""

from __future__ import annotations

import json
from typing import Any

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.registry import call_tool, tool_schemas, TOOLS
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
import pytest

PLACE = SceneMap(
    (Landmark('chair', (2.0, 0.0, 0.5), size=(0.5, 0.5, 0.9)), Landmark('table', (0.0, 3.0, 0.4))),
    (PathPoint(0, (0.0, 0.0, 0.5), 0.0), PathPoint(10**9, (0.5, 0.0, 0.5), 0.1)),
)


def parameters(name: str) -> dict[str, Any]:
    (schema,) = [s['function'] for s in tool_schemas() if s['function']['name'] == name]
    return dict(schema['parameters'])


def test_schemas_have_what_a_model_must_know() -> None:
    schemas = json.loads(json.dumps(tool_schemas()))
    assert [schema['function']['name'] for schema in schemas] == list(TOOLS)
    for schema in schemas:
        assert schema['type'] == 'function'
        assert schema['function']['description']
        assert all(
            p['description'] for p in schema['function']['parameters']['properties'].values()
        )
    assert parameters('distance')['required'] == ['a']
    assert parameters('nearest')['properties']['among'] == {
        'type': 'array', 'items': {'type': 'string'}, 'default': [],
        'description': 'The things that are compared; none: all others.',
    }  # fmt: skip


def test_values_that_are_chosen_are_those_that_the_tools_know() -> None:
    choices = {
        (name, key): value['enum']
        for name in TOOLS
        for key, value in parameters(name)['properties'].items()
        if 'enum' in value
    }
    assert set(choices) == {
        ('things', 'scope'), ('distance', 'unit'), ('nearest', 'farthest'), ('size', 'dimension'),
        ('size', 'unit'), ('floor_area', 'unit'), ('seen', 'sight'), ('motion', 'what'),
        ('moves', 'what'), ('moves', 'which'), ('happened', 'what'), ('changed', 'what'),
    }  # fmt: skip
    for (name, key), values in choices.items():
        required = dict.fromkeys(parameters(name)['required'], 'chair')
        for value in values:
            call_tool(Scene(place=PLACE), name, {**required, key: value})


@pytest.mark.parametrize('scene', [Scene(), Scene(place=PLACE)])
@pytest.mark.parametrize('name', TOOLS)
def test_every_tool_answers_or_says_why_not(name: str, scene: Scene) -> None:
    needed = dict.fromkeys(parameters(name)['required'], 'chair')
    result = call_tool(scene, name, needed)
    assert result.text
    assert json.loads(json.dumps(result.to_json()))['tool'] == name


def test_a_call_is_the_tool() -> None:
    result = call_tool(Scene(place=PLACE), 'distance', {'a': 'chair', 'unit': 'cm'})
    assert result == Scene(place=PLACE).distance('chair', unit='cm')
    assert 'no thing was named' in call_tool(
        Scene(place=PLACE), 'way_to', {'goal': 'chair', 'start': 'table'}
    ).text.lower()  # fmt: skip


@pytest.mark.parametrize(
    ('name', 'arguments', 'message'),
    [
        ('fly', {}, "there is no tool 'fly': expected one of things, count"),
        ('count', {}, "count: name is missing: expected a text (Their name, such as 'chairs'.)"),
        ('count', {'name': ' '}, "count: name is ' ': expected a text"),
        ('count', {'label': 'chair'}, "count takes no 'label': expected name"),
        ('moves', {'name': 'chair'}, "moves takes no 'name': expected what, which"),
        ('where', {'name': 'chair', 'at': ''}, "where: at is '': expected a text"),
        ('where', {'name': 3}, 'where: name is 3: expected a text'),
        ('nearest', {'among': 'chair'}, "nearest: among is 'chair': expected a list of texts"),
        ('nearest', {'among': ['chair', '']}, 'expected a list of texts'),
        ('nearest', {'farthest': 'no'}, "farthest is 'no': expected one of ['yes', '']"),
        ('size', {'name': 'chair', 'unit': 'metre'}, "expected one of ['cm', 'm', 'ft', 'in']"),
    ],
)
def test_wrong_calls_are_refused(name: str, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as refusal:
        call_tool(Scene(place=PLACE), name, arguments)
    assert message in str(refusal.value)
    assert '\n' not in str(refusal.value)
