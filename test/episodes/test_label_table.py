# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import csv
from dataclasses import replace
from io import StringIO
from typing import TYPE_CHECKING

from embodied_r_ros.episodes.label_check import append_label, read_scope
from embodied_r_ros.episodes.label_table import COLUMNS, write_label_table
from embodied_r_ros.types.labels import Label, LabelKind, WrittenQuestion

from test.episodes.test_labels import correct, NOW_NS, undo
from test.questions.test_logged import answer, SECOND_NS, write_bag

if TYPE_CHECKING:
    from pathlib import Path


def test_a_table_tells_what_was_asked_answered_and_said(tmp_path: Path) -> None:
    given = replace(answer(), observation_stamp_ns=4 * SECOND_NS)
    bag = write_bag(tmp_path / 'e1', [given])
    bare = write_bag(tmp_path / 'e2', [given])
    asked = WrittenQuestion('=HYPERLINK("x")', 3 * SECOND_NS)
    own = Label('q1', 'q1', LabelKind.QUESTION, 'bob', NOW_NS, after='-2', question=asked)
    first = correct('ahead')
    for label in (first, undo(first), own):
        append_label(bag, label, read_scope(bag))
    out = StringIO()
    assert write_label_table([bag, bare], out) == 3
    rows = list(csv.DictReader(StringIO(out.getvalue())))
    assert tuple(rows[0]) == COLUMNS
    assert list(rows[0].values()) == [
        'e1', 'run-1', '4000000000', 'Where is the door?', 'left | right | ahead', 'left', 'nano',
        '', 'ann', '2023-11-14T22:13:20+00:00', 'correct', 'left', 'ahead', 'no',
    ]  # fmt: skip
    assert [(row['kind'], row['before'], row['after'], row['stands']) for row in rows[1:]] == [
        ('undo', 'ahead', 'left', 'no'),
        ('question', '', '-2', 'yes'),
    ]
    # No formula, whatever was written.
    assert (rows[2]['stamp_ns'], rows[2]['question']) == ('3000000000', '\'=HYPERLINK("x")')
