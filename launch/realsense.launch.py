# SPDX-License-Identifier: Apache-2.0
"""An example: the pipeline behind an Intel RealSense camera (package realsense2_camera).

ros2 launch embodied_r_ros realsense.launch.py
"""

from pathlib import Path

from ament_index_python.packages import get_package_share_directory, PackageNotFoundError
from embodied_r_ros.nodes import bringup
from launch.actions import DeclareLaunchArgument, IncludeLaunchDescription, OpaqueFunction
from launch.launch_description_sources import PythonLaunchDescriptionSource
from launch.substitutions import LaunchConfiguration

from launch import LaunchContext, LaunchDescription, LaunchDescriptionEntity


def generate_launch_description() -> LaunchDescription:
    """Start the camera and the pipeline, both with the transport that does not lose images."""
    pipeline = Path(__file__).parent / 'embodied_r.launch.py'
    profile = LaunchConfiguration('profile')
    return LaunchDescription(
        [
            DeclareLaunchArgument(
                'profile', default_value='tools', description='model profile (config/models)'
            ),
            # Before the camera: the sender is the one that needs it.
            *bringup.surroundings(),
            OpaqueFunction(function=camera),
            IncludeLaunchDescription(
                PythonLaunchDescriptionSource(str(pipeline)),
                launch_arguments={
                    'profile': profile,
                    'image_topic': '/camera/camera/color/image_raw',
                    'camera_info_topic': '/camera/camera/color/camera_info',
                    'depth_topic': '/camera/camera/aligned_depth_to_color/image_raw',
                }.items(),
            ),
        ]
    )


def camera(_: LaunchContext) -> list[LaunchDescriptionEntity]:
    """Start the driver.

    Raises:
        RuntimeError: It is not installed.
    """
    try:
        driver = Path(get_package_share_directory('realsense2_camera'))
    except PackageNotFoundError:
        msg = (
            'the driver realsense2_camera is not installed: '
            'apt install ros-$ROS_DISTRO-realsense2-camera, or build it in this workspace'
        )
        raise RuntimeError(msg) from None
    return [
        IncludeLaunchDescription(
            PythonLaunchDescriptionSource(str(driver / 'launch' / 'rs_launch.py')),
            launch_arguments={
                'rgb_camera.color_profile': '640x480x30',
                'depth_module.depth_profile': '640x480x30',
                'enable_depth': 'true',
                'align_depth.enable': 'true',
            }.items(),
        )
    ]
