# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import math
import threading
from typing import Any, TYPE_CHECKING

from diagnostic_msgs.msg import DiagnosticArray
from embodied_r_msgs.msg import Keyframe, ModelInfo, SemanticDelta
from embodied_r_msgs.srv import Focus
from embodied_r_ros.core.types import deltas
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import DeltaKind
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.own_messages import keyframe_to_msg
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.serving.model_files import MODEL_FILES, model_folder
import pytest

from test.bags.test_messages import keyframe
from test.chat_server import ChatServer, Script
from test.nodes.graph import ACTIVATE, CLEANUP, CONFIGURE, DEACTIVATE, wait_for
from test.nodes.test_keyframe_extractor import START_NS, view

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from embodied_r_ros.core.types import keyframes

    from test.nodes.graph import Graph

S = 1_000_000_000


def keyframe_with_id(index: int, camera: str = 'front', x: float = 0.0) -> keyframes.Keyframe:
    """The keyframe with an id, taken where the camera had moved by `x` [m]."""
    return replace(
        keyframe(),
        id=index,
        reference_id=max(0, index - 1),
        stamp_ns=START_NS + index * S,
        camera=camera,
        episode_id='',
        intrinsics=None,
        image=encode_image(view(7)),
        pose=Pose((x, 0.0, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom'),
    )


class FakePerceiver:
    """Perceives when let go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.deadlines_s: list[float] = []
        self.model = deltas.ModelInfo('fake')

    def perceive(
        self, earlier: keyframes.Keyframe | None, later: keyframes.Keyframe
    ) -> deltas.SemanticDelta:
        self.go.wait(20)
        kind = DeltaKind.CHANGE if earlier else DeltaKind.FIRST
        first = earlier or later
        return deltas.SemanticDelta(later.stamp_ns, kind, later.id, first.id, camera=later.camera)

    def focus(
        self,
        question: str,
        options: Sequence[str],
        keyframe: keyframes.Keyframe,
        deadline_s: float,
    ) -> FocusText:
        self.go.wait(20)
        self.deadlines_s.append(deadline_s)
        return FocusText(keyframe.id, keyframe.stamp_ns, f'{question} {deadline_s > 1}', 'front')

    def check(self, deadline_s: float) -> None:
        """Always well."""

    def info(self) -> deltas.ModelInfo:
        return self.model


def with_perceiver(graph: Graph, perceiver: Any, **parameters: Any) -> SemanticPerceiver:
    """An active node whose perceiver is replaced."""
    node = graph.add(SemanticPerceiver, **parameters)
    node._choose = lambda: perceiver  # type: ignore[method-assign]
    graph.change(node, CONFIGURE, ACTIVATE)
    return node


def show(graph: Graph, *shown: keyframes.Keyframe, topic: str = 'keyframe') -> Any:
    publisher = graph.publisher(Keyframe, topic)
    for one in shown:
        publisher.publish(keyframe_to_msg(ROS_MESSAGES, one))
    return publisher


def test_keyframes_become_deltas(graph: Graph) -> None:
    graph.active(SemanticPerceiver)
    found = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    show(graph, keyframe_with_id(0), keyframe_with_id(1, x=1.5))
    first, second = found.wait(2)
    assert (first.kind, first.to_id) == (SemanticDelta.KIND_FIRST, 0)
    assert (second.from_id, second.to_id, second.camera) == (0, 1, 'front')
    assert second.action == 'moved forward 1.5 m'
    assert second.header.frame_id == 'front_optical'
    assert second.header.stamp.sec == START_NS // S + 1
    assert (second.model.name, second.model.rung) == ('classical', ModelInfo.RUNG_PRIMARY)
    assert second.latency.nanosec > 0


def test_focus_looks_again_without_blocking(graph: Graph) -> None:
    perceiver = FakePerceiver()
    node = with_perceiver(graph, perceiver)
    show(graph, keyframe_with_id(0), keyframe_with_id(1))
    wait_for(lambda: node._worker.keyframe(1, 'front'), 'the keyframes')
    request = Focus.Request(question='a door?', keyframe_ids=[0, 1, 99], deadline_s=5.0)
    looking = graph.call_async(Focus, '/focus', request)
    wait_for(lambda: node._looking, 'the look')
    arrays = graph.inbox(DiagnosticArray, '/diagnostics')
    arrays.wait(1)
    assert not looking.done()
    perceiver.go.set()
    response = graph.result(looking)
    assert [(text.keyframe_id, text.text) for text in response.focus] == [
        (0, 'a door? True'),
        (1, 'a door? True'),
    ]
    assert response.error == ''


def test_focus_without_a_deadline_has_the_nodes(graph: Graph) -> None:
    perceiver = FakePerceiver()
    perceiver.go.set()
    node = with_perceiver(graph, perceiver, focus_deadline_s=7.0)
    show(graph, keyframe_with_id(0))
    wait_for(lambda: node._worker.keyframe(0, 'front'), 'the keyframe')
    request = Focus.Request(question='a door?', keyframe_ids=[0], deadline_s=0.0)
    assert len(graph.call(Focus, '/focus', request).focus) == 1
    [left_s] = perceiver.deadlines_s
    assert 0 < left_s <= 7
    for deadline_s in (-1.0, math.nan, math.inf):
        request.deadline_s = deadline_s
        response = graph.call(Focus, '/focus', request)
        assert f'deadline_s is {deadline_s:g}: expected a time' in response.error
    assert len(perceiver.deadlines_s) == 1


def test_look_that_fails_is_told(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    node = with_perceiver(graph, FakePerceiver())

    def fail(keyframe_id: int, camera: str) -> None:
        raise ZeroDivisionError(keyframe_id)

    monkeypatch.setattr(node._worker, 'keyframe', fail)
    response = graph.call(Focus, '/focus', Focus.Request(question='a door?', keyframe_ids=[5]))
    assert response.error == 'the look failed: ZeroDivisionError: 5'
    assert node._looking == 0


def test_focus_needs_an_active_node(graph: Graph) -> None:
    node = graph.active(SemanticPerceiver)
    graph.change(node, DEACTIVATE)
    response = graph.call(Focus, '/focus', Focus.Request(question='a door?', keyframe_ids=[0]))
    assert response.error == 'the perceiver is not active'


def test_damaged_keyframe_is_counted_and_survived(graph: Graph) -> None:
    node = graph.active(SemanticPerceiver)
    found = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    msg = keyframe_to_msg(ROS_MESSAGES, keyframe())
    msg.image.data = msg.image.data[:20]
    publisher = graph.publisher(Keyframe, 'keyframe')
    publisher.publish(msg)
    wait_for(lambda: node._bad_keyframes == 1, 'the damaged keyframe')
    publisher.publish(keyframe_to_msg(ROS_MESSAGES, keyframe_with_id(0)))
    found.wait(1)


def test_missing_model_server_fails_the_configuration(
    graph: Graph, capfd: pytest.CaptureFixture[str]
) -> None:
    node = graph.add(
        SemanticPerceiver, perceiver='vlm', chat__url='http://127.0.0.1:9', chat__retries=0
    )
    assert not graph.try_change(node, CONFIGURE)
    assert 'not configured: no model server at http://127.0.0.1:9' in capfd.readouterr().err


def test_failure_without_a_stand_in_is_said(graph: Graph) -> None:
    with ChatServer(models=[{'id': 'scripted'}]) as server:
        node = graph.active(
            SemanticPerceiver,
            perceiver='vlm',
            stand_in=False,
            chat__url=server.url,
            chat__model='scripted',
            vlm__retries=0,
            chat__retries=0,
        )
        server.default = Script(status=500)
        found = graph.inbox(SemanticDelta, 'semantic_delta')
        graph.matched('semantic_delta')
        show(graph, keyframe_with_id(0))
        [delta] = found.wait(1)
    assert delta.kind == SemanticDelta.KIND_FAILED
    assert 'status 500' in delta.error
    assert 'status 500' in node.report().message


@pytest.mark.parametrize(
    ('profile', 'perceiver', 'name'),
    [('', 'auto', 'classical'), ('embedded', 'auto', 'classical')],
)
def test_profile_chooses_the_perceiver(
    graph: Graph, profile: str, perceiver: str, name: str
) -> None:
    node = graph.active(SemanticPerceiver, profile=profile, perceiver=perceiver)
    assert node.report().values['model'] == name


def test_profile_with_a_model_asks_for_it(graph: Graph, capfd: pytest.CaptureFixture[str]) -> None:
    node = graph.add(SemanticPerceiver, profile='gpu-24gb', chat__retries=0)
    assert not graph.try_change(node, CONFIGURE)
    assert 'no model server at' in capfd.readouterr().err


def test_setting_of_the_perceiver_takes_effect_at_configure(graph: Graph) -> None:
    node = graph.active(SemanticPerceiver)
    for name, value in (('classical.use_odometry', False), ('worker.in_flight', 5)):
        assert not graph.parameter(node, name, value).successful
    assert '"classical.use_odometry": true' in node.provenance()
    graph.change(node, DEACTIVATE, CLEANUP)
    assert graph.parameter(node, 'classical.use_odometry', False).successful
    graph.change(node, CONFIGURE, ACTIVATE)
    assert '"classical.use_odometry": false' in node.provenance()
    found = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    show(graph, keyframe_with_id(0), keyframe_with_id(1, x=1.5))
    assert found.wait(2)[1].action != 'moved forward 1.5 m'


def test_a_detector_names_what_the_node_sees(graph: Graph, red_lamps: Path) -> None:
    node = graph.active(SemanticPerceiver, detector__model=str(red_lamps))
    assert node.report().values['model'] == 'detector/red'
    found = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    image = view(7).copy()
    height, width = image.shape[:2]
    image[height // 4 : height // 2, width // 4 : width // 2] = (0, 0, 255)
    show(graph, replace(keyframe_with_id(0), image=encode_image(image, 95)))
    (delta,) = found.wait(1)
    assert 'red lamp' in {item.label for item in delta.items}
    assert delta.model.digest.startswith('sha256:')


def test_a_detector_that_was_asked_for_must_be_there(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    node = graph.add(SemanticPerceiver, perceiver='detector')
    assert not graph.try_change(node, CONFIGURE)
    assert 'models fetch detector' in capfd.readouterr().err
    both = graph.add(SemanticPerceiver, namespace='/both', perceiver='fused')
    assert not graph.try_change(both, CONFIGURE)
    assert 'perceiver is fused: set detector.model' in capfd.readouterr().err
    named = graph.add(SemanticPerceiver, namespace='/other', detector__model='/nowhere.onnx')
    assert not graph.try_change(named, CONFIGURE)
    assert 'nowhere.onnx is not there' in capfd.readouterr().err


def test_a_fetched_detector_that_cannot_be_used_is_left_out(
    graph: Graph,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv('XDG_DATA_HOME', str(tmp_path))
    folder = model_folder()
    folder.mkdir(parents=True)
    (folder / MODEL_FILES['detector'].file_name).write_bytes(b'damaged')
    node = graph.active(SemanticPerceiver)
    assert node.report().values['model'] == 'classical'
    assert 'things get no names' in capfd.readouterr().err
