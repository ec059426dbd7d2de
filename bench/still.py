# SPDX-License-Identifier: Apache-2.0
"""Keyframes before a camera that stands still, against events that were written down before.

A clip is a recording, or a rendered room in which things move, with sensor noise, flicker and a
drift of exposure. Beside the extractor stands a keyframe every two seconds.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.keyframes.selector import KeyframeSelector
from embodied_r_ros.core.types.geometry import Intrinsics, NS_PER_S
from embodied_r_ros.core.types.images import StampedImage
import numpy as np
from tqdm import tqdm

from bench.rendered_paths import FOV_RAD
from bench.report import Budget

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

EVENTS = Path(__file__).parents[1] / 'test' / 'core' / 'keyframes' / 'still_events.json'
NEAR_S = 1.0  # an event has a keyframe within so long
PERIOD_S = 2.0  # of the constant
_RATE_HZ = 10.0  # of rendered clips
_STILL_S, _STILL_HZ = 600.0, 5.0
_NOISE = 4.0  # of the sensor [grey levels]


def measure_still(folder: Path) -> dict[str, Any]:
    """Events found and keyframes of each clip, and the keyframes of a still scene of 10 minutes.

    Args:
        folder: Has a video of the name of each clip that is not rendered.

    Raises:
        InputError: One is missing.
    """
    clips: dict[str, dict[str, Any]] = json.loads(EVENTS.read_text(encoding='utf-8'))['clips']
    figures: dict[str, Any] = {}
    for name, clip in tqdm(clips.items(), desc='still cameras', disable=None):
        images = _room(clip['room']) if 'room' in clip else _video(folder, name)
        times, seconds = keyframe_times(images)
        events = [float(event[0]) for event in clip['events']]
        constant = [float(t) for t in np.arange(0.0, seconds, PERIOD_S)]
        figures[name] = {
            'half': clip['half'],
            'events': len(events),
            'found': found(events, times),
            'keyframes': len(times),
            'constant_found': found(events, constant),
            'constant_keyframes': len(constant),
        }
    empty = next(clip['room'] for clip in clips.values() if 'room' in clip)
    still = {**empty, 'steps': [], 'seconds': _STILL_S, 'rate_hz': _STILL_HZ}
    return {'clips': figures, 'still_keyframes': len(keyframe_times(_room(still))[0])}


def keyframe_times(images: Iterable[StampedImage]) -> tuple[list[float], float]:
    """When a stream has keyframes, and how long it is, from its first image [s]."""
    selector, times, seconds, first_ns = KeyframeSelector(), [], 0.0, None
    for image in images:
        first_ns = image.stamp_ns if first_ns is None else first_ns
        seconds = (image.stamp_ns - first_ns) / NS_PER_S
        if selector.evaluate(image).is_keyframe:
            times.append(seconds)
    return times, seconds


def found(events: Sequence[float], keyframes: Sequence[float]) -> int:
    """How many events have a keyframe nearby; all are times [s]."""
    return sum(any(abs(key - event) <= NEAR_S for key in keyframes) for event in events)


def still_budgets(still: dict[str, Any]) -> list[Budget]:
    """The bars, over the clips on which settings were chosen, over the others, and over all."""
    budgets = []
    for half in ('tuned', 'kept', 'all'):
        clips = [clip for clip in still['clips'].values() if half in {clip['half'], 'all'}]
        events, hits, keyframes = (
            sum(clip[key] for clip in clips) for key in ('events', 'found', 'keyframes')
        )
        budgets += [
            Budget(f'events found, still cameras, {half}', hits / events, 0.9, at_least=True),
            Budget(f'keyframes per event, still cameras, {half}', keyframes / events, 2.0),
        ]
    return [*budgets, Budget('keyframes of a still scene of 10 min', still['still_keyframes'], 3)]


def print_still(still: dict[str, Any]) -> None:
    """Print a line per clip."""
    for name, clip in still['clips'].items():
        print(
            f'{name:18} {clip["half"]:6} {clip["found"]}/{clip["events"]} events, '
            f'{clip["keyframes"]} keyframes; every {PERIOD_S:.0f} s: '
            f'{clip["constant_found"]}/{clip["events"]}, {clip["constant_keyframes"]}'
        )


def _video(folder: Path, name: str) -> Iterator[StampedImage]:
    paths = sorted(folder.glob(f'{name}.*'))
    if not paths:
        msg = f'{folder} holds no video {name}.*: {EVENTS.name} says where it comes from'
        raise InputError(msg)
    with open_source(paths[0]) as images:
        yield from images


def _room(script: dict[str, Any]) -> Iterator[StampedImage]:
    """A rendered room in which things move as a script says."""
    from embodied_r_ros.sim.indoor.episodes import draw_episode
    from embodied_r_ros.sim.indoor.world import World, WorldRenderer
    from embodied_r_ros.sim.runs import IndoorConfig

    scenario, _, _ = draw_episode(IndoorConfig(kinds='all'), script['seed'], 0)
    pose = scenario.pose(scenario.stamps_ns[0] + round(script['at_s'] * NS_PER_S))
    world = World(scenario.room, np.random.default_rng(scenario.texture_seed))
    homes = [np.array(thing.position) for thing in scenario.room.things]
    rng = np.random.default_rng(script['seed'])
    rate_hz = script.get('rate_hz', _RATE_HZ)
    with WorldRenderer(world, Intrinsics.from_fov(320, 240, FOV_RAD)) as renderer:
        for index in range(round(script['seconds'] * rate_hz)):
            seconds = index / rate_hz
            world.place([_place(script['steps'], i, at, seconds) for i, at in enumerate(homes)])
            light = 1 + 0.1 * math.sin(seconds / 15) + 0.02 * math.sin(7.3 * index)
            image = renderer.image(pose) * light
            image = np.clip(image + rng.normal(0, _NOISE, image.shape), 0, 255)
            yield StampedImage(index, round(seconds * NS_PER_S), image.astype(np.uint8))


def _place(steps: Iterable[Any], thing: int, home: Any, seconds: float) -> Any:
    """Where a thing is then [m]; None: away."""
    place: Any = home
    for start, which, offset, length in steps:
        if which != thing or seconds < start:
            continue
        goal = None if offset is None else home + np.array(offset)
        if goal is None or place is None:
            place = goal
            continue
        share = min(1.0, (seconds - start) / length) if length else 1.0
        place = place + share * (goal - place)
    return None if place is None else tuple(map(float, place))
