# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import time

from embodied_r_ros.core.reasoning.checks import check_completion, CompletionCheck
from embodied_r_ros.core.scene.tools import Result, Scene
from embodied_r_ros.core.types.answers import Check
import pytest

from test.core.reasoning.measure_checks import measure, read_scene


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


def test_changes_are_not_verified_and_right_completions_are_not_refused() -> None:
    figures = measure('even')
    assert (figures.right, figures.changed) == (50, 529)
    assert len(figures.missed) <= 0.01 * figures.changed, figures.missed
    assert len(figures.false_alarms) <= 0.02 * figures.right, figures.false_alarms
    assert len(figures.verified) >= 0.4 * figures.right, figures.unchecked
    assert len(figures.caught) >= 0.3 * figures.changed


# Each with an answer that follows, so that the sentence alone decides.
@pytest.mark.parametrize(
    ('verified', 'unsupported'),
    [
        ('[3] shows the plant 15° right.', '[3] shows the plant 15° left.'),
        ('[3] shows the plant 2.4 m away.', '[3] shows the plant 3.4 m away.'),
        ('In [6] I saw the bed.', 'In [3] I saw the bed.'),
        ('The [8] has a lamp.', 'The [9] has a lamp.'),
        ('There are three chairs.', 'There are four chairs.'),
        ('The sofa is 2.0 m long.', 'The sofa is 4.5 m long.'),
        ('The lamp is 17° to the left.', 'The lamp is 60° to the right.'),
        ('The floor measures 62 m².', 'The floor measures 92 m².'),
        ('[6] lists a sofa at 2.9 m.', '[6] lists a piano at 2.9 m.'),
    ],
)
def test_claims_are_supported_or_contradicted(verified: str, unsupported: str) -> None:
    question = 'Is there a bed?'
    right, wrong = _check(verified, 'yes', question), _check(unsupported, 'yes', question)
    assert right.check is Check.VERIFIED, right.reason
    assert wrong.check is Check.UNSUPPORTED
    assert unsupported in wrong.reason


@pytest.mark.parametrize(
    ('verified', 'unchecked'),
    [
        ('[3] shows the plant at 3.5 s.', '[3] shows the plant at 8.5 s.'),
        ('In [3] I saw the plant.', 'In [4] I saw the plant.'),
        ('The sofa is at (2.5, 2.6).', 'The sofa is at (2.5, 4.6).'),
        ('The sofa is 1.8 m from the bed.', 'The sofa is 2.0 m from the bed.'),
        ('The bed is behind.', 'The bed is ahead.'),
        ('In [7] the sofa is gone.', 'In [6] the sofa is gone.'),
        ('I turned right 30° in [3].', 'I turned right 30° in [4].'),
        ('In [3], [4] and [6] I only turned.', 'In [3], [5] and [6] I only turned.'),
        ('I moved 1.0 m in [2] and 1.2 m in [5]. The sum is 2.2 m.',
         'I moved 1.0 m in [2] and 1.2 m in [5]. The sum is 3.7 m.'),
    ],
)  # fmt: skip
def test_other_claims_are_unclear(verified: str, unchecked: str) -> None:
    question = 'Is there a bed?'
    assert _check(verified, 'yes', question).check is Check.VERIFIED
    verdict = _check(unchecked, 'yes', question)
    assert verdict.check is Check.UNCHECKED
    assert verdict.reason


@pytest.mark.parametrize(
    'think',
    [
        'It is at least 3.7 m to the bed.',
        'I never saw a piano in [3].',
        'Before [6] there was no bed.',
        'Half the sofa is 1.0 m, so the edge is 2.7 m away.',
        'The plant was 2.4 m away in [3], and I have moved 3.0 m since.',
    ],
)
def test_what_is_no_plain_claim_is_not_contradicted(think: str) -> None:
    assert _check(think).check is Check.UNCHECKED


def test_reasoning_without_anything_to_check_is_unchecked() -> None:
    assert _check('Let me think about it.', 'yes', 'Is it nice here?').check is Check.UNCHECKED


