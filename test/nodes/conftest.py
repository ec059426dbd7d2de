# SPDX-License-Identifier: Apache-2.0
"""A ROS graph of its own for each test. Tests wait for what they expect; they never sleep."""

from __future__ import annotations

from importlib.util import find_spec
import os
from typing import NoReturn, TYPE_CHECKING

from embodied_r_ros.nodes.transport import transport_environment
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.nodes.camera_poses import OwnTransforms
    from embodied_r_ros.nodes.node_base import ManagedNode

    from test.nodes.graph import Graph

    Heard = list[OwnTransforms]

# What the launch files set: without it, raw images between two processes are lost.
os.environ.update(transport_environment(os.environ))
_NEEDED = ('rclpy', 'embodied_r_msgs', 'domain_coordinator')


def missing_packages() -> list[str]:
    """Packages of ROS that are not installed; folders of sources, as in a clone, do not count."""
    specs = {name: find_spec(name) for name in _NEEDED}
    return [name for name, spec in specs.items() if spec is None or spec.origin is None]


class _SkippedModule(pytest.Module):
    """Tests that cannot even be imported where ROS is missing; those of the core still run."""

    def collect(self) -> NoReturn:
        pytest.skip(f'not installed: {", ".join(missing_packages())}', allow_module_level=True)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Module | None:
    """Skip the modules of this folder where ROS is missing, and say what is."""
    return _SkippedModule.from_parent(parent, path=module_path) if missing_packages() else None


@pytest.fixture
def graph() -> Iterator[Graph]:
    """Nodes of one test, in a DDS domain that no other test on this machine uses."""
    from domain_coordinator import domain_id

    from test.nodes.graph import Graph

    with domain_id() as domain, Graph(domain) as made:
        yield made


@pytest.fixture
def heard(monkeypatch: pytest.MonkeyPatch) -> Heard:
    """The transforms of each node that listens to them: tests tell it, as /tf has no wheel."""
    from embodied_r_ros.nodes import frames
    from embodied_r_ros.nodes.camera_poses import OwnTransforms

    all_heard: Heard = []

    def listen(node: ManagedNode) -> OwnTransforms:
        all_heard.append(OwnTransforms(node.now_ns))
        return all_heard[-1]

    monkeypatch.setattr(frames, 'listen_to_transforms', listen)
    return all_heard
