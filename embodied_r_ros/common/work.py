# SPDX-License-Identifier: Apache-2.0
"""Work: the next jobs are done ahead while the last result is looked at, and work is counted.

Counts are of this process, made where the work is done: for reports and for costs.
"""

from __future__ import annotations

from collections import Counter, deque
from concurrent.futures import ThreadPoolExecutor
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

Result = TypeVar('Result')


def done_ahead(
    jobs: Iterable[Callable[[], Result]], ahead: int = 4, threads: int = 1
) -> Generator[Result, None, None]:
    """Yield the results of jobs in order, and do the next few meanwhile in other threads.

    Args:
        jobs: What to do; the iterable itself is read in the caller's thread.
        ahead: How many results may wait.
        threads: How many jobs are done at the same time.

    Raises:
        Exception: Whatever a job raises, when its turn comes.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(threads) as pool:
        try:
            for job in jobs:
                waiting.append(pool.submit(job))
                if len(waiting) > ahead:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()


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
