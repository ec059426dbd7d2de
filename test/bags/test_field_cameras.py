# SPDX-License-Identifier: Apache-2.0
"""Cameras as they are recorded: calibrations, encodings, damaged images, mounts, names."""

from __future__ import annotations

from functools import partial
from itertools import islice
import math
import os
from pathlib import Path
import shutil
import struct
import sys
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.images import raw_image
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    camera_of_info,
    intrinsics_from_camera_info,
    UncalibratedError,
)
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.core.pipeline import classical_perceiver, perceive_images
from embodied_r_ros.core.types.deltas import rounded_degrees
from embodied_r_ros.core.types.geometry import Intrinsics, rays_of_pixels
from embodied_r_ros.core.types.images import decode_image, encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import keyframe_from_msg, keyframe_to_msg
import numpy as np
import pytest

from test.bags.recordings import (
    camera_info,
    COUNT,
    IMAGE,
    image,
    INFO,
    LEFT_OPTICAL,
    MS,
    ODOMETRY,
    odometry,
    OPTICAL,
    pack,
    STEP_DEG,
    T0_NS,
    times,
    TOPIC,
    TRANSFORMS,
    transforms,
    turning,
    view,
    write_bag,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.core.types.images import StampedImage
    from numpy.typing import NDArray

    from test.bags.recordings import Message

PIXELS = view(0.0)


def read(path: Path) -> list[StampedImage]:
    with open_source(path) as source:
        return list(source)


def first_delta(path: Path) -> SemanticDelta:
    """The delta of the first keyframe after the start."""
    with open_source(path) as source:
        return next(islice(perceive_images(source, classical_perceiver()), 1, None))


def first_action(path: Path) -> str:
    """How the camera moved to its first keyframe after the start."""
    return first_delta(path).action


def infos(after_ns: int = -1, **about: Any) -> list[Message]:
    """A camera_info beside each image."""
    return [('/cam/camera_info', INFO, ns + after_ns, camera_info(ns, **about)) for ns in times()]


LENS = (-0.30, 0.09, 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ('topic', 'about'),
    [
        (TOPIC, {}),
        (TOPIC, {'size': (640, 480), 'f': 320.0, 'binning': 2}),
        (TOPIC, {'size': (640, 480), 'f': 320.0}),
        (TOPIC, {'size': (0, 0), 'f': 160.0}),
        (TOPIC, {'size': (1280, 960), 'f': 320.0, 'roi': (320, 240, 640, 480), 'binning': 2}),
        (TOPIC, {'f': math.nan, 'd': (math.nan,) * 5}),
        (TOPIC, {'f': 0.0}),
        ('/cam/image_rect', {'d': LENS}),
        ('/cam/image_rect', {'d': LENS, 'f': 190.0, 'p': 160.0}),
        (
            '/cam/image_rect_color',
            {'d': (0.01, 0.0, 0.0, 0.0), 'model': 'equidistant', 'f': 190.0, 'p': 160.0},
        ),
        (TOPIC, {'d': (0.01, 0.0, 0.0, 0.0), 'model': 'equidistant'}),  # rectified already
    ],
)
def test_a_turn_is_what_it_was_whatever_camera_info_states(
    tmp_path: Path, topic: str, about: dict[str, Any]
) -> None:
    if about.get('size') == (0, 0):
        about = {**about, 'size': (320, 240)}
        messages = infos(**about)
        for message in messages:
            message[3].width = message[3].height = 0
    else:
        messages = infos(**about)
    delta = first_delta(write_bag(tmp_path / 'bag', turning(topic) + messages))
    turned_deg = STEP_DEG * times().index(delta.stamp_ns)
    assert delta.action == f'turned left {rounded_degrees(math.radians(turned_deg))}°'


def test_a_turn_of_a_fisheye_is_what_it_was(tmp_path: Path) -> None:
    seen = turning(fisheye=True, f=120.0)
    lens = infos(f=120.0, d=(0.0, 0.0, 0.0, 0.0), model='equidistant')
    action = first_action(write_bag(tmp_path / 'bag', seen + lens))
    assert action.startswith('turned left')
    degrees = int(action.removeprefix('turned left ').removesuffix('°'))
    # Turns are told to five degrees; keyframes are a whole number of steps apart.
    assert min(abs(degrees - STEP_DEG * n) for n in range(1, COUNT)) <= 2.5


@pytest.mark.parametrize('late', [2 * MS, 1200 * MS])
def test_the_calibration_of_a_bag_holds_for_the_images_before_it(
    tmp_path: Path, late: int
) -> None:
    [info] = infos(late, f=320.0)[:1]
    bag = write_bag(tmp_path / 'bag', [*turning(f=320.0, step_deg=2.0), info])
    assert {image.intrinsics.fx for image in read(bag) if image.intrinsics} == {320.0}
    assert all(image.intrinsics for image in read(bag))


def test_the_calibration_of_another_camera_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for frame, is_used in (('other_eye', False), ('eye', True)):
        lens = [('/depth/camera_info', INFO, T0_NS, camera_info(T0_NS, frame=frame))]
        bag = write_bag(tmp_path / frame, turning('/color/image_raw') + lens)
        assert bool(read(bag)[0].intrinsics) == is_used
    assert "none or several of /depth/camera_info have its frame 'eye'" in caplog.text


def test_images_that_cannot_be_of_the_sensor_are_refused() -> None:
    info = camera_info(T0_NS, size=(640, 480))
    with pytest.raises(ImageError, match='is of 640x480, the image 320x100'):
        camera_of_info(info, (320, 100))
    with pytest.raises(UncalibratedError, match="the lens 'double_sphere' with 6"):
        camera_of_info(camera_info(T0_NS, d=(0.1,) * 6, model='double_sphere'))
    empty = camera_info(T0_NS)
    empty.width = empty.height = 0
    with pytest.raises(UncalibratedError, match='states a size of 0x0'):
        camera_of_info(empty)


def test_an_equidistant_lens_survives_its_messages() -> None:
    factory = BagMessageFactory()
    lens = Intrinsics(320, 240, 160.0, 160.0, 159.5, 119.5, (0.1, 0.0, -0.02, 0.0))
    assert intrinsics_from_camera_info(camera_info_to_msg(factory, 1, 'eye', lens)) == lens
    keyframe = Keyframe(0, 1, encode_image(PIXELS), KeyframeReason.ROLL, -1, intrinsics=lens)
    assert keyframe_from_msg(keyframe_to_msg(factory, keyframe)).intrinsics == lens
    corner = np.array([[0.0, 0.0]])
    [(_, left, up)] = rays_of_pixels(lens, corner)
    [(_, left_of_pinhole, _)] = rays_of_pixels(
        Intrinsics(320, 240, 160.0, 160.0, 159.5, 119.5), corner
    )
    assert left > left_of_pinhole > 0
    assert up > 0


def nv12(pixels: NDArray[np.uint8], *, swapped: bool) -> NDArray[np.uint8]:
    """Luma, and below it both chromas side by side, blue first or swapped."""
    planes = cv2.cvtColor(pixels, cv2.COLOR_BGR2YUV_I420)
    height, width = pixels.shape[:2]
    u, v = planes[height:].reshape(2, height // 2, width // 2)
    pair = (v, u) if swapped else (u, v)
    return np.vstack([planes[:height], np.stack(pair, -1).reshape(height // 2, width)])


def mosaic(pixels: NDArray[Any], pattern: str) -> NDArray[Any]:
    """What a sensor behind a Bayer filter sees; the pattern is its upper left square."""
    result = np.empty(pixels.shape[:2], pixels.dtype)
    for index, colour in enumerate(pattern):
        row, column = divmod(index, 2)
        result[row::2, column::2] = pixels[row::2, column::2, 'bgr'.index(colour)]
    return result


@pytest.mark.parametrize(
    ('encoding', 'pixels', 'height'),
    [
        ('BGR8', PIXELS, 240),
        ('8UC3', PIXELS, 240),
        ('RGBA8', cv2.cvtColor(PIXELS, cv2.COLOR_BGR2RGBA), 240),
        ('nv12', nv12(PIXELS, swapped=False), 240),
        ('NV21', nv12(PIXELS, swapped=True), 240),
        ('i420', cv2.cvtColor(PIXELS, cv2.COLOR_BGR2YUV_I420), 240),
        ('rgb16', cv2.cvtColor(PIXELS, cv2.COLOR_BGR2RGB).astype(np.uint16) * 257, 240),
        ('bgr16', 1000 + PIXELS.astype(np.uint16) * 8, 240),
        ('bayer_rggb8', mosaic(PIXELS, 'rggb'), 240),
        ('bayer_grbg8', mosaic(PIXELS, 'grbg'), 240),
        ('bayer_bggr16', mosaic(PIXELS, 'bggr').astype(np.uint16) * 16, 240),
        ('bayer_gbrg16', mosaic(PIXELS, 'gbrg').astype(np.uint16) * 16, 240),
    ],
)
def test_encodings_keep_what_is_seen(encoding: str, pixels: Any, height: int) -> None:
    seen = raw_image(image(T0_NS, pixels, encoding, height)).astype(float)
    assert seen.shape == PIXELS.shape
    for channel in range(3):
        expected, got = PIXELS[..., channel].ravel(), seen[..., channel].ravel()
        assert np.corrcoef(expected, got)[0, 1] > 0.85


@pytest.mark.parametrize('topic', ['/thermal/image_raw', '/cam/mono/image_raw'])
def test_deep_grey_images_are_stretched_by_their_stream(tmp_path: Path, topic: str) -> None:
    grey = cv2.cvtColor(PIXELS, cv2.COLOR_BGR2GRAY).astype(np.uint16)
    messages = [
        (topic, IMAGE, ns, image(ns, 7000 + grey * (i + 1), '16UC1'))
        for i, ns in enumerate(times())
    ]
    images = [each.image for each in read(write_bag(tmp_path / 'bag', messages))]
    assert all(np.ptp(pixels) > 100 for pixels in images)
    # The range only grows: the same heat is never brighter in a later image.
    first = raw_image(messages[0][3], topic)
    assert np.array_equal(images[0], first)
    flat = [(topic, IMAGE, ns, image(ns, np.full_like(grey, 7000), '16UC1')) for ns in times()]
    assert np.ptp(read(write_bag(tmp_path / 'flat', flat))[0].image) == 0


def jpeg(_: int, pixels: NDArray[np.uint8]) -> bytes:
    return encode_image(pixels).data


def without_huffman_tables(data: bytes) -> bytes:
    """MJPEG, as UVC cameras send it."""
    result, at = bytearray(data[:2]), 2
    while data[at + 1] != 0xDA:
        length = int.from_bytes(data[at + 2 : at + 4], 'big') + 2
        if data[at + 1] != 0xC4:
            result += data[at : at + length]
        at += length
    return bytes(result + data[at:])


def turned_by_exif(data: bytes) -> bytes:
    """A JPEG whose EXIF orientation says that it is to be turned by 90 degrees."""
    tag = struct.pack('<HHII', 0x0112, 3, 1, 6)
    body = b'Exif\0\0' + b'II*\0' + struct.pack('<IH', 8, 1) + tag + struct.pack('<I', 0)
    return data[:2] + b'\xff\xe1' + struct.pack('>H', len(body) + 2) + body + data[2:]


def packed_anew(data: bytes, suffix: str) -> bytes:
    """An image in another format."""
    return bytes(cv2.imencode(suffix, decode_image(data))[1])


@pytest.mark.parametrize(
    'make',
    [
        lambda data: data + bytes(5000),
        without_huffman_tables,
        turned_by_exif,
        partial(packed_anew, suffix='.webp'),
        partial(packed_anew, suffix='.bmp'),
        partial(packed_anew, suffix='.tiff'),
    ],
)
def test_images_of_many_formats_are_decoded(
    tmp_path: Path, make: Callable[[bytes], bytes]
) -> None:
    bag = write_bag(tmp_path / 'bag', pack(lambda _, pixels: make(encode_image(pixels).data)))
    images = read(bag)
    assert [each.stamp_ns for each in images] == times()
    for index in (0, 9):
        expected = view(index * STEP_DEG).astype(float)
        assert np.abs(images[index].image - expected).mean() < 8


@pytest.mark.parametrize('broken', [b'', b'\xff\xd8\xff\xe0 cut off', b'nonsense'])
def test_a_damaged_image_is_left_out_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, broken: bytes
) -> None:
    bag = write_bag(
        tmp_path / 'bag', pack(lambda i, pixels: broken if i == 7 else jpeg(i, pixels))
    )
    images = read(bag)
    assert [each.index for each in images] == [i for i in range(COUNT) if i != 7]
    assert f'1 of {COUNT} images of topic {TOPIC}/compressed cannot be decoded' in caplog.text
    assert 'the first: image 7: ' in caplog.text


@pytest.mark.parametrize('place', [0, 7, COUNT - 1])
@pytest.mark.parametrize('encoding', ['', 'bgr8'])
def test_an_image_without_pixels_is_left_out_like_any_damaged_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, place: int, encoding: str
) -> None:
    messages: list[Any] = turning()
    messages[place][3].encoding = encoding
    messages[place][3].height = messages[place][3].width = messages[place][3].step = 0
    messages[place][3].data = np.zeros(0, np.uint8)
    with open_source(write_bag(tmp_path / 'a', messages)) as source:
        read = [image.stamp_ns for image in source]
    assert read == [*times()[:place], *times()[place + 1 :]]
    assert f'1 of {COUNT} images of topic {TOPIC} cannot be decoded' in caplog.text


def packed(pixels: Any) -> bytes:
    """A JPEG of any number of channels."""
    return cv2.imencode('.jpg', pixels, [cv2.IMWRITE_JPEG_QUALITY, 98])[1].tobytes()


@pytest.mark.parametrize('pattern', ['rggb', 'bggr', 'gbrg', 'grbg'])
@pytest.mark.parametrize('text', ['{0}; jpeg compressed ', '{0}; jpeg compressed {0}'])
def test_a_jpeg_of_a_mosaic_has_the_colours_that_its_format_says(
    tmp_path: Path, pattern: str, text: str
) -> None:
    seen = view(0.0)
    messages = pack(
        lambda _, pixels: packed(mosaic(pixels, pattern)), text.format(f'bayer_{pattern}8')
    )
    with open_source(write_bag(tmp_path / 'a', messages)) as source:
        first = next(iter(source))
    assert first.encoded is None
    assert np.abs(first.image.astype(int) - seen).mean() < 8


@pytest.mark.parametrize('is_colour', [True, False])
def test_a_jpeg_whose_colours_were_made_is_left_as_it_is(
    tmp_path: Path, *, is_colour: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def make(_: int, pixels: Any) -> bytes:
        return packed(pixels if is_colour else cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY))

    messages = pack(make, 'bayer_rggb8; jpeg compressed bgr8')
    with open_source(write_bag(tmp_path / 'a', messages)) as source:
        first = next(iter(source))
    assert first.encoded
    assert 'mosaic' not in caplog.text


@pytest.mark.parametrize('text', ['jpeg', 'mono8; jpeg compressed ', 'bayer8; jpeg compressed '])
def test_a_mosaic_whose_pattern_is_not_known_is_named(
    tmp_path: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    messages = pack(lambda _, pixels: packed(mosaic(pixels, 'rggb')), text)
    with open_source(write_bag(tmp_path / 'a', messages)) as source:
        assert len(list(source)) == COUNT
    assert caplog.text.count('look like a Bayer mosaic') == 1


def test_many_damaged_images_are_no_recording(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'a', pack(lambda i, pixels: b'' if i % 2 else jpeg(i, pixels)))
    with pytest.raises(SourceError, match=r'\d of the first \d images .*; image 1'):
        read(bag)
    bag = write_bag(tmp_path / 'b', pack(lambda i, pixels: b'')[:1])
    with pytest.raises(SourceError, match='1 of the first 1 images'):
        read(bag)


def depth_png(_: int, pixels: NDArray[np.uint8]) -> bytes:
    return cv2.imencode('.png', pixels[..., 0].astype(np.uint16) * 20)[1].tobytes()


@pytest.mark.parametrize(
    ('text', 'message'),
    [
        ('16UC1; png compressed ', 'is depth'),
        ('16UC1; compressedDepth png', 'is depth'),
        ('h264', 'is a h264 video'),
    ],
)
def test_what_is_no_picture_in_compressed_images_is_named(
    tmp_path: Path, text: str, message: str
) -> None:
    bag = write_bag(tmp_path / 'bag', pack(depth_png, text))
    with pytest.raises(SourceError, match=rf'compressed format .{text}. {message}'):
        read(bag)


def test_a_png_of_16_bits_is_stretched() -> None:
    deep = 3000 + PIXELS[..., 0].astype(np.uint16)
    image = decode_image(cv2.imencode('.png', deep)[1].tobytes())
    assert np.ptp(image) == 255


@pytest.mark.parametrize('suffix', ['.webp', '.bmp', '.tiff'])
def test_a_claim_of_too_many_pixels_is_refused(suffix: str) -> None:
    data = bytearray(cv2.imencode(suffix, PIXELS, [cv2.IMWRITE_WEBP_QUALITY, 101])[1].tobytes())
    if suffix == '.bmp':
        data[18:26] = struct.pack('<ii', 60_000, 60_000)
    elif suffix == '.webp':
        data[21:25] = struct.pack('<I', 0x3FFF | 0x3FFF << 14)
    else:
        at = int.from_bytes(data[4:8], 'little')
        for entry in range(int.from_bytes(data[at : at + 2], 'little')):
            place = at + 2 + 12 * entry
            if int.from_bytes(data[place : place + 2], 'little') in {256, 257}:
                data[place + 2 : place + 12] = struct.pack('<HII', 4, 1, 60_000)
    with pytest.raises(ImageError, match=r'claims .* at most'):
        decode_image(bytes(data))


def drive(*, stamped: bool = True) -> list[Message]:
    """Odometry of a base that drives straight on, 1 m in the time of all images."""
    return [
        ('/odom', ODOMETRY, ns, odometry(ns if stamped else 0, (ns - T0_NS) / 2.4e9))
        for ns in range(T0_NS - 200 * MS, T0_NS + 2600 * MS, 25 * MS)
    ]


def mount(turn: tuple[float, ...], child: str = 'eye') -> list[Message]:
    msg = transforms(T0_NS, 'base_link', child, (0.1, 0.0, 0.3), turn)
    return [('/tf_static', TRANSFORMS, T0_NS - 250 * MS, msg)]


def sideways() -> list[Message]:
    """Images of a camera past which things go to the left."""
    wide = view(0.0, width=640)
    return [
        (TOPIC, IMAGE, ns, image(ns, np.roll(wide, -12 * i, 1)[:, :320]))
        for i, ns in enumerate(times())
    ]


def moving_tf(*, stamped: bool = True, shuffled: bool = False) -> list[Message]:
    still = (0.0, 0.0, 0.0, 1.0)
    stamps = list(range(T0_NS - 200 * MS, T0_NS + 2600 * MS, 25 * MS))
    arrivals = stamps.copy()
    if shuffled:  # each pair comes the other way round
        arrivals[::2], arrivals[1::2] = stamps[1::2], stamps[::2]
    return [
        (
            '/tf',
            TRANSFORMS,
            arrival,
            transforms(
                ns if stamped else 0, 'odom', 'base_link', ((ns - T0_NS) / 2.4e9, 0.0, 0.0), still
            ),
        )
        for ns, arrival in zip(stamps, arrivals, strict=True)
    ]


@pytest.mark.parametrize(
    'poses',
    [
        drive(stamped=False) + mount(LEFT_OPTICAL),
        drive() + mount(LEFT_OPTICAL),
        moving_tf() + mount(LEFT_OPTICAL),
        moving_tf(shuffled=True) + mount(LEFT_OPTICAL),
        moving_tf(stamped=False) + mount(LEFT_OPTICAL),
    ],
    ids=['odometry without stamps', 'odometry', 'tf', 'tf out of order', 'tf without stamps'],
)
def test_a_camera_that_looks_to_the_left_moves_to_the_right(
    tmp_path: Path, poses: list[Message]
) -> None:
    action = first_action(write_bag(tmp_path / 'bag', sideways() + poses))
    assert action.startswith('moved right 0.')


def test_transforms_that_contradict_the_odometry_prove_no_pose(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    elsewhere = transforms(T0_NS, 'other_robot', 'eye', (0.0, 0.0, 0.0), OPTICAL)
    static = [('/tf_static', TRANSFORMS, T0_NS - 250 * MS, elsewhere)]
    images = read(write_bag(tmp_path / 'bag', turning() + drive() + static))
    assert not any(each.pose for each in images)
    assert f'{COUNT} of {COUNT} images of topic {TOPIC} have no pose: transforms do not say' in (
        caplog.text
    )


def test_several_odometries_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    second = [('/wheel/odom', *rest) for _, *rest in drive()]
    read(write_bag(tmp_path / 'bag', turning() + drive() + second))
    assert 'several topics have some (/odom, /wheel/odom)' in caplog.text


@pytest.mark.parametrize(
    'names',
    [
        [f'{1_700_000_000 + i * 0.125}.png' for i in range(12)],
        [f'rgb_{1_700_000_000 + i * 0.125}_left.png' for i in range(12)],
        [f'image{i}.png' for i in range(12)],
        [f'①{i:02d}.png' for i in range(12)],
        [f'v1.{i}.png' for i in range(12)],
        [f'٣{i:02d}.JPG' for i in range(12)],
    ],
)
def test_images_of_a_folder_are_in_the_order_of_their_names(
    tmp_path: Path, names: list[str]
) -> None:
    for index, name in enumerate(names):
        flat = np.full((24, 32, 3), 20 * index, np.uint8)
        (tmp_path / name).write_bytes(cv2.imencode('.png', flat)[1].tobytes())
    assert [round(each.image.mean() / 20) for each in read(tmp_path)] == list(range(12))


def test_links_and_folders_named_like_images_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for index in range(3):
        cv2.imwrite(str(tmp_path / f'{index}.tif'), PIXELS)
    (tmp_path / '4.png').symlink_to(tmp_path / 'gone.png')
    (tmp_path / '5.png').mkdir()
    assert len(read(tmp_path)) == 3
    assert '2 of 5 images of' in caplog.text
    assert 'folders or broken links; the first: 4.png' in caplog.text


def test_a_photo_of_a_folder_is_turned_upright(tmp_path: Path) -> None:
    (tmp_path / 'a.jpg').write_bytes(turned_by_exif(encode_image(PIXELS).data))
    [photo] = read(tmp_path)
    assert photo.image.shape == (320, 240, 3)
    assert photo.encoded is None


def test_a_pointer_in_a_folder_is_named(tmp_path: Path) -> None:
    pointer = b'version https://git-lfs.github.com/spec/v1\n'
    (tmp_path / 'a.png').write_bytes(pointer)
    with pytest.raises(SourceError, match='run `git lfs pull`'):
        read(tmp_path)
    (tmp_path / 'v.mp4').write_bytes(pointer)
    with pytest.raises(SourceError, match='run `git lfs pull`'):
        read(tmp_path / 'v.mp4')


def write_video(path: Path, codec: str = 'mpeg4') -> Path:
    av = pytest.importorskip('av')
    with av.open(str(path), 'w', format='mp4') as container:
        stream = container.add_stream(codec, rate=10)
        stream.width, stream.height = 320, 240
        for index in range(COUNT):
            frame = av.VideoFrame.from_ndarray(view(index * STEP_DEG), format='bgr24')
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize(
    'name', ['2026-01-31T10:15:00.mp4', '100% %d done.mp4', 'run#2?.mp4', 'Küche ①.mp4']
)
def test_any_name_of_a_video_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    plain = write_video(tmp_path / 'plain.mp4')
    shutil.copy(plain, tmp_path / name)
    assert len(read(tmp_path / name)) == COUNT
    monkeypatch.chdir(tmp_path)
    assert len(read(Path(name))) == COUNT


def test_codecs_that_opencv_lacks_are_decoded_or_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    av = pytest.importorskip('av')
    try:
        # Not libsvtav1: run by root, it gives the process that calls it real-time priority.
        av.codec.Codec('libaom-av1', 'w')
    except av.codec.codec.UnknownCodecError:
        pytest.skip('no encoder of AV1')
    path = write_video(tmp_path / 'v.mp4', 'libaom-av1')
    assert os.sched_getscheduler(0) == os.SCHED_OTHER
    images = read(path)
    assert [each.stamp_ns for each in images] == [i * 100 * MS for i in range(COUNT)]
    monkeypatch.setitem(sys.modules, 'av', None)
    if cv2.VideoCapture(str(path)).read()[0]:
        pytest.skip('this OpenCV decodes AV1')
    with pytest.raises(SourceError, match="of codec 'AV01', which this OpenCV cannot decode"):
        read(path)


def test_a_real_bag_of_ros_1_tells_its_motion(footage: Path) -> None:
    bags = sorted((footage / 'real').glob('ros1*/*.bag'))
    if not bags:
        pytest.skip('the footage has no bag of ROS 1')
    with open_bag(bags[0]) as reader:
        topics = {c.topic for c in reader.connections if c.msgtype == ODOMETRY}
        found = [msg.header.stamp.sec for _, _, msg in read_messages(reader, topics)]
        assert len(found) == sum(reader.topics[topic].msgcount for topic in topics) > 100
        assert max(found) - min(found) == pytest.approx(61, abs=3)
