# SPDX-License-Identifier: Apache-2.0
"""The same pipeline, fed from a recording, in the recording's time.

ros2 launch embodied_r_ros replay.launch.py bag:=~/embodied_r/episodes/EPISODE

With a namespace the recording is played there, but for what an argument such as image_topic names.
"""

from collections.abc import Mapping
from pathlib import Path

from embodied_r_ros.bags.playback import PlaybackConfig
from embodied_r_ros.bags.reader import open_bag
from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.nodes import bringup
from embodied_r_ros.nodes.topics import pipeline_topics, playing_remappings
from launch.actions import DeclareLaunchArgument, OpaqueFunction
from launch.substitutions import LaunchConfiguration

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity

# What the pipeline makes itself, and what only a simulator knows.
OWN_TOPICS = [
    '/clock',
    *(pattern for name in pipeline_topics() for pattern in (f'*/{name}', f'*/{name}/*')),
    '*truth/*',
]


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start the pipeline and the player."""
    return LaunchDescription(
        [
            DeclareLaunchArgument('bag', description='rosbag2 folder, or a .mcap or .db3 file'),
            DeclareLaunchArgument('rate', default_value='1.0', description='speed'),
            DeclareLaunchArgument('loop', default_value='false', description='start over'),
            DeclareLaunchArgument(
                'player',
                default_value='true',
                description='play the bag; false: feed the pipeline with `ros2 bag play --clock`',
            ),
            *bringup.arguments(use_sim_time='true'),
            OpaqueFunction(function=start),
        ]
    )


def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Start the pipeline, and play once it can answer.

    Raises:
        ConfigError: An argument is not what was expected.
        BagError: The bag cannot be read.
    """
    given = bringup.values(context)
    names = ('bag', 'rate', 'loop', 'player')
    own = {name: LaunchConfiguration(name).perform(context) for name in names}
    playback = playback_config(own)
    nodes = bringup.NodeWatch(bringup.pipeline(given).values(), given)
    parts = nodes.entities()
    if bringup.is_true(own, 'player'):
        # The player opens it when the reasoner is active, which is late to say what is wrong.
        with open_bag(Path(own['bag']).expanduser()) as reader:
            topics = sorted({connection.topic for connection in reader.connections})
        parameters = {
            'bag': own['bag'],
            'exclude_topics': OWN_TOPICS,
            'playback.rate': playback.rate,
            'playback.loop': playback.loop,
            'playback.clock_hz': playback.clock_hz,
        }
        names = ('image', 'camera_info', 'depth', 'detections', 'odom')
        listened = [given[f'{name}_topic'] for name in names]
        remapped = playing_remappings(topics, given['namespace'], listened)
        player = bringup.node('bag_player', given, parameters, remapped)
        parts += nodes.after('spatial_reasoner', nodes.follow(player))
    return [
        *bringup.leaving(given),
        *bringup.surroundings(),
        *bringup.served_models(given),
        *parts,
        *bringup.viewer(given),
    ]


def playback_config(own: Mapping[str, str]) -> PlaybackConfig:
    """How to play, from the arguments `rate` and `loop`.

    Raises:
        ConfigError: One of them is not what was expected.
    """
    try:
        rate = float(own['rate'])
    except ValueError:
        msg = f'rate is {own["rate"]!r}: expected a number, such as 2.0'
        raise ConfigError(msg) from None
    return PlaybackConfig(rate, bringup.is_true(own, 'loop'), clock_hz=100.0)
