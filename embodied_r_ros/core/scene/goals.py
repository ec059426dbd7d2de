# SPDX-License-Identifier: Apache-2.0
"""Goals of a mobile robot: the place in front of a landmark that an order to go there means.

"Go to the fridge" names a landmark of the scene map. The goal lies on the line from where the
camera was nearest to it, so far from its edge as is asked for, and faces it. It is a proposal:
whether the robot may go there is for a gate to say, and how, for its planner.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.map_relations import level_m
from embodied_r_ros.core.types.answers import AnswerKind, Check, KeypointProposal
from embodied_r_ros.core.types.deltas import ScaleSource
from embodied_r_ros.core.types.landmarks import LandmarkStatus
from embodied_r_ros.core.types.things import first_mentions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.core.types.landmarks import Landmark, PathPoint, SceneMap

_VERBS = r'go|drive|move|walk|navigate|head|return|come|(?:take|bring|guide) me'
_NO_METRES = {ScaleSource.UNKNOWN, ScaleSource.RELATIVE, ScaleSource.SIZES}
_ORDER = re.compile(
    rf'\s*(?:please\s+)?(?:(?:can|could|would|will) you\s+)?(?:please\s+)?(?:{_VERBS})\s+'
    r'(?:back\s+|over\s+|close\s+|up\s+)?to\b',
    re.IGNORECASE,
)

# In front of a landmark: it is where the goal is, and not the goal.
_RELATION = re.compile(
    r'\b(?:above|across from|against|at|behind|below|beside|between|beyond|by|facing|left of|near'
    r'|next to|on|opposite|past|right of|under|with)\b',
    re.IGNORECASE,
)


def is_order(question: str) -> bool:
    """Tell whether a question is an order to go somewhere, such as 'Go to the fridge.'."""
    return _ORDER.match(question) is not None


def goal_proposal(answer: Answer, scene_map: SceneMap, standoff_m: float) -> KeypointProposal:
    """The goal that the answer to an order means.

    The landmark is the one that the order names first, or else the one that the answer names:
    what a person said is not for a model to change. The answer must name it too. Of several of one
    name it is the one that is nearest to the camera now.

    Args:
        answer: To a question that `is_order`.
        scene_map: What is where.
        standoff_m: Distance to keep from the edge of the landmark [m].

    Returns:
        A proposal with the id of the answer, at z = 0 of the frame of the map. Its confidence is
        that of the landmark, or of the answer where that is less.

    Raises:
        InputError: No landmark is named or is there still, the answer does not stand for it, or
            the map has no metres or no path.
    """
    landmark = _named_landmark(answer, scene_map)
    if problem := _objection(answer, landmark.label, _labels(scene_map)):
        raise InputError(problem)
    if scene_map.scale in _NO_METRES:
        msg = 'the scene map has no metres to drive by: give the robot odometry, tf or depth'
        raise InputError(msg)
    if not scene_map.path:
        msg = (
            'the scene map has no path to where the camera is now: its poses jumped, or their '
            'odometry began anew since things were seen; look at them again'
        )
        raise InputError(msg)
    x, y, yaw_rad = _place_in_front(landmark, scene_map.path, standoff_m)
    confidences = [landmark.confidence, answer.confidence]
    return KeypointProposal.of_answer(
        answer,
        answer.question,
        scene_map.frame_id,
        (x, y, 0.0),
        orientation=(0.0, 0.0, math.sin(yaw_rad / 2), math.cos(yaw_rad / 2)),
        confidence=min(value for value in confidences if not math.isnan(value)),
    )


def _labels(scene_map: SceneMap) -> list[str]:
    return list(dict.fromkeys(landmark.label for landmark in scene_map.landmarks))


def _objection(answer: Answer, label: str, labels: Sequence[str]) -> str:
    """Why an answer does not stand for a landmark; empty: it does."""
    if answer.kind is AnswerKind.UNKNOWN:
        return 'the answer is unknown'
    if answer.check is Check.UNSUPPORTED:
        return f'the answer {answer.text!r} has no support in what was seen'
    # What a model asked on its way is no answer.
    computed = [a for call in answer.calls if not call.turn for a in call.arguments]
    texts = [answer.text, answer.sentence, *computed]
    if not any(label in first_mentions(text.lower(), labels) for text in texts):
        return f'the answer {answer.text!r} does not name the {label}'
    return ''


def _named_landmark(answer: Answer, scene_map: SceneMap) -> Landmark:
    """The landmark to go to.

    Raises:
        InputError: None is named, or it is gone.
    """
    labels = _labels(scene_map)
    is_in_words = answer.kind in (AnswerKind.CHOICE, AnswerKind.TEXT)
    for text in (answer.question, answer.text if is_in_words else ''):
        places = first_mentions(text.lower(), labels)
        if not places:
            continue
        label = min(places, key=lambda name: (places[name], -len(name)))
        order = _ORDER.match(text)
        between = text[order.end() : places[label]] if order else ''
        if relation := _RELATION.search(between):
            known = ', '.join(labels[:8])
            msg = (
                f'{text!r} names no landmark of the map before {relation[0]!r}: it has {known}; '
                'name one of them'
            )
            raise InputError(msg)
        those = [landmark for landmark in scene_map.landmarks if landmark.label == label]
        there = [each for each in those if each.status is LandmarkStatus.PRESENT]
        if not there:
            msg = f'{label} is gone from where it was'
            raise InputError(msg)
        now = [point.position for point in scene_map.path[-1:]]
        return min(there, key=lambda each: [level_m(at, each.position) for at in now])
    known = ', '.join(labels[:8]) or 'nothing'
    msg = f'neither {answer.question!r} nor its answer names a landmark of the map: it has {known}'
    raise InputError(msg)


def _place_in_front(
    landmark: Landmark, path: Sequence[PathPoint], standoff_m: float
) -> tuple[float, float, float]:
    """Place x, y [m] and heading [rad] in front of a landmark."""
    middle = landmark.position
    keep_m = standoff_m + (max(landmark.size[:2]) / 2 if landmark.size else 0.0)
    distances = [level_m(point.position, middle) for point in path]
    outside = [index for index, distance in enumerate(distances) if distance >= keep_m]
    # From the nearest place it is seen best; who never kept away backs off the way that was.
    nearest = (
        min(outside, key=distances.__getitem__)
        if outside
        else max(range(len(path)), key=distances.__getitem__)
    )
    x, y, _ = path[nearest].position
    yaw_rad = math.atan2(middle[1] - y, middle[0] - x)
    return (
        middle[0] - keep_m * math.cos(yaw_rad),
        middle[1] - keep_m * math.sin(yaw_rad),
        yaw_rad,
    )
