# SPDX-License-Identifier: Apache-2.0
"""What is in one split is not in another, and a manifest says what rows were made of."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
import hashlib
import json
import re
import shutil
from typing import TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.deltas import (
    change_text,
    DeltaKind,
    Item,
    ItemStatus,
    SemanticDelta,
)
from embodied_r_ros.core.types.episodes import EpisodeEvent, EpisodeMark
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg, mark_to_msg
from embodied_r_ros.data.questions.collect import rows_of, RowsRecipe
from embodied_r_ros.data.questions.coverage import Coverage
from embodied_r_ros.data.questions.derive import QuestionsConfig
from embodied_r_ros.data.questions.row import read_rows
from embodied_r_ros.data.questions.splits import split_of, SplitGuard
import yaml

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

S = 1_000_000_000
FACTORY = BagMessageFactory()
CONFIG = QuestionsConfig(test_share=0.5, validation_share=0.0)
FIRST = KeyframeReason.FIRST
IN_TEST, IN_TRAIN = (
    [name for i in range(30) if split_of(name := f'room {i}', CONFIG) == split]
    for split in ('test', 'train')
)


def test_splits_get_their_shares_of_the_scenes() -> None:
    config = QuestionsConfig(test_share=0.2, validation_share=0.3)
    counts = Counter(split_of(f'room {i}', config) for i in range(1000))
    for split, share in (('test', 200), ('validation', 300), ('train', 500)):
        assert abs(counts[split] - share) < 50


def write_bag(
    path: Path,
    scene: str,
    *,
    first_m: int = 0,
    count: int = 9,
    t0_ns: int = S,
    empty: bool = False,
) -> Path:
    """A drive along a row of items; `first_m` tells where along it the drive begins."""
    mark = EpisodeMark(t0_ns, path.name, EpisodeEvent.START, scene_id=scene)
    with BagWriter(path) as bag:
        for topic in ('SemanticDelta', 'EpisodeMark', 'Keyframe'):
            bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{topic}')
        bag.write('/EpisodeMark', mark_to_msg(FACTORY, mark), t0_ns)
        for index in range(count):
            stamp_ns, metre = t0_ns + index * S, first_m + index
            item = Item(f'item {metre}', ItemStatus.APPEARED, 0.1, 0.1, 0.1, 1.0 + 0.1 * metre)
            items = () if empty else (item,)
            kind = DeltaKind.CHANGE if index else DeltaKind.FIRST
            action = 'moved forward 1.0 m' if index else ''
            delta = SemanticDelta(
                stamp_ns, kind, index, action=action, change=change_text(items), items=items
            )
            pose = Pose((float(metre), 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            image = EncodedImage(b'', 'jpeg')
            keyframe = Keyframe(index, stamp_ns, image, FIRST, 0, pose=pose)
            bag.write('/Keyframe', keyframe_to_msg(FACTORY, keyframe), stamp_ns)
            bag.write('/SemanticDelta', delta_to_msg(FACTORY, delta), stamp_ns)
    return path


def episodes_in_rows(*bags: Path) -> tuple[set[str], Coverage]:
    """Episodes that have rows, and the coverage."""
    coverage = Coverage()
    rows = list(rows_of(bags, RowsRecipe(CONFIG), coverage))
    assert coverage.splits.total() == len(rows)
    return {row.episode_id for row in rows}, coverage


def test_the_same_scene_under_two_names_is_in_one_split_only(tmp_path: Path) -> None:
    bags = [
        write_bag(tmp_path / 'a', IN_TRAIN[0]),
        write_bag(tmp_path / 'same', IN_TEST[0], t0_ns=5 * S),
        write_bag(tmp_path / 'part', IN_TEST[1], first_m=2, count=7),
        write_bag(tmp_path / 'other', IN_TEST[2], first_m=50),
        write_bag(tmp_path / 'same split', IN_TRAIN[1], t0_ns=7 * S),
    ]
    episodes, coverage = episodes_in_rows(*bags)
    assert episodes == {'a', 'other', 'same split'}
    reason = f'shows what scene {IN_TRAIN[0]!r} of another split shows'
    assert coverage.left_out['every kind', reason] == 2
    assert [note.left_out for note in coverage.bags] == ['', reason, reason, '', '']
    assert reason in coverage.table()


def test_places_without_anything_to_see_are_not_taken_for_one(tmp_path: Path) -> None:
    bags = [
        write_bag(tmp_path / 'a', IN_TRAIN[0], empty=True),
        write_bag(tmp_path / 'b', IN_TEST[0], empty=True, count=8),
    ]
    _, coverage = episodes_in_rows(*bags)
    assert not coverage.bags[1].left_out


def test_a_copy_of_a_bag_is_left_out(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'a', IN_TRAIN[0])
    copy = tmp_path / 'copy'
    shutil.copytree(bag, copy)
    _, coverage = episodes_in_rows(bag, copy)
    assert coverage.left_out['every kind', f'a copy of bag {bag}'] == 1
    assert coverage.bags[0].sha256 == coverage.bags[1].sha256


def test_the_same_question_about_the_same_deltas_is_in_one_split_only(tmp_path: Path) -> None:
    bags = [
        write_bag(tmp_path / name, name, count=3, empty=True, t0_ns=index * S)
        for index, name in enumerate((*IN_TRAIN[:4], *IN_TEST[:4]), 1)
    ]
    coverage = Coverage()
    rows = list(rows_of(bags, RowsRecipe(CONFIG), coverage))
    asked = [(row.question, frozenset(row.options), row.split) for row in rows]
    both = {(q, o) for q, o, split in asked if split == 'train'} & {
        (q, o) for q, o, split in asked if split == 'test'
    }
    assert both == set()
    assert coverage.left_out.total() > 0
    assert {why for _, why in coverage.left_out} == {
        'the same is asked of the same deltas in split train'
    }


def test_guard_keeps_apart_what_differs_in_the_question_only(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'a', IN_TRAIN[0])
    row = next(iter(rows_of([bag], RowsRecipe(CONFIG), Coverage())))
    guard = SplitGuard()
    later = [{**delta, 'stamp_ns': delta['stamp_ns'] + S} for delta in row.deltas]
    assert guard.clash_of(row) == ''
    twin = replace(row, split='test', deltas=tuple(later), options=row.options[::-1])
    assert guard.clash_of(twin) == 'train'
    assert guard.clash_of(replace(twin, question='Where?')) == ''


def test_manifest_tells_what_rows_were_made_of(tmp_path: Path) -> None:
    bag = write_bag(tmp_path / 'a', 'lab')
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(bag), '--seed', '3', '--out', str(out)]) == 0
    made = json.loads((tmp_path / 'rows.manifest.json').read_text())
    rows = list(read_rows(out))
    assert made['rows']['sha256'] == hashlib.sha256(out.read_bytes()).hexdigest()
    assert made['rows']['count'] == len(rows)
    assert made['questions']['seed'] == 3
    counts = made['rows']['counts'][rows[0].split]
    assert sum(n for by in counts.values() for n in by.values()) == len(rows)
    (file,) = bag.glob('*.mcap')
    (note,) = made['bags']
    assert note['files'] == {file.name: hashlib.sha256(file.read_bytes()).hexdigest()}
    assert (note['scene_id'], note['rows'], note['deltas']) == ('lab', len(rows), 'recorded')
    assert set(made['code']) == {'package', 'version', 'git_revision'}


def test_card_says_what_a_hub_asks_of_a_dataset(tmp_path: Path) -> None:
    out = tmp_path / 'rows.jsonl'
    assert main(['questions', str(write_bag(tmp_path / 'a', 'lab')), '--out', str(out)]) == 0
    rows = list(read_rows(out))
    _, head, text = (tmp_path / 'rows.card.md').read_text().split('---\n', 2)
    said = yaml.safe_load(head)
    assert said['license'] == 'unknown'
    assert said['configs'] == [{'config_name': 'default', 'data_files': 'rows.jsonl'}]
    cells = dict(re.findall(r'^\| (.+) \| (.+) \|$', text, re.MULTILINE))
    kinds = Counter(f'{row.split}: {row.question_type}' for row in rows)
    assert {name: int(cells[name]) for name in kinds} == kinds
    assert set(json.loads(out.read_text().splitlines()[0])) <= set(cells)
    assert cells['recordings'] == '1'


def test_manifest_is_not_overwritten(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bag = write_bag(tmp_path / 'a', 'lab')
    (tmp_path / 'rows.manifest.json').write_text('mine')
    assert main(['questions', str(bag), '--out', str(tmp_path / 'rows.jsonl')]) == 2
    assert 'exists already' in capsys.readouterr().err
    assert not (tmp_path / 'rows.jsonl').exists()
