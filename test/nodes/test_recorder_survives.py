# SPDX-License-Identifier: Apache-2.0
"""A recorder that is killed loses a second at most, no answer, no label; the next one recovers."""

from __future__ import annotations

from dataclasses import replace
import json
from operator import itemgetter
import os
from pathlib import Path
import signal
import threading
import time
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Answer, AnswerLabel, SemanticDelta
from embodied_r_msgs.srv import LabelAnswer
from embodied_r_ros.data.episodes.inspect import audit_bag
from embodied_r_ros.data.own_messages import answer_to_msg, delta_to_msg, keyframe_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from mcap.reader import make_reader
from mcap.writer import Writer
from nav_msgs.msg import Odometry
import pytest
from rclpy.serialization import deserialize_message

from test.bags.test_messages import answer, delta, keyframe
from test.bags.test_recording import growing, text_cdr
from test.nodes.graph import DEACTIVATE, wait_for
from test.nodes.test_episode_recorder import Operator

if TYPE_CHECKING:
    from test.nodes.graph import Graph


def recorded_messages(bag_path: str | Path, topic: str, kind: type[Any]) -> list[Any]:
    """Messages of a topic of a bag, by the library `mcap`, in their order."""
    [path] = Path(bag_path).glob('*.mcap')
    with path.open('rb') as file:
        found = make_reader(file, validate_crcs=True).iter_messages(topic, log_time_order=False)
        return [deserialize_message(message.data, kind) for _, _, message in found]


def statuses(arrays: list[Any]) -> list[dict[str, str]]:
    return [{v.key: v.value for v in a.status[0].values} for a in arrays]


def is_labelled(graph: Graph, answer_id: str) -> bool:
    """Label an answer; False where the recorder has not heard it yet."""
    request = LabelAnswer.Request(answer_id=answer_id)
    return not graph.call(LabelAnswer, '/label_answer', request).error_code


@pytest.fixture
def operator(graph: Graph, tmp_path: Path) -> Operator:
    return Operator(graph, tmp_path)


def test_killed_recorder_keeps_every_label_it_took_and_all_but_the_last_second(
    graph: Graph, tmp_path: Path
) -> None:
    process, bag = graph.recording(tmp_path)
    deltas = graph.publisher(SemanticDelta, '/semantic_delta')
    answers = graph.publisher(Answer, '/answer')
    delta_msg = delta_to_msg(ROS_MESSAGES, delta())
    sent: list[float] = []
    labelled: list[str] = []
    end = time.monotonic() + 2.0
    while time.monotonic() < end or len(labelled) < 10:
        answer_id = f'a-{len(labelled)}'
        answers.publish(answer_to_msg(ROS_MESSAGES, replace(answer(), id=answer_id)))
        wait_for(lambda: is_labelled(graph, f'a-{len(labelled)}'), 'the label')
        labelled.append(answer_id)
        deltas.publish(delta_msg)
        sent.append(time.monotonic())
    process.send_signal(signal.SIGKILL)  # at once after the last label was taken
    process.wait(30)
    assert not (bag / 'metadata.yaml').exists()

    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    again = graph.process('episode_recorder', autostart=True, bag_dir=tmp_path, min_free_mb=0)
    wait_for(lambda: any(s.get('recovered') == '1' for s in statuses(arrays)), 'the recovery', 30)
    again.send_signal(signal.SIGINT)
    _, said = again.communicate(timeout=30)
    assert f'episode {bag.name} was not closed: recovered' in said
    labels = recorded_messages(bag, '/answer_label', AnswerLabel)
    assert [label.answer_id for label in labels] == labelled
    assert [a.id for a in recorded_messages(bag, '/answer', Answer)] == labelled
    kept = recorded_messages(bag, '/semantic_delta', SemanticDelta)
    assert len(kept) >= sum(t < sent[-1] - 1.0 for t in sent)
    assert (bag / 'metadata.yaml').exists()


