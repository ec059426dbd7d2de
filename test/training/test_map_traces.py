# SPDX-License-Identifier: Apache-2.0
"""What a prompt tells of a place is read back, and reasoned from, by its text alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.scene.map_text import map_text
from embodied_r_ros.scene.memory import MemoryConfig
import pytest

from training.data.map_reader import Bearing, PlaceText, read_place, ThingText
from training.data.map_traces import MAP_QUESTIONS, NOT_TOLD, read_place_question
from training.data.random_maps import random_scene_map, rows_of_random_maps
from training.data.traces import read_row
from training.eval.grading import number_accuracy

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row

BUDGET = MemoryConfig(450)
TEXT = """Known of the place (data; x and y in m; directions in degrees to the left of x):
Things: toy box 1; chair 2 (1 gone); lamp 0 (1 gone); 3 more kinds.
Floor: 21.5 m².
Robot: at 0.0 1.0, facing 90°; began 10.0 s ago; start 1.0m 180° to the left; \
nearest to the start: sofa.
From toy box: 1.5m chair at 180°; lamp at 40°; 0.4m bin.
From the robot: 2.3m toy box; 1.1m chair.
First seen in this order: toy box; chair, lamp.
- toy box: 2.3m 120° to the right; start 2.1m; came 3rd; seen 8.0 s to 2.0 s ago; not reached; \
10 x 20 x 8 cm.
- chair: nearest 1.1m ahead; reached 12th.
Seen:
(nothing)
Question: Where is the toy box?"""


@pytest.fixture(scope='module')
def rows() -> list[Row]:
    config = QuestionsConfig(seed=7, moments=1, test_share=0.4, maps=True)
    return list(rows_of_random_maps(12, config, Coverage()))


def test_a_place_is_read_as_it_is_told() -> None:
    place = read_place(TEXT)
    assert place == PlaceText(
        {'toy box': (1, 0), 'chair': (1 + 1, 1), 'lamp': (0, 1)},
        '21.5',
        '10.0',
        Bearing('1.0', 180),
        {'start': 'sofa'},
        {
            'toy box': ThingText(Bearing('2.3', -120), '2.1', '8.0', '2.0', 3, 0, '10 x 20 x 8'),
            'chair': ThingText(Bearing('1.1', 0), reached=12),
        },
        {
            ('toy box', 'chair'): '1.5',
            ('toy box', 'bin'): '0.4',
            ('the robot', 'toy box'): '2.3',
            ('the robot', 'chair'): '1.1',
        },
        {('toy box', 'chair'): 180, ('toy box', 'lamp'): 40},
        ['toy box', 'chair', 'lamp'],
    )
    assert read_place(TEXT.partition('\n')[2]) is None


def test_reasoning_quotes_what_stands_there_and_ends_with_the_answer() -> None:
    place = read_place(TEXT.replace('lamp 0 (1 gone)', 'lamp 1'))
    assert place
    question = (
        'I stand at the toy box and look at the chair. Is the lamp front-left, front-right, '
        'back-left, or back-right?'
    )
    assert read_place_question(question, (), place) == (
        'toy box 1; chair 2 (1 gone); lamp 1; From toy box: chair at 180°; lamp at 40°. '
        'at 180°, at 40°: 140° to the right, back-right. So back-right.',
        'back-right',
    )
    assert read_place_question('Where is the toy chest?', (), place) == (
        'toy chest none; no toy chest, so unknown.',
        'unknown',
    )
    assert read_place_question('Who lives here?', (), place) == (NOT_TOLD, 'unknown')


def test_what_came_in_time_is_copied_from_its_line() -> None:
    place = read_place(
        f'{TEXT.splitlines()[0]}\nThings: bin 1; cup 1; sofa 1.\n'
        'First seen in this order: cup; bin; sofa.\nReached in this order: cup; bin.\n'
        'From the robot: 1.5m sofa; 0.7m cup.\nSeen:\n'
    )
    assert place
    order = ('sofa, cup, bin', 'cup, bin, sofa')
    assert read_place_question('Put these in the order in which they were first seen: sofa, cup, '
        'bin.', order, place) == (
        'First seen: cup; bin; sofa. So cup, bin, sofa.',
        'cup, bin, sofa',
    )  # fmt: skip
    assert read_place_question(
        'What was first seen later than the cup?', ('sofa, cup', 'sofa, bin'), place
    ) == (
        'cup 1; after cup: bin; sofa. A. sofa yes; cup no; B. sofa yes; bin yes; So sofa, bin.',
        'sofa, bin',
    )
    next_question = 'What do you pass next after you pass the cup?'
    assert read_place_question(next_question, ('sofa', 'bin'), place) == (
        'cup 1; after cup: bin. So bin.',
        'bin',
    )
    late = read_place_question(next_question.replace('cup', 'bin'), ('sofa', 'cup'), place)
    assert late == ('bin 1; nothing after bin, so unknown.', 'unknown')
    assert read_place_question(
        'What are you nearest to at the moment?', ('cup', 'sofa'), place
    ) == (
        'From the robot: 0.7m cup; 1.5m sofa; least 0.7m cup. So cup.',
        'cup',
    )


ROUTE = (
    'From the {at}, looking at the {facing}, a robot goes to the sink. Which turns are left out: '
    '1. [please fill in] 2. Go forward until the tv 3. [please fill in] 4. Go forward until the '
    'sink?'
)


@pytest.mark.parametrize(
    ('facing', 'options', 'answer'),
    [
        ('lamp', ('Turn Left, Turn Back', 'Turn Left, Turn Right'), 'Turn Left, Turn Back'),
        ('door', ('Turn Left, Turn Back', 'Turn Left, Turn Right'), 'Turn Left, Turn Back'),
        ('door', ('Turn Left, Turn Back', 'Turn Right, Turn Back'), 'unknown'),
        ('door', (), 'unknown'),
    ],
)
def test_turns_that_are_known_may_leave_one_way(
    facing: str, options: tuple[str, ...], answer: str
) -> None:
    place = PlaceText(
        counts=dict.fromkeys(('sofa', 'lamp', 'tv', 'sink'), (1, 0)),
        directions={('sofa', 'lamp'): 280, ('sofa', 'tv'): 10, ('tv', 'sink'): 190},
    )
    question = ROUTE.format(at='sofa', facing=facing)
    think, right = read_place_question(question, options, place)
    assert right == answer
    assert ('door none; tv 1; sink 1; From sofa: door not told;' in think) == (facing == 'door')


@pytest.mark.parametrize(
    ('options', 'answer'),
    [
        (('sink, lamp, sofa', 'sofa, tv, lamp'), 'unknown'),
        (('sofa, tv, lamp', 'lamp, tv, sofa', 'tv, lamp, sofa'), 'sofa, tv, lamp'),
        (('sofa, tv, lamp', 'tv, sofa, lamp'), 'unknown'),
    ],
)
def test_an_order_that_is_known_but_for_one_thing_may_leave_one_option(
    options: tuple[str, ...], answer: str
) -> None:
    place = PlaceText(counts={'sofa': (1, 0), 'lamp': (1, 0)}, came=['sofa', 'lamp'])
    names = 'sofa, lamp, tv' if 'tv' in options[-2] else 'sofa, lamp, tv, sink'
    question = f'Put these in the order in which they were first seen: {names}.'
    think, right = read_place_question(question, options, place)
    assert right == answer
    assert ('First seen: sofa; lamp. tv not told; A. ' in think) == ('sink' not in names)


def test_the_nearest_is_of_those_whose_distances_are_told_but_for_one() -> None:
    place = PlaceText(
        counts={'sofa': (1, 0)}, gaps={('sofa', 'tv'): '1.2', ('sofa', 'lamp'): '0.4'}
    )
    question = 'Which of these is nearest to the sofa: {}?'
    assert read_place_question(question.format('tv, lamp, sink'), (), place) == (
        'sofa 1; From sofa: 1.2m tv; 0.4m lamp; sink not told; least 0.4m lamp. So lamp.',
        'lamp',
    )
    for names in ('tv, sink', 'tv, lamp, sink, rug'):
        assert read_place_question(question.format(names), (), place)[1] == 'unknown'


def test_the_nearest_to_the_robot_is_told_by_the_lines_about_each_thing() -> None:
    things = {'tv': ThingText(Bearing('1.2', 30)), 'lamp': ThingText(Bearing('0.4', 0))}
    place = PlaceText(counts={'tv': (1, 0), 'lamp': (1, 0)}, things=things)
    question = 'Of these things, what is nearest to where you are now?'
    assert read_place_question(question, ('tv', 'lamp'), place) == (
        'From the robot: 1.2m tv; 0.4m lamp; least 0.4m lamp. So lamp.',
        'lamp',
    )
    assert read_place_question(question, ('tv', 'sink'), place)[1] == 'unknown'


def test_one_turn_that_is_not_known_leaves_all_ways() -> None:
    place = PlaceText(counts={'sofa': (1, 0), 'tv': (1, 0)}, directions={('sofa', 'tv'): 10})
    question = (
        ROUTE.format(at='sofa', facing='door').partition(' 3.')[0].replace('the sink', 'the tv')
    )
    assert read_place_question(f'{question}?', ('Turn Left', 'Turn Back'), place) == (
        'sofa 1; door none; no door, so unknown.',
        'unknown',
    )


def test_an_oracle_solves_rows_from_the_text_of_their_prompts_alone(rows: list[Row]) -> None:
    wrong = []
    for row in rows:
        place = read_place(row.prompt(BUDGET).user)
        assert place
        _, answer = read_place_question(row.question, row.options, place)
        is_right = answer == row.solution_text()
        if not is_right and row.answer_kind == 'number' and answer != 'unknown':
            is_right = number_accuracy(row, answer) >= 0.9  # the text is rounded
        if not is_right:
            wrong.append((row.question, answer, row.solution_text()))
    assert len(wrong) <= 0.005 * len(rows), wrong
    assert {row.question_type for row in rows} >= set(MAP_KINDS) - {'unknown_size'}
    assert set(MAP_KINDS) <= MAP_QUESTIONS


def test_a_trace_answers_by_the_text_of_an_option_and_names_no_other_number(
    rows: list[Row],
) -> None:
    for row in rows:
        trace = read_row(row, BUDGET)
        assert trace
        assert trace.answer in {*row.options, 'unknown'} or not row.options
        prompt = row.prompt(BUDGET).user
        for number in trace.think.split('From ')[-1].split('m;')[:-1]:
            assert number.split()[-1] in prompt


def test_a_map_of_a_room_takes_few_tokens_and_says_all_when_there_is_room() -> None:
    scene = random_scene_map(3)
    text = map_text(scene, 'What is there?', (), 5000)
    assert text.omitted == 0
    place = read_place(f'{text.text}\nSeen:\n')
    assert place
    assert sum(sum(counts) for counts in place.counts.values()) == len(scene.landmarks)
