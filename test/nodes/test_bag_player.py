# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.writer import BagWriter, LATCHED_QOS
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.bag_player import BagPlayer, BagPlayerConfig, is_chosen
import pytest
from rosgraph_msgs.msg import Clock
from std_msgs.msg import Header, String
from std_srvs.srv import Trigger

from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from test.nodes.graph import Graph

S = 1_000_000_000
START = 1_700_000_000 * S


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    """Ten headers over half a second, and a latched text before them."""
    store = embodied_typestore()
    time_type = store.types['builtin_interfaces/msg/Time']
    header_type = store.types['std_msgs/msg/Header']
    with BagWriter(tmp_path / 'bag') as writer:
        writer.add_topic('/stamped', 'std_msgs/msg/Header')
        writer.add_topic('/note', 'std_msgs/msg/String', LATCHED_QOS)
        writer.add_topic('/disparity', 'stereo_msgs/msg/DisparityImage')
        writer.write('/note', store.types['std_msgs/msg/String'](data='hello'), START)
        for index in range(10):
            # The header's stamp is what the sensor said, 7 ns before it was recorded.
            received = START + index * S // 20 + 7
            sec, nanosec = divmod(received - 7, S)
            msg = header_type(stamp=time_type(sec=sec, nanosec=nanosec), frame_id=str(index))
            writer.write('/stamped', msg, received)
    return tmp_path / 'bag'


def test_bag_is_played_with_its_own_stamps(graph: Graph, bag: Path) -> None:
    node = graph.add(BagPlayer, bag=str(bag), playback__start_paused=True)
    graph.change(node, CONFIGURE)
    headers = graph.inbox(Header, '/stamped')
    graph.matched('/stamped')
    wait_for(lambda: node.count_subscribers('/stamped'), 'the subscription')
    graph.change(node, ACTIVATE)
    assert graph.call(Trigger, '/bag_player/resume', Trigger.Request()).success
    headers.wait(10)
    assert [header.frame_id for header in headers] == [str(index) for index in range(10)]
    last = headers[-1].stamp
    assert last.sec * S + last.nanosec == START + 9 * S // 20
    notes = graph.inbox(String, '/note', topics.LATCHED)
    assert notes.wait(1)[0].data == 'hello'


def test_clock_follows_the_bag_and_jumps_back_in_a_loop(graph: Graph, bag: Path) -> None:
    clocks = graph.inbox(Clock, '/clock')
    graph.active(
        BagPlayer, bag=str(bag), playback__clock_hz=100.0, playback__loop=True, playback__rate=2.0
    )
    times: list[int] = []

    def jumped_back() -> bool:
        times[:] = [msg.clock.sec * S + msg.clock.nanosec for msg in clocks]
        return any(b < a for a, b in itertools.pairwise(times))

    wait_for(jumped_back, 'the second loop')
    assert min(times) >= START
    assert max(times) <= START + S


def test_pause_and_resume_need_an_active_node(graph: Graph, bag: Path) -> None:
    node = graph.add(BagPlayer, bag=str(bag))
    graph.change(node, CONFIGURE)
    response = graph.call(Trigger, '/bag_player/pause', Trigger.Request())
    assert not response.success
    assert response.message == 'the node is not active'


def test_every_activation_plays_from_the_beginning(graph: Graph, bag: Path) -> None:
    node = graph.add(BagPlayer, bag=str(bag), playback__rate=0.5)
    headers = graph.inbox(Header, '/stamped')
    for round_trip in range(3):
        headers.clear()
        graph.change(node, CONFIGURE)
        wait_for(lambda: node.count_subscribers('/stamped'), 'the subscription')
        wait_for(lambda: node._outputs['/stamped'].get_subscription_count(), f'match {round_trip}')
        graph.change(node, ACTIVATE)
        assert headers.wait(1)[0].frame_id == '0'
        graph.change(node, DEACTIVATE, CLEANUP)


@pytest.mark.parametrize(
    ('parameters', 'message'),
    [
        ({'bag': ''}, 'parameter bag is empty'),
        ({'bag': '/no/such/bag'}, '/no/such/bag does not exist'),
    ],
)
def test_missing_bag_fails_the_configuration(
    graph: Graph, capfd: pytest.CaptureFixture[str], parameters: dict[str, str], message: str
) -> None:
    assert not graph.try_change(graph.add(BagPlayer, **parameters), CONFIGURE)
    assert f'not configured: {message}' in capfd.readouterr().err


def test_nothing_to_play_fails_the_configuration(
    graph: Graph, bag: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(BagPlayer, bag=str(bag), topics=['/image'])
    assert not graph.try_change(node, CONFIGURE)
    assert 'no topic to play: it has /disparity, /note, /stamped' in capfd.readouterr().err


def test_type_that_is_not_installed_is_left_out(
    graph: Graph, bag: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    graph.change(graph.add(BagPlayer, bag=str(bag)), CONFIGURE)
    err = capfd.readouterr().err
    assert '/disparity is not played: stereo_msgs/msg/DisparityImage is not installed' in err


def test_patterns_choose_topics() -> None:
    config = BagPlayerConfig(topics=('/front/*', '/odom'), exclude_topics=('*/keyframe',))
    chosen = [
        t for t in ('/front/image', '/front/keyframe', '/odom', '/tf') if is_chosen(t, config)
    ]
    assert chosen == ['/front/image', '/odom']
