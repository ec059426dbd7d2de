# SPDX-License-Identifier: Apache-2.0
"""Work done ahead: the next images are decoded while the last one is looked at."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from concurrent.futures import Future

Result = TypeVar('Result')


def done_ahead(
    jobs: Iterable[Callable[[], Result]], ahead: int = 4
) -> Generator[Result, None, None]:
    """Yield the results of jobs in order, and do the next few meanwhile in one other thread.

    Args:
        jobs: What to do; the iterable itself is read in the caller's thread.
        ahead: How many results may wait.

    Raises:
        Exception: Whatever a job raises, when its turn comes.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(max_workers=1) as pool:
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
