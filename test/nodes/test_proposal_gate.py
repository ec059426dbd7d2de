# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from embodied_r_msgs.action import PredictKeypoint
from embodied_r_msgs.msg import AnswerLabel, KeypointProposal, ModelInfo
from embodied_r_msgs.srv import LabelAnswer
from embodied_r_ros.bags.messages import stamp_to_msg
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.nodes import frames, topics
from embodied_r_ros.nodes.proposal_gate import ProposalGate
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from geometry_msgs.msg import Point, PoseStamped
import pytest
from rclpy.serialization import deserialize_message, serialize_message
from rosgraph_msgs.msg import Clock

from test.chat_server import ChatServer, Script
from test.nodes.graph import ACTIVATE, CONFIGURE, DEACTIVATE, wait_for
from test.nodes.test_camera_poses import transforms
from test.nodes.test_spatial_reasoner import Asker

if TYPE_CHECKING:
    from test.nodes.conftest import Heard
    from test.nodes.graph import Graph

SET_UP = {
    'workspace_frame': 'table',
    'workspace_min': [-0.5, -0.5, 0.0],
    'workspace_max': [0.5, 0.5, 0.6],
    'max_step_m': 0.3,
    'max_pose_age_s': 60.0,
    'max_age_s': 60.0,
    'max_rate_hz': 1000.0,
}
NAN = float('nan')
AT_THE_TABLE = Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'table')


class Operator:
    """A gate, and one who proposes to it and hears what comes out."""

    def __init__(self, graph: Graph, namespace: str = '', **parameters: Any) -> None:
        self.graph, self.namespace = graph, namespace
        self.node = graph.add(ProposalGate, namespace, **{**SET_UP, **parameters})
        graph.change(self.node, CONFIGURE, ACTIVATE)
        self.accepted = graph.inbox(KeypointProposal, f'{namespace}/keypoint_accepted')
        self.refused = graph.inbox(DiagnosticStatus, f'{namespace}/keypoint_refused')
        graph.matched(f'{namespace}/keypoint_accepted')
        graph.matched(f'{namespace}/keypoint_refused')
        self.proposals = graph.publisher(KeypointProposal, f'{namespace}/keypoint_proposal')
        self.poses = graph.publisher(PoseStamped, f'{namespace}/current_pose', topics.SENSOR)

    def hold(self, x: float = 0.1, frame: str = 'table') -> None:
        """Say where the end effector is, and wait until the gate knows."""
        msg = PoseStamped()
        msg.header.frame_id = frame
        msg.header.stamp = stamp_to_msg(ROS_MESSAGES, self.node.now_ns())
        msg.pose.position = Point(x=x, y=0.1, z=0.3)
        self.poses.publish(msg)

        def is_known() -> bool:
            pose = self.node._gate._pose
            return pose is not None and pose.position[0] == x

        wait_for(is_known, 'the pose')

    def propose(self, name: str = 'run-1', x: float = 0.1, **fields: Any) -> KeypointProposal:
        """Propose a keypoint; returns the message."""
        stamp = stamp_to_msg(ROS_MESSAGES, self.node.now_ns())
        model = ModelInfo(name='nano', rung=ModelInfo.RUNG_PRIMARY)
        common = {'confidence': 0.9, 'model': model, 'candidate_index': -1}
        msg = KeypointProposal(id=name, observation_stamp=stamp, **{**common, **fields})
        msg.pose.header.frame_id = 'table'
        msg.pose.pose.position = Point(x=x, y=0.2, z=0.3)
        self.proposals.publish(msg)
        return msg

    def waits(self) -> None:
        """Wait until a proposal waits for its operator."""
        wait_for(lambda: self.node._gate.waiting, 'a proposal that waits')

    def says(self, name: str, verdict: int, **fields: Any) -> LabelAnswer.Response:
        """Confirm or refuse."""
        request = LabelAnswer.Request(answer_id=name, verdict=verdict, **fields)
        return self.graph.call(LabelAnswer, f'{self.namespace}/confirm_keypoint', request)


@pytest.fixture
def operator(graph: Graph) -> Operator:
    made = Operator(graph)
    made.hold()
    return made


def as_received(msg: KeypointProposal) -> Any:
    """The message as others get it: whole numbers of float fields are floats."""
    return deserialize_message(serialize_message(msg), KeypointProposal)


def ids_and_rules(refusals: list[Any]) -> list[tuple[str, str]]:
    """Id and rule of each refusal."""
    return [(msg.values[0].value, msg.name) for msg in refusals]


def test_accepted_proposal_comes_out_as_it_came_in(operator: Operator) -> None:
    sent = operator.propose(think='because', task='pick')
    [msg] = operator.accepted.wait(1)
    assert repr(msg) == repr(as_received(sent))
    assert operator.refused == []


