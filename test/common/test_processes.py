# SPDX-License-Identifier: Apache-2.0
"""Child processes end with their group and with their parent; a service manager hears of us."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.processes import ChildProcess, ServiceManager, Watchdog
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# A parent that prints the id of a child of its own; both sleep, deaf to SIGTERM where asked.
FAMILY = """
import signal, subprocess, sys, time
if sys.argv[1:] == ['deaf']: signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
print(child.pid, flush=True)
time.sleep(600)
"""


def family(log: Path, *words: str) -> tuple[ChildProcess, int]:
    process = ChildProcess([sys.executable, '-c', FAMILY, *words], log)
    end = time.monotonic() + 30
    while not (lines := process.log_lines()):
        assert time.monotonic() < end
        time.sleep(0.02)
    return process, int(lines[0])


def is_gone(pid: int) -> bool:
    end = time.monotonic() + 30
    while time.monotonic() < end:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if _state(pid) == 'Z':  # ended; whoever adopted it has not looked yet
            return True
        time.sleep(0.02)
    return False


def _state(pid: int) -> str:
    try:
        with open(f'/proc/{pid}/stat') as file:  # noqa: PTH123
            return file.read().rpartition(')')[2].split()[0]
    except OSError:
        return 'Z'


def test_output_and_errors_are_kept_apart_where_asked(tmp_path: Path) -> None:
    code = 'import sys; print("out"); print("no", file=sys.stderr); sys.exit(3)'
    command = [sys.executable, '-c', code]
    process = ChildProcess(command, tmp_path / 'logs' / 'log', output=tmp_path / 'out')
    assert process.wait(30) == 3
    assert process.log_lines() == ['no']
    assert (tmp_path / 'out').read_text() == 'out\n'


def test_both_go_into_the_log(tmp_path: Path) -> None:
    code = 'import sys; print("out", flush=True); print("no", file=sys.stderr)'
    process = ChildProcess([sys.executable, '-c', code], tmp_path / 'log')
    assert process.wait(30) == 0
    assert process.log_lines() == ['out', 'no']


@pytest.mark.parametrize('words', [(), ('deaf',)])
def test_the_group_ends_whole(tmp_path: Path, words: tuple[str, ...]) -> None:
    process, grandchild = family(tmp_path / 'log', *words)
    process.signal(signal.SIGTERM)
    assert process.end(0.5 if words else 30) == (not words)
    assert is_gone(process.pid)
    assert is_gone(grandchild)


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    code = (
        'import sys, pathlib; from embodied_r_ros.common.processes import ChildProcess; '
        'print(ChildProcess(["sleep", "600"], pathlib.Path(sys.argv[1])).pid)'
    )
    words = [sys.executable, '-c', code, str(tmp_path / 'log')]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    assert is_gone(int(done.stdout))


def test_a_program_that_does_not_exist_ends_at_once(tmp_path: Path) -> None:
    assert ChildProcess([str(tmp_path / 'none')], tmp_path / 'log').wait(30) != 0


@pytest.fixture(params=['file', 'abstract'])
def manager_socket(
    request: pytest.FixtureRequest, tmp_path: Path
) -> Iterator[tuple[str, socket.socket]]:
    """The address as NOTIFY_SOCKET names it, and the socket."""
    name = str(tmp_path / 'notify') if request.param == 'file' else f'@embodied-r-{os.getpid()}'
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        made.bind(name.replace('@', '\0', 1))
        made.settimeout(5)
        yield name, made


def test_a_manager_hears_what_it_is_told(manager_socket: tuple[str, socket.socket]) -> None:
    name, heard = manager_socket
    manager = ServiceManager({'NOTIFY_SOCKET': name, 'WATCHDOG_USEC': '30000000'})
    assert manager.watchdog_s == 30.0
    manager.tell('READY=1', 'STATUS=all 5 nodes are active')
    assert heard.recv(1000) == b'READY=1\nSTATUS=all 5 nodes are active'


def test_without_a_manager_nothing_is_said() -> None:
    manager = ServiceManager({'WATCHDOG_USEC': '30000000'})
    assert manager.watchdog_s == 0.0
    manager.tell('READY=1')
    ServiceManager({'NOTIFY_SOCKET': '/nowhere/notify'}).tell('READY=1')


def test_a_manager_that_does_not_read_holds_nothing_up(
    manager_socket: tuple[str, socket.socket],
) -> None:
    name, heard = manager_socket
    manager = ServiceManager({'NOTIFY_SOCKET': name})
    for number in range(2000):
        manager.tell(f'STATUS={number}')
    assert heard.recv(100) == b'STATUS=0'


def test_the_watchdog_is_told_while_every_part_is_heard(
    manager_socket: tuple[str, socket.socket],
) -> None:
    name, heard = manager_socket
    manager = ServiceManager({'NOTIFY_SOCKET': name, 'WATCHDOG_USEC': '20000000'})
    watchdog = Watchdog(manager, ['/eye', '/mind'], 100.0)
    assert watchdog.period_s == 5.0
    assert watchdog.beat(110.0) == []
    assert heard.recv(100) == b'WATCHDOG=1'
    watchdog.hear('/eye', 109.0)
    watchdog.hear('/other', 109.0)
    assert watchdog.beat(115.0) == ['/mind']
    heard.setblocking(False)
    with pytest.raises(BlockingIOError):
        heard.recv(100)
    watchdog.hear('/mind', 116.0)
    assert watchdog.beat(117.0) == []
    assert heard.recv(100) == b'WATCHDOG=1'
