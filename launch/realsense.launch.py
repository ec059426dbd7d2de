# SPDX-License-Identifier: Apache-2.0
"""An example: the pipeline behind an Intel RealSense camera (package realsense2_camera).

ros2 launch embodied_r_ros realsense.launch.py
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory
from embodied_r_ros.nodes import bringup
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchDescription


def generate_launch_description() -> LaunchDescription:
    """Start the camera and the pipeline, both with the transport that does not lose images."""
    camera = Path(get_package_share_directory('realsense2_camera'), 'launch', 'rs_launch.py')
    pipeline = Path(__file__).parent / 'embodied_r.launch.py'
    profile = LaunchConfiguration('profile')
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'profile', default_value='embedded', description='model profile (config/models)'
            ),
            # Before the camera: the sender is the one that needs it.
            *bringup.transport(),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(camera)),
                launch_arguments={
                    'rgb_camera.color_profile': '640x480x30',
                    'enable_depth': 'false',
                }.items(),
            ),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(pipeline)),
                launch_arguments={
                    'profile': profile,
                    'image_topic': '/camera/camera/color/image_raw',
                    'camera_info_topic': '/camera/camera/color/camera_info',
                }.items(),
            ),
        ]
    )
