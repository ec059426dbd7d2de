# SPDX-License-Identifier: Apache-2.0
"""A ROS graph of its own for each test. Tests wait for what they expect; they never sleep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

pytest.importorskip('rclpy')
pytest.importorskip('embodied_r_msgs')


@pytest.fixture
def graph() -> Iterator[Graph]:
    """Nodes of one test, in a DDS domain that no other test on this machine uses."""
    from domain_coordinator import domain_id

    from test.nodes.graph import Graph

    with domain_id() as domain, Graph(domain) as made:
        yield made
