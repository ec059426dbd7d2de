# SPDX-License-Identifier: Apache-2.0
"""Time limits of requests, which anybody can send."""

from __future__ import annotations

import math

_LONGEST_S = 1e9  # far beyond this, a thread cannot wait


def seconds(value: float) -> float:
    """A time limit of a request [s]; what is none means 0, the node's default."""
    return min(float(value), _LONGEST_S) if math.isfinite(value) and value > 0 else 0.0
