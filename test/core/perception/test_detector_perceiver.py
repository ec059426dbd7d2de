# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
import math
import os
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ModelError
from embodied_r_ros.core.keyframes.selector import Keyframer
from embodied_r_ros.core.perception.detector import Detector, DetectorConfig, DetectorPerceiver
from embodied_r_ros.core.perception.items import items_between, ItemView
from embodied_r_ros.core.pipeline import detector_perceiver, perceive_keyframes
from embodied_r_ros.core.types.deltas import (
    DeltaKind,
    ItemStatus,
    Motion,
    MotionSource,
    Rung,
    ScaleSource,
)
from embodied_r_ros.core.types.geometry import BODY_FROM_OPTICAL
from embodied_r_ros.core.types.images import encode_image, pack_depth, StampedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.core.types.vocabulary import Detection
import numpy as np
import pytest

from test.raycast_room import CAMERA, pose_at, Room, Solid

pytest.importorskip('onnxruntime')
pytest.importorskip('onnx')

from test.core.perception.onnx_models import red_detector

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.geometry import Pose
    from numpy.typing import NDArray

CHAIR = Solid((1.6, 0.5, 0.4), (0.5, 0.5, 0.8), (90, 95, 100))
CUP = Solid((1.2, -0.6, 0.15), (0.3, 0.3, 0.3), (20, 20, 210))
ROOM = Room(0, contrast=0.4)
EYE = pose_at(-1.0, 0.0, 1.0, 0.0, 0.2)


def keyframe(number: int, pose: Pose, *solids: Solid) -> Keyframe:
    image = encode_image(ROOM.view(pose, solids), 95)
    return Keyframe(
        number,
        number * 1_000_000_000,
        image,
        KeyframeReason.LOW_OVERLAP,
        reference_id=number - 1,
        overlap=0.4,
        inliers=100,
        intrinsics=CAMERA,
        pose=pose,
    )


def box_of(solid: Solid, pose: Pose) -> tuple[float, float, float, float]:
    """The box around the corners of a solid in an image [px]."""
    signs = np.array(np.meshgrid([-0.5, 0.5], [-0.5, 0.5], [-0.5, 0.5])).reshape(3, -1).T
    corners = np.array(solid.centre) + signs * np.array(solid.size)
    body = (corners - np.array(pose.position)) @ pose.rotation()
    optical = body @ BODY_FROM_OPTICAL
    pixels = (optical @ CAMERA.matrix().T)[:, :2] / optical[:, 2:] + 0.5
    left, top = pixels.min(axis=0)
    right, bottom = pixels.max(axis=0)
    return float(left), float(top), float(right), float(bottom)


def boxes(**solids: Solid) -> Callable[[Keyframe], Sequence[Detection]]:
    """What another program finds in a keyframe: the truth."""

    def boxes_of(frame: Keyframe) -> list[Detection]:
        assert frame.pose
        return [Detection(name, 0.9, box_of(solid, frame.pose)) for name, solid in solids.items()]

    return boxes_of


def test_names_colours_and_distances_come_together() -> None:
    perceiver = DetectorPerceiver(None, boxes_of=boxes(chair=CHAIR, suitcase=CUP))
    delta = perceiver.perceive(None, keyframe(1, EYE, CHAIR, CUP))
    assert (delta.kind, delta.model.name) == (DeltaKind.FIRST, 'detections')
    items = {item.label: item for item in delta.items}
    assert set(items) == {'chair', 'red suitcase'}
    for label, solid in (('chair', CHAIR), ('red suitcase', CUP)):
        x, y, z = np.array(solid.centre) - np.array(EYE.position)
        assert items[label].bearing_rad == pytest.approx(math.atan2(y, x), abs=0.05)
        assert items[label].distance_m == pytest.approx(math.hypot(x, y, z), rel=0.12)
        assert items[label].box is not None


def test_what_does_not_stand_on_the_floor_has_no_distance_from_it() -> None:
    perceiver = DetectorPerceiver(None, boxes_of=boxes(cup=CUP))
    [item] = perceiver.perceive(None, keyframe(1, EYE, CUP)).items
    assert item.label == 'red cup'
    assert math.isnan(item.distance_m)


