# SPDX-License-Identifier: Apache-2.0
"""The scene map of a running robot: fed with deltas, published, saved, and asked."""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, replace
import math
from pathlib import Path
import queue
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import Keyframe, LandmarkArray
from embodied_r_msgs.srv import EditLandmark, Recall
from embodied_r_ros.bags.messages import stamp_ns_from_msg, vector_from_msg
from embodied_r_ros.bags.vision_messages import (
    DETECTIONS_3D,
    landmark_markers_to_msg,
    landmarks_to_msg,
    MARKERS,
)
from embodied_r_ros.common.errors import ImageError, InputError
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.scene.landmark_map import check_folder, MapConfig, MapEdit
from embodied_r_ros.core.scene.place_map import PlaceMap, read_places, write_places
from embodied_r_ros.core.types.deltas import SemanticDelta
from embodied_r_ros.core.types.landmarks import newest_stamp_ns, SceneMap
from embodied_r_ros.core.types.things import plural
from embodied_r_ros.data.own_messages import (
    keyframe_from_msg,
    landmark_to_msg,
    scene_map_to_msg,
)
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.topics import installed_class, ROS_MESSAGES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embodied_r_ros.core.scene.changes import VisitChanges
    from embodied_r_ros.core.types.keyframes import Keyframe as CoreKeyframe
    from embodied_r_ros.core.types.landmarks import Landmark
    from embodied_r_ros.nodes.node_base import ManagedNode


_MOST_WAITING = 100  # deltas; in a large place one may take a quarter of a second
_MOST_KEYFRAMES = 32  # whose deltas may still come
_LOOK_S = 0.2  # between looks at whether the node is closed
_OUTPUTS = {DETECTIONS_3D: 'landmarks/detections', MARKERS: 'landmarks/markers'}


@dataclass(frozen=True)
class SceneMapperConfig(Settings):
    """Where the scene map is kept, and how near the robot goes to what is in it."""

    map_dir: str = setting(
        '',
        'folder that keeps the scene map for later runs; empty: none',
        read_only=True,
    )
    map_save_s: float = setting(
        30.0, 'the map is written there at most this often [s]', between=(1, 86400)
    )
    goal_standoff_m: float = setting(
        0.6,
        'distance from the edge of a thing to the goal before it (`goal_proposal`) [m]',
        between=(0.05, 10),
    )


