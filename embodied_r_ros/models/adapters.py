# SPDX-License-Identifier: Apache-2.0
"""LoRA adapters that a running server takes and gives back, as vLLM does.

vLLM does so where `VLLM_ALLOW_RUNTIME_LORA_UPDATING` is set and its command has `--enable-lora`.
Every adapter has a name of its own, so that each completion tells which one it is of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from embodied_r_ros.errors import ConfigError, ModelError
from embodied_r_ros.models.chat_wire import error_detail
from embodied_r_ros.models.profiles import ADAPTERS
import httpx

if TYPE_CHECKING:
    from embodied_r_ros.models.profiles import ServerConfig
    from embodied_r_ros.models.promotion import Promoted

RUNTIME_UPDATES = 'VLLM_ALLOW_RUNTIME_LORA_UPDATING'
_TIMEOUT_S = 120.0  # a large adapter is read from the disk


class Adapter:
    """The promoted adapter of one server."""

    def __init__(self, config: ServerConfig, token: str) -> None:
        self._config = config
        self._headers = {'Authorization': f'Bearer {token}'} if token else {}
        self._loaded = ''

    def take(self, promoted: Promoted | None) -> bool:
        """Have the server take what is promoted, where that is an adapter, and drop what was.

        The new one is there before the old one goes, so that no question finds neither.

        Returns:
            True where anything changed.

        Raises:
            ConfigError: The server takes no adapters.
            ModelError: The server does not take this one.
        """
        wanted = ''
        if promoted and promoted.is_adapter:
            wanted = ADAPTERS + promoted.digest.removeprefix('sha256:')[:12]
        if wanted == self._loaded:
            return False
        if promoted and wanted:
            if not self._config.takes_adapters():
                msg = (
                    f'{self._config.command[0]} takes no adapters: give --enable-lora to its '
                    'command, or promote a merged one'
                )
                raise ConfigError(msg)
            self._post('load', {'lora_name': wanted, 'lora_path': str(promoted.folder)})
        before, self._loaded = self._loaded, wanted
        if before:
            self._post('unload', {'lora_name': before})
        return True

    def _post(self, what: str, body: dict[str, str]) -> None:
        url = f'{self._config.client().base_url()}/v1/{what}_lora_adapter'
        try:
            reply = httpx.post(
                url, json=body, headers=self._headers, timeout=_TIMEOUT_S, trust_env=False
            )
        except httpx.HTTPError as error:
            msg = f'{url} does not answer: {error}'
            raise ModelError(msg) from error
        if reply.status_code != httpx.codes.OK:
            msg = f'{url} failed with status {reply.status_code}: {error_detail(reply.text)}'
            raise ModelError(msg)
