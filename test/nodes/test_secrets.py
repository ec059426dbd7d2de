# SPDX-License-Identifier: Apache-2.0
"""A token is told to its server, and to nobody who listens to the robot or reads its bags."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import Answer, EpisodeMark, SemanticDelta
from embodied_r_msgs.srv import StartEpisode, StopEpisode
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.data.own_messages import delta_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from embodied_r_ros.nodes.topics import ROS_MESSAGES
import pytest
from rcl_interfaces.msg import Log
from rcl_interfaces.srv import GetParameters, ListParameters
from std_msgs.msg import String

from test.bags.test_messages import delta
from test.certificates import Authority
from test.chat_server import ChatServer, Script
from test.nodes.graph import CONFIGURE, wait_for

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

TOKEN = 'tok-5ecret-value'
WELL = Script(('<think>so</think>', '<answer>B</answer>'))
ECHO = Script(status=500, body=f'{{"error": "no quota for Bearer {TOKEN}"}}')


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A model server behind TLS that asks for a token, and repeats it where it fails."""
    authority = Authority(tmp_path / 'authority')
    monkeypatch.setenv('EMBODIED_R_CA_FILE', str(authority.ca_file))
    monkeypatch.setenv('EMBODIED_R_TOKEN', TOKEN)
    models = [{'id': 'scripted'}]
    with ChatServer(default=WELL, models=models, tls=authority.server(), token=TOKEN) as made:
        yield made


def in_bag(path: str) -> list[bytes]:
    with open_bag(Path(path)) as reader:
        return [bytes(data) for _, _, data in reader.messages()]


def parameters(graph: Graph, node: SpatialReasoner) -> str:
    name = node.get_fully_qualified_name()
    names = graph.call(ListParameters, f'{name}/list_parameters', ListParameters.Request()).result
    request = GetParameters.Request(names=names.names)
    return str(graph.call(GetParameters, f'{name}/get_parameters', request).values)


def test_a_token_is_in_no_log_no_bag_no_diagnostics_and_no_answer(
    graph: Graph, server: ChatServer, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    heard = [
        graph.inbox(Log, '/rosout', 1000),
        graph.inbox(String, '/provenance', topics.LATCHED_OF_MANY),
        graph.inbox(DiagnosticArray, '/diagnostics'),
        graph.inbox(Answer, '/answer'),
    ]
    graph.active(EpisodeRecorder, bag_dir=str(tmp_path / 'bags'), min_free_mb=0)
    node = graph.active(
        SpatialReasoner, chat__url=server.url, chat__retries=0, reasoner__focus='never',
        reasoner__check=False,
    )  # fmt: skip
    bag = graph.call(StartEpisode, '/start_episode', StartEpisode.Request(scene_id='lab')).bag_path
    graph.matched('/answer')
    seen = graph.publisher(SemanticDelta, '/semantic_delta', readers=2)
    wait_for(lambda: node._memory.episode_id, 'the mark of the episode')  # it forgets deltas

    def is_remembered() -> bool:
        now = replace(delta(), stamp_ns=node.now_ns(), episode_id='')
        seen.publish(delta_to_msg(ROS_MESSAGES, now))
        return bool(node._memory.deltas())

    # A recorder that an earlier test killed counts as a reader until its lease ends, so that the
    # reasoner may not have been found yet.
    wait_for(is_remembered, 'the delta')
    goal = Ask.Goal(question='Where is the red object?', options=['left', 'right'])
    results = []
    for script in (WELL, ECHO):
        server.default = script
        results.append(graph.goal_result(graph.send_goal(Ask, '/ask', goal))[1])
    heard[3].wait(2)
    wait_for(lambda: 'no quota' in str(heard[2]), 'the failure in the diagnostics')
    request = StopEpisode.Request(outcome=EpisodeMark.OUTCOME_FAILURE)
    assert graph.call(StopEpisode, '/stop_episode', request).messages

    assert [result.termination_reason for result in results] == ['completed', 'error']
    said = [*map(str, [*heard, *results]), parameters(graph, node), *capfd.readouterr()]
    assert 'no quota' in results[1].error_msg  # the failure itself is told
    assert not [text for text in said if TOKEN in text]
    recorded = in_bag(bag)
    assert any(b'scripted' in data for data in recorded)
    assert not [data for data in recorded if TOKEN.encode() in data]


def test_a_node_that_cannot_read_its_token_says_so_without_it(
    graph: Graph,
    server: ChatServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / 'token').write_text(f'{TOKEN}\n{TOKEN}\n')
    monkeypatch.delenv('EMBODIED_R_TOKEN')
    monkeypatch.setenv('EMBODIED_R_TOKEN_FILE', str(tmp_path / 'token'))
    log = graph.inbox(Log, '/rosout', 1000)
    node = graph.add(SpatialReasoner, chat__url=server.url)
    assert not graph.try_change(node, CONFIGURE)
    wait_for(lambda: 'holds no token' in str(log), 'the reason in the log')
    assert TOKEN not in str(log) + ''.join(capfd.readouterr())
