# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from pathlib import Path
import threading
import time
from typing import Any, TYPE_CHECKING

from builtin_interfaces.msg import Time
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import AnswerLabel, EpisodeMark, Keyframe, SemanticDelta
from embodied_r_msgs.srv import LabelAnswer, StartEpisode, StopEpisode
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.core.types.episodes import LabelKind
from embodied_r_ros.data.episodes.labels import read_labels
from embodied_r_ros.data.episodes.record import DiskForecast
from embodied_r_ros.data.own_messages import answer_to_msg, delta_to_msg, keyframe_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import Level
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from mcap.reader import make_reader
from nav_msgs.msg import Odometry
import pytest
from rclpy.serialization import serialize_message
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import CompressedImage
from std_msgs.msg import String

from test.bags.test_messages import answer, delta, keyframe
from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for

if TYPE_CHECKING:
    from test.nodes.graph import Graph


class Operator:
    """A recorder, and one who works it."""

    def __init__(self, graph: Graph, folder: Path, namespace: str = '', **parameters: Any) -> None:
        self.graph, self.folder, self.namespace = graph, folder, namespace
        defaults = {'bag_dir': str(folder), 'min_free_mb': 0}
        self.node = graph.add(EpisodeRecorder, namespace, **{**defaults, **parameters})
        graph.change(self.node, CONFIGURE, ACTIVATE)

    def start(self, task: str = '') -> Any:
        request = StartEpisode.Request(task=task, scene_id='lab')
        return self.graph.call(StartEpisode, f'{self.namespace}/start_episode', request)

    def stop(self, outcome: int = EpisodeMark.OUTCOME_SUCCESS) -> Any:
        request = StopEpisode.Request(outcome=outcome)
        return self.graph.call(StopEpisode, f'{self.namespace}/stop_episode', request)

    def label(self, **fields: Any) -> Any:
        request = LabelAnswer.Request(**fields)
        return self.graph.call(LabelAnswer, f'{self.namespace}/label_answer', request)

    def tell(self, topic: str, msg: Any, profile: Any = 10) -> None:
        """Publish a message, and wait until it was taken in."""
        name = f'{self.namespace}/{topic}'
        before = self.count(name)
        self.graph.publisher(type(msg), name, profile).publish(msg)
        wait_for(lambda: self.count(name) > before, f'{name} in the bag')

    def count(self, name: str) -> int:
        episode = self.node._episode
        return episode.stats().messages.get(name, 0) if episode else 0


@pytest.fixture
def operator(graph: Graph, tmp_path: Path) -> Operator:
    return Operator(graph, tmp_path)


def contents(path: str) -> dict[str, list[Any]]:
    """Messages of a closed bag, by topic."""
    with open_bag(Path(path)) as reader:
        topics = {connection.topic for connection in reader.connections}
        found: dict[str, list[Any]] = {topic: [] for topic in topics}
        for topic, _, msg in read_messages(reader, topics):
            found[topic].append(msg)
    return found


def raw_contents(path: str, topic: str) -> list[bytes]:
    """Serialised messages of a topic of a closed bag."""
    with open_bag(Path(path)) as reader:
        chosen = [c for c in reader.connections if c.topic == topic]
        return [bytes(data) for _, _, data in reader.messages(chosen)]


def test_episode_becomes_a_bag(operator: Operator) -> None:
    started = operator.start('tidy up')
    assert (started.error_code, started.error_msg) == (0, '')
    operator.tell('keyframe', keyframe_to_msg(ROS_MESSAGES, keyframe()))
    operator.tell('semantic_delta', delta_to_msg(ROS_MESSAGES, delta()))
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    operator.tell('odom', Odometry(child_frame_id='base_link'), topics.SENSOR)
    stopped = operator.stop()
    assert (stopped.error_code, stopped.episode_id) == (0, started.episode_id)
    assert stopped.bag_path == started.bag_path == str(operator.folder / started.episode_id)
    found = contents(stopped.bag_path)
    assert sum(map(len, found.values())) == stopped.messages
    start, stop = found['/episode_mark']
    assert (start.event, start.task, start.scene_id) == (0, 'tidy up', 'lab')
    assert (stop.event, stop.outcome, stop.episode_id) == (1, 1, started.episode_id)
    assert found['/odom'][0].child_frame_id == 'base_link'
    assert len(found['/keyframe']) == len(found['/semantic_delta']) == len(found['/answer']) == 1