@pytest.mark.parametrize(
    ('question', 'options', 'think', 'right', 'wrong'),
    [
        ('How far is the bed?', (), 'The bed is 5.8 m away.', '5.8 m', '4.8 m'),
        ('How long is the bed?', (), 'The bed is 2 m long.', '200 cm', '120 cm'),
        ('Is there a bed?', (), '[6] shows a bed.', 'yes', 'no'),
        ('How many chairs are there?', ('2', '3'), 'There are three chairs.', 'B', 'A'),
        ('Is the lamp to my left or right?', ('left', 'right'), 'The lamp is 17° left.', 'A', 'B'),
        ('How far is the bed?', ('3 m', '5.8 m'), 'The bed is 5.8 m away, so B.', 'B', 'A'),
        ('What came first, the plant or the sofa?', (), '[3] has the plant, [6] has the sofa.',
         'the plant', 'the sofa'),
        ('Which is nearer, the bed or the table?', (), 'The table is 2.8 m away, the bed 5.8 m.',
         'the table', 'the bed'),
        ('What was nearest in [6]?', (), 'In [6] the sofa is at 2.9 m.', 'the sofa', 'the bed'),
        ('What do you see?', ('a bed', 'a piano'), 'In [6] there is a bed.', 'a bed', 'a piano'),
    ],
)  # fmt: skip
def test_answer_follows_from_the_reasoning(
    question: str, options: tuple[str, ...], think: str, right: str, wrong: str
) -> None:
    verdict = _check(think, right, question, options)
    expected = Check.UNCHECKED if question == 'What do you see?' else Check.VERIFIED
    assert verdict.check is expected, verdict.reason
    assert _check(think, wrong, question, options).check is Check.UNSUPPORTED


def test_answer_follows_from_a_result() -> None:
    result = read_scene('flat').distance('bed')
    question, think = 'How far is the bed?', 'I look at the map.'
    assert _check(think, '5.8 m', question).check is Check.UNCHECKED
    assert _check(think, '5.8 m', question, expected=result).check is Check.VERIFIED
    assert _check(think, '6.0', question, expected=result).check is Check.VERIFIED
    assert _check(think, '3.4 m', question, expected=result).check is Check.UNSUPPORTED
    unknown = Result('distance', text='Nothing tells.')
    assert _check(think, '5.8 m', question, expected=unknown).check is Check.UNCHECKED


def test_with_a_result_prose_need_not_be_supported_but_numbers_and_names() -> None:
    result, question = read_scene('flat').distance('bed'), 'How far is the bed?'
    prose, number = 'It is nearer now.', 'It is 3.3 s away.'
    assert _check(prose, '5.8 m', question, expected=result).check is Check.VERIFIED
    assert _check(number, '5.8 m', question, expected=result).check is Check.UNCHECKED


@pytest.mark.parametrize(
    ('tool', 'arguments', 'question', 'right', 'wrong'),
    [
        ('count', ('chairs',), 'How many chairs?', '3', '4'),
        ('count', ('bed',), 'Is there a bed?', 'yes', 'no'),
        ('where', ('bed',), 'Where is the bed?', 'behind', 'ahead'),
        ('nearest', ('robot', ('bed', 'table')), 'What is nearer?', 'the table', 'the bed'),
        ('order', (('plant', 'sofa'),), 'What came first?', 'the plant', 'the sofa'),
        ('size', ('bed',), 'How long is the bed in cm?', '200', '120'),
    ],
)
def test_results_of_all_kinds_are_compared(
    tool: str, arguments: tuple[str, ...], question: str, right: str, wrong: str
) -> None:
    result = getattr(read_scene('flat'), tool)(*arguments)
    assert _check('Yes.', right, question, expected=result).check is Check.VERIFIED
    assert _check('Yes.', wrong, question, expected=result).check is Check.UNSUPPORTED


def test_unknown_is_not_verified_but_its_reasoning_is_checked() -> None:
    assert _check('The bed is 5.8 m away.').check is Check.UNCHECKED
    assert _check('The bed is 3.8 m away.').check is Check.UNSUPPORTED


def test_reason_tells_what_is_known() -> None:
    reason = _check('The bed is 3.8 m away.').reason
    assert 'The bed is 3.8 m away.' in reason
    assert '5.78' in reason


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
