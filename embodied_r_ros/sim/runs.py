# SPDX-License-Identifier: Apache-2.0
"""Settings and runs of simulated episodes: one bag each, in one process or several."""

from __future__ import annotations

from concurrent.futures import as_completed, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass
import math
import multiprocessing
import shutil
import signal
from typing import TYPE_CHECKING

from embodied_r_ros.bags.writer import BagLock, is_locked
from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, InputError
from embodied_r_ros.common.files import make_empty_folder
from embodied_r_ros.common.processes import tie_to_parent
from embodied_r_ros.common.settings import setting, Settings
from embodied_r_ros.core.types.geometry import Intrinsics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HORIZONTAL_FOV_RAD = math.radians(90)
ARM_FOV_RAD = math.radians(50)


@dataclass(frozen=True)
class IndoorConfig(Settings):
    """What indoor episodes are like. The world, path and truth depend on it and on the seed."""

    rate_hz: float = setting(10.0, 'Images per second [Hz]', between=(1, 60))
    duration_s: float = setting(20.0, 'Length of an episode [s]', between=(5, 3600))
    width_px: int = setting(320, 'Width of the images [px]', between=(64, 1920))
    height_px: int = setting(240, 'Height of the images [px]', between=(48, 1440))
    images: bool = setting(True, 'Render images; without them the truth is the same')
    kinds: str = setting(
        'furniture',
        "Kinds of things: 'furniture' with names in a room to live in; 'all': coloured shapes in "
        'a grey one',
        choices=('furniture', 'all'),
    )
    signs: tuple[str, ...] = setting(
        (), 'Texts of signs on the walls, in letters and as QR codes; nothing else changes'
    )
    returns: float = setting(
        0.0, 'Share of the episodes whose path leads back to its start', between=(0, 1)
    )
    visit: int = setting(
        0,
        'Which visit to a room where nothing moves meanwhile: 1 the first, 2 the next one, by '
        'another way; 0: things move while the camera is there',
        between=(0, 99),
    )
    changes: int = setting(
        3, 'Things that are moved, taken away or brought between two visits', between=(0, 20)
    )
    jpeg_quality: int = setting(90, 'JPEG quality', between=(1, 100))

    def __post_init__(self) -> None:
        """Check values, and what must fit together."""
        super().__post_init__()
        if self.visit and self.kinds == 'furniture':
            msg = f"visit is {self.visit}: nothing changes in furnished rooms; give kinds 'all'"
            raise ConfigError(msg)

    def camera(self) -> Intrinsics:
        """The pinhole camera: 90 degrees wide, square pixels, no distortion."""
        return Intrinsics.from_fov(self.width_px, self.height_px, HORIZONTAL_FOV_RAD)


# Files of robots for tasks whose things are higher than blocks.
ROBOTS_OF_TASKS = {'drawer': 'sawyer_sim_drawer'}


@dataclass(frozen=True)
class SimArmConfig(Settings):
    """What demonstrations of the arm are like. Motion and truth depend on it and on the seed."""

    task: str = setting(
        'pick', 'What is shown', choices=('pick', 'place', 'stack', 'push', 'drawer')
    )
    rate_hz: float = setting(20.0, 'Recorded states and images per second [Hz]', between=(5, 100))
    width_px: int = setting(320, 'Width of the images [px]', between=(64, 1920))
    height_px: int = setting(240, 'Height of the images [px]', between=(48, 1440))
    images: bool = setting(True, 'Render images; without them the motion is the same')
    noise: float = setting(
        1.0, 'Times the usual noise of encoders; 0: what is measured is exact', between=(0, 20)
    )
    jpeg_quality: int = setting(90, 'JPEG quality', between=(1, 100))

    def camera(self) -> Intrinsics:
        """The pinhole camera: 50 degrees wide, square pixels, no distortion."""
        return Intrinsics.from_fov(self.width_px, self.height_px, ARM_FOV_RAD)


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
        return _tidy(_run_parallel(write, episodes, workers), out)
    return _tidy((write(index) for index in range(episodes)), out)


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
    if not is_locked(out):
        _remove_unfinished(out)  # of a process that was killed
    make_empty_folder(out)


def _tidy(bags: Iterator[Path], out: Path) -> Iterator[Path]:
    """Hold the folder, and remove what an interrupt in the midst of tidying up has left of a bag.

    Raises:
        InputError: Another process writes there.
    """
    try:
        lock = BagLock(out)
    except BlockingIOError:
        msg = f'{out} is being written by another process: choose another folder'
        raise InputError(msg) from None
    with lock:
        try:
            yield from bags
        finally:
            _remove_unfinished(out)


def _remove_unfinished(out: Path) -> None:
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
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=tie_to_parent)
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
