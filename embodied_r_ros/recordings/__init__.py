# SPDX-License-Identifier: Apache-2.0
"""Recordings: bags and other sources of images, read, written and played without ROS."""
