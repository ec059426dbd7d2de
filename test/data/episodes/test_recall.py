# SPDX-License-Identifier: Apache-2.0
"""What questions look for, and what recordings answer without a model."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.common.errors import InputError
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    SemanticDelta,
)
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.episodes.recall import (
    named_query,
    Order,
    read_query,
    recall,
    recall_in,
)
from embodied_r_ros.data.episodes.recall_report import (
    recall_lines,
    recall_to_json,
    write_keyframes,
)
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_to_msg,
    keyframe_to_msg,
    mark_to_msg,
)
import pytest

from test.apps.review.recordings import FACTORY, picture

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types.answers import Answer

S = 10**9
START = 1_700_000_000 * S


def thing(label: str, bearing: float = 0.0, far: float = 2.0) -> Item:
    return Item(label, bearing_rad=bearing, elevation_rad=0.0, distance_m=far)


def record(
    path: Path,
    seen: Sequence[Sequence[Item] | str],
    *,
    scene: str = '',
    answers: Sequence[Answer] = (),
) -> Path:
    """A still camera that sees these things, second by second; a text: what a model wrote."""
    mark = EpisodeMark(START, path.name, EpisodeEvent.START, scene_id=scene)
    with BagWriter(path) as bag:
        for topic in ('Answer', 'SemanticDelta', 'Keyframe', 'EpisodeMark'):
            bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{topic}')
        bag.write('/EpisodeMark', mark_to_msg(FACTORY, mark), START)
        for number, things in enumerate(seen):
            stamp_ns = START + number * S
            items = () if isinstance(things, str) else tuple(things)
            change = things if isinstance(things, str) else change_text(items)
            pose = Pose((0.0, 0.0, 0.0), (0.0, 0.0, 0.5**0.5, 0.5**0.5), 'odom')  # faces +y
            image, reason = picture(20 + number), KeyframeReason.LOW_OVERLAP
            keyframe = Keyframe(number, stamp_ns, image, reason, 0, 0.4, pose=pose)
            kind = DeltaKind.CHANGE if number else DeltaKind.FIRST
            delta = SemanticDelta(
                stamp_ns, kind, number, max(0, number - 1), change=change, items=items
            )
            bag.write('/Keyframe', keyframe_to_msg(FACTORY, keyframe), stamp_ns)
            bag.write('/SemanticDelta', delta_to_msg(FACTORY, delta), stamp_ns)
        for answer in answers:
            bag.write('/Answer', answer_to_msg(FACTORY, answer), START + 9 * S)
    return path


def names(question: str, *bags: Path) -> list[str]:
    return [one.name for one in recall(read_query(question), bags).recordings]


@pytest.mark.parametrize(
    ('question', 'words', 'order'),
    [
        ('in which recordings was a person near the oven?', 'a person near an oven', 'best'),
        ('Where did you last see the bag?', 'a bag', 'last'),
        ('which recordings show a chair near a table?', 'a chair near a table', 'best'),
        ('latest sight of the cup', 'a cup', 'last'),
        ('who was at the door?', 'a person near a door', 'best'),
        ('Which episodes contain people and dogs?', 'a person and a dog', 'best'),
        ('when was the robot near the sofa?', 'a sofa', 'best'),
        ('is there a char near the tabel', 'a chair near a table', 'best'),
    ],
)
def test_questions_are_read(question: str, words: str, order: str) -> None:
    query = read_query(question)
    assert (query.in_words(), query.order.value) == (words, order)


@pytest.mark.parametrize(
    'question',
    [
        'what did you see?',
        '',
        'a forklift',
    ],
)
def test_question_that_names_nothing_is_refused(question: str) -> None:
    with pytest.raises(InputError, match='names nothing'):
        read_query(question)


def test_names_are_taken_as_they_are_given(tmp_path: Path) -> None:
    loaded = [thing('yellow forklift'), thing('pallet', 0.3)]
    bags = [record(tmp_path / 'a', [loaded, [thing('forklift')]]), record(tmp_path / 'b', [[]])]
    found = recall(named_query(['forklift'], order=Order.LAST), bags)
    assert [(one.name, one.count) for one in found.recordings] == [('a', 2)]
    assert found.query.in_words() == 'a forklift'
    near = recall(named_query(['yellow forklift'], ['pallet']), bags)
    assert [hit.keyframe_id for hit in near.recordings[0].hits] == [0]
    assert near.query.in_words() == 'a yellow forklift near a pallet'
    assert not recall(named_query(['forklift', 'chair']), bags).recordings
    assert not recall(named_query(['traffic sign']), bags).recordings


def test_a_name_in_quotes_is_taken_as_it_is(tmp_path: Path) -> None:
    bag = record(tmp_path / 'a', [[thing('yellow forklift')]])
    assert names('Where is the "forklift"?', bag) == ['a']
    assert names('Where is the "yellow crane"?', bag) == []


def test_things_are_found_by_their_other_names_and_groups(tmp_path: Path) -> None:
    one = record(tmp_path / 'one', [[thing('couch')], [thing('red backpack')]])
    other = record(tmp_path / 'other', [[thing('dining table'), thing('blue chair')]])
    assert names('which recordings show a sofa?', one, other) == ['one']
    assert names('is there a bag', one, other) == ['one']
    assert names('which recordings show tables?', one, other) == ['other']
    assert names('a red chair', one, other) == []
    assert names('a blue chair', one, other) == ['other']
    assert names('a red thing', one, other) == ['one']
    assert names('a sofa and a table', one, other) == []


def test_what_is_gone_was_not_seen(tmp_path: Path) -> None:
    gone = replace(thing('person'), status=ItemStatus.LEFT)
    bag = record(tmp_path / 'bag', [[gone], 'Gone: person.', 'There is no person here.'])
    assert names('a person', bag) == []


def test_near_is_what_their_places_say(tmp_path: Path) -> None:
    close = record(tmp_path / 'close', [[thing('chair'), thing('table', 0.3)]])
    apart = record(tmp_path / 'apart', [[thing('chair'), thing('table', 0.3, 6.0)]])
    # Never in one keyframe, and near each other in the map of it all.
    later = record(tmp_path / 'later', [[thing('chair')], [], [thing('table', 0.3)]])
    assert names('a chair next to a table', close, apart, later) == ['close', 'later']
    (hit,) = recall_in(read_query('a chair near a table'), close).hits
    assert hit.position == pytest.approx((0.0, 2.0, 0.0))


def test_last_sight_comes_first_with_its_keyframe(tmp_path: Path) -> None:
    early = record(tmp_path / 'early', [[thing('bag')], []])
    late = record(tmp_path / 'late', [[], [thing('handbag')], [thing('handbag', 0.4)], []])
    found = recall(read_query('where did you last see the bag?'), [early, late])
    assert found.newest
    assert found.newest.name == 'late'
    assert (
        'last: late, keyframe at 2.0 s (camera): handbag 25° left 2.0 m' in recall_lines(found)[1]
    )
    out = tmp_path / 'out'
    paths = write_keyframes(out, found, [early, late])
    assert [path.rpartition('/')[2] for path in paths] == [
        'early-camera-0.jpg',
        'late-camera-1.jpg',
        'late-camera-2.jpg',
    ]
    assert (out / 'late-camera-2.jpg').read_bytes() == picture(22).data
    with pytest.raises(InputError, match='not an empty folder'):
        write_keyframes(out, found, [early, late])


def test_damaged_and_unperceived_recordings_are_named(tmp_path: Path) -> None:
    good = record(tmp_path / 'good', [[thing('chair')]])
    damaged = tmp_path / 'damaged.mcap'
    damaged.write_bytes(next(good.glob('*.mcap')).read_bytes()[:500])
    with BagWriter(tmp_path / 'plain') as bag:
        bag.add_topic('/note', 'std_msgs/msg/String')
        bag.write('/note', FACTORY.make('std_msgs/msg/String', data='x'), 1)
    found = recall(named_query(['unicorn']), [good, damaged, tmp_path / 'plain'])
    problems = {one.name: one.problem for one in found.problems}
    assert 'was not closed' in problems['damaged.mcap']
    assert 'collect' in problems['plain']
    assert recall_lines(found) == ['none of 1 recordings that can be searched shows a unicorn.']


def test_texts_of_recordings_stay_data(tmp_path: Path) -> None:
    label = 'chair</answer>\n\x1b[31m'
    bag = record(tmp_path / 'bag', [[thing(label)]])
    found = recall(replace(named_query([label]), text='a chair'), [bag])
    text = str(recall_to_json(found)) + '\n'.join(recall_lines(found))
    assert found.recordings[0].count == 1
    assert '<' not in text
    assert '\x1b' not in text
