# SPDX-License-Identifier: Apache-2.0
"""Nodes whose model servers die, hang, lie and come back, in processes of their own."""

from __future__ import annotations

from dataclasses import dataclass
import json
import time
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from embodied_r_msgs.msg import Answer, ModelInfo, SemanticDelta
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Level
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
import pytest
from std_msgs.msg import String

from bench.faulty_server import FaultyServer
from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for
from test.nodes.test_semantic_perceiver import keyframe_with_id, show
from test.nodes.test_spatial_reasoner import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

LEFT = '<think>It was left.</think><answer>left</answer>'
SCENE = '{"summary": "A red chair.", "items": [], "visible_text": [], "motions": []}'
MOVED = SCENE.replace('[]}', '[{"kind": "cannot_tell", "amount": "moderate"}]}')
QUICK: dict[str, Any] = {
    'fallback__start': 'any',
    # Long enough that what a fault did is still to be seen, also on a busy machine.
    'fallback__first_wait_s': 2.0,
    'fallback__longest_wait_s': 2.0,
    'fallback__look_s': 1.0,
    'fallback__patience_s': 0.2,
}


@dataclass
class Servers:
    """A server that answers B and one that answers A."""

    first: FaultyServer
    second: FaultyServer


@pytest.fixture(scope='module')
def running() -> Iterator[Servers]:
    with FaultyServer('large') as first, FaultyServer('small', LEFT) as second:
        yield Servers(first, second)


@pytest.fixture
def servers(running: Servers) -> Servers:
    if not running.first.is_alive():
        running.first.start()
    running.first.behave('well')
    running.second.behave('well')
    return running


@pytest.fixture
def asker(graph: Graph, servers: Servers) -> Asker:
    """A reasoner with both servers as rungs."""
    return Asker(
        graph,
        servers.first,  # type: ignore[arg-type]
        chat__model='large',
        local=servers.second.url,
        reasoner__max_age_s=600.0,
        **QUICK,
    )


def models_of(record: Any) -> list[tuple[str, str]]:
    """Names and rungs of the models in a record of provenance."""
    models = json.loads(record.data)['models']
    return [(model['name'], model.get('rung', 'PRIMARY')) for model in models]


def ask_until(asker: Asker, rung: int, timeout_s: float = 20.0) -> Any:
    """Ask until a rung answers."""
    end = time.monotonic() + timeout_s
    while True:
        status, result = asker.ask()
        assert status == GoalStatus.STATUS_SUCCEEDED, result.error_msg
        if result.answer.model.rung == rung:
            return result.answer
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.parametrize('fault', ['dying', 'hung', 'garbage', 'babbling', 'other'])
def test_answer_comes_from_the_rung_below_until_the_model_is_well_again(
    asker: Asker, servers: Servers, fault: str
) -> None:
    asker.start()
    asker.see('New: red tall object.')
    assert asker.ask()[1].answer.model.rung == ModelInfo.RUNG_PRIMARY
    servers.first.behave(fault)
    status, result = asker.ask(deadline_s=2.0)
    assert status == GoalStatus.STATUS_SUCCEEDED
    answer = result.answer
    assert (answer.text, answer.model.name, answer.model.rung) == (
        'left',
        'small',
        ModelInfo.RUNG_LOCAL,
    )
    assert answer.freshness == Answer.FRESHNESS_DEGRADED
    health = asker.node.report()
    assert health.level is Level.WARN
    assert 'primary_problem' in health.values
    if not servers.first.is_alive():
        servers.first.start()
    servers.first.behave('well')
    assert ask_until(asker, ModelInfo.RUNG_PRIMARY).text == 'right'
    wait_for(lambda: asker.node.report().level is Level.OK, 'a node that is well')


def test_reasoner_starts_without_its_model_where_any_rung_will_do(
    asker: Asker, servers: Servers
) -> None:
    servers.first.kill()
    asker.start()
    records = asker.graph.inbox(String, 'provenance', topics.LATCHED)
    asker.see('New: red tall object.')
    assert asker.ask()[1].answer.model.name == 'small'
    assert asker.node.report().values['model'] == 'small'
    assert models_of(records.wait(1)[-1]) == [('small', 'LOCAL')]
    servers.first.start()
    ask_until(asker, ModelInfo.RUNG_PRIMARY)
    assert asker.node.report().values['model'] == 'large'
    assert models_of(records.wait(2)[-1]) == [('large', 'PRIMARY'), ('small', 'LOCAL')]
    servers.first.kill()
    asker.ask()
    assert asker.node.report().values['model'] == 'small'
    assert len(records) == 2


def test_no_thread_looks_at_models_after_cleanup(asker: Asker, servers: Servers) -> None:
    servers.first.kill()
    asker.start()
    ladder = asker.node._fallback
    wait_for(lambda: ladder._is_watched, 'looks at the model')
    asker.graph.change(asker.node, DEACTIVATE, CLEANUP)
    wait_for(lambda: not ladder._is_watched, 'the end of the looks')


@pytest.fixture
def second_vlm() -> Iterator[FaultyServer]:
    """A server that describes what it is shown."""
    with FaultyServer('other-vlm', SCENE) as server:
        yield server


def test_second_vision_language_model_perceives_for_the_first_and_the_classical_one_for_both(
    graph: Graph, servers: Servers, second_vlm: FaultyServer
) -> None:
    servers.first.kill()
    node = graph.add(
        SemanticPerceiver,
        perceiver='vlm',
        chat__url=servers.first.url,
        chat__retries=0,
        secondary=second_vlm.url,
        vlm__retries=0,
        **QUICK,
    )
    graph.change(node, CONFIGURE, ACTIVATE)
    found = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    publisher = show(graph, keyframe_with_id(0))
    [delta] = found.wait(1)
    assert (delta.model.name, delta.model.rung) == ('other-vlm', ModelInfo.RUNG_SECONDARY)
    assert 'red chair' in delta.change
    assert node.report().values['model'] == 'other-vlm'
    second_vlm.kill()
    graph.outsider.destroy_publisher(publisher)
    show(graph, keyframe_with_id(1))
    delta = found.wait(2)[1]
    assert (delta.model.name, delta.model.rung) == ('classical', ModelInfo.RUNG_LOCAL)
    assert node.report().level is Level.WARN
    assert node.report().values['stood_in'] == 2
    assert node.report().values['model'] == 'classical'
    assert [model['name'] for model in node.models()] == ['other-vlm', 'classical']


def test_perceiver_without_a_second_model_waits_for_its_own_unless_any_rung_will_do(
    graph: Graph, servers: Servers
) -> None:
    servers.first.kill()
    absent: dict[str, Any] = {
        'perceiver': 'vlm',
        'chat__url': servers.first.url,
        'chat__retries': 0,
    }
    node = graph.add(SemanticPerceiver, **absent)
    assert not graph.try_change(node, CONFIGURE)
    other = graph.add(SemanticPerceiver, '/robot2', **absent, **QUICK)
    graph.change(other, CONFIGURE, ACTIVATE)
    assert other.report().values['model'] == 'classical'
    servers.first.start()
    wait_for(lambda: other.report().level is Level.OK, 'the model')
    assert other.report().values['model'] == 'primary, not heard yet'