def test_messages_go_into_the_bag_untouched(operator: Operator) -> None:
    operator.start()
    data = bytes(serialize_message(keyframe_to_msg(ROS_MESSAGES, keyframe())))
    operator.graph.publisher(Keyframe, '/keyframe').publish(data)
    wait_for(lambda: operator.count('/keyframe'), 'the keyframe')
    assert raw_contents(operator.stop().bag_path, '/keyframe') == [data]


def test_images_can_be_left_out(graph: Graph, tmp_path: Path) -> None:
    operator = Operator(graph, tmp_path, images='none')
    operator.start()
    operator.tell('keyframe', keyframe_to_msg(ROS_MESSAGES, keyframe()))
    [found] = contents(operator.stop().bag_path)['/keyframe']
    assert len(found.image.data) == 0
    assert (found.id, found.inliers, found.has_pose) == (3, 41, True)


def test_compressed_images_can_be_kept(graph: Graph, tmp_path: Path) -> None:
    operator = Operator(graph, tmp_path, images='compressed', cameras=['front', 'rear'])
    operator.start()
    image = CompressedImage(format='jpeg', data=[1, 2, 3])
    operator.tell('rear/image/compressed', image, topics.SENSOR)
    found = contents(operator.stop().bag_path)
    assert len(found['/rear/image/compressed']) == 1
    assert '/front/keyframe' in found


def test_episode_of_a_recording_begins_with_its_clock(graph: Graph, tmp_path: Path) -> None:
    operator = Operator(graph, tmp_path, use_sim_time=True)
    refused = operator.start()
    assert (refused.error_code, refused.bag_path) == (StartEpisode.Response.ERROR_NOT_ACTIVE, '')
    assert refused.error_msg == 'no /clock came, and use_sim_time is set'
    clock = graph.publisher(Clock, '/clock', 10)
    later = threading.Timer(1.0, clock.publish, [Clock(clock=Time(sec=100))])
    later.start()
    assert operator.start().error_msg == ''
    later.join()
    start, _ = contents(operator.stop().bag_path)['/episode_mark']
    assert (start.header.stamp.sec, start.header.stamp.nanosec) == (100, 0)


def test_marks_are_latched_for_those_who_come_later(operator: Operator) -> None:
    started = operator.start()
    [mark] = operator.graph.inbox(EpisodeMark, '/episode_mark', topics.LATCHED).wait(1)
    assert (mark.event, mark.episode_id) == (EpisodeMark.EVENT_START, started.episode_id)


def test_new_episode_ends_the_running_one_as_aborted(operator: Operator) -> None:
    first = operator.start()
    second = operator.start()
    assert second.error_code == 0
    assert second.episode_id != first.episode_id
    _, stop = contents(first.bag_path)['/episode_mark']
    assert stop.outcome == EpisodeMark.OUTCOME_ABORTED


def is_closed(bag_path: str) -> bool:
    return (Path(bag_path) / 'metadata.yaml').exists()


def test_starts_at_the_same_time_leave_no_bag_open(operator: Operator) -> None:
    operator.start('a')
    request = StartEpisode.Request(task='b')
    starts = [operator.graph.call_async(StartEpisode, '/start_episode', request) for _ in range(2)]
    started = [operator.graph.result(start) for start in starts]
    assert [response.error_code for response in started] == [0, 0]
    operator.stop()
    folders = list(operator.folder.iterdir())
    assert len(folders) == 3
    assert all(is_closed(str(folder)) for folder in folders)


