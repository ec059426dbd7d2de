# SPDX-License-Identifier: Apache-2.0
"""SROS 2 policies and the Foxglove layout name what the nodes really say and hear."""

from __future__ import annotations

from contextlib import suppress
import json
from typing import Any, TYPE_CHECKING
from xml.etree import ElementTree

import embodied_r_msgs.srv as services
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.nodes import camera_poses
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.goal_gate import GoalGate
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from embodied_r_ros.nodes.topics import message_class
import pytest
from rclpy.qos import DurabilityPolicy
from std_msgs.msg import String
import yaml

from test.chat_server import ChatServer
from test.nodes.graph import wait_for
from test.nodes.test_item_topics import HAS_MARKERS

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test.nodes.graph import Graph

POLICIES = sorted(shared_path('config', 'sros2').glob('*.xml'))
NODES = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'goal_gate',
    'episode_recorder',
)
LAYOUT = json.loads(shared_path('config', 'foxglove', 'embodied_r.json').read_text())
# Named by a policy, and there only with other parameters, packages or releases of ROS.
SOMETIMES = {
    ('publish', '/items'),
    ('publish', '/items/markers'),
    ('publish', '/landmarks/detections'),
    ('publish', '/landmarks/markers'),
    ('subscribe', '/camera_info'),
    ('subscribe', '/detections'),
    ('subscribe', '/clock'),
    ('subscribe', '/depth/compressed'),
    ('subscribe', '/depth/compressedDepth'),
    ('subscribe', '/image/compressed'),
    ('subscribe', '/tf'),
    ('subscribe', '/tf_static'),
}
RULES = {
    'topics': ('topic', {'publish', 'subscribe'}),
    'services': ('service', {'reply', 'request'}),
    'actions': ('action', {'call', 'execute'}),
}
ACTION_SERVICES = ('send_goal', 'cancel_goal', 'get_result')
ACTION_TOPICS = ('feedback', 'status')


def only(element: ElementTree.Element, tag: str, attributes: set[str]) -> None:
    """Require an element of a name with some attributes and no others."""
    assert element.tag == tag
    assert set(element.attrib) == attributes, tag
    assert not (element.text or '').strip() or not len(element), tag


def profile_of(path: Path) -> ElementTree.Element:
    """The profile of a policy, whose form is that of SROS 2's policy schema, version 0.2.0."""
    policy = ElementTree.parse(path).getroot()
    only(policy, 'policy', {'version'})
    assert policy.attrib['version'] == '0.2.0'
    [enclaves] = policy
    only(enclaves, 'enclaves', set())
    [enclave] = enclaves
    only(enclave, 'enclave', {'path'})
    [profiles] = enclave
    only(profiles, 'profiles', set())
    [profile] = profiles
    only(profile, 'profile', {'ns', 'node'})
    for rule in profile:
        item, allowed = RULES[rule.tag]
        assert rule.attrib
        assert rule.attrib.keys() <= allowed
        assert set(rule.attrib.values()) == {'ALLOW'}
        assert len(rule)
        for name in rule:
            only(name, item, set())
            assert name.text
            assert name.text == name.text.strip()
    return profile


def rights_of(path: Path) -> set[tuple[str, str]]:
    """What a policy allows, as (what, full name), actions as the topics and services they are."""
    profile = profile_of(path)
    namespace, node = profile.attrib['ns'], profile.attrib['node']
    found = set()
    for rule in profile:
        for element in rule:
            name = str(element.text)
            if name.startswith('~'):
                name = f'{namespace}{node}{name[1:]}'
            name = name if name.startswith('/') else namespace + name
            for what in rule.attrib:
                found |= set(expand_action(what, name))
    return found


def expand_action(what: str, name: str) -> Iterator[tuple[str, str]]:
    if what not in {'call', 'execute'}:
        yield what, name
        return
    service, topic = ('request', 'subscribe') if what == 'call' else ('reply', 'publish')
    for part in ACTION_SERVICES:
        yield service, f'{name}/_action/{part}'
    for part in ACTION_TOPICS:
        yield topic, f'{name}/_action/{part}'


def uses_of(graph: Graph, node: str) -> set[tuple[str, str]]:
    """What a node says and hears, as the graph of ROS tells it."""
    told = {
        'publish': graph.outsider.get_publisher_names_and_types_by_node,
        'subscribe': graph.outsider.get_subscriber_names_and_types_by_node,
        'reply': graph.outsider.get_service_names_and_types_by_node,
        'request': graph.outsider.get_client_names_and_types_by_node,
    }
    return {(what, name) for what, ask in told.items() for name, _ in ask(node, '/')}


@pytest.fixture
def everything(graph: Graph, tmp_path: Path) -> Iterator[Graph]:
    """All nodes, active."""
    with ChatServer(models=[{'id': 'scripted'}]) as server:
        graph.active(KeyframeExtractorNode)
        graph.active(SemanticPerceiver, perceiver='classical')
        asked = {'shadow__server': server.url, 'reasoner__show_image': True}
        graph.active(SpatialReasoner, chat__url=server.url, **asked)
        graph.active(ProposalGate)
        graph.active(GoalGate)
        graph.active(EpisodeRecorder, bag_dir=str(tmp_path), min_free_mb=0, images='compressed')
        yield graph


@pytest.mark.parametrize('path', POLICIES, ids=lambda path: path.name.split('.')[0])
def test_a_policy_has_the_form_of_the_published_schema(path: Path) -> None:
    assert profile_of(path).attrib['node'] == path.name.removesuffix('.policy.xml')


