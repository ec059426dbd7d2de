# SPDX-License-Identifier: Apache-2.0
"""Leaves of behaviour trees for py_trees: ask, recall, predict a keypoint, see if a task is done.

Each belongs to a node that its tree's owner spins, and never blocks a tick: it sends its request
when it is entered, is RUNNING until the reply is there, and takes a request back when the tree
turns to something else. What came is on the blackboard, under a key that the leaf is given. Needs
the extra `bt`.
"""

from __future__ import annotations

import time
from typing import Any, TYPE_CHECKING

from action_msgs.msg import GoalStatus
from embodied_r_msgs.action import Ask as AskAction
from embodied_r_msgs.action import PredictKeypoint as PredictKeypointAction
from embodied_r_msgs.msg import Answer
from embodied_r_msgs.srv import Recall as RecallService
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.data.arm_room import arm_room
from py_trees.behaviour import Behaviour
from py_trees.common import Access, Status
from rclpy.action import ActionClient

if TYPE_CHECKING:
    from collections.abc import Collection

    from rclpy.node import Node

WAIT_S = 5.0  # for a server that is not there; afterwards the leaf fails
_ACT_ON = (Answer.FRESHNESS_FRESH, Answer.FRESHNESS_DEGRADED)


class _Request(Behaviour):
    """A leaf whose reply comes later, at most `timeout_s` after it was entered."""

    def __init__(self, name: str, node: Node, key: str, timeout_s: float) -> None:
        if timeout_s <= 0:
            msg = f'timeout_s of {name!r} is {timeout_s}: expected more than 0'
            raise InputError(msg)
        super().__init__(name)
        self._node, self._key, self._timeout_s = node, key, timeout_s
        self._blackboard = self.attach_blackboard_client(name)
        self._blackboard.register_key(key, access=Access.WRITE)
        self._number = 0  # of requests; replies to earlier ones do not count
        self._is_sent = False
        self._reply: Any = None
        self._failure = ''  # why there will be no reply; empty: it may come

    def initialise(self) -> None:
        """Begin a new request."""
        self._number += 1
        self._is_sent, self._reply, self._failure = False, None, ''
        self._begin_s = time.monotonic()
        self._blackboard.set(self._key, None)

    def update(self) -> Status:
        """Send the request once its server is there, and look for the reply."""
        waited_s = time.monotonic() - self._begin_s
        if self._failure or self._reply is not None:
            problem = self._failure or self._problem(self._reply)
            return self._end(Status.FAILURE, problem) if problem else self._judge(self._reply)
        if not self._is_sent and self._is_ready():
            self._is_sent = True
            self._send(self._number)
        elif not self._is_sent and waited_s > WAIT_S:
            return self._end(Status.FAILURE, f'no server after {WAIT_S:g} s: is the node active?')
        if waited_s > self._timeout_s:
            self._take_back()
            return self._end(Status.FAILURE, f'no reply within {self._timeout_s:g} s')
        return self._end(Status.RUNNING, 'waits for the reply')

    def terminate(self, new_status: Status) -> None:
        """Take the request back where the tree has turned to something else."""
        if new_status is Status.INVALID and self._reply is None and not self._failure:
            self._take_back()
        self._number += 1

    def _take(self, number: int, reply: Any, failure: str = '') -> None:
        if number == self._number:
            self._reply, self._failure = reply, failure

    def _end(self, status: Status, feedback: str) -> Status:
        self.feedback_message = feedback
        return status

    def _keep(self, value: Any, feedback: str) -> Status:
        self._blackboard.set(self._key, value)
        return self._end(Status.SUCCESS, feedback)

    def _is_ready(self) -> bool:
        raise NotImplementedError

    def _send(self, number: int) -> None:
        raise NotImplementedError

    def _take_back(self) -> None:
        raise NotImplementedError

    def _problem(self, reply: Any) -> str:
        """What went wrong by a reply's own words; empty: nothing."""
        del reply
        return ''

    def _judge(self, reply: Any) -> Status:
        raise NotImplementedError


class _Goal(_Request):
    """A leaf that sends a goal to a ROS action."""

    _action: Any  # type of the ROS action
    _topic: str
    _usual_key: str

    def __init__(
        self, name: str, node: Node, goal: Any, *, key: str = '', timeout_s: float = 60.0
    ) -> None:
        """Ask for what the goal says.

        Args:
            name: Of the leaf.
            node: The node that asks; its owner spins it.
            goal: Of the ROS action.
            key: Of the blackboard; empty: `answer` or `keypoint`.
            timeout_s: Longest wait for the result [s].

        Raises:
            InputError: `timeout_s` is not positive.
        """
        super().__init__(name, node, key or self._usual_key, timeout_s)
        self._goal = goal
        self._client = ActionClient(node, self._action, self._topic)
        self._handle: Any = None

    def shutdown(self) -> None:
        """Release the client when the tree is shut down."""
        self._client.destroy()

    def _is_ready(self) -> bool:
        return bool(self._client.server_is_ready())

    def _send(self, number: int) -> None:
        self._handle = None

        def hear(future: Any) -> None:
            handle = future.result()
            if not handle.accepted:
                self._take(number, None, f'{self._topic} rejected the goal')
            elif number != self._number:  # taken back before it was accepted
                handle.cancel_goal_async()
            else:
                self._handle = handle
                handle.get_result_async().add_done_callback(lambda done: end(done.result()))

        def end(response: Any) -> None:
            result, status = response.result, response.status
            if status == GoalStatus.STATUS_SUCCEEDED or result.error_code:
                self._take(number, result)
            else:  # such as after an exception: the result says nothing
                failure = f'{self._topic} ended with status {status} and no result: see its log'
                self._take(number, None, failure)

        self._client.send_goal_async(self._goal).add_done_callback(hear)

    def _take_back(self) -> None:
        if self._handle is not None:
            self._handle.cancel_goal_async()
            self._handle = None

    def _problem(self, reply: Any) -> str:
        return (reply.error_msg or f'error {reply.error_code}') if reply.error_code else ''


