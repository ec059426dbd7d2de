# SPDX-License-Identifier: Apache-2.0
"""What perception loses, and what reasoning: the same questions, told by several perceivers.

An oracle (`traces.py`) makes no mistake with what a text says. What it cannot answer, the
text does not tell: that is what perception lost. What it can answer and the model cannot,
reasoning lost.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.episodes.ground_truth import ground_truth_deltas
from embodied_r_ros.questions.row import read_rows
from embodied_r_ros.types.deltas import row_deltas
from tqdm import tqdm

from training.eval.document_tables import DocumentTable, rate_cell
from training.eval.grading import oracle_grades
from training.eval.report_page import (
    gain_text,
    html_page,
    interval_text,
    rate_text,
    ReportSection,
)
from training.evaluate import draw_rows, evaluate, opened_cache
from training.experiments.config import PolicyConfig
from training.experiments.figures import (
    accuracy_figures,
    bar_of,
    bars,
    difference_figures,
    right_of,
)
from training.experiments.recordings import (
    look_at,
    pair_questions,
    perceiver_of,
    questions_at,
    simulated_bags,
)
from training.judge.models import judge_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.chat.cache import ReplyCache
    from embodied_r_ros.questions.row import Row

    from training.eval.report_page import ReportTable
    from training.experiments.config import PerceptionConfig

_KEPT = ('format', 'consistency', 'execution', 'words', 'unknown', 'question_only_accuracy')


def run(config: PerceptionConfig) -> dict[str, Any]:
    """Tell the questions by each perceiver, and ask model and oracle.

    Raises:
        InputError: A file, bag or model is missing, or no question is in all texts.
        ModelError: A model or judge fails.
    """
    judge, cache = judge_of(config.judge), opened_cache(config.cache)
    pairs = pair_questions(_texts(config, cache))
    indices = draw_rows(
        list(range(len(next(iter(pairs.rows.values()))))), config.limit, config.seed
    )
    rows_by_text = {name: [rows[index] for index in indices] for name, rows in pairs.rows.items()}
    texts, scores = {}, {}
    for name, rows in rows_by_text.items():
        report = evaluate(config.model, rows, config.memory(), config.sampling(), cache, judge)
        read = oracle_grades(rows, config.memory())
        answered = [outcome['accuracy'] or 0.0 for outcome in report['outcomes']]
        scores[name] = {'model': answered, 'reader': right_of(read)}
        texts[name] = {
            'model': {key: report[key] for key in ('n', 'accuracy', 'interval_95', 'by_type')},
            'reader': accuracy_figures(rows, read),
            **{key: report[key] for key in _KEPT},
        }
    return {
        'kind': 'perception',
        'title': config.title,
        'config': asdict(config),
        'model': config.model,
        'pairs': len(next(iter(pairs.rows.values()))),
        'asked': len(indices),
        'left_out': pairs.left_out,
        'at_another_moment': pairs.other_moment,
        'texts': texts,
        'losses': _losses(rows_by_text, scores),
    }


def _losses(
    rows_by_text: Mapping[str, Sequence[Row]], scores: Mapping[str, Mapping[str, Sequence[float]]]
) -> dict[str, dict[str, Any]]:
    """For each text what its perception and what the model's reasoning loses, as paired losses."""
    first = next(iter(rows_by_text))
    losses = {}
    for name, rows in rows_by_text.items():
        own = scores[name]
        losses[name] = {'reasoning': difference_figures(rows, own['model'], own['reader'])}
        if name != first:
            for who, key in (('reader', 'perception'), ('model', 'answers')):
                losses[name][key] = difference_figures(rows, own[who], scores[first][who])
    return losses


def _texts(config: PerceptionConfig, cache: ReplyCache) -> dict[str, list[Row]]:
    """Rows by the name of what they were told by; the first is the reference."""
    if config.rows:
        return {name: list(read_rows(Path(file))) for name, file in config.rows.items()}
    classical = perceiver_of('')
    looks = {'classical': (classical, PolicyConfig())}
    if config.images_alone:
        looks['images alone'] = (classical, PolicyConfig(odometry=False))
    if config.profile:
        looks['vlm'] = (perceiver_of(config.profile), PolicyConfig())
    texts: dict[str, list[Row]] = defaultdict(list)
    worlds = simulated_bags([Path(world) for world in config.worlds], config.episodes)
    for bag, layout in tqdm(worlds, unit=' bags', desc='perceived', leave=False, disable=None):
        deltas_by_text = {
            name: look_at(bag, policy, who, cache).deltas for name, (who, policy) in looks.items()
        }
        stamps = [delta['stamp_ns'] for delta in deltas_by_text['classical']]
        deltas_by_text = {
            'true': row_deltas(ground_truth_deltas(layout, stamps)),
            **deltas_by_text,
        }
        for row in questions_at(layout, stamps, config.moments, config.seed):
            for name, deltas in deltas_by_text.items():
                texts[name].append(replace(row, deltas=deltas[: len(row.deltas)]))
    return dict(texts)


