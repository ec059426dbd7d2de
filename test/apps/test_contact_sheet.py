# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import cv2
from embodied_r_ros.apps import sheet
from embodied_r_ros.apps.sheet import (
    AnsweredQuestion,
    KeyframeSample,
    Line,
    text_block,
    with_items,
    write_contact_sheet,
)
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.scene.memory import MemoryConfig, scene_text
from embodied_r_ros.core.types.answers import Answer, AnswerKind, Check, ToolCall
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ItemStatus, SemanticDelta
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
import numpy as np
import pytest

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray


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
    picture = np.asarray(cv2.imread(str(path)))
    red = (picture[..., 2] > 200) & (picture[..., 0] < 60)
    count, _ = cv2.connectedComponents(red.astype(np.uint8))
    assert count - 1 == 5
    assert [p.name for p in tmp_path.iterdir()] == ['sheet.png']


@pytest.fixture
def texts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every text that is drawn."""
    drawn: list[str] = []

    def draw(lines: Sequence[Line], width: int) -> NDArray[np.uint8]:
        drawn.extend(line.text for line in lines)
        return text_block(lines, width)

    monkeypatch.setattr(sheet, 'text_block', draw)
    return drawn


def deltas_of(*ids: int) -> list[SemanticDelta]:
    return [SemanticDelta(i, DeltaKind.CHANGE, to_id=i, change=f'New: {i}.') for i in ids]


def test_keyframes_have_the_numbers_that_prompts_give_their_deltas(
    texts: list[str], tmp_path: Path
) -> None:
    keyframes = [replace(keyframe(i), stamp_ns=i * 10**9) for i in range(4)]
    deltas = deltas_of(0, 1, 3)  # 2 was skipped
    write_contact_sheet(tmp_path / 'a.png', 't', keyframes, deltas, [])
    prompt = scene_text(deltas, frozenset(), MemoryConfig()).text
    assert [line for line in texts if line.endswith(' s')] == [
        '[1] 0.0 s', '[2] 1.0 s', '2.0 s', '[3] 3.0 s',
    ]  # fmt: skip
    assert '[3] 0.0 s: New: 3.' in prompt
    assert texts[-1] == 'New: 3.'


def test_a_sample_keeps_the_numbers_of_all(texts: list[str], tmp_path: Path) -> None:
    sample = KeyframeSample()
    kept = sample.keep(keyframe(i) for i in range(40, 140))
    assert sum(1 for _ in sample.note(delta for k in kept for delta in deltas_of(k.id))) == 100
    sample.write(tmp_path / 'a.png', 't')
    numbers = [int(text[1:].partition(']')[0]) for text in texts if text.startswith('[')]
    assert len(numbers) == 16
    assert {number + 39 for number in numbers} <= set(sample._keyframes)


@pytest.mark.parametrize(
    ('check', 'reason', 'expected'),
    [
        (Check.VERIFIED, '', 'verified; rests on [2] [3]; landmarks 7'),
        (Check.UNSUPPORTED, 'no [4]', 'unsupported: no [4]; rests on [2] [3]; landmarks 7'),
        (Check.UNCHECKED, '', 'unchecked; rests on [2] [3]; landmarks 7'),
    ],
)
def test_an_answer_has_its_sentence_its_check_and_what_it_rests_on(
    texts: list[str], tmp_path: Path, check: Check, reason: str, expected: str
) -> None:
    call = ToolCall('where', ('chair',), landmark_ids=(7,), observations=(3, 2))
    answer = Answer(
        'x', 'Where?', AnswerKind.TEXT, text='left', sentence='It is on the left.',
        check=check, check_reason=reason, calls=(call,),
    )  # fmt: skip
    write_contact_sheet(tmp_path / 'a.png', 't', [], [], [AnsweredQuestion(answer)])
    at = texts.index('Answer: left')
    assert texts[at + 1 : at + 3] == ['It is on the left.', expected]


def test_a_refusal_has_no_check(texts: list[str], tmp_path: Path) -> None:
    refused = AnsweredQuestion(Answer('x', 'Where?', AnswerKind.UNKNOWN), refusal='no model')
    write_contact_sheet(tmp_path / 'a.png', 't', [], [], [refused])
    assert not any('unchecked' in text for text in texts)


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


def test_a_measure_near_to_the_truth_is_right() -> None:
    answer = replace(question('1.3', '').answer, kind=AnswerKind.NUMBER, number=1.3, unit='m')
    assert AnsweredQuestion(answer, '1.4 m').is_right
    assert AnsweredQuestion(answer, '1.9 m').is_right is False
    assert AnsweredQuestion(replace(answer, number=8.8), '10.0 m').is_right


def test_text_wraps_to_its_width_and_degrees_are_drawn() -> None:
    narrow, wide = (text_block([Line('turned left ' * 10)], width) for width in (150, 1500))
    assert narrow.shape[0] > 4 * wide.shape[0] / 2
    assert (text_block([Line('30°')], 100) != text_block([Line('30')], 100)).any()


def test_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='cannot write'):
        write_contact_sheet(tmp_path / 'no' / 'a.png', 't', [keyframe(0)], [], [])


def test_items_are_drawn_where_they_are_with_name_and_distance() -> None:
    image = np.full((240, 320, 3), 128, np.uint8)
    cup = Item('cup', distance_m=1.25, box=(0.25, 0.5, 0.5, 0.75))
    drawn = with_items(image, [cup])
    changed = (drawn != image).any(axis=2)
    assert drawn.shape == image.shape
    assert changed[120, 80:160].all()  # the upper edge
    assert changed[120:180, 80].all()  # the left one
    assert not changed[140:160, 100:140].any()  # the inside stays as it is
    assert changed[105:120, 80:100].all()  # the label
    assert (with_items(image, [replace(cup, distance_m=2.0)]) != drawn).any()
    assert (image == 128).all()


def test_what_has_no_place_in_the_image_is_not_drawn() -> None:
    image = np.full((240, 320, 3), 128, np.uint8)
    gone = Item('cup', ItemStatus.LEFT, box=(0.25, 0.5, 0.5, 0.75))
    assert (with_items(image, [Item('cup'), gone]) == image).all()


def test_labels_do_not_cover_each_other_and_stay_inside() -> None:
    image = np.full((120, 160, 3), 128, np.uint8)
    alike = [
        Item(name, status, box=(0.9, 0.0, 1.0, 0.2))
        for name, status in (('first', ItemStatus.VISIBLE), ('other', ItemStatus.APPEARED))
    ]
    both = with_items(image, alike)
    for status in (ItemStatus.VISIBLE, ItemStatus.APPEARED):
        colour = {ItemStatus.VISIBLE: (240, 170, 40), ItemStatus.APPEARED: (60, 200, 60)}[status]
        assert (both == colour).all(axis=2).sum() > 200


def test_a_sample_of_many_keyframes_is_bounded_and_even(tmp_path: Path) -> None:
    sample = KeyframeSample()
    deltas = (
        SemanticDelta(k.id, DeltaKind.CHANGE, to_id=k.id)
        for k in sample.keep(keyframe(i) for i in range(500))
    )
    assert sum(1 for _ in sample.note(deltas)) == 500
    kept = list(sample._keyframes)
    assert 16 <= len(kept) <= 32
    assert set(np.diff(kept)) == {kept[1] - kept[0]}
    assert kept[-1] > 480
    sample.write(tmp_path / 'a.png', 't')
    assert cv2.imread(str(tmp_path / 'a.png')) is not None
