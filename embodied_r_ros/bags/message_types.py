# SPDX-License-Identifier: Apache-2.0
"""Message classes without ROS, and the definitions that a bag brings of its own."""

from __future__ import annotations

from functools import cache
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.resources import interface_path
import numpy as np
from rosbags.typesys import get_types_from_msg, get_typestore, Stores

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rosbags.highlevel import AnyReader
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


def check_definition(reader: AnyReader, topic: str, type_name: str) -> None:
    """Refuse a topic whose type has other fields in the bag than its name says.

    Types that are not known here may be as they like.

    Raises:
        BagError: A field, at any depth, is missing, added, or of another kind.
    """
    own_fields, bag_fields = embodied_typestore().fielddefs, reader.typestore.fielddefs
    waiting, visited = [type_name], set()
    while waiting:
        name = waiting.pop()
        if name in visited or name not in own_fields:
            continue
        visited.add(name)
        if name not in bag_fields or own_fields[name][1] != bag_fields[name][1]:
            msg = (
                f'topic {topic} of bag {reader.paths[0]} has messages {type_name} in which {name} '
                'is not as this version defines it: it was recorded with another version, or is '
                'no recording'
            )
            raise BagError(msg)
        waiting += [inner for field in own_fields[name][1] for inner in _names(field)]


def _names(field: Any) -> Iterator[str]:
    """Names of types in a field's definition, at any depth."""
    if isinstance(field, str):
        yield field
    elif isinstance(field, (tuple, list)):
        for part in field:
            yield from _names(part)
