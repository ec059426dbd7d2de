# SPDX-License-Identifier: Apache-2.0
"""The landmark map of a recording, without ROS: as it would have grown live."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import stamp_ns_from_msg
from embodied_r_ros.bags.own_messages import keyframe_from_msg
from embodied_r_ros.bags.reader import open_bag, read_values, topics_of_type
from embodied_r_ros.bags.sources import DepthSource, open_source
from embodied_r_ros.common.errors import ImageError
from embodied_r_ros.episodes.episode import read_episode
from embodied_r_ros.episodes.fleet import StageReport
from embodied_r_ros.episodes.offline import has_recorded_deltas
from embodied_r_ros.keyframes.selector import KeyframeConfig
from embodied_r_ros.perception.depth_range import depth_of
from embodied_r_ros.perception.pipeline import keyframes_of, perceive_keyframes
from embodied_r_ros.scene.camera_track import CameraView
from embodied_r_ros.scene.landmark_map import LandmarkMap
from embodied_r_ros.scene.map_files import write_scene_map

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from embodied_r_ros.episodes.manifest import FleetRecording
    from embodied_r_ros.episodes.offline import Progress
    from embodied_r_ros.keyframes.selector import Keyframe
    from embodied_r_ros.perception.perceiver import Perceiver
    from embodied_r_ros.scene.landmark_map import MapConfig
    from embodied_r_ros.types.images import StampedImage

_KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
_ID_DIGITS = 8  # in the name of a map of a fleet


@dataclass(frozen=True)
class MapRecipe:
    """How recordings become maps."""

    make_perceiver: Callable[[], Perceiver]
    is_recorded: bool | None = None  # by the deltas in the bag; None: where it has some
    topic: str | None = None
    rate_hz: float | None = None
    depth: DepthSource = field(default_factory=DepthSource)
    keyframing: KeyframeConfig = field(default_factory=KeyframeConfig)
    use_poses: bool = True

    def map_of(self, path: Path, progress: Progress = lambda images, _: images) -> LandmarkMap:
        """The map of a recording.

        Raises:
            SourceError: It cannot be read as a stream of images.
            BagError: The bag is damaged, or has no recorded deltas.
            InputError: There is no perceiver.
        """
        is_recorded = self.is_recorded
        if has_recorded_deltas(path) if is_recorded is None else is_recorded:
            return map_of_recorded(path)
        perceiver = self.make_perceiver()
        with open_source(path, self.topic, self.rate_hz, self.depth) as source:
            images = progress(source, source.length)
            return map_of_images(images, perceiver, self.keyframing, use_poses=self.use_poses)


@dataclass(frozen=True)
class MapStage:
    """Maps a recording of a fleet into a file of a folder."""

    out: Path
    recipe: MapRecipe

    def __call__(self, path: Path, recording: FleetRecording) -> StageReport:
        """Map it (see `FleetStage`); a map without landmarks is one."""
        landmarks = self.recipe.map_of(path)
        stem = path.name if path.is_dir() else path.stem
        file = self.out / f'{stem}-{recording.id[:_ID_DIGITS]}.json'
        write_scene_map(file, landmarks.scene_map())
        return StageReport(file.name, landmarks.counts['deltas'])


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
