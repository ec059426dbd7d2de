# SPDX-License-Identifier: Apache-2.0
"""Rerun an experiment: `python -m training.experiment --config FILE`.

An experiment is one YAML file: models, each compared with the first on files of rows, and the runs
that train them. Writes report.json into its folder and prints its tables. What
models said is kept, so that an experiment that was cut off goes on.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, InputError
from embodied_r_ros.common.settings import config_from_mapping, read_yaml, setting, Settings
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import Sampling

from training.data.grpo import GrpoArguments
from training.data.selection import rows_of_split
from training.data.sft import SftArguments
from training.data.vision import rows_with_images
from training.eval.asking import CACHE, draw_rows, opened_cache, write_report
from training.eval.comparison import compare
from training.eval.figures import interval_text, rate_text
from training.eval.statistics import interval_over_runs
from training.evaluate import evaluate
from training.run.command import run_command, run_step
from training.run.manifest import refuse_other_run
from training.run.models import is_complete, is_url, model_folder

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.data.questions.row import Row

    Table = tuple[Sequence[str], Sequence[Sequence[Any]]]

_NAMED = {'models', 'rows', 'seeds', 'images'}
_RECIPES = {'grpo': GrpoArguments, 'sft': SftArguments}
_KEPT = (
    'n', 'accuracy', 'interval_95', 'format', 'words', 'unknown',
    'majority_baseline', 'question_only_accuracy', 'by_type', 'by_wording',
    'unanswerable', 'identity',
)  # fmt: skip
_OF_A_PAIR = ('difference', 'interval_95', 'p_value', 'better', 'worse')


@dataclass(frozen=True)
class TrainingConfig(Settings):
    """A training run that an experiment needs; skipped where its model is there already."""

    recipe: str = setting('grpo', 'what trains', choices=('grpo', 'sft'))
    config: str = setting('', 'YAML file of the run')
    output: str = setting('', 'folder for its model')
    settings: dict[str, Any] = field(default_factory=dict)  # in place of those in the file

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('config', 'output'):
            if not getattr(self, name):
                msg = f'a training run lacks {name!r}'
                raise ConfigError(msg)


@dataclass(frozen=True)
class ExperimentConfig(Settings):
    """Models on files of rows: which is better, and are their reasonings sound?"""

    title: str = setting('', 'what it is about; empty: the name of the file')
    out: str = setting('', 'folder for the results; empty: runs/experiments and that name')
    limit: int = setting(0, 'questions, drawn by the seed; 0: all', between=(0, 10**9))
    seed: int = setting(0, 'of everything that is drawn', between=(0, 2**31 - 1))
    token_budget: int = setting(
        MemoryConfig.token_budget, 'tokens of the scene in a prompt', between=(200, 100_000)
    )
    max_tokens: int = setting(Sampling.max_tokens, 'tokens of a completion', between=(1, 100_000))
    cache: str = setting(CACHE, 'folder of what was said and seen before; none: nothing is kept')
    models: dict[str, str] = field(default_factory=dict)  # name: folder or URL; first: compared to
    rows: dict[str, str] = field(default_factory=dict)  # name: file
    seeds: dict[str, tuple[str, ...]] = field(default_factory=dict)  # recipe: its models
    images: dict[str, str] = field(default_factory=dict)  # model: folder; shown, not told
    train: tuple[TrainingConfig, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ('models', 'rows'):
            if not getattr(self, name):
                msg = f'{name} is empty: name one or more'
                raise ConfigError(msg)
        for recipe, names in self.seeds.items():
            if not names:
                msg = f'seeds.{recipe} is empty: name one model or more'
                raise ConfigError(msg)
            self._check_models(f'seeds.{recipe}', names)
        self._check_models('images', tuple(self.images))

    def memory(self) -> MemoryConfig:
        """How much of what was seen a prompt holds."""
        return MemoryConfig(token_budget=self.token_budget)

    def sampling(self) -> Sampling:
        """How models are asked: greedily."""
        return Sampling(0.0, 1.0, self.max_tokens, self.seed)

    def _check_models(self, name: str, models: tuple[str, ...]) -> None:
        for model in models:
            if model not in self.models:
                msg = f'{name} names {model!r}: expected one of {", ".join(self.models)}'
                raise ConfigError(msg)


def read_experiment(path: Path) -> ExperimentConfig:
    """Read the YAML file of an experiment.

    Raises:
        InputError: It cannot be read, or something in it is not allowed; names the file.
    """
    values = read_yaml(path)
    try:
        config = _experiment(values)
    except InputError as error:
        msg = f'{path}: {error}'
        raise InputError(msg) from None
    out = config.out or f'runs/experiments/{path.stem}'
    return replace(config, title=config.title or path.stem, out=out)


def _experiment(values: Any) -> ExperimentConfig:
    _expect('it', values, dict, 'settings')
    given = dict(values)
    for name in _NAMED & values.keys():
        _expect(name, values[name], dict, 'names with values')
        # YAML takes a bare `true` for a truth value.
        named = {'true' if k is True else str(k): item for k, item in values[name].items()}
        given[name] = {key: _item(name, key, item) for key, item in named.items()}
    if 'train' in values:
        _expect('train', values['train'], list, 'a list of training runs')
        for run in values['train']:
            _expect('train', run, dict, 'settings')
        given['train'] = [config_from_mapping(TrainingConfig, run) for run in values['train']]
    return config_from_mapping(ExperimentConfig, given)


def _item(name: str, key: str, value: Any) -> Any:
    """A named value as its setting wants it: a path or URL, or models of a recipe."""
    texts = value if name == 'seeds' and isinstance(value, list) else [value]
    for text in texts:
        _expect(f'{name}.{key}', text, str, 'a path, a URL or a name')
    return tuple(texts) if name == 'seeds' else value


def _expect(name: str, value: Any, wanted: type, words: str) -> None:
    if not isinstance(value, wanted):
        msg = f'{name} is {value!r}: expected {words}'
        raise ConfigError(msg)


def run_experiment(config: ExperimentConfig) -> dict[str, Any]:
    """Train what is missing, then ask every model every row.

    Raises:
        InputError: A file or folder is missing, or a training run is not usable.
        ModelError: A model fails.
    """
    # First, so that what is missing is said before hours of training.
    rows = {name: _rows(config, Path(file)) for name, file in config.rows.items()}
    for training in config.train:
        train(training)
    for model in config.models.values():
        if not is_url(model):
            model_folder(model)
    cells, means = [], []
    for name, own in rows.items():
        reports = _reports(config, own)
        cells += _cells(reports, name)
        means += _means(reports, config.seeds, name)
    return {
        'title': config.title,
        'config': asdict(config),
        'cells': cells,
        'means': means,
    }


def _reports(config: ExperimentConfig, rows: list[Row]) -> dict[str, dict[str, Any]]:
    """Every model on the same rows."""
    cache = opened_cache(config.cache)
    memory = config.memory()
    shown = {name: rows_with_images(rows, Path(folder)) for name, folder in config.images.items()}
    reports = {
        name: evaluate(model, shown.get(name, rows), memory, config.sampling(), cache)
        for name, model in config.models.items()
    }
    # Who is shown an image is compared on the same rows.
    digests = [row.prompt(memory).sha256() for row in rows]
    for name in shown:
        for outcome, digest in zip(reports[name]['outcomes'], digests, strict=True):
            outcome['prompt_sha256'] = digest
    return reports


def _cells(reports: dict[str, dict[str, Any]], rows: str) -> list[dict[str, Any]]:
    """What is kept of each report; all but the first compared with it."""
    first = next(iter(reports.values()))
    cells = []
    for name, report in reports.items():
        against = None if report is first else compare(first, report)
        kept = {key: report[key] for key in _KEPT}
        pair = against and {key: against[key] for key in _OF_A_PAIR}
        cells.append({'rows': rows, 'model': name, **kept, 'against_first': pair})
    return cells


def _means(
    reports: Mapping[str, dict[str, Any]], seeds: Mapping[str, Sequence[str]], rows: str
) -> list[dict[str, Any]]:
    """The mean of each recipe on a file of rows; its intervals resample scenes and seeds."""
    first = _scores(next(iter(reports.values())))
    means = []
    for name, models in seeds.items():
        right = [reports[model]['accuracy'] for model in models]
        runs = [_scores(reports[model]) for model in models]
        gains = [[a - b for a, b in zip(run, first, strict=True)] for run in runs]
        scenes = [outcome['scene_id'] for outcome in reports[models[0]]['outcomes']]
        against = {
            'difference': sum(map(sum, gains)) / (len(gains) * len(first)),
            'interval_95': interval_over_runs(gains, scenes),
        }
        means.append(
            {
                'rows': rows,
                'recipe': name,
                'models': list(models),
                'accuracy': sum(right) / len(right),
                'interval_95': interval_over_runs(runs, scenes),
                'lowest': min(right),
                'highest': max(right),
                'against_first': against,
            }
        )
    return means


def _scores(report: dict[str, Any]) -> list[float]:
    return [outcome['accuracy'] or 0.0 for outcome in report['outcomes']]


def _rows(config: ExperimentConfig, file: Path) -> list[Row]:
    return draw_rows(rows_of_split(file, None), config.limit, config.seed)


def train(training: TrainingConfig) -> None:
    """Run a training recipe whose model is not there yet, or not all of it.

    Raises:
        InputError: Its file is missing, or the model that is there began otherwise.
        EmbodiedRError: It fails.
    """
    output = Path(training.output)
    config = Path(training.config)
    if is_complete(output):
        if config.exists():
            refuse_other_run(output, _RECIPES[training.recipe], config, training.settings)
        return
    if not config.exists():
        msg = f'training run {training.output}: there is no file {training.config}'
        raise InputError(msg)
    words: list[object] = ['--config', training.config, '--output_dir', training.output]
    for name, value in training.settings.items():
        words += [f'--{name}', *(value if isinstance(value, list) else [value])]
    run_step(f'training.{training.recipe}', *words, stdout=sys.stderr)


def tables(report: dict[str, Any]) -> list[Table]:
    """The grid of models and rows, and the means of recipes with several seeds."""
    head = (
        'rows', 'model', 'n', 'accuracy', 'against the first', 'p', 'blind', 'format',
        'words', 'unknown: precision', 'recall',
    )  # fmt: skip
    of_means = 'rows', 'recipe', 'seeds', 'mean', 'lowest to highest', 'against the first'
    return [
        (head, [_line(cell) for cell in report['cells']]),
        (of_means, [_line_of_mean(mean) for mean in report['means']]),
    ]


def _line(cell: dict[str, Any]) -> tuple[Any, ...]:
    against = cell['against_first']
    return (
        cell['rows'],
        cell['model'],
        cell['n'],
        rate_text(cell['accuracy']) + interval_text(cell['interval_95']),
        _difference(against) if against else '',
        f'{against["p_value"]:.2g}' if against else '',
        rate_text(cell['question_only_accuracy']),
        rate_text(cell['format']),
        f'{cell["words"]:.0f}',
        rate_text(cell['unknown']['precision']),
        rate_text(cell['unknown']['recall']),
    )


def _line_of_mean(mean: dict[str, Any]) -> tuple[Any, ...]:
    return (
        mean['rows'],
        mean['recipe'],
        len(mean['models']),
        rate_text(mean['accuracy']) + interval_text(mean['interval_95']),
        f'{mean["lowest"]:.1%} to {mean["highest"]:.1%}',
        _difference(mean['against_first']),
    )


def _difference(pair: dict[str, Any]) -> str:
    return f'{pair["difference"]:+.1%}' + interval_text(pair['interval_95'])


def _run(args: argparse.Namespace) -> int:
    config = read_experiment(args.config)
    report = run_experiment(config)
    write_report(Path(config.out, 'report.json'), report)
    for head, lines in tables(report):
        for line in (head, *lines) if lines else ():
            sys.stdout.write('\t'.join(map(str, line)) + '\n')
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run an experiment, write its report, and print it in short."""
    parser = argparse.ArgumentParser(prog='training.experiment', description=__doc__)
    parser.add_argument('--config', required=True, type=Path, metavar='FILE')
    return run_command(parser, _run, arguments)


if __name__ == '__main__':
    sys.exit(main())
