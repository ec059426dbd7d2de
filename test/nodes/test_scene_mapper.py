# SPDX-License-Identifier: Apache-2.0
"""The scene map of a running reasoner: published, asked, in prompts, and kept on the disk."""

from __future__ import annotations

from dataclasses import replace
import json
import math
import re
import time
from typing import Any, TYPE_CHECKING

from embodied_r_msgs.msg import LandmarkArray, SemanticDelta
from embodied_r_msgs.srv import EditLandmark, Recall, ResetMemory
from embodied_r_ros.core.scene.landmark_map import LandmarkMap
from embodied_r_ros.core.types import deltas
from embodied_r_ros.core.types.deltas import DeltaKind, Item, ScaleSource
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.landmarks import Landmark
from embodied_r_ros.data.own_messages import delta_to_msg
from embodied_r_ros.nodes import topics
from embodied_r_ros.nodes.scene_mapper import find_landmarks
from embodied_r_ros.nodes.topics import message_class, ROS_MESSAGES
from geometry_msgs.msg import Point
import pytest

from test.chat_server import ChatServer, Script
from test.nodes.graph import CLEANUP, CONFIGURE, DEACTIVATE, wait_for
from test.nodes.test_item_topics import HAS_MARKERS
from test.nodes.test_spatial_reasoner import Asker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from test.nodes.graph import Graph

AHEAD = Item('sofa', bearing_rad=0.0, elevation_rad=0.0, size_rad=0.4, distance_m=2.0)
LEFT = Item('door', bearing_rad=math.pi / 4, elevation_rad=0.0, size_rad=0.3, distance_m=3.0)
AT = Pose((1.0, 0.0, 1.2), (0.0, 0.0, 0.0, 1.0), 'odom')


@pytest.fixture
def server() -> Iterator[ChatServer]:
    default = Script(('<think>It is there.</think><answer>2.0</answer>',))
    with ChatServer(default=default, models=[{'id': 'scripted'}]) as made:
        yield made


class Mapped(Asker):
    """A reasoner that is shown items at poses."""

    def show(self, *items: Item, pose: Pose | None = AT) -> None:
        """Show a keyframe with items placed by depth, and wait until it is in the map."""
        before = self.node._mapper.scene_map().revision
        stamp_ns = self.node.now_ns() - 100_000_000
        placed = tuple(replace(item, scale=ScaleSource.DEPTH, confidence=0.9) for item in items)
        delta = deltas.SemanticDelta(
            stamp_ns, DeltaKind.FIRST, before, before, change='Seen.', items=placed, pose=pose
        )
        self.deltas.publish(delta_to_msg(ROS_MESSAGES, delta))
        wait_for(lambda: self.node._mapper.scene_map().revision > before, 'the delta in the map')

    def recall(self, frame_id: str = 'odom', **fields: Any) -> list[str]:
        """Labels that the service gives, of places in that frame."""
        response = self.graph.call(Recall, '/recall', Recall.Request(**fields))
        assert response.frame_id == frame_id
        return [landmark.label for landmark in response.landmarks]


@pytest.fixture
def mapped(graph: Graph, server: ChatServer) -> Mapped:
    asker = Mapped(graph, server)
    asker.start()
    return asker


def test_items_become_landmarks_that_latecomers_hear_of(mapped: Mapped) -> None:
    mapped.show(AHEAD, LEFT)
    mapped.show(AHEAD, LEFT)
    maps = mapped.graph.inbox(LandmarkArray, '/landmarks', topics.LATCHED)
    newest = maps.wait(1)[-1]
    assert newest.header.frame_id == 'odom'
    by_label = {landmark.label: landmark for landmark in newest.landmarks}
    assert set(by_label) == {'sofa', 'door'}
    place = by_label['sofa'].position
    assert (place.x, place.y, place.z) == pytest.approx((3.0, 0.0, 1.2), abs=0.2)
    assert by_label['sofa'].observations == 2
    assert [point.position.x for point in newest.path] == [1.0, 1.0]  # since when, and now


@pytest.mark.skipif(not HAS_MARKERS, reason='visualization_msgs is not installed')
def test_landmarks_are_markers_too(mapped: Mapped) -> None:
    kind = message_class('visualization_msgs/msg/MarkerArray')
    mapped.show(AHEAD)
    markers = mapped.graph.inbox(kind, '/landmarks/markers', topics.LATCHED).wait(1)[-1].markers
    assert [marker.text for marker in markers] == ['', 'sofa']
    assert markers[0].header.frame_id == 'odom'


def test_map_answers_what_is_where(mapped: Mapped) -> None:
    mapped.show(AHEAD, LEFT)
    assert sorted(mapped.recall()) == ['door', 'sofa']
    assert mapped.recall(label='Doors') == ['door']
    assert mapped.recall(has_near=True, near=Point(x=3.0, y=0.0, z=1.2)) == ['sofa', 'door']
    assert mapped.recall(has_near=True, near=Point(x=3.0, y=0.0, z=1.2), radius=1.0) == ['sofa']
    assert mapped.recall(label='stool') == []


def test_prompt_holds_the_map_and_the_answer_cites_it(mapped: Mapped) -> None:
    mapped.show(AHEAD, LEFT)
    _, result = mapped.ask(question='How far is the sofa from the door?', options=[])
    answer = result.answer
    assert re.search(r'From sofa: [\d.]+m door\.', answer.prompt)
    assert answer.map_revision == mapped.node._mapper.scene_map().revision
    assert len(answer.landmark_ids) == 2
    assert 0 < answer.landmark_age.nanosec < 10**9


