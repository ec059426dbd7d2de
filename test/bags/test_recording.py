# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import os
from pathlib import Path
import resource
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory, embodied_typestore
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.recording import Recording, SYNC_PERIOD_S
from embodied_r_ros.bags.recovery import recover
from embodied_r_ros.bags.writer import GrowingBag, LATCHED_QOS
from embodied_r_ros.common.errors import BagError
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.data.episodes.inspect import audit_bag
from embodied_r_ros.data.own_messages import mark_from_msg, mark_to_msg
from mcap.exceptions import McapError
from mcap.reader import make_reader, NonSeekingReader
import pytest
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = 'embodied_r_msgs/msg/EpisodeMark'
STRING = 'std_msgs/msg/String'


def mark_cdr(stamp_ns: int) -> bytes:
    mark = EpisodeMark(stamp_ns, 'e1', EpisodeEvent.START, 'tidy up')
    msg = mark_to_msg(BagMessageFactory(), mark)
    return bytes(embodied_typestore().serialize_cdr(msg, MARK))


def text_cdr(text: str) -> bytes:
    store = embodied_typestore()
    return bytes(store.serialize_cdr(store.types[STRING](data=text), STRING))


def growing(folder: Path, max_chunks: int = 1000) -> GrowingBag:
    bag = GrowingBag(folder, {'/echo': '{"version": "1"}'}, max_chunks)
    bag.add_topic('/episode_mark', MARK, LATCHED_QOS)
    bag.add_topic('/text', STRING)
    return bag


def whole_messages(path: Path) -> list[bytes]:
    """Data of the messages of whole chunks, as `mcap recover` finds them."""
    found = []
    with path.open('rb') as file:
        try:
            for _, _, message in NonSeekingReader(file).iter_messages(log_time_order=False):
                found.append(message.data)
        except (McapError, EOFError):
            pass
    return found


