# SPDX-License-Identifier: Apache-2.0
"""A keyframe: an image that was chosen to be looked at, and why."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embodied_r_ros.core.types.deltas import Motion
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.images import EncodedImage, PackedDepth, PackedMask


class KeyframeReason(Enum):
    """Why an image became a keyframe."""

    FIRST = 0  # first usable image of the stream
    LOW_OVERLAP = 1  # shares less than the threshold with the previous keyframe
    NEW_VIEW = 2  # no consistent geometry with the previous keyframe
    ROLL = 3  # the view rolled about its axis
    CONTENT_CHANGE = 4  # something happened before a still camera
    FEATURELESS = 5  # blank or dark: one keyframe for the run of them
    MAX_INTERVAL = 6  # the longest allowed time passed
    LAST_IMAGE = 7  # where a recording that is asked about ends

    @property
    def label(self) -> str:
        """The name in text, such as 'low_overlap'."""
        return self.name.lower()


@dataclass(frozen=True)
class Keyframe:
    """An image that was chosen to be looked at."""

    id: int  # counts up from 0
    stamp_ns: int  # of the source image's header
    image: EncodedImage
    reason: KeyframeReason
    reference_id: int  # keyframe it was compared with; equal to id: the first
    overlap: float | None = None  # 0..1; None: an image has no features
    inliers: int = 0
    camera: str = 'camera'
    frame_id: str = 'camera_optical_frame'
    intrinsics: Intrinsics | None = None  # of `image` as it is here
    pose: Pose | None = None  # of the camera link at the stamp
    way_m: float | None = None  # since the previous keyframe, by the poses of all images between
    motion: Motion | None = None  # since the previous keyframe, followed image by image
    depth: PackedDepth | None = None  # of the same view as `image`
    fixed_mask: PackedMask | None = None  # what is fixed to the camera; None: nothing is known
    episode_id: str = ''
    dropped_images: int = 0  # images not evaluated since the previous keyframe
