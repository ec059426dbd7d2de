# SPDX-License-Identifier: Apache-2.0
"""The forms in which models answer: read alike by the robot, by rewards and by an evaluation."""

from __future__ import annotations

from dataclasses import dataclass
import time

from embodied_r_ros.core.chat.protocol import ChatChunk
from embodied_r_ros.core.reasoning.completions import is_unknown, parse_completion, read_answer
from embodied_r_ros.core.reasoning.question import Question, ReasonerConfig, Refusal, RefusalCode
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, Rung, SemanticDelta
import pytest

SIDES = ('left', 'right')
WAYS = ('left', 'right', 'ahead left', 'behind')
YES_NO = ('yes', 'no')
NUMBERS = ('3', '13', '4.4')
OWN_LETTERS = ('A. left', 'B. right')
FREE = ()
HARMONY = (
    '<|channel|>analysis<|message|>It was on the right.<|end|>'
    '<|start|>assistant<|channel|>final<|message|>{}<|return|>'
)

# What a model says, the options, and the answer: a letter, 'unknown', or the text.
READABLE = [
    ('<think>x</think><answer>B</answer>', SIDES, 'B'),
    ('x</think><answer>B</answer>', SIDES, 'B'),
    # Thoughts that end late, never, or are not there.
    ('<think>It was right.<answer>B</answer></think>', SIDES, 'B'),
    ('<think>It was right.<answer>B</answer>', SIDES, 'B'),
    ('It was right. <answer>B</answer>', SIDES, 'B'),
    ('<answer>B</answer>', SIDES, 'B'),
    ('<think>x<answer></think>B</answer>', SIDES, 'B'),
    ('<think>x</think><answer>B</answer><think>Good.</think>', SIDES, 'B'),
    # Text around the tags, and tags that do not end.
    ('Sure! <think>x</think> So: <answer>B</answer>', SIDES, 'B'),
    ('<think>x</think><answer>B</answer> I hope this helps.', SIDES, 'B'),
    ('<think>x</think><answer>B', SIDES, 'B'),
    ('<think>x</think><answer>4.4 m\n', FREE, '4.4 m'),
    ('<think>x</think>B</answer>', SIDES, 'B'),
    # Tags in other spellings.
    ('<Think>x</Think><Answer>B</Answer>', SIDES, 'B'),
    ('< think >x</ think >< answer > B </ answer >', SIDES, 'B'),
    ('<THINK>x</THINK>\n<ANSWER>unknown</ANSWER>', SIDES, 'unknown'),
    ('[THINK]x[/THINK]B. right', SIDES, 'B'),
    ('[THINK]x[/THINK]<answer>4.4 m</answer>', FREE, '4.4 m'),
    ('<reasoning>left or right?</reasoning><answer>B</answer>', SIDES, 'B'),
    ('<thinking>left or right?</thinking>\n\nright', SIDES, 'B'),
    ('<seed:think>left or right?</seed:think>right', SIDES, 'B'),
    # Channels and the ends of turns.
    (HARMONY.format('<answer>B</answer>'), SIDES, 'B'),
    (HARMONY.format('B. right'), SIDES, 'B'),
    (HARMONY.format('**Final answer:** 4.4 m'), FREE, '4.4 m'),
    ('analysisIs it left? No, right.assistantfinalB', SIDES, 'B'),
    ('<think>x</think><answer>B</answer><|im_end|>', SIDES, 'B'),
    ('<think>x</think><answer>B</answer></s>', SIDES, 'B'),
    ('<think>x</think><answer>B<|eot_id|>', SIDES, 'B'),
    ('<think>x</think>B<end_of_turn>\n', SIDES, 'B'),
    ('<think>x</think><answer>B</answer><|im_end|>\n<|im_start|>user\n<answer>A</answer>', SIDES,
     'B'),
    ('<think>x</think><|begin_of_box|>B<|end_of_box|>', SIDES, 'B'),
    # A thought in a field of its own, and then plain text.
    ('<think>left or right?</think>A. left', SIDES, 'A'),
    ('<think>left or right?</think>\n\nAnswer: B', SIDES, 'B'),
    ('<think>left or right?</think>**Final answer:** 4.4 m', FREE, '4.4 m'),
    ('<think>x</think>4.4 m', FREE, '4.4 m'),
    ('<think>x</think>unknown', FREE, 'unknown'),
    ('<think>x</think>It may be 3.\nFinal answer: 3 m\n\n**Final answer**: 4.4 m', FREE, '4.4 m'),
    ('<think>x</think>The final answer is a chair.', FREE, 'a chair.'),
    ('<think>x</think>Answer:\nB', SIDES, 'B'),
    # Boxes and JSON.
    (r'\boxed{B}', SIDES, 'B'),
    (r'It is left or right. So $\boxed{\text{B. right}}$.', SIDES, 'B'),
    (r'<think>x</think>The distance is $\boxed{4.4\text{ m}}$.', FREE, r'4.4\text{ m}'),
    (r'<think>x</think><answer>The answer is $\boxed{B}$.</answer>', SIDES, 'B'),
    ('<think>x</think><answer>{"answer": "B"}</answer>', SIDES, 'B'),
    ('<think>x</think><answer>\n{\n "answer": "4.4 m"\n}\n</answer>', FREE, '4.4 m'),
    ('{"answer": "B"}', SIDES, 'B'),
    ('{"think": "left or right?", "answer": "left"}', SIDES, 'A'),
    ('```json\n{"think": "left?", "Answer": 4.4}\n```', FREE, '4.4'),
    ('{"answer": "unknown"}', FREE, 'unknown'),
    # Sentences.
    ('<think>x</think><answer>The answer is B.</answer>', SIDES, 'B'),
    ('<think>x</think><answer>It is to the left.</answer>', SIDES, 'A'),
    ('<think>x</think><answer>On the left-hand side, 4.4 m away</answer>', SIDES, 'A'),
    ('<think>x</think><answer>B because the box is on the right</answer>', SIDES, 'B'),
    ('<think>x</think><answer>The answer is unknown.</answer>', SIDES, 'unknown'),
    ('<think>x</think><answer>I choose option A</answer>', SIDES, 'A'),
    ('<think>x</think><answer>It is ahead left of you.</answer>', WAYS, 'C'),
    ('<think>x</think><answer>Yes, I saw a chair.</answer>', YES_NO, 'A'),
    ('<think>x</think><answer>No, it is not there.</answer>', YES_NO, 'B'),
    ('<think>x</think><answer>There are 13 of them.</answer>', NUMBERS, 'B'),
    ('<think>x</think><answer>It is to the right.</answer>', OWN_LETTERS, 'B'),
    ('It is to the left.', SIDES, 'A'),
    ('The answer is B.', SIDES, 'B'),
    ('B', SIDES, 'B'),
    ('<think>x</think><answer>about 4.4 m to the right</answer>', FREE,
     'about 4.4 m to the right'),
    ('about 4.4 m to the right', FREE, 'about 4.4 m to the right'),
    # A thought that speaks of the tags.
    ('<think>It goes into <answer> tags.</think><answer>B</answer>', SIDES, 'B'),
    ('<think>As <think>reasoning</think><answer>answer</answer>.</think><answer>B</answer>', SIDES,
     'B'),
    ('<think>Between <answer> and </answer>, then.</think><answer>B</answer>', SIDES, 'B'),
    ('<think>So <answer>B</answer>.</think><answer>B</answer>', SIDES, 'B'),
]  # fmt: skip

