# SPDX-License-Identifier: Apache-2.0
"""Few keyframes of a long recording, chosen so that together they show as much as possible.

Whenever there is one too many, that one goes whose view its neighbours show best. So a budget
thins out where the camera lingered, not where it hurried, and memory is that of the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Generic, TYPE_CHECKING, TypeVar

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.keyframes.alignment import seen_cells
from embodied_r_ros.core.keyframes.overlap import BLANK_SHARE, two_view
from embodied_r_ros.core.keyframes.selector import KeyframeSelector, reason_of_views
from embodied_r_ros.core.types.keyframes import KeyframeReason
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embodied_r_ros.core.keyframes.alignment import View
    from embodied_r_ros.core.keyframes.overlap import TwoView
    from embodied_r_ros.core.keyframes.selector import Evaluation, KeyframeConfig
    from embodied_r_ros.core.types.arrays import Float32s
    from embodied_r_ros.core.types.images import StampedImage

Item = TypeVar('Item')

# Reasons that lie in the image, and in its moment, whatever it is compared with.
_STARTS = {KeyframeReason.FIRST, KeyframeReason.FEATURELESS}
_AT_THE_TIME = {KeyframeReason.CONTENT_CHANGE, KeyframeReason.MAX_INTERVAL}


@dataclass
class BudgetEntry(Generic[Item]):
    """A keyframe within the budget."""

    item: Item
    view: View
    in_previous: Float32s | None = None  # (rows, columns), 1 where seen there; None: no
    in_next: Float32s | None = None
    new_link: TwoView | None = None  # with the keyframe before, where another one went

    def loss(self) -> float:
        """What removing it would lose, 0..1.

        That is the share of its view that its neighbours together do not show, averaged with the
        share that the better of them does not show: of two, the more alike one goes.
        """
        if self.view.textured_share < BLANK_SHARE:
            return 0.0
        neighbours = [cells for cells in (self.in_previous, self.in_next) if cells is not None]
        if not neighbours:
            return 1.0
        together = float(np.max(neighbours, axis=0).mean())
        return 1.0 - (together + max(float(cells.mean()) for cells in neighbours)) / 2


class KeyframeBudget(Generic[Item]):
    """Keeps at most so many keyframes, whatever they are accompanied by."""

    def __init__(self, size: int) -> None:
        """Take the budget.

        Raises:
            ConfigError: It is below 2: the first and the newest keyframe always stay.
        """
        if size < 2:
            msg = f'budget is {size}: expected at least 2, for the first and the newest keyframe'
            raise ConfigError(msg)
        self._size = size
        self.entries: list[BudgetEntry[Item]] = []

    def add(self, item: Item, view: View) -> Item | None:
        """Add the next keyframe; return the one that had to go, if any."""
        self.entries.append(BudgetEntry(item, view))
        if len(self.entries) > 1:
            _link(*self.entries[-2:])
        if len(self.entries) <= self._size:
            return None
        index = min(range(1, len(self.entries) - 1), key=lambda index: self.entries[index].loss())
        entry = self.entries.pop(index)
        earlier, later = self.entries[index - 1 : index + 1]
        later.new_link = _link(earlier, later)
        return entry.item


def _link(earlier: BudgetEntry[Item], later: BudgetEntry[Item]) -> TwoView:
    """Find out what two neighbours show of each other; return the comparison of both."""
    forth = two_view(earlier.view, later.view)
    back = two_view(later.view, earlier.view)
    earlier.in_next = _visible_cells(earlier.view, later.view, forth)
    later.in_previous = _visible_cells(later.view, earlier.view, back)
    return forth


def _visible_cells(first: View, second: View, views: TwoView) -> Float32s | None:
    return seen_cells(first, second, views.alignment) if views.alignment else None


def evaluate_images(
    images: Iterable[StampedImage],
    config: KeyframeConfig,
    *,
    budget: int = 0,
    keyframes_only: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Iterator[Evaluation]:
    """Evaluate the images of a recording.

    Args:
        images: The images, in order.
        config: When an image is a keyframe.
        budget: Most keyframes to keep; 0: all. With a budget, keyframes come when all images were
            seen, each compared with the one before it that is kept. It is no setting of a stream:
            live, nobody waits for the end.
        keyframes_only: Leave all other images out.
        tell: Is told at the end what is fixed to the camera, if anything.

    Raises:
        ConfigError: The budget is below 2, or there is one and all images are wanted.
    """
    if budget and not keyframes_only:
        msg = f'a budget of {budget} keyframes cannot be told of each image as it comes'
        raise ConfigError(msg)
    selector = KeyframeSelector(config)
    if budget:
        yield from _within_budget(images, selector, budget)
    for image in () if budget else images:
        evaluation = selector.evaluate(image)
        if evaluation.is_keyframe or not keyframes_only:
            yield evaluation
    if tell and (text := selector.fixed_parts.text()):
        tell(text)


def _within_budget(
    images: Iterable[StampedImage], selector: KeyframeSelector, size: int
) -> Iterator[Evaluation]:
    budget: KeyframeBudget[Evaluation] = KeyframeBudget(size)
    for image in images:
        evaluation = selector.evaluate(image)
        if evaluation.is_keyframe and selector.reference_view is not None:
            budget.add(evaluation, selector.reference_view)
    previous: Evaluation | None = None
    for entry in budget.entries:
        link, evaluation = entry.new_link, entry.item
        if link and previous:
            evaluation = _compared_again(evaluation, previous, link, selector.config)
        previous = evaluation
        yield evaluation


def _compared_again(
    chosen: Evaluation, previous: Evaluation, link: TwoView, config: KeyframeConfig
) -> Evaluation:
    """A keyframe compared with the one before it that is kept, with the reason that this gives.

    Where the two are alike, because the camera came back, the comparison for which it was chosen
    stays: an overlap that makes no keyframe is no reason.
    """
    reason = chosen.reason
    if reason not in _STARTS:
        reason = reason_of_views(link, config) or (reason if reason in _AT_THE_TIME else None)
    if reason is None:
        return chosen
    return replace(
        chosen,
        reference_index=previous.index,
        overlap=link.overlap,
        inliers=link.inliers,
        reason=reason,
    )
