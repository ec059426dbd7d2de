# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from difflib import SequenceMatcher
from itertools import chain
from pathlib import Path
from random import Random
from string import Formatter
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import read_rows, write_rows
from embodied_r_ros.questions.wordings import FOREIGN, MAP_WORDINGS, WORDINGS
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.memory import MemoryConfig
import pytest

pytest.importorskip('torch')
pytest.importorskip('trl')

from test.training.test_sft import turning_row
from training.data.map_oracle import kind_and_words
from training.data.place_words import MORE_MAP_WORDINGS
from training.data.random_maps import rows_of_random_maps
from training.data.reword import (
    expand_pattern,
    in_other_words,
    in_words_of,
    main,
    MORE_FOREIGN,
    MORE_WORDINGS,
    read_wordings,
    reword_row,
)
from training.data.traces import read_row

if TYPE_CHECKING:
    from collections.abc import Iterable

    from embodied_r_ros.questions.row import Row


LISTS = {path.stem: path for path in (Path(__file__).parents[2] / 'training/wordings').iterdir()}
HELD_OUT_LISTS = ('fresh', 'survey')


def names_in(wording: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(wording) if name}


def all_of(pattern: str) -> set[str]:
    return {expand_pattern(pattern, Random(seed)) for seed in range(300)}


@pytest.mark.parametrize('kind', sorted(MORE_WORDINGS))
def test_more_wordings_are_many_and_none_that_rows_have(kind: str) -> None:
    more = set.union(*map(all_of, MORE_WORDINGS[kind]))
    assert len(more) > 35
    assert not more & set(WORDINGS[kind])
    assert {frozenset(names_in(text)) for text in more} == {frozenset(names_in(WORDINGS[kind][0]))}
    assert not any(character in text for text in more for character in '[]|')


@pytest.mark.parametrize('kind', sorted(MORE_WORDINGS))
def test_more_wordings_are_not_like_those_held_out(kind: str) -> None:
    held_out = WORDINGS[kind][-1].split()
    more = set.union(*map(all_of, MORE_WORDINGS[kind]))
    alike = max(SequenceMatcher(None, text.split(), held_out).ratio() for text in more)
    assert alike < 0.65


@pytest.mark.parametrize('kind', sorted(MAP_WORDINGS))
def test_more_wordings_about_a_place_are_new_and_not_like_those_held_out(kind: str) -> None:
    *known, held_out = MAP_WORDINGS[kind]
    more = set.union(*map(all_of, MORE_MAP_WORDINGS[kind]))
    assert not more & {*known, held_out}
    assert {frozenset(names_in(text)) for text in more} <= set(
        map(frozenset, map(names_in, MAP_WORDINGS[kind]))
    )

    def likeness(texts: Iterable[str]) -> float:
        split = held_out.split()
        return max(SequenceMatcher(None, text.split(), split).ratio() for text in texts)

    assert likeness(more) < max(0.65, likeness(known) + 0.05)


def test_questions_about_a_place_in_other_words_have_the_same_answer() -> None:
    config = QuestionsConfig(seed=7, moments=1, test_share=0, maps=True)
    rows = list(rows_of_random_maps(3, config, Coverage()))
    others = [reword_row(row, Random(seed)) for seed, row in enumerate(rows)]
    changed = [
        (row, other)
        for row, other in zip(rows, others, strict=True)
        if row.question != other.question
    ]
    assert len(changed) > 0.8 * len(rows)
    memory = MemoryConfig(450)
    for row, other in changed:
        assert kind_and_words(other.question) == kind_and_words(row.question)
        trace, as_it_was = read_row(other, memory), read_row(row, memory)
        assert trace
        assert as_it_was
        assert trace.answer == as_it_was.answer


def test_foreign_questions_are_not_those_held_out_and_stay_unknown() -> None:
    more = set.union(*(all_of(pattern) for pattern, _ in MORE_FOREIGN))
    assert len(more) > 100
    assert not more & {question for foreign in FOREIGN.values() for question, _ in foreign}
    question, options = FOREIGN[False][0]
    row = replace(
        turning_row(1, 'train'),
        question_type='unanswerable',
        question=question,
        options=options,
        solution=UNKNOWN,
    )
    others = [reword_row(row, Random(seed)) for seed in range(40)]
    assert len({other.question for other in others}) > 20
    assert {other.options for other in others} <= {options for _, options in MORE_FOREIGN}
    assert {other.solution for other in others} == {UNKNOWN}