def test_depth_places_what_has_a_name() -> None:
    depth = pack_depth(ROOM.depth(EYE, (CUP,)))
    frame = replace(keyframe(1, EYE, CUP), depth=depth)
    [item] = DetectorPerceiver(None, boxes_of=boxes(cup=CUP)).perceive(None, frame).items
    assert (item.label, item.scale) == ('red cup', ScaleSource.DEPTH)
    assert item.distance_m == pytest.approx(math.dist(EYE.position, CUP.centre), rel=0.1)


def test_two_poses_place_a_thing_that_does_not_stand() -> None:
    """A step to the side; the floor says nothing of a cup."""
    aside = pose_at(-1.0, 0.8, 1.0, 0.0, 0.2)
    perceiver = DetectorPerceiver(None, boxes_of=boxes(cup=CUP))
    delta = perceiver.perceive(keyframe(1, EYE, CUP), keyframe(2, aside, CUP))
    [item] = delta.items
    true = math.dist(aside.position, CUP.centre)
    assert item.status is ItemStatus.VISIBLE
    assert item.distance_m == pytest.approx(true, rel=0.06)


def test_things_come_stay_move_and_go() -> None:
    turned = pose_at(-1.0, 0.0, 1.0, 0.1, 0.2)
    moved = replace(CHAIR, centre=(1.6, -0.5, 0.4))
    first, later = keyframe(1, EYE, CHAIR), keyframe(2, turned, CHAIR)

    def statuses(before: dict[str, Solid], now: dict[str, Solid]) -> dict[str, ItemStatus]:
        chosen = {1: boxes(**before), 2: boxes(**now)}
        perceiver = DetectorPerceiver(None, boxes_of=lambda frame: chosen[frame.id](frame))
        return {i.label: i.status for i in perceiver.perceive(first, later).items}

    assert statuses({'chair': CHAIR}, {'chair': CHAIR}) == {'chair': ItemStatus.VISIBLE}
    assert statuses({'chair': CHAIR}, {'chair': moved}) == {'chair': ItemStatus.MOVED}
    assert statuses({}, {'chair': CHAIR}) == {'chair': ItemStatus.APPEARED}
    assert statuses({'chair': CHAIR}, {}) == {'chair': ItemStatus.LEFT}
    # Taken for something like it, and for something else.
    assert statuses({'couch': CHAIR}, {'chair': CHAIR}) == {'chair': ItemStatus.VISIBLE}
    assert statuses({'dog': CHAIR}, {'chair': CHAIR}) == {
        'dog': ItemStatus.LEFT,
        'chair': ItemStatus.APPEARED,
    }


def test_a_name_holds_while_its_colour_is_in_view() -> None:
    turned = pose_at(-1.0, 0.0, 1.0, 0.1, 0.2)
    chosen = {1: boxes(suitcase=CUP), 2: boxes()}
    perceiver = DetectorPerceiver(None, boxes_of=lambda frame: chosen[frame.id](frame))
    [item] = perceiver.perceive(keyframe(1, EYE, CUP), keyframe(2, turned, CUP)).items
    assert (item.label, item.status) == ('red suitcase', ItemStatus.VISIBLE)


def view_with_score(number: int, score: float) -> ItemView:
    """One view of a thing of a detector whose threshold is 0.4."""
    perceiver = DetectorPerceiver(
        None, boxes_of=lambda frame: [Detection('chair', 0.9, box_of(CHAIR, EYE))]
    )
    view = perceiver.view(keyframe(number, EYE, CHAIR))
    if score >= 0.4:
        return view
    return replace(view, objects=(), unsure=view.objects if score >= 0.2 else ())


@pytest.mark.parametrize(
    ('scores', 'expected'),
    [
        ((0.6, 0.6), [ItemStatus.VISIBLE]),
        ((0.6, 0.3), [ItemStatus.VISIBLE]),
        ((0.3, 0.6), [ItemStatus.VISIBLE]),
        ((0.6, 0.1), [ItemStatus.LEFT]),
        ((0.1, 0.6), [ItemStatus.APPEARED]),
        ((0.3, 0.3), []),
        ((0.3, 0.1), []),
        ((0.1, 0.3), []),
    ],
)
def test_a_score_about_the_threshold_is_no_coming_and_going(
    scores: tuple[float, float], expected: list[ItemStatus]
) -> None:
    still = Motion(MotionSource.ODOMETRY, 0.0, 0.0, 0.0, (0.0, 0.0, 0.0), is_metric=True)
    earlier, later = view_with_score(1, scores[0]), view_with_score(2, scores[1])
    assert [item.status for item in items_between(earlier, later, still)] == expected


