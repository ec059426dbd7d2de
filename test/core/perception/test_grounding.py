# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
import logging
import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.perception.grounding import (
    BOX_CONVENTIONS,
    box_shares,
    golden_image,
    golden_labels,
    GOLDEN_SIZE,
    judge_golden,
)
from embodied_r_ros.core.perception.vlm import BOX_PROMPT_VERSION, VlmConfig, VlmPerceiver
from embodied_r_ros.core.types.deltas import Box, DeltaKind, ItemStatus, ScaleSource
from embodied_r_ros.core.types.images import decode_image, pack_depth
from embodied_r_ros.nodes.doctor import boxes_check
import numpy as np
import pytest

from test.chat_server import ChatServer, RecordedRequest, Script
from test.core.perception.test_detector_perceiver import box_of, CHAIR, CUP, EYE, keyframe
from test.raycast_room import CAMERA, pose_at, Room

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.geometry import Pose

    from test.raycast_room import Solid

ASIDE = pose_at(-1.0, 0.8, 1.0, 0.0, 0.2)
WORDS = {'direction': 'right', 'height': 'above', 'confidence': 'high'}


def model_shares(box: Box, convention: str, size: tuple[int, int]) -> list[float]:
    """Shares as a model writes them."""
    scale = {'pixels': size, 'unit': (1, 1), 'thousandths': (1000, 1000)}[convention]
    return [round(share * scale[side % 2], 3) for side, share in enumerate(box)]


def share_of(solid: Solid, pose: Pose) -> Box:
    left, top, right, bottom = box_of(solid, pose)
    width, height = CAMERA.width, CAMERA.height
    return left / width, top / height, right / width, bottom / height


def model(
    convention: str, items: Callable[[tuple[int, int]], list[dict[str, Any]]]
) -> Callable[[RecordedRequest], Script]:
    """A model that says the same of every picture, in its own coordinates."""

    def reply(request: RecordedRequest) -> Script:
        if not request.images:
            return Script(('ok',))
        height, width = decode_image(request.images[-1]).shape[:2]
        body: dict[str, Any] = {'summary': 'A room.', 'items': items((width, height))}
        body['visible_text'] = []
        if len(request.images) > 1:
            body['motions'] = [{'kind': 'move_left', 'amount': 'moderate'}]
        return Script((json.dumps(body),))

    return reply


def perceive(
    script: Callable[[RecordedRequest], Script], *frames: Any, convention: str, **settings: Any
) -> tuple[SemanticDelta, ChatServer]:
    with ChatServer(script, models=[{'id': 'vlm'}]) as server:
        client = HttpChatClient(ChatConfig(url=server.url, retries=0))
        config = VlmConfig(box_convention=convention, retries=0, **settings)
        earlier, later = (None, *frames) if len(frames) == 1 else frames
        return VlmPerceiver(client, config).perceive(earlier, later), server


@pytest.mark.parametrize('convention', BOX_CONVENTIONS)
@pytest.mark.parametrize('pixels_per_image', [16_000_000, 30_000])
def test_a_box_gives_direction_size_and_distance(convention: str, pixels_per_image: int) -> None:
    """Also of a picture that was shrunk on the way."""

    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {
                'label': 'grey chair',
                **WORDS,
                'box': model_shares(share_of(CHAIR, EYE), convention, size),
            }
        ]

    frame = keyframe(1, EYE, CHAIR)
    delta, server = perceive(
        model(convention, items), frame, convention=convention, pixels_per_image=pixels_per_image
    )
    [item] = delta.items
    x, y, z = np.array(CHAIR.centre) - np.array(EYE.position)
    assert item.label == 'grey chair'
    assert item.bearing_rad == pytest.approx(math.atan2(y, x), abs=0.05)
    assert item.distance_m == pytest.approx(math.hypot(x, y, z), rel=0.12)
    assert item.box == pytest.approx(share_of(CHAIR, EYE), abs=0.01)
    assert delta.model.prompt_version == BOX_PROMPT_VERSION
    [request] = [one for one in server.requests if one.images]
    text = json.dumps(request.body['messages'])
    assert BOX_CONVENTIONS[convention] in text
    schema = request.body['response_format']['json_schema']['schema']
    assert 'box' in schema['properties']['items']['items']['required']
    if convention == 'pixels':
        height, width = decode_image(request.images[0]).shape[:2]
        assert (width % 28, height % 28) == (0, 0)


