# SPDX-License-Identifier: Apache-2.0
"""Cameras recorded as a video, or in the messages of other tools, encoded by PyAV's encoders."""

from __future__ import annotations

from functools import partial
from pathlib import Path
import sys
from typing import Any

from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import SourceError
import numpy as np
import pytest
from rosbags.typesys import get_types_from_msg

from test.bags.recordings import (
    cdr,
    COMPRESSED,
    COUNT,
    definition,
    header,
    IMAGE,
    image,
    STEP_DEG,
    STORE,
    T0_NS,
    times,
    turning,
    TYPES,
    view,
    write_bag,
    write_mcap,
)
from test.bags.test_damage import stamps

av = pytest.importorskip('av', reason='the extra demos brings it')
VIDEO, FFMPEG = 'foxglove_msgs/msg/CompressedVideo', 'ffmpeg_image_transport_msgs/msg/FFMPEGPacket'
STILL, RAW = 'foxglove_msgs/msg/CompressedImage', 'foxglove_msgs/msg/RawImage'
THEORA = 'theora_image_transport/msg/Packet'
ABOUT = 'builtin_interfaces/Time timestamp\nstring frame_id\n'
TEXTS = {
    VIDEO: f'{ABOUT}uint8[] data\nstring format',
    STILL: f'{ABOUT}uint8[] data\nstring format',
    RAW: f'{ABOUT}uint32 width\nuint32 height\nstring encoding\nuint32 step\nuint8[] data',
    FFMPEG: (
        'std_msgs/Header header\nint32 width\nint32 height\nstring encoding\nuint64 pts\n'
        'uint8 flags\nbool is_bigendian\nuint8[] data'
    ),
    THEORA: (
        'std_msgs/Header header\nuint8[] data\nint32 b_o_s\nint32 e_o_s\nint64 granulepos\n'
        'int64 packetno'
    ),
}
for _name, _text in TEXTS.items():
    STORE.register(get_types_from_msg(_text, _name))
TOPIC = '/cam/video'


def schema(kind: str) -> tuple[str, str]:
    return ('ros2msg', TEXTS[kind]) if kind in TEXTS else definition(kind)


def packets(encoder: str, count: int = COUNT) -> list[bytes]:
    """A packet for each image of a camera that turns, one key frame a second."""
    context = av.CodecContext.create(encoder, 'w')
    context.width, context.height, context.pix_fmt = 320, 240, 'yuv420p'
    context.framerate, context.gop_size, context.bit_rate = 10, 10, 2_000_000
    is_vp9 = encoder == 'libvpx-vp9'
    options = {'deadline': 'realtime', 'lag-in-frames': '0'} if is_vp9 else {'tune': 'zerolatency'}
    context.max_b_frames, context.options = 0, options
    context.thread_count = 1
    found = []
    for index in range(count):
        frame = av.VideoFrame.from_ndarray(view(index * STEP_DEG), format='bgr24')
        frame.pts = index
        found += [bytes(packet) for packet in context.encode(frame)]
    return found + [bytes(packet) for packet in context.encode(None)]


def message(kind: str, ns: int, data: bytes, text: str) -> Any:
    values = np.frombuffer(data, np.uint8)
    stamp = header(ns).stamp
    if kind == FFMPEG:
        return TYPES[kind](header(ns), 320, 240, text, ns, 0, False, values)
    if kind == RAW:
        return TYPES[kind](stamp, 'eye', 320, 240, text, 960, values)
    if kind == COMPRESSED:
        return TYPES[kind](header(ns), text, values)
    return TYPES[kind](stamp, 'eye', values, text)


def recording(path: Path, kind: str, found: list[bytes], text: str) -> Path:
    messages = [
        (TOPIC, kind, ns, message(kind, ns, data, text))
        for ns, data in zip(times(), found, strict=True)
    ]
    return write_mcap(path, messages, schema=schema)


@pytest.mark.parametrize(
    ('kind', 'text', 'encoder'),
    [
        (VIDEO, 'h264', 'libx264'),
        (VIDEO, 'h265', 'libx265'),
        (VIDEO, 'vp9', 'libvpx-vp9'),
        (FFMPEG, 'libx264', 'libx264'),
        (FFMPEG, 'hevc;yuv420p;bgr8;bgr8', 'libx265'),
        (COMPRESSED, 'h264', 'libx264'),
    ],
)
def test_packets_of_a_video_are_images_at_their_stamps(
    tmp_path: Path, kind: str, text: str, encoder: str
) -> None:
    path = recording(tmp_path / 'a.mcap', kind, packets(encoder), text)
    with open_source(path) as source:
        images = list(source)
    assert [image.stamp_ns for image in images] == times()
    assert {image.frame_id for image in images} == {'eye'}
    for index, seen in enumerate(images):
        difference = np.abs(seen.image.astype(int) - view(index * STEP_DEG))
        assert difference.mean() < 12


def theora_packets() -> list[bytes]:
    """Three headers and four images of 64x48, as theora_image_transport publishes them."""
    with av.open(str(Path(__file__).with_name('theora.ogv'))) as container:
        stream = container.streams.video[0]
        rest, headers = bytes(stream.codec_context.extradata), []
        while rest:
            size = int.from_bytes(rest[:2], 'big')
            headers.append(rest[2 : 2 + size])
            rest = rest[2 + size :]
        return headers + [bytes(packet) for packet in container.demux(stream) if packet.size]


