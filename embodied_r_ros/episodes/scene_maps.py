# SPDX-License-Identifier: Apache-2.0
"""The landmark map of a recording, without ROS: as it would have grown live."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.perception.depth_range import depth_of
from embodied_r_ros.perception.pipeline import keyframes_of, perceive_keyframes
from embodied_r_ros.scene.camera_track import CameraView
from embodied_r_ros.scene.landmark_map import LandmarkMap

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.keyframes.selector import Keyframe, KeyframeConfig
    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.scene.landmark_map import MapConfig
    from embodied_r_ros.types.images import StampedImage


def map_of_recorded(path: Path, config: MapConfig | None = None) -> LandmarkMap:
    """The map by the deltas that were recorded, with the poses of their keyframes.

    Raises:
        BagError: The bag is damaged, or has no recorded deltas.
    """
    episode = read_episode(path, 'recorded')
    landmarks = LandmarkMap(config)
    for number, delta in enumerate(episode.deltas):
        pose = episode.poses[number] if episode.poses else None
        landmarks.add(delta, CameraView(pose))
    return landmarks


def map_of_images(
    images: Iterable[StampedImage],
    perceiver: Perceiver,
    keyframing: KeyframeConfig | None = None,
    config: MapConfig | None = None,
    *,
    use_poses: bool = True,
) -> LandmarkMap:
    """The map of a stream of images, perceived anew.

    Args:
        images: Of one camera, in order, with poses and depth where there are some.
        perceiver: Who perceives.
        keyframing: When an image becomes a keyframe.
        config: Of the map.
        use_poses: False: the motion comes from the images alone.
    """
    return map_of_keyframes(
        keyframes_of(images, keyframing), perceiver, config, use_poses=use_poses
    )


def map_of_keyframes(
    keyframes: Iterable[Keyframe],
    perceiver: Perceiver,
    config: MapConfig | None = None,
    *,
    use_poses: bool = True,
) -> LandmarkMap:
    """The map of the keyframes of one camera."""
    views: dict[int, CameraView] = {}

    def with_views() -> Iterator[Keyframe]:
        for keyframe in keyframes:
            pose = keyframe.pose if use_poses else None
            views[keyframe.id] = CameraView(pose, keyframe.intrinsics, depth_of(keyframe.depth))
            yield keyframe

    landmarks = LandmarkMap(config)
    for delta in perceive_keyframes(with_views(), perceiver):
        landmarks.add(delta, views.pop(delta.to_id, None))
    return landmarks
