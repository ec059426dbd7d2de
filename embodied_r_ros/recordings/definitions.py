# SPDX-License-Identifier: Apache-2.0
"""A bag brings the definitions of its messages; those of messages read here must be known."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.message_types import embodied_typestore

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rosbags.highlevel import AnyReader


def check_definition(reader: AnyReader, topic: str, type_name: str) -> None:
    """Refuse a topic whose type has other fields in the bag than its name says.

    Types that are not known here may be as they like.

    Raises:
        BagError: A field, at any depth, is missing, added, or of another kind.
    """
    known, found = embodied_typestore().fielddefs, reader.typestore.fielddefs
    waiting, seen = [type_name], set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in known:
            continue
        seen.add(name)
        if name not in found or known[name][1] != found[name][1]:
            msg = (
                f'topic {topic} of bag {reader.paths[0]} has messages {type_name} in which {name} '
                'is not as this version defines it: it was recorded with another version, or is '
                'no recording'
            )
            raise BagError(msg)
        waiting += [inner for field in known[name][1] for inner in _names(field)]


def _names(field: Any) -> Iterator[str]:
    """Names of types in a field's definition, at any depth."""
    if isinstance(field, str):
        yield field
    elif isinstance(field, (tuple, list)):
        for part in field:
            yield from _names(part)