def test_question_keeps_what_it_is_about() -> None:
    row = replace(
        turning_row(1, 'train'), question='How many different red objects came into view so far?'
    )
    texts = {reword_row(row, Random(seed)).question for seed in range(40)}
    assert len(texts) > 20
    assert all(' red ' in text for text in texts)


def test_reasoning_stays_the_same_in_other_words() -> None:
    row = replace(turning_row(3, 'train'), question=WORDINGS['net_turn'][0])
    other = reword_row(row, Random(0))
    assert other.question != row.question
    config = MemoryConfig()
    assert read_row(other, config) == read_row(row, config) is not None


def test_questions_of_people_stay_as_they_are() -> None:
    row = replace(turning_row(1, 'train'), question='Whose cup is it?')
    assert reword_row(row, Random(0)) is row


def asked_row(seed: int, split: str = 'train') -> Row:
    return replace(turning_row(seed, split), question=WORDINGS['net_turn'][0])


def test_a_share_of_the_training_rows_is_asked_in_other_words_with_other_ids() -> None:
    rows = [asked_row(seed) for seed in range(200)]
    told = list(in_other_words(rows, 0.6))
    others = [(row, other) for row, other in zip(rows, told, strict=True) if other is not row]
    assert 100 < len(others) < 140
    for row, other in others:
        assert other.question != row.question
        assert other == replace(row, id=f'{row.id}/reworded', question=other.question)
    assert list(in_other_words(rows, 0.0)) == rows


def test_rows_to_choose_by_and_to_evaluate_on_stay_as_they_are() -> None:
    rows = [asked_row(seed, split) for seed in range(20) for split in ('validation', 'test')]
    assert list(in_other_words(rows, 1.0)) == rows


def test_a_row_is_worded_the_same_whatever_stands_beside_it() -> None:
    rows = [asked_row(seed) for seed in range(40)]
    assert list(in_other_words(rows, 0.6))[20:] == list(in_other_words(rows[20:], 0.6))
    assert list(in_other_words(rows, 0.6, 1)) != list(in_other_words(rows, 0.6, 0))


def test_a_file_is_reworded(tmp_path: Path) -> None:
    rows = [asked_row(seed) for seed in range(8)]
    write_rows(tmp_path / 'rows.jsonl', rows)
    arguments = [str(tmp_path / 'rows.jsonl'), '--out', str(tmp_path / 'other.jsonl')]
    assert main([*arguments, '--share', '1', '--seed', '3']) == 0
    others = list(read_rows(tmp_path / 'other.jsonl'))
    assert [row.id for row in others] == [f'{row.id}/reworded' for row in rows]
    assert others == list(in_other_words(rows, 1.0, 3))


@pytest.mark.parametrize('name', sorted(LISTS.keys() - {'without_answer'}))
def test_prompts_in_any_words_hold_the_answer(name: str) -> None:
    config = QuestionsConfig(seed=8, moments=1, test_share=0, maps=True)
    memory, wordings = MemoryConfig(450), read_wordings(LISTS[name])
    answers = []
    for row in rows_of_random_maps(4, config, Coverage()):
        usual = read_row(row, memory)
        asked = in_words_of(row, wordings, Random(row.id))
        if usual and asked and usual.answer != UNKNOWN:
            trace = read_row(row, memory, asked)
            answers.append(trace is not None and trace.answer == usual.answer)
    assert len(answers) > 60
    assert sum(answers) >= 0.95 * len(answers)


