# SPDX-License-Identifier: Apache-2.0
"""Where the time of a GRPO step goes: generation, forward, backward, and each reward.

A recipe (training/configs/nano.yaml) on rows of simulated rooms, twice in one run: with a constant
reward as the baseline, and with the three rewards and their judge. The learning rate is 0, so that
both see the same prompts and write the same completions. The first step warms up. Transformers
generates, also where the recipe has vLLM do it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from functools import wraps
import json
import math
from pathlib import Path
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig
from embodied_r_ros.questions.row import write_rows
import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, TrlParser

from bench.report import Budget, print_budgets
from training.data.grpo import GrpoArguments
from training.eval.document_tables import DocumentTable, percent, write_tables
from training.grpo import trainer_of
from training.judge.models import load_judge
from training.run.rewards import three_rewards

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from training.run.rewards import Completions, Reward

_CONFIG = Path(__file__).resolve().parents[1] / 'training' / 'configs' / 'nano.yaml'
_PROMPTS_AT_ONCE = 8  # in a backward pass, as in the recipe
_LIMIT = 0.15
_STEP, _REST = 'step', 'rest'
_GENERATION, _FORWARD, _BACKWARD = 'generation', 'forward', 'backward, optimizer'


@dataclass(frozen=True)
class TrainerFigures:
    """What was measured of one trainer, over the steps after the first."""

    parts_s: dict[str, float]  # median time of each part of a step, and of the whole `step`
    reward_share: float  # of a step, median
    completion_tokens: float  # mean
    gpu_gib: float = 0.0  # the most memory that tensors took; 0 without a GPU


def now_s() -> float:
    """The time [s] when all is computed that a GPU was given, from some start."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def peak_gib() -> float:
    """The most memory of the GPU that tensors took since the peak was last forgotten [GiB]."""
    return torch.cuda.max_memory_allocated() / 2**30 if torch.cuda.is_available() else 0.0


class StepTimer(TrainerCallback):  # type: ignore[misc]
    """Adds up what the parts of each step take [s]."""

    def __init__(self) -> None:
        """Nothing is timed yet; `attach` and `timed` say what is."""
        self.steps: list[dict[str, float]] = []
        self._parts: defaultdict[str, float] = defaultdict(float)
        self._began_s = self._optimizer_began_s = 0.0

    def attach(self, trainer: Any) -> None:
        """Time the steps of a trainer."""
        trainer.model.generate = self.timed(_GENERATION, trainer.model.generate)
        trainer.compute_loss = self.timed(_FORWARD, trainer.compute_loss)
        trainer.accelerator.backward = self.timed(_BACKWARD, trainer.accelerator.backward)
        trainer.add_callback(self)

    def timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """The same function, whose time counts for a part."""

        @wraps(function)
        def timed_function(*args: Any, **kwargs: Any) -> Any:
            began_s = now_s()
            try:
                return function(*args, **kwargs)
            finally:
                self._parts[part] += now_s() - began_s

        return timed_function

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins."""
        self._parts.clear()
        self._began_s = now_s()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The gradients are there."""
        self._optimizer_began_s = now_s()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The weights are changed."""
        self._parts[_BACKWARD] += now_s() - self._optimizer_began_s

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step is over."""
        whole_s = now_s() - self._began_s
        rest_s = whole_s - sum(self._parts.values())
        self.steps.append({**self._parts, _REST: rest_s, _STEP: whole_s})


PARTS = DocumentTable(
    'bench training', 'parts', ('median of a step', 'constant reward', 'three rewards', 'share')
)
TABLES = (PARTS,)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add('--config', type=Path, metavar='FILE', default=_CONFIG, help='recipe (default: nano.yaml)')
    add('--model', metavar='DIR', help='default: models/nano')
    add('--judge', metavar='DIR_OR_URL', help='default: the shipped judge, else models/nano')
    add('--prompts', type=some_count, default=8, help='prompts per step (%(default)s)')
    add('--completions', type=some_count, default=8, help='completions per prompt (%(default)s)')
    add('--steps', type=some_count, default=3, help='steps after the first (%(default)s)')
    add('--batch', type=some_count, help='completions in a backward pass (default: of 8 prompts)')
    add('--tokens', type=some_count, default=640, help='of a completion, at most (%(default)s)')
    add('--rows', type=Path, help='rows made before; default: made from simulated rooms')
    add('--rooms', type=some_count, default=8, help='simulated rooms (%(default)s)')
    add('--seed', type=int, default=31000, help='of the rooms (%(default)s)')
    add('--json', type=Path, metavar='FILE', help='write the figures here too')


def main(args: argparse.Namespace) -> int:
    """Measure, print, and tell whether the budget is met."""
    judge = args.judge or default_judge()
    rewards = three_rewards(load_judge([judge]))
    with tempfile.TemporaryDirectory() as scratch:
        rows = args.rows or make_rows(Path(scratch), args.rooms, args.seed)
        by_reward = {
            'constant': measure([constant_reward] * len(rewards), rows, args),
            'rewards': measure(rewards, rows, args),
        }
    print(
        f'{args.steps} steps of {args.prompts} x {args.completions} completions with '
        f'{by_reward["rewards"].completion_tokens:.0f} tokens (mean), judge {judge}'
    )
    print(table(by_reward['constant'], by_reward['rewards']))
    budget = Budget(
        'rewards with the judge', by_reward['rewards'].reward_share, _LIMIT, 'of a step'
    )
    print_budgets([budget])
    write_tables(args, {PARTS: _rows(by_reward['constant'], by_reward['rewards'])})
    if args.json:
        figures = {name: asdict(figure) for name, figure in by_reward.items()}
        args.json.write_text(
            json.dumps({'judge': judge, **figures, 'budgets': [budget.to_json()]}, indent=2) + '\n'
        )
    return 0 if budget.is_met else 1


