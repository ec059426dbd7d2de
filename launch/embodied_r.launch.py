# SPDX-License-Identifier: Apache-2.0
"""The whole pipeline for one camera: keyframes, deltas, answers, recordings, and the models.

ros2 launch embodied_r_ros embodied_r.launch.py image_topic:=/camera/color/image_raw
"""

from embodied_r_ros.nodes import bringup
from launch.actions import OpaqueFunction

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity


def generate_launch_description() -> LaunchDescription:
    """Declare the arguments and start what they ask for."""
    return LaunchDescription([*bringup.arguments(), OpaqueFunction(function=start)])


def start(context: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Start the model servers and the nodes, and bring the nodes to active."""
    given = bringup.values(context)
    nodes = bringup.NodeWatch(bringup.pipeline(given).values(), given)
    return [
        *bringup.leaving(given),
        *bringup.surroundings(),
        *bringup.served_models(given),
        *nodes.entities(),
        *bringup.viewer(given),
    ]
