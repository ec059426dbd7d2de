# SPDX-License-Identifier: Apache-2.0
"""Fleets of recordings on a Ray of two workers: the same bytes as without, whatever dies."""

from __future__ import annotations

from collections import Counter
from contextlib import redirect_stderr
from importlib.util import find_spec
import io
import os
from pathlib import Path
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.bags.message_types import BagMessageFactory
from embodied_r_ros.bags.messages import (
    camera_info_to_msg,
    encoded_image_to_msg,
    odometry_to_msg,
)
from embodied_r_ros.bags.writer import BagWriter
from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import BagError, EmbodiedRError
from embodied_r_ros.core.types.geometry import Intrinsics, Pose
from embodied_r_ros.core.types.images import encode_image
from embodied_r_ros.data.episodes.collect import collect_episode, CollectConfig
from embodied_r_ros.data.episodes.episode import read_episode
from embodied_r_ros.data.episodes.fleet import FleetLog, read_status, StageReport
from embodied_r_ros.data.episodes.fleet_ray import FleetConfig, ray_connection, run_fleet
from embodied_r_ros.data.episodes.inspect import bag_digest
from embodied_r_ros.data.episodes.manifest import FleetRecording
import numpy as np
import pytest

from test.chat_server import ChatServer
from test.cli.test_perceive import scene_reply

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embodied_r_ros.data.episodes.fleet import FleetStage

if not find_spec('ray'):
    pytest.skip('Ray is not installed', allow_module_level=True)

