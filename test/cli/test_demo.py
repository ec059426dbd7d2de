# SPDX-License-Identifier: Apache-2.0
"""What `embodied-r demo` does without ROS; that nodes do it too is shown by `make demo`."""

from __future__ import annotations

from itertools import count
import json
import sys
from typing import Any, TYPE_CHECKING

import cv2
from embodied_r_ros.apps.demo import workplace
from embodied_r_ros.apps.review.recording import read_recording, written_question
from embodied_r_ros.bags.sources import camera_images
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import EmbodiedRError, InputError
from embodied_r_ros.core.reasoning.question import Question
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.labels import read_labels
import numpy as np
import pytest

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def planned_commands(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What would be run."""
    pytest.importorskip('rclpy')
    from embodied_r_ros.nodes.demo import demo

    requests: list[Any] = []

    def run_demo(request: Any, _: Any) -> dict[str, Any]:
        requests.append(request)
        return {'questions': [], 'page': 'page.html'}

    monkeypatch.setattr(demo, 'run_demo', run_demo)
    return requests


@pytest.mark.parametrize(
    ('words', 'questions'),
    [
        ([], ()),
        (['--question', 'a?'], (Question('a?'),)),
        (['-o', 'x', '-o', 'y', '--question', 'a?'], (Question('a?', ('x', 'y')),)),
        (
            ['--question', 'b?', '-o', 'x', '--option', 'y', '--question', 'a?'],
            (Question('b?', ('x', 'y')), Question('a?')),
        ),
        (
            ['--question', 'b?', '--question', 'a?', '-o', 'y', '-o', 'x', '--question', 'c?'],
            (Question('b?'), Question('a?', ('y', 'x')), Question('c?')),
        ),
    ],
)
def test_every_question_is_asked_in_order_with_its_options(
    planned_commands: list[Any], tmp_path: Path, words: list[str], questions: tuple[Question, ...]
) -> None:
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 0
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 0
    assert [request.questions for request in planned_commands] == [questions] * 2


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['-o', 'x', '-o', 'y'], 'options without a question'),
        (['--question', ''], 'the question is empty'),
        (['--question', 'a?', '--question', 'b?', '-o', 'x'], "one option alone ('x')"),
        (['--question', 'a?', '-o', 'x', '--question', 'b?', '-o', 'y'], "one option alone ('x')"),
    ],
)
def test_questions_that_cannot_be_asked_are_refused(
    planned_commands: list[Any],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    message: str,
) -> None:
    assert main(['demo', *words, '--out', str(tmp_path / 'out')]) == 2
    assert message in capsys.readouterr().err
    assert planned_commands == []


def test_what_a_killed_demonstration_left_is_removed_by_the_next_and_not_while_it_runs(
    tmp_path: Path,
) -> None:
    (tmp_path / '.unfinished-x' / 'episodes').mkdir(parents=True)
    with workplace(tmp_path) as scratch:
        assert [*tmp_path.iterdir()] == [scratch]
        with pytest.raises(InputError, match='is not an empty folder'), workplace(tmp_path):
            pass
        assert scratch.is_dir()
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize('more', ['', '; what was written is kept, `recover` closes it'])
def test_a_full_disk_names_the_folder_that_was_given(tmp_path: Path, more: str) -> None:
    out, told = tmp_path / 'out', f'no episode. cannot write {{}}/ep: File too large{more}'
    with (
        pytest.raises(InputError, match=f'^cannot write to {out}: File too large$'),
        workplace(out) as scratch,
    ):
        raise EmbodiedRError(told.format(scratch))
    assert not out.exists()


@pytest.fixture(scope='module')
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two seconds of a camera that turns before a wall of many colours."""
    path = tmp_path_factory.mktemp('film') / 'my film.avi'
    wall = cv2.resize(
        np.random.default_rng(1).integers(0, 255, (60, 200, 3), np.uint8), (1600, 480)
    )
    writer = cv2.VideoWriter(str(path), cv2.VideoWriter.fourcc(*'MJPG'), 10, (640, 480))
    for number in range(20):
        writer.write(np.ascontiguousarray(wall[:, 40 * number : 40 * number + 640]))
    writer.release()
    return path


def test_a_film_becomes_a_page_without_ros(
    film: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, 'rclpy', None)  # whoever imports it fails
    monkeypatch.chdir(tmp_path)
    words = ['demo', '--source', str(film), '--question', 'How far did the robot turn?']
    assert main([*words, '--no-browser']) == 0
    assert main([*words, '--no-browser']) == 0
    out = tmp_path / 'out' / 'demo-2'
    assert 'the page: out/demo-1/page.html' in capsys.readouterr().err
    assert {path.name for path in out.iterdir()} == {
        'bag', 'contact_sheet.png', 'page.html', 'report.json'
    }  # fmt: skip
    report = json.loads((out / 'report.json').read_text())
    (question,) = report['questions']
    assert (report['source'], question['question']) == (film.name, words[-1])
    episode = read_episode(out / 'bag')
    assert episode.id == film.name
    assert len(episode.deltas) == report['keyframes'] > 1
    assert episode.deltas[-1].stamp_ns == 1_000_000_000 + 1_900_000_000  # the last image
    recording = read_recording(out / 'bag')
    layer = read_labels(out / 'bag')
    written = written_question(layer.labels[0], recording.deltas)
    assert (written.answer, written.sentence) == (question['answer'], question['sentence'])
    assert [call.tool for call in written.calls] != []
    # The same that `embodied-r ask` says of the film.
    assert main(['ask', str(film), words[-1], '--profile', 'tools', '--json']) == 0
    assert json.loads(capsys.readouterr().out)['answer'] == question['answer']


@pytest.mark.parametrize(
    ('words', 'message'),
    [
        (['--camera', '0', '--source', 'a.mp4'], '--camera goes without --source'),
        (['--camera', '99'], 'camera 99 cannot be opened'),
        (['--source', 'none.mp4'], 'none.mp4 does not exist'),
        (['--source', '{film}', '--set', 'detector.threshold=0.4'], 'is for the nodes'),
    ],
)
def test_what_cannot_be_shown_is_said_in_one_line_and_leaves_nothing(
    film: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    out = tmp_path / 'out'
    words = [word.format(film=film) for word in words]
    assert main(['demo', *words, '--no-browser', '--out', str(out)]) == 2
    (line,) = [one for one in capsys.readouterr().err.splitlines() if 'error: ' in one]
    assert message in line
    assert not out.exists()


def test_a_camera_is_read_as_long_as_is_wanted(film: Path) -> None:
    def read(seconds: float) -> list[int]:
        clock = count(5_000_000_000, 100_000_000)
        images = camera_images(cv2.VideoCapture(str(film)), seconds, lambda: next(clock))
        return [image.stamp_ns for image in images]

    assert read(0.5) == [100_000_000 * index for index in range(6)]
    assert len(read(60)) == 20  # it was unplugged
