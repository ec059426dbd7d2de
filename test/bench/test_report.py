# SPDX-License-Identifier: Apache-2.0
"""Tables of benches stand in documents as the benches write them."""

from __future__ import annotations

from argparse import Namespace
from collections import defaultdict
from importlib import import_module
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
import pytest

from bench import item_positions, keyframes, perception, real_words, scene
from bench.__main__ import BENCHES
from bench.report import BenchTable, END, percent, write_tables

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PAGES = sorted((Path(__file__).resolve().parents[2] / 'docs' / 'results').glob('*.md'))
TABLE = re.compile(
    r'<!-- bench (?P<bench>\w+): (?P<name>\w+)(?:, [^>]+)? -->\n(?P<head>\|.*\|)\n'
    r'(?P<line>[|-]+)\n(?P<rows>(?:\|.*\|\n)+)' + re.escape(END)
)
NAMES = BenchTable('rows', 'names', ('', 'a', 'b'))
ROWS = [('one', 1, '2 m'), ('two', '', percent(0.25))]
TEXT = f"""<!-- bench rows: names -->
| | a | b |
|---|---|---|
| one | 1 | 2 m |
| two | | 25 % |
{END}"""


def standing() -> Iterator[tuple[str, re.Match[str]]]:
    for page in PAGES:
        text = page.read_text()
        tables = list(TABLE.finditer(text))
        # None of them is half a table.
        assert len(tables) == text.count('<!-- bench ') == text.count(END), page.name
        yield from ((page.name, table) for table in tables)


def test_tables_of_documents_are_those_that_benches_write() -> None:
    written: dict[str, set[str]] = {}
    for page, table in standing():
        tables = {one.name: one for one in import_module(f'bench.{table["bench"]}').TABLES}
        head = tables[table['name']].text([]).splitlines()[1:3]
        assert [table['head'], table['line']] == head, (page, table['name'])
        widths = {row.count('|') for row in table['rows'].splitlines()}
        assert widths == {table['head'].count('|')}, (page, table['name'])
        written.setdefault(table['bench'], set()).add(table['name'])
    for bench, names in written.items():
        assert bench in BENCHES
        assert names == {one.name for one in import_module(f'bench.{bench}').TABLES}


def test_rows_of_benches_fit_their_heads() -> None:
    half: Any = defaultdict(lambda: 0.5)
    both: Any = {references: defaultdict(lambda: half) for references in ('true', 'own')}
    methods: Any = dict.fromkeys(keyframes.METHODS, both)
    times: Any = defaultdict(lambda: defaultdict(lambda: half))
    words = real_words.Words('walk', 'classical', 5, *[0.5] * 4)
    rows: dict[BenchTable, Sequence[Sequence[Any]]] = {
        keyframes.SELECTION: keyframes.selection_rows(methods, {'walk': times}),
        keyframes.TIMES: keyframes.time_rows(times),
        scene.ROOMS: scene.room_rows(dict.fromkeys(scene.ROOMS.head[1:], half)),
        perception.ROOMS: perception.table_rows(defaultdict(lambda: half)),
        item_positions.POSITIONS: item_positions.table_rows({'walk': {'depth': half}}),
        real_words.WORDS: real_words.table_rows([words]),
    }
    for table, some in rows.items():
        assert {len(row) for row in some} == {len(table.head)}, table.name
        assert TABLE.fullmatch(table.text(some)), table.name


def test_a_table_is_written_into_a_new_file_and_replaced_in_its_place(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    args = Namespace(markdown=page, variant='')
    write_tables(args, {NAMES: ROWS})
    assert page.read_text() == f'{TEXT}\n'
    page.write_text(f'# Rows\n\n{TEXT}\n\nThe end.\n{NAMES.text([], "more")}\n')
    write_tables(args, {NAMES: ROWS[:1]})
    start, _, rest = page.read_text().partition('| two')
    assert start.startswith('# Rows')
    assert rest == ''
    assert page.read_text().count('one') == 1
    write_tables(Namespace(markdown=page, variant='more'), {NAMES: ROWS[1:]})
    _, _, end = page.read_text().partition('The end.')
    assert '| two | | 25 % |' in end


def test_a_page_without_a_place_stays_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / 'page.md'
    page.write_text('# Rows\n')
    with pytest.raises(InputError, match=r'no place for the table: write <!-- bench rows: names'):
        write_tables(Namespace(markdown=page, variant=''), {NAMES: ROWS})
    assert page.read_text() == '# Rows\n'


def test_without_the_option_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_tables(Namespace(markdown=None), {NAMES: ROWS})
    assert list(tmp_path.iterdir()) == []
