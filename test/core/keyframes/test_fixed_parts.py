# SPDX-License-Identifier: Apache-2.0
"""What is fixed to the camera is found, and nothing else is, in a room whose geometry is known."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
import math
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.core.keyframes.alignment import View
from embodied_r_ros.core.keyframes.fixed_parts import FixedParts
from embodied_r_ros.core.keyframes.overlap import two_view
from embodied_r_ros.core.keyframes.selector import KeyframeConfig, Keyframer
from embodied_r_ros.core.perception.items import outside_fixed
from embodied_r_ros.core.types.deltas import Item, ItemStatus
from embodied_r_ros.core.types.geometry import relative_motion, yaw_pitch_roll
from embodied_r_ros.core.types.images import pack_mask, StampedImage
import numpy as np
import pytest

from bench.own_body import own_parts, with_own_parts
from test.raycast_room import CAMERA, pose_at, Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from embodied_r_ros.core.types.geometry import Pose
    from numpy.typing import NDArray

STEP_NS = 100_000_000
SIZE = CAMERA.width, CAMERA.height


@cache
def room() -> Room:
    return Room(3)


def looking_around(images: int, start: int = 0) -> list[Pose]:
    """A camera that turns this way and that, and moves a little."""
    times = np.arange(start, start + images) * 0.22
    return [
        pose_at(0.5 * math.sin(t), 0.3 * t / 5, 1.2, 0.9 * math.sin(t), 0.2 * math.sin(1.7 * t))
        for t in times
    ]


def driving(images: int) -> list[Pose]:
    """A camera that moves straight ahead, and never turns."""
    return [pose_at(-2.5 + 0.12 * index, 0.2, 1.2) for index in range(images)]


def stamped(images: Iterable[NDArray[np.uint8]]) -> list[StampedImage]:
    return [
        StampedImage(index, index * STEP_NS, image, intrinsics=CAMERA)
        for index, image in enumerate(images)
    ]


@cache
def views(poses: tuple[Pose, ...]) -> tuple[NDArray[np.uint8], ...]:
    return tuple(room().view(pose) for pose in poses)


def film(poses: Sequence[Pose]) -> list[StampedImage]:
    return stamped(views(tuple(poses)))


def surface() -> NDArray[np.uint8]:
    return Room(9).view(pose_at(0, 0, 1.2))


def with_parts(images: Sequence[StampedImage], shape: str = 'gripper') -> list[StampedImage]:
    return list(with_own_parts(images, shape, surface()))


def found_in(images: Iterable[StampedImage], parts: FixedParts | None = None) -> FixedParts:
    parts = parts or FixedParts()
    for image in images:
        parts.update(View(image.image), image)
    return parts


def cells_of(shape: str, like: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Share of each cell that the parts cover."""
    mask = own_parts(shape, *SIZE).astype(np.float32)
    cells = cv2.resize(mask, like.shape[::-1], interpolation=cv2.INTER_AREA)
    return np.asarray(cells, np.float32)


@pytest.mark.parametrize('shape', ['gripper', 'hood', 'tool'])
def test_parts_are_found_after_a_few_images_and_nothing_beside_them(shape: str) -> None:
    parts = found_in(with_parts(film(looking_around(24)), shape))
    assert parts.cells is not None
    assert parts.since_index is not None
    assert parts.since_index < 15
    true = cells_of(shape, parts.cells)
    assert (parts.cells & (true > 0.9)).sum() > 0.8 * (true > 0.9).sum()
    assert (parts.cells & (true < 0.1)).sum() <= 0.05 * parts.cells.sum()
    assert f'{parts.cells.mean():.0%} of the image' in parts.text()


def test_the_same_images_give_the_same_parts() -> None:
    images = with_parts(film(looking_around(24)))
    one, other = (found_in(images).cells for _ in range(2))
    assert one is not None
    assert np.array_equal(one, other if other is not None else [])


def test_an_empty_room_has_no_parts() -> None:
    assert found_in(film(looking_around(24))).cells is None
    assert found_in(film(driving(24))).cells is None


def test_a_camera_that_stands_still_gives_no_evidence_however_much_moves_before_it() -> None:
    still = film([pose_at(0, 0, 1.2)])[0].image
    thing = Room(5).view(pose_at(0, 0, 1.2))
    images = []
    for index in range(30):
        image = still.copy()
        # Something that fills more than half of the view goes to and fro, near and far.
        size = 200 + round(30 * math.sin(0.7 * index))
        left = min(320 - size, 60 + round(55 * math.sin(0.45 * index)))
        image[240 - size :, left : left + size] = cv2.resize(thing, (size, size))
        images.append(image)
    assert found_in(stamped(images)).cells is None


def test_a_sky_that_stays_while_the_camera_drives_is_not_fixed() -> None:
    sky = Room(7).view(pose_at(0, 0, 1.2))
    images = [image.image.copy() for image in film(driving(24))]
    for image in images:
        image[:90] = sky[:90]
    assert found_in(stamped(images)).cells is None


def test_a_sky_that_moves_as_the_camera_turns_is_not_fixed() -> None:
    poses = looking_around(24)
    far = [Room(7).view(pose_at(0, 0, 1.2, *yaw_pitch_roll(p.rotation())[:2])) for p in poses]
    images = [image.image.copy() for image in film(poses)]
    for image, sky in zip(images, far, strict=True):
        image[:90] = sky[:90]
    assert found_in(stamped(images)).cells is None


