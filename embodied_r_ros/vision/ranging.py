# SPDX-License-Identifier: Apache-2.0
"""How far an object is: from where it stands on the floor, or from two views of it.

The floor gives a distance in a single image, but only of what stands on it. Where that would make
the object larger than things that are put down in rooms, it stands on something else, and its
distance stays unknown. Two views from places that a known motion lies between need no such guess.
"""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import TYPE_CHECKING

from embodied_r_ros.geometry import vector_of_direction
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.vision.coloured_objects import ColouredObject
    from numpy.typing import NDArray

_MIN_DEPRESSION_RAD = math.radians(2.0)  # a flatter ray meets the floor anywhere
_MAX_WIDTH_M = 0.65
_MAX_HEIGHT_M = 1.1
_MIN_PARALLAX_RAD = math.radians(3.0)


@dataclass(frozen=True)
class Floor:
    """A level floor, as seen from a camera above it."""

    height_m: float  # of the camera above it
    level: NDArray[np.float64]  # (3, 3): turns body axes so that z points straight up


def floor_below(pose: Pose | None, camera_height_m: float) -> Floor | None:
    """The floor that the camera is above; None: not known.

    Args:
        pose: Of the camera link, in a frame whose z axis points up from the floor; None: unknown,
            and the camera is taken to be level.
        camera_height_m: Height of the camera above the floor [m]; 0: the pose has it.
    """
    level = np.eye(3) if pose is None else pose.rotation()
    height = camera_height_m or (pose.position[2] if pose else 0.0)
    return Floor(height, level) if height > 0 else None


def distance_on_floor(item: ColouredObject, floor: Floor) -> float:
    """Distance to the middle of an object that stands on the floor [m]; NaN: it does not."""
    x, y, z = floor.level @ np.array(item.lowest)
    if item.is_cut_below or math.atan2(-z, math.hypot(x, y)) < _MIN_DEPRESSION_RAD:
        return math.nan
    to_base = floor.height_m * math.hypot(x, y) / -z
    half_width = to_base * math.tan(min(item.width_rad, 2.0) / 2)
    height = 2 * to_base * math.tan(min(item.height_rad, 2.0) / 2)
    if 2 * half_width > _MAX_WIDTH_M or height > _MAX_HEIGHT_M:
        return math.nan
    middle = floor.level @ vector_of_direction(item.bearing_rad, item.elevation_rad)
    if item.shape == 'round':
        # A ball of angular radius a, seen at a depression d, is s sin(a) + s sin(d) below us.
        return float(floor.height_m / (math.sin(item.height_rad / 2) - middle[2]))
    # The ray meets the near side of the base; the middle is half an object further.
    return float((to_base + half_width) / math.hypot(middle[0], middle[1]))


def triangulated_distance(
    earlier: NDArray[np.float64], later: NDArray[np.float64], offset: NDArray[np.float64]
) -> float:
    """Distance from the later viewpoint to where two rays meet [m]; NaN: nearly parallel.

    Args:
        earlier: Direction from the earlier viewpoint, unit length. Shape (3,).
        later: Direction from the later viewpoint in the same axes, unit length. Shape (3,).
        offset: From the earlier to the later viewpoint [m]. Shape (3,).
    """
    normal = np.cross(earlier, later)
    sine = float(np.linalg.norm(normal))
    if sine < math.sin(_MIN_PARALLAX_RAD):
        return math.nan
    distance = float(np.cross(offset, earlier) @ normal) / sine**2
    return distance if distance > 0 else math.nan
