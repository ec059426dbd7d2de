# SPDX-License-Identifier: Apache-2.0
"""Recordings, calibrations and streams of all kinds: all comes back, or one line says why not."""

from __future__ import annotations

from contextlib import suppress
import json
import math
from pathlib import Path
import tempfile
from typing import Any

from embodied_r_ros.bags.messages import camera_of_info
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.errors import BagError, ImageError
from embodied_r_ros.core.chat.protocol import EventReader
from embodied_r_ros.core.reasoning.completions import parse_completion
from embodied_r_ros.data.episodes.inspect import audit_bag
from hypothesis import given
from hypothesis import strategies as st
from mcap.writer import CompressionType, IndexType
import numpy as np
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
import yaml

from test.bags.recordings import (
    camera_info,
    definition,
    IMAGE,
    image,
    MS,
    T0_NS,
    TOPIC,
    write_bag,
    write_mcap,
)

PIXELS = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
MESSAGES = [(TOPIC, IMAGE, T0_NS + i * MS, image(T0_NS + i * MS, PIXELS)) for i in range(12)]
STAMPS = [ns for _, _, ns, _ in MESSAGES]


def stamps_of(path: Path) -> list[int]:
    with open_bag(path) as reader:
        assert reader.topics[TOPIC].msgcount == len(MESSAGES)
        return [ns for _, ns, _ in read_messages(reader, [TOPIC])]


OPTIONS = st.fixed_dictionaries(
    {
        'chunk_size': st.sampled_from([1, 200, 10**6]),
        'compression': st.sampled_from(CompressionType),
        'index_types': st.sampled_from([IndexType.ALL, IndexType.NONE, IndexType.MESSAGE]),
        **{
            name: st.booleans()
            for name in ('repeat_channels', 'repeat_schemas', 'use_chunking', 'use_statistics')
        },
        'use_summary_offsets': st.booleans(),
        'enable_crcs': st.booleans(),
        'profile': st.sampled_from(['', 'ros2', 'ros1', 'px4', '✓']),
        'qos': st.sampled_from(
            ['', '[]', '{', '- {history: 1}', '- history: keep_last\n  depth: x']
        ),
    }
)
LINES = st.lists(
    st.sampled_from(['int32 a', 'vendor_msgs/X x', '---', 'uint8 A=1 << 2', 'string<=3 s', '= ']),
    max_size=4,
).map('\n'.join)


