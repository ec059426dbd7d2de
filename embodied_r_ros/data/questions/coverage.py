# SPDX-License-Identifier: Apache-2.0
"""What rows were derived from: bags read, rows left out and why; the manifest beside them."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass, field, fields, replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.card import dataset_card
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import code_version, write_whole
from embodied_r_ros.data.episodes.inspect import file_sha256
from embodied_r_ros.data.questions.row import Row

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.data.questions.derive import QuestionsConfig


@dataclass(frozen=True)
class BagNote:
    """What became of a bag."""

    name: str  # as it was given
    files: dict[str, str]  # SHA-256 by file name, hex
    sha256: str  # of its content (`recordings.bag_digest`)
    episode_id: str = ''
    scene_id: str = ''
    split: str = ''
    deltas: str = ''  # where they come from
    rows: int = 0
    left_out: str = ''  # why it has no rows; empty: it may have some
    labels: str = ''  # SHA-256 of the labels beside it, hex; empty: there are none
    forced: str = ''  # why it was not to be used, where it was all the same


@dataclass
class Coverage:
    """How many rows there are, and why there are no others."""

    splits: Counter[tuple[str, str, str]] = field(default_factory=Counter)  # split, kind, source
    unsolved: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    left_out: Counter[tuple[str, str]] = field(default_factory=Counter)  # (kind, reason)
    bags: list[BagNote] = field(default_factory=list)

    def count(self, row: Row) -> None:
        """Count a row."""
        self.splits[row.split, row.question_type, row.source] += 1

    def leave_out(self, bag: BagNote, reason: str) -> None:
        """Count a bag that gives no rows."""
        self.left_out['every kind', reason] += 1
        self.bags.append(replace(bag, left_out=reason))

    def table(self) -> str:
        """The report as text."""
        rows: Counter[tuple[str, str]] = Counter()  # (kind, source)
        splits: Counter[str] = Counter()
        for (split, kind, source), n in self.splits.items():
            rows[kind, source] += n
            splits[split] += n
        kinds = [kind for kind, _ in (*rows, *self.left_out, *self.unsolved)]
        w = max([18, *map(len, kinds)])  # width of the first column
        lines = [f'{"question type":<{w}} {"source":<10} {"rows":>7}']
        lines += [f'{kind:<{w}} {by:<10} {n:>7}' for (kind, by), n in sorted(rows.items())]
        lines += ['', *(f'{split:<{w}} {"":<10} {n:>7}' for split, n in sorted(splits.items()))]
        for title, counts in (('left out', self.left_out), ('no solution', self.unsolved)):
            if counts:
                lines += ['', f'{title:<{w}} {"times":>7}  because']
            lines += [f'{kind:<{w}} {n:>7}  {why}' for (kind, why), n in counts.most_common()]
        return '\n'.join(lines)


MANIFEST_VERSION = 1


def manifest_path(rows: Path) -> Path:
    """Where the manifest of a file of rows lies.

    Raises:
        InputError: There is one already, which is not what a killed process left of these rows.
    """
    path = rows.with_name(f'{rows.name.removesuffix(".jsonl")}.manifest.json')
    if path.exists() and (rows.exists() or _rows_of(path) != rows.name):
        msg = f'{path} exists already: remove it, or name another file of rows'
        raise InputError(msg)
    return path


def _rows_of(manifest: Path) -> str:
    """Name of the file of rows that a manifest is of; empty: it is none."""
    try:
        return str(json.loads(manifest.read_bytes())['rows']['file'])
    except (OSError, ValueError, LookupError, TypeError):
        return ''


def write_manifest(
    rows: Path,
    written: Path,
    config: QuestionsConfig,
    delta_source: str | None,
    coverage: Coverage,
) -> Path:
    """Write the manifest of a file of rows and its card, before that has its name.

    Args:
        rows: The file of rows.
        written: Its content, complete.
        config: How its questions were derived.
        delta_source: The requested deltas; None: recorded where a bag has them.
        coverage: What was derived.

    Raises:
        InputError: There is one already, or the disk does not take it.
    """
    path = manifest_path(rows)
    content = {
        'version': MANIFEST_VERSION,
        'tool': 'embodied-r questions',
        'code': code_version(),
        'questions': asdict(config),
        'deltas': delta_source or 'recorded where a bag has them, else classical',
        'rows': {
            'file': rows.name,
            'sha256': file_sha256(written),
            'count': coverage.splits.total(),
            'counts': _nest(coverage.splits),
            'left_out': _nest(coverage.left_out),
            'no_solution': _nest(coverage.unsolved),
        },
        'bags': [asdict(bag) for bag in coverage.bags],
    }
    write_whole(card_path(rows), _card(rows.name, content['deltas'], coverage))
    write_whole(path, json.dumps(content, indent=1, ensure_ascii=False) + '\n')
    return path


def card_path(rows: Path) -> Path:
    """Where the card of a file of rows lies: the README.md of a dataset on a hub."""
    return rows.with_name(f'{rows.name.removesuffix(".jsonl")}.card.md')


def _card(name: str, deltas: Any, coverage: Coverage) -> str:
    kinds: Counter[str] = Counter(recordings=sum(bool(bag.rows) for bag in coverage.bags))
    for (split, kind, _), count in coverage.splits.items():
        kinds[f'{split}: {kind}'] += count
    head = {
        'language': 'en',
        'task_categories': ['question-answering'],
        'tags': ['robotics', 'ros2'],
        'configs': [{'config_name': 'default', 'data_files': name}],
    }
    text = f'Questions about recordings, with solutions that these prove. Deltas: {deltas}.'
    columns = {column.name: str(column.type) for column in fields(Row) if column.name != 'extra'}
    return dataset_card(name, text, head, columns, kinds)


def _nest(counts: Counter[Any]) -> dict[str, Any]:
    """Counts by tuples as objects in objects, in alphabetical order."""
    tree: dict[str, Any] = {}
    for (*outer, last), count in sorted(counts.items()):
        place = tree
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = count
    return tree
