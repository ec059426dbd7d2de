# SPDX-License-Identifier: Apache-2.0
"""What the launch files share: arguments, nodes, models, and the way to being active."""

from __future__ import annotations

from functools import partial
import json
import os
from pathlib import Path
import re
import shlex
import shutil
import signal
import sys
import time
from typing import Any, TYPE_CHECKING

from ament_index_python.packages import get_package_prefix, PackageNotFoundError
from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.processes import ServiceManager, tie_command, Watchdog
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.nodes.node_base import RESPAWN_S, RETRY_S
from embodied_r_ros.nodes.topics import (
    camera_topic,
    full_name,
    LATCHED_OF_MANY,
    robot_remappings,
)
from embodied_r_ros.nodes.transport import remove_abandoned_segments, transport_environment
from embodied_r_ros.serving.profiles import load_profile, stand_in_server, what_leaves
from embodied_r_ros.serving.servers import with_free_port
from launch.actions import (
    DeclareLaunchArgument,
    ExecuteProcess,
    LogInfo,
    OpaqueFunction,
    RegisterEventHandler,
    SetEnvironmentVariable,
    SetLaunchConfiguration,
    Shutdown,
)
from launch.event_handlers import OnProcessExit, OnProcessStart
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode, Node
from launch_ros.ros_adapters import get_ros_node
from rclpy.exceptions import InvalidNamespaceException, InvalidTopicNameException
from rclpy.qos import QoSProfile
from rclpy.validate_full_topic_name import validate_full_topic_name
from rclpy.validate_namespace import validate_namespace
from rclpy.validate_topic_name import validate_topic_name
from std_msgs.msg import String

from launch import Event, EventHandler

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from launch.events.process import ProcessExited, ProcessStarted

    from launch import LaunchContext, LaunchDescriptionEntity

_TRUE = {'true', '1', 'yes', 'on'}
_FALSE = {'false', '0', 'no', 'off'}
_ARGUMENTS = {
    'namespace': ('', 'namespace of all nodes'),
    'params_file': ('', 'YAML file of parameters; empty: the shipped config/embodied_r.yaml'),
    'use_sim_time': ('false', 'take the time from /clock'),
    'autostart': ('true', 'configure and activate the nodes'),
    'log_level': ('info', 'debug, info, warn, error or fatal; or of one logger, NAME:=LEVEL'),
    'use_respawn': ('false', 'start a node again that ends'),
    'prefix': ('', 'put before each node\'s command, such as "nice -n 5" or "taskset -c 2"'),
    'cameras': (
        '',
        'namespaces of several cameras, such as front,rear; empty: one camera without any',
    ),
    'image_topic': (
        '',
        'base name of the image, such as /camera/color/image_raw; with `cameras` relative to each',
    ),
    'image_transport': ('', 'raw or compressed'),
    'camera_info_topic': ('', 'camera_info of that image, likewise'),
    'depth_topic': (
        '',
        'registered depth, such as /camera/aligned_depth_to_color/image_raw',
    ),
    'depth_transport': ('', 'raw, compressedDepth, compressed, or none'),
    'detections_topic': (
        '',
        'boxes of a ROS detector (vision_msgs/Detection2DArray) in that image, likewise; empty: '
        'none are used',
    ),
    'odom_topic': ('', 'odometry of the robot'),
    'pose_source': ('', 'where the pose of the camera comes from: odom, tf, or auto'),
    'pose_topic': ('', 'pose of the end effector, for gate and reasoner (`current_pose`)'),
    'profile': (
        'tools',
        'model profile (config/models), or the path of a YAML file; tools: no model',
    ),
    'model_server_url': ('', "the reasoner's server, if it runs already; nothing is served then"),
    'shadow': (
        '',
        'candidate that answers too, unseen (`shadow_answer`): a URL or a profile; empty: none',
    ),
    'serve_models': ('true', 'start the model servers of the profile'),
    'gate': ('true', 'start the gate that keypoint proposals pass before anything acts'),
    'goals': ('false', 'start the gate between orders to go somewhere and `goal_pose` (Nav2)'),
    'record': ('true', 'start the recorder; episodes start with its service start_episode'),
    'bag_dir': ('', 'folder of the episodes'),
    'rviz': ('false', 'show it all in RViz (package rviz2)'),
}


