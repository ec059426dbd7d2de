# SPDX-License-Identifier: Apache-2.0
"""Messages of other perception software: boxes in images; items and landmarks in space."""

from __future__ import annotations

from dataclasses import dataclass
import math
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.messages import (
    duration_to_msg,
    header_to_msg,
    pose_to_msg,
    stamp_ns_from_msg,
    vector_to_msg,
)
from embodied_r_ros.bags.reader import bag_holds, open_bag, read_messages, topics_of_type
from embodied_r_ros.common.untrusted import as_label
from embodied_r_ros.core.types.deltas import ItemStatus
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.landmarks import LandmarkStatus
from embodied_r_ros.core.types.poses import link_axes
from embodied_r_ros.core.types.vocabulary import COCO, COCO_NUMBERED, Detection
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.message_types import MessageFactory
    from embodied_r_ros.core.types.deltas import Item, SemanticDelta
    from embodied_r_ros.core.types.geometry import Position
    from embodied_r_ros.core.types.keyframes import Keyframe
    from embodied_r_ros.core.types.landmarks import Landmark, SceneMap
    from numpy.typing import NDArray

DETECTIONS_2D = 'vision_msgs/msg/Detection2DArray'
SIMULATED_DETECTOR = 'simulated detector'  # by which the boxes of simulations are marked
DETECTIONS_3D = 'vision_msgs/msg/Detection3DArray'
MARKERS = 'visualization_msgs/msg/MarkerArray'
CLASS_NUMBERS = {'': (), 'coco': COCO, 'coco91': COCO_NUMBERED}  # what numbers of classes mean
_MOST_BOXES = 1000
_LEVEL = (0.0, 0.0, 0.0, 1.0)


def detections_from_msg(msg: Any, numbers: Sequence[str] = ()) -> list[Detection]:
    """Boxes of a vision_msgs Detection2DArray, each with its likeliest class, the surest first.

    Boxes without a class, without a size, or with numbers that are none are left out; so is a
    class that is named 'background'.

    Args:
        msg: The message.
        numbers: Names of the classes of detectors that give their numbers.
    """
    detections = []
    for entry in list(msg.detections)[:_MOST_BOXES]:
        best = max(map(_hypothesis, entry.results), key=lambda pair: pair[1], default=('', 0.0))
        label, score = _named(best[0], numbers), best[1]
        box = _box_px(entry.bbox)
        if label and box and math.isfinite(score) and score > 0:
            detections.append(Detection(label, min(1.0, score), box))
    return sorted(detections, key=lambda detection: -detection.score)


def _hypothesis(result: Any) -> tuple[str, float]:
    """Class and score of a result; they lay in the result itself before Humble."""
    hypothesis = getattr(result, 'hypothesis', result)
    name = getattr(hypothesis, 'class_id', getattr(hypothesis, 'id', ''))
    score = float(hypothesis.score)
    return str(name), score if math.isfinite(score) else 0.0


def _named(name: str, numbers: Sequence[str]) -> str:
    label = as_label(name)
    if label.isdecimal():
        number = int(label)
        return (numbers[number] if number < len(numbers) else '') if numbers else f'thing {number}'
    return '' if label.lower() == 'background' else label


def _box_px(bbox: Any) -> tuple[float, float, float, float] | None:
    """Left, top, right, bottom around a box that may be turned [px]; None: it is none."""
    centre = getattr(bbox.center, 'position', bbox.center)  # a Pose2D of its own from Humble on
    x, y, turn = float(centre.x), float(centre.y), float(bbox.center.theta)
    width, height = float(bbox.size_x), float(bbox.size_y)
    if not all(map(math.isfinite, (x, y, turn, width, height))) or width <= 0 or height <= 0:
        return None
    cosine, sine = abs(math.cos(turn)), abs(math.sin(turn))
    across, down = width * cosine + height * sine, width * sine + height * cosine
    return x - across / 2, y - down / 2, x + across / 2, y + down / 2


@dataclass(frozen=True)
class RecordedBoxes:
    """The boxes of a ROS detector that a bag holds."""

    by_stamp_ns: Mapping[int, Sequence[Detection]]
    name: str  # of the detector, where all its boxes give one

    def of(self, keyframe: Keyframe) -> Sequence[Detection]:
        """The boxes of a keyframe's image; none where there are none of its stamp."""
        return self.by_stamp_ns.get(keyframe.stamp_ns, ())


def has_boxes(path: Path) -> bool:
    """Tell whether a recording is a bag with boxes of a ROS detector.

    Raises:
        BagError: The bag is damaged.
    """
    return bag_holds(path, lambda reader: topics_of_type(reader, DETECTIONS_2D))


