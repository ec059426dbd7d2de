# SPDX-License-Identifier: Apache-2.0
"""The ROS graph of the tests of nodes, and what skips them."""

from test.nodes.conftest import graph, pytest_pycollect_makemodule  # noqa: F401