UNREADABLE = [
    ('', SIDES),
    ('<think>It was left.', SIDES),
    ('<think>It was left.</think>', SIDES),
    ('It was on the table, I think.', FREE),
    ('<think>I see it.</think>', FREE),
    ('<think>x</think>I hope this helps.', FREE),
    ('<|channel|>analysis<|message|>It was left.<|end|>', SIDES),
    ('analysisIt was left.', SIDES),
    ('<think>x</think><answer></answer>', SIDES),
    # Contradictions.
    ('<think>x</think><answer>B. left</answer>', SIDES),
    ('<think>x</think><answer>The answer is B, left.</answer>', SIDES),
    ('<think>x</think><answer>left or right</answer>', SIDES),
    ('<think>x</think>It is left. Or right.', SIDES),
    ('<think>x</think><answer>A or B</answer>', SIDES),
    ('<answer>A</answer><answer>B</answer>', SIDES),
    ('<answer>4 m</answer><answer>5 m</answer>', FREE),
    ('<think><answer>A</answer></think><answer>B</answer>', SIDES),
    ('<think><answer>A</answer> or <answer>B</answer></think>', SIDES),
    (r'\boxed{A} \boxed{B}', SIDES),
    (r'<think>x</think>\boxed{4 m} \boxed{5 m}', FREE),
    # Sentences that name no option, or take it back.
    ('<think>x</think><answer>up</answer>', SIDES),
    ('<think>x</think><answer>The answer is C.</answer>', SIDES),
    ('<think>x</think><answer>It is not on the left.</answer>', SIDES),
    ("<think>x</think><answer>I can't tell whether it is left.</answer>", SIDES),
    ('<think>x</think><answer>Is it left?</answer>', SIDES),
    ('<think>x</think><answer>A chair stood there.</answer>', SIDES),
    ('<think>x</think><answer>leftover brightness</answer>', SIDES),
    ('<think>x</think><answer>3 to 4 of them</answer>', NUMBERS),
    ('<think>x</think><answer>more than 3</answer>', NUMBERS),
    ('<think>x</think><answer>There are 3.5 of them.</answer>', NUMBERS),
    ('<think>x</think><answer>ahead-left</answer>', SIDES),
    ('I cannot say.', tuple('abcdefghij')),
    ('{"answer": null}', SIDES),
    ('{"think": "It is left."}', FREE),
]

