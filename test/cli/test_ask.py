# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import contextmanager
import json
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.own_messages import delta_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.chat.settings import ChatConfig
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.episodes.offline import ask_about
from embodied_r_ros.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.profiles import load_profile
from embodied_r_ros.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.types.geometry import Pose
import numpy as np
import pytest

from test.chat_server import ChatServer, RecordedRequest, Script

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

RIGHT = '<think>[3] It is there.</think><answer>B</answer>'


@pytest.fixture
def server() -> Iterator[ChatServer]:
    made = ChatServer(models=[{'id': 'scripted'}])
    made.default = Script((RIGHT,))
    yield made
    made.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two unrelated views."""
    rng = np.random.default_rng(2)
    for index in range(2):
        coarse = rng.integers(90, 160, (30, 40, 3), np.uint8)
        image = cv2.resize(coarse, (320, 240), interpolation=cv2.INTER_NEAREST)
        cv2.imwrite(str(tmp_path / f'{index}.png'), image)
    return tmp_path


def ask(server: ChatServer, source: Path, *arguments: str) -> int:
    return main(['ask', str(source), 'Where?', '--model', server.url, *arguments])


def test_shipped_model_reads_scenes_as_long_as_it_is_served(
    server: ChatServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[int] = []

    @contextmanager
    def stands_in(model: str, say: object) -> Iterator[ChatConfig]:
        """A server of another model, in place of the shipped one."""
        yield ChatConfig(url=server.url)

    def hear_about(
        scene: object, question: object, chat: object, config: Any, hear: object
    ) -> Any:
        budgets.append(config.token_budget)
        return ask_about(scene, question, chat, config, hear)  # type: ignore[arg-type]

    monkeypatch.setattr('embodied_r_ros.cli.ask.served_model', stands_in)
    monkeypatch.setattr('embodied_r_ros.cli.ask.ask_about', hear_about)
    assert main(['ask', str(folder), 'Where?']) == 0
    assert main(['ask', str(folder), 'Where?', '--model', server.url]) == 0
    shipped = str(shared_path('models', 'nano'))
    assert main(['ask', str(folder), 'Where?', '--model', shipped]) == 0
    served = load_profile('embedded').reasoner['token_budget']
    assert budgets == [served, ReasonerConfig.token_budget, served]
    assert served < ReasonerConfig.token_budget


def test_answer_about_images_comes_with_its_reasoning(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(server, folder, '-o', 'left', '-o', 'right', '--json') == 0
    out, err = capsys.readouterr()
    value = json.loads(out)
    assert (value['answer'], value['option'], value['deltas']) == ('right', 'B', 2)
    assert value['think'] == '[3] It is there.'
    assert value['prompt'] == server.requests[-1].text
    assert value['think'] in err


def test_point_is_asked_of_the_last_image_and_drawn(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.default = Script(('<think>There.</think><answer>{"point_2d": [500, 250]}</answer>',))
    picture = folder / 'drawn' / 'place.png'
    command = ['ask', str(folder), 'Point at it.', '--model', server.url, '--show-image']
    picture.parent.mkdir()
    assert main([*command, '--picture', str(picture)]) == 0
    assert capsys.readouterr().out == '(500, 250)\n'
    assert len(server.requests[-1].images) == 1
    last, drawn = (cv2.imread(str(path)) for path in (folder / '1.png', picture))
    assert last is not None
    assert drawn is not None
    changed = np.argwhere(np.abs(last.astype(int) - drawn).max(axis=2) > 60)
    assert np.abs(changed.mean(axis=0) - (60, 160)).max() < 2


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--picture', 'x.png'], '--picture needs --show-image and a question for a point'),
        (['--show-image', '--picture', 'x.png'], '--picture needs --show-image and a question'),
        (['--show-image', '--map'], '--show-image shows one image: leave'),
    ],
)
def test_images_that_cannot_be_shown_are_one_line(
    server: ChatServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    assert ask(server, folder, *arguments) == 2
    assert message in capsys.readouterr().err


def test_recorded_deltas_are_read_and_not_perceived_again(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delta = SemanticDelta(5, DeltaKind.FIRST, change='A door that no image shows.')
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), 5)
    assert ask(server, tmp_path / 'bag') == 0
    assert 'A door that no image shows.' in server.requests[-1].text
    assert capsys.readouterr().out == 'B\n'


@pytest.mark.parametrize('is_mapped', [True, False])
def test_map_of_a_recording_stands_in_the_prompt_where_it_is_wanted(
    server: ChatServer, tmp_path: Path, is_mapped: bool
) -> None:
    item = Item('sofa', bearing_rad=0.0, elevation_rad=0.0, distance_m=2.0)
    pose = Pose((1.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom')
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for number in range(1, 4):
            at_ns = number * 10**9
            delta = SemanticDelta(at_ns, DeltaKind.FIRST, number, items=(item,), pose=pose)
            bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), at_ns)
    assert ask(server, tmp_path / 'bag', *(['--map'] if is_mapped else [])) == 0
    assert ('Things: sofa 1.' in server.requests[-1].text) is is_mapped


def test_map_is_asked_about(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / 'MAP.json'
    landmarks = [
        {'label': 'sofa', 'position': [1, 2, 0]},
        {'label': 'door', 'position': [4, 6, 0]},
    ]
    path.write_text(json.dumps({'landmarks': landmarks}))
    question = 'How far is the sofa from the door?'
    assert main(['ask', str(path), question, '--model', server.url, '--json']) == 0
    value = json.loads(capsys.readouterr().out)
    assert 'From sofa: 5.0m door.' in value['prompt']
    assert (value['answer'], value['deltas']) == ('B', 0)


def test_a_map_that_cannot_be_read_is_one_line(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / 'MAP.json'
    path.write_text('{"landmarks": [{"label": "sofa", "position": [1, 2]}]}')
    assert ask(server, path) == 2
    assert 'position is [1, 2], expected three numbers' in capsys.readouterr().err
    path.write_text('{"landmarks": []}')
    assert ask(server, path) == 1
    assert 'nothing was seen yet' in capsys.readouterr().err


@pytest.mark.parametrize('words', [['--topic', '/x', '--rate', '3'], ['--rate', '3']])
@pytest.mark.parametrize('source', ['MAP.json', 'bag'])
def test_options_of_images_are_refused_where_none_are_perceived(
    server: ChatServer,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    source: str,
) -> None:
    landmark = {'label': 'sofa', 'position': [1, 2, 0]}
    (tmp_path / 'MAP.json').write_text(json.dumps({'landmarks': [landmark]}))
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        delta = SemanticDelta(5, DeltaKind.FIRST, change='A door.')
        bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), 5)
    assert ask(server, tmp_path / source, *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(f'embodied-r: error: {words[0]} is for images, and {tmp_path}')
    assert error.endswith(': leave it out\n')
    assert not server.requests
    # The image that is shown is one of a topic.
    ask(server, tmp_path / source, *words, '--show-image')
    assert 'is for images' not in capsys.readouterr().err


def test_answer_that_breaks_the_format_is_a_failure(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.default = Script(('to the right',))
    assert ask(server, folder) == 1
    out, err = capsys.readouterr()
    assert out == ''
    assert 'embodied-r: failed: the completion is not' in err


@pytest.mark.parametrize(
    ('script', 'message'),
    [
        (Script(('<think>It is',), finish='length'), 'limit of 77 tokens: raise max_tokens'),
        (Script(('<think>It is',), finish='content_filter'), 'a content filter of the server'),
        (Script(()), 'the model said nothing'),
    ],
)
def test_reply_that_ended_early_says_why(
    server: ChatServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    script: Script,
    message: str,
) -> None:
    server.default = script
    assert ask(server, folder, '--max-tokens', '77') == 1
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_answer_that_was_complete_at_the_limit_is_one(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.default = Script((RIGHT,), finish='length')
    assert ask(server, folder) == 0
    assert capsys.readouterr().out == 'B\n'


def test_url_may_name_one_of_several_models(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.models = [{'id': 'small'}, {'id': 'large'}]
    assert main(['ask', str(folder), 'Where?', '--model', f'{server.url}#large']) == 0
    assert server.requests[-1].body['model'] == 'large'
    assert main(['ask', str(folder), 'Where?', '--model', f'{server.url}#huge']) == 2
    assert "serves small, large, not 'huge'" in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['nothing.mp4', 'Where?'], 'nothing.mp4 does not exist'),
        (['.', 'Where?', '-o', 'left'], "one option alone ('left')"),
        (['.', ' '], 'the question is empty'),
        (['.', 'Where?', '--model', 'http://127.0.0.1:9'], 'no model server at'),
        (['.', 'Where?', '--model', '.'], 'holds no model'),
        (['.', 'Where?', '--topic', '/image'], "has no topic '/image'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    if '--model' not in arguments:
        arguments = [*arguments, '--model', 'http://127.0.0.1:9']
    assert main(['ask', *arguments]) == 2
    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert last.startswith('embodied-r: error: ')
    assert message in last


def test_sample_is_where_the_demo_looks_for_it() -> None:
    assert (shared_path('samples', 'indoor', 'episode_00000') / 'metadata.yaml').exists()


def test_recordings_are_asked_without_and_with_a_model(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, label in (('one', 'couch'), ('two', 'chair')):
        item = Item(label, bearing_rad=0.0, elevation_rad=0.0, distance_m=2.0)
        delta = SemanticDelta(5, DeltaKind.FIRST, change=f'In view: {label}.', items=(item,))
        with BagWriter(tmp_path / name) as bag:
            bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
            bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), 5)
    assert main(['ask', '--episodes', str(tmp_path), 'Which recordings show a sofa?']) == 0
    assert capsys.readouterr().out.startswith('1 of 2 recordings shows a sofa.\none: 1 of 1')
    assert main(['ask', '--episodes', str(tmp_path), 'A bus?', '--json']) == 1
    assert json.loads(capsys.readouterr().out)['recordings'] == []
    assert not server.requests
    asked = ['ask', '--episodes', str(tmp_path), 'Where?', '-o', 'left', '-o', 'right']
    assert main([*asked, '--model', server.url]) == 0
    assert capsys.readouterr().out == 'one: right\ntwo: right\n'
    assert 'chair' in server.requests[-1].text
    assert main(['ask', '--episodes', str(tmp_path), 'Any?', '--thing', 'couch', '--last']) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith('last: one, keyframe 0')
    near = ['Is there a sofa?', '--near', 'chair']
    assert main(['ask', '--episodes', str(tmp_path), *near]) == 1
    assert main(['ask', str(tmp_path / 'one'), 'Any?', '--first']) == 2
    assert 'give --episodes too' in capsys.readouterr().err
    assert main([*asked, '--rate', '2']) == 2
    assert main(['ask', '--episodes', str(tmp_path), 'A sofa?', '--map']) == 2
    assert 'options and --map are for a model' in capsys.readouterr().err


@pytest.mark.parametrize('as_json', [False, True])
def test_answers_until_a_server_dies_are_not_lost(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    for name in ('a', 'b', 'c', 'd'):
        delta = SemanticDelta(5, DeltaKind.FIRST, change=f'Room {name}.', items=(Item('sofa'),))
        with BagWriter(tmp_path / name) as bag:
            bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
            bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), 5)

    def die_at_third(request: RecordedRequest) -> Script:
        if 'Room c' in request.text:
            server.token = 'another'
        return Script((RIGHT,))

    server.default = die_at_third
    words = ['ask', '--episodes', str(tmp_path), 'Is there a sofa?', '-o', 'no', '-o', 'yes']
    words += ['--model', server.url, *(['--json'] if as_json else [])]
    assert main(words) == 1
    out, err = capsys.readouterr()
    if as_json:
        value = json.loads(out)
        assert [(one['recording'], one['text']) for one in value['answers']] == [
            ('a', 'yes'), ('b', 'yes'), ('c', ''),
        ]  # fmt: skip
        assert len(value['recordings']) == 4
    else:
        assert out.startswith('4 of 4 recordings show a sofa.\n')
        assert '\na: yes\nb: yes\nc: no answer (' in out
    (line,) = [line for line in err.splitlines() if line.startswith('embodied-r: ')]
    assert line.startswith('embodied-r: failed: 1 of 4 recordings were not asked: ')
    # A server that never answered is a wrong argument; what was found without it is known.
    assert main(words) == 2
    out, err = capsys.readouterr()
    assert 'sofa' in out
    assert err.count('embodied-r: error: ') == 1


def test_recordings_are_not_asked_where_their_pictures_have_no_place(
    server: ChatServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delta = SemanticDelta(5, DeltaKind.FIRST, change='A door.')
    with BagWriter(tmp_path / 'bags' / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), 5)
    words = ['ask', '--episodes', str(tmp_path / 'bags'), '--model', server.url, '--out']
    assert main([*words, str(tmp_path / 'bags'), 'Is there a door?']) == 2
    assert 'is not an empty folder' in capsys.readouterr().err
    assert main([*words, str(tmp_path / 'new'), 'Where?']) == 2
    assert 'names nothing that is known' in capsys.readouterr().err
    assert not server.requests
