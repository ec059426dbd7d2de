# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types import episodes
from embodied_r_ros.core.types.episodes import AnswerBook, check_label, LabelVerdict
import pytest


def test_empty_id_means_the_latest_answer() -> None:
    book = AnswerBook()
    assert book.find('') is None
    book.note('a')
    book.note('b')
    assert book.find('') == 'b'
    assert book.find('a') == 'a'
    assert book.find('c') is None


def test_old_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(episodes, '_REMEMBERED', 2)
    book = AnswerBook()
    for answer_id in 'abc':
        book.note(answer_id)
    assert book.find('a') is None
    assert book.find('b') == 'b'


@pytest.mark.parametrize(
    ('verdict', 'correction', 'expected'),
    [
        (0, '', LabelVerdict.RIGHT),
        (1, '', LabelVerdict.WRONG),
        (2, 'left', LabelVerdict.CORRECTED),
    ],
)
def test_label_is_read(verdict: int, correction: str, expected: LabelVerdict) -> None:
    assert check_label(verdict, correction) is expected


@pytest.mark.parametrize(
    ('verdict', 'correction', 'message'),
    [
        (3, '', 'verdict 3 is unknown: expected one of 0 right, 1 wrong, 2 corrected'),
        (2, ' ', "verdict corrected with correction ' '"),
        (0, 'left', "verdict right with correction 'left'"),
    ],
)
def test_label_that_contradicts_itself_is_refused(
    verdict: int, correction: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        check_label(verdict, correction)
