# SPDX-License-Identifier: Apache-2.0
"""What the launch files share: arguments, nodes, models, and the way to being active."""

from __future__ import annotations

import os
from pathlib import Path
import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.resources import shared_path
from embodied_r_ros.nodes.topics import camera_topic, full_name, robot_remappings
from embodied_r_ros.nodes.transport import transport_environment
from embodied_r_ros.serving.profiles import load_profile
from launch.actions import (
    DeclareLaunchArgument,
    EmitEvent,
    ExecuteProcess,
    LogInfo,
    RegisterEventHandler,
    SetEnvironmentVariable,
    TimerAction,
)
from launch.event_handlers import OnProcessStart
from launch.events import matches_action
from launch.substitutions import LaunchConfiguration
from launch_ros.actions import LifecycleNode
from launch_ros.event_handlers import OnStateTransition
from launch_ros.events.lifecycle import ChangeState
from lifecycle_msgs.msg import Transition

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from launch.events.process import ProcessExited

    from launch import LaunchContext, LaunchDescriptionEntity

_TRUE = {'true', '1', 'yes', 'on'}
_FALSE = {'false', '0', 'no', 'off'}
_ARGUMENTS = {
    'namespace': ('', 'namespace of all nodes'),
    'params_file': ('', 'YAML file of parameters; empty: the shipped config/embodied_r.yaml'),
    'use_sim_time': ('false', 'take the time from /clock'),
    'autostart': ('true', 'configure and activate the nodes'),
    'log_level': ('info', 'debug, info, warn or error'),
    'use_respawn': ('false', 'start a node again that ends'),
    'prefix': ('', 'put before each node\'s command, such as "nice -n 5" or "taskset -c 2"'),
    'cameras': (
        '',
        'namespaces of several cameras, such as front,rear, each with an extractor; empty: one '
        'camera, without a namespace of its own',
    ),
    'image_topic': (
        '',
        'base name of the image, such as /camera/color/image_raw; with `cameras` relative to each',
    ),
    'image_transport': ('', 'raw or compressed'),
    'camera_info_topic': ('', 'camera_info of that image, likewise'),
    'odom_topic': ('', 'odometry of the robot'),
    'pose_topic': ('', 'pose of the end effector, for gate and reasoner (`current_pose`)'),
    'profile': ('embedded', 'model profile (config/models), or the path of a YAML file'),
    'model_server_url': ('', "the reasoner's server, if it runs already; nothing is served then"),
    'serve_models': ('true', 'start the model servers of the profile'),
    'gate': ('true', 'start the gate that keypoint proposals pass before anything acts'),
    'record': ('true', 'start the recorder; episodes start with its service start_episode'),
    'bag_dir': ('', 'folder of the episodes'),
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
        ConfigError: There is no such file or profile.
    """
    arguments = {name: LaunchConfiguration(name).perform(context) for name in _ARGUMENTS}
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


_TRY_AGAIN_S = 5.0
# After SIGINT, before SIGTERM, which ends a process at once: time to close a bag on a slow disk.
_END_S = '15'
_EXTRACTOR = 'keyframe_extractor'
# As `python -m embodied_r_ros.cli.main`, but a clone in the current folder hides no package.
_COMMAND_LINE = (
    'import sys; sys.path[:] = [part for part in sys.path if part]; '
    'from embodied_r_ros.cli.main import main; sys.exit(main())'
)


def transport() -> list[LaunchDescriptionEntity]:
    """Give every process a transport that does not lose images, unless the user has chosen."""
    parts: list[LaunchDescriptionEntity] = []
    for name, value in transport_environment(os.environ).items():
        parts.append(SetEnvironmentVariable(name, value))
        parts.append(LogInfo(msg=f"for the camera driver too: export {name}='{value}'"))
    return parts


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
    extra: dict[str, dict[str, Any]] = {
        'semantic_perceiver': {**profile, **camera_list},
        'spatial_reasoner': {**profile, 'chat.url': url},
    }
    if is_true(arguments, 'gate'):
        extra['proposal_gate'] = {}
    if is_true(arguments, 'record'):
        extra['episode_recorder'] = {'bag_dir': arguments['bag_dir'], **camera_list}
    nodes = {name: node(name, arguments, own, remappings) for name, own in extra.items()}
    transport = {'image_transport': arguments['image_transport']}
    if not cameras:
        return {_EXTRACTOR: node(_EXTRACTOR, arguments, transport, remappings), **nodes}
    return {**{camera: _extractor(camera, arguments, transport) for camera in cameras}, **nodes}


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
    remapped = {'image': arguments['image_topic'], 'camera_info': arguments['camera_info_topic']}
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
    sim_time = {'use_sim_time': is_true(arguments, 'use_sim_time')}
    return LifecycleNode(
        package='embodied_r_ros',
        executable=name,
        name=name,
        namespace=arguments['namespace'],
        parameters=[file, {**sim_time, **own}],
        remappings=[(old, new) for old, new in (remapped or {}).items() if new],
        ros_arguments=['--log-level', arguments['log_level']],
        sigterm_timeout=_END_S,
        prefix=arguments['prefix'] or None,
        respawn=is_true(arguments, 'use_respawn'),
        respawn_delay=2.0,
        output='screen',
    )


def managed(
    lifecycle_node: LifecycleNode, arguments: Mapping[str, str], after: LifecycleNode | None = None
) -> list[LaunchDescriptionEntity]:
    """Start a node and, with `autostart`, bring it to active.

    That is done once after each start of its process; its lifecycle is the user's then.

    Args:
        lifecycle_node: The node.
        arguments: The arguments of the launch.
        after: Another node, whose becoming active is waited for before this one is configured.
    """
    if not is_true(arguments, 'autostart'):
        return [lifecycle_node]
    configure = _change(lifecycle_node, Transition.TRANSITION_CONFIGURE)
    activate = _change(lifecycle_node, Transition.TRANSITION_ACTIVATE)
    again = [
        LogInfo(msg=f'trying again in {_TRY_AGAIN_S:.0f} s'),
        TimerAction(period=_TRY_AGAIN_S, actions=[configure]),
    ]
    # Configuring may fail until a model server is there.
    on_failure = _on(lifecycle_node, 'configuring', 'unconfigured', again)
    on_configured = _on(lifecycle_node, 'configuring', 'inactive', [activate], once=True)
    first = (
        configure if after is None else _on(after, 'activating', 'active', [configure], once=True)
    )
    return [
        RegisterEventHandler(
            OnProcessStart(target_action=lifecycle_node, on_start=[on_configured, first])
        ),
        on_failure,
        lifecycle_node,
    ]


def served_models(arguments: Mapping[str, str]) -> list[ExecuteProcess]:
    """The model servers of the profile; they end with the launch, and it fails with them."""
    if arguments['model_server_url'] or not is_true(arguments, 'serve_models'):
        return []
    respawn = is_true(arguments, 'use_respawn')
    return [
        ExecuteProcess(
            cmd=serve_command(arguments['profile']),
            name='models',
            output='screen',
            sigterm_timeout=_END_S,
            respawn=respawn,
            respawn_delay=5.0,
            on_exit=None if respawn else check_models,
        )
    ]


def serve_command(profile: str) -> list[str]:
    """The command line that serves a profile, to which options can be added."""
    return [sys.executable, '-c', _COMMAND_LINE, 'serve', profile]


def check_models(event: ProcessExited, context: LaunchContext) -> None:
    """See that the model servers have not ended by themselves with an error.

    Raises:
        RuntimeError: They have. An exception is the only way for a launch to exit with 1.
    """
    if event.returncode and not context.is_shutdown:
        msg = f'the model servers failed with exit code {event.returncode}, as said above'
        raise RuntimeError(msg)


def _change(target: LifecycleNode, transition: int) -> EmitEvent:
    matcher = matches_action(target)
    return EmitEvent(event=ChangeState(lifecycle_node_matcher=matcher, transition_id=transition))


def _on(
    target: LifecycleNode,
    start: str,
    goal: str,
    entities: Sequence[LaunchDescriptionEntity],
    *,
    once: bool = False,
) -> RegisterEventHandler:
    return RegisterEventHandler(
        OnStateTransition(
            target_lifecycle_node=target,
            start_state=start,
            goal_state=goal,
            entities=list(entities),
            handle_once=once,
        )
    )
