# SPDX-License-Identifier: Apache-2.0
"""Recorded keyframes perceived again: what differs, and what questions would have known."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.common.errors import BagError, ModelError
from embodied_r_ros.core.scene.camera import CameraView
from embodied_r_ros.core.types.answers import Answer, AnswerKind, FocusText
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ItemStatus, ModelInfo, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.episodes.episode import read_recorded_deltas
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.episodes.replay_deltas import (
    delta_difference,
    DeltaDifference,
    OtherScene,
    pair_to_json,
    pairs_table,
    perceive_again,
    ReplayedDelta,
)
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg
import pytest

from test.apps.review.recordings import FACTORY, picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

S = 10**9
CHAIR = Item('chair', bearing_rad=0.1, elevation_rad=0.0, box=(0.2, 0.2, 0.5, 0.6), distance_m=2.0)
PLANT = Item('plant', bearing_rad=-0.5, elevation_rad=0.0, box=(0.7, 0.2, 0.9, 0.6))


def delta(
    number: int, *items: Item, earlier: int | None = None, action: str = ''
) -> SemanticDelta:
    kind = DeltaKind.CHANGE if number else DeltaKind.FIRST
    at, before = number * S, number - 1 if earlier is None else earlier
    return SemanticDelta(at, kind, number, max(0, before), items=items, action=action)


class Stub:
    """Sees a stool in every keyframe, and remembers the pairs."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int | None, int]] = []

    def perceive(self, earlier: Keyframe | None, later: Keyframe) -> SemanticDelta:
        self.pairs.append((earlier.id if earlier else None, later.id))
        stool = replace(CHAIR, label='stool')
        made = delta(
            later.id, stool, PLANT, earlier=earlier.id if earlier else 0, action='moved up'
        )
        return replace(made, model=ModelInfo('stub'))

    def focus(
        self, question: str, options: Sequence[str], keyframe: Keyframe, deadline_s: float
    ) -> FocusText:
        if keyframe.id == 3:
            msg = 'down'
            raise ModelError(msg)
        return FocusText(keyframe.id, keyframe.stamp_ns, f'{question} a stool')

    def info(self) -> ModelInfo:
        return ModelInfo('stub')

    def check(self, deadline_s: float) -> None:
        del deadline_s


