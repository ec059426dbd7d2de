# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.playback import Pace, PlaybackConfig, Player
from embodied_r_ros.bags.writer import BagWriter
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

S = 1_000_000_000
BAG = 1_700_000_000 * S  # a bag that begins here
NOW = 50 * S  # is played from this monotonic time on


@pytest.mark.parametrize(('rate', 'wait_s'), [(1.0, 3.0), (2.0, 1.0), (0.5, 7.0)])
def test_message_is_due_by_the_rate(rate: float, wait_s: float) -> None:
    pace = Pace(BAG, NOW, rate)
    assert pace.wait_s(BAG + 4 * S, NOW + S) == pytest.approx(wait_s)


def test_message_of_the_past_is_late() -> None:
    assert Pace(BAG, NOW, 1.0).wait_s(BAG + S, NOW + 3 * S) == pytest.approx(-2.0)


def test_bag_time_runs_with_the_rate() -> None:
    assert Pace(BAG, NOW, 2.0).bag_time_ns(NOW + 3 * S) == BAG + 6 * S


def test_time_stands_still_while_paused_and_goes_on_from_there() -> None:
    pace = Pace(BAG, NOW, 1.0).paused(NOW + 2 * S)
    assert pace.bag_time_ns(NOW + 9 * S) == BAG + 2 * S
    assert pace.wait_s(BAG + 3 * S, NOW + 9 * S) == float('inf')
    resumed = pace.resumed(NOW + 10 * S)
    assert resumed.wait_s(BAG + 3 * S, NOW + 10 * S) == pytest.approx(1.0)


def test_pausing_twice_changes_nothing() -> None:
    once = Pace(BAG, NOW, 1.0).paused(NOW + 2 * S)
    assert once.paused(NOW + 5 * S).bag_time_ns(NOW + 6 * S) == BAG + 2 * S


def test_new_rate_counts_from_now() -> None:
    pace = Pace(BAG, NOW, 1.0).at_rate(4.0, NOW + 2 * S)
    assert pace.bag_time_ns(NOW + 3 * S) == BAG + 6 * S


def test_nanoseconds_of_an_epoch_are_not_rounded() -> None:
    assert Pace(BAG + 1, NOW, 1.0).bag_time_ns(NOW + 1) == BAG + 2


class Sink:
    """Remembers what was played, and when."""

    def __init__(self) -> None:
        self.played: list[tuple[str, bytes, float]] = []
        self.ticks: list[int] = []
        self.changed = threading.Event()

    def publish(self, topic: str, data: bytes) -> None:
        self.played.append((topic, data, time.monotonic()))
        self.changed.set()

    def wait(self, count: int) -> None:
        end = time.monotonic() + 20
        while len(self.played) < count:
            self.changed.clear()
            self.changed.wait(0.05)
            assert time.monotonic() < end, f'only {len(self.played)} of {count} were played'


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """Five messages, 50 ms apart, and one on another topic."""
    store = embodied_typestore()
    kind = 'std_msgs/msg/String'
    with BagWriter(tmp_path / 'bag') as writer:
        writer.add_topic('/text', kind)
        writer.add_topic('/other', kind)
        for index in range(5):
            writer.write('/text', store.types[kind](data=str(index)), BAG + index * S // 20)
        writer.write('/other', store.types[kind](data='other'), BAG)
    return tmp_path / 'bag'


@pytest.fixture
def players() -> Iterator[list[Player]]:
    """Players that end with the test."""
    made: list[Player] = []
    yield made
    for player in made:
        player.close()


def play(
    bag: Path, players: list[Player], sink: Sink, config: PlaybackConfig | None = None
) -> Player:
    player = Player(bag, {'/text'}, config or PlaybackConfig(), sink.publish, sink.ticks.append)
    players.append(player)
    player.start()
    return player


def test_bag_is_played_in_time_and_ends(bag: Path, players: list[Player]) -> None:
    sink = Sink()
    player = play(bag, players, sink)
    sink.wait(5)
    assert [data[8:9] for _, data, _ in sink.played] == [b'0', b'1', b'2', b'3', b'4']
    took_s = sink.played[-1][2] - sink.played[0][2]
    assert 0.19 < took_s < 2
    player.close()
    stats = player.stats()
    assert (stats.published, stats.loops, stats.is_finished, stats.error) == (5, 1, True, '')
    assert sink.ticks == []


def test_loop_starts_again(bag: Path, players: list[Player]) -> None:
    sink = Sink()
    player = play(bag, players, sink, PlaybackConfig(rate=10.0, loop=True))
    sink.wait(12)
    assert [data[8:9] for _, data, _ in sink.played[4:7]] == [b'4', b'0', b'1']
    assert player.stats().loops >= 2


def test_clock_ticks_through_bag_time(bag: Path, players: list[Player]) -> None:
    sink = Sink()
    play(bag, players, sink, PlaybackConfig(clock_hz=100.0))
    sink.wait(5)
    assert sink.ticks == sorted(sink.ticks)
    assert sink.ticks[0] >= BAG
    assert len(sink.ticks) >= 5
    assert sink.ticks[-1] - sink.ticks[0] <= 2 * S


def test_paused_player_waits_and_its_time_stands_still(bag: Path, players: list[Player]) -> None:
    sink = Sink()
    player = play(bag, players, sink, PlaybackConfig(start_paused=True, clock_hz=200.0))
    end = time.monotonic() + 20
    while len(sink.ticks) < 5:
        assert time.monotonic() < end
        threading.Event().wait(0.01)
    assert sink.played == []
    assert set(sink.ticks[:5]) == {BAG}
    player.resume()
    sink.wait(1)
    player.pause()
    before = len(sink.played)
    assert player.stats().is_paused
    assert before < 5
    player.resume()
    sink.wait(5)


def test_late_messages_are_counted(bag: Path, players: list[Player]) -> None:
    sink = Sink()
    slow = threading.Event()

    def publish(topic: str, data: bytes) -> None:
        if not sink.played:
            slow.wait(0.3)
        sink.publish(topic, data)

    player = Player(bag, {'/text'}, PlaybackConfig(late_s=0.05), publish, sink.ticks.append)
    players.append(player)
    player.start()
    sink.wait(5)
    assert player.stats().late == 4


def test_bag_that_cannot_be_read_is_told(tmp_path: Path, players: list[Player]) -> None:
    player = play(tmp_path / 'no bag', players, Sink())
    player.close()
    assert 'does not exist' in player.stats().error