def test_depth_places_what_a_model_names_and_says_so() -> None:
    """Without a pose, so that neither two views nor the floor could."""

    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        box = model_shares(share_of(CHAIR, EYE), 'unit', size)
        return [{'label': 'grey chair', **WORDS, 'box': box}]

    metres = Room(0, contrast=0.6).depth(EYE, (CHAIR,))
    frame = replace(keyframe(1, EYE, CHAIR), pose=None, depth=pack_depth(metres))
    delta, _ = perceive(model('unit', items), frame, convention='unit')
    [item] = delta.items
    true_m = math.dist(CHAIR.centre, EYE.position)
    assert item.distance_m == pytest.approx(true_m, rel=0.08)
    assert item.scale is ScaleSource.DEPTH


def pair(
    status: str, box: Box | None, earlier_box: Box | None, label: str = 'red cup'
) -> ItemStatus:
    """What becomes of an item of which a model says this, while the camera steps aside."""

    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        boxes = {
            'box': model_shares(box, 'thousandths', size) if box else [],
            'earlier_box': model_shares(earlier_box, 'thousandths', size) if earlier_box else [],
        }
        return [{'label': label, 'status': status, **WORDS, **boxes}]

    frames = keyframe(1, EYE, CUP), keyframe(2, ASIDE, CUP)
    delta, _ = perceive(model('thousandths', items), *frames, convention='thousandths')
    [item] = delta.items
    return item.status


BEFORE, NOW = share_of(CUP, EYE), share_of(CUP, ASIDE)


@pytest.mark.parametrize(
    ('status', 'box', 'earlier_box', 'expected'),
    [
        ('visible', NOW, BEFORE, ItemStatus.VISIBLE),
        ('appeared', NOW, BEFORE, ItemStatus.VISIBLE),
        ('moved', NOW, BEFORE, ItemStatus.VISIBLE),
        ('visible', BEFORE, NOW, ItemStatus.MOVED),
        ('appeared', NOW, None, ItemStatus.APPEARED),
        ('gone', NOW, None, ItemStatus.VISIBLE),
        ('visible', None, BEFORE, ItemStatus.LEFT),
        ('gone', None, None, ItemStatus.LEFT),
        ('visible', None, None, ItemStatus.VISIBLE),
    ],
)
def test_boxes_in_two_views_tell_what_became_of_a_thing(
    status: str, box: Box | None, earlier_box: Box | None, expected: ItemStatus
) -> None:
    assert pair(status, box, earlier_box) is expected


def test_two_views_place_what_a_model_names() -> None:
    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        return [
            {
                'label': 'cup',
                'status': 'visible',
                **WORDS,
                'box': model_shares(NOW, 'thousandths', size),
                'earlier_box': model_shares(BEFORE, 'thousandths', size),
            }
        ]

    frames = keyframe(1, EYE, CUP), keyframe(2, ASIDE, CUP)
    delta, _ = perceive(model('thousandths', items), *frames, convention='thousandths')
    [item] = delta.items
    assert item.label == 'red cup'  # the colour is what the box holds
    assert item.distance_m == pytest.approx(math.dist(ASIDE.position, CUP.centre), rel=0.06)
    assert item.position is not None


@pytest.mark.parametrize(
    'box',
    [[], [1, 2, 3], [300, 300, 200, 400], [0, 0, 4000, 4000], ['a', 0, 1, 1], None, [1e308] * 4],
)
def test_what_is_no_box_leaves_the_words(box: Any, caplog: pytest.LogCaptureFixture) -> None:
    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        return [{'label': 'cup', **WORDS, 'box': box}]

    delta, _ = perceive(
        model('thousandths', items), keyframe(1, EYE, CUP), convention='thousandths'
    )
    assert delta.kind is DeltaKind.FIRST
    [item] = delta.items
    assert item.bearing_rad == pytest.approx(-0.8 * math.radians(45))
    assert item.box is None


def test_boxes_outside_of_all_pictures_are_said(caplog: pytest.LogCaptureFixture) -> None:
    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        return [{'label': 'cup', **WORDS, 'box': [150, 220, 480, 720]}]

    with caplog.at_level(logging.WARNING):
        perceive(model('unit', items), keyframe(1, EYE, CUP), convention='unit')
    assert "box_convention is 'unit'" in caplog.text


