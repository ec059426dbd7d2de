# SPDX-License-Identifier: Apache-2.0
"""Images with cv_bridge and without it are the same images."""

from __future__ import annotations

from array import array
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.nodes import topics
import numpy as np
import pytest
from sensor_msgs.msg import CompressedImage, Image

from test.bags.test_raw_images import BGR, ENCODED, GREY

if TYPE_CHECKING:
    from numpy.typing import NDArray

PICTURES = {**ENCODED, 'mono8': GREY}


def raw(encoding: str, pixels: NDArray[Any]) -> Image:
    height, width = pixels.shape[:2]
    msg = Image(encoding=encoding, height=height, width=width, step=pixels.nbytes // height)
    msg.data = array('B', pixels.tobytes())
    msg.header.frame_id = 'front_optical'
    msg.header.stamp.sec, msg.header.stamp.nanosec = 3, 5
    return msg


@pytest.fixture(params=['with cv_bridge', 'without cv_bridge'])
def bridge(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a test with cv_bridge, where it is installed, and without it."""
    if request.param == 'without cv_bridge':
        monkeypatch.setattr(topics, 'BRIDGE', None)
    elif topics.BRIDGE is None:
        pytest.skip('cv_bridge is not installed, or not for this NumPy')


@pytest.mark.usefixtures('bridge')
@pytest.mark.parametrize('encoding', PICTURES)
def test_raw_image_arrives_as_bgr(encoding: str) -> None:
    image = topics.stamped_image(raw(encoding, PICTURES[encoding]), index=4)
    grey = cv2.cvtColor(GREY, cv2.COLOR_GRAY2BGR)
    np.testing.assert_array_equal(image.image, grey if encoding == 'mono8' else BGR)
    assert (image.index, image.stamp_ns, image.frame_id) == (4, 3_000_000_005, 'front_optical')


@pytest.mark.parametrize('suffix', ['.jpg', '.png'])
def test_compressed_image_is_decoded(suffix: str) -> None:
    data = cv2.imencode(suffix, BGR)[1].tobytes()
    msg = CompressedImage(format='rgb8; jpeg compressed bgr8', data=array('B', data))
    image = topics.stamped_image(msg, 0)
    assert np.abs(image.image.astype(int) - BGR).mean() < 4
    assert (image.encoded is not None) == (suffix == '.jpg')
    assert image.encoded is None or image.encoded.data == data


def test_topic_of_a_transport() -> None:
    assert topics.image_topic('/front/image', 'raw') == '/front/image'
    assert topics.image_topic('/front/image', 'compressed') == '/front/image/compressed'