def read_boxes(path: Path) -> RecordedBoxes:
    """Read the boxes of a bag of one camera.

    Raises:
        BagError: The bag is damaged.
    """
    boxes: dict[int, list[Detection]] = {}
    names: set[str] = set()
    with open_bag(path) as reader:
        for _, _, msg in read_messages(reader, topics_of_type(reader, DETECTIONS_2D)):
            boxes.setdefault(stamp_ns_from_msg(msg.header.stamp), []).extend(
                detections_from_msg(msg)
            )
            names.update(str(getattr(entry, 'id', '')) for entry in msg.detections)
    return RecordedBoxes(boxes, as_label(names.pop()) if len(names) == 1 else '')


@dataclass(frozen=True)
class PlacedItem:
    """An item as a box in the axes of the frame of its image."""

    item: Item
    centre: Position  # [m]
    size: Position  # [m]


def placed_items(delta: SemanticDelta, aspect: float = 4 / 3) -> list[PlacedItem]:
    """The items of a delta that have a place, in the frame of its image.

    Args:
        delta: The delta.
        aspect: Width of its image divided by height, which tells wide items from tall ones.
    """
    turn = link_axes(delta.frame_id)
    places = []
    for item in delta.items:
        position = item.position
        if position is None or item.status is ItemStatus.LEFT:
            continue
        size = np.abs(turn @ np.array(_extents(item, aspect)))
        (x, y, z), (across, down, deep) = turn @ np.array(position), size
        places.append(
            PlacedItem(
                item,
                (float(x), float(y), float(z)),
                (float(across), float(down), float(deep)),
            )
        )
    return places


_LEAST_M = 0.02  # a box that can be seen


def _extents(item: Item, aspect: float) -> Position:
    """Extents along the axes of the camera link: how deep, wide and high [m]."""
    angle = item.size_rad if math.isfinite(item.size_rad) else 0.0
    larger = max(_LEAST_M, 2 * item.distance_m * math.tan(min(angle, 2.0) / 2))
    ratio = 1.0
    if item.box:
        left, top, right, bottom = item.box
        ratio = (right - left) * aspect / max(bottom - top, 1e-6)
    wide = larger if ratio >= 1 else larger * ratio
    high = larger if ratio <= 1 else larger / ratio
    wide, high = max(_LEAST_M, wide), max(_LEAST_M, high)
    return min(wide, high), wide, high


def items_to_msg(
    factory: MessageFactory, delta: SemanticDelta, places: Sequence[PlacedItem]
) -> Any:
    """Make a vision_msgs Detection3DArray of a delta's items, in the frame of its image."""
    header = header_to_msg(factory, delta.stamp_ns, delta.frame_id)
    detections = [
        _detection(
            factory,
            header,
            entry.item.label,
            entry.item.confidence,
            (entry.centre, entry.size),
        )
        for entry in places
    ]
    return factory.make(DETECTIONS_3D, header=header, detections=detections)


def landmarks_to_msg(factory: MessageFactory, scene_map: SceneMap, stamp_ns: int) -> Any:
    """Make a vision_msgs Detection3DArray of the landmarks that are there, in the map's frame."""
    header = header_to_msg(factory, stamp_ns, scene_map.frame_id)
    detections = [
        _detection(
            factory,
            header,
            landmark.label,
            landmark.confidence,
            (landmark.position, _size_of(landmark)),
            str(landmark.id),
        )
        for landmark in scene_map.landmarks
        if landmark.status is LandmarkStatus.PRESENT
    ]
    return factory.make(DETECTIONS_3D, header=header, detections=detections)


def _size_of(landmark: Landmark) -> Position:
    return landmark.size or (_UNSIZED_M,) * 3


def _detection(
    factory: MessageFactory,
    header: Any,
    label: str,
    confidence: float,
    box: tuple[Position, Position],
    detection_id: str = '',
) -> Any:
    """A Detection3D of one box: its centre and its size [m]."""
    centre, size = box
    pose = pose_to_msg(factory, Pose(centre, _LEVEL, ''))
    return factory.make(
        'vision_msgs/msg/Detection3D',
        header=header,
        results=[hypothesis_to_msg(factory, label, confidence, pose)],
        bbox=factory.make(
            'vision_msgs/msg/BoundingBox3D',
            center=pose,
            size=vector_to_msg(factory, 'Vector3', size),
        ),
        id=detection_id,
    )


def hypothesis_to_msg(
    factory: MessageFactory, label: str, confidence: float, pose: Any = None
) -> Any:
    """Make a vision_msgs ObjectHypothesisWithPose; None: its pose is not known."""
    hypothesis = factory.make(
        'vision_msgs/msg/ObjectHypothesis',
        class_id=label,
        score=float(confidence) if math.isfinite(confidence) else 0.0,
    )
    known = factory.make(
        'geometry_msgs/msg/PoseWithCovariance',
        pose=pose or pose_to_msg(factory, Pose((0.0, 0.0, 0.0), _LEVEL, '')),
        covariance=factory.array('float64', [0.0] * 36),
    )
    return factory.make(
        'vision_msgs/msg/ObjectHypothesisWithPose', hypothesis=hypothesis, pose=known
    )


