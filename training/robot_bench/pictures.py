# SPDX-License-Identifier: Apache-2.0
"""The picture of an item: an image file, or the newest image of a bag up to a stamp."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.images import choose_image_topic, raw_image
from embodied_r_ros.bags.messages import encoded_image_from_msg, stamp_ns_from_msg
from embodied_r_ros.bags.reader import open_bag, read_values
from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.types.images import encode_image, EncodedImage, image_format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from training.robot_bench.items import Item

_MAX_SIDE_PX = 1024  # larger pictures are shrunk
_JPEG_QUALITY = 90


def pictures_of(items: Sequence[Item]) -> dict[str, EncodedImage]:
    """Pictures by id of their items; items without one are left out. Each bag is read once.

    Raises:
        InputError: A picture is missing or cannot be read; the message names the item.
    """
    found = {item.id: _from_file(item) for item in items if item.image}
    by_bag: dict[tuple[str, str], list[Item]] = defaultdict(list)
    for item in items:
        if item.bag:
            by_bag[item.bag, item.topic].append(item)
    for (bag, topic), own in by_bag.items():
        found |= _from_bag(Path(bag), topic, own)
    return found


def _from_file(item: Item) -> EncodedImage:
    try:
        data = Path(item.image).read_bytes()
    except OSError as error:
        msg = f'item {item.id!r}: image {item.image} cannot be read: {error.strerror}'
        raise InputError(msg) from None
    return _fit(EncodedImage(data, image_format(data) or ''), item)


def _from_bag(bag: Path, topic: str, items: Sequence[Item]) -> dict[str, EncodedImage]:
    """Pictures of the items of one bag."""
    newest: dict[str, tuple[int, Any]] = {}  # by id: stamp and message
    with open_bag(bag) as reader:
        name = choose_image_topic(reader, topic or None)
        for stamp_ns, msg in read_values(reader, [name], _stamped):
            for item in items:
                before = newest.get(item.id)
                if stamp_ns <= item.stamp_ns and (before is None or before[0] <= stamp_ns):
                    newest[item.id] = stamp_ns, msg
    for item in items:
        if item.id not in newest:
            text = f'item {item.id!r}: bag {bag} has no image at {item.stamp_ns} or before'
            raise InputError(text)
    return {item.id: _converted(newest[item.id][1], item) for item in items}


def _stamped(msg: Any) -> tuple[int, Any]:
    return stamp_ns_from_msg(msg.header.stamp), msg


def _converted(msg: Any, item: Item) -> EncodedImage:
    try:
        if hasattr(msg, 'format'):
            return _fit(encoded_image_from_msg(msg), item)
        return encode_image(raw_image(msg), _JPEG_QUALITY, _MAX_SIDE_PX)
    except ImageError as error:
        text = f'item {item.id!r}: its image cannot be decoded: {error}'
        raise InputError(text) from None


def _fit(image: EncodedImage, item: Item) -> EncodedImage:
    """The picture as it is, or encoded anew where it is larger than need be."""
    try:
        view = image.decode()
        large = max(view.shape[:2]) > _MAX_SIDE_PX
        return encode_image(view, _JPEG_QUALITY, _MAX_SIDE_PX) if large else image
    except ImageError as error:
        msg = f'item {item.id!r}: its image cannot be decoded: {error}'
        raise InputError(msg) from None
