# SPDX-License-Identifier: Apache-2.0
"""Arguments of the launch files: declared, checked and read.

The YAML file is the source of every parameter; a launch argument overrides one only where it is
not empty.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError
from embodied_r_ros.models.profiles import load_profile
from launch.actions import DeclareLaunchArgument
from launch.substitutions import LaunchConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from launch import LaunchContext

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
    given = {name: LaunchConfiguration(name).perform(context) for name in _ARGUMENTS}
    if given['params_file']:
        file = Path(given['params_file']).expanduser()
        if not file.is_file():
            msg = f'params_file is {str(file)!r}: expected a YAML file of parameters'
            raise ConfigError(msg)
        given['params_file'] = str(file)
    if given['profile'] and not given['model_server_url']:
        load_profile(given['profile'])
    return given


def is_true(given: Mapping[str, str], name: str) -> bool:
    """Tell what a launch argument means that is true or false.

    Raises:
        ConfigError: It is neither.
    """
    value = given[name].strip().lower()
    if value not in _TRUE | _FALSE:
        msg = f'{name} is {given[name]!r}: expected true or false'
        raise ConfigError(msg)
    return value in _TRUE
