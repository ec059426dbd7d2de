# SPDX-License-Identifier: Apache-2.0
"""Rows, samples and reasoning traces: what models are trained on."""
