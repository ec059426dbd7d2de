# SPDX-License-Identifier: Apache-2.0
"""Bags that were cut off at any byte come back, and what is read back is read by `mcap` itself."""

from __future__ import annotations

import itertools
import os
from pathlib import Path
import random
import shutil
import signal
import subprocess
import sys
from typing import Any

from embodied_r_ros.bags import recovery, salvage
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.recovery import bag_state, BagState, find_episodes, recover, recover_all
from embodied_r_ros.bags.salvage import StoppedError
from embodied_r_ros.bags.writer import GrowingBag
from embodied_r_ros.common.errors import BagError
from mcap.reader import make_reader
from mcap.records import Chunk, Message
from mcap.stream_reader import breakup_chunk, StreamReader
import pytest
import yaml

from test.bags.test_recording import growing, text_cdr

SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'
Said = tuple[str, int, bytes]


def messages(path: Path) -> list[Said]:
    """All messages of a file, by its index, in the order in which they are in it."""
    with path.open('rb') as file:
        reader = make_reader(file, validate_crcs=True)
        found = reader.iter_messages(log_time_order=False)
        return [(channel.topic, msg.log_time, msg.data) for _, channel, msg in found]


def chunk_ends(path: Path) -> list[tuple[int, int]]:
    """Where each chunk of a closed file ends, and how many messages lie before that."""
    with path.open('rb') as file:
        index = make_reader(file).get_summary().chunk_indexes
        file.seek(0)
        chunks = [r for r in StreamReader(file, emit_chunks=True).records if isinstance(r, Chunk)]
    ends = [chunk.chunk_start_offset + chunk.chunk_length for chunk in index]
    counts = (sum(isinstance(r, Message) for r in breakup_chunk(chunk)) for chunk in chunks)
    return list(zip(ends, itertools.accumulate(counts), strict=True))


@pytest.fixture
def episode(tmp_path: Path) -> Path:
    """A closed bag with many small chunks."""
    draw = random.Random(3)
    bag = growing(tmp_path / 'e1')
    for index in range(300):
        bag.write('/text', text_cdr(draw.randbytes(draw.randrange(400)).hex()), 1000 + index)
        if index % 7 == 6:
            bag.sync()
    bag.close()
    return bag.folder


def cut(episode: Path, size: int) -> Path:
    """A copy of a bag that its recorder did not close, cut at a byte."""
    copy = episode.with_name('cut')
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(episode, copy)
    (copy / 'metadata.yaml').unlink()
    [path] = copy.glob('*.mcap')
    os.truncate(path, size)
    return copy


def test_file_cut_at_any_byte_keeps_all_whole_chunks(episode: Path) -> None:
    [path] = episode.glob('*.mcap')
    original, ends = messages(path), chunk_ends(path)
    size = path.stat().st_size
    places = [*range(60), *random.Random(5).sample(range(60, size), 100), size - 1, size]
    for place in places:
        broken = cut(episode, place)
        done = recover(broken)
        kept = max((count for end, count in ends if end <= place), default=0)
        assert messages(broken / path.name) == original[:kept]
        assert (done.messages, done.reason, done.kept) == (kept, '', ())
        assert sorted(p.name for p in broken.iterdir()) == [path.name, 'metadata.yaml']


def test_recording_of_others_cut_at_any_byte_reads_as_rosbag2(tmp_path: Path) -> None:
    shutil.copytree(SAMPLE, tmp_path / 'sample')
    [path] = SAMPLE.glob('*.mcap')
    original, ends = messages(path), chunk_ends(path)
    for place in random.Random(1).sample(range(path.stat().st_size), 6):
        broken = cut(tmp_path / 'sample', place)
        recover(broken)
        kept = max((count for end, count in ends if end <= place), default=0)
        assert messages(broken / path.name) == original[:kept]
        with open_bag(broken) as reader:
            topics = {c.topic for c in reader.connections}
            assert len(list(read_messages(reader, topics))) == kept == reader.message_count


