# SPDX-License-Identifier: Apache-2.0
"""A ROS graph of its own for each test. Tests wait for what they expect; they never sleep."""

from __future__ import annotations

from importlib.util import find_spec
import os
from typing import TYPE_CHECKING

from embodied_r_ros.transport import transport_environment
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

# What the launch files set: without it, raw images between two processes are lost.
os.environ.update(transport_environment(os.environ))
# Without ROS the tests of the core still run.
if find_spec('rclpy') is None or find_spec('embodied_r_msgs') is None:
    collect_ignore_glob = ['test_*.py']


@pytest.fixture
def graph() -> Iterator[Graph]:
    """Nodes of one test, in a DDS domain that no other test on this machine uses."""
    from domain_coordinator import domain_id

    from test.nodes.graph import Graph

    with domain_id() as domain, Graph(domain) as made:
        yield made
