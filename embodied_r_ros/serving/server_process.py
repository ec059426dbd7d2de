# SPDX-License-Identifier: Apache-2.0
"""One model server while it runs: its process and its adapter.

A process must be started in a thread that lives as long as it is wanted: its life is tied to it.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.errors import ConfigError, ModelError
from embodied_r_ros.common.processes import ChildProcess
from embodied_r_ros.core.chat.protocol import error_detail
from embodied_r_ros.serving.profiles import ADAPTERS
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.serving.profiles import ServerConfig
    from embodied_r_ros.serving.promotion import PromotedModel

_POLL_S = 0.2
_SAY_EVERY_S = 5.0
_TAIL_CHARS = 300
# Signals of which the last line of a log is not the cause.
_SENT_FROM_OUTSIDE: dict[int, str] = {
    signal.SIGKILL: '(another process killed it, or the kernel for want of memory)',
    signal.SIGTERM: '(another process asked it to end)',
}
_ADAPTER_TIMEOUT_S = 120.0  # a large adapter is read from the disk


class ModelProcess:
    """A model server that was started."""

    def __init__(
        self,
        role: str,
        config: ServerConfig,
        command: Sequence[str],
        environment: Mapping[str, str],
        log: Path,
    ) -> None:
        """Start it in a process group of its own, with its output in a log.

        Raises:
            ConfigError: The log or the program cannot be opened.
        """
        self.role = role
        self.config = config
        self.log = log
        try:
            self._process = ChildProcess(command, log, environment=environment)
        except OSError as error:
            msg = f'{role} cannot be started with its log at {log}: {error}'
            raise ConfigError(msg) from None

    @property
    def pid(self) -> int:
        """Process id of the server."""
        return self._process.pid

    def await_health(self, say: Callable[[str], None]) -> None:
        """Wait until the server can be used; `say` gets a line every few seconds.

        Raises:
            ModelError: It ended, or is not healthy within its start timeout.
        """
        url = self.config.client().base_url() + self.config.health
        limit_s = self.config.start_timeout_s
        start = last_report = time.monotonic()
        while not is_healthy(url):
            self.check()
            now = time.monotonic()
            if now - start > limit_s:
                msg = (
                    f'{self.role} was not healthy within {limit_s:.0f} s ({url}): raise '
                    f'start_timeout_s, or see {self.log} {self._last_words()}'
                )
                raise ModelError(msg)
            if now - last_report > _SAY_EVERY_S:
                last_report = now
                say(f'{self.role}: loading for {now - start:.0f} s {self._last_words()}'.rstrip())
            time.sleep(_POLL_S)
        # Its port was free, but another server may have taken it since, and be what answers.
        self.check()
        say(f'{self.role}: ready after {time.monotonic() - start:.0f} s at {url}')

    def check(self) -> None:
        """Look whether it still runs.

        Raises:
            ModelError: It ended; with the end of its log.
        """
        code = self._process.poll()
        if code is not None:
            how = f'signal {-code}' if code < 0 else f'exit code {code}'
            msg = (
                f'{self.role} ended with {how}, serving {self.config.model}: '
                f'see {self.log} {_SENT_FROM_OUTSIDE.get(-code) or self._last_words()}'
            )
            raise ModelError(msg)

    def ask_to_end(self) -> None:
        """Send SIGTERM to the server and to what it started."""
        self._process.signal(signal.SIGTERM)

    def end(self, grace_s: float) -> bool:
        """Wait for the end after `ask_to_end`; kill what is left of the group after the grace.

        Returns:
            True: it ended by itself.
        """
        return self._process.end(grace_s)

    def _last_words(self) -> str:
        """The last line of the log, preferably an error, shortened and in brackets."""
        lines = self._process.log_lines()
        errors = [line for line in lines[-20:] if 'error' in line.lower()]
        line = (errors or lines or [''])[-1][-_TAIL_CHARS:]
        return f'({line})' if line else ''


def is_healthy(url: str) -> bool:
    """Tell whether a server says at a URL that it can be used."""
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False


class Adapter:
    """The promoted adapter of one server."""

    def __init__(self, config: ServerConfig, token: str) -> None:
        self._config = config
        self._headers = {'Authorization': f'Bearer {token}'} if token else {}
        self._loaded = ''

    def take(self, promoted: PromotedModel | None) -> bool:
        """Have the server take what is promoted, where that is an adapter, and drop what was.

        The new one is there before the old one goes, so that no question finds neither.

        Returns:
            True where anything changed.

        Raises:
            ConfigError: The server takes no adapters.
            ModelError: The server does not take this one.
        """
        name = ''
        if promoted and promoted.is_adapter:
            name = ADAPTERS + promoted.digest.removeprefix('sha256:')[:12]
        if name == self._loaded:
            return False
        if promoted and name and not self._config.takes_adapters():
            msg = (
                f'{self._config.command[0]} takes no adapters: give --enable-lora to its '
                'command, or promote a merged one'
            )
            raise ConfigError(msg)
        url, folder = self._config.client().base_url(), promoted.folder if promoted else None
        swap_adapters(url, self._loaded, name, folder, self._headers)
        self._loaded = name
        return True


def swap_adapters(
    url: str, old: str, new: str, folder: Path | None, headers: Mapping[str, str] | None = None
) -> None:
    """Have a server load a LoRA adapter under a name, then drop the one before.

    Names are those of contents: one that is loaded already is the same. One that the server no
    longer has, as after a restart, need not be dropped.

    Args:
        url: The server's.
        old: Name of the adapter to drop; empty: none.
        new: Name of the adapter to load; empty: none.
        folder: Where the server finds it.
        headers: Of the requests.

    Raises:
        ModelError: The server does not answer, or refuses.
    """
    requests = [('load', {'lora_name': new, 'lora_path': str(folder)})] if new else []
    for what, body in [*requests, *([('unload', {'lora_name': old})] if old else [])]:
        address = f'{url}/v1/{what}_lora_adapter'
        try:
            reply = httpx.post(
                address, json=body, headers=headers, timeout=_ADAPTER_TIMEOUT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            msg = f'{address} does not answer: {error}'
            raise ModelError(msg) from error
        is_gone = what == 'unload' and reply.status_code == httpx.codes.NOT_FOUND
        if is_gone or (what == 'load' and 'already been loaded' in reply.text):
            continue
        if reply.status_code != httpx.codes.OK:
            msg = f'{address} failed with status {reply.status_code}: {error_detail(reply.text)}'
            raise ModelError(msg)
