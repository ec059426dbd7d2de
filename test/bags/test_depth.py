# SPDX-License-Identifier: Apache-2.0
"""Depth of messages and files: every packing, partners by stamp, and what is not registered."""

from __future__ import annotations

import logging
import struct
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.depth import (
    depth_metres,
    depth_to_msg,
    DepthConfig,
    DepthStream,
    NO_DEPTH,
)
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.playback import playable
from embodied_r_ros.bags.sources import DepthSource, open_source
from embodied_r_ros.common.errors import ImageError, SourceError, UnsupportedImageError
from embodied_r_ros.core.types.images import StampedImage
import numpy as np
import pytest

from test.bags.recordings import (
    camera_info,
    COMPRESSED,
    compressed_msg,
    COUNT,
    IMAGE,
    image,
    INFO,
    MS,
    PERIOD_NS,
    T0_NS,
    times,
    turning,
    view,
    write_bag,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from test.bags.recordings import Message

STEPS = (np.arange(24 * 32).reshape(24, 32) * 7).astype(np.uint16)  # [mm], the first is unknown


def png(steps: NDArray[Any]) -> bytes:
    return bytes(cv2.imencode('.png', steps)[1].tobytes())


def rvl(steps: NDArray[np.uint16]) -> bytes:
    """Pack as Wilson's RVL does, number by number."""
    groups: list[int] = []

    def put(value: int) -> None:
        while True:
            value, low = value >> 3, value & 7
            groups.append(low | (8 if value else 0))
            if not value:
                return

    flat = [int(step) for step in steps.ravel()]
    at = previous = 0
    while at < len(flat):
        end = at
        while end < len(flat) and not flat[end]:
            end += 1
        put(end - at)
        at = end
        while end < len(flat) and flat[end]:
            end += 1
        put(end - at)
        for step in flat[at:end]:
            delta = step - previous
            put(2 * delta if delta >= 0 else -2 * delta - 1)
            previous = step
        at = end
    groups += [0] * (-len(groups) % 8)
    words = [
        sum(group << (28 - 4 * i) for i, group in enumerate(groups[n : n + 8]))
        for n in range(0, len(groups), 8)
    ]
    size = struct.pack('<II', steps.shape[1], steps.shape[0])
    return size + struct.pack(f'<{len(words)}I', *words)


def depth_cdr(data: bytes, a: float = 0.0, b: float = 0.0) -> bytes:
    """As compressed_depth_image_transport writes it."""
    return struct.pack('<iff', 0, a, b) + data


def holey() -> NDArray[np.uint16]:
    rng = np.random.default_rng(5)
    steps = rng.integers(1, 65535, (24, 32)).astype(np.uint16)
    steps[rng.random(steps.shape) < 0.4] = 0
    steps[5] = 0
    return steps


@pytest.mark.parametrize('steps', [STEPS, holey(), np.zeros((24, 32), np.uint16)])
@pytest.mark.parametrize(
    ('pack', 'text'),
    [
        (lambda steps: depth_cdr(png(steps)), '16UC1; compressedDepth png'),
        (lambda steps: depth_cdr(png(steps)), '16UC1; compressedDepth'),
        (png, '16UC1; png compressed '),
        (png, ''),
        (lambda steps: depth_cdr(rvl(steps)), '16UC1; compressedDepth rvl'),
    ],
)
def test_packed_integers_are_steps_of_the_unit(
    pack: Any, text: str, steps: NDArray[np.uint16]
) -> None:
    msg = compressed_msg(T0_NS, pack(steps), text)
    assert depth_metres(msg) == pytest.approx(steps / 1000.0)
    assert depth_metres(msg, 0.0002) == pytest.approx(steps / 5000.0)


@pytest.mark.parametrize(('pack', 'codec'), [(png, 'png'), (rvl, 'rvl')])
def test_packed_metres_are_steps_of_inverse_depth(pack: Any, codec: str) -> None:
    metres = np.linspace(0.3, 9.5, 24 * 32).reshape(24, 32)
    metres[0, :5] = np.nan
    a = 100.0 * 101.0
    b = 1.0 - a / 10.0
    steps = np.where(np.isnan(metres), 0, a / metres + b).astype(np.uint16)
    msg = compressed_msg(T0_NS, depth_cdr(pack(steps), a, b), f'32FC1; compressedDepth {codec}')
    depth = depth_metres(msg, 0.0002)  # the unit is of integers
    assert not depth[0, :5].any()
    assert depth[1:] == pytest.approx(metres[1:], rel=0.02)


@pytest.mark.parametrize(
    ('pixels', 'encoding'),
    [
        (STEPS, '16UC1'),
        (STEPS, 'mono16'),
        ((STEPS / 1000).astype(np.float32), '32FC1'),
        ((STEPS / 1000).astype(np.float64), '64FC1'),
    ],
)
def test_raw_depth_is_in_metres_whatever_its_bytes(pixels: NDArray[Any], encoding: str) -> None:
    msg = image(T0_NS, pixels, encoding)
    assert depth_metres(msg) == pytest.approx(STEPS / 1000.0)
    big = image(T0_NS, pixels.astype(pixels.dtype.newbyteorder('>')), encoding)
    big.is_bigendian = 1
    assert depth_metres(big) == pytest.approx(STEPS / 1000.0)
    padded = image(T0_NS, np.pad(pixels, ((0, 0), (0, 4))), encoding)
    padded.width = 32
    assert depth_metres(padded) == pytest.approx(STEPS / 1000.0)


def test_what_is_not_finite_or_not_positive_is_unknown() -> None:
    metres = np.array([[1.5, np.nan, np.inf, -np.inf, -2.0, 0.0]], np.float32)
    assert depth_metres(image(T0_NS, metres, '32FC1')).tolist() == [[1.5, 0, 0, 0, 0, 0]]


@pytest.mark.parametrize(
    ('msg', 'message'),
    [
        (image(T0_NS, view(0), 'bgr8'), "'bgr8' is no depth: expected one of 16uc1"),
        (compressed_msg(T0_NS, b'\xff\xd8\xff' + bytes(50), 'jpeg'), 'is no depth'),
        (compressed_msg(T0_NS, png(view(0)), '16UC1'), 'no depth: expected grey, 16 bits'),
        (compressed_msg(T0_NS, depth_cdr(png(STEPS)), '8UC1; compressedDepth'), 'no depth'),
        (compressed_msg(T0_NS, png(STEPS), '32FC1; png'), 'lacks the header'),
        (compressed_msg(T0_NS, depth_cdr(bytes(64)), '16UC1; compressedDepth zstd'), 'or rvl'),
    ],
)
def test_what_is_no_depth_is_named(msg: Any, message: str) -> None:
    with pytest.raises(UnsupportedImageError, match=message):
        depth_metres(msg)


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    'msg',
    [
        compressed_msg(T0_NS, b'', '16UC1; compressedDepth png'),
        compressed_msg(T0_NS, depth_cdr(cut(png(STEPS))), '16UC1; compressedDepth png'),
        compressed_msg(T0_NS, depth_cdr(cut(rvl(holey()))), '16UC1; compressedDepth rvl'),
        compressed_msg(
            T0_NS, depth_cdr(rvl(holey())[:8] + bytes(40)), '16UC1; compressedDepth rvl'
        ),
        compressed_msg(
            T0_NS,
            depth_cdr(struct.pack('<II', 65535, 65535) + rvl(holey())[8:]),
            '16UC1; compressedDepth rvl',
        ),
        compressed_msg(T0_NS, depth_cdr(rvl(holey())[:8] + b'\xff' * 64), '16UC1; rvl'),
    ],
)
def test_damaged_depth_is_an_error_of_its_own(msg: Any) -> None:
    with pytest.raises(ImageError):
        depth_metres(msg)


