# SPDX-License-Identifier: Apache-2.0
"""Recorded keyframes perceived again by another perceiver, and what that changes in their deltas.

The same pairs of keyframes are perceived as when the recording was made, so that only the
perceiver differs. The recording is not touched.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from functools import cached_property
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.errors import BagError, ModelError
from embodied_r_ros.common.untrusted import as_data
from embodied_r_ros.core.perception.fusion import overlap_of
from embodied_r_ros.core.pipeline import perceive_keyframes
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.types.deltas import DeltaKind, Item, item_text, ItemStatus
from embodied_r_ros.core.types.geometry import NS_PER_S
from embodied_r_ros.data.episodes.contents import keyframe_topics
from embodied_r_ros.data.episodes.episode import read_keyframes, read_recorded_deltas

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.types.answers import Answer, FocusText
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.landmarks import SceneMap

_SAME_IOU = 0.3  # of the boxes of one thing
_SAME_RAD = math.radians(10.0)  # between directions of one thing; more where it is larger
_LOOK_S = 60.0
Moment = tuple[str, int]  # camera, and stamp of the keyframe [ns]


@dataclass(frozen=True)
class DeltaDifference:
    """How a replayed delta differs from the recorded one."""

    added: tuple[str, ...] = ()  # items that the replay alone has, in words; `gone: bed` too
    gone: tuple[str, ...] = ()  # items that the recording alone has
    renamed: tuple[tuple[str, str], ...] = ()  # labels of one thing: recorded, replayed
    is_other_action: bool = False
    is_other_kind: bool = False  # one of them failed

    @property
    def count(self) -> int:
        """How many differences there are."""
        items = len(self.added) + len(self.gone) + len(self.renamed)
        return items + self.is_other_action + self.is_other_kind


@dataclass(frozen=True)
class ReplayedDelta:
    """A keyframe that was perceived again."""

    replayed: SemanticDelta
    original: SemanticDelta | None  # None: there is none
    view: CameraView  # pose and lens of the keyframe

    @property
    def moment(self) -> Moment:
        """Camera and stamp."""
        return self.replayed.camera, self.replayed.stamp_ns

    @cached_property
    def difference(self) -> DeltaDifference:
        """What the other perceiver changes."""
        if self.original is None:
            there = map(item_text, _there(self.replayed))
            return DeltaDifference(added=(*there, *_left(self.replayed).elements()))
        return delta_difference(self.original, self.replayed)


def delta_difference(original: SemanticDelta, replayed: SemanticDelta) -> DeltaDifference:
    """Compare what two perceivers say of one keyframe."""
    before, after = _there(original), _there(replayed)
    pairs = _pairs(before, after)
    matched = {id(item) for pair in pairs for item in pair}
    is_failed = [delta.kind is DeltaKind.FAILED for delta in (original, replayed)]
    lost, left = _left(original), _left(replayed)
    added = [item_text(item) for item in after if id(item) not in matched]
    gone = [item_text(item) for item in before if id(item) not in matched]
    return DeltaDifference(
        (*added, *(left - lost).elements()),
        (*gone, *(lost - left).elements()),
        tuple((a.label, b.label) for a, b in pairs if a.label.lower() != b.label.lower()),
        original.action != replayed.action and not any(is_failed),
        is_failed[0] is not is_failed[1],
    )


def _there(delta: SemanticDelta) -> list[Item]:
    return [item for item in delta.items if item.status is not ItemStatus.LEFT]


def _left(delta: SemanticDelta) -> Counter[str]:
    """What a delta says is gone, in words: it has no direction, and its name alone is compared."""
    items = [item for item in delta.items if item.status is ItemStatus.LEFT]
    return Counter(f'gone: {item.label.lower()}' for item in items)


def _pairs(before: Sequence[Item], after: Sequence[Item]) -> list[tuple[Item, Item]]:
    """Items of one thing: of the same name first, then of the same place, the nearest first."""
    candidates = []
    for first, a in enumerate(before):
        for second, b in enumerate(after):
            is_renamed = a.label.lower() != b.label.lower()
            apart = _apart(a, b)
            if apart is None:
                apart = math.inf if is_renamed else 1.0
            if apart <= 1.0:
                candidates.append((is_renamed, apart, first, second))
    pairs: dict[int, int] = {}
    for _, _, first, second in sorted(candidates):
        if first not in pairs and second not in pairs.values():
            pairs[first] = second
    return [(before[first], after[second]) for first, second in sorted(pairs.items())]


def _apart(a: Item, b: Item) -> float | None:
    """How far apart two items are in the view, 1 at most for one thing; None: not known."""
    if a.box and b.box and (overlap := overlap_of(a.box, b.box)) >= _SAME_IOU:
        return 1.0 - overlap
    angles = [a.bearing_rad - b.bearing_rad, a.elevation_rad - b.elevation_rad]
    if not math.isfinite(angles[0]):
        return None
    known = [angle for angle in angles if math.isfinite(angle)]
    sizes = [item.size_rad / 2 for item in (a, b) if math.isfinite(item.size_rad)]
    return math.hypot(*known) / max([_SAME_RAD, *sizes])


def perceive_again(
    bag: Path,
    perceiver: PairPerceiver,
    progress: Callable[[Iterable[Keyframe]], Iterable[Keyframe]] = iter,
) -> list[ReplayedDelta]:
    """Let a perceiver perceive the keyframes of a recording, in the order of their stamps.

    Where it has deltas, the keyframes of these are perceived, and no others.

    Args:
        bag: The recording.
        perceiver: The perceiver.
        progress: Shows how far it is.

    Raises:
        BagError: It is not a readable bag, or holds no images of keyframes.
    """
    deltas = {(delta.camera, delta.stamp_ns): delta for delta in read_recorded_deltas(bag)}
    with open_bag(bag) as reader:
        topics = keyframe_topics(reader)
    views: dict[Moment, CameraView] = {}

    def with_images(topic: str) -> Iterator[Keyframe]:
        for keyframe in progress(read_keyframes(bag, deltas or None, topic)):
            if keyframe.image.data:
                at = keyframe.camera, keyframe.stamp_ns
                views[at] = CameraView(keyframe.pose, keyframe.intrinsics)
                yield keyframe

    pairs = [
        ReplayedDelta(delta, deltas.get(at), views[at])
        for topic in topics
        for delta in perceive_keyframes(with_images(topic), perceiver)
        for at in [(delta.camera, delta.stamp_ns)]
    ]
    if not pairs:
        msg = f'{bag} holds no images of keyframes: record with `images: keyframes`'
        raise BagError(msg)
    return sorted(pairs, key=lambda pair: pair.replayed.stamp_ns)


class OtherScene:
    """What was known when questions were asked, as another perceiver has it."""

    def __init__(
        self, bag: Path, perceiver: PairPerceiver, pairs: Sequence[ReplayedDelta]
    ) -> None:
        self.pairs = pairs
        self._bag, self._perceiver = bag, perceiver
        self._by_moment = {pair.moment: pair.replayed for pair in pairs}

    def deltas(self, original: Sequence[SemanticDelta]) -> tuple[SemanticDelta, ...]:
        """The deltas in place of recorded ones; one without an image failed."""
        return tuple(
            self._by_moment.get((delta.camera, delta.stamp_ns)) or _without_image(delta)
            for delta in original
        )

    def maps(self, answers: Iterable[Answer]) -> dict[str, SceneMap]:
        """The map that the deltas gave until each answer whose prompt held one, by its id."""
        landmarks, done, maps = LandmarkMap(), 0, {}
        for answer in sorted(answers, key=lambda answer: answer.observation_stamp_ns):
            if not answer.map_revision:
                continue
            while (
                done < len(self.pairs)
                and self.pairs[done].replayed.stamp_ns <= answer.observation_stamp_ns
            ):
                landmarks.add(self.pairs[done].replayed, self.pairs[done].view)
                done += 1
            maps[answer.id] = landmarks.scene_map()
        return maps

    def looks(self, answers: Iterable[Answer]) -> dict[str, tuple[FocusText, ...]]:
        """What the perceiver sees where it was looked again for a question, by its id.

        A look that fails shows nothing.
        """
        wanted: dict[Moment, list[Answer]] = defaultdict(list)
        for answer in answers:
            for look in answer.focus:
                wanted[look.camera, look.stamp_ns].append(answer)
        texts: dict[str, list[FocusText]] = defaultdict(list)
        for keyframe in read_keyframes(self._bag, wanted) if wanted else ():
            for answer in (
                wanted[keyframe.camera, keyframe.stamp_ns] if keyframe.image.data else ()
            ):
                question = answer.question, answer.options
                try:
                    texts[answer.id].append(self._perceiver.focus(*question, keyframe, _LOOK_S))
                except ModelError:
                    continue
        return {name: tuple(looks) for name, looks in texts.items()}


def _without_image(delta: SemanticDelta) -> SemanticDelta:
    why = 'its keyframe has no image'
    return replace(
        delta, kind=DeltaKind.FAILED, items=(), change='', action='', error=why, latency_ns=0
    )


def pair_to_json(pair: ReplayedDelta) -> dict[str, Any]:
    """Plain JSON values of a keyframe that was perceived again."""
    difference = pair.difference
    return {
        'camera': pair.replayed.camera,
        'keyframe': pair.replayed.to_id,
        'stamp_ns': pair.replayed.stamp_ns,
        'differences': difference.count,
        'added': list(difference.added),
        'gone': list(difference.gone),
        'renamed': [list(labels) for labels in difference.renamed],
        'action_differs': difference.is_other_action,
        'recorded': pair.original.to_json() if pair.original else None,
        'replayed': pair.replayed.to_json(),
    }


def pairs_table(pairs: Sequence[ReplayedDelta]) -> str:
    """What changed in the deltas, for people: a block per keyframe that changed, and a summary."""
    lines = []
    begin_ns = min(pair.replayed.stamp_ns for pair in pairs)
    for pair in pairs:
        if pair.difference.count:
            delta = pair.replayed
            at = (delta.stamp_ns - begin_ns) / NS_PER_S
            lines.append(f'keyframe at {at:.1f} s ({as_data(delta.camera)})')
            lines += [f'   {line}' for line in _lines(pair)]
    return '\n'.join([*lines, _summary(pairs)])


def _lines(pair: ReplayedDelta) -> Iterator[str]:
    difference, original, replayed = pair.difference, pair.original, pair.replayed
    if original and difference.is_other_kind:
        failed = replayed if replayed.kind is DeltaKind.FAILED else original
        yield f'{"replay" if failed is replayed else "recorded"} failed: {as_data(failed.error)}'
    if original and difference.is_other_action:
        yield f'motion   {as_data(original.action)} -> {as_data(replayed.action)}'
    if difference.added:
        yield f'added    {as_data("; ".join(difference.added))}'
    if difference.gone:
        yield f'gone     {as_data("; ".join(difference.gone))}'
    if difference.renamed:
        renamed = [
            f'{as_data(before)} -> {as_data(after)}' for before, after in difference.renamed
        ]
        yield f'renamed  {"; ".join(renamed)}'


def _summary(pairs: Sequence[ReplayedDelta]) -> str:
    counts: Counter[str] = Counter()
    for pair in pairs:
        difference = pair.difference
        counts['differ'] += bool(difference.count)
        counts['added'] += len(difference.added)
        counts['gone'] += len(difference.gone)
        counts['renamed'] += len(difference.renamed)
        counts['motions'] += difference.is_other_action
        counts['failed'] += pair.replayed.kind is DeltaKind.FAILED
    failed = f', {counts["failed"]} failed' if counts['failed'] else ''
    return (
        f'{counts["differ"]} of {len(pairs)} keyframes differ: {counts["added"]} items added, '
        f'{counts["gone"]} gone, {counts["renamed"]} renamed; {counts["motions"]} motions{failed}'
    )
