# SPDX-License-Identifier: Apache-2.0
"""Published benchmarks: their questions as they publish them, and their own rules of scoring."""
