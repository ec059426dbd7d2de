# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import contextmanager, suppress
import json
import math
import shutil
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.cli.perceiver import perceiver_of
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.core.perception.classical import ClassicalPerceiver
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.core.types.images import EncodedImage
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.episodes.offline import SceneAsker, Seer
from embodied_r_ros.data.own_messages import delta_to_msg, keyframe_to_msg
from embodied_r_ros.serving.profiles import load_profile
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
    # What the server says is scripted, and nothing that was seen supports it.
    fixed = ['--model', server.url, '--set', 'reasoner.check=false']
    return main(['ask', str(source), 'Where?', *fixed, *arguments])


def test_shipped_model_reads_scenes_as_long_as_it_is_served(
    server: ChatServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets: list[int] = []

    @contextmanager
    def stands_in(model: str, say: object, *, stays: bool) -> Iterator[ChatConfig]:
        """A server of another model, in place of the shipped one."""
        yield ChatConfig(url=server.url)

    def note(scene: object, chat: object, config: Any) -> Any:
        budgets.append(config.token_budget)
        return SceneAsker(scene, chat, config)  # type: ignore[arg-type]

    monkeypatch.setattr('embodied_r_ros.cli.ask.served_model', stands_in)
    monkeypatch.setattr('embodied_r_ros.cli.ask.served_reasoner', stands_in)
    monkeypatch.setattr('embodied_r_ros.cli.ask.SceneAsker', note)
    assert main(['ask', str(folder), 'Where?', '--profile', 'embedded-arm']) == 0
    assert main(['ask', str(folder), 'Where?', '--model', server.url]) == 0
    shipped = str(shared_path('models', 'arm'))
    assert main(['ask', str(folder), 'Where?', '--model', shipped]) == 0
    served = load_profile('embedded-arm').reasoner['token_budget']
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
        (['--show-image', '--episodes'], '--show-image shows one image: leave'),
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


@pytest.mark.parametrize('old_spelling', [['--map'], []])
def test_map_of_a_recording_stands_in_the_prompt(
    server: ChatServer, tmp_path: Path, old_spelling: list[str]
) -> None:
    item = Item('sofa', bearing_rad=0.0, elevation_rad=0.0, distance_m=2.0)
    pose = Pose((1.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom')
    with BagWriter(tmp_path / 'bag') as bag:
        bag.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for number in range(1, 4):
            at_ns = number * 10**9
            delta = SemanticDelta(at_ns, DeltaKind.FIRST, number, items=(item,), pose=pose)
            bag.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), at_ns)
    assert ask(server, tmp_path / 'bag', *old_spelling) == 0
    assert 'Things: sofa 1.' in server.requests[-1].text


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
    words = ['--model', server.url, '--set', 'reasoner.check=false', '--json']
    assert main(['ask', str(path), question, *words]) == 0
    value = json.loads(capsys.readouterr().out)
    assert 'From sofa: 5.0m door.' in value['prompt']
    assert (value['answer'], value['deltas']) == ('B', 0)


@pytest.mark.parametrize(
    ('words', 'told'),
    [
        ('--model http://lab.invalid', 'text of what was seen leaves this machine, for '),
        (
            '--perceiver vlm --set chat.url=http://lab.invalid',
            'keyframes of what was seen leaves this ',
        ),
        (
            '--model http://lab.invalid --perceiver vlm --set chat.url=http://lab.invalid',
            'text and keyframes of what was seen leave this machine, for http://lab.invalid',
        ),
        ('--model http://127.0.0.1:1', ''),
    ],
)
def test_the_first_line_says_what_leaves_the_machine(
    words: str, told: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(['ask', str(folder / 'none'), 'Where?', *words.split()]) == 2
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith('embodied-r: note: ') == ('lab.invalid' in words)
    assert told in first


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


@pytest.mark.parametrize('words', [['--topic', '/x'], ['--set', 'source.rate_hz=3']])
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
    option = words[-1].partition('=')[0] if words[0] == '--set' else words[0]
    assert error.startswith(f'embodied-r: error: {option} ')
    assert f'{tmp_path / source} ' in error
    assert ': leave it out' in error
    assert not server.requests
    # The image that is shown is one of a topic.
    ask(server, tmp_path / source, *words, '--show-image')
    assert 'leave it out, ' not in capsys.readouterr().err


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
    assert ask(server, folder, '--set', 'reasoner.max_tokens=77') == 1
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
    assert main([*asked, '--model', server.url, '--set', 'reasoner.check=false']) == 0
    assert capsys.readouterr().out == 'one: right\ntwo: right\n'
    assert 'chair' in server.requests[-1].text
    assert main([*asked, '--set', 'source.rate_hz=2']) == 2
    options = ['-o', 'left', '-o', 'right']
    assert main(['ask', '--episodes', str(tmp_path), 'A sofa?', *options]) == 2
    assert 'options are for a model' in capsys.readouterr().err


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
    words += [
        '--model',
        server.url,
        '--set',
        'reasoner.check=false',
        *(['--json'] if as_json else []),
    ]
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


def questions_file(folder: Path, *lines: object) -> Path:
    path = folder / 'questions.jsonl'
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    path.write_text(''.join(f'{text}\n' for text in texts))
    return path


def test_many_questions_are_answered_in_order_after_one_look(
    server: ChatServer,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(folder.with_name('many')))
    looks: list[Path] = []
    see = Seer.see

    def note(self: Seer, path: Path, *rest: Any) -> Any:
        looks.append(path)
        return see(self, path, *rest)

    monkeypatch.setattr(Seer, 'see', note)

    def reply(request: RecordedRequest) -> Script:
        return Script(('I do not know.',) if 'Second' in request.text else (RIGHT,))

    server.default = reply
    ask_file = questions_file(
        folder,
        {'id': 'b', 'question': 'First?', 'options': ['left', 'right'], 'solution': 'B'},
        {'id': 'a', 'question': 'Second?'},
        '',
        {'id': 'c', 'question': 'Third?', 'options': []},
    )
    words = ['ask', str(folder), '--questions', str(ask_file), '--model', server.url]
    assert main([*words, '--set', 'reasoner.check=false']) == 0
    first, second, third = map(json.loads, capsys.readouterr().out.splitlines())
    assert [first['id'], second['id'], third['id']] == ['b', 'a', 'c']
    assert [first['answer'], second['answer'], third['answer']] == ['right', 'unknown', 'B']
    assert [first['error'], third['error']] == [None, None]
    assert 'the completion is not' in second['error']
    assert looks == [folder]


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('{"id": "2", "question"', 'line 2: it is not JSON'),
        ('["2"]', "line 2: it is ['2']: expected an object"),
        ({'question': 'Where?'}, 'line 2: id is None: expected a text'),
        ({'id': '1', 'question': 'Where?'}, "line 2: id '1' is that of another line"),
        ({'id': '2', 'question': ' '}, 'line 2: the question is empty'),
        ({'id': '2', 'question': 'Q?', 'options': ['x']}, "line 2: one option alone ('x')"),
        ({'id': '2', 'question': 'Q?', 'options': 'xy'}, "line 2: options is 'xy'"),
    ],
)
def test_a_line_that_is_no_question_is_named_before_a_model_starts(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str], line: object,
    message: str,
) -> None:  # fmt: skip
    file = questions_file(folder, {'id': '1', 'question': 'Where?'}, line)
    words = ['ask', str(folder), '--questions', str(file), '--model', server.url]
    assert main(words) == 2
    assert message in capsys.readouterr().err
    assert not server.requests


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        ([], 'there is no question: give QUESTION, or --questions'),
        (['Where?', '--questions', 'q.jsonl'], '--questions goes without QUESTION'),
        (['Where?', '--profile', 'cpu', '--model', '.'], '--model and --profile exclude'),
        (['Where?', '--profile', 'cup'], "no profile 'cup': did you mean 'cpu'"),
        (['Where?', '--deadline', '0'], "'0' is not a time"),
    ],
)
def test_arguments_that_do_not_go_together_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with suppress(SystemExit):
        assert main(['ask', str(folder), *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]


def test_a_profile_without_a_reasoner_asks_nobody(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seer = tmp_path / 'seer.yaml'
    seer.write_text('clients: {perceiver: {url: "http://127.0.0.1:9", model: m}}\n')
    assert main(['ask', str(folder), 'Where?', '--profile', str(seer)]) == 2
    assert 'has no reasoner' in capsys.readouterr().err


def test_profile_says_who_answers_and_how(server: ChatServer, folder: Path) -> None:
    profile = folder / 'mine.yaml'
    client = f'{{reasoner: {{url: "{server.url}", model: scripted}}}}'
    profile.write_text(f'clients: {client}\nreasoner: {{max_tokens: 77}}\n')
    assert main(['ask', str(folder), 'Where?', '--profile', str(profile)]) == 0
    assert server.requests[-1].body['max_tokens'] == 77
    words = ['--profile', str(profile), '--set', 'reasoner.max_tokens=88']
    assert main(['ask', str(folder), 'Where?', *words]) == 0
    assert server.requests[-1].body['max_tokens'] == 88


def test_deadline_is_that_of_the_answer(
    server: ChatServer, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.default = Script(('<think>', 'Well'), hang_after=2)
    assert ask(server, folder, '--deadline', '0.5') == 1
    assert 'embodied-r: failed: ' in capsys.readouterr().err


def prompts_of(server: ChatServer) -> list[str]:
    return [request.text for request in server.requests if 'Question:' in request.text]


def count_perceivers(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Perceivers that `ask` makes from now on."""
    made: list[object] = []

    def note(args: Any) -> Any:
        made.append(args.perceiver)
        return perceiver_of(args)

    monkeypatch.setattr('embodied_r_ros.cli.ask.perceiver_of', note)
    return made


def test_what_was_perceived_is_not_perceived_again(
    server: ChatServer, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv('XDG_CACHE_HOME', str(folder.with_name('cache')))
    made = count_perceivers(monkeypatch)
    for _ in range(2):
        assert ask(server, folder) == 0
    assert len(made) == 1
    first, second = prompts_of(server)
    assert first == second
    # Of other content, with other settings, or at another rate it is.
    assert ask(server, folder, '--set', 'classical.assumed_hfov_rad=1.0472') == 0
    assert ask(server, folder, '--set', 'source.rate_hz=3') == 0
    shutil.copy(folder / '1.png', folder / '2.png')
    assert ask(server, folder) == 0
    assert len(made) == 4


def test_another_look_at_what_is_kept_sees_the_same(
    server: ChatServer, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A question for what no delta mentions, of a camera whose lens was learned."""
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))

    def learn(self: Any, *_: object) -> None:
        self._fov_rad = math.radians(93)

    monkeypatch.setattr('embodied_r_ros.core.perception.classical.FieldOfView.learn', learn)

    def tell_lens(self: Any, question: str, options: object, look: Keyframe, s: float) -> Any:
        lens = self.with_lens(look).intrinsics
        degrees = math.degrees(2 * math.atan(lens.width / 2 / lens.fx))
        return FocusText(look.id, look.stamp_ns, f'a lens of {degrees:.0f} degrees')

    monkeypatch.setattr(ClassicalPerceiver, 'focus', tell_lens)
    for _ in range(2):
        words = [
            'ask',
            str(folder),
            'Where is the zebra?',
            '--model',
            server.url,
            '--set',
            'reasoner.check=false',
        ]
        assert main(words) == 0
    first, second = prompts_of(server)
    assert 'Looked at again for the question:' in first
    assert first.count('a lens of 93 degrees') == 2
    assert first == second


def keyframe(number: int, image: Path) -> Keyframe:
    encoded = EncodedImage(image.read_bytes(), 'png')
    reason = KeyframeReason.LOW_OVERLAP if number else KeyframeReason.FIRST
    return Keyframe(
        number, number * 10**9, encoded, reason, max(0, number - 1), 0.25 if number else None, 9
    )


@pytest.fixture
def own_bag(folder: Path) -> Path:
    """What our recorder leaves where it records keyframes, and no deltas."""
    with BagWriter(folder / 'bag') as bag:
        bag.add_topic('/keyframe', 'embodied_r_msgs/msg/Keyframe')
        for number in range(2):
            msg = keyframe_to_msg(BagMessageFactory(), keyframe(number, folder / f'{number}.png'))
            bag.write('/keyframe', msg, number * 10**9 + 1)
    return folder / 'bag'


def test_recorded_keyframes_are_a_source(
    server: ChatServer, own_bag: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ask(server, own_bag, '--json') == 0
    assert json.loads(capsys.readouterr().out)['deltas'] == 2
    assert ask(server, own_bag, '--show-image') == 0
    assert len(server.requests[-1].images) == 1
