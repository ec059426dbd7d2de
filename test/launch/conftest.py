# SPDX-License-Identifier: Apache-2.0
"""The ROS graph of the tests of nodes."""

from test.nodes.conftest import graph  # noqa: F401
