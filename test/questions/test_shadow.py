# SPDX-License-Identifier: Apache-2.0
"""Recordings with a candidate in the shadow: pairs of answers, and what proves the right one."""

from __future__ import annotations

from dataclasses import replace
import json
from typing import TYPE_CHECKING

from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.episodes.label_check import append_label, read_scope
from embodied_r_ros.questions.shadow import shadow_pairs
from embodied_r_ros.questions.wordings import PLACES, WORDINGS
from embodied_r_ros.types.answers import shadow_id
from embodied_r_ros.types.episodes import LabelVerdict

from test.episodes.test_labels import correct
from test.questions.test_logged import answer, label, logged_rows, write_bag

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.types.answers import Answer

MOVED = WORDINGS['net_displacement'][0]
SHADOWED = json.dumps({'parameters': {'shadow.server': 'http://127.0.0.1:8101'}})


def shadow_of(given: Answer, option: int = 1) -> Answer:
    """What a candidate said to the same question: another option."""
    text = given.options[option]
    return replace(given, id=shadow_id(given.id), option_index=option, text=text)


def test_pairs_hold_both_answers_and_what_proves_the_right_one(tmp_path: Path) -> None:
    corrected, unproven = answer('run-1'), answer('run-3')
    moved = answer('run-2', MOVED, tuple(PLACES.values()))
    bag = write_bag(
        tmp_path / 'bag',
        [corrected, moved, unproven],
        [label(LabelVerdict.CORRECTED, 'right', 'run-1')],
        shadows=[shadow_of(corrected), shadow_of(moved)],
    )
    pairs = {pair.given.id: pair for pair in shadow_pairs(read_episode(bag))}
    assert list(pairs) == ['run-1', 'run-2', 'run-3']
    first, second, third = pairs.values()
    assert (first.solution, first.source) == ('B', 'label')
    assert first.shadow
    assert (first.given.text, first.shadow.text, first.shadow.id) == (
        'left',
        'right',
        'run-1-shadow',
    )
    assert second.source == 'odometry'
    assert second.options[ord(second.solution) - ord('A')] == 'ahead of the start'
    assert (third.shadow, third.solution, third.source) == (None, '', 'nothing proves it')


def test_people_who_differ_solve_nothing(tmp_path: Path) -> None:
    given = answer('run-1')
    bag = write_bag(tmp_path / 'bag', [given], shadows=[shadow_of(given)])
    for one in (correct('left'), correct('right', 'bob')):
        append_label(bag, one, read_scope(bag))
    [pair] = shadow_pairs(read_episode(bag))
    assert (pair.solution, pair.source) == ('', 'people differ about its answer')


def test_shadow_is_no_answer_that_was_given(tmp_path: Path) -> None:
    given = answer('run-1')
    bag = write_bag(
        tmp_path / 'bag',
        [given],
        [label(LabelVerdict.RIGHT)],
        shadows=[shadow_of(given)],
    )
    assert [row.meta['answer_id'] for row in logged_rows(bag)] == ['run-1']
    assert [one.id for one in read_episode(bag).log.answers] == ['run-1']


def test_shadow_that_never_came_to_a_question_is_known_by_the_parameters(tmp_path: Path) -> None:
    given, unasked = answer('run-1'), replace(answer('run-2'), prompt='', prompt_sha256='')
    bag = write_bag(tmp_path / 'bag', [given, unasked], provenance=SHADOWED)
    assert [(p.given.id, p.shadow) for p in shadow_pairs(read_episode(bag))] == [('run-1', None)]
    without = write_bag(tmp_path / 'without', [given])
    assert shadow_pairs(read_episode(without)) == []
