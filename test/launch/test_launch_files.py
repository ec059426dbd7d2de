# SPDX-License-Identifier: Apache-2.0
"""Launch files are tried for real where ROS, launch and this package are installed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
import itertools
import json
import os
from pathlib import Path
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

pytest.importorskip('launch_ros')

from action_msgs.msg import GoalStatus
from ament_index_python.packages import get_package_prefix, PackageNotFoundError
from embodied_r_msgs.action import Ask
from embodied_r_msgs.msg import SemanticDelta
from embodied_r_msgs.srv import LabelAnswer, StartEpisode, StopEpisode
from embodied_r_ros.bags.reader import open_bag, read_messages
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.nodes import bringup
from launch.launch_description_sources import get_launch_description_from_python_launch_file
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState, GetState

from test.chat_server import ChatServer, Script
from test.nodes.graph import wait_for
from test.nodes.test_keyframe_extractor import Camera, view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from test.nodes.graph import Graph

FOLDER = Path(__file__).resolve().parents[2] / 'launch'
NODES = (
    'keyframe_extractor',
    'semantic_perceiver',
    'spatial_reasoner',
    'proposal_gate',
    'episode_recorder',
)
TIMEOUT_S = 60.0
ROUND = (
    Transition.TRANSITION_DEACTIVATE,
    Transition.TRANSITION_CLEANUP,
    Transition.TRANSITION_CONFIGURE,
    Transition.TRANSITION_ACTIVATE,
)
# A node that has much to close; launch gives 5 s unless told otherwise.
SLOW = """
import pathlib, signal, sys, time
signal.signal(signal.SIGINT, lambda *_: None)  # it may have been ignored
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
folder, name = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]).name
(folder / f'{name}.started').touch()
signal.sigwait([signal.SIGINT])
time.sleep(7)
(folder / f'{name}.closed').touch()
"""
SERVICE = """
import sys
from launch import LaunchDescription, LaunchService
from launch.actions import IncludeLaunchDescription
from launch.launch_description_sources import PythonLaunchDescriptionSource
arguments = [argument.split(':=', 1) for argument in sys.argv[2:]]
source = PythonLaunchDescriptionSource(sys.argv[1])
service = LaunchService()
service.include_launch_description(
    LaunchDescription([IncludeLaunchDescription(source, launch_arguments=arguments)])
)
sys.exit(service.run())
"""


# A fake of RViz: notes how it was called.
RVIZ = f"""#!{sys.executable}
import os, pathlib, sys
pathlib.Path(os.environ['RVIZ_NOTE']).write_text(chr(10).join(sys.argv))
"""


class ServiceSocket:
    """The socket of a service manager: remembers when it heard what first."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first: dict[str, float] = {}
        self._changed = threading.Condition()

    def wait_for(self, state: str, timeout_s: float) -> float:
        """When a state was heard first, in the monotonic clock [s]; NaN: it was not, in time."""
        with self._changed:
            self._changed.wait_for(lambda: state in self._first, timeout_s)
            return self._first.get(state, float('nan'))

    def __enter__(self) -> ServiceSocket:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(self.path))
        threading.Thread(target=self._hear, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def _hear(self) -> None:
        while True:
            try:
                text = self._socket.recv(65_536).decode()
            except OSError:
                return
            with self._changed:
                for state in text.splitlines():
                    self._first.setdefault(state, time.monotonic())
                self._changed.notify_all()


@pytest.fixture
def start(graph: Graph) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start a launch file in a process of its own, as `ros2 launch` does."""
    try:
        get_package_prefix('embodied_r_ros')
    except PackageNotFoundError:
        pytest.skip('embodied_r_ros is not installed: colcon build, then source it')
    started: list[subprocess.Popen[bytes]] = []

    def launch(name: str, **arguments: object) -> subprocess.Popen[bytes]:
        words = [f'{key}:={value}' for key, value in arguments.items()]
        process = subprocess.Popen(
            [sys.executable, '-c', SERVICE, str(FOLDER / name), *words],
            env={**os.environ, 'ROS_DOMAIN_ID': str(graph.context.get_domain_id())},
            start_new_session=True,
        )
        started.append(process)
        return process

    yield launch
    for process in started:
        with suppress(ProcessLookupError):  # none of its group is left
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(TIMEOUT_S)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A scripted model server."""
    answer = Script(('<think>', 'so', '</think>', '<answer>A</answer>'))
    with ChatServer(default=answer, models=[{'id': 'scripted'}]) as made:
        yield made


@pytest.mark.parametrize('path', sorted(FOLDER.glob('*.launch.py')), ids=lambda path: path.name)
def test_every_argument_is_described(path: Path) -> None:
    description = get_launch_description_from_python_launch_file(str(path))
    for argument in description.get_launch_arguments():
        assert argument.description not in {'', 'no description given'}, argument.name


def test_pipeline_comes_up_answers_and_ends_cleanly(
    graph: Graph, start: Callable[..., subprocess.Popen[bytes]], server: ChatServer, tmp_path: Path
) -> None:
    launched = start(
        'embodied_r.launch.py',
        namespace='robot1',
        model_server_url=server.url,
        bag_dir=tmp_path,
    )
    for name in NODES:
        wait_for(partial(is_active, graph, f'/robot1/{name}'), name, TIMEOUT_S)
    deltas = graph.inbox(SemanticDelta, '/robot1/semantic_delta')
    graph.matched('/robot1/semantic_delta')
    camera = Camera(graph, namespace='/robot1')
    started = graph.call(StartEpisode, '/robot1/start_episode', StartEpisode.Request())

    views = itertools.count()

    def has_delta() -> bool:  # what is shown before the nodes have found each other is lost
        camera.send(view(next(views)), graph.outsider.get_clock().now().nanoseconds)
        return bool(deltas)

    wait_for(has_delta, 'a delta', TIMEOUT_S)
    goal = Ask.Goal(question='Which way?', options=['left', 'right'])

    def is_recorded() -> bool:  # so are answers
        handle = graph.send_goal(Ask, '/robot1/ask', goal)
        status, result = graph.goal_result(handle)
        assert (status, result.answer.text) == (GoalStatus.STATUS_SUCCEEDED, 'left')
        # It is in the bag where it can be labelled.
        label, name = LabelAnswer.Request(answer_id=result.answer.id), '/robot1/label_answer'
        with suppress(AssertionError):
            return bool(
                wait_for(lambda: not graph.call(LabelAnswer, name, label).error_code, '', 5)
            )
        return False

    wait_for(is_recorded, 'an answer in the bag', TIMEOUT_S)
    os.killpg(launched.pid, signal.SIGINT)  # as Ctrl-C does
    assert launched.wait(TIMEOUT_S) == 0
    with open_bag(Path(started.bag_path)) as reader:
        counts = {c.topic: c.count for c in reader.connections}
    assert counts['/robot1/answer'] >= 1
    assert counts['/robot1/semantic_delta'] >= 1
    assert counts['/robot1/episode_mark'] == 2


@pytest.mark.parametrize('number', [signal.SIGTERM, signal.SIGKILL])
def test_everything_ends_with_the_launch(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, number: signal.Signals
) -> None:
    mark = tmp_path / 'server'
    code = f'import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(600)'
    launched = start('embodied_r.launch.py', profile=server_profile(tmp_path, code))
    wait_for(mark.exists, 'the model server', TIMEOUT_S)
    wait_for(lambda: len(node_processes(launched)) == len(NODES), 'the nodes', TIMEOUT_S)
    children = processes_below(launched.pid)
    assert len(children) == len(NODES) + 2  # what serves the models, and the server
    launched.send_signal(number)  # to itself alone, as a service manager does
    launched.wait(TIMEOUT_S)
    wait_for(lambda: not any(map(is_running, children)), 'the end of all', TIMEOUT_S)


def test_rviz_looks_at_the_topics_of_the_namespace(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / 'lib' / 'rviz2' / 'rviz2'
    index = tmp_path / 'share' / 'ament_index' / 'resource_index' / 'packages' / 'rviz2'
    for path, text in ((program, RVIZ), (index, '')):
        path.parent.mkdir(parents=True)
        path.write_text(text)
    program.chmod(0o755)
    note = tmp_path / 'note'
    monkeypatch.setenv('RVIZ_NOTE', str(note))
    monkeypatch.setenv('AMENT_PREFIX_PATH', f'{tmp_path}:{os.environ["AMENT_PREFIX_PATH"]}')
    words = {'namespace': 'robot1', 'serve_models': 'false', 'autostart': 'false'}
    start('embodied_r.launch.py', rviz='true', **words)
    wait_for(lambda: note.exists() and note.read_text(), 'the viewer', TIMEOUT_S)
    said = note.read_text().splitlines()
    assert said[1:3] == ['-d', str(shared_path('config', 'rviz', 'embodied_r.rviz'))]
    assert '__ns:=/robot1' in said


def test_rviz_that_is_missing_ends_the_launch_with_one_line() -> None:
    with suppress(PackageNotFoundError):
        get_package_prefix('rviz2')
        pytest.skip('rviz2 is installed')
    command = [sys.executable, '-c', SERVICE, str(FOLDER / 'embodied_r.launch.py'), 'rviz:=true']
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    [line] = [line for line in (done.stdout + done.stderr).splitlines() if 'rviz2' in line]
    assert 'apt install ros-$ROS_DISTRO-rviz2' in line


def test_nodes_have_time_to_close_what_they_write(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    (tmp_path / 'slow.py').write_text(SLOW)
    launched = start(
        'embodied_r.launch.py',
        prefix=f'{sys.executable} {tmp_path / "slow.py"} {tmp_path}',
        serve_models='false',
        autostart='false',
    )
    names = [tmp_path / name for name in NODES]
    for name in names:
        wait_for(name.with_suffix('.started').exists, name.name, TIMEOUT_S)
    os.killpg(launched.pid, signal.SIGINT)  # as Ctrl-C does
    assert launched.wait(TIMEOUT_S) == 0
    assert all(name.with_suffix('.closed').exists() for name in names)


def test_several_cameras_are_of_one_episode(
    graph: Graph, start: Callable[..., subprocess.Popen[bytes]], server: ChatServer, tmp_path: Path
) -> None:
    start(
        'embodied_r.launch.py',
        cameras='front,rear',
        model_server_url=server.url,
        bag_dir=tmp_path,
    )
    extractors = ('front/keyframe_extractor', 'rear/keyframe_extractor')
    for name in (*extractors, *NODES[1:]):
        wait_for(partial(is_active, graph, f'/{name}'), name, TIMEOUT_S)
    deltas = graph.inbox(SemanticDelta, '/semantic_delta')
    graph.matched('/semantic_delta')
    cameras = [Camera(graph, namespace=f'/{name}') for name in ('front', 'rear')]
    started = graph.call(StartEpisode, '/start_episode', StartEpisode.Request())

    views = itertools.count()

    def seen_in_the_episode() -> bool:  # what is shown before nodes have found each other is lost
        seen = view(next(views))
        for camera in cameras:
            camera.send(seen, graph.outsider.get_clock().now().nanoseconds)
        found = {msg.camera for msg in deltas if msg.episode_id == started.episode_id}
        return found == {'front', 'rear'}

    wait_for(seen_in_the_episode, 'both cameras', TIMEOUT_S)
    stopped = graph.call(StopEpisode, '/stop_episode', StopEpisode.Request())
    assert (stopped.error_code, stopped.episode_id) == (0, started.episode_id)
    with open_bag(Path(started.bag_path)) as reader:
        kept = ['/front/keyframe', '/rear/keyframe', '/semantic_delta']
        found = [(topic, msg) for topic, _, msg in read_messages(reader, kept)]
    told = {(topic, msg.camera) for topic, msg in found if msg.episode_id == started.episode_id}
    assert told == {
        ('/front/keyframe', 'front'),
        ('/rear/keyframe', 'rear'),
        ('/semantic_delta', 'front'),
        ('/semantic_delta', 'rear'),
    }


@pytest.mark.parametrize(
    ('reasoner', 'shadow', 'line'),
    [
        ('http://127.0.0.1:1', '', 'keyframes of what was seen leaves this machine, for CAM'),
        ('http://lab.invalid', '', 'text and keyframes of what was seen leave this machine, for '
         'http://lab.invalid, CAM'),
        ('http://127.0.0.1:1', 'http://lab.invalid', 'text and keyframes of what was seen leave '
         'this machine, for http://lab.invalid, CAM'),
    ],
)  # fmt: skip
def test_what_leaves_the_machine_is_told(
    tmp_path: Path, reasoner: str, shadow: str, line: str
) -> None:
    camera = 'https://cam.invalid'
    profile = tmp_path / 'split.yaml'
    profile.write_text(
        f'clients: {{reasoner: {{url: "{reasoner}"}}, perceiver: {{url: "{camera}"}}}}'
    )
    given = {'model_server_url': '', 'shadow': shadow, 'profile': str(profile)}
    (told,) = bringup.leaving(given)
    assert ''.join(part.text for part in told.msg) == line.replace('CAM', camera)
    assert not bringup.leaving(
        {**given, 'model_server_url': 'http://localhost:8100', 'shadow': ''}
    )


def test_one_topic_for_several_cameras_is_refused() -> None:
    words = [str(FOLDER / 'embodied_r.launch.py'), 'cameras:=front,rear', 'image_topic:=/image']
    command = [sys.executable, '-c', SERVICE, *words, 'serve_models:=false']
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    assert "image_topic is '/image': with `cameras` expected a name relative to each" in said


def test_killed_nodes_are_active_again_where_respawn_is_asked_for(
    graph: Graph, start: Callable[..., subprocess.Popen[bytes]], server: ChatServer, tmp_path: Path
) -> None:
    arguments = {'model_server_url': server.url, 'bag_dir': tmp_path, 'use_respawn': 'true'}
    launched = start('embodied_r.launch.py', **arguments)
    for name in NODES:
        wait_for(partial(is_active, graph, f'/{name}'), name, TIMEOUT_S)
    before = node_processes(launched)
    assert before.keys() == set(NODES)
    for pid in before.values():
        os.kill(pid, signal.SIGKILL)
    for name in NODES:
        wait_for(partial(is_active, graph, f'/{name}'), f'{name} again', TIMEOUT_S)
    assert not set(node_processes(launched).values()) & set(before.values())
    os.killpg(launched.pid, signal.SIGINT)
    assert launched.wait(TIMEOUT_S) == 0


def test_launch_whose_nodes_have_died_ends_with_1(
    graph: Graph,
    start: Callable[..., subprocess.Popen[bytes]],
    server: ChatServer,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    launched = start('embodied_r.launch.py', model_server_url=server.url, bag_dir=tmp_path)
    for name in NODES:
        wait_for(partial(is_active, graph, f'/{name}'), name, TIMEOUT_S)
    for pid in node_processes(launched).values():
        os.kill(pid, signal.SIGKILL)
    assert launched.wait(TIMEOUT_S) == 1
    said = ''.join(capfd.readouterr())
    [line] = [line for line in said.splitlines() if 'nodes have died' in line]
    assert all(f'/{name} (exit code -9)' in line for name in NODES)
    assert 'Traceback' not in said


def test_healthy_start_is_told_in_one_line_and_without_an_error(
    start: Callable[..., subprocess.Popen[bytes]],
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with ChatServer() as gone:
        port = int(gone.url.rsplit(':', 1)[1])
    launched = start('embodied_r.launch.py', model_server_url=gone.url, bag_dir=tmp_path)
    said = ''

    def has_been_said(text: str) -> bool:
        nonlocal said
        said += ''.join(capfd.readouterr())
        return text in said

    # The model server comes later than the nodes, as in every launch that serves the models.
    wait_for(lambda: has_been_said('no model server'), 'the wait', TIMEOUT_S)
    with ChatServer(models=[{'id': 'scripted'}], port=port):
        wait_for(lambda: has_been_said('are active'), 'the line', TIMEOUT_S)
        os.killpg(launched.pid, signal.SIGINT)
        assert launched.wait(TIMEOUT_S) == 0
    assert has_been_said('all 5 nodes are active')
    assert said.count('are active') == 1
    assert 'ERROR' not in said


def test_lifecycle_is_the_users_once_all_is_active(
    graph: Graph, start: Callable[..., subprocess.Popen[bytes]], server: ChatServer, tmp_path: Path
) -> None:
    start('embodied_r.launch.py', model_server_url=server.url, bag_dir=tmp_path)
    for name in NODES:
        wait_for(partial(is_active, graph, f'/{name}'), name, TIMEOUT_S)
    for _ in range(3):
        for transition in ROUND:
            for name in NODES:
                request = ChangeState.Request(transition=Transition(id=transition))
                assert graph.call(ChangeState, f'/{name}/change_state', request).success
            time.sleep(0.5)  # in which the launch must do nothing
    assert all(is_active(graph, f'/{name}') for name in NODES)


def test_missing_camera_driver_is_named_in_one_line() -> None:
    try:
        get_package_prefix('realsense2_camera')
    except PackageNotFoundError:
        pass
    else:
        pytest.skip('the driver is installed')
    command = [sys.executable, '-c', SERVICE, str(FOLDER / 'realsense.launch.py')]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    said = done.stdout + done.stderr
    [line] = [line for line in said.splitlines() if 'realsense2_camera' in line]
    assert 'apt install' in line
    assert 'Traceback' not in said


@pytest.mark.parametrize('namespace', ['', '/robot1'])
def test_recording_is_replayed_in_its_own_time(
    graph: Graph,
    start: Callable[..., subprocess.Popen[bytes]],
    server: ChatServer,
    tmp_path: Path,
    namespace: str,
) -> None:
    deltas = graph.inbox(SemanticDelta, f'{namespace}/semantic_delta')
    start(
        'replay.launch.py',
        namespace=namespace,
        bag=shared_path('samples', 'indoor', 'episode_00000'),
        image_transport='compressed',
        rate=4.0,
        model_server_url=server.url,
        bag_dir=tmp_path,
        record='false',
    )
    deltas.wait(3, TIMEOUT_S)
    assert deltas[0].kind == SemanticDelta.KIND_FIRST
    assert deltas[1].motion.source == 1
    stamps = [msg.header.stamp.sec for msg in deltas]
    assert max(stamps) - min(stamps) < 30


def test_recording_that_is_missing_ends_the_launch_with_one_line(tmp_path: Path) -> None:
    words = [str(FOLDER / 'replay.launch.py'), f'bag:={tmp_path / "no_bag"}']
    command = [sys.executable, '-c', SERVICE, *words, 'serve_models:=false']
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    [line] = [line for line in (done.stdout + done.stderr).splitlines() if 'no_bag' in line]
    assert 'does not exist' in line


@pytest.mark.parametrize(
    ('name', 'argument', 'message'),
    [
        ('replay', 'loop:=maybe', "loop is 'maybe': expected true or false"),
        ('replay', 'params_file:=/nope.yaml', "params_file is '/nope.yaml': expected a YAML file"),
        ('embodied_r', 'profile:=nope', "no profile 'nope'"),
        ('embodied_r', 'log_level:=loud', "log_level is 'loud': expected debug, info, warn"),
        ('embodied_r', 'image_transport:=theora', "image_transport is 'theora': expected raw"),
        ('embodied_r', 'namespace:=robot 1', "namespace is 'robot 1': expected a ROS name"),
        ('embodied_r', 'cameras:=front,2', "cameras is '2': expected a ROS name"),
        ('embodied_r', 'prefix:=nicer -n 5', "there is no program 'nicer'"),
        ('embodied_r', 'model_server_url:=localhost', "model_server_url is 'localhost': expected"),
        ('embodied_r', 'shadow:=nope', "shadow is 'nope': no profile 'nope'"),
    ],
)
def test_argument_that_means_nothing_ends_the_launch_with_one_line(
    name: str, argument: str, message: str
) -> None:
    command = [sys.executable, '-c', SERVICE, str(FOLDER / f'{name}.launch.py'), argument]
    if name == 'replay':
        command.append(f'bag:={shared_path("samples", "indoor", "episode_00000")}')
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert len([line for line in said.splitlines() if message in line]) == 1
    assert 'Traceback' not in said
    assert 'process started' not in said


def test_pipeline_ends_with_its_model_servers(tmp_path: Path) -> None:
    command = [sys.executable, '-c', SERVICE, str(FOLDER / 'embodied_r.launch.py')]
    command += [f'profile:={server_profile(tmp_path, "raise SystemExit(1)")}', 'autostart:=false']
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 1
    assert 'the model servers failed with exit code 1' in done.stdout + done.stderr


def test_model_servers_are_started_again_where_that_is_asked_for(
    start: Callable[..., subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    starts = tmp_path / 'starts'
    code = f'open({str(starts)!r}, "a").write("x"); raise SystemExit(1)'
    launched = start(
        'embodied_r.launch.py',
        profile=server_profile(tmp_path, code),
        autostart='false',
        use_respawn='true',
    )
    wait_for(lambda: starts.exists() and starts.stat().st_size > 1, 'again', TIMEOUT_S)
    assert launched.poll() is None


@pytest.mark.parametrize('code', [1, 0])
def test_model_servers_that_end_fail_the_launch(tmp_path: Path, code: int) -> None:
    command = [sys.executable, '-c', SERVICE, str(FOLDER / 'models.launch.py')]
    command += [f'profile:={server_profile(tmp_path, f"raise SystemExit({code})")}']
    done = subprocess.run(
        [*command, f'log_dir:={tmp_path}'],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    said = done.stdout + done.stderr
    assert done.returncode == 1
    assert f'reasoner ended with exit code {code}' in said
    assert 'the model servers failed with exit code 1' in said
    assert 'Traceback' not in said


def test_model_servers_that_are_told_to_end_are_no_failure(tmp_path: Path) -> None:
    mark = tmp_path / 'started'
    waiting = f'import pathlib, time; pathlib.Path({str(mark)!r}).touch(); time.sleep(60)'
    command = [sys.executable, '-c', SERVICE, str(FOLDER / 'models.launch.py')]
    command += [f'profile:={server_profile(tmp_path, waiting)}', f'log_dir:={tmp_path}']
    process = subprocess.Popen(command, start_new_session=True)
    try:
        wait_for(mark.exists, 'the server', TIMEOUT_S)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(TIMEOUT_S)


def test_clone_in_the_current_folder_hides_no_package(tmp_path: Path) -> None:
    (tmp_path / 'embodied_r_ros').mkdir()
    (tmp_path / 'embodied_r_ros' / '__init__.py').write_text('raise SystemExit(9)')
    profile = server_profile(tmp_path, '')
    done = subprocess.run(
        [*bringup.serve_command(str(profile)), '--dry-run'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, '')
    assert sys.executable in done.stdout


def server_profile(folder: Path, code: str, port: int = 0) -> Path:
    """A profile whose only server is a piece of Python."""
    path = folder / 'mine.yaml'
    server = {'model': 'org/model', 'command': [sys.executable, '-c', code], 'port': port}
    path.write_text(json.dumps({'servers': {'reasoner': server}}))
    return path


def is_active(graph: Graph, node: str) -> bool:
    """Tell whether a node answers that it is active; a dead one, still listed, does not answer."""
    client = graph.outsider.create_client(GetState, f'{node}/get_state')
    try:
        if not client.wait_for_service(1.0):
            return False
        response = graph.result(client.call_async(GetState.Request()), 2.0)
        return bool(response.current_state.label == 'active')
    except AssertionError:
        return False
    finally:
        graph.outsider.destroy_client(client)


def node_processes(launched: subprocess.Popen[bytes]) -> dict[str, int]:
    """Process ids of the nodes that a launch runs, by the name of their executable."""
    found = {}
    for pid, words in processes_below(launched.pid).items():
        for name in {Path(word).name for word in words} & set(NODES):
            found[name] = pid
    return found


def is_running(pid: int) -> bool:
    """Tell whether there is such a process, and it is not dead already."""
    try:
        stat = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return False
    return stat.rpartition(')')[2].split()[0] != 'Z'


def processes_below(parent: int) -> dict[int, list[str]]:
    """Command lines of what a process started, and of what that started, by process id."""
    parents, words = {}, {}
    for entry in Path('/proc').glob('[0-9]*'):
        with suppress(OSError, ProcessLookupError):
            pid = int(entry.name)
            parents[pid] = int((entry / 'stat').read_text().rpartition(')')[2].split()[1])
            words[pid] = (entry / 'cmdline').read_text().split('\0')
    below = {parent}
    while new := {pid for pid, of in parents.items() if of in below} - below:
        below |= new
    return {pid: words[pid] for pid in below - {parent}}


def test_a_service_manager_hears_that_all_are_active_and_stay_alive(
    start: Callable[..., subprocess.Popen[bytes]],
    server: ChatServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ServiceSocket(tmp_path / 'notify') as heard:
        monkeypatch.setenv('NOTIFY_SOCKET', str(heard.path))
        monkeypatch.setenv('WATCHDOG_USEC', '8000000')
        launched = start('embodied_r.launch.py', model_server_url=server.url, bag_dir=tmp_path)
        ready_s = heard.wait_for('READY=1', TIMEOUT_S)
        assert heard.wait_for('WATCHDOG=1', TIMEOUT_S) >= ready_s
        stopped = node_processes(launched)['proposal_gate']
        os.kill(stopped, signal.SIGSTOP)
        silent = 'STATUS=the watchdog is not told: nothing is heard of /proposal_gate'
        assert heard.wait_for(silent, TIMEOUT_S) > ready_s
        os.kill(stopped, signal.SIGCONT)
        os.killpg(launched.pid, signal.SIGINT)
        assert launched.wait(TIMEOUT_S) == 0
