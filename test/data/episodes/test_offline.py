# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

from embodied_r_ros.core.types.answers import Answer, AnswerKind, Check, ToolCall
from embodied_r_ros.data.episodes.offline import answer_to_json


def test_an_answer_as_json_has_its_sentence_its_check_and_what_it_rests_on() -> None:
    call = ToolCall(
        'distance', ('robot', 'chair'), '2.5', 'm', 'It is 2.5 m away.', (3,), (2,), (3,)
    )
    answer = Answer(
        'a', 'How far is the chair?', AnswerKind.NUMBER,
        text='2.5', number=2.5, sentence='The chair is 2.5 m away [3].', unit='m',
        check=Check.VERIFIED, check_reason='the tool says so', calls=(call,),
    )  # fmt: skip
    values = json.loads(json.dumps(answer_to_json(answer), allow_nan=False))
    assert {name: values[name] for name in ('answer', 'number', 'unit', 'text')} == {
        'answer': '2.5',
        'number': 2.5,
        'unit': 'm',
        'text': 'The chair is 2.5 m away [3].',
    }
    assert (values['check'], values['check_reason']) == ('verified', 'the tool says so')
    assert values['calls'] == [call.to_json()]
    assert values['evidence'] == {
        'landmarks': [3], 'keyframes': [2], 'observations': [3], 'stamps_ns': [],
    }  # fmt: skip


def test_an_answer_without_a_tool_is_unchecked() -> None:
    values = answer_to_json(Answer('a', 'Why?', AnswerKind.UNKNOWN))
    assert (values['answer'], values['check'], values['calls']) == ('unknown', 'unchecked', [])
    assert values['evidence'] == {
        'landmarks': [], 'keyframes': [], 'observations': [], 'stamps_ns': [],
    }  # fmt: skip
