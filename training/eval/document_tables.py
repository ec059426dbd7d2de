# SPDX-License-Identifier: Apache-2.0
"""Tables of documents that commands write, each between two comments that name it.

`<!-- bench keyframes: times -->` stands above the table TIMES of the bench keyframes, and
`<!-- end of bench -->` below it; `--markdown PAGE.md` writes what stands between.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class DocumentTable:
    """A table of a document that a command writes."""

    command: str  # such as `bench keyframes` or `training.evaluate`
    name: str  # among the tables of the command
    head: tuple[str, ...]

    def place(self, variant: str = '') -> str:
        """The comment above the table; several runs of one command differ in their variant."""
        return f'<!-- {self.command}: {self.name}{f", {variant}" if variant else ""} -->'

    @property
    def end(self) -> str:
        """The comment below the table."""
        return f'<!-- end of {re.split("[ .]", self.command)[0]} -->'

    def text(self, rows: Iterable[Sequence[Any]], variant: str = '') -> str:
        """The table with the comments around it, in Markdown."""
        line = '|' + '---|' * len(self.head)
        lines = [_line(self.head), line, *map(_line, rows)]
        return '\n'.join([self.place(variant), *lines, self.end])

    def found_in(self, text: str, variant: str = '') -> re.Match[str] | None:
        """Where the table stands in a page, with its comments."""
        pattern = re.escape(self.place(variant)) + r'\n(?P<table>.*?)' + re.escape(self.end)
        return re.search(pattern, text, re.DOTALL)


def _line(cells: Sequence[Any]) -> str:
    return '|' + '|'.join(f' {cell} '.replace('  ', ' ') for cell in cells) + '|'


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip('|').split('|')]


def add_markdown_option(parser: argparse.ArgumentParser) -> None:
    """Declare where the tables of a command go."""
    parser.add_argument(
        '--markdown',
        type=Path,
        metavar='PAGE.md',
        help='write the tables there too: between the comments that name this command, or into a '
        'new file',
    )
    parser.add_argument(
        '--variant', default='', help='with --markdown: name of the run, where a page has several'
    )


def write_tables(
    args: argparse.Namespace, tables: Mapping[DocumentTable, Sequence[Sequence[Any]]]
) -> None:
    """Write the tables of a command where `--markdown` wants them.

    Raises:
        InputError: The page is there and has no place for a table, or cannot be written.
    """
    page: Path | None = args.markdown
    if page is None:
        return
    text = _text_of(page) if page.exists() else ''
    for table, rows in tables.items():
        new = table.text(rows, args.variant)
        if not page.exists():
            text += f'{new}\n\n'
        elif found := table.found_in(text, args.variant):
            text = text[: found.start()] + new + text[found.end() :]
        else:
            raise _no_place(page, table, args.variant)
    write_whole(page, text.rstrip() + '\n')


def _text_of(page: Path) -> str:
    try:
        return page.read_text(encoding='utf-8')
    except (OSError, ValueError) as error:
        msg = f'{page} cannot be read: {error}'
        raise InputError(msg) from None


def _no_place(page: Path, table: DocumentTable, variant: str) -> InputError:
    place = table.place(variant)
    return InputError(f'{page} has no place for the table: write {place} and {table.end} into it')


def write_cells(
    args: argparse.Namespace, tables: Mapping[DocumentTable, Sequence[Sequence[Any]]]
) -> None:
    """Write the cells of a page's tables that one run knows, by the names of row and column.

    What other runs wrote stays, as do the rows and columns that the page has chosen.

    Raises:
        InputError: The page has a place for none of the tables, a table there has no row or column
            of this run, or the page cannot be written.
    """
    page: Path | None = args.markdown
    if page is None or not page.exists():
        write_tables(args, tables)
        return
    text = _text_of(page)
    has_place = False
    for table, rows in tables.items():
        place = table.found_in(text, args.variant)
        if place is None:
            continue
        has_place = True
        if not place['table'].strip():  # two comments alone
            text = text[: place.start()] + table.text(rows, args.variant) + text[place.end() :]
            continue
        cells = {
            (str(row[0]), column): str(cell)
            for row in rows
            for column, cell in zip(table.head[1:], row[1:], strict=True)
        }
        try:
            new = _filled(place['table'].splitlines(), cells)
        except InputError as error:
            msg = f'{page}: {table.place(args.variant)}: {error}'
            raise InputError(msg) from None
        text = text[: place.start('table')] + new + text[place.end('table') :]
    if not has_place:
        raise _no_place(page, next(iter(tables)), args.variant)
    write_whole(page, text)


def _filled(lines: Sequence[str], cells: Mapping[tuple[str, str], str]) -> str:
    """The lines of a table with the cells that are known."""
    head, *rows = [_cells(line) for line in (lines[0], *lines[2:])]
    if odd := [row for row in rows if len(row) != len(head)]:
        msg = f'the line of {odd[0][0]!r} has {len(odd[0])} cells, expected {len(head)}'
        raise InputError(msg)
    if not any((row[0], column) in cells for row in rows for column in head[1:]):
        names = [sorted({name[side] for name in cells}) for side in (0, 1)]
        msg = f'the table has no row of {", ".join(names[0])} with a column {", ".join(names[1])}'
        raise InputError(msg)
    new = []
    for name, *old in rows:
        known = zip(head[1:], old, strict=True)
        new.append(_line([name, *(cells.get((name, column), cell) for column, cell in known)]))
    return '\n'.join([*lines[:2], *new, ''])


def percent(share: float | None, digits: int = 0) -> str:
    """A share in per cent, for a table; None or NaN: there is none."""
    return '' if share is None or math.isnan(share) else f'{100 * share:.{digits}f} %'


def rate_cell(figures: Mapping[str, Any]) -> str:
    """`accuracy` in per cent with its interval: `88.0 % (84.3 to 91.3)`."""
    interval = figures['interval_95']
    within = f' ({" to ".join(f"{100 * end:.1f}" for end in interval)})' if interval else ''
    return percent(figures['accuracy'], 1) + within


def difference_cell(figures: Mapping[str, Any] | None) -> str:
    """A paired difference in points: `+9.2 (+6.5 to +11.7), p = 0.0001`; None: there is none."""
    if figures is None:
        return ''
    interval = figures['interval_95']
    ends = f' ({" to ".join(f"{100 * end:+.1f}" for end in interval)})' if interval else ''
    text = f'{100 * figures["difference"]:+.1f}{ends}, p = {figures["p_value"]:.2g}'
    return text.replace('-', '\N{MINUS SIGN}')
