# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from embodied_r_ros.core.types.answers import Answer, AnswerKind, ToolCall
import pytest

CHAIR = ToolCall('where', ('chair',), '30.0', '°', 'On the left.', (7, 3), (2, 4), (3, 5), (9, 8))
LAMP = ToolCall('things', (), '["lamp"]', landmark_ids=(3,), observations=(1,), stamps_ns=(2**62,))


def test_an_answer_rests_on_what_all_its_calls_rest_on() -> None:
    answer = Answer('a', 'Where?', AnswerKind.TEXT, calls=(CHAIR, LAMP))
    assert answer.evidence() == {
        'landmarks': [3, 7],
        'keyframes': [2, 4],
        'observations': [1, 3, 5],
        'stamps_ns': ['8', '9', str(2**62)],  # a browser would round the number
    }


@pytest.mark.parametrize(
    ('text', 'value'),
    [
        ('2.5', 2.5),
        ('["lamp", "chair"]', ['lamp', 'chair']),
        ('false', False),
        ('', None),
        ('NaN', 'NaN'),
        ('[1,', '[1,'),
        ('[' * 100_000, '[' * 100_000),
    ],
)
def test_a_value_of_a_call_is_json_or_stays_text(text: str, value: object) -> None:
    values = ToolCall('count', ('lamp',), text).to_json()
    assert values['value'] == value
    json.dumps(values, allow_nan=False)
