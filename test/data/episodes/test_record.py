# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.core.types.episodes import (
    AnswerLabel,
    EpisodeEvent,
    EpisodeMark,
    EpisodeOutcome,
    LabelVerdict,
)
from embodied_r_ros.data.episodes.record import BagTopic, DiskForecast, EpisodeWriter, OwnTopics
from embodied_r_ros.data.own_messages import label_from_msg, mark_from_msg
import pytest
import yaml

from test.bags.test_recording import text_cdr

if TYPE_CHECKING:
    from pathlib import Path

START = EpisodeMark(10, 'e1', EpisodeEvent.START, 'tidy up', 'lab')
STOP = EpisodeMark(90, 'e1', EpisodeEvent.STOP, 'tidy up', 'lab', EpisodeOutcome.SUCCESS)
OWN = OwnTopics('/r/episode_mark', '/r/answer_label')


def test_episode_holds_its_marks_labels_and_messages(tmp_path: Path) -> None:
    topics = [BagTopic('/r/text', 'std_msgs/msg/String')]
    writer = EpisodeWriter(tmp_path / 'e1', START, topics, OWN, {'/r/node': '{}'}, 1_000_000)
    label = AnswerLabel(50, 'a-1', LabelVerdict.CORRECTED, 'left', 'ann')
    assert writer.write('/r/text', text_cdr('hello'), 20)
    assert writer.label(label)
    writer.stop(STOP)
    writer.close()
    with open_bag(tmp_path / 'e1') as reader:
        found = list(read_messages(reader, ['/r/text', OWN.mark, OWN.label]))
    assert [stamp_ns for _, stamp_ns, _ in found] == [10, 20, 50, 90]
    assert mark_from_msg(found[0][2]) == START
    assert found[1][2].data == 'hello'
    assert label_from_msg(found[2][2]) == label
    assert mark_from_msg(found[3][2]) == STOP
    metadata = yaml.safe_load((tmp_path / 'e1' / 'metadata.yaml').read_text())
    assert metadata['rosbag2_bagfile_information']['custom_data'] == {
        'episode_id': 'e1',
        '/r/node': '{}',
    }
    assert writer.stats().messages == {OWN.mark: 2, OWN.label: 1, '/r/text': 1}


def test_the_disk_is_forecast_by_how_fast_it_fills() -> None:
    forecast = DiskForecast()
    forecast.note(0.0, 5000)
    forecast.note(5.0, 4900)
    assert forecast.minutes_left(500) is None  # too early
    forecast.note(60.0, 4400)
    assert forecast.minutes_left(500) == pytest.approx(3900 / 600)
    for second in range(61, 400):  # what was long ago does not count
        forecast.note(float(second), 4400)
    assert forecast.minutes_left(500) is None  # nothing shrinks
    forecast.note(400.0, 400)
    assert forecast.minutes_left(500) == 0.0
