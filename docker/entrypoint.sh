#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sources ROS and the workspace, and last the virtual environment, so that its `ros2` is found
# first; then becomes what was asked for.
set -e
# shellcheck disable=SC1090,SC1091
source "/opt/ros/${ROS_DISTRO}/setup.bash"
source /ws/install/setup.bash
source /ws/.venv/bin/activate
exec "$@"
