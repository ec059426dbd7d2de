# SPDX-License-Identifier: Apache-2.0
"""Tables of benches stand in documents as the benches write them."""

from __future__ import annotations

from collections import defaultdict
from importlib import import_module
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from bench import item_positions, keyframes, perception, real_words, scene
from bench.__main__ import BENCHES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from training.eval.document_tables import DocumentTable

END = '<!-- end of bench -->'
PAGES = sorted((Path(__file__).resolve().parents[2] / 'docs' / 'results').glob('*.md'))
TABLE = re.compile(
    r'<!-- bench (?P<bench>\w+): (?P<name>\w+)(?:, [^>]+)? -->\n(?P<head>\|.*\|)\n'
    r'(?P<line>[|-]+)\n(?P<rows>(?:\|.*\|\n)+)' + END
)


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
    rows: dict[DocumentTable, Sequence[Sequence[Any]]] = {
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
