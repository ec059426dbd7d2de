# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import doctest

from embodied_r_ros.core.reasoning import completions, quantities
from embodied_r_ros.core.reasoning.completions import (
    choice_index,
    is_unknown,
    number_in,
    parse_completion,
)
from embodied_r_ros.core.reasoning.prompts import build_prompt
from embodied_r_ros.core.scene.memory import MemoryConfig
from hypothesis import given
from hypothesis import strategies as st
import pytest

OPTIONS = ['left', 'right', 'a chair', 'behind']


def test_examples_in_docstrings_hold() -> None:
    assert doctest.testmod(completions).failed == 0
    assert doctest.testmod(quantities).failed == 0


def test_well_formed_completion_is_read() -> None:
    read = parse_completion('<think> turned left </think>\n<answer> B </answer>')
    assert (read.think, read.answer, read.well_formed) == ('turned left', 'B', True)


@pytest.mark.parametrize(
    'think',
    ['see e.g. the chair', 'i.e. the back', 'I answer based on it', 'Option A. is wrong', 'C. C'],
)
def test_letters_in_the_reasoning_are_not_the_answer(think: str) -> None:
    read = parse_completion(f'<think>{think}</think><answer>D</answer>')
    assert read.answer == 'D'
    assert choice_index(read.answer, OPTIONS) == 3


@pytest.mark.parametrize(
    ('text', 'answer'),
    [
        ('<think>x</think><answer>B</answer> and so on', 'B'),  # text after the answer
        ('I think so. <think>x</think><answer>B</answer>', 'B'),  # text before
        ('<answer>B</answer>', 'B'),  # no reasoning
        ('<think>x</think><answer>B', 'B'),  # not closed
        ('<think>x</think><answer>A</answer><answer>B</answer>', None),  # which one?
        ('<think><answer>A</answer></think><answer>B</answer>', None),
        ('', None),
        ('B', None),
    ],
)
def test_broken_format_is_told_apart_from_no_answer(text: str, answer: str | None) -> None:
    read = parse_completion(text)
    assert (read.answer, read.well_formed) == (answer, False)


@pytest.mark.parametrize(
    'text',
    [
        'turned left</think><answer>B</answer>',  # the prompt ended with the tag
        '\n turned left\n</think>\n\n<answer>B</answer>',
        '<think>\n\n</think>\n\n<think>turned left</think><answer>B</answer>',
        '</think><think>turned left</think><answer>B</answer>',
    ],
)
def test_thought_is_one_where_the_template_writes_a_tag(text: str) -> None:
    read = parse_completion(text)
    assert (read.think, read.answer, read.well_formed) == ('turned left', 'B', True)
    assert read.text == text


def test_two_thoughts_are_not_the_format() -> None:
    read = parse_completion('<think>x</think><think>y</think><answer>B</answer>')
    assert (read.answer, read.well_formed) == ('B', False)


def test_empty_answer_has_the_format_and_cannot_be_graded() -> None:
    read = parse_completion('<think>x</think><answer> </answer>')
    assert (read.answer, read.well_formed) == (None, True)


def test_format_ignores_content() -> None:
    assert parse_completion('<think></think><answer>none of them</answer>').well_formed


@pytest.mark.parametrize(
    ('answer', 'index'),
    [
        ('B', 1), ('b', 1), ('[[B]]', 1), (' B ', 1), ('right', 1), ('a chair', 2),
        ('E', None), ('Based on it', None), ('chair', None), ('AB', None),
        ('B.', 1), ('b)', 1), ('(B)', 1), ('B. right', 1), ('(B) right', 1), ('B \u2013 right', 1),
        ('**B**', 1), (r'\boxed{B}', 1), (r'$\boxed{\text{B}}$', 1), ('Option B', 1),
        ('The answer is (B).', 1), ('**B.** right', 1), ('right.', 1), ('Right', 1),
        ('right (B)', 1), ('B!', 1), ('B: right', 1), ('A chair.', 2),
        ('B. left', None), ('B or C', None), ('B, C', None),
        ('A/B', None), ('right or left', None), ('not B', None), ('right (A)', None),
    ],
)  # fmt: skip
def test_option_is_named_by_letter_text_or_both(answer: str, index: int | None) -> None:
    assert choice_index(answer, OPTIONS) == index


def test_unknown_in_any_case() -> None:
    assert is_unknown(' Unknown ')
    assert is_unknown('**unknown**.')
    assert not is_unknown('unknown object')


@pytest.mark.parametrize(
    ('answer', 'number'),
    [
        ('3', 3), ('2.5 m', 2.5), ('-30°', -30), ('4.', 4), ('.5', 0.5), ('+5', 5),
        ('1,234', 1234), ('1,234,567.8', 1234567.8), ('1 234', 1234), ("1'234", 1234),
        ('1.234,5', 1234.5), ('2,5 m', 2.5), ('\u221230', -30), ('\u201330', -30), ('minus 3', -3),
        ('1.5e-3', 0.0015), ('1.2 \u00d7 10^3 m', 1200), ('1.2\u00d710³', 1200),
        (r'$1.2 \times 10^{3}$', 1200), ('1/2', 0.5), ('2½ m', 2.5), ('3 thousand', 3000),
        ('about 3', 3), ('approximately 3 m', 3), ('~3', 3), ('It is about 3 m.', 3),
        ('3 meters away', 3), ('4 chairs in the room', 4), ('3 in total', 3), ('50 %', 50),
        (r'\boxed{14.5\text{ m}^2}', 14.5), ('**4**', 4), (r'30^\circ', 30), ('5 ft 3 in', 5.25),
        ('three', None), ('1 or 2', None), ('2-4', None), ('2\u20134 m', None), ('2 to 4', None),
        ('between 2 and 4', None), ('3 ± 1', None), ('1, 2', None), ('2 m x 3 m', None),
        ('more than 3', None), ('at least 3', None), ('not 3', None), ('3rd', None), ('3D', None),
        ('5 or more', None), ('2 chairs and a table', None), ('1e999', None), ('3:30', None),
    ],
)  # fmt: skip
def test_number_with_or_without_unit(answer: str, number: float | None) -> None:
    assert number_in(answer) == number


@given(st.text(), st.lists(st.text(), max_size=4))
def test_any_text_is_read_without_an_error(text: str, options: list[str]) -> None:
    read = parse_completion(text)
    index = choice_index(text, options)
    assert read.answer is None or read.answer.strip() == read.answer
    assert index is None or index < len(options)


@pytest.mark.parametrize('option', ['<1 m', 'nearer > farther', 'a\tb', 'up\ndown'])
def test_option_is_named_as_the_prompt_shows_it_or_as_it_was_given(option: str) -> None:
    shown = build_prompt('Which?', (option, 'right'), (), (), MemoryConfig()).user
    text = next(line for line in shown.splitlines() if line.startswith('A. '))[3:]
    assert choice_index(text, [option, 'right']) == 0
    assert choice_index(option, [option, 'right']) == 0
