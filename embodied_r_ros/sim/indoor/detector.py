# SPDX-License-Identifier: Apache-2.0
"""A simulated detector: noisy boxes of the things that an image shows, with misses.

It knows the truth. Wherever its boxes show, they are said to be of a simulated detector.
"""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import header_to_msg
from embodied_r_ros.bags.vision_messages import (
    DETECTIONS_2D,
    hypothesis_to_msg,
    SIMULATED_DETECTOR,
)
from embodied_r_ros.core.types.vocabulary import Detection
from embodied_r_ros.sim.indoor.world import World, WorldRenderer
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.bags.message_types import MessageFactory
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose
    from embodied_r_ros.core.types.layout import ObjectView, Vector
    from embodied_r_ros.sim.indoor.room import Room

_WIDTH_PX = 160  # of the picture in which it looks for what can be seen
_MISSED = 0.1  # share of the things that are visible
_NOISE = 0.015  # of an edge, as a share of the box, and no less than
_NOISE_PX = 0.7
_SCORE_NOISE = 0.04


class SimulatedDetector:
    """Finds the things of a room that are visible by the truth. Use it as a context manager."""

    def __init__(self, room: Room, camera: Intrinsics, rng: np.random.Generator) -> None:
        """Open what it looks with.

        Args:
            room: What stands where.
            camera: Of the images that the boxes are of.
            rng: Where noise and misses come from.
        """
        self._labels = [thing.label for thing in room.things]
        self._scale = camera.width / _WIDTH_PX
        self._world = World(room)
        small = camera.scaled(_WIDTH_PX, round(camera.height / self._scale))
        self._renderer = WorldRenderer(self._world, small)
        self._size = np.array([camera.width, camera.height] * 2, np.float64)
        self._rng = rng

    def detect(
        self, pose: Pose, positions: Sequence[Vector | None], views: Sequence[ObjectView]
    ) -> list[Detection]:
        """Boxes of the visible part of each thing that is visible and not missed.

        Args:
            pose: Of the camera link.
            positions: Of each thing [m]; None: absent.
            views: What is true of the image.
        """
        self._world.place(positions)
        things = self._renderer.things(pose)
        found = []
        for view in views:
            rows, columns = np.nonzero(things == view.object_id)
            is_missed = self._rng.random() < _MISSED
            if view.visible and len(rows) and not is_missed:
                edges = [columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]
                found.append(self._detection(view, np.multiply(edges, self._scale)))
        return found

    def _detection(self, view: ObjectView, box: Any) -> Detection:
        spread = np.maximum(_NOISE_PX, _NOISE * np.tile(box[2:] - box[:2], 2))
        noisy = np.clip(box + self._rng.normal(0, spread), 0, self._size)
        # What the image cuts off ends there, whatever the noise.
        edges = np.where((box <= 0) | (box >= self._size), box, noisy)
        score = 0.6 + 0.35 * view.share + self._rng.normal(0, _SCORE_NOISE)
        left, top, right, bottom = (float(edge) for edge in edges)
        return Detection(
            self._labels[view.object_id],
            float(np.clip(score, 0.3, 0.99)),
            (left, top, right, bottom),
            SIMULATED_DETECTOR,
        )

    def __enter__(self) -> SimulatedDetector:
        return self

    def __exit__(self, *_: object) -> None:
        self._renderer.close()


def detections_to_msg(
    make: MessageFactory, stamp_ns: int, frame_id: str, detections: Sequence[Detection]
) -> Any:
    """Make a vision_msgs Detection2DArray; the id of each box says whose it is."""
    header = header_to_msg(make, stamp_ns, frame_id)
    return make.make(
        DETECTIONS_2D,
        header=header,
        detections=[_detection_to_msg(make, header, one) for one in detections],
    )


def _detection_to_msg(make: MessageFactory, header: Any, detection: Detection) -> Any:
    left, top, right, bottom = detection.box
    middle = make.make('vision_msgs/msg/Point2D', x=(left + right) / 2, y=(top + bottom) / 2)
    box = make.make(
        'vision_msgs/msg/BoundingBox2D',
        center=make.make('vision_msgs/msg/Pose2D', position=middle, theta=0.0),
        size_x=right - left,
        size_y=bottom - top,
    )
    result = hypothesis_to_msg(make, detection.label, detection.score)
    return make.make(
        'vision_msgs/msg/Detection2D',
        header=header,
        results=[result],
        bbox=box,
        id=detection.source,
    )
