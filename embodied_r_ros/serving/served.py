# SPDX-License-Identifier: Apache-2.0
"""A model where a command needs it: at a URL, by a server in use, or by one that stays.

A server that stays has a keeper, a process that no command ends: it ends with its server when
nobody has used it for some time. The user's commands find it in a folder, by a name of all that
decides what it serves:

    NAME.json   what it serves, and its port; locked by the keeper as long as it lives
    NAME.users  locked by those who use it together, and by one alone who starts or ends it

Locks end with the processes that hold them, so that no file can be stale (flock(2)).

Usage as a program: python -m embodied_r_ros.serving.served NAME.json PROFILE SETTINGS
"""

from __future__ import annotations

from contextlib import contextmanager, ExitStack, suppress
from dataclasses import asdict, dataclass, replace
import fcntl
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import threading
import time
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, EmbodiedRError, ModelError
from embodied_r_ros.common.files import user_folder
from embodied_r_ros.common.settings import config_from_mapping
from embodied_r_ros.core.chat.cache import cache_key
from embodied_r_ros.core.chat.settings import (
    ChatConfig,
    holds_weights,
    is_gguf_model,
    is_loopback,
    is_reader,
    model_files,
    refuse_pickles,
)
from embodied_r_ros.serving.profiles import load_profile, Profile, READER, ServerConfig, TOOLS
from embodied_r_ros.serving.server_process import is_healthy
from embodied_r_ros.serving.servers import ModelServers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import IO

_POLL_S = 0.2
_LOOK_S = 1.0  # how often a keeper looks at its server and at its users
_END_S = 30.0  # in which a keeper ends with its server
_READY = 'ready'
_KEY_CHARS = 16


@contextmanager
def served_model(
    model: str,
    say: Callable[[str], None] = lambda line: None,
    *,
    stays: bool = False,
    profile: str = READER,
) -> Iterator[ChatConfig]:
    """Reach a model that is given as the URL of a server, as a folder or as an adapter.

    A folder is served as the shipped arm, an adapter in GGUF on the base of a profile, both on a
    free port.

    Args:
        model: The URL, folder or adapter.
        say: Gets the progress, a line at a time.
        stays: Whether the server stays as long as its profile says; else it ends after use.
        profile: With the base of an adapter.

    Raises:
        ConfigError: It is neither, or holds no model, or one of pickles.
        ModelError: The server does not start.
    """
    if model.startswith(('http://', 'https://')):
        yield ChatConfig(url=model)
        return
    with _served(folder_profile(model, profile), say, stays=stays) as chat:
        yield chat


@contextmanager
def served_reasoner(
    profile: str, say: Callable[[str], None] = lambda line: None, *, stays: bool = False
) -> Iterator[ChatConfig | None]:
    """Reach the reasoner of a profile: on another machine, else served here, on a free port.

    None: what was promoted in its slot has gone, and `say` was told so.

    Args:
        profile: Its name or path.
        say: As of `served_model`.
        stays: As of `served_model`.

    Raises:
        ConfigError: There is no such profile, or it has no reasoner, or that cannot be served.
        ModelError: The server does not start.
    """
    loaded = load_profile(profile)
    loaded.client('reasoner')
    loaded = loaded.without_gone(say)
    if 'reasoner' not in loaded.servers:
        yield loaded.clients.get('reasoner')
        return
    with _served(loaded, say, stays=stays) as chat:
        yield chat


@contextmanager
def usual_reasoner(
    say: Callable[[str], None], profile: str = TOOLS, *, stays: bool = False
) -> Iterator[ChatConfig | None]:
    """Serve the model that reads questions; None: none is installed, or it does not start.

    Args:
        say: Gets lines for people.
        profile: Whose reasoner it is.
        stays: Whether the server stays for some time.
    """
    with ExitStack() as stack:
        chat = None
        try:
            if not load_profile(profile).has_no_model:
                chat = stack.enter_context(served_reasoner(profile, say, stays=stays))
        except (ConfigError, ModelError) as error:
            say(f'no model reads the questions, the tools answer alone: {error}')
        yield chat


@contextmanager
def _served(profile: Profile, say: Callable[[str], None], *, stays: bool) -> Iterator[ChatConfig]:
    config = replace(profile.servers['reasoner'], port=0)
    if config.adapter:  # another one has another server
        config = replace(config.in_force(), promoted='')
    if stays and config.stays_s and is_loopback(config.host):
        with WarmServer(profile.name, config.in_force()).use(say) as chat:
            yield chat
        return
    with _running(profile.name, config, say) as servers:
        yield servers.clients()['reasoner']