def test_every_node_may_do_what_it_does_and_nothing_else(everything: Graph) -> None:
    assert {path.name.removesuffix('.policy.xml') for path in POLICIES} == {*NODES, 'operator'}
    known: dict[str, set[tuple[str, str]]] = {}
    for node in NODES:
        may = rights_of(shared_path('config', 'sros2', f'{node}.policy.xml'))
        type_description = ('reply', f'/{node}/get_type_description')  # from Jazzy on
        must = may - SOMETIMES - {type_description}
        with suppress(AssertionError):  # what is not there by then is named below
            wait_for(lambda node=node, must=must: must <= uses_of(everything, node), node)  # type: ignore[misc]
        known[node] = uses_of(everything, node)
        assert known[node] - may == set()
        assert must - known[node] == set()
    operator = rights_of(shared_path('config', 'sros2', 'operator.policy.xml'))
    offered = {name for rules in known.values() for what, name in rules if what == 'reply'}
    asked = {name for what, name in operator if what == 'request'}
    assert {name for name in asked ^ offered if 'get_type_description' not in name} == set()
    said = {name for rules in known.values() for what, name in rules if what == 'publish'}
    said |= {name for what, name in SOMETIMES if what == 'publish'}
    said -= {f'/{node}/transition_event' for node in NODES}
    assert {name for what, name in operator if what == 'subscribe'} ^ said == {'/clock'}


def test_the_reasoner_of_an_arm_may_hear_camera_and_transforms(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It listens to the same topics, whatever their type is, of which there is no wheel.
    monkeypatch.setattr(camera_poses, 'installed_class', lambda _: String)
    arm = {'arm__robot': 'sawyer_sim', 'arm__tool_frame': 'hand', 'arm__camera_frame': 'eye'}
    with ChatServer(models=[{'id': 'scripted'}]) as server:
        graph.active(SpatialReasoner, chat__url=server.url, **arm)
        heard = {('subscribe', name) for name in ('/camera_info', '/tf', '/tf_static')}
        wait_for(lambda: heard <= uses_of(graph, 'spatial_reasoner'), 'its subscriptions')
        may = rights_of(shared_path('config', 'sros2', 'spatial_reasoner.policy.xml'))
        assert uses_of(graph, 'spatial_reasoner') - may == set()


def test_only_the_operator_may_set_parameters() -> None:
    for path in POLICIES:
        may_set = any(w == 'request' and 'set_parameters' in name for w, name in rights_of(path))
        assert may_set == path.name.startswith('operator')


def strings(value: Any) -> Iterator[tuple[str, str]]:
    """Every string in JSON, with the name that it stands under."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if isinstance(inner, str):
            yield key, inner
        for entry in inner if isinstance(inner, list) else [inner]:
            yield from strings(entry)


def test_every_topic_and_field_of_the_layout_is_ours(everything: Graph) -> None:
    types = {name: kinds[0] for name, kinds in everything.outsider.get_topic_names_and_types()}
    named = [text for key, text in strings(LAYOUT['configById']) if key in TOPIC_KEYS]
    assert len(named) > 10
    for path in named:
        topic, *fields = path.split('.')
        assert topic in types, path
        kind: Any = message_class(types[topic])
        for field in fields:
            assert field in kind.get_fields_and_field_types(), path
            inner = kind.get_fields_and_field_types()[field]
            kind = message_class(inner.replace('/', '/msg/')) if '/' in inner else None
        assert kind is None or not fields, f'{path} is no number'


@pytest.mark.skipif(not HAS_MARKERS, reason='visualization_msgs is not installed')
def test_every_topic_of_the_rviz_file_is_ours(everything: Graph) -> None:
    file = shared_path('config', 'rviz', 'embodied_r.rviz')
    displays = yaml.safe_load(file.read_text())['Visualization Manager']['Displays']
    topics = {d['Topic']['Value']: d for d in displays if 'Topic' in d}
    assert len(topics) == 5
    assert not [name for name in topics if name.startswith('/')]  # they are of its namespace
    types = {name: kinds[0] for name, kinds in everything.outsider.get_topic_names_and_types()}
    for name, display in topics.items():
        full = f'/{name}'
        assert types[full].endswith(SHOWN[display['Class'].rpartition('/')[2]])
        [info] = everything.outsider.get_publishers_info_by_topic(full)
        is_latched = info.qos_profile.durability is DurabilityPolicy.TRANSIENT_LOCAL
        assert is_latched == (display['Topic']['Durability Policy'] == 'Transient Local')


SHOWN = {'MarkerArray': '/MarkerArray', 'Image': 'Image', 'Pose': '/PoseStamped'}
TOPIC_KEYS = {'imageTopic', 'calibrationTopic', 'topicPath', 'topicToRender', 'value'}


def test_every_service_of_the_layout_is_ours(everything: Graph) -> None:
    offered = {name: kinds[0] for name, kinds in everything.outsider.get_service_names_and_types()}
    calls = [each for each in LAYOUT['configById'].values() if 'serviceName' in each]
    assert len(calls) == 4
    for call in calls:
        kind = getattr(services, offered[call['serviceName']].rpartition('/')[2])
        request = json.loads(call['requestPayload'])
        assert request.keys() == kind.Request.get_fields_and_field_types().keys()
        kind.Request(**request)


def test_the_layout_shows_each_of_its_panels_once() -> None:
    def panels(part: Any) -> list[str]:
        if isinstance(part, str):
            return [part]
        return panels(part['first']) + panels(part['second'])

    assert sorted(panels(LAYOUT['layout'])) == sorted(LAYOUT['configById'])
