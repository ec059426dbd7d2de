# SPDX-License-Identifier: Apache-2.0
"""A robot boots, without anyone: how long until there is a fresh answer.

What ExecStart of the systemd unit says is started in a shell that imitates systemd: its
environment alone, a socket that hears what the service says, and a watchdog. A 30 Hz camera runs,
and a question stands. Measured from the start until an answer of the primary model is FRESH by an
image that was taken since, and until the service says that it is ready; then the watchdog is
waited for. Needs `ros2 launch` and the installed package, as the environment file names them.
"""

from __future__ import annotations

from contextlib import contextmanager
import os
from pathlib import Path
import pwd
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.files import shared_path
from embodied_r_ros.nodes.run import own_environment
import yaml

from bench.faulty_server import free_port
from bench.recovery import NODES, plugged_camera, watching
from bench.report import Budget, print_budgets

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

_LIMIT_S = 60.0
_TIMEOUT_S = 300.0
_BEAT_S = 60.0  # the longest wait for the watchdog
_END_S = 60.0
_PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'  # as systemd gives it


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    unit = shared_path('config', 'systemd', 'embodied_r.service')
    parser.add_argument('--unit', type=Path, default=unit, help='the shipped one')
    default = Path('/etc/embodied_r/environment')
    parser.add_argument('--environment', type=Path, default=default, help=f'{default}')


def main(args: argparse.Namespace) -> int:
    """Measure, and tell whether the time is within its limit."""
    if not args.environment.is_file():
        print(
            f'bench: error: {args.environment} is no file: name an environment file like '
            'config/systemd/environment (docs/deploy.md)',
            file=sys.stderr,
        )
        return 2
    own_environment()
    with (
        tempfile.TemporaryDirectory() as scratch,
        ServiceSocket(Path(scratch) / 'notify') as heard,
        watching() as watch,
        plugged_camera(),
        run_service(args.unit, args.environment, Path(scratch), heard) as process,
    ):
        start, start_ns = time.monotonic(), time.time_ns()
        is_fresh = watch.await_fresh(start_ns, NODES, _TIMEOUT_S)
        fresh_s = time.monotonic() - start if is_fresh else float('nan')
        ready_s = heard.wait_for('READY=1', _END_S) - start
        beat_s = heard.wait_for('WATCHDOG=1', _BEAT_S) - start
        has_ended = process.poll()
    if has_ended is not None:
        print(f'bench: error: the service ended with code {has_ended}', file=sys.stderr)
        return 1
    print(f'ready after {ready_s:.1f} s, the watchdog is told from {beat_s:.1f} s on')
    budgets = [Budget('start of the unit: fresh answer after', fresh_s, _LIMIT_S, 's')]
    print_budgets(budgets)
    return 0 if all(budget.is_met for budget in budgets) else 1


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


def settings_of(unit: Path) -> dict[str, str]:
    """The settings of a unit by name; of several the last one."""
    pairs = (line.split('=', 1) for line in unit.read_text().splitlines() if line[:1] not in '#;[')
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2}


def environment_of(unit: Path, file: Path) -> dict[str, str]:
    """What systemd gives a service of this user: nothing of this shell."""
    user = pwd.getpwuid(os.getuid())
    environment = {'PATH': _PATH, 'LANG': 'C.UTF-8', 'SHELL': '/bin/sh'}
    environment |= {'HOME': user.pw_dir, 'USER': user.pw_name, 'LOGNAME': user.pw_name}
    for line in file.read_text().splitlines():
        name, has_value, value = line.partition('=')
        if has_value and not name.startswith(('#', ';')):
            environment[name.strip()] = value.strip().strip('"')
    seconds = float(settings_of(unit)['WatchdogSec'])
    return environment | {'WATCHDOG_USEC': str(round(seconds * 1e6))}


@contextmanager
def run_service(
    unit: Path, environment_file: Path, folder: Path, heard: ServiceSocket
) -> Iterator[subprocess.Popen[bytes]]:
    """Run what ExecStart of a unit says, and end it as the unit says.

    Args:
        unit: The unit.
        environment_file: Its environment, to which a standing question is added.
        folder: For parameters and recordings.
        heard: Hears what the service says.
    """
    environment = environment_of(unit, environment_file)
    arguments = f'params_file:={_parameters(folder)} profile:={_profile(folder)}'
    environment |= {
        'NOTIFY_SOCKET': str(heard.path),
        'ROS_DOMAIN_ID': os.environ['ROS_DOMAIN_ID'],
        'EMBODIED_R_ARGUMENTS': arguments,
    }
    # As systemd reads it: words by quotes, and $$ for a $ that is the shell's.
    command = [word.replace('$$', '$') for word in shlex.split(settings_of(unit)['ExecStart'])]
    log = folder / 'service.log'
    with log.open('wb') as out:
        process = subprocess.Popen(
            command, env=environment, cwd='/', stdout=out, stderr=out, start_new_session=True
        )
    try:
        yield process
    finally:
        ending = getattr(signal, settings_of(unit)['KillSignal'])
        process.send_signal(ending)
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        print(log.read_text(errors='replace')[-2000:], file=sys.stderr)


def _profile(folder: Path) -> Path:
    """The profile `embedded` at a port that is free."""
    content = yaml.safe_load(shared_path('config', 'models', 'embedded.yaml').read_text())
    content['servers']['reasoner'] |= {'port': free_port(), 'promoted': ''}
    file = folder / 'embedded.yaml'
    file.write_text(yaml.safe_dump(content))
    return file


def _parameters(folder: Path) -> Path:
    """The shipped parameters with a standing question."""
    content = yaml.safe_load(shared_path('config', 'embodied_r.yaml').read_text())
    content['/**/spatial_reasoner']['ros__parameters'] |= {
        # A kind that the reasoner knows: what it cannot answer in form is refused.
        'standing_question': 'How many red objects has the robot seen?',
        'standing_options': ['0', '1', '2', '3'],
        'standing_rate_hz': 10.0,
    }
    content['/**/episode_recorder']['ros__parameters']['bag_dir'] = str(folder / 'episodes')
    file = folder / 'parameters.yaml'
    file.write_text(yaml.safe_dump(content))
    return file
