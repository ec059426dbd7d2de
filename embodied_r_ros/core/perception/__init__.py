# SPDX-License-Identifier: Apache-2.0
"""Perception: a pair of keyframes becomes a semantic delta, by geometry or by a model."""