def arguments(**defaults: str) -> list[DeclareLaunchArgument]:
    """Declare the arguments of a launch file, some with defaults of its own."""
    return [
        DeclareLaunchArgument(
            name, default_value=defaults.get(name, default), description=description
        )
        for name, (default, description) in _ARGUMENTS.items()
    ]


def values(context: LaunchContext) -> dict[str, str]:
    """The arguments as they were given, checked as far as they can be before anything is started.

    Raises:
        ConfigError: An argument means nothing, or there is no such file or profile.
    """
    arguments = {name: LaunchConfiguration(name).perform(context) for name in _ARGUMENTS}
    _check(arguments)
    if arguments['params_file']:
        file = Path(arguments['params_file']).expanduser()
        if not file.is_file():
            msg = f'params_file is {str(file)!r}: expected a YAML file of parameters'
            raise ConfigError(msg)
        arguments['params_file'] = str(file)
    if arguments['profile'] and not arguments['model_server_url']:
        load_profile(arguments['profile'])
    return arguments


def is_true(arguments: Mapping[str, str], name: str) -> bool:
    """Read a launch argument that is true or false.

    Raises:
        ConfigError: It is neither.
    """
    value = arguments[name].strip().lower()
    if value not in _TRUE | _FALSE:
        msg = f'{name} is {arguments[name]!r}: expected true or false'
        raise ConfigError(msg)
    return value in _TRUE


def _check(arguments: Mapping[str, str]) -> None:
    """Refuse what would only end the processes, or leave the nodes without images.

    Raises:
        ConfigError: An argument means nothing.
    """
    for name in _SWITCHES:
        is_true(arguments, name)
    for name, (pattern, expected) in _PATTERNS.items():
        if not re.fullmatch(pattern, arguments[name], re.IGNORECASE):
            msg = f'{name} is {arguments[name]!r}: expected {expected}'
            raise ConfigError(msg)
    for name in ('namespace', 'cameras', *_TOPICS):
        for part in arguments[name].split(','):
            _check_name(name, part.strip())
    prefix = shlex.split(arguments['prefix'])
    if prefix and not shutil.which(prefix[0]):
        msg = f'prefix is {arguments["prefix"]!r}: there is no program {prefix[0]!r}'
        raise ConfigError(msg)
    _check_servers(arguments)


def _check_servers(arguments: Mapping[str, str]) -> None:
    """Refuse what is no model server.

    Raises:
        ConfigError: A URL is none, or a profile is missing or wrong.
    """
    try:
        ChatConfig(arguments['model_server_url'] or ChatConfig.url)
    except ConfigError as error:
        msg = f'model_server_{error}'
        raise ConfigError(msg) from None
    try:
        if arguments['shadow']:
            stand_in_server(arguments['shadow'], 'reasoner', 'shadow')
    except ConfigError as error:
        msg = f'shadow is {arguments["shadow"]!r}: {error}'
        raise ConfigError(msg) from None


def _check_name(argument: str, value: str) -> None:
    """Refuse what is no name of a ROS topic or namespace; empty is none."""
    full = value if value.startswith('/') else f'/{value}'
    try:
        if value.startswith('~'):
            validate_topic_name(value)
        elif argument in _TOPICS and value:
            validate_full_topic_name(full)
        else:
            validate_namespace(full)
    except (InvalidNamespaceException, InvalidTopicNameException) as error:
        why = str(error).splitlines()[0].removeprefix('Invalid ').split(': ', 1)[-1]
        msg = f'{argument} is {value!r}: expected a ROS name, such as /robot1/image ({why})'
        raise ConfigError(msg) from None