class Ask(_Goal):
    """Asks a question. SUCCESS with an answer that may be acted on.

    FAILURE where there is none, where the model cannot know, where the answer is STALE, and where
    `accept` is given and the answer is another one. The Answer message is on the blackboard.
    """

    _action, _topic, _usual_key = AskAction, 'ask', 'answer'

    def __init__(
        self,
        name: str,
        node: Node,
        goal: AskAction.Goal,
        *,
        accept: Collection[str] = (),
        **limits: Any,
    ) -> None:
        """Ask about what the robot has seen; more as of `PredictKeypoint`.

        Args:
            name: Of the leaf.
            node: The node that asks; its owner spins it.
            goal: Question, options and limits.
            accept: Texts of answers that are a SUCCESS; empty: all are.
            limits: `key` and `timeout_s`.

        Raises:
            InputError: `timeout_s` is not positive, or `accept` names what is no option.
        """
        if goal.options and set(accept) - set(goal.options):
            options = ', '.join(goal.options)
            msg = f'{name!r} accepts {", ".join(sorted(accept))}: expected some of {options}'
            raise InputError(msg)
        super().__init__(name, node, goal, **limits)
        self._accept = accept

    def _judge(self, reply: Any) -> Status:
        answer = reply.answer
        if answer.kind == Answer.KIND_UNKNOWN:
            return self._end(Status.FAILURE, 'the reasoner does not know')
        if answer.freshness not in _ACT_ON:
            return self._end(Status.FAILURE, f'{answer.text}, from an old observation')
        self._blackboard.set(self._key, answer)
        if self._accept and answer.text not in self._accept:
            return self._end(Status.FAILURE, answer.text)
        return self._end(Status.SUCCESS, answer.text)


class IsTaskDone(Ask):
    """Asks whether a task is done. SUCCESS where the answer is yes."""

    def __init__(
        self, name: str, node: Node, task: str, *, key: str = 'is_done', timeout_s: float = 60.0
    ) -> None:
        """Ask about a task in words, such as 'put the cup on the shelf'; the rest as of `Ask`."""
        question = arm_room().done_question(task.strip())
        options = list(question.options)
        goal = AskAction.Goal(question=question.text, options=options)
        super().__init__(name, node, goal, accept=options[:1], key=key, timeout_s=timeout_s)


class PredictKeypoint(_Goal):
    """Asks for the next keypoint of a task. SUCCESS with a proposal: never a command.

    The KeypointProposal message is on the blackboard. The reasoner publishes it to the gate too.
    """

    _action, _topic, _usual_key = PredictKeypointAction, 'predict_keypoint', 'keypoint'

    def _judge(self, reply: Any) -> Status:
        at = reply.proposal.pose.pose.position
        return self._keep(reply.proposal, f'({at.x:.3f}, {at.y:.3f}, {at.z:.3f}) m')


class Recall(_Request):
    """Asks the scene map for landmarks of a name. SUCCESS where there is one.

    A list of Landmark messages is on the blackboard, that which was seen last first.
    """

    def __init__(
        self,
        name: str,
        node: Node,
        request: RecallService.Request,
        *,
        key: str = 'landmarks',
        timeout_s: float = 10.0,
    ) -> None:
        """Ask for landmarks.

        Args:
            name: Of the leaf.
            node: The node that asks; its owner spins it.
            request: Name, place and time.
            key: Of the blackboard.
            timeout_s: Longest wait for them [s].

        Raises:
            InputError: `timeout_s` is not positive.
        """
        super().__init__(name, node, key, timeout_s)
        self._request = request
        self._client = node.create_client(RecallService, 'recall')
        self._future: Any = None

    def shutdown(self) -> None:
        """Release the client when the tree is shut down."""
        self._node.destroy_client(self._client)

    def _is_ready(self) -> bool:
        return bool(self._client.service_is_ready())

    def _send(self, number: int) -> None:
        self._future = self._client.call_async(self._request)
        self._future.add_done_callback(lambda done: self._take(number, done.result()))

    def _take_back(self) -> None:
        if self._future is not None:
            self._client.remove_pending_request(self._future)
            self._future = None

    def _judge(self, reply: Any) -> Status:
        landmarks = list(reply.landmarks)
        if not landmarks:
            return self._end(Status.FAILURE, f'no {self._request.label or "landmark"} is known')
        return self._keep(landmarks, f'{len(landmarks)} known')