# Completions that the token limit cut, which would be answers had they ended so.
CUT = [
    ('<think>x</think><answer>4', FREE),
    ('<think>x</think><answer>The answer is A', SIDES),
    ('<think>x</think>A', SIDES),
    ('It is to the left', SIDES),
    ('Answer: 4', FREE),
    (r'So \boxed{A} or', SIDES),
    ('{"answer": "A"}', SIDES),
    (HARMONY.format('A').removesuffix('<|return|>'), SIDES),
    ('<think>I could write <answer>A</answer>. But', SIDES),
]


@dataclass
class Says:
    """A fake model that says one thing."""

    text: str
    ending: str = ''

    def stream(self, *_: object) -> list[ChatChunk]:
        return [ChatChunk(self.text), ChatChunk('', ending=self.ending)]

    def info(self, deadline_s: float) -> ModelInfo:
        return ModelInfo('says', 'sha256:00', rung=Rung.PRIMARY)


def live(text: str, options: tuple[str, ...], ending: str = '') -> str | None:
    """What the robot takes for the answer, as the table writes it."""
    reasoner = Reasoner(Says(text, ending), ReasonerConfig(check=False))  # type: ignore[arg-type]
    seen = SemanticDelta(5, DeltaKind.FIRST, change='A red box.')
    question = Question('Where is it?', options)
    try:
        answer = reasoner.answer(question, [seen], answer_id='a', now_ns=lambda: 5)
    except Refusal as refusal:
        if refusal.code is not RefusalCode.FORMAT:
            raise
        return None
    if answer.kind is AnswerKind.CHOICE:
        return 'ABCDEFGHIJ'[answer.option_index]
    return 'unknown' if answer.kind is AnswerKind.UNKNOWN else answer.text


@pytest.mark.parametrize(('text', 'options', 'expected'), READABLE)
def test_answer_is_read_in_each_form(text: str, options: tuple[str, ...], expected: str) -> None:
    assert live(text, options) == expected
    assert parse_completion(text).text == text


@pytest.mark.parametrize(('text', 'options'), UNREADABLE)
def test_what_is_no_answer_is_refused(text: str, options: tuple[str, ...]) -> None:
    assert live(text, options) is None


