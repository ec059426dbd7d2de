# SPDX-License-Identifier: Apache-2.0
"""A candidate in the shadow of the reasoner, over DDS, with a model server each."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Answer, AnswerLabel
from embodied_r_ros.core.types.answers import Freshness
from embodied_r_ros.data.episodes.episode import read_answers
from embodied_r_ros.data.episodes.inspect import audit_bag
from embodied_r_ros.nodes.diagnostics import Level
import pytest

from test.chat_server import ChatServer, Script
from test.nodes.graph import DEACTIVATE, wait_for
from test.nodes.test_episode_recorder import Operator
from test.nodes.test_spatial_reasoner import Asker, HANGING, RIGHT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph, Inbox

LEFT = Script(('<think>', 'It was left.', '</think>', '<answer>A</answer>'))


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer]]:
    """The server of the model that answers B, and that of the candidate, which answers A."""
    with (
        ChatServer(default=RIGHT, models=[{'id': 'scripted'}]) as serving,
        ChatServer(default=LEFT, models=[{'id': 'candidate'}], name='candidate') as shadow,
    ):
        yield serving, shadow


def start_shadow(graph: Graph, servers: tuple[ChatServer, ChatServer]) -> tuple[Asker, Inbox]:
    """A reasoner with a candidate, and what the candidate says."""
    asker = Asker(graph, servers[0], shadow__server=f'{servers[1].url}#candidate').start()
    said = graph.inbox(Answer, '/shadow_answer')
    graph.matched('/shadow_answer')
    return asker, said


def shadow_status(statuses: Inbox) -> Any:
    """The newest status of the task `shadow`."""
    return next(
        (
            status
            for array in reversed(statuses)
            for status in array.status
            if status.name.endswith(': shadow')
        ),
        None,
    )


def test_shadow_is_recorded_with_what_it_stands_beside(
    graph: Graph, servers: tuple[ChatServer, ChatServer], tmp_path: Path
) -> None:
    asker, said = start_shadow(graph, servers)
    operator = Operator(graph, tmp_path)
    statuses = graph.inbox(DiagnosticArray, '/diagnostics')
    graph.matched('/episode_mark')
    operator.start()
    wait_for(lambda: asker.node._memory.episode_id, 'the mark of the episode')
    asker.see('New: red tall object 30° right.', age_s=0.0)  # in the episode, not before it
    status, result = asker.ask()
    assert (status, result.answer.text) == (GoalStatus.STATUS_SUCCEEDED, 'right')
    own = said.wait(1)[0]
    assert (own.id, own.text, own.model.name) == (
        f'{result.answer.id}-shadow',
        'left',
        'candidate',
    )
    assert own.prompt_sha256 == result.answer.prompt_sha256
    sent = [server.requests[-1].body['messages'] for server in servers]
    assert sent[0] == sent[1]
    wait_for(lambda: operator.count('/shadow_answer'), 'the answer of the shadow in the bag')
    # A label without a name goes to what the robot said, not to what the shadow did.
    labelled = operator.label(verdict=AnswerLabel.VERDICT_RIGHT)
    assert (labelled.error_code, labelled.error_msg) == (0, '')
    wait_for(lambda: (s := shadow_status(statuses)) and 'answered' in str(s.values), 'its health')
    health = shadow_status(statuses)
    assert health.level == bytes([Level.OK])
    assert health.message.startswith('a shadow runs')
    bag = Path(operator.stop().bag_path)
    assert [answer.text for answer in asker.answers] == ['right']
    log = read_answers(bag)
    assert [answer.text for answer in log.answers] == ['right']
    assert {name: answer.text for name, answer in log.shadows.items()} == {
        result.answer.id: 'left'
    }
    assert log.had_shadow
    assert log.labels.keys() == {result.answer.id}
    assert not [text for text in audit_bag(bag).problems if 'shadow' in text]


def test_shadow_gives_way_and_its_death_harms_nobody(
    graph: Graph, servers: tuple[ChatServer, ChatServer]
) -> None:
    asker, said = start_shadow(graph, servers)
    asker.see('New: red tall object 30° right.')
    servers[1].play(HANGING)
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
    assert servers[1].wait_for(lambda server: server.active == 1)
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
    assert servers[1].wait_for(lambda server: server.disconnects == 1)
    assert said.wait(1)[0].text == 'left'
    servers[1].close()
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
    assert said.wait(2)[1].freshness == Freshness.REFUSED.value
    assert len(asker.answers.wait(3)) == 3
    assert asker.node._shadow
    health = asker.node._shadow.health()
    assert health
    assert (health.level, health.values['dropped'], health.values['failed']) == (Level.WARN, 1, 1)
    assert 'no model server' in health.message
    graph.change(asker.node, DEACTIVATE)
    assert asker.node._shadow.health() is None


def test_without_a_candidate_nothing_is_said_of_one(graph: Graph, servers: Any) -> None:
    asker = Asker(graph, servers[0]).start()
    asker.node.diagnostics.publish()
    assert not graph.outsider.get_publishers_info_by_topic('/shadow_answer')
    assert asker.node.diagnostics.tasks['shadow']() is None
