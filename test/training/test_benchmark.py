# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import base64
import json
from typing import Any, TYPE_CHECKING

import pytest

pytest.importorskip('torch')

import cv2
from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.core.scene.memory import MemoryConfig
from embodied_r_ros.core.types.deltas import DeltaKind, Item, SemanticDelta
from embodied_r_ros.core.types.geometry import Pose
from embodied_r_ros.data.episodes.offline import Seer
from embodied_r_ros.data.episodes.perception_cache import PerceptionCache
from embodied_r_ros.data.own_messages import delta_to_msg
import numpy as np

from test.chat_server import ChatServer, RecordedRequest, Script
from test.raycast_room import pose_at, Room, Solid
from test.tiny_models import save_language_model
from training import benchmark
from training.eval.benchmarks import predictions as predictions_module
from training.eval.benchmarks.questions import BenchmarkQuestion, VideoPart

if TYPE_CHECKING:
    from pathlib import Path

ROWS = [
    {
        'id': number,
        'dataset': 'scannet',
        'scene_name': f'scene{number % 3}',
        'question_type': 'object_counting' if number % 2 else 'object_rel_distance',
        'question': f'Question {number}?',
        'ground_truth': '4' if number % 2 else 'B',
        'options': None if number % 2 else ['A. lamp', 'B. sofa'],
    }
    for number in range(6)
]


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / 'test.json'
    path.write_text(json.dumps(ROWS))
    return path


def write_video(path: Path, colour: tuple[int, int, int]) -> None:
    """A camera that turns past a box."""
    path.parent.mkdir(exist_ok=True)
    noise = np.random.default_rng(0).integers(-60, 60, (15, 50))
    grey = 150 + cv2.resize(noise.astype(np.float32), (400, 120))
    wall = cv2.cvtColor(grey.astype(np.uint8), cv2.COLOR_GRAY2BGR)
    cv2.rectangle(wall, (180, 40), (220, 90), colour, -1)
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'mp4v'), 10, (160, 120))
    for step in range(8):
        writer.write(np.ascontiguousarray(wall[:, 30 * step : 30 * step + 160]))
    writer.release()


@pytest.fixture
def videos(tmp_path: Path) -> Path:
    folder = tmp_path / 'videos'
    folder.mkdir()
    write_video(folder / 'scannet' / 'scene0.mp4', (0, 0, 255))
    write_video(folder / 'scannet' / 'scene1.mp4', (255, 0, 0))
    return folder


def predictions(path: Path, texts: dict[Any, str], **more: Any) -> Path:
    path.write_text(
        ''.join(
            json.dumps({'id': name, 'prediction': text, **more}) + '\n'
            for name, text in texts.items()
        )
    )
    return path


def run(tmp_path: Path, *arguments: object) -> tuple[int, dict[str, Any]]:
    out = tmp_path / 'report.json'
    out.unlink(missing_ok=True)
    code = benchmark.main(
        [*map(str, arguments), '--json', str(out), '--cache', str(tmp_path / 'cache')]
    )
    return code, json.loads(out.read_text()) if out.exists() else {}


