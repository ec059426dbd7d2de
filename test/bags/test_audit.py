# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
import struct

from embodied_r_ros.bags.audit import Audit, AuditConfig, stamp_from_cdr
from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.data.episodes.inspect import audit_bag
import pytest

from test.bags.test_recording import growing, text_cdr

ODOM = 'nav_msgs/msg/Odometry'
S = 1_000_000_000
SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'


def stamp_cdr(stamp_ns: int, order: str = '<') -> bytes:
    """The beginning of a message that has a header."""
    kind = b'\x00\x01\x00\x00' if order == '<' else b'\x00\x00\x00\x00'
    return kind + struct.pack(f'{order}iI', stamp_ns // S, stamp_ns % S)


def audit(*topics: str, **settings: float) -> Audit:
    made = Audit(AuditConfig(topics=topics, **settings), 100 * S)
    made.add_topic('/r/odom', ODOM, embodied_typestore())
    made.add_topic('/r/text', 'std_msgs/msg/String', embodied_typestore())
    return made


def feed(made: Audit, *times_s: float) -> None:
    for time_s in times_s:
        made.take('/r/odom', stamp_cdr(int(time_s * S)), int((100 + time_s) * S))


def test_rates_and_gaps_are_told_for_each_topic() -> None:
    made = audit('odom 10')
    feed(made, *(index / 10 for index in range(1, 51)))
    report = made.report(105 * S, is_over=True)
    odom, text = report.topics
    assert report.duration_s == 5
    assert (odom.topic, odom.messages, odom.rate_hz) == ('/r/odom', 50, 10)
    assert odom.longest_gap_s == pytest.approx(0.1)
    assert (text.messages, text.rate_hz, text.longest_gap_s) == (0, 0, 5)
    assert report.problems == ()


@pytest.mark.parametrize(
    ('expected', 'problems'),
    [
        ('odom', ()),
        ('/r/odom', ()),
        ('odom 3', ()),
        ('odom 10', ('/r/odom: 2.00 Hz instead of 10',)),
        ('text', ('/r/text: no message',)),
        ('dom', ('dom: not recorded',)),
        ('keyframe', ('keyframe: not recorded',)),
    ],
)
def test_expected_topic_must_come_at_its_rate(expected: str, problems: tuple[str, ...]) -> None:
    made = audit(expected)
    feed(made, *(index / 2 for index in range(1, 21)))
    assert made.report(110 * S, is_over=True).problems == problems


@pytest.mark.parametrize('gap', ['start', 'middle', 'end'])
def test_silence_of_a_topic_with_a_rate_fails_wherever_it_is(gap: str) -> None:
    made = audit('odom 10')
    silent = {'start': (0, 3), 'middle': (4, 7), 'end': (7, 10)}[gap]
    feed(made, *(t / 10 for t in range(101) if not silent[0] <= t / 10 < silent[1] or t == 0))
    problems = made.report(110 * S, is_over=True).problems
    assert problems in [(f'/r/odom: silent for {s} s',) for s in ('3.0', '2.9', '3.1')]


def test_slow_topic_may_be_silent_for_some_of_its_periods() -> None:
    made = audit('odom 0.2')
    feed(made, 5, 10, 20, 25)
    assert made.report(130 * S, is_over=True).problems == ()


def test_topic_has_time_to_come_while_the_episode_runs() -> None:
    made = audit('odom', 'text 1')
    assert made.report(101 * S, is_over=False).problems == ()
    assert len(made.report(101 * S, is_over=True).problems) == 2
    assert made.report(int(102.5 * S), is_over=False).problems == ('/r/odom: no message',)
    assert len(made.report(104 * S, is_over=False).problems) == 2


def test_stamps_out_of_order_are_counted_and_fail() -> None:
    for max_disorder, problems in ((0.01, ('/r/odom: 1 stamps out of order',)), (0.5, ())):
        made = audit(max_disorder=max_disorder)
        feed(made, 1, 2, 3)
        made.take('/r/odom', stamp_cdr(2 * S), 104 * S)
        report = made.report(105 * S, is_over=True)
        assert report.topics[0].out_of_order == 1
        assert report.problems == problems


@pytest.mark.parametrize('topics', [(), ('keyframe',)])
def test_keyframes_are_in_order_where_they_are_expected(topics: tuple[str, ...]) -> None:
    made = audit(*topics)
    made.add_topic('/r/keyframe', 'embodied_r_msgs/msg/Keyframe', embodied_typestore())
    for index, stamp_s in enumerate((5, 6, 1)):
        made.take('/r/keyframe', stamp_cdr(stamp_s * S), (101 + index) * S)
    problems = made.report(105 * S, is_over=True).problems
    assert problems == tuple(f'/r/{name}: 1 stamps out of order' for name in topics)


def test_dropped_messages_fail_above_their_share() -> None:
    made = audit()
    feed(made, *(index / 100 for index in range(100)))
    made.note_drops({'/r/odom': 1, '/elsewhere': 7})
    assert made.report(101 * S, is_over=True).problems == ()
    made.note_drops({'/r/odom': 25})
    assert made.report(101 * S, is_over=True).problems == ('/r/odom: 25 messages dropped (20%)',)


@pytest.mark.parametrize('order', ['<', '>'])
def test_stamp_is_read_in_either_byte_order(order: str) -> None:
    assert stamp_from_cdr(stamp_cdr(1_706_961_822_123_456_789, order)) == 1_706_961_822_123_456_789
    assert stamp_from_cdr(b'\x00\x01') == 0


@pytest.mark.parametrize('text', ['odom fast', 'odom -1', 'odom 1 2', 'odom nan'])
def test_expectation_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match='expected a name, or a name and a rate'):
        AuditConfig(topics=(text,))


def test_nothing_is_expected_where_no_name_is_given() -> None:
    assert (
        AuditConfig(topics=('',)).expected_rates() == AuditConfig(topics=()).expected_rates() == {}
    )


def test_settings_survive_as_json() -> None:
    config = AuditConfig(topics=('odom 20', 'keyframe'), max_gap_s=3.0)
    assert AuditConfig.from_json(config.to_json()) == config
    for text in ('{', '[]', '{"topics": ["a"], "new_setting": 1}'):
        with pytest.raises(ConfigError):
            AuditConfig.from_json(text)


def test_recording_of_others_has_no_expectations() -> None:
    report = audit_bag(SAMPLE)
    assert report.problems == ()
    images = next(t for t in report.topics if t.topic == '/image/compressed')
    assert (images.messages, round(images.rate_hz), images.out_of_order) == (200, 10, 0)


def test_bag_without_messages_is_audited(tmp_path: Path) -> None:
    with BagWriter(tmp_path / 'empty') as bag:
        bag.add_topic('/odom', ODOM)
    assert audit_bag(tmp_path / 'empty').problems == ()


def test_bag_that_was_not_closed_fails(tmp_path: Path) -> None:
    bag = growing(tmp_path / 'e1')
    bag.write('/text', text_cdr('a'), 1)
    [problem] = audit_bag(bag.folder).problems
    assert problem == f'bag {bag.folder} is being recorded, or recovered'
    bag.abandon()
    [problem] = audit_bag(bag.folder).problems
    how = f'run `embodied-r episodes recover {bag.folder}`'
    assert problem == f'bag {bag.folder} was not closed: {how}'