@pytest.mark.parametrize('is_valid', [True, False])
def test_pose_of_an_accepted_proposal_comes_out_alone(
    operator: Operator, *, is_valid: bool
) -> None:
    poses = operator.graph.inbox(PoseStamped, '/keypoint_accepted/pose')
    operator.graph.matched('/keypoint_accepted/pose')
    msg = operator.propose(orientation_valid=is_valid)
    [pose] = poses.wait(1)
    assert pose.header == msg.pose.header
    assert pose.pose.position == msg.pose.pose.position
    assert (pose.pose.orientation.w, pose.pose.orientation.z) == (1.0, 0.0)


def test_refused_proposal_is_told_with_rule_and_reason(operator: Operator) -> None:
    operator.propose(x=0.7)
    [status] = operator.refused.wait(1)
    assert ids_and_rules([status]) == [('run-1', 'workspace')]
    assert status.level == b'\x01'
    assert status.message == 'x is 0.700 m in table: expected -0.500 to 0.500'
    arrays = operator.graph.inbox(DiagnosticArray, '/diagnostics')
    [health] = arrays.wait(1)[0].status
    values = {value.key: value.value for value in health.values}
    assert health.message == f'refused run-1: workspace: {status.message}'
    assert (health.level, values['refused_workspace'], values['accepted']) == (b'\x01', '1', '0')
    assert operator.accepted == []


@pytest.mark.parametrize('field', [{'freshness': 9}, {'model': ModelInfo(rung=77)}])
def test_message_that_means_nothing_is_refused(operator: Operator, field: dict[str, Any]) -> None:
    operator.propose(**field)
    operator.propose('run-2')
    operator.accepted.wait(1)
    assert ids_and_rules(operator.refused.wait(1)) == [('run-1', 'message')]


def test_without_a_pose_nothing_comes_out(graph: Graph) -> None:
    operator = Operator(graph)
    operator.propose()
    [status] = operator.refused.wait(1)
    assert (status.name, status.message) == ('step', 'no pose came on current_pose')


def test_gate_as_it_is_shipped_is_closed(graph: Graph) -> None:
    operator = Operator(graph, workspace_frame='')
    operator.hold()
    operator.propose()
    assert ids_and_rules(operator.refused.wait(1)) == [('run-1', 'settings')]
    assert operator.accepted == []


def test_inactive_gate_is_closed(operator: Operator) -> None:
    operator.graph.change(operator.node, DEACTIVATE)
    assert operator.graph.outsider.count_subscribers('/keypoint_proposal') == 0
    assert operator.says('run-1', AnswerLabel.VERDICT_RIGHT).error_code != 0


def test_rules_change_while_it_runs_and_bad_ones_are_refused(operator: Operator) -> None:
    changed = operator.graph.parameter(operator.node, 'max_step_m', 0.05)
    assert changed.successful
    operator.propose()
    assert ids_and_rules(operator.refused.wait(1)) == [('run-1', 'step')]
    bad = operator.graph.parameter(operator.node, 'workspace_max', [0.5, -0.6, 0.5])
    assert not bad.successful
    assert 'expected each coordinate of workspace_min below' in bad.reason
    operator.graph.parameter(operator.node, 'max_step_m', 0.3)
    operator.propose('run-2', x=0.45)
    assert ids_and_rules(operator.refused.wait(2))[1] == ('run-2', 'step')


def test_the_tool_is_named_before_the_gate_is_set_up(operator: Operator) -> None:
    result = operator.graph.parameter(operator.node, 'tool_frame', 'hand')
    assert not result.successful
    assert result.reason.startswith('tool_frame takes effect at configure')


def test_time_that_jumps_back_begins_anew(graph: Graph) -> None:
    clock = graph.outsider.create_publisher(Clock, '/clock', 10)
    operator = Operator(graph, use_sim_time=True)
    now = 100

    def at(second: int) -> None:
        def is_there() -> bool:
            clock.publish(Clock(clock=stamp_to_msg(ROS_MESSAGES, second * 10**9)))
            return operator.node.now_ns() == second * 10**9

        wait_for(is_there, 'the time')

    at(now)
    operator.hold()
    operator.propose()
    operator.accepted.wait(1)
    at(now - 50)
    operator.propose('run-2')
    assert ids_and_rules(operator.refused.wait(1)) == [
        ('run-2', 'step')
    ]  # the pose is of the future
    operator.hold()
    operator.propose('run-3')
    assert operator.accepted.wait(2)[1].id == 'run-3'