def test_without_a_convention_no_boxes_are_asked_for() -> None:
    def items(size: tuple[int, int]) -> list[dict[str, Any]]:
        return [{'label': 'cup', **WORDS}]

    delta, server = perceive(model('unit', items), keyframe(1, EYE, CUP), convention='none')
    assert delta.items[0].box is None
    assert all('box' not in json.dumps(one.body) for one in server.requests)


def golden_truth() -> dict[str, Box]:
    """Where shapes are in the golden image, by their colours."""
    image = golden_image()
    hsv = cv2.cvtColor(image, cv2.COLOR_BGR2HSV)
    hues = {'red square': 0, 'blue circle': 112, 'green triangle': 55}
    truth = {}
    for label, hue in hues.items():
        near = np.abs((hsv[..., 0].astype(int) - hue + 90) % 180 - 90) < 12
        rows, columns = np.nonzero(near & (hsv[..., 1] > 100))
        truth[label] = (
            float(columns.min()) / GOLDEN_SIZE[0],
            float(rows.min()) / GOLDEN_SIZE[1],
            float(columns.max() + 1) / GOLDEN_SIZE[0],
            float(rows.max() + 1) / GOLDEN_SIZE[1],
        )
    return truth


@pytest.mark.parametrize('convention', BOX_CONVENTIONS)
def test_the_golden_image_tells_conventions_apart(convention: str) -> None:
    truth = golden_truth()
    assert set(truth) == set(golden_labels())
    boxes: dict[str, Box] = {}
    for label, box in truth.items():
        left, top, right, bottom = model_shares(box, convention, GOLDEN_SIZE)
        boxes[label] = (left, top, right, bottom)
    result = judge_golden(boxes)
    assert result.best == convention
    assert result.fits[convention] > 0.95
    assert max(fit for name, fit in result.fits.items() if name != convention) < 0.5
    turned = {k: (t, left, b, right) for k, (left, t, right, b) in boxes.items()}
    assert (judge_golden(turned).best, judge_golden(turned).is_swapped) == ('', True)
    assert judge_golden({}).best == ''


def golden_model(convention: str) -> Callable[[RecordedRequest], Script]:
    def reply(request: RecordedRequest) -> Script:
        if not request.images:
            return Script(('ok',))
        items = [
            {'label': label, 'box': model_shares(box, convention, GOLDEN_SIZE)}
            for label, box in golden_truth().items()
        ]
        return Script((json.dumps({'items': items}),))

    return reply


@pytest.mark.parametrize(
    ('configured', 'ok', 'has_remedy'),
    [('thousandths', True, False), ('pixels', False, True), ('none', True, True)],
)
def test_doctor_finds_a_wrong_convention(
    configured: str, ok: bool, has_remedy: bool, tmp_path: Path
) -> None:
    with ChatServer(golden_model('thousandths'), models=[{'id': 'vlm'}]) as server:
        profile = tmp_path / 'mine.yaml'
        profile.write_text(
            f'clients: {{perceiver: {{url: "{server.url}"}}}}\n'
            f'vlm: {{box_convention: {configured}}}\n'
        )
        check = boxes_check(str(profile))
    assert 'fit as thousandths (0.99)' in check.detail
    assert (check.ok, bool(check.remedy)) == (ok, has_remedy)
    assert ('set it to thousandths' in check.remedy) == has_remedy


def test_doctor_says_what_it_cannot_find(tmp_path: Path) -> None:
    with ChatServer(lambda _: Script(('{"items": []}',)), models=[{'id': 'vlm'}]) as server:
        check = boxes_check(server.url)
    assert (check.ok, check.mark) == (True, 'warn')
    assert 'nowhere near' in check.detail
    assert not boxes_check('http://127.0.0.1:9').ok
    assert "no profile 'nothing'" in boxes_check('nothing').detail


def test_box_shares() -> None:
    assert box_shares((56, 42, 280, 210), 'pixels', (560, 420)) == (0.1, 0.1, 0.5, 0.5)
    assert box_shares((0.1, 0.2, 0.3, 0.4), 'unit', (560, 420)) == (0.1, 0.2, 0.3, 0.4)
    assert box_shares((-10, 0, 1010, 500), 'thousandths', (9, 9)) == (0, 0, 1, 0.5)
    assert box_shares((0, 0, 1200, 500), 'thousandths', (9, 9)) is None
    assert box_shares((-200, 0, 500, 500), 'thousandths', (9, 9)) is None
    assert box_shares((500, 0, 500, 500), 'thousandths', (9, 9)) is None