def test_predictions_are_scored_by_the_published_rule(
    tmp_path: Path, rows: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = {0: 'b. sofa', 2: 'B) sofa', 1: '4 chairs', 3: '1,234', 5: '3.2'}
    given = predictions(tmp_path / 'p.jsonl', texts)
    code, report = run(tmp_path, 'vsi-bench', '--rows', rows, '--predictions', given)
    assert code == 0
    # Of choices 1, 0 and one missing; of numbers 1, 0 and 7 of 10 thresholds.
    rates = {'object_rel_distance': 1 / 3, 'object_counting': 1.7 / 3}
    assert report['by_type'] == pytest.approx(rates)
    assert report['overall'] == pytest.approx(sum(rates.values()) / 2)
    assert (report['n'], report['missing'], report['rows']) == (6, 1, 6)
    low, high = report['interval_95']
    assert low <= report['overall'] <= high
    assert [outcome['score'] for outcome in report['outcomes']] == [
        1,
        1,
        0,
        0,
        0,
        pytest.approx(0.7),
    ]
    assert report['baselines']['best_constant']['overall'] == 1
    captured = capsys.readouterr()
    assert 'questions without a prediction, counted as wrong: 1' in captured.err
    assert 'overall' in captured.out


def test_baselines_alone_need_no_predictions(tmp_path: Path, rows: Path) -> None:
    code, report = run(tmp_path, 'vsi-bench', '--rows', rows)
    assert (code, report['overall'], report['n']) == (0, None, 6)
    assert report['baselines']['most_frequent']['answers'] == {
        'object_counting': '4',
        'object_rel_distance': 'B',
    }


def test_model_without_videos_is_a_blind_baseline(tmp_path: Path, rows: Path) -> None:
    with ChatServer(Script(('B. 4',)), [{'id': 'm'}], 'm') as server:
        code, report = run(tmp_path, 'vsi-bench', '--rows', rows, '--model', server.url)
    assert (code, report['overall'], report['missing']) == (0, None, 0)
    alone = report['baselines']['question_only']
    assert alone['by_type'] == {'object_rel_distance': 1.0, 'object_counting': 0.0}
    assert alone['overall'] == 0.5


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        (['--predictions', 'P', '--model', 'M'], 'leave --model out'),
        (['--videos', 'V'], '--videos needs --model'),
        (['--model', 'M'], 'M is neither a URL nor a folder with a model'),
        (['--export', 'E.tsv'], '--export needs'),
        (['--predictions', 'P', '--export', 'E.xlsx'], 'exported to a file .tsv or .jsonl'),
        (['--predictions', 'missing.jsonl'], 'missing.jsonl cannot be read'),
    ],
)
def test_arguments_that_do_not_fit(
    tmp_path: Path,
    rows: Path,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: str,
) -> None:
    code, report = run(tmp_path, 'vsi-bench', '--rows', rows, *arguments)
    assert (code, report) == (2, {})
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith('training.benchmark: error: ')
    assert message in line


def requests_of(server: ChatServer) -> list[str]:
    return [request.text for request in server.requests if 'Question: ' in request.text]


def clerk(request: RecordedRequest) -> Script:
    """Counts four where it sees something red, names no letter, and knows nothing blindly."""
    if '(nothing)' in request.text:
        return Script(('<think>Dark.</think><answer>unknown</answer>',))
    if 'A. lamp' in request.text:
        return Script(('<think>Hm.</think><answer>B. sofa</answer>',))
    return Script(('<think>Seen.</think><answer>4 cm</answer>',))


