# SPDX-License-Identifier: Apache-2.0
"""Long histories: what the reasoner's prompt still tells after 10, 100 and 1,000 deltas.

Simulated rooms of half an hour each, questions at exactly these lengths, the default token budget.
An oracle, who computes what the text tells and says unknown where it does not, shows what
memory has kept; a model (`--model`) shows what it makes of that.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
import gc
import json
from pathlib import Path
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig, rows_of_episode
from embodied_r_ros.questions.map_rows import MAP_KINDS
from embodied_r_ros.reasoning.completions import UNKNOWN
from embodied_r_ros.scene.memory import estimate_tokens, MemoryConfig
from embodied_r_ros.sim.indoor.episodes import generate as generate_rooms
from embodied_r_ros.sim.runs import IndoorConfig
from embodied_r_ros.types.answers import Sampling
import numpy as np

from bench.report import Budget, print_budgets
from training.data.traces import read_row
from training.eval.document_tables import DocumentTable, percent, write_tables
from training.eval.generation import generate
from training.eval.grading import grade
from training.evaluate import draw_rows, majority_baseline

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from embodied_r_ros.episodes.episode import Episode
    from embodied_r_ros.questions.row import Row

_LENGTHS = (10, 100, 1000)
_DURATION_S = 2400.0
_PROMPT_LIMIT_S = 0.2
_SAMPLING = Sampling(temperature=0.0)


@dataclass(frozen=True)
class HistoryFigures:
    """What was measured at one length of the history. Rates are 0..1."""

    deltas: int
    rows: int
    scene_tokens: int  # of the largest scene, as memory estimates them
    prompt_p99_s: float  # time to write a prompt
    reader_right: float
    reader_unknown: float  # said, where there was an answer
    model_right: float
    model_format: float
    majority: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument('--episodes', type=some_count, default=12, help='rooms')
    parser.add_argument('--seed', type=int, default=9000, help='seed of the first room')
    parser.add_argument('--worlds', type=Path, help='folder of rooms recorded before')
    parser.add_argument(
        '--rows', type=int, default=0, help='rows per length that are asked; 0: all'
    )
    parser.add_argument(
        '--token-budget',
        type=int,
        default=MemoryConfig.token_budget,
        help='of the scene in a prompt (%(default)s)',
    )
    parser.add_argument(
        '--model',
        default='none',
        help='folder or URL of a model that is asked too, such as models/nano with 450 tokens; '
        'none: the oracle alone (%(default)s)',
    )
    parser.add_argument(
        '--maps',
        action='store_true',
        help='ask what the scene map answers, which stands in the prompt beside the deltas',
    )
    parser.add_argument('--json', type=Path, help='write the figures to this file')


LENGTHS = DocumentTable(
    'bench history',
    'lengths',
    (
        'deltas', 'rows', 'oracle right', 'oracle says unknown', 'best constant', 'model right',
        'prompt written in (p99)',
    ),
)  # fmt: skip
TABLES = (LENGTHS,)


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the budgets are met."""
    with tempfile.TemporaryDirectory() as scratch:
        worlds = args.worlds or Path(scratch) / 'worlds'
        if not args.worlds:
            config = IndoorConfig(duration_s=_DURATION_S, images=False)
            list(generate_rooms(config, args.seed, args.episodes, worlds))
        episodes = [read_episode(bag, 'true') for bag in find_bags([worlds])]
    gc.freeze()  # searching all these episodes for garbage takes a third of a second
    memory = MemoryConfig(args.token_budget)
    figures = [
        measure(
            draw_rows(rows_after(episodes, length, maps=args.maps), args.rows, 0),
            length,
            args.model,
            memory,
        )
        for length in _LENGTHS
    ]
    print(table(figures))
    budgets = [
        Budget(
            'tokens of the largest scene',
            max(f.scene_tokens for f in figures),
            memory.token_budget,
        ),
        Budget(
            'time to write a prompt, p99',
            max(f.prompt_p99_s for f in figures),
            _PROMPT_LIMIT_S,
            's',
        ),
    ]
    print_budgets(budgets)
    write_tables(args, {LENGTHS: list(map(_row, figures))})
    if args.json:
        args.json.write_text(json.dumps([asdict(f) for f in figures], indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1


def rows_after(episodes: Sequence[Episode], length: int, *, maps: bool = False) -> list[Row]:
    """The questions of every kind after exactly so many deltas of each episode that has them.

    Args:
        episodes: The episodes.
        length: How many deltas.
        maps: The questions about the scene map, and no others.
    """
    config = QuestionsConfig(moments=1, min_rows=1, maps=maps)
    rows: list[Row] = []
    for episode in episodes:
        if len(episode.deltas) >= length:
            start = replace(episode, deltas=episode.deltas[:length], poses=episode.poses[:length])
            rows += rows_of_episode(start, config, Coverage())
    return [row for row in rows if row.question_type in MAP_KINDS] if maps else rows


def measure(rows: Sequence[Row], length: int, model: str, memory: MemoryConfig) -> HistoryFigures:
    """Write every row's prompt, and have it read."""
    times, prompts = [], []
    for row in rows:
        start = time.perf_counter()
        prompts.append(row.prompt(memory))
        times.append(time.perf_counter() - start)
    scenes = [prompt.user.split('\nQuestion: ')[0] for prompt in prompts]
    traces = [read_row(row, memory) for row in rows]
    solutions = [row.solution_text() for row in rows]
    answers = [trace.answer if trace else UNKNOWN for trace in traces]
    pairs = list(zip(answers, solutions, strict=True))
    is_asked = model != 'none'
    completions = generate(model, prompts, _SAMPLING) if is_asked else []
    grades = [grade(row, text) for row, text in zip(rows, completions, strict=is_asked)]
    return HistoryFigures(
        deltas=length,
        rows=len(rows),
        scene_tokens=max(estimate_tokens(scene) for scene in scenes),
        prompt_p99_s=float(np.percentile(times, 99)),
        reader_right=float(np.mean([answer == solution for answer, solution in pairs])),
        reader_unknown=float(np.mean([a == UNKNOWN != solution for a, solution in pairs])),
        model_right=float(np.mean([g.accuracy or 0.0 for g in grades] or [np.nan])),
        model_format=float(np.mean([float(g.format) for g in grades] or [np.nan])),
        majority=majority_baseline(rows),
    )


def _row(f: HistoryFigures) -> tuple[Any, ...]:
    shares = (f.reader_right, f.reader_unknown, f.majority, f.model_right)
    return f'{f.deltas:,}', f.rows, *map(percent, shares), f'{1e3 * f.prompt_p99_s:.0f} ms'


def table(figures: Sequence[HistoryFigures]) -> str:
    """The figures as text."""
    lines = [
        f'{"deltas":>7} {"rows":>5} {"tokens":>7} {"prompt p99":>11} {"reader right":>13}'
        f' {"reader unknown":>15} {"model right":>12} {"format":>7} {"constant":>9}'
    ]
    lines += [
        f'{f.deltas:>7} {f.rows:>5} {f.scene_tokens:>7} {f.prompt_p99_s * 1e3:>8.1f} ms'
        f' {f.reader_right:>13.1%} {f.reader_unknown:>15.1%} {f.model_right:>12.1%}'
        f' {f.model_format:>7.1%} {f.majority:>9.1%}'
        for f in figures
    ]
    return '\n'.join(lines)
