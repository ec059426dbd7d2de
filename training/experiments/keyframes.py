# SPDX-License-Identifier: Apache-2.0
"""Which images to look at: accuracy on the same questions against frames, calls and time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.scene.memory import question_terms, scene_text
from tqdm import tqdm

from training.eval.document_tables import difference_cell, DocumentTable, rate_cell
from training.eval.grading import oracle_grades
from training.eval.report_page import html_page, interval_text, rate_text, ReportSection
from training.evaluate import draw_rows, evaluate, opened_cache
from training.experiments.figures import (
    accuracy_figures,
    bar_of,
    bars,
    difference_figures,
    points,
)
from training.experiments.recordings import look_at, perceiver_of, questions_at_end, simulated_bags
from training.judge.models import judge_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from embodied_r_ros.chat.cache import ReplyCache
    from embodied_r_ros.questions.row import Row

    from training.experiments.config import KeyframesConfig
    from training.experiments.recordings import PerceivedRecording

_KEPT = ('format', 'consistency', 'execution', 'words', 'unknown', 'question_only_accuracy')


def run(config: KeyframesConfig) -> dict[str, Any]:
    """Look at the recordings by each policy, and ask the same questions of what was seen.

    Raises:
        InputError: A bag or model is missing, or there is no question.
        ModelError: A model or judge fails.
    """
    judge, cache = judge_of(config.judge), opened_cache(config.cache)
    rows, recordings = _looked(config, cache)
    policies, right = {}, {}
    for name in config.policies:
        report = evaluate(
            config.model, rows[name], config.memory(), config.sampling(), cache, judge
        )
        read = oracle_grades(rows[name], config.memory())
        right[name] = [outcome['accuracy'] or 0.0 for outcome in report['outcomes']]
        policies[name] = {
            **_cost(recordings[name]),
            **{key: report[key] for key in ('n', 'accuracy', 'interval_95', 'by_type', *_KEPT)},
            'reader': accuracy_figures(rows[name], read),
            'merged_share': _merged_share(rows[name], config),
            'against_first': difference_figures(
                rows[name], next(iter(right.values())), right[name]
            ),
        }
    return {
        'kind': 'keyframes',
        'title': config.title,
        'config': asdict(config),
        'model': config.model,
        'episodes': len(next(iter(recordings.values()))),
        'policies': policies,
    }


def _looked(
    config: KeyframesConfig, cache: ReplyCache
) -> tuple[dict[str, list[Row]], dict[str, list[PerceivedRecording]]]:
    """For each policy the same questions with its own deltas, and what each recording took."""
    perceiver = perceiver_of(config.profile)
    rows_of_text: list[Row] = []
    recordings: dict[str, list[PerceivedRecording]] = defaultdict(list)
    by_episode: dict[str, int] = {}
    worlds = simulated_bags([Path(world) for world in config.worlds], config.episodes)
    for bag, layout in tqdm(worlds, unit=' bags', desc='looked at', leave=False, disable=None):
        by_episode[layout.episode_id] = len(by_episode)
        rows_of_text += questions_at_end(layout, config.draws, config.seed)
        for name, policy in config.policies.items():
            recordings[name].append(look_at(bag, policy, perceiver, cache))
    if not rows_of_text:
        msg = f'{", ".join(config.worlds)}: no question has a solution'
        raise InputError(msg)
    rows_of_text = draw_rows(rows_of_text, config.limit, config.seed)
    rows = {
        name: [replace(row, deltas=own[by_episode[row.episode_id]].deltas) for row in rows_of_text]
        for name, own in recordings.items()
    }
    return rows, recordings


def _cost(recordings: Sequence[PerceivedRecording]) -> dict[str, Any]:
    """What looking took, for a mean recording."""
    count = len(recordings)
    return {
        'images': sum(one.images for one in recordings) / count,
        'frames': sum(one.frames for one in recordings) / count,
        'choosing_s': sum(one.choosing_s for one in recordings) / count,
        'perceiving_s': sum(one.perceiving_s for one in recordings) / count,
    }


def _merged_share(rows: Sequence[Row], config: KeyframesConfig) -> float:
    """Share of the deltas that stand merged with others in the prompt, or not at all."""
    merged = 0
    for row in rows:
        terms = question_terms(row.question, row.options)
        scene = scene_text(row.semantic_deltas(), terms, config.memory())
        merged += scene.merged + scene.omitted
    return merged / sum(len(row.deltas) for row in rows)


def text(report: dict[str, Any]) -> str:
    """The report in a few lines."""
    lines = [f'{report["episodes"]} recordings, {report["model"]}']
    for name, figures in report['policies'].items():
        against = figures['against_first']
        lines.append(
            f'{name:<16} {_rates_text(figures)}, n = {figures["n"]}, '
            f'{against["difference"]:+.1%} (p = {against["p_value"]:.2g}), oracle '
            f'{rate_text(figures["reader"]["accuracy"])}; {figures["frames"]:.1f} frames, '
            f'{figures["choosing_s"]:.2f} s + {figures["perceiving_s"]:.2f} s'
        )
    return '\n'.join(lines)


def _rates_text(figures: Mapping[str, Any]) -> str:
    return rate_text(figures['accuracy']) + interval_text(figures['interval_95'])


POLICIES = DocumentTable(
    'training.experiment',
    'policies',
    ('images', 'per recording', 'choose + perceive', 'oracle', 'model', 'against the first'),
)


def tables(report: dict[str, Any]) -> dict[DocumentTable, list[tuple[str, ...]]]:
    """What each choice of images costs and how much it tells, as a table of a document."""
    first = next(iter(report['policies']))
    return {
        POLICIES: [
            (
                name,
                f'{one["frames"]:.1f}',
                f'{one["choosing_s"]:.2f} s + {one["perceiving_s"]:.2f} s',
                rate_cell(one['reader']),
                rate_cell(one),
                '' if name == first else difference_cell(one['against_first']),
            )
            for name, one in report['policies'].items()
        ]
    }


def page(report: dict[str, Any]) -> str:
    """The report as a page."""
    policies = report['policies']
    places = {name: (figures['frames'], bar_of(figures)) for name, figures in policies.items()}
    kinds: dict[str, dict[str, Any]] = defaultdict(dict)
    for name, figures in policies.items():
        for kind, own in figures['by_type'].items():
            kinds[kind][name] = bar_of(own)
    head = (
        'policy', 'n', 'accuracy', 'against the first', 'p', 'oracle', 'images',
        'frames = calls', 'choosing [s]', 'perceiving [s]', 'merged in the prompt',
        'format', 'consistency', 'words',
    )  # fmt: skip
    return html_page(
        report['title'],
        [
            ReportSection(
                text=f'{report["episodes"]} recordings, asked of {report["model"]}: the same '
                'questions about the end of each recording, solved by what is true. The last '
                'image is always looked at. Frames, calls and wall time are of a mean recording; '
                'every frame is one call of the perceiver.',
                chart=points(places, 'frames looked at', 'accuracy'),
                table=(head, [_line(name, figures) for name, figures in policies.items()]),
            ),
            ReportSection(
                heading='By question type',
                chart=bars(kinds),
                note='p: sign-flip permutation test over whole scenes, against the first policy, '
                'not corrected for their number. The oracle makes no mistake with what the prompt '
                'says.',
            ),
        ],
    )


def _line(name: str, figures: Mapping[str, Any]) -> tuple[Any, ...]:
    against = figures['against_first']
    return (
        name,
        figures['n'],
        _rates_text(figures),
        f'{against["difference"]:+.1%}' + interval_text(against['interval_95']),
        f'{against["p_value"]:.2g}',
        _rates_text(figures['reader']),
        f'{figures["images"]:.0f}',
        f'{figures["frames"]:.1f}',
        f'{figures["choosing_s"]:.2f}',
        f'{figures["perceiving_s"]:.2f}',
        rate_text(figures['merged_share']),
        rate_text(figures['format']),
        rate_text(figures['consistency']),
        f'{figures["words"]:.0f}',
    )
