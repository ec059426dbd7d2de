# SPDX-License-Identifier: Apache-2.0
"""Many camera bags become episodes: one process each, several at a time, and again where it ended.

An episode is named by its bag and by the digest of what that holds, so that a second run finds
what the first one finished, and a copy of a bag is no second episode.
"""

from __future__ import annotations

from collections import defaultdict
from concurrent.futures import as_completed, ThreadPoolExecutor
from contextlib import contextmanager, ExitStack
from dataclasses import asdict, dataclass
import json
import logging
import multiprocessing
import os
import shutil
import signal
import threading
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.reader import is_bag
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.common.processes import tie_to_parent
from embodied_r_ros.data.episodes.collect import collect_episode, CollectConfig
from embodied_r_ros.data.episodes.fleet import held, StageReport
from embodied_r_ros.data.episodes.inspect import bag_digest, why_unfit

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import SpawnProcess
    from pathlib import Path

    from embodied_r_ros.data.episodes.inspect import BagDigest
    from embodied_r_ros.data.episodes.manifest import FleetRecording

_SETTINGS = 'collect.json'
_NAME_DIGITS = 8  # of the digest, in the name of an episode


@dataclass(frozen=True)
class CollectedBag:
    """What became of a bag."""

    bag: Path
    episode: str = ''  # name of its folder; empty: there is none
    keyframes: int = 0
    failed: int = 0  # keyframes that could not be perceived
    was_there: bool = False  # it had been collected before
    reason: str = ''  # why there is no episode


@dataclass(frozen=True)
class _Job:
    """What one process does."""

    bag: Path
    folder: Path  # of the episode
    config: CollectConfig
    digest: BagDigest
    threads: int  # that OpenCV may use
    is_forced: bool  # whatever its audit says


def collect(
    bags: Sequence[Path],
    out: Path,
    config: CollectConfig,
    jobs: int = 1,
    *,
    is_forced: bool = False,
) -> Generator[CollectedBag, None, None]:
    """Collect bags; yields what became of each as it is done, in any order.

    Args:
        bags: Camera bags.
        out: Folder of the episodes: new, empty, or one in which the same was begun before.
        config: What is kept, and which perceiver perceives.
        jobs: Bags at the same time, each in a process of its own.
        is_forced: Collect bags that fail their audit too.

    Raises:
        InputError: An argument cannot be used, or the folder is of another collection.
    """
    if jobs < 1:
        msg = f'jobs is {jobs}: expected 1 or more'
        raise InputError(msg)
    with collection(out, config):
        yield from _collect(bags, out, config, jobs, is_forced=is_forced)


