# SPDX-License-Identifier: Apache-2.0
"""Bags of other recorders: what their files hold decides, and what is left out is told."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate
import json
import logging
import shutil
import sqlite3
import struct
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.format import unpack_zstd
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.recovery import recover
from embodied_r_ros.bags.sources import find_bags, find_sources, open_source
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, SourceError
from embodied_r_ros.data.episodes.inspect import audit_bag
import numpy as np
import pytest
from rosbags.rosbag1 import Writer as Ros1Writer
from rosbags.rosbag2 import CompressionFormat, CompressionMode, StoragePlugin
from rosbags.typesys import get_typestore, Stores
import yaml

from test.bags.recordings import (
    cdr,
    COMPRESSED,
    COUNT,
    definition,
    IMAGE,
    image,
    MS,
    ODOMETRY,
    odometry,
    pack,
    T0_NS,
    times,
    TOPIC,
    turning,
    TYPES,
    view,
    write_bag,
    write_mcap,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from mcap.writer import Writer as McapWriter

STRING = 'std_msgs/msg/String'


def stamps(path: Path, topic: str | None = None) -> list[int]:
    with open_source(path, topic) as source:
        return [image.stamp_ns for image in source]


def edit_metadata(bag: Path, edit: Callable[[dict[str, Any]], None]) -> Path:
    path = bag / 'metadata.yaml'
    content = yaml.safe_load(path.read_text())
    edit(content['rosbag2_bagfile_information'])
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return bag


def without_qos(information: dict[str, Any]) -> None:
    for topic in information['topics_with_message_count']:
        topic['topic_metadata']['offered_qos_profiles'] = ''


def with_other_counts(information: dict[str, Any]) -> None:
    information['message_count'] = 0
    for topic in information['topics_with_message_count']:
        topic['message_count'] = 0


def without_topics(information: dict[str, Any]) -> None:
    information['topics_with_message_count'] = []


def of_first_version(information: dict[str, Any]) -> None:
    information['version'] = 2
    for topic in information['topics_with_message_count']:
        del topic['topic_metadata']['offered_qos_profiles']
        topic['topic_metadata'].pop('type_description_hash', None)
    for name in ('compression_format', 'compression_mode', 'files', 'custom_data', 'ros_distro'):
        information.pop(name, None)
    # The first recorders wrote the folder's name before that of the file.
    information['relative_file_paths'] = [
        f'bag/{name}' for name in information['relative_file_paths']
    ]


def of_a_version_to_come(information: dict[str, Any]) -> None:
    information['version'] = 42


@pytest.mark.parametrize('plugin', [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
@pytest.mark.parametrize(
    'edit',
    [
        without_qos,
        with_other_counts,
        without_topics,
        of_first_version,
        of_a_version_to_come,
        lambda information: information.update(relative_file_paths=['renamed_since.mcap']),
        lambda information: information.update(relative_file_paths=[]),
        dict.clear,
    ],
)
def test_metadata_is_a_hint(
    tmp_path: Path, plugin: StoragePlugin, edit: Callable[[dict[str, Any]], None]
) -> None:
    bag = edit_metadata(write_bag(tmp_path / 'bag', turning(), plugin), edit)
    assert stamps(bag) == times()


def test_an_audit_compares_what_is_stated_with_what_was_read(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', turning())
    assert audit_bag(bag).problems == ()
    edit_metadata(bag, with_other_counts)
    assert audit_bag(bag).problems == (f'{TOPIC}: {COUNT} messages where metadata.yaml says 0',)


def foreign(writer: McapWriter) -> None:
    number = writer.register_schema('notes', 'jsonschema', b'{"type":"object"}')
    channel = writer.register_channel('/notes', 'json', number)
    writer.add_message(channel, T0_NS, json.dumps({'note': 'start'}).encode(), T0_NS)
    number = writer.register_schema('foxglove.Log', 'protobuf', b'\x0a\x00')
    writer.register_channel('/log', 'protobuf', number)


def test_channels_of_other_encodings_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert stamps(write_mcap(tmp_path / 'a.mcap', turning(), before=foreign)) == times()
    [record] = caplog.records
    assert 'topic /notes is left out: its 1 messages are json, not CDR' in record.getMessage()


def test_an_audit_says_what_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drive = [('/odom', ODOMETRY, ns, odometry(ns, 0.1)) for ns in times()]
    path = write_mcap(
        tmp_path / 'a.mcap',
        [*turning(), *drive],
        before=foreign,
        schema=lambda name: ('ros2msg', 'int32 x') if name == ODOMETRY else definition(name),
    )
    report = audit_bag(path)
    assert report.problems == ()
    [notes, drive_text] = report.left_out
    assert notes == 'topic /notes is left out: its 1 messages are json, not CDR'
    assert drive_text.startswith('topic /odom is counted alone: ')
    assert main(['episodes', 'audit', str(path)]) == 0
    said = capsys.readouterr().out
    assert notes in said
    assert drive_text in said
    assert main(['episodes', 'audit', '--json', str(path)]) == 0
    assert json.loads(capsys.readouterr().out)['left_out'] == list(report.left_out)


def test_a_definition_without_end_is_told_in_one_line(tmp_path: Path) -> None:
    text = '\n'.join(f'float64 field_{index}' for index in range(5000))
    vendor = ('/vendor', 'vendor_msgs/msg/State', T0_NS, b'\0\1\0\0' + bytes(64))
    path = write_mcap(
        tmp_path / 'a.mcap',
        [vendor, *turning()],
        schema=lambda name: ('ros2msg', text) if name == vendor[1] else definition(name),
    )
    assert stamps(path) == times()
    why = 'type vendor_msgs/msg/State has a definition of 5000 lines, more than 3000'
    assert any(why in line for line in audit_bag(path).left_out)
    with open_bag(path) as reader, pytest.raises(BagError, match=why):
        list(read_messages(reader, ['/vendor']))


@pytest.mark.parametrize('absent', [{IMAGE}, {ODOMETRY}, {IMAGE, ODOMETRY}])
def test_standard_types_are_filled_in_one_by_one(tmp_path: Path, absent: set[str]) -> None:
    drive = [('/odom', ODOMETRY, ns + MS, odometry(ns, 0.1)) for ns in times()]
    path = write_mcap(
        tmp_path / 'a.mcap',
        [*drive, *turning()],
        schema=lambda name: ('', '') if name in absent else definition(name),
    )
    with open_source(path) as source:
        images = list(source)
    assert [image.stamp_ns for image in images] == times()
    assert all(image.pose for image in images[1:])


@pytest.mark.parametrize('text', ['', 'int32 a\nint32 a', 'int32 class\nint32 class_'])
def test_a_topic_that_is_asked_for_and_defined_nowhere_is_named(tmp_path: Path, text: str) -> None:
    path = write_mcap(
        tmp_path / 'a.mcap',
        [('/x', 'vendor_msgs/msg/X', T0_NS, b'\0\1\0\0'), *turning()],
        schema=lambda name: definition(name) if name == IMAGE else ('ros2msg', text),
    )
    assert audit_bag(path).problems == ()
    message = 'topic /x of bag .* cannot be read: type vendor_msgs/msg/X has no definition'
    with open_bag(path) as reader, pytest.raises(BagError, match=message):
        reader.store_of(next(c for c in reader.connections if c.topic == '/x'))


def killed_with_a_log(folder: Path, in_file: int) -> Path:
    """A .db3 of a recorder with a write-ahead log, after a kill."""
    source = write_bag(folder / 'closed', turning(), StoragePlugin.SQLITE3) / 'closed.db3'
    work, bag = folder / 'work.db3', folder / f'killed_{in_file}'
    closed = sqlite3.connect(source)
    connection = sqlite3.connect(work, isolation_level=None)
    connection.execute('PRAGMA journal_mode=WAL')
    connection.execute('PRAGMA wal_autocheckpoint=0')
    tables = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql NOT NULL"
    rows: list[tuple[str, Any]] = []
    for name, sql in closed.execute(tables + " AND name NOT LIKE 'sqlite_%'"):
        connection.execute(sql)
        rows += [(name, row) for row in closed.execute(f'SELECT * FROM {name}')]
    rows.sort(key=lambda row: row[0] == 'messages')
    left = in_file
    for name, row in rows:
        if name == 'messages' and left == 0 and in_file:
            connection.execute('PRAGMA wal_checkpoint(TRUNCATE)')
        left -= name == 'messages'
        connection.execute(f'INSERT INTO {name} VALUES ({",".join("?" * len(row))})', row)
    bag.mkdir()
    for file in folder.glob('work.db3*'):
        if not file.name.endswith('-shm'):
            shutil.copy(file, bag / file.name)
    connection.close()
    return bag


@pytest.mark.parametrize('in_file', [0, 6])
def test_a_write_ahead_log_beside_a_file_is_read(tmp_path: Path, in_file: int) -> None:
    bag = killed_with_a_log(tmp_path, in_file)
    before = sorted(file.name for file in bag.iterdir())
    assert 'work.db3-wal' in before
    assert stamps(bag) == stamps(bag / 'work.db3') == times()
    assert sorted(file.name for file in bag.iterdir()) == before


def test_a_hot_journal_is_rolled_back_in_a_copy(tmp_path: Path) -> None:
    source = write_bag(tmp_path / 'closed', turning(), StoragePlugin.SQLITE3) / 'closed.db3'
    connection = sqlite3.connect(source, isolation_level=None)
    connection.execute('PRAGMA cache_size=1')  # spills to the file before the commit
    connection.execute('BEGIN')
    connection.execute('UPDATE messages SET timestamp = 0, data = zeroblob(length(data))')
    bag = tmp_path / 'killed'
    bag.mkdir()
    for name in ('closed.db3', 'closed.db3-journal'):
        shutil.copy(source.with_name(name), bag / name)
    connection.close()
    whole = (bag / 'closed.db3').read_bytes()
    assert stamps(bag) == times()
    assert (bag / 'closed.db3').read_bytes() == whole


def write_ros1(
    path: Path, before: Callable[[Ros1Writer], None] = lambda writer: None, **options: Any
) -> Path:
    store = get_typestore(Stores.ROS1_NOETIC)
    writer = Ros1Writer(path)
    if options:
        writer.set_compression(**options)
    with writer:
        before(writer)
        connection = writer.add_connection(TOPIC, IMAGE, typestore=store)
        info_type = 'sensor_msgs/msg/CameraInfo'
        infos = writer.add_connection('/cam/camera_info', info_type, typestore=store)
        for index, ns in enumerate(times()):
            pixels = view(index * 4.0)
            stamp = store.types['builtin_interfaces/msg/Time'](*divmod(ns, 10**9))
            header = store.types['std_msgs/msg/Header'](index, stamp, 'eye')
            msg = store.types[IMAGE](
                header, *pixels.shape[:2], 'bgr8', 0, pixels.strides[0], pixels.ravel()
            )
            writer.write(connection, ns, store.serialize_ros1(msg, IMAGE))
            roi = store.types['sensor_msgs/msg/RegionOfInterest'](0, 0, 0, 0, False)
            k = np.array([160, 0, 159.5, 0, 160, 119.5, 0, 0, 1])
            about: tuple[Any, ...] = header, 240, 320, 'plumb_bob', np.zeros(5), k
            info = store.types[info_type](*about, np.eye(3).ravel(), np.zeros(12), 0, 0, roi)
            writer.write(infos, ns - 1, store.serialize_ros1(info, info_type))
    return path


@pytest.mark.parametrize(
    'options',
    [{}, {'fmt': Ros1Writer.CompressionFormat.BZ2}, {'fmt': Ros1Writer.CompressionFormat.LZ4}],
)
def test_bags_of_ros_1_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write_ros1(tmp_path / 'old.bag', **options)
    with open_source(path) as source:
        images = list(source)
    assert [image.stamp_ns for image in images] == times()
    assert images[0].intrinsics
    assert images[0].intrinsics.fx == 160
    assert audit_bag(path).problems == ()


STATE = 'vendor_msgs/msg/State'


def add_state(writer: Ros1Writer, text: str, data: bytes) -> None:
    """A topic of a type that is as its definition says, or not defined at all."""
    connection = writer.add_connection('/state', STATE, msgdef=text, md5sum='0' * 32)
    writer.write(connection, T0_NS + 1, data)


@pytest.mark.parametrize(
    ('text', 'data'),
    [
        ('vendor_msgs/Inner inner\n', bytes(8)),  # of a type that is nowhere defined
        ('', b''),
        ('uint8 mode = = 3', bytes(8)),
        ('string name\nfloat64[] values', b'\xff\xff\xff\x7f'),  # a message that is cut off
    ],
)
def test_a_type_of_ros_1_that_nobody_asked_for_costs_nothing(
    tmp_path: Path, text: str, data: bytes
) -> None:
    path = write_ros1(tmp_path / 'old.bag', lambda writer: add_state(writer, text, data))
    assert stamps(path) == times()
    report = audit_bag(path)
    assert report.problems == ()
    assert {topic.topic: topic.messages for topic in report.topics}['/state'] == 1
    collected = ['collect', str(path), '--out', str(tmp_path / 'out')]
    assert main([*collected, '--set', 'collect.images=none']) == 0
    with open_bag(path) as reader, pytest.raises(BagError, match=r'/state.*'):
        list(read_messages(reader, ['/state']))


def test_a_ros_1_bag_without_an_index_says_what_to_do(tmp_path: Path) -> None:
    path = write_ros1(tmp_path / 'old.bag')
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(BagError, match='rosbag reindex'), open_bag(path):
        pass


@pytest.mark.parametrize('plugin', [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
@pytest.mark.parametrize('mode', [CompressionMode.FILE, CompressionMode.MESSAGE])
@pytest.mark.parametrize('has_metadata', [True, False])
def test_packed_bags_are_unpacked(
    tmp_path: Path, plugin: StoragePlugin, mode: CompressionMode, has_metadata: bool
) -> None:
    bag = write_bag(
        tmp_path / 'bag',
        turning(),
        plugin,
        prepare=lambda writer: writer.set_compression(mode, CompressionFormat.ZSTD),
    )
    if not has_metadata:
        (bag / 'metadata.yaml').unlink()
    assert stamps(bag) == times()
    [file] = [file for file in bag.iterdir() if file.name != 'metadata.yaml']
    assert stamps(file) == times()
    if mode is CompressionMode.FILE:  # somebody unpacked it, and kept both
        file.with_suffix('').write_bytes(unpack_zstd(file.read_bytes()))
        assert stamps(bag) == times()


def test_split_bags_are_one_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    bag = tmp_path / 'bag'
    bag.mkdir()
    messages = turning()
    for number in range(12):
        write_mcap(bag / f'bag_{number}.mcap', messages[2 * number : 2 * number + 2])
    assert stamps(bag) == times()
    (bag / 'bag_3.mcap').write_bytes((bag / 'bag_3.mcap').read_bytes()[:-30])
    with pytest.raises(BagError, match=r'bag_3.mcap of bag .* cannot be read: it was not closed'):
        stamps(bag)


def test_files_of_several_bags_in_a_folder_are_several_bags(tmp_path: Path) -> None:
    for name in ('kitchen', 'hall'):
        write_mcap(tmp_path / f'{name}.mcap', turning()[:3])
    with pytest.raises(BagError, match=r'they are of several bags .*: give one of them'):
        stamps(tmp_path)
    assert [path.name for path in find_bags([tmp_path])] == ['hall.mcap', 'kitchen.mcap']


@pytest.mark.parametrize(
    ('content', 'message'),
    [
        (b'version https://git-lfs.github.com/spec/v1\noid sha256:0', 'run `git lfs pull`'),
        (b'\x1f\x8b\x08\0rest', 'is packed with gzip: unpack it first'),
        (b'', r'is empty \(0 bytes\)'),
        (b'\x28\xb5\x2f\xfdrest', 'cannot be unpacked .*: it is cut off or damaged'),
    ],
)
@pytest.mark.parametrize('name', ['a.mcap', 'a.db3', 'a.bag'])
def test_what_is_no_bag_says_what_it_is(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(BagError, match=message), open_bag(path):
        pass


def test_names_do_not_decide_what_a_file_is(tmp_path: Path) -> None:
    path = write_mcap(tmp_path / 'a.mcap', turning())
    path = path.rename(tmp_path / 'a.mcap.bak')
    assert stamps(path) == times()


@pytest.mark.parametrize('name', ['run#2', 'run?3', 'run%204', 'Küche 5', '2026-01-31T10:15:00'])
@pytest.mark.parametrize('plugin', [StoragePlugin.MCAP, StoragePlugin.SQLITE3])
def test_any_name_of_a_folder_will_do(tmp_path: Path, name: str, plugin: StoragePlugin) -> None:
    bag = write_bag(tmp_path / 'plain', turning(), plugin).rename(tmp_path / name)
    assert stamps(bag) == times()


def test_the_topic_with_messages_is_the_one(tmp_path: Path) -> None:
    silent = [(f'{TOPIC}/compressed', COMPRESSED), ('/rear/image_raw', IMAGE)]
    assert stamps(write_bag(tmp_path / 'a', turning(), silent=silent)) == times()


def test_of_one_camera_raw_images_are_read(tmp_path: Path) -> None:
    both = turning() + pack(lambda _, pixels: cv2.imencode('.jpg', pixels)[1].tobytes())
    with open_source(write_bag(tmp_path / 'a', both)) as source:
        assert all(image.encoded is None for image in source)


def test_depth_beside_colour_is_no_choice(tmp_path: Path) -> None:
    depth = [
        ('/depth/image_rect_raw', IMAGE, ns, image(ns, np.full((24, 32), 900, np.uint16), '16UC1'))
        for ns in times()
    ]
    assert stamps(write_bag(tmp_path / 'a', turning() + depth)) == times()
    with pytest.raises(SourceError, match="'16UC1' is depth"):
        stamps(write_bag(tmp_path / 'b', depth))


def test_recover_says_what_it_changed(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', turning())
    assert recover(bag).text() == 'was closed'
    (bag / 'metadata.yaml').unlink()
    assert recover(bag).text() == (
        f'its files were whole ({COUNT} messages): metadata.yaml was written'
    )
    other = write_bag(tmp_path / 'other', turning(), StoragePlugin.SQLITE3)
    (other / 'metadata.yaml').unlink()
    with pytest.raises(BagError, match='has no MCAP files'):
        recover(other)
    assert stamps(other) == times()


def test_sources_of_all_kinds_are_found(tmp_path: Path) -> None:
    (tmp_path / 'videos').mkdir()
    for name in ('b.MP4', 'a.mkv', 'notes.txt'):
        (tmp_path / 'videos' / name).write_bytes(b'x')
    (tmp_path / 'images').mkdir()
    (tmp_path / 'images' / '1.webp').write_bytes(b'x')
    bag = write_bag(tmp_path / 'bag', turning()[:2])
    found = find_sources([tmp_path / 'videos', tmp_path / 'images', bag])
    assert [path.name for path in found] == ['a.mkv', 'b.MP4', 'images', 'bag']


def test_messages_of_no_topic_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bag = write_bag(tmp_path / 'bag', turning(), StoragePlugin.SQLITE3)
    connection = sqlite3.connect(bag / 'bag.db3')
    connection.execute('UPDATE messages SET topic_id = 77 WHERE id <= 2')
    connection.commit()
    connection.close()
    with caplog.at_level(logging.WARNING):
        assert stamps(bag) == times()[2:]
    assert '2 messages of' in caplog.text


def test_a_string_in_messages_is_not_taken_for_zstd(tmp_path: Path) -> None:
    text = TYPES[STRING]('(\u00b5/\u00fd')
    bag = write_bag(tmp_path / 'bag', [('/text', STRING, T0_NS, text), *turning()])
    with open_bag(bag) as reader:
        assert len(list(reader.messages())) == COUNT + 1


def test_messages_of_another_type_under_the_same_name_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stranger(writer: McapWriter) -> None:
        encoding, text = definition(STRING)
        number = writer.register_schema(STRING, encoding, text.encode())
        channel = writer.register_channel(TOPIC, 'cdr', number)
        writer.add_message(channel, T0_NS, cdr(STRING, TYPES[STRING]('x')), T0_NS)

    assert stamps(write_mcap(tmp_path / 'a.mcap', turning(), before=stranger)) == times()
    assert f'1 messages of topic {TOPIC} are left out' in caplog.text


def test_a_file_that_is_listed_twice_is_read_once(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', turning())
    edit_metadata(bag, lambda content: content['relative_file_paths'].append('bag.mcap'))
    assert stamps(bag) == times()


def test_an_index_that_lacks_a_channel_loses_nothing(tmp_path: Path) -> None:
    texts = [('/text', STRING, ns, TYPES[STRING]('x')) for ns in times()]
    path = write_mcap(tmp_path / 'a.mcap', [*texts, *turning()], chunk_size=10**8)
    data = path.read_bytes()
    at = data.index(struct.pack('<BQHI', 7, 6 + 16 * COUNT, 2, 16 * COUNT))
    path.write_bytes(data[:at] + b'\x80' + data[at + 1 :])  # no longer an index record
    assert stamps(path) == times()


def test_a_database_at_rest_in_the_mode_of_a_log_leaves_nothing_behind(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag', turning(), StoragePlugin.SQLITE3)
    connection = sqlite3.connect(bag / 'bag.db3')
    connection.execute('PRAGMA journal_mode=WAL')
    connection.close()
    before = sorted(bag.iterdir())
    assert stamps(bag) == times()
    assert sorted(bag.iterdir()) == before


@pytest.mark.parametrize('cut', [b'\0\1\0\0 cut off', b''])
def test_a_damaged_message_of_an_image_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, cut: bytes
) -> None:
    messages: list[Any] = turning()
    messages[3] = (*messages[3][:3], cut)
    assert stamps(write_mcap(tmp_path / 'a.mcap', messages)) == times()[:3] + times()[4:]
    assert f'the first: image 3: bag {tmp_path}/a.mcap has a damaged message (topic' in caplog.text


def test_a_damaged_message_or_another_definition_beside_images_costs_no_image(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    drive: list[Any] = [('/odom', ODOMETRY, ns - MS, odometry(ns, 0.1)) for ns in times()]
    drive[3] = (*drive[3][:3], b'\0\1\0\0 cut off')
    messages = sorted([*drive, *turning()], key=lambda message: message[2])
    assert stamps(write_mcap(tmp_path / 'a.mcap', messages)) == times()
    assert 'a message of topic /odom is left out' in caplog.text
    path = write_mcap(
        tmp_path / 'b.mcap',
        messages,
        schema=lambda name: ('ros2msg', 'int32 x') if name == ODOMETRY else definition(name),
    )
    assert stamps(path) == times()
    assert 'topic /odom is left out: topic /odom of bag' in caplog.text


def test_hidden_and_empty_files_beside_a_bag_are_no_part_of_it(tmp_path: Path) -> None:
    write_mcap(tmp_path / 'run_0.mcap', turning())
    (tmp_path / '._run_0.mcap').write_bytes(b'\0\5\x16\7')
    (tmp_path / 'run_1.mcap').write_bytes(b'')
    assert stamps(tmp_path) == times()


def test_stamps_that_go_back_are_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    backward = [
        (topic, kind, received, image(ns, view(0.0)))
        for (topic, kind, received, _), ns in zip(turning(), times()[::-1], strict=True)
    ]
    assert stamps(write_bag(tmp_path / 'a', backward)) == times()[::-1]
    assert f'{COUNT - 1} of {COUNT} images of topic {TOPIC} have a stamp before' in caplog.text
    mixed = [
        (topic, kind, ns, image(0 if i % 2 else ns, view(0.0)))
        for i, (topic, kind, ns, _) in enumerate(turning())
    ]
    assert stamps(write_bag(tmp_path / 'b', mixed)) == times()


def test_a_video_that_is_cut_off_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / 'v.avi'
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'MJPG'), 10, (320, 240))
    for index in range(COUNT):
        writer.write(view(index * 4.0))
    writer.release()
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert 0 < len(stamps(path)) < COUNT
    assert 'its container states' in caplog.text


def write_varying(path: Path, codec: str, steps_ms: list[int]) -> Path:
    """A video whose images are as far apart as said, by PyAV."""
    av = pytest.importorskip('av')
    with av.open(str(path), 'w') as container:
        stream = container.add_stream(codec, rate=30)
        stream.width, stream.height = 320, 240
        stream.pix_fmt = 'yuvj420p' if codec == 'mjpeg' else 'yuv420p'
        stream.codec_context.time_base = stream.time_base = Fraction(1, 1000)
        for index, pts in enumerate(accumulate(steps_ms, initial=0)):
            frame = av.VideoFrame.from_ndarray(view(index * 4.0), format='bgr24')
            frame.pts, frame.time_base = pts, Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


@pytest.mark.parametrize(
    ('name', 'codec'),
    [
        ('a.mkv', 'libx264'),
        ('a.webm', 'libvpx'),
        ('a.ts', 'libx264'),
        ('a.avi', 'mjpeg'),
        ('a.mkv', 'mjpeg'),
        ('a.mp4', 'libx264'),
    ],
)
def test_a_whole_video_of_varying_rate_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, codec: str
) -> None:
    steps_ms = [400 if index % 10 == 9 else 10 for index in range(59)]
    path = write_varying(tmp_path / name, codec, steps_ms)
    assert np.diff(stamps(path)).tolist() == [1_000_000 * ms for ms in steps_ms]
    assert not caplog.text


@pytest.mark.parametrize(('name', 'codec'), [('a.mkv', 'libvpx'), ('a.avi', 'mjpeg')])
def test_a_video_of_varying_rate_that_is_cut_off_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, codec: str
) -> None:
    path = write_varying(tmp_path / name, codec, [400, 10] * 30)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    assert 0 < len(stamps(path)) < 61
    assert 'may be cut off or damaged' in caplog.text


def test_a_video_with_a_hole_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write_varying(tmp_path / 'a.mkv', 'mjpeg', [33] * 59)
    data = bytearray(path.read_bytes())
    begins = [at for at in range(len(data)) if data.startswith(b'\xff\xd8\xff', at)]
    data[begins[10] : begins[30] - 100] = bytes(begins[30] - 100 - begins[10])
    path.write_bytes(data)
    assert 0 < len(stamps(path)) <= 45
    assert 'may be cut off or damaged' in caplog.text


def test_a_video_with_a_damaged_table_of_times_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = write_varying(tmp_path / 'a.mp4', 'mjpeg', [100] * 11)
    data = bytearray(path.read_bytes())
    place = data.index(b'stts') + 16
    data[place : place + 4] = b'\x7f\xff\xff\xff'  # each image lasts for ever
    path.write_bytes(data)
    assert len(stamps(path)) < 12
    assert 'its container states 12: it may be cut off or damaged' in caplog.text


def test_videos_beside_a_picture_are_found(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ('a.mp4', 'b.mp4', 'cover.jpg'):
        (tmp_path / name).write_bytes(b'x')
    assert [path.name for path in find_sources([tmp_path])] == ['a.mp4', 'b.mp4']
    assert '1 images of' in caplog.text


def test_a_jpeg_is_read_whatever_its_format_says(tmp_path: Path) -> None:
    for name in ('h264', '16UC1; jpeg compressed bgr8', 'unknown'):
        messages = pack(lambda _, pixels: cv2.imencode('.jpg', pixels)[1].tobytes(), name)
        assert len(stamps(write_bag(tmp_path / name.replace(';', ''), messages))) == COUNT