@contextmanager
def _running(
    name: str, config: ServerConfig, say: Callable[[str], None]
) -> Iterator[ModelServers]:
    """A server while in use, with a log of its own, which goes where it did what it should."""
    own = Profile(f'{name}-{os.getpid()}', servers={'reasoner': config})
    with ModelServers(own, say=say) as servers:
        yield servers
        logs = [server.log for server in servers.running]
    for log in logs:
        log.unlink(missing_ok=True)


def folder_profile(model: str, profile: str = READER) -> Profile:
    """Profile that serves the model of a folder or GGUF file as the shipped arm, or an adapter.

    Args:
        model: The folder, file or adapter.
        profile: With the base of an adapter.

    Raises:
        ConfigError: It is no folder, or holds no model, or one of pickles.
    """
    if '://' in model or not model:
        msg = f'model is {model!r}: expected an http or https URL, or a folder'
        raise ConfigError(msg)
    folder = Path(model).expanduser().resolve()
    if is_reader(model):
        template = load_profile(profile).servers['reasoner']
        config = replace(template, adapter=str(folder), port=0, promoted='')
        return Profile(f'adapter-{folder.stem}', servers={'reasoner': config})
    refuse_pickles(folder)
    is_folder = (folder / 'config.json').is_file() and holds_weights(folder)
    if not is_folder and not is_gguf_model(model):
        msg = (
            f'{folder} holds no model: expected a folder with config.json and *.safetensors, '
            'a model or an adapter in GGUF, or the URL of a model server'
        )
        raise ConfigError(msg)
    template = load_profile('embedded-arm').servers['reasoner']
    config = replace(template, model=str(folder), port=0, promoted='')
    return Profile(f'folder-{folder.name}', servers={'reasoner': config})


@dataclass(frozen=True)
class _Keeper:
    """A keeper that lives, by its own words."""

    pid: int
    server_pid: int
    port: int
    model: str

    @classmethod
    def of(cls, path: Path, limit_s: float = _END_S) -> _Keeper | None:
        """The keeper that holds a file, once its server is ready; None: there is none.

        Raises:
            ModelError: It is not ready in time.
        """
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            try:
                with path.open() as file:
                    if _lock(file, fcntl.LOCK_SH):
                        return None
                    text = file.read()
            except FileNotFoundError:
                return None
            with suppress(ValueError, TypeError):
                return cls(**json.loads(text))
            time.sleep(_POLL_S)
        msg = f'the keeper that holds {path} is not ready within {limit_s:.0f} s: end it'
        raise ModelError(msg)

    def end(self, path: Path) -> None:
        """Have it end with its server, and wait until it has.

        Raises:
            ModelError: It does not.
        """
        end = time.monotonic() + _END_S
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)
        while _Keeper.of(path) == self:
            if time.monotonic() > end:
                msg = f'the keeper {self.pid} of {self.model} does not end: kill it'
                raise ModelError(msg)
            time.sleep(_POLL_S)


class WarmServer:
    """A server that stays for a while after it was used."""

    def __init__(self, name: str, config: ServerConfig) -> None:
        """Take the name of the profile, and what to serve.

        Raises:
            ConfigError: It cannot be served.
        """
        ModelServers(Profile(name, servers={'reasoner': config}))  # checks all that can be
        self._name, self._config = name, config
        self._file = _folder() / f'{name}-{_key(config)[:_KEY_CHARS]}.json'

    @contextmanager
    def use(self, say: Callable[[str], None]) -> Iterator[ChatConfig]:
        """Use the server; it is started, unless it is there.

        Raises:
            ModelError: It does not start.
            ConfigError: The folder of its files cannot be written.
        """
        try:
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            users = self._file.with_suffix('.users').open('a')
        except OSError as error:
            msg = f'{self._file.parent} cannot be written: {error.strerror}'
            raise ConfigError(msg) from None
        with users:
            chat = self._there(users, say)
            os.utime(users.fileno())
            minutes = f'{self._config.stays_s / 60:.3g} min'
            say(f'the model server stays for {minutes}: `embodied-r serve --stop` ends it')
            yield chat

    def _there(self, users: IO[str], say: Callable[[str], None]) -> ChatConfig:
        """How to reach the server, of which this is a user now."""
        limit_s = 2 * self._config.start_timeout_s + _END_S
        _wait_for_lock(users, fcntl.LOCK_SH, limit_s)
        if chat := self._known():
            return chat
        _wait_for_lock(users, fcntl.LOCK_EX, limit_s)
        chat = self._known()
        if chat is None:
            if keeper := _Keeper.of(self._file):  # of a server that has died
                keeper.end(self._file)
            self._start(say)
            chat = self._known()
        fcntl.flock(users, fcntl.LOCK_SH)
        if chat is None:
            msg = f'the server of {self._config.model} ended at once: ask again'
            raise ModelError(msg)
        return chat

    def _known(self) -> ChatConfig | None:
        """How to reach the server that runs; None: none does, or it has died."""
        keeper = _Keeper.of(self._file, self._config.start_timeout_s + _END_S)
        if keeper is None:
            return None
        config = replace(self._config, port=keeper.port)
        is_there = is_healthy(config.client().base_url() + config.health)
        return config.client() if is_there else None

    def _start(self, say: Callable[[str], None]) -> None:
        """Start a keeper, and wait until its server is ready.

        Raises:
            ModelError: It does not start; with its last line.
        """
        settings = json.dumps(asdict(self._config))
        command = [sys.executable, '-m', __name__, str(self._file), self._name, settings]
        line = ''
        with subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as keeper:
            assert keeper.stdout
            for text in keeper.stdout:
                line = text.strip()
                if line == _READY:
                    keeper.returncode = 0  # it is nobody's child to be waited for
                    return
                say(line)
        raise ModelError(line or f'the keeper of {self._config.model} ended without a word')


