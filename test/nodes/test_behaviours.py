# SPDX-License-Identifier: Apache-2.0
"""Trees of py_trees that ask a real reasoner over DDS."""

from __future__ import annotations

from itertools import count
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.action import Ask, PredictKeypoint
from embodied_r_msgs.srv import Recall
from embodied_r_ros.common.errors import InputError
import pytest
from rclpy.action import ActionServer, GoalResponse

from test.chat_server import ChatServer, Script
from test.nodes.graph import wait_for
from test.nodes.test_scene_mapper import AHEAD, AT, Mapped

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

py_trees = pytest.importorskip('py_trees')
behaviours = pytest.importorskip('embodied_r_ros.nodes.behaviours')
SUCCESS, FAILURE, RUNNING = (
    py_trees.common.Status.SUCCESS,
    py_trees.common.Status.FAILURE,
    py_trees.common.Status.RUNNING,
)


WHAT = Ask.Goal(question='What is there?')


@pytest.fixture
def server() -> Iterator[ChatServer]:
    default = Script(('<think>It stands there.</think><answer>A</answer>',))
    with ChatServer(default=default, models=[{'id': 'scripted'}]) as made:
        yield made


@pytest.fixture
def mapped(graph: Graph, server: ChatServer) -> Mapped:
    """A reasoner that has seen a sofa."""
    asker = Mapped(graph, server)
    asker.start()
    asker.show(AHEAD, pose=AT)
    return asker


def blackboard(key: str) -> Any:
    return py_trees.blackboard.Blackboard.storage.get(f'/{key}')


def tick_to_end(root: Any) -> Any:
    """The status of a tree that is ticked to its end."""

    def ends() -> bool:
        root.tick_once()
        return root.status is not RUNNING

    wait_for(ends, f'the end of {root.name}')
    return root.status


def test_a_tree_asks_recalls_and_sees_that_its_task_is_done(graph: Graph, mapped: Mapped) -> None:
    node = graph.outsider
    sofa = Ask.Goal(question='Is it a sofa?', options=['yes', 'no'])
    tree = py_trees.composites.Sequence(
        'tidy',
        memory=True,
        children=[
            behaviours.Recall('recall', node, Recall.Request(label='sofas')),
            behaviours.Ask('ask', node, sofa, accept=['yes']),
            behaviours.IsTaskDone('done', node, 'find the sofa.', key='is_done'),
        ],
    )
    assert tick_to_end(tree) is SUCCESS, [child.feedback_message for child in tree.children]
    [landmark] = blackboard('landmarks')
    assert (landmark.label, blackboard('answer').text) == ('sofa', 'yes')
    assert 'The task is: find the sofa. Is it done now?' in blackboard('is_done').prompt
    tree.shutdown()


@pytest.mark.parametrize(
    ('reply', 'feedback'),
    [
        ('<think>a</think><answer>B</answer>', 'no'),
        ('<think>a</think><answer>unknown</answer>', 'the reasoner does not know'),
        ('what?', 'the completion is not'),
    ],
)
def test_a_task_that_is_not_said_to_be_done_is_not(
    graph: Graph, mapped: Mapped, server: ChatServer, reply: str, feedback: str
) -> None:
    server.default = Script((reply,))
    leaf = behaviours.IsTaskDone('done', graph.outsider, 'tidy up')
    assert tick_to_end(leaf) is FAILURE
    assert leaf.feedback_message.startswith(feedback)


def test_what_is_not_known_is_no_success(graph: Graph, mapped: Mapped) -> None:
    leaf = behaviours.Recall('recall', graph.outsider, Recall.Request(label='piano'))
    assert (tick_to_end(leaf), leaf.feedback_message) == (FAILURE, 'no piano is known')
    keypoint = behaviours.PredictKeypoint(
        'next', graph.outsider, PredictKeypoint.Goal(task='tidy up')
    )
    assert tick_to_end(keypoint) is FAILURE
    assert keypoint.feedback_message.startswith('no candidates')


def test_a_question_is_taken_back_when_the_tree_turns_away(
    graph: Graph, mapped: Mapped, server: ChatServer
) -> None:
    server.default = Script(('<think>',) + ('wait ',) * 500, delay_s=0.05)
    leaf = behaviours.Ask('ask', graph.outsider, WHAT)
    wait_for(lambda: leaf.tick_once() or server.active, 'the question at the server')
    assert leaf.status is RUNNING
    leaf.stop(py_trees.common.Status.INVALID)
    wait_for(lambda: not server.active, 'the end of the generation')


def test_without_a_reasoner_the_leaf_fails_in_time(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(behaviours, 'WAIT_S', 0.2)
    leaf = behaviours.Ask('ask', graph.outsider, WHAT)
    ticks = count()

    def ends() -> bool:
        next(ticks)
        leaf.tick_once()
        return leaf.status is not RUNNING

    wait_for(ends, 'the end')
    assert leaf.feedback_message == 'no server after 0.2 s: is the node active?'
    assert next(ticks) > 1  # no tick waited for it


def test_arguments_that_mean_nothing_are_refused(graph: Graph) -> None:
    goal = Ask.Goal(question='Is it?', options=['yes', 'no'])
    with pytest.raises(InputError, match='accepts maybe: expected some of yes, no'):
        behaviours.Ask('ask', graph.outsider, goal, accept=['maybe'])
    with pytest.raises(InputError, match='timeout_s of'):
        behaviours.Recall('recall', graph.outsider, Recall.Request(), timeout_s=0.0)


@pytest.mark.parametrize(
    ('response', 'feedback'),
    [
        (GoalResponse.REJECT, 'predict_keypoint rejected the goal'),
        (GoalResponse.ACCEPT, 'predict_keypoint ended with status 6 and no result'),
    ],
)
def test_a_goal_that_is_rejected_or_breaks_off_is_no_keypoint(
    graph: Graph, response: GoalResponse, feedback: str
) -> None:
    def execute(handle: Any) -> None:
        msg = f'broken at {handle.request.task}'
        raise RuntimeError(msg)

    ActionServer(
        graph.outsider,
        PredictKeypoint,
        'predict_keypoint',
        execute,
        goal_callback=lambda goal: response,
    )
    leaf = behaviours.PredictKeypoint('next', graph.outsider, PredictKeypoint.Goal(task='tidy up'))
    assert tick_to_end(leaf) is FAILURE
    assert leaf.feedback_message.startswith(feedback)
    assert blackboard('keypoint') is None
