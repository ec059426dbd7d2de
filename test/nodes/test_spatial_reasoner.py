# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math
import threading
import time
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from embodied_r_msgs.action import Ask, PredictKeypoint
from embodied_r_msgs.msg import Answer, EpisodeMark, FocusText, KeypointProposal, SemanticDelta
from embodied_r_msgs.srv import (
    AskOnce,
    Focus,
    PredictKeypointOnce,
    ResetMemory,
    SetStandingQuestion,
)
from embodied_r_ros.bags.messages import stamp_to_msg
from embodied_r_ros.core.reasoning.question import ReasonerConfig, RefusalCode
from embodied_r_ros.core.reasoning.queue import Termination
from embodied_r_ros.core.reasoning.reasoner import Reasoner
from embodied_r_ros.core.types.answers import Check
from embodied_r_ros.nodes import question_server, topics
from embodied_r_ros.nodes.arm.keypoint_request import KeypointOutcome
from embodied_r_ros.nodes.spatial_reasoner import SpatialReasoner
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from geometry_msgs.msg import Point
import pytest
from rclpy.action import ActionServer
from rclpy.callback_groups import ReentrantCallbackGroup
from rclpy.task import Future
from std_srvs.srv import Trigger

from test.chat_server import ChatServer, Script
from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for
from test.tool_events import of_vllm, script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test.nodes.graph import Graph, Inbox

