# SPDX-License-Identifier: Apache-2.0
"""The newest keyframe of a camera, for models that are shown images."""

from __future__ import annotations

from typing import Any

from embodied_r_ros.bags.messages import encoded_image_from_msg, stamp_ns_from_msg
from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.core.reasoning.prompts import shown_image
from embodied_r_ros.core.reasoning.question import ShownImage


class NoImageError(InputError):
    """There is no image that could be shown."""


class NewestImage:
    """Remembers the newest keyframe message."""

    def __init__(self) -> None:
        """Begin without one."""
        self._keyframe: Any = None

    def take(self, msg: Any) -> None:
        """Remember a Keyframe."""
        self._keyframe = msg

    def forget(self, before_ns: int) -> None:
        """Forget it where it was taken before then."""
        if self.stamp_ns() < before_ns:
            self._keyframe = None

    def stamp_ns(self) -> int:
        """Its stamp; 0: there is none."""
        return stamp_ns_from_msg(self._keyframe.header.stamp) if self._keyframe else 0

    def shown(self) -> ShownImage:
        """Its image, as prompts show it.

        Raises:
            NoImageError: There is none, or it cannot be decoded.
        """
        if self._keyframe is None:
            msg = (
                'no image came yet that the model is to be shown (reasoner.show_image): check the '
                'camera and the keyframe_extractor, which publishes it on `keyframe`'
            )
            raise NoImageError(msg)
        header = self._keyframe.header
        try:
            image = shown_image(encoded_image_from_msg(self._keyframe.image))
        except ImageError as error:
            msg = f'the newest keyframe cannot be shown to the model: {error}'
            raise NoImageError(msg) from None
        return ShownImage(image, stamp_ns_from_msg(header.stamp), header.frame_id)
