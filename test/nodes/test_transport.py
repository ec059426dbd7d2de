# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
import shutil
from types import SimpleNamespace
import xml.etree.ElementTree as ET

from embodied_r_ros.nodes.transport import (
    remedy_for_lost_images,
    segment_mb,
    stock_environment,
    transport_environment,
)
import pytest

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