def test_an_image_that_is_cut_off_is_damaged() -> None:
    msg = image(T0_NS, STEPS, '16UC1')
    msg.data = msg.data[:100]
    with pytest.raises(ImageError, match='has 100 bytes in rows of 64: expected 24 rows'):
        depth_metres(msg)


def test_depth_survives_its_message() -> None:
    metres = (STEPS / 1000).astype(np.float32)
    msg = depth_to_msg(BagMessageFactory(), T0_NS, 'eye', metres)
    assert depth_metres(msg) == pytest.approx(metres)


DEPTH = '/cam/aligned_depth_to_color/image_raw'


def flat(index: int, width: int = 160, height: int = 120) -> NDArray[np.uint16]:
    """Depth of a wall; how far it is tells which image it is of."""
    return np.full((height, width), 1000 + 10 * index, np.uint16)


def depths(
    topic: str = DEPTH, offset_ns: int = 0, frame: str = 'eye', late_ns: int = 0, **size: int
) -> list[Message]:
    messages = []
    for index, ns in enumerate(times()):
        msg = image(ns + offset_ns, flat(index, **size), '16UC1')
        msg.header.frame_id = frame
        messages.append((topic, IMAGE, ns + offset_ns + late_ns, msg))
    return messages


def wall_distances(path: Path, depth: DepthSource | None = None) -> list[float | None]:
    """How far the wall of each image is [m]."""
    with open_source(path, depth=depth) as source:
        return [None if i.depth is None else float(i.depth[0, 0]) for i in source]


