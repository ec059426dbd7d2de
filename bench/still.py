# SPDX-License-Identifier: Apache-2.0
"""Keyframes before a camera that stands still, against events that were written down beforehand."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.core.types.geometry import Intrinsics, NS_PER_S
from embodied_r_ros.core.types.images import StampedImage
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

EVENTS = Path(__file__).parents[1] / 'test/core/keyframes/still_events.json'
NEAR_S = 1.0
_RATE_HZ = 10.0


def load() -> dict[str, dict[str, Any]]:
    return json.loads(EVENTS.read_text())['clips']


def images_of(name: str, clip: dict[str, Any], folder: Path) -> Iterator[StampedImage]:
    if 'room' in clip:
        yield from room(clip['room'])
        return
    [path] = folder.glob(f'{name}.*')
    with open_source(path) as images:
        yield from images


def room(script: dict[str, Any]) -> Iterator[StampedImage]:
    from embodied_r_ros.sim.indoor.episodes import draw_episode
    from embodied_r_ros.sim.indoor.world import World, WorldRenderer
    from embodied_r_ros.sim.runs import IndoorConfig

    scenario, _, _ = draw_episode(IndoorConfig(), script['seed'], 0)
    pose = scenario.pose(scenario.stamps_ns[0] + round(script['at_s'] * NS_PER_S))
    world = World(scenario.room, np.random.default_rng(scenario.texture_seed))
    homes = [np.array(thing.position) for thing in scenario.room.things]
    camera = Intrinsics.from_fov(320, 240, math.radians(66))
    rng = np.random.default_rng(script['seed'])
    with WorldRenderer(world, camera) as renderer:
        for index in range(round(script['seconds'] * _RATE_HZ)):
            seconds = index / _RATE_HZ
            world.place([_place(script['steps'], k, home, seconds) for k, home in enumerate(homes)])
            image = renderer.image(pose).astype(np.float32)
            light = 1 + 0.1 * math.sin(seconds / 15) + 0.02 * math.sin(7.3 * index)
            image = image * light + rng.normal(0, 4, image.shape)
            yield StampedImage(index, round(seconds * NS_PER_S), np.clip(image, 0, 255).astype(np.uint8))


def _place(steps: list[Any], thing: int, home: Any, seconds: float) -> Any:
    place: Any = home
    for start, which, offset, length in steps:
        if which != thing or seconds < start:
            continue
        if offset is None:
            place = None
            continue
        goal = home + np.array(offset)
        share = min(1.0, (seconds - start) / length) if length else 1.0
        place = goal if place is None else place + share * (goal - place)
    return place if place is None else tuple(place)
