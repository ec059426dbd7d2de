# SPDX-License-Identifier: Apache-2.0
"""`DetectorPerceiver`: the classical perceiver, with names for what a detector knows."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.perception.classical import ClassicalPerceiver
from embodied_r_ros.perception.fusion import fused_objects, without
from embodied_r_ros.types.deltas import ModelInfo, Rung
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.keyframes.selector import Keyframe
    from embodied_r_ros.perception.classical import ClassicalConfig
    from embodied_r_ros.perception.detector import Detector
    from embodied_r_ros.perception.items import ItemView
    from embodied_r_ros.types.images import EncodedImage
    from embodied_r_ros.types.vocabulary import Detection

_CACHED_IMAGES = 4
# What scores so much of the threshold still tells that a thing did not leave.
_UNSURE = 0.5
_CHECK_SIDE_PX = 64


class DetectorPerceiver(ClassicalPerceiver):
    """Perceives by geometry, colour and the boxes of a detector. Safe for several threads.

    It looks at keyframes alone, once at each. Motion, distances and colours are those of the
    classical perceiver; a thing that both find is one item.
    """

    def __init__(
        self,
        detector: Detector | None,
        config: ClassicalConfig | None = None,
        rung: Rung = Rung.PRIMARY,
        boxes_of: Callable[[Keyframe], Sequence[Detection]] | None = None,
    ) -> None:
        """Prepare.

        Args:
            detector: Finds things; None: only `boxes_of` does.
            config: Of the classical perceiver.
            rung: Its place among fallbacks.
            boxes_of: What others found in a keyframe, such as a ROS node; None: there are none.
        """
        super().__init__(config, rung)
        self._detector = detector
        self._boxes_of = boxes_of
        name, digest = (f'detector/{detector.name}', detector.digest) if detector else ('', '')
        self._info = ModelInfo(name or 'detections', digest, rung=rung)
        self._look_lock = threading.Lock()
        self._detections = lru_cache(_CACHED_IMAGES)(self._detect)

    def check(self, deadline_s: float) -> None:
        """See that the network computes.

        Raises:
            ModelError: It does not.
        """
        if self._detector:
            self._detector.detect(np.full((_CHECK_SIDE_PX, _CHECK_SIDE_PX, 3), 114, np.uint8))

    def view(self, keyframe: Keyframe) -> ItemView:
        """What a keyframe shows: things with names, and what else has a colour.

        Raises:
            ImageError: The image cannot be decoded.
            ModelError: The detector failed.
        """
        view = super().view(keyframe)
        # One image is the later one of a pair and the earlier one of the next, in another thread.
        with self._look_lock:
            own = self._detections(keyframe.image)
        threshold = self._detector.config.threshold if self._detector else 0.0
        # Others have thresholds of their own.
        strong = [*(self._boxes_of(keyframe) if self._boxes_of else ())]
        strong += [one for one in own if one.score >= threshold]
        weak = [one for one in own if one.score < threshold]
        image, intrinsics = self._image(keyframe.image), self._intrinsics(keyframe)
        objects = fused_objects(strong, view.objects, image, intrinsics)
        unsure = fused_objects(weak, (), image, intrinsics)
        return replace(view, objects=objects, unsure=without(unsure, objects))

    def _detect(self, encoded: EncodedImage) -> tuple[Detection, ...]:
        if self._detector is None:
            return ()
        least = self._detector.config.threshold * _UNSURE
        return tuple(self._detector.detect(self._image(encoded), least))
