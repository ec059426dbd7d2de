# SPDX-License-Identifier: Apache-2.0
"""A mirror of a slot that is kept like its store while model servers run."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import EmbodiedRError

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.serving.store import ModelStore

_FIRST_LOOK_S = 30.0  # which a start waits for a store


class StoreFollower:
    """Keeps a mirror like its store, in a thread of its own, until it is closed.

    While the store cannot be read, or has what is not whole, the last good version stays.
    """

    def __init__(
        self, store: ModelStore, period_s: float, say: Callable[[str], None] = lambda line: None
    ) -> None:
        """Begin; returns after the first look, or after 30 s.

        Args:
            store: What to follow.
            period_s: Time from one look to the next.
            say: Gets what changes, a line at a time; in that thread.
        """
        self._store = store
        self._period_s = period_s
        self._say = say
        self._problem = ''
        self._looked = threading.Event()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._follow, name='follower', daemon=True)
        self._thread.start()
        if not self._looked.wait(_FIRST_LOOK_S):
            say(f'{store.url} does not answer yet; goes on with {self._version()}')

    @property
    def problem(self) -> str:
        """Why the newest look found nothing to take; empty: it did, or nothing is new."""
        return self._problem

    def look(self) -> None:
        """Look once, and say what is new."""
        problem = ''
        try:
            if self._store.pull():
                self._say(f'{self._store.url}: {self._version()} is in force')
        except EmbodiedRError as error:
            problem = str(error)
        except Exception as error:  # whatever it was, later looks may find more
            problem = f'{self._store.url} cannot be followed: {type(error).__name__}: {error}'
        if problem and problem != self._problem:
            self._say(f'{problem}; goes on with {self._version()}')
        elif self._problem and not problem:
            self._say(f'{self._store.url} can be read again')
        self._problem = problem

    def close(self) -> None:
        """Look no more."""
        self._end.set()

    def _follow(self) -> None:
        while True:
            self.look()
            self._looked.set()
            if self._end.wait(self._period_s):
                return

    def _version(self) -> str:
        here = self._store.version_here()
        if here and here.number:
            return f'version {here.number}, {here.folder.name}'
        return "the profile's own model"
