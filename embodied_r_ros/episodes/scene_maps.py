# SPDX-License-Identifier: Apache-2.0
"""The landmark map of a recording, without ROS: as it would have grown live."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.bags.own_messages import keyframe_from_msg
from embodied_r_ros.bags.reader import open_bag, read_values, topics_of_type
from embodied_r_ros.common.errors import ImageError
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

_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'


def map_of_recorded(path: Path, config: MapConfig | None = None) -> LandmarkMap:
    """The map by the deltas that were recorded, with the poses of their keyframes.

    Raises:
        BagError: The bag is damaged, or has no recorded deltas.
    """
    episode = read_episode(path, 'recorded')
    views = _recorded_views(path)
    landmarks = LandmarkMap(config)
    for number, delta in enumerate(episode.deltas):
        view = views.get((delta.camera, delta.stamp_ns), CameraView())
        if view.pose is None and episode.poses:
            view = replace(view, pose=episode.poses[number])
        landmarks.add(delta, view)
    return landmarks


def _recorded_views(path: Path) -> dict[tuple[str, int], CameraView]:
    """Pose and lens of each keyframe of a bag, by camera and stamp."""
    with open_bag(path) as reader:
        kinds = topics_of_type(reader, _KEYFRAME)
        topics = [topic for topic in kinds if '/truth/' not in topic]
        return {at: view for at, view in read_values(reader, topics, _view_from_msg) if view}


def _view_from_msg(msg: Any) -> tuple[tuple[str, int], CameraView | None]:
    at = msg.camera, stamp_ns_from_msg(msg.header.stamp)
    try:
        keyframe = keyframe_from_msg(msg)
    except ImageError:
        return at, None
    return at, CameraView(keyframe.pose, keyframe.intrinsics)


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