def text(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [f'{report["asked"]} of {report["pairs"]} paired questions, {report["model"]}']
    for name, figures in report['texts'].items():
        lines.append(
            f'{name:<12} model {_rates_text(figures["model"])}'
            f'   oracle {_rates_text(figures["reader"])}'
        )
    for name, losses in report['losses'].items():
        for key, figures in losses.items():
            lines.append(f'{name:<12} {key:<12} loses {_lost(figures)}')
    return '\n'.join([*lines, *_left_out(report)])


def _rates_text(figures: Mapping[str, Any]) -> str:
    return rate_text(figures['accuracy']) + interval_text(figures['interval_95'])


def _lost(figures: Mapping[str, Any]) -> str:
    p = f'p = {figures["p_value"]:.2g}'
    return f'{gain_text(figures)}, {p}'


def _left_out(report: Mapping[str, Any]) -> list[str]:
    lines = [
        f'not paired: {count} rows of {name}: {reason}'
        for name, reasons in report['left_out'].items()
        for reason, count in reasons.items()
    ]
    if report['at_another_moment']:
        lines.append(
            f'{report["at_another_moment"]} of {report["pairs"]} pairs are asked at different '
            'moments: each text has its own keyframes (give worlds instead of rows)'
        )
    return lines


TEXTS = DocumentTable('training.experiment', 'texts', ('text', 'oracle', 'model'))
IN_DOCUMENTS = {
    'true': 'ground-truth deltas',
    'classical': 'perceived, with odometry',
    'images alone': 'perceived, images alone',
}


def tables(report: dict[str, Any]) -> dict[DocumentTable, list[tuple[str, ...]]]:
    """How often oracle and model are right, as a table of a document."""
    return {
        TEXTS: [
            (IN_DOCUMENTS.get(name, name), *(rate_cell(one[who]) for who in ('reader', 'model')))
            for name, one in report['texts'].items()
        ]
    }


def page(report: dict[str, Any]) -> str:
    """The report as a page."""
    rates = {
        f'{name}: {who}': {'accuracy': bar_of(figures[who])}
        for name, figures in report['texts'].items()
        for who in ('reader', 'model')
    }
    return html_page(
        report['title'],
        [
            ReportSection(
                text=f'{report["asked"]} of {report["pairs"]} paired questions, asked of '
                f'{report["model"]}. The oracle makes no mistake with what the text says: what it '
                'loses against the first text, perception lost; what the model loses against it, '
                'reasoning lost.'
            ),
            *(ReportSection(text=line) for line in _left_out(report)),
            ReportSection(chart=bars(rates), table=_texts_table(report)),
            ReportSection(heading='What is lost', table=_losses_table(report)),
            ReportSection(
                heading='By question type',
                chart=bars(_losses_by_type(report)),
                table=_types_table(report),
                note='p: sign-flip permutation test over whole scenes; those of single types are '
                'not corrected for their number.',
            ),
        ],
    )


def _texts_table(report: Mapping[str, Any]) -> ReportTable:
    head = ('text', 'oracle', 'model', 'question only', 'format', 'consistency', 'words')
    lines = [
        (
            name,
            _rates_text(figures['reader']),
            _rates_text(figures['model']),
            rate_text(figures['question_only_accuracy']),
            rate_text(figures['format']),
            rate_text(figures['consistency']),
            f'{figures["words"]:.0f}',
        )
        for name, figures in report['texts'].items()
    ]
    return head, lines


def _losses_table(report: Mapping[str, Any]) -> ReportTable:
    words = {
        'perception': 'perception: the oracle',
        'reasoning': 'reasoning: the model, against the oracle',
        'answers': 'perception: the model',
    }
    lines = [
        (name, words[key], _lost(losses[key]))
        for name, losses in report['losses'].items()
        for key in words
        if key in losses
    ]
    return ('text', 'what loses', 'loss'), lines


def _losses_by_type(report: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for name, losses in report['losses'].items():
        for key in ('perception', 'reasoning'):
            for kind, figures in losses.get(key, {'by_type': {}})['by_type'].items():
                groups.setdefault(kind, {})[f'{name}: {key}'] = bar_of(figures, 'difference')
    return dict(sorted(groups.items()))


def _types_table(report: Mapping[str, Any]) -> ReportTable:
    names = list(report['texts'])
    kinds = report['texts'][names[0]]['model']['by_type']
    head = ['question type', 'rows', *(f'{n}: {w}' for n in names for w in ('reader', 'model'))]
    lines = [
        [
            kind,
            kinds[kind]['n'],
            *(
                _rates_text(report['texts'][name][who]['by_type'][kind])
                for name in names
                for who in ('reader', 'model')
            ),
        ]
        for kind in kinds
    ]
    return head, lines
