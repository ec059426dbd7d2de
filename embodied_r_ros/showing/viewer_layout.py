# SPDX-License-Identifier: Apache-2.0
"""How the Rerun viewer shows a recording: what is side by side, and the colours of states."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.answers import Freshness
from embodied_r_ros.deltas import Rung

if TYPE_CHECKING:
    from collections.abc import Sequence
    from enum import Enum

TIMELINE = 'time'
_GREEN, _YELLOW, _ORANGE, _RED, _GREY = (
    0x4CAF50FF,
    0xD9B430FF,
    0xE0782EFF,
    0xD9433AFF,
    0x808080FF,
)
_FRESHNESS: dict[Enum, int] = {
    Freshness.FRESH: _GREEN,
    Freshness.STALE: _YELLOW,
    Freshness.DEGRADED: _ORANGE,
    Freshness.REFUSED: _RED,
}
_RUNGS: dict[Enum, int] = {
    Rung.PRIMARY: _GREEN,
    Rung.SECONDARY: _YELLOW,
    Rung.LOCAL: _ORANGE,
    Rung.REFUSE: _RED,
    Rung.UNSET: _GREY,
}
# Colour of each state, by entity.
STATES = {
    'freshness': _FRESHNESS,
    'rung/perception': _RUNGS,
    'rung/reasoning': _RUNGS,
}


@dataclass(frozen=True)
class Shown:
    """What there is to be seen of a recording."""

    cameras: Sequence[str]  # with images
    has_ways: bool  # where a camera was is known
    has_texts: bool  # keyframes, deltas or answers
    has_deltas: bool
    has_answers: bool


def layout(rr: Any, shown: Shown) -> Any:
    """The blueprint of a recording, with views of what is there and of nothing else.

    Args:
        rr: The Rerun SDK.
        shown: What is there.
    """
    make = rr.blueprint
    columns = [
        make.Vertical(contents=views, row_shares=shares)
        for views, shares in (_seen(make, shown), _said(make, shown))
        if views
    ]
    return make.Blueprint(
        make.Horizontal(contents=columns, column_shares=[4, 5][: len(columns)]),
        make.BlueprintPanel(state='collapsed'),
        make.SelectionPanel(state='collapsed'),
        make.TimePanel(state='collapsed', timeline=TIMELINE, play_state='following'),
    )


def _seen(make: Any, shown: Shown) -> tuple[list[Any], list[int]]:
    """Images and the ways of the cameras, with the share of each in the height."""
    views = []
    if shown.cameras:
        images = [make.Spatial2DView(origin=f'world/{name}', name=name) for name in shown.cameras]
        views.append(make.Grid(contents=images) if len(images) > 1 else images[0])
    if shown.has_ways:
        views.append(make.Spatial3DView(origin='world', name='where the camera was'))
    return views, [1] * len(views)


def _said(make: Any, shown: Shown) -> tuple[list[Any], list[int]]:
    """Texts and states, with the share of each in the height."""
    views: list[tuple[Any, int]] = []
    if shown.has_answers:
        views.append((make.TextDocumentView(origin='answer', name='newest answer'), 4))
    if shown.has_deltas:
        views.append((make.TextDocumentView(origin='delta', name='newest delta'), 2))
    if shown.has_texts:
        lines = make.TextLogView(
            origin='/',
            contents=['/keyframes/**', '/deltas/**', '/answers'],
            name='what happened',
            columns=make.TextLogColumns(
                timeline_columns=[TIMELINE], text_log_columns=['loglevel', 'body']
            ),
        )
        views.append((lines, 4))
    if shown.has_deltas or shown.has_answers:
        lanes = make.StateTimelineView(
            origin='/', contents=list(STATES), name='freshness and rungs'
        )
        views.append((make.Tabs(lanes, _ages(make)) if shown.has_answers else lanes, 3))
    return [view for view, _ in views], [share for _, share in views]


def _ages(make: Any) -> Any:
    return make.TimeSeriesView(origin='age_s', name='age of the newest observation [s]')
