# SPDX-License-Identifier: Apache-2.0
"""What Nav2's lifecycle manager asks of nodes, in its order; with `bond_timeout: 0.0` no bond."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from lifecycle_msgs.msg import State, Transition
from lifecycle_msgs.srv import GetState
import yaml

from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE

if TYPE_CHECKING:
    from pathlib import Path

    from test.nodes.graph import Graph

# nav2_lifecycle_manager/src/lifecycle_manager.cpp (Jazzy): transition_state_map_.
STATES = {
    CONFIGURE: State.PRIMARY_STATE_INACTIVE,
    ACTIVATE: State.PRIMARY_STATE_ACTIVE,
    DEACTIVATE: State.PRIMARY_STATE_INACTIVE,
    CLEANUP: State.PRIMARY_STATE_UNCONFIGURED,
    Transition.TRANSITION_UNCONFIGURED_SHUTDOWN: State.PRIMARY_STATE_FINALIZED,
}
STARTUP, PAUSE, RESUME = (CONFIGURE, ACTIVATE), (DEACTIVATE,), (ACTIVATE,)
RESET = (DEACTIVATE, CLEANUP)
SHUTDOWN = (*RESET, Transition.TRANSITION_UNCONFIGURED_SHUTDOWN)


def documented_parameters() -> dict[str, Any]:
    """Parameters of the manager, as the documentation gives them."""
    text = shared_path('docs', 'on_a_robot.md').read_text()
    [block] = [part for part in text.split('```yaml\n') if part.startswith('lifecycle_manager')]
    (parameters,) = yaml.safe_load(block.partition('```')[0]).values()
    values: dict[str, Any] = parameters['ros__parameters']
    return values


def test_nodes_do_what_the_manager_of_nav2_asks_of_them(graph: Graph, tmp_path: Path) -> None:
    made = [
        graph.add(KeyframeExtractorNode),
        graph.add(SemanticPerceiver),
        graph.add(SpatialReasoner, profile='tools'),
        graph.add(ProposalGate),
        graph.add(EpisodeRecorder, bag_dir=str(tmp_path), min_free_mb=0),
    ]
    parameters = documented_parameters()
    assert [node.get_name() for node in made] == parameters['node_names']
    for step in (STARTUP, PAUSE, RESUME, RESET, STARTUP, SHUTDOWN):
        for transition in step:
            is_up = transition in STARTUP
            for node in made if is_up else reversed(made):
                graph.change(node, transition)
                state = graph.call(GetState, f'/{node.get_name()}/get_state', GetState.Request())
                assert state.current_state.id == STATES[transition]
    # One with a timeout would wait for heartbeats here.
    assert graph.outsider.count_publishers('/bond') == 0
    assert parameters['bond_timeout'] == 0.0
