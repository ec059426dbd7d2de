# SPDX-License-Identifier: Apache-2.0
"""From the topic of a camera to deltas, by a real vision-language model behind its own server.

A Qwen2-VL of random weights sees the images and says nothing of use, which `transformers serve`
does not prevent: what comes of that is what the robot hears.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_msgs.msg import ModelInfo, SemanticDelta
from embodied_r_ros.core.perception.vlm import BOX_PROMPT_VERSION
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from embodied_r_ros.serving.profiles import profile_from_mapping
from embodied_r_ros.serving.servers import ModelServers
import pytest

from test.nodes.test_keyframe_extractor import Camera, S, START_NS, view
from test.serving.test_model_servers import TRANSFORMERS
from test.tiny_models import save_vision_language_model

if TYPE_CHECKING:
    from collections.abc import Iterator

    from test.nodes.graph import Graph

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
_PATIENCE_S = 240


@pytest.fixture(scope='module')
def server_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A `transformers serve` with the tiny model."""
    pytest.importorskip('torch')
    folder = tmp_path_factory.mktemp('vision')
    save_vision_language_model(folder)
    command = [*TRANSFORMERS, '--device', 'cpu', '--trust-remote-code']
    server = {'model': str(folder), 'command': command, 'port': 0, 'start_timeout_s': 600.0}
    profile = profile_from_mapping('tiny', {'servers': {'perceiver': server}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv('HF_MODULES_CACHE', str(tmp_path_factory.mktemp('modules')))
        with ModelServers(profile, tmp_path_factory.mktemp('logs')) as servers:
            yield servers.clients()['perceiver'].url


@pytest.mark.parametrize('stand_in', [False, True])
def test_images_become_deltas(stand_in: bool, graph: Graph, server_url: str) -> None:
    perceiver = graph.active(
        SemanticPerceiver,
        perceiver='vlm',
        stand_in=stand_in,
        chat__url=server_url,
        vlm__max_tokens=48,
        vlm__retries=1,
        vlm__deadline_s=120.0,
        vlm__pixels_per_image=50_176,
        vlm__box_convention='thousandths',
    )
    graph.active(KeyframeExtractorNode, min_interval_s=0.0)
    deltas = graph.inbox(SemanticDelta, 'semantic_delta')
    graph.matched('semantic_delta')
    camera = Camera(graph)
    for index in (0, 1):
        camera.send(view(index), START_NS + index * S)
        camera.keyframes.wait(index + 1)
    first, second = deltas.wait(2, timeout_s=_PATIENCE_S)
    assert (first.from_id, first.to_id, second.from_id, second.to_id) == (1, 1, 1, 2)
    assert second.header.stamp.sec == START_NS // S + 1
    if stand_in:
        assert (first.kind, second.kind) == (SemanticDelta.KIND_FIRST, SemanticDelta.KIND_CHANGE)
        assert second.model.rung == ModelInfo.RUNG_LOCAL
        assert perceiver.report().values['stood_in'] == 2
        return
    assert {first.kind, second.kind} == {SemanticDelta.KIND_FAILED}
    assert second.error.startswith('no usable reply in 2 attempts')
    assert second.model.rung == ModelInfo.RUNG_PRIMARY
    assert second.model.prompt_version == BOX_PROMPT_VERSION
    assert second.model.digest.startswith('sha256:')
