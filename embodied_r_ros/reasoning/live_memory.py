# SPDX-License-Identifier: Apache-2.0
"""Scene memory while things happen: episodes begin and end, deltas of the past come late."""

from __future__ import annotations

from collections import deque
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.reasoning.memory import SceneMemory

if TYPE_CHECKING:
    from embodied_r_ros.deltas import SemanticDelta
    from embodied_r_ros.reasoning.memory import MemoryConfig

_OVER = 100  # episodes whose late deltas are known as such


class LiveMemory:
    """A scene memory that belongs to the running episode. Thread-safe.

    An episode starts with its mark or with its first delta, whichever comes first, and forgets
    what was before. What then still comes from before it is left out and counted.
    """

    def __init__(self, config: MemoryConfig) -> None:
        self.left_out = 0  # deltas that came after their episode had been forgotten
        self.resets = 0
        self._memory = SceneMemory(config)
        self._episode_id = ''
        self._stopped_id: str | None = None  # ended last; None: another one runs, or none did
        self._over: deque[str] = deque(maxlen=_OVER)  # forgotten episodes
        self._lock = threading.Lock()

    @property
    def episode_id(self) -> str:
        """The running episode; empty: none is."""
        with self._lock:
            return self._episode_id

    def start_episode(self, episode_id: str) -> int:
        """Forget everything for a new episode; returns how many deltas that were."""
        with self._lock:
            return self._start(episode_id)

    def stop_episode(self) -> None:
        """Go on without an episode; what was seen in it stays known."""
        with self._lock:
            if self._episode_id:
                self._stopped_id, self._episode_id = self._episode_id, ''

    def add(self, delta: SemanticDelta) -> bool:
        """Remember a delta; False: it is from before the running episode."""
        with self._lock:
            if delta.episode_id not in {self._episode_id, self._stopped_id}:
                if not delta.episode_id or delta.episode_id in self._over:
                    self.left_out += 1
                    return False
                self._start(delta.episode_id)
            self.resets += self._memory.add(delta)
            return True

    def reset(self) -> int:
        """Forget everything; returns how many deltas that were."""
        with self._lock:
            return self._forget()

    def deltas(self) -> tuple[SemanticDelta, ...]:
        """Everything remembered, oldest first."""
        with self._lock:
            return self._memory.deltas()

    def _start(self, episode_id: str) -> int:
        if episode_id == self._episode_id:
            return 0
        self._over.extend(over for over in (self._episode_id, self._stopped_id) if over)
        self._episode_id, self._stopped_id = episode_id, None
        return self._forget()

    def _forget(self) -> int:
        self.resets += 1
        return self._memory.reset()
