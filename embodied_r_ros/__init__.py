# SPDX-License-Identifier: Apache-2.0
"""Spatial reasoning from a robot's own camera."""
