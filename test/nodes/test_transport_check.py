# SPDX-License-Identifier: Apache-2.0
"""Raw camera images arrive in another process, with the transport that is shipped."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from embodied_r_ros.nodes.transport import measure, stock_environment, transport_environment
import pytest

if TYPE_CHECKING:
    from test.nodes.graph import Graph


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
