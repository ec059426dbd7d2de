# SPDX-License-Identifier: Apache-2.0
"""What a file of rows was made of: `ROWS.manifest.json` beside `ROWS.jsonl`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import InputError
from embodied_r_ros.recordings.bag_digest import file_sha256
from embodied_r_ros.recordings.provenance import code_version

if TYPE_CHECKING:
    from collections import Counter
    from pathlib import Path

    from embodied_r_ros.questions.coverage import Coverage
    from embodied_r_ros.questions.derive import QuestionsConfig

MANIFEST_VERSION = 1


def manifest_path(rows: Path) -> Path:
    """Where the manifest of a file of rows lies.

    Raises:
        InputError: There is one already.
    """
    path = rows.with_name(f'{rows.name.removesuffix(".jsonl")}.manifest.json')
    if path.exists():
        msg = f'{path} exists already: remove it, or name another file of rows'
        raise InputError(msg)
    return path


def write_manifest(
    rows: Path, config: QuestionsConfig, delta_source: str | None, coverage: Coverage
) -> Path:
    """Write the manifest of a complete file of rows; it appears only when it is complete.

    Args:
        rows: The file of rows.
        config: How its questions were derived.
        delta_source: The deltas that were asked for; None: recorded where a bag has them.
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
            'sha256': file_sha256(rows),
            'count': coverage.splits.total(),
            'counts': _nested(coverage.splits),
            'left_out': _nested(coverage.left_out),
            'no_solution': _nested(coverage.unsolved),
            'wrong_options': _nested(coverage.wrong),
            'wrong_options_by_cm': {
                f'{kind} to {what}': dict(sorted(distances.steps.items()))
                for (kind, what), distances in sorted(coverage.distances.items())
            },
        },
        'bags': [asdict(bag) for bag in coverage.bags],
    }
    unfinished = path.with_name(path.name + '.tmp')
    try:
        unfinished.write_text(json.dumps(content, indent=1, ensure_ascii=False) + '\n', 'utf-8')
        unfinished.replace(path)
    except OSError as error:
        msg = f'cannot write {path}: {error.strerror}'
        raise InputError(msg) from None
    finally:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
    return path


def _nested(counts: Counter[Any]) -> dict[str, Any]:
    """Counts by tuples as objects in objects, in alphabetical order."""
    made: dict[str, Any] = {}
    for (*outer, last), count in sorted(counts.items()):
        place = made
        for name in outer:
            place = place.setdefault(name, {})
        place[last] = count
    return made
