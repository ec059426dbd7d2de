# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from contextlib import suppress
import json
import os
from pathlib import Path
import re
import signal
import socket
import subprocess
import sys
import time
from types import ModuleType
from typing import Any

from embodied_r_ros.cli.main import main
from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.core.chat.settings import ChatConfig
from embodied_r_ros.serving import servers
from embodied_r_ros.serving.llama_server import gguf_of_hub
from embodied_r_ros.serving.profiles import (
    load_profile,
    Profile,
    profile_from_mapping,
    profile_names,
)
from embodied_r_ros.serving.served import served_model, served_reasoner
from embodied_r_ros.serving.servers import default_log_dir, ModelServers
import pytest
import yaml

# A server that is healthy at once, unless its first argument says otherwise.
SERVER = """
import http.server, os, signal, subprocess, sys, time
how, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
print('offline', os.environ.get('HF_HUB_OFFLINE'), 'token', os.environ.get('SERVER_TOKEN'))
print('threads', os.environ.get('OMP_NUM_THREADS'))
print('cache error: none')
print('arguments', sys.argv, 'pid', os.getpid(), flush=True)
if how == 'dies':
    sys.exit('RuntimeError: CUDA out of memory')
if how == 'stubborn':
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if how == 'parent':
    child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])
    print('child', child.pid, flush=True)
if how == 'silent':
    time.sleep(60)
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if how != 'sick' else 503)
        self.end_headers()
http.server.HTTPServer((host, port), Handler).serve_forever()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / 'server.py'
    path.write_text(SERVER)
    return path


def entry(program: Path, how: str = 'well', **settings: Any) -> dict[str, Any]:
    command = [sys.executable, str(program), how, '{host}', '{port}', '{model}']
    return {'model': 'org/model', 'command': command, 'port': 0, **settings}


def profile(program: Path, how: str = 'well', **settings: Any) -> Profile:
    servers = {'reasoner': entry(program, how, **settings)}
    return profile_from_mapping('test', {'servers': servers})


def pid_in(log: Path, name: str = 'pid') -> int:
    found = re.search(rf'{name} (\d+)', log.read_text())
    assert found
    return int(found[1])


def is_running(pid: int) -> bool:
    with suppress(FileNotFoundError):
        return 'zombie' not in Path(f'/proc/{pid}/status').read_text()
    return False


def eventually_gone(pid: int, timeout_s: float = 10.0) -> bool:
    end = time.monotonic() + timeout_s
    while is_running(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not is_running(pid)


class TestServers:
    def test_are_healthy_logged_and_ended(self, program: Path, tmp_path: Path) -> None:
        told: list[str] = []
        log = tmp_path / 'log' / 'test-reasoner.log'
        with ModelServers(profile(program), tmp_path / 'log', say=told.append) as servers:
            url = servers.clients()['reasoner'].url
            servers.check()
            assert is_running(pid_in(log))
        assert eventually_gone(pid_in(log))
        assert url.startswith('http://127.0.0.1:')
        assert re.match(rf'reasoner: ready after \d+ s at {url}/health', told[-1])

    def test_end_together_with_what_they_started(self, program: Path, tmp_path: Path) -> None:
        with ModelServers(profile(program, 'parent'), tmp_path):
            pass
        assert eventually_gone(pid_in(tmp_path / 'test-reasoner.log', 'child'))

    def test_that_do_not_listen_are_killed(
        self, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(servers, '_GRACE_S', 0.3)
        told: list[str] = []
        with ModelServers(profile(program, 'stubborn'), tmp_path, say=told.append):
            pass
        assert eventually_gone(pid_in(tmp_path / 'test-reasoner.log'))
        assert told[-1] == 'reasoner: had to be killed'

    def test_that_die_say_why(self, program: Path, tmp_path: Path) -> None:
        expected = 'reasoner ended with exit code 1, serving org/model: see .*CUDA out of memory'
        with pytest.raises(ModelError, match=expected):
            ModelServers(profile(program, 'dies'), tmp_path).start()

    @pytest.mark.parametrize('how', ['silent', 'sick'])
    def test_that_are_never_healthy_are_given_up(
        self, program: Path, tmp_path: Path, how: str
    ) -> None:
        start = time.monotonic()
        with pytest.raises(ModelError, match=r'not healthy within 1 s .*raise start_timeout_s'):
            ModelServers(profile(program, how, start_timeout_s=1.0), tmp_path).start()
        assert time.monotonic() - start < 5
        assert eventually_gone(pid_in(tmp_path / 'test-reasoner.log'))

    def test_that_end_later_are_noticed(self, program: Path, tmp_path: Path) -> None:
        with ModelServers(profile(program), tmp_path) as servers:
            os.kill(pid_in(tmp_path / 'test-reasoner.log'), signal.SIGKILL)
            with pytest.raises(ModelError, match='reasoner ended with signal 9') as error:
                servers.wait()
        assert 'another process killed it' in str(error.value)
        assert 'cache error' not in str(error.value)  # the last line of its log

    def test_failure_of_one_ends_the_other(self, program: Path, tmp_path: Path) -> None:
        servers = {'perceiver': entry(program), 'reasoner': entry(program, 'dies')}
        both = profile_from_mapping('test', {'servers': servers})
        with pytest.raises(ModelError, match='reasoner ended'):
            ModelServers(both, tmp_path).start()
        assert eventually_gone(pid_in(tmp_path / 'test-perceiver.log'))

    @pytest.mark.skipif(not sys.platform.startswith('linux'), reason='lives are tied on Linux')
    def test_do_not_outlive_a_killed_owner(self, program: Path, tmp_path: Path) -> None:
        (tmp_path / 'profile.yaml').write_text(
            yaml.safe_dump({'servers': {'reasoner': entry(program)}})
        )
        command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'serve']
        command += [str(tmp_path / 'profile.yaml'), '--log-dir', str(tmp_path)]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as owner:
            assert owner.stdout
            assert b'reasoner' in owner.stdout.readline()
            owner.kill()
        assert eventually_gone(pid_in(tmp_path / 'profile-reasoner.log'))

    def test_taken_port_is_named(self, program: Path, tmp_path: Path) -> None:
        with socket.create_server(('127.0.0.1', 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(
                ConfigError,
                match=rf'port {port} of 127.0.0.1 cannot be used .*model_server_url:=http://127.0.0.1:{port}',
            ):
                ModelServers(profile(program, port=port), tmp_path)

    def test_log_folder_that_cannot_be_made_is_named(self, program: Path) -> None:
        with pytest.raises(ConfigError, match=f'log at {program}/test-reasoner.log'):
            ModelServers(profile(program), program).start()


@pytest.mark.parametrize(('given', 'threads'), [(None, '3'), ('5', '5')])
def test_computes_with_so_many_threads(
    program: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: str | None,
    threads: str,
) -> None:
    if given:
        monkeypatch.setenv('OMP_NUM_THREADS', given)
    else:
        monkeypatch.delenv('OMP_NUM_THREADS', raising=False)
    with ModelServers(profile(program, threads=3), tmp_path):
        pass
    assert f'threads {threads}\n' in (tmp_path / 'test-reasoner.log').read_text()


class TestModelFolder:
    def test_is_served_offline(self, program: Path, tmp_path: Path) -> None:
        (tmp_path / 'config.json').write_text('{}')
        with ModelServers(profile(program, model=str(tmp_path)), tmp_path):
            pass
        log = (tmp_path / 'test-reasoner.log').read_text()
        assert 'offline 1' in log
        assert f"'{tmp_path}']" in log

    def test_that_is_missing_or_empty_is_named(self, program: Path, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match='models/absent is not installed'):
            ModelServers(profile(program, model='share:models/absent'))
        with pytest.raises(ConfigError, match=f'{tmp_path} holds no model'):
            ModelServers(profile(program, model=str(tmp_path)))

    def test_may_be_a_single_file(self, program: Path, tmp_path: Path) -> None:
        weights = tmp_path / 'model.gguf'
        weights.write_bytes(b'')
        servers = ModelServers(profile(program, model=str(weights)))
        assert servers.commands['reasoner'][-1] == str(weights)

    @pytest.mark.parametrize('weights', ['qwen-q8_0.gguf', 'Q8_0/Qwen-Q8_0-00001-of-00002.gguf'])
    def test_of_the_hub_is_its_weights_and_not_its_projector(
        self, weights: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in (weights, 'mmproj-q8_0.gguf', weights.replace('00001-of', '00002-of')):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        hub = ModuleType('huggingface_hub')
        monkeypatch.setattr(hub, 'snapshot_download', lambda *_, **__: tmp_path, raising=False)
        monkeypatch.setitem(sys.modules, 'huggingface_hub', hub)
        assert gguf_of_hub('owner/name:Q8_0') == tmp_path / weights
        with pytest.raises(FileNotFoundError, match='owner/name has no GGUF file of Q4_K_M'):
            gguf_of_hub('owner/name')

    def test_given_as_a_url_needs_no_server(self) -> None:
        with served_model('http://127.0.0.1:8000') as config:
            assert config == ChatConfig(url='http://127.0.0.1:8000')

    def test_served_twice_at_once_has_two_logs(
        self, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('XDG_STATE_HOME', str(tmp_path / 'state'))
        file = tmp_path / 'mine.yaml'
        file.write_text(json.dumps({'servers': {'reasoner': entry(program, port=8100)}}))
        code = (
            'import sys; from embodied_r_ros.serving.served import served_reasoner\n'
            f'with served_reasoner({str(file)!r}) as chat:\n'
            '    print(chat.url, flush=True); sys.stdin.read()'
        )
        with subprocess.Popen(
            [sys.executable, '-c', code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout
            url = other.stdout.readline().strip()
            with served_reasoner(str(file)) as chat:
                assert chat
                assert chat.url != url
                assert len(list(default_log_dir().iterdir())) == 2
            other.communicate(timeout=30)
        assert not list(default_log_dir().iterdir())  # they did what they should

    def test_that_is_no_model_cannot_be_served(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match='holds no model'), served_model(str(tmp_path)):
            pass


class TestAccess:
    def test_other_machines_are_kept_out(self, program: Path) -> None:
        with pytest.raises(ConfigError, match='give --allow-remote'):
            ModelServers(profile(program, host='0.0.0.0', token_variable='SERVER_TOKEN'))

    def test_without_a_token_they_stay_out(self, program: Path) -> None:
        open_host = profile(program, host='0.0.0.0', token_variable='SERVER_TOKEN')
        with pytest.raises(ConfigError, match='without a token: set EMBODIED_R_TOKEN'):
            ModelServers(open_host, allow_remote=True)

    def test_program_that_checks_no_token_stays_local(
        self, program: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('EMBODIED_R_TOKEN', 'secret')
        with pytest.raises(ConfigError, match='checks no token: use an SSH tunnel'):
            ModelServers(profile(program, host='0.0.0.0'), allow_remote=True)

    def test_token_reaches_the_server_and_no_command_line(
        self, program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv('EMBODIED_R_TOKEN', 'secret')
        remote = profile(program, host='0.0.0.0', token_variable='SERVER_TOKEN')
        with ModelServers(remote, tmp_path, allow_remote=True) as servers:
            assert servers.clients()['reasoner'].url.startswith('http://127.0.0.1:')
            assert 'secret' not in str(servers.commands)
        assert 'token secret' in (tmp_path / 'test-reasoner.log').read_text()


class TestProfileFile:
    @pytest.mark.parametrize(
        ('text', 'message'),
        [
            ('[1, 2]', 'the file is .* expected names and values'),
            ('servers: {reasoner: {command: [a], modle: x}}', "no setting 'modle': did you mean"),
            ('servers: {reasoner: {command: a b, model: x}}', 'expected a list of strings'),
            ('servers: {judge: {}}', "servers has 'judge': expected perceiver or reasoner"),
            ('server: {}', "unknown section 'server': expected description, servers"),
            ('vlm: {pixels_per_image: 3}', 'pixels_per_image is 3: expected'),
            ('clients: {reasoner: {url: nowhere}}', "url is 'nowhere'"),
            ('a: [', 'cannot be read'),
            ('!!python/object/apply:os.getpid []', 'cannot be read'),
        ],
    )
    def test_that_is_wrong_is_named_with_what_is_wrong(
        self, tmp_path: Path, text: str, message: str
    ) -> None:
        (tmp_path / 'mine.yaml').write_text(text)
        with pytest.raises(ConfigError, match=f'profile {tmp_path}/mine.yaml.*{message}'):
            load_profile(str(tmp_path / 'mine.yaml'))

    def test_that_is_missing_is_named(self) -> None:
        with pytest.raises(ConfigError, match=r'/nowhere/mine.yaml cannot be read'):
            load_profile('/nowhere/mine.yaml')
        with pytest.raises(ConfigError, match="no profile 'gpu24': did you mean 'gpu-24gb'"):
            load_profile('gpu24')

    def test_two_servers_need_two_ports(self, program: Path) -> None:
        servers = {role: entry(program, port=8111) for role in ('perceiver', 'reasoner')}
        with pytest.raises(ConfigError, match='servers share a port: 8111, 8111'):
            profile_from_mapping('test', {'servers': servers})

    def test_client_of_a_missing_role_is_an_error(self, program: Path) -> None:
        with pytest.raises(ConfigError, match='profile test has no perceiver: it has reasoner'):
            profile(program).client('perceiver')


def options(profile: Profile, role: str) -> dict[str, str]:
    """Values of a command line's --name=value options."""
    words = [word.split('=', 1) for word in profile.servers[role].command if '=' in word]
    return {name.lstrip('-'): value for name, value in words}


