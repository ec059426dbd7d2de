# SPDX-License-Identifier: Apache-2.0
"""The shipped parameters are those of the config classes, and reach the nodes."""

from __future__ import annotations

from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.settings import config_from_mapping
from embodied_r_ros.nodes.bag_player import BagPlayer
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.goal_gate import GoalGate
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
import pytest
import yaml

from test.nodes.graph import is_untuned

if TYPE_CHECKING:
    from pathlib import Path

    from test.nodes.graph import Graph

NODES = {
    'keyframe_extractor': KeyframeExtractorNode,
    'semantic_perceiver': SemanticPerceiver,
    'spatial_reasoner': SpatialReasoner,
    'proposal_gate': ProposalGate,
    'goal_gate': GoalGate,
    'episode_recorder': EpisodeRecorder,
    'bag_player': BagPlayer,
}
FILE = shared_path('config', 'embodied_r.yaml')


def flat(values: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    """Parameters by their full names."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            found |= flat(value, f'{prefix}{name}.')
        else:
            found[prefix + name] = tuple(value) if isinstance(value, list) else value
    return found


def shipped_parameters(node: str) -> dict[str, Any]:
    content = yaml.safe_load(FILE.read_text())
    return flat(content[f'/**/{node}']['ros__parameters'])


@pytest.mark.parametrize('name', NODES)
def test_shipped_values_are_the_defaults(name: str) -> None:
    defaults: dict[str, Any] = {}
    for kind, prefix in NODES[name].groups.items():
        config = config_from_mapping(kind, {})
        defaults |= {f'{prefix}.{k}' if prefix else k: v for k, v in vars(config).items()}
    values = shipped_parameters(name)
    assert not [key for key in values if is_untuned(key)]
    assert values == {key: defaults.get(key, 'no such parameter') for key in values}


def test_every_node_has_its_section() -> None:
    assert set(yaml.safe_load(FILE.read_text())) == {f'/**/{name}' for name in NODES}


@pytest.mark.parametrize('namespace', ['', '/robot1/arm'])
def test_sections_reach_nodes_in_any_namespace(
    graph: Graph, namespace: str, tmp_path: Path
) -> None:
    changed = tmp_path / 'changed.yaml'
    changed.write_text(FILE.read_text().replace('camera: "camera"', 'camera: "front"'))

    def make(**options: Any) -> KeyframeExtractorNode:
        return KeyframeExtractorNode(
            cli_args=['--ros-args', '--params-file', str(changed)], **options
        )

    node = graph.add(make, namespace)
    assert node.parameters.values()['camera'] == 'front'
    assert node.parameters.values()['keyframe.max_overlap'] == 0.5
