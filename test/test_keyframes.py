# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from embodied_r_ros.images import StampedImage
from embodied_r_ros.keyframes import KeyframeExtractor, KeyframeReason
import numpy as np


def test_identical_images_give_one_keyframe() -> None:
    image = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    extractor = KeyframeExtractor()
    results = [extractor.process(StampedImage(i, i * 10**8, image)) for i in range(5)]
    keyframes = [keyframe for _, keyframe in results if keyframe]
    assert [keyframe.reason for keyframe in keyframes] == [KeyframeReason.FIRST]