def _collect(
    bags: Sequence[Path], out: Path, config: CollectConfig, jobs: int, *, is_forced: bool
) -> Iterator[CollectedBag]:
    running = _Running(is_forced=is_forced)
    threads = max(1, (os.cpu_count() or 1) // jobs)
    pool = ThreadPoolExecutor(jobs, 'collect')
    try:
        futures = [pool.submit(running.collect, bag, out, config, threads) for bag in bags]
        for future in as_completed(futures):
            yield future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        running.end()
        pool.shutdown()


@contextmanager
def collection(out: Path, config: CollectConfig) -> Iterator[None]:
    """Hold a folder for one run, and see that all of its episodes are made alike.

    Raises:
        InputError: It is in use, of another kind, made with other settings, or not writable; or
            nobody perceives.
    """
    config.make_perceiver()  # a server that does not answer is no fault of a bag
    path = out / _SETTINGS
    if out.exists() and not path.exists() and (not out.is_dir() or any(out.iterdir())):
        msg = f'{out} is neither empty nor a folder of collected episodes: choose another'
        raise InputError(msg)
    with ExitStack() as stack:
        try:
            out.mkdir(parents=True, exist_ok=True)
            stack.enter_context(held(out, _SETTINGS, json.dumps(asdict(config), indent=1) + '\n'))
        except OSError as error:
            msg = f'cannot write to {out}: {error.strerror}'
            raise InputError(msg) from None
        try:
            yield
        finally:
            # Of processes that were killed, this time or before: a folder of a BagWriter.
            for hidden in out.glob(f'.*-{"[0-9a-f]" * _NAME_DIGITS}-*'):
                shutil.rmtree(hidden, ignore_errors=True)


class _Running:
    """The processes that are at work. Threads wait for them, one each."""

    def __init__(self, *, is_forced: bool) -> None:
        self._is_forced = is_forced
        # A fork would copy the threads of OpenCV as they are in the midst of work.
        self._context = multiprocessing.get_context('spawn')
        self._processes: set[SpawnProcess] = set()
        self._has_ended = False
        self._lock = threading.Lock()
        self._same: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def collect(self, bag: Path, out: Path, config: CollectConfig, threads: int) -> CollectedBag:
        """Collect a bag, unless it or a copy of it has been collected."""
        try:
            digest = bag_digest(bag)
        except EmbodiedRError as error:
            return CollectedBag(bag, reason=str(error))
        short = digest.sha256[:_NAME_DIGITS]
        with self._lock:
            alone = self._same[short]
        with alone:
            if there := next(out.glob(f'*-{short}'), None):
                return CollectedBag(bag, there.name, was_there=True)
            folder = out / _name_of(bag, digest)
            job = _Job(bag, folder, config, digest, threads, self._is_forced)
            return self._run(job)

    def _run(self, job: _Job) -> CollectedBag:
        """Collect a bag in a process of its own; whatever happens to it stays there."""
        ours, theirs = self._context.Pipe(duplex=False)
        process = self._context.Process(target=_in_process, args=(theirs, job), daemon=True)
        with self._lock:
            if self._has_ended:
                return CollectedBag(job.bag, reason='not begun')
            process.start()
            self._processes.add(process)
        theirs.close()
        try:
            result: CollectedBag = ours.recv()
        except EOFError:
            process.join()
            return CollectedBag(job.bag, reason=_death(process.exitcode))
        finally:
            ours.close()
        process.join()
        with self._lock:
            self._processes.discard(process)
        return result

    def end(self) -> None:
        """End what is still at work; what it left is removed with the hidden folders."""
        with self._lock:
            self._has_ended = True
            for process in self._processes:
                process.kill()


def _death(code: int | None) -> str:
    if code == -signal.SIGKILL:
        return 'its process was killed, most likely for want of memory: use fewer --jobs'
    return f'its process died (exit code {code})'


@dataclass(frozen=True)
class CollectStage:
    """Collects a recording of a fleet into a folder that is held by `collection`."""

    out: Path
    config: CollectConfig
    threads: int = 1  # that OpenCV may use
    is_forced: bool = False  # whatever audits say

    def __call__(self, path: Path, recording: FleetRecording) -> StageReport:
        """Collect it, unless it is there (see `FleetStage`)."""
        del recording  # an episode is named by all of its bag's content
        cv2.setNumThreads(self.threads)
        digest = bag_digest(path)
        folder = self.out / _name_of(path, digest)
        if folder.exists():
            return StageReport(folder.name)
        job = _Job(path, folder, self.config, digest, self.threads, self.is_forced)
        result = _collect_one(job)
        return StageReport(result.episode, result.keyframes, result.reason)


def _name_of(bag: Path, digest: BagDigest) -> str:
    """Name of the episode of a bag."""
    stem = bag.name if bag.is_dir() else bag.stem
    return f'{stem}-{digest.sha256[:_NAME_DIGITS]}'


def _collect_one(job: _Job) -> CollectedBag:
    """Collect a bag that is fit for it.

    Raises:
        EmbodiedRError: It cannot be collected.
    """
    if not job.is_forced and is_bag(job.bag) and (why := why_unfit(job.bag)):
        return CollectedBag(job.bag, reason=why)
    summary = collect_episode(job.bag, job.folder, job.config, job.digest)
    return CollectedBag(job.bag, job.folder.name, summary.keyframes, summary.failed)


def _in_process(result: Connection[Any, Any], job: _Job) -> None:
    tie_to_parent()
    # An interrupt is for the process that started this one, and which ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(format='embodied-r: note: %(message)s')
    cv2.setNumThreads(job.threads)
    try:
        reply = _collect_one(job)
    except EmbodiedRError as error:
        reply = CollectedBag(job.bag, reason=str(error))
    except Exception as error:  # one bag, however odd, never ends the others
        reply = CollectedBag(job.bag, reason=f'{type(error).__name__}: {error}')
    result.send(reply)
    result.close()