def record(path: Path, *, has_images: bool = True, has_deltas: bool = True) -> Path:
    """Four keyframes, of which the live perceiver skipped the second."""
    with BagWriter(path) as bag:
        bag.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe')
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for number in range(4):
            image = picture(30 * number) if has_images else EncodedImage(b'', 'jpeg')
            pose = Pose((float(number), 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            reason = KeyframeReason.LOW_OVERLAP
            keyframe = Keyframe(number, number * S, image, reason, 0, pose=pose)
            bag.write('/keyframe', keyframe_to_msg(FACTORY, keyframe), number * S)
            if number != 1 and has_deltas:
                seen = delta(number, CHAIR, earlier=0 if number == 2 else None, action='moved up')
                bag.write('/semantic_delta', delta_to_msg(FACTORY, seen), number * S)
    return path


def test_items_are_paired_by_name_and_place() -> None:
    gone = Item('door', bearing_rad=1.0)
    left = replace(CHAIR, label='bag', status=ItemStatus.LEFT)
    before = delta(1, CHAIR, gone, left, action='moved up')
    after = delta(1, replace(CHAIR, label='stool'), PLANT, action='moved down')
    difference = delta_difference(before, after)
    assert difference.renamed == (('chair', 'stool'),)
    assert difference.added[0].startswith('plant 30° right')
    assert difference.gone[0].startswith('door')
    assert difference.gone[1:] == ('gone: bag',)
    assert difference.is_other_action
    assert difference.count == 5
    assert delta_difference(before, before).count == 0
    # Of two things at one place, each keeps its name.
    two = delta(1, CHAIR, replace(CHAIR, label='stool'))
    other = delta(1, replace(CHAIR, label='stool'), CHAIR)
    assert delta_difference(two, other).count == 0


def test_what_is_said_to_be_gone_is_compared_too() -> None:
    bed = replace(CHAIR, label='bed', status=ItemStatus.LEFT)
    bare, left = delta(1, CHAIR), delta(1, CHAIR, bed)
    assert delta_difference(bare, left) == DeltaDifference(added=('gone: bed',))
    assert delta_difference(left, bare) == DeltaDifference(gone=('gone: bed',))
    assert delta_difference(left, delta(1, replace(bed, label='Bed'), CHAIR)).count == 0
    assert delta_difference(left, delta(1, CHAIR, bed, bed)).added == ('gone: bed',)
    pair = ReplayedDelta(left, None, CameraView())
    assert pair.difference.added[1:] == ('gone: bed',)
    table = pairs_table([ReplayedDelta(bare, left, CameraView())])
    assert 'gone     gone: bed' in table
    assert '1 of 1 keyframes differ' in table


def test_failure_is_a_difference_and_no_motion() -> None:
    failed = SemanticDelta(S, DeltaKind.FAILED, 1, error='no server')
    difference = delta_difference(delta(1, CHAIR, action='moved up'), failed)
    assert difference.is_other_kind
    assert not difference.is_other_action


def test_the_recorded_pairs_are_perceived_again(tmp_path: Path) -> None:
    bag, stub = record(tmp_path / 'bag'), Stub()
    digest = bag_digest(bag).sha256
    pairs = perceive_again(bag, stub)
    assert stub.pairs == [(None, 0), (0, 2), (2, 3)]
    assert [pair.difference.renamed for pair in pairs] == [(('chair', 'stool'),)] * 3
    value = pair_to_json(pairs[1])
    assert (value['keyframe'], value['differences']) == (2, 2)
    assert value['renamed'] == [['chair', 'stool']]
    assert value['recorded']['items'][0]['label'] == 'chair'
    table = pairs_table(pairs)
    assert 'renamed  chair -> stool' in table
    assert '3 of 3 keyframes differ: 3 items added, 0 gone, 3 renamed; 0 motions' in table
    assert bag_digest(bag).sha256 == digest


def test_without_recorded_deltas_every_keyframe_is_perceived(tmp_path: Path) -> None:
    stub = Stub()
    pairs = perceive_again(record(tmp_path / 'bag', has_deltas=False), stub)
    assert stub.pairs == [(None, 0), (0, 1), (1, 2), (2, 3)]
    assert pairs[0].difference.added
    with pytest.raises(BagError, match='images: keyframes'):
        perceive_again(record(tmp_path / 'none', has_images=False), stub)


def test_questions_know_what_the_other_perceiver_says(tmp_path: Path) -> None:
    bag, stub = record(tmp_path / 'bag'), Stub()
    recorded = read_recorded_deltas(bag)
    scene = OtherScene(bag, stub, perceive_again(bag, stub))
    labels = [item.label for each in scene.deltas(recorded[:2]) for item in each.items]
    assert labels == ['stool', 'plant'] * 2
    (failed,) = scene.deltas([replace(recorded[0], stamp_ns=77)])
    assert (failed.kind, failed.items) == (DeltaKind.FAILED, ())
    looks = (FocusText(2, 2 * S, 'a chair'), FocusText(3, 3 * S, 'a chair'))
    answer = Answer('a', 'What is there?', AnswerKind.TEXT, focus=looks, map_revision=4)
    early = replace(answer, id='early', focus=(), observation_stamp_ns=0)
    late = replace(answer, id='late', observation_stamp_ns=3 * S)
    assert [look.text for look in scene.looks([early, late])['late']] == ['What is there? a stool']
    maps = scene.maps([late, early, replace(answer, id='blind', map_revision=0)])
    assert set(maps) == {'early', 'late'}
    assert {one.label for one in maps['early'].landmarks} == {'stool'}
    assert len(maps['late'].path) > len(maps['early'].path)