def test_closed_bag_reads_as_rosbag2(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    bag.write('/episode_mark', mark_cdr(5), 5)
    bag.write('/text', text_cdr('hello'), 7)
    bag.close()
    with open_bag(tmp_path / 'e1') as reader:
        assert [(c.topic, c.msgtype, c.count) for c in reader.connections] == [
            ('/episode_mark', MARK, 1),
            ('/text', STRING, 1),
        ]
        [mark, text] = read_messages(reader, ['/episode_mark', '/text'])
    assert mark_from_msg(mark[2]).task == 'tidy up'
    assert (text[1], text[2].data) == (7, 'hello')


def test_closed_bag_is_an_indexed_mcap_with_definitions(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    bag.write('/episode_mark', mark_cdr(5), 5)
    bag.close()
    with bag.path.open('rb') as file:
        reader = make_reader(file)
        summary = reader.get_summary()
        metadata = {record.name: record.metadata for record in reader.iter_metadata()}
    assert summary is not None
    assert summary.statistics is not None
    assert summary.statistics.message_count == 1
    assert len(summary.chunk_indexes) == 1
    schema = next(s for s in summary.schemas.values() if s.name == MARK)
    assert schema.encoding == 'ros2msg'
    assert b'string episode_id' in schema.data
    assert b'MSG: std_msgs/Header' in schema.data
    assert metadata['embodied_r'] == {'/echo': '{"version": "1"}'}
    assert 'rosbag2' in metadata


def test_metadata_says_what_is_in_the_bag(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    bag.write('/text', text_cdr('a'), 20)
    bag.write('/text', text_cdr('b'), 50)
    bag.close()
    text = (tmp_path / 'e1' / 'metadata.yaml').read_text()
    assert '&' not in text  # no YAML anchors: rosbag2 writes none
    information = yaml.safe_load(text)['rosbag2_bagfile_information']
    assert information['message_count'] == 2
    assert information['starting_time'] == {'nanoseconds_since_epoch': 20}
    assert information['duration'] == {'nanoseconds': 30}
    assert information['relative_file_paths'] == ['e1_0.mcap']
    latched = information['topics_with_message_count'][0]['topic_metadata']
    assert yaml.safe_load(latched['offered_qos_profiles'])[0]['durability'] == 1
    assert latched['type_description_hash'].startswith('RIHS01_')


def test_long_bag_has_several_files_that_read_as_one(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1', max_chunks=4)
    for index in range(20):
        bag.write('/text' if index % 5 else '/episode_mark', _cdr(index), 1000 + index)
        bag.sync()
    bag.close()
    with open_bag(tmp_path / 'e1') as reader:
        read = list(read_messages(reader, ['/episode_mark', '/text']))
    assert [stamp_ns for _, stamp_ns, _ in read] == list(range(1000, 1020))
    text = (tmp_path / 'e1' / 'metadata.yaml').read_text()
    information = yaml.safe_load(text)['rosbag2_bagfile_information']
    names = [f'e1_{index}.mcap' for index in range(6)]
    assert information['relative_file_paths'] == names
    assert information['message_count'] == 20
    assert information['duration'] == {'nanoseconds': 19}
    assert [topic['message_count'] for topic in information['topics_with_message_count']] == [
        4,
        16,
    ]
    assert [file['message_count'] for file in information['files']] == [4, 4, 4, 4, 4, 0]


def _cdr(index: int) -> bytes:
    return text_cdr(str(index)) if index % 5 else mark_cdr(index)


def test_each_file_of_a_long_bag_can_be_read_alone(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1', max_chunks=4)
    for index in range(9):
        bag.write('/text', text_cdr(str(index)), index)
        bag.sync()
    bag.abandon()
    paths = sorted((tmp_path / 'e1').glob('*.mcap'))
    assert [len(whole_messages(path)) for path in paths] == [4, 4, 1]
    for path in paths[:2]:  # ended in good order, though the bag was not
        with path.open('rb') as file:
            reader = make_reader(file)
            summary = reader.get_summary()
            notes = {record.name: record.metadata for record in reader.iter_metadata()}
        assert summary is not None
        assert len(summary.chunk_indexes) <= 6
        assert notes['embodied_r'] == {'/echo': '{"version": "1"}'}


def test_memory_of_a_bag_does_not_grow_with_its_length(tmp_path: Path) -> None:
    def memory_growth(bag: GrowingBag, syncs: int) -> int:
        before, _ = tracemalloc.get_traced_memory()
        for index in range(syncs):
            bag.write('/text', text_cdr('x'), index)
            bag.sync()
        return tracemalloc.get_traced_memory()[0] - before

    bag = growing(tmp_path / 'e1', max_chunks=50)
    tracemalloc.start()
    try:
        memory_growth(bag, 60)
        few, many = memory_growth(bag, 100), memory_growth(bag, 1000)
    finally:
        tracemalloc.stop()
        bag.abandon()
    # 1000 indexes of chunks would take half a megabyte.
    assert many - few < 100_000


def test_provenance_is_on_the_disk_at_once(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    with bag.path.open('rb') as file:
        records = []
        try:
            for record in NonSeekingReader(file).iter_metadata():
                records.append(record)
        except (McapError, EOFError):
            pass
    bag.abandon()
    assert [record.metadata for record in records] == [{'/echo': '{"version": "1"}'}]


def test_folder_that_exists_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BagError, match=r'cannot write .*: File exists'):
        growing(tmp_path)


def test_unknown_type_is_refused(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    with pytest.raises(BagError, match='definition of my_msgs/msg/Thing is not known'):
        bag.add_topic('/thing', 'my_msgs/msg/Thing')


def test_recording_keeps_order_and_counts(tmp_path: Path) -> None:
    recording = Recording(growing(tmp_path / 'e1'))
    for index in range(300):
        assert recording.write('/text', text_cdr(str(index)), index)
    recording.close()
    with open_bag(tmp_path / 'e1') as reader:
        texts = [msg.data for _, _, msg in read_messages(reader, ['/text'])]
    assert texts == [str(index) for index in range(300)]
    assert recording.stats().messages == {'/text': 300}
    assert recording.stats().queued_bytes == 0


def test_nothing_stays_unsynced_for_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = growing(tmp_path / 'e1')
    synced = threading.Event()
    sizes: list[int] = []

    def fsync(descriptor: int) -> None:
        sizes.append(os.fstat(descriptor).st_size)
        synced.set()

    monkeypatch.setattr(os, 'fsync', fsync)
    recording = Recording(bag)
    before = bag.path.stat().st_size
    start = time.monotonic()
    recording.write('/text', text_cdr('one message, then silence'), 1)
    assert synced.wait(10)
    assert SYNC_PERIOD_S <= time.monotonic() - start < 1.0
    assert sizes[0] > before
    assert whole_messages(bag.path) == [text_cdr('one message, then silence')]
    assert SYNC_PERIOD_S <= recording.stats().longest_unsynced_s < 1.0
    recording.close()


def test_slow_disk_drops_images_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bag = growing(tmp_path / 'e1')
    go, held = threading.Event(), threading.Event()
    real_write = bag.write

    def slow_write(topic: str, data: bytes, stamp_ns: int) -> None:
        held.set()
        go.wait(10)
        real_write(topic, data, stamp_ns)

    monkeypatch.setattr(bag, 'write', slow_write)
    recording = Recording(bag, queue_bytes=1000)
    recording.write('/text', bytes(100), 1)
    assert held.wait(10)
    assert recording.write('/text', bytes(300), 2, is_bulk=True)
    assert not recording.write('/text', bytes(300), 3, is_bulk=True)
    assert recording.write('/episode_mark', bytes(300), 4)
    assert not recording.write('/episode_mark', bytes(400), 5)
    assert recording.stats().dropped == {'/text': 1, '/episode_mark': 1}
    go.set()
    recording.close()
    assert recording.stats().messages == {'/text': 2, '/episode_mark': 1}


def test_urgent_message_is_on_the_disk_at_once_and_never_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = growing(tmp_path / 'e1')
    go, synced = threading.Event(), threading.Event()
    real_write, real_fsync = bag.write, os.fsync

    def slow_write(topic: str, data: bytes, stamp_ns: int) -> None:
        go.wait(10)
        real_write(topic, data, stamp_ns)

    def fsync(descriptor: int) -> None:
        real_fsync(descriptor)
        synced.set()

    monkeypatch.setattr(bag, 'write', slow_write)
    monkeypatch.setattr(os, 'fsync', fsync)
    recording = Recording(bag, queue_bytes=100)
    assert not recording.write('/text', bytes(101), 1)
    assert recording.write('/text', text_cdr('an answer' * 50), 2, is_urgent=True)
    start = time.monotonic()
    go.set()
    assert synced.wait(10)
    assert time.monotonic() - start < SYNC_PERIOD_S / 2
    assert whole_messages(bag.path) == [text_cdr('an answer' * 50)]
    recording.close()


def test_who_wants_to_know_is_told_when_all_is_on_the_disk(tmp_path: Path) -> None:
    told: list[bool] = []
    recording = Recording(growing(tmp_path / 'e1'))
    path = tmp_path / 'e1' / 'e1_0.mcap'
    recording.write('/text', text_cdr('a'), 1)
    done = threading.Event()
    kept: list[bytes] = []

    def tell(is_safe: bool) -> None:
        told.append(is_safe)
        kept.extend(whole_messages(path))
        done.set()

    recording.when_safe(tell)
    assert done.wait(10)
    assert (told, kept) == ([True], [text_cdr('a')])
    recording.close()
    recording.when_safe(tell)
    assert told == [True, True]


def test_drops_are_known_even_of_a_bag_that_was_never_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bag = growing(tmp_path / 'e1')
    ended = threading.Event()

    def close() -> None:
        ended.set()
        msg = 'the process died'
        raise OSError(msg)

    monkeypatch.setattr(bag, 'close', close)
    recording = Recording(bag, queue_bytes=100)
    for index in range(3):
        recording.write('/text', bytes(101), index)
    recording.write('/text', text_cdr('a'), 9, is_urgent=True)
    with pytest.raises(BagError, match='the process died'):
        recording.close()
    assert ended.is_set()
    recover(bag.folder)
    with bag.path.open('rb') as file:
        found = {record.name: record.metadata for record in make_reader(file).iter_metadata()}
    assert found['embodied_r_drops'] == {'/text': '3'}
    [text] = [t for t in audit_bag(bag.folder).topics if t.topic == '/text']
    assert (text.messages, text.dropped) == (1, 3)


@pytest.fixture
def small_files() -> Iterator[None]:
    """Let no file of this process grow beyond 64 KiB: the kernel refuses, as a full disk does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64 * 1024, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures('small_files')
def test_full_disk_ends_the_recording_and_keeps_what_was_synced(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    bag.write('/text', text_cdr('kept'), 1)
    bag.sync()
    recording = Recording(bag)
    recording.write('/text', os.urandom(100_000), 2)
    with pytest.raises(BagError, match=r'cannot write .*e1: File too large'):
        recording.close()
    assert not recording.write('/text', text_cdr('late'), 3)
    assert 'File too large' in recording.stats().error
    told: list[bool] = []
    recording.when_safe(told.append)
    assert told == [False]
    assert whole_messages(bag.path) == [text_cdr('kept')]
    with pytest.raises(BagError, match='was not closed'), open_bag(bag.folder):
        pass


WRITER = """
import json, sys, time
from pathlib import Path
from test_recording import growing, text_cdr
from embodied_r_ros.bags.recording import Recording
recording = Recording(growing(Path(sys.argv[1])))
for index in range(10_000):
    stamp = time.monotonic()
    recording.write('/text', text_cdr(json.dumps([index, stamp])), index)
    print(index, flush=True)
    time.sleep(0.01)
"""


def test_killed_recorder_leaves_all_but_the_last_second(tmp_path: Path) -> None:
    here = Path(__file__).resolve().parent
    path = [str(here.parents[1]), os.environ.get('PYTHONPATH', '')]
    process = subprocess.Popen(
        [sys.executable, '-c', WRITER, str(tmp_path / 'e1')],
        cwd=here,
        env={**os.environ, 'PYTHONPATH': os.pathsep.join(path)},
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    for line in process.stdout:
        if int(line) >= 200:
            break
    process.kill()
    killed_s = time.monotonic()
    process.wait(10)
    process.stdout.close()
    # CDR of a string: 4 bytes of encapsulation, 4 of length, the text and a zero.
    found = whole_messages(tmp_path / 'e1/e1_0.mcap')
    rows = [json.loads(data[8:].partition(b'\0')[0]) for data in found]
    assert [row[0] for row in rows] == list(range(len(rows)))
    assert rows[-1][1] >= killed_s - 1.0
