# SPDX-License-Identifier: Apache-2.0
"""What no verb may do: half a file, a traceback, an argument that is taken and not used."""

from __future__ import annotations

import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import encoded_image_to_msg, header_to_msg
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.core.types.images import EncodedImage
import numpy as np
import pytest

COMMAND = [sys.executable, '-m', 'embodied_r_ros.cli.main']
SAMPLE = Path(__file__).parents[2] / 'samples' / 'indoor' / 'episode_00000'
DEAD = 'http://127.0.0.1:9'
TIMEOUT_S = 60.0


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Bags that lack something, each in its own way, and what is no model."""
    factory = BagMessageFactory()
    for name, encoding in (('depth', '16UC1'), ('nothing', '')):
        with BagWriter(tmp_path / name) as bag:
            bag.add_topic('/image', 'sensor_msgs/msg/Image')
            if encoding:
                size = {'height': 4, 'width': 4, 'step': 8, 'is_bigendian': 0}
                msg = factory.make(
                    'sensor_msgs/msg/Image',
                    header=header_to_msg(factory, 5, 'camera'),
                    encoding=encoding,
                    data=np.zeros(32, np.uint8),
                    **size,
                )
                bag.write('/image', msg, 5)
    with BagWriter(tmp_path / 'junk') as bag:
        bag.add_topic('/image/compressed', 'sensor_msgs/msg/CompressedImage')
        junk = encoded_image_to_msg(factory, 5, 'camera', EncodedImage(b'junk', 'jpeg'))
        bag.write('/image/compressed', junk, 5)
    (tmp_path / 'file').write_text('text')
    (tmp_path / 'weightless').mkdir()
    (tmp_path / 'weightless' / 'config.json').write_text('{}')
    return tmp_path


def one_error_line(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> str:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ''
    assert err.startswith('embodied-r: error: ')
    assert err.count('\n') == 1
    return err


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        (
            f'ask depth Q --model {DEAD}',
            "image encoding '16UC1' is depth, not a colour or grey image",
        ),
        (f'ask nothing Q --model {DEAD}', 'nothing has no images'),
        (f'ask {SAMPLE} Q --model file', 'file holds no model: expected a folder'),
        (f'ask {SAMPLE} Q --model ftp://x', "'ftp://x': expected http(s)://HOST:PORT"),
        (f'ask {SAMPLE} Q --model http://[::', "url is 'http://[::'"),
        (f'ask {SAMPLE} \udcff --model {DEAD}', 'is not text in UTF-8'),
        (f'perceive {SAMPLE} --set chat.url={DEAD}', 'chat.url and --profile are for'),
        (f'perceive {SAMPLE} --set classical.assumed_hfov_rad=7', 'assumed_hfov_rad is 7.0'),
        (f'questions {SAMPLE} --profile gpu-24gb --out r', '--profile is for --deltas vlm'),
        (f'questions {SAMPLE} {SAMPLE} --out r', 'is named more than once'),
        (f'questions {SAMPLE} --out file/r', 'folder file does not exist'),
        (f'questions {SAMPLE} --out /proc/r', 'cannot write /proc/r'),
    ],
)
def test_bad_input_is_one_line_and_leaves_nothing(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    message: str,
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert message in one_error_line(capsys, line.split())
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize(
    'arguments',
    [
        ['keyframes', ''],
        ['perceive', ''],
        ['demo', '--out', ''],
        ['ask', str(SAMPLE), 'Which way?', '--model', ''],
        ['replay', str(SAMPLE), '--model', ''],
        ['questions', str(SAMPLE), '--out', ''],
    ],
)
def test_an_empty_argument_is_no_default(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    with pytest.raises(SystemExit, match='2'):
        main(arguments)
    out, err = capsys.readouterr()
    assert 'is empty: give a value' in err
    assert (out, err.count('\n')) == ('', 1)
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize('value', ['-1', '0', 'nan', 'inf', 'soon'])
def test_deadline_that_is_no_time_is_refused(
    capsys: pytest.CaptureFixture[str], value: str
) -> None:
    with pytest.raises(SystemExit, match='2'):
        sys.exit(main(['replay', str(SAMPLE), '--model', DEAD, f'--deadline={value}']))
    out, err = capsys.readouterr()
    note, error = err.splitlines()
    assert note == f'embodied-r: note: --deadline is --set reasoner.deadline_s={value} now'
    assert 'reasoner.deadline_s is ' in error
    assert out == ''


@pytest.mark.parametrize(
    ('verb', 'name', 'message'),
    [
        ('keyframes', 'pipe', 'pipe is neither a file nor a folder'),
        ('keyframes', 'pipe.mcap', 'pipe.mcap is neither a file nor a folder'),
        ('replay', 'pipe.mcap', 'pipe.mcap is not a bag'),
    ],
)
def test_a_pipe_is_not_waited_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str, name: str, message: str
) -> None:
    os.mkfifo(tmp_path / name)
    more = ['--model', DEAD] if verb == 'replay' else []
    assert message in one_error_line(capsys, [verb, str(tmp_path / name), *more])


def test_a_simulated_bag_without_images_points_to_its_true_deltas(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bag = tmp_path / 'bag'
    with BagWriter(bag) as writer:
        writer.add_topic('/truth/semantic_delta', 'embodied_r_msgs/msg/SemanticDelta')
    line = ['questions', str(bag), '--out', str(tmp_path / 'rows.jsonl')]
    assert 'has ground-truth deltas and no images: use --deltas true' in one_error_line(
        capsys, line
    )


@pytest.mark.parametrize(
    ('line', 'message'),
    [
        ('--source depth --out new', "image encoding '16UC1'"),
        ('--source junk --out new', 'are not a JPEG, PNG, WebP'),
        ('--source nothing --out new', 'nothing has no images'),
        ('--source absent --out new', 'absent does not exist'),
        (f'--source {SAMPLE} --out file', 'file is not an empty folder'),
        (f'--source {SAMPLE} --out file/new', 'cannot write to file/new: Not a directory'),
    ],
)
def test_a_demonstration_checks_both_ends_before_it_starts_anything(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    message: str,
) -> None:
    pytest.importorskip('rclpy')
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    assert message in one_error_line(capsys, ['demo', *line.split()])
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize('redirect', ['>/dev/full', '>&-'])
def test_output_that_cannot_be_written_gives_no_traceback(redirect: str) -> None:
    command = ' '.join([*COMMAND, 'models', 'list', redirect])
    done = subprocess.run(
        command, shell=True, stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False
    )
    failed = redirect == '>/dev/full'
    assert done.returncode == failed
    assert done.stderr.startswith('embodied-r: failed: ' if failed else '')
    assert done.stderr.count('\n') == failed


@pytest.mark.parametrize('stop', [signal.SIGINT, signal.SIGTERM], ids=lambda s: s.name)
def test_interrupted_questions_leave_no_file(tmp_path: Path, stop: signal.Signals) -> None:
    command = [*COMMAND, 'questions', str(SAMPLE), '--out', str(tmp_path / 'rows.jsonl')]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + TIMEOUT_S
    while not any(tmp_path.iterdir()):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(stop)
    _, talk = process.communicate(timeout=TIMEOUT_S)
    # A shell calls both 130: Python kills itself where the interrupt came in code given to exec().
    assert process.returncode in {130, -signal.SIGINT}
    assert talk == 'embodied-r: interrupted\n'
    assert list(tmp_path.iterdir()) == []