RIGHT = Script(('<think>', 'It was ', 'right.', '</think>', '<answer>B</answer>'))
UNKNOWN = Script(('<think>?</think><answer>unknown</answer>',))
HANGING = Script(('<think>', 'Well', ' ...'), hang_after=2)
WHERE = {'question': 'Which way is the red object?', 'options': ['left', 'right']}


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A scripted model server that answers B."""
    with ChatServer(default=RIGHT, models=[{'id': 'scripted'}]) as made:
        yield made


class Asker:
    """A reasoner, and one who shows it deltas and asks."""

    def __init__(
        self, graph: Graph, server: ChatServer, namespace: str = '', **parameters: Any
    ) -> None:
        self.graph, self.server, self.namespace = graph, server, namespace
        quiet = {'reasoner__focus': 'never', 'chat__retries': 0, 'chat__model': 'scripted'}
        parameters = {**quiet, **parameters}
        self.node = graph.add(SpatialReasoner, namespace, chat__url=server.url, **parameters)

    def start(self) -> Asker:
        """Bring the reasoner to active and connect to it."""
        self.graph.change(self.node, CONFIGURE, ACTIVATE)
        return self.connect()

    def connect(self) -> Asker:
        """Connect to an active reasoner."""
        self.answers: Inbox = self.graph.inbox(Answer, f'{self.namespace}/answer')
        self.graph.matched(f'{self.namespace}/answer')
        self.deltas = self.graph.publisher(SemanticDelta, f'{self.namespace}/semantic_delta')
        return self

    def see(self, change: str, age_s: float = 0.1, to_id: int = 0, episode_id: str = '') -> None:
        """Show a delta that is so old, and wait until it is remembered."""
        memory = self.node._memory
        before = len(memory.deltas()), memory.resets, memory.left_out
        stamp_ns = self.node.now_ns() - round(age_s * 1e9)
        msg = SemanticDelta(
            kind=SemanticDelta.KIND_CHANGE, change=change, to_id=to_id, episode_id=episode_id
        )
        msg.header.stamp = stamp_to_msg(ROS_MESSAGES, stamp_ns)
        msg.header.frame_id = 'front_optical'
        msg.camera = 'front'
        self.deltas.publish(msg)
        wait_for(
            lambda: (len(memory.deltas()), memory.resets, memory.left_out) != before, 'the delta'
        )

    def goal(self, feedback: list[Any] | None = None, **fields: Any) -> Any:
        """Send a goal of `ask`."""
        goal = Ask.Goal(**{**WHERE, **fields})
        return self.graph.send_goal(Ask, f'{self.namespace}/ask', goal, feedback)

    def ask(self, **fields: Any) -> tuple[int, Any]:
        """Ask and wait for the status and result."""
        return self.graph.goal_result(self.goal(**fields))


@pytest.fixture
def asker(graph: Graph, server: ChatServer) -> Asker:
    return Asker(graph, server).start()


def test_question_is_answered_with_its_reasoning(asker: Asker) -> None:
    asker.see('New: red tall object 30° right.')
    status, result = asker.ask()
    assert status == GoalStatus.STATUS_SUCCEEDED
    assert (result.error_code, result.termination_reason) == (0, 'completed')
    answer = result.answer
    assert (answer.kind, answer.option_index, answer.text) == (Answer.KIND_CHOICE, 1, 'right')
    assert answer.think == 'It was right.'
    assert answer.freshness == Answer.FRESHNESS_FRESH
    assert answer.header.frame_id == 'front_optical'
    assert answer.header.stamp == answer.observation_stamp
    assert answer.model.name == 'scripted'
    assert 'red tall object' in answer.prompt
    assert repr(asker.answers.wait(1)[0]) == repr(answer)


def test_text_streams_as_it_is_generated(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = Script(RIGHT.pieces, delay_s=0.02)
    feedback: list[Any] = []
    handle = asker.goal(feedback)
    asker.graph.goal_result(handle)
    wait_for(lambda: len(feedback) == 6, 'six feedback messages')
    phases = [msg.phase for msg in feedback]
    think, answer = Ask.Feedback.PHASE_THINK, Ask.Feedback.PHASE_ANSWER
    assert phases == [Ask.Feedback.PHASE_QUEUED, *[think] * 4, answer]
    assert ''.join(msg.text for msg in feedback) == ''.join(RIGHT.pieces)
    assert [msg.tokens for msg in feedback] == [0, 1, 2, 3, 4, 5]
    elapsed = [msg.elapsed.sec + msg.elapsed.nanosec * 1e-9 for msg in feedback]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] > 0.08


def test_calls_of_tools_are_fed_back_and_published(graph: Graph, server: ChatServer) -> None:
    asker = Asker(graph, server, reasoner__tools=True).start()
    asker.see('New: red tall object 30° right.')
    server.play(script(*of_vllm(('things', '{}'))))
    feedback: list[Any] = []
    _, result = graph.goal_result(asker.goal(feedback))
    wait_for(lambda: any('things({})' in msg.text for msg in feedback), 'the call as feedback')
    answer = result.answer
    assert (list(answer.turns), answer.model.prompt_version) == ([''], 'tools-1')
    (call,) = [each for each in answer.calls if each.turn]
    assert (call.tool, call.request) == ('things', '{}')
    assert server.requests[-1].body['messages'][-1]['content'] == call.reply
    assert repr(asker.answers.wait(1)[0]) == repr(answer)


def test_cancel_stops_the_generation_on_the_server(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = HANGING
    handle = asker.goal()
    assert asker.server.wait_for(lambda server: server.active == 1)
    response = asker.graph.result(handle.cancel_goal_async())
    assert len(response.goals_canceling) == 1
    status, result = asker.graph.goal_result(handle)
    assert status == GoalStatus.STATUS_CANCELED
    assert result.termination_reason == Ask.Result.TERMINATION_CANCELLED
    assert result.error_code == Ask.Result.ERROR_CANCELLED
    assert result.answer.freshness == Answer.FRESHNESS_REFUSED
    assert asker.server.wait_for(lambda server: server.disconnects == 1)
    assert asker.answers == []
    asker.server.default = RIGHT
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED


def test_cancel_service_ends_goals_and_requests_as_cancelled(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = HANGING
    handle = asker.goal()
    once = asker.graph.call_async(AskOnce, '/ask_once', AskOnce.Request(**WHERE))
    wait_for(lambda: asker.node._queue.pending() == 2, 'two questions')
    response = asker.graph.call(Trigger, '/cancel_ask', Trigger.Request())
    assert response.message == '2 questions cancelled'
    status, result = asker.graph.goal_result(handle)
    assert (status, result.termination_reason) == (GoalStatus.STATUS_CANCELED, 'cancelled')
    assert asker.graph.result(once).termination_reason == 'cancelled'


@pytest.mark.parametrize('limit', ['deadline_s', 'max_age_s'])
def test_limit_that_is_no_time_is_refused_by_name(asker: Asker, limit: str) -> None:
    asker.see('New: red tall object.')
    status, result = asker.ask(**{limit: -1.0})
    assert status == GoalStatus.STATUS_ABORTED
    assert result.error_code == Ask.Result.ERROR_BAD_QUESTION
    assert f'{limit} is -1: expected a time' in result.error_msg
    request = AskOnce.Request(**WHERE, **{limit: -1.0})
    assert asker.graph.call(AskOnce, '/ask_once', request).error_msg == result.error_msg
    assert not asker.server.requests


def test_old_observation_makes_a_stale_answer(asker: Asker) -> None:
    asker.see('New: red tall object.', age_s=60.0)
    _, result = asker.ask(max_age_s=10.0)
    assert result.answer.freshness == Answer.FRESHNESS_STALE
    assert 60 <= result.answer.observation_age.sec < 70
    _, result = asker.ask(max_age_s=100.0)
    assert result.answer.freshness == Answer.FRESHNESS_FRESH


@pytest.mark.parametrize(
    ('fields', 'code', 'message'),
    [
        ({'question': ''}, Ask.Result.ERROR_BAD_QUESTION, 'the question is empty'),
        ({'options': ['left']}, Ask.Result.ERROR_BAD_QUESTION, 'one option alone'),
        ({}, Ask.Result.ERROR_NO_OBSERVATION, 'nothing was seen yet'),
    ],
)
def test_nothing_to_reason_about_is_refused(
    asker: Asker, fields: dict[str, Any], code: int, message: str
) -> None:
    status, result = asker.ask(**fields)
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.error_code, result.termination_reason) == (code, 'refused')
    assert message in result.error_msg
    assert asker.server.requests == []


def test_dead_model_server_is_an_error_and_a_diagnostic(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = Script(status=500, body='out of memory')
    status, result = asker.ask()
    assert status == GoalStatus.STATUS_ABORTED
    assert (result.error_code, result.termination_reason) == (Ask.Result.ERROR_MODEL, 'error')
    assert asker.node.report().level == 2
    assert 'status 500' in asker.node.report().message
    asker.server.default = RIGHT
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
    assert asker.node.report().message == 'ready'


def test_half_of_a_surrogate_pair_from_the_model_is_survived(asker: Asker) -> None:
    asker.see('New: red tall object.')
    content = r'<think>x \ud800</think><answer>B</answer>'
    line = f'data: {{"choices":[{{"delta":{{"content":"{content}"}},"finish_reason":"stop"}}]}}'
    asker.server.default = Script(raw=(line, 'data: [DONE]'))
    response = asker.graph.call(AskOnce, '/ask_once', AskOnce.Request(**WHERE))
    assert (response.error_code, response.answer.think) == (0, 'x ?')


def test_answer_that_cannot_be_published_ends_its_request(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def break_answer(answer: Answer) -> None:
        '\ud800'.encode()  # raises

    asker.see('New: red tall object.')
    monkeypatch.setattr(asker.node._answers, 'publish', break_answer)
    response = asker.graph.call(AskOnce, '/ask_once', AskOnce.Request(**WHERE))
    assert response.answer.text == 'right'
    wait_for(lambda: not asker.node._queue.pending(), 'an empty line')


def test_request_does_not_block_the_node(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = HANGING
    once = asker.graph.call_async(AskOnce, '/ask_once', AskOnce.Request(**WHERE, deadline_s=8.0))
    assert asker.server.wait_for(lambda server: server.active == 1)
    start = time.monotonic()
    asker.see('New: blue round object.')
    assert asker.graph.call(ResetMemory, '/reset_memory', ResetMemory.Request()).forgotten == 2
    assert time.monotonic() - start < 2
    assert not once.done()
    asker.graph.call(Trigger, '/cancel_ask', Trigger.Request())
    assert asker.graph.result(once).termination_reason == 'cancelled'


def test_deactivation_ends_goals_with_the_reason(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = HANGING
    handle = asker.goal()
    assert asker.server.wait_for(lambda server: server.active == 1)
    asker.graph.change(asker.node, DEACTIVATE)
    status, result = asker.graph.goal_result(handle)
    assert (status, result.termination_reason) == (
        GoalStatus.STATUS_ABORTED,
        Ask.Result.TERMINATION_DEACTIVATED,
    )
    assert (result.error_code, result.error_msg != '') == (Ask.Result.ERROR_NOT_ACTIVE, True)
    status, result = asker.ask()
    assert (status, result.error_code) == (GoalStatus.STATUS_ABORTED, Ask.Result.ERROR_NOT_ACTIVE)


def test_three_rounds_of_the_lifecycle_with_a_goal_each(graph: Graph, server: ChatServer) -> None:
    asker = Asker(graph, server, namespace='/robot1')
    for _ in range(3):
        graph.change(asker.node, CONFIGURE, ACTIVATE)
        asker.connect()
        asker.see('New: red tall object.')
        assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
        graph.outsider.destroy_publisher(asker.deltas)
        graph.change(asker.node, DEACTIVATE, CLEANUP)
    assert [answer.text for answer in asker.answers.wait(1)] == ['right']


def test_missing_model_server_fails_the_configuration(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(SpatialReasoner, chat__url='http://127.0.0.1:9', chat__retries=0)
    assert not graph.try_change(node, CONFIGURE)
    err = capfd.readouterr().err
    assert 'not configured: no model server at http://127.0.0.1:9' in err
    assert 'embodied-r serve' in err
    assert 'Traceback' not in err


def test_episode_forgets_what_was_before_and_names_the_answer(asker: Asker) -> None:
    asker.see('New: red tall object.')
    marks = asker.graph.publisher(EpisodeMark, '/episode_mark', topics.LATCHED)
    marks.publish(EpisodeMark(episode_id='e1', event=EpisodeMark.EVENT_START))
    wait_for(lambda: asker.node._memory.episode_id == 'e1', 'the mark')
    _, result = asker.ask()
    assert result.error_code == Ask.Result.ERROR_NO_OBSERVATION
    asker.see('New: blue round object.', episode_id='e1')
    _, result = asker.ask()
    assert result.answer.episode_id == 'e1'
    assert 'red tall' not in result.answer.prompt


def test_answer_ids_are_unique(asker: Asker) -> None:
    asker.see('New: red tall object.')
    ids = [asker.ask()[1].answer.id for _ in range(3)]
    assert len(set(ids)) == 3
    assert len({answer_id.rsplit('-', 1)[0] for answer_id in ids}) == 1


def test_standing_question_is_answered_as_deltas_arrive(asker: Asker) -> None:
    asker.see('New: red tall object.')
    request = SetStandingQuestion.Request(**WHERE, rate_hz=10.0)
    response = asker.graph.call(SetStandingQuestion, '/set_standing_question', request)
    assert response.error_code == 0
    assert asker.node.get_parameter('standing_question').value == WHERE['question']
    answers = asker.answers
    assert answers.wait(1)[0].standing
    asker.see('New: blue round object.')
    answers.wait(2)
    ending = SetStandingQuestion.Request()
    assert asker.graph.call(SetStandingQuestion, '/set_standing_question', ending).error_code == 0
    asker.see('New: green flat object.')
    asker.ask()
    assert [answer.standing for answer in answers.wait(3)] == [True, True, False]


def test_standing_question_waits_for_something_new_and_keeps_its_rate(
    graph: Graph, server: ChatServer
) -> None:
    parameters: dict[str, Any] = {
        'standing_question': WHERE['question'],
        'standing_options': WHERE['options'],
        'standing_rate_hz': 1.0,
    }
    asker = Asker(graph, server, **parameters).start()
    start = time.monotonic()
    asker.see('New: red tall object.')
    asker.answers.wait(1)
    asker.see('New: blue round object.')
    asker.answers.wait(2)
    assert time.monotonic() - start >= 1.0
    assert len(server.requests) == 2


def test_rate_of_the_standing_question_is_the_nodes_where_none_is_asked_for(
    graph: Graph, server: ChatServer
) -> None:
    asker = Asker(graph, server, standing_rate_hz=0.5).start()
    rates = []
    for rate_hz in (5.0, 0.0, 0.01):
        request = SetStandingQuestion.Request(**WHERE, rate_hz=rate_hz)
        response = graph.call(SetStandingQuestion, '/set_standing_question', request)
        assert (response.error_code, response.error_msg) == (0, '')
        rates.append(asker.node.get_parameter('standing_rate_hz').value)
    assert rates == [5.0, 0.5, 0.01]
    for rate_hz in (-1.0, float('nan')):
        request = SetStandingQuestion.Request(**WHERE, rate_hz=rate_hz)
        response = graph.call(SetStandingQuestion, '/set_standing_question', request)
        assert response.error_code == response.ERROR_BAD_QUESTION
        assert 'standing_rate_hz' in response.error_msg


def test_bad_standing_question_is_refused(asker: Asker) -> None:
    request = SetStandingQuestion.Request(question='Where?', options=['left'])
    response = asker.graph.call(SetStandingQuestion, '/set_standing_question', request)
    assert response.error_code == response.ERROR_BAD_QUESTION
    assert 'one option alone' in response.error_msg


def test_diagnostics_say_why_an_order_gave_no_goal(asker: Asker) -> None:
    asker.see('New: red tall object.')
    assert asker.node.report().values['goal_problem'] == ''
    asker.ask(question='Go to the fridge.', options=[])
    asker.ask()  # what is no order changes nothing
    problem = asker.node.report().values['goal_problem']
    assert problem.startswith("no goal for 'Go to the fridge.': neither 'Go to the fridge.' nor")


def test_diagnostics_count_what_checks_found(
    asker: Asker, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = iter([Check.VERIFIED, Check.UNSUPPORTED, Check.VERIFIED])
    answer = Reasoner.answer
    monkeypatch.setattr(
        Reasoner, 'answer', lambda *a, **named: replace(answer(*a, **named), check=next(found))
    )
    asker.see('New: red tall object.')
    checks = [asker.ask()[1].answer.check for _ in range(3)]
    assert checks == [Check.VERIFIED.value, Check.UNSUPPORTED.value, Check.VERIFIED.value]
    asker.ask(options=['left'])  # refused: nothing to check
    values = asker.node.report().values
    counts = [values[name] for name in ('verified', 'unsupported', 'unchecked')]
    assert counts == [2, 1, 0]


CANDIDATES = {
    'task': 'Pick the cup.',
    'frame_id': 'table',
    'candidates': [Point(x=0.1, y=0.2, z=0.3), Point(x=-0.1, y=0.0, z=0.25)],
}


def test_keypoint_is_chosen_between_candidates(asker: Asker) -> None:
    proposals = asker.graph.inbox(KeypointProposal, '/keypoint_proposal')
    asker.graph.matched('/keypoint_proposal')
    asker.see('New: red tall object.')
    goal = PredictKeypoint.Goal(**CANDIDATES, candidate_labels=['cup', 'plate'])
    feedback: list[Any] = []
    handle = asker.graph.send_goal(PredictKeypoint, '/predict_keypoint', goal, feedback)
    status, result = asker.graph.goal_result(handle)
    assert (status, result.error_code) == (GoalStatus.STATUS_SUCCEEDED, 0)
    proposal = result.proposal
    assert proposal.candidate_index == 1
    assert proposal.pose.header.frame_id == 'table'
    assert proposal.pose.pose.position == CANDIDATES['candidates'][1]
    assert not proposal.orientation_valid
    assert not proposal.gripper_valid
    assert repr(proposals.wait(1)[0]) == repr(proposal)
    [answer] = asker.answers.wait(1)
    assert answer.options[1] == 'plate at (-0.100, 0.000, 0.250)'
    assert answer.id == proposal.id


def keypoint(asker: Asker, **fields: Any) -> tuple[int, Any]:
    """Ask for a keypoint and wait for the status and result."""
    goal = PredictKeypoint.Goal(**{**CANDIDATES, **fields})
    handle = asker.graph.send_goal(PredictKeypoint, '/predict_keypoint', goal)
    return asker.graph.goal_result(handle)


def is_no_proposal(proposal: KeypointProposal) -> bool:
    """Whether nothing about a message can be taken for a keypoint."""
    is_empty = not proposal.id and proposal.candidate_index == -1
    is_refused = proposal.freshness == Answer.FRESHNESS_REFUSED
    return is_empty and is_refused and math.isnan(proposal.pose.pose.position.x)


def test_unknown_is_no_keypoint(asker: Asker) -> None:
    asker.see('New: red tall object.')
    proposals = asker.graph.inbox(KeypointProposal, '/keypoint_proposal')
    asker.graph.matched('/keypoint_proposal')
    asker.server.default = UNKNOWN
    status, result = keypoint(asker)
    assert status == GoalStatus.STATUS_ABORTED
    assert result.error_code == PredictKeypoint.Result.ERROR_NO_PROPOSAL
    assert result.termination_reason == Ask.Result.TERMINATION_REFUSED
    assert 'cannot know' in result.error_msg
    assert is_no_proposal(result.proposal)
    request = PredictKeypointOnce.Request(**CANDIDATES)
    response = asker.graph.call(PredictKeypointOnce, '/predict_keypoint_once', request)
    assert response.error_code == PredictKeypoint.Result.ERROR_NO_PROPOSAL
    assert is_no_proposal(response.proposal)
    asker.server.default = RIGHT
    assert keypoint(asker)[0] == GoalStatus.STATUS_SUCCEEDED
    assert [msg.candidate_index for msg in proposals.wait(1)] == [1]


@pytest.mark.parametrize(
    ('script', 'fields', 'code'),
    [
        (Script(('I would say so',)), {}, Ask.Result.ERROR_FORMAT),
        (Script(status=500, body='out of memory'), {}, Ask.Result.ERROR_MODEL),
        (HANGING, {'deadline_s': 0.5}, Ask.Result.ERROR_DEADLINE),
        (RIGHT, {'task': ''}, Ask.Result.ERROR_BAD_QUESTION),
        (RIGHT, {'candidates': []}, PredictKeypoint.Result.ERROR_NO_CANDIDATES),
        (RIGHT, {'candidates': [Point(x=math.nan)] * 2}, Ask.Result.ERROR_BAD_QUESTION),
    ],
)
def test_keypoint_that_is_not_proposed_ends_aborted_with_its_reason(
    asker: Asker, script: Script, fields: dict[str, Any], code: int
) -> None:
    asker.see('New: red tall object.')
    asker.server.default = script
    status, result = keypoint(asker, **fields)
    assert (status, result.error_code) == (GoalStatus.STATUS_ABORTED, code)
    assert result.error_msg
    assert is_no_proposal(result.proposal)


@pytest.mark.parametrize('part', ['question', 'answer'])
def test_node_that_fails_says_so_in_the_result(
    asker: Asker, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    asker.see('New: red tall object.')

    def fail(*_: Any, **__: Any) -> None:
        msg = 'broken'
        raise RuntimeError(msg)

    if part == 'question':
        monkeypatch.setattr(asker.node, 'put', fail)
        monkeypatch.setattr(asker.node._keypoints._arm, 'request_of', fail)
    else:
        monkeypatch.setattr(KeypointOutcome, 'proposal', fail)
    status, result = keypoint(asker)
    assert (status, result.error_code) == (GoalStatus.STATUS_ABORTED, Ask.Result.ERROR_INTERNAL)
    assert 'broken' in result.error_msg
    assert is_no_proposal(result.proposal)
    response = asker.graph.call(
        PredictKeypointOnce, '/predict_keypoint_once', PredictKeypointOnce.Request(**CANDIDATES)
    )
    assert response.error_code == Ask.Result.ERROR_INTERNAL
    if part == 'question':
        status, result = asker.ask()
        assert (status, result.error_code) == (
            GoalStatus.STATUS_ABORTED,
            Ask.Result.ERROR_INTERNAL,
        )
        assert result.answer.option_index == -1


def test_focus_is_asked_of_the_perceiver(graph: Graph, server: ChatServer) -> None:
    asked: list[Focus.Request] = []

    def look(request: Focus.Request, response: Focus.Response) -> Focus.Response:
        asked.append(request)
        response.focus = [FocusText(keyframe_id=7, camera='front', text='a door with a sign')]
        return response

    graph.outsider.create_service(Focus, '/focus', look)
    asker = Asker(graph, server, reasoner__focus='always').start()
    wait_for(asker.node._focus._client.service_is_ready, 'the service')
    asker.see('New: red tall object.', to_id=7)
    feedback: list[Any] = []
    _, result = graph.goal_result(asker.goal(feedback))
    assert [focus.text for focus in result.answer.focus] == ['a door with a sign']
    assert 'a door with a sign' in result.answer.prompt
    [request] = asked
    assert (list(request.keyframe_ids), request.camera) == ([7], 'front')
    looking = Ask.Feedback.PHASE_FOCUS
    wait_for(lambda: looking in [msg.phase for msg in feedback], 'feedback that tells of it')


@pytest.mark.parametrize('ending', ['cancelled', 'node_deactivated'])
def test_end_is_heard_while_keyframes_are_looked_at(
    graph: Graph, server: ChatServer, ending: str
) -> None:
    asked = threading.Event()

    async def look(request: Focus.Request, response: Focus.Response) -> Focus.Response:
        asked.set()
        await Future()  # for ever
        return response

    group = ReentrantCallbackGroup()
    graph.outsider.create_service(Focus, '/focus', look, callback_group=group)
    asker = Asker(graph, server, reasoner__focus='always').start()
    wait_for(asker.node._focus._client.service_is_ready, 'the service')
    asker.see('New: red tall object.', to_id=7)
    handle = asker.goal(deadline_s=3600.0)
    assert asked.wait(20)
    if ending == 'cancelled':
        graph.result(handle.cancel_goal_async())
    else:
        graph.change(asker.node, DEACTIVATE)
    assert graph.goal_result(handle)[1].termination_reason == ending
    assert server.requests == []


def test_answer_does_not_wait_for_a_perceiver_that_is_gone(
    graph: Graph, server: ChatServer
) -> None:
    asker = Asker(graph, server, reasoner__focus='always').start()
    asker.see('New: red tall object.')
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED


def test_codes_and_terminations_are_those_of_the_action() -> None:
    codes = {name: getattr(Ask.Result, f'ERROR_{name}') for name in RefusalCode.__members__}
    assert codes == {code.name: code.value for code in RefusalCode}
    ends = {name: getattr(Ask.Result, f'TERMINATION_{name}') for name in Termination.__members__}
    assert ends == {end.name: end.value for end in Termination}


def test_waiting_for_an_answer_costs_no_time_of_the_processor(asker: Asker) -> None:
    asker.see('New: red tall object.')
    asker.server.default = HANGING
    handle = asker.goal(deadline_s=1.5)
    assert asker.server.wait_for(lambda server: server.active == 1)
    start = time.process_time()
    asker.graph.goal_result(handle)
    assert time.process_time() - start < 0.7


@pytest.mark.parametrize(('given', 'budget'), [({}, 333), ({'reasoner__token_budget': 900}, 900)])
def test_profile_says_what_suits_its_model(
    graph: Graph, server: ChatServer, tmp_path: Path, given: dict[str, Any], budget: int
) -> None:
    file = tmp_path / 'mine.yaml'
    client = f'{{reasoner: {{url: "{server.url}", model: scripted}}}}'
    file.write_text(f'clients: {client}\nreasoner: {{token_budget: 333}}\n')
    node = Asker(graph, server, profile=str(file), **given).node
    graph.change(node, CONFIGURE)
    assert node.get_parameter('reasoner.token_budget').value == budget
    assert node.parameters.config(ReasonerConfig).memory().token_budget == budget


def test_results_are_kept_no_longer_than_for_a_client_that_is_late(
    graph: Graph, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(question_server, '_RESULT_S', 1)
    asker = Asker(graph, server).start()
    asker.see('New: red tall object 30° right.')
    assert asker.ask()[0] == GoalStatus.STATUS_SUCCEEDED
    servers = [each for each in asker.node.waitables if isinstance(each, ActionServer)]
    assert len(servers) == 2
    wait_for(lambda: not any(each._goal_handles for each in servers), 'the result is let go of')
