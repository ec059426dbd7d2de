# SPDX-License-Identifier: Apache-2.0
"""A node's process: it starts itself where asked to, and ends cleanly by signals."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

from embodied_r_ros.bags import BagWriter
from embodied_r_ros.message_types import embodied_typestore
from lifecycle_msgs.srv import GetState
import pytest
from std_msgs.msg import String

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from test.nodes.graph import Graph

PLAYER = 'from embodied_r_ros.nodes.bag_player import main; raise SystemExit(main())'
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


@pytest.fixture
def start(graph: Graph) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start a player in a process of its own."""
    started: list[subprocess.Popen[str]] = []

    def make(**parameters: object) -> subprocess.Popen[str]:
        words = [f'{k.replace("__", ".")}:={v}' for k, v in parameters.items()]
        arguments = ['--ros-args', *(part for word in words for part in ('-p', word))]
        process = subprocess.Popen(
            [sys.executable, '-c', PLAYER, *arguments],
            env={**os.environ, 'ROS_DOMAIN_ID': str(graph.context.get_domain_id())},
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield make
    for process in started:
        process.kill()
        process.communicate(timeout=TIMEOUT_S)


@pytest.mark.parametrize('number', [signal.SIGINT, signal.SIGTERM])
def test_signal_ends_the_process_cleanly(
    graph: Graph, bag: Path, start: Callable[..., subprocess.Popen[str]], number: signal.Signals
) -> None:
    heard = graph.inbox(String, '/text')
    process = start(bag=bag, autostart=True, playback__loop=True)
    heard.wait(1)
    process.send_signal(number)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_failed_start_ends_the_process_with_one_line(
    start: Callable[..., subprocess.Popen[str]],
) -> None:
    process = start(bag='/no/such/bag', autostart=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert 'not configured: /no/such/bag does not exist' in err
    assert 'Traceback' not in err


def test_player_ends_with_its_bag(bag: Path, start: Callable[..., subprocess.Popen[str]]) -> None:
    process = start(bag=bag, autostart=True, exit_at_end=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_node_waits_to_be_configured(
    graph: Graph, bag: Path, start: Callable[..., subprocess.Popen[str]]
) -> None:
    process = start(bag=bag)
    state = graph.call(GetState, '/bag_player/get_state', GetState.Request(), TIMEOUT_S)
    assert state.current_state.label == 'unconfigured'
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_S) == 0
