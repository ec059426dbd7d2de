# SPDX-License-Identifier: Apache-2.0
"""The model servers of a profile: checked, started in turn, ended together."""

from __future__ import annotations

from dataclasses import replace
from importlib.metadata import PackageNotFoundError, requires, version
from importlib.util import find_spec
import os
from pathlib import Path
import re
import shutil
import socket
import sys
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.common.files import shared_path, user_folder
from embodied_r_ros.core.chat.settings import (
    ChatConfig,
    is_loopback,
    token_from_environment,
)
from embodied_r_ros.serving.profiles import LLAMA
from embodied_r_ros.serving.promotion import in_force, slot_folder
from embodied_r_ros.serving.relay import Relay
from embodied_r_ros.serving.server_process import Adapter, ModelProcess

if TYPE_CHECKING:
    from collections.abc import Callable

    from embodied_r_ros.serving.profiles import Profile, ServerConfig

RUNTIME_UPDATES = 'VLLM_ALLOW_RUNTIME_LORA_UPDATING'
_WATCH_S = 0.5
_DRAIN_S = 30.0  # in which a server that was exchanged ends its answers
_GRACE_S = 10.0  # between asking a server to end and making it
_TOKEN_VARIABLE = ChatConfig().token_variable


class ModelServers:
    """The servers of a profile, from `start` to `close`. Not thread-safe."""

    def __init__(
        self,
        profile: Profile,
        log_dir: Path | None = None,
        *,
        allow_remote: bool = False,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        """Check what can be checked before anything is started.

        Args:
            profile: What to serve.
            log_dir: Folder of the logs; None: `default_log_dir()`.
            allow_remote: Whether a server may listen at an address that others reach.
            say: Gets the progress, a line at a time.

        Raises:
            ConfigError: A model, a program or a token is missing, or a port is taken.
        """
        self._profile = profile
        self._log_dir = log_dir or default_log_dir()
        self._say = say
        self._token = token_from_environment(_TOKEN_VARIABLE)
        self._stamps = profile.promotions()
        servers = profile.without_gone(say).servers
        self._configs = {role: with_free_port(c).in_force() for role, c in servers.items()}
        for role, config in self._configs.items():
            self._check_access(role, config, allow_remote=allow_remote)
        self.commands = {role: _program(c.filled_command()) for role, c in self._configs.items()}
        self.running: list[ModelProcess] = []
        self._adapters: dict[str, Adapter] = {}
        self._relays: dict[str, Relay] = {}  # of those that are exchanged without a gap

    def start(self) -> None:
        """Start every server and wait until it is healthy; on an error none is left running.

        Raises:
            ModelError: A server ended, or was not healthy in time; with the end of its log.
            ConfigError: The folder of the logs cannot be written.
        """
        try:
            for role in self._configs:
                self._begin(role)
        except BaseException:
            self.close()
            raise

    def clients(self) -> dict[str, ChatConfig]:
        """How to reach the models, by role; those that other machines serve included."""
        local = {role: config.client() for role, config in self._configs.items()}
        # The client's settings in the profile win, but not over a port that was chosen just now.
        named = self._profile.clients.items()
        return {
            **{r: c for r, c in named if r in local or r not in self._profile.servers},
            **{r: c for r, c in local.items() if self._profile.servers[r].port == 0},
        }

    def check(self) -> None:
        """Look whether all servers still run.

        Raises:
            ModelError: One ended; with the end of its log.
        """
        for server in self.running:
            server.check()

    def wait(self) -> None:
        """Wait as long as all servers run, which may be for ever, and follow promotions.

        Raises:
            ModelError: One ended; with the end of its log.
        """
        while True:
            self.check()
            self.follow()
            time.sleep(_WATCH_S)

    def follow(self) -> None:
        """Serve what was promoted since the start or the last call; it may take the start's time.

        What cannot be served is reported, and the model from before goes on.

        Raises:
            ModelError: The model from before does not start again.
        """
        before, now = self._stamps, self._profile.promotions()
        # A rollback leaves a manifest: where none is any more, its drive is away.
        self._stamps = {role: stamp or before[role] for role, stamp in now.items()}
        for role, stamp in self._stamps.items():
            if stamp == before[role]:
                continue
            old = self._configs.get(role)
            try:
                new = self._profile.servers[role].in_force()
                new = replace(new, port=old.port) if old else with_free_port(new)
                command = _program(new.filled_command())
                if old is None:  # what it held had gone
                    self._configs[role], self.commands[role] = new, command
                    self._begin(role)
                elif (new.model, new.adapter) != (old.model, old.adapter):
                    self._exchange(role, new, command)
                elif self._adapt(role):
                    self._say(f'{role}: took the adapter that is in force, or dropped it')
            except (ConfigError, ModelError) as error:
                self.check()
                self._say(f'{role}: goes on as before, because {error}')

    def close(self) -> None:
        """End all servers, politely first; waits until they are gone."""
        for relay in self._relays.values():
            relay.close()
        self._relays.clear()
        self._end(self.running)

    def __enter__(self) -> ModelServers:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _end(self, servers: list[ModelProcess]) -> None:
        for server in servers:
            server.ask_to_end()
        end = time.monotonic() + _GRACE_S
        for server in servers:
            if not server.end(end - time.monotonic()):
                self._say(f'{server.role}: had to be killed')
        self.running = [server for server in self.running if server not in servers]

    def _exchange(self, role: str, config: ServerConfig, command: tuple[str, ...]) -> None:
        """Serve another model behind the same address, or keep the old one where that fails.

        An adapter of a small model is served beside the one before until it is loaded; else both
        would not fit.
        """
        before, old = (self._configs[role], self.commands[role]), self._of(role)
        relay = self._relays.get(role)
        until = 'the one before answers' if relay else 'questions fail'
        self._say(f'{role}: {config.adapter or config.model} is in force now; {until} until it '
                  'is loaded')  # fmt: skip
        if not relay:
            self._end(old)
        self._configs[role], self.commands[role] = config, command
        try:
            self._begin(role)
        except ModelError as error:
            self._say(f'{role}: {error}')
            self._configs[role], self.commands[role] = before
            self._end([server for server in self._of(role) if server not in old])
            if not relay:
                self._begin(role)
            return
        if relay:
            relay.drain(_DRAIN_S)
            self._end(old)

    def _of(self, role: str) -> list[ModelProcess]:
        return [server for server in self.running if server.role == role]

    def _begin(self, role: str) -> None:
        server = self._launch(role)
        self.running.append(server)
        server.await_health(self._say)
        config = self._configs[role]
        if role in self._relays:
            self._relays[role].target = server.config.port
        elif server.config.port != config.port:
            self._relays[role] = Relay(config.host, config.port, server.config.port)
        self._adapters[role] = Adapter(config, self._token if config.token_variable else '')
        self._adapt(role)

    def _adapt(self, role: str) -> bool:
        """Have the server take the adapter that is in force; True: anything changed."""
        config = self._configs[role]
        slot = '' if config.adapter else config.promoted
        return bool(slot) and self._adapters[role].take(in_force(slot_folder(slot)))

    def _check_access(self, role: str, config: ServerConfig, *, allow_remote: bool) -> None:
        """Refuse a port that anybody could use."""
        if is_loopback(config.host):
            return
        where = f'{role} would listen at {config.host}, where other machines reach it'
        if not allow_remote:
            msg = f'{where}: give --allow-remote if that is meant, or use an SSH tunnel'
            raise ConfigError(msg)
        if not config.token_variable:
            msg = f'{where}, and {config.command[0]} checks no token: use an SSH tunnel'
            raise ConfigError(msg)
        if not self._token:
            msg = f'{where}, without a token: set {_TOKEN_VARIABLE} or {_TOKEN_VARIABLE}_FILE'
            raise ConfigError(msg)

    def _launch(self, role: str) -> ModelProcess:
        config, command = self._configs[role], self.commands[role]
        log = self._log_dir / f'{self._profile.name}-{role}.log'
        if any(server.log == log for server in self.running):
            log = log.with_suffix('.next.log')
        if config.adapter and config.promoted:
            config = with_free_port(replace(config, host='127.0.0.1', port=0))
            command = _program(config.filled_command())
        self._say(f'{role}: starting {config.model} on port {config.port}, log in {log}')
        environment = dict(os.environ)
        if config.threads:
            for variable in ('OMP_NUM_THREADS', 'LLAMA_ARG_THREADS'):
                environment.setdefault(variable, str(config.threads))
        # What lies here is complete; looking for more on the network only costs time.
        if config.is_path():
            environment.setdefault('HF_HUB_OFFLINE', '1')
        if config.promoted and config.takes_adapters():
            environment[RUNTIME_UPDATES] = 'True'
        if self._token and config.token_variable:
            environment[config.token_variable] = self._token
        return ModelProcess(role, config, command, environment, log)


def default_log_dir() -> Path:
    """Folder of the logs."""
    return user_folder('state', 'log')


def with_free_port(config: ServerConfig) -> ServerConfig:
    """The config with the port that it gets.

    Raises:
        ConfigError: The port is taken.
    """
    with socket.socket(socket.AF_INET6 if ':' in config.host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((config.host, config.port))
        except (OSError, OverflowError) as error:
            url = f'http://{config.host}:{config.port}'
            msg = (
                f'port {config.port} of {config.host} cannot be used ({error}): '
                'end what listens there, give the server another port in a profile of your own, '
                f'or let the launch use what runs there: model_server_url:={url}'
            )
            raise ConfigError(msg) from None
        return replace(config, port=probe.getsockname()[1])


def _program(command: tuple[str, ...]) -> tuple[str, ...]:
    """The command with the full path of its program, from this environment before others.

    Raises:
        ConfigError: The program is not installed.
    """
    here = str(Path(sys.executable).parent)
    path = os.pathsep.join([here, os.environ.get('PATH', '')])
    program = shutil.which(command[0], path=path)
    if program is None and command[0] == LLAMA and find_spec('xllamacpp'):
        return (sys.executable, '-m', 'embodied_r_ros.serving.llama_server', *command[1:])
    if program is None:
        msg = f'{command[0]} is not installed: {install_remedy(command[0])}'
        raise ConfigError(msg)
    return (program, *command[1:])


def install_remedy(program: str) -> str:
    """What installs the program of a server that is missing."""
    if program == 'transformers':
        # A sourced ROS has modules that are compiled for another NumPy.
        robot = os.environ.get('ROS_DISTRO') and shared_path('requirements', 'robot.txt')
        return f'pip install -r {robot}' if robot else 'pip install "embodied_r_ros[serve]"'
    if program == LLAMA:
        return 'pip install "embodied_r_ros[llama]", or put the folder of llama.cpp on PATH'
    return 'install it, or put its folder on PATH'


def missing_requirements(package: str, extra: str) -> list[str]:
    """What an extra of a package names and this environment lacks; nothing where it lacks it."""
    missing = []
    try:
        lines = requires(package) or []
    except PackageNotFoundError:
        return []
    for line in lines:
        requirement, _, marker = line.partition(';')
        name = re.split(r'[^\w.-]', requirement.strip())[0]
        if re.search(rf'extra == ["\']{extra}["\']', marker):
            try:
                version(name)
            except PackageNotFoundError:
                missing.append(name)
    return missing
