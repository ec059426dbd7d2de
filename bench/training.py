# SPDX-License-Identifier: Apache-2.0
"""Where the time of a GRPO step goes: a recipe on rows of simulated rooms.

The rewards may take a small share of a step. The learning rate is 0, and the first step warms up.
Transformers generates, also where the recipe has vLLM do it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, dataclass
from functools import wraps
import math
from pathlib import Path
import tempfile
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import find_bags
from embodied_r_ros.cli.arguments import some_count
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.data.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import write_rows
import numpy as np
import torch
from transformers import PrinterCallback, TrainerCallback
from trl import GRPOConfig, TrlParser

from bench.report import Budget, judge
from training.data.grpo import GrpoArguments
from training.grpo import trainer_of
from training.run.rewards import three_rewards

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

_CONFIG = Path(__file__).resolve().parents[1] / 'training' / 'configs' / 'improve-grpo.yaml'
_PROMPTS_AT_ONCE = 8  # in a backward pass, as in the recipe
_LIMIT = 0.15  # of a step
_STEP, _REST, _REWARD = 'step', 'rest', '_reward'
_GENERATION, _FORWARD, _BACKWARD = 'generation', 'forward', 'backward, optimizer'


@dataclass(frozen=True)
class TrainerFigures:
    """What was measured of one trainer, over the steps after the first."""

    parts_s: dict[str, float]  # median time of each part of a step, and of the whole `step`
    completion_tokens: float  # mean

    def rewards_share(self) -> float:
        """Share of a step that the rewards take, 0..1."""
        rewards_s = [s for part, s in self.parts_s.items() if part.endswith(_REWARD)]
        return sum(rewards_s) / self.parts_s[_STEP]


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
            began_s = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self._parts[part] += time.perf_counter() - began_s

        return timed_function

    def on_step_begin(self, *_: Any, **__: Any) -> None:
        """A step begins."""
        self._parts.clear()
        self._began_s = time.perf_counter()

    def on_pre_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The gradients are there."""
        self._optimizer_began_s = time.perf_counter()

    def on_optimizer_step(self, *_: Any, **__: Any) -> None:
        """The weights are changed."""
        self._parts[_BACKWARD] += time.perf_counter() - self._optimizer_began_s

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """A step is over."""
        whole_s = time.perf_counter() - self._began_s
        rest_s = whole_s - sum(self._parts.values())
        self.steps.append({**self._parts, _REST: rest_s, _STEP: whole_s})


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add = parser.add_argument
    add(
        '--config',
        type=Path,
        metavar='FILE',
        default=_CONFIG,
        help='recipe (default: improve-grpo)',
    )
    add('--model', metavar='DIR', help='default: models/arm')
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
    """Measure, print, and tell whether the rewards are quick enough."""
    with tempfile.TemporaryDirectory() as scratch:
        rows = args.rows or make_rows(Path(scratch), args.rooms, args.seed)
        found = measure(rows, args)
    print(
        f'{args.steps} steps of {args.prompts} x {args.completions} completions with '
        f'{found.completion_tokens:.0f} tokens (mean)'
    )
    print(f'{"median of a step":24} {"time":>10} {"share":>8}')
    for part, s in found.parts_s.items():
        print(f'{part.replace("_", " "):24} {s:>8.3f} s {s / found.parts_s[_STEP]:>8.2f}')
    budget = Budget('rewards', found.rewards_share(), _LIMIT, 'of a step')
    return judge([budget], args.json, asdict(found))


def make_rows(folder: Path, rooms: int, seed: int) -> Path:
    """Rows of simulated rooms, from their true deltas."""
    # Where rows are given, the simulator may be missing.
    from embodied_r_ros.sim.indoor.episodes import generate
    from embodied_r_ros.sim.runs import IndoorConfig

    worlds, rows = folder / 'worlds', folder / 'rows.jsonl'
    list(generate(IndoorConfig(images=False, kinds='all'), seed, rooms, worlds))
    write_rows(
        rows, rows_of(find_bags([worlds]), RowsRecipe(QuestionsConfig(), 'true'), Coverage())
    )
    return rows


def measure(rows: Path, args: argparse.Namespace) -> TrainerFigures:
    """Train for some steps, and time each."""
    timer, rewards = StepTimer(), three_rewards(None)
    names = [reward.__name__ for reward in rewards]
    timed = [timer.timed(name, reward) for name, reward in zip(names, rewards, strict=True)]
    with tempfile.TemporaryDirectory() as out:
        arguments, config = settings(rows, Path(out), args)
        trainer = trainer_of(arguments, config, timed)
        trainer.remove_callback(PrinterCallback)  # the table says it
        timer.attach(trainer)
        trainer.train()
    steps = timer.steps[1:] or timer.steps
    parts = dict.fromkeys([_GENERATION, _FORWARD, _BACKWARD, *names, _REST, _STEP])
    logs = [log for log in trainer.state.log_history if 'completions/mean_length' in log]
    return TrainerFigures(
        {part: float(np.median([step[part] for step in steps])) for part in parts},
        float(np.mean([log['completions/mean_length'] for log in logs[1:] or logs])),
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
        'model': args.model or shared_path('models', 'arm'),
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
