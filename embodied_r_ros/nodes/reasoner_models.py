# SPDX-License-Identifier: Apache-2.0
"""Which models answer questions: the rungs of the reasoner, from its parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TYPE_CHECKING

from embodied_r_ros.config import check_settings, setting
from embodied_r_ros.deltas import Rung
from embodied_r_ros.models.http_chat import HttpChatClient
from embodied_r_ros.models.profiles import load_profile, stand_in_server

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embodied_r_ros.models.chat import ChatClient
    from embodied_r_ros.models.chat_config import ChatConfig


@dataclass(frozen=True)
class ReasonerNodeConfig:
    """Which models answer."""

    profile: str = setting(
        '',
        'model profile whose reasoner is asked, with its reasoner.* where none are given here; '
        'empty: the server of chat.*',
        read_only=True,
    )
    secondary: str = setting(
        '',
        'what answers where the model fails: URL of a model server, or a profile with a reasoner; '
        'empty: nothing',
        read_only=True,
    )
    local: str = setting(
        '',
        'what answers where that fails too: a small model on the robot, likewise',
        read_only=True,
    )
    model_timeout_s: float = setting(
        10.0,
        'time in which the model server must say what it serves [s]',
        between=(0.1, 600),
        read_only=True,
    )

    def __post_init__(self) -> None:
        check_settings(self)

    def server(self, chat: ChatConfig) -> ChatConfig:
        """The server to ask: the profile's, or `chat` where no profile is named."""
        return load_profile(self.profile).client('reasoner') if self.profile else chat

    def suited(self) -> Mapping[str, Any]:
        """Settings of `ReasonerConfig` that suit the model of the profile."""
        return load_profile(self.profile).reasoner if self.profile else {}

    def clients(self, chat: ChatConfig) -> dict[Rung, ChatClient]:
        """Clients of all rungs, where `chat` is the server if no profile is named.

        Raises:
            ConfigError: A profile, URL or token cannot be used.
        """
        servers = {Rung.PRIMARY: self.server(chat)}
        for rung, name in ((Rung.SECONDARY, self.secondary), (Rung.LOCAL, self.local)):
            if name:
                servers[rung] = stand_in_server(name, 'reasoner', rung.name)
        return {rung: HttpChatClient(server) for rung, server in servers.items()}
