# SPDX-License-Identifier: Apache-2.0
"""Message classes without ROS, and the definitions that a bag brings of its own."""

from __future__ import annotations

from functools import cache, lru_cache
import re
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.common.errors import BagError
from embodied_r_ros.common.files import interface_path
import numpy as np
from rosbags.convert.converter import migrate_bytes
from rosbags.typesys import (
    get_types_from_idl,
    get_types_from_msg,
    get_typestore,
    Stores,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from rosbags.typesys.store import Typestore


class MessageFactory(Protocol):
    """Makes message objects of one family."""

    def make(self, type_name: str, **fields: Any) -> Any:
        """Make a message of a type such as 'sensor_msgs/msg/Image'; every field must be given."""

    def array(self, dtype: str, values: Any) -> Any:
        """Make the value of a primitive array field; `dtype` is a NumPy type such as 'uint8'."""


# Boxes of detectors; of their package there is no wheel.
_VISION = {
    'Point2D': 'float64 x\nfloat64 y',
    'Pose2D': 'Point2D position\nfloat64 theta',
    'BoundingBox2D': 'Pose2D center\nfloat64 size_x\nfloat64 size_y',
    'ObjectHypothesis': 'string class_id\nfloat64 score',
    'ObjectHypothesisWithPose': (
        'ObjectHypothesis hypothesis\ngeometry_msgs/PoseWithCovariance pose'
    ),
    'Detection2D': (
        'std_msgs/Header header\nObjectHypothesisWithPose[] results\nBoundingBox2D bbox\nstring id'
    ),
    'Detection2DArray': 'std_msgs/Header header\nDetection2D[] detections',
}


@cache
def embodied_typestore() -> Typestore:
    """ROS 2 Jazzy's message types with those of embodied_r_msgs and boxes of vision_msgs.

    Raises:
        ConfigError: embodied_r_msgs is neither in the clone nor installed.
    """
    store = get_typestore(Stores.ROS2_JAZZY)
    types: dict[str, Any] = {}
    for path in sorted(interface_path('msg').glob('*.msg')):
        types.update(get_types_from_msg(path.read_text(), f'embodied_r_msgs/msg/{path.stem}'))
    for name, text in _VISION.items():
        types.update(get_types_from_msg(text, f'vision_msgs/msg/{name}'))
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


# A line with a field or a constant; of IDL, what ends with a semicolon.
_DEFINITION_LINE = re.compile(r'^[ \t]*[^\s#]|;', re.MULTILINE)
# The largest of ROS have hundreds, and the time to parse one grows with its square.
_MOST_LINES = 3000


@lru_cache(maxsize=512)
def definition_store(type_name: str, text: str, kind: str) -> Typestore:
    """Types with which messages of a topic are read: as its bag defines them, where it does.

    What a definition lacks is filled in from the standard ones, type by type. A definition that is
    missing, or cannot be read, gives way to the standard one of that type.

    Args:
        type_name: Of the topic, such as 'sensor_msgs/msg/Image'.
        text: Its definition, with those that it needs.
        kind: Format of the text: 'ros2msg', 'ros2idl' or 'ros1msg'.

    Raises:
        BagError: The bag does not define the type, or without end, and it is none of the standard
            ones.
    """
    own = get_typestore(Stores.ROS1_NOETIC) if kind == 'ros1msg' else embodied_typestore()
    lines = len(_DEFINITION_LINE.findall(text))
    try:
        types = _parse_definition(type_name, text, kind) if lines <= _MOST_LINES else {}
    except Exception:  # whatever an unusual definition makes of the parser
        types = {}
    needed, absent = _closure(type_name, types, own.fielddefs)
    store = get_typestore(Stores.EMPTY)
    try:
        store.register(needed)
    except Exception:  # of names that are no fields, or twice one
        absent = type_name
    if not absent:
        return store
    if type_name in own.fielddefs:
        return own
    what = 'has no definition that can be read' if absent == type_name else f'needs {absent}'
    if lines > _MOST_LINES:
        what = f'has a definition of {lines} lines, more than {_MOST_LINES}'
    msg = f'type {type_name} {what}, and this is no standard type of ROS 2 Jazzy'
    raise BagError(msg)


def _parse_definition(type_name: str, text: str, kind: str) -> dict[str, Any]:
    if kind != 'ros2idl':
        return dict(get_types_from_msg(text, type_name)) if text.strip() else {}
    separator = '=' * 80 + '\n'
    parts = text.split(separator) if text.startswith(separator) else [text]
    types: dict[str, Any] = {}
    for part in filter(str.strip, parts):
        head, _, rest = part.partition('\n')
        types.update(get_types_from_idl(rest if head.startswith('IDL: ') else part))
    return types


def _closure(
    type_name: str, types: Mapping[str, Any], standard: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    """What a type needs, from its bag or the standard, and the first name that neither has."""
    needed: dict[str, Any] = {}
    waiting = [type_name]
    while waiting:
        name = waiting.pop()
        if name in needed:
            continue
        if name not in types and (name == type_name or name not in standard):
            return {}, name
        needed[name] = types.get(name) or standard[name]
        waiting += [
            inner for field in needed[name][1] for inner in _names(field[1]) if '/' in inner
        ]
    return needed, ''


@lru_cache(maxsize=512)
def ros1_converter(type_name: str, text: str) -> Callable[[bytes], bytes]:
    """Make what turns ROS 1 messages of a type into CDR of the ROS 2 type of that name.

    Fields are matched by name, as `rosbags-convert` does: a header loses its sequence number.

    Raises:
        BagError: The definition cannot be read.
    """
    source, target = definition_store(type_name, text, 'ros1msg'), embodied_typestore()
    if type_name not in target.fielddefs:
        header = 'std_msgs/msg/Header'
        own = {header: target.fielddefs[header]} if header in source.fielddefs else {}
        target = get_typestore(Stores.EMPTY)
        target.register({**source.fielddefs, **own})
    cache: dict[str, object] = {}

    def convert(data: bytes) -> bytes:
        return bytes(
            migrate_bytes(
                source, target, type_name, type_name, cache, data, src_is2=False, dst_is2=True
            )
        )

    return convert


# Fields that recordings of before lack; what reads these messages has a value for them.
_ADDED = {
    'embodied_r_msgs/msg/Keyframe': {'motion', 'depth', 'fixed_mask', 'way_m'},
    'embodied_r_msgs/msg/Answer': {
        *('map_revision', 'landmark_ids', 'landmark_age', 'wait', 'generation'),
        *('sentence', 'unit', 'check', 'check_reason', 'calls', 'rejected', 'has_goal'),
        *('choices', 'turns'),
    },
    'embodied_r_msgs/msg/ToolCall': {'turn', 'request_id', 'request', 'reply'},
    'embodied_r_msgs/msg/SemanticDelta': {'has_pose', 'pose', 'pose_frame_id'},
    'embodied_r_msgs/msg/Motion': {'scale', 'way_m'},
    'embodied_r_msgs/msg/Landmark': {'visit', 'change', 'pinned'},
    'embodied_r_msgs/msg/Item': {'box', 'scale'},
}


def _is_as_here(name: str, own: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether a type has the fields that it has here, but for those added since."""
    others = other[name][1]
    missing = _ADDED.get(name, set()) - {field[0] for field in others}
    return bool([field for field in own[name][1] if field[0] not in missing] == list(others))


def check_definition(bag: Path, topic: str, type_name: str, store: Typestore) -> None:
    """Refuse a topic whose type has other fields in the bag than its name says.

    Types that are not known here may be as they like.

    Args:
        bag: The bag, for the message.
        topic: The topic.
        type_name: Its type.
        store: The types as the bag defines them.

    Raises:
        BagError: A field, at any depth, is missing, added, or of another kind, but for fields that
            an earlier version did not have.
    """
    own_fields, bag_fields = embodied_typestore().fielddefs, store.fielddefs
    waiting, visited = [type_name], set()
    while waiting:
        name = waiting.pop()
        if name in visited or name not in own_fields:
            continue
        visited.add(name)
        if name not in bag_fields or not _is_as_here(name, own_fields, bag_fields):
            msg = (
                f'topic {topic} of bag {bag} has messages {type_name} in which {name} '
                'is not as this version defines it: it was recorded with another version, or is '
                'no recording'
            )
            raise BagError(msg)
        waiting += [inner for field in bag_fields[name][1] for inner in _names(field)]


def _names(field: Any) -> Iterator[str]:
    """Names of types in a field's definition, at any depth."""
    if isinstance(field, str):
        yield field
    elif isinstance(field, (tuple, list)):
        for part in field:
            yield from _names(part)
