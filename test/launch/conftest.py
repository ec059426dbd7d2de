# SPDX-License-Identifier: Apache-2.0
"""Launch files are tried for real where ROS, launch and this package are installed."""

from __future__ import annotations

from importlib.util import find_spec

if find_spec('launch_ros') is None or find_spec('embodied_r_msgs') is None:
    collect_ignore_glob = ['test_launch_files.py']
else:
    from test.nodes.conftest import graph  # noqa: F401
