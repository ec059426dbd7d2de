# SPDX-License-Identifier: Apache-2.0
"""The layer of labels: nothing is lost or mixed, and what does not fit is refused."""

from __future__ import annotations

from dataclasses import replace
import errno
from multiprocessing import get_context
import os
from pathlib import Path
import time

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.types.episodes import (
    AnswerLabel,
    Label,
    LabelKind,
    LabelLayer,
    LabelVerdict,
    Verdict,
    WrittenQuestion,
)
from embodied_r_ros.data.episodes.label_check import (
    append_label,
    check_labels,
    LabelScope,
    LabelTarget,
    read_scope,
    solution_in_words,
)
from embodied_r_ros.data.episodes.labels import (
    agreements,
    append_with,
    cohens_kappa,
    LABELS,
    labels_path,
    line_of,
    parse_labels,
    read_labels,
)
import pytest

from test.data.questions.test_logged import answer, SECOND_NS, SIDES, write_bag

NOW_NS = 1_700_000_000 * SECOND_NS
SCOPE = LabelScope({'run-1': LabelTarget(SIDES, 'left'), 'run-2': LabelTarget()}, 10, 20, 'e1/')


def correct(after: str, who: str = 'ann', name: str = '', question: str = 'run-1') -> Label:
    kind = LabelKind.UNANSWERABLE if after == 'unknown' else LabelKind.CORRECT
    return Label(name or f'{who}-{after}', question, kind, who, NOW_NS, after=after)


def undo(of: Label) -> Label:
    return Label(f'undo-{of.id}', of.question_id, LabelKind.UNDO, of.who, NOW_NS, undoes=of.id)


def question_label(stamp_ns: int = 15, after: str | None = '2', name: str = 'q1') -> Label:
    question = WrittenQuestion('How many doors?', stamp_ns)
    return Label(name, name, LabelKind.QUESTION, 'ann', NOW_NS, after=after, question=question)


def test_labels_come_back_in_order_with_what_was_before(tmp_path: Path) -> None:
    first, second = correct('right'), correct('ahead')
    given = [append_label(tmp_path, one, SCOPE) for one in (first, second, undo(second))]
    layer = read_labels(tmp_path)
    assert layer == LabelLayer(tuple(given))
    assert [(one.before, one.after) for one in given] == [
        ('left', 'right'),
        ('right', 'ahead'),
        ('ahead', 'right'),
    ]
    assert {who: one.after for who, one in layer.by_question()['run-1'].items()} == {
        'ann': 'right'
    }


def test_nothing_but_a_line_in_the_making_is_lost(tmp_path: Path) -> None:
    """Of a process that was killed at any byte of the second line, the first label stands."""
    first, second = correct('right', 'ä€n'), correct('unknown', 'bob')
    lines = line_of(first), line_of(second)
    for cut in range(len(lines[1]) + 1):
        (tmp_path / LABELS).write_bytes(lines[0] + lines[1][:cut])
        layer = read_labels(tmp_path)
        whole = cut >= len(lines[1]) - 1  # but for the end of the line
        assert layer.labels == ((first, second) if whole else (first,))
        assert layer.damage == (() if whole or not cut else ('line 2 is no label (cut off)',))
        append_label(tmp_path, correct('ahead', 'cy'), SCOPE)
        layer = read_labels(tmp_path)
        assert [one.who for one in layer.labels] == ['ä€n', *(['bob'] * whole), 'cy']
        assert len(layer.damage) == (not whole and cut > 0)


def write_many(folder: str, who: str) -> None:
    """Write labels on a slow disk that takes a few bytes at a time."""
    write = os.write

    def write_little(descriptor: int, data: bytes) -> int:
        time.sleep(0.001)
        return write(descriptor, data[:60])

    os.write = write_little  # type: ignore[assignment]
    for number in range(15):
        append_label(Path(folder), correct('right', who, f'{who}-{number}'), SCOPE)


def test_two_writers_do_not_mix(tmp_path: Path) -> None:
    context = get_context('fork')
    writers = [context.Process(target=write_many, args=(tmp_path, who)) for who in ('ann', 'bob')]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(60)
    layer = read_labels(tmp_path)
    assert layer.damage == ()
    for who in ('ann', 'bob'):
        own = [one.id for one in layer.labels if one.who == who]
        assert own == [f'{who}-{number}' for number in range(15)]


def test_a_label_that_comes_twice_is_one(tmp_path: Path) -> None:
    first = append_label(tmp_path, correct('right'), SCOPE)
    assert append_label(tmp_path, correct('right'), SCOPE) == first
    assert len((tmp_path / LABELS).read_bytes().splitlines()) == 1


