# SPDX-License-Identifier: Apache-2.0
"""What the map of a recording teaches wrongly: its questions, solved by the true layout.

Simulated rooms are perceived by the classical perceiver. The questions that the perceived map
proves, as `embodied-r questions --maps` asks them of recordings without truth, are solved again by
the true layout, of what keyframes have shown. A number is right within a quarter of the true one.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
import json
from pathlib import Path
from random import Random
from typing import Any, TYPE_CHECKING

from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.perception.classical import ClassicalPerceiver
from embodied_r_ros.perception.pipeline import perceive_keyframes
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.indoor import ask_kinds, Moment, NoSolution
from embodied_r_ros.questions.map_rows import layout_map, MAP_KINDS, perceived_map
from embodied_r_ros.reasoning.completions import number_in, UNKNOWN
from embodied_r_ros.sim.indoor.episodes import draw_episode
from embodied_r_ros.sim.runs import IndoorConfig
from tqdm import tqdm

from bench.perception import keyframes_with_truth
from bench.report import Budget, print_budgets
from training.data.map_oracle import solve_from_map
from training.eval.document_tables import DocumentTable, write_tables

if TYPE_CHECKING:
    import argparse

    from embodied_r_ros.questions.indoor import Draft

_SAME_SHARE = 0.25  # of the true number, within which a number is right
_MOST_WRONG = 0.1  # of all solutions
_SEED = 79_001
# `unknown` of a map that leaves sizes open, or of what no map tells: true of that map.
_OF_THE_MAP = {'unknown_size', 'unknown_property'}


@dataclass
class KindTally:
    """Solutions of one kind of question."""

    right: int = 0
    wrong: int = 0
    not_proven: int = 0  # the true layout tells nothing else than `unknown`
    examples: list[str] = field(default_factory=list)


def is_right(draft: Draft, true: str) -> bool:
    """Tell whether a solution is that of the truth, or a number near it."""
    if draft.answer_kind != 'number' or draft.solution == UNKNOWN:
        return draft.solution == true
    taught, number = number_in(draft.solution), number_in(true)
    if taught is None or number is None:
        return False
    return abs(taught - number) <= _SAME_SHARE * abs(number)


def measure(rooms: int, duration_s: float, slack_m: float) -> dict[str, KindTally]:
    """Ask the perceived map of each room at its end, by kind of question."""
    tallies: dict[str, KindTally] = defaultdict(KindTally)
    config = IndoorConfig(duration_s=duration_s)
    for index in tqdm(range(rooms), desc='rooms', disable=None):
        keyframes, _ = keyframes_with_truth(config, _SEED, index)
        _, truth, _ = draw_episode(config, _SEED, index)
        deltas = tuple(perceive_keyframes(keyframes, ClassicalPerceiver()))
        moment = Moment(deltas, layout=truth.layout)
        perceived = perceived_map(moment, 'train', slack_m)
        true = layout_map(moment)
        if isinstance(perceived, NoSolution) or isinstance(true, NoSolution):
            continue
        rng = Random(f'{_SEED}:{index}')
        for kind, draft, _ in ask_kinds(MAP_KINDS, perceived, 'train', rng, Coverage()):
            if kind in _OF_THE_MAP:
                continue
            solution = solve_from_map(draft.question, draft.options, true.scene)
            tally = tallies[kind]
            if solution == UNKNOWN != draft.solution:
                tally.not_proven += 1
            elif is_right(draft, solution):
                tally.right += 1
            else:
                tally.wrong += 1
                tally.examples.append(f'{draft.question} {draft.solution}, true: {solution}')
    return dict(tallies)


KINDS = DocumentTable('bench map_teacher', 'kinds', ('kind', 'solutions', 'wrong'))
TABLES = (KINDS,)
_OFTEN = 0.1  # a kind with a smaller share of wrong ones is among `all others`


def table_rows(tallies: dict[str, KindTally]) -> list[tuple[str, int, int]]:
    """Kinds that are often wrong, and the sum of all others."""
    counts = {
        kind: (t.right + t.wrong + t.not_proven, t.wrong + t.not_proven)
        for kind, t in sorted(tallies.items())
    }
    often = {kind: both for kind, both in counts.items() if both[1] >= _OFTEN * both[0]}
    others = [both for kind, both in counts.items() if kind not in often]
    rest = sum(count for count, _ in others), sum(wrong for _, wrong in others)
    return [*((f'`{kind}`', *both) for kind, both in often.items()), ('all others', *rest)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of this bench."""
    add = parser.add_argument
    add('--rooms', type=some_count, default=24, help='simulated rooms (%(default)s)')
    add('--duration', type=float, default=60.0, metavar='S', help='of each (%(default)s)')
    add(
        '--slack',
        type=float,
        default=QuestionsConfig.map_slack_m,
        metavar='M',
        help='how far places may be off (%(default)s)',
    )
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and say whether the budget is met."""
    tallies = measure(args.rooms, args.duration, args.slack)
    print(f'{"kind":28} {"right":>6} {"wrong":>6} {"not proven":>11}  an example of what is wrong')
    for kind, tally in sorted(tallies.items()):
        example = tally.examples[0] if tally.examples else ''
        print(f'{kind:28} {tally.right:6} {tally.wrong:6} {tally.not_proven:11}  {example[:90]}')
    right = sum(tally.right for tally in tallies.values())
    false = sum(tally.wrong + tally.not_proven for tally in tallies.values())
    share = false / max(1, right + false)
    print(f'{right + false} solutions of perceived maps, {100 * share:.1f} % of them wrong')
    budgets = [Budget('taught wrongly', share, _MOST_WRONG)]
    print_budgets(budgets)
    write_tables(args, {KINDS: table_rows(tallies)})
    if args.json:
        figures: dict[str, Any] = {kind: vars(tally) for kind, tally in tallies.items()}
        args.json.write_text(json.dumps({'kinds': figures, 'wrong': share}, indent=2) + '\n')
    return 0 if all(budget.is_met for budget in budgets) else 1
