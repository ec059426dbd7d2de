# SPDX-License-Identifier: Apache-2.0
"""What was seen in a recording when some of its images were looked at, kept for the next time."""

from __future__ import annotations

from dataclasses import asdict, astuple, dataclass, replace
import hashlib
import json
from pathlib import Path
import time
from typing import Any, TYPE_CHECKING

import embodied_r_ros
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.chat.cache import cache_key
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
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.types.deltas import SemanticDelta

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.chat.cache import ReplyCache
    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.types.images import StampedImage

    from training.experiments.config import PolicyConfig

_NS = 1_000_000_000


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
    keyframes = chosen(images, policy)
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
    folder = Path(embodied_r_ros.__file__).parent
    files = sorted((folder / 'keyframes').glob('*.py'))
    return hashlib.sha256(b''.join(file.read_bytes() for file in files)).hexdigest()


def _perceived(
    keyframes: Sequence[Keyframe], perceiver: Perceiver, *, in_pairs: bool
) -> list[SemanticDelta]:
    if in_pairs:
        return list(perceive_keyframes(keyframes, perceiver))
    return [perceive_pair(perceiver, None, keyframe) for keyframe in keyframes]


def chosen(images: Sequence[StampedImage], policy: PolicyConfig) -> list[Keyframe]:
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
            due_ns = image.stamp_ns + (1 - 1e-3) * _NS / rate_hz
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