def test_a_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_label(tmp_path, correct('right'), SCOPE)
    before = (tmp_path / LABELS).read_bytes()
    write = os.write

    def write_half(descriptor: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, 'No space left on device')
        return write(descriptor, data[: len(data) // 2])

    monkeypatch.setattr(os, 'write', write_half)
    with pytest.raises(EmbodiedRError, match='No space left'):
        append_label(tmp_path, correct('ahead'), SCOPE)
    assert (tmp_path / LABELS).read_bytes() == before


def test_where_labels_lie(tmp_path: Path) -> None:
    assert labels_path(tmp_path) == tmp_path / LABELS
    assert labels_path(tmp_path / 'a.mcap') == tmp_path / 'a.mcap.labels.jsonl'


@pytest.mark.parametrize(
    'line', [b'7', b'[]', b'{}', b'{"id":1}', b'\xff', b'null', b'[' * 9999, b'\0' * 40]
)
def test_a_foreign_line_is_damage(line: bytes) -> None:
    layer = parse_labels(line_of(correct('right')) + line + b'\n' + line_of(correct('ahead')))
    assert [one.after for one in layer.labels] == ['right', 'ahead']
    assert len(layer.damage) == 1
    assert layer.damage[0].startswith('line 2 is no label')


@pytest.mark.parametrize(
    ('label', 'why'),
    [
        (correct('above'), "'above' is none of the options"),
        (correct('B'), "solution 'B' is written 'right'"),
        (correct(' '), 'expected 1 to 4000 characters'),
        (correct('right', question='run-9'), "question 'run-9' is not in the recording"),
        (replace(correct('right'), kind=LabelKind.UNANSWERABLE), "goes with 'unknown'"),
        (replace(correct('right'), kind=LabelKind.RIGHT), "right is 'left' here, not 'right'"),
        (replace(correct('right'), after=None), 'only wrong goes without one'),
        (Label('a', 'run-2', LabelKind.RIGHT, 'ann', NOW_NS), 'right is None here'),
        (correct('right', '  '), 'who is'),
        (replace(correct('right'), when_ns=0), 'when_ns is 0'),
        (undo(correct('right')), 'undoes is'),
        (question_label(9), 'stamp_ns 9 is outside of the recording (10 to 20)'),
        (replace(question_label(), question_id='q2'), 'its own id as question_id'),
        (
            replace(question_label(), question=WrittenQuestion('?', 15, ('one',))),
            'one option alone',
        ),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path: Path, label: Label, why: str) -> None:
    with pytest.raises(InputError) as error:
        append_label(tmp_path, label, SCOPE)
    assert why in str(error.value)
    assert read_labels(tmp_path).labels == ()


def test_only_own_labels_that_stand_can_be_taken_back(tmp_path: Path) -> None:
    own = append_label(tmp_path, correct('right'), SCOPE)
    for wrong in (replace(undo(own), who='bob'), replace(undo(own), question_id='run-2')):
        with pytest.raises(InputError, match='undoes is'):
            append_label(tmp_path, wrong, SCOPE)
    append_label(tmp_path, undo(own), SCOPE)
    with pytest.raises(InputError, match='undoes is'):
        append_label(tmp_path, replace(undo(own), id='again'), SCOPE)


def test_a_written_question_can_be_labelled_and_taken_back(tmp_path: Path) -> None:
    append_label(tmp_path, question_label(after=None), SCOPE)
    layer = read_labels(tmp_path)
    assert (list(layer.questions()), layer.by_question()) == (['q1'], {})
    append_label(tmp_path, correct('3', 'bob', question='q1'), SCOPE)
    assert Verdict.of(read_labels(tmp_path).by_question()['q1'], None).solution == '3'
    append_label(tmp_path, undo(question_label()), SCOPE)
    layer = read_labels(tmp_path)
    assert (layer.questions(), layer.by_question()) == ({}, {})


def test_solutions_are_kept_in_words() -> None:
    words = [solution_in_words(text, SIDES) for text in ('b', 'Ahead', ' (A) left', 'Unknown.')]
    assert words == ['right', 'ahead', 'left', 'unknown']
    assert solution_in_words(' 3 m ', ()) == '3 m'


def test_people_who_differ_have_no_solution_together() -> None:
    ann, bob = correct('right'), correct('ahead', 'bob')
    wrong = Label('w', 'run-1', LabelKind.WRONG, 'bob', NOW_NS)
    assert Verdict.of({'ann': ann, 'bob': bob}, 'left') == Verdict(None, ('ann', 'bob'), True)
    assert Verdict.of({'ann': ann, 'bob': wrong}, 'left').solution == 'right'
    assert Verdict.of({'ann': ann, 'bob': wrong}, 'right').is_disputed
    assert Verdict.of({'bob': wrong}, 'left') == Verdict(None, ('bob',))


def test_kappa_of_a_case_from_the_literature() -> None:
    """Agreement on 35 of 50 with these margins: kappa 0.4."""
    pairs = [('y', 'y')] * 20 + [('y', 'n')] * 5 + [('n', 'y')] * 10 + [('n', 'n')] * 15
    assert cohens_kappa(pairs) == pytest.approx(0.4)
    assert cohens_kappa([('y', 'y')] * 3) is None


def test_agreement_is_over_questions_that_both_labelled(tmp_path: Path) -> None:
    first = LabelLayer((correct('right'), correct('right', 'bob'), correct('ahead', 'cy')))
    second = LabelLayer((correct('right'), correct('Ahead', 'bob')))
    pairs = {pair.people: pair for pair in agreements([first, second])}
    assert (pairs['ann', 'bob'].questions, pairs['ann', 'bob'].share) == (2, 0.5)
    assert (pairs['ann', 'cy'].agreed, pairs['ann', 'cy'].kappa) == (0, 0.0)


def test_labels_of_another_recording_do_not_fit(tmp_path: Path) -> None:
    said = AnswerLabel(9 * SECOND_NS, 'run-1', LabelVerdict.RIGHT)
    bag = write_bag(tmp_path / 'e1', [answer()], [said])
    scope = read_scope(bag)
    assert (scope.begin_ns, scope.row_prefix) == (SECOND_NS, 'e1/')
    append_label(bag, correct('ahead'), scope)
    append_with(bag, lambda layer: correct('right', 'bob', question='run-7'))
    report = check_labels(bag)
    assert report.counts == {'correct': 2}
    assert report.unfit == ("label bob-right: question 'run-7' is not in the recording",)


def test_labels_of_a_broken_recording_are_named(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'e1', [answer()])
    append_label(bag, correct('ahead'), read_scope(bag))
    next(bag.glob('*.mcap')).write_bytes(b'no bag')
    (why,) = check_labels(bag).unfit
    assert 'cannot be read' in why
