# SPDX-License-Identifier: Apache-2.0
"""Bags are complete or not there; damaged and absent ones are named."""

from __future__ import annotations

import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.reader import open_bag, read_messages, topics_of_type
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS, SENSOR_DATA_QOS
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, InputError
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import keyframe_from_msg, keyframe_to_msg
import pytest

if TYPE_CHECKING:
    from pathlib import Path

STRING = 'std_msgs/msg/String'
KEYFRAME = 'embodied_r_msgs/msg/Keyframe'
T0_NS = 1_700_000_000_000_000_001


def text(value: str) -> Any:
    return BagMessageFactory().make(STRING, data=value)


def write_bag(path: Path, count: int = 3) -> Path:
    with BagWriter(path) as bag:
        bag.add_topic('/b', STRING, LATCHED_QOS)
        bag.add_topic('/a', STRING)
        for index in range(count):
            bag.write('/a', text(f'message {index}'), T0_NS + index)
    return path


def test_messages_come_back_with_their_stamps(tmp_path: Path) -> None:
    with open_bag(write_bag(tmp_path / 'bag')) as reader:
        messages = [
            (topic, stamp, msg.data) for topic, stamp, msg in read_messages(reader, ['/a'])
        ]
    assert messages == [('/a', T0_NS + i, f'message {i}') for i in range(3)]


def test_our_own_types_need_nothing_installed_to_be_read(tmp_path: Path) -> None:
    keyframe = Keyframe(3, T0_NS, EncodedImage(b'\xff\xd8\xffx', 'jpeg'), KeyframeReason.ROLL, 2)
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/keyframe', KEYFRAME)
        bag.write('/keyframe', keyframe_to_msg(BagMessageFactory(), keyframe), T0_NS)
    with open_bag(tmp_path / 'bag' / 'bag.mcap') as reader:
        [(_, _, msg)] = read_messages(reader, topics_of_type(reader, KEYFRAME))
    assert keyframe_from_msg(msg) == keyframe


def test_a_bag_is_one_file_with_its_metadata(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag')
    assert [path.name for path in tmp_path.iterdir()] == ['bag']
    assert sorted(p.name for p in (tmp_path / 'bag').iterdir()) == ['bag.mcap', 'metadata.yaml']


def test_serialised_messages_stay_untouched(tmp_path: Path) -> None:
    data = b'\x00\x01\x00\x00\x03\x00\x00\x00hi\x00'
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/a', STRING, SENSOR_DATA_QOS)
        bag.write_serialized('/a', data, T0_NS)
    with open_bag(tmp_path / 'bag') as reader:
        assert [raw for _, _, raw in reader.messages()] == [data]


def test_topics_are_found_by_type(tmp_path: Path) -> None:
    with open_bag(write_bag(tmp_path / 'bag')) as reader:
        assert topics_of_type(reader, STRING) == ['/a', '/b']
        assert topics_of_type(reader, KEYFRAME) == []


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with BagWriter(tmp_path / 'bag') as bag:
            bag.add_topic('/a', STRING)
            bag.write('/a', text('x'), T0_NS)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_an_existing_target_is_refused_and_kept(tmp_path: Path) -> None:
    write_bag(tmp_path / 'bag')
    with pytest.raises(InputError, match='exists already'):
        BagWriter(tmp_path / 'bag')
    with open_bag(tmp_path / 'bag') as reader:
        assert reader.message_count == 3


def test_an_empty_folder_may_become_the_bag(tmp_path: Path) -> None:
    (tmp_path / 'bag').mkdir()
    with open_bag(write_bag(tmp_path / 'bag')) as reader:
        assert reader.message_count == 3


def test_a_target_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / 'file').touch()
    with pytest.raises(BagError, match=r'cannot write .*file/bag'):
        write_bag(tmp_path / 'file' / 'bag')


def test_writing_to_a_closed_bag_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BagError, match='not open'):
        BagWriter(tmp_path / 'bag').add_topic('/a', STRING)


def test_a_missing_bag_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(BagError, match=r'nothing\.mcap does not exist'),
        open_bag(tmp_path / 'nothing.mcap'),
    ):
        pass


def test_other_files_and_folders_are_no_bags(tmp_path: Path) -> None:
    (tmp_path / 'video.mp4').touch()
    for path in (tmp_path, tmp_path / 'video.mp4'):
        with pytest.raises(BagError, match='is not a bag: expected'), open_bag(path):
            pass


@pytest.mark.parametrize('kept', [0.1, 0.5, 0.95, 0.999])
def test_a_cut_off_bag_is_refused_with_what_to_do(tmp_path: Path, kept: float) -> None:
    mcap = write_bag(tmp_path / 'bag', 50) / 'bag.mcap'
    data = mcap.read_bytes()
    mcap.write_bytes(data[: int(len(data) * kept)])
    command = rf'`embodied-r episodes recover {tmp_path}/bag` keeps what is whole$'
    for path in (tmp_path / 'bag', mcap):
        with pytest.raises(BagError, match=command), open_bag(path):
            pass
    main(['episodes', 'recover', str(tmp_path / 'bag')])
    with open_bag(tmp_path / 'bag') as reader:
        assert all(len(raw) > 0 for _, _, raw in reader.messages())


def test_a_cut_off_file_among_others_is_to_be_moved_first(tmp_path: Path) -> None:
    files = [write_bag(tmp_path / name) / f'{name}.mcap' for name in ('one', 'two')]
    for file in files:
        file.rename(tmp_path / file.name)
    cut = tmp_path / 'one.mcap'
    cut.write_bytes(cut.read_bytes()[:-20])
    with pytest.raises(BagError, match='to a folder of its own, where `'), open_bag(cut):
        pass


@pytest.mark.parametrize(
    ('names', 'message'),
    [([], 'is not a bag: expected'), (['bag.mcap.zstd'], 'does not begin as an MCAP file$')],
)
def test_a_folder_whose_files_are_no_mcap_is_not_promised_a_repair(
    tmp_path: Path, names: list[str], message: str
) -> None:
    for name in names:
        (tmp_path / name).write_bytes(b'packed')
    listed = {'relative_file_paths': names}
    (tmp_path / 'metadata.yaml').write_text(json.dumps({'rosbag2_bagfile_information': listed}))
    with pytest.raises(BagError, match=message), open_bag(tmp_path):
        pass


def test_a_database_that_is_cut_off_is_not_promised_a_repair(tmp_path: Path) -> None:
    (tmp_path / 'a.db3').write_bytes(b'SQLite format 3\0')
    with pytest.raises(BagError, match='only MCAP files'), open_bag(tmp_path / 'a.db3'):
        pass


def test_a_bag_without_its_file_is_refused_with_what_to_do(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'bag')
    (bag / 'bag.mcap').unlink()
    advice = r'the folder lacks bag.mcap: copy the whole folder again$'
    with pytest.raises(BagError, match=advice), open_bag(bag):
        pass


def test_an_absent_topic_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    with (
        open_bag(write_bag(tmp_path / 'bag')) as reader,
        pytest.raises(BagError, match=r"no topic '/c': it has /a, /b"),
    ):
        read_messages(reader, ['/a', '/c'])


def test_reading_no_topic_gives_nothing(tmp_path: Path) -> None:
    with open_bag(write_bag(tmp_path / 'bag')) as reader:
        assert list(read_messages(reader, [])) == []
