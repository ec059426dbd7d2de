# SPDX-License-Identifier: Apache-2.0
"""The file format of open questions: what people may write into it, and what is refused."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from hypothesis import given
from hypothesis import strategies as st
import pytest

from training.robot_bench.items import BenchItem, GivenAnswer, read_items, write_items

if TYPE_CHECKING:
    from pathlib import Path

DELTA = {'stamp_ns': 5, 'action': '', 'change': 'A red block ahead.', 'items': []}

LOOK = {'keyframe_id': 1, 'stamp_ns': 5, 'text': 'On the table: a cup.', 'camera': 'front'}


def item_json(**more: Any) -> dict[str, Any]:
    """An item as somebody would write it."""
    return {
        'id': 'cup-1',
        'question_type': 'spatial',
        'question': 'Where is the cup?',
        'reference': 'Left of the plate.',
        'scene': 'A cup is left of a plate.',
        **more,
    }


def read(tmp_path: Path, *values: dict[str, Any]) -> list[BenchItem]:
    path = tmp_path / 'set.jsonl'
    path.write_text('\n'.join(json.dumps(value) for value in values) + '\n\n')
    return read_items(path)


def test_a_set_by_people_tells_what_was_seen_in_any_of_four_ways(tmp_path: Path) -> None:
    text, image, bag, deltas = read(
        tmp_path,
        item_json(),
        item_json(id='2', scene='', image='pictures/2.png'),
        item_json(id='3', scene='', bag='bags/a', stamp_ns=17, topic='/front'),
        item_json(id='4', scene='', deltas=[DELTA]),
    )
    assert [delta.change for delta in text.deltas_in_order()] == ['A cup is left of a plate.']
    assert [delta.change for delta in deltas.deltas_in_order()] == ['A red block ahead.']
    assert (image.has_text(), image.image) == (False, str(tmp_path / 'pictures' / '2.png'))
    assert (bag.bag, bag.stamp_ns, bag.topic) == (str(tmp_path / 'bags' / 'a'), 17, '/front')
    # Items of one image or bag are not independent.
    scenes = [item.scene_id for item in (text, image, bag, deltas)]
    assert scenes == ['cup-1', 'pictures/2.png', 'bags/a', '4']


def test_answers_with_the_scores_of_people_come_along(tmp_path: Path) -> None:
    answers = [{'answer': 'Left.', 'by': 'ann', 'scores': [3, 2.5]}, {'answer': 'Right.'}]
    [item] = read(tmp_path, item_json(answers=answers))
    assert item.answers == (GivenAnswer('Left.', 'ann', (3.0, 2.5)), GivenAnswer('Right.'))


def test_what_is_written_is_read_again_elsewhere(tmp_path: Path) -> None:
    items = read(
        tmp_path,
        item_json(scene='A cup.\u2028And a "plate" \u201cö\u201d.', answers=[{'answer': 'Left.'}]),
        item_json(id='2', scene='', image='2.png', meta={'by': 'ann'}),
    )
    other = tmp_path / 'deeper' / 'set.jsonl'
    assert write_items(other, items) == 2
    assert json.loads(other.read_text().splitlines()[-1])['image'] == '../2.png'
    [first, second] = read_items(other)
    assert (first, second.image) == (items[0], str(tmp_path / 'deeper' / '..' / '2.png'))


@pytest.mark.parametrize(
    ('more', 'why'),
    [
        ({'reference': ' '}, 'it lacks reference'),
        ({'refernce': 'x'}, 'it has refernce: expected some of id, '),
        ({'question_type': 'plan'}, "question_type is 'plan', expected one of planning, "),
        ({'scene': ''}, 'nothing was seen: give image, bag with stamp_ns, scene, or deltas'),
        ({'scene': 'A cup.', 'deltas': [DELTA]}, 'a scene and deltas'),
        ({'image': 'a.png', 'bag': 'b', 'stamp_ns': 3}, 'an image and a bag'),
        ({'bag': 'b'}, 'stamp_ns is 0: expected which image'),
        ({'stamp_ns': 1.5}, 'stamp_ns is 1.5, expected integer nanoseconds'),
        ({'scene': '', 'deltas': [{'stamp_ns': 1}]}, 'is unreadable'),
        ({'task': ['a']}, r"task is \['a'\], expected a str"),
        ({'answers': [{'answer': ''}]}, 'expected texts, and scores'),
        ({'answers': [{'answer': 'a', 'scores': [4]}]}, 'scores from 0 to 3'),
        ({'answers': [{'answer': 'a', 'scores': [True]}]}, 'scores from 0 to 3'),
        ({'answers': [{'score': 1}]}, 'expected answer, and perhaps by and scores'),
        ({'meta': {'by': '\ud800'}}, 'half of a character'),
        ({'focus': [LOOK]}, 'it has focus without deltas'),
        ({'scene': '', 'deltas': [DELTA], 'focus': [{'text': 'On the table.'}]}, 'not readable'),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_line(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read(tmp_path, item_json(), item_json(id='b', **more))
    assert str(caught.value).startswith(f'{tmp_path}/set.jsonl:2: ')


def test_ids_that_come_twice_and_files_without_items_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"set\.jsonl:2: id 'cup-1' comes twice"):
        read(tmp_path, item_json(), item_json())
    with pytest.raises(InputError, match='has no items'):
        read(tmp_path)
    with pytest.raises(InputError, match='cannot be read'):
        read_items(tmp_path / 'nothing.jsonl')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(st.dictionaries(st.sampled_from(sorted(BenchItem.__dataclass_fields__)), JSON))
def test_any_json_is_an_item_or_refused(more: dict[str, Any]) -> None:
    try:
        item = BenchItem.of({**item_json(), **more})
    except InputError:
        return
    assert BenchItem.of(json.loads(item.to_json())) == item
