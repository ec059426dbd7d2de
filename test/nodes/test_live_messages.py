# SPDX-License-Identifier: Apache-2.0
"""Core values survive the way into a live message, over the wire, and back."""

from __future__ import annotations

from embodied_r_ros.bags import messages
from embodied_r_ros.core.types.geometry import Intrinsics
from embodied_r_ros.nodes.topics import message_class, ROS_MESSAGES
import pytest
from rclpy.serialization import deserialize_message, serialize_message

from test.bags.test_messages import CONVERSIONS, ROUND_TRIPS, TYPES


@pytest.mark.parametrize('name', ROUND_TRIPS)
def test_value_survives_a_live_message(name: str) -> None:
    value = ROUND_TRIPS[name]
    msg = CONVERSIONS[f'{name}_to_msg'](ROS_MESSAGES, value)
    wire = serialize_message(msg)
    received = deserialize_message(wire, message_class(f'embodied_r_msgs/msg/{TYPES[name]}'))
    assert CONVERSIONS[f'{name}_from_msg'](received) == value


def test_camera_info_survives_a_live_message() -> None:
    camera = Intrinsics(64, 48, 60.0, 61.0, 31.5, 23.5, (0.5, 0.25, 0.0, 0.0, 0.0))
    msg = messages.camera_info_to_msg(ROS_MESSAGES, 5, 'front', camera)
    received = deserialize_message(serialize_message(msg), type(msg))
    assert messages.intrinsics_from_camera_info(received) == camera


def test_type_of_a_package_that_is_not_there_is_an_import_error() -> None:
    with pytest.raises(ImportError, match='no_such_msgs'):
        message_class('no_such_msgs/msg/Image')
