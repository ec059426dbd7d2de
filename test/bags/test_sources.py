# SPDX-License-Identifier: Apache-2.0
"""Videos, folders and bags give images with the right stamps; what is none of them is named."""

from __future__ import annotations

import math
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    encoded_image_to_msg,
    header_to_msg,
    odometry_to_msg,
)
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.common.errors import BagError, InputError, SourceError
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import encode_image, EncodedImage, StampedImage
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SECOND_NS = 1_000_000_000
T0_NS = 1_700_000_000_005_000_001  # 5 ms and 1 ns: what a float epoch loses
CAMERA = Intrinsics(64, 48, 60.0, 61.0, 31.5, 23.5)
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
FACTORY = BagMessageFactory()


def picture(brightness: int) -> NDArray[np.uint8]:
    return np.full((48, 64, 3), brightness, np.uint8)


def write_video(path: Path, rate_hz: float, count: int = 5) -> Path:
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), rate_hz, (64, 48))
    for index in range(count):
        writer.write(picture(40 * index))
    writer.release()
    return path


def write_folder(path: Path, names: list[str]) -> Path:
    path.mkdir()
    for index, name in enumerate(names):
        cv2.imwrite(str(path / name), picture(40 * index))
    return path


def raw_msg(stamp_ns: int, image: NDArray[np.uint8], encoding: str = 'bgr8') -> Any:
    return FACTORY.make(
        'sensor_msgs/msg/Image',
        header=header_to_msg(FACTORY, stamp_ns, 'eye'),
        height=image.shape[0],
        width=image.shape[1],
        encoding=encoding,
        is_bigendian=0,
        step=image.shape[1] * 3,
        data=image.ravel(),
    )