@pytest.mark.parametrize('name', HELD_OUT_LISTS)
def test_held_out_wordings_are_of_every_kind_and_in_no_other_list(name: str) -> None:
    held_out = read_wordings(LISTS[name])
    others = {**WORDINGS, **MAP_WORDINGS}
    assert held_out.keys() >= others.keys() - {'revisit'}
    more = {**MORE_WORDINGS, **MORE_MAP_WORDINGS}
    lists = [read_wordings(LISTS[other]) for other in LISTS.keys() - {name}]
    for kind, texts in held_out.items():
        known = set(others[kind]).union(*map(all_of, more.get(kind, ())))
        assert not known.union(*(other.get(kind, {}) for other in lists)) & texts.keys()


def test_lists_for_training_are_not_like_what_is_held_out() -> None:
    held_out = [read_wordings(LISTS[name]) for name in HELD_OUT_LISTS]
    usual = {kind: texts[-1:] for kind, texts in {**WORDINGS, **MAP_WORDINGS}.items()}
    for name in LISTS.keys() - {*HELD_OUT_LISTS, 'without_answer'}:
        for kind, texts in read_wordings(LISTS[name]).items():
            words = [text.lower().split() for text in texts]
            for other in chain(usual[kind], *(texts.get(kind, ()) for texts in held_out)):
                matcher = SequenceMatcher(None, b=other.lower().split())
                for each in words[:: len(words) // 3]:  # a sample
                    matcher.set_seq1(each)
                    assert matcher.ratio() < 0.65


def test_rows_are_asked_in_words_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows, wordings, out = (tmp_path / name for name in ('rows.jsonl', 'my.yaml', 'out.jsonl'))
    turned = replace(turning_row(1, 'test'), question=WORDINGS['net_turn'][0])
    write_rows(rows, [turned, replace(turned, id='other', question='Who lives here?')])
    wordings.write_text('net_turn: ["Facing where, {now?"]')
    assert main([str(rows), '--wordings', str(wordings), '--out', str(out)]) == 0
    assert '1 of 2 rows' in capsys.readouterr().out
    (row,) = read_rows(out)
    assert row == replace(turned, question='Facing where, {now?', id=f'{turned.id}/reworded')


def test_objects_of_a_colour_are_counted_in_the_words_for_things() -> None:
    question = WORDINGS['how_many'][0].format(colour='red')
    row = replace(turning_row(1, 'test'), question_type='how_many', question=question)
    other = in_words_of(row, {'count_things': {'How many {items} so far?': ()}}, Random(0))
    assert other
    assert other.question == 'How many red objects so far?'


def test_questions_without_an_answer_come_with_other_options(tmp_path: Path) -> None:
    path = tmp_path / 'my.yaml'
    path.write_text("unanswerable: {'Who sings?': [Ann, Bob]}\nunknown_property: {'{item}?': []}")
    wordings = read_wordings(path)
    (question, options), *_ = FOREIGN[False]
    foreign = replace(asked_row(0), question=question, options=options)
    other = in_words_of(foreign, wordings, Random(0))
    assert other == replace(foreign, question='Who sings?', options=('Ann', 'Bob'))
    of_a_thing = replace(foreign, question='Is the red cup warm?')
    other = in_words_of(of_a_thing, wordings, Random(0))
    assert other == replace(foreign, question='red cup?', options=())
    assert in_words_of(turning_row(1, 'test'), wordings, Random(0)) is None


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('net_turm: [Which way]', "'net_turm', expected one of"),
        ('net_turn: Which way', 'expected a list of texts'),
        ('unanswerable: [Who sings]', 'expected a mapping of texts to lists of options'),
        ('unknown_property: {Who: []}', r"'Who', expected a text with .* braces: \['item'\]"),
        ('way_to: [Which way]', r"'Which way', expected a text with .* braces: \['item'\]"),
        ('- way_to', 'expected a mapping'),
    ],
)
def test_words_that_do_not_fit_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / 'my.yaml'
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        read_wordings(path)


def test_a_share_that_is_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_rows(tmp_path / 'rows.jsonl', [asked_row(0)])
    out = tmp_path / 'other.jsonl'
    assert main([str(tmp_path / 'rows.jsonl'), '--out', str(out), '--share', '60']) == 2
    assert '--share 60.0: expected a share from 0 to 1' in capsys.readouterr().err
    assert not out.exists()
