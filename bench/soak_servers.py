# SPDX-License-Identifier: Apache-2.0
"""Model servers that a soak ends and starts anew, each at one address."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from embodied_r_ros.chat.settings import ChatConfig
from embodied_r_ros.common.resources import shared_path
from embodied_r_ros.serving.profiles import load_profile, Profile
from embodied_r_ros.serving.servers import ModelServers

from bench.faulty_server import FaultyServer, free_port

if TYPE_CHECKING:
    from pathlib import Path

_SAYS = '<think>It did not turn.</think><answer>A</answer>'


class LightServer(FaultyServer):
    """A server without a model."""

    def __init__(self) -> None:
        """Start it."""
        super().__init__('light', _SAYS)
        self.chat = ChatConfig(url=self.url, model=self.name)


class ShippedServer:
    """The server of the shipped model."""

    def __init__(self, folder: Path) -> None:
        """Start it; its logs go into the folder."""
        self._folder = folder
        config = load_profile('embedded').servers['reasoner']
        model = str(shared_path('models', 'nano'))
        config = replace(config, model=model, port=free_port(), promoted='')
        self._profile = Profile('soak', servers={'reasoner': config})
        self.chat = config.client()
        self.start()

    @property
    def pid(self) -> int:
        """Id of the process that was started last."""
        return self._servers.running[0].pid

    def start(self) -> None:
        """Start it and wait until it is healthy.

        Raises:
            ModelError: It ended, or was not healthy in time.
        """
        self._servers = ModelServers(self._profile, self._folder)
        self._servers.start()

    def kill(self) -> None:
        """End it, and wait until it is gone."""
        self._servers.close()
