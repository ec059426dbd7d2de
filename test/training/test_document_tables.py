# SPDX-License-Identifier: Apache-2.0
"""Commands write their tables, or the cells that they know, between the comments of a page."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import pytest

pytest.importorskip('torch')

from training.eval.document_tables import (
    difference_cell,
    DocumentTable,
    percent,
    rate_cell,
    write_cells,
    write_tables,
)
from training.evaluate import document_table
from training.experiments.models import tables

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
RATES = {'n': 8, 'accuracy': 0.5, 'interval_95': (0.25, 0.75)}
REPORT = {
    **RATES,
    'by_wording': {'known': RATES, 'held out': RATES},
    'majority_baseline': 0.25,
    'question_only_accuracy': 0.125,
    'format': 1.0,
    'consistency': None,
    'unknown': {'precision': None, 'recall': 1.0},
    'by_type': {'nearest': RATES},
}


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
    for write in (write_tables, write_cells):
        with pytest.raises(InputError, match=r'no place for the table: write <!-- bench rows: na'):
            write(args(page), {NAMES: ROWS})
    assert page.read_text() == '# Rows\n'


def test_without_the_option_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(Namespace(markdown=None), {NAMES: ROWS})
    write_cells(Namespace(markdown=None), {NAMES: ROWS})
    assert list(tmp_path.iterdir()) == []


def test_a_run_writes_its_own_cells_and_leaves_the_others(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text(f'# Rows\n\n{TEXT}\n\nThe end.\n')
    column = DocumentTable('bench rows', 'names', ('', 'b', 'c'))
    write_cells(args(page), {column: [('two', '3 m', 4), ('three', '5 m', 6)]})
    assert page.read_text() == f'# Rows\n\n{TEXT.replace("25 %", "3 m")}\n\nThe end.\n'
    other = DocumentTable('bench rows', 'names', ('', 'c'))
    with pytest.raises(InputError, match=r'names -->: the table has no row of two with a co'):
        write_cells(args(page), {other: [('two', 4)]})
    page.write_text(TEXT.replace('| two | | 25 % |', '| two | 25 % |'))
    with pytest.raises(InputError, match=r"the line of 'two' has 2 cells, expected 3"):
        write_cells(args(page), {column: [('two', '3 m', 4)]})
    page.write_text(f'{NAMES.place()}\n{NAMES.end}\n')
    write_cells(args(page), {NAMES: ROWS})
    assert page.read_text() == f'{TEXT}\n'
    page.write_bytes(b'\xff')
    for unreadable in (page, tmp_path):
        with pytest.raises(InputError, match='cannot be read'):
            write_cells(args(unreadable), {NAMES: ROWS})
    new = tmp_path / 'new.md'
    write_cells(args(new), {other: [('two', 4)]})
    assert '| two | 4 |' in new.read_text()


def test_figures_are_written_as_in_the_documents() -> None:
    pair = {'difference': -0.019, 'interval_95': (-0.051, 0.011), 'p_value': 0.28}
    assert rate_cell(RATES) == '50.0 % (25.0 to 75.0)'
    assert rate_cell({**RATES, 'interval_95': None}) == '50.0 %'
    assert difference_cell(pair) == '−1.9 (−5.1 to +1.1), p = 0.28'  # noqa: RUF001
    assert (difference_cell(None), percent(None), percent(float('nan'))) == ('', '', '')


def test_an_evaluation_is_a_column() -> None:
    table, lines = document_table(REPORT, 'nano')
    cells = dict(lines)
    assert table.head == ('', 'nano')
    assert cells['held-out words'] == '50.0 % (25.0 to 75.0)'
    assert cells['consistency, judged'] == ''
    assert (cells['unknown: precision, recall'], cells['nearest']) == ('-, 1.00', '50 % of 8')


def test_a_grid_is_a_table_for_each_file_of_rows_and_one_of_the_means() -> None:
    pair = {'difference': 0.25, 'interval_95': None, 'p_value': 0.5}
    cell = {**REPORT, 'rows': 'camera', 'words': 7.4}
    start = {**cell, 'model': 'start', 'against_first': None}
    better = {**cell, 'model': 'better', 'against_first': pair}
    mean = {
        **{'rows': 'camera', 'recipe': 'GRPO', 'against_first': pair, 'interval_95': None},
        **{'accuracy': 0.75, 'by_type': {'nearest': {'accuracy': 1.0}}},
    }
    made: dict[str, Any] = {
        table.name: (table.head, rows)
        for table, rows in tables({'cells': [start, better], 'means': [mean]}).items()
    }
    head, rows = made['camera']
    lines = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
    assert list(lines) == ['start', 'better', 'GRPO, mean']
    assert lines['better']['format'] == '100.0 %'
    assert lines['better']['against the first'] == '+25.0, p = 0.5'
    assert made['camera, by type'][1] == [('nearest', '50 %', '50 %', '100 %')]
    assert made['means'][1] == [('camera', '50.0 % (25.0 to 75.0)', '75.0 %', '+25.0, p = 0.5')]
