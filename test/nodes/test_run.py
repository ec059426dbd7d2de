# SPDX-License-Identifier: Apache-2.0
"""A node's process: it starts itself where asked to, and ends cleanly by signals."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.writer import BagWriter
from lifecycle_msgs.srv import GetState
import pytest
from std_msgs.msg import String

if TYPE_CHECKING:
    from pathlib import Path

    from test.nodes.graph import Graph

TIMEOUT_S = 30


@pytest.fixture
def bag(tmp_path: Path) -> Path:
    store = embodied_typestore()
    kind = 'std_msgs/msg/String'
    with BagWriter(tmp_path / 'bag') as writer:
        writer.add_topic('/text', kind)
        for index in range(3):
            writer.write('/text', store.types[kind](data=str(index)), index * 100_000_000)
    return tmp_path / 'bag'


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_process_cleanly(graph: Graph, bag: Path, number: signal.Signals) -> None:
    heard = graph.inbox(String, '/text')
    process = graph.process('bag_player', bag=bag, autostart=True, playback__loop=True)
    heard.wait(1)
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_signal_that_comes_twice_is_one_wish_to_end(graph: Graph, bag: Path) -> None:
    heard = graph.inbox(String, '/text')
    process = graph.process('bag_player', bag=bag, autostart=True, playback__loop=True)
    heard.wait(1)
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)  # two that are pending at once are one
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_failed_start_ends_the_process_with_one_line(graph: Graph) -> None:
    process = graph.process('bag_player', bag='/no/such/bag', autostart=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert 'not configured: /no/such/bag does not exist' in err
    assert 'Traceback' not in err


def test_player_ends_with_its_bag(graph: Graph, bag: Path) -> None:
    process = graph.process('bag_player', bag=bag, autostart=True, exit_at_end=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_node_waits_to_be_configured(graph: Graph, bag: Path) -> None:
    process = graph.process('bag_player', bag=bag)
    state = graph.call_process(GetState, '/bag_player/get_state', GetState.Request())
    assert state.current_state.label == 'unconfigured'
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
