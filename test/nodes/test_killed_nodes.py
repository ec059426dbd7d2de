# SPDX-License-Identifier: Apache-2.0
"""Another node is killed in an episode: the recorder goes on, tells of it, and loses nothing."""

from __future__ import annotations

from dataclasses import replace
import json
import threading
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Answer, AnswerLabel, Keyframe, SemanticDelta
from embodied_r_msgs.srv import StopEpisode
from embodied_r_ros.data.episodes.inspect import audit_bag
from embodied_r_ros.data.own_messages import answer_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.topics import ROS_MESSAGES
import pytest
from sensor_msgs.msg import Image

from bench.faulty_server import FaultyServer
from test.bags.test_messages import answer
from test.nodes.graph import wait_for
from test.nodes.test_images import raw
from test.nodes.test_keyframe_extractor import view
from test.nodes.test_recorder_survives import is_labelled, recorded_messages, statuses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from test.nodes.graph import Graph

KINDS = {'/keyframe': Keyframe, '/semantic_delta': SemanticDelta, '/answer': Answer}
SPEAKS_ON = dict(
    zip(('keyframe_extractor', 'semantic_perceiver', 'spatial_reasoner'), KINDS, strict=True)
)
SILENCE_S = 2.0
MEANWHILE = 'meanwhile'  # the answer that the test publishes
AUDIT = {
    'audit.topics': json.dumps([f'{topic[1:]} 2' for topic in KINDS]),
    'audit.min_rate': 0.01,  # machines are slow; it is the silence that counts
    'audit.max_gap_s': SILENCE_S,
}


def which(msg: Any) -> tuple[Any, ...]:
    """What tells a message of a topic from the others."""
    name = msg.to_id if isinstance(msg, SemanticDelta) else msg.id
    return msg.header.stamp.sec, msg.header.stamp.nanosec, name


def by_writer(messages: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """The test's own answer first, then what the nodes said, in its order."""
    return sorted(messages, key=lambda message: message[-1] != MEANWHILE)


class Pipeline:
    """A camera and all nodes of a robot, each a process, with an episode that is recorded."""

    def __init__(self, graph: Graph, folder: Path, url: str) -> None:
        self.graph = graph
        self._parameters: dict[str, dict[str, Any]] = {
            'keyframe_extractor': {'keyframe.min_interval_s': 0.2},
            'semantic_perceiver': {'perceiver': 'classical'},
            'spatial_reasoner': {
                'chat.url': url,
                'reasoner.focus': 'never',
                'standing_question': 'Which way?',
                'standing_options': '[left, right]',
                'standing_rate_hz': 10.0,
            },
        }
        self.reports: list[dict[str, str]] = []  # what the recorder said of itself, each second
        graph.outsider.create_subscription(DiagnosticArray, '/diagnostics', self._note, 10)
        self.heard = {topic: graph.inbox(kind, topic, 1000) for topic, kind in KINDS.items()}
        _, self.bag = graph.recording(folder, **AUDIT)
        self.processes = {name: self.start(name) for name in SPEAKS_ON}
        self._camera = graph.outsider.create_publisher(Image, '/image', topics.SENSOR)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._show, daemon=True)
        self._thread.start()

    def start(self, node: str) -> Any:
        """Start a node."""
        return self.graph.process(node, autostart=True, **self._parameters[node])

    def end(self) -> None:
        """Show nothing any more."""
        self._stop.set()
        self._thread.join()

    def counts(self) -> dict[str, int]:
        """How many messages of each topic are in the bag, by the recorder's word."""
        [told] = self.reports[-1:] or [{}]
        return {topic: int(told.get(topic, 0)) for topic in KINDS}

    def works(self) -> None:
        """Wait until each topic is recorded again, and heard."""
        before = {topic: len(heard) for topic, heard in self.heard.items()}
        counts = self.counts()
        wait_for(
            lambda: all(
                self.counts()[topic] > counts[topic] and len(self.heard[topic]) > before[topic]
                for topic in KINDS
            ),
            'a message of each topic',
            60,
        )

    def settle(self) -> None:
        """Show nothing any more, and wait until nothing new is recorded."""
        self.end()
        begin = len(self.reports)

        def is_quiet() -> bool:
            last = [report['messages'] for report in self.reports[begin:][-3:]]
            return len(last) == 3 and len(set(last)) == 1

        wait_for(is_quiet, 'the last messages in the bag', 60)

    def _note(self, array: DiagnosticArray) -> None:
        if array.status[0].name.startswith('episode_recorder'):
            self.reports += statuses([array])

    def _show(self) -> None:
        count = 0
        # Slow enough that a process that waits a second for a core loses nothing of its queue.
        while not self._stop.wait(0.25):
            msg = raw('bgr8', view(count % 8))
            msg.header.stamp = self.graph.outsider.get_clock().now().to_msg()
            self._camera.publish(msg)
            count += 1


@pytest.fixture
def pipeline(graph: Graph, tmp_path: Path) -> Iterator[Pipeline]:
    with FaultyServer() as server:
        made = Pipeline(graph, tmp_path, server.url)
        yield made
        made.end()


@pytest.mark.parametrize('node', ['semantic_perceiver'])
def test_recorder_goes_on_without_a_killed_node_and_tells_of_it(
    pipeline: Pipeline, node: str
) -> None:
    graph, silent = pipeline.graph, SPEAKS_ON[node]
    pipeline.works()
    begin = {topic: len(heard) for topic, heard in pipeline.heard.items()}
    pipeline.processes[node].kill()
    pipeline.processes[node].wait(30)
    killed_at = len(pipeline.heard[silent]) - 1  # the last one may have reached one of two only
    silence = f'{silent}: silent for'
    wait_for(lambda: silence in pipeline.reports[-1]['audit'], 'the silence', 60)
    # Meanwhile answers and labels are taken as ever.
    said = replace(answer(), id=MEANWHILE)
    graph.publisher(Answer, '/answer').publish(answer_to_msg(ROS_MESSAGES, said))
    wait_for(lambda: is_labelled(graph, MEANWHILE), 'the label')

    pipeline.processes[node] = pipeline.start(node)
    # The recorder's word is up to a second old: what counts as new at first may be `meanwhile`.
    pipeline.works()
    pipeline.works()
    again = len(pipeline.heard[silent])
    pipeline.works()
    pipeline.settle()
    stopped = graph.call(StopEpisode, '/stop_episode', StopEpisode.Request(outcome=1))
    assert stopped.error_code == 0
    assert (pipeline.bag / 'metadata.yaml').exists()
    for topic, kind in KINDS.items():
        in_bag = [which(msg) for msg in recorded_messages(str(pipeline.bag), topic, kind)]
        heard = [which(msg) for msg in pipeline.heard[topic]]
        kept = heard[begin[topic] :]
        if topic == silent:
            kept = heard[begin[topic] : killed_at] + heard[again:]
        assert kept
        # The test and the reasoner both publish answers: only one writer's messages have an order.
        assert by_writer(name for name in in_bag if name in kept) == by_writer(kept)
    [label] = recorded_messages(str(pipeline.bag), '/answer_label', AnswerLabel)
    assert label.answer_id == MEANWHILE
    assert any(silent in problem for problem in audit_bag(pipeline.bag).problems)
