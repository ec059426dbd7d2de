# SPDX-License-Identifier: Apache-2.0
"""A node's process: it starts itself where asked to, and ends cleanly by signals."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import embodied_typestore
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.nodes.bag_player import BagPlayer
from embodied_r_ros.nodes.run import Autostart
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
import pytest
from std_msgs.msg import String

from test.nodes.graph import CONFIGURE, wait_for

if TYPE_CHECKING:
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


def test_signal_that_comes_again_and_again_is_one_wish_to_end(graph: Graph, bag: Path) -> None:
    heard = graph.inbox(String, '/text')
    process = graph.process('bag_player', bag=bag, autostart=True, playback__loop=True)
    heard.wait(1)
    process.send_signal(signal.SIGINT)
    first = time.monotonic()
    # Those that are pending at once are one; the last ones meet an interpreter that ends.
    while process.poll() is None and time.monotonic() < first + 2.5:
        time.sleep(0.02)
        process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_failed_start_ends_the_process_with_one_line(graph: Graph) -> None:
    process = graph.process('bag_player', bag='/no/such/bag', autostart=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert 'not configured: /no/such/bag does not exist' in err
    assert 'Traceback' not in err


def test_start_that_failed_is_tried_again_where_asked_for(
    graph: Graph, bag: Path, tmp_path: Path
) -> None:
    missing = tmp_path / 'later'
    heard = graph.inbox(String, '/text')
    process = graph.process(
        'bag_player', bag=missing, autostart=True, autostart_retry_s=0.2, playback__loop=True
    )
    # It answers meanwhile, and so it can be ended, or started by somebody else.
    state = graph.call_process(GetState, '/bag_player/get_state', GetState.Request())
    assert state.current_state.label == 'unconfigured'
    bag.rename(missing)
    heard.wait(1)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    assert err.count('later does not exist') == 1
    assert 'trying again every 0.2 s' in err


def test_start_is_not_tried_again_against_what_somebody_else_did(graph: Graph, bag: Path) -> None:
    node = graph.add(BagPlayer, bag='/no/such/bag', autostart=True, autostart_retry_s=2.0)
    ends: list[int] = []
    Autostart(node, ends.append)
    assert node.state == 'unconfigured'
    assert graph.parameter(node, 'bag', str(bag)).successful
    graph.change(node, CONFIGURE)
    wait_for(lambda: node.retry_s == 0, 'the end of the tries')
    assert (node.state, ends) == ('inactive', [])


def test_node_that_was_shut_down_ends_cleanly(graph: Graph, bag: Path) -> None:
    process = graph.process('bag_player', bag=bag)
    graph.call_process(GetState, '/bag_player/get_state', GetState.Request())
    shutdown = Transition(id=Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
    request = ChangeState.Request(transition=shutdown)
    assert graph.call(ChangeState, '/bag_player/change_state', request).success
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, len(err.splitlines())) == (0, 1)  # that it waited


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--log-level', 'loud'], "'--log-level loud'"),
        (['--params-file', '/nope'], '/nope'),
        (['--bogus'], "unknown ROS arguments ['--bogus']"),
        (['-p', 'autostart:=maybe'], "autostart is 'maybe': expected a value of type bool"),
    ],
)
def test_ros_arguments_without_a_meaning_end_the_process_with_one_line(
    words: list[str], message: str
) -> None:
    code = 'from embodied_r_ros.nodes.bag_player import main; raise SystemExit(main())'
    command = [sys.executable, '-c', code, '--ros-args', *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode
    assert [line for line in done.stderr.splitlines() if message in line]
    assert 'Traceback' not in done.stderr


def test_player_ends_with_its_bag(graph: Graph, bag: Path) -> None:
    process = graph.process('bag_player', bag=bag, autostart=True, exit_at_end=True)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert (process.returncode, err) == (0, '')


def test_node_waits_to_be_configured(graph: Graph, bag: Path) -> None:
    process = graph.process('bag_player', bag=bag)
    state = graph.call_process(GetState, '/bag_player/get_state', GetState.Request())
    assert state.current_state.label == 'unconfigured'
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0
    [line] = err.splitlines()
    assert 'waits to be configured: ros2 lifecycle set /bag_player configure' in line
    assert '-p autostart:=true' in line


def test_killed_process_leaves_no_shared_memory_once_another_starts(
    graph: Graph, bag: Path
) -> None:
    heard = graph.inbox(String, '/text')
    process = graph.process('bag_player', bag=bag, autostart=True, playback__loop=True)
    heard.wait(1)
    segments = own_segments(process.pid)
    time.sleep(2.5)  # what is younger may be in the making
    process.kill()
    process.wait(TIMEOUT_S)
    assert segments
    assert all(segment.exists() for segment in segments)
    graph.process('bag_player', bag=bag)
    graph.call_process(GetState, '/bag_player/get_state', GetState.Request())
    assert not any(segment.exists() for segment in segments)


def own_segments(pid: int) -> list[Path]:
    """Segments of shared memory whose lock a process holds."""
    lines = [line.split() for line in Path('/proc/locks').read_text().splitlines()]
    locked = {words[5].rsplit(':', 1)[1] for words in lines if words[4] == str(pid)}
    owned = []
    for lock in Path('/dev/shm').glob('fast*_el'):
        with suppress(FileNotFoundError):
            if str(lock.stat().st_ino) in locked and 'port' not in lock.name:
                owned.append(lock.with_name(lock.name.removesuffix('_el')))
    return owned
