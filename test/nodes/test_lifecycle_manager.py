# SPDX-License-Identifier: Apache-2.0
"""What Nav2's lifecycle manager asks of nodes, in its order; with `bond_timeout: 0.0` no bond.

As nav2_lifecycle_manager and nav2_util have it in Jazzy; of later ones, waits are longer.
"""

from __future__ import annotations

from itertools import chain
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import GetState
import pytest
import yaml

from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from rclpy.node import Node

    from test.nodes.graph import Graph

# lifecycle_manager.cpp: transition_state_map_.
STATES = {
    CONFIGURE: State.PRIMARY_STATE_INACTIVE,
    ACTIVATE: State.PRIMARY_STATE_ACTIVE,
    DEACTIVATE: State.PRIMARY_STATE_INACTIVE,
    CLEANUP: State.PRIMARY_STATE_UNCONFIGURED,
    Transition.TRANSITION_UNCONFIGURED_SHUTDOWN: State.PRIMARY_STATE_FINALIZED,
}
STARTUP, CONFIGURED, CLEANED = (CONFIGURE, ACTIVATE), (CONFIGURE,), (CLEANUP,)
PAUSE, RESUME = (DEACTIVATE,), (ACTIVATE,)
RESET = (DEACTIVATE, CLEANUP)
SHUTDOWN = (*RESET, Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)
# In which a node must tell its state; a transition may take as long as it likes.
STATE_S = 2.0


def change_all(graph: Graph, nodes: Sequence[Node], transition: int) -> bool:
    """As `changeStateForAllNodes` of the manager, which ends at a node in a wrong state.

    What the service `change_state` responds does not count there.
    """
    for node in nodes if transition in STARTUP else reversed(nodes):
        graph.try_change(node, transition)
        name = f'/{node.get_name()}/get_state'
        state = graph.call(GetState, name, GetState.Request(), STATE_S).current_state.id
        if state != STATES[transition]:
            return False
    return True


def documented_parameters() -> dict[str, Any]:
    """Parameters of the manager, as the documentation gives them."""
    text = shared_path('docs', 'on_a_robot.md').read_text()
    [block] = [part for part in text.split('```yaml\n') if part.startswith('lifecycle_manager')]
    (parameters,) = yaml.safe_load(block.partition('```')[0]).values()
    values: dict[str, Any] = parameters['ros__parameters']
    return values


@pytest.mark.parametrize('is_up', [True, False])
def test_nodes_do_what_the_manager_of_nav2_asks_of_them(
    graph: Graph, tmp_path: Path, *, is_up: bool
) -> None:
    made = [
        graph.add(KeyframeExtractorNode),
        graph.add(SemanticPerceiver),
        graph.add(SpatialReasoner, profile='tools'),
        graph.add(ProposalGate),
        graph.add(EpisodeRecorder, bag_dir=str(tmp_path), min_free_mb=0),
    ]
    parameters = documented_parameters()
    assert [node.get_name() for node in made] == parameters['node_names']
    commands = (STARTUP, PAUSE, RESUME, RESET, CONFIGURED, CLEANED, STARTUP)
    for transition in chain(*(commands if is_up else ())):
        assert change_all(graph, made, transition)
    # One with a timeout would wait for heartbeats here.
    assert graph.outsider.count_publishers('/bond') == 0
    assert parameters['bond_timeout'] == 0.0
    # Nodes that are not configured cannot be deactivated; it goes on with the other two.
    assert [change_all(graph, made, each) for each in SHUTDOWN] == [is_up, True, True]
