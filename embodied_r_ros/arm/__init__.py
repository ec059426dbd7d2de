# SPDX-License-Identifier: Apache-2.0
"""Robot-R1: the robot, its keypoints and candidates, proposals and their gate."""
