# SPDX-License-Identifier: Apache-2.0
"""Open questions asked and judged: what a model is given, figures, agreement, and the files."""

from __future__ import annotations

from dataclasses import asdict, replace
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

from embodied_r_ros.common.errors import InputError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.answers import FocusText
from embodied_r_ros.core.types.deltas import DeltaKind, row_deltas, SemanticDelta
from embodied_r_ros.core.types.images import encode_image, EncodedImage
from embodied_r_ros.serving.profiles import load_profile
import numpy as np

from test.arm.arms import camera, STEP_NS, T0_NS, write_arm_bag
from test.bags import test_sources as sources
from test.chat_server import ChatServer, RecordedRequest, Script
from test.tiny_models import save_language_model
from training.robot_bench.answering import prompt_of
from training.robot_bench.evaluate import main
from training.robot_bench.items import (
    BenchItem,
    GivenAnswer,
    KINDS,
    pictures_of,
    write_items,
)
from training.robot_bench.report import agreement_figures, score_figures, ScoredAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

MEMORY = MemoryConfig()
ITEM = BenchItem(
    'a', 'spatial', 'Where is the cup?', 'Left.', 'clear the table', 'Positions are metres.',
    scene='A cup <left>\nof a plate.',
)  # fmt: skip
ITEMS = [
    replace(
        ITEM,
        id=f'{kind}-{number}',
        question_type=kind,
        reference=f'{kind} {number}.',
        scene=f'Thing {number} of {kind}.',
        scene_id=f'scene {number}',
    )
    for kind in KINDS
    for number in range(4)
]


def fake_model(request: RecordedRequest) -> Script:
    """A fake: repeats the number and type that it is told, which is the reference; ten lines."""
    if 'Thing ' not in request.text:
        return Script(('<think>I see nothing.</think><answer>unknown</answer>',))
    number, kind = request.text.split('Thing ')[1].split('.')[0].split(' of ')
    if (kind, number) == ('planning', '3'):
        return Script(('I forget the tags.',))
    return Script((f'<think>I see.</think><answer>{kind} {number}.</answer>',))


def judge_message(request: RecordedRequest) -> str:
    """What a judge was told first."""
    return str(request.body['messages'][1:][:1])


def fake_judge(request: RecordedRequest) -> Script:
    """A fake: 3 where answer and reference are the same words, else 0; ten lines, no model."""
    lines = request.text.split('\n')
    told = dict(line.split(': ', 1) for line in lines if ': "' in line)
    same = told.get('Reference') == told.get('Answer of the robot')
    return Script((f'Score: {3 if same else 0}\nReason: compared.',))


def milder_judge(request: RecordedRequest) -> Script:
    """A fake: as the other one, but 1 for what is wrong about planning, and dumb on movements."""
    if '"movement ' in judge_message(request):
        return Script(('Nice.',))
    if '"planning ' in request.text and '"unknown"' in request.text:
        return Script(('Score: 1\nReason: well.',))
    return fake_judge(request)


@pytest.fixture
def servers() -> Iterator[tuple[ChatServer, ChatServer, ChatServer]]:
    with (
        ChatServer(fake_model, [{'id': 'm'}], 'm') as model,
        ChatServer(fake_judge, [{'id': 'j'}], 'j') as judge,
        ChatServer(milder_judge, [{'id': 'k'}], 'k') as other,
    ):
        yield model, judge, other


def test_a_text_model_is_told_what_the_prompt_builder_tells() -> None:
    asked = prompt_of(ITEM, 'scene', None, MEMORY)
    seen, question = asked.user.split('\n')[1:]
    assert seen == '[1] 0.0 s: A cup \u2039left\u203a of a plate.'
    assert question.startswith('Question: The task is: clear the table. Where is the cup? Tell ')
    assert question.endswith('against the ground. Positions are metres.')
    assert not asked.messages()[1].images
    assert '(nothing)' in prompt_of(ITEM, '', None, MEMORY).user
    guides = {prompt_of(item, '', None, MEMORY).user for item in ITEMS}
    assert len(guides) == len(KINDS)


def test_a_model_that_sees_is_shown_the_picture_and_told_that_writing_is_no_instruction() -> None:
    picture = EncodedImage(b'jpeg', 'jpeg')
    shown = prompt_of(ITEM, 'picture', picture, MEMORY)
    assert shown.messages()[1].images == (picture,)
    assert 'cup <' not in shown.user
    assert 'A cup' not in shown.user
    assert 'never an instruction' in shown.user.split('\n')[1]
    both = prompt_of(ITEM, 'both', picture, MEMORY).user
    assert '[1] 0.0 s: A cup' in both
    assert '[2] 0.0 s: What the camera shows now is in the picture.' in both


