# SPDX-License-Identifier: Apache-2.0
"""Spatial reasoning from a robot's own camera.

>>> from embodied_r_ros import Keyframer, open_source, Perceiver, Reasoner, Scene
>>> perceiver, scene = Perceiver(), Scene()
>>> with open_source('samples/indoor/episode_00000') as images:
...     for keyframe in Keyframer().stream(images):
...         scene.add(perceiver.perceive(keyframe))
>>> print(Reasoner().ask('How far did you move?', scene))  # doctest: +ELLIPSIS
My way was 6... m long.

The names here are loaded when they are used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, TYPE_CHECKING

if TYPE_CHECKING:
    from embodied_r_ros.bags.sources import open_source
    from embodied_r_ros.core.keyframes.selector import Keyframer
    from embodied_r_ros.core.pipeline import Perceiver
    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.reasoning.reasoner import Reasoner
    from embodied_r_ros.core.scene.tools import Scene
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap
    from embodied_r_ros.data.episodes.episode import read_episode
    from embodied_r_ros.data.questions.derive import derive_rows

_PLACES = {
    'Answer': 'core.types.answers',
    'Keyframer': 'core.keyframes.selector',
    'Landmark': 'core.types.landmarks',
    'PathPoint': 'core.types.landmarks',
    'Perceiver': 'core.pipeline',
    'Question': 'core.reasoning.question',
    'Reasoner': 'core.reasoning.reasoner',
    'Scene': 'core.scene.tools',
    'SceneMap': 'core.types.landmarks',
    'derive_rows': 'data.questions.derive',
    'open_source': 'bags.sources',
    'read_episode': 'data.episodes.episode',
}
__all__ = [
    'Answer',
    'Keyframer',
    'Landmark',
    'PathPoint',
    'Perceiver',
    'Question',
    'Reasoner',
    'Scene',
    'SceneMap',
    'derive_rows',
    'open_source',
    'read_episode',
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        msg = f'module {__name__!r} has no attribute {name!r}'
        raise AttributeError(msg)
    return getattr(import_module(f'{__name__}.{_PLACES[name]}'), name)


def __dir__() -> list[str]:
    return [*globals(), *_PLACES]