def end_warm_servers() -> list[str]:
    """End all servers that stay; their models.

    Raises:
        ModelError: One does not end.
    """
    models = []
    for file in sorted(_folder().glob('*.json')):
        if keeper := _Keeper.of(file):
            keeper.end(file)
            models.append(keeper.model)
    return models


def _folder() -> Path:
    return user_folder('cache', 'servers')


def _key(config: ServerConfig) -> str:
    """Key of all that decides what a server serves: its command, its files and its token."""
    files = [
        f'{file} {file.stat().st_size} {file.stat().st_mtime_ns}'
        for path in (config.model_argument() if config.is_path() else '', config.adapter_path())
        if path
        for file in model_files(Path(path))
    ]
    settings = json.dumps(asdict(config), sort_keys=True)
    token = os.environ.get(ChatConfig.token_variable, '')
    return cache_key(sys.executable, settings, *config.filled_command(), token, *files)


def _lock(file: IO[str], kind: int) -> bool:
    """Lock an open file at once; False: another process has it."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _wait_for_lock(file: IO[str], kind: int, limit_s: float) -> None:
    end = time.monotonic() + limit_s
    while not _lock(file, kind):
        if time.monotonic() > end:
            msg = f'{file.name} is locked for {limit_s:.0f} s by another command: end that one'
            raise ModelError(msg)
        time.sleep(_POLL_S)


def _keep(
    servers: ModelServers, users: IO[str], config: ServerConfig, ended: threading.Event
) -> None:
    """Wait until it is ended, or was not used for some time; then refuse further use.

    Raises:
        ModelError: The server ended.
    """
    last_use, stamp = time.monotonic(), 0
    while not ended.wait(min(_LOOK_S, config.stays_s / 4)):
        servers.check()
        if config.takes_adapters():  # another model or adapter of one has another keeper
            servers.follow()
        is_free = _lock(users, fcntl.LOCK_EX)
        used = os.fstat(users.fileno()).st_mtime_ns
        if not is_free or used != stamp:
            last_use, stamp = time.monotonic(), used
        elif time.monotonic() - last_use >= config.stays_s:
            return
        if is_free:
            fcntl.flock(users, fcntl.LOCK_UN)


def _say(line: str) -> None:
    with suppress(BrokenPipeError):  # who started it has ended
        sys.stdout.write(f'{line}\n')
        sys.stdout.flush()


def main(path: str, name: str, settings: str) -> int:
    """Keep a server while it is used; 1: it did not start, or ended."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    values: dict[str, Any] = json.loads(settings)
    config = config_from_mapping(ServerConfig, values)
    file = Path(path)
    with file.open('a') as state, file.with_suffix('.users').open('a') as users:
        if not _lock(state, fcntl.LOCK_EX):
            return 1
        state.truncate(0)
        try:
            with _running(name, config, _say) as servers:
                (server,) = servers.running
                keeper = _Keeper(os.getpid(), server.pid, server.config.port, config.model)
                state.write(json.dumps(asdict(keeper)))
                state.flush()
                _say(_READY)
                nowhere = os.open(os.devnull, os.O_WRONLY)
                for stream in (sys.stdout, sys.stderr):
                    os.dup2(nowhere, stream.fileno())
                _keep(servers, users, config, ended)
        except EmbodiedRError as error:
            _say(str(error))
            return 1
        finally:
            file.unlink(missing_ok=True)
    return 0


if __name__ == '__main__':
    sys.exit(main(*sys.argv[1:]))
