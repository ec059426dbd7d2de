# SPDX-License-Identifier: Apache-2.0
"""Messages of a bag as core values; what no value can be is damaged."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_ros.errors import BagError, EmbodiedRError
from embodied_r_ros.recordings.bags import read_messages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from rosbags.highlevel import AnyReader

Value = TypeVar('Value')


def read_values(
    reader: AnyReader, topics: Iterable[str], convert: Callable[[Any], Value]
) -> Iterator[Value]:
    """Read the messages of some topics, converted, in the order of their receipt.

    Raises:
        BagError: A topic is not in the bag, or a message is damaged or has a value that is none
            of its kind.
    """
    for topic, stamp_ns, msg in read_messages(reader, topics):
        try:
            value = convert(msg)
        except EmbodiedRError:
            raise
        except (ArithmeticError, ValueError) as error:
            text = (
                f'bag {reader.paths[0]} has a damaged message: topic {topic}, received at '
                f'{stamp_ns}: {error}'
            )
            raise BagError(text) from None
        yield value
