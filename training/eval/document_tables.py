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

    command: str  # such as `bench keyframes`
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


def percent(share: float | None, digits: int = 0) -> str:
    """A share in per cent, for a table; None or NaN: there is none."""
    return '' if share is None or math.isnan(share) else f'{100 * share:.{digits}f} %'
