# SPDX-License-Identifier: Apache-2.0
"""The ROS graph of the tests of nodes, and what skips them."""