_SWITCHES = [name for name, (default, _) in _ARGUMENTS.items() if default in _TRUE | _FALSE]
_PATTERNS = {
    'log_level': (
        r'([^\s:=]+:=)?(debug|info|warn|error|fatal)',
        'debug, info, warn, error or fatal, or LOGGER:=LEVEL',
    ),
    'image_transport': ('(raw|compressed)?', 'raw or compressed'),
    'depth_transport': (
        '(raw|compressedDepth|compressed|none)?',
        'raw, compressedDepth, compressed or none',
    ),
    'pose_source': ('(odom|tf|auto)?', 'odom, tf or auto'),
}
_TOPICS = (
    'image_topic',
    'camera_info_topic',
    'depth_topic',
    'detections_topic',
    'odom_topic',
    'pose_topic',
)
_OF_CAMERAS = ('image', 'camera_info', 'depth', 'detections')
_OF_EXTRACTORS = ('image_transport', 'depth_transport', 'pose_source')
# What launch puts before each command, by itself.
_PREFIX = LaunchConfiguration('launch-prefix', default='')
# After SIGINT, before SIGTERM, which ends a process at once: time to close a bag on a slow disk.
_END_S = '15'
_EXTRACTOR = 'keyframe_extractor'
_HEALTH_QUEUE = 100  # other programs publish on /diagnostics too
# As `python -m embodied_r_ros.cli.main`, but a clone in the current folder hides no package.
_COMMAND_LINE = (
    'import sys; sys.path[:] = [part for part in sys.path if part]; '
    'from embodied_r_ros.cli.main import main; sys.exit(main())'
)


def leaving(arguments: Mapping[str, str]) -> list[LogInfo]:
    """Tell what leaves this machine, where a server is elsewhere."""
    url, shadow = arguments['model_server_url'], arguments['shadow']
    profile = load_profile(arguments['profile']) if not url else None
    clients = {'reasoner': ChatConfig(url)} if profile is None else profile.clients
    reasoners = [clients.get('reasoner')]
    reasoners += [stand_in_server(shadow, 'reasoner', 'shadow')] if shadow else []
    shows_image = profile and profile.reasoner.get('show_image')
    sent = [('text', chat) for chat in reasoners]
    sent += [('keyframes', chat) for chat in reasoners if shows_image]
    line = what_leaves([*sent, ('keyframes', clients.get('perceiver'))])
    return [LogInfo(msg=line)] if line else []


def end_with_launch() -> LaunchDescriptionEntity:
    """Have what starts from here on end with the launch, also where that is killed."""
    return OpaqueFunction(function=_tie)