@given(
    OPTIONS,
    st.permutations(MESSAGES),
    st.tuples(
        st.sampled_from(['ros2msg', 'ros2idl', '', 'jsonschema', 'protobuf']),
        LINES | st.text(max_size=20),
        st.sampled_from(['vendor_msgs/msg/State', 'State', 'a/srv/B_Event', '', IMAGE + 's']),
    ),
)
def test_an_mcap_file_gives_back_all_that_was_written(
    options: dict[str, Any], messages: list[Any], other: tuple[str, str, str]
) -> None:
    encoding, text, name = other
    stranger = ('/other', name, T0_NS, b'\0\1\0\0' + bytes(16))
    with tempfile.TemporaryDirectory() as folder:
        path = write_mcap(
            Path(folder) / 'a.mcap',
            [stranger, *messages],
            schema=lambda kind: definition(kind) if kind == IMAGE else (encoding, text),
            **options,
        )
        assert stamps_of(path) == STAMPS
        assert audit_bag(path).topics[-1].messages in {1, len(MESSAGES)}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
    ),
    max_leaves=4,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Paths to all that is in a document."""
    inner: Any = value.items() if isinstance(value, dict) else ()
    inner = enumerate(value) if isinstance(value, list) else inner
    return [path, *(found for key, part in inner for found in places(part, (*path, key)))]


@given(
    st.data(),
    st.sampled_from([StoragePlugin.MCAP, StoragePlugin.SQLITE3]),
    st.sampled_from([None, CompressionMode.FILE, CompressionMode.MESSAGE]),
)
def test_metadata_changes_nothing_or_is_named(
    data: st.DataObject, plugin: StoragePlugin, mode: CompressionMode | None
) -> None:
    def prepare(writer: Any) -> None:
        if mode:
            writer.set_compression(mode, CompressionFormat.ZSTD)

    with tempfile.TemporaryDirectory() as folder:
        bag = write_bag(Path(folder) / 'bag', MESSAGES, plugin, prepare=prepare)
        file = bag / 'metadata.yaml'
        content = yaml.safe_load(file.read_text())
        for _ in range(data.draw(st.integers(1, 3))):
            if not (inner := places(content)[1:]):
                break
            *way, last = data.draw(st.sampled_from(inner))
            owner = content
            for key in way:
                owner = owner[key]
            if data.draw(st.booleans()):
                del owner[last]
            else:
                owner[last] = data.draw(VALUES)
        file.write_text(yaml.safe_dump(content))
        with suppress(BagError):
            assert stamps_of(bag) == STAMPS


NUMBERS = st.floats() | st.sampled_from([0.0, 1.0, 160.0, 320.0, -1.0, math.nan, math.inf])


@given(
    st.tuples(st.integers(0, 4000), st.integers(0, 4000)),
    st.tuples(st.integers(1, 4000), st.integers(1, 4000)),
    NUMBERS,
    st.lists(NUMBERS, max_size=15),
    st.sampled_from(['', 'plumb_bob', 'Equidistant', 'rational_polynomial', 'fov', 'fisheye']),
    st.integers(0, 5),
    st.tuples(*[st.integers(0, 4000)] * 4),
    st.booleans(),
)
def test_a_camera_info_is_a_camera_or_says_why_not(  # noqa: PLR0917
    sensor: tuple[int, int],
    size: tuple[int, int],
    f: float,
    d: list[float],
    model: str,
    binning: int,
    roi: Any,
    is_rectified: bool,
) -> None:
    info = camera_info(T0_NS, (1, 1), f, tuple(d), model, binning=binning, roi=roi)
    info.width, info.height = sensor
    with suppress(ImageError):
        camera = camera_of_info(info, size, is_rectified=is_rectified)
        assert (camera.width, camera.height) == size
        assert camera.fx > 0
        assert all(map(math.isfinite, (camera.fx, camera.fy, *camera.distortion)))
        assert len(camera.distortion) in {0, 4, 5, 8, 12, 14}


@given(st.data())
def test_a_stream_gives_back_its_thought_and_its_answer(data: st.DataObject) -> None:
    """However a server cuts it, in which fields, and with which empty reasons."""
    thought, answer = 'I see a door to the left.', 'B'
    tag = data.draw(st.sampled_from(['', '<think>']))
    rest = f'<answer>{answer}</answer>'
    is_field = data.draw(st.booleans())
    pieces = [('thought', tag + thought)] if is_field else [('text', f'<think>{thought}</think>')]
    pieces.append(('text', ('</think>' if is_field and data.draw(st.booleans()) else '') + rest))
    name = data.draw(st.sampled_from(['reasoning_content', 'reasoning']))
    reader, text = EventReader(), ''
    for kind, piece in pieces:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(piece)), max_size=6)))
        for start, end in zip([0, *cuts], [*cuts, len(piece)], strict=True):
            content: Any = piece[start:end]
            if kind == 'text' and data.draw(st.booleans()):
                content = [{'type': 'text', 'text': content}]
            delta = {name: content} if kind == 'thought' else {'content': content}
            ending = data.draw(st.sampled_from([None, '']))
            event = {'choices': [{'delta': delta, 'finish_reason': ending}]}
            text += ''.join(chunk.text for chunk in reader.read(json.dumps(event)))
    assert not reader.is_complete
    assert reader.read('[DONE]') == []
    chunk = reader.end(100)
    read = parse_completion(text + (chunk.text if chunk else ''))
    assert read.think == thought
    assert read.answer == answer
    assert read.well_formed
