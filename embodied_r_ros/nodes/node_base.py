# SPDX-License-Identifier: Apache-2.0
"""The base of every node: lifecycle, parameters, diagnostics and provenance."""

from __future__ import annotations

from collections import Counter, OrderedDict
from contextlib import ExitStack
from copy import copy
from dataclasses import dataclass
from functools import partial
import json
import math
import re
import threading
import time
import traceback
from typing import Any, ClassVar, TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError, InputError, ModelError
from embodied_r_ros.common.files import code_version
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.diagnostics import (
    Diagnostics,
    Health,
    Level,
    Meter,
    Neighbours,
    STEADY,
    worst_health,
)
from embodied_r_ros.nodes.parameters import Parameters
from rclpy.clock import JumpThreshold
from rclpy.duration import Duration
from rclpy.lifecycle import LifecycleNode, TransitionCallbackReturn
from std_msgs.msg import String

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from rclpy.clock import JumpHandle
    from rclpy.lifecycle import LifecycleState
    from rclpy.node import Node
    from rclpy.publisher import Publisher
    from rclpy.qos import QoSProfile
    from rclpy.timer import Timer

_LONGEST_S = 1e9  # far beyond this, a thread cannot wait


def seconds(value: float, name: str) -> float:
    """A time limit `name` of a request [s]; 0 means the node's default.

    Raises:
        InputError: It is negative, or no number.
    """
    if not math.isfinite(value) or value < 0:
        msg = f"{name} is {value:g}: expected a time in seconds, or 0 for the node's default"
        raise InputError(msg)
    return min(float(value), _LONGEST_S)


# Of the launch files: a node that cannot start yet, such as for want of a model server, tries it
# again after RETRY_S; with `use_respawn` a process that has ended starts again after RESPAWN_S.
RETRY_S = 2.0
RESPAWN_S = 1.0
_SAY_AGAIN_S = 5.0
_TEXTS = 32  # problems that are remembered, so that each is not said too often
_NUMBER = re.compile(r'\d+(?:\.\d+)?')
_START_SAY_AGAIN_S = 30.0
_FAILED_S = 60.0  # so long diagnostics show a callback that failed
SUCCESS, FAILURE = TransitionCallbackReturn.SUCCESS, TransitionCallbackReturn.FAILURE


@dataclass(frozen=True)
class StartConfig(Settings):
    """How a node comes to be active."""

    autostart: bool = setting(False, 'configure and activate by itself, without a manager')
    autostart_retry_s: float = setting(
        0.0,
        'with autostart: time until a start that failed is tried again [s]; 0: the process ends',
        between=(0, 3600),
    )


class ProblemThrottle:
    """Lets each text into the log at most every few seconds. For use from any thread.

    Texts that differ in their numbers alone count as one. Of texts that are all different, no more
    are let in at once than are remembered.
    """

    def __init__(self) -> None:
        self._times: OrderedDict[str, float] = OrderedDict()  # when each was let in, oldest first
        self._repeats: Counter[str] = Counter()  # since then
        self._lock = threading.Lock()

    def count_repeats(self, text: str) -> int | None:
        """Let a text in: returns how often it was held back since last time; None: it still is."""
        key, now_s = _NUMBER.sub('#', text), time.monotonic()
        with self._lock:
            if key not in self._times and len(self._times) == _TEXTS:
                oldest = next(iter(self._times))
                if not self._may_come(oldest, now_s):
                    return None
                del self._times[oldest], self._repeats[oldest]
            if not self._may_come(key, now_s):
                self._repeats[key] += 1
                return None
            self._times[key] = now_s
            self._times.move_to_end(key)
            return self._repeats.pop(key, 0)

    def _may_come(self, key: str, now_s: float) -> bool:
        return now_s >= self._times.get(key, -math.inf) + _SAY_AGAIN_S


def when_clock_jumps_back(node: Node, callback: Callable[[], Any]) -> JumpHandle:
    """Call back when a node's ROS time jumps back, until that is unregistered."""
    backward = JumpThreshold(min_forward=None, min_backward=Duration(nanoseconds=-1))
    return node.get_clock().create_jump_callback(backward, post_callback=lambda _: callback())


