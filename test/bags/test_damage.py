# SPDX-License-Identifier: Apache-2.0
"""Damage is a property of a chunk or a message: the rest is read, and what is lost is told."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.format import walk_records
from embodied_r_ros.bags.recovery import bag_state, BagState, recover
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.data.episodes.inspect import audit_bag, why_unfit
from mcap.reader import make_reader
from mcap.writer import CompressionType, IndexType
import pytest
from rosbags.rosbag1 import Reader as Ros1Reader
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import StoragePlugin

from test.bags.recordings import COUNT, T0_NS, times, TOPIC, turning, write_bag, write_mcap
from test.bags.test_field_recordings import write_ros1

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK_BYTES = 1_900_000  # eight images


def stamps(path: Path, topic: str | None = None) -> list[int]:
    with open_source(path, topic) as source:
        return [image.stamp_ns for image in source]


def chunks(path: Path) -> list[tuple[int, int]]:
    """Where the chunks of a file begin, and their lengths."""
    with path.open('rb') as file:
        summary = make_reader(file).get_summary()
    assert summary
    return [(chunk.chunk_start_offset, chunk.chunk_length) for chunk in summary.chunk_indexes]


def flip(path: Path, at: int, mask: int = 0x10) -> Path:
    data = bytearray(path.read_bytes())
    data[at] ^= mask
    path.write_bytes(data)
    return path


def in_second_chunk(path: Path) -> Path:
    start, length = chunks(path)[1]
    return flip(path, start + length // 2)


@pytest.mark.parametrize('compression', list(CompressionType))
@pytest.mark.parametrize('indexes', [IndexType.ALL, IndexType.ALL & ~IndexType.MESSAGE])
def test_one_flipped_byte_costs_its_chunk(
    tmp_path: Path,
    compression: CompressionType,
    indexes: IndexType,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    options: dict[str, Any] = {'compression': compression, 'index_types': indexes}
    path = write_mcap(tmp_path / 'a.mcap', turning(), chunk_size=CHUNK_BYTES, **options)
    assert len(chunks(path)) == 3
    in_second_chunk(path)
    lost = set(times()) - set(stamps(path))
    assert 6 <= len(lost) <= 12
    assert min(lost) > T0_NS
    assert max(lost) < times()[-1]
    assert '1 parts of' in caplog.text
    assert main(['keyframes', str(path)]) == 0
    capsys.readouterr()
    assert main(['episodes', 'audit', str(path)]) == 1
    said = capsys.readouterr().out
    assert f'{TOPIC}: {COUNT - len(lost)} messages where the file says {COUNT}' in said
    assert 'a.mcap: 1 parts are damaged' in said
    assert 'episodes recover' in why_unfit(path)


@pytest.mark.parametrize('chunk', [0, 1, 2])
@pytest.mark.parametrize(('byte', 'mask'), [(0, 0x01), (0, 0x80), (1, 0x04), (4, 0x20), (8, 0x80)])
def test_a_flipped_byte_in_the_head_of_a_chunk_costs_nothing(
    tmp_path: Path, chunk: int, byte: int, mask: int
) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), chunk_size=CHUNK_BYTES)
    flip(path, chunks(path)[chunk][0] + byte, mask)
    assert stamps(bag) == times()
    assert audit_bag(bag).problems == ()
    done = recover(bag, is_thorough=True)
    assert (done.was_closed, done.messages) == (False, COUNT)
    assert stamps(bag) == times()


@pytest.mark.parametrize('opcode', [7, 3, 4])
def test_a_flipped_length_of_another_record_costs_little(tmp_path: Path, opcode: int) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(
        bag / 'bag_0.mcap', turning(), chunk_size=CHUNK_BYTES, compression=CompressionType.NONE
    )
    with path.open('rb') as file:
        at = next(at for kind, at, _ in walk_records(file) if kind == opcode)
    flip(path, at - 7, 0x20)
    assert stamps(bag) == times()


@pytest.mark.parametrize('chunk', [0, 1, 2])
def test_recover_keeps_what_the_rest_needs_of_a_damaged_chunk(tmp_path: Path, chunk: int) -> None:
    """The first chunk alone declares schema and topic; the summary repeats them."""
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), chunk_size=CHUNK_BYTES)
    start, length = chunks(path)[chunk]
    flip(path, start + length // 2)
    rest = stamps(bag)
    done = recover(bag, is_thorough=True)
    assert (done.messages, done.damaged_chunks) == (len(rest), 1)
    assert '1 damaged chunks left out' in done.text()
    assert stamps(bag) == rest


@pytest.mark.parametrize('word', [b'cdr', b'/cam/image_raw', b'sensor_msgs/msg/Image'])
def test_a_word_of_the_summary_that_is_damaged_is_not_believed(
    tmp_path: Path, word: bytes
) -> None:
    path = write_mcap(tmp_path / 'a.mcap', turning(), chunk_size=CHUNK_BYTES)
    flip(path, path.read_bytes().rindex(word), 0x01)
    assert stamps(path, TOPIC) == times()


@pytest.mark.parametrize('fmt', [Ros1Writer.CompressionFormat.BZ2, None])
def test_a_damaged_chunk_of_ros_1_costs_that_chunk(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, fmt: Ros1Writer.CompressionFormat | None
) -> None:
    path = tmp_path / 'old.bag'
    path = write_ros1(path, fmt=fmt) if fmt else write_ros1(path)
    data = path.read_bytes()
    with Ros1Reader(path) as reader:
        place = sorted(reader.chunks.values(), key=lambda chunk: chunk.datapos)[1].datapos
    path.write_bytes(data[: place + 4] + bytes(8) + data[place + 12 :])
    read = stamps(path)
    assert COUNT / 2 < len(read) < COUNT
    assert set(read) < set(times())
    assert '1 parts of' in caplog.text
    assert any('old.bag: 1 parts are damaged' in text for text in audit_bag(path).problems)


def test_a_damaged_page_of_a_database_costs_its_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bag = write_bag(tmp_path / 'bag', turning(), StoragePlugin.SQLITE3)
    path = bag / 'bag.db3'
    middle = path.stat().st_size // 2 // 4096 * 4096  # of the pages of an image
    flip(path, middle, 0xFF)
    read = stamps(bag)
    assert len(read) == COUNT - 1
    assert set(read) < set(times())
    assert 'malformed' in caplog.text
    assert any('bag.db3: 1 parts are damaged' in text for text in audit_bag(bag).problems)


def test_nothing_left_is_an_error(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / 'a.mcap', turning(), chunk_size=10**9)
    [(start, length)] = chunks(path)
    flip(path, start + length // 2)
    with pytest.raises(BagError, match='damaged'):
        stamps(path)


def summary_start(path: Path) -> int:
    return int.from_bytes(path.read_bytes()[-28:-20], 'little')


@pytest.mark.parametrize('back', [10, 30, 60, 200, 400, 700])
@pytest.mark.parametrize('mask', [0x01, 0x80])
def test_a_flipped_byte_in_the_summary_costs_nothing(tmp_path: Path, back: int, mask: int) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), chunk_size=CHUNK_BYTES)
    flip(path, path.stat().st_size - back, mask)
    assert stamps(bag) == times()
    recover(bag, is_thorough=True)
    assert stamps(bag) == times()
    with path.open('rb') as file:
        assert len(list(make_reader(file, validate_crcs=True).iter_messages())) == COUNT


@pytest.mark.parametrize('what', ['footer', 'index'])
def test_places_beyond_any_file_are_damage(tmp_path: Path, what: str) -> None:
    """The high byte of the summary's start in the footer, and of a place in an index."""
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), chunk_size=CHUNK_BYTES)
    with path.open('rb') as file:
        summary = make_reader(file).get_summary()
    assert summary
    place = summary.chunk_indexes[0].chunk_start_offset.to_bytes(8, 'little')
    at = path.read_bytes().rindex(place) + 7 if what == 'index' else path.stat().st_size - 21
    flip(path, at, 0x80)
    assert stamps(bag) == times()
    assert recover(bag, is_thorough=True).messages == COUNT
    assert stamps(bag) == times()


