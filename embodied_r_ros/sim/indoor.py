# SPDX-License-Identifier: Apache-2.0
"""Runs of indoor episodes: draw, keep what is fit, write."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError
from embodied_r_ros.sim.episode_writer import Origin, write_episode
from embodied_r_ros.sim.room import UnfitError
from embodied_r_ros.sim.runs import run_episodes
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
    write = partial(_write, config, seed, out)
    return run_episodes(write, seed, episodes, out, workers)


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


def _write(config: IndoorConfig, seed: int, out: Path, index: int) -> Path:
    path = out / f'episode_{index:05d}'
    scenario, truth, origin = draw_episode(config, seed, index)
    write_episode(path, scenario, truth, config, origin)
    return path