class ManagedNode(LifecycleNode):
    """A lifecycle node that cleans up after itself."""

    # Config classes of the parameters, with the prefix of their names.
    groups: ClassVar[Mapping[type[Any], str]] = {}
    # Those of them that are read in `configure` only.
    at_configure: ClassVar[frozenset[type[Any]]] = frozenset()

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        groups: dict[type[Any], str] = {StartConfig: '', **self.groups}
        self.parameters = Parameters(self, groups, self.at_configure)
        self.parameters.on_change = self._parameters_changed
        self.while_configured = ExitStack()
        self.while_active = ExitStack()
        self.is_active = False
        self.end_process: Callable[[int], None] = lambda code: None  # set by what runs the node
        self.retry_s = 0.0  # while a start is tried again: after which time [s]
        self._start_refusal = '', 0.0  # why a start failed, and when that was logged last
        self.neighbours = Neighbours(self)
        self._state_since = time.monotonic()
        self._last_refusal = ''  # why the last transition failed; empty: it did not
        self._throttle = ProblemThrottle()
        self._failures = Meter(_FAILED_S)  # of callbacks
        self._last_failure = ''
        self._guard_transitions()
        for warning in self.parameters.warnings:
            self.get_logger().warning(warning)
        self.diagnostics = Diagnostics(self, self.health)

    @property
    def state(self) -> str:
        """Label of the lifecycle state, such as `inactive`."""
        # rclpy tells it to other processes only, by a service.
        return str(self._state_machine.current_state[1])

    def configure(self) -> None:
        """Check what is needed and make what lives while configured.

        Raises:
            EmbodiedRError: Something needed is missing; the message says what to do.
        """

    def activate(self) -> None:
        """Start what runs while active.

        Raises:
            EmbodiedRError: It cannot run; the message says what to do.
        """

    def reconfigure(self) -> None:
        """Take up parameters that changed while configured."""

    def report(self) -> Health:
        """Say how the node is while active."""
        return Health(Level.OK, 'active')

    def concerns(self) -> list[Health]:
        """Say what is wrong around the node while it is active; empty: nothing."""
        problems = self.neighbours.health()
        if not self.now_ns():
            text = 'there is no time: use_sim_time is set, and nothing is heard on /clock'
            problems.append(Health(Level.WARN, text))
        return problems

    def models(self) -> list[dict[str, Any]]:
        """The models in use, for the record."""
        return []

    def provenance(self) -> str:
        """Code, parameters and models of this node, as JSON."""
        record = {
            'node': self.get_fully_qualified_name(),
            'code': code_version(),
            'parameters': self.parameters.values(),
            'models': self.models(),
        }
        return json.dumps(record, sort_keys=True)

    def publish_provenance(self) -> None:
        """Say what this node is now. From any thread."""
        self._provenance.publish(String(data=self.provenance()))

    def publisher(self, kind: type[Any], topic: str, profile: QoSProfile) -> Publisher:
        """Make a publisher of the configured node, which publishes while it is active."""
        publisher = self.create_lifecycle_publisher(
            kind, topic, copy(profile), qos_overriding_options=topics.overridable()
        )
        self.while_configured.callback(self.destroy_lifecycle_publisher, publisher)
        return publisher

    def subscribe(
        self,
        kind: type[Any],
        topic: str,
        callback: Callable[[Any], None],
        profile: QoSProfile,
        *,
        raw: bool = False,
        sender: str = '',
    ) -> None:
        """Subscribe while the node is active.

        Args:
            kind: Message type.
            topic: Name of the topic.
            callback: Gets each message.
            profile: Quality of service, which parameters may override.
            raw: Whether the callback gets messages as they travel, serialised.
            sender: What publishes the topic, in words, where the node cannot work without:
                diagnostics warn where nothing does. Empty: the node can work without.
        """
        subscription = self.create_subscription(
            kind,
            topic,
            callback,
            copy(profile),  # an override by parameters is written into it
            raw=raw,
            qos_overriding_options=topics.overridable(),
            event_callbacks=topics.subscription_events(partial(self._note_bad_qos, topic)),
        )
        self.while_active.callback(self.destroy_subscription, subscription)
        if sender:
            self.neighbours.need(subscription.topic_name, sender)
            self.while_active.callback(self.neighbours.release, subscription.topic_name)

    def serve(self, kind: type[Any], name: str, callback: Any, group: Any = None) -> None:
        """Offer a service while the node is configured."""
        service = self.create_service(kind, name, callback, callback_group=group)
        self.while_configured.callback(self.destroy_service, service)

    def every(self, period_s: float, callback: Callable[[], None]) -> Timer:
        """Call back regularly while the node is active, by the steady clock."""
        timer = self.create_timer(period_s, callback, clock=STEADY)
        self.while_active.callback(self.destroy_timer, timer)
        return timer

    def when_clock_jumps_back(self, callback: Callable[[], None]) -> None:
        """Call back while active when ROS time jumps back: a bag starts again, a simulation."""
        self.while_active.callback(when_clock_jumps_back(self, callback).unregister)

    def log_problem(self, error: Exception) -> None:
        """Say what went wrong, not too often; with its trace where it was not foreseen."""
        foreseen = isinstance(error, (EmbodiedRError, ValueError))
        text = str(error) if foreseen else ''.join(traceback.format_exception(error))
        repeats = self._throttle.count_repeats(text)
        if repeats is not None:
            again = f' ({repeats} more like this since the last one here)' if repeats else ''
            self.get_logger().warning(text + again)

    def note_failure(self, error: Exception) -> None:
        """Count an exception of a callback, for `/diagnostics`."""
        self._failures.tick()
        self._last_failure = f'{type(error).__name__}: {" ".join(str(error).split())}'

    def now_ns(self) -> int:
        """ROS time, the clock of the image stamps [ns]."""
        return int(self.get_clock().now().nanoseconds)

    def on_configure(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Configure, or say in one line why not."""
        del state
        result = self._attempt('configured', self._configure, self.while_configured)
        self.parameters.is_configured = result == SUCCESS
        self._state_since = time.monotonic()
        return result

    def on_activate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Activate, or say in one line why not."""
        super().on_activate(state)
        result = self._attempt('activated', self.activate, self.while_active)
        self.is_active = result == SUCCESS
        self._state_since = time.monotonic()
        if result == SUCCESS:
            self.publish_provenance()
        else:
            super().on_deactivate(state)
        return result

    def on_deactivate(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End what runs while active."""
        self.is_active = False
        self._state_since = time.monotonic()
        self._undo(self.while_active)
        return super().on_deactivate(state)

    def on_cleanup(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Remove what lives while configured."""
        del state
        self._undo(self.while_configured)
        self.parameters.is_configured = False
        self._state_since = time.monotonic()
        return SUCCESS

    def on_shutdown(self, state: LifecycleState) -> TransitionCallbackReturn:
        """End everything, from any state."""
        if self.is_active:
            self.on_deactivate(state)
        return self.on_cleanup(state)

    def on_error(self, state: LifecycleState) -> TransitionCallbackReturn:
        """Fall back to unconfigured with nothing left behind."""
        return self.on_shutdown(state)

    def _configure(self) -> None:
        self.parameters.config(StartConfig)
        for kind in self.groups:
            self.parameters.config(kind)
        self.configure()
        self._provenance = self.publisher(String, 'provenance', topics.LATCHED)

    def _attempt(
        self, what: str, step: Callable[[], None], stack: ExitStack
    ) -> TransitionCallbackReturn:
        # rclpy swallows what a transition raises, so it is logged here.
        self._last_refusal = ''
        try:
            step()
        except EmbodiedRError as error:
            self._last_refusal = f'not {what}: {" ".join(str(error).split())}'
            self._log_refusal(self._last_refusal, may_pass=isinstance(error, ModelError))
        except Exception as error:
            self._last_refusal = f'not {what}: {type(error).__name__}: {error}'
            self._log_refusal(f'not {what}:\n{traceback.format_exc()}')
        else:
            return SUCCESS
        self._undo(stack)
        return FAILURE

    def _log_refusal(self, text: str, *, may_pass: bool = False) -> None:
        """Say why a transition failed; no error yet where it is tried again and may pass."""
        if not self.retry_s:
            self.get_logger().error(text)
            return
        last_text, last_s = self._start_refusal
        if text == last_text and time.monotonic() < last_s + _START_SAY_AGAIN_S:
            return
        self._start_refusal = text, time.monotonic()
        log = self.get_logger().warning if may_pass else self.get_logger().error
        log(f'{text}; trying again every {self.retry_s:g} s')

    def _undo(self, stack: ExitStack) -> None:
        try:
            stack.close()
        except Exception:
            self.get_logger().error(f'clean-up went wrong:\n{traceback.format_exc()}')

    def _guard_transitions(self) -> None:
        """Answer a transition that is not possible now with False, instead of ending the node."""
        service = self._service_change_state  # rclpy has no public way to a node's own service
        change_state = service.callback

        def guard(request: Any, response: Any) -> Any:
            try:
                return change_state(request, response)
            except Exception as error:
                self.get_logger().warning(f'transition refused: {str(error).splitlines()[0]}')
                response.success = False
                return response

        service.callback = guard

    def _parameters_changed(self) -> None:
        if self.parameters.is_configured:
            self.reconfigure()
            self.publish_provenance()

    def _note_bad_qos(self, topic: str) -> None:
        topic = self.resolve_topic_name(topic)
        self.get_logger().warning(
            f'a publisher of {topic!r} offers a QoS that this subscription cannot use: '
            f'set qos_overrides.{topic}.subscription.reliability, or change the publisher'
        )

    def health(self) -> Health:
        """Say how the node is, in any state, with everything that is wrong around it."""
        if not self.is_active:
            return self._idle_health()
        concerns = self.concerns()
        if self._failures.count:
            is_recent = self._failures.rate_hz() > 0
            text = f'a callback failed: {self._last_failure}'
            values = {'failed_callbacks': self._failures.count}
            concerns.insert(0, Health(Level.WARN if is_recent else Level.OK, text, values))
        return worst_health(self.report(), *concerns)

    def _idle_health(self) -> Health:
        """How the node is while it is not active."""
        state = 'inactive' if self.parameters.is_configured else 'unconfigured'
        age_s = time.monotonic() - self._state_since
        text = f'{state}: not activated for {age_s:.0f} s'
        values = {'state': state, 'state_age_s': age_s}
        if self._last_refusal:
            return Health(Level.ERROR, f'{text}; {self._last_refusal}', values)
        return Health(Level.WARN, text, values)
