# SPDX-License-Identifier: Apache-2.0
"""The questions of the demonstration, with true answers where the recording proves them."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from embodied_r_ros.questions.kinds import Draft, KINDS
from embodied_r_ros.questions.moment import Moment
from embodied_r_ros.questions.wordings import FACINGS, HEIGHTS, PLACES, WORDINGS
from embodied_r_ros.reasoning.asking import Question

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.recordings.layout import Layout

# In the order in which they are wanted; the others stand in where one has no solution.
_WANTED = ('item_direction', 'net_turn', 'first_sight', 'height_change', 'how_many', 'nearest')
_ATTEMPTS = 20
# What can be asked of any recording.
_ANYWHERE = {
    'net_turn': tuple(FACINGS.values()),
    'net_displacement': tuple(PLACES.values()),
    'height_change': HEIGHTS,
}


@dataclass(frozen=True)
class DemoQuestion:
    """A question to ask, and its true answer."""

    question: Question
    truth: str = ''  # text of the true answer; empty: not known


def questions_about(
    deltas: Sequence[SemanticDelta], layout: Layout | None, count: int = 3, seed: int = 0
) -> list[DemoQuestion]:
    """Questions about what was just seen, the same ones for the same recording.

    Args:
        deltas: What was seen, oldest first.
        layout: What was true; None: not known, then the truth of the questions is not known.
        count: How many to ask.
        seed: Of wording, options and choice of items.
    """
    if layout is None:
        asked = [Question(WORDINGS[kind][0], options) for kind, options in _ANYWHERE.items()]
        return [DemoQuestion(question) for question in asked[:count]]
    moment = _moment(deltas, layout)
    rng = Random(seed)
    found: list[DemoQuestion] = []
    for kind in _WANTED:
        drafts = (KINDS[kind](moment, rng, False) for _ in range(_ATTEMPTS))
        solved = [draft for draft in drafts if isinstance(draft, Draft) and draft.options]
        # What is out of view has to be remembered: that is the more interesting question.
        solved.sort(key=lambda draft: draft.truth.get('in_view', False))
        if solved and len(found) < count:
            options = list(solved[0].options)
            rng.shuffle(options)
            question = Question(solved[0].question, tuple(options))
            found.append(DemoQuestion(question, solved[0].solution))
    return found


def _moment(deltas: Sequence[SemanticDelta], layout: Layout) -> Moment:
    known = {image.stamp_ns: image for image in layout.images}
    seen = tuple(delta for delta in deltas if delta.stamp_ns in known)
    poses = tuple(known[delta.stamp_ns].pose(layout.frame_id) for delta in seen)
    return Moment(seen, poses, layout)
