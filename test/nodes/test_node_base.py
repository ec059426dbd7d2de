# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_ros import nodes
from embodied_r_ros.common.errors import InputError, ModelError
from embodied_r_ros.nodes import node_base, topics
from embodied_r_ros.nodes.diagnostics import Health, Level
from embodied_r_ros.nodes.node_base import ManagedNode, ProblemThrottle
from lifecycle_msgs.srv import GetState
from rclpy.lifecycle import LifecycleNode
from rclpy.qos import ReliabilityPolicy
from std_msgs.msg import String
from std_srvs.srv import Trigger

from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for

if TYPE_CHECKING:
    import pytest

    from test.nodes.graph import Graph


class Echo(ManagedNode):
    """Repeats what it hears; fails as told."""

    def __init__(self, **options: Any) -> None:
        super().__init__('echo', **options)
        self.fault: Exception | None = None

    def configure(self) -> None:
        self.out = self.publisher(String, 'out', topics.RESULT)
        self.serve(Trigger, 'ping', lambda request, response: response)
        if self.fault:
            raise self.fault

    def activate(self) -> None:
        self.subscribe(String, 'in', self.hear, topics.RESULT)
        if self.fault:
            raise self.fault

    def hear(self, msg: Any) -> None:
        if msg.data == 'bad':
            raise RuntimeError(msg.data)
        self.out.publish(msg)

    def report(self) -> Health:
        return Health(Level.OK, 'echoing', {'rate_hz': 2.5})


def attributes_set(path: Path) -> set[str]:
    """Names of the attributes of `self` that a module assigns."""
    return {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == 'self'
    }


def test_no_attribute_of_rclpy_is_overwritten(graph: Graph) -> None:
    taken = set(vars(LifecycleNode('plain', context=graph.context)))
    modules = sorted(Path(nodes.__path__[0]).glob('*.py'))
    collisions = {path.name: attributes_set(path) & taken for path in modules}
    assert {name: names for name, names in collisions.items() if names} == {}


def state(graph: Graph, node: ManagedNode) -> str:
    response = graph.call(GetState, '/echo/get_state', GetState.Request())
    label: str = response.current_state.label
    return label


def test_node_works_any_number_of_times(graph: Graph) -> None:
    node = graph.add(Echo)
    heard = graph.inbox(String, 'out')
    for round_trip in range(3):
        graph.change(node, CONFIGURE, ACTIVATE)
        publisher = graph.publisher(String, 'in')
        graph.matched('out')
        publisher.publish(String(data=str(round_trip)))
        heard.wait(round_trip + 1)
        graph.outsider.destroy_publisher(publisher)
        graph.change(node, DEACTIVATE, CLEANUP)
    assert [msg.data for msg in heard] == ['0', '1', '2']
    assert list(node.subscriptions) == []


def test_inactive_node_hears_nothing(graph: Graph) -> None:
    node = graph.active(Echo)
    graph.change(node, DEACTIVATE)
    assert graph.outsider.count_subscribers('in') == 0


