# SPDX-License-Identifier: Apache-2.0
"""What was seen in a recording when some of its images were looked at, kept for the next time.

With the same questions of a recording for several texts of it; rows paired by what they ask.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, astuple, dataclass, replace
import hashlib
from itertools import islice
import json
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING

import embodied_r_ros
from embodied_r_ros.bags.sources import find_bags, open_source
from embodied_r_ros.chat.cache import cache_key
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.episode import Episode, read_layout
from embodied_r_ros.episodes.inspect import bag_digest
from embodied_r_ros.keyframes.selector import (
    encode_keyframe,
    Keyframe,
    KeyframeConfig,
    KeyframeExtractor,
    KeyframeReason,
)
from embodied_r_ros.perception.perceiver import perceive_pair
from embodied_r_ros.perception.pipeline import (
    classical_perceiver,
    perceive_keyframes,
    vlm_perceiver,
)
from embodied_r_ros.questions.coverage import Coverage
from embodied_r_ros.questions.derive import QuestionsConfig, rows_of_episode
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.types.geometry import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from embodied_r_ros.chat.cache import ReplyCache
    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.questions.row import Row
    from embodied_r_ros.types.images import StampedImage
    from embodied_r_ros.types.layout import Layout

    from training.experiments.config import PolicyConfig


@dataclass(frozen=True)
class PerceivedRecording:
    """What was seen in one recording, and what it took."""

    deltas: tuple[dict[str, Any], ...]  # as `SemanticDelta.to_row` writes them
    images: int  # of the recording
    frames: int  # that were looked at, each in one call of the perceiver
    choosing_s: float  # wall time
    perceiving_s: float  # wall time

    def semantic_deltas(self) -> tuple[SemanticDelta, ...]:
        """The deltas as core values."""
        return tuple(SemanticDelta.from_row(delta) for delta in self.deltas)


def perceiver_of(profile: str) -> Perceiver:
    """The vision-language model of a profile; of none, the classical perceiver.

    Raises:
        InputError: There is no such profile, or its server does not answer.
    """
    if not profile:
        return classical_perceiver()
    loaded = load_profile(profile)
    return vlm_perceiver(loaded.client('perceiver'), loaded.vlm)


def look_at(
    bag: Path, policy: PolicyConfig, perceiver: Perceiver, cache: ReplyCache
) -> PerceivedRecording:
    """Look at the images of a recording that a policy chooses; the last one is always among them.

    Raises:
        InputError: It cannot be read as a stream of images.
    """
    who = str(astuple(perceiver.info()))
    key = cache_key('seen', bag_digest(bag).sha256, str(astuple(policy)), who, keyframing_digest())
    kept = cache.get(key)
    if kept:
        value = json.loads(kept)
        return PerceivedRecording(**{**value, 'deltas': tuple(value['deltas'])})
    with open_source(bag) as source:
        images = [i if policy.odometry else replace(i, pose=None) for i in source]
    start = time.perf_counter()
    keyframes = choose_keyframes(images, policy)
    middle = time.perf_counter()
    deltas = _perceived(keyframes, perceiver, in_pairs=policy.in_pairs)
    end = time.perf_counter()
    rows = tuple(delta.to_row() for delta in deltas)
    recording = PerceivedRecording(rows, len(images), len(keyframes), middle - start, end - middle)
    if not any(delta.error for delta in deltas):  # what failed is tried again next time
        cache.put(key, json.dumps(asdict(recording)))
    return recording


def keyframing_digest() -> str:
    """Digest of the sources that decide which images are keyframes."""
    return sources_digest('keyframes')


def sources_digest(room: str) -> str:
    """Digest of the sources of a folder of the package, such as `keyframes`, hex."""
    folder = Path(embodied_r_ros.__file__).parent
    files = sorted((folder / room).glob('*.py'))
    return hashlib.sha256(b''.join(file.read_bytes() for file in files)).hexdigest()


def _perceived(
    keyframes: Sequence[Keyframe], perceiver: Perceiver, *, in_pairs: bool
) -> list[SemanticDelta]:
    if in_pairs:
        return list(perceive_keyframes(keyframes, perceiver))
    return [perceive_pair(perceiver, None, keyframe) for keyframe in keyframes]


def choose_keyframes(images: Sequence[StampedImage], policy: PolicyConfig) -> list[Keyframe]:
    """The images that a policy looks at, as keyframes, and always the last one."""
    if policy.choose == 'keyframes':
        extractor = KeyframeExtractor(KeyframeConfig(max_overlap=policy.max_overlap))
        keyframes = [keyframe for _, keyframe in map(extractor.process, images) if keyframe]
        if keyframes[-1].stamp_ns != images[-1].stamp_ns:
            keyframes.append(_keyframe(images[-1], len(keyframes)))
        return keyframes
    indices = (
        evenly(len(images), policy.count)
        if policy.choose == 'uniform'
        else at_most(images, policy.rate_hz)
    )
    return [_keyframe(images[index], number) for number, index in enumerate(indices)]


def evenly(length: int, count: int) -> list[int]:
    """So many positions, evenly from the first to the last; all where there are fewer."""
    if length <= count:
        return list(range(length))
    return [round(number * (length - 1) / (count - 1)) for number in range(count)]


def at_most(images: Sequence[StampedImage], rate_hz: float) -> list[int]:
    """Positions of the images at a rate, and of the last one; 0: of all."""
    if not rate_hz:
        return list(range(len(images)))
    indices: list[int] = []
    due_ns = 0.0
    for index, image in enumerate(images):
        if not indices or image.stamp_ns >= due_ns:
            indices.append(index)
            due_ns = image.stamp_ns + (1 - 1e-3) * NS_PER_S / rate_hz
    return indices if indices[-1] == len(images) - 1 else [*indices, len(images) - 1]


def _keyframe(image: StampedImage, number: int) -> Keyframe:
    encoded, intrinsics = encode_keyframe(image, KeyframeConfig())
    return Keyframe(
        id=number,
        stamp_ns=image.stamp_ns,
        image=encoded,
        reason=KeyframeReason.FIRST if not number else KeyframeReason.MAX_INTERVAL,
        reference_id=max(0, number - 1),
        frame_id=image.frame_id,
        intrinsics=intrinsics,
        pose=image.pose,
    )


def simulated_bags(worlds: Sequence[Path], limit: int) -> Iterator[tuple[Path, Layout]]:
    """Bags of simulated worlds with what is true of them, at most so many (0: all).

    Raises:
        BagError: There is no such bag.
        InputError: One does not hold what is true of it.
    """
    for bag in islice(find_bags(worlds), limit or None):
        layout = read_layout(bag)
        if layout is None:
            msg = f'bag {bag} has no true layout: use bags of embodied-r sim indoor'
            raise InputError(msg)
        yield bag, layout


def questions_at(layout: Layout, stamps_ns: Sequence[int], moments: int, seed: int) -> list[Row]:
    """Questions at several of the given moments, solved by what is true; without any deltas.

    They are worded as in training, and of the split `test`: what is compared are texts.
    """
    poses = tuple(layout.image_at(stamp_ns).pose(layout.frame_id) for stamp_ns in stamps_ns)
    # Which questions have a solution depends on when was looked, not on what was said of it.
    deltas = tuple(SemanticDelta(stamp_ns, DeltaKind.CHANGE) for stamp_ns in stamps_ns)
    episode = Episode(layout.episode_id, layout.scene_id, 'camera', deltas, 'true', poses, layout)
    config = QuestionsConfig(moments, 1, seed, test_share=0.0, validation_share=0.0)
    return [replace(row, split='test') for row in rows_of_episode(episode, config, Coverage())]


def questions_at_end(layout: Layout, draws: int, seed: int) -> list[Row]:
    """Questions at the end of a recording, which do not depend on which images are looked at.

    What was in view counts once a second: what was to be seen for a moment only is not asked for.
    """
    stamps = once_a_second([image.stamp_ns for image in layout.images])
    rows: dict[tuple[str, str], Row] = {}
    for draw in range(draws):
        for row in questions_at(layout, stamps, 1, seed + draw):
            rows.setdefault((row.question_type, row.question), row)
    return list(rows.values())


def once_a_second(stamps_ns: Sequence[int]) -> list[int]:
    """A stamp of each second, and the last one."""
    indices: list[int] = []
    for stamp_ns in stamps_ns:
        if not indices or stamp_ns >= indices[-1] + 0.999 * NS_PER_S:
            indices.append(stamp_ns)
    return indices if indices[-1] == stamps_ns[-1] else [*indices, stamps_ns[-1]]


@dataclass(frozen=True)
class PairedQuestions:
    """The same questions, told by several texts."""

    rows: dict[str, list[Row]]  # by text, in one order
    left_out: dict[str, dict[str, int]]  # by text: why, and how many
    other_moment: int  # pairs in which the newest image is not the same


def pair_questions(texts: Mapping[str, Sequence[Row]]) -> PairedQuestions:
    """Pair rows by id, where question, options and solution are the same in all texts.

    Raises:
        InputError: No question is in all of them.
    """
    by_id = {name: {row.id: row for row in rows} for name, rows in texts.items()}
    left_out: dict[str, Counter[str]] = {name: Counter() for name in texts}
    kept: list[str] = []
    for name, rows in by_id.items():
        for key in rows:
            reason = _why_not(key, by_id)
            if reason:
                left_out[name][reason] += 1
            elif name == next(iter(by_id)):
                kept.append(key)
    if not kept:
        msg = f'no question is in all of {", ".join(texts)}: derive them from the same recordings'
        raise InputError(msg)
    aligned = {name: [rows[key] for key in kept] for name, rows in by_id.items()}
    times = zip(*([_newest_ns(row) for row in rows] for rows in aligned.values()), strict=True)
    counts = {name: dict(reasons) for name, reasons in left_out.items()}
    return PairedQuestions(aligned, counts, sum(len(set(stamps)) > 1 for stamps in times))


def _why_not(key: str, by_id: Mapping[str, Mapping[str, Row]]) -> str:
    """Why a row is not paired; empty: it is."""
    same = [rows[key] for rows in by_id.values() if key in rows]
    if len(same) < len(by_id):
        return 'not asked in every text'
    questions = {(row.question, row.options, row.solution) for row in same}
    return 'has another solution elsewhere' if len(questions) > 1 else ''


def _newest_ns(row: Row) -> int:
    return int(row.deltas[-1]['stamp_ns']) if row.deltas else 0