def test_label_is_told_only_when_the_disk_has_it(operator: Operator) -> None:
    bag = operator.start().bag_path
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    [path] = Path(bag).glob('*.mcap')
    before = path.stat().st_size
    assert operator.label().error_code == 0
    assert path.stat().st_size > before


class StuckDisk:
    """Takes nothing until it is back; then everything, or nothing ever again."""

    def __init__(self, patched: pytest.MonkeyPatch) -> None:
        self.is_broken = False
        self.back = threading.Event()
        self._fsync = os.fsync
        patched.setattr(os, 'fsync', self.fsync)

    def fsync(self, descriptor: int) -> None:
        assert self.back.wait(60)
        if self.is_broken:
            raise OSError(5, 'Input/output error')
        self._fsync(descriptor)


def test_label_that_the_disk_does_not_take_in_time_is_told_so_and_written_once(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    operator = Operator(graph, tmp_path, label_wait_s=0.3)
    labels = graph.inbox(AnswerLabel, '/answer_label')
    graph.matched('/answer_label')
    bag = operator.start().bag_path
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    disk = StuckDisk(monkeypatch)
    for _ in range(2):  # who is told so may say it again
        said = operator.label(operator_name='ann')
        assert (said.error_code, said.answer_id) == (said.ERROR_BAD_LABEL, '')
        assert 'the label is not on the disk after 0.3 s; it waits' in said.error_msg
    wait_for(lambda: 'the disk is slower' in operator.node.report().message, 'a warning')
    assert labels == []
    disk.back.set()
    labels.wait(1)
    assert operator.label(operator_name='bob').error_code == 0
    operator.stop()
    found = recorded_messages(bag, '/answer_label', AnswerLabel)
    assert [label.operator_name for label in found] == ['ann', 'bob']
    assert [label.operator_name for label in labels.wait(2)] == ['ann', 'bob']


def test_label_that_waited_for_a_disk_that_fails_is_not_told_of(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    operator = Operator(graph, tmp_path, label_wait_s=0.1)
    labels = graph.inbox(AnswerLabel, '/answer_label')
    graph.matched('/answer_label')
    operator.start()
    operator.tell('answer', answer_to_msg(ROS_MESSAGES, answer()))
    disk = StuckDisk(monkeypatch)
    assert operator.label().error_code != 0
    disk.is_broken = True
    disk.back.set()
    wait_for(lambda: not operator.node._labelling._on_the_way, 'the end of the label')
    assert 'Input/output error' in operator.stop().error_msg
    assert 'the label on e1-4 was not recorded' in capfd.readouterr().err
    assert labels == []


def test_unclosed_episodes_are_recovered_at_the_next_start(graph: Graph, tmp_path: Path) -> None:
    for name in ('e1', 'e2'):
        left = growing(tmp_path / name)
        left.write('/text', text_cdr('a'), 1)
        left.sync()
        left.abandon()
    growing(tmp_path / 'e3').abandon()
    (tmp_path / 'e3' / 'e3_0.mcap').write_text('not an MCAP file')
    running = growing(tmp_path / 'e4')  # of another recorder
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    node = Operator(graph, tmp_path).node
    done = wait_for(
        lambda: next((s for s in statuses(arrays) if s.get('recovering') == 'False'), None),
        'the end of the recovery',
    )
    assert (done['recovered'], done['not_recovered']) == ('2', '1')
    assert (tmp_path / 'e1' / 'metadata.yaml').exists()
    assert not (tmp_path / 'e4' / 'metadata.yaml').exists()
    health = node.report()
    assert health.level == 1
    assert health.message.startswith('e3: not recovered: ')
    running.close()


@pytest.mark.parametrize('is_flushed', [True, False])
def test_bag_that_another_recorder_may_be_writing_is_left_alone(
    is_flushed: bool, graph: Graph, tmp_path: Path
) -> None:
    path = tmp_path / 'other' / 'other_0.mcap'
    path.parent.mkdir()
    path.touch()
    if is_flushed:
        with path.open('wb') as file:
            Writer(file).start(profile='ros2', library='libmcap 1.3.1')
    inode = path.stat().st_ino
    ours = growing(tmp_path / 'ours')
    ours.sync()
    ours.abandon()
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    node = Operator(graph, tmp_path).node
    done = wait_for(
        lambda: next((s for s in statuses(arrays) if s.get('recovering') == 'False'), None),
        'the end of the recovery',
    )
    assert (done['recovered'], done['not_recovered']) == ('1', '0')
    assert not node._recovering.problem()
    assert path.stat().st_ino == inode
    assert [path.name for path in path.parent.iterdir()] == ['other_0.mcap']


def test_recovery_ends_with_the_node_and_goes_on_the_next_time(
    graph: Graph, tmp_path: Path
) -> None:
    left = growing(tmp_path / 'e1')
    for index in range(2000):
        left.write('/text', text_cdr('a'), index)
        left.sync()
    left.abandon()
    operator = Operator(graph, tmp_path)
    operator.node._recovering.stop()
    graph.change(operator.node, DEACTIVATE)
    assert not list((tmp_path / 'e1').glob('*.recovering'))
    again = Operator(graph, tmp_path, '/again')
    wait_for(lambda: (tmp_path / 'e1' / 'metadata.yaml').exists(), 'the recovery')
    wait_for(lambda: not again.node._recovering.values()['recovering'], 'its end')


def test_topic_that_comes_late_is_recorded_and_one_that_never_comes_is_told(
    graph: Graph, tmp_path: Path
) -> None:
    audit: dict[str, Any] = {
        'audit__topics': ['keyframe', 'odom 1000', 'answer'],
        'audit__max_gap_s': 0.2,
    }
    operator = Operator(graph, tmp_path, **audit)
    bag = operator.start().bag_path
    wait_for(lambda: '/keyframe: no message' in operator.node.report().message, 'a warning')
    assert operator.node.report().level == 1
    late = graph.outsider.create_publisher(Odometry, '/odom', topics.SENSOR)
    wait_for(lambda: late.get_subscription_count(), 'the recorder')
    for _ in range(5):
        late.publish(Odometry())
    wait_for(lambda: operator.count('/odom') == 5, 'odometry in the bag')
    operator.tell('keyframe', keyframe_to_msg(ROS_MESSAGES, keyframe()))
    values = operator.node.report().values
    assert values['/odom [Hz]'].endswith('0 out of order')
    assert '/answer: no message' in values['audit']
    assert '/keyframe' not in values['audit']
    operator.stop()
    assert len(recorded_messages(bag, '/odom', Odometry)) == 5
    problems = audit_bag(Path(bag)).problems
    assert '/answer: no message' in problems
    assert any(problem.startswith('/odom: ') for problem in problems)
    assert operator.node.report().values['last_audit'] == '; '.join(problems)


def test_audit_of_the_bag_is_that_of_the_recorder(operator: Operator) -> None:
    bag = operator.start().bag_path
    operator.tell('keyframe', keyframe_to_msg(ROS_MESSAGES, keyframe()))
    operator.tell('semantic_delta', delta_to_msg(ROS_MESSAGES, delta()))
    operator.stop()
    [path] = Path(bag).glob('*.mcap')
    with path.open('rb') as file:
        records = {r.name: r.metadata for r in make_reader(file).iter_metadata()}
    assert int(records['embodied_r_audit']['disk_left_mb']) > 0
    told, again = (
        json.loads(text)
        for text in (records['embodied_r_audit']['report'], audit_bag(Path(bag)).to_json())
    )
    assert told['problems'] == []
    for report in (told, again):
        report['topics'].sort(key=itemgetter('topic'))
    assert again == told


def test_settings_of_the_audit_are_checked(operator: Operator) -> None:
    refused = operator.graph.parameter(operator.node, 'audit.topics', ['odom fast'])
    assert not refused.successful
    assert 'expected a name, or a name and a rate' in refused.reason
