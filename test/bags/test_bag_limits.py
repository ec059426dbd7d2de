# SPDX-License-Identifier: Apache-2.0
"""A small file fills neither memory nor disk, whatever it claims."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
import resource
import struct
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags import format as bag_format
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.errors import BagError
import lz4.frame  # type: ignore[import-untyped]
import pytest

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if TYPE_CHECKING:
    from collections.abc import Iterator

GB = 1024**3
MAGIC = b'\x89MCAP0\r\n'
T0_NS = 1_700_000_000_000_000_000
PACKERS = {'zstd': zstd.compress, 'lz4': lz4.frame.compress}


@contextmanager
def little_memory(room: int = GB) -> Iterator[None]:
    """Give the process little more than it has: more is a MemoryError, not a slow machine."""
    used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + room, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def text(value: bytes) -> bytes:
    return struct.pack('<I', len(value)) + value


def record(op: int, body: bytes) -> bytes:
    return struct.pack('<BQ', op, len(body)) + body


def bomb(path: Path, kind: str, packed: bytes, claimed: int, chunks: int = 1) -> Path:
    """An MCAP file of chunks that all claim to be of one time and of such a size."""
    names = text(b'std_msgs/msg/String') + text(b'ros2msg') + text(b'string data')
    schema = record(3, struct.pack('<H', 1) + names)
    channel = record(4, struct.pack('<HH', 1, 1) + text(b'/a') + text(b'cdr') + text(b''))
    head = struct.pack('<QQQI', T0_NS, T0_NS, claimed, 0)
    chunk = record(6, head + text(kind.encode()) + struct.pack('<Q', len(packed)) + packed)
    data = MAGIC + record(1, text(b'ros2') + text(b'')) + schema + channel
    indices = b''
    for _ in range(chunks):
        where = struct.pack('<QQQQ', T0_NS, T0_NS, len(data), len(chunk))
        offsets = text(struct.pack('<HQ', 1, len(data) + len(chunk))) + struct.pack('<Q', 31)
        sizes = struct.pack('<QQ', len(packed), claimed)
        indices += record(8, where + offsets + text(kind.encode()) + sizes)
        data += chunk + record(7, struct.pack('<HIQQ', 1, 16, T0_NS, 0))
    data += record(15, bytes(4))
    counts = struct.pack('<QHIIIIQQ', chunks, 1, 1, 0, 0, chunks, T0_NS, T0_NS)
    statistics = record(11, counts + text(struct.pack('<HQ', 1, chunks)))
    footer = record(2, struct.pack('<QQI', len(data), 0, 0))
    path.write_bytes(data + schema + channel + indices + statistics + footer + MAGIC)
    return path


def message(content: str) -> bytes:
    """The only record of a chunk."""
    data = b'\x00\x01\x00\x00' + text(content.encode() + b'\x00')
    return record(5, struct.pack('<HIQQ', 1, 0, T0_NS, T0_NS) + data)


def contents(path: Path) -> list[str]:
    with open_bag(path) as reader:
        return [msg.data for _, _, msg in read_messages(reader, ['/a'])]


@pytest.mark.parametrize('kind', ['zstd', 'lz4'])
def test_a_chunk_that_keeps_its_word_is_read(kind: str, tmp_path: Path) -> None:
    raw = message('hello')
    assert contents(bomb(tmp_path / 'a.mcap', kind, PACKERS[kind](raw), len(raw))) == ['hello']


@pytest.mark.parametrize('claimed', [100, 3 * GB])
@pytest.mark.parametrize('kind', ['zstd', 'lz4'])
def test_a_chunk_that_unpacks_to_gigabytes_is_refused(
    kind: str, claimed: int, tmp_path: Path
) -> None:
    packed = PACKERS[kind](bytes(GB))
    path = bomb(tmp_path / 'a.mcap', kind, packed, claimed)
    assert path.stat().st_size < 8_000_000
    with little_memory(), pytest.raises(BagError, match=r'unpacks to more than \d+ MB'):
        contents(path)


def test_chunks_of_one_time_are_counted_together(tmp_path: Path) -> None:
    raw = message('x' * 1000)
    packed = zstd.compress(raw)
    assert len(contents(bomb(tmp_path / 'a.mcap', 'zstd', packed, len(raw), 20))) == 20
    half = bag_format.MAX_UNPACKED // 2
    with pytest.raises(BagError, match='says was recorded at one time unpacks to more than 2048'):
        contents(bomb(tmp_path / 'b.mcap', 'zstd', packed, half, 20))


def folder(path: Path, mode: str, file: bytes) -> Path:
    """A rosbag2 folder that says how it was packed."""
    path.mkdir()
    (path / 'a.mcap.zstd').write_bytes(file)
    (path / 'metadata.yaml').write_text(f"""rosbag2_bagfile_information:
  version: 9
  storage_identifier: mcap
  duration: {{nanoseconds: 0}}
  starting_time: {{nanoseconds_since_epoch: {T0_NS}}}
  message_count: 1
  topics_with_message_count:
    - topic_metadata: {{name: /a, type: std_msgs/msg/String, serialization_format: cdr,
        offered_qos_profiles: [], type_description_hash: ""}}
      message_count: 1
  compression_format: zstd
  compression_mode: {mode}
  relative_file_paths: [a.mcap.zstd]
