# SPDX-License-Identifier: Apache-2.0
"""Helpers of node tests: nodes spun in the background, and an outsider who talks to them."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
import gc
import os
from pathlib import Path
import subprocess
import sys
import threading
import time
from typing import Any, TYPE_CHECKING, TypeVar

from embodied_r_msgs.srv import StartEpisode
from embodied_r_ros.nodes.parameters import NOT_TUNED
from embodied_r_ros.nodes.run import spin_some
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState
from rcl_interfaces.srv import SetParameters
import rclpy
from rclpy.action import ActionClient
from rclpy.context import Context
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.nodes.node_base import ManagedNode
    from rclpy.qos import QoSProfile

TIMEOUT_S = 20.0
Made = TypeVar('Made', bound=Node)

CONFIGURE = Transition.TRANSITION_CONFIGURE
CLEANUP = Transition.TRANSITION_CLEANUP
ACTIVATE = Transition.TRANSITION_ACTIVATE
DEACTIVATE = Transition.TRANSITION_DEACTIVATE


def wait_for(condition: Callable[[], Any], what: str, timeout_s: float = TIMEOUT_S) -> Any:
    """Wait until a condition holds and return its value; fail with `what` after a while."""
    end = time.monotonic() + timeout_s
    tick = threading.Event()
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f'not within {timeout_s} s: {what}'
        tick.wait(0.005)


class Inbox(list[Any]):
    """Messages of a topic, in order of arrival."""

    def wait(self, count: int = 1, timeout_s: float = TIMEOUT_S) -> Inbox:
        """Wait until so many messages are there."""
        wait_for(lambda: len(self) >= count, f'{count} messages, only {len(self)}', timeout_s)
        return self


class _Spinner:
    """An executor in a thread, as in a process of its own."""

    def __init__(self, context: Context, node: Node) -> None:
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(node)
        self.on_error = getattr(node, 'note_failure', lambda error: None)
        self.stop = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.stop.is_set():
            try:
                spin_some(self.executor, -1.0, self.on_error)
            except ExternalShutdownException:
                return

    def end(self) -> None:
        self.stop.set()
        self.executor.create_task(lambda: None)  # wakes it
        self.thread.join(TIMEOUT_S)
        assert not self.thread.is_alive()


def is_untuned(name: str) -> bool:
    """Whether a setting is no parameter."""
    group, _, field = name.rpartition('.')
    return field in NOT_TUNED.get(group, '').split()


def set_untuned(node: Any, name: str, value: Any) -> None:
    """Give a node that is not configured yet another value of a setting that is no parameter."""
    kind, field = node.parameters._fixed[name]
    config = node.parameters._configs[kind]
    node.parameters._configs[kind] = replace(config, **{field: value})
    node.parameters._chosen.add(name)


class Graph:
    """The nodes of one test and an outsider who talks to them over DDS."""

    def __init__(self, domain_id: int) -> None:
        self.context = Context()
        rclpy.init(context=self.context, domain_id=domain_id)
        self.outsider = Node('outsider', context=self.context)
        self.nodes: list[Node] = [self.outsider]
        self.clients: dict[str, Any] = {}
        self.processes: list[subprocess.Popen[str]] = []
        self.spinners = [_Spinner(self.context, self.outsider)]

    def __enter__(self) -> Graph:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
            process.communicate(timeout=TIMEOUT_S)
        for spinner in self.spinners:
            spinner.end()
        for node in self.nodes:
            if getattr(node, 'state', 'finalized') != 'finalized':
                node.trigger_shutdown()
        # An executor keeps what it last waited for, and with it the nodes, alive in the graph.
        for spinner in self.spinners:
            spinner.executor.shutdown()
        for node in self.nodes:
            node.destroy_node()
        rclpy.try_shutdown(context=self.context)
        # The state machine of a lifecycle node goes with the last reference only; until then the
        # next test finds its services.
        self.nodes.clear()
        self.spinners.clear()
        gc.collect()

    def add(self, make: Callable[..., Made], namespace: str = '', **parameters: Any) -> Made:
        """Make a node with some parameters ('__' in a name stands for '.') and spin it."""
        given = {name.replace('__', '.'): value for name, value in parameters.items()}
        untuned = {name: given.pop(name) for name in list(given) if is_untuned(name)}
        overrides = [Parameter(name, value=value) for name, value in given.items()]
        options = {'namespace': namespace} if namespace else {}
        node = make(context=self.context, parameter_overrides=overrides, **options)
        for name, value in untuned.items():
            set_untuned(node, name, value)
        self.nodes.append(node)
        self.spinners.append(_Spinner(self.context, node))
        return node

    def active(self, make: Callable[..., Made], **parameters: Any) -> Made:
        """Make a node and bring it to active."""
        node = self.add(make, **parameters)
        self.change(node, CONFIGURE, ACTIVATE)
        return node

    def process(self, name: str, **parameters: Any) -> subprocess.Popen[str]:
        """Start a node in a process of its own; '__' in a parameter's name stands for '.'."""
        words = [f'{k.replace("__", ".")}:={v}' for k, v in parameters.items()]
        arguments = [part for word in words for part in ('-p', word)]
        code = f'from embodied_r_ros.nodes.{name} import main; raise SystemExit(main())'
        process = subprocess.Popen(
            [sys.executable, '-c', code, '--ros-args', *arguments],
            env={**os.environ, 'ROS_DOMAIN_ID': str(self.context.get_domain_id())},
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def change(self, node: Node, *transitions: int) -> None:
        """Make transitions that must succeed."""
        for transition in transitions:
            assert self.try_change(node, transition), f'transition {transition} failed'

    def try_change(self, node: Node, transition: int) -> bool:
        """Ask for a transition over its service; tell whether it succeeded."""
        return bool(self.result(self.change_later(node, transition)).success)

    def change_later(self, node: Node, transition: int) -> Any:
        """Ask for a transition and return the future of the response."""
        request = ChangeState.Request(transition=Transition(id=transition))
        name = f'{node.get_fully_qualified_name()}/change_state'
        return self.call_async(ChangeState, name, request)

    def call(self, kind: type[Any], name: str, request: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Call a service and return its response."""
        return self.result(self.call_async(kind, name, request), timeout_s)

    def call_process(self, kind: type[Any], name: str, request: Any) -> Any:
        """Call a service that changes nothing of a process that has just started.

        Fast DDS drops the reply where the process has not found this client within 100 ms
        (ros2/rmw_fastrtps#418): it is asked again.
        """
        for _ in range(4):
            with suppress(AssertionError):
                return self.call(kind, name, request, TIMEOUT_S / 4)
        return self.call(kind, name, request)

    def recording(self, folder: Path, **parameters: Any) -> tuple[subprocess.Popen[str], Path]:
        """Start a recorder in a process of its own, and an episode: the process, and the bag."""
        usual = {'autostart': True, 'bag_dir': folder, 'min_free_mb': 0}
        process = self.process('episode_recorder', **usual, **parameters)
        # An episode can be started once. What is asked before, as often as it takes, tells that
        # the process has found the clients, of which this one is the older.
        self._client(StartEpisode, '/start_episode')
        self.call_process(GetState, '/episode_recorder/get_state', GetState.Request())
        started = self.call(StartEpisode, '/start_episode', StartEpisode.Request(), 60)
        return process, Path(started.bag_path)

    def call_async(self, kind: type[Any], name: str, request: Any) -> Any:
        """Call a service and return the future of its response."""
        return self._client(kind, name).call_async(request)

    def _client(self, kind: type[Any], name: str) -> Any:
        if name not in self.clients:
            self.clients[name] = self.outsider.create_client(kind, name)
        client = self.clients[name]
        assert client.wait_for_service(TIMEOUT_S), f'no service {name}'
        return client

    def result(self, future: Any, timeout_s: float = TIMEOUT_S) -> Any:
        """Wait for a future and return its result."""
        done = threading.Event()
        future.add_done_callback(lambda _: done.set())
        assert done.wait(timeout_s), f'no result within {timeout_s} s'
        return future.result()

    def _in_executor(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function in the thread that hears responses.

        An action client of rclpy loses a response that comes before it has noted its request.
        """
        return self.result(self.spinners[0].executor.create_task(function, *arguments))

    def inbox(self, kind: type[Any], topic: str, profile: QoSProfile | int = 10) -> Inbox:
        """Collect the messages of a topic."""
        inbox = Inbox()
        self.outsider.create_subscription(kind, topic, inbox.append, profile)
        return inbox

    def publisher(
        self, kind: type[Any], topic: str, profile: QoSProfile | int = 10, readers: int = 1
    ) -> Any:
        """Make a publisher that has found so many subscriptions."""
        made = self.outsider.create_publisher(kind, topic, profile)
        wait_for(lambda: made.get_subscription_count() >= readers, f'a subscription to {topic}')
        return made

    def matched(self, topic: str, count: int = 1) -> None:
        """Wait until a topic of the outsider's subscriptions has so many publishers."""
        wait_for(lambda: self.outsider.count_publishers(topic) >= count, f'a publisher of {topic}')

    def send_goal(
        self, kind: type[Any], name: str, goal: Any, feedback: list[Any] | None = None
    ) -> Any:
        """Send a goal and return its accepted handle."""
        client = ActionClient(self.outsider, kind, name)
        assert client.wait_for_server(TIMEOUT_S), f'no action {name}'
        heard = [] if feedback is None else feedback

        def hear(msg: Any) -> None:
            heard.append(msg.feedback)

        handle = self.result(self._in_executor(client.send_goal_async, goal, hear))
        assert handle.accepted
        return handle

    def goal_result(self, handle: Any, timeout_s: float = TIMEOUT_S) -> tuple[int, Any]:
        """Wait for the end of a goal and return its status and result."""
        response = self.result(self._in_executor(handle.get_result_async), timeout_s)
        return response.status, response.result

    def parameter(self, node: ManagedNode, name: str, value: Any) -> Any:
        """Set a parameter over its service; returns the result with its reason."""
        request = SetParameters.Request(
            parameters=[Parameter(name, value=value).to_parameter_msg()]
        )
        service = f'{node.get_fully_qualified_name()}/set_parameters'
        return self.call(SetParameters, service, request).results[0]