def write_bag(path: Path, *, images: int = 4, encoding: str = 'bgr8') -> Path:
    """A bag whose messages arrive a second after they were stamped."""
    with BagWriter(path) as bag:
        bag.add_topic('/cam/image_raw', 'sensor_msgs/msg/Image')
        bag.add_topic('/cam/camera_info', 'sensor_msgs/msg/CameraInfo')
        bag.add_topic('/odom', 'nav_msgs/msg/Odometry')
        bag.write('/cam/camera_info', camera_info_to_msg(FACTORY, T0_NS, 'eye', CAMERA), T0_NS)
        for index in range(images):
            stamp_ns = T0_NS + index * SECOND_NS // 10
            received_ns = stamp_ns + SECOND_NS
            bag.write('/cam/image_raw', raw_msg(stamp_ns, picture(index), encoding), received_ns)
            pose = Pose((index + 0.5, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            between_ns = stamp_ns + SECOND_NS // 20
            odometry = odometry_to_msg(FACTORY, between_ns, pose, 'base_link', STILL)
            bag.write('/odom', odometry, received_ns + SECOND_NS // 20)
    return path


def read(path: Path, **arguments: Any) -> list[StampedImage]:
    with open_source(path, **arguments) as source:
        return list(source)


@pytest.mark.parametrize('rate_hz', [0.5, 5.0, 29.97])
def test_video_images_keep_their_times(tmp_path: Path, rate_hz: float) -> None:
    images = read(write_video(tmp_path / 'v.mp4', rate_hz))
    expected = [index / rate_hz for index in range(5)]
    assert [image.stamp_ns / 1e9 for image in images] == pytest.approx(expected, abs=2e-3)
    assert [round(image.image.mean() / 40) for image in images] == [0, 1, 2, 3, 4]


class LyingCapture:
    """Stands for a container that states nonsense: a fake VideoCapture."""

    def __init__(self, rate_hz: float, own_ms: float, count: float) -> None:
        self.left = 3
        self.answers = {
            cv2.CAP_PROP_FPS: rate_hz,
            cv2.CAP_PROP_POS_MSEC: own_ms,
            cv2.CAP_PROP_FRAME_COUNT: count,
        }

    def isOpened(self) -> bool:  # noqa: N802 - the name of OpenCV's method
        return True

    def read(self) -> tuple[bool, Any]:
        self.left -= 1
        return (True, picture(0)) if self.left >= 0 else (False, None)

    def get(self, what: int) -> float:
        return self.answers[what]

    def release(self) -> None:
        pass


@pytest.mark.parametrize('stated_hz', [0.0, math.nan, -1.0, 1e6])
@pytest.mark.parametrize('own_ms', [0.0, math.nan, math.inf])
def test_absurd_video_rates_fall_back_to_ten_hertz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stated_hz: float, own_ms: float
) -> None:
    path = write_video(tmp_path / 'v.mp4', 5.0)
    monkeypatch.setattr(cv2, 'VideoCapture', lambda *_: LyingCapture(stated_hz, own_ms, 99))
    assert [image.stamp_ns for image in read(path)] == [0, SECOND_NS // 10, SECOND_NS // 5]


@pytest.mark.parametrize('claimed', [99.0, 1.0, 0.0, -5.0, math.nan])
def test_every_image_is_read_whatever_the_container_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, claimed: float
) -> None:
    path = write_video(tmp_path / 'v.mp4', 5.0)
    monkeypatch.setattr(cv2, 'VideoCapture', lambda *_: LyingCapture(10.0, 0.0, claimed))
    assert len(read(path)) == 3


def test_a_given_rate_replaces_the_times_of_a_video(tmp_path: Path) -> None:
    images = read(write_video(tmp_path / 'v.mp4', 5.0), rate_hz=0.5)
    assert [image.stamp_ns for image in images] == [2 * index * SECOND_NS for index in range(5)]


def test_times_that_are_assumed_are_said_to_be(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, video = write_folder(tmp_path / 'f', ['1.png', '2.png']), tmp_path / 'bare.mjpeg'
    _, jpeg = cv2.imencode('.jpg', picture(3))
    video.write_bytes(3 * jpeg.tobytes())
    whole = write_video(tmp_path / 'v.mp4', 5.0)
    for path, rate_hz, has_times in (
        (folder, None, False),
        (folder, 2.0, True),
        (video, None, False),
        (whole, None, True),
    ):
        caplog.clear()
        with open_source(path, rate_hz=rate_hz) as source:
            assert (len(list(source)) > 1, source.has_times) == (True, has_times)
        assert ('has no times' in caplog.text) != has_times


def test_folder_is_read_in_the_order_of_its_numbers(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / 'f', ['image1.png', 'image10.png', 'image2.JPG', '.x.png'])
    (folder / 'notes.txt').write_text('not an image')
    images = read(folder, rate_hz=4.0)
    assert [round(image.image.mean()) for image in images] == [0, 80, 40]
    assert [image.stamp_ns for image in images] == [0, SECOND_NS // 4, SECOND_NS // 2]


def test_jpeg_bytes_are_kept_as_they_came(tmp_path: Path) -> None:
    images = read(write_folder(tmp_path / 'f', ['a.jpg', 'b.png']))
    assert images[0].encoded == EncodedImage((tmp_path / 'f' / 'a.jpg').read_bytes(), 'jpeg')
    assert images[1].encoded is None


@pytest.mark.parametrize('what', ['', 'bag.mcap'])
def test_bag_images_keep_their_header_stamps(tmp_path: Path, what: str) -> None:
    images = read(write_bag(tmp_path / 'bag') / what)
    assert [image.stamp_ns for image in images] == [
        T0_NS + index * SECOND_NS // 10 for index in range(4)
    ]
    assert [image.index for image in images] == [0, 1, 2, 3]
    assert [int(image.image.mean()) for image in images] == [0, 1, 2, 3]
    assert {image.frame_id for image in images} == {'eye'}
    assert {image.intrinsics for image in images} == {CAMERA}


def test_poses_are_interpolated_at_the_stamp_of_the_image(tmp_path: Path) -> None:
    poses = [image.pose for image in read(write_bag(tmp_path / 'bag'))]
    # Odometry lies half way between images; the first image has none before it, but one near.
    assert [pose and pose.position[0] for pose in poses] == pytest.approx([0.5, 1.0, 2.0, 3.0])


def write_late_odometry(path: Path, orientation: tuple[float, float, float, float]) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic('/image', 'sensor_msgs/msg/Image')
        bag.add_topic('/odom', 'nav_msgs/msg/Odometry')
        for index in range(20):
            stamp_ns = T0_NS + index * SECOND_NS
            bag.write('/image', raw_msg(stamp_ns, picture(0)), stamp_ns)
        for index in range(20):
            pose = Pose((0.0, 0.0, 0.0), orientation, 'odom')
            odometry = odometry_to_msg(
                FACTORY, T0_NS + index * SECOND_NS, pose, 'base_link', STILL
            )
            bag.write('/odom', odometry, T0_NS + 60 * SECOND_NS)
    return path


def test_images_do_not_wait_for_ever_for_odometry(tmp_path: Path) -> None:
    images = read(write_late_odometry(tmp_path / 'bag', (0.0, 0.0, 0.0, 1.0)))
    assert [image.index for image in images] == list(range(20))
    assert [image.pose is None for image in images] == [True] * 12 + [False] * 8


def test_odometry_that_is_no_pose_is_left_out(tmp_path: Path) -> None:
    images = read(write_late_odometry(tmp_path / 'bag', (0.0, 0.0, 0.0, 0.0)))
    assert [image.pose for image in images] == [None] * 20


def test_compressed_images_are_decoded_and_kept(tmp_path: Path) -> None:
    encoded = encode_image(picture(77))
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/cam/image/compressed', 'sensor_msgs/msg/CompressedImage')
        message = encoded_image_to_msg(FACTORY, T0_NS, 'eye', encoded)
        bag.write('/cam/image/compressed', message, T0_NS)
    [image] = read(tmp_path / 'bag', topic='cam/image/compressed')
    assert image.encoded == encoded
    assert image.image.mean() == pytest.approx(77, abs=1)


def test_a_missing_stamp_is_replaced_by_the_time_of_receipt(tmp_path: Path) -> None:
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/image', 'sensor_msgs/msg/Image')
        bag.write('/image', raw_msg(0, picture(0)), T0_NS)
    assert [image.stamp_ns for image in read(tmp_path / 'bag')] == [T0_NS]


def two_cameras(path: Path) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic('/left/image', 'sensor_msgs/msg/Image')
        bag.add_topic('/right/image/compressed', 'sensor_msgs/msg/CompressedImage')
    return path


def no_camera(path: Path) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic('/text', 'std_msgs/msg/String')
    return path


def cut_off(path: Path) -> Path:
    file = write_bag(path) / 'bag.mcap'
    file.write_bytes(file.read_bytes()[:2000])
    return path


def unclosed_bag(path: Path) -> Path:
    file = next(write_bag(path).glob('*.mcap'))
    file.write_bytes(file.read_bytes()[:-40])
    return path


def of_bytes(name: str, data: bytes) -> Any:
    def write(path: Path) -> Path:
        path.mkdir()
        (path / name).write_bytes(data)
        return path / name

    return write


def folder_with_damaged_image(path: Path) -> Path:
    write_folder(path, ['a.jpg', 'b.jpg'])
    for file in path.iterdir():
        file.write_bytes(file.read_bytes()[:300])
    return path


@pytest.mark.parametrize(
    ('make', 'arguments', 'message'),
    [
        (lambda path: path, {}, 'does not exist: expected a video'),
        (of_bytes('v.mp4', b''), {}, r'v.mp4 is empty \(0 bytes\)'),
        (of_bytes('v.mp4', bytes(range(256)) * 8), {}, 'cannot be opened as a video'),
        (of_bytes('a.png', b''), {}, 'is a single image: give the folder'),
        (lambda path: path.mkdir() or path, {}, 'has no images: expected files named .*.jpg'),
        (
            folder_with_damaged_image,
            {},
            '2 of the first 2 images of folder .* a.jpg: .* damaged or cut off',
        ),
        (cut_off, {}, 'cannot be read'),
        (unclosed_bag, {}, 'was not closed, or is cut off: .* recover'),
        (of_bytes('x.mcap', b'no bag'), {}, 'cannot be read'),
        (no_camera, {}, 'has no image topic'),
        (two_cameras, {}, '2 image topics .*/left/image, /right/image/compressed'),
        (two_cameras, {'topic': '/up'}, "no image topic '/up': it has /left/image"),
        (two_cameras, {'topic': '/left/image'}, 'bag has no images'),
        (lambda path: write_bag(path, encoding='32FC1'), {}, "encoding '32FC1' is depth, not"),
        (write_bag, {'rate_hz': 5.0}, 'has its own stamps: leave the rate out'),
        (lambda path: write_folder(path, ['a.png']), {'topic': '/x'}, 'leave the topic out'),
        (lambda path: write_folder(path, ['a.png']), {'rate_hz': 0.0}, 'rate 0.0 Hz: expected'),
    ],
)
def test_what_cannot_be_read_is_named(
    tmp_path: Path, make: Any, arguments: dict[str, Any], message: str
) -> None:
    path = make(tmp_path / 'bag')
    with pytest.raises((SourceError, BagError), match=message) as caught:
        read(path, **arguments)
    assert isinstance(caught.value, InputError)


def test_length_is_known_for_a_progress_bar(tmp_path: Path) -> None:
    for path, kind, length in (
        (write_video(tmp_path / 'v.mp4', 5.0), 'video', 5),
        (write_folder(tmp_path / 'f', ['a.png', 'b.png']), 'folder', 2),
        (write_bag(tmp_path / 'bag'), 'bag', 4),
    ):
        with open_source(path) as source:
            assert (source.kind, source.name, source.length) == (kind, path.name, length)
