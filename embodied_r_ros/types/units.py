# SPDX-License-Identifier: Apache-2.0
"""Units of time: stamps and durations of messages are integer nanoseconds."""

from __future__ import annotations

NS_PER_S = 1_000_000_000
