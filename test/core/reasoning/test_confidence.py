# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math

from embodied_r_ros.core.chat.protocol import TokenAlternatives
from embodied_r_ros.core.reasoning.completions import option_confidence
import pytest


def tokens(answer: str, **shares: float) -> list[TokenAlternatives]:
    """Tokens of '<think>A</think><answer>' and the answer, with the shares of its alternatives."""
    before = [
        TokenAlternatives(text, 0.0, ((text, 0.0),))
        for text in ('<think>', 'A', '</think>', '<', 'answer', '>')
    ]
    top = tuple((token, math.log(share)) for token, share in shares.items())
    return [*before, TokenAlternatives(answer, math.log(shares[answer]), top)]


def test_share_of_the_letter_among_letters() -> None:
    said = tokens('B', B=0.6, A=0.2, The=0.1)
    assert option_confidence(said, ['left', 'right'], 1) == pytest.approx(0.75)


def test_share_of_a_text_that_begins_one_option() -> None:
    said = tokens('ri', ri=0.5, left=0.25, x=0.25)
    assert option_confidence(said, ['left', 'right'], 1) == pytest.approx(2 / 3)


def test_options_are_compared_as_the_prompt_shows_them() -> None:
    said = tokens('\u2039', **{'\u2039': 0.5, 'B': 0.25})
    assert option_confidence(said, ['<1 m', 'more'], 0) == pytest.approx(2 / 3)


@pytest.mark.parametrize('marks', [('(',), ('**',), ('**', '(')])
def test_marks_before_a_letter_are_no_answer(marks: tuple[str, ...]) -> None:
    *before, letter = tokens('B', B=0.6, A=0.2)
    wrapped = [*before, *(TokenAlternatives(mark, 0.0, ((mark, 0.0),)) for mark in marks), letter]
    assert option_confidence(wrapped, ['left', 'right'], 1) == pytest.approx(0.75)


def test_mark_may_be_part_of_the_token() -> None:
    said = tokens('(B', **{'(B': 0.6, '(A': 0.2})
    assert option_confidence(said, ['left', 'right'], 1) == pytest.approx(0.75)


def test_token_that_begins_two_options_tells_nothing() -> None:
    said = tokens('red', red=0.9, B=0.05)
    assert math.isnan(option_confidence(said, ['red ball', 'red box'], 0))


def test_without_probabilities_it_is_not_known() -> None:
    assert math.isnan(option_confidence([], ['left', 'right'], 0))
    assert math.isnan(option_confidence(tokens('B', B=1.0), ['left', 'right'], -1))


@pytest.mark.parametrize('logprob', [1000.0, 0.1, math.inf, math.nan])
def test_server_that_reports_what_no_probability_can_be_is_not_believed(logprob: float) -> None:
    said = tokens('B', B=0.6, A=0.2)
    lying = replace(said[-1], top=(*said[-1].top, ('C', logprob)))
    assert math.isnan(option_confidence([*said[:-1], lying], ['left', 'right'], 1))


def test_probability_that_a_server_rounded_up_is_believed() -> None:
    said = tokens('B', B=1.0)
    rounded = replace(said[-1], logprob=1e-6, top=(('B', 1e-6),))
    assert option_confidence([*said[:-1], rounded], ['left', 'right'], 1) == 1.0
