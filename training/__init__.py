# SPDX-License-Identifier: Apache-2.0
"""Offline: rows, rewards, training and evaluation. Run in place; knows episodes, never ROS."""