class SceneMapper:
    """Feeds the map of a node, and tells of it. Thread-safe."""

    def __init__(self, node: ManagedNode, config: SceneMapperConfig, limits: MapConfig) -> None:
        """Load the map, if there is one, and offer what it knows while the node is configured.

        Raises:
            InputError: The map in the folder cannot be read.
        """
        self._node, self._config, self._limits = node, config, limits
        self._folder = Path(config.map_dir).expanduser() if config.map_dir else None
        self._map = PlaceMap(read_places(self._folder, limits) if self._folder else (), limits)
        if self._folder:
            check_folder(self._folder)
        self._scene_map = SceneMap()  # never changed, only replaced: readers need no lock
        self._stamp_ns = newest_stamp_ns(self._map.scene_map())
        self._is_saved = True
        self.dropped = 0  # deltas that found the line full
        self._waiting: queue.Queue[SemanticDelta | Callable[[PlaceMap], None]] = queue.Queue(
            _MOST_WAITING
        )
        self._keyframes: OrderedDict[tuple[str, int], Keyframe] = OrderedDict()
        self._passed_over = 0  # of these, whose deltas did not come in time
        self._shown: set[int] | None = None  # ids of landmarks with a marker; None: not known
        self._lock = threading.Lock()  # of the map's state
        self._telling = threading.Lock()  # one revision after the other
        self._stop = threading.Event()
        self._publisher = node.publisher(LandmarkArray, 'landmarks', topics.LATCHED_REVISIONS)
        self._outputs: dict[str, Any] = {}
        for kind, topic in _OUTPUTS.items():
            if message := installed_class(kind):
                self._outputs[kind] = node.publisher(message, topic, topics.LATCHED)
        node.serve(Recall, 'recall', self._recall)
        node.serve(EditLandmark, 'edit_landmark', self._edit)
        if self._map.scene_map().landmarks:
            self._renew()
        self._worker = threading.Thread(target=self._work, name='scene map', daemon=True)
        self._worker.start()
        node.while_configured.callback(self._close)

    def __len__(self) -> int:
        return len(self._scene_map.landmarks)

    def scene_map(self) -> SceneMap:
        """The map as it was published last."""
        return self._scene_map

    def values(self) -> dict[str, Any]:
        """For the diagnostics."""
        return {
            'landmarks': len(self),
            'place': self._map.words,
            'deltas_not_mapped': self.dropped,
            'keyframes_not_looked_for': self._map.dropped + self._passed_over,
        }

    def earlier(self) -> VisitChanges | str | None:
        """What changed since earlier runs, or why that is not known; None: there were none."""
        return self._map.earlier()

    def listen(self) -> None:
        """Hear keyframes while the node is active, by which a place is found again."""
        if self._folder:
            self._node.subscribe(Keyframe, 'keyframe', self._take_keyframe, topics.RESULT)

    def add(self, delta: SemanticDelta) -> None:
        """Take in what was perceived, at the pose of its camera where that is known, soon."""
        try:
            self._waiting.put_nowait(delta)
        except queue.Full:
            self.dropped += 1

    def _take_keyframe(self, msg: Keyframe) -> None:
        self._keyframes[msg.camera, stamp_ns_from_msg(msg.header.stamp)] = msg
        while len(self._keyframes) > _MOST_KEYFRAMES:
            self._keyframes.popitem(last=False)
            self._passed_over += 1

    def publish(self) -> None:
        """Tell of the map as it is, to those who come later as well."""
        with self._telling:
            self._shown = None  # what went out before the node was active, nobody saw
            self._publish()

    def forget(self) -> None:
        """Begin an empty map, also on the disk. What waits is forgotten too."""
        with self._lock:
            with suppress(queue.Empty):
                while True:
                    self._waiting.get_nowait()
            self._map = PlaceMap((), self._limits)
        self._renew()
        self.save()

    def save(self) -> None:
        """Write the map into its folder; what goes wrong is a problem of the node."""
        if self._folder is None:
            return
        with self._lock:
            places, scene_map = self._map.places(), self._map.scene_map()
            self._is_saved = True
        try:
            write_places(self._folder, places, scene_map)
        except InputError as error:
            self._is_saved = False
            self._node.log_problem(error)

    def _work(self) -> None:
        saved_s = time.monotonic()
        while not self._stop.is_set():
            try:
                self._take(self._waiting.get(timeout=_LOOK_S))
                while self._waiting.empty() and self._map.look() and not self._stop.is_set():
                    self._renew()
            except queue.Empty:
                pass
            except Exception as error:  # whatever a delta holds, the next one is taken in
                self._node.log_problem(error)
            is_due = time.monotonic() - saved_s >= self._config.map_save_s
            if is_due and not self._is_saved and not self._stop.is_set():
                saved_s = time.monotonic()
                self.save()

    def _take(self, news: SemanticDelta | Callable[[PlaceMap], None]) -> None:
        with self._lock:
            if isinstance(news, SemanticDelta):
                self._map.add(news, self._keyframe_of(news))
                self._stamp_ns = news.stamp_ns
            else:
                news(self._map)
            self._is_saved = False
        if not self._stop.is_set():
            self._renew()

    def _keyframe_of(self, delta: SemanticDelta) -> CoreKeyframe | None:
        """The keyframe of a delta; None: it was not heard, or is damaged."""
        msg = self._keyframes.pop((delta.camera, delta.stamp_ns), None)
        try:
            return keyframe_from_msg(msg) if msg else None
        except ImageError as error:
            self._node.log_problem(error)
            return None

    def _close(self) -> None:
        """End the worker after the delta that it is at, and write the map."""
        self._stop.set()
        self._worker.join()
        self.save()

    def _renew(self) -> None:
        """Make a new revision and publish it."""
        with self._telling:
            with self._lock:
                scene_map = self._map.scene_map()
            # As rows and MAP.json have it, so that a bag gives the very prompts.
            rounded = SceneMap.from_json(scene_map.to_json())
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
            gone_ids = None if self._shown is None else self._shown - ids
            msg = landmark_markers_to_msg(ROS_MESSAGES, scene_map, stamp_ns, gone_ids)
            self._outputs[MARKERS].publish(msg)
            self._shown = ids

    def _edit(
        self, request: EditLandmark.Request, response: EditLandmark.Response
    ) -> EditLandmark.Response:
        known = {landmark.id: landmark for landmark in self.scene_map().landmarks}
        landmark, words = known.get(request.id), [edit.value for edit in MapEdit]
        if landmark is None or request.action not in words:
            wrong = f'no landmark has id {request.id}' if landmark is None else 'no such action'
            response.message = f'{wrong}: see `landmarks` and EditLandmark'
            return response
        edit = MapEdit(request.action)
        try:
            self._waiting.put_nowait(lambda at: at.edit(edit, landmark.label, landmark.position))
        except queue.Full:
            response.message = 'the map is behind: ask again later'
            return response
        response.success = True
        response.message = f'{landmark.label} {landmark.id}: {edit.name.lower()}'
        return response

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
