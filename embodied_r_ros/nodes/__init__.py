# SPDX-License-Identifier: Apache-2.0
"""ROS 2 nodes: the only place that imports rclpy and message packages."""