LAMP = Solid((0.5, 0.0, 0.9), (0.5, 0.5, 0.5), (0, 0, 255))


@pytest.fixture
def detector(tmp_path: Path) -> Detector:
    return Detector(DetectorConfig(str(red_detector(tmp_path / 'red.onnx', (480, 640)))))


def test_a_network_looks_at_keyframes(detector: Detector) -> None:
    """Keyframes of a stream, named by an ONNX file."""
    images = [
        StampedImage(i, i * 100_000_000, ROOM.view(pose, (LAMP,)), intrinsics=CAMERA, pose=pose)
        for i, pose in enumerate(pose_at(-1.0, 0.0, 1.0, 0.12 * step) for step in range(8))
    ]
    perceiver = DetectorPerceiver(detector)
    deltas = list(perceive_keyframes(Keyframer().stream(images), perceiver))
    assert len(deltas) >= 2
    assert all('red lamp' in delta.change for delta in deltas)
    assert {delta.model.name for delta in deltas} == {'detector/red'}
    assert {delta.model.digest for delta in deltas} == {detector.digest}
    perceiver.check(5.0)
    assert perceiver.info().rung is Rung.PRIMARY


def test_boxes_of_others_join_those_of_the_detector(detector: Detector) -> None:
    """The threshold of the own detector is not theirs."""
    far = Detection('chair', 0.1, (10, 10, 60, 60))
    perceiver = DetectorPerceiver(detector, boxes_of=lambda frame: [far])
    delta = perceiver.perceive(None, keyframe(1, pose_at(-1.0, 0.0, 1.0), LAMP))
    assert {'chair', 'red lamp'} <= {item.label for item in delta.items}


def test_a_focus_names_what_is_asked_for() -> None:
    perceiver = DetectorPerceiver(None, boxes_of=boxes(chair=CHAIR, suitcase=CUP))
    frame = keyframe(1, EYE, CHAIR, CUP)
    assert 'chair' in perceiver.focus('Are there chairs?', [], frame, 1.0).text
    assert 'suitcase' not in perceiver.focus('Are there chairs?', [], frame, 1.0).text
    assert 'suitcase' in perceiver.focus('What is red?', [], frame, 1.0).text
    assert perceiver.focus('Where is the exit?', [], frame, 1.0).text == ''


class BrokenDetector:
    """A fake: a network that fails at every image."""

    name, digest, config = 'broken', '', DetectorConfig()

    def detect(self, image: object, least: float = 0.0) -> list[Detection]:
        msg = 'the detector failed: out of memory'
        raise ModelError(msg)


def test_each_keyframe_is_looked_at_once(
    detector: Detector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where several threads want it at the same time."""
    looks: list[int] = []
    detect = detector.detect

    def count_and_detect(image: NDArray[np.uint8], least: float = 0.0) -> list[Detection]:
        looks.append(image.shape[0])
        return detect(image, least)

    monkeypatch.setattr(detector, 'detect', count_and_detect)
    perceiver = DetectorPerceiver(detector)
    frame = keyframe(1, EYE, LAMP)
    with ThreadPoolExecutor(4) as pool:
        views = list(pool.map(perceiver.view, [frame] * 8))
    assert len(looks) == 1
    assert len({len(view.objects) for view in views}) == 1


def test_a_network_that_fails_gives_a_failed_delta() -> None:
    perceiver = DetectorPerceiver(BrokenDetector())  # type: ignore[arg-type]
    delta = perceiver.perceive(None, keyframe(1, EYE, CHAIR))
    assert (delta.kind, delta.error) == (DeltaKind.FAILED, 'the detector failed: out of memory')
    with pytest.raises(ModelError, match='out of memory'):
        perceiver.check(1.0)


def test_recordings_of_one_process_share_a_detector(tmp_path: Path) -> None:
    path = red_detector(tmp_path / 'red.onnx')
    config = DetectorConfig(str(path))
    first, second = detector_perceiver(config), detector_perceiver(config)
    assert first is not second
    assert first._detector is second._detector
    os.utime(path, ns=(1, 1))
    assert detector_perceiver(config)._detector is not first._detector
