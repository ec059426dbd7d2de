# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
import json
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.reasoning.prompts import build_prompt
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import (
    Answer,
    AnswerKind,
    Check,
    FocusText,
    Freshness,
    Sampling,
)
from embodied_r_ros.core.types.deltas import DeltaKind, ModelInfo, SemanticDelta
from embodied_r_ros.core.types.episodes import AnswerLabel, LabelVerdict
from embodied_r_ros.core.types.keyframes import Keyframe, KeyframeReason
from embodied_r_ros.data.own_messages import (
    answer_to_msg,
    delta_to_msg,
    keyframe_to_msg,
    label_to_msg,
)
import pytest

from test.apps.review.recordings import picture
from test.chat_server import ChatServer, Script

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

_NS = 10**9
OPTIONS = ('left', 'right')
LEFT, RIGHT = ('<think>Seen.</think><answer>A</answer>', '<think>Seen.</think><answer>B</answer>')
DELTAS = tuple(
    SemanticDelta(
        i * _NS,
        DeltaKind.CHANGE if i else DeltaKind.FIRST,
        to_id=i,
        action=f'turned left {i}°' if i else '',
        change=f'In view: red object {i}° left.',
    )
    for i in range(8)
)
LOOK = FocusText(3, 3 * _NS, 'a red box')


def answer_left(
    number: int, deltas: Sequence[SemanticDelta], memory: MemoryConfig | None = None
) -> Answer:
    """An answer as the reasoner gives one: 'left'."""
    prompt = build_prompt('Where is the box?', OPTIONS, deltas, [LOOK], memory or MemoryConfig())
    return Answer(
        f'run-{number}',
        'Where is the box?',
        AnswerKind.CHOICE,
        OPTIONS,
        option_index=0,
        text='left',
        completion=LEFT,
        delta_ids=tuple(delta.to_id for delta in deltas[prompt.scene.omitted :]),
        deltas_omitted=prompt.scene.omitted,
        focus=(LOOK,),
        prompt=prompt.user,
        prompt_sha256=prompt.sha256(),
        sampling=Sampling(0.5, 0.9, 77, 5),
        freshness=Freshness.FRESH,
        model=ModelInfo('old', 'sha256:0ld'),
    )


def write_bag(
    path: Path,
    events: Sequence[object],
    parameters: dict[str, int] | None = None,
) -> Path:
    factory = BagMessageFactory()
    with BagWriter(path) as bag:
        for topic, kind in (
            ('semantic_delta', 'SemanticDelta'),
            ('answer', 'Answer'),
            ('answer_label', 'AnswerLabel'),
            ('keyframe', 'Keyframe'),
        ):
            bag.add_topic(f'/{topic}', f'embodied_r_msgs/msg/{kind}')
        bag.add_topic('/provenance', 'std_msgs/msg/String')
        record = json.dumps({'node': '/spatial_reasoner', 'parameters': parameters or {}})
        bag.write('/provenance', factory.make('std_msgs/msg/String', data=record), 1)
        for stamp_ns, event in enumerate(events, 2):
            if isinstance(event, SemanticDelta):
                bag.write('/semantic_delta', delta_to_msg(factory, event), stamp_ns)
            elif isinstance(event, Answer):
                bag.write('/answer', answer_to_msg(factory, event), stamp_ns)
            elif isinstance(event, Keyframe):
                bag.write('/keyframe', keyframe_to_msg(factory, event), stamp_ns)
            elif isinstance(event, AnswerLabel):
                bag.write('/answer_label', label_to_msg(factory, event), stamp_ns)
    return path


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer]]:
    """One says left, one says right."""
    with (
        ChatServer(Script((LEFT,)), [{'id': 'lefty'}], 'lefty') as lefty,
        ChatServer(Script((RIGHT,)), [{'id': 'righty'}], 'righty') as righty,
    ):
        yield lefty, righty