def _tie(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    tie, prefix = shlex.join(tie_command([])), _PREFIX.perform(context)
    if prefix.startswith(tie):  # of a launch file that includes this one
        return []
    return [SetLaunchConfiguration(_PREFIX.variable_name, f'{tie} {prefix}')]


def surroundings() -> list[LaunchDescriptionEntity]:
    """What every process is to have, the camera driver too.

    It ends with the launch, and has a transport that does not lose images, unless the user has
    chosen another one.
    """
    parts = [end_with_launch(), OpaqueFunction(function=_clean_up)]
    for name, value in transport_environment(os.environ).items():
        parts.append(SetEnvironmentVariable(name, value))
        parts.append(LogInfo(msg=f"for the camera driver too: export {name}='{value}'"))
    return parts


def _clean_up(_: LaunchContext) -> None:
    """Remove the shared memory of processes that were killed before."""
    remove_abandoned_segments(ports=True)


def pipeline(arguments: Mapping[str, str]) -> dict[str, LifecycleNode]:
    """The nodes, by name, with their parameters and remappings.

    Raises:
        ConfigError: Several cameras were given one topic.
    """
    url = arguments['model_server_url']
    profile = {} if url else {'profile': arguments['profile']}
    cameras = [name for part in arguments['cameras'].split(',') if (name := part.strip())]
    camera_list = {'cameras': cameras} if cameras else {}
    robot = {'odom': arguments['odom_topic'], 'current_pose': arguments['pose_topic']}
    remappings = robot | {
        camera_topic(camera, name): camera_topic(camera, topic)
        for name, topic in _camera_remappings(arguments).items()
        for camera in cameras or ['.']
    }
    boxes = {'detections.listen': True} if arguments['detections_topic'] else {}
    extra: dict[str, dict[str, Any]] = {
        'semantic_perceiver': {**profile, **camera_list, **boxes},
        'spatial_reasoner': {
            **profile,
            'chat.url': url,
            'shadow.server': arguments['shadow'],
        },
    }
    if is_true(arguments, 'gate'):
        extra['proposal_gate'] = {}
    if is_true(arguments, 'goals'):
        extra['goal_gate'] = {}
    if is_true(arguments, 'record'):
        extra['episode_recorder'] = {'bag_dir': arguments['bag_dir'], **camera_list}
    nodes = {name: node(name, arguments, own, remappings) for name, own in extra.items()}
    own = {name: arguments[name] for name in _OF_EXTRACTORS}
    if not cameras:
        return {_EXTRACTOR: node(_EXTRACTOR, arguments, own, remappings), **nodes}
    return {**{camera: _extractor(camera, arguments, own) for camera in cameras}, **nodes}


def _extractor(
    camera: str, arguments: Mapping[str, str], parameters: Mapping[str, Any]
) -> LifecycleNode:
    """The extractor of one of several cameras, in the camera's namespace."""
    namespace = arguments['namespace']
    remappings = {**robot_remappings(namespace), **_camera_remappings(arguments)}
    if arguments['odom_topic']:
        remappings['odom'] = full_name(arguments['odom_topic'], namespace)
    own = {**arguments, 'namespace': full_name(camera, namespace)}
    return node(_EXTRACTOR, own, {**parameters, 'camera': camera.strip('/')}, remappings)


def _camera_remappings(arguments: Mapping[str, str]) -> dict[str, str]:
    """Remappings of what a camera publishes, relative to its namespace.

    Raises:
        ConfigError: Several cameras were given one topic.
    """
    remapped = {name: arguments[f'{name}_topic'] for name in _OF_CAMERAS}
    for name, topic in remapped.items():
        if arguments['cameras'] and topic.startswith('/'):
            msg = (
                f'{name}_topic is {topic!r}: with `cameras` expected a name relative to each, '
                f'such as {topic.rsplit("/", 1)[-1]!r}'
            )
            raise ConfigError(msg)
    return {name: topic for name, topic in remapped.items() if topic}


def node(
    name: str,
    arguments: Mapping[str, str],
    parameters: Mapping[str, Any],
    remapped: Mapping[str, str] | None = None,
) -> LifecycleNode:
    """A node whose empty parameters and remappings are left as they are."""
    file = arguments['params_file'] or str(shared_path('config', 'embodied_r.yaml'))
    own = {key: value for key, value in parameters.items() if value != ''}
    common = {
        'use_sim_time': is_true(arguments, 'use_sim_time'),
        'autostart': is_true(arguments, 'autostart'),
        'autostart_retry_s': RETRY_S,
    }
    return LifecycleNode(
        package='embodied_r_ros',
        executable=name,
        name=name,
        namespace=arguments['namespace'],
        parameters=[file, {**common, **own}],
        remappings=[(old, new) for old, new in (remapped or {}).items() if new],
        ros_arguments=['--log-level', arguments['log_level']],
        sigterm_timeout=_END_S,
        prefix=[_PREFIX, ' ', prefix] if (prefix := arguments['prefix']) else None,
        respawn=is_true(arguments, 'use_respawn'),
        respawn_delay=RESPAWN_S,
        output='screen',
    )


def viewer(arguments: Mapping[str, str]) -> list[Node]:
    """RViz in the namespace of the nodes, where it is asked for; what it shows is ours.

    Raises:
        ConfigError: It is not installed.
    """
    if not is_true(arguments, 'rviz'):
        return []
    try:
        get_package_prefix('rviz2')
    except PackageNotFoundError:
        msg = 'rviz is true, and rviz2 is not installed: apt install ros-$ROS_DISTRO-rviz2'
        raise ConfigError(msg) from None
    return [
        Node(
            package='rviz2',
            executable='rviz2',
            namespace=arguments['namespace'],
            arguments=['-d', str(shared_path('config', 'rviz', 'embodied_r.rviz'))],
            parameters=[{'use_sim_time': is_true(arguments, 'use_sim_time')}],
        )
    ]


class NodeActive(Event):
    """A node of the pipeline has become active."""

    name = 'embodied_r_ros.NodeActive'

    def __init__(self, node_name: str) -> None:
        super().__init__()
        self.node_name = node_name


class NodeWatch:
    """Follows the nodes of a launch: says when all are active, and fails when they have died.

    The nodes bring themselves to active, also after their process was started again: a manager
    could meet the services of the dead process, which discovery lists for a while. Their latched
    provenance tells that they are. A service manager hears it too, and afterwards that all nodes
    are alive: each says so on `/diagnostics`.
    """

    def __init__(self, nodes: Iterable[LifecycleNode], arguments: Mapping[str, str]) -> None:
        self._nodes = list(nodes)
        self._arguments = arguments
        self._active: set[str] = set()
        self._running = len(self._nodes)
        self._deaths: list[str] = []
        self._manager = ServiceManager(os.environ)
        self._watchdog: Watchdog | None = None  # once all nodes are active

    def entities(self) -> list[LaunchDescriptionEntity]:
        """What starts the nodes and follows them."""
        listen = OpaqueFunction(function=self._listen)
        parts = [listen] if is_true(self._arguments, 'autostart') else []
        return [*parts, *(part for node in self._nodes for part in self.follow(node))]

    def follow(self, node: LifecycleNode) -> list[LaunchDescriptionEntity]:
        """What starts a node and follows its process."""
        started = OnProcessStart(target_action=node, on_start=partial(self._note_start, node))
        ended = OnProcessExit(target_action=node, on_exit=partial(self._note_exit, node))
        return [RegisterEventHandler(started), RegisterEventHandler(ended), node]

    def after(
        self, name: str, entities: Sequence[LaunchDescriptionEntity]
    ) -> list[LaunchDescriptionEntity]:
        """Do something once the node `name` is active; at once where nothing brings it there."""
        if not is_true(self._arguments, 'autostart'):
            return list(entities)
        full = full_name(name, self._arguments['namespace'])

        def is_it(event: Event) -> bool:
            return isinstance(event, NodeActive) and event.node_name == full

        handler = EventHandler(matcher=is_it, entities=list(entities), handle_once=True)
        return [RegisterEventHandler(handler)]

    def _listen(self, context: LaunchContext) -> None:
        topic = full_name('provenance', self._arguments['namespace'])

        def hear(msg: String) -> None:  # in a thread of its own
            name = json.loads(msg.data).get('node', '')
            context.asyncio_loop.call_soon_threadsafe(self._note_active, name, context)

        ros_node = get_ros_node(context)
        ros_node.create_subscription(String, topic, hear, LATCHED_OF_MANY)
        if not self._manager.watchdog_s:
            return

        def hear_health(msg: DiagnosticArray) -> None:
            names = {f'/{status.name.partition(": ")[0]}' for status in msg.status}
            context.asyncio_loop.call_soon_threadsafe(self._note_alive, names)

        profile = QoSProfile(depth=_HEALTH_QUEUE)
        ros_node.create_subscription(DiagnosticArray, '/diagnostics', hear_health, profile)

    def _note_alive(self, names: Iterable[str]) -> None:
        for name in names if self._watchdog else ():
            assert self._watchdog
            self._watchdog.hear(name, time.monotonic())

    def _note_all_active(self, context: LaunchContext) -> None:
        """Say that all nodes are active; the first time is when the service is ready."""
        text = f'all {len(self._nodes)} nodes are active'
        LogInfo(msg=text).execute(context)
        self._manager.tell('READY=1', f'STATUS={text}')
        if self._manager.watchdog_s and not self._watchdog:
            names = [node.node_name for node in self._nodes]
            self._watchdog = Watchdog(self._manager, names, time.monotonic())
            self._beat(self._watchdog, context)

    def _beat(self, watchdog: Watchdog, context: LaunchContext) -> None:
        if context.is_shutdown:
            self._manager.tell('STOPPING=1')
            return
        if silent := watchdog.beat(time.monotonic()):
            text = f'the watchdog is not told: nothing is heard of {", ".join(silent)}'
            LogInfo(msg=text).execute(context)
            self._manager.tell(f'STATUS={text}')
        context.asyncio_loop.call_later(watchdog.period_s, self._beat, watchdog, context)

    def _note_start(
        self, node: LifecycleNode, event: ProcessStarted, context: LaunchContext
    ) -> None:
        del event, context
        self._active.discard(node.node_name)

    def _note_active(self, name: str, context: LaunchContext) -> None:
        names = {node.node_name for node in self._nodes}
        is_news = name in names - self._active
        self._active |= {name} & names
        if is_news:
            context.emit_event_sync(NodeActive(name))
        if is_news and self._active == names:
            self._note_all_active(context)

    def _note_exit(
        self, node: LifecycleNode, event: ProcessExited, context: LaunchContext
    ) -> list[LaunchDescriptionEntity]:
        """Note that a process ended; the launch ends with the last node.

        Raises:
            RuntimeError: One has died, and the launch ends. It is the only way to exit with 1.
        """
        remove_abandoned_segments(ports=context.is_shutdown)
        # On the way out other codes come from Ctrl-C; a kill may be noticed only then.
        is_kill = event.returncode == -signal.SIGKILL
        has_died = is_kill if context.is_shutdown else bool(event.returncode)
        if is_true(self._arguments, 'use_respawn') and not context.is_shutdown:
            return []
        self._running -= node in self._nodes
        if has_died:
            self._deaths.append(f'{node.node_name} (exit code {event.returncode})')
        if self._running and not context.is_shutdown:
            hint = 'has died, and the others go on: use_respawn:=true starts such a node again'
            return [LogInfo(msg=f'{self._deaths[-1]} {hint}')] if has_died else []
        if self._deaths:
            deaths, self._deaths = ', '.join(self._deaths), []
            msg = f'nodes have died: {deaths}'
            raise RuntimeError(msg)
        return [] if context.is_shutdown else [Shutdown(reason='the nodes have ended')]


def served_models(arguments: Mapping[str, str]) -> list[ExecuteProcess]:
    """The model servers of the profile; they end with the launch, and it fails with them.

    Raises:
        ConfigError: A port of theirs is taken.
    """
    if arguments['model_server_url'] or not is_true(arguments, 'serve_models'):
        return []
    servers = load_profile(arguments['profile']).servers
    if not servers:
        return []
    for server in servers.values():
        with_free_port(server)
    respawn = is_true(arguments, 'use_respawn')
    return [
        ExecuteProcess(
            cmd=serve_command(arguments['profile']),
            name='models',
            output='screen',
            sigterm_timeout=_END_S,
            respawn=respawn,
            respawn_delay=RESPAWN_S,
            on_exit=None if respawn else check_models,
        )
    ]


def serve_command(profile: str) -> list[str]:
    """The command line that serves a profile, to which options can be added."""
    # The Python that runs the launch file: that of the environment, by its `ros2` (config/bin).
    return [sys.executable, '-c', _COMMAND_LINE, 'serve', profile]


def check_models(event: ProcessExited, context: LaunchContext) -> None:
    """See that the model servers have not ended by themselves with an error.

    Raises:
        RuntimeError: They have. An exception is the only way for a launch to exit with 1.
    """
    if event.returncode and not context.is_shutdown:
        msg = f'the model servers failed with exit code {event.returncode}, as said above'
        raise RuntimeError(msg)