_CUBE, _TEXT, _ADD, _DELETE, _DELETE_ALL = 1, 9, 0, 2, 3  # of visualization_msgs/Marker
_TEXT_M = 0.08
_LIFETIME_NS = 60_000_000_000
_LANDMARKS = 'landmarks'  # namespace of their markers
_UNSIZED_M = 0.1  # edge of the box of a landmark whose size is not known


def markers_to_msg(
    factory: MessageFactory, delta: SemanticDelta, places: Sequence[PlacedItem], before: int = 0
) -> Any:
    """Make a visualization_msgs MarkerArray: a box and a name for each item.

    Args:
        factory: Makes the messages.
        delta: The delta.
        places: Its items with a place.
        before: How many the camera had shown before: those that are left are deleted.
    """
    markers: list[Any] = []
    for number in range(max(len(places), before)):
        entry = places[number] if number < len(places) else None
        markers += _markers_of(factory, delta, number, entry)
    return factory.make(MARKERS, markers=markers)


def _markers_of(
    factory: MessageFactory, delta: SemanticDelta, number: int, entry: PlacedItem | None
) -> Iterator[Any]:
    """Box and name of an item; None: both are deleted."""
    header = header_to_msg(factory, delta.stamp_ns, delta.frame_id)
    if entry is None:
        yield from _deleted_markers(factory, header, delta.camera, number)
        return
    text = f'{entry.item.label} {entry.item.distance_m:.1f} m'
    up = link_axes(delta.frame_id) @ np.array([0.0, 0.0, 1.0])
    box = entry.centre, entry.size, up
    yield from _box_and_name(factory, header, (delta.camera, number), box, text)


def landmark_markers_to_msg(
    factory: MessageFactory,
    scene_map: SceneMap,
    stamp_ns: int,
    gone_ids: Collection[int] | None,
) -> Any:
    """Make a visualization_msgs MarkerArray: a box and a name for each landmark.

    Args:
        factory: Makes the messages.
        scene_map: The map. What is gone stands in the name.
        stamp_ns: Of its newest keyframe.
        gone_ids: Landmarks that were shown and are no more part of the map; None: it is not known
            what is shown, and all of it is deleted.
    """
    header = header_to_msg(factory, stamp_ns, scene_map.frame_id)
    up, markers = np.array([0.0, 0.0, 1.0]), list[Any]()
    if gone_ids is None:
        markers.append(
            factory.make('visualization_msgs/msg/Marker', header=header, action=_DELETE_ALL)
        )
    for landmark in scene_map.landmarks:
        is_gone = landmark.status is LandmarkStatus.GONE
        text = f'{landmark.label} (gone)' if is_gone else landmark.label
        box = landmark.position, _size_of(landmark), up
        name = _LANDMARKS, landmark.id
        markers += _box_and_name(factory, header, name, box, text, lifetime_ns=0)
    for landmark_id in sorted(gone_ids or ()):
        markers += _deleted_markers(factory, header, _LANDMARKS, landmark_id)
    return factory.make(MARKERS, markers=markers)


def _deleted_markers(
    factory: MessageFactory, header: Any, space: str, number: int
) -> Iterator[Any]:
    for kind in (_CUBE, _TEXT):
        yield factory.make(
            'visualization_msgs/msg/Marker',
            header=header,
            ns=f'{space}/{kind}',
            id=number,
            action=_DELETE,
        )


def _box_and_name(
    factory: MessageFactory,
    header: Any,
    name: tuple[str, int],
    box: tuple[Position, Position, NDArray[np.float64]],
    text: str,
    *,
    lifetime_ns: int = _LIFETIME_NS,
) -> Iterator[Any]:
    """Markers of a box and a name above it: namespace and number; centre, size [m] and up."""
    (x, y, z), size, up = box
    above = up * (float(max(size)) / 2 + _TEXT_M)
    for kind, centre, extent, alpha, words in (
        (_CUBE, (x, y, z), size, 0.35, ''),
        (_TEXT, (x + above[0], y + above[1], z + above[2]), (0.0, 0.0, _TEXT_M), 1.0, text),
    ):
        place = (float(centre[0]), float(centre[1]), float(centre[2]))
        red, green, blue = (0.1, 0.6, 0.9) if kind == _CUBE else (1.0, 1.0, 1.0)
        yield factory.make(
            'visualization_msgs/msg/Marker',
            header=header,
            ns=f'{name[0]}/{kind}',
            id=name[1],
            type=kind,
            action=_ADD,
            pose=pose_to_msg(factory, Pose(place, _LEVEL, '')),
            scale=vector_to_msg(factory, 'Vector3', extent),
            color=factory.make('std_msgs/msg/ColorRGBA', r=red, g=green, b=blue, a=alpha),
            lifetime=duration_to_msg(factory, lifetime_ns),
            text=words,
        )
