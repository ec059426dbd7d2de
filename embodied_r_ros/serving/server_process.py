# SPDX-License-Identifier: Apache-2.0
"""One model server as a child process: started, waited for, watched, ended.

It must be started in a thread that lives as long as it is wanted: its life is tied to it.
"""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from embodied_r_ros.common.child_processes import ChildProcess
from embodied_r_ros.common.errors import ConfigError, ModelError
import httpx

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from embodied_r_ros.serving.profiles import ServerConfig

_POLL_S = 0.2
_SAY_EVERY_S = 5.0
_TAIL_CHARS = 300


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
        while not _is_healthy(url):
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
                f'see {self.log} {self._last_words()}'
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


def _is_healthy(url: str) -> bool:
    try:
        return httpx.get(url, timeout=2.0, trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