def test_missing_thing_fails_the_configuration_in_one_line(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(Echo)
    node.fault = ModelError('no server at http://127.0.0.1:1:\nstart it')
    assert not graph.try_change(node, CONFIGURE)
    assert state(graph, node) == 'unconfigured'
    assert 'not configured: no server at http://127.0.0.1:1: start it' in capfd.readouterr().err
    assert graph.outsider.count_publishers('out') == 0
    node.fault = None
    graph.change(node, CONFIGURE, ACTIVATE)


def test_bug_in_a_transition_is_logged_with_its_traceback(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(Echo)
    graph.change(node, CONFIGURE)
    node.fault = ZeroDivisionError('a bug')
    assert not graph.try_change(node, ACTIVATE)
    assert state(graph, node) == 'inactive'
    assert 'ZeroDivisionError: a bug' in capfd.readouterr().err
    assert graph.outsider.count_subscribers('in') == 0


def test_impossible_transition_is_refused_and_the_node_lives(graph: Graph) -> None:
    node = graph.add(Echo)
    assert not graph.try_change(node, ACTIVATE)
    graph.change(node, CONFIGURE, ACTIVATE)


def test_bad_message_does_not_end_the_node(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    graph.active(Echo)
    heard = graph.inbox(String, 'out')
    publisher = graph.publisher(String, 'in')
    graph.matched('out')
    publisher.publish(String(data='bad'))
    publisher.publish(String(data='good'))
    assert [msg.data for msg in heard.wait(1)] == ['good']
    assert 'RuntimeError: bad' in capfd.readouterr().err


def test_callback_that_fails_is_told_on_diagnostics(graph: Graph) -> None:
    graph.active(Echo)
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    graph.publisher(String, 'in').publish(String(data='bad'))
    status = wait_for(
        lambda: next((a.status[0] for a in arrays if a.status[0].level != b'\x00'), None),
        'a warning',
    )
    assert (status.level, status.message) == (b'\x01', 'a callback failed: RuntimeError: bad')
    values = {value.key: value.value for value in status.values}
    assert values == {'rate_hz': '2.50', 'failed_callbacks': '1'}


def test_health_is_published(graph: Graph) -> None:
    graph.active(Echo)
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    [status] = arrays.wait(1)[0].status
    assert (status.name, status.message) == ('echo: echo', 'echoing')
    assert status.level == b'\x00'
    assert [(value.key, value.value) for value in status.values] == [('rate_hz', '2.50')]


def test_incompatible_publisher_is_told_on_diagnostics(graph: Graph) -> None:
    graph.active(Echo)
    graph.outsider.create_publisher(String, 'in', topics.SENSOR)
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    status = wait_for(
        lambda: next((a.status[0] for a in arrays if a.status[0].level != b'\x00'), None),
        'a warning',
    )
    assert status.message == 'incompatible QoS on /in'
    assert status.level == b'\x01'


def test_qos_can_be_overridden(graph: Graph) -> None:
    overrides = {'qos_overrides__/in__subscription__reliability': 'best_effort'}
    graph.active(Echo, **overrides)
    heard = graph.inbox(String, 'out')
    publisher = graph.publisher(String, 'in', topics.SENSOR)
    graph.matched('out')
    publisher.publish(String(data='x'))
    heard.wait(1)
    assert topics.RESULT.reliability == ReliabilityPolicy.RELIABLE  # of all other topics


def test_provenance_is_latched(graph: Graph) -> None:
    graph.active(Echo)
    [record] = graph.inbox(String, 'provenance', topics.LATCHED).wait(1)
    said = json.loads(record.data)
    assert said['node'] == '/echo'
    assert said['code']['package'] == 'embodied_r_ros'
    assert len(said['code']['git_revision']) >= 40


def test_a_problem_that_comes_often_hides_no_other_one(
    graph: Graph, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    node = graph.add(Echo)
    for text in ('the pose is 0.5 s old', 'no camera', 'the pose is 12 s old'):
        node.log_problem(InputError(text))
    err = capfd.readouterr().err
    assert 'the pose is 0.5 s old' in err
    assert 'no camera' in err
    assert 'the pose is 12 s old' not in err
    monkeypatch.setattr(node_base, '_SAY_AGAIN_S', 0.0)
    node.log_problem(InputError('the pose is 3 s old'))
    assert 'the pose is 3 s old (1 more like this' in capfd.readouterr().err


def test_problems_that_are_all_different_do_not_flood_the_log(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(node_base, '_SAY_AGAIN_S', 3600.0)
    throttle = ProblemThrottle()
    let_in = [throttle.count_repeats('a' * length) for length in range(1, 100)]
    assert let_in == [0] * 32 + [None] * 67
    monkeypatch.setattr(node_base, '_SAY_AGAIN_S', 0.0)
    assert throttle.count_repeats('b') == 0  # in the place of the oldest
    assert len(throttle._times) == 32
