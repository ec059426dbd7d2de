# SPDX-License-Identifier: Apache-2.0
"""A page of what changed in a place: keyframes of both visits side by side, one file of HTML."""

from __future__ import annotations

import base64
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps.sheet import with_items
from embodied_r_ros.common.files import write_whole
from embodied_r_ros.core.scene.changes import ChangeKind
from embodied_r_ros.core.types.deltas import Item, ItemStatus
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL, pixels_of_points
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.core.scene.changes import Change, SeenKeyframe, VisitChanges
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.data.episodes.visits import JoinedVisits, Visit

_STYLE = """
body { font: 16px/1.5 sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; color: #222 }
section { border-top: 1px solid #ccc; padding: 1em 0 }
h2 { font-size: 1.1em; margin: 0 } p { margin: .2em 0 }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 1em; margin-top: .5em }
figure { margin: 0 } img { width: 100%; display: block; background: #eee }
figcaption { font-size: .85em; color: #666 }
.none { display: grid; place-items: center; min-height: 8em; background: #f3f3f3; color: #666 }
"""
_LEAST_M = 0.2  # size of the mark of a place
_STATUS = {
    ChangeKind.APPEARED: ItemStatus.APPEARED,
    ChangeKind.MOVED: ItemStatus.MOVED,
    ChangeKind.PERHAPS_MOVED: ItemStatus.MOVED,
}


def place_text(change: Change) -> str:
    """Where a thing was and is, in words."""
    was, now = (f'({", ".join(f"{v:.1f}" for v in p)})' if p else '' for p in change.places)
    if was and now:
        return f'from {was} to {now}'
    ends = {ChangeKind.MOVED: ('from {}, where to is not known', 'from an unknown place to {}')}
    here = ends.get(change.kind, ('at {}', 'at {}'))
    return here[0].format(was) if was else here[1].format(now)


def write_changes_page(
    path: Path, visits: tuple[Visit, Visit], joined: JoinedVisits, found: VisitChanges
) -> None:
    """Write the page; it appears whole.

    Args:
        path: The file.
        visits: The first visit and the second one.
        joined: Both in one frame.
        found: What changed.

    Raises:
        InputError: It cannot be written.
    """
    names = [escape(visit.name) for visit in visits]
    sections = '\n'.join(_section(change, visits, joined) for change in found.changes)
    count = len(found.changed)
    text = f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>What changed</title><style>{_STYLE}</style>
</head><body><h1>What changed</h1>
<p>Before: {names[0]}. After: {names[1]}. The second visit is {escape(joined.words)}.</p>
<p>{count} {'thing has' if count == 1 else 'things have'} changed, {found.same} are where they
were. Places are in {'metres' if joined.is_metric else 'one unknown unit'}.</p>
{sections}
</body></html>
"""
    write_whole(path, text)


def _section(change: Change, visits: tuple[Visit, Visit], joined: JoinedVisits) -> str:
    figures = []
    for name, visit, seen, number, own, place in zip(
        ('Before', 'After'),
        visits,
        (joined.before, joined.after),
        change.views,
        change.places,
        (change.before or change.after, change.after or change.before),
        strict=True,
    ):
        if number is None or place is None:
            figures.append(f'<div class="none">{name}: no keyframe shows this place</div>')
            continue
        keyframe = visit.keyframes[number]
        seconds = (keyframe.stamp_ns - visit.keyframes[0].stamp_ns) / 1e9
        there = Item(change.label, _STATUS.get(change.kind, ItemStatus.VISIBLE))
        mark = there if own else replace(there, label='not here')
        picture = _picture(keyframe, seen[number], (place, change.size_m), mark)
        figures.append(
            f'<figure><img alt="{name}" src="data:image/jpeg;base64,{picture}">'
            f'<figcaption>{name}: keyframe {keyframe.id}, {seconds:.1f} s</figcaption></figure>'
        )
    return (
        f'<section><h2>{escape(change.kind.value)}: {escape(change.label)}</h2>'
        f'<p>{escape(place_text(change))}; {change.sure_text}</p>'
        f'<div class="pair">{"".join(figures)}</div></section>'
    )


def _picture(
    keyframe: Keyframe, seen: SeenKeyframe, where: tuple[Position, float], mark: Item
) -> str:
    """A keyframe with a mark around a place of some size, as base64 of a JPEG."""
    place, size_m = where
    image = keyframe.image.decode()
    pose, lens = seen.view.pose, keyframe.intrinsics
    assert pose
    assert lens
    local = (pose.rotation() @ BODY_FROM_OPTICAL).T @ np.subtract(place, pose.position)
    x, y = pixels_of_points(lens, local[None])[0]
    half = max(size_m, _LEAST_M) / 2 / max(float(local[2]), 1e-3)
    sides = (x - half * lens.fx) / lens.width, (y - half * lens.fy) / lens.height
    ends = (x + half * lens.fx) / lens.width, (y + half * lens.fy) / lens.height
    left, top, right, bottom = (min(1.0, max(0.0, float(v))) for v in (*sides, *ends))
    shown = with_items(image, [replace(mark, box=(left, top, right, bottom))])
    _, data = cv2.imencode('.jpg', shown)
    return base64.b64encode(data.tobytes()).decode()
