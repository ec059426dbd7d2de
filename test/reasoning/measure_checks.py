# SPDX-License-Identifier: Apache-2.0
"""Measure the checks on completions in free wording, right ones and such with one change.

By hand, with the repository on the path: `python test/reasoning/measure_checks.py odd`. Even ids are for development.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
import json
import math
from pathlib import Path
import sys
from typing import Any

from embodied_r_ros.reasoning.checks import check_completion
from embodied_r_ros.scene.tools import Scene
from embodied_r_ros.types.answers import Check
from embodied_r_ros.types.deltas import SemanticDelta
from embodied_r_ros.types.landmarks import SceneMap

QUESTIONS = Path(__file__).parents[1] / 'questions'


@dataclass
class Figures:
    """What the checks said of some completions."""

    right: int = 0
    changed: int = 0
    false_alarms: list[str] = field(default_factory=list)  # right ones that were refused, and why
    missed: list[str] = field(default_factory=list)  # changes that went unnoticed


@lru_cache
def read_scene(name: str) -> Scene:
    """A scene of the completions."""
    value = json.loads((QUESTIONS / 'scenes' / f'{name}.json').read_text(encoding='utf-8'))
    for delta in value['deltas']:
        delta['items'] = [
            {key: number for key, number in item.items() if number is not None}
            for item in delta['items']
        ]
    place = SceneMap.from_json(value['map']) if value['map'] else None
    return Scene([SemanticDelta.from_row(delta) for delta in value['deltas']], place)


def rows(half: str) -> list[dict[str, Any]]:
    """The completions with even or odd ids."""
    lines = (QUESTIONS / 'completions.jsonl').read_text(encoding='utf-8').splitlines()
    parsed = [json.loads(line) for line in lines]
    return [row for row in parsed if int(row['id'][1:]) % 2 == (half == 'odd')]


def measure(half: str) -> Figures:
    """Check all completions of a half, as they are and with each of their changes."""
    figures = Figures()
    for row in rows(half):
        scene, text = read_scene(row['scene']), row['completion']
        verdict = check_completion(text, row['question'], row['options'], scene)
        figures.right += 1
        if verdict.check is Check.UNSUPPORTED:
            figures.false_alarms.append(f'{row["id"]}: {verdict.reason}')
        for old, new in row['changes']:
            changed = text.replace(old, new, 1)
            assert changed != text
            verdict = check_completion(changed, row['question'], row['options'], scene)
            figures.changed += 1
            if verdict.check is not Check.UNSUPPORTED:
                figures.missed.append(f'{row["id"]}: {old!r} -> {new!r}')
    return figures


def wilson(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96
    share, part = count / total, z * z / total
    middle = (share + part / 2) / (1 + part)
    off = z * math.sqrt(share * (1 - share) / total + part / (4 * total)) / (1 + part)
    return max(0.0, middle - off), min(1.0, middle + off)


def main(half: str) -> None:
    """Print both rates of a half."""
    figures = measure(half)
    caught = figures.changed - len(figures.missed)
    for name, count, total in (
        ('changed, called unsupported', caught, figures.changed),
        ('right, called unsupported', len(figures.false_alarms), figures.right),
    ):
        low, high = wilson(count, total)
        share = f'{100 * count / total:.1f} % [{100 * low:.1f}, {100 * high:.1f}]'
        sys.stdout.write(f'{half}: {name}: {count} of {total}, {share}\n')
    for line in (*figures.false_alarms, *figures.missed):
        sys.stdout.write(f'  {line}\n')


if __name__ == '__main__':
    main(sys.argv[1] if len(sys.argv) > 1 else 'even')
