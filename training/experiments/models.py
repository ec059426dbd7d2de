# SPDX-License-Identifier: Apache-2.0
"""Models on files of rows: the grid, each against the first model, and the curves."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
import subprocess
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.processes import tie_command

from training.compare import compare
from training.data.grpo import GrpoArguments
from training.data.selection import rows_of_split
from training.data.sft import SftArguments
from training.data.vision import rows_with_images
from training.eval.report_page import html_page, interval_text, rate_text, ReportSection
from training.evaluate import draw_rows, evaluate, opened_cache
from training.experiments.figures import bar_of, bars, charts_of, curves, means_of, means_table
from training.run.manifest import refuse_other_run
from training.run.models import is_complete, is_url, model_folder

if TYPE_CHECKING:
    from embodied_r_ros.questions.row import Row

    from training.eval.report_page import ReportTable
    from training.experiments.config import ExperimentConfig, TrainingConfig

_RECIPES = {'grpo': GrpoArguments, 'sft': SftArguments}
_KEPT = (
    'n', 'accuracy', 'interval_95', 'format', 'words', 'unknown',
    'majority_baseline', 'question_only_accuracy', 'by_type', 'by_wording',
    'unanswerable', 'identity',
)  # fmt: skip
_OF_A_PAIR = ('difference', 'interval_95', 'p_value', 'better', 'worse')


def run(config: ExperimentConfig) -> dict[str, Any]:
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
        means += means_of(reports, config.seeds, name)
    return {
        'title': config.title,
        'config': asdict(config),
        'cells': cells,
        'means': means,
        'curves': charts_of(config.models),
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
    command = [
        sys.executable,
        '-m',
        f'training.{training.recipe}',
        '--config',
        training.config,
    ]
    command += ['--output_dir', training.output]
    for name, value in training.settings.items():
        values = value if isinstance(value, list) else [value]
        command += [f'--{name}', *map(str, values)]
    sys.stderr.write(f'experiment: {training.output} is not there yet: {" ".join(command[1:])}\n')
    process = subprocess.run(tie_command(command), check=False, stdout=sys.stderr)
    if process.returncode:
        msg = f'training run {training.output} ended with exit code {process.returncode}'
        raise EmbodiedRError(msg)


def text(report: dict[str, Any]) -> str:
    """The grid as text."""
    lines = []
    for cell in report['cells']:
        line = (
            f'{cell["rows"]:<14} {cell["model"]:<16} {cell["accuracy"]:6.1%} '
            f'{interval_text(cell["interval_95"])}'
        )
        against = cell['against_first']
        if against:
            line += f'  {against["difference"]:+.1%} (p = {against["p_value"]:.2g})'
        lines.append(line)
    lines += [
        f'{mean["rows"]:<14} {mean["recipe"]:<16} {mean["accuracy"]:6.1%}  '
        f'({mean["interval_95"][0]:.1%} to {mean["interval_95"][1]:.1%})  mean of '
        f'{len(mean["models"])}, {mean["lowest"]:.1%} to {mean["highest"]:.1%}  '
        f'{mean["against_first"]["difference"]:+.1%} (p = {mean["against_first"]["p_value"]:.2g})'
        for mean in report['means']
    ]
    return '\n'.join(lines)


def page(report: dict[str, Any]) -> str:
    """The grid as a page: accuracy, soundness, differences by pair, types and curves."""
    sections = [ReportSection(chart=_accuracy_chart(report), table=_grid(report))]
    if report['means']:
        sections.append(ReportSection(heading='Seeds', table=means_table(report['means'])))
    sections += [
        ReportSection(
            note='Difference and p: against the first model on the same rows; whole scenes are '
            'resampled and flipped; the intervals of recipes with several seeds resample these '
            'too, their p does not. Not corrected for the number of models.'
        ),
        ReportSection(heading='Wordings, and what cannot be known', table=_groups(report)),
    ]
    sections += [
        ReportSection(heading=f'By question type: {file}', chart=_types_chart(report, file))
        for file in dict.fromkeys(cell['rows'] for cell in report['cells'])
    ]
    if report['curves']:
        sections.append(ReportSection(heading='Training', chart=curves(report['curves'])))
    return html_page(report['title'], sections)


def _accuracy_chart(report: dict[str, Any]) -> str:
    groups: dict[str, dict[str, Any]] = {}
    for cell in report['cells']:
        groups.setdefault(cell['rows'], {})[cell['model']] = bar_of(cell)
    return bars(groups)


def _types_chart(report: dict[str, Any], file: str) -> str:
    """Of recipes with several seeds the means alone: a chart of all runs would say nothing."""
    means = [mean for mean in report['means'] if mean['rows'] == file]
    seeds = {model for mean in means for model in mean['models']}
    types_of = {
        cell['model']: cell['by_type']
        for cell in report['cells']
        if cell['rows'] == file and cell['model'] not in seeds
    }
    types_of |= {
        f'{mean["recipe"]}, mean of {len(mean["models"])}': mean['by_type'] for mean in means
    }
    groups: dict[str, dict[str, Any]] = {}
    for name, types in types_of.items():
        for kind, figures in types.items():
            groups.setdefault(kind, {})[name] = bar_of(figures)
    return bars(groups)


def _grid(report: dict[str, Any]) -> ReportTable:
    head = (
        'rows', 'model', 'n', 'accuracy', 'against the first', 'p', 'blind', 'format',
        'words', 'unknown: precision', 'recall',
    )  # fmt: skip
    return head, [_line(cell) for cell in report['cells']]


def _line(cell: dict[str, Any]) -> tuple[Any, ...]:
    against = cell['against_first']
    return (
        cell['rows'],
        cell['model'],
        cell['n'],
        rate_text(cell['accuracy']) + interval_text(cell['interval_95']),
        f'{against["difference"]:+.1%}' + interval_text(against['interval_95']) if against else '',
        f'{against["p_value"]:.2g}' if against else '',
        rate_text(cell['question_only_accuracy']),
        rate_text(cell['format']),
        f'{cell["words"]:.0f}',
        rate_text(cell['unknown']['precision']),
        rate_text(cell['unknown']['recall']),
    )


def _groups(report: dict[str, Any]) -> ReportTable:
    """How often each model is right by the wording, and where nothing seen can tell."""
    columns = {
        'known words': ('by_wording', 'known'),
        'held-out words': ('by_wording', 'held out'),
        'item that is nowhere': ('unanswerable', 'absent'),
        'foreign question': ('unanswerable', 'foreign'),
    }
    return (
        ('rows', 'model', *columns),
        [
            (cell['rows'], cell['model'], *(_rate_of(cell[key], n) for key, n in columns.values()))
            for cell in report['cells']
        ],
    )


def _rate_of(groups: dict[str, dict[str, Any]], name: str) -> str:
    if name not in groups:
        return ''
    return f'{rate_text(groups[name]["accuracy"])} (n = {groups[name]["n"]})'
