# SPDX-License-Identifier: Apache-2.0
"""How a recipe is run: settings from YAML file and command line, one clear line where it fails."""

from __future__ import annotations

import sys
from typing import Any, TYPE_CHECKING

from embodied_r_ros.errors import EmbodiedRError, InputError
from trl import TrlParser

if TYPE_CHECKING:
    from collections.abc import Callable


def run_recipe(name: str, train: Callable[..., None], *arguments: type[Any]) -> int:
    """Train as the command line and the YAML file say.

    Args:
        name: Of the recipe's module, for messages.
        train: Takes one value of each of `arguments`.
        arguments: Dataclasses whose fields the command line and the YAML file fill.

    Returns:
        The exit code: 0, 2 for bad input, 1 for any other failure that the project knows.
    """
    values = TrlParser(arguments).parse_args_and_config()
    try:
        train(*values)
    except EmbodiedRError as error:
        sys.stderr.write(f'{name}: error: {error}\n')
        return 2 if isinstance(error, InputError) else 1
    return 0
