# SPDX-License-Identifier: Apache-2.0
"""What a person's answer teaches, and why an answer was wrong."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.reasoning.calls import read_question
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.reasoning.saying import answer_by_tools, ToolAnswer
from embodied_r_ros.core.reasoning.sentences import taught_path, teach
from embodied_r_ros.core.reasoning.teaching import is_answer, Lesson, lesson_of
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import AnswerKind
from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
import pytest

from test.core.reasoning.test_reasoner import ScriptedClient

if TYPE_CHECKING:
    from pathlib import Path

S = 10**9
START = PathPoint(S, (0.0, 0.0, 0.5), 0.0)
PLACE = SceneMap(
    (Landmark('sofa', (2.0, 0.0, 0.4)), Landmark('lamp', (5.0, 4.0, 0.4))),
    (START, PathPoint(2 * S, (1.0, 0.0, 0.5), 0.0), PathPoint(3 * S, (1.0, 2.0, 0.5), 0.0)),
)
ODD = 'odo of today, metres?'


@pytest.fixture(autouse=True)
def _data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))


def lesson(question: str, solution: str, *options: str) -> Lesson:
    is_right = partial(is_answer, solution=solution, question=question, options=options)
    return lesson_of(question, options, Scene(place=PLACE), is_right)


def test_an_answer_teaches_the_reading_that_gives_it_until_it_is_forgotten() -> None:
    scene = Scene(place=PLACE)
    assert not answer_by_tools(ODD, (), scene).is_known
    learned = lesson(ODD, '3 m')
    assert learned.calls == 'motion(way)'
    assert 'misread' in learned.cause
    assert not teach(learned.sentence, learned.calls)
    assert answer_by_tools(ODD, (), scene).text == '3.0'
    assert answer_by_tools('odo of the day in metres?', (), scene).text == '3.0'
    assert lesson(ODD, '3 m').cause == 'it is read and answered rightly now'
    assert teach(learned.sentence)
    assert not answer_by_tools(ODD, (), scene).is_known
    assert not teach(learned.sentence)


def test_things_stay_open_in_what_is_learned() -> None:
    learned = lesson('range to sofa', '2.2 m')
    assert learned.calls == 'distance({x})'
    assert learned.sentence == 'range to {x}'
    teach(learned.sentence, learned.calls)
    (reading,) = read_question('range to lamp?', (), ('lamp',))
    assert reading.calls[0].arguments['a'] == 'lamp'


@pytest.mark.parametrize(
    ('question', 'solution', 'cause'),
    [
        ('how far is the sofa?', '40 m', 'what was seen, or its place, must be wrong'),
        ('how far is the fridge?', '3 m', 'nothing here is known as fridge'),
        ('who painted this wall?', 'Ann', 'nothing that can be computed'),
        ('how far is the sofa?', 'unknown', 'must be wrong'),
        ('how far is the sofa and where is the lamp?', 'left', 'label each alone'),
        ('where is the sofa?', '2', 'it is read'),
    ],
)
def test_another_cause_is_told_and_teaches_nothing(
    question: str, solution: str, cause: str
) -> None:
    told = lesson(question, solution)
    assert cause in told.cause
    assert not told.sentence


@pytest.mark.parametrize(
    ('text', 'unit', 'solution', 'is_same'),
    [
        ('6', '', '5', False),  # within a fifth, and yet another count
        ('1', '', 'One.', True),
        ('4.1', 'm', 'four metres', True),
        ('4.1', 'm', '5.5', False),
        ('to the left', '', 'It is on your left', True),
        ('to the left', '', 'right', False),
        ('sofa, lamp', '', 'the sofa and the lamp', True),
        ('sofa, lamp', '', 'lamp, sofa', False),
        ('to the left', '', 'it is', False),
    ],
)
def test_an_answer_is_that_of_a_person_in_other_words_too(
    text: str, unit: str, solution: str, *, is_same: bool
) -> None:
    answer = ToolAnswer(AnswerKind.TEXT, text, unit=unit)
    assert is_answer(answer, solution, 'how much?', ()) == is_same


@pytest.mark.parametrize(
    'text',
    ['count({x}): how many\n', 'count({x}): [how many]\n', '3: ["how many {x}"]\n', 'a\n',
     'things(all): abc\n',
     'count(x): [3]\n', '"count({": [how many]\n', 'count({xs}): ["how many {xs}"]\n'],
)  # fmt: skip
def test_a_damaged_file_of_what_was_taught_is_named(
    text: str, caplog: pytest.LogCaptureFixture
) -> None:
    taught_path().parent.mkdir(parents=True, exist_ok=True)
    taught_path().write_text(text)
    with pytest.raises(ConfigError, match=r'taught\.yaml is damaged'):
        read_question('how many sofas are there?', (), ('sofa',))
    with pytest.raises(ConfigError, match=r'taught\.yaml is damaged'):
        teach('how many {xs}', 'count({x})')
    assert taught_path().read_text() == text
    with pytest.raises(ConfigError, match=r'taught\.yaml is damaged'):
        Reasoner()
    assert not caplog.text
    Reasoner(ScriptedClient(''))
    assert 'taught.yaml is damaged' in caplog.text


def test_of_two_who_teach_at_once_both_are_heard() -> None:
    sentences = [f'number {n} of {{x}}' for n in range(12)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda sentence: teach(sentence, 'count({x})'), sentences))
    assert all(map(teach, sentences))


def test_braces_of_a_person_are_no_slots() -> None:
    for question in ('{y} range to sofa', 'range to {0}, {x.__class__} sofa {', '{c} sofa'):
        learned = lesson(question, '2.2 m')
        assert '{' not in learned.sentence.replace('{x}', '')
