# SPDX-License-Identifier: Apache-2.0
"""A scenario: everything that chance decides about an episode, before anything is seen of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from embodied_r_ros.geometry import Pose, quaternion_from_matrix, rotation_from_ypr
from embodied_r_ros.sim.events import draw_tracks
from embodied_r_ros.sim.path import draw_path
from embodied_r_ros.sim.room import furnished_room, possible_labels
from embodied_r_ros.sim.way_back import with_way_back
import numpy as np

if TYPE_CHECKING:
    from embodied_r_ros.recordings.layout import Vector
    from embodied_r_ros.sim.config import IndoorConfig
    from embodied_r_ros.sim.events import Track
    from embodied_r_ros.sim.path import CameraPath
    from embodied_r_ros.sim.room import Room

ODOM_FRAME = 'odom'
_NS = 1_000_000_000
# Episodes start within four months of this; no two of a run at the same time, most likely.
_EPOCH_NS = 1_700_000_000 * _NS
_START_SPREAD_S = 10_000_000


@dataclass(frozen=True)
class Scenario:
    """A room, a way through it, and what happens in the meantime."""

    episode_id: str
    scene_id: str
    room: Room
    path: CameraPath
    tracks: tuple[Track, ...]  # of each thing of the room
    stamps_ns: tuple[int, ...]  # of the images
    texture_seed: int
    labels: tuple[str, ...] = ()  # that things of such rooms may have; empty: any
    may_return: bool = False  # in such rooms some paths lead back to their start

    def seconds(self, stamp_ns: int) -> float:
        """Time since the first image [s]."""
        return (stamp_ns - self.stamps_ns[0]) / _NS

    def state(self, stamp_ns: int) -> tuple[float, float, float, float, float]:
        """x, y, z [m], yaw (not wrapped) and pitch [rad] of the camera link."""
        [state] = self.path.states(np.array([self.seconds(stamp_ns)]))
        x, y, z, yaw, pitch = (float(value) for value in state)
        return x, y, z, yaw, pitch

    def pose(self, stamp_ns: int) -> Pose:
        """Pose of the camera link."""
        x, y, z, yaw, pitch = self.state(stamp_ns)
        rotation = rotation_from_ypr(yaw, pitch, 0.0)
        return Pose((x, y, z), quaternion_from_matrix(rotation), ODOM_FRAME)

    def positions(self, stamp_ns: int) -> list[Vector | None]:
        """Where each thing is [m]; None: absent."""
        return [
            next((s.position_at(stamp_ns) for s in track if s.from_ns <= stamp_ns < s.to_ns), None)
            for track in self.tracks
        ]


def draw_scenario(config: IndoorConfig, seed: int, index: int, attempt: int) -> Scenario:
    """Draw a scenario; equal arguments give equal ones.

    Room, path and events have random numbers of their own, so that a longer episode begins in the
    same room.

    Args:
        config: What episodes are like.
        seed: Seed of the run.
        index: Number of the episode in its run.
        attempt: Counts the draws for this number.

    Raises:
        UnfitError: This draw leads nowhere.
    """
    sources = np.random.SeedSequence([seed, index, attempt]).spawn(5)
    room_rng, path_rng, event_rng, rng, back_rng = (np.random.default_rng(s) for s in sources)
    # The same for every attempt: else those that are harder to draw would become fewer.
    is_return = np.random.default_rng([seed, index]).random() < config.returns
    start_ns = _EPOCH_NS + int(rng.integers(_START_SPREAD_S)) * _NS
    count = max(2, round(config.duration_s * config.rate_hz))
    room = furnished_room(room_rng, config.kinds)
    kinds = '' if config.kinds == 'all' else f'{config.kinds}-'
    signs = 'signs-' if config.signs else ''  # another recording of the same room
    returns = 'returns-' if config.returns else ''
    path = draw_path(path_rng, room, config.duration_s)
    if is_return:
        path = with_way_back(back_rng, room, path, config.duration_s)
    return Scenario(
        episode_id=f'indoor-{kinds}{signs}{returns}{seed}-{index:05d}',
        scene_id=f'room-{kinds}{seed}-{index:05d}',
        room=replace(room, signs=config.signs),
        path=path,
        tracks=tuple(draw_tracks(event_rng, room, path, start_ns, config.duration_s)),
        stamps_ns=tuple(start_ns + round(i * _NS / config.rate_hz) for i in range(count)),
        texture_seed=int(rng.integers(2**32)),
        labels=possible_labels(config.kinds),
        may_return=config.returns > 0,
    )