WALL = [pytest.approx(1 + index / 100) for index in range(COUNT)]


@pytest.mark.parametrize('late_ns', [0, 250 * MS, -250 * MS])
@pytest.mark.parametrize('offset_ns', [0, 12 * MS, -12 * MS])
def test_images_of_a_bag_have_the_depth_of_their_stamp(
    tmp_path: Path, offset_ns: int, late_ns: int
) -> None:
    bag = write_bag(tmp_path / 'bag', turning() + depths(offset_ns=offset_ns, late_ns=late_ns))
    assert wall_distances(bag) == WALL
    half = DepthSource(config=DepthConfig(unit_m=0.0005))
    assert wall_distances(bag, half)[1] == pytest.approx(1.01 / 2)
    assert wall_distances(bag, DepthSource(NO_DEPTH)) == [None] * COUNT


def test_what_has_no_partner_has_no_depth(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bag = write_bag(tmp_path / 'a', turning() + depths()[::2])
    assert wall_distances(bag) == [value if i % 2 == 0 else None for i, value in enumerate(WALL)]
    text = f'12 of 24 images of topic /cam/image_raw have no depth: none of {DEPTH} is within'
    assert text in caplog.text
    bag = write_bag(tmp_path / 'b', turning() + depths(offset_ns=45 * MS))
    assert wall_distances(bag) == [None] * COUNT
    wide = DepthSource(config=DepthConfig(max_offset_s=0.05))
    assert wall_distances(bag, wide) == WALL


@pytest.mark.parametrize(
    ('wrong', 'message'),
    [
        (depths('/depth/image_rect_raw', frame='other'), "frame 'other' and the images 'eye'"),
        (depths(width=160, height=90), 'depth is of 160x90 pixels, the images of 320x240'),
    ],
)
def test_depth_of_another_view_is_not_used_and_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wrong: list[Message], message: str
) -> None:
    with caplog.at_level(logging.WARNING):
        assert wall_distances(write_bag(tmp_path / 'bag', turning() + wrong)) == [None] * COUNT
    assert caplog.text.count(message) == 1
    # Whoever names the topic does not make it registered either.
    name = wrong[0][0]
    assert wall_distances(tmp_path / 'bag', DepthSource(name)) == [None] * COUNT


def test_depth_of_another_lens_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def bag(name: str, f: float) -> Path:
        infos = [('/cam/camera_info', INFO, T0_NS, camera_info(T0_NS))]
        of_depth = camera_info(T0_NS, size=(160, 120), f=f)
        infos += [('/cam/aligned_depth_to_color/camera_info', INFO, T0_NS, of_depth)]
        return write_bag(tmp_path / name, turning() + depths() + infos)

    assert wall_distances(bag('a', 80.0)) == WALL
    assert wall_distances(bag('b', 90.0)) == [None] * COUNT
    assert 'the lens of depth has f 180, 180' in caplog.text


