# SPDX-License-Identifier: Apache-2.0
"""No published answer is fresh that is not: clocks that jump, looping bags, odd stamps."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from embodied_r_msgs.msg import Answer, SemanticDelta
import pytest
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import TimeReference

from test.chat_server import ChatServer, Script
from test.nodes.graph import wait_for
from test.nodes.test_spatial_reasoner import Asker, RIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

FRESH, STALE = Answer.FRESHNESS_FRESH, Answer.FRESHNESS_STALE
# Says its answer one and a half seconds after the question came.
LAGGING = Script(RIGHT.pieces, delay_s=0.25)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(default=RIGHT, models=[{'id': 'scripted'}]) as made:
        yield made


class TimedAsker(Asker):
    """An asker who tells the time by /clock."""

    def __init__(self, graph: Graph, server: ChatServer, **parameters: Any) -> None:
        super().__init__(graph, server, use_sim_time=True, **parameters)
        self.start()
        self.clock = graph.publisher(Clock, '/clock', 1)

    def set_time(self, now_s: int) -> None:
        """Tell a time and wait until it is the node's."""
        self.clock.publish(Clock(clock=Time(sec=now_s)))
        wait_for(lambda: self.node.now_ns() == now_s * 10**9, 'the time')

    def see_at(self, stamp_s: int) -> None:
        """Show a delta with a stamp."""
        memory = self.node._memory
        before = memory.deltas()
        msg = SemanticDelta(kind=SemanticDelta.KIND_CHANGE, change='New: red tall object.')
        msg.header.stamp = Time(sec=stamp_s)
        self.deltas.publish(msg)
        wait_for(lambda: memory.deltas() != before, 'the delta')

    def ask_during(self, happening: Any) -> Any:
        """Ask, let something happen while the model speaks, and give the answer."""
        self.server.default = LAGGING
        count = len(self.server.requests)
        handle = self.goal()
        assert self.server.wait_for(lambda server: len(server.requests) > count)
        happening()
        _, result = self.graph.goal_result(handle)
        self.server.default = RIGHT
        return result.answer


@pytest.fixture
def asker(graph: Graph, server: ChatServer) -> TimedAsker:
    return TimedAsker(graph, server)


@pytest.mark.parametrize('now_s', [101, 99, 40, 500])
def test_answer_that_a_jump_of_the_clock_overtakes_is_not_fresh(
    asker: TimedAsker, now_s: int
) -> None:
    asker.set_time(100)
    asker.see_at(99)
    answer = asker.ask_during(lambda: asker.set_time(now_s))
    assert answer.freshness == (FRESH if now_s == 101 else STALE)
    assert answer.observation_stamp.sec == 99
    assert asker.answers.wait(1)[0].freshness == answer.freshness


def test_bag_that_loops_makes_fresh_answers_from_its_new_round_only(asker: TimedAsker) -> None:
    for _ in range(2):
        asker.set_time(10)
        asker.see_at(10)
        asker.set_time(60)
        asker.see_at(59)
        answer = asker.ask()[1].answer
        assert (answer.observation_stamp.sec, answer.freshness) == (59, FRESH)
        assert len(answer.delta_ids) == 2
    asker.set_time(10)
    wait_for(lambda: not asker.node._memory.deltas(), 'an empty memory')
    # A delta that perception still owed for the round before.
    asker.see_at(60)
    assert asker.ask()[1].answer.freshness == STALE
    asker.see_at(10)
    answer = asker.ask()[1].answer
    assert (answer.observation_stamp.sec, answer.freshness) == (10, FRESH)
    assert len(answer.delta_ids) == 1


def test_standing_question_goes_on_in_the_next_round_of_a_bag(
    graph: Graph, server: ChatServer
) -> None:
    standing: dict[str, Any] = {
        'standing_question': 'Which way is the red object?',
        'standing_options': ['left', 'right'],
        'standing_rate_hz': 10.0,
    }
    asker = TimedAsker(graph, server, **standing)
    for count, now_s in enumerate((100, 10), start=1):
        asker.set_time(now_s)
        asker.see_at(now_s)
        answer = asker.answers.wait(count)[count - 1]
        assert (answer.observation_stamp.sec, answer.freshness) == (now_s, FRESH)


def test_a_robot_that_stands_still_stays_fresh_while_it_looks(asker: TimedAsker) -> None:
    looks = asker.graph.publisher(TimeReference, '/unchanged')

    def look(keyframe_s: int, image_s: int) -> None:
        msg = TimeReference(time_ref=Time(sec=keyframe_s), source='')
        msg.header.stamp = Time(sec=image_s)
        looks.publish(msg)

    asker.set_time(100)
    asker.see_at(100)
    asker.set_time(400)
    assert asker.ask()[1].answer.freshness == STALE
    look(99, 399)  # like another keyframe
    look(100, 398)
    wait_for(lambda: asker.node._memory.deltas()[-1].seen_ns == 398 * 10**9, 'the look')
    answer = asker.ask()[1].answer
    assert (answer.freshness, answer.observation_stamp.sec) == (FRESH, 100)
    assert answer.observation_age.sec == 2
    asker.set_time(700)
    assert asker.ask()[1].answer.freshness == STALE
