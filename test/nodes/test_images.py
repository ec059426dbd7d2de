# SPDX-License-Identifier: Apache-2.0
"""Messages with images become images with their header."""

from __future__ import annotations

from array import array
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.images import ImageDecoder
from embodied_r_ros.nodes import topics
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from test.bags.test_raw_images import BGR

if TYPE_CHECKING:
    from numpy.typing import NDArray


def raw(encoding: str, pixels: NDArray[Any]) -> Image:
    height, width = pixels.shape[:2]
    msg = Image(encoding=encoding, height=height, width=width, step=pixels.nbytes // height)
    msg.data = array('B', pixels.tobytes())
    msg.header.frame_id = 'front_optical'
    msg.header.stamp.sec, msg.header.stamp.nanosec = 3, 5
    return msg


def test_raw_image_arrives_as_bgr() -> None:
    image = topics.stamped_image(raw('bgr8', BGR), 4, ImageDecoder(''))
    np.testing.assert_array_equal(image.image, BGR)
    assert (image.index, image.stamp_ns, image.frame_id) == (4, 3_000_000_005, 'front_optical')


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
def test_compressed_image_is_decoded(suffix: str) -> None:
    data = cv2.imencode(suffix, BGR)[1].tobytes()
    msg = CompressedImage(format='rgb8; jpeg compressed bgr8', data=array('B', data))
    image = topics.stamped_image(msg, 0, ImageDecoder(''))
    assert np.abs(image.image.astype(int) - BGR).mean() < 4
    assert (image.encoded is not None) == (suffix == '.jpg')
    assert image.encoded is None or image.encoded.data == data


def test_topic_of_a_transport() -> None:
    assert topics.image_topic('/front/image', 'raw') == '/front/image'
    assert topics.image_topic('/front/image', 'compressed') == '/front/image/compressed'
