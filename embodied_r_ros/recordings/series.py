# SPDX-License-Identifier: Apache-2.0
"""Numbers of a topic over time, and the newest of them at other stamps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import BagError
from embodied_r_ros.recordings.bags import topics_of_type
from embodied_r_ros.recordings.values import read_values
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray
    from rosbags.highlevel import AnyReader

# What is older was not known any more when an image was taken.
MAX_AGE_NS = 200_000_000


@dataclass(frozen=True)
class Series:
    """Numbers over time."""

    stamps_ns: NDArray[np.int64]  # (M,), rising
    values: NDArray[np.float64]  # (M, K)

    def at(self, stamps_ns: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The newest values (N, K) not later than each stamp, and which of them are fresh (N,)."""
        taken = np.searchsorted(self.stamps_ns, stamps_ns, side='right') - 1
        is_fresh = (taken >= 0) & (stamps_ns - self.stamps_ns[taken] <= MAX_AGE_NS)
        return self.values[taken], is_fresh


def read_series(
    reader: AnyReader, topic: str, convert: Callable[[Any], tuple[int, Sequence[float]] | None]
) -> Series:
    """Read a topic whose messages become a stamp [ns] and as many numbers each.

    Stamps that do not rise are left out, and messages that become None; where all do, it is
    empty.

    Raises:
        BagError: There is no such topic, it has no messages, or one is damaged.
    """
    stamps: list[int] = []
    values: list[Sequence[float]] = []
    passed_over = 0
    for read in read_values(reader, [topic], convert):
        if read is None:
            passed_over += 1
            continue
        stamp_ns, numbers = read
        if not stamps or stamp_ns > stamps[-1]:
            stamps.append(stamp_ns)
            values.append(numbers)
    if not stamps and not passed_over:
        msg = f'topic {topic} of bag {reader.paths[0]} has no messages: expected some'
        raise BagError(msg)
    return Series(np.array(stamps, np.int64), np.array(values, np.float64))


def only_topic(reader: AnyReader, type_name: str, chosen: str, setting: str) -> str | None:
    """The topic that was chosen, else the only one of a type; None: there is none.

    Raises:
        BagError: There are several, or the chosen one is not in the bag.
    """
    topics = topics_of_type(reader, type_name)
    if chosen:
        named = next((name for name in topics if name.lstrip('/') == chosen.lstrip('/')), None)
        if named is None:
            msg = (
                f'{reader.paths[0]} has no topic {chosen!r} of {type_name}: it has '
                f'{", ".join(topics) or "none"} (setting {setting})'
            )
            raise BagError(msg)
        return named
    if len(topics) > 1:
        msg = (
            f'{reader.paths[0]} has {len(topics)} topics of {type_name} ({", ".join(topics)}): '
            f'name one as {setting} in the file of --setup'
        )
        raise BagError(msg)
    return topics[0] if topics else None
