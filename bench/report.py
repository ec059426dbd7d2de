# SPDX-License-Identifier: Apache-2.0
"""What a bench measures of its process, and says at the end: figures, budgets, tables.

A table of a document stands between two comments, `<!-- bench NAME: TABLE -->` and
`<!-- end of bench -->`, which `--markdown PAGE.md` replaces.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
import math
from pathlib import Path
import re
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import write_whole

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

END = '<!-- end of bench -->'


def peak_mb() -> float:
    """The most memory that this program has held so far [MB].

    `ru_maxrss` would not do: Linux passes the peak of the process that started it on to it.
    """
    return _status_mb('VmHWM')


def now_mb() -> float:
    """The memory that this program holds now [MB]."""
    return _status_mb('VmRSS')


def _status_mb(field: str) -> float:
    status = Path('/proc/self/status').read_text()
    match = re.search(rf'^{field}:\s+(\d+) kB$', status, re.MULTILINE)
    assert match, f'Linux tells {field}'
    return int(match[1]) / 1024


@dataclass(frozen=True)
class Budget:
    """A figure that has to stay within a limit."""

    what: str
    value: float
    limit: float
    unit: str = ''
    at_least: bool = False  # True: the figure has to reach the limit instead

    @property
    def is_met(self) -> bool:
        """Whether the figure is within the limit; NaN is not."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {**asdict(self), 'is_met': self.is_met}


def print_budgets(budgets: Iterable[Budget]) -> None:
    """Print one line for each budget, with PASS or FAIL."""
    for budget in budgets:
        sign = '>=' if budget.at_least else '<='
        verdict = 'PASS' if budget.is_met else 'FAIL'
        figure = f'{budget.value:8.3f} {sign} {budget.limit:.3f} {budget.unit}'
        print(f'{verdict}  {budget.what:52} {figure}')


@dataclass(frozen=True)
class BenchTable:
    """A table of a document that a bench writes."""

    bench: str
    name: str  # among the tables of the bench
    head: tuple[str, ...]

    def place(self, variant: str = '') -> str:
        """The comment above the table; several runs of one bench differ in their variant."""
        return f'<!-- bench {self.bench}: {self.name}{f", {variant}" if variant else ""} -->'

    def text(self, rows: Iterable[Sequence[Any]], variant: str = '') -> str:
        """The table with the comments around it, in Markdown."""
        line = '|' + '---|' * len(self.head)
        lines = [_line(self.head), line, *map(_line, rows)]
        return '\n'.join([self.place(variant), *lines, END])


def _line(cells: Sequence[Any]) -> str:
    return '|' + '|'.join(f' {cell} '.replace('  ', ' ') for cell in cells) + '|'


def add_markdown_option(parser: argparse.ArgumentParser) -> None:
    """Declare where the tables of a bench go."""
    parser.add_argument(
        '--markdown',
        type=Path,
        metavar='PAGE.md',
        help='write the tables there too: in place of those between the comments that name this '
        'bench, or into a new file',
    )
    parser.add_argument(
        '--variant', default='', help='with --markdown: name of the run, where a page has several'
    )


def write_tables(
    args: argparse.Namespace, tables: Mapping[BenchTable, Sequence[Sequence[Any]]]
) -> None:
    """Write the tables of a bench where `--markdown` wants them.

    Raises:
        InputError: The page is there and has no place for a table, or cannot be written.
    """
    page: Path | None = args.markdown
    if page is None:
        return
    text = page.read_text(encoding='utf-8') if page.exists() else ''
    for table, rows in tables.items():
        place = table.place(args.variant)
        if not page.exists():
            text += f'{table.text(rows, args.variant)}\n\n'
            continue
        found = re.compile(re.escape(place) + r'.*?' + re.escape(END), re.DOTALL)
        if not found.search(text):
            msg = f'{page} has no place for the table: write {place} and {END} into it'
            raise InputError(msg)
        new = table.text(rows, args.variant)
        text = found.sub(lambda _, new=new: new, text, count=1)  # type: ignore[misc]
    write_whole(page, text.rstrip() + '\n')


def percent(share: float, digits: int = 0) -> str:
    """A share in per cent, for a table; NaN: there is none."""
    return '' if math.isnan(share) else f'{100 * share:.{digits}f} %'
