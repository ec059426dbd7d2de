# SPDX-License-Identifier: Apache-2.0
"""Reasoning: the one prompt builder, the one parser, the reasoner and its queue."""