SHIPPED = profile_names()
ON_CPU = ('cpu', 'tools', 'embedded', 'embedded-arm')
ON_GPU = [name for name in SHIPPED if name not in ON_CPU]
PATCH_PX = 28  # that a token of Qwen2.5-VL covers each way


class TestShippedProfiles:
    def test_are_those_of_the_design(self) -> None:
        assert SHIPPED == [
            'cpu',
            'embedded',
            'embedded-arm',
            'gpu-24gb',
            'gpu-80gb',
            'h200-141gb',
            'split',
            'tools',
        ]

    @pytest.mark.parametrize('name', SHIPPED)
    def test_listen_at_this_machine_only(self, name: str) -> None:
        assert {server.host for server in load_profile(name).servers.values()} <= {'127.0.0.1'}

    @pytest.mark.parametrize('name', ON_GPU)
    def test_share_the_gpu_and_reuse_prefixes(self, name: str) -> None:
        shipped = load_profile(name)
        shares = [
            float(options(shipped, role)['gpu-memory-utilization']) for role in shipped.servers
        ]
        assert 0 < sum(shares) < 1
        for server in shipped.servers.values():
            assert '--enable-prefix-caching' in server.command

    @pytest.mark.parametrize('name', ON_GPU)
    def test_server_and_client_agree_on_images(self, name: str) -> None:
        shipped = load_profile(name)
        if 'perceiver' not in shipped.clients:
            return
        assert shipped.vlm.box_convention == 'pixels'
        if 'perceiver' not in shipped.servers:
            return
        values = options(shipped, 'perceiver')
        assert json.loads(values['limit-mm-per-prompt'])['image'] == 2
        # Qwen2-VL's processor calls the bounds of the area its edges.
        pixels = shipped.vlm.pixels_per_image
        if 'mm-processor-kwargs' in values:
            assert json.loads(values['mm-processor-kwargs'])['size']['longest_edge'] == pixels
        # Two images, the words of the prompt twice (a repair), and the reply.
        tokens = 2 * pixels / PATCH_PX**2 + 2 * 800 + shipped.vlm.max_tokens
        assert tokens < int(values['max-model-len'])
        assert shipped.worker.in_flight <= int(values['max-num-seqs'])

    def test_the_name_of_the_release_before_is_that_of_the_tools(self) -> None:
        assert load_profile('auto').name == 'tools'

    @pytest.mark.parametrize('name', SHIPPED)
    def test_command_lines_are_those_of_the_installed_servers(
        self, name: str, tmp_path: Path
    ) -> None:
        (tmp_path / 'config.json').write_text('{}')
        for server in load_profile(name).servers.values():
            model = str(tmp_path) if server.is_path() else server.model
            words = [word.replace('{model}', model) for word in server.command]
            words = [word.replace('{adapter}', str(tmp_path / 'a.gguf')) for word in words]
            words = [word.replace('{host}', '127.0.0.1').replace('{port}', '1') for word in words]
            parse(words)


