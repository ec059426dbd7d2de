# SPDX-License-Identifier: Apache-2.0
"""Perception by a vision-language model: prompts, structured replies, cache, perceiver."""
