# SPDX-License-Identifier: Apache-2.0
"""Measure the checks on completions in free wording, right ones and such with one change.

By hand, with the repository on the path: `python test/core/reasoning/measure_checks.py even`;
without a name, all sets. The even ids of `completions.jsonl` are for development; `fresh` was
written before the checks had their present form and is for measuring alone.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
import json
import math
from pathlib import Path
import sys
from typing import Any

from embodied_r_ros.core.reasoning.checks import check_completion
from embodied_r_ros.core.scene.tools import Scene
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.core.types.deltas import SemanticDelta
from embodied_r_ros.core.types.landmarks import SceneMap

QUESTIONS = Path(__file__).parents[2] / 'questions'
SETS = ('even', 'odd', 'fresh')


@dataclass
class Figures:
    """What the checks said of some completions: each with its id and the reason or the change."""

    right: int = 0
    changed: int = 0
    false_alarms: list[str] = field(default_factory=list)  # right ones that are unsupported
    verified: list[str] = field(default_factory=list)  # right ones that are
    unchecked: list[str] = field(default_factory=list)  # right ones that are neither
    missed: list[str] = field(default_factory=list)  # changed ones that are verified
    caught: list[str] = field(default_factory=list)  # changed ones that are unsupported


@lru_cache
def read_scene(name: str) -> Scene:
    """A scene of the completions."""
    value = json.loads((QUESTIONS / 'scenes' / f'{name}.json').read_text(encoding='utf-8'))
    place = SceneMap.from_json(value['map']) if value['map'] else None
    return Scene([SemanticDelta.from_row(delta) for delta in value['deltas']], place)


def rows(name: str) -> list[dict[str, Any]]:
    """The completions of a set."""
    file = QUESTIONS / ('completions_fresh.jsonl' if name == 'fresh' else 'completions.jsonl')
    parsed = [json.loads(line) for line in file.read_text(encoding='utf-8').splitlines()]
    if name == 'fresh':
        return parsed
    return [row for row in parsed if int(row['id'][1:]) % 2 == (name == 'odd')]


def measure(name: str) -> Figures:
    """Check all completions of a set, as they are and with each of their changes."""
    figures = Figures()
    for row in rows(name):
        scene, text = read_scene(row['scene']), row['completion']
        verdict = check_completion(text, row['question'], row['options'], scene)
        figures.right += 1
        found = {
            Check.UNSUPPORTED: figures.false_alarms,
            Check.VERIFIED: figures.verified,
            Check.UNCHECKED: figures.unchecked,
        }
        found[verdict.check].append(f'{row["id"]}: {verdict.reason}')
        for old, new in row['changes']:
            changed = text.replace(old, new, 1)
            assert changed != text
            verdict = check_completion(changed, row['question'], row['options'], scene)
            figures.changed += 1
            found = {Check.VERIFIED: figures.missed, Check.UNSUPPORTED: figures.caught}
            found.get(verdict.check, []).append(f'{row["id"]}: {old!r} -> {new!r}')
    return figures


def wilson(count: int, total: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share."""
    z = 1.96
    share, part = count / total, z * z / total
    middle = (share + part / 2) / (1 + part)
    off = z * math.sqrt(share * (1 - share) / total + part / (4 * total)) / (1 + part)
    return max(0.0, middle - off), min(1.0, middle + off)


def main(name: str, *, with_cases: bool) -> None:
    """Print the four shares of a set."""
    figures = measure(name)
    for text, found, total in (
        ('changed, called verified (missed)', figures.missed, figures.changed),
        ('right, called unsupported (false alarms)', figures.false_alarms, figures.right),
        ('right, called verified', figures.verified, figures.right),
        ('changed, called unsupported', figures.caught, figures.changed),
    ):
        low, high = wilson(len(found), total)
        share = f'{100 * len(found) / total:.1f} % [{100 * low:.1f}, {100 * high:.1f}]'
        sys.stdout.write(f'{name}: {text}: {len(found)} of {total}, {share}\n')
    if with_cases:
        for kind in ('false_alarms', 'missed', 'unchecked'):
            for line in getattr(figures, kind):
                sys.stdout.write(f'  {kind}: {line}\n')


if __name__ == '__main__':
    for each in sys.argv[1:] or SETS:
        main(each, with_cases=bool(sys.argv[1:]))