def test_the_registered_one_of_several_depths_is_used(tmp_path: Path) -> None:
    def far(msg: Any) -> Any:
        msg.data = image(T0_NS, np.full((120, 160), 9000, np.uint16), '16UC1').data
        return msg

    raw = depths('/cam/depth/image_rect_raw', frame='infra')
    elsewhere = [
        (topic, kind, ns, far(msg)) for topic, kind, ns, msg in depths('/rear/depth/image')
    ]
    bag = write_bag(tmp_path / 'bag', turning() + raw + elsewhere + depths())
    assert wall_distances(bag) == WALL
    assert wall_distances(bag, DepthSource('rear/depth/image'))[0] == 9.0
    with pytest.raises(SourceError, match="no depth topic '/no': it has"):
        wall_distances(bag, DepthSource('/no'))


def test_damaged_depth_costs_its_image_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    messages = depths()
    messages[3][3].data = messages[3][3].data[:100]
    expected = [None if i == 3 else value for i, value in enumerate(WALL)]
    assert wall_distances(write_bag(tmp_path / 'bag', turning() + messages)) == expected
    assert f'depth of {DEPTH} cannot be read' in caplog.text


def test_depth_of_another_unit_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    wall_distances(
        write_bag(tmp_path / 'bag', turning() + depths()), DepthSource(config=DepthConfig(1.0))
    )
    assert caplog.text.count('is its unit right?') == 1


def test_a_stream_keeps_few_depth_images() -> None:
    stream = DepthStream('/depth')
    for index in range(100):
        stream.take(image(T0_NS + index * PERIOD_NS, flat(index), '16UC1'))
    assert stream.counts['unused'] == 84
    assert stream.pick(T0_NS) is None
    assert stream.pick(T0_NS + 99 * PERIOD_NS) is not None
    assert not stream.reaches(T0_NS + 100 * PERIOD_NS)
    assert stream.reaches(T0_NS + 98 * PERIOD_NS + MS)
    stream.take(image(T0_NS, flat(0), '16UC1'))  # the recording starts again
    assert stream.pick(T0_NS + 99 * PERIOD_NS) is None
    assert stream.pick(T0_NS) is not None


def test_images_between_two_slow_depth_images_are_not_waited_for() -> None:
    stream = DepthStream('/depth')
    for index in range(4):  # 15 Hz
        stream.take(image(T0_NS + index * 66 * MS, flat(index), '16UC1'))
    newest_ns = T0_NS + 3 * 66 * MS
    assert stream.reaches(newest_ns)
    assert stream.reaches(newest_ns + 33 * MS)  # the next one is 33 ms later than that
    assert not stream.reaches(newest_ns + 66 * MS)


@pytest.mark.parametrize('name', ['confidence/confidence_map', 'disparity/image', 'normals'])
def test_what_lies_beside_depth_is_none(tmp_path: Path, name: str) -> None:
    other = [
        (f'/cam/{name}', IMAGE, ns, image(ns, np.full((240, 320), 50.0, np.float32), '32FC1'))
        for ns in times()
    ]
    assert wall_distances(write_bag(tmp_path / 'a', turning() + other)) == [None] * COUNT
    assert (
        wall_distances(write_bag(tmp_path / 'b', turning() + other + depths('/cam/z/image')))
        == WALL
    )


def test_depth_by_its_name_is_found_in_encodings_of_brightness(tmp_path: Path) -> None:
    named = [
        ('/cam/depth/image', IMAGE, ns, image(ns, flat(index), 'mono16'))
        for index, ns in enumerate(times())
    ]
    assert wall_distances(write_bag(tmp_path / 'bag', turning() + named)) == WALL