def test_a_file_without_statistics_is_read_and_audited(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), use_statistics=False)
    assert stamps(bag) == stamps(path) == times()
    assert audit_bag(bag) == audit_bag(path)
    assert not why_unfit(bag)
    assert bag_state(bag) is BagState.CLOSED
    before = path.read_bytes()
    assert main(['episodes', 'recover', str(bag)]) == 0
    assert path.read_bytes() == before
    capsys.readouterr()
    assert main(['episodes', 'list', str(bag)]) == 0
    assert f' {COUNT} ' in capsys.readouterr().out


@pytest.mark.parametrize('has_statistics', [True, False])
def test_whole_files_without_metadata_are_audited_as_one(
    tmp_path: Path, has_statistics: bool
) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    messages = turning()
    for number in range(3):
        some = messages[8 * number : 8 * number + 8]
        write_mcap(bag / f'bag_{number}.mcap', some, use_statistics=has_statistics)
    one = write_mcap(tmp_path / 'one.mcap', messages)
    assert stamps(bag) == times()
    assert audit_bag(bag) == audit_bag(one)
    assert not why_unfit(bag)
    recover(bag)
    assert audit_bag(bag) == audit_bag(one)


def without_summary(path: Path) -> Path:
    """A closed file that ends with no more than its data and a footer."""
    data = path.read_bytes()
    end = summary_start(path)
    footer = data[-37:-28] + bytes(20)
    path.write_bytes(data[:end] + footer + data[-8:])
    return path


@pytest.mark.parametrize('change', [without_summary, lambda path: path])
def test_a_closed_file_with_no_index_is_whole(
    tmp_path: Path, change: Callable[[Path], Path]
) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    path = write_mcap(bag / 'bag_0.mcap', turning(), index_types=IndexType.NONE)
    change(path)
    assert stamps(bag) == times()
    assert not why_unfit(bag)
    assert recover(bag, is_thorough=True).lost_bytes == 0
