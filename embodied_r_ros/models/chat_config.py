# SPDX-License-Identifier: Apache-2.0
"""Where a model is served, and the token for it, which comes from the environment only.

Parameters travel: they are listed, logged and recorded in bags. A token is therefore no setting.
"""

from __future__ import annotations

from dataclasses import dataclass
import ipaddress
import os
from pathlib import Path
from urllib.parse import urlsplit

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.errors import ConfigError
import httpx


@dataclass(frozen=True)
class ChatConfig:
    """Where a model is served and how patient to be. Tokens are never settings."""

    url: str = setting(
        'http://127.0.0.1:8100', 'base URL of the model server, with or without /v1'
    )
    model: str = setting('', 'name of the model at the server; empty: the one that it serves')
    adapters: str = setting(
        '',
        'how names of LoRA adapters begin of which the newest is asked, where the server has one; '
        'empty: the model itself',
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

    def __post_init__(self) -> None:
        """Check the settings, and that the URL is one."""
        check_settings(self)
        if not _is_server_url(self.url):
            msg = f'url is {self.url!r}: expected http(s)://HOST:PORT, without a user or password'
            raise ConfigError(msg)

    def base_url(self) -> str:
        """URL without a trailing slash and without /v1."""
        return self.url.rstrip('/').removesuffix('/v1').rstrip('/')

    def is_loopback(self) -> bool:
        """Tell whether the server is on this machine, as far as its address says."""
        return is_loopback(urlsplit(self.url).hostname or '')

    def token(self) -> str:
        """Access token from the environment; empty: none is set.

        Raises:
            ConfigError: Its file cannot be read, or it would travel unencrypted.
        """
        token = token_from_environment(self.token_variable)
        if token and urlsplit(self.url).scheme == 'http' and not self.is_loopback():
            msg = (
                f'a token is set ({self.token_variable}) and {self.url} is not encrypted: '
                'use https, or an SSH tunnel to 127.0.0.1'
            )
            raise ConfigError(msg)
        return token


def _is_server_url(url: str) -> bool:
    try:
        httpx.URL(url)  # its rules for host names are those of the requests
        parts = urlsplit(url)
        _ = parts.port  # raises where it is no port
    except (ValueError, httpx.InvalidURL):
        return False
    return parts.scheme in {'http', 'https'} and bool(parts.hostname) and '@' not in parts.netloc


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address means this machine."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == 'localhost'


def token_from_environment(variable: str) -> str:
    """Token in an environment variable, or in the file that VARIABLE_FILE names; empty: none.

    Raises:
        ConfigError: The file cannot be read or is empty.
    """
    token = os.environ.get(variable, '').strip()
    path = os.environ.get(f'{variable}_FILE', '')
    if token or not path:
        return token
    try:
        token = Path(path).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f'{variable}_FILE names {path}, which cannot be read: {error}'
        raise ConfigError(msg) from None
    if not token:
        msg = f'{variable}_FILE names {path}, which is empty: expected a token'
        raise ConfigError(msg)
    return token
