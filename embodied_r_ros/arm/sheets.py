# SPDX-License-Identifier: Apache-2.0
"""Pictures of an arm at work: of a demonstration with its keypoints, and of a trial.

A demonstration shows speed, gripper and keypoints over time, and the images; a trial the image at
each keypoint, the candidates, and the chosen one.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps.sheet import FAINT, INK, Line, PAPER, Sheet
from embodied_r_ros.bags.images import choose_image_topic, raw_image
from embodied_r_ros.bags.messages import encoded_image_from_msg, IMAGE_TYPES, stamp_ns_from_msg
from embodied_r_ros.bags.reader import read_messages, topics_of_type
from embodied_r_ros.common.errors import ImageError, SourceError
from embodied_r_ros.core.reasoning.completions import option_letter
from embodied_r_ros.core.types.images import decode_image
import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.arm.demonstration import Demonstration, Keypoint
    from embodied_r_ros.arm.robot import ArmSetup
    from embodied_r_ros.arm.task import Trial, TrialStep
    from embodied_r_ros.bags.reader import BagReader
    from embodied_r_ros.core.types.geometry import Intrinsics, Pose, Position
    from numpy.typing import NDArray

_WIDTH_PX, _PLOT_PX, _CARD_PX, _MARGIN_PX = 1280, 170, 290, 24
_LABEL_PX = 110  # left of a plot
_GRID = (225, 225, 225)
_COLOURS = {'gripper': (50, 50, 200), 'stop': (170, 95, 20), 'last': (70, 140, 40)}  # BGR
_MAX_CARDS = 16

_STEP_CARD_PX, _STEP_MARGIN_PX = 400, 16
_CHOSEN, _OTHER, _TOOL = (40, 160, 40), (255, 255, 255), (0, 200, 255)  # BGR
_MAX_STEPS = 24
_FONT = cv2.FONT_HERSHEY_SIMPLEX


def images_at(
    reader: BagReader, setup: ArmSetup, stamps_ns: Sequence[int]
) -> dict[int, NDArray[np.uint8]]:
    """The newest image that is not later than each stamp; none where the bag has no images.

    Raises:
        SourceError: An image cannot be decoded, or there are several cameras.
        BagError: A message is damaged.
    """
    if not topics_of_type(reader, *IMAGE_TYPES):
        return {}
    topic = choose_image_topic(reader, setup.image_topic or None)
    waiting = sorted(stamps_ns, reverse=True)
    images: dict[int, NDArray[np.uint8]] = {}
    newest = None
    for _, _, msg in read_messages(reader, [topic]):
        while waiting and stamp_ns_from_msg(msg.header.stamp) > waiting[-1]:
            stamp_ns = waiting.pop()
            if newest is not None:
                images[stamp_ns] = _decode(newest, topic)
        newest = msg
    if newest is not None and waiting:
        images.update(dict.fromkeys(waiting, _decode(newest, topic)))
    return images


def write_keypoint_sheet(
    path: Path,
    demonstration: Demonstration,
    keypoints: Sequence[Keypoint],
    images: dict[int, NDArray[np.uint8]],
) -> None:
    """Write the picture as PNG; it appears only when it is complete.

    Args:
        path: The file.
        demonstration: The demonstration.
        keypoints: Its keypoints; at most 16, the first ones, get a card. The last line says how
            many there are besides.
        images: BGR image by stamp of a keypoint; (H, W, 3). A card without one has text alone.

    Raises:
        InputError: The file cannot be written.
    """
    duration_s = demonstration.seconds()[-1]
    head = f'{len(keypoints)} keypoints in {duration_s:.1f} s, {len(demonstration)} samples'
    title = [Line(demonstration.task or demonstration.episode_id, 0.9), Line(head, 0.5, FAINT)]
    sheet = Sheet(_CARD_PX, _MARGIN_PX)
    sheet.add_text(title)
    if demonstration.joint_speeds is None:
        sheet.add(
            _plot(demonstration, keypoints, demonstration.tool_speeds(), 'tool speed', 'm/s')
        )
    else:
        fastest = np.abs(demonstration.joint_speeds).max(axis=1)
        sheet.add(_plot(demonstration, keypoints, fastest, 'fastest joint', 'rad/s'))
    if demonstration.openings is not None:
        sheet.add(_plot(demonstration, keypoints, demonstration.openings, 'gripper', 'open'))
    start_ns = int(demonstration.stamps_ns[0])
    numbered = list(enumerate(keypoints[:_MAX_CARDS], 1))
    sheet.add_cards(
        [sheet.card(images.get(k.stamp_ns), _card_lines(k, n, start_ns)) for n, k in numbered]
    )
    if more := len(keypoints) - len(numbered):
        rest = f'{more} more without a card, from number {_MAX_CARDS + 1} on: marked above.'
        sheet.add_text([Line(rest, 0.5)])
    sheet.write(path)


def _decode(msg: object, topic: str) -> NDArray[np.uint8]:
    try:
        if hasattr(msg, 'format'):
            return decode_image(encoded_image_from_msg(msg).data)
        return raw_image(msg)
    except ImageError as error:
        text = f'an image of {topic} cannot be decoded: {error}'
        raise SourceError(text) from None


def _plot(
    demonstration: Demonstration,
    keypoints: Sequence[Keypoint],
    values: NDArray[np.float64],
    name: str,
    unit: str,
) -> NDArray[np.uint8]:
    """A line over time, with a mark at each keypoint. Shape (H, W, 3)."""
    page = np.full((_PLOT_PX, _WIDTH_PX, 3), PAPER, np.uint8)
    left, right, top, bottom = _LABEL_PX + _MARGIN_PX, _WIDTH_PX - _MARGIN_PX, 22, _PLOT_PX - 26
    seconds = demonstration.seconds()
    most = max(1e-6, float(values.max()))
    x = left + seconds / seconds[-1] * (right - left)
    y = bottom - np.clip(values / most, 0.0, 1.0) * (bottom - top)
    for second in range(int(seconds[-1]) + 1):
        at = round(left + second / seconds[-1] * (right - left))
        cv2.line(page, (at, top), (at, bottom), _GRID, 1)
        _put(page, f'{second}', (at - 4, bottom + 18), FAINT)
    for number, keypoint in enumerate(keypoints, 1):
        at = round(float(x[keypoint.index]))
        colour = _COLOURS[keypoint.reason]
        cv2.line(page, (at, top), (at, bottom), colour, 2)
        _put(page, str(number), (at - 5, top - 6), colour)
    points = np.column_stack([x, y]).round().astype(np.int32)
    cv2.polylines(page, [points], isClosed=False, color=INK, thickness=1, lineType=cv2.LINE_AA)
    _put(page, name, (_MARGIN_PX, top + 14), INK)
    _put(page, f'max {most:.2f} {unit}', (_MARGIN_PX, top + 34), FAINT)
    return page


def _put(page: NDArray[np.uint8], text: str, at: tuple[int, int], colour: tuple[int, ...]) -> None:
    cv2.putText(page, text, at, _FONT, 0.42, colour, 1, cv2.LINE_AA)


def _card_lines(keypoint: Keypoint, number: int, start_ns: int) -> list[Line]:
    gripper = {True: ', open', False: ', closed', None: ''}[keypoint.is_open]
    place = ', '.join(f'{value:.3f}' for value in keypoint.position or ())
    seconds = (keypoint.stamp_ns - start_ns) / 1e9
    return [
        Line(f'{number}: {keypoint.reason}{gripper}', 0.55, _COLOURS[keypoint.reason]),
        Line(f'{seconds:.2f} s' + (f', [{place}] m' if place else ''), 0.42, FAINT),
    ]


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
    if trial.warnings:
        lines.append(Line(f'last warning: {trial.warnings[-1].splitlines()[0]}', 0.45))
    sheet = Sheet(_STEP_CARD_PX, _STEP_MARGIN_PX)
    sheet.add_text(lines)
    sheet.add_cards(
        [
            sheet.card(_image(step, camera, camera_pose), _step_lines(number, step))
            for number, step in enumerate(trial.steps[:_MAX_STEPS], 1)
        ]
    )
    sheet.write(path)


def _step_lines(number: int, step: TrialStep) -> list[Line]:
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
    scale = _STEP_CARD_PX / camera.width
    size = _STEP_CARD_PX, round(camera.height * scale)
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
