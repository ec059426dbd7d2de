# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from pathlib import Path
import shutil
from types import SimpleNamespace
import xml.etree.ElementTree as ET

from embodied_r_ros.transport import segment_mb, transport_environment
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