def test_model_is_asked_about_videos(
    tmp_path: Path, rows: Path, videos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export = tmp_path / 'm_VSI-Bench.tsv'
    asked = ['vsi-bench', '--rows', rows, '--videos', videos, '--export', export]
    with ChatServer(clerk, [{'id': 'm'}], 'm') as server:
        code, report = run(tmp_path, *asked, '--model', server.url)
        texts = requests_of(server)
        server.requests.clear()
        # What was perceived and said is kept.
        monkeypatch.setattr(Seer, 'see', lambda *_: pytest.fail('perceived once more'))
        assert run(tmp_path, *asked, '--model', server.url) == (code, report)
        assert requests_of(server) == []
    # Of scene2 there is no video: its two questions fail, and the others do not.
    assert code == 1
    assert [error['id'] for error in report['errors']] == ['2', '5']
    assert 'scene2.mp4' in report['errors'][0]['error']
    assert report['by_type'] == pytest.approx(
        {'object_rel_distance': 2 / 3, 'object_counting': 2 / 3}
    )
    assert report['missing'] == 2
    assert report['baselines']['question_only']['overall'] == 0
    assert report['outcomes'][0]['prediction'] == 'B. sofa'
    (seen,) = [text for text in texts if 'Question 0?' in text and '(nothing)' not in text]
    assert 'These are frames of a video. Question 0?' in seen
    assert 'A. lamp\nB. sofa' in seen
    assert 'red' in seen
    assert '"0"\t"object_rel_distance"' in export.read_text()


def test_server_that_is_dead_ends_the_run(
    tmp_path: Path, rows: Path, videos: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with ChatServer(Script(status=500), [{'id': 'm'}], 'm') as server:
        arguments = ['vsi-bench', '--rows', rows, '--videos', videos, '--model', server.url]
        assert run(tmp_path, *arguments) == (1, {})
    assert capsys.readouterr().err.splitlines()[-1].startswith('training.benchmark: error: ')


def test_folder_with_weights_is_asked(tmp_path: Path, rows: Path, videos: Path) -> None:
    save_language_model(tmp_path / 'weights')
    arguments = ['--videos', videos, '--model', tmp_path / 'weights', '--max-tokens', 4]
    code, report = run(tmp_path, 'vsi-bench', '--rows', rows, *arguments, '--limit', 3)
    assert (report['rows'], report['sampling']['max_tokens']) == (3, 4)
    assert len(report['outcomes']) == 3
    assert code == int(bool(report['errors']))


def test_maps_are_asked_about(tmp_path: Path, rows: Path) -> None:
    for scene in range(3):
        landmark = {'label': f'thing of scene {scene}', 'position': [scene, 0, 0]}
        (tmp_path / f'scene{scene}.json').write_text(json.dumps({'landmarks': [landmark]}))
    with ChatServer(clerk, [{'id': 'm'}], 'm') as server:
        arguments = ['--maps', tmp_path, '--model', server.url]
        code, report = run(tmp_path, 'vsi-bench', '--rows', rows, *arguments)
        about = [r.text for r in server.requests if 'Things: thing of scene' in r.text]
    assert (code, report['errors']) == (0, [])
    assert len(about) == report['rows']


def test_images_of_erqa_are_shown(tmp_path: Path) -> None:
    pictures = [cv2.imencode('.png', np.full((8, 8, 3), grey, np.uint8))[1] for grey in (9, 99)]
    row = {
        'index': 0,
        'question': 'Which is darker? A. one. B. two.',
        'answer': 'A',
        'category': 'Other',
        'image': [base64.b64encode(picture.tobytes()).decode() for picture in pictures],
    }
    path = tmp_path / 'erqa.json'
    path.write_text(json.dumps([row]))

    def sees(request: RecordedRequest) -> Script:
        return Script(('A.' if request.images else 'B',))

    with ChatServer(sees, [{'id': 'm'}], 'm') as server:
        code, report = run(tmp_path, 'erqa', '--rows', path, '--model', server.url)
        (shown,) = [r for r in server.requests if len(r.images) == 2]
    assert shown.images == [picture.tobytes() for picture in pictures]
    assert shown.text == row['question']
    assert (code, report['overall']) == (0, 1)
    assert report['baselines']['question_only']['overall'] == 0


def test_only_the_part_of_a_video_that_is_asked_about_is_perceived(
    tmp_path: Path, videos: Path
) -> None:
    asked = [
        BenchmarkQuestion(
            str(i),
            'Action Sequence',
            'v',
            'What?',
            'A',
            video=VideoPart(('scannet/scene0.mp4',), s),
        )
        for i, s in enumerate([None, (0.3, 0.5), (9.0, 10.0)])
    ]
    scenes, errors = predictions_module.perceive_videos(asked, videos, None)
    stamps = {name: [d.stamp_ns for d in scene.deltas] for name, scene in scenes.items()}
    assert stamps['0'][0] == 0
    assert stamps['1'][0] == 300_000_000
    assert max(stamps['1']) <= 500_000_000
    assert list(errors) == ['2']
    assert 'nothing can be seen' in errors['2']


def record_sofa(bag: Path) -> None:
    """A bag with deltas of a camera that knows its poses and sees a sofa."""
    item = Item('sofa', bearing_rad=0.0, elevation_rad=0.0, distance_m=2.0)
    pose = Pose((1.0, 0.0, 1.0), (0.0, 0.0, 0.0, 1.0), 'odom')
    with BagWriter(bag) as writer:
        writer.add_topic('/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
        for number in range(1, 4):
            at_ns = number * 10**9
            delta = SemanticDelta(at_ns, DeltaKind.FIRST, number, items=(item,), pose=pose)
            writer.write('/semantic_delta', delta_to_msg(BagMessageFactory(), delta), at_ns)


def photograph_ball(folder: Path) -> None:
    """An image of a red ball, with its depth in millimetres beside it."""
    ball = Solid((1.6, 0.7, 0.2), (0.4, 0.4, 0.4), (20, 20, 210), is_ball=True)
    room, pose = Room(0, contrast=0.6), pose_at(-0.8, 0.0, 1.0, 0.0, 0.1)
    depth = folder.parent / 'depth'
    for made in (folder, depth):
        made.mkdir(parents=True)
    cv2.imwrite(str(folder / '0.png'), room.view(pose, (ball,)))
    cv2.imwrite(str(depth / '0.png'), (room.depth(pose, (ball,)) * 1000).astype('uint16'))


@pytest.mark.parametrize(
    ('make', 'label'), [(record_sofa, 'sofa'), (photograph_ball, 'red round object')]
)
def test_map_of_a_scene_with_poses_or_depth_is_known_in_a_resumed_run_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, label: str
) -> None:
    make(tmp_path / 'all' / 'one')
    asked = BenchmarkQuestion(
        '1', 'object_counting', 'one', f'How far is the {label}?', '2', video=VideoPart(('one',))
    )
    scenes = []
    for _ in range(2):
        cache = PerceptionCache(tmp_path / 'cache')
        found, errors = predictions_module.perceive_videos([asked], tmp_path / 'all', cache)
        assert not errors
        scenes.append(found['1'])
        monkeypatch.setattr(Seer, '_perceive', lambda *_: pytest.fail('perceived anew'))
    memory = MemoryConfig()
    first, again = (predictions_module.scene_prompt(asked, scene, memory) for scene in scenes)
    assert first == again
    assert scenes[0].scene_map is not None
    assert label in [landmark.label for landmark in scenes[0].scene_map.landmarks]
    assert f'Things: {label} 1.' in first.user


OPENEQA_ROWS = [
    {
        'question': f'Where is thing {number}?',
        'answer': 'On the wall',
        'category': 'object localization',
        'question_id': f'u{number}',
        'episode_history': f'hm3d-v0/{number}',
    }
    for number in range(3)
]


def test_answers_to_openeqa_bring_their_marks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / 'open-eqa-v0.json'
    path.write_text(json.dumps(OPENEQA_ROWS))
    given = predictions(tmp_path / 'p.jsonl', {'u0': 'a wall', 'u1': 'here'})
    scored = ['openeqa', '--rows', path, '--predictions', given]
    assert run(tmp_path, *scored)[0] == 2
    assert "'u0' has no mark" in capsys.readouterr().err
    assert run(tmp_path, 'openeqa', '--rows', path, '--model', 'M')[0] == 2
    assert 'answers to openeqa need marks' in capsys.readouterr().err

    predictions(given, {'u0': 'a wall', 'u1': 'here'}, mark=4)
    code, report = run(tmp_path, *scored)
    assert (code, report['n'], report['left_out'], report['missing']) == (0, 3, 0, 1)
    assert report['overall'] == pytest.approx(2 * 0.75 / 3)
    assert report['baselines'] == {}
