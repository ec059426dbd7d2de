# SPDX-License-Identifier: Apache-2.0
"""Where a model is served and whom to trust, and which weights a folder holds."""

from __future__ import annotations

from dataclasses import dataclass
import hashlib
import ipaddress
import os
from pathlib import Path
import re
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlencode, urlsplit

from embodied_r_ros.common.errors import ConfigError
from embodied_r_ros.common.settings import setting, Settings
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable

CA_VARIABLE = 'EMBODIED_R_CA_FILE'


@dataclass(frozen=True)
class ChatConfig(Settings):
    """Where a model is served and how patient to be. Tokens are never settings."""

    url: str = setting(
        'http://127.0.0.1:8100',
        'base URL of the model server, with or without /v1; URL#MODEL names a model too',
    )
    model: str = setting('', 'name of the model at the server; empty: the one that it serves')
    adapters: str = setting(
        '',
        'prefix of the names of LoRA adapters; the newest is asked; empty: the model itself',
    )
    connect_timeout_s: float = setting(
        3.0, 'time in which a connection must stand [s]', between=(0.05, 120)
    )
    retries: int = setting(
        1, 'further attempts when the server fails before its first word', between=(0, 10)
    )
    backoff_s: float = setting(
        0.25, 'wait before the first further attempt, doubled each time [s]', between=(0, 60)
    )
    token_variable: str = setting(
        'EMBODIED_R_TOKEN',
        'environment variable that holds the access token; with _FILE added, names its file',
    )
    headers: tuple[str, ...] = setting(
        ('',),
        'further headers, NAME: VALUE, with $VARIABLE of the environment; empty: none',
    )
    query: tuple[str, ...] = setting(
        ('',), 'what is added to every URL, NAME=VALUE; an empty one is nothing'
    )

    def __post_init__(self) -> None:
        """Check the settings, and that the URL is one; take the model's name out of it."""
        super().__post_init__()
        url, has_model, model = self.url.partition('#')
        if has_model:
            if not model or self.model not in ('', model):
                msg = (
                    f'url is {_without_secrets(self.url)!r} and model {self.model!r}: expected '
                    'URL#MODEL, or the model alone in `model`'
                )
                raise ConfigError(msg)
            object.__setattr__(self, 'url', url)
            object.__setattr__(self, 'model', model)
        if not _is_server_url(self.url):
            msg = (
                f'url is {_without_secrets(self.url)!r}: expected http(s)://HOST:PORT, without a '
                f'user, password or query: a token belongs into {self.token_variable}'
            )
            raise ConfigError(msg)

        for header in filter(None, self.headers):
            _check_header(header)
        for entry in filter(None, self.query):
            if not entry.partition('=')[2]:
                msg = f'query has {entry!r}: expected NAME=VALUE'
                raise ConfigError(msg)

    def base_url(self) -> str:
        """URL without a trailing slash and without /v1."""
        return self.url.rstrip('/').removesuffix('/v1').rstrip('/')

    def address(self, path: str) -> str:
        """URL of a part of the API, such as 'models'.

        A URL that ends with /chat/completions is that of a server without /v1.
        """
        root = self.url.rstrip('/').removesuffix('/chat/completions')
        root = root if root != self.url.rstrip('/') else f'{self.base_url()}/v1'
        query = urlencode([entry.partition('=')[::2] for entry in self.query if entry])
        return f'{root}/{path}{query and "?"}{query}'

    def own_headers(self) -> tuple[dict[str, str], list[str]]:
        """The further headers, and those of their values that are secret.

        Raises:
            ConfigError: A variable is not set, or its value would travel unencrypted.
        """
        headers, secrets = {}, []
        for header in filter(None, self.headers):
            name, value = (part.strip() for part in header.split(':', 1))
            for variable in _VARIABLE.findall(value):
                secret = self._secret(variable)
                if not secret:
                    msg = f'header {name} is ${variable}: set that environment variable'
                    raise ConfigError(msg)
                secrets.append(secret)
                value = value.replace(f'${variable}', secret)
            headers[name] = value
        return headers, secrets

    def is_loopback(self) -> bool:
        """Tell whether the server is on this machine, as far as its address says."""
        return is_loopback(urlsplit(self.url).hostname or '')

    def token(self) -> str:
        """Access token from the environment; empty: none is set.

        Raises:
            ConfigError: It cannot be read or is none, or it would travel unencrypted.
        """
        return self._secret(self.token_variable)

    def _secret(self, variable: str) -> str:
        secret = token_from_environment(variable)
        if secret and urlsplit(self.url).scheme == 'http' and not self.is_loopback():
            msg = (
                f'a token is set ({variable}) and {self.url} is not encrypted: '
                'use https, or an SSH tunnel to 127.0.0.1'
            )
            raise ConfigError(msg)
        return secret


