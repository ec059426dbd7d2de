# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import fcntl
import mmap
import os
from pathlib import Path
import shutil
from types import SimpleNamespace
from typing import TYPE_CHECKING
import xml.etree.ElementTree as ET

from embodied_r_ros.nodes.transport import (
    remedy_for_lost_images,
    remove_abandoned_segments,
    segment_mb,
    stock_environment,
    transport_environment,
)
from embodied_r_ros.nodes.transport_check import measure
import pytest

if TYPE_CHECKING:
    from test.nodes.graph import Graph

MB = 1024 * 1024


@pytest.fixture
def roomy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that shared memory has room for everyone."""
    monkeypatch.setattr(shutil, 'disk_usage', lambda path: SimpleNamespace(free=4096 * MB))


@pytest.mark.parametrize(('free_mb', 'expected'), [(4096, 16), (64, 8), (24, 3), (1, 2)])
def test_segment_leaves_room_for_the_other_processes(free_mb: int, expected: int) -> None:
    assert segment_mb(free_mb * MB) == expected


@pytest.mark.usefixtures('roomy')
@pytest.mark.parametrize('environ', [{}, {'ROS_DISTRO': 'jazzy'}])
def test_fast_dds_gets_a_larger_segment(environ: dict[str, str]) -> None:
    wanted = {'FASTDDS_BUILTIN_TRANSPORTS': 'DEFAULT?sockets_size=8MB'}
    assert transport_environment(environ) == wanted


def test_humble_gets_a_profile() -> None:
    [(name, path)] = transport_environment({'ROS_DISTRO': 'humble'}).items()
    assert name == 'FASTRTPS_DEFAULT_PROFILES_FILE'
    sizes = [e.text for e in ET.parse(Path(path)).iter() if e.tag.endswith('segment_size')]
    assert sizes == [str(16 * MB)]


@pytest.mark.parametrize(
    'environ',
    [
        {'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'},
        {'RMW_IMPLEMENTATION': 'rmw_zenoh_cpp'},
        {'FASTDDS_BUILTIN_TRANSPORTS': 'LARGE_DATA'},
        {'FASTRTPS_DEFAULT_PROFILES_FILE': '/etc/dds.xml', 'ROS_DISTRO': 'humble'},
    ],
)
def test_what_the_user_chose_is_left_alone(environ: dict[str, str]) -> None:
    assert transport_environment(environ) == {}


def test_a_stock_environment_has_no_choice_of_transport() -> None:
    mine = {'HOME': '/', 'ROS_DISTRO': 'humble', 'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp'}
    chosen = {'FASTDDS_BUILTIN_TRANSPORTS': 'LARGE_DATA', 'FASTRTPS_DEFAULT_PROFILES_FILE': 'a'}
    assert stock_environment({**mine, **chosen}) == mine


@pytest.mark.usefixtures('roomy')
@pytest.mark.parametrize(
    ('environ', 'first'),
    [
        ({}, "run export FASTDDS_BUILTIN_TRANSPORTS='DEFAULT?sockets_size=8MB' before"),
        ({'FASTDDS_BUILTIN_TRANSPORTS': 'LARGE_DATA'}, 'run export FASTDDS_BUILTIN_TRANSPORTS='),
        ({'ROS_DISTRO': 'humble'}, "run export FASTRTPS_DEFAULT_PROFILES_FILE='"),
        ({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, 'run export CYCLONEDDS_URI=file:///'),
        ({'RMW_IMPLEMENTATION': 'rmw_zenoh_cpp'}, 'set reliable QoS'),
    ],
)
def test_a_remedy_names_what_the_middleware_needs_first(
    environ: dict[str, str], first: str
) -> None:
    remedy = remedy_for_lost_images(environ)
    assert remedy.startswith(first)
    for way in ('reliable', 'compressed', 'sudo sysctl -w net.core.rmem_max=16777216'):
        assert way in remedy
    assert '\n' not in remedy


def test_cyclone_asks_for_room_and_starts_without_it() -> None:
    [path] = [
        word.removeprefix('CYCLONEDDS_URI=file://')
        for word in remedy_for_lost_images({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}).split()
        if word.startswith('CYCLONEDDS_URI=')
    ]
    [buffer] = [
        element
        for element in ET.parse(Path(path)).iter()
        if element.tag.endswith('SocketReceiveBufferSize')
    ]
    assert buffer.attrib == {'max': '16MB'}  # "min" would keep Cyclone DDS from starting


def shared_memory(folder: Path, name: str, age_s: float = 60.0) -> Path:
    """What Fast DDS makes for a segment or port; returns the lock."""
    for file in (name, f'{name}_el', f'sem.{name}_mutex'):
        path = folder / file
        path.write_bytes(bytes(16))
        os.utime(path, (path.stat().st_mtime - age_s,) * 2)
    return folder / f'{name}_el'


def test_shared_memory_of_the_dead_is_removed_and_no_other(tmp_path: Path) -> None:
    segments = ['fastrtps_0d24fd586b54bf77', 'fastdds_ad880e6f67acf9b6']
    dead = [shared_memory(tmp_path, name) for name in segments]
    alive = shared_memory(tmp_path, 'fastrtps_c17cec353739e443')
    young = shared_memory(tmp_path, 'fastrtps_03d38ed77e90a575', age_s=0)
    other = shared_memory(tmp_path, 'fastrtps_of_somebody')
    with alive.open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sorted(remove_abandoned_segments(folder=tmp_path)) == sorted(segments)
        assert not any(path.exists() for path in dead)
        assert len(list(tmp_path.iterdir())) == 9
        assert all(path.exists() for path in (alive, young, other))
    assert remove_abandoned_segments(folder=tmp_path) == [alive.name.removesuffix('_el')]


def test_ports_of_the_dead_are_removed_unless_someone_has_them_open() -> None:
    folder = Path('/dev/shm')
    name = f'fastrtps_port{os.getpid():07d}99'  # no port of a transport has so many digits
    lock = shared_memory(folder, name)
    try:
        with (folder / name).open('r+b') as file, mmap.mmap(file.fileno(), 0):
            assert name not in remove_abandoned_segments(ports=True)
        assert name not in remove_abandoned_segments()
        assert name in remove_abandoned_segments(ports=True)
        assert not list(folder.glob(f'*{name}*'))
    finally:
        for path in (lock, folder / name, folder / f'sem.{name}_mutex'):
            path.unlink(missing_ok=True)


@pytest.fixture
def environment(graph: Graph) -> dict[str, str]:
    """Environment as the launch files set it, in a domain of its own."""
    domain = {'ROS_DOMAIN_ID': str(graph.context.get_domain_id())}
    return {**os.environ, **transport_environment(os.environ), **domain}


def test_best_effort_images_arrive(environment: dict[str, str]) -> None:
    found = measure(count=30, environment=environment)
    assert (found['sent'], found['received'], found['reliability']) == (30, 30, 'best_effort')
    assert len(set(found['pids'])) == 2
    assert found['latency_p50_s'] < 0.1


def test_the_profile_for_humble_does_the_same(environment: dict[str, str]) -> None:
    humble = transport_environment({'ROS_DISTRO': 'humble'})
    found = measure(count=30, environment={**stock_environment(environment), **humble})
    assert (found['sent'], found['received']) == (30, 30)


def test_a_publisher_without_our_settings_loses_images(environment: dict[str, str]) -> None:
    found = measure(
        count=30,
        environment=environment,
        publisher_environment=stock_environment(environment),
    )
    assert found['sent'] == 30
    assert found['received'] < 30


@pytest.mark.slow
@pytest.mark.parametrize(('width', 'height'), [(640, 480), (1920, 1080)])
def test_no_image_is_lost_in_a_minute(
    environment: dict[str, str], width: int, height: int
) -> None:
    found = measure(width, height, count=1800, environment=environment)
    assert found['received'] == found['sent'] == 1800
