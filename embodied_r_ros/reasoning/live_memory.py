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
    what was before. What then still comes from before it is left out and counted. A delta that
    names no episode is from before it where its stamp is.
    """

    def __init__(self, config: MemoryConfig) -> None:
        self.left_out = 0  # deltas that came after their episode had been forgotten
        self.resets = 0
        self._memory = SceneMemory(config)
        self._episode_id = ''
        self._start_ns = 0  # of the running episode; 0: not known
        self._stopped_id: str | None = None  # ended last; None: another one runs, or none did
        self._over: deque[str] = deque(maxlen=_OVER)  # forgotten episodes
        self._lock = threading.Lock()

    @property
    def episode_id(self) -> str:
        """The running episode; empty: none is."""
        with self._lock:
            return self._episode_id

    def start_episode(self, episode_id: str, stamp_ns: int) -> int:
        """Forget everything for an episode that starts; returns how many deltas that were.

        Args:
            episode_id: Its id.
            stamp_ns: When it started, in the clock of the image stamps [ns]; 0: not known.
        """
        with self._lock:
            forgotten = self._start(episode_id)
            self._start_ns = stamp_ns
            return forgotten

    def stop_episode(self) -> None:
        """Go on without an episode; what was seen in it stays known."""
        with self._lock:
            if self._episode_id:
                self._stopped_id, self._episode_id = self._episode_id, ''

    def add(self, delta: SemanticDelta) -> bool:
        """Remember a delta; False: it is from before the running episode."""
        with self._lock:
            if delta.episode_id not in {self._episode_id, self._stopped_id}:
                if self._is_past(delta):
                    self.left_out += 1
                    return False
                if delta.episode_id:
                    self._start(delta.episode_id)
                    self._start_ns = delta.stamp_ns
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

    def _is_past(self, delta: SemanticDelta) -> bool:
        """Tell whether a delta that is not of the running episode is from before it."""
        if delta.episode_id:
            return delta.episode_id in self._over
        # A camera that hears no marks names no episode, and is not blind for it.
        return not 0 < self._start_ns <= delta.stamp_ns

    def _start(self, episode_id: str) -> int:
        if episode_id == self._episode_id:
            return 0
        self._over.extend(over for over in (self._episode_id, self._stopped_id) if over)
        self._episode_id, self._stopped_id = episode_id, None
        return self._forget()

    def _forget(self) -> int:
        self.resets += 1
        return self._memory.reset()
