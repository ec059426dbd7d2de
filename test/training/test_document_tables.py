# SPDX-License-Identifier: Apache-2.0
"""Benches write their tables between the comments of a page."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import pytest

pytest.importorskip('torch')

from training.eval.document_tables import DocumentTable, percent, write_tables

if TYPE_CHECKING:
    from pathlib import Path

NAMES = DocumentTable('bench rows', 'names', ('', 'a', 'b'))
ROWS = [('one', 1, '2 m'), ('two', '', percent(0.25))]
TEXT = """<!-- bench rows: names -->
| | a | b |
|---|---|---|
| one | 1 | 2 m |
| two | | 25 % |
<!-- end of bench -->"""


def args(page: Path, variant: str = '') -> Namespace:
    return Namespace(markdown=page, variant=variant)


def test_a_table_is_written_into_a_new_file_and_replaced_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    write_tables(args(page), {NAMES: ROWS})
    assert page.read_text() == f'{TEXT}\n'
    page.write_text(f'# Rows\n\n{TEXT}\n\nThe end.\n{NAMES.text([], "more")}\n')
    write_tables(args(page), {NAMES: ROWS[:1]})
    start, _, rest = page.read_text().partition('| two')
    assert start.startswith('# Rows')
    assert rest == ''
    assert page.read_text().count('one') == 1
    write_tables(args(page, 'more'), {NAMES: ROWS[1:]})
    _, _, end = page.read_text().partition('The end.')
    assert '| two | | 25 % |' in end


def test_a_page_without_a_place_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# Rows\n')
    with pytest.raises(InputError, match=r'no place for the table: write <!-- bench rows: na'):
        write_tables(args(page), {NAMES: ROWS})
    assert page.read_text() == '# Rows\n'


def test_without_the_option_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(Namespace(markdown=None), {NAMES: ROWS})
    assert list(tmp_path.iterdir()) == []


def test_figures_are_written_as_in_the_documents() -> None:
    assert (percent(0.25), percent(None), percent(float('nan'))) == ('25 %', '', '')
