# SPDX-License-Identifier: Apache-2.0
"""A soak as a picture: memory, handles, latency and drops over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from matplotlib.axes import Axes

    from bench.soak_record import Record, Sample


def write_plot(path: Path, record: Record, title: str) -> None:
    """Write the picture (PNG or SVG, by the suffix), under a temporary name first."""
    figure = Figure(figsize=(10, 11), layout='constrained')
    memory, handles, latency, drops = figure.subplots(4, 1, sharex=True)
    _lines(memory, record, lambda sample: sample.memory_mb, 'memory [MB]')
    _lines(handles, record, lambda sample: sample.handles, 'open handles')
    _latencies(latency, record)
    _lines(drops, record, lambda sample: sample.drops, 'dropped since the start')
    drops.set_xlabel('minutes')
    for axes in (memory, handles, latency, drops):
        for t_s in record.restarts_s:
            axes.axvline(t_s / 60, color='#cccccc', linewidth=0.8, zorder=0)
        axes.set_ylim(bottom=0)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize='small', loc='upper left', bbox_to_anchor=(1, 1))
    figure.suptitle(f'{title}; grey: the model server is started anew', fontsize='medium')
    unfinished = path.with_name(f'.unfinished-{path.name}')
    figure.savefig(unfinished, dpi=110)
    unfinished.replace(path)


def _lines(
    axes: Axes, record: Record, values: Callable[[Sample], Mapping[str, float]], label: str
) -> None:
    names = sorted({name for sample in record.samples for name in values(sample)})
    for name in names:
        points = [(s.t_s / 60, values(s)[name]) for s in record.samples if name in values(s)]
        axes.plot(*zip(*points, strict=True), label=name, linewidth=1.2)
    axes.set_ylabel(label)


def _latencies(axes: Axes, record: Record) -> None:
    for pairs, name in ((record.keyframes, 'keyframe'), (record.answers(), 'answer')):
        minutes, seconds = [t_s / 60 for t_s, _ in pairs], [value for _, value in pairs]
        axes.plot(minutes, seconds, '.', markersize=3, label=name)
    axes.set_ylabel('latency [s]')