def replay(capsys: pytest.CaptureFixture[str], bag: Path, *servers: ChatServer) -> list[Any]:
    models = [word for server in servers for word in ('--model', server.url)]
    assert main(['replay', str(bag), *models, '--json']) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_every_question_is_asked_again_from_what_was_known_then(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = answer_left(1, DELTAS[:3]), answer_left(2, DELTAS[:6])
    # The fourth delta was heard while the first question was being answered.
    events = [*DELTAS[:4], first, *DELTAS[4:6], second, *DELTAS[6:]]
    lines = replay(capsys, write_bag(tmp_path / 'bag', events), *servers)
    assert [line['prompt'] for line in lines] == ['same', 'same']
    assert [line['prompt_sha256'] for line in lines] == [
        first.prompt_sha256,
        second.prompt_sha256,
    ]
    said = [[each['answer'] for each in line['replayed']] for line in lines]
    assert said == [['left', 'right']] * 2
    assert [each['model'] for each in lines[0]['replayed']] == ['lefty', 'righty']
    assert all(line['changed'] for line in lines)
    sent = servers[1].requests[-1]
    assert sent.text == second.prompt
    body = {name: sent.body[name] for name in ('temperature', 'top_p', 'max_tokens', 'seed')}
    assert body == pytest.approx({'temperature': 0.5, 'top_p': 0.9, 'max_tokens': 77, 'seed': 5})


def test_budget_of_the_recorded_reasoner_is_used(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    many = tuple(
        replace(DELTAS[1], stamp_ns=i * _NS, to_id=i, change=f'In view: {"red thing; " * 9}{i}.')
        for i in range(30)
    )
    answer = answer_left(1, many, MemoryConfig(token_budget=200))
    bag = write_bag(tmp_path / 'bag', [*many, answer], {'reasoner.token_budget': 200})
    assert [line['prompt'] for line in replay(capsys, bag, servers[0])] == ['same']


def test_prompt_that_cannot_be_rebuilt_is_asked_as_recorded(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = answer_left(1, DELTAS[:3])
    bag = write_bag(tmp_path / 'bag', [DELTAS[0], DELTAS[2], answer])
    (line,) = replay(capsys, bag, servers[0])
    assert line['prompt'] == 'as recorded'
    assert servers[0].requests[-1].text == answer.prompt


def test_other_system_message_is_told(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = replace(answer_left(1, DELTAS[:3]), prompt_sha256='0' * 64)
    bag = write_bag(tmp_path / 'bag', [*DELTAS[:3], answer])
    assert main(['replay', str(bag), '--model', servers[0].url]) == 0
    out = capsys.readouterr().out
    assert 'the prompt of 1 is another one today' in out


def test_table_shows_what_changed_and_who_is_right(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = AnswerLabel(9, 'run-1', LabelVerdict.CORRECTED, 'right')
    bag = write_bag(tmp_path / 'bag', [*DELTAS[:3], answer_left(1, DELTAS[:3]), label])
    lefty, righty = servers
    assert main(['replay', str(bag), '--model', lefty.url, '--model', righty.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == '1. Where is the box?'
    assert [line.split()[-2:] for line in lines[1:4]] == [
        ['left', 'wrong'],
        ['left', 'wrong'],
        ['right', 'right'],
    ]
    assert f'{lefty.url}: 0 answers changed' in lines
    assert f'{righty.url}: 1 answers changed' in lines
    assert 'of 1 with a label, right are: 0, 0, 1 (recorded, then each)' in lines


def test_the_checks_of_recorded_answers_are_told(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = [answer_left(number, DELTAS[:3]) for number in range(3)]
    checks = (Check.VERIFIED, Check.UNSUPPORTED, Check.VERIFIED)
    events = [replace(a, check=c, sentence='Left.') for a, c in zip(plain, checks, strict=True)]
    bag = write_bag(tmp_path / 'bag', [*DELTAS[:3], *events])
    lines = replay(capsys, bag, servers[0])
    assert [line['recorded']['check'] for line in lines] == ['verified', 'unsupported', 'verified']
    assert (lines[0]['recorded']['sentence'], lines[0]['replayed'][0]['check']) == (
        'Left.', 'unchecked'
    )  # fmt: skip
    told = 'recorded answers: 0 unchecked, 2 verified, 1 unsupported'
    assert main(['replay', str(bag), '--model', servers[0].url]) == 0
    assert told in capsys.readouterr().out.splitlines()
    bag = write_bag(tmp_path / 'old', [*DELTAS[:3], *plain])
    assert main(['replay', str(bag), '--model', servers[0].url]) == 0
    assert 'recorded answers' not in capsys.readouterr().out


def test_failure_and_broken_format_do_not_end_the_replay(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    events = [*DELTAS[:3], *(answer_left(i, DELTAS[:3]) for i in range(3))]
    lefty, _ = servers
    # The first request asks the server for its name.
    lefty.play(Script(), Script(status=403), Script(('no tags',)))
    lines = replay(capsys, write_bag(tmp_path / 'bag', events), lefty)
    said = [line['replayed'][0]['answer'] for line in lines]
    assert said == ['(failed)', '(no format)', 'left']
    assert 'wants an access token' in lines[0]['replayed'][0]['error']
    assert [line['changed'] for line in lines] == [False, True, False]


def test_reply_that_was_cut_off_says_so(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lefty, _ = servers
    lefty.play(Script(), Script(('<think>It',), finish='length'), Script(('',)))
    events = [*DELTAS[:3], *(answer_left(i, DELTAS[:3]) for i in range(3))]
    lines = replay(capsys, write_bag(tmp_path / 'bag', events), lefty)
    errors = [line['replayed'][0]['error'] for line in lines]
    assert 'cut off at its limit' in errors[0]
    assert 'said nothing' in errors[1]
    assert errors[2] == ''


def test_failures_are_counted_apart_from_changed_answers(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    label = AnswerLabel(9, 'run-0', LabelVerdict.RIGHT)
    events = [*DELTAS[:3], *(answer_left(i, DELTAS[:3]) for i in range(3)), label]
    lefty, _ = servers
    lefty.play(Script(), Script(status=403), Script((RIGHT,)))
    bag = write_bag(tmp_path / 'bag', events)
    assert main(['replay', str(bag), '--model', lefty.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert f'{lefty.url}: 1 answers changed, 1 failed' in lines
    # Shown with its reason, and neither right nor wrong.
    assert lines[2].endswith('(failed)')
    assert 'wants an access token' in lines[3]


@pytest.mark.parametrize('form', [[], ['--json']])
def test_model_that_fails_every_question_fails_the_replay(
    servers: tuple[ChatServer, ChatServer],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    form: list[str],
) -> None:
    lefty, righty = servers
    righty.play(Script(), Script(status=403), Script(status=403))
    bag = write_bag(
        tmp_path / 'bag', [*DELTAS[:3], *(answer_left(i, DELTAS[:3]) for i in range(2))]
    )
    assert main(['replay', str(bag), '--model', lefty.url, '--model', righty.url, *form]) == 1
    out, err = capsys.readouterr()
    assert out
    (line,) = [line for line in err.splitlines() if 'failed' in line]
    assert line.startswith(f'embodied-r: failed: {righty.url} failed all 2 questions: ')


@pytest.mark.parametrize('refused', [False, True])
def test_recording_without_answers_is_bad_input(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], refused: bool
) -> None:
    never_asked = Answer('run-1', 'Where?', AnswerKind.UNKNOWN)
    bag = write_bag(tmp_path / 'bag', [*DELTAS[:1], *([never_asked] if refused else [])])
    assert main(['replay', str(bag), '--model', 'http://127.0.0.1:9']) == 2
    assert 'holds no answer that a model was asked for' in capsys.readouterr().err


def with_pictures(path: Path) -> Path:
    """A recording of grey pictures in which a perceiver saw red objects, and an answer."""
    keyframes = [
        Keyframe(d.to_id, d.stamp_ns, picture(20 * d.to_id), KeyframeReason.LOW_OVERLAP, 0)
        for d in DELTAS
    ]
    events = [event for pair in zip(keyframes, DELTAS, strict=True) for event in pair]
    return write_bag(path, [*events, answer_left(1, DELTAS)])


def test_another_perceiver_changes_deltas_and_answers(
    servers: tuple[ChatServer, ChatServer], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag, out = with_pictures(tmp_path / 'bag'), tmp_path / 'report.json'
    swapped = ['replay', str(bag), '--perceiver', 'classical', '--out', str(out)]
    assert main([*swapped, '--model', servers[1].url, '--json']) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line['keyframe'] for line in lines[:8]] == list(range(8))
    assert lines[1]['recorded']['action'] == 'turned left 1°'
    assert lines[1]['replayed']['items'] == []
    (question,) = lines[8:]
    assert (question['prompt'], question['changed']) == ('other deltas', True)
    assert 'cannot tell' in servers[1].requests[-1].text
    assert 'red' not in servers[1].requests[-1].text
    report = json.loads(out.read_text())
    assert [*report['keyframes'], *report['questions']] == lines
    assert report['perceiver']['name'] == 'classical'


def test_another_perceiver_is_compared_without_a_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = with_pictures(tmp_path / 'bag')
    swapped = ['replay', str(bag), '--perceiver', 'classical']
    assert main([*swapped, '--model', 'none']) == 0
    assert '8 keyframes differ' in capsys.readouterr().out
    assert main([*swapped, '--out', str(tmp_path / 'no' / 'r.json')]) == 2
    assert main(['replay', str(bag)]) == 2
    assert main(['replay', str(bag), '--model', 'none']) == 2
    assert main(['replay', str(bag), '--model', 'x', '--set', 'detector.model=x.onnx']) == 2
    errors = capsys.readouterr().err.splitlines()
    assert all(line.startswith('embodied-r: error: ') for line in errors)
    assert len(errors) == 4
