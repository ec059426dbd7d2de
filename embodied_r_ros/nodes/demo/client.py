# SPDX-License-Identifier: Apache-2.0
"""The demonstration's client of the nodes. Everything runs in one thread."""

from __future__ import annotations

from contextlib import contextmanager
import time
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import EpisodeMark, Keyframe, SemanticDelta
from embodied_r_msgs.srv import StartEpisode, StopEpisode
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.data.own_messages import answer_from_msg, delta_from_msg, keyframe_from_msg
from embodied_r_ros.nodes import topics
from lifecycle_msgs.msg import State
from lifecycle_msgs.srv import GetState
import rclpy
from rclpy.action import ActionClient
from rclpy.executors import SingleThreadedExecutor
from rosgraph_msgs.msg import Clock
from std_srvs.srv import Trigger

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.deltas import SemanticDelta as Delta
    from embodied_r_ros.core.types.keyframes import Keyframe as CoreKeyframe

_REPLY_S = 20.0
_DISCOVERY_S = 4.0
_CLOCK_TICKS = 25  # by then the other nodes have it too


class DemoClient:
    """A node that drives the others."""

    def __init__(self, say: Callable[[str], None]) -> None:
        """Take each keyframe and delta as it comes."""
        self.node = rclpy.create_node('embodied_r_demo')
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self.node)
        self._say = say
        self.keyframes: list[CoreKeyframe] = []
        self.deltas: list[Delta] = []
        self.node.create_subscription(Keyframe, 'keyframe', self._take_keyframe, topics.RESULT)
        self.node.create_subscription(
            SemanticDelta, 'semantic_delta', self._take_delta, topics.RESULT
        )
        self._ticks = 0
        self.node.create_subscription(Clock, '/clock', self._take_tick, topics.SENSOR)
        self.error_code = 0  # of the answer before, as in Ask.action; 0: it was no refusal
        self._ask = ActionClient(self.node, Ask, 'ask')

    def spin_until(
        self,
        condition: Callable[[], bool],
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> bool:
        """Run callbacks until a condition holds; returns whether it held in time.

        Args:
            condition: Whether it is so.
            timeout_s: How long to wait [s].
            check: Called now and then; what it raises ends the wait.
        """
        end = time.monotonic() + timeout_s
        while not condition():
            if time.monotonic() > end:
                return False
            self._executor.spin_once(timeout_sec=0.05)
            if check:
                check()
        return True

    def await_active(
        self, names: Sequence[str], timeout_s: float, check: Callable[[], None]
    ) -> None:
        """Wait until nodes are active.

        Raises:
            EmbodiedRError: They are not in time.
        """
        end = time.monotonic() + timeout_s
        for name in names:
            while self._state(name, check) != State.PRIMARY_STATE_ACTIVE:
                if time.monotonic() > end:
                    msg = f'{name} was not active within {timeout_s:.0f} s'
                    raise EmbodiedRError(msg)

    def await_clock(self, timeout_s: float, check: Callable[[], None]) -> None:
        """Wait until the recording's clock is published, and was for a while.

        Raises:
            EmbodiedRError: It is not in time.
        """
        if not self.spin_until(lambda: self._ticks >= _CLOCK_TICKS, timeout_s, check):
            msg = f'the recording tells no time: no /clock within {timeout_s:.0f} s'
            raise EmbodiedRError(msg)

    def await_listeners(self, counts: Mapping[str, int], timeout_s: float) -> None:
        """Wait until topics have so many subscriptions, and publishers know of them.

        Raises:
            EmbodiedRError: They do not have them in time.
        """

        def is_ready() -> bool:
            return all(self.node.count_subscribers(t) >= count for t, count in counts.items())

        if not self.spin_until(is_ready, timeout_s):
            msg = f'not every node listens after {timeout_s:.0f} s: {", ".join(counts)}'
            raise EmbodiedRError(msg)
        # What this node has discovered, the others discover at about the same time.
        self.spin_until(lambda: False, _DISCOVERY_S)

    def _take_tick(self, msg: Clock) -> None:
        del msg
        self._ticks += 1

    def _state(self, name: str, check: Callable[[], None]) -> int:
        client = self.node.create_client(GetState, f'{name}/get_state')
        try:
            self.spin_until(client.service_is_ready, 1.0, check)
            if not client.service_is_ready():
                return int(State.PRIMARY_STATE_UNKNOWN)
            future = client.call_async(GetState.Request())
            self.spin_until(future.done, 2.0, check)
            unknown = State.PRIMARY_STATE_UNKNOWN
            return int(future.result().current_state.id if future.done() else unknown)
        finally:
            self.node.destroy_client(client)

    def call(self, kind: type[Any], name: str, request: Any) -> Any:
        """Call a service and wait for its reply.

        Raises:
            EmbodiedRError: There is no reply in time, or it reports an error.
        """
        client = self.node.create_client(kind, name)
        try:
            self.spin_until(client.service_is_ready, _REPLY_S)
            future = client.call_async(request)
            if not self.spin_until(future.done, _REPLY_S):
                msg = f'service {name} did not reply within {_REPLY_S:.0f} s'
                raise EmbodiedRError(msg)
        finally:
            self.node.destroy_client(client)
        reply = future.result()
        if getattr(reply, 'error_code', 0):
            raise EmbodiedRError(reply.error_msg)
        return reply

    def start_episode(self, task: str) -> str:
        """Start recording; returns the folder of the bag."""
        return str(
            self.call(StartEpisode, 'start_episode', StartEpisode.Request(task=task)).bag_path
        )

    def stop_episode(self) -> None:
        """Stop recording and close the bag."""
        request = StopEpisode.Request(outcome=EpisodeMark.OUTCOME_SUCCESS)
        self.call(StopEpisode, 'stop_episode', request)

    def resume_playing(self) -> None:
        """Resume the paused player."""
        self.call(Trigger, 'bag_player/resume', Trigger.Request())

    def ask(
        self, question: Question, on_text: Callable[[str], None], timeout_s: float
    ) -> tuple[Answer, str]:
        """Ask, and hear the text as it is generated.

        Returns:
            The answer, and why it was refused (empty: it was not).

        Raises:
            EmbodiedRError: The reasoner does not take the question, or does not end in time.
        """
        goal = Ask.Goal(question=question.text, options=list(question.options))
        goal.deadline_s = timeout_s

        def hear(feedback: Any) -> None:
            on_text(feedback.feedback.text)

        self.spin_until(self._ask.server_is_ready, _REPLY_S)
        sending = self._ask.send_goal_async(goal, feedback_callback=hear)
        if not self.spin_until(sending.done, _REPLY_S) or not sending.result().accepted:
            msg = 'the reasoner did not take the question'
            raise EmbodiedRError(msg)
        result = sending.result().get_result_async()
        if not self.spin_until(result.done, timeout_s + _REPLY_S):
            msg = f'no answer within {timeout_s:.0f} s'
            raise EmbodiedRError(msg)
        outcome = result.result().result
        self.error_code = int(outcome.error_code)
        return answer_from_msg(outcome.answer), str(outcome.error_msg)

    def forget(self) -> None:
        """Drop the keyframes and deltas that came so far."""
        self.keyframes.clear()
        self.deltas.clear()

    def close(self) -> None:
        """Remove the node."""
        self._executor.shutdown()
        self.node.destroy_node()

    def _take_keyframe(self, msg: Keyframe) -> None:
        keyframe = keyframe_from_msg(msg)
        self.keyframes.append(keyframe)
        overlap = '' if keyframe.overlap is None else f', overlap {keyframe.overlap:.2f}'
        reason = keyframe.reason.name.lower().replace('_', ' ')
        self._say(f'{self._seconds(keyframe.stamp_ns)} keyframe: {reason}{overlap}')

    def _take_delta(self, msg: SemanticDelta) -> None:
        delta = delta_from_msg(msg)
        self.deltas.append(delta)
        self._say(f'{self._seconds(delta.stamp_ns)}    delta {delta.to_id}: {in_words(delta)}')

    def _seconds(self, stamp_ns: int) -> str:
        start_ns = self.keyframes[0].stamp_ns if self.keyframes else stamp_ns
        return f'{(stamp_ns - start_ns) / 1e9:6.1f} s'


def in_words(delta: Delta) -> str:
    """The text of a delta, each part as a sentence of its own."""
    parts = (delta.action, delta.change, delta.error)
    return ' '.join(part if part.endswith('.') else f'{part}.' for part in parts if part)


@contextmanager
def demo_client(say: Callable[[str], None]) -> Iterator[DemoClient]:
    """A client in a ROS context of its own."""
    rclpy.init(args=[])
    try:
        client = DemoClient(say)
        try:
            yield client
        finally:
            client.close()
    finally:
        rclpy.try_shutdown()
