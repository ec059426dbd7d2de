# SPDX-License-Identifier: Apache-2.0
"""The scene map of a running robot: fed with deltas, published, saved, and asked."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, replace
import math
from pathlib import Path
import queue
import threading
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import LandmarkArray
from embodied_r_msgs.srv import Recall
from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.bags.own_messages import landmark_to_msg, scene_map_to_msg
from embodied_r_ros.bags.vision_messages import (
    DETECTIONS_3D,
    landmark_markers_to_msg,
    landmarks_to_msg,
    MARKERS,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.settings import check_settings, setting
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.ros_types import message_class, ROS_MESSAGES
from embodied_r_ros.scene.camera_track import CameraView
from embodied_r_ros.scene.landmark_map import LandmarkMap, MapConfig
from embodied_r_ros.scene.map_files import load_map, save_map
from embodied_r_ros.types.landmarks import SceneMap
from embodied_r_ros.types.things import plural
from embodied_r_ros.types.units import NS_PER_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.nodes.node_base import ManagedNode
    from embodied_r_ros.types.deltas import SemanticDelta
    from embodied_r_ros.types.landmarks import Landmark


_MOST_WAITING = 100  # deltas; in a large place one may take a quarter of a second
_CLOSING_S = 5.0
_OUTPUTS = {DETECTIONS_3D: 'landmarks/detections', MARKERS: 'landmarks/markers'}


@dataclass(frozen=True)
class SceneMapperConfig:
    """Where the scene map is kept."""

    map_dir: str = setting(
        '',
        'folder in which the scene map is kept, and found again after a restart; empty: it is '
        'kept in memory alone',
        read_only=True,
    )
    map_save_s: float = setting(
        30.0, 'the map is written there at most this often [s]', between=(1, 86400)
    )

    def __post_init__(self) -> None:
        check_settings(self)


class SceneMapper:
    """Feeds the map of a node, and tells of it. Thread-safe."""

    def __init__(self, node: ManagedNode, config: SceneMapperConfig, limits: MapConfig) -> None:
        """Load the map, if there is one, and offer what it knows while the node is configured.

        Raises:
            InputError: The folder holds a map that cannot be gone on with.
        """
        self._node, self._config, self._limits = node, config, limits
        self._folder = Path(config.map_dir).expanduser() if config.map_dir else None
        self._map = load_map(self._folder, limits) if self._folder else LandmarkMap(limits)
        self._scene_map = SceneMap()
        self._stamp_ns = self._saved_ns = 0
        self.dropped = 0  # deltas that found the line full
        self._waiting: queue.Queue[SemanticDelta | None] = queue.Queue(_MOST_WAITING)
        self._shown: set[int] = set()  # ids of landmarks with a marker
        self._lock = threading.Lock()
        self._publisher = node.publisher(LandmarkArray, 'landmarks', topics.LATCHED)
        self._outputs: dict[str, Any] = {}
        for kind, topic in _OUTPUTS.items():
            try:
                message = message_class(kind)
            except (ImportError, AttributeError):
                continue
            self._outputs[kind] = node.publisher(message, topic, topics.LATCHED)
        node.serve(Recall, 'recall', self._recall)
        if len(self._map):
            with self._lock:
                self._renew()
        self._worker = threading.Thread(target=self._work, name='scene map', daemon=True)
        self._worker.start()
        node.while_configured.callback(self._close)

    def __len__(self) -> int:
        return len(self._scene_map.landmarks)

    def scene_map(self) -> SceneMap:
        """The map as it was published last."""
        with self._lock:
            return self._scene_map

    def add(self, delta: SemanticDelta) -> None:
        """Take in what was perceived, at the pose of its camera where that is known, soon."""
        try:
            self._waiting.put_nowait(delta)
        except queue.Full:
            self.dropped += 1

    def _work(self) -> None:
        while (delta := self._waiting.get()) is not None:
            try:
                self._take(delta)
            except Exception as error:  # whatever a delta holds, the next one is taken in
                self._node.log_problem(error)

    def _take(self, delta: SemanticDelta) -> None:
        with self._lock:
            self._map.add(delta, CameraView(delta.pose))
            self._stamp_ns = max(self._stamp_ns, delta.stamp_ns)
            self._renew()
        since_s = abs(delta.stamp_ns - self._saved_ns) / NS_PER_S
        if self._folder is not None and since_s >= self._config.map_save_s:
            self._saved_ns = delta.stamp_ns
            self.save()

    def _close(self) -> None:
        """Take in what waits, and end."""
        with suppress(queue.Full):
            self._waiting.put(None, timeout=_CLOSING_S)
            self._worker.join(_CLOSING_S)
        self.save()

    def publish(self) -> None:
        """Tell of the map as it is, to those who come later as well."""
        with self._lock:
            self._publish()

    def forget(self) -> None:
        """Begin an empty map, also on the disk. What waits is forgotten too."""
        with suppress(queue.Empty):
            while True:
                self._waiting.get_nowait()
        with self._lock:
            self._map = LandmarkMap(self._limits)
            self._renew()
        self.save()

    def save(self) -> None:
        """Write the map into its folder; what goes wrong is a problem of the node."""
        if self._folder is None:
            return
        try:
            with self._lock:
                save_map(self._folder, self._map)
        except InputError as error:
            self._node.log_problem(error)

    def _renew(self) -> None:
        """Make a new revision and publish it."""
        # As rows and MAP.json have it, so that a bag gives the very prompts.
        rounded = SceneMap.from_json(self._map.scene_map().to_json())
        self._scene_map = replace(rounded, revision=self._scene_map.revision + 1)
        self._publish()

    def _publish(self) -> None:
        scene_map, stamp_ns = self._scene_map, self._stamp_ns
        self._publisher.publish(scene_map_to_msg(ROS_MESSAGES, scene_map, stamp_ns))
        if DETECTIONS_3D in self._outputs:
            msg = landmarks_to_msg(ROS_MESSAGES, scene_map, stamp_ns)
            self._outputs[DETECTIONS_3D].publish(msg)
        if MARKERS in self._outputs:
            ids = {landmark.id for landmark in scene_map.landmarks}
            msg = landmark_markers_to_msg(ROS_MESSAGES, scene_map, stamp_ns, self._shown - ids)
            self._outputs[MARKERS].publish(msg)
            self._shown = ids

    def _recall(self, request: Recall.Request, response: Recall.Response) -> Recall.Response:
        scene_map = self.scene_map()
        chosen = find_landmarks(
            scene_map.landmarks,
            request.label,
            vector_from_msg(request.near) if request.has_near else None,
            request.radius,
            stamp_ns_from_msg(request.after),
        )
        response.frame_id = scene_map.frame_id
        response.landmarks = [
            landmark_to_msg(ROS_MESSAGES, landmark)
            for landmark in chosen[: request.limit or len(chosen)]
        ]
        return response


def find_landmarks(
    landmarks: Sequence[Landmark],
    label: str,
    near: tuple[float, float, float] | None,
    radius_m: float,
    after_ns: int,
) -> list[Landmark]:
    """Landmarks of a map that fit, the nearest first, or else those that were seen last.

    Args:
        landmarks: Those of the map.
        label: Name of the things, in singular or plural; empty: any.
        near: A place in the frame of the map [m]; None: anywhere.
        radius_m: How far from that place they may be; 0: any distance.
        after_ns: When they must have been seen last, or later [ns]; 0: any time.
    """
    label = label.strip().lower()
    fitting = [
        landmark
        for landmark in landmarks
        if label in {'', landmark.label.lower(), plural(landmark.label.lower())}
        and landmark.last_seen_ns >= after_ns
        and (near is None or not radius_m or math.dist(landmark.position, near) <= radius_m)
    ]
    if near is not None:
        return sorted(fitting, key=lambda landmark: math.dist(landmark.position, near))
    return sorted(fitting, key=lambda landmark: -landmark.last_seen_ns)