def _rows(constant: TrainerFigures, rewarded: TrainerFigures) -> list[tuple[str, ...]]:
    """The parts of a step, for a table."""
    rows: list[tuple[str, ...]] = []
    for part, seconds in rewarded.parts_s.items():
        baseline = f'{constant.parts_s[part]:.2f} s' if part in constant.parts_s else ''
        share = '' if part == _STEP else percent(seconds / rewarded.parts_s[_STEP], 1)
        rows.append((part.replace('_', ' '), baseline, f'{seconds:.2f} s', share))
    return rows


def default_judge() -> str:
    """The shipped judge; while there is none, the reasoner, which is of the same size."""
    try:
        return str(shared_path('models', 'judge'))
    except ConfigError:
        return str(shared_path('models', 'nano'))


def make_rows(folder: Path, rooms: int, seed: int) -> Path:
    """Rows of simulated rooms, from their true deltas."""
    # Where rows are given, the simulator may be missing.
    from embodied_r_ros.sim.indoor.episodes import generate
    from embodied_r_ros.sim.runs import IndoorConfig

    worlds, rows = folder / 'worlds', folder / 'rows.jsonl'
    list(generate(IndoorConfig(images=False), seed, rooms, worlds))
    write_rows(
        rows, rows_of(find_bags([worlds]), RowsRecipe(QuestionsConfig(), 'true'), Coverage())
    )
    return rows


def constant_reward(completions: Completions, **_: Any) -> list[float]:
    """The baseline, which costs nothing."""
    return [0.0] * len(completions)


def measure(
    rewards: Sequence[Reward], rows: Path, args: argparse.Namespace, *, shared: bool = True
) -> TrainerFigures:
    """Train for some steps, and time each; `shared`: a prompt is read once for its group."""
    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    timer = StepTimer()
    names = [reward.__name__ for reward in rewards]
    timed = [timer.timed(name, reward) for name, reward in zip(names, rewards, strict=True)]
    with tempfile.TemporaryDirectory() as out:
        arguments, config = settings(rows, Path(out), args)
        trainer = trainer_of(replace(arguments, share_prefixes=shared), config, timed)
        trainer.remove_callback(PrinterCallback)  # the table says it
        timer.attach(trainer)
        trainer.train()
    steps = timer.steps[1:] or timer.steps
    parts = dict.fromkeys([_GENERATION, _FORWARD, _BACKWARD, *names, _REST, _STEP])
    shares = [sum(step[name] for name in set(names)) / step[_STEP] for step in steps]
    logs = [log for log in trainer.state.log_history if 'completions/mean_length' in log]
    return TrainerFigures(
        {part: float(np.median([step[part] for step in steps])) for part in parts},
        float(np.median(shares)),
        float(np.mean([log['completions/mean_length'] for log in logs[1:] or logs])),
        peak_gib(),
    )


def settings(rows: Path, out: Path, args: argparse.Namespace) -> tuple[GrpoArguments, GRPOConfig]:
    """The recipe, for some steps that leave no trace.

    Raises:
        InputError: Batches of that size do not make up a step.
    """
    batch = args.batch or math.gcd(args.prompts, _PROMPTS_AT_ONCE) * args.completions
    if args.prompts * args.completions % batch:
        msg = (
            f'--batch {batch}: a step has {args.prompts * args.completions} completions, which it '
            'does not divide'
        )
        raise InputError(msg)
    overrides = {
        'rows': rows,
        'model': args.model or shared_path('models', 'nano'),
        'samples': '',  # of the recipe's own rows
        'output_dir': out,
        'threads': 0,
        'max_steps': 1 + args.steps,
        'per_device_train_batch_size': batch,
        'gradient_accumulation_steps': args.prompts * args.completions // batch,
        'num_generations': args.completions,
        'max_completion_length': args.tokens,
        'learning_rate': 0.0,
        'use_vllm': False,
        'log_completions': False,
        'disable_tqdm': True,
        'eval_strategy': 'no',
        'save_strategy': 'no',
        'report_to': 'none',
    }
    if not torch.cuda.is_available():
        overrides['use_cpu'] = True
    words = [part for name, value in overrides.items() for part in (f'--{name}', str(value))]
    parser = TrlParser((GrpoArguments, GRPOConfig))
    arguments, config = parser.parse_args_and_config(['--config', str(args.config), *words])
    return arguments, config


def table(constant: TrainerFigures, rewarded: TrainerFigures) -> str:
    """Both trainers side by side, as text."""
    whole_s = rewarded.parts_s[_STEP]
    lines = [f'{"median of a step":20} {"constant reward":>16} {"three rewards":>14} {"share":>8}']
    for part, seconds in rewarded.parts_s.items():
        baseline = f'{constant.parts_s[part]:.3f} s' if part in constant.parts_s else ''
        lines.append(f'{part:20} {baseline:>16} {seconds:>12.3f} s {seconds / whole_s:>8.1%}')
    ratio = whole_s / constant.parts_s[_STEP]
    lines.append(f'A step takes {ratio:.2f} times as long as with a constant reward.')
    return '\n'.join(lines)
