# SPDX-License-Identifier: Apache-2.0
"""What this process has done so far, counted where it is done: for reports and for costs."""

from __future__ import annotations

from collections import Counter
import threading

IMAGES, KEYFRAMES, CALLS, TOKENS = 'images', 'keyframes', 'calls', 'tokens'


class WorkMeter:
    """Counts by name. Its methods may be called from several threads."""

    def __init__(self) -> None:
        self.asks_for_tokens = False  # True: model servers are asked what a reply took
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, name: str, count: int = 1) -> None:
        """Count something."""
        with self._lock:
            self._counts[name] += count

    def read(self) -> Counter[str]:
        """What was counted so far: images looked at, keyframes chosen, calls, tokens."""
        with self._lock:
            return self._counts.copy()


METER = WorkMeter()
