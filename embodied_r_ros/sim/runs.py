# SPDX-License-Identifier: Apache-2.0
"""Runs of simulated episodes: one bag each, in one process or several.

Workers finish the episode that they are at when the run ends early, so that a bag is whole or not
there. What an episode is depends on the seed and its number alone, not on the workers.
"""

from __future__ import annotations

from concurrent.futures import as_completed, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
import multiprocessing
import shutil
import signal
from typing import TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError, InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def run_episodes(
    write: Callable[[int], Path], seed: int, episodes: int, out: Path, workers: int = 1
) -> Iterator[Path]:
    """Write episodes, and yield their folders as they are done.

    Args:
        write: Writes the episode of a number into `out`; can be sent to another process.
        seed: Seed of the run, not negative.
        episodes: How many.
        out: Folder for the bags; it does not exist yet, or is empty.
        workers: Processes to use; 1: this one.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
        EmbodiedRError: A worker died, or `write` failed.
    """
    prepare_run(seed, episodes, out, workers)
    if workers > 1:
        return _tidied(_run_parallel(write, episodes, workers), out)
    return _tidied((write(index) for index in range(episodes)), out)


def prepare_run(seed: int, episodes: int, out: Path, workers: int = 1) -> None:
    """Check the arguments of a run, and make its folder.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
    """
    least = {'seed': (seed, 0), 'episodes': (episodes, 1), 'workers': (workers, 1)}
    for name, (value, minimum) in least.items():
        if value < minimum:
            msg = f'{name} is {value}: expected {minimum} or more'
            raise InputError(msg)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        msg = f'{out} is not an empty folder: remove it, or choose another'
        raise InputError(msg)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f'cannot write to {out}: {error.strerror}'
        raise InputError(msg) from None


def _tidied(bags: Iterator[Path], out: Path) -> Iterator[Path]:
    """Remove what an interrupt in the midst of tidying up has left of a bag."""
    try:
        yield from bags
    finally:
        for hidden in out.glob('.episode_*'):
            shutil.rmtree(hidden, ignore_errors=True)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold interrupts back; processes that are started meanwhile never get them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _run_parallel(write: Callable[[int], Path], episodes: int, workers: int) -> Iterator[Path]:
    # Renderers do not survive a fork.
    context = multiprocessing.get_context('spawn')
    pool = ProcessPoolExecutor(workers, mp_context=context)
    try:
        with _interrupts_held():
            futures = [pool.submit(write, index) for index in range(episodes)]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        msg = 'a worker died, most likely for want of memory: use fewer workers'
        raise EmbodiedRError(msg) from None
    finally:
        pool.shutdown(cancel_futures=True)
