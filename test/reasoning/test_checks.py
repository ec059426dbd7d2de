# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

from embodied_r_ros.reasoning.checks import check_completion, CompletionCheck
from embodied_r_ros.scene.tools import Result, Scene
from embodied_r_ros.types.answers import Check
import pytest

from test.reasoning.measure_checks import measure, read_scene


def _check(
    think: str,
    answer: str = 'unknown',
    question: str = 'How far is the sofa?',
    options: tuple[str, ...] = (),
    scene: str = 'flat',
    expected: Result | None = None,
) -> CompletionCheck:
    text = f'<think>{think}</think><answer>{answer}</answer>'
    return check_completion(text, question, options, read_scene(scene), expected)


def test_changes_are_caught_and_right_completions_pass() -> None:
    figures = measure('even')
    assert (figures.right, figures.changed) == (50, 529)
    assert len(figures.missed) <= 0.01 * figures.changed, figures.missed
    assert len(figures.false_alarms) <= 0.02 * figures.right, figures.false_alarms


@pytest.mark.parametrize(
    ('right', 'wrong'),
    [
        ('[3] shows the plant 15° right.', '[3] shows the plant 15° left.'),
        ('[3] shows the plant 2.4 m away.', '[3] shows the plant 3.4 m away.'),
        ('In [3] I saw the plant.', 'In [4] I saw the plant.'),
        ('[3] is the third observation.', '[4] is the third observation.'),
        ('[8] is the last one.', '[9] is the last one.'),
        ('The plant came at 3.5 s.', 'The plant came at 8.5 s.'),
        ('There are three chairs.', 'There are four chairs.'),
        ('A sofa was there.', 'A piano was there.'),
        ('The sofa is at (2.5, 2.6).', 'The sofa is at (2.5, 4.6).'),
        ('The sofa is about 1.8 m from the bed.', 'The lamp is about 1.8 m from the bed.'),
        ('The sofa is 2 m long.', 'The plant is 2 m long.'),
        ('1.0 + 1.2 + 0.8 = 3.0 m.', '1.0 + 1.2 + 0.8 = 4.0 m.'),
        ('The bed is behind me.', 'The bed is ahead.'),
        ('The table is nearer than the bed.', 'The bed is nearer than the table.'),
        ('[7] has the sofa under Gone, it is gone in [7].', 'The sofa is gone in [6].'),
        ('I turned right 30° in [3].', 'I turned right 30° in [4].'),
        ('The floor measures 62 m².', 'The floor measures 92 m².'),
        ('In [3], [4] and [6] I only turned.', 'In [3], [5] and [6] I only turned.'),
    ],
)
def test_each_kind_of_claim_needs_support(right: str, wrong: str) -> None:
    assert _check(right).check is Check.UNCHECKED, _check(right).reason
    verdict = _check(wrong)
    assert verdict.check is Check.UNSUPPORTED
    assert verdict.reason


def test_reasoning_without_anything_to_check_is_neutral() -> None:
    assert _check('Let me think about it.', 'yes', 'Is it nice here?').check is Check.UNCHECKED


def test_what_was_not_seen_may_be_said_so() -> None:
    assert _check('I never saw a piano.', question='Is there a piano?').check is Check.UNCHECKED


@pytest.mark.parametrize(
    ('question', 'options', 'think', 'right', 'wrong'),
    [
        ('How far is the bed?', (), 'The bed is 5.8 m away.', '5.8 m', '4.8 m'),
        ('How long is the bed?', (), 'The bed is 2 m long.', '200 cm', '120 cm'),
        ('Is there a bed?', (), 'Yes, [6] shows a bed.', 'yes', 'no'),
        ('How many chairs?', ('2', '3'), 'There are three chairs.', 'B', 'A'),
        ('Where is the bed?', ('ahead', 'behind'), 'The bed is behind me.', 'B', 'A'),
        ('Where is the bed?', ('ahead', 'behind'), 'So the answer is B.', 'B', 'A'),
        ('What came first, the plant or the sofa?', (), 'The plant, then the sofa.', 'the plant',
         'the sofa'),
        ('What do you see?', (), 'In [6] there is a bed.', 'a bed', '48.0'),
        ('Is there a bed?', (), 'In [6] there is a bed.', 'yes', 'a bed'),
    ],
)  # fmt: skip
def test_answer_follows_from_the_reasoning(
    question: str, options: tuple[str, ...], think: str, right: str, wrong: str
) -> None:
    assert _check(think, right, question, options).check is not Check.UNSUPPORTED
    assert _check(think, wrong, question, options).check is Check.UNSUPPORTED


def test_answer_follows_from_a_result() -> None:
    result = read_scene('flat').distance('bed')
    question, think = 'How far is the bed?', 'I look at the map.'
    assert _check(think, '5.8 m', question, expected=result).check is Check.VERIFIED
    assert _check(think, '6.0 m', question, expected=result).check is Check.VERIFIED
    assert _check(think, '3.4 m', question, expected=result).check is Check.UNSUPPORTED
    unknown = Result('distance', text='Nothing tells.')
    assert _check(think, '5.8 m', question, expected=unknown).check is Check.UNSUPPORTED


def test_unknown_is_not_verified_but_its_reasoning_is_checked() -> None:
    assert _check('The bed is 5.8 m away.').check is Check.UNCHECKED
    assert _check('The bed is 2.8 m away.').check is Check.UNSUPPORTED


def test_reason_tells_what_is_known() -> None:
    reason = _check('The bed is 2.8 m away.').reason
    assert 'The bed is 2.8 m away.' in reason
    assert '5.8 m' in reason


def test_completion_without_one_answer_is_unsupported() -> None:
    scene = read_scene('flat')
    assert check_completion('The bed.', 'What?', (), scene).check is Check.UNSUPPORTED


def test_empty_scene_supports_nothing() -> None:
    text = '<think>[1] shows a chair.</think><answer>yes</answer>'
    verdict = check_completion(text, 'Is there a chair?', (), Scene())
    assert verdict.check is Check.UNSUPPORTED


@pytest.mark.parametrize('part', ['a', '[', '1 ', '1+', 'left ', 'the chair is [1] 2 m. ', '(1,'])
def test_garbage_takes_bounded_time(part: str) -> None:
    base = time.perf_counter()
    _check((part * 1000)[:900])
    short = time.perf_counter() - base
    base = time.perf_counter()
    _check((part * 100_000)[:100_000])
    assert time.perf_counter() - base < 100 * short + 1