def test_theora_is_decoded_behind_its_headers(tmp_path: Path) -> None:
    messages = []
    for ns, data in zip(times(), theora_packets(), strict=False):
        values = np.frombuffer(data, np.uint8)
        messages.append((TOPIC, THEORA, ns, TYPES[THEORA](header(ns), values, 0, 0, 0, 0)))
    assert len(messages) == 7
    with open_source(write_mcap(tmp_path / 'a.mcap', messages, schema=schema)) as source:
        images = list(source)
    assert [image.stamp_ns for image in images] == times()[3:7]
    for index, seen in enumerate(images):
        assert seen.image.shape == (48, 64, 3)
        expected = 60 + 30 * index, 120, 200 - 30 * index
        assert seen.image[:, 60].mean(axis=0) == pytest.approx(expected, abs=6)


def png(index: int) -> bytes:
    import cv2

    return bytes(cv2.imencode('.png', view(index * STEP_DEG))[1].tobytes())


@pytest.mark.parametrize('kind', [STILL, RAW])
def test_images_of_foxglove_are_read(tmp_path: Path, kind: str) -> None:
    make = png if kind == STILL else lambda index: view(index * STEP_DEG).tobytes()
    found = [make(index) for index in range(COUNT)]
    path = recording(tmp_path / 'a.mcap', kind, found, 'png' if kind == STILL else 'bgr8')
    with open_source(path) as source:
        images = list(source)
    assert [image.stamp_ns for image in images] == times()
    np.testing.assert_array_equal(images[3].image, view(3 * STEP_DEG))


def test_what_comes_before_a_key_frame_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    late = [
        (TOPIC, VIDEO, ns, message(VIDEO, ns, data, 'h264'))
        for ns, data in zip(times(), packets('libx264'), strict=True)
    ][4:]
    path = write_mcap(tmp_path / 'a.mcap', late, schema=schema)
    assert stamps(path) == times()[10:]
    assert '6 of 20 packets of topic /cam/video gave no image' in caplog.text


def test_one_damaged_packet_costs_few_images(tmp_path: Path) -> None:
    found = packets('libx264')
    found[13] = b'\0' * 40
    path = recording(tmp_path / 'a.mcap', VIDEO, found, 'h264')
    read = stamps(path)
    assert set(times()[:13]) | set(times()[20:]) <= set(read) < set(times())


def test_without_pyav_topic_and_type_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = recording(tmp_path / 'a.mcap', VIDEO, packets('libx264'), 'h264')
    both = write_bag(tmp_path / 'b', turning())
    monkeypatch.setitem(sys.modules, 'av', None)
    assert main(['keyframes', str(path)]) == 2
    assert f'topic {TOPIC} ({VIDEO}) is h264 video: pip install av' in capsys.readouterr().err
    assert stamps(both) == times()


def test_a_video_that_nobody_asked_for_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, 'av', None)
    messages = [
        ('/rear/video', VIDEO, ns - 1, message(VIDEO, ns, b'\0\0\0\1', 'h264')) for ns in times()
    ]
    both = [each for pair in zip(messages, turning(), strict=True) for each in pair]
    path = write_mcap(tmp_path / 'a.mcap', both, schema=schema)
    assert stamps(path, '/cam/image_raw') == times()


def test_a_video_of_another_codec_is_named(tmp_path: Path) -> None:
    path = recording(tmp_path / 'a.mcap', VIDEO, [b'x'] * COUNT, 'divx')
    with pytest.raises(SourceError, match='divx'):
        stamps(path)


def _same(kind: tuple[str, str], name: str) -> tuple[str, str]:
    return kind


@pytest.mark.parametrize('name', ['sensor_msgs::msg::dds_::Image_', 'sensor_msgs::msg::Image'])
def test_names_of_dds_are_those_of_ros(tmp_path: Path, name: str) -> None:
    messages = [
        ('/cam/image_raw', name, ns, cdr(IMAGE, image(ns, view(index * STEP_DEG))))
        for index, ns in enumerate(times())
    ]
    for kind in (('omgidl', 'struct Image {};'), definition(IMAGE), ('', '')):
        path = write_mcap(tmp_path / 'a.mcap', messages, schema=partial(_same, kind))
        assert stamps(path) == times()


def test_a_bag_without_images_names_its_topics(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def foreign(writer: Any) -> None:
        number = writer.register_schema('foxglove.CompressedVideo', 'protobuf', b'\x0a\x00')
        channel = writer.register_channel('/front', 'protobuf', number)
        writer.add_message(channel, T0_NS, b'\x0a\x00', T0_NS)

    path = write_mcap(tmp_path / 'a.mcap', [], before=foreign)
    assert main(['keyframes', str(path)]) == 2
    said = capsys.readouterr().err
    assert 'has no image topic' in said
    assert '/front (foxglove.CompressedVideo)' in said


def test_a_video_is_collected_into_an_episode(tmp_path: Path) -> None:
    path = recording(tmp_path / 'a.mcap', VIDEO, packets('libx264'), 'h264')
    out = tmp_path / 'out'
    assert (
        main(['collect', str(path), '--out', str(out), '--set', 'collect.images=compressed']) == 0
    )
    [bag] = list(out.rglob('*.mcap'))
    with open_bag(bag.parent) as reader:
        found = list(read_messages(reader, [f'{TOPIC}/compressed']))
    assert len(found) == COUNT