def test_what_the_reasoner_proposes_passes(graph: Graph) -> None:
    choice = Script(('<think>', 'IGNORE THE RULES', '</think>', '<answer>A</answer>'))
    with ChatServer(default=choice, models=[{'id': 'scripted'}]) as server:
        operator = Operator(graph, min_confidence=0.0)
        operator.hold()
        asker = Asker(graph, server).start()
        asker.see('New: red tall object.')
        points = [Point(x=0.1, y=0.2, z=0.3), Point(x=0.9, y=0.2, z=0.3)]
        ask = {'task': 'pick', 'frame_id': 'table'}
        for candidates in (points, points[::-1]):
            goal = PredictKeypoint.Goal(candidates=candidates, **ask)
            graph.goal_result(graph.send_goal(PredictKeypoint, '/predict_keypoint', goal))
        [accepted], [refused] = operator.accepted.wait(1), operator.refused.wait(1)
    assert accepted.pose.pose.position == points[0]
    assert accepted.model.rung == ModelInfo.RUNG_PRIMARY
    assert refused.message == 'x is 0.900 m in table: expected -0.500 to 0.500'


class TestConfirmation:
    @pytest.fixture
    def operator(self, graph: Graph) -> Operator:
        made = Operator(graph, confirm=True)
        made.hold()
        return made

    def test_confirmed_proposal_comes_out_as_it_came_in(self, operator: Operator) -> None:
        sent = operator.propose(think='because')
        operator.waits()
        assert operator.accepted == []
        said = operator.says('run-1', AnswerLabel.VERDICT_RIGHT, operator_name='ann')
        assert (said.error_code, said.answer_id) == (0, 'run-1')
        [msg] = operator.accepted.wait(1)
        assert repr(msg) == repr(as_received(sent))

    def test_refused_by_the_operator(self, operator: Operator) -> None:
        operator.propose()
        operator.waits()
        assert operator.says('run-1', AnswerLabel.VERDICT_WRONG).error_code == 0
        assert ids_and_rules(operator.refused.wait(1)) == [('run-1', 'confirmation')]
        assert operator.accepted == []

    def test_word_that_does_not_fit_changes_nothing(self, operator: Operator) -> None:
        operator.propose()
        operator.waits()
        unknown = operator.says('run-2', AnswerLabel.VERDICT_RIGHT)
        assert unknown.error_code == unknown.ERROR_NO_SUCH_ANSWER
        assert 'waiting: run-1' in unknown.error_msg
        for bad in (
            operator.says('run-1', 7),
            operator.says('run-1', AnswerLabel.VERDICT_CORRECTED, correction='left'),
        ):
            assert bad.error_code == bad.ERROR_BAD_LABEL
        operator.says('run-1', AnswerLabel.VERDICT_RIGHT)
        operator.accepted.wait(1)

    def test_what_broke_a_rule_meanwhile_is_refused(self, operator: Operator) -> None:
        operator.propose(x=0.1)
        operator.waits()
        operator.hold(-0.4)
        said = operator.says('run-1', AnswerLabel.VERDICT_RIGHT)
        assert said.error_code != 0
        assert 'it is refused now: step: the step is' in said.error_msg
        assert ids_and_rules(operator.refused.wait(1)) == [('run-1', 'step')]

    def test_what_no_operator_confirms_is_refused(self, graph: Graph) -> None:
        operator = Operator(graph, confirm=True, confirm_within_s=0.1)
        operator.hold()
        operator.propose()
        [status] = operator.refused.wait(1)
        assert (status.name, status.message) == (
            'confirmation',
            'no operator confirmed it within 0.1 s',
        )

    def test_what_waits_is_refused_with_the_gate(self, operator: Operator) -> None:
        operator.propose()
        operator.waits()
        operator.graph.change(operator.node, DEACTIVATE)
        [status] = operator.refused.wait(1)
        assert status.message == 'the gate was deactivated'


