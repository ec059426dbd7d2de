# SPDX-License-Identifier: Apache-2.0
"""Settings of simulated episodes."""

from __future__ import annotations

from dataclasses import dataclass
import math

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.geometry import Intrinsics

HORIZONTAL_FOV_RAD = math.radians(90)
ARM_FOV_RAD = math.radians(50)


@dataclass(frozen=True)
class IndoorConfig:
    """What indoor episodes are like. The world, path and truth depend on it and on the seed."""

    rate_hz: float = setting(10.0, 'Images per second [Hz]', between=(1, 60))
    duration_s: float = setting(20.0, 'Length of an episode [s]', between=(5, 3600))
    width_px: int = setting(320, 'Width of the images [px]', between=(64, 1920))
    height_px: int = setting(240, 'Height of the images [px]', between=(48, 1440))
    images: bool = setting(True, 'Render images; without them the truth is the same')
    kinds: str = setting(
        'all',
        "Kinds of things: all, 'common' without the held-out ones, 'rare' with many of them",
        choices=('all', 'common', 'rare'),
    )
    signs: tuple[str, ...] = setting(
        (), 'Texts of signs on the walls, in letters and as QR codes; nothing else changes'
    )
    returns: float = setting(
        0.0, 'Share of the episodes whose path leads back to its start', between=(0, 1)
    )
    jpeg_quality: int = setting(90, 'JPEG quality', between=(1, 100))

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)

    def camera(self) -> Intrinsics:
        """The pinhole camera: 90 degrees wide, square pixels, no distortion."""
        return Intrinsics.from_fov(self.width_px, self.height_px, HORIZONTAL_FOV_RAD)


@dataclass(frozen=True)
class ArmConfig:
    """What demonstrations of the arm are like. Motion and truth depend on it and on the seed."""

    task: str = setting(
        'pick', 'What is shown', choices=('pick', 'place', 'stack', 'push', 'drawer')
    )
    rate_hz: float = setting(20.0, 'Recorded states and images per second [Hz]', between=(5, 100))
    width_px: int = setting(320, 'Width of the images [px]', between=(64, 1920))
    height_px: int = setting(240, 'Height of the images [px]', between=(48, 1440))
    images: bool = setting(True, 'Render images; without them the motion is the same')
    noise: float = setting(
        1.0, 'Times the usual noise of encoders; 0: what is measured is exact', between=(0, 20)
    )
    jpeg_quality: int = setting(90, 'JPEG quality', between=(1, 100))

    def __post_init__(self) -> None:
        """Refuse values that are not allowed."""
        check_settings(self)

    def camera(self) -> Intrinsics:
        """The pinhole camera: 50 degrees wide, square pixels, no distortion."""
        return Intrinsics.from_fov(self.width_px, self.height_px, ARM_FOV_RAD)
