# SPDX-License-Identifier: Apache-2.0
"""From images to semantic deltas offline: the same keyframing and perception as live.

Images are read one at a time and keyframes held a few at a time, so that memory does not depend on
the length of a recording.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, pairwise
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.chat.client import HttpChatClient
from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.common.work import IMAGES, KEYFRAMES, METER
from embodied_r_ros.keyframes.selector import KeyframeConfig, KeyframeExtractor
from embodied_r_ros.perception.classical import ClassicalPerceiver
from embodied_r_ros.perception.detector import Detector, DetectorPerceiver
from embodied_r_ros.perception.perceiver import perceive_all
from embodied_r_ros.perception.vlm import VlmPerceiver
from embodied_r_ros.types.deltas import Rung

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.chat.settings import ChatConfig
    from embodied_r_ros.keyframes.selector import Keyframe
    from embodied_r_ros.perception.classical import ClassicalConfig
    from embodied_r_ros.perception.detector import DetectorConfig
    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.perception.vlm import VlmConfig
    from embodied_r_ros.types.deltas import Item, Motion, SemanticDelta
    from embodied_r_ros.types.images import StampedImage

_LOOK_AHEAD = 16  # keyframes from which a camera without intrinsics is learned first


def classical_perceiver(config: ClassicalConfig | None = None) -> Perceiver:
    """The perceiver that needs no model, as the primary one."""
    return ClassicalPerceiver(config, Rung.PRIMARY)


def detector_perceiver(
    detector: DetectorConfig, config: ClassicalConfig | None = None
) -> DetectorPerceiver:
    """The classical perceiver, with names by a detector.

    A process that perceives one recording after the other loads the detector once.

    Raises:
        ConfigError: The detector cannot be loaded.
    """
    changed_ns = [path.stat().st_mtime_ns for path, _ in detector.files() if path.is_file()]
    return DetectorPerceiver(_loaded(detector, tuple(changed_ns)), config)


@lru_cache(maxsize=1)
def _loaded(detector: DetectorConfig, changed_ns: tuple[int, ...]) -> Detector:
    """The detector in files as they are since those times [ns]; it remembers nothing of images."""
    del changed_ns
    return Detector(detector)


def vlm_perceiver(
    chat: ChatConfig, vlm: VlmConfig | None = None, detector: DetectorPerceiver | None = None
) -> Perceiver:
    """A vision-language model whose server answers, and a detector whose things it names.

    Raises:
        InputError: It does not.
    """
    perceiver = VlmPerceiver(HttpChatClient(chat), vlm, detector=detector)
    try:
        perceiver.info()
    except ModelError as error:
        raise InputError(str(error)) from None
    return perceiver


def keyframes_of(
    images: Iterable[StampedImage],
    config: KeyframeConfig | None = None,
    *,
    with_last: bool = False,
) -> Iterator[Keyframe]:
    """Choose the keyframes of a stream of images.

    Args:
        images: Of one camera, in order.
        config: When an image becomes a keyframe.
        with_last: Whether the last one is a keyframe too: what is asked "now" is asked there.
    """
    extractor = KeyframeExtractor(config)
    for image, is_last in _with_end(images) if with_last else ((image, False) for image in images):
        METER.add(IMAGES)
        _, keyframe = extractor.process(image, is_last=is_last)
        if keyframe:
            METER.add(KEYFRAMES)
            yield keyframe


def _with_end(images: Iterable[StampedImage]) -> Iterator[tuple[StampedImage, bool]]:
    """The images, and whether each is the last one."""
    for image, following in pairwise(chain(images, [None])):
        assert image is not None
        yield image, following is None


def perceive_images(
    images: Iterable[StampedImage],
    perceiver: Perceiver,
    config: KeyframeConfig | None = None,
    in_flight: int = 2,
) -> Iterator[SemanticDelta]:
    """Perceive a stream of images: one delta per keyframe, in order.

    Args:
        images: Of one camera, in order.
        perceiver: What perceives.
        config: When an image becomes a keyframe.
        in_flight: Pairs that a model gets at the same time.
    """
    config = replace(config or KeyframeConfig(), follow_with_pose=not _takes_poses(perceiver))
    return perceive_keyframes(keyframes_of(images, config), perceiver, in_flight)


def perceive_keyframes(
    keyframes: Iterable[Keyframe], perceiver: Perceiver, in_flight: int = 2
) -> Iterator[SemanticDelta]:
    """Perceive the keyframes of one camera: one delta each, in order."""
    local = perceiver.detector if isinstance(perceiver, VlmPerceiver) else perceiver
    if isinstance(local, ClassicalPerceiver):
        # One pair at a time: what it learns of a camera must not depend on which thread is first.
        return perceive_all(perceiver, _learn_first(local, iter(keyframes)), in_flight=1)
    return perceive_all(perceiver, keyframes, in_flight)


def perceive_path(
    path: Path, perceiver: Perceiver, config: KeyframeConfig | None = None
) -> Iterator[SemanticDelta]:
    """Perceive a video, a folder of images, or a bag with one image topic.

    Raises:
        SourceError: It cannot be read as a stream of images.
        BagError: The bag is damaged.
    """
    with open_source(path) as source:
        yield from perceive_images(source, perceiver, config)


def _takes_poses(perceiver: Perceiver) -> bool:
    """Whether a perceiver takes the motion between keyframes with poses from these."""
    if isinstance(perceiver, ClassicalPerceiver):
        return perceiver.config.use_odometry
    return isinstance(perceiver, VlmPerceiver)


def delta_to_json(delta: SemanticDelta) -> dict[str, Any]:
    """Plain JSON values of a delta; numbers that are not known are left out."""
    return {
        'from_id': delta.from_id,
        'to_id': delta.to_id,
        'stamp_ns': delta.stamp_ns,
        'kind': delta.kind.name,
        'action': delta.action,
        'change': delta.change,
        'items': [_item_to_json(item) for item in delta.items],
        'motion': _motion_to_json(delta.motion),
        'skipped': delta.skipped,
        'error': delta.error,
        'model': {
            'name': delta.model.name,
            'digest': delta.model.digest,
            'rung': delta.model.rung.name,
        },
    }


def _item_to_json(item: Item) -> dict[str, Any]:
    """An item as rows have it, with its place: x forward, y left, z up of the camera [m]."""
    place = item.position
    position = {'position': [round(value, 3) for value in place]} if place else {}
    return {**item.to_json(), **position}


def _motion_to_json(motion: Motion) -> dict[str, Any]:
    figures = {
        name: round(value, 4)
        for name in ('yaw_rad', 'pitch_rad', 'roll_rad', 'confidence')
        if math.isfinite(value := getattr(motion, name))
    }
    if all(math.isfinite(value) for value in motion.translation):
        figures['translation'] = [round(value, 4) for value in motion.translation]
    return {'source': motion.source.name, 'is_metric': motion.is_metric, **figures}


def _learn_first(
    perceiver: ClassicalPerceiver, keyframes: Iterator[Keyframe]
) -> Iterator[Keyframe]:
    """The same keyframes, after a look at the first ones to learn the camera's field of view."""
    first = list(islice(keyframes, 1))
    if first and not first[0].intrinsics:
        first += islice(keyframes, _LOOK_AHEAD - 1)
        any(perceiver.learn(earlier, later) for earlier, later in pairwise(first))
    yield from chain(first, keyframes)
