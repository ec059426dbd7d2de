# SPDX-License-Identifier: Apache-2.0
"""Message classes without ROS: the interfaces of ROS 2 and of embodied_r_msgs, for bags.

`MessageFactory` is the seam between `conversions` and the two families of message classes: those
of `rosbags` here, and those of rclpy in `nodes/ros_types.py`.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.resources import interface_path
import numpy as np
from rosbags.typesys import get_types_from_msg, get_typestore, Stores

if TYPE_CHECKING:
    from rosbags.typesys.store import Typestore


class MessageFactory(Protocol):
    """Makes message objects of one family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message of a type such as 'sensor_msgs/msg/Image'; every field must be given."""

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field; `dtype` is a NumPy type such as 'uint8'."""


@cache
def embodied_typestore() -> Typestore:
    """ROS 2 Jazzy's message types together with those of embodied_r_msgs.

    Raises:
        ConfigError: embodied_r_msgs is neither in the clone nor installed.
    """
    store = get_typestore(Stores.ROS2_JAZZY)
    types: dict[str, Any] = {}
    for path in sorted(interface_path('msg').glob('*.msg')):
        types.update(get_types_from_msg(path.read_text(), f'embodied_r_msgs/msg/{path.stem}'))
    store.register(types)
    return store


class BagMessageFactory:
    """Makes messages of the `rosbags` family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message; every field must be given."""
        return embodied_typestore().types[type_name](**fields)

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field."""
        if isinstance(values, (bytes, bytearray, memoryview)):
            return np.frombuffer(values, np.uint8)
        return np.asarray(values, np.dtype(dtype))