_HEADER = re.compile(r'[\w!#$%&\'*+.^`|~-]+\s*:\s*[^\s].*')
_VARIABLE = re.compile(r'\$([A-Za-z_]\w*)')
_SECRET_NAME = re.compile(r'key|token|auth|secret|password|cookie', re.IGNORECASE)


def _check_header(header: str) -> None:
    """Refuse what is no header, and a secret that stands where others read it.

    Raises:
        ConfigError: It is such.
    """
    name = header.partition(':')[0].strip()
    if not _HEADER.fullmatch(header):
        msg = f'headers has one of the name {name!r}: expected NAME: VALUE'
        raise ConfigError(msg)
    if _SECRET_NAME.search(name) and not _VARIABLE.search(header):
        msg = (
            f'header {name} has its value in the settings: expected $VARIABLE, the name of an '
            'environment variable that holds it'
        )
        raise ConfigError(msg)


def _is_server_url(url: str) -> bool:
    try:
        httpx.URL(url)  # its rules for host names are those of the requests
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no port
    except (ValueError, httpx.InvalidURL):
        return False
    is_plain = '@' not in parts.netloc and not parts.query and not parts.fragment
    return parts.scheme in {'http', 'https'} and bool(parts.hostname) and is_plain


def _without_secrets(url: str) -> str:
    """A URL to be shown: what may hold a password or a key is left out."""
    scheme, slashes, rest = url.rpartition('://')
    user, at, rest = rest.rpartition('@')
    path, query, _ = rest.partition('?')
    return f'{scheme}{slashes}{"..." if user else ""}{at}{path}{query and "?..."}'


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def token_from_environment(variable: str) -> str:
    """Token in an environment variable, or in the file that VARIABLE_FILE names; empty: none.

    Raises:
        ConfigError: The file cannot be read or is empty, or what it holds is no token.
    """
    token = os.environ.get(variable, '').strip()
    path = os.environ.get(f'{variable}_FILE', '')
    where = f'{variable}_FILE names {path}'
    if path and not token:
        try:
            token = Path(path).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            # Not `error` itself: of bytes that are no text it would show some.
            why = error.strerror if isinstance(error, OSError) else 'it is not text'
            msg = f'{where}, which cannot be read: {why}'
            raise ConfigError(msg) from None
        if not token:
            msg = f'{where}, which is empty: expected a token'
            raise ConfigError(msg)
    # Anything else is no HTTP header, and what refuses it would show the token.
    if not all('!' <= char <= '~' for char in token):
        msg = f'{where if path else variable} holds no token: expected one word of ASCII'
        raise ConfigError(msg)
    return token


def tls_context() -> ssl.SSLContext:
    """Which certificates to trust: those that the system trusts, and EMBODIED_R_CA_FILE.

    Raises:
        ConfigError: The file holds no certificates.
    """
    context = ssl.create_default_context()
    path = os.environ.get(CA_VARIABLE, '')
    if path:
        try:
            context.load_verify_locations(cafile=path)
        except OSError as error:  # an SSLError is one too
            why = error.strerror if not isinstance(error, ssl.SSLError) else 'no certificates'
            msg = f'{CA_VARIABLE} names {path}: {why}; expected a file of certificates (PEM)'
            raise ConfigError(msg) from None
    return context


