#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Sources ROS, the virtual environment and the workspace, then becomes what was asked for.
set -e
# shellcheck disable=SC1090,SC1091
source "/opt/ros/${ROS_DISTRO}/setup.bash"
source /ws/.venv/bin/activate
source /ws/install/setup.bash
exec "$@"
