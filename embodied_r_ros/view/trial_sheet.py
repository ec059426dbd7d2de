# SPDX-License-Identifier: Apache-2.0
"""One picture of a trial: the image at each keypoint, the candidates, and the chosen one."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.reasoning.completions import option_letter
from embodied_r_ros.view.sheet import FAINT, INK, Line, Sheet
import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from embodied_r_ros.arm.trial import Trial, TrialStep
    from embodied_r_ros.types.geometry import Intrinsics, Pose, Position
    from numpy.typing import NDArray

_CARD_PX, _MARGIN_PX = 400, 16
_CHOSEN, _OTHER, _TOOL = (40, 160, 40), (255, 255, 255), (0, 200, 255)  # BGR
_MAX_CARDS = 24
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def write_trial_sheet(
    path: Path, title: str, trial: Trial, camera: Intrinsics, camera_pose: Pose
) -> None:
    """Write the picture as PNG; it appears only when it is complete.

    Args:
        path: The file.
        title: The policy that chose.
        trial: The trial; its first 24 steps get a card each.
        camera: The camera of its images.
        camera_pose: Pose of the optical frame in the frame of the positions.

    Raises:
        InputError: The file cannot be written.
    """
    end = 'succeeded' if trial.is_success else 'failed'
    head = f'{end} after {trial.seconds:.1f} s, {len(trial.steps)} keypoints; {title}'
    legend = (
        'green: chosen; white: other candidates; yellow: the tool; a line goes down to the table'
    )
    lines = [Line(trial.task, 0.9), Line(head, 0.55), Line(legend, 0.45, FAINT)]
    if trial.refusals:
        lines.append(Line(f'{len(trial.refusals)} refused, last: {trial.refusals[-1]}', 0.45))
    sheet = Sheet(_CARD_PX, _MARGIN_PX)
    sheet.add_text(lines)
    sheet.add_cards(
        [
            sheet.card(_image(step, camera, camera_pose), _card_lines(number, step))
            for number, step in enumerate(trial.steps[:_MAX_CARDS], 1)
        ]
    )
    sheet.write(path)


def _card_lines(number: int, step: TrialStep) -> list[Line]:
    place = ', '.join(f'{value:.3f}' for value in step.candidates[step.chosen])
    gripper = {True: 'closed', False: 'open', None: 'as before'}[step.closed]
    return [
        Line(f'{number}: {option_letter(step.chosen)}, gripper {gripper}', 0.55, _CHOSEN),
        Line(f'{step.at_s:.1f} s, to ({place}) m', 0.42, FAINT),
    ]


def _image(step: TrialStep, camera: Intrinsics, camera_pose: Pose) -> NDArray[np.uint8] | None:
    """The image of a step at the width of a card, with tool and candidates; None: it has none."""
    if step.image is None:
        return None
    scale = _CARD_PX / camera.width
    size = _CARD_PX, round(camera.height * scale)
    image = np.asarray(cv2.resize(step.image, size, interpolation=cv2.INTER_LINEAR), np.uint8)
    _draw(image, step, camera, camera_pose, scale)
    return image


def _draw(
    image: NDArray[np.uint8],
    step: TrialStep,
    camera: Intrinsics,
    camera_pose: Pose,
    scale: float,
) -> None:
    """Draw tool and candidates into an image, the chosen one last and largest."""

    def pixel(position: Position) -> tuple[int, int] | None:
        return _pixel(position, camera, camera_pose, scale)

    tool = pixel(step.tool)
    if tool:
        cv2.drawMarker(image, tool, _TOOL, cv2.MARKER_CROSS, 16, 2, cv2.LINE_AA)
    order = sorted(range(len(step.candidates)), key=lambda index: index == step.chosen)
    for index in order:
        x, y, _ = position = step.candidates[index]
        at, foot = pixel(position), pixel((x, y, 0.0))
        if at is None:
            continue
        is_chosen = index == step.chosen
        colour, radius = (_CHOSEN, 8) if is_chosen else (_OTHER, 4)
        if foot:
            cv2.line(image, at, foot, colour, 1, cv2.LINE_AA)
        if is_chosen and tool:
            cv2.arrowedLine(image, tool, at, colour, 1, cv2.LINE_AA, tipLength=0.1)
        cv2.circle(image, at, radius + 1, INK, -1, cv2.LINE_AA)
        cv2.circle(image, at, radius, colour, -1, cv2.LINE_AA)
        _letter(image, option_letter(index), (at[0] + radius + 3, at[1] + 5))


def _letter(image: NDArray[np.uint8], text: str, at: tuple[int, int]) -> None:
    """A letter that can be read on whatever is behind it."""
    cv2.putText(image, text, at, _FONT, 0.5, INK, 3, cv2.LINE_AA)
    cv2.putText(image, text, at, _FONT, 0.5, _OTHER, 1, cv2.LINE_AA)


def _pixel(
    position: Position, camera: Intrinsics, camera_pose: Pose, scale: float
) -> tuple[int, int] | None:
    """Where a position is in the scaled image; None: behind the camera."""
    point = camera_pose.rotation().T @ np.subtract(position, camera_pose.position)
    if point[2] <= 0 or not math.isfinite(point[2]):
        return None
    u = camera.fx * point[0] / point[2] + camera.cx
    v = camera.fy * point[1] / point[2] + camera.cy
    return round(float(u) * scale), round(float(v) * scale)