_PICKLES = ('.bin', '.pt', '.pth', '.ckpt', '.pkl', '.pickle')


def holds_weights(folder: Path) -> bool:
    """Tell whether a folder holds weights as safetensors, or is itself a file of GGUF."""
    return any(folder.glob('*.safetensors')) or (folder.suffix == '.gguf' and folder.is_file())


_HEAD = 4096  # bytes in which a file of GGUF says what it is


def is_reader(model: str) -> bool:
    """Tell whether a model is given as a LoRA adapter in GGUF, for the small model that reads."""
    return b'adapter.type' in _gguf_head(model)


def is_gguf_model(model: str) -> bool:
    """Tell whether a model is given as a file of GGUF that holds a whole one."""
    return b'general.architecture' in _gguf_head(model) and not is_reader(model)


def _gguf_head(model: str) -> bytes:
    """The first bytes of a model that is a file of GGUF; of any other none."""
    path = Path(model).expanduser()
    if path.suffix != '.gguf' or not path.is_file():
        return b''
    with path.open('rb') as file:
        return file.read(_HEAD)


def refuse_pickles(path: Path) -> None:
    """Refuse a model whose weights are pickles: a file, or a folder without safetensors.

    What lies beside safetensors is never read, such as a trainer's `training_args.bin`.

    Raises:
        ConfigError: They are pickles.
    """
    if path.is_dir() and holds_weights(path):
        return
    files = sorted(path.iterdir()) if path.is_dir() else [path]
    pickles = [file.name for file in files if file.suffix.lower() in _PICKLES]
    if pickles:
        msg = (
            f'{path} has its weights as a pickle ({pickles[0]}), which can run any code when it '
            'is read: expected *.safetensors, as save_pretrained() of transformers writes them'
        )
        raise ConfigError(msg)


# Weights, configuration, tokenizer, chat template. A card or a log does not change an answer.
MODEL_PATTERNS = ('*.safetensors', '*.json', '*.jinja', 'merges.txt', 'vocab.txt', '*.model')
_PIECE = 8 * 1024 * 1024
# (path, size, time of change [ns]) -> sum; weights are read once per process.
_sums: dict[tuple[str, int, int], str] = {}


def model_digest(*folders: Path, check: Callable[[], object] = lambda: None) -> str:
    """Digest of a model: SHA-256 over the names and SHA-256 sums of the files in its folders.

    Args:
        folders: Folder of the model in the layout of Hugging Face, or its GGUF file; then the
            folder of its adapter.
        check: Called before every 8 MiB; what it raises ends the work, and files that were read
            are not read again next time.

    Returns:
        'sha256:' and 64 hexadecimal digits.

    Raises:
        ConfigError: A folder holds no weights, or pickles.
    """
    total = hashlib.sha256()
    for folder in folders:
        refuse_pickles(folder)
        if not holds_weights(folder):
            msg = f'{folder} holds no model: expected *.safetensors in it'
            raise ConfigError(msg)
        for path in model_files(folder):
            total.update(f'{file_sum(path, check)}  {path.name}\n'.encode())
    return f'sha256:{total.hexdigest()}'


def model_files(folder: Path) -> list[Path]:
    """The files of a model folder that decide its answers; a GGUF file is the only one."""
    if folder.is_file():
        return [folder]
    return sorted({path for pattern in MODEL_PATTERNS for path in folder.glob(pattern)})


def file_sum(path: Path, check: Callable[[], object] = lambda: None) -> str:
    """SHA-256 of a file, in hexadecimal digits; computed once for each state of it.

    Args:
        path: The file.
        check: Called before every 8 MiB; what it raises ends the work.
    """
    stat = path.stat()
    key = (str(path), stat.st_size, stat.st_mtime_ns)
    if key not in _sums:
        digest = hashlib.sha256()
        with path.open('rb') as file:
            while piece := file.read(_PIECE):
                check()
                digest.update(piece)
        _sums[key] = digest.hexdigest()
    return _sums[key]
