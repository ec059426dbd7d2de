# SPDX-License-Identifier: Apache-2.0
"""Starts the model servers of a profile, which end with the launch, and ends with them.

Where they fail, the exit code of the launch is not 0.

ros2 launch embodied_r_ros models.launch.py profile:=gpu-24gb
"""

from embodied_r_ros.nodes import bringup
from launch.actions import DeclareLaunchArgument, ExecuteProcess, OpaqueFunction, Shutdown
from launch.events.process import ProcessExited
from launch.substitutions import LaunchConfiguration

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the servers."""
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'profile',
                default_value='embedded',
                description='profile of config/models, or the path of a YAML file',
            ),
            DeclareLaunchArgument(
                'only',
                default_value='',
                choices=['', 'perceiver', 'reasoner'],
                description='start the server of this role only; empty: all',
            ),
            DeclareLaunchArgument(
                'log_dir',
                default_value='',
                description='folder of the logs; empty: ~/.local/state/embodied_r_ros/log',
            ),
            bringup.end_with_launch(),
            OpaqueFunction(function=serve),
        ]
    )


def serve(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Run `embodied-r serve` with the arguments of the launch."""
    value = {
        name: LaunchConfiguration(name).perform(context) for name in ('profile', 'only', 'log_dir')
    }
    command = bringup.serve_command(value['profile'])
    if value['only']:
        command += ['--only', value['only']]
    if value['log_dir']:
        command += ['--log-dir', value['log_dir']]
    return [
        ExecuteProcess(
            cmd=command,
            name='models',
            output='screen',
            # The servers get ten seconds to end by themselves.
            sigterm_timeout='15',
            on_exit=on_servers_exit,
        )
    ]


def on_servers_exit(event: ProcessExited, context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """End the launch with the servers.

    Raises:
        RuntimeError: They failed.
    """
    bringup.check_models(event, context)
    return [Shutdown(reason='the model servers ended')]