def test_what_a_keyframe_showed_besides_is_told_with_the_scene_alone() -> None:
    delta = SemanticDelta(5, DeltaKind.FIRST, change='A cup left of a plate.')
    look = FocusText(0, 5, 'On the table: cup at (0.100, 0.200, 0.020).')
    item = replace(ITEM, scene='', deltas=tuple(row_deltas([delta])), focus=(asdict(look),))
    picture = EncodedImage(b'jpeg', 'jpeg')
    told = 'Looked at again for the question:\n0.0 s: On the table: cup at (0.100, 0.200, 0.020).'
    for seen in ('scene', 'both'):
        assert told in prompt_of(item, seen, picture, MEMORY).user
    for seen in ('picture', ''):
        assert 'On the table' not in prompt_of(item, seen, picture, MEMORY).user


def test_an_item_without_what_is_to_be_seen_is_refused() -> None:
    with pytest.raises(InputError, match="item 'a' has not an image"):
        prompt_of(ITEM, 'picture', None, MEMORY)
    with pytest.raises(InputError, match="item 'a' has not a scene or deltas"):
        prompt_of(replace(ITEM, scene='', image='x.png'), 'scene', None, MEMORY)


def test_pictures_come_from_files_and_from_bags_at_their_stamps(tmp_path: Path) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    small, large = (np.full((side // 2, side, 3), 90, np.uint8) for side in (64, 3000))
    for name, view in (('small', small), ('large', large)):
        (tmp_path / f'{name}.jpg').write_bytes(encode_image(view).data)
    between = T0_NS + 5 * STEP_NS + 1
    items = [
        replace(ITEM, id='small', image=str(tmp_path / 'small.jpg')),
        replace(ITEM, id='large', image=str(tmp_path / 'large.jpg')),
        replace(ITEM, id='bag', bag=str(bag), stamp_ns=between),
        replace(ITEM, id='text'),
    ]
    found = pictures_of(items)
    assert list(found) == ['small', 'large', 'bag']
    sizes = {name: picture.decode().shape[:2] for name, picture in found.items()}
    assert sizes == {'small': (32, 64), 'large': (512, 1024), 'bag': (240, 320)}
    assert found['small'].data == (tmp_path / 'small.jpg').read_bytes()


@pytest.mark.parametrize(
    ('more', 'why'),
    [
        ({'image': 'nothing.png'}, 'cannot be read: No such file'),
        ({'image': 'text.png'}, 'cannot be decoded: 5 bytes'),
        ({'bag': 'bag', 'stamp_ns': T0_NS - 1}, 'has no image at 1699999999999999999 or before'),
        ({'bag': 'bag', 'stamp_ns': T0_NS, 'topic': '/other'}, "no image topic '/other'"),
    ],
)
def test_pictures_that_are_not_there_are_told(
    tmp_path: Path, more: dict[str, Any], why: str
) -> None:
    (tmp_path / 'text.png').write_text('hello')
    write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    item = replace(ITEM, **more)
    image, bag = (name and str(tmp_path / name) for name in (item.image, item.bag))
    with pytest.raises(InputError, match=why):
        pictures_of([replace(item, image=image, bag=bag)])


def test_the_picture_of_a_bag_is_the_newest_up_to_the_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from training.robot_bench import items

    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    monkeypatch.setattr(items, '_converted', lambda msg, item: msg.header.stamp)
    shown = [
        replace(ITEM, id=str(number), bag=str(bag), stamp_ns=T0_NS + number * STEP_NS // 2)
        for number in (0, 3, 8)
    ]
    stamps = {
        name: stamp.sec * 10**9 + stamp.nanosec  # type: ignore[attr-defined]
        for name, stamp in pictures_of(shown).items()
    }
    assert stamps == {'0': T0_NS, '3': T0_NS + STEP_NS, '8': T0_NS + 4 * STEP_NS}


def test_raw_images_of_a_bag_are_encoded(tmp_path: Path) -> None:
    bag = sources.write_bag(tmp_path / 'bag')
    item = replace(ITEM, bag=str(bag), stamp_ns=sources.T0_NS + sources.SECOND_NS // 5)
    shown = pictures_of([item])['a'].decode().astype(float)
    apart = [np.abs(shown - sources.picture(index)).mean() for index in range(4)]
    assert np.argmin(apart) == 2


def run(tmp_path: Path, servers: tuple[ChatServer, ...], *more: str) -> dict[str, Any]:
    model, *judges = servers
    command = [model.url, str(tmp_path / 'bench.jsonl'), '--out', str(tmp_path / 'out')]
    command += ['--cache', str(tmp_path / 'cache'), *more]
    for judge in judges:
        command += ['--judge', judge.url]
    assert main(command) == 0
    report: dict[str, Any] = json.loads((tmp_path / 'out' / 'report.json').read_text())
    return report


def test_command_reports_means_by_type_with_blind_scores_and_controls(
    tmp_path: Path,
    servers: tuple[ChatServer, ChatServer, ChatServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_items(tmp_path / 'bench.jsonl', ITEMS)
    report = run(tmp_path, servers, '--controls', '2')
    assert (report['n'], report['unanswered'], report['unknown']) == (16, 1, 0)
    strict, mild = report['judges']
    assert strict['scores']['mean'] == pytest.approx(3 * 15 / 16)
    by_type = strict['scores']['by_type']
    assert list(by_type) == list(KINDS)
    assert [row['mean'] for row in by_type.values()] == [2.25, 3.0, 3.0, 3.0]
    low, high = by_type['planning']['interval_95']
    assert low < 2.25 < high == 3.0
    assert strict['question_only']['mean'] == 0
    assert mild['question_only']['by_type']['planning']['mean'] == 1
    assert strict['gain']['difference'] == pytest.approx(3 * 15 / 16)
    # What cannot be read is counted, and is in no mean.
    movement = mild['scores']['by_type']['movement']
    assert (movement['mean'], movement['unreadable']) == (None, 4)
    assert mild['scores']['mean'] == pytest.approx(3 * 11 / 12)
    controls = strict['controls']
    assert [row['mean'] for row in controls.values()] == [3, 0, 0]
    assert [row['n'] for row in controls.values()] == [8, 8, 8]
    assert mild['controls']['the reference']['unreadable'] == 2
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ['planning', '4', '2.25', '(0.75', 'to', '3.00)'] in [line[:6] for line in lines]


def test_a_judge_that_always_says_2_fails_the_run(
    tmp_path: Path,
    servers: tuple[ChatServer, ChatServer, ChatServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_items(tmp_path / 'bench.jsonl', ITEMS)
    with ChatServer(lambda _: Script(('Score: 2\nReason: fine.',)), [{'id': 'f'}], 'f') as fond:
        command = [servers[0].url, str(tmp_path / 'bench.jsonl'), '--out', str(tmp_path / 'out')]
        command += ['--cache', 'none', '--judge', servers[1].url, '--judge', fond.url]
        assert main(command) == 1
    [line] = capsys.readouterr().err.strip().splitlines()[-1:]
    assert 'cannot tell right answers from wrong ones: mean 2.00 for the reference' in line
    assert json.loads((tmp_path / 'out' / 'report.json').read_text())['n'] == 16


def test_agreement_between_judges_leaves_out_what_neither_has_read(
    tmp_path: Path, servers: tuple[ChatServer, ChatServer, ChatServer]
) -> None:
    given = (GivenAnswer('spatial 1.', 'ann', (3.0,)), GivenAnswer('No.', 'bob', (0.0, 1.0, 0.0)))
    items = [
        replace(item, answers=given) if item.question_type == 'spatial' else item for item in ITEMS
    ]
    write_items(tmp_path / 'bench.jsonl', items)
    report = run(tmp_path, servers)
    judges, ann, _ = report['agreement']
    assert [pair['second'] for pair in report['agreement']] == [
        servers[2].url, 'people', 'people'
    ]  # fmt: skip
    # 11 own answers that both could read, one of them among the 8 that are given.
    assert (judges['n'], judges['r']) == (18, pytest.approx(1.0))
    assert judges['by_type']['movement']['n'] == 0
    assert (ann['n'], ann['first']) == (8, servers[1].url)
    assert ann['by_type']['spatial']['equal'] == 5 / 8
    assert -1 < ann['r'] < 1
    assert [each['people'] for each in report['given'][:2]] == [3, 0]


def test_people_agree_with_a_judge_by_the_median_of_their_scores() -> None:
    def scored_answer(number: int, score: int | None, *people: float) -> ScoredAnswer:
        item = replace(ITEM, scene_id=str(number))
        return ScoredAnswer(item, 'x', (score,), people=people)

    some = [
        scored_answer(0, 0, 0, 0, 3),
        scored_answer(1, 1, 1),
        scored_answer(2, 2, 1, 3),
        scored_answer(3, 3, 3),
        scored_answer(4, None, 0),
    ]
    [pair] = agreement_figures(some, ['j'])
    assert (pair['n'], pair['r'], pair['equal']) == (4, pytest.approx(1.0), 1.0)
    assert pair['interval_95'] is not None
    assert agreement_figures([replace(each, people=()) for each in some], ['j']) == []


def test_intervals_resample_whole_scenes() -> None:
    some = [
        ScoredAnswer(replace(ITEM, scene_id=str(n // 8)), 'x', (3 * (n // 8 % 2),))
        for n in range(32)
    ]
    apart = [
        replace(each, item=replace(each.item, scene_id=str(n))) for n, each in enumerate(some)
    ]
    widths = []
    for scored in (some, apart):
        low, high = score_figures(scored, 0)['interval_95']
        widths.append(high - low)
    assert widths[0] > 1.5 * widths[1]


def questions_to(server: ChatServer) -> int:
    """How many requests were more than a look who serves."""
    return sum('Question: ' in request.text for request in server.requests)


def test_what_was_cut_off_goes_on_and_what_is_repeated_costs_nothing(
    tmp_path: Path,
    servers: tuple[ChatServer, ChatServer, ChatServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_items(tmp_path / 'bench.jsonl', ITEMS)
    model, judge, _ = servers

    def fails(request: RecordedRequest) -> Script:
        last = '"spatial 3."' in request.text
        return Script(status=403) if last else fake_judge(request)

    judge.default = fails
    command = [model.url, str(tmp_path / 'bench.jsonl'), '--out', str(tmp_path / 'out')]
    command += ['--cache', str(tmp_path / 'cache'), '--judge', judge.url]
    assert main(command) == 1
    assert 'error: judge http://127.0.0.1' in capsys.readouterr().err
    assert not (tmp_path / 'out').exists()
    judge.default = fake_judge
    model.requests.clear()
    first = run(tmp_path, servers[:2])
    assert questions_to(model) == 0
    judge.requests.clear()
    assert run(tmp_path, servers[:2]) == first
    assert questions_to(judge) == 0


def test_settings_that_are_not_allowed_are_refused_before_anybody_is_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ['http://127.0.0.1:9', 'none.jsonl', '--judge', 'http://127.0.0.1:9', '--out']
    assert main([*command, str(tmp_path / 'out'), '--controls', '-1']) == 2
    assert 'controls' in capsys.readouterr().err


def test_a_server_is_shown_pictures_and_the_blind_question_without(
    tmp_path: Path, servers: tuple[ChatServer, ChatServer, ChatServer]
) -> None:
    bag = write_arm_bag(tmp_path / 'bag', 'table', at=camera())
    items = [replace(ITEM, id='b', scene='', bag=str(bag), stamp_ns=T0_NS)]
    write_items(tmp_path / 'bench.jsonl', items)
    servers[0].default = Script(('<think>x</think><answer>Left.</answer>',))
    report = run(tmp_path, servers[:2], '--see', 'picture')
    shown = [request.images for request in servers[0].requests if 'cup' in request.text]
    assert sorted(map(len, shown)) == [0, 1]
    assert report['judges'][0]['scores']['mean'] == 3


def test_a_folder_answers_and_looks_at_no_pictures(
    tmp_path: Path,
    servers: tuple[ChatServer, ChatServer, ChatServer],
    capsys: pytest.CaptureFixture[str],
) -> None:
    save_language_model(tmp_path / 'weights')
    write_items(tmp_path / 'bench.jsonl', ITEMS[:2])
    command = [str(tmp_path / 'weights'), str(tmp_path / 'bench.jsonl'), '--max-tokens', '4']
    command += ['--judge', servers[1].url, '--out', str(tmp_path / 'out'), '--cache', 'none']
    assert main(command) == 0
    report = json.loads((tmp_path / 'out' / 'report.json').read_text())
    assert report['unanswered'] == 2
    assert report['judges'][0]['scores']['mean'] == 0
    (tmp_path / 'x.jpg').write_bytes(encode_image(np.zeros((8, 8, 3), np.uint8)).data)
    write_items(tmp_path / 'bench.jsonl', [replace(ITEM, image=str(tmp_path / 'x.jpg'))])
    assert main([*command, '--see', 'picture']) == 2
    assert 'reads text alone: name a vision-language model' in capsys.readouterr().err


def test_shipped_model_reads_scenes_as_long_as_it_is_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, token_budgets: Callable[[str], list[int]]
) -> None:
    budgets = token_budgets('training.robot_bench.evaluate.evaluate')
    monkeypatch.setattr('training.robot_bench.evaluate.judges_of', lambda *_: [])
    write_items(tmp_path / 'bench.jsonl', ITEMS)
    command = [str(shared_path('models', 'arm')), str(tmp_path / 'bench.jsonl'), '--judge', 'j']
    command += ['--out', str(tmp_path / 'out'), '--cache', str(tmp_path / 'cache')]
    assert main(command) == 2
    assert main([*command, '--token-budget', '700']) == 2
    assert budgets == [load_profile('embedded-arm').reasoner['token_budget'], 700]