""")
    return path


def test_a_file_that_is_packed_as_a_whole_is_read_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = message('hello')
    whole = bomb(tmp_path / 'a.mcap', '', raw, len(raw)).read_bytes()
    assert contents(folder(tmp_path / 'good', 'FILE', zstd.compress(whole))) == ['hello']
    monkeypatch.setattr(bag_format, 'MAX_UNPACKED', 1024**2)
    bad = folder(tmp_path / 'bad', 'FILE', zstd.compress(whole + bytes(32 * 1024**2)))
    with pytest.raises(BagError, match=r'a.mcap.zstd unpacks to more than'):
        contents(bad)


def test_a_message_that_is_packed_by_itself_is_read_or_refused(tmp_path: Path) -> None:
    header = struct.pack('<HIQQ', 1, 0, T0_NS, T0_NS)
    good = record(5, header + zstd.compress(message('hello')[9 + 22 :]))
    bad = record(5, header + zstd.compress(bytes(GB)))
    for name, raw in (('good', good), ('bad', bad)):
        path = bomb(tmp_path / 'a.mcap', '', raw, len(raw))
        folder(tmp_path / name, 'MESSAGE', path.read_bytes())
    assert contents(tmp_path / 'good') == ['hello']
    with little_memory(3 * GB // 2), pytest.raises(BagError, match='unpacks to more than'):
        contents(tmp_path / 'bad')


@pytest.mark.parametrize('length', [2**31, 2**40, 2**62, 2**64 - 1])
def test_an_absurd_length_costs_what_has_it(length: int, tmp_path: Path) -> None:
    raw = message('hello')
    path = bomb(tmp_path / 'a.mcap', '', raw, len(raw))
    whole = path.read_bytes()

    def write_length(at: int) -> None:
        path.write_bytes(whole[: at + 1] + struct.pack('<Q', length) + whole[at + 9 :])

    with little_memory():
        write_length(len(MAGIC))  # of the file's first record
        assert contents(path) == ['hello']
        write_length(whole.index(raw))  # of the message
        with pytest.raises(BagError):
            contents(path)


def test_a_type_that_is_not_what_its_name_says_is_refused(tmp_path: Path) -> None:
    path = tmp_path / 'a.mcap'
    raw = message('hello')
    bomb(path, '', raw, len(raw))
    path.write_bytes(path.read_bytes().replace(b'string data', b'uint32 data'))
    with pytest.raises(BagError, match=r'std_msgs/msg/String .* is not as this version defines'):
        contents(path)
