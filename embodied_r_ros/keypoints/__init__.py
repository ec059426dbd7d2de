# SPDX-License-Identifier: Apache-2.0
"""Keypoints of demonstrations: where an arm comes to rest, and where its gripper acts."""
