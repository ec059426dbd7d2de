# SPDX-License-Identifier: Apache-2.0
"""What a recorder that died left behind is recovered at the next start, off the executor."""

from __future__ import annotations

import threading
from typing import Any, TYPE_CHECKING

from embodied_r_ros.recordings.bag_lock import is_locked
from embodied_r_ros.recordings.mcap_content import may_be_of_others
from embodied_r_ros.recordings.recovery import episodes_in, mcap_files, recover_all

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.recordings.recovery import Recovery

_STOP_TIMEOUT_S = 5.0


class Recovering:
    """Recovers the episodes of a folder that were never closed, in a thread of its own."""

    def __init__(self, folder: Path, logger: Any) -> None:
        """Start the thread.

        Args:
            folder: Folder of the episodes.
            logger: The node's; each episode is told.
        """
        self._folder = folder
        self._log = logger
        self._done: list[Recovery] = []
        self._failure = ''
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name='recover episodes', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the work; an episode that is not done is left as it is."""
        self._is_stopped.set()
        self._thread.join(_STOP_TIMEOUT_S)

    def values(self) -> dict[str, Any]:
        """How far it is, for the diagnostics."""
        good = sum(not done.reason for done in tuple(self._done))
        return {
            'recovering': self._thread.is_alive(),
            'recovered': good,
            'not_recovered': len(self._done) - good,
        }

    def problem(self) -> str:
        """What is left to people; empty: nothing is."""
        bad = [done for done in tuple(self._done) if not done.is_good]
        return self._failure or (f'{bad[0].episode.name}: {bad[0].text()}' if bad else '')

    def _run(self) -> None:
        try:
            episodes = [path for path in episodes_in(self._folder) if _is_left_behind(path)]
        except OSError as error:
            self._failure = f'episodes cannot be read: {error}'
            return
        for done in recover_all(episodes, lambda: not self._is_stopped.is_set()):
            if done.was_closed:
                continue
            if self._is_stopped.is_set() and done.reason:
                return
            self._done.append(done)
            said = f'episode {done.episode.name} was not closed: {done.text()}'
            if done.is_good:  # a place in the code may log at one level only
                self._log.info(said)
            else:
                self._log.error(said)


def _is_left_behind(episode: Path) -> bool:
    """Tell whether nobody can be at work on an episode: recorders of others lock nothing."""
    return not is_locked(episode) and not any(map(may_be_of_others, mcap_files(episode)))
