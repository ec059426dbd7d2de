# SPDX-License-Identifier: Apache-2.0
"""The commands of training that documents and configuration files give are taken."""

from __future__ import annotations

from importlib import import_module
import sys
from typing import TYPE_CHECKING

import pytest

from test.documents import (
    commands_of,
    commands_of_config,
    CONFIGS,
    PAGES,
    ParsedError,
    parsing_alone,
    ROOT,
)

if TYPE_CHECKING:
    from test.documents import DocumentCommand

COMMANDS = [
    *(command for page in PAGES for command in commands_of(page)),
    *(command for config in CONFIGS for command in commands_of_config(config)),
]
MODULES = ('training.', 'examples.circle')
OURS = {str(c): c for c in COMMANDS if c.module.startswith(MODULES)}


@pytest.mark.parametrize('command', OURS.values(), ids=str)
def test_commands_of_training_are_taken(
    command: DocumentCommand, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    main = import_module(command.module).main
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, 'argv', [command.module, *command.arguments])
    with parsing_alone(monkeypatch), pytest.raises((ParsedError, SystemExit)) as read:
        main()
    if isinstance(read.value, SystemExit):
        message = capsys.readouterr().err
        assert not command.is_whole, message
        assert 'arguments are required' in message
    else:
        assert read.value.args == ([],)
