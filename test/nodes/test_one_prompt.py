# SPDX-License-Identifier: Apache-2.0
"""One scene and question give the same prompt live, offline, replayed and in evaluation."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
import json
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.playback import Playable
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.client import HttpChatClient
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.types.deltas import DeltaKind, Item, Rung, ScaleSource, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.offline import map_of_deltas
from embodied_r_ros.data.own_messages import (
    answer_from_msg,
    answer_to_msg,
    delta_to_msg,
    scene_map_to_msg,
)
from embodied_r_ros.data.questions.row import QuestionWithSolution, RowBuilder, write_rows
from embodied_r_ros.nodes.demo import demo
from embodied_r_ros.nodes.spatial_reasoner import ReasonerNodeConfig, SpatialReasoner
from embodied_r_ros.nodes.topics import ROS_MESSAGES
from embodied_r_ros.serving.profiles import load_profile
import pytest

from test.chat_server import ChatServer, Script
from test.nodes.graph import ACTIVATE, CONFIGURE, wait_for
from test.nodes.test_spatial_reasoner import Asker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from test.nodes.graph import Graph

QUESTION = 'How far is the sofa from the door?'
ARM = str(shared_path('models', 'arm'))
PROFILE = f"""
servers: {{reasoner: {{model: '{ARM}', command: ['true']}}}}
reasoner: {{token_budget: 450, max_tokens: 512}}
"""
AT = Pose((1.0, 0.0, 1.25), (0.0, 0.0, 0.0, 1.0), 'odom')
ITEMS = tuple(
    Item(label, bearing_rad=bearing, elevation_rad=0.0, size_rad=0.5, distance_m=2.0,
         confidence=0.875, scale=ScaleSource.DEPTH)
    for label, bearing in (('sofa', 0.0), ('door', 0.75))
)  # fmt: skip


@pytest.fixture
def server() -> Iterator[ChatServer]:
    default = Script(('<think>It is there.</think><answer>1.5</answer>',))
    with ChatServer(default=default, models=[{'id': 'scripted'}]) as made:
        yield made


@pytest.fixture
def profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """One whose model writes text and reads short prompts."""
    path = tmp_path / 'text.yaml'
    path.write_text(PROFILE)
    monkeypatch.setattr(demo, 'READER', str(path))
    return str(path)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, profile: str) -> Callable[..., str]:
    """The prompt of `ask` with that profile."""
    return partial(asked, monkeypatch, profile)


@pytest.fixture
def scene() -> list[SemanticDelta]:
    """More than a small model reads."""
    first_ns = time.time_ns() - 40 * 10**9
    return [
        SemanticDelta(
            first_ns + number * 10**9,
            DeltaKind.CHANGE if number else DeltaKind.FIRST,
            number,
            max(0, number - 1),
            action='turned left 30°' if number else '',
            change=f'In view: sofa {number}° left 2.0 m; door 45° left 2.0 m; a thing {number}.',
            items=ITEMS,
            pose=AT,
        )
        for number in range(40)
    ]


@pytest.fixture
def bag(tmp_path: Path, scene: list[SemanticDelta]) -> Path:
    with BagWriter(tmp_path / 'bag') as writer:
        writer.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for delta in scene:
            msg = delta_to_msg(BagMessageFactory(), delta)
            writer.write('/semantic_delta', msg, delta.stamp_ns)
    return tmp_path / 'bag'


def asked(monkeypatch: pytest.MonkeyPatch, profile: str, server: ChatServer, bag: Path) -> str:
    """The prompt of `ask` with a profile."""
    chat = ChatConfig(server.url)
    monkeypatch.setattr(
        'embodied_r_ros.cli.ask.served_reasoner', lambda *_, **__: nullcontext(chat)
    )
    assert (
        main(['ask', str(bag), QUESTION, '--profile', profile, '--set', 'reasoner.check=false'])
        == 0
    )
    return server.requests[-1].text


def is_mapped(node: SpatialReasoner, count: int) -> bool:
    return bool(node._mapper.scene_map().revision == count)


def live(
    graph: Graph,
    server: ChatServer,
    scene: list[SemanticDelta],
    parameters: dict[str, Any],
    *arguments: str,
) -> tuple[Any, SpatialReasoner]:
    """What the node answers, started with these parameters."""
    made: list[SpatialReasoner] = []

    def make(**options: Any) -> SpatialReasoner:
        made.append(SpatialReasoner(cli_args=['--ros-args', *arguments], **options))
        return made[0]

    asker = Asker.__new__(Asker)
    asker.graph, asker.server, asker.namespace = graph, server, ''
    asker.node = graph.add(make, **parameters)
    graph.change(asker.node, CONFIGURE, ACTIVATE)
    asker.connect()
    node = asker.node
    for number, delta in enumerate(scene, 1):
        asker.deltas.publish(delta_to_msg(ROS_MESSAGES, delta))
        has_it = partial(is_mapped, node, number)
        wait_for(has_it, 'the delta in the map')
    _, result = asker.ask(question=QUESTION, options=[])
    return result.answer, node


def flat(values: dict[str, Any], prefix: str = '') -> dict[str, Any]:
    """Parameters by their names, as `Graph.add` takes them."""
    found: dict[str, Any] = {}
    for name, value in values.items():
        key = prefix + name.replace('.', '__')
        found |= flat(value, f'{key}__') if isinstance(value, dict) else {key: value}
    return found


def of_demo(server: ChatServer, tmp_path: Path) -> dict[str, Any]:
    """Parameters of the reasoner in a demonstration."""
    started: dict[str, dict[str, Any]] = {}

    class Nodes:
        def start(self, name: str, parameters: dict[str, Any], remaps: object = None) -> None:
            started[name] = parameters

    play = Playable(tmp_path, '/image', '', '', duration_s=1.0)
    demo._start_pipeline(Nodes(), play, ChatConfig(server.url), tmp_path, {})  # type: ignore[arg-type]
    return flat({**started['spatial_reasoner'], 'use_sim_time': False})


def test_launch_asks_as_offline(
    graph: Graph, server: ChatServer, scene: list[SemanticDelta], bag: Path,
    monkeypatch: pytest.MonkeyPatch, offline: partial[str],
) -> None:  # fmt: skip
    chat = ChatConfig(server.url)
    clients = {Rung.PRIMARY: HttpChatClient(chat)}
    monkeypatch.setattr(ReasonerNodeConfig, 'clients', lambda self, given, say: clients)
    file = ('--params-file', str(shared_path('config', 'embodied_r.yaml')))
    # What the launch files give to the node.
    answer, _ = live(graph, server, scene, {'profile': offline.args[1]}, *file)
    assert answer.prompt == offline(server, bag)
    # The rest of the profile holds too.
    limits = [request.body['max_tokens'] for request in server.requests]
    assert [limit for limit in limits if limit > 1] == [512, 512]


def test_replay_asks_as_offline(
    graph: Graph, server: ChatServer, scene: list[SemanticDelta], bag: Path,
    capsys: pytest.CaptureFixture[str], offline: Callable[..., str],
) -> None:  # fmt: skip
    answer, node = live(graph, server, scene, of_demo(server, bag.parent))
    record = json.dumps({'parameters': node.parameters.values()})
    factory = BagMessageFactory()
    with BagWriter(bag.with_name('answered')) as writer:
        for topic, kind in (('semantic_delta', 'SemanticDelta'), ('answer', 'Answer'),
                            ('landmarks', 'LandmarkArray')):  # fmt: skip
            writer.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{kind}')
        writer.add_topic('/spatial_reasoner/provenance', 'std_msgs/msg/String')
        text = factory.make('std_msgs/msg/String', data=record)
        writer.write('/spatial_reasoner/provenance', text, 1)
        for delta in scene:
            writer.write('/semantic_delta', delta_to_msg(factory, delta), delta.stamp_ns)
        newest = scene[-1].stamp_ns
        known = node._mapper.scene_map()
        writer.write('/landmarks', scene_map_to_msg(factory, known, newest), newest + 1)
        writer.write('/answer', answer_to_msg(factory, answer_from_msg(answer)), newest + 2)
    capsys.readouterr()
    assert main(['replay', str(bag.with_name('answered')), '--model', server.url, '--json']) == 0
    (line,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert line['prompt'] == 'same'
    assert server.requests[-1].text == offline(server, bag)


def test_evaluation_asks_as_offline(
    server: ChatServer, bag: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip('torch')
    from training import evaluate

    deltas = read_episode(bag, 'recorded').deltas
    question = QuestionWithSolution('distance', QUESTION, (), '1.5', 'geometry')
    row = RowBuilder('e', 's', 'test').row('0', question, deltas)
    write_rows(tmp_path / 'rows.jsonl', [row.with_map(map_of_deltas(deltas))])
    prompts: list[Any] = []

    def generate(model: str, given: list[Any], sampling: Any, **_: Any) -> list[str]:
        assert sampling.max_tokens == load_profile('embedded-arm').reasoner['max_tokens']
        prompts.extend(given)
        return ['<think>So.</think><answer>1.5</answer>'] * len(given)

    monkeypatch.setattr(evaluate, 'generate', generate)
    words = ['--rows', str(tmp_path / 'rows.jsonl'), '--cache', 'none', '--judge', 'none']
    assert evaluate.main([*words, '--model', ARM]) == 0
    assert prompts[0].user == asked(monkeypatch, 'embedded-arm', server, bag)
