# SPDX-License-Identifier: Apache-2.0
"""The main job in one go: play a recording to the real nodes, and ask them questions."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.apps.demo import (
    ask_all,
    DemoQuestion,
    leave_results,
    questions_about,
    workplace,
)
from embodied_r_ros.bags.playback import Playable, playable
from embodied_r_ros.bags.vision_messages import has_boxes
from embodied_r_ros.common.errors import EmbodiedRError
from embodied_r_ros.data.episodes.episode import read_layout
from embodied_r_ros.nodes.demo.client import demo_client
from embodied_r_ros.nodes.run import NodeProcesses, own_environment
from embodied_r_ros.serving.profiles import load_profile, READER, TOOLS, write_profile
from embodied_r_ros.serving.served import installed_reasoner

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from embodied_r_ros.apps.demo import Audience
    from embodied_r_ros.bags.sources import DepthSource
    from embodied_r_ros.core.chat.settings import ChatConfig
    from embodied_r_ros.core.reasoning.question import Question
    from embodied_r_ros.core.types.answers import Answer
    from embodied_r_ros.nodes.demo.client import DemoClient

_PIPELINE = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'episode_recorder',
    'bag_player',
)
_START_S = 60.0
_DRAIN_S = 60.0
_ANSWER_S = 60.0
_CLOCK_HZ = 50.0


CLASSICAL = {'perceiver': 'classical'}


@dataclass(frozen=True)
class DemoRequest:
    """What to show."""

    source: Path  # video, folder of images, or bag
    out: Path  # folder that does not exist yet, or is empty
    questions: tuple[Question, ...] = ()  # empty: questions of the demonstration's own
    topic: str | None = None  # image topic of a bag; None: the only one there is
    depth: DepthSource | None = None  # None: as it is found
    perceiver: Mapping[str, Any] = field(default_factory=lambda: dict(CLASSICAL))


def run_demo(request: DemoRequest, audience: Audience) -> dict[str, Any]:
    """Play, perceive, ask, and leave bag, page, contact sheet and report in the output folder.

    Args:
        request: What to show.
        audience: Gets the progress.

    Returns:
        The report, as it is in `report.json`.

    Raises:
        InputError: The source cannot be read, or the output folder is not empty or not writable.
        EmbodiedRError: A node or the model server failed.
    """
    with workplace(request.out) as scratch:
        play = playable(request.source, scratch, request.topic, request.depth)
        with (
            installed_reasoner(audience.say, READER) as server,
            running_pipeline(play, server, scratch, audience.say, request.perceiver) as pipeline,
        ):
            nodes, client = pipeline
            bag = Path(client.start_episode(f'demonstration: {request.source.name}'))
            audience.say(f'playing {request.source} ({play.duration_s:.0f} s)')
            play_to_end(nodes, play, client)
            questions = [DemoQuestion(question) for question in request.questions]
            questions = questions or questions_about(client.deltas, read_layout(play.bag))

            def ask(question: DemoQuestion) -> tuple[Answer, str]:
                told = client.ask(question.question, audience.hear, _ANSWER_S)
                audience.hear('\n')
                return told

            answers = ask_all(questions, ask, audience)
            client.stop_episode()
            pids = nodes.pids()
        return leave_results(request.out, bag, (request.source.name, answers), {'pids': pids})


@contextmanager
def running_pipeline(
    play: Playable,
    server: ChatConfig | None,
    scratch: Path,
    say: Callable[[str], None],
    perceiver: Mapping[str, Any] = CLASSICAL,
) -> Iterator[tuple[NodeProcesses, DemoClient]]:
    """The nodes, each in a process, and a client, in a domain of their own; all are active.

    The recording is not played yet (`play_to_end`).

    Args:
        play: The recording.
        server: The server of the reasoner's model; None: the tools of the scene answer.
        scratch: Folder for parameters, logs and episodes.
        say: Gets the progress, a line at a time.
        perceiver: Parameters of semantic_perceiver.

    Raises:
        EmbodiedRError: A node failed, or is not active in time.
    """
    with NodeProcesses(scratch, own_environment()) as nodes, demo_client(say) as client:
        say('starting the nodes')
        _start_pipeline(nodes, play, server, scratch, perceiver)
        client.await_active(_PIPELINE, _START_S, nodes.check)
        client.await_clock(_START_S, nodes.check)
        yield nodes, client


def play_to_end(nodes: NodeProcesses, play: Playable, client: DemoClient) -> None:
    """Play the recording to its end, and wait until everything seen is perceived.

    Raises:
        EmbodiedRError: It is not played or perceived in time, or a node failed.
    """
    client.await_listeners({play.topics()[0]: 1, 'keyframe': 3, 'semantic_delta': 3}, _START_S)
    client.resume_playing()
    limit_s = play.duration_s + _DRAIN_S
    if not client.spin_until(lambda: nodes.has_ended('bag_player'), limit_s, nodes.check):
        msg = f'the recording was not played within {limit_s:.0f} s'
        raise EmbodiedRError(msg)
    nodes.check()

    def is_perceived() -> bool:
        return bool(client.deltas) and client.deltas[-1].to_id == client.keyframes[-1].id

    def has_more_than(count: int) -> bool:
        return len(client.deltas) > count

    while not is_perceived():
        more = partial(has_more_than, len(client.deltas))
        if not client.spin_until(more, _DRAIN_S, nodes.check):
            msg = f'{len(client.keyframes)} keyframes came, but {len(client.deltas)} deltas'
            raise EmbodiedRError(msg)


def _start_pipeline(
    nodes: NodeProcesses,
    play: Playable,
    server: ChatConfig | None,
    scratch: Path,
    perceiver: Mapping[str, Any],
) -> None:
    common = {'use_sim_time': True}
    remaps = {'image': play.image}
    remaps |= {'camera_info': play.camera_info} if play.camera_info else {}
    remaps |= {'odom': play.odom} if play.odom else {}
    remaps |= {'depth': play.depth} if play.depth else {}
    camera = {
        **common,
        'image_transport': play.image_transport,
        'depth_transport': play.depth_transport,
        'queue': 10,
    }
    nodes.start('keyframe_extractor', camera, remaps)
    # Nothing is coalesced: what the machine is too slow for is perceived after the last image.
    worker = {'worker': {'capacity': 1000}}
    boxes = {'detections': {'recording': str(play.bag)}} if has_boxes(play.bag) else {}
    nodes.start('semantic_perceiver', {**common, **worker, **boxes, **perceiver})
    reasoner: dict[str, Any] = {'profile': TOOLS}
    if server:
        suited = load_profile(READER).reasoner
        reasoner = {'profile': write_profile(scratch / 'reasoner.yaml', server, suited)}
    nodes.start('spatial_reasoner', {**common, **reasoner})
    nodes.start('episode_recorder', {**common, 'bag_dir': str(scratch / 'episodes')}, remaps)
    # The player stands still, and so does time, until everybody listens.
    player = {
        'bag': str(play.bag),
        'topics': play.topics(),
        'exit_at_end': True,
        'playback': {'clock_hz': _CLOCK_HZ, 'start_paused': True},
    }
    nodes.start('bag_player', player)
