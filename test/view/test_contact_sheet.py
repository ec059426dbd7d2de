# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.keyframes.selector import Keyframe, KeyframeReason
from embodied_r_ros.types.answers import Answer, AnswerKind
from embodied_r_ros.types.deltas import DeltaKind, SemanticDelta
from embodied_r_ros.types.images import encode_image
from embodied_r_ros.view.sheet import AnsweredQuestion, Line, text_block, write_contact_sheet
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


def keyframe(index: int) -> Keyframe:
    image = np.full((120, 160, 3), (0, 0, 250), np.uint8)
    return Keyframe(index, index, encode_image(image), KeyframeReason.FIRST, 0)


def question(text: str, truth: str) -> AnsweredQuestion:
    return AnsweredQuestion(Answer('x', 'Where?', AnswerKind.CHOICE, text=text), truth)


def test_every_keyframe_and_question_has_its_place(tmp_path: Path) -> None:
    deltas = [SemanticDelta(i, DeltaKind.CHANGE, to_id=i, action='stationary') for i in range(5)]
    path = tmp_path / 'sheet.png'
    write_contact_sheet(
        path, 'Title', [keyframe(i) for i in range(5)], deltas, [question('a', '')]
    )
    sheet = np.asarray(cv2.imread(str(path)))
    red = (sheet[..., 2] > 200) & (sheet[..., 0] < 60)
    count, _ = cv2.connectedComponents(red.astype(np.uint8))
    assert count - 1 == 5
    assert [p.name for p in tmp_path.iterdir()] == ['sheet.png']


def test_long_recording_is_shown_evenly(tmp_path: Path) -> None:
    write_contact_sheet(tmp_path / 'a.png', 't', [keyframe(i) for i in range(16)], [], [])
    write_contact_sheet(tmp_path / 'b.png', 't', [keyframe(i) for i in range(500)], [], [])
    a, b = (np.asarray(cv2.imread(str(tmp_path / name))) for name in ('a.png', 'b.png'))
    assert a.shape == b.shape


def test_answer_is_right_wrong_or_of_unknown_truth() -> None:
    assert question('left', 'left').is_right
    assert question('left', 'right').is_right is False
    assert question('', 'unknown').is_right
    assert question('left', '').is_right is None


def test_text_wraps_to_its_width_and_degrees_are_drawn() -> None:
    narrow, wide = (text_block([Line('turned left ' * 10)], width) for width in (150, 1500))
    assert narrow.shape[0] > 4 * wide.shape[0] / 2
    assert (text_block([Line('30°')], 100) != text_block([Line('30')], 100)).any()


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='cannot write'):
        write_contact_sheet(tmp_path / 'no' / 'a.png', 't', [keyframe(0)], [], [])
