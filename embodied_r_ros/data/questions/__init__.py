# SPDX-License-Identifier: Apache-2.0
"""Questions with solutions, derived from what an episode proves."""