def test_start_that_a_deactivation_overtakes_is_refused(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = operator.start()
    episode = operator.node._episode
    assert episode is not None
    go, close = threading.Event(), episode.close

    def slow_close() -> None:
        go.wait(20)
        close()

    monkeypatch.setattr(episode, 'close', slow_close)
    request = StartEpisode.Request()
    starting = operator.graph.call_async(StartEpisode, '/start_episode', request)
    wait_for(lambda: operator.node._episode is None, 'the end of the first episode')
    deactivating = operator.graph.change_later(operator.node, DEACTIVATE)
    wait_for(lambda: not operator.node.is_active, 'the deactivation')
    go.set()
    assert operator.graph.result(deactivating).success
    response = operator.graph.result(starting)
    assert response.error_code == response.ERROR_NOT_ACTIVE
    assert operator.node._episode is None
    assert is_closed(first.bag_path)


def test_provenance_is_in_the_bag_from_the_start(operator: Operator) -> None:
    record = {'node': '/keyframe_extractor', 'models': []}
    said = operator.graph.publisher(String, '/provenance', topics.LATCHED)
    said.publish(String(data=json.dumps(record)))
    wait_for(lambda: len(operator.node._latched.get('/provenance', ())) == 2, 'both records')
    started = operator.start()
    [path] = Path(started.bag_path).glob('*.mcap')
    with path.open('rb') as file:
        early = file.read()
    assert b'/keyframe_extractor' in early
    assert b'git_revision' in early
    stopped = operator.stop()
    with path.open('rb') as file:
        metadata = {m.name: m.metadata for m in make_reader(file).iter_metadata()}
    notes = metadata['embodied_r']
    assert json.loads(notes['/keyframe_extractor']) == record
    own = json.loads(notes['/episode_recorder'])
    assert own['parameters']['images'] == 'keyframes'
    assert own['code']['package'] == 'embodied_r_ros'
    assert len(contents(stopped.bag_path)['/provenance']) == 2


def test_provenance_of_somebody_else_is_recorded_as_a_message_only(operator: Operator) -> None:
    said = operator.graph.publisher(String, '/provenance', topics.LATCHED)
    said.publish(String(data='{"package": "a simulator"}'))
    wait_for(lambda: len(operator.node._latched.get('/provenance', ())) == 2, 'both records')
    bag = operator.start().bag_path
    operator.stop()
    assert '{"package": "a simulator"}' in [msg.data for msg in contents(bag)['/provenance']]


def test_label_is_published_and_recorded(operator: Operator) -> None:
    labels = operator.graph.inbox(AnswerLabel, '/answer_label')
    operator.graph.matched('/answer_label')
    operator.start()
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    response = operator.label(
        verdict=AnswerLabel.VERDICT_CORRECTED, correction='left', operator_name='ann'
    )
    assert (response.error_code, response.answer_id) == (0, 'e1-4')
    assert labels.wait(1)[0].correction == 'left'
    bag = operator.stop().bag_path
    [found] = contents(bag)['/answer_label']
    assert (found.answer_id, found.verdict, found.operator_name) == ('e1-4', 2, 'ann')
    [beside] = read_labels(Path(bag)).labels  # the same, in the layer that outlives the episode
    assert (beside.question_id, beside.kind, beside.who) == ('e1-4', LabelKind.CORRECT, 'ann')
    assert (beside.before, beside.after) == (answer().text, answer().options[0])


def test_label_that_makes_no_sense_is_refused(operator: Operator) -> None:
    response = operator.label(answer_id='e1-4')
    assert response.error_code == response.ERROR_NOT_RECORDING
    operator.start()
    response = operator.label()
    assert response.error_code == response.ERROR_NO_SUCH_ANSWER
    assert response.error_msg == 'this episode has no answer any'
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    response = operator.label(answer_id='other')
    assert response.error_code == response.ERROR_NO_SUCH_ANSWER
    response = operator.label(verdict=AnswerLabel.VERDICT_CORRECTED)
    assert response.error_code == response.ERROR_BAD_LABEL
    assert 'correction' in response.error_msg
    response = operator.label(verdict=AnswerLabel.VERDICT_CORRECTED, correction='elsewhere')
    assert response.error_code == response.ERROR_BAD_LABEL
    assert 'none of the options' in response.error_msg


def test_label_that_is_not_recorded_is_told(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    labels = operator.graph.inbox(AnswerLabel, '/answer_label')
    operator.start()
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    episode = operator.node._episode
    assert episode is not None
    with monkeypatch.context() as patched:
        patched.setattr(episode, 'label', lambda label: False)  # as with a full queue
        response = operator.label()
    assert response.error_code == response.ERROR_BAD_LABEL
    assert response.error_msg.startswith('the label was not recorded')
    assert operator.label().error_code == 0
    assert len(labels.wait(1)) == 1


def test_stop_without_an_episode_is_refused(operator: Operator) -> None:
    response = operator.stop()
    assert response.error_code == response.ERROR_NOT_RECORDING


def test_start_needs_an_active_node(graph: Graph, tmp_path: Path) -> None:
    node = graph.add(EpisodeRecorder, bag_dir=str(tmp_path), min_free_mb=0)
    graph.change(node, CONFIGURE)
    response = graph.call(StartEpisode, '/start_episode', StartEpisode.Request())
    assert response.error_code == response.ERROR_NOT_ACTIVE


def test_deactivation_closes_the_bag(operator: Operator) -> None:
    started = operator.start()
    operator.graph.change(operator.node, DEACTIVATE)
    _, stop = contents(started.bag_path)['/episode_mark']
    assert stop.outcome == EpisodeMark.OUTCOME_ABORTED


def test_folder_that_cannot_be_written_fails_the_configuration(
    graph: Graph, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / 'file').touch()
    node = graph.add(EpisodeRecorder, bag_dir=str(tmp_path / 'file'))
    assert not graph.try_change(node, CONFIGURE)
    assert 'not configured: episodes cannot be written to' in capfd.readouterr().err


def test_full_disk_refuses_an_episode(operator: Operator) -> None:
    assert operator.graph.parameter(operator.node, 'min_free_mb', 10_000_000).successful
    response = operator.start()
    assert response.error_code == response.ERROR_STORAGE
    assert 'make room' in response.error_msg


def test_disk_that_fills_up_ends_the_episode_and_the_node_lives(operator: Operator) -> None:
    started = operator.start()
    assert operator.graph.parameter(operator.node, 'min_free_mb', 10_000_000).successful
    wait_for(lambda: operator.node._episode is None, 'the end of the episode')
    assert operator.node.report().level == 2
    assert 'the episode was ended' in operator.node.report().message
    wait_for(lambda: (Path(started.bag_path) / 'metadata.yaml').exists(), 'a closed bag')
    assert operator.graph.parameter(operator.node, 'min_free_mb', 0).successful
    assert operator.start().error_code == 0


def test_folder_that_goes_ends_the_episode_and_the_node_says_so(operator: Operator) -> None:
    operator.start()
    assert operator.graph.parameter(operator.node, 'min_free_mb', 1).successful
    operator.folder.rename(operator.folder.with_name('gone'))
    wait_for(lambda: operator.node._episode is None, 'the end of the episode')
    arrays = operator.graph.inbox(DiagnosticArray, '/diagnostics')
    status = wait_for(
        lambda: next((a.status[0] for a in arrays if a.status[0].level == b'\x02'), None),
        'an error',
    )
    assert ('free_mb', '0') in [(value.key, value.value) for value in status.values]


def test_three_rounds_of_the_lifecycle_with_an_episode_each(graph: Graph, tmp_path: Path) -> None:
    operator = Operator(graph, tmp_path, namespace='/robot1')
    for round_trip in range(3):
        operator.start()
        operator.tell('keyframe', keyframe_to_msg(ROS_MESSAGES, keyframe()))
        path = operator.stop().bag_path
        assert len(contents(path)['/robot1/keyframe']) == 1
        if round_trip < 2:
            graph.change(operator.node, DEACTIVATE, CLEANUP, CONFIGURE, ACTIVATE)
    assert len(list(tmp_path.iterdir())) == 3


def test_services_answer_while_a_bag_is_being_closed(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator.start()
    episode = operator.node._episode
    assert episode is not None
    close = episode.close

    def slow_close() -> None:
        time.sleep(1.0)
        close()

    monkeypatch.setattr(episode, 'close', slow_close)
    stopping = operator.graph.call_async(StopEpisode, '/stop_episode', StopEpisode.Request())
    wait_for(lambda: operator.node._episode is None, 'the end of the episode')
    start = time.monotonic()
    operator.label()
    assert time.monotonic() - start < 0.5
    assert operator.graph.result(stopping).error_code == 0


def test_what_an_episode_would_lack_is_said_before_it_begins(
    operator: Operator, capfd: pytest.CaptureFixture[str]
) -> None:
    health = operator.node.report()
    assert health.level is Level.WARN
    assert health.message.startswith('an episode would lack /semantic_delta, /keyframe')
    assert '/answer' in health.values['nothing_publishes']
    operator.start()
    assert 'begins without /semantic_delta, /keyframe: no publisher' in capfd.readouterr().err
    operator.stop()
    for kind, topic in ((SemanticDelta, '/semantic_delta'), (Keyframe, '/keyframe')):
        operator.graph.publisher(kind, topic)
    wait_for(lambda: operator.node.report().level is Level.OK, 'publishers')


def test_a_disk_that_is_full_soon_is_told_in_time(
    operator: Operator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DiskForecast, 'minutes_left', lambda forecast, least_mb: 4.2)
    operator.start()
    health = operator.node.report()
    assert (health.level, health.message) == (Level.WARN, 'the disk is full in 4 minutes')
    assert health.values['disk_minutes_left'] == 4
    operator.stop()
