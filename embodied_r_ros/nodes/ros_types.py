# SPDX-License-Identifier: Apache-2.0
"""Message classes of rclpy, made by name, so that `conversions` serves live messages too."""

from __future__ import annotations

from array import array
from functools import cache
from importlib import import_module
from typing import Any


@cache
def message_class(type_name: str) -> type[Any]:
    """Class of a type such as 'sensor_msgs/msg/Image'.

    Raises:
        ImportError: The package that defines it is not installed.
        AttributeError: The package has no such type.
    """
    package, kind, name = type_name.split('/')
    found: type[Any] = getattr(import_module(f'{package}.{kind}'), name)
    return found


class RosMessageFactory:
    """Makes messages of the rclpy family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message."""
        return message_class(type_name)(**fields)

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field."""
        # rclpy checks every element of a list of bytes, and takes an array as it is.
        if dtype == 'uint8':
            return array('B', bytes(values))
        return [float(value) if 'float' in dtype else int(value) for value in values]


ROS_MESSAGES = RosMessageFactory()
