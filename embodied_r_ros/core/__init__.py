# SPDX-License-Identifier: Apache-2.0
"""From images to answers: keyframes, deltas, a scene with tools, reasoning. No ROS, no torch."""
