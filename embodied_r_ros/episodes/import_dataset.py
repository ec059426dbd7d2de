# SPDX-License-Identifier: Apache-2.0
"""A dataset of demonstrations, of whichever kind, becomes one bag per episode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.episodes.import_lerobot import lerobot_episodes
from embodied_r_ros.episodes.import_mapping import DemoMapping, outcome_of, write_episode
from embodied_r_ros.episodes.import_rlbench import rlbench_episodes
from embodied_r_ros.types.episodes import EpisodeOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


def import_dataset(
    root: Path,
    mapping_file: Path,
    out: Path,
    on_failed: Callable[[str], object] = lambda name: None,
) -> Iterator[Path]:
    """Write the episodes of a dataset, and yield the folders of their bags.

    Args:
        root: Folder of a LeRobot dataset (it has meta/info.json), or one as RLBench writes them.
        mapping_file: YAML that says what its numbers mean.
        out: Folder for the bags; it does not exist yet, or is empty.
        on_failed: Gets the name of each episode that did not succeed, which is left out.

    Raises:
        InputError: Something cannot be read, or does not fit.
        BagError: A bag cannot be written.
    """
    mapping = DemoMapping.from_yaml(mapping_file)
    if not root.is_dir():
        msg = f'{root} is not a folder: expected a dataset of LeRobot, or folders of RLBench'
        raise InputError(msg)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        msg = f'{out} is not an empty folder: remove it, or choose another'
        raise InputError(msg)
    is_lerobot = (root / 'meta' / 'info.json').exists()
    read = lerobot_episodes if is_lerobot else rlbench_episodes
    for episode in read(root, mapping):
        if outcome_of(episode, mapping) is EpisodeOutcome.FAILURE:
            on_failed(episode.name)
            continue
        path = out / episode.name
        write_episode(path, episode, mapping, mapping_file.parent, root.name)
        yield path