PARSERS = {
    # Reads the arguments as the program would, and stops before it runs.
    'transformers': """
import sys
from transformers.cli.transformers import app
name, *words = sys.argv[1:]
app.get_command(None, name).make_context(name, words)
""",
    'llama-server': """
import os, sys
os.environ['PATH'] = ''
sys.modules['xllamacpp'] = None  # it is imported once the arguments are read
from embodied_r_ros.serving.llama_server import main
try:
    main(sys.argv[1:])
except ImportError:
    pass
""",
    'vllm': """
import sys
try:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
except ImportError:
    from vllm.entrypoints.openai.cli_args import make_arg_parser
try:
    from vllm.utils.argparse_utils import FlexibleArgumentParser
except ImportError:
    from vllm.utils import FlexibleArgumentParser
assert sys.argv[1] == 'serve'
make_arg_parser(FlexibleArgumentParser()).parse_args(sys.argv[2:])
""",
}


def parse(command: list[str]) -> None:
    """Give a command line to the argument parser of its program, where that is installed."""
    program, *arguments = command
    # vLLM lives in an environment of its own, whose Python this variable names.
    python = os.environ.get('EMBODIED_R_VLLM') if program == 'vllm' else sys.executable
    if not python or (program != 'llama-server' and not is_installed(python, program)):
        pytest.skip(f'{program} is not installed')
    done = subprocess.run(
        [python, '-c', PARSERS[program], *arguments], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-500:]


