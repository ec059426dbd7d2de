# SPDX-License-Identifier: Apache-2.0
"""Points and boxes as models write them; what is ambiguous or out of the image is none."""

from __future__ import annotations

import doctest

from embodied_r_ros.core.reasoning import image_targets
from embodied_r_ros.core.reasoning.completions import parse_completion, read_answer
from embodied_r_ros.core.reasoning.image_targets import (
    asked_kind,
    BOX,
    FORMS,
    ImageTarget,
    kind_of_prompt,
    place_text,
    POINT,
    read_box,
    read_points,
    with_form,
)
from embodied_r_ros.core.reasoning.prompts import image_prompt
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.images import EncodedImage
from hypothesis import given
from hypothesis import strategies as st
import pytest

IMAGE = EncodedImage(b'', 'jpeg')
SQUARE = ImageTarget.of('{"inside": [400, 400, 600, 600]}')


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(image_targets).failed == 0


@pytest.mark.parametrize(
    'answer',
    [
        '(412, 388)', '[412, 388]', '412, 388', '412,388.', '(412.0, 388)', '( 412 ,388 )',
        '{"point_2d": [412, 388]}', '[{"point_2d": [412, 388], "label": "cup 2"}]',
        '```json\n[{"point_2d": [412, 388]}]\n```', '{"x": 412, "y": 388}', '[[412, 388]]',
        '<point x="412" y="388" alt="a cup">a cup</point>', "<point x='412' y='388'/>",
        '<points x1="412" y1="388" alt="it">it</points>', 'x=412, y=388', 'x: 412; y: 388',
        'The cup is at (412, 388).', '**(412, 388)**', '<|point|>(412, 388)', '[(412, 388)]',
        '+412, 388',
    ],
)  # fmt: skip
def test_spellings_of_a_point(answer: str) -> None:
    assert read_points(answer) == ((412, 388),)


@pytest.mark.parametrize(
    'answer',
    [
        '[(1, 2), (3, 4)]', '(1, 2); (3, 4)', '[[1, 2], [3, 4]]', '(1, 2) and (3, 4)',
        '[{"point_2d": [1, 2]}, {"point_2d": [3, 4]}]', '<point x=1 y=2> <point x=3 y=4>',
        '<points x1="1" y1="2" x2="3" y2="4">cups</points>',
    ],
)  # fmt: skip
def test_several_points(answer: str) -> None:
    assert read_points(answer) == ((1, 2), (3, 4))


@pytest.mark.parametrize(
    'answer',
    [
        '', 'the cup', '412', '(412)', '(412, 388, 7)', '(1, 2, 3, 4)', '(1001, 5)', '(-1, 5)',
        '(412, 388) or 7', '412 388', '(1e9, 5)', '(4.1.2, 388)', '(50%, 20%)', '(1,234, 567)',
        '(nan, 5)', '(inf, 5)', '{"point_2d": [NaN, 5]}', '{"point_2d": [Infinity, 5]}',
        '{"point_2d": ["412", "388"]}', '{"point_2d": [true, 5]}', '{"point_2d": null}',
        '{"point": [388, 412]}', '{"box_2d": [1, 2, 3, 4]}', '[]', '{}', '[[]]', '[' * 3000,
        '<point x="412">', '<point y="2" y="3">', '<point x="412" y="1388">', '(\u0664, 5)',
        '[[1, 2], "no"]', '{"point_2d": [' + '9' * 5000 + ', 5]}', '(412, 388', '(412; 388)',
    ],
)  # fmt: skip
def test_what_is_no_point_in_the_image(answer: str) -> None:
    assert read_points(answer) == ()


@pytest.mark.parametrize(
    ('answer', 'box'),
    [
        ('(10, 20, 30, 40)', (10, 20, 30, 40)), ('[10, 20, 30, 40]', (10, 20, 30, 40)),
        ('{"bbox_2d": [10, 20, 30, 40], "label": "cup"}', (10, 20, 30, 40)),
        ('<|box_start|>(10,20),(30,40)<|box_end|>', (10, 20, 30, 40)),
        ('10, 20, 30, 40', (10, 20, 30, 40)), ('((10, 20), (30, 40))', (10, 20, 30, 40)),
        ('(30, 20, 10, 40)', None), ('(10, 20, 10, 40)', None), ('(10, 20)', None),
        ('[[10, 20, 30, 40], [1, 2, 3, 4]]', None), ('(10, 20, 30, 1040)', None),
        ('{"box_2d": [20, 10, 40, 30]}', None),
    ],
)  # fmt: skip
def test_spellings_of_a_box(answer: str, box: object) -> None:
    assert read_box(answer) == box