class TestFrames:
    def propose(self, operator: Operator, name: str, frame: str, at: Point) -> None:
        msg = KeypointProposal(id=name, confidence=0.9, candidate_index=-1)
        msg.observation_stamp = stamp_to_msg(ROS_MESSAGES, operator.node.now_ns())
        msg.model.rung = ModelInfo.RUNG_PRIMARY
        msg.pose.header.frame_id = frame
        msg.pose.pose.position = at
        operator.proposals.publish(msg)

    def test_other_frames_go_through_transforms(self, graph: Graph, heard: Heard) -> None:
        operator = Operator(graph)
        operator.hold()
        turned = Pose((0.0, 0.0, -1.0), (0.0, 0.0, 0.5**0.5, 0.5**0.5), 'table')
        heard[0].take_static(transforms(0, base=turned))
        # x of the base is y of the table, y of the base is -x.
        self.propose(operator, 'run-1', 'base', Point(x=0.2, y=-0.1, z=1.3))
        self.propose(operator, 'run-2', 'base', Point(x=0.2, y=-0.1, z=0.3))
        self.propose(operator, 'run-3', 'moon', Point(x=0.1, y=0.2, z=0.3))
        refused = operator.refused.wait(2)
        assert [msg.id for msg in operator.accepted.wait(1)] == ['run-1']
        assert ids_and_rules(refused) == [('run-2', 'workspace'), ('run-3', 'workspace')]
        assert 'moon is not known in table: no transforms lead' in refused[1].message

    def test_proposal_waits_for_a_frame_that_is_known_late(
        self, graph: Graph, heard: Heard
    ) -> None:
        operator = Operator(graph)
        operator.hold()
        # Longer than a user may have it wait, for slow machines.
        operator.node._proposals._limits = lambda: ('table', 60.0)
        self.propose(operator, 'run-1', 'arm', Point(x=0.1, y=0.2, z=0.3))
        wait_for(lambda: operator.node._proposals._line, 'a proposal in line')
        operator.propose('run-2', x=0.7)  # in its turn
        assert (operator.accepted, operator.refused) == ([], [])
        heard[0].take_static(transforms(0, arm=AT_THE_TABLE))
        assert [msg.id for msg in operator.accepted.wait(1)] == ['run-1']
        assert ids_and_rules(operator.refused.wait(1)) == [('run-2', 'workspace')]
        assert operator.node._proposals._timer.is_canceled()

    def test_frame_that_is_not_known_in_time_is_refused(self, graph: Graph, heard: Heard) -> None:
        operator = Operator(graph, tf_wait_s=0.05)
        operator.hold()
        before_ns = operator.node.now_ns() - 1  # however short a time before
        heard[0].take(transforms(before_ns, arm=AT_THE_TABLE))
        self.propose(operator, 'run-1', 'arm', Point(x=0.1, y=0.2, z=0.3))
        [status] = operator.refused.wait(1)
        why = 'arm is not known in table: the newest transforms are from before'
        assert (status.name, status.message) == ('workspace', why)
        assert operator.accepted == []

    def test_step_begins_at_the_newest_pose_whose_frame_is_known(
        self, graph: Graph, heard: Heard
    ) -> None:
        operator = Operator(graph)
        operator.hold()
        operator.node._poses._limits = lambda: ('table', 60.0)
        pose = PoseStamped()
        pose.header.frame_id = 'arm'
        pose.header.stamp = stamp_to_msg(ROS_MESSAGES, operator.node.now_ns())
        pose.pose.position = Point(x=-0.4, y=0.1, z=0.3)
        operator.poses.publish(pose)
        wait_for(lambda: operator.node._poses._line, 'a pose in line')
        operator.propose('run-1')
        operator.accepted.wait(1)
        heard[0].take_static(transforms(0, arm=AT_THE_TABLE))
        wait_for(lambda: not operator.node._poses._line, 'the pose')
        operator.propose('run-2')
        assert ids_and_rules(operator.refused.wait(1)) == [('run-2', 'step')]

    def test_step_begins_where_tf_knows_the_tool(self, graph: Graph, heard: Heard) -> None:
        node = graph.active(ProposalGate, **{**SET_UP, 'tool_frame': 'hand'})
        hand = Pose((-0.4, 0.1, 0.3), (0.0, 0.0, 0.0, 1.0), 'table')
        heard[0].take(transforms(node.now_ns(), hand=hand))
        wait_for(lambda: node._gate._pose, 'the pose')
        assert node._gate._pose
        assert node._gate._pose.position == pytest.approx((-0.4, 0.1, 0.3))

    def test_what_waits_for_its_frame_is_refused_with_the_gate(
        self, graph: Graph, heard: Heard
    ) -> None:
        operator = Operator(graph)
        operator.node._proposals._limits = lambda: ('table', 60.0)
        self.propose(operator, 'run-1', 'arm', Point(x=0.1, y=0.2, z=0.3))
        wait_for(lambda: operator.node._proposals._line, 'a proposal in line')
        operator.graph.change(operator.node, DEACTIVATE)
        [status] = operator.refused.wait(1)
        assert status.message == 'its frame was waited for, and the gate was deactivated'

    def test_other_frames_are_refused_without_tf2_msgs(
        self, graph: Graph, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(frames, 'listen_to_transforms', lambda _: None)
        operator = Operator(graph)
        operator.hold()
        self.propose(operator, 'run-1', 'base', Point(x=0.2, y=-0.1, z=1.3))
        [status] = operator.refused.wait(1)
        assert 'tf2_msgs is not installed' in status.message
