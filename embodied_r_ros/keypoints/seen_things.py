# SPDX-License-Identifier: Apache-2.0
"""Things on a table by what was seen of them: where candidates for the next keypoint are proposed.

The newest sight of each label counts. What is hidden for a while, behind the arm for example, is
still where it was; what was last seen at the end effector is nowhere on the table.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from embodied_r_ros.deltas import ItemStatus
from embodied_r_ros.keypoints.candidates import SeenThing
from embodied_r_ros.perception.placing import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.perception.placing import TableView

_REMEMBERED = 20  # deltas


def seen_things(deltas: Sequence[SemanticDelta], view: TableView) -> tuple[SeenThing, ...]:
    """Where things are that were seen.

    Args:
        deltas: What was seen, oldest first.
        view: How the camera sees the table, with the end effector as of the newest delta.
    """
    several = len({delta.camera for delta in deltas}) > 1
    own = (delta for delta in reversed(deltas) if delta.camera == view.name or not several)
    found: list[SeenThing] = []
    known: set[str] = set()  # labels of newer deltas
    for delta in islice(own, _REMEMBERED):
        seen = [item for item in delta.items if item.status is not ItemStatus.LEFT]
        for item in seen:
            at = place(item, view) if item.label not in known else None
            if at and not at.is_at_tool:
                found.append(SeenThing(item.label, at.position))
        known |= {item.label for item in seen}
    return tuple(found)
