# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from functools import partial
import threading
from typing import TYPE_CHECKING

from embodied_r_ros.common.work import done_ahead
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_results_come_in_order() -> None:
    assert list(done_ahead([partial(pow, 2, n) for n in range(20)])) == [2**n for n in range(20)]


def test_no_more_is_done_ahead_than_asked_for() -> None:
    asked = []

    def jobs() -> Iterator[Callable[[], int]]:
        for index in range(100):
            asked.append(index)
            yield partial(int, index)

    results = done_ahead(jobs(), ahead=3)
    assert next(results) == 0
    assert asked == [0, 1, 2, 3]
    results.close()
    assert asked == [0, 1, 2, 3]


def test_an_error_comes_when_its_turn_does() -> None:
    results = done_ahead([partial(int, '1'), partial(int, 'x'), partial(int, '2')])
    assert next(results) == 1
    with pytest.raises(ValueError, match="'x'"):
        next(results)


def test_jobs_run_in_another_thread_and_their_list_is_read_in_this_one() -> None:
    threads = set()

    def jobs() -> Iterator[Callable[[], int]]:
        threads.add(threading.get_ident())
        yield threading.get_ident

    [worker] = done_ahead(jobs())
    assert threads == {threading.get_ident()}
    assert worker not in threads