@pytest.mark.parametrize(('text', 'options'), CUT)
@pytest.mark.parametrize('ending', ['length', 'content_filter'])
def test_answer_that_was_cut_is_none(text: str, options: tuple[str, ...], ending: str) -> None:
    assert live(text, options) is not None
    assert live(text, options, ending) is None


def test_answer_that_is_whole_counts_though_what_follows_was_cut() -> None:
    assert live('<think>x</think><answer>B</answer> This is', SIDES, 'length') == 'B'
    assert live('<think>x <answer>B</answer></think>', SIDES, 'length') == 'B'


def test_number_in_a_sentence_keeps_its_kind() -> None:
    completion = parse_completion('<think>x</think><answer>about 4.4 m to the right</answer>')
    assert read_answer(completion, ()) == (AnswerKind.NUMBER, -1, 'about 4.4 m to the right')


@pytest.mark.parametrize(
    ('text', 'think'),
    [
        (HARMONY.format('B'), 'It was on the right.'),
        ('[THINK]turned[/THINK]B', 'turned'),
        ('<reasoning>turned</reasoning><answer>B</answer>', 'turned'),
        ('<Thinking> turned </Thinking>B', 'turned'),
    ],
)
def test_thought_is_read_in_each_form(text: str, think: str) -> None:
    assert parse_completion(text).think == think


@pytest.mark.parametrize(('text', 'options', 'expected'), READABLE[2:])
def test_only_the_form_that_is_asked_for_is_well_formed(
    text: str, options: tuple[str, ...], expected: str
) -> None:
    del options, expected
    tags = ('<think>', '</think>', '<answer>', '</answer>')
    is_whole = text.startswith('<think>') and text.endswith('</answer>')
    is_asked = is_whole and all(text.count(tag) == 1 for tag in tags)
    assert parse_completion(text).well_formed == (is_asked and '<answer></think>' not in text)


@pytest.mark.parametrize(
    ('text', 'options', 'expected'), [*READABLE, *((*form, None) for form in UNREADABLE)]
)
def test_robot_grades_and_rewards_read_the_same(
    text: str, options: tuple[str, ...], expected: str | None
) -> None:
    pytest.importorskip('torch')
    from training.eval.grading import AskedQuestion, grade
    from training.run.rewards import accuracy_reward

    assert live(text, options) == expected
    solution = expected or ('A' if options else '7')
    grading = grade(AskedQuestion('Where is it?', options, solution), text)
    # What names no option is graded as wrong, or not at all.
    is_read = grading.accuracy is not None and (not options or grading.accuracy == 1.0)
    assert (grading.answer if is_read else None) == expected
    message = [[{'role': 'assistant', 'content': text}]]
    columns = {'question': ['Where is it?'], 'options': [list(options)], 'solution': [solution]}
    assert accuracy_reward(None)(completions=message, **columns) == [float(expected is not None)]


@pytest.mark.parametrize(
    'piece',
    ['<', '< ', '</', '<think', '</think>', '<answer>', '</answer>', '[THINK]', '<|channel|>',
     '<|channel|>final', '<|channel|>final<|message|>', '<|end|>', '</s>', '\\boxed{', '{a}',
     '\\boxed{a}', '{', '}', '{"answer":', 'answer', 'answer ', 'answer:', 'answer is *', '*', ' ',
     '\n', 'A ', '(A', 'left ', 'not ', '[[', '**', '$', '1 ', 'assistantfinal', 'analysis'],
)  # fmt: skip
@pytest.mark.parametrize('frame', ['{}', '<think>x</think>{}', '<answer>{}</answer>', 'B{}B'])
def test_a_long_completion_is_read_in_linear_time(piece: str, frame: str) -> None:
    def seconds(chars: int) -> float:
        text = frame.replace('{}', piece * (chars // len(piece)))
        start = time.process_time()
        for options in (SIDES, FREE):
            read_answer(parse_completion(text), options)
        return time.process_time() - start

    # Eight times the text takes eight times as long, and not 64 times; short times are noise.
    assert seconds(100_000) < 0.05 + 30 * seconds(12_500)


def test_words_for_unknown_are_words_alone() -> None:
    assert is_unknown('unknown')
    assert not is_unknown('It is unknown to me, but left')