ROOT = Path(__file__).parents[3]
COUNT = 4
S = 1_000_000_000
FACTORY = BagMessageFactory()
CAMERA = Intrinsics(160, 120, 140.0, 140.0, 79.5, 59.5)
COLOURS = ((0, 0, 220), (0, 200, 0), (220, 60, 0), (0, 220, 220))
STILL = ((0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
CONFIG = FleetConfig(actors=2)
ON_RAY = ['--ray', 'local', '--set', 'fleet.attempts=1']
PATIENCE_S = 120.0


@pytest.fixture(scope='session')
def two_workers() -> Iterator[Any]:
    """Ray on this machine, with two cores; commands with `--ray local` work on it."""
    with ray_connection(CONFIG) as cluster:
        yield cluster


def record(bag: Path, seed: int) -> Path:
    """Four views of a camera that moves past a wall with coloured things."""
    rng = np.random.default_rng(seed)
    picture = np.full((160, 640, 3), 200, np.uint8)
    for left in range(10, 600, 60):
        colour = COLOURS[rng.integers(len(COLOURS))]
        picture[60 : 60 + rng.integers(20, 60), left : left + rng.integers(20, 50)] = colour
    with BagWriter(bag) as writer:
        writer.add_topic('/image/compressed', 'sensor_msgs/msg/CompressedImage')
        writer.add_topic('/camera_info', 'sensor_msgs/msg/CameraInfo')
        writer.add_topic('/odom', 'nav_msgs/msg/Odometry')
        for index in range(4):
            stamp_ns = (1 + index) * S
            view = np.ascontiguousarray(picture[20:140, 120 * index : 120 * index + 160])
            pose = Pose((0.5 * index, 0.1 * seed, 0.0), (0.0, 0.0, 0.0, 1.0), 'odom')
            odometry = odometry_to_msg(FACTORY, stamp_ns, pose, 'eye', STILL)
            image = encoded_image_to_msg(FACTORY, stamp_ns, 'eye', encode_image(view))
            info = camera_info_to_msg(FACTORY, stamp_ns, 'eye', CAMERA)
            writer.write('/camera_info', info, stamp_ns)
            writer.write('/odom', odometry, stamp_ns)
            writer.write('/image/compressed', image, stamp_ns)
    return bag


@pytest.fixture(scope='module')
def bags(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four recordings, and one that was cut off."""
    folder = tmp_path_factory.mktemp('bags')
    for seed in range(COUNT):
        record(folder / f'drive_{seed:02}', seed)
    cut = folder / 'cut'
    shutil.copytree(record(tmp_path_factory.mktemp('cut') / 'whole', 99), cut)
    (file,) = cut.glob('*.mcap')
    os.truncate(file, file.stat().st_size // 2)
    return folder


def files_of(folder: Path) -> dict[str, bytes]:
    """All files below a folder but those of the state of a fleet."""
    files = [path for path in folder.rglob('*') if path.is_file()]
    names = [(str(path.relative_to(folder)), path) for path in files]
    return {name: path.read_bytes() for name, path in names if not name.startswith('fleet/')}


@pytest.fixture(scope='module')
def episodes(bags: Path) -> tuple[Path, list[str]]:
    """What is collected without Ray, and what is said of failures.

    The command works on two; the others are made by what its processes call, in this one.
    """
    out = bags.with_name('episodes')
    said = io.StringIO()
    with redirect_stderr(said):
        assert main(['collect', str(bags / 'drive_00'), str(bags / 'cut'), '--out', str(out)]) == 1
    for bag in sorted(bags.glob('drive_*'))[1:]:
        digest = bag_digest(bag)
        collect_episode(bag, out / f'{bag.name}-{digest.sha256[:8]}', CollectConfig(), digest)
    return out, failures(said.getvalue())


@pytest.fixture(scope='module')
def sources(bags: Path, episodes: tuple[Path, list[str]]) -> list[str]:
    """The recording that was cut off, then the episodes."""
    return [str(bags / 'cut'), *map(str, sorted(episodes[0].glob('drive_*')))]


def failures(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith('failed: ')]


def test_episodes_are_the_same_with_and_without_ray(
    two_workers: Any,
    bags: Path,
    episodes: tuple[Path, list[str]],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    plain, why = episodes
    command = ['collect', str(bags), '--out', str(tmp_path / 'out'), *ON_RAY]
    assert main(command) == 1
    told = capsys.readouterr()
    assert files_of(tmp_path / 'out') == files_of(plain)
    assert len(list(plain.glob('drive_*'))) == COUNT
    outputs = [line.split('\t')[1] for line in told.out.splitlines()]
    assert sorted(outputs) == sorted(path.name for path in plain.glob('drive_*'))
    assert failures(told.err) == [f'{line} (given up)' for line in why]
    # A second run does nothing.
    assert main(command) == 1
    assert capsys.readouterr().out == ''
    assert main([*command, '--set', 'collect.images=none']) == 2
    assert 'of other settings' in capsys.readouterr().err


def test_actors_copy_recordings_from_urls_and_ask_what_the_plain_command_asks(
    two_workers: Any, bags: Path, tmp_path: Path
) -> None:
    drives = [bags / f'drive_0{number}' for number in range(2)]
    (tmp_path / 'fleet.txt').write_text(''.join(f'{drive.as_uri()}\n' for drive in drives))
    with ChatServer(scene_reply, models=[{'id': 'scripted'}]) as server:
        profile = tmp_path / 'far.yaml'
        profile.write_text(f'clients: {{perceiver: {{url: "{server.url}", model: scripted}}}}')
        more = ['--perceiver', 'vlm', '--profile', str(profile), '--out']
        assert main(['collect', *map(str, drives), *more, str(tmp_path / 'plain')]) == 0
        command = ['collect', str(tmp_path / 'fleet.txt'), *more, str(tmp_path / 'out')]
        assert main([*command, *ON_RAY]) == 0
    assert files_of(tmp_path / 'out') == files_of(tmp_path / 'plain')
    episode = next((tmp_path / 'out').glob('drive_00-*'))
    assert {delta.model.name for delta in read_episode(episode).deltas} == {'scripted'}
    for status in read_status(tmp_path / 'out' / 'fleet'):
        assert status.calls >= status.keyframes > 0


def test_maps_are_the_same_with_and_without_ray(
    two_workers: Any, sources: list[str], tmp_path: Path
) -> None:
    listed, maps = tmp_path / 'list.txt', tmp_path / 'maps'
    listed.write_text('\n'.join(sources))
    assert main(['map', str(listed), '--out', str(maps), *ON_RAY]) == 1
    for source in sources[1:]:
        (made,) = maps.glob(f'{Path(source).name}-*.json')
        main(['map', source, '--out', str(tmp_path / 'MAP.json')])
        assert made.read_bytes() == (tmp_path / 'MAP.json').read_bytes()


def test_rows_are_the_same_with_and_without_ray(
    two_workers: Any, sources: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = []
    for name, where in (('plain', []), ('fleet', ON_RAY)):
        rows = tmp_path / name / 'rows.jsonl'
        rows.parent.mkdir()
        more = ['--maps', '--set', 'questions.test_share=0.3', '--out', str(rows)]
        assert main(['questions', *sources, *more, *where]) == 0
        lines = capsys.readouterr().err.partition('left out: ')[2].splitlines()
        tables.append(lines)
    for name in ('rows.jsonl', 'rows.manifest.json'):
        plain, fleet = (tmp_path / where / name for where in ('plain', 'fleet'))
        assert plain.read_bytes() == fleet.read_bytes()
    assert len(tables[0]) > 10
    assert tables[0] == tables[1]
    statuses = read_status(tmp_path / 'fleet' / 'rows.fleet')
    deltas = {status.source: status.deltas for status in statuses}
    counts = [len(read_episode(Path(source)).deltas) for source in sources[1:]]
    assert [deltas[source] for source in sources] == [0, *counts]
    assert max(counts) == 4


def faults(notes: Path) -> FleetStage:
    """A stage that meets all there is: it is slow, killed, poisoned, cut off, and fails once."""

    def stage(path: Path, recording: FleetRecording) -> StageReport:
        name = recording.source
        with (notes / name).open('a') as file:
            file.write('begun\n')
        first = (notes / name).read_text() == 'begun\n'
        if name == 'poisoned' or (name == 'killed' and first):
            os.kill(os.getpid(), signal.SIGKILL)
        if name == 'cut':
            msg = 'it was not closed'
            raise BagError(msg)
        if name == 'flaky' and first:
            msg = 'a server hung up'
            raise RuntimeError(msg)
        if name == 'slow':
            until = time.monotonic() + PATIENCE_S
            while len(list(notes.glob('good_*'))) < 8 and time.monotonic() < until:
                time.sleep(0.02)
            assert time.monotonic() < until, 'others wait for a slow one'
        return StageReport(f'{name}.out', 1)

    return stage


def test_one_bad_recording_stays_one_bad_recording(two_workers: Any, tmp_path: Path) -> None:
    notes, folder = tmp_path / 'notes', tmp_path / 'fleet'
    notes.mkdir()
    names = ['slow', 'poisoned', 'killed', 'cut', 'flaky', *(f'good_{n}' for n in range(8))]
    recordings = [FleetRecording(f'id-{name}', name) for name in names]
    ended = list(run_fleet(faults(notes), recordings, folder, CONFIG))
    assert sorted(status.source for status in ended) == sorted(names)
    errors = {status.source: status.error for status in ended if status.error}
    assert errors == {
        'cut': 'it was not closed',
        'poisoned': 'the process that worked on it died, in each of 2 attempts',
    }
    begun = {name: (notes / name).read_text().count('begun') for name in names}
    twice = {'poisoned', 'killed', 'cut', 'flaky'}
    assert begun == {name: 2 if name in twice else 1 for name in names}
    # What is given up stays so until it is asked for.
    with FleetLog(folder) as log:
        assert set(log.failed()) == {'id-cut', 'id-poisoned'}
    assert list(run_fleet(faults(notes), recordings, folder, CONFIG)) == []


DRIVER = """
from pathlib import Path
import sys, time
from embodied_r_ros.data.episodes.fleet import StageReport
from embodied_r_ros.data.episodes.fleet_ray import FleetConfig, run_fleet
from embodied_r_ros.data.episodes.manifest import FleetRecording

def run(notes, folder):
    def stage(path, recording):
        with (notes / recording.source).open('a') as file:
            file.write('begun\\n')
        if int(recording.source) >= 6:
            time.sleep(600)
        return StageReport('out')
    recordings = [FleetRecording(str(n), str(n)) for n in range(10)]
    for status in run_fleet(stage, recordings, folder, FleetConfig(actors=2)):
        print(status.source, flush=True)

run(Path(sys.argv[1]), Path(sys.argv[2]))
"""


def test_a_driver_that_is_killed_is_followed_by_one_that_goes_on(
    two_workers: Any, tmp_path: Path
) -> None:
    notes, folder = tmp_path / 'notes', tmp_path / 'fleet'
    notes.mkdir()
    command = [sys.executable, '-c', DRIVER, str(notes), str(folder)]
    environment = {**os.environ, 'PYTHONPATH': str(ROOT)}
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    assert driver.stdout
    finished = {driver.stdout.readline().strip() for _ in range(6)}
    until = time.monotonic() + PATIENCE_S
    while not {'6', '7'} <= {path.name for path in notes.iterdir()}:
        assert time.monotonic() < until
        time.sleep(0.02)
    driver.kill()
    driver.wait()
    driver.stdout.close()
    assert finished == {str(number) for number in range(6)}

    def stage(path: Path, recording: FleetRecording) -> StageReport:
        with (notes / recording.source).open('a') as file:
            file.write('begun\n')
        return StageReport('out')

    recordings = [FleetRecording(str(number), str(number)) for number in range(10)]
    ended = {status.source: status for status in run_fleet(stage, recordings, folder, CONFIG)}
    assert sorted(ended) == ['6', '7', '8', '9']
    assert {name: status.attempts for name, status in ended.items()} == {
        '6': 2,
        '7': 2,
        '8': 1,
        '9': 1,
    }
    begun = Counter({path.name: path.read_text().count('begun') for path in notes.iterdir()})
    assert begun == Counter({str(n): 2 if n in (6, 7) else 1 for n in range(10)})


def test_ray_of_this_machine_listens_on_loopback_alone(two_workers: Any) -> None:
    (node,) = two_workers.nodes()
    assert node['NodeManagerAddress'] == '127.0.0.1'
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(('192.0.2.1', 9))  # nothing is sent: it finds the outer address
        except OSError:
            pytest.skip('this machine has no other address')
        outer = probe.getsockname()[0]
    ports = [node['NodeManagerPort'], node['ObjectManagerPort']]
    for port in ports:
        socket.create_connection(('127.0.0.1', port), 5).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((outer, port), 5)


def test_gpus_that_are_not_there_are_not_waited_for(
    two_workers: Any, bags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if two_workers.cluster_resources().get('GPU'):
        pytest.skip('there are GPUs')
    command = [
        'collect',
        str(bags),
        '--out',
        str(tmp_path / 'out'),
        *ON_RAY,
        '--set',
        'fleet.gpus=0.5',
    ]
    assert main(command) == 2
    assert 'gpus is 0.5 for each: Ray finds 0 here' in capsys.readouterr().err


@pytest.mark.parametrize(
    ('arguments', 'message'),
    [
        ('collect {bags} --out {out} --set fleet.gpus=1', 'fleet.gpus is for --ray'),
        (
            'questions {bags} --out {out} --set fleet.retry_failed=true',
            'fleet.retry_failed is for --ray',
        ),
        ('collect s3://bucket/bags --out {out}', 'is read with --ray only'),
        ('map {bags} --out {out} --ray local --picture p.png', '--picture is for one recording'),
        ('map {out}.txt --out {out} --ray local', 'cannot be read as a list'),
    ],
)
def test_what_does_not_go_together_is_refused(
    bags: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: str, message: str
) -> None:
    words = arguments.format(bags=bags, out=tmp_path / 'out').split()
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith('embodied-r: error: ')
    assert message in error
    assert error.count('\n') == 1


def test_a_ray_that_does_not_start_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    # Read when Ray is imported: other tests of this process need it on loopback alone.
    monkeypatch.setenv('RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER', '0')
    import ray

    def time_out(**_: Any) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)  # as Ray does at once
        msg = 'The current node timed out\n during startup.'
        raise Exception(msg)  # noqa: TRY002 - as Ray does

    monkeypatch.setattr(ray, 'is_initialized', lambda: False)
    monkeypatch.setattr(ray, 'init', time_out)
    line = 'Ray does not start: The current node timed out during startup.'
    before = signal.getsignal(signal.SIGTERM)
    for address in ('local', '10.0.0.5:6379'):
        with (
            pytest.raises(EmbodiedRError, match=line),
            ray_connection(FleetConfig(address=address)),
        ):
            pass
        assert signal.getsignal(signal.SIGTERM) is before