def test_stamps_that_are_left_out_are_those_of_receipt() -> None:
    stream = DepthStream('/depth')
    stream.take(image(0, flat(0), '16UC1'), T0_NS)
    msg = stream.pick(T0_NS + MS)
    shot = StampedImage(0, T0_NS, view(0), 'eye')
    depth = stream.complete(shot, msg)
    assert depth is not None
    assert depth[0, 0] == 1.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Images, and beside them their depth in steps of 0.2 mm."""
    for name in ('images', 'depth'):
        (tmp_path / name).mkdir()
    for index in range(3):
        cv2.imwrite(str(tmp_path / 'images' / f'{index:03}.jpg'), view(4 * index))
        cv2.imwrite(str(tmp_path / 'depth' / f'{index:03}.png'), 5 * flat(index))
    return tmp_path / 'images'


FIFTH = DepthSource(config=DepthConfig(unit_m=0.0002))


def test_a_folder_has_the_depth_beside_it(folder: Path, tmp_path: Path) -> None:
    assert wall_distances(folder, FIFTH) == WALL[:3]
    assert wall_distances(folder, DepthSource(NO_DEPTH)) == [None] * 3
    with pytest.raises(SourceError, match="is a folder and has no depth topic '/d'"):
        wall_distances(folder, DepthSource('/d'))
    bag = playable(folder, tmp_path / 'x', depth=FIFTH).bag
    assert wall_distances(bag) == WALL[:3]


def test_what_is_no_depth_beside_a_folder_is_left_out(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    depth = folder.parent / 'depth'
    cv2.imwrite(str(depth / '000.png'), view(0))
    (depth / '001.png').write_bytes(b'nothing')
    (depth / '002.png').unlink()
    assert wall_distances(folder, FIFTH) == [None] * 3
    assert '2 depth images are left out; the first: 000.png: a PNG of uint8' in caplog.text


def test_a_recording_is_played_with_its_depth(folder: Path, tmp_path: Path) -> None:
    plain = playable(write_bag(tmp_path / 'a', turning()), tmp_path / 'x')
    assert plain.depth == ''
    shown = playable(write_bag(tmp_path / 'b', turning() + depths()), tmp_path / 'x')
    assert (shown.depth, shown.depth_transport) == (DEPTH, 'raw')
    assert DEPTH in shown.topics()
    packed = [
        (f'{DEPTH}/compressedDepth', COMPRESSED, ns, packed_depth(ns, index))
        for index, ns in enumerate(times())
    ]
    shown = playable(write_bag(tmp_path / 'c', turning() + packed), tmp_path / 'x')
    assert (shown.depth, shown.depth_transport) == (DEPTH, 'compressedDepth')
    assert f'{DEPTH}/compressedDepth' in shown.topics()
    assert wall_distances(tmp_path / 'c') == WALL
    of_folder = playable(folder, tmp_path / 'y')
    assert '/depth' in of_folder.topics()


def packed_depth(stamp_ns: int, index: int) -> Any:
    return compressed_msg(stamp_ns, depth_cdr(png(flat(index))), '16UC1; compressedDepth png')


@pytest.mark.parametrize('codec', ['png', 'rvl'])
def test_bytes_that_were_changed_are_depth_or_damaged(codec: str) -> None:
    rng = np.random.default_rng(17)
    sound = depth_cdr((png if codec == 'png' else rvl)(holey()), 10100.0, -1009.0)
    for encoding in ('16UC1', '32FC1'):
        for _ in range(60):
            data = bytearray(sound)
            for at in rng.integers(0, len(data), int(rng.integers(1, 6))):
                data[at] = int(rng.integers(256))
            # What claims to be huge is refused without a huge array.
            data[12:20] = sound[12:20] if codec == 'rvl' else data[12:20]
            msg = compressed_msg(T0_NS, bytes(data), f'{encoding}; compressedDepth {codec}')
            try:
                depth = depth_metres(msg)
            except ImageError:
                continue
            assert np.isfinite(depth).all()
            assert (depth >= 0).all()
