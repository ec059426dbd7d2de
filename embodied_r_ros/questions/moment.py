# SPDX-License-Identifier: Apache-2.0
"""A moment of an episode: what had been seen until then, and what was true then.

What was seen is what the deltas speak of, so truth is looked up at the stamps of the deltas: an
object that was in view only between two keyframes counts neither as seen nor as unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
import math
from typing import TYPE_CHECKING

from embodied_r_ros.geometry import wrapped, yaw_pitch_roll

if TYPE_CHECKING:
    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.geometry import Pose
    from embodied_r_ros.recordings.layout import ImageTruth, Layout, LayoutObject

# An object that moved less than this still is where it was seen [m].
_SAME_PLACE_M = 0.3


@dataclass(frozen=True)
class Moment:
    """An episode up to one of its deltas. The newest delta is now."""

    deltas: tuple[SemanticDelta, ...]
    poses: tuple[Pose, ...] = ()  # of the camera link at each delta; empty: not known
    layout: Layout | None = None  # None: not simulated
    no_poses: str = 'no odometry, no transforms and no true layout'  # why there are no poses
    pose_source: str = 'odometry'  # where the poses come from, without a layout

    @property
    def now_ns(self) -> int:
        """Stamp of the newest delta."""
        return self.deltas[-1].stamp_ns

    @cached_property
    def displacement(self) -> tuple[float, float, float]:
        """Way from the first pose to the newest, in the first view's level axes [m]."""
        first, last = self.poses[0], self.poses[-1]
        yaw = yaw_pitch_roll(first.rotation())[0]
        dx, dy, dz = (b - a for a, b in zip(first.position, last.position, strict=True))
        cos, sin = math.cos(yaw), math.sin(yaw)
        return cos * dx + sin * dy, -sin * dx + cos * dy, dz

    @cached_property
    def farthest_m(self) -> float:
        """Greatest level distance from the first pose up to now [m]."""
        x, y, _ = self.poses[0].position
        return max(math.hypot(p.position[0] - x, p.position[1] - y) for p in self.poses)

    @cached_property
    def turn_rad(self) -> float:
        """Turn of the level heading from first to newest pose, in (-pi, pi] [rad]."""
        first, last = (yaw_pitch_roll(self.poses[i].rotation())[0] for i in (0, -1))
        return wrapped(last - first)

    @cached_property
    def images(self) -> tuple[ImageTruth, ...]:
        """Truth at the stamp of each delta; empty without a layout."""
        if self.layout is None:
            return ()
        return tuple(self.layout.image_at(delta.stamp_ns) for delta in self.deltas)

    @cached_property
    def sights(self) -> dict[int, tuple[int, ...]]:
        """For each object that was seen: positions of the deltas at which it could be."""
        found: dict[int, list[int]] = {}
        for index, image in enumerate(self.images):
            for view in image.views:
                if view.visible:
                    found.setdefault(view.object_id, []).append(index)
        return {key: tuple(value) for key, value in found.items()}

    @cached_property
    def never_seen(self) -> tuple[LayoutObject, ...]:
        """Objects that no image up to now shows, not even between keyframes."""
        if self.layout is None:
            return ()
        return tuple(
            thing
            for thing in self.layout.objects
            if not thing.first_seen_ns or thing.first_seen_ns > self.now_ns
        )

    def has_own_label(self, thing: LayoutObject) -> bool:
        """Tell whether no other object of the episode has the same label."""
        others = self.layout.objects if self.layout else ()
        return sum(other.label == thing.label for other in others) == 1

    def seen_once_labelled(self) -> list[LayoutObject]:
        """Objects that were seen and whose label is their own."""
        objects = self.layout.objects if self.layout else ()
        return [
            thing for thing in objects if thing.id in self.sights and self.has_own_label(thing)
        ]

    def direction_now(self, thing: LayoutObject) -> tuple[float, float] | None:
        """Bearing [rad] and distance [m] of a seen object now; None where it may have gone.

        An object that went or moved while nobody looked cannot be told from what was seen.
        """
        last = self.sights[thing.id][-1]
        then, now = (thing.position_at(self.images[i].stamp_ns) for i in (last, -1))
        if then is None or now is None or math.dist(then, now) > _SAME_PLACE_M:
            return None
        bearing, _, distance = self.images[-1].direction_to(now)
        return bearing, distance
