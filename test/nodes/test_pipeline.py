# SPDX-License-Identifier: Apache-2.0
"""The nodes together: a recording played into them, and what they recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from embodied_r_msgs.msg import Keyframe, SemanticDelta
from embodied_r_msgs.srv import StartEpisode, StopEpisode
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.bags.sources import open_source
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.keyframes.selector import Keyframer
from embodied_r_ros.core.perception.perceiver import perceive_all
from embodied_r_ros.core.pipeline import classical_perceiver
from embodied_r_ros.data.own_messages import delta_from_msg, keyframe_from_msg
from embodied_r_ros.nodes.bag_player import BagPlayer
from embodied_r_ros.nodes.episode_recorder import EpisodeRecorder
from embodied_r_ros.nodes.keyframe_extractor import KeyframeExtractorNode
from embodied_r_ros.nodes.semantic_perceiver import SemanticPerceiver
from std_srvs.srv import Trigger

from test.nodes.graph import wait_for

if TYPE_CHECKING:
    from embodied_r_ros.core.types.deltas import SemanticDelta as Delta
    from embodied_r_ros.core.types.keyframes import Keyframe as CoreKeyframe

    from test.nodes.graph import Graph

SAMPLE = shared_path('samples', 'indoor', 'episode_00000')


def delta_fields(delta: Delta) -> tuple[object, ...]:
    """What a delta says, without who said it and how long it took."""
    return delta.stamp_ns, delta.kind, delta.from_id, delta.to_id, delta.action, delta.change


def keyframe_fields(keyframe: CoreKeyframe) -> tuple[object, ...]:
    """What a keyframe is, without what a float32 rounds."""
    return keyframe.stamp_ns, keyframe.id, keyframe.reason, keyframe.image, keyframe.pose


def test_live_and_offline_see_the_same_and_the_bag_holds_it(graph: Graph, tmp_path: Path) -> None:
    with open_source(SAMPLE) as source:
        keyframes = list(Keyframer().stream(source))
    with open_source(SAMPLE) as source:
        frames = len(list(source))
    deltas = list(perceive_all(classical_perceiver(), keyframes))
    # No image may be dropped and no keyframe coalesced, however slow this machine is.
    overrides = {
        f'qos_overrides__{topic}__subscription__depth': 1000
        for topic in ('/image/compressed', '/odom', '/camera_info')
    }
    extractor = graph.active(
        KeyframeExtractorNode,
        image_transport='compressed',
        queue=100,
        odom_wait_s=0.2,
        **overrides,
    )
    graph.active(SemanticPerceiver, worker__capacity=1000)
    recorder = graph.active(EpisodeRecorder, bag_dir=str(tmp_path), min_free_mb=0)
    heard = graph.inbox(SemanticDelta, '/semantic_delta'), graph.inbox(Keyframe, '/keyframe')
    started = graph.call(StartEpisode, '/start_episode', StartEpisode.Request())
    player = graph.active(
        BagPlayer,
        bag=str(SAMPLE),
        topics=['/image/compressed', '/camera_info', '/odom'],
        playback__rate=3.0,
        playback__start_paused=True,
    )
    wait_for(lambda: player.count_subscribers('/odom') == 2, 'both listeners of odometry')
    graph.matched('/semantic_delta')
    graph.matched('/keyframe')
    graph.call(Trigger, '/bag_player/resume', Trigger.Request())
    heard[0].wait(len(deltas), timeout_s=60)
    wait_for(lambda: extractor._images.count == frames, 'the last image', 60)
    episode = recorder._episode
    assert episode is not None
    wait_for(
        lambda: episode.stats().messages.get('/semantic_delta') == len(deltas),
        'the last delta in the bag',
    )
    stopped = graph.call(StopEpisode, '/stop_episode', StopEpisode.Request(outcome=1))
    assert stopped.error_code == 0
    heard[1].wait(len(keyframes))
    assert [keyframe_fields(keyframe_from_msg(msg)) for msg in heard[1]] == [
        keyframe_fields(keyframe) for keyframe in keyframes
    ]
    assert [delta_fields(delta_from_msg(msg)) for msg in heard[0]] == [
        delta_fields(delta) for delta in deltas
    ]
    with open_bag(Path(started.bag_path)) as reader:
        recorded = [m for _, _, m in read_messages(reader, ['/semantic_delta'])]
    assert [delta_fields(delta_from_msg(msg)) for msg in recorded] == [
        delta_fields(delta) for delta in deltas
    ]
    assert {msg.episode_id for msg in heard[1]} == {started.episode_id}