def is_installed(python: str, module: str) -> bool:
    code = f'import importlib.util, sys; sys.exit(not importlib.util.find_spec({module!r}))'
    return subprocess.run([python, '-c', code], timeout=60).returncode == 0


def test_launch_file_runs_the_command() -> None:
    # The folder `launch` of this repository is importable too, but empty.
    sources = pytest.importorskip('launch.launch_description_sources')
    path = Path(__file__).parents[2] / 'launch' / 'models.launch.py'
    context = pytest.importorskip('launch').LaunchContext()
    source = sources.PythonLaunchDescriptionSource(str(path))
    *_, serve = source.get_launch_description(context).entities
    context.launch_configurations.update(profile='split', only='reasoner', log_dir='/tmp/log')
    (process,) = serve.execute(context)
    words = ['serve', 'split', '--only', 'reasoner', '--log-dir', '/tmp/log']
    assert [part[0].text for part in process.cmd[-6:]] == words


class TestCommand:
    def test_serves_until_told_to_end(self, program: Path, tmp_path: Path) -> None:
        path = tmp_path / 'mine.yaml'
        path.write_text(yaml.safe_dump({'servers': {'reasoner': entry(program)}}))
        command = [sys.executable, '-m', 'embodied_r_ros.cli.main', 'serve', str(path)]
        command += ['--log-dir', str(tmp_path)]
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as owner:
            assert owner.stdout
            ready = json.loads(owner.stdout.readline())
            owner.terminate()
            _, said = owner.communicate(timeout=20)
        assert owner.returncode == 0
        assert (ready['role'], ready['model']) == ('reasoner', 'org/model')
        assert 'reasoner: ready after' in said
        assert eventually_gone(pid_in(tmp_path / 'mine-reasoner.log'))

    def test_missing_program_is_bad_input(
        self, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / 'mine.yaml'
        server = {'model': 'x', 'command': ['no-such-server'], 'port': 0}
        path.write_text(yaml.safe_dump({'servers': {'reasoner': server}}))
        assert main(['serve', str(path)]) == 2
        said = capsys.readouterr().err
        assert said.startswith('embodied-r: error: no-such-server is not installed')

    def test_dry_run_prints_the_command_lines(
        self, program: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        path = tmp_path / 'mine.yaml'
        path.write_text(yaml.safe_dump({'servers': {'reasoner': entry(program, port=8137)}}))
        assert main(['serve', str(path), '--dry-run']) == 0
        said = capsys.readouterr().out
        assert said == f'{sys.executable} {program} well 127.0.0.1 8137 org/model\n'

    def test_role_that_is_not_served_here_is_named(
        self, capsys: pytest.CaptureFixture[str]
    ) -> None:
        assert main(['serve', 'split', '--only', 'perceiver']) == 2
        assert 'profile split starts no perceiver' in capsys.readouterr().err