def test_a_person_who_walks_along_is_not_fixed() -> None:
    person = surface()[40:220, 100:180]
    images = [image.image.copy() for image in film(looking_around(30))]
    for index, image in enumerate(images):
        # Steps sway, and nobody keeps a distance to the pixel.
        x = 120 + round(10 * math.sin(1.3 * index) + 8 * math.sin(0.31 * index))
        y = 40 + round(5 * math.sin(2.6 * index))
        image[y : y + 180, x : x + 80] = person
    assert found_in(stamped(images)).cells is None


def test_the_dark_edge_of_a_straightened_image_is_not_fixed() -> None:
    images = [image.image.copy() for image in film(looking_around(24))]
    for image in images:
        image[-3:] = 0
        image[:, -3:] = 0
    assert found_in(stamped(images)).cells is None


def test_parts_that_go_are_forgotten() -> None:
    poses = looking_around(60)
    images = [*with_parts(film(poses[:24])), *film(poses)[24:]]
    parts = found_in(images[:24])
    assert parts.cells is not None
    assert found_in(images[24:], parts).cells is None


def test_a_new_stream_of_the_camera_keeps_its_parts() -> None:
    keyframer = Keyframer()
    for image in with_parts(film(looking_around(24))):
        keyframer.process(image)
    known = keyframer.selector.fixed_parts.cells
    keyframer.reset()
    assert known is not None
    assert keyframer.selector.fixed_parts.cells is known


def yaws(images: Sequence[StampedImage], poses: Sequence[Pose], mask: str = '') -> list[float]:
    """Errors of the yaw between keyframes [deg]; what is not told is wrong by 180."""
    config = KeyframeConfig(max_interval_s=0.4, mask=mask)
    keyframer, chosen = Keyframer(config), []
    for image, pose in zip(images, poses, strict=True):
        _, keyframe = keyframer.process(image)
        if keyframe:
            chosen.append((keyframe, pose))
    errors = []
    for (_, before), (keyframe, after) in pairwise(chosen):
        rotation, _ = relative_motion(before, after)
        true = yaw_pitch_roll(rotation)[0]
        told = keyframe.motion.yaw_rad if keyframe.motion else math.pi
        errors.append(math.degrees(abs(told - true)))
    return errors


def test_motion_is_right_with_parts_in_every_image(tmp_path: Path) -> None:
    poses = looking_around(40)
    images = with_parts(film(poses), 'hood')
    assert np.mean(np.array(yaws(images, poses)[4:]) < 5) > 0.8
    assert np.mean(np.array(yaws(images, poses, mask_file(tmp_path, 'hood'))) < 5) > 0.9


def test_overlap_is_that_of_what_the_parts_leave() -> None:
    first, second = (View(image.image) for image in film([pose_at(0, 0, 1.2), turned(0.9)]))
    without = two_view(first, second).overlap
    images = with_parts(film([pose_at(0, 0, 1.2), turned(0.9)]), 'hood')
    first, second = (View(image.image) for image in images)
    cells = cells_of('hood', np.zeros((30, 40), bool)) > 0.3
    for each in (first, second):
        each.leave_out(cells)
    overlap = two_view(first, second).overlap
    assert without is not None
    assert overlap is not None
    assert abs(overlap - without) < 0.1
    first, second = (View(image.image) for image in images)
    unmasked = two_view(first, second).overlap
    assert unmasked is None or abs(unmasked - without) > abs(overlap - without)


def turned(yaw: float) -> Pose:
    return pose_at(0, 0, 1.2, yaw)


def mask_file(folder: Path, shape: str, size: tuple[int, int] = SIZE, name: str = 'm.png') -> str:
    path = folder / name
    cv2.imwrite(str(path), own_parts(shape, *size).astype(np.uint8) * 255)
    return str(path)


def test_a_mask_is_taken_as_it_is(tmp_path: Path) -> None:
    parts = found_in(film(looking_around(2)), FixedParts(mask_file(tmp_path, 'tool')))
    assert parts.cells is not None
    assert np.array_equal(parts.cells, cells_of('tool', parts.cells) > 0.3)
    assert 'm.png' in parts.text()
    packed = parts.packed()
    assert packed is not None
    assert np.array_equal(packed.unpack(*SIZE), own_parts('tool', *SIZE))


@pytest.mark.parametrize(
    ('make', 'says'),
    [
        (lambda folder: str(folder / 'none.png'), 'No such file'),
        (lambda folder: mask_file(folder, 'hood', name='m.jpg'), 'no PNG'),
        (lambda folder: broken(folder), 'cannot be read'),
        (lambda folder: white(folder), '100%'),
    ],
)
def test_a_mask_that_cannot_be_used_is_refused(make: object, says: str, tmp_path: Path) -> None:
    assert callable(make)
    with pytest.raises(ConfigError, match=says):
        FixedParts(make(tmp_path))


def broken(folder: Path) -> str:
    path = Path(mask_file(folder, 'hood'))
    path.write_bytes(path.read_bytes()[:60])
    return str(path)


def white(folder: Path) -> str:
    path = folder / 'white.png'
    cv2.imwrite(str(path), np.full((240, 320), 255, np.uint8))
    return str(path)


def test_a_mask_of_another_size_is_refused(tmp_path: Path) -> None:
    parts = FixedParts(mask_file(tmp_path, 'hood', (640, 480)))
    with pytest.raises(ConfigError, match='640x480: expected 320x240'):
        found_in(film(looking_around(1)), parts)


def test_items_on_the_parts_are_left_out() -> None:
    mask = np.zeros((30, 40), bool)
    mask[20:] = True
    own, other = (
        Item('cup', ItemStatus.VISIBLE, 0.0, 0.0, box=box)
        for box in ((0.1, 0.7, 0.4, 1.0), (0.1, 0.1, 0.4, 0.5))
    )
    assert outside_fixed([own, other], pack_mask(mask)) == [other]
    assert outside_fixed([own, other], None) == [own, other]