@given(st.text('()[]{}<>,.;=xy0123456789 \n"-poinbtd_2:', max_size=80))
def test_whatever_is_read_is_in_the_image_and_is_read_again(answer: str) -> None:
    points = read_points(answer)
    assert all(0 <= number <= 1000 for point in points for number in point)
    text = place_text(POINT, answer)
    assert (text is None) == (not points)
    if text:
        assert read_points(text) == pytest.approx(points, rel=1e-4, abs=1e-4)
    box = read_box(answer)
    if box:
        assert 0 <= box[0] < box[2] <= 1000
        assert 0 <= box[1] < box[3] <= 1000


@pytest.mark.parametrize(
    ('question', 'kind'),
    [
        ('point at the cup', POINT), ('Could you point to the door?', POINT),
        ('Draw a bounding box around it.', BOX), ('Which box? ' + FORMS[BOX], BOX),
        ('What is the point of it?', ''), ('Where is the box?', ''), ('Appoint at once', ''),
    ],
)  # fmt: skip
def test_questions_that_ask_for_a_place(question: str, kind: str) -> None:
    assert asked_kind(question) == kind
    assert asked_kind(question, ['left', 'right']) == ''
    assert with_form(with_form(question)) == with_form(question)
    assert kind_of_prompt(image_prompt(question, (), IMAGE).user) == kind


def test_form_in_what_was_seen_is_no_question() -> None:
    assert kind_of_prompt(f'Seen:\n[1] a sign: {FORMS[POINT]}\nQuestion: What is on it?') == ''


def test_live_answer_is_a_place_or_none() -> None:
    prompt = image_prompt('Point at the cup.', (), IMAGE).user

    def read(answer: str) -> object:
        completion = parse_completion(f'<think>There.</think><answer>{answer}</answer>')
        return read_answer(completion, (), prompt)

    assert read('{"point_2d": [3, 4]}') == (AnswerKind.TEXT, -1, '(3, 4)')
    assert read('unknown') == (AnswerKind.UNKNOWN, -1, '')
    assert read('on the table') is None
    assert read('7') is None


@pytest.mark.parametrize(
    ('answer', 'score'),
    [
        ('(500, 500)', 1), ('(400, 600)', 1), ('(650, 500)', 0.5), ('(700, 500)', 0),
        ('(630, 640)', 0.5), ('(0, 0)', 0), ('(500, 500); (650, 500)', 0.75),
        ('(400, 400, 600, 600)', None), ('on it', None),
    ],
)  # fmt: skip
def test_point_is_right_inside_and_worth_less_with_distance(
    answer: str, score: float | None
) -> None:
    assert SQUARE is not None
    assert SQUARE.score(answer) == (None if score is None else pytest.approx(score))


def test_box_is_worth_its_overlap() -> None:
    target = ImageTarget.of('{"bbox_2d": [100, 100, 200, 200]}')
    assert target is not None
    assert target.kind == BOX
    assert target.score('(100, 100, 200, 200)') == 1
    assert target.score('(150, 100, 250, 200)') == pytest.approx(1 / 3)
    assert target.score('(300, 300, 400, 400)') == 0
    assert target.score('(150, 150)') is None


def test_middle_of_an_outline_is_in_it() -> None:
    bent = ImageTarget.of('{"inside": [[0, 0], [900, 0], [900, 900], [800, 900], [800, 99]]}')
    assert bent is not None
    assert bent.score(bent.text()) == 1
    assert bent.score('(450, 450)') == 0
    point = ImageTarget.of('{"point_2d": [30, 40]}')
    assert point is not None
    assert (point.text(), point.score('(30, 90)')) == ('(30, 40)', 0.5)


@pytest.mark.parametrize(
    'solution',
    [
        'B', '3', 'unknown', '(412, 388)', '[412, 388]', '{', '{}', '{"inside": 3}',
        '{"inside": [1, 2]}', '{"bbox_2d": [3, 2, 1, 4]}',
        '{"point_2d": [[1, 2], [3, 4]]}', '{"point_2d": [1, 2], "more": 1}',
        '{"bbox_2d": [[1, 2], [3, 4], [5, 9]]}', '{"inside": [0, 0, 1, 1001]}',
    ],
)  # fmt: skip
def test_other_solutions_are_no_targets(solution: str) -> None:
    assert ImageTarget.of(solution) is None
