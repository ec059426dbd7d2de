# SPDX-License-Identifier: Apache-2.0
"""What kinds of things a recording has, by its topics alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.bags.messages import IMAGE_TYPES
from embodied_r_ros.bags.reader import bag_holds, topics_of_type

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader

GROUND_TRUTH_DELTAS = '/truth/semantic_delta'
_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_DELTA = 'embodied_r_msgs/msg/SemanticDelta'


def keyframe_topics(reader: BagReader) -> list[str]:
    """Topics of keyframes that a robot chose; else of those of its simulation."""
    topics = topics_of_type(reader, _KEYFRAME)
    return [topic for topic in topics if '/truth/' not in topic] or topics


def delta_topics(reader: BagReader) -> tuple[list[str], list[str]]:
    """Topics of recorded and of ground-truth deltas."""
    topics = topics_of_type(reader, _DELTA)
    true = [topic for topic in topics if topic.endswith(GROUND_TRUTH_DELTAS)]
    return [topic for topic in topics if topic not in true], true


def has_deltas(reader: BagReader) -> bool:
    """Tell whether a bag has deltas that were recorded live."""
    return bool(delta_topics(reader)[0])


def recorded_alone(path: Path) -> bool:
    """Tell whether a recording has deltas, and no images from which they could be made anew.

    Raises:
        BagError: The bag is damaged.
    """
    return bag_holds(path, lambda reader: has_deltas(reader) and not _has_images(reader))


def has_keyframes_alone(path: Path) -> bool:
    """Tell whether a recording has the keyframes of a robot, and no images beside them.

    Raises:
        BagError: The bag is damaged.
    """
    return bag_holds(path, lambda reader: keyframe_topics(reader) and not _has_images(reader))


def has_recorded_deltas(path: Path) -> bool:
    """Tell whether a recording has deltas that were perceived when it was made.

    Raises:
        BagError: The bag is damaged.
    """
    return bag_holds(path, has_deltas)


def _has_images(reader: BagReader) -> bool:
    return bool(topics_of_type(reader, *IMAGE_TYPES))