def test_recovered_bag_keeps_provenance_and_qos(episode: Path) -> None:
    before = yaml.safe_load((episode / 'metadata.yaml').read_text())
    [path] = episode.glob('*.mcap')
    broken = cut(episode, path.stat().st_size - 30)
    recover(broken)
    after = yaml.safe_load((broken / 'metadata.yaml').read_text())
    assert after == before
    with (broken / path.name).open('rb') as file:
        found = {record.name: record.metadata for record in make_reader(file).iter_metadata()}
    assert found['embodied_r'] == {'/echo': '{"version": "1"}'}
    assert found['embodied_r_recovery']['lost_bytes'] == '0'


def test_bag_of_several_files_is_recovered_as_one(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1', max_chunks=2)
    for index in range(23):
        bag.write('/text', text_cdr(str(index)), index)
        bag.sync()
    bag.write('/text', text_cdr('lost'), 99)
    bag.abandon()
    assert len(list(bag.folder.glob('*.mcap'))) == 12  # '_10' comes after '_9'
    assert recover(bag.folder).messages == 23
    with open_bag(bag.folder) as reader:
        read = [stamp_ns for _, stamp_ns, _ in read_messages(reader, ['/text'])]
    assert read == list(range(23))


def test_closed_bag_is_left_as_it_is(episode: Path) -> None:
    before = {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in _files(episode)}
    assert recover(episode).was_closed
    assert before == {p.name: (p.stat().st_mtime_ns, p.stat().st_ino) for p in _files(episode)}


def test_second_recovery_changes_nothing(episode: Path) -> None:
    broken = cut(episode, 9000)
    recover(broken)
    first = {path.name: path.read_bytes() for path in _files(broken)}
    assert recover(broken).was_closed
    assert {path.name: path.read_bytes() for path in _files(broken)} == first


def _files(episode: Path) -> list[Path]:
    return sorted(episode.iterdir())


def test_closed_file_without_metadata_is_described_and_not_touched(episode: Path) -> None:
    before = yaml.safe_load((episode / 'metadata.yaml').read_text())
    [path] = episode.glob('*.mcap')
    inode = path.stat().st_ino
    (episode / 'metadata.yaml').write_bytes(b'')  # as after a power failure
    assert recover(episode).messages == 300
    assert yaml.safe_load((episode / 'metadata.yaml').read_text()) == before
    assert path.stat().st_ino == inode


def test_metadata_nested_too_deep_is_written_anew(episode: Path) -> None:
    before = yaml.safe_load((episode / 'metadata.yaml').read_text())
    (episode / 'metadata.yaml').write_text(200_000 * '[')  # more than a stack of C holds
    recover(episode)
    assert yaml.safe_load((episode / 'metadata.yaml').read_text()) == before


def test_original_stays_until_the_new_file_is_verified(
    episode: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [path] = episode.glob('*.mcap')
    broken = cut(episode, path.stat().st_size // 2)
    data = (broken / path.name).read_bytes()

    def check_and_verify(new: Path, copy: Any) -> None:
        assert (broken / path.name).read_bytes() == data
        os.truncate(new, new.stat().st_size - 100)
        verify(new, copy)

    verify = salvage._verify
    monkeypatch.setattr(salvage, '_verify', check_and_verify)
    with pytest.raises(BagError, match='was written and cannot be read'):
        recover(broken)
    assert [p.name for p in _files(broken)] == [path.name]
    assert (broken / path.name).read_bytes() == data


def test_damage_in_the_middle_costs_one_chunk_and_keeps_the_broken_file(episode: Path) -> None:
    [path] = episode.glob('*.mcap')
    original, ends = messages(path), chunk_ends(path)
    broken = cut(episode, path.stat().st_size - 8)
    data = bytearray((broken / path.name).read_bytes())
    data[ends[4][0] - 20] ^= 0x40  # in the last bytes of a chunk
    (broken / path.name).write_bytes(data)
    done = recover(broken)
    assert messages(broken / path.name) == original[: ends[3][1]] + original[ends[4][1] :]
    assert (done.damaged_chunks, done.is_good) == (1, False)
    assert done.kept[0].read_bytes() == data
    assert done.kept[0].name == 'e1_0.damaged'


def test_chunk_that_unpacks_to_more_than_it_says_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = growing(tmp_path / 'e1')
    for size in (10, 100_000, 10):
        bag.write('/text', text_cdr('a' * size), size)
        bag.sync()
    bag.abandon()
    monkeypatch.setattr(salvage, 'MAX_UNPACKED', 50_000)
    done = recover(bag.folder)
    assert (done.messages, done.damaged_chunks, len(done.kept)) == (2, 1, 1)


def test_empty_end_of_a_file_is_cut_off(episode: Path) -> None:
    [path] = episode.glob('*.mcap')
    broken = cut(episode, chunk_ends(path)[5][0])
    os.truncate(broken / path.name, 200_000)
    done = recover(broken)
    assert (done.messages, done.is_good) == (chunk_ends(path)[5][1], True)


def test_what_is_no_mcap_file_is_left_as_it_is(episode: Path) -> None:
    [path] = episode.glob('*.mcap')
    broken = cut(episode, 0)
    (broken / path.name).write_text('hello, I am a text')
    [done] = recover_all([broken])
    assert done.reason.endswith('is no MCAP file: nothing can be recovered, it was left as it is')
    assert (broken / path.name).read_text() == 'hello, I am a text'


def test_bag_that_is_being_recorded_is_left_alone(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    assert bag_state(bag.folder) is BagState.BUSY
    [done] = recover_all([bag.folder])
    assert 'is being recorded or recovered' in done.reason
    bag.write('/text', text_cdr('a'), 1)
    bag.close()
    assert bag_state(bag.folder) is BagState.CLOSED


def test_bag_that_grows_while_it_is_recovered_is_left_as_it_is(
    episode: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = cut(episode, 9000)
    [path] = broken.glob('*.mcap')

    def growing_salvage(*given: Any) -> Any:
        done = whole(*given)
        with path.open('ab') as file:
            file.write(b'more')
        return done

    whole = salvage.salvage
    monkeypatch.setattr(recovery, 'salvage', growing_salvage)
    with pytest.raises(BagError, match='is still being written'):
        recover(broken)
    assert path.stat().st_size == 9004


def test_recovery_that_is_no_longer_wanted_changes_nothing(episode: Path) -> None:
    [path] = episode.glob('*.mcap')
    broken = cut(episode, path.stat().st_size - 1)
    asked = iter([True, True, False])
    with pytest.raises(StoppedError, match='was not recovered'):
        recover(broken, lambda: next(asked))
    assert [p.name for p in _files(broken)] == [path.name]
    assert recover(broken).messages == 300


def test_recovery_that_is_killed_leaves_the_original(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1', max_chunks=100_000)
    for index in range(4000):
        bag.write('/text', text_cdr('a'), index)
        bag.sync()
    bag.abandon()
    before = bag.path.read_bytes()
    command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'episodes', 'recover']
    process = subprocess.Popen([*command, str(bag.folder)])
    try:
        while not (begun := bag.path.with_suffix('.recovering')).exists():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait(30)
    assert begun.exists()
    assert [path.name for path in _files(bag.folder)] == ['e1_0.mcap', 'e1_0.recovering']
    assert bag.path.read_bytes() == before
    assert recover(bag.folder).messages == 4000
    assert [path.name for path in _files(bag.folder)] == ['e1_0.mcap', 'metadata.yaml']


def test_disk_without_room_for_the_copy_is_named(
    episode: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = cut(episode, 9000)
    usage = shutil._ntuple_diskusage(10, 10, 0)
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: usage)
    with pytest.raises(BagError, match='needs 1 MB to be recovered and the disk has 0 MB left'):
        recover(broken)


def test_episodes_are_found_in_their_folder(tmp_path: Path) -> None:
    for name in ('b', 'a'):
        GrowingBag(tmp_path / name, {}).close()
    (tmp_path / 'other').mkdir()
    GrowingBag(tmp_path / '.hidden' / 'c', {}).close()
    assert [path.name for path in find_episodes(tmp_path)] == ['a', 'b']
    assert find_episodes(tmp_path / 'a') == [tmp_path / 'a']
    for path in (tmp_path / 'other', tmp_path / 'nothing', tmp_path / 'a' / 'a_0.mcap'):
        with pytest.raises(BagError, match='folder of episodes'):
            find_episodes(path)
