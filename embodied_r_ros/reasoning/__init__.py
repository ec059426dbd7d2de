# SPDX-License-Identifier: Apache-2.0
"""Reasoning: scene memory, the one prompt builder, the one parser, and answers."""
