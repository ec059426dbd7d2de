# SPDX-License-Identifier: Apache-2.0
"""Runs of indoor episodes: draw, keep what is fit, write, in one process or several.

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
from embodied_r_ros.sim.episode_writer import Origin, write_episode
from embodied_r_ros.sim.room import UnfitError
from embodied_r_ros.sim.scenario import draw_scenario
from embodied_r_ros.sim.truth import true_episode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from embodied_r_ros.sim.config import IndoorConfig
    from embodied_r_ros.sim.scenario import Scenario
    from embodied_r_ros.sim.truth import Truth

MIN_KEYFRAMES = 4
MIN_SEEN = 2  # things that the keyframes of an episode show
_ATTEMPTS = 50  # draws per episode


def generate(
    config: IndoorConfig, seed: int, episodes: int, out: Path, workers: int = 1
) -> Iterator[Path]:
    """Write episodes, one bag each, and yield their folders as they are done.

    Args:
        config: What the episodes are like.
        seed: Seed of the run, not negative.
        episodes: How many to keep.
        out: Folder for the bags; it does not exist yet, or is empty.
        workers: Processes to use; 1: this one.

    Raises:
        InputError: An argument cannot be used, or the folder is not empty.
        EmbodiedRError: The config leaves no fit episode.
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
    if workers > 1:
        return _tidied(_generate_parallel(config, seed, episodes, out, workers), out)
    return _tidied((_write(config, seed, index, out) for index in range(episodes)), out)


def draw_episode(config: IndoorConfig, seed: int, index: int) -> tuple[Scenario, Truth, Origin]:
    """Draw until an episode is fit: enough keyframes, and something to see in them.

    Args:
        config: What episodes are like.
        seed: Seed of the run.
        index: Number of the episode in its run.

    Raises:
        EmbodiedRError: None was fit.
    """
    for attempt in range(_ATTEMPTS):
        try:
            scenario = draw_scenario(config, seed, index, attempt)
        except UnfitError:
            continue
        truth = true_episode(scenario, config)
        if _is_fit(truth):
            return scenario, truth, Origin(seed, index, attempt)
    msg = (
        f'episode {index} of seed {seed}: none of {_ATTEMPTS} draws has {MIN_KEYFRAMES} keyframes '
        f'that show {MIN_SEEN} things in {config.duration_s} s: choose a longer duration'
    )
    raise EmbodiedRError(msg)


def _is_fit(truth: Truth) -> bool:
    stamps = {keyframe.stamp_ns for keyframe in truth.keyframes}
    seen = {
        view.object_id
        for image in truth.layout.images
        if image.stamp_ns in stamps
        for view in image.views
        if view.visible
    }
    return len(truth.keyframes) >= MIN_KEYFRAMES and len(seen) >= MIN_SEEN


def _write(config: IndoorConfig, seed: int, index: int, out: Path) -> Path:
    path = out / f'episode_{index:05d}'
    scenario, truth, origin = draw_episode(config, seed, index)
    write_episode(path, scenario, truth, config, origin)
    return path


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


def _generate_parallel(
    config: IndoorConfig, seed: int, episodes: int, out: Path, workers: int
) -> Iterator[Path]:
    # Renderers do not survive a fork.
    context = multiprocessing.get_context('spawn')
    pool = ProcessPoolExecutor(workers, mp_context=context)
    try:
        with _interrupts_held():
            futures = [pool.submit(_write, config, seed, index, out) for index in range(episodes)]
        for future in as_completed(futures):
            yield future.result()
    except BrokenProcessPool:
        msg = 'a worker died, most likely for want of memory: use fewer workers'
        raise EmbodiedRError(msg) from None
    finally:
        pool.shutdown(cancel_futures=True)
