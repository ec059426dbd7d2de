# SPDX-License-Identifier: Apache-2.0
"""What a service manager hears, over its own kind of socket."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

from embodied_r_ros.common.service import ServiceManager, Watchdog
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