def test_prompt_is_without_the_map_where_the_model_does_not_know_maps(
    graph: Graph, server: ChatServer
) -> None:
    mapped = Mapped(graph, server, reasoner__use_map=False)
    mapped.start()
    mapped.show(AHEAD)
    _, result = mapped.ask(question='How far is the sofa?', options=[])
    assert result.answer.prompt.startswith('Seen:')
    assert result.answer.map_revision == 0
    assert mapped.recall() == ['sofa']


def test_map_survives_a_restart_until_it_is_forgotten(
    graph: Graph, server: ChatServer, tmp_path: Path
) -> None:
    folder = tmp_path / 'maps' / 'flat'
    mapped = Mapped(graph, server, map_dir=str(folder))
    mapped.start()
    mapped.show(AHEAD)
    graph.change(mapped.node, DEACTIVATE, CLEANUP)
    saved = json.loads((folder / 'MAP.json').read_text())
    assert [landmark['label'] for landmark in saved['landmarks']] == ['sofa']
    graph.change(mapped.node, CONFIGURE)
    # Odometry may have begun anew: the old map is in no frame that is known now.
    assert mapped.recall('map') == ['sofa']
    graph.call(ResetMemory, '/reset_memory', ResetMemory.Request())
    assert mapped.recall('map') == ['sofa']
    graph.call(ResetMemory, '/reset_memory', ResetMemory.Request(forget_map=True))
    assert not mapped.node._mapper.scene_map().landmarks
    assert json.loads((folder / 'MAP.json').read_text())['landmarks'] == []


def test_a_landmark_is_forgotten_and_another_pinned(
    graph: Graph, server: ChatServer, tmp_path: Path
) -> None:
    mapped = Mapped(graph, server, map_dir=str(tmp_path))
    mapped.start()
    mapped.show(AHEAD, LEFT)
    ids = {one.label: one.id for one in mapped.node._mapper.scene_map().landmarks}

    def edit(action: int, number: int) -> EditLandmark.Response:
        request = EditLandmark.Request(action=action, id=number)
        return graph.call(EditLandmark, '/edit_landmark', request)

    assert edit(EditLandmark.Request.PIN, ids['sofa']).success
    assert edit(EditLandmark.Request.FORGET, ids['door']).success
    wait_for(lambda: len(mapped.node._mapper) == 1, 'one landmark')
    maps = graph.inbox(LandmarkArray, '/landmarks', topics.LATCHED)
    (sofa,) = maps.wait(1)[-1].landmarks
    assert (sofa.label, sofa.pinned) == ('sofa', True)
    refused = edit(EditLandmark.Request.PIN, ids['door'])
    assert not refused.success
    assert refused.message.startswith(f'no landmark has id {ids["door"]}')
    assert not edit(7, ids['sofa']).success
    assert edit(EditLandmark.Request.UNPIN, ids['sofa']).success
    graph.change(mapped.node, DEACTIVATE, CLEANUP)
    (saved,) = json.loads((tmp_path / 'MAP.json').read_text())['landmarks']
    assert (saved['label'], 'pinned' in saved) == ('sofa', False)


def test_folder_with_something_else_is_refused(
    graph: Graph, server: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / 'state.json').write_text('{"version": 99}')
    mapped = Mapped(graph, server, map_dir=str(tmp_path))
    assert not graph.try_change(mapped.node, CONFIGURE)


def test_folder_that_cannot_be_one_is_refused(
    graph: Graph, server: ChatServer, tmp_path: Path
) -> None:
    (tmp_path / 'file').write_text('')
    mapped = Mapped(graph, server, map_dir=str(tmp_path / 'file'))
    assert not graph.try_change(mapped.node, CONFIGURE)


def test_a_full_line_ends_with_the_node(mapped: Mapped, monkeypatch: pytest.MonkeyPatch) -> None:
    add = LandmarkMap.add

    def slow_add(self: LandmarkMap, *words: Any) -> bool:
        time.sleep(0.3)
        return add(self, *words)

    mapped.show(AHEAD)
    monkeypatch.setattr(LandmarkMap, 'add', slow_add)
    mapper = mapped.node._mapper
    for _ in range(100):
        mapper.add(deltas.SemanticDelta(0, DeltaKind.FIRST))
    assert mapped.recall() == ['sofa']  # answered meanwhile
    mapped.graph.change(mapped.node, DEACTIVATE, CLEANUP)
    assert not mapper._worker.is_alive()
    assert mapper._waiting.qsize() > 0


def test_message_without_a_pose_places_nothing(mapped: Mapped) -> None:
    mapped.show(AHEAD)
    mapped.deltas.publish(SemanticDelta(kind=SemanticDelta.KIND_CHANGE, change='New: x.'))
    mapped.show(AHEAD)
    assert mapped.recall() == ['sofa']


def test_recall_by_time() -> None:
    old, new = (
        Landmark('cup', (0, 0, 0), last_seen_ns=5),
        Landmark('cup', (9, 0, 0), last_seen_ns=8),
    )
    assert find_landmarks((old, new), 'cup', None, 0.0, 0) == [new, old]
    assert find_landmarks((old, new), 'cups', None, 0.0, 6) == [new]
