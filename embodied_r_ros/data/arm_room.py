# SPDX-License-Identifier: Apache-2.0
"""The room `arm`, loaded by its name where a recording or a task is of an arm."""

from __future__ import annotations

from importlib import import_module
from typing import Any, Protocol, TYPE_CHECKING

from embodied_r_ros.bags.reader import open_bag

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.keyframes.selector import KeyframeConfig
    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.deltas import SemanticDelta
    from embodied_r_ros.data.questions.row import Row

SETUP_TOPIC = '/arm_setup'  # what says that a bag is of an arm, and how it is to be read


class ArmRoom(Protocol):
    """What others need of an arm, by functions of these names in `arm.episodes`."""

    load_robot: Callable[[str], Any]
    read_demonstration: Callable[..., Any]
    setup_of: Callable[[BagReader], Any]
    keyframing_of_arm: Callable[[Any], KeyframeConfig]
    read_arm_episode: Callable[[BagReader, Any], Any]
    ground_truth_deltas_of_arm: Callable[[BagReader, Any, Any, str], Sequence[SemanticDelta]]
    rows_of_arm: Callable[..., Iterator[Row]]
    done_question: Callable[[str], Question]


def arm_room() -> ArmRoom:
    """The room, which is loaded now."""
    room: Any = import_module('embodied_r_ros.arm.episodes')
    return room  # type: ignore[no-any-return]


def keyframing_of(path: Path, robot: Any) -> KeyframeConfig | None:
    """When the images of a bag are looked at by an arm's rule; None: the bag is of no arm.

    Raises:
        BagError: It is not a readable bag.
    """
    with open_bag(path) as reader:
        return arm_room().keyframing_of_arm(robot) if has_arm(reader, robot) else None


def has_arm(reader: BagReader, robot: Any) -> bool:
    """Tell whether a bag says that it is of an arm, or is said to be by a robot's setup."""
    return SETUP_TOPIC in reader.topics or bool(robot and robot.setup)
