# SPDX-License-Identifier: Apache-2.0
"""The loop from images to semantic deltas: the same keyframing and perception as live.

Images are read one at a time and keyframes held a few at a time, so that memory does not depend on
the length of a recording.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.perception.detector import Detector, DetectorPerceiver
from embodied_r_ros.core.perception.perceiver import perceive_all, perceive_pair
from embodied_r_ros.core.types.deltas import Rung

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.perception.classical import ClassicalConfig
    from embodied_r_ros.core.perception.detector import DetectorConfig
    from embodied_r_ros.core.perception.perceiver import PairPerceiver
    from embodied_r_ros.core.perception.vlm import VlmConfig
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.images import StampedImage
    from embodied_r_ros.core.types.keyframes import Keyframe

_LOOK_AHEAD = 16  # keyframes from which a camera without intrinsics is learned first


def classical_perceiver(config: ClassicalConfig | None = None) -> PairPerceiver:
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
) -> PairPerceiver:
    """A vision-language model whose server answers, and a detector whose things it names.

    Raises:
        InputError: It does not.
    """
    from embodied_r_ros.core.chat.client import HttpChatClient
    from embodied_r_ros.core.perception.vlm import VlmPerceiver

    perceiver = VlmPerceiver(HttpChatClient(chat), vlm, detector=detector)
    try:
        perceiver.info()
    except ModelError as error:
        raise InputError(str(error)) from None
    return perceiver


class Perceiver:
    """Perceives keyframes one after the other, each against the one before it.

    >>> from embodied_r_ros import Keyframer, open_source, Perceiver
    >>> perceiver = Perceiver()
    >>> with open_source('samples/indoor/episode_00000') as images:
    ...     delta = perceiver.perceive(next(Keyframer().stream(images)))
    >>> delta.kind.name
    'FIRST'
    """

    def __init__(self, pairs: PairPerceiver | None = None) -> None:
        """Take what perceives a pair of keyframes; None: the perceiver that needs no model."""
        self.pairs = pairs or classical_perceiver()
        self._last: Keyframe | None = None

    def perceive(self, keyframe: Keyframe) -> SemanticDelta:
        """Say what a keyframe adds to the one before it; a failure is a delta of kind FAILED."""
        delta = perceive_pair(self.pairs, self._last, keyframe)
        self._last = keyframe
        return delta


def perceive_images(
    images: Iterable[StampedImage],
    perceiver: PairPerceiver,
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
    return perceive_keyframes(Keyframer(config).stream(images), perceiver, in_flight)


def perceive_keyframes(
    keyframes: Iterable[Keyframe], perceiver: PairPerceiver, in_flight: int = 2
) -> Iterator[SemanticDelta]:
    """Perceive the keyframes of one camera: one delta each, in order."""
    # Beside a vision-language model there may be a detector.
    is_local = isinstance(perceiver, ClassicalPerceiver)
    local = perceiver if is_local else getattr(perceiver, 'detector', None)
    if isinstance(local, ClassicalPerceiver):
        # One pair at a time: what it learns of a camera must not depend on which thread is first.
        return perceive_all(perceiver, _learn_first(local, iter(keyframes)), in_flight=1)
    return perceive_all(perceiver, keyframes, in_flight)


def _takes_poses(perceiver: PairPerceiver) -> bool:
    """Whether a perceiver takes the motion between keyframes with poses from these."""
    if isinstance(perceiver, ClassicalPerceiver):
        return perceiver.config.use_odometry
    return hasattr(perceiver, 'detector')


def _learn_first(
    perceiver: ClassicalPerceiver, keyframes: Iterator[Keyframe]
) -> Iterator[Keyframe]:
    """The same keyframes, after a look at the first ones to learn the camera's field of view."""
    first = list(islice(keyframes, 1))
    if first and not first[0].intrinsics:
        first += islice(keyframes, _LOOK_AHEAD - 1)
        any(perceiver.learn(earlier, later) for earlier, later in pairwise(first))
    yield from chain(first, keyframes)
